//! Fusion refinement: groups stream only where that lowers the peak.
//!
//! Pieces larger than elements cost time, since an uncut operand is read again for every piece. So
//! each tiled group is compared with the groups that remain if the nodes do not stream. The tiled
//! group is kept only if the peak needs the group.

use alloc::{vec, vec::Vec};

use super::attempt::{Attempt, measured};
use super::context::Context;
use super::step_schedule::StepSchedule;
use crate::base::{NodeId, Result, SpaceId};
use crate::choose::Fusion;
use crate::choose::fuse::Fusible;

/// Returns the schedule of `attempt` without the tiled groups that the peak does not need, or
/// that raise the peak; `None` if there are no such groups.
///
/// A group runs at the place of its last node, so the group's parts can replace the group one after
/// the other, and live bytes change only at that place; two profiles tell which groups to keep. The
/// result is still measured, since values may share bytes in another way.
pub(super) fn settled<'g>(
    context: &Context<'_>,
    fusible: &Fusible<'g>,
    attempt: &Attempt<'g>,
) -> Result<Option<Attempt<'g>>> {
    let graph = fusible.graph;
    let fusion = attempt.fusion;
    let simple = fusion.without_streams();
    if !fusion.channels || graph.spaces().len() > 1 {
        return Ok(None);
    }
    let schedule = &attempt.schedule;
    let steps: Vec<&[NodeId]> = schedule.order.iter().map(|node| schedule.members(node)).collect();
    let parts = parts(fusible, simple, &steps);
    if parts.iter().all(|parts| parts.len() == 1) {
        return Ok(None);
    }
    let apart = StepSchedule::of(graph, &parts.concat())?;
    let options = context.liveness_options(false, attempt.elision)?;
    let mut rest = apart.liveness(options)?.profile(SpaceId::new(0)).into_iter();
    let apart: Vec<u64> =
        parts.iter().map(|parts| rest.by_ref().take(parts.len()).max().unwrap_or(0)).collect();
    let least = attempt.live.iter().zip(&apart).map(|(&a, &b)| a.min(b)).max().unwrap_or(0);
    let kept: Vec<Vec<NodeId>> = parts
        .into_iter()
        .zip(&steps)
        .zip(&apart)
        .flat_map(
            |((parts, &step), &apart)| {
                if apart <= least { parts } else { vec![step.to_vec()] }
            },
        )
        .collect();
    let settled = measured(context, StepSchedule::of(graph, &kept)?, attempt.elision)?;
    let is_better = settled.load <= attempt.load;
    Ok(is_better.then_some(Attempt { fusion, ..settled }))
}

/// Returns for each step the groups that remain if nodes are fused by `fusion` only.
fn parts(fusible: &Fusible<'_>, fusion: Fusion, steps: &[&[NodeId]]) -> Vec<Vec<Vec<NodeId>>> {
    let graph = fusible.graph;
    let mut step_of = vec![0; graph.nodes().len()];
    for (index, step) in steps.iter().enumerate() {
        for id in *step {
            step_of[id.index()] = index;
        }
    }
    // A step with a node that runs in other steps, too, stays unchanged.
    let mut runs = vec![0_usize; graph.nodes().len()];
    steps.iter().flat_map(|step| *step).for_each(|id| runs[id.index()] += 1);
    let mut next = steps.len();
    for id in steps.iter().filter(|step| repeats(&runs, step)).flat_map(|step| *step) {
        (step_of[id.index()], next) = (next, next + 1);
    }
    let mut ends: Vec<Option<Vec<NodeId>>> = vec![None; graph.nodes().len()];
    let mut is_inner = vec![false; graph.nodes().len()];
    for group in fusible.fuse_within(fusion, &step_of) {
        let (&last, inner) = group.split_last().expect("a group has nodes");
        for id in inner {
            is_inner[id.index()] = true;
        }
        ends[last.index()] = Some(group);
    }
    let part = |id: &NodeId| ends[id.index()].clone().unwrap_or_else(|| vec![*id]);
    steps
        .iter()
        .map(|step| {
            if repeats(&runs, step) {
                return vec![step.to_vec()];
            }
            step.iter().filter(|id| !is_inner[id.index()]).map(part).collect()
        })
        .collect()
}

/// Returns whether a node in `step` runs in other steps, too.
fn repeats(runs: &[usize], step: &[NodeId]) -> bool {
    step.iter().any(|id| runs[id.index()] > 1)
}
