//! Plans in which nodes run again, and values leave for a slow memory.

use std::sync::Arc;

use arenaplan::base::Execution;
use arenaplan::pack::Space;
use arenaplan::planner::{Curve, Goal, Planner};
use arenaplan::recompute::Recompute;
use arenaplan::{Error, NodeId, ValueId};
use pyo3::prelude::*;

use crate::call::{self, Moment};
use crate::error::{OrRaise, raise};
use crate::graph::Graph;
use crate::plan::Plan;
use crate::planner::{Options, costed};

/// One point of a curve of bytes over extra work.
#[pyclass(frozen, get_all, module = "arenaplan._core")]
#[derive(Debug)]
pub(crate) struct RecomputePoint {
    /// Bytes of the arena, without the slow memory.
    arena_bytes: u64,
    /// Extra work as a part of the work of running each node once.
    extra: f64,
    /// Proven lower bound of the extra work of every schedule in so many bytes.
    bound: f64,
    /// Extra work in units of cost.
    extra_cost: u64,
    /// The bound in units of cost.
    extra_bound: u64,
}

/// Bytes of the arena over extra work.
#[pyclass(frozen, get_all, module = "arenaplan._core")]
#[derive(Debug)]
pub(crate) struct RecomputeCurve {
    /// Points in descending order of bytes and ascending order of work; the first repeats nothing.
    points: Vec<Py<RecomputePoint>>,
    /// Cost of running each node once.
    cost: u64,
    /// Bytes that no schedule goes below that runs each node by itself.
    floor: u64,
}

/// A value that is copied to a slow memory, or back from it, as an entry of a schedule.
///
/// Examples
/// --------
/// >>> import arenaplan as ap
/// >>> ap.Transfer(3, "out")
/// Transfer(value=3, way='out')
#[pyclass(frozen, eq, hash, from_py_object, module = "arenaplan._core")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Transfer {
    /// Index of the value.
    #[pyo3(get)]
    value: u32,
    is_out: bool,
}

#[pymethods]
#[allow(clippy::trivially_copy_pass_by_ref, reason = "PyO3 gives methods a reference")]
impl Transfer {
    #[new]
    fn new(py: Python<'_>, value: u32, way: &str) -> PyResult<Self> {
        let is_out = match way {
            "out" => true,
            "in" => false,
            _ => {
                let reason = format!("it is 'out' or 'in', not {}", arenaplan::base::quoted(way));
                return Err(raise(py, &Error::InvalidOption { option: "way", reason }));
            }
        };
        Ok(Self { value, is_out })
    }

    /// ``"out"`` to the slow memory, or ``"in"``.
    #[getter]
    const fn way(&self) -> &'static str {
        if self.is_out { "out" } else { "in" }
    }

    fn __repr__(&self) -> String {
        format!("Transfer(value={}, way='{}')", self.value, self.way())
    }
}

/// One entry of a schedule: a node by index, or a value that is copied.
#[derive(Debug, FromPyObject, IntoPyObject)]
pub(crate) enum Entry {
    /// A node runs.
    Run(u32),
    /// A value is copied.
    Copy(Transfer),
}

impl Entry {
    /// Returns the entries of a schedule.
    pub(crate) fn of(schedule: &[Execution]) -> Vec<Self> {
        let entry = |execution: &Execution| match *execution {
            Execution::Run(node) => Self::Run(node.into()),
            Execution::PageOut { value } => {
                Self::Copy(Transfer { value: value.into(), is_out: true })
            }
            Execution::PageIn { value } => {
                Self::Copy(Transfer { value: value.into(), is_out: false })
            }
        };
        schedule.iter().map(entry).collect()
    }
}

impl From<Entry> for Execution {
    fn from(entry: Entry) -> Self {
        match entry {
            Entry::Run(node) => Self::Run(NodeId::from(node)),
            Entry::Copy(Transfer { value, is_out: true }) => {
                Self::PageOut { value: ValueId::from(value) }
            }
            Entry::Copy(Transfer { value, is_out: false }) => {
                Self::PageIn { value: ValueId::from(value) }
            }
        }
    }
}

/// A slow memory that values are copied to and back from.
///
/// Examples
/// --------
/// >>> import arenaplan as ap
/// >>> ap.Paging("host", cost=480).capacity is None
/// True
#[pyclass(frozen, get_all, from_py_object, module = "arenaplan._core")]
#[derive(Clone, Debug)]
pub(crate) struct Paging {
    /// Name of the memory.
    space: String,
    /// Cost of copying one byte in one direction, in the units of the costs of nodes.
    cost: u64,
    /// Bytes that it holds; None if it is unlimited.
    capacity: Option<u64>,
}

#[pymethods]
impl Paging {
    #[new]
    #[pyo3(signature = (space, cost, capacity=None))]
    const fn new(space: String, cost: u64, capacity: Option<u64>) -> Self {
        Self { space, cost, capacity }
    }

    fn __repr__(&self) -> String {
        let capacity = self.capacity.map_or_else(|| "None".into(), |bytes| bytes.to_string());
        format!("Paging(space={:?}, cost={}, capacity={capacity})", self.space, self.cost)
    }
}

