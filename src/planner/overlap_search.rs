//! Outputs that overlap dying inputs at a distance (diagonal memory reuse): the last technique
//! that is tried.
//!
//! A chain of such overlaps slides a buffer through the arena, which makes the buffer hard to pack.
//! So outputs overlap inputs only at the steps with the most live bytes, step by step as the load
//! falls, and only if the result can be packed.

use alloc::{vec, vec::Vec};

use super::attempt::Attempt;
use super::context::{Context, MOST_NODES_TO_OVERLAP, MOST_NODES_TO_SHARE_LESS};
use super::pack::{Best, pack, smallest};
use crate::base::{NodeId, Result, SpaceId};
use crate::plan::{Effort, Provider};

/// Most node sets that are packed, except for graphs with few nodes, for which more permissions never
/// cost bytes.
const MOST_PACKED: usize = 3;
/// With at most so many nodes, every set is placed in several memories.
const MOST_TO_COMBINE: usize = 4;
/// The same limit for quick plans.
const FEW_TO_COMBINE: usize = 2;
/// Rounds in which nodes are added to a set for several memories.
const MOST_ADDITIONS: usize = 4;

/// Overlapping nodes of an attempt, chosen step by step.
struct Descent<'t, 'g> {
    attempt: &'t Attempt<'g>,
    overlapped: Vec<NodeId>,
    /// Bytes live at the highest step then.
    load: u64,
}

/// Bytes that are live.
struct Profile {
    /// By space, then step.
    live: Vec<Vec<u64>>,
}

impl Profile {
    fn highest(&self, space: usize) -> u64 {
        self.live[space].iter().copied().max().unwrap_or(0)
    }

    fn load(&self) -> u64 {
        (0..self.live.len()).fold(0, |sum: u64, space| sum.saturating_add(self.highest(space)))
    }

    /// Returns the bytes in all spaces together, by step.
    fn totals(&self) -> Vec<u64> {
        let mut totals = vec![0_u64; self.live.first().map_or(0, Vec::len)];
        for live in &self.live {
            for (total, &bytes) in totals.iter_mut().zip(live) {
                *total = total.saturating_add(bytes);
            }
        }
        totals
    }

    /// Returns the steps at which a space has the most live bytes.
    fn peaks(&self, space: usize) -> Vec<usize> {
        let highest = self.highest(space);
        let steps = self.live[space].iter().enumerate();
        steps.filter(|&(_, &live)| live == highest).map(|(step, _)| step).collect()
    }
}

/// Returns an attempt that packs into fewer than `peak` bytes if some outputs overlap inputs, with
/// the best such packing.
pub(super) fn overlapped<'t, 'g>(
    context: &Context<'_>,
    attempts: &'t [Attempt<'g>],
    mut peak: u64,
) -> Result<Option<Best<'t, 'g>>> {
    let is_small = |attempt: &Attempt<'_>| attempt.schedule.order.len() <= MOST_NODES_TO_OVERLAP;
    if !context.overlaps_inputs() || !attempts.iter().all(is_small) {
        return Ok(None);
    }
    let mut descents = Vec::new();
    for attempt in attempts {
        if !context.budget.exhausted() {
            descend(context, attempt, peak, &mut descents)?;
        }
    }
    descents.sort_by_key(|descent| descent.load);
    let mut best = None;
    for (index, Descent { attempt, overlapped, load }) in descents.into_iter().enumerate() {
        let is_tried = index < MOST_PACKED || packs_all(context, attempt);
        if load >= peak || !is_tried {
            break;
        }
        let placed =
            pack(&attempt.context(context), &attempt.schedule, attempt.elision, &overlapped)?;
        if placed.packing.peak() < peak {
            peak = placed.packing.peak();
            best = Some(Best { attempt, placed });
        }
    }
    Ok(best)
}

/// Returns whether all node sets of an attempt are packed: not with scratch memory, which is chosen
/// after the packing.
fn packs_all(context: &Context<'_>, attempt: &Attempt<'_>) -> bool {
    context.target.scratch() == Provider::Nobody
        && attempt.schedule.order.len() <= MOST_NODES_TO_SHARE_LESS
}

/// Lets outputs overlap inputs at the highest steps of an attempt while the load falls, and records
/// each node set with a load below `peak`.
fn descend<'t, 'g>(
    context: &Context<'_>,
    attempt: &'t Attempt<'g>,
    peak: u64,
    descents: &mut Vec<Descent<'t, 'g>>,
) -> Result<()> {
    let (graph, order) = (&attempt.schedule.graph, &attempt.schedule.order);
    let candidates: Vec<bool> = order
        .iter()
        .map(|&node| {
            let last = attempt.schedule.members(&node).last();
            let is_wanted = |wanted: &[NodeId]| last.is_some_and(|last| wanted.contains(last));
            context.can_overlap(graph, node) && context.overlapping.is_none_or(is_wanted)
        })
        .collect();
    let all = order.iter().zip(&candidates).filter(|&(_, &can)| can).map(|(&node, _)| node);
    let all: Vec<NodeId> = all.collect();
    // No set is likely to be lower.
    if all.is_empty() || profile(context, attempt, &all)?.load() >= peak {
        return Ok(());
    }
    let mut overlapped: Vec<NodeId> = Vec::new();
    let mut now = profile(context, attempt, &overlapped)?;
    for space in 0..now.live.len() {
        loop {
            let peaks = now.peaks(space);
            let is_new = |&step: &usize| candidates[step] && !overlapped.contains(&order[step]);
            if now.highest(space) == 0 || !peaks.iter().all(is_new) {
                break;
            }
            let before = overlapped.len();
            overlapped.extend(peaks.iter().map(|&step| order[step]));
            let next = profile(context, attempt, &overlapped)?;
            if next.highest(space) >= now.highest(space) {
                overlapped.truncate(before);
                break;
            }
            now = next;
            if now.load() < peak {
                let overlapped = overlapped.clone();
                descents.push(Descent { attempt, overlapped, load: now.load() });
            }
        }
    }
    Ok(())
}

