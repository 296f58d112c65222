//! Planning: options, a single plan, the bytes that each technique saves.

use std::sync::Arc;

use arenaplan::base::Alignment;
use arenaplan::choose::{nodes_in_strips as nodes_in_strips_of, step_times as step_times_of};
use arenaplan::pack::Space;
use arenaplan::planner::{Explanation, Point};
use arenaplan::{Memories, NodeId, Planner, SpaceId, Technique, ValueId};
use pyo3::prelude::*;

use crate::costs::costed;
use crate::error::OrRaise;
use crate::graph::Graph;
use crate::plan::Plan;
use crate::results::{Level, PlanPoint, Strips};
use crate::target::Target;

/// Memories as `(name, capacity, alignment, cost)`.
type SpaceRows = Vec<(String, Option<u64>, u64, u64)>;

/// A planner's options from Python.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Options {
    target: Py<Target>,
    alignment: Option<u64>,
    optimize: Option<String>,
    effort: String,
    preserve_inputs: bool,
    inputs: String,
    outputs: String,
    workspace: Option<String>,
    capacity: Option<u64>,
    parallel_safe: bool,
    workers: u32,
    max_slowdown: Option<u64>,
}

impl Options {
    /// Returns a planner with these options; options that are None have the target's default.
    pub(crate) fn planner(&self) -> arenaplan::Result<Planner<'_>> {
        let mut planner = Planner::new()
            .target(&self.target.get().inner)
            .effort(self.effort.parse()?)
            .preserve_inputs(self.preserve_inputs)
            .inputs(self.inputs.parse()?)
            .outputs(self.outputs.parse()?)
            .parallel_safe(self.parallel_safe)
            .workers(self.workers)
            .max_slowdown(self.max_slowdown);
        if let Some(alignment) = self.alignment {
            planner = planner.alignment(alignment);
        }
        if let Some(optimize) = &self.optimize {
            planner = planner.optimize(optimize.parse()?);
        }
        if let Some(workspace) = &self.workspace {
            planner = planner.workspace(workspace.parse()?);
        }
        if let Some(capacity) = self.capacity {
            planner = planner.capacity(capacity);
        }
        Ok(planner)
    }
}

/// Plan ``graph`` with the given options, a dict; ``steps`` are the steps to run, if given.
///
/// ``spaces`` are memories as ``(name, capacity, alignment, cost)``, and ``homes`` pairs of a value
/// and the only permitted space. ``strips`` states the strips of steps, ``node_times`` is the time
/// of each node, and ``costs`` are a backend's step costs. After ``time_limit`` seconds, or when
/// ``on_progress`` returns ``False``, the best plan so far is returned.
#[pyfunction]
#[pyo3(signature = (graph, options, *, steps=None, spaces=None, homes=Vec::new(), strips=Vec::new(), node_times=None, costs=None, on_progress=None, time_limit=None))]
#[allow(clippy::too_many_arguments, reason = "Python's signature")]
pub(crate) fn plan(
    py: Python<'_>,
    graph: &Graph,
    options: Options,
    steps: Option<Vec<Vec<u32>>>,
    spaces: Option<SpaceRows>,
    homes: Vec<(u32, u32)>,
    strips: Vec<Strips>,
    node_times: Option<Vec<u64>>,
    costs: Option<Py<PyAny>>,
    on_progress: Option<Bound<'_, PyAny>>,
    time_limit: Option<f64>,
) -> PyResult<Plan> {
    let memories = match spaces {
        Some(rows) => Some(read_memories(rows, homes).or_raise(py)?),
        None => None,
    };
    let steps: Option<Vec<Vec<NodeId>>> = steps.map(|steps| {
        steps.into_iter().map(|step| step.into_iter().map(NodeId::from).collect()).collect()
    });
    let strips: Vec<_> = strips.iter().map(Strips::read).collect();
    let (items, graph) = (graph.items(), Arc::clone(&graph.inner));
    let plan = costed(py, items, costs, on_progress.as_ref(), time_limit, move |budget, costs| {
        let mut planner = options.planner()?.budget(budget).strips(&strips);
        if let Some(costs) = costs {
            planner = planner.costs(costs);
        }
        if let Some(times) = &node_times {
            planner = planner.node_times(times);
        }
        if let Some(memories) = &memories {
            planner = planner.memories(memories);
        }
        match &steps {
            Some(steps) => planner.plan_steps(&graph, steps),
            None => planner.plan(&graph),
        }
    })?;
    Ok(plan.into())
}

