//! Hazards: the steps that each step in a plan must wait for.

use std::sync::Arc;

use pyo3::prelude::*;

use crate::arguments::{Arg, Text};
use crate::call::{self, admit};
use crate::error::OrRaise;
use crate::getters::getters;
use crate::results::{Hazard, Timetable};

/// Least bytes per edge in a hazards file.
const BYTES_PER_EDGE: usize = 32;

/// Return the JSON Schema for hazards.
#[pyfunction]
pub(crate) fn hazards_schema() -> &'static str {
    arenaplan::format::hazards_schema()
}

/// The dependencies between a plan's steps, transitively reduced.
///
/// A runner that starts each step after the required steps have ended may run all other steps in
/// any order and at the same time. :meth:`Plan.hazards` computes hazards,
/// :meth:`Plan.check_hazards` proves hazards.
///
/// Examples
/// --------
/// >>> import arenaplan as ap
/// >>> graph = ap.Graph()
/// >>> x = graph.input("x", (64,))
/// >>> (y,) = graph.node("Conv", [x], [("y", (64,), "float32")])
/// >>> (z,) = graph.node("Conv", [y], [("z", (64,), "float32")])
/// >>> graph.output(z)
/// >>> hazards = ap.plan(graph).hazards(graph)
/// >>> hazards.of(1)
/// [Hazard(after=1, before=0, kind='data')]
#[pyclass(frozen, eq, module = "arenaplan._core")]
#[derive(Debug, PartialEq)]
pub(crate) struct Hazards {
    pub(crate) inner: Arc<arenaplan::plan::Hazards>,
}

impl From<arenaplan::plan::Hazards> for Hazards {
    fn from(inner: arenaplan::plan::Hazards) -> Self {
        Self { inner: Arc::new(inner) }
    }
}

fn row(edge: &arenaplan::plan::Hazard) -> Hazard {
    Hazard { after: edge.after, before: edge.before, kind: edge.kind.name().into() }
}

getters! { Hazards
    /// Model name.
    model: &str = |it| it.inner.model();

    /// Planned graph digest.
    digest: &str = |it| it.inner.digest();

    /// Step count.
    steps: usize = |it| it.inner.steps();

    /// The edges, ascending by later step, then by earlier step.
    edges: Vec<Hazard> = |it| it.inner.edges().iter().map(row).collect();
}

#[pymethods]
impl Hazards {
    /// Return the edges to a step: the steps that must end before.
    fn of(&self, step: Arg<usize>) -> Vec<Hazard> {
        self.inner.of(*step).iter().map(row).collect()
    }

    /// Return the dependent steps by step.
    fn dependents(&self) -> Vec<Vec<u32>> {
        self.inner.dependents()
    }

    /// Return the start times if ``workers`` run the steps, each worker the first ready step in
    /// order.
    ///
    /// Parameters
    /// ----------
    /// costs : list of int
    ///     Time by step.
    /// workers : int
    ///     Worker count.
    fn timetable(&self, costs: Arg<Vec<u64>>, workers: Arg<u32>) -> Timetable {
        self.inner.timetable(&costs, *workers).into()
    }

    /// Return the time along the longest chain of dependent steps.
    fn critical_path(&self, costs: Arg<Vec<u64>>) -> u64 {
        self.inner.critical_path(&costs).span
    }

    /// Return the hazards as JSON text.
    fn to_json(&self, py: Python<'_>) -> PyResult<String> {
        let hazards = Arc::clone(&self.inner);
        let text = call::run(py, hazards.edges().len(), move |_, _| hazards.to_json())?;
        admit(py, text.len())?;
        Ok(text)
    }

    /// Return the hazards that JSON text holds.
    #[staticmethod]
    fn from_json(py: Python<'_>, text: Text<'_>) -> PyResult<Self> {
        admit(py, text.0.len())?;
        let text = text.0.to_vec();
        let items = text.len() / BYTES_PER_EDGE;
        let read = call::run(py, items, move |_, _| arenaplan::plan::Hazards::from_json(&text))?;
        Ok(read.or_raise(py)?.into())
    }

    fn __len__(&self) -> usize {
        self.inner.edges().len()
    }

    fn __reduce__(slf: &Bound<'_, Self>) -> PyResult<(Py<PyAny>, (Vec<u8>,))> {
        let text = slf.get().to_json(slf.py())?.into_bytes();
        let load = slf.get_type().getattr("from_json")?;
        Ok((load.unbind(), (text,)))
    }

    fn __repr__(&self) -> String {
        let (model, steps) = (arenaplan::base::quoted(self.inner.model()), self.inner.steps());
        format!("Hazards({model}, {steps} steps, {} edges)", self.inner.edges().len())
    }
}
