//! The search for steps that run strip by strip.

use std::sync::{Arc, Mutex, PoisonError};

use arenaplan::NodeId;
use arenaplan::choose::{RowCost, RowKernel, RowMoveCost, StripLimits, Way};
use pyo3::prelude::*;

use crate::call;
use crate::error::OrRaise as _;
use crate::graph::Graph;
use crate::plan::Plan;
use crate::results::{StripChoice, Strips};

/// Bytes and time.
type WayRow = (u64, u64);
/// Nodes, the operand whose rows the first one takes over, and the costs by rows.
type KernelRow = (Vec<u32>, Option<u32>, Vec<(u64, Vec<WayRow>)>);

/// A search for the steps of a plan that run strip by strip.
///
/// Parameters
/// ----------
/// graph : Graph
///     The graph of the plan.
/// plan : Plan
///     The plan whose steps are chosen among.
/// kernels : list of tuple
///     Nodes that one call performs on some rows; the operand in whose rows the first of them makes
///     its result, or None; and per number of rows, ascending, bytes of scratch memory and time.
/// moves : tuple of int
///     Time of each call that moves rows to the front of a line buffer, and of a thousand bytes.
/// ways : list of list of tuple
///     Per step of the plan the bytes that are live while it runs as it is, and its time.
/// below : int
///     Steps in strips need fewer bytes.
/// most_time : int
///     Steps in strips take no longer.
/// time_limit : float, optional
///     Seconds after which the steps in strips that are known by then have to do.
///
/// Raises
/// ------
/// InvalidOption
///     If a kernel cannot make its result some rows at a time.
///
/// Examples
/// --------
/// >>> import arenaplan as ap
/// >>> from arenaplan._core import StripSearch
/// >>> graph = ap.Graph()
/// >>> rows = ap.Window(0, 0, axis=2, extent=3, before=1)
/// >>> last = graph.input("x", (1, 1, 64, 64))
/// >>> for name, planes in zip("ab", (8, 1)):
/// ...     made = [(name, (1, planes, 64, 64), "float32")]
/// ...     (last,) = graph.node("Conv", [last], made, windows=[rows])
/// >>> graph.output(last)
/// >>> plan = ap.plan(graph, target="ideal", optimize="none")
/// >>> kernels = [([node], None, [(1, [(0, 110)]), (64, [(0, 740)])]) for node in (0, 1)]
/// >>> ways = [[(live, 740)] for live in plan.live_bytes]
/// >>> search = StripSearch(graph.core, plan, kernels, (0, 0), ways, plan.arena_bytes, 4000)
/// >>> choice = search.least(0, plan.arena_bytes, 4000)
/// >>> choice.steps, choice.strips[0].rows, choice.bytes < plan.arena_bytes
/// ([[0, 1]], 6, True)
#[pyclass(frozen, module = "arenaplan._core")]
#[derive(Debug)]
pub(crate) struct StripSearch {
    inner: Arc<Mutex<arenaplan::planner::StripSearch>>,
    items: usize,
}

#[pymethods]
impl StripSearch {
    #[new]
    #[pyo3(signature = (graph, plan, kernels, moves, ways, below, most_time, time_limit=None))]
    #[allow(clippy::too_many_arguments, reason = "Python's signature")]
    fn new(
        py: Python<'_>,
        graph: &Graph,
        plan: &Plan,
        kernels: Vec<KernelRow>,
        moves: (u64, u64),
        ways: Vec<Vec<WayRow>>,
        below: u64,
        most_time: u64,
        time_limit: Option<f64>,
    ) -> PyResult<Self> {
        let kernels = kernels.into_iter().map(kernel_of).collect();
        let moves = RowMoveCost { call: moves.0, thousand_bytes: moves.1 };
        let ways = ways.into_iter().map(ways_of).collect();
        let limits = StripLimits { above: 0, below, time: most_time };
        let items = graph.items();
        let (graph, plan) = (Arc::clone(&graph.inner), Arc::clone(&plan.inner));
        let found = call::run(py, items, move |cancel, tell| {
            let budget = call::budget(cancel, tell, time_limit);
            arenaplan::planner::StripSearch::new(
                &graph, &plan, kernels, moves, ways, limits, &budget,
            )
        })?;
        Ok(Self { inner: Arc::new(Mutex::new(found.or_raise(py)?)), items })
    }

    /// Return the steps that need the fewest bytes of those that need more than ``above`` and fewer
    /// than ``below`` and take at most ``most_time``; None if none of them run strip by strip.
    fn least(
        &self,
        py: Python<'_>,
        above: u64,
        below: u64,
        most_time: u64,
    ) -> PyResult<Option<StripChoice>> {
        let limits = StripLimits { above, below, time: most_time };
        let search = Arc::clone(&self.inner);
        let found = call::run(py, self.items, move |cancel, tell| {
            let mut search = search.lock().unwrap_or_else(PoisonError::into_inner);
            search.least(limits, &call::budget(cancel, tell, None))
        })?;
        Ok(found.or_raise(py)?.map(|choice| StripChoice {
            steps: choice.steps.iter().map(|nodes| indices(nodes)).collect(),
            strips: choice.strips.iter().map(|(id, how)| Strips::of((*id).into(), how)).collect(),
            bytes: choice.bytes,
            time: choice.time,
        }))
    }

    /// Return the nodes that a run of steps in strips can have which has one of the ``wanted`` steps
    /// of a plan, by position: kernels of others have no effect on what those steps need.
    #[staticmethod]
    fn nodes(py: Python<'_>, graph: &Graph, plan: &Plan, wanted: Vec<usize>) -> PyResult<Vec<u32>> {
        let (graph, plan) = (&graph.inner, &plan.inner);
        let found = py.detach(|| arenaplan::planner::StripSearch::nodes(graph, plan, &wanted));
        Ok(indices(&found.or_raise(py)?))
    }

    /// Forget the steps in strips at this position of the latest choice.
    fn refuse(&self, py: Python<'_>, position: usize) {
        py.detach(|| {
            self.inner.lock().unwrap_or_else(PoisonError::into_inner).refuse(position);
        });
    }

    /// Return nodes in the order in which they run in strips of so many rows, and the strips; None
    /// if they cannot run so.
    fn strips(
        &self,
        py: Python<'_>,
        nodes: Vec<u32>,
        rows: u64,
    ) -> PyResult<Option<(Vec<u32>, Strips)>> {
        let nodes: Vec<NodeId> = nodes.into_iter().map(NodeId::from).collect();
        let search = Arc::clone(&self.inner);
        let found = call::run(py, self.items, move |cancel, tell| {
            let search = search.lock().unwrap_or_else(PoisonError::into_inner);
            search.strips(&nodes, rows, &call::budget(cancel, tell, None))
        })?;
        Ok(found.or_raise(py)?.map(|(nodes, strips)| {
            let last = nodes.last().map_or(0, |&id| id.into());
            (indices(&nodes), Strips::of(last, &strips))
        }))
    }
}

fn indices(nodes: &[NodeId]) -> Vec<u32> {
    nodes.iter().map(|&id| id.into()).collect()
}

fn ways_of(rows: Vec<WayRow>) -> Vec<Way> {
    rows.into_iter().map(|(bytes, time)| Way { bytes, time }).collect()
}

fn kernel_of((nodes, takes, costs): KernelRow) -> RowKernel {
    let costs = costs.into_iter().map(|(rows, ways)| RowCost { rows, ways: ways_of(ways) });
    RowKernel {
        nodes: nodes.into_iter().map(NodeId::from).collect(),
        takes: takes.map(arenaplan::ValueId::from),
        costs: costs.collect(),
    }
}
