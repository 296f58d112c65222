//! Views that the package makes in Python: pictures and tables.
//!
//! The extension imports nothing of the package, so the package hands over the functions.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyDict;

use crate::error::raise_named;

static VIEWS: PyOnceLock<Py<PyDict>> = PyOnceLock::new();

/// Hand over the functions, by name, that make views of plans, packings and curves. The first
/// functions stay.
#[pyfunction]
#[pyo3(signature = (**views: "object"))]
pub(crate) fn set_views(py: Python<'_>, views: Option<Py<PyDict>>) {
    // A second call, such as from a module that is imported again, changes nothing.
    let _ = VIEWS.set(py, views.unwrap_or_else(|| PyDict::new(py).unbind()));
}

/// Returns the view of an object that the function `name` makes.
pub(crate) fn view<'py>(of: &Bound<'py, PyAny>, name: &str) -> PyResult<Bound<'py, PyAny>> {
    let py = of.py();
    let found = VIEWS.get(py).map(|views| views.bind(py).get_item(name)).transpose()?.flatten();
    let missing = || raise_named(py, "InternalError", format!("the package gave no view {name}"));
    found.ok_or_else(missing)?.call1((of,))
}
