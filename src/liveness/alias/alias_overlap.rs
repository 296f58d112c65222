//! Outputs that overlap dying inputs at a distance.

use alloc::vec::Vec;

use super::{ClassBuilder, is_only_read};
use crate::base::{NodeId, Step, ValueId};
use crate::graph::Overlap;
use crate::plan::ShareRule;

/// An input that an output may overlap.
struct OverlapCandidate {
    overlap: Overlap,
    value: ValueId,
    /// Bytes from the output's start to the input's start.
    distance: u64,
    /// Bytes that both have.
    saved: u64,
}

impl ClassBuilder<'_> {
    /// Lets the output of a node overlap the dying input that then shares most bytes with the
    /// output.
    pub(super) fn overlap(&mut self, step: Step, id: NodeId) {
        let node = self.graph.node(id);
        let overlaps = self.graph.overlaps(id, self.rules.early_writes);
        let Some(output) = overlaps.first().and_then(|overlap| node.output(overlap.output)) else {
            return;
        };
        if self.is_view[output.index()] {
            return;
        }
        // Input and output are aligned as their space.
        let space = self.graph.space(self.graph.value(output).space());
        let alignment = self.rules.alignment.max(space.alignment());
        let candidates = overlaps.iter().filter_map(|&overlap| {
            let value = node.input(overlap.input)?;
            let distance = alignment.round_up(overlap.distance)?;
            let (made, used) = (self.graph.value(output).bytes(), self.graph.value(value).bytes());
            let saved = used.min(made.saturating_sub(distance));
            (saved > 0).then_some(OverlapCandidate { overlap, value, distance, saved })
        });
        let mut candidates: Vec<OverlapCandidate> = candidates.collect();
        candidates.sort_by_key(|candidate| core::cmp::Reverse(candidate.saved));
        for OverlapCandidate { overlap, value, distance, .. } in candidates {
            let Some((over, start)) = self.places[value.index()] else { continue };
            let start = start - i128::from(distance);
            if self.is_used_up(step, id, &overlaps, (output, over, start))
                && self.put(step, output, over, start)
            {
                self.note(step, id, overlap.input, overlap.output, ShareRule::Overlap);
                return;
            }
        }
    }

    /// Returns whether `output` may be written at `start` in class `over`, as far as values there
    /// are concerned: inputs that die, and are read far enough ahead of writing.
    fn is_used_up(
        &self,
        step: Step,
        id: NodeId,
        overlaps: &[Overlap],
        (output, over, start): (ValueId, usize, i128),
    ) -> bool {
        let node = self.graph.node(id);
        let class = self.class(over);
        let made = self.graph.value(output);
        let end = start + i128::from(made.bytes());
        class.space == made.space()
            && self.all_die(step, class, output, start..end, |member| {
                let is_ahead = |position| {
                    let mut known = overlaps.iter().filter(|known| known.input == position);
                    known.any(|known| member.start - start >= i128::from(known.distance))
                };
                is_only_read(node, member.value, is_ahead)
                    && !self.is_callers(self.root(member.value))
            })
    }
}
