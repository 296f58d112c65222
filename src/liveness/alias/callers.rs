//! Classes in memory that the caller brings.

use alloc::{vec, vec::Vec};

use super::{ClassBuilder, DraftClass};
use crate::base::{NodeId, Step, ValueId};
use crate::graph::ValueKind;
use crate::plan::{InputMemory, OutputMemory};

/// Most values that are tried in the caller's buffers: each is compared with all values in a
/// buffer.
const MOST_FILLED: usize = 2_000;

impl ClassBuilder<'_> {
    /// Returns whether the caller brings the memory of `value`.
    pub(super) fn is_owner(&self, id: ValueId) -> bool {
        let kind = self.graph.value(id).kind();
        let is_input = self.rules.inputs == InputMemory::Caller && kind == ValueKind::Input;
        let is_output = self.rules.outputs == OutputMemory::Caller && self.is_output[id.index()];
        // States stay in the arena from one run to the next, and so does a value that replaces a
        // state.
        is_input || is_output && kind != ValueKind::State && self.home[id.index()].is_none()
    }

    /// Returns whether two classes together are no larger than the caller's buffer, if either class
    /// has such a buffer.
    pub(super) fn owners_agree(&self, from: &DraftClass, into: &DraftClass, shift: i128) -> bool {
        let (owner, moved) = match (from.owner, into.owner) {
            (None, None) => return true,
            // A pin is a place in the arena.
            _ if from.pin.or(into.pin).is_some() => return false,
            (Some(_), Some(_)) => return false,
            (Some(owner), None) => (owner, shift),
            (None, Some(owner)) => (owner, 0),
        };
        let start = self.places[owner.index()].map_or(0, |(_, start)| start) + moved;
        let end = start + i128::from(self.graph.value(owner).bytes());
        let first = into.span.0.min(from.span.0 + shift);
        let alignment = self.rules.alignment.max(from.alignment).max(into.alignment);
        let is_aligned = start.rem_euclid(alignment.bytes().into()) == 0;
        is_aligned && start <= first && into.span.1.max(from.span.1 + shift) <= end
    }

    /// Lets values in the caller's buffers take over dying inputs, and those inputs their own
    /// inputs, from the end to the beginning.
    pub(super) fn fill_buffers(&mut self, order: &[NodeId]) {
        let members = self.classes.iter().flatten().filter(|class| class.owner.is_some());
        let members = members.flat_map(|class| class.members.iter().map(|member| member.value));
        let mut pending: Vec<ValueId> = members.collect();
        if pending.is_empty() || self.reach.is_some() {
            return;
        }
        let mut step_of = vec![Step::default(); self.graph.nodes().len()];
        for (step, id) in order.iter().enumerate() {
            step_of[id.index()] = Step::at(step);
        }
        let mut is_done = vec![false; self.graph.values().len()];
        for _ in 0..MOST_FILLED {
            let Some(value) = pending.pop() else { return };
            let producer = self.graph.producer(value);
            let Some(id) = producer.filter(|_| !is_done[value.index()]) else { continue };
            is_done[value.index()] = true;
            let node = self.graph.node(id);
            let mut made = node.produces();
            let Some((position, _)) = made.find(|&(_, made)| made == value) else { continue };
            self.take_over(step_of[id.index()], id, position, |this, input| {
                this.live(input).start()
            });
            let class = |value: ValueId| self.places[value.index()].map(|(class, _)| class);
            let read = node.reads_bytes_of().map(|(_, read)| read);
            pending.extend(read.filter(|&read| class(read) == class(value)));
        }
    }
}
