//! Plans in which nodes run again, and values leave for a slow memory.

use std::sync::Arc;

use arenaplan::pack::Space;
use arenaplan::planner::{Curve, Goal, Planner};
use arenaplan::recompute::{Recompute, minimum_cut as cut_of};
use pyo3::prelude::*;

use crate::call::{self, Moment};
use crate::costs::costed;
use crate::error::OrRaise;
use crate::graph::Graph;
use crate::plan::Plan;
use crate::planner::Options;
use crate::results::ratio;
use crate::schedule::Paging;
use crate::views::view;

/// A point on a curve: bytes over extra work.
#[pyclass(frozen, get_all, module = "arenaplan._core")]
#[derive(Debug)]
pub(crate) struct RecomputePoint {
    /// Arena bytes, without the slow memory.
    arena_bytes: u64,
    /// Extra work as a fraction of the work if each node runs once.
    extra: f64,
    /// Proven lower bound of the extra work over all schedules in so many bytes.
    bound: f64,
    /// Extra work in cost units.
    extra_cost: u64,
    /// The bound in cost units.
    extra_bound: u64,
    /// The plan, without scratch memory.
    plan: Py<Plan>,
}

/// Arena bytes over extra work.
#[pyclass(frozen, get_all, module = "arenaplan._core")]
#[derive(Debug)]
pub(crate) struct RecomputeCurve {
    /// Points in descending order by bytes and ascending order by work; the first point repeats
    /// nothing.
    points: Vec<Py<RecomputePoint>>,
    /// Cost if each node runs once.
    cost: u64,
    /// Lower bound of the bytes over all schedules that run each node by itself.
    floor: u64,
}

#[pymethods]
impl RecomputeCurve {
    /// Return the points as an HTML table, for notebooks.
    fn _repr_html_<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        view(slf.as_any(), "curve")
    }
}

/// Returns a planner that may also copy values to a slow memory, if there is such a memory.
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
        let plan = Py::new(py, Plan::from(point.plan))?;
        Py::new(py, RecomputePoint { arena_bytes, extra, bound, extra_cost, extra_bound, plan })
    });
    Ok(RecomputeCurve { points: points.collect::<PyResult<_>>()?, cost, floor })
}

/// Return the extra work of the best schedule by Chen et al. within each of some numbers of bytes,
/// or None without such a schedule.
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

/// Return, by vertex, whether the vertex is on the source's side of a minimum cut.
///
/// Vertex 0 is the source, vertex 1 the sink. No cut contains arcs with a capacity of 2^60 or more.
///
/// Raises
/// ------
/// InvalidOption
///     If an arc names a vertex that is not there, or each cut contains such an arc.
#[pyfunction]
pub(crate) fn minimum_cut(
    py: Python<'_>,
    vertices: usize,
    arcs: Vec<(u32, u32, u64)>,
) -> PyResult<Vec<bool>> {
    let items = vertices.saturating_add(arcs.len());
    call::run(py, items, move |_, _| cut_of(vertices, &arcs))?.or_raise(py)
}
