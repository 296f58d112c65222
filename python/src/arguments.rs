//! Arguments of callers: an object of another type is refused by a typed error.

use pyo3::exceptions::{PyOverflowError, PyTypeError};
use pyo3::inspect::{PyStaticExpr, PyStaticOperator};
use pyo3::prelude::*;

use crate::error::raise_named;

/// Most characters of an object in a message.
const SHOWN: usize = 60;

/// An argument, refused with its text and the type that is needed if it is no `T`.
#[derive(Debug)]
pub(crate) struct Arg<T>(pub(crate) T);

impl<T> std::ops::Deref for Arg<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<'a, 'py, T: FromPyObject<'a, 'py>> FromPyObject<'a, 'py> for Arg<T> {
    type Error = PyErr;

    const INPUT_TYPE: PyStaticExpr = T::INPUT_TYPE;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        object.extract().map(Self).map_err(|error: T::Error| {
            let (py, error): (_, PyErr) = (object.py(), error.into());
            let wanted = T::INPUT_TYPE.to_string();
            if error.is_instance_of::<PyOverflowError>(py) {
                let range = if object.lt(0).unwrap_or(false) { "negative" } else { "too large" };
                let message = format!("{} is {range}", shown(&object));
                return raise_named(py, "InvalidOption", message);
            }
            if error.is_instance_of::<PyTypeError>(py) {
                return refused(&object, &wanted);
            }
            error
        })
    }
}

/// Text or bytes of a document.
#[derive(Debug)]
pub(crate) struct Text<'a>(pub(crate) &'a [u8]);

impl<'a, 'py> FromPyObject<'a, 'py> for Text<'a> {
    type Error = PyErr;

    const INPUT_TYPE: PyStaticExpr = PyStaticExpr::BinOp {
        left: &<&str as FromPyObject>::INPUT_TYPE,
        op: PyStaticOperator::BitOr,
        right: &<&[u8] as FromPyObject>::INPUT_TYPE,
    };

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        let text = object.extract::<&str>().map(str::as_bytes);
        let text = text.or_else(|_| object.extract::<&[u8]>());
        text.map(Self).map_err(|_| refused(&object, &Self::INPUT_TYPE.to_string()))
    }
}

/// Returns the error for an object in whose place a `wanted` is needed.
pub(crate) fn refused(object: &Bound<'_, PyAny>, wanted: &str) -> PyErr {
    let kind = object.get_type().name().map_or_else(|_| String::new(), |name| name.to_string());
    let wanted = wanted.replace("builtins.", "").replace("collections.abc.", "");
    let message = format!("{} is of type '{kind}'; {wanted} is needed", shown(object));
    raise_named(object.py(), "InvalidOption", message)
}

/// Returns the text of an object, shortened.
fn shown(object: &Bound<'_, PyAny>) -> String {
    let text = object.repr().map_or_else(|_| "an object".into(), |text| text.to_string());
    let short: String = text.chars().take(SHOWN).collect();
    if short.len() < text.len() { format!("{short}…") } else { short }
}

/// Returns a graph of the package; other objects are refused.
pub(crate) fn object_of<'a, 'py>(graph: &'a Bound<'py, PyAny>) -> PyResult<&'a Bound<'py, PyAny>> {
    if graph.hasattr("core_for")? { Ok(graph) } else { Err(refused(graph, "a Graph")) }
}
