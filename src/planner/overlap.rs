//! Outputs that overlap dying inputs at a distance: the last thing that is tried.
//!
//! A chain of such overlaps slides a buffer through the arena, which makes it hard to pack. So
//! outputs overlap inputs only where most bytes are live at once, step by step as that falls,
//! and only if the result can be packed.

use super::Planner;
use super::pack::smallest_workspaces;
use super::search::Attempt;
use crate::error::Result;
use crate::index::{NodeId, SpaceId};
use crate::liveness::Liveness;
use crate::packing::Packing;
use crate::plan::WorkspacePolicy;
use crate::technique::Technique;

/// Graphs with more nodes are left as they are.
pub(super) const MOST_NODES_TO_OVERLAP: usize = 20_000;
/// How many sets of nodes are packed at most.
const MOST_PACKED: usize = 3;

/// Nodes of an attempt whose outputs overlap inputs.
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

    /// Returns the steps of a space at which most bytes are live.
    fn peaks(&self, space: usize) -> Vec<usize> {
        let highest = self.highest(space);
        let steps = self.live[space].iter().enumerate();
        steps.filter(|&(_, &live)| live == highest).map(|(step, _)| step).collect()
    }
}

impl Planner<'_> {
    /// Returns whether outputs may overlap inputs.
    ///
    /// Not if nodes may run in several orders; and which memory a value is in matters more than
    /// how large all of them are.
    pub(super) fn overlaps_inputs(&self) -> bool {
        self.options.optimize.contains(Technique::Overlap)
            && !self.options.parallel_safe
            && self.memories.is_none()
    }

    /// Returns an attempt that packs into fewer than `peak` bytes if some of its outputs overlap
    /// inputs, with the best such packing.
    pub(super) fn overlapped<'t, 'g>(
        &self,
        attempts: &'t [Attempt<'g>],
        mut peak: u64,
    ) -> Result<Option<(&'t Attempt<'g>, Liveness, Packing)>> {
        let is_small =
            |attempt: &Attempt<'_>| attempt.schedule.order.len() <= MOST_NODES_TO_OVERLAP;
        if !self.overlaps_inputs() || !attempts.iter().all(is_small) {
            return Ok(None);
        }
        let mut descents = Vec::new();
        for attempt in attempts {
            if !self.budget.exhausted() {
                self.descend(attempt, peak, &mut descents)?;
            }
        }
        descents.sort_by_key(|descent| descent.load);
        let mut best = None;
        for Descent { attempt, overlapped, load } in descents.into_iter().take(MOST_PACKED) {
            if load >= peak {
                break;
            }
            let Attempt { schedule, elision, .. } = attempt;
            let (liveness, packing) =
                self.pack(&schedule.graph, &schedule.order, *elision, &overlapped)?;
            if packing.peak() < peak {
                peak = packing.peak();
                best = Some((attempt, liveness, packing));
            }
        }
        Ok(best)
    }

    /// Lets outputs overlap inputs at the highest steps of an attempt, as long as those become
    /// lower, and notes each set of nodes with a load below `peak`.
    fn descend<'t, 'g>(
        &self,
        attempt: &'t Attempt<'g>,
        peak: u64,
        descents: &mut Vec<Descent<'t, 'g>>,
    ) -> Result<()> {
        let (graph, order) = (&attempt.schedule.graph, &attempt.schedule.order);
        let counted = self.options.workspace == WorkspacePolicy::Auto;
        let can_overlap = |&node: &NodeId| {
            let is_counted = !counted || graph.node(node).effects().staging.is_some();
            let is_wanted = self.overlapping.is_none_or(|wanted| {
                attempt.schedule.members(&node).last().is_some_and(|last| wanted.contains(last))
            });
            is_counted && is_wanted && !graph.overlaps(node).is_empty()
        };
        let candidates: Vec<bool> = order.iter().map(can_overlap).collect();
        let all = order.iter().zip(&candidates).filter(|&(_, &can)| can).map(|(&node, _)| node);
        let all: Vec<NodeId> = all.collect();
        // About as low as it gets.
        if all.is_empty() || self.profile(attempt, &all)?.load() >= peak {
            return Ok(());
        }
        let mut overlapped: Vec<NodeId> = Vec::new();
        let mut now = self.profile(attempt, &overlapped)?;
        for space in 0..now.live.len() {
            loop {
                let peaks = now.peaks(space);
                let is_new = |&step: &usize| candidates[step] && !overlapped.contains(&order[step]);
                if now.highest(space) == 0 || !peaks.iter().all(is_new) {
                    break;
                }
                let before = overlapped.len();
                overlapped.extend(peaks.iter().map(|&step| order[step]));
                let next = self.profile(attempt, &overlapped)?;
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

    /// Returns what is live in an attempt if outputs of some nodes overlap inputs.
    fn profile(&self, attempt: &Attempt<'_>, overlapped: &[NodeId]) -> Result<Profile> {
        let (graph, order) = (&*attempt.schedule.graph, &attempt.schedule.order);
        let options = self.liveness_options(false, attempt.elision)?;
        let mut liveness = Liveness::with_overlaps(graph, order, options, overlapped)?;
        if self.options.workspace == WorkspacePolicy::Auto {
            let workspaces = smallest_workspaces(graph, order, liveness.overlapped());
            liveness = liveness.with_workspaces(graph, options, workspaces)?;
        }
        let spaces = 0..graph.spaces().len();
        Ok(Profile { live: spaces.map(|space| liveness.profile(SpaceId::new(space))).collect() })
    }
}