/// Returns sets of nodes whose outputs might better overlap inputs. `rooms` gives the bytes of the
/// cheapest memory, of the two cheapest together, and so on.
///
/// With few nodes, all sets. Otherwise two sets for each room: the first adds nodes at the highest
/// steps until all steps are below the room, the second adds every node that lowers a step above
/// the room.
pub(super) fn overlap_sets(
    context: &Context<'_>,
    attempt: &Attempt<'_>,
    rooms: &[u64],
) -> Result<Vec<Vec<NodeId>>> {
    let (graph, order) = (&attempt.schedule.graph, &attempt.schedule.order);
    if !context.overlaps_inputs() || order.len() > MOST_NODES_TO_OVERLAP {
        return Ok(Vec::new());
    }
    let can: Vec<NodeId> =
        order.iter().copied().filter(|&node| context.can_overlap(graph, node)).collect();
    let few = match context.options.effort {
        Effort::Fast => FEW_TO_COMBINE,
        _ => MOST_TO_COMBINE,
    };
    if can.len() <= few {
        return Ok(subsets(&can));
    }
    let Some(&fastest) = rooms.first() else { return Ok(Vec::new()) };
    let live = profile(context, attempt, &[])?.totals();
    let is_high = |node: &NodeId| {
        let step = order.iter().position(|other| other == node);
        step.is_some_and(|step| live[step] > fastest)
    };
    let high: Vec<NodeId> = can.iter().copied().filter(is_high).collect();
    if high.len() <= few {
        return Ok(subsets(&high));
    }
    let mut descents = Vec::new();
    descend(context, attempt, u64::MAX, &mut descents)?;
    let mut sets: Vec<Vec<NodeId>> = Vec::new();
    for &room in rooms {
        let low = descents.iter().find(|descent| descent.load <= room).or(descents.last());
        let low = low.map(|descent| descent.overlapped.clone());
        for set in low.into_iter().chain([lowered(context, attempt, &can, room)?]) {
            if !set.is_empty() && !sets.contains(&set) {
                sets.push(set);
            }
        }
    }
    Ok(sets)
}

/// Returns the nodes in `can` at steps above `room` whose overlap lowers the step.
fn lowered(
    context: &Context<'_>,
    attempt: &Attempt<'_>,
    can: &[NodeId],
    room: u64,
) -> Result<Vec<NodeId>> {
    let order = &attempt.schedule.order;
    let mut is_left = vec![false; attempt.schedule.graph.nodes().len()];
    for node in can {
        is_left[node.index()] = true;
    }
    let mut chosen: Vec<NodeId> = Vec::new();
    let mut now = profile(context, attempt, &chosen)?.totals();
    for _ in 0..MOST_ADDITIONS {
        let high: Vec<usize> = (0..order.len())
            .filter(|&step| now[step] > room && is_left[order[step].index()])
            .collect();
        if high.is_empty() {
            break;
        }
        let before = chosen.len();
        chosen.extend(high.iter().map(|&step| order[step]));
        let next = profile(context, attempt, &chosen)?.totals();
        chosen.truncate(before);
        for step in high {
            is_left[order[step].index()] = false;
            if next[step] < now[step] {
                chosen.push(order[step]);
            }
        }
        now = profile(context, attempt, &chosen)?.totals();
    }
    Ok(chosen)
}

/// Returns the bytes that are live in an attempt if outputs of some nodes overlap inputs.
fn profile(context: &Context<'_>, attempt: &Attempt<'_>, overlapped: &[NodeId]) -> Result<Profile> {
    let graph = &*attempt.schedule.graph;
    let options = attempt.context(context).liveness_options(false, attempt.elision)?;
    let liveness = smallest(context, &attempt.schedule, graph, options, overlapped)?;
    let spaces = 0..graph.spaces().len();
    Ok(Profile { live: spaces.map(|space| liveness.profile(SpaceId::new(space))).collect() })
}

/// Returns every subset of `nodes`, the largest first.
fn subsets(nodes: &[NodeId]) -> Vec<Vec<NodeId>> {
    let mut sets: Vec<Vec<NodeId>> = (1_usize..1 << nodes.len())
        .map(|bits| {
            let chosen = nodes.iter().enumerate().filter(|(index, _)| bits >> index & 1 == 1);
            chosen.map(|(_, &node)| node).collect()
        })
        .collect();
    sets.sort_by_key(|set| core::cmp::Reverse(set.len()));
    sets
}