/// Returns the memories that a plan may use.
fn read_memories(rows: SpaceRows, homes: Vec<(u32, u32)>) -> arenaplan::Result<Memories> {
    let mut spaces = Vec::with_capacity(rows.len());
    for (name, capacity, alignment, cost) in rows {
        let space = Space::new(name).with_alignment(Alignment::new(alignment)?).with_cost(cost);
        spaces.push(match capacity {
            Some(bytes) => space.with_capacity(bytes),
            None => space,
        });
    }
    let pin = |memories: Memories, (value, space): (u32, u32)| {
        memories.pin(ValueId::from(value), SpaceId::from(space))
    };
    Ok(homes.into_iter().fold(Memories::new(spaces)?, pin))
}

/// A plan, and the bytes and times for other choices of techniques.
#[pyclass(frozen, get_all, module = "arenaplan._core")]
#[derive(Debug)]
pub(crate) struct Explained {
    /// The plan with all techniques that were asked for.
    plan: Py<Plan>,
    /// The points that no other compared plan beats.
    points: Vec<PlanPoint>,
    /// Without any technique.
    without: PlanPoint,
    /// Points as techniques are added one after the other.
    levels: Vec<Level>,
    /// With one technique alone switched the other way.
    switched: Vec<Level>,
}

/// Return a plan, and the bytes and times for other choices of techniques.
#[pyfunction]
#[pyo3(signature = (graph, options, *, costs=None, on_progress=None, time_limit=None))]
pub(crate) fn explain(
    py: Python<'_>,
    graph: &Graph,
    options: Options,
    costs: Option<Py<PyAny>>,
    on_progress: Option<Bound<'_, PyAny>>,
    time_limit: Option<f64>,
) -> PyResult<Explained> {
    let (items, graph) = (graph.items(), Arc::clone(&graph.inner));
    let found =
        costed(py, items, costs, on_progress.as_ref(), time_limit, move |budget, costs| {
            let planner = options.planner()?.budget(budget);
            let planner = costs.map_or(planner, |costs| planner.costs(costs));
            planner.explain(&graph)
        })?;
    let Explanation { chosen, without, levels, switched, .. } = found;
    let named = |levels: Vec<(Technique, Point)>| {
        let level = |(technique, point): (Technique, Point)| Level {
            technique: technique.name().into(),
            point: point.into(),
        };
        levels.into_iter().map(level).collect()
    };
    let (levels, switched) = (named(levels), named(switched));
    let points = chosen.points.into_iter().map(PlanPoint::from).collect();
    let plan = Py::new(py, Plan::from(chosen.plan))?;
    Ok(Explained { plan, points, without: without.into(), levels, switched })
}

/// Return the estimated nanoseconds of each step in a plan, by a backend's costs.
#[pyfunction]
pub(crate) fn step_times(
    py: Python<'_>,
    graph: &Graph,
    plan: &Plan,
    costs: Py<PyAny>,
) -> PyResult<Vec<u64>> {
    let items = graph.items();
    let (graph, plan) = (Arc::clone(&graph.inner), Arc::clone(&plan.inner));
    costed(py, items, Some(costs), None, None, move |_, costs| {
        costs.map_or_else(|| Ok(Vec::new()), |costs| step_times_of(&graph, &plan, costs))
    })
}

/// Return nodes in the order in which they run in strips of so many rows by a backend's row
/// kernels, and the strips; None if the nodes cannot run in such strips.
#[pyfunction]
pub(crate) fn nodes_in_strips(
    py: Python<'_>,
    graph: &Graph,
    costs: Py<PyAny>,
    nodes: Vec<u32>,
    rows: u64,
) -> PyResult<Option<(Vec<u32>, Strips)>> {
    let (items, graph) = (graph.items(), Arc::clone(&graph.inner));
    let nodes: Vec<NodeId> = nodes.into_iter().map(NodeId::from).collect();
    let found = costed(py, items, Some(costs), None, None, move |_, costs| {
        let Some((costs, moves)) = costs.and_then(|it| Some((it, it.row_moves()?))) else {
            return Ok(None);
        };
        let kernels = costs.row_kernels(&nodes);
        nodes_in_strips_of(&graph, kernels, moves, &nodes, rows)
    })?;
    Ok(found.map(|(nodes, strips)| {
        let nodes: Vec<u32> = nodes.into_iter().map(u32::from).collect();
        let last = nodes.last().copied().unwrap_or(u32::MAX);
        (nodes, Strips::of(last, &strips))
    }))
}