impl Paging {
    /// Returns the record of a plan.
    pub(crate) fn of(paging: &arenaplan::plan::Paging) -> Self {
        Self { space: paging.space.clone(), cost: paging.cost, capacity: paging.capacity }
    }

    /// Returns the memory.
    pub(crate) fn to_space(&self) -> Space {
        let space = Space::new(self.space.clone()).with_cost(self.cost);
        match self.capacity {
            Some(bytes) => space.with_capacity(bytes),
            None => space,
        }
    }
}

/// Returns a planner that may also copy values to a slow memory, if there is one.
fn paged<'a>(planner: Planner<'a>, slow: Option<&'a Space>) -> Planner<'a> {
    match slow {
        Some(slow) => planner.paging_to(slow),
        None => planner,
    }
}

/// Return a plan in which nodes run again to meet a goal: ``("bytes", number)``,
/// ``("extra", millionths)`` or ``("strategy", 0)`` with a name.
#[pyfunction]
#[pyo3(signature = (
    graph, options, goal, *, strategy="", paging=None, costs=None, on_progress=None, time_limit=None
))]
#[allow(clippy::too_many_arguments, reason = "they are the arguments of a function of Python")]
pub(crate) fn recompute(
    py: Python<'_>,
    graph: &Graph,
    options: Options,
    goal: (String, u64),
    strategy: &str,
    paging: Option<Paging>,
    costs: Option<Py<PyAny>>,
    on_progress: Option<Bound<'_, PyAny>>,
    time_limit: Option<f64>,
) -> PyResult<Plan> {
    let slow = paging.map(|paging| paging.to_space());
    let (kind, number) = goal;
    let goal = match kind.as_str() {
        "bytes" => Goal::Bytes(number),
        "extra" => Goal::Extra(number),
        _ => Goal::Strategy(strategy.parse().or_raise(py)?),
    };
    let (items, graph) = (graph.items(), Arc::clone(&graph.inner));
    let plan = costed(py, items, costs, on_progress.as_ref(), time_limit, move |budget, costs| {
        let planner = options.planner()?.budget(budget);
        let planner = costs.map_or(planner, |costs| planner.costs(costs));
        paged(planner, slow.as_ref()).recompute(&graph, goal)
    })?;
    Ok(plan.into())
}

/// Return the fewest bytes over the extra work.
#[pyfunction]
#[pyo3(signature = (graph, options, on_progress=None, time_limit=None, paging=None))]
pub(crate) fn recompute_curve(
    py: Python<'_>,
    graph: &Graph,
    options: Options,
    on_progress: Option<Bound<'_, PyAny>>,
    time_limit: Option<f64>,
    paging: Option<Paging>,
) -> PyResult<RecomputeCurve> {
    let slow = paging.map(|paging| paging.to_space());
    let (items, graph) = (graph.items(), Arc::clone(&graph.inner));
    let mut hear = |moment: Moment| call::told(py, on_progress.as_ref(), moment);
    let ended = call::watch(py, items, &mut hear, move |cancel, tell| {
        let planner = options.planner()?.budget(call::budget(cancel, tell, time_limit));
        paged(planner, slow.as_ref()).recompute_curve(&graph)
    })?;
    let Curve { points, cost, floor, .. } = ended.finished()?.or_raise(py)?;
    let part = |part: u64| ratio(part, cost);
    let points = points.into_iter().map(|point| {
        let (extra_cost, extra_bound) = (point.extra_cost, point.extra_bound);
        let (extra, bound) = (part(extra_cost), part(extra_bound));
        let arena_bytes = point.arena_bytes;
        Py::new(py, RecomputePoint { arena_bytes, extra, bound, extra_cost, extra_bound })
    });
    Ok(RecomputeCurve { points: points.collect::<PyResult<_>>()?, cost, floor })
}

/// Return the extra work of the best schedule of Chen et al. within each of some numbers of bytes,
/// or None where there is none.
#[pyfunction]
pub(crate) fn extra_of_chen(
    py: Python<'_>,
    graph: &Graph,
    options: Options,
    budgets: Vec<u64>,
) -> PyResult<Vec<Option<f64>>> {
    let (items, graph) = (graph.items(), Arc::clone(&graph.inner));
    let found = call::run(py, items, move |cancel, tell| -> arenaplan::Result<_> {
        let budget = call::budget(cancel, tell, None);
        let planner = options.planner()?;
        let rules = planner.liveness_options(&graph)?;
        let search = Recompute::new(&graph, rules, &[], &budget);
        let cost = search.cost();
        let extra = |bytes| search.extra_of_chen(bytes).map(|extra| ratio(extra, cost));
        Ok(budgets.into_iter().map(extra).collect())
    })?;
    found.or_raise(py)
}

/// Returns a part of a whole, to a millionth.
#[allow(clippy::cast_precision_loss, clippy::as_conversions, reason = "a share, for people")]
pub(crate) fn ratio(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64
}
