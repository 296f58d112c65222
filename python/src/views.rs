//! Views of plans and packings that the package makes in Python: pictures and tables.
//!
//! The extension imports nothing of the package, so the package hands over the functions.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

use crate::error::raise_named;

/// Functions from the package, each from a plan, the last from a packing, to a view.
struct Views {
    html: Py<PyAny>,
    frame: Py<PyAny>,
    packing: Py<PyAny>,
}

static VIEWS: PyOnceLock<Views> = PyOnceLock::new();

/// Hand over the functions that `Plan._repr_html_`, `Plan.to_pandas` and `Packing._repr_html_`
/// call. The first functions stay.
#[pyfunction]
pub(crate) fn set_views(py: Python<'_>, html: Py<PyAny>, frame: Py<PyAny>, packing: Py<PyAny>) {
    // A second call, such as from a module that is imported again, changes nothing.
    let _ = VIEWS.set(py, Views { html, frame, packing });
}

/// Returns a plan's map as HTML.
pub(crate) fn html<'py>(plan: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    views(plan.py())?.html.bind(plan.py()).call1((plan,))
}

/// Returns a plan's places as a data frame.
pub(crate) fn frame<'py>(plan: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    views(plan.py())?.frame.bind(plan.py()).call1((plan,))
}

/// Returns a packing's drawing as HTML.
pub(crate) fn packing<'py>(packing: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    views(packing.py())?.packing.bind(packing.py()).call1((packing,))
}

fn views(py: Python<'_>) -> PyResult<&Views> {
    let missing = || raise_named(py, "InternalError", "the package gave no views of plans".into());
    VIEWS.get(py).ok_or_else(missing)
}
