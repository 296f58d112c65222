//! Errors in the core become Python exceptions of the same kind.

use std::path::Path;

use arenaplan::Error;
use pyo3::prelude::*;

/// A crate's error, with the kind of the Python exception.
pub(crate) trait Named: std::fmt::Display {
    /// Returns the kind of the exception.
    fn kind(&self) -> &'static str;

    /// Returns the core error that this error is, if any.
    fn core(&self) -> Option<&Error> {
        None
    }
}

impl Named for Error {
    fn kind(&self) -> &'static str {
        self.kind()
    }

    fn core(&self) -> Option<&Error> {
        Some(self)
    }
}

impl Named for arenaplan::pack::Error {
    fn kind(&self) -> &'static str {
        self.kind()
    }
}

impl Named for arenaplan_classic::Error {
    fn kind(&self) -> &'static str {
        self.kind()
    }

    fn core(&self) -> Option<&Error> {
        if let Self::Core(error) = self { Some(error) } else { None }
    }
}

/// Returns the exception from `arenaplan.base.errors` for `error`.
pub(crate) fn raise(py: Python<'_>, error: &impl Named) -> PyErr {
    error.core().map_or_else(
        || raise_named(py, error.kind(), error.to_string()),
        |error| raise_core(py, error),
    )
}

/// Returns the exception for a core error, with the facts that some errors have.
fn raise_core(py: Python<'_>, error: &Error) -> PyErr {
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

/// Returns the exception for a kind that `arenaplan.base.errors` lists.
pub(crate) fn raise_named(py: Python<'_>, kind: &str, message: String) -> PyErr {
    if kind == "Interrupted" {
        return PyErr::new::<pyo3::exceptions::PyKeyboardInterrupt, _>(message);
    }
    let exception = py
        .import("arenaplan.base.errors")
        .and_then(|errors| errors.getattr("fault"))
        .and_then(|fault| fault.call1((kind, message)));
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

impl<T, E: Named> OrRaise<T> for Result<T, E> {
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
