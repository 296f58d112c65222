//! Operator attributes as Python objects: numbers, text, and sequences.

use arenaplan::graph::Attribute;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyFloat, PyInt, PyList, PyMapping, PyString, PyTuple};

/// Reads attributes by name. Names and values that a graph cannot hold become omitted values: only
/// an executor, which has the Python objects, uses such attributes.
pub(crate) fn read(attributes: &Bound<'_, PyAny>) -> PyResult<Vec<(String, Attribute)>> {
    if !attributes.is_truthy()? {
        return Ok(Vec::new());
    }
    let mut read = Vec::new();
    for item in attributes.cast::<PyMapping>()?.items()?.iter() {
        let (name, value): (Bound<'_, PyAny>, Bound<'_, PyAny>) = item.extract()?;
        let name = name.str()?.to_string_lossy().into_owned();
        if !name.is_empty() {
            read.push((name, read_value(&value)));
        }
    }
    Ok(read)
}

/// Reads one attribute.
fn read_value(value: &Bound<'_, PyAny>) -> Attribute {
    let list = value.cast::<PyTuple>().map(PyTupleMethods::to_list).ok();
    let list = list.or_else(|| value.cast::<PyList>().ok().cloned());
    let read = match list {
        Some(list) => read_list(&list),
        None => scalar(value),
    };
    read.unwrap_or(Attribute::Omitted)
}

/// Reads a number or text.
fn scalar(value: &Bound<'_, PyAny>) -> Option<Attribute> {
    if value.is_instance_of::<PyBool>() {
        return Some(Attribute::from(value.extract::<bool>().ok()?));
    }
    if value.is_instance_of::<PyInt>() {
        return Some(Attribute::Integer(value.extract().ok()?));
    }
    if value.is_instance_of::<PyFloat>() {
        let number: f64 = value.extract().ok()?;
        return number.is_finite().then_some(Attribute::Real(number));
    }
    // Text with surrogates cannot be written to a file.
    value.is_instance_of::<PyString>().then(|| value.extract().ok().map(Attribute::Text))?
}

/// Reads a list whose elements all have one kind.
fn read_list(list: &Bound<'_, PyList>) -> Option<Attribute> {
    let elements: Vec<Attribute> =
        list.iter().map(|element| scalar(&element)).collect::<Option<_>>()?;
    let all = |of: fn(&Attribute) -> bool| elements.iter().all(of);
    if all(|element| element.as_integer().is_some()) {
        let numbers = elements.iter().filter_map(Attribute::as_integer);
        Some(Attribute::Integers(numbers.collect()))
    } else if all(|element| element.as_real().is_some()) {
        Some(Attribute::Reals(elements.iter().filter_map(Attribute::as_real).collect()))
    } else if all(|element| element.as_text().is_some()) {
        let texts = elements.iter().filter_map(Attribute::as_text);
        Some(Attribute::Texts(texts.map(str::to_owned).collect()))
    } else {
        None
    }
}
