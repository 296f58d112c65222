//! The estimated time of a plan's steps.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::known::padded;
use super::{Costs, KnownCosts, StepForm};
use crate::base::{Alignment, Error, NodeId, Result, ValueId};
use crate::choose::Way;
use crate::graph::Graph;
use crate::plan::{Plan, PlanStep, ShareRule};

/// The divisor for the part of the time that a step takes if the output is in the input's place.
const CALL_PART: u64 = 50;

/// Returns the estimated nanoseconds of each step in `plan`, a plan of `graph`, by a runner's
/// costs.
///
/// The estimate covers the plan's decisions: fused nodes, scratch sizes, outputs that overlap
/// inputs, and copies avoided by sharing.
///
/// # Errors
///
/// [`PlanMismatch`](crate::Error::PlanMismatch) if the plan is for another graph,
/// [`InvalidAlignment`](crate::Error::InvalidAlignment) if the plan has no alignment.
pub fn step_times(graph: &Graph, plan: &Plan, costs: &dyn Costs) -> Result<Vec<u64>> {
    if plan.steps().iter().flat_map(PlanStep::nodes).any(|node| node.index() >= graph.nodes().len())
    {
        let reason = "the graph has fewer nodes than the plan".into();
        return Err(Error::PlanMismatch { reason });
    }
    let alignment = Alignment::new(plan.options().alignment)?;
    Ok(times_of(graph, plan, alignment, &KnownCosts::new(costs)))
}

/// Returns the estimated nanoseconds of each step.
pub(crate) fn times_of(
    graph: &Graph,
    plan: &Plan,
    alignment: Alignment,
    costs: &KnownCosts<'_>,
) -> Vec<u64> {
    let scratch = scratch_by_node(plan, alignment);
    let time = |step: &PlanStep| {
        let nodes: Vec<NodeId> = step.nodes().collect();
        let form = match &step.strips {
            Some(strips) => StepForm::Strips(strips),
            None if step.is_overlapped() => StepForm::Staged,
            None => StepForm::Whole,
        };
        let ways = costs.ways(&nodes, form, alignment);
        // Unplanned scratch memory is beside the arena, in the best size.
        let room = scratch.get(&step.node).copied().unwrap_or(u64::MAX);
        let time = fastest_within(&ways, room);
        if step.strips.is_some() { time } else { moved(graph, step, time) }
    };
    plan.steps().iter().map(time).collect()
}

/// Returns the time of the fastest way in at most `room` bytes, or of the smallest way.
pub(super) fn fastest_within(ways: &[Way], room: u64) -> u64 {
    let fitting = ways.iter().filter(|way| way.bytes <= room).map(|way| way.time).min();
    fitting.or(ways.first().map(|way| way.time)).unwrap_or(0)
}

/// Returns the scratch bytes by node.
pub(super) fn scratch_by_node(plan: &Plan, alignment: Alignment) -> BTreeMap<u32, u64> {
    let mut scratch: BTreeMap<u32, u64> = BTreeMap::new();
    for work in plan.workspaces() {
        let sum = scratch.entry(work.node).or_default();
        *sum = sum.saturating_add(padded(work.bytes, alignment));
    }
    scratch
}

/// Returns a step's time reduced by the part of the result that is not copied, because an input
/// already has the bytes.
fn moved(graph: &Graph, step: &PlanStep, time: u64) -> u64 {
    let node = graph.nodes().get(NodeId::from(step.node).index());
    let Some(node) = node.filter(|node| step.fused.is_empty() && !node.effects().views.is_empty())
    else {
        return time;
    };
    let bytes = |value: ValueId| graph.value(value).bytes();
    let made: u64 = node.produces().map(|(_, value)| bytes(value)).fold(0, u64::saturating_add);
    let shown = step.shares.iter().filter(|share| share.rule == ShareRule::View);
    let shown = shown.filter_map(|share| {
        let at = |position: u32| usize::try_from(position).ok();
        let source = node.input(at(share.input)?)?;
        Some(bytes(source).min(bytes(node.output(at(share.output)?)?)))
    });
    let shown = shown.fold(0, u64::saturating_add);
    if shown == 0 {
        return time;
    }
    let copied =
        u128::from(time) * u128::from(made.saturating_sub(shown)) / u128::from(made.max(1));
    u64::try_from(copied).unwrap_or(time).max(time / CALL_PART)
}
