//! Core errors become the Python exceptions of the same name.

use std::path::Path;

use arenaplan::Error;
use pyo3::prelude::*;

/// Returns the exception of `arenaplan.base.errors` that stands for `error`.
pub(crate) fn raise(py: Python<'_>, error: &Error) -> PyErr {
    if let Error::FileUnreadable { code: Some(code), .. } = error {
        return std::io::Error::from_raw_os_error(*code).into();
    }
    let exception = raise_named(py, error.kind(), error.to_string());
    if let Error::SpacesExceeded { step, node, values, proven, .. } = error {
        let about = exception.value(py);
        let noted = about
            .setattr("step", step)
            .and_then(|()| about.setattr("node", node.as_deref()))
            .and_then(|()| about.setattr("values", values.clone()))
            .and_then(|()| about.setattr("proven", proven));
        if let Err(error) = noted {
            return error;
        }
    }
    exception
}

/// Returns an exception of `arenaplan.base.errors` by name.
pub(crate) fn raise_named(py: Python<'_>, name: &str, message: String) -> PyErr {
    if name == "Interrupted" {
        return PyErr::new::<pyo3::exceptions::PyKeyboardInterrupt, _>(message);
    }
    let exception = py
        .import("arenaplan.base.errors")
        .and_then(|errors| errors.getattr(name).or_else(|_| errors.getattr("InternalError")))
        .and_then(|class| class.call1((message,)));
    match exception {
        Ok(exception) => PyErr::from_value(exception),
        Err(error) => error,
    }
}

/// Maps the error of a core call that was made with the interpreter attached.
pub(crate) trait OrRaise<T> {
    /// Returns the value, or the exception that stands for the error.
    fn or_raise(self, py: Python<'_>) -> PyResult<T>;
}

impl<T> OrRaise<T> for arenaplan::Result<T> {
    fn or_raise(self, py: Python<'_>) -> PyResult<T> {
        self.map_err(|error| raise(py, &error))
    }
}

/// Returns the exception for a file that could not be written.
pub(crate) fn unwritten(py: Python<'_>, path: &Path, error: &std::io::Error) -> PyErr {
    if error.kind() == std::io::ErrorKind::BrokenPipe {
        return pyo3::exceptions::PyBrokenPipeError::new_err(error.to_string());
    }
    raise_named(py, "PlanWriteError", format!("{}: {error}", path.display()))
}
