//! Steps that continue the step before, in one call.
//!
//! A function that writes over the result of a convolution saves no bytes in a group, so no technique
//! groups the two nodes. One call for both goes over memory once. The plan is made already: nothing
//! moves.

use alloc::vec::Vec;

use crate::base::{Alignment, NodeId, Result, ValueId};
use crate::choose::time::{KnownCosts, times_of};
use crate::graph::Graph;
use crate::plan::{Granularity, Placement, Plan, ShareRule, WorkspacePolicy};

/// Most steps in a call: a longer run saves little more, and takes long to plan.
const MOST: usize = 12;

/// Marks the steps that continue the step before: the longest runs for which the runner states no
/// more time for one call, in the scratch memory of the first step.
pub(super) fn mark_continued(graph: &Graph, costs: &KnownCosts<'_>, plan: &mut Plan) -> Result<()> {
    if plan.target.granularity() == Granularity::Node {
        return Ok(());
    }
    let times = times_of(graph, plan, Alignment::new(plan.options.alignment)?, costs);
    // Unplanned scratch memory is beside the arena, in the best size.
    let beside = if plan.options.workspace == WorkspacePolicy::None { u64::MAX } else { 0 };
    let mut first = 0;
    while first < times.len() {
        let home = NodeId::from(plan.steps[first].node);
        let room = plan.workspaces_of(home).first().map_or(beside, |first| first.bytes);
        let stop = times.len().min(first + MOST);
        let more = (first + 1..stop).take_while(|&at| replaces(graph, plan, at)).count();
        let is_fast = |&more: &usize| {
            let run = first..=first + more;
            let nodes = plan.steps[run.clone()].iter().map(|step| NodeId::from(step.node));
            let together = costs.continued_within(&nodes.collect::<Vec<_>>(), room);
            // Times are rounded.
            let rounded = |sum: u64, time: &u64| sum.saturating_add(*time).saturating_add(1);
            let apart = times[run].iter().fold(0, rounded);
            together.is_some_and(|together| together <= apart)
        };
        let more = (1..=more).rev().find(is_fast).unwrap_or(0);
        plan.steps[first + 1..=first + more].iter_mut().for_each(|step| step.continues = true);
        first += more + 1;
    }
    Ok(())
}

/// Returns whether a step replaces the only result of the step before.
fn replaces(graph: &Graph, plan: &Plan, at: usize) -> bool {
    let Some(before) = at.checked_sub(1) else { return false };
    let Some((made, result)) = made_alone(graph, plan, before).zip(made_alone(graph, plan, at))
    else {
        return false;
    };
    let bytes = |it: &Placement| (it.space, it.offset, it.bytes);
    plan.steps[at].inputs.contains(&Some(made.value)) && bytes(made) == bytes(result)
}

/// Returns the place of the only value that a step with one node writes, if the value shares bytes
/// with no input, or is in the input's place.
fn made_alone<'p>(graph: &Graph, plan: &'p Plan, at: usize) -> Option<&'p Placement> {
    let step = plan.steps.get(at)?;
    let node = graph.nodes().get(NodeId::from(step.node).index())?;
    let mut made = step.outputs.iter().flatten();
    let (Some(&value), None) = (made.next(), made.next()) else { return None };
    let is_plain = step.fused.is_empty()
        && node.effects().mutates.is_empty()
        && step.shares.iter().all(|share| share.rule == ShareRule::InPlace);
    is_plain.then(|| plan.placement(ValueId::from(value)))?
}
