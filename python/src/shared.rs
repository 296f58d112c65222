//! Several graphs in one arena.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arenaplan::plan::{SharedMember, Together};
use pyo3::prelude::*;

use crate::arena::Arena;
use crate::arguments::{Arg, Text, object_of};
use crate::call::{self, Moment};
use crate::error::OrRaise;
use crate::files::{self, write_all};
use crate::getters::getters;
use crate::graph::Graph;
use crate::plan::Plan;
use crate::planner::Options;
use crate::verdict::SharedVerdict;

/// Bytes per value of a plan.
const ROW_BYTES: usize = 512;
/// Plans for several graphs that share one arena.
#[pyclass(frozen, module = "arenaplan._core")]
#[derive(Debug)]
pub(crate) struct SharedPlan {
    inner: Arc<arenaplan::plan::SharedPlan>,
}

impl SharedPlan {
    fn new(inner: arenaplan::plan::SharedPlan) -> Self {
        Self { inner: Arc::new(inner) }
    }

    /// Returns the number of values in all plans, for the memory that work with the plans may need.
    fn items(&self) -> usize {
        self.inner.members().iter().map(|member| member.plan.value_count()).sum()
    }

    /// Returns the plans as JSON text.
    fn text(&self, py: Python<'_>) -> PyResult<String> {
        let plans = Arc::clone(&self.inner);
        call::run(py, self.items(), move |_, _| plans.to_json())
    }
}

/// Plan ``graphs`` for one arena with the given options, a dict; ``together`` is
/// ``"never-together"`` or ``"concurrent"``.
#[pyfunction]
#[pyo3(signature = (graphs, together, options, on_progress=None, time_limit=None))]
pub(crate) fn plan_together(
    py: Python<'_>,
    graphs: Vec<Py<Graph>>,
    together: Arg<&str>,
    options: Options,
    on_progress: Option<Bound<'_, PyAny>>,
    time_limit: Option<f64>,
) -> PyResult<SharedPlan> {
    let together: Together = together.parse().or_raise(py)?;
    let items = graphs.iter().map(|graph| graph.get().items()).sum();
    let graphs: Vec<_> = graphs.iter().map(|graph| Arc::clone(&graph.get().inner)).collect();
    let mut hear = |moment: Moment| call::told(py, on_progress.as_ref(), moment);
    let ended = call::watch(py, items, &mut hear, move |cancel, tell| {
        let graphs: Vec<_> = graphs.iter().map(Arc::as_ref).collect();
        let planner = options.planner()?.budget(call::budget(cancel, tell, time_limit));
        planner.plan_together(&graphs, together)
    })?;
    Ok(SharedPlan::new(ended.finished()?.or_raise(py)?))
}

getters! { SharedPlan
    /// Rule for the graphs' runs: ``"never-together"`` or ``"concurrent"``.
    together: &'static str = |it| it.inner.together().name();

    /// Bytes in the shared arena.
    arena_bytes: u64 = |it| it.inner.arena_bytes();

    /// Bytes that no plans with these orders and this sharing can go below.
    lower_bound: u64 = |it| it.inner.lower_bound();

    /// Status of ``arena_bytes``: ``"optimal"``, ``"feasible"``, ``"infeasible"`` or
    /// ``"unknown"``.
    status: String = |it| it.inner.status().to_string();

    /// Alignment for the arena's first address.
    alignment: u64 = |it| it.inner.alignment();

    /// Bytes that the arena may have, or None if unlimited.
    capacity: Option<u64> = |it| it.inner.capacity();

    /// By graph, the first byte of the plan in the shared arena.
    bases: Vec<u64> = |it| it.inner.members().iter().map(|member| member.base).collect();
}

#[pymethods]
impl SharedPlan {
    /// The plan by graph; offsets count from the graph's base.
    #[getter]
    fn plans(&self, py: Python<'_>) -> PyResult<Vec<Plan>> {
        call::admit(py, self.items().saturating_mul(ROW_BYTES))?;
        let members = self.inner.members().iter();
        Ok(members.map(|member| member.plan.clone().into()).collect())
    }

    /// Raise unless the plans are valid for ``graphs``, and together in one arena.
    ///
    /// Raises
    /// ------
    /// PlanMismatch
    ///     If the plans were made for other graphs.
    /// PlanOverlap, PlanOutOfBounds, PlanMisaligned, PlanCorrupt
    ///     If the plans would corrupt bytes, or contradict themselves.
    fn check(&self, py: Python<'_>, graphs: Arg<Vec<Bound<'_, PyAny>>>) -> PyResult<SharedVerdict> {
        let mut members = self.inner.members().iter();
        let graphs = graphs.0.into_iter().map(|graph| {
            // If the numbers of graphs and plans differ, the check says so.
            let seen = members.next().map_or(("none", "ideal"), |SharedMember { plan, .. }| {
                (plan.options().workspace.name(), plan.target().name())
            });
            if let Ok(core) = graph.cast::<Graph>() {
                return Ok(core.clone().unbind());
            }
            let (policy, target) = seen;
            let core = object_of(&graph)?
                .call_method1("core_for", (policy, py.None(), Vec::<u32>::new(), target))?;
            Ok(core.cast_into::<Graph>()?.unbind())
        });
        let graphs = graphs.collect::<PyResult<Vec<_>>>()?;
        let graphs: Vec<_> = graphs.iter().map(|graph| Arc::clone(&graph.get().inner)).collect();
        let plans = Arc::clone(&self.inner);
        let found = call::run(py, self.items(), move |_, _| {
            plans.check(&graphs.iter().map(Arc::as_ref).collect::<Vec<_>>())
        })?;
        Ok(SharedVerdict { inner: found.or_raise(py)? })
    }

    /// Raise unless the arena fits the capacity.
    fn fits(&self, py: Python<'_>) -> PyResult<()> {
        self.inner.fits().or_raise(py)
    }

    /// Allocate the shared arena.
    fn commit(&self, py: Python<'_>) -> PyResult<Arena> {
        Arena::zeroed(py, self.inner.arena_bytes(), self.inner.alignment())
    }

    /// Return the plans as JSON text.
    fn to_json(&self, py: Python<'_>) -> PyResult<String> {
        let text = self.text(py)?;
        call::admit(py, text.len())?;
        Ok(text)
    }

    /// Return the plans that JSON text holds.
    #[staticmethod]
    fn from_json(py: Python<'_>, text: Text<'_>) -> PyResult<Self> {
        Ok(Self::new(files::parse(py, text, arenaplan::plan::SharedPlan::from_json)?))
    }

    /// Write the plans to a file, which is replaced at once or unchanged; a device or a pipe is
    /// written into.
    fn save(&self, py: Python<'_>, path: Arg<PathBuf>) -> PyResult<()> {
        let text = self.text(py)?;
        write_all(py, vec![(path.0, text)])
    }

    /// Read plans from a file.
    #[staticmethod]
    fn load(py: Python<'_>, path: Arg<PathBuf>) -> PyResult<Self> {
        let load = |path: &Path| arenaplan::plan::SharedPlan::load(path);
        Ok(Self::new(files::load(py, path.0, load)?))
    }

    fn __repr__(&self) -> String {
        format!(
            "SharedPlan({} graphs, {}, {} bytes, {})",
            self.inner.members().len(),
            self.inner.together(),
            self.inner.arena_bytes(),
            self.inner.status()
        )
    }
}
