//! Planning: options, one plan, the worth of each technique.

use std::sync::Arc;

use arenaplan::base::Alignment;
use arenaplan::pack::Space;
use arenaplan::planner::Explanation;
use arenaplan::{Memories, NodeId, Planner, SpaceId, Technique, ValueId};
use pyo3::prelude::*;

use crate::call;
use crate::call::Moment;
use crate::error::OrRaise;
use crate::graph::Graph;
use crate::plan::Plan;
use crate::results::{Level, Strips};
use crate::target::Target;

/// Memories as `(name, capacity, alignment, cost)`.
type SpaceRows = Vec<(String, Option<u64>, u64, u64)>;

/// The options of a planner, as Python hands them over.
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
    /// Returns a planner with these options; those that are None have the target's default.
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
/// ``spaces`` are memories as ``(name, capacity, alignment, cost)``, and ``homes`` pairs of a
/// value and the only space that it may be in. ``like`` is a plan without workspaces whose steps
/// to run, with the scope of their choice, unless ``steps`` were derived from them. Workspaces may
/// raise the peak up to ``room`` bytes, and the outputs of ``overlapping`` nodes, or of all,
/// may overlap inputs. ``strips`` says how steps run strip by strip; ``costs`` is the time of each node. After ``time_limit`` seconds, or when ``on_progress`` returns ``False``, the
/// best plan so far is returned.
#[pyfunction]
#[pyo3(signature = (graph, options, steps=None, spaces=None, homes=Vec::new(), like=None, on_progress=None, room=0, overlapping=None, time_limit=None, strips=Vec::new(), costs=None))]
#[allow(clippy::too_many_arguments, reason = "Python's signature")]
pub(crate) fn plan(
    py: Python<'_>,
    graph: &Graph,
    options: Options,
    steps: Option<Vec<Vec<u32>>>,
    spaces: Option<SpaceRows>,
    homes: Vec<(u32, u32)>,
    like: Option<&Plan>,
    on_progress: Option<Bound<'_, PyAny>>,
    room: u64,
    overlapping: Option<Vec<u32>>,
    time_limit: Option<f64>,
    strips: Vec<Strips>,
    costs: Option<Vec<u64>>,
) -> PyResult<Plan> {
    let memories = match spaces {
        Some(rows) => Some(read_memories(rows, homes).or_raise(py)?),
        None => None,
    };
    let steps: Option<Vec<Vec<NodeId>>> = steps.map(|steps| {
        steps.into_iter().map(|step| step.into_iter().map(NodeId::from).collect()).collect()
    });
    let overlapping: Option<Vec<NodeId>> =
        overlapping.map(|nodes| nodes.into_iter().map(NodeId::from).collect());
    let strips: Vec<_> = strips.iter().map(Strips::read).collect();
    let (items, graph) = (graph.items(), Arc::clone(&graph.inner));
    let like = like.map(|like| Arc::clone(&like.inner));
    let mut hear = |moment: Moment| call::told(py, on_progress.as_ref(), moment);
    let ended = call::watch(py, items, &mut hear, move |cancel, tell| {
        let mut planner = options
            .planner()?
            .budget(call::budget(cancel, tell, time_limit))
            .room(room)
            .strips(&strips);
        if let Some(nodes) = &overlapping {
            planner = planner.overlapping(nodes);
        }
        if let Some(costs) = &costs {
            planner = planner.costs(costs);
        }
        if let Some(memories) = &memories {
            planner = planner.memories(memories);
        }
        match (&steps, like) {
            (Some(steps), None) => planner.plan_steps(&graph, steps),
            (Some(steps), Some(like)) => planner.plan_steps_after(&graph, steps, &like),
            (None, Some(like)) => planner.plan_steps_of(&graph, &like),
            (None, None) => planner.plan(&graph),
        }
    })?;
    Ok(ended.finished()?.or_raise(py)?.into())
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

/// A plan, and the bytes that other choices of techniques need.
#[pyclass(frozen, get_all, module = "arenaplan._core")]
#[derive(Debug)]
pub(crate) struct Explained {
    /// The plan with all techniques that were asked for.
    plan: Py<Plan>,
    /// Bytes without any technique.
    without: u64,
    /// Bytes with each technique added to those before it.
    levels: Vec<Level>,
    /// Bytes with one technique alone switched the other way.
    switched: Vec<Level>,
}

/// Return a plan, and the bytes that other choices of techniques need.
#[pyfunction]
#[pyo3(signature = (graph, options, on_progress=None, time_limit=None))]
pub(crate) fn explain(
    py: Python<'_>,
    graph: &Graph,
    options: Options,
    on_progress: Option<Bound<'_, PyAny>>,
    time_limit: Option<f64>,
) -> PyResult<Explained> {
    let (items, graph) = (graph.items(), Arc::clone(&graph.inner));
    let mut hear = |moment: Moment| call::told(py, on_progress.as_ref(), moment);
    let ended = call::watch(py, items, &mut hear, move |cancel, tell| {
        options.planner()?.budget(call::budget(cancel, tell, time_limit)).explain(&graph)
    })?;
    let Explanation { plan, without, levels, switched, .. } = ended.finished()?.or_raise(py)?;
    let named = |levels: Vec<(Technique, u64)>| {
        let level = |(technique, bytes): (Technique, u64)| Level {
            technique: technique.name().into(),
            bytes,
        };
        levels.into_iter().map(level).collect()
    };
    let (levels, switched) = (named(levels), named(switched));
    Ok(Explained { plan: Py::new(py, Plan::from(plan))?, without, levels, switched })
}
