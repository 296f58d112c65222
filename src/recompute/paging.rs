//! Copies to a slow memory and back, as nodes behind the graph's nodes.
//!
//! For each value that may be copied the model has two more nodes and one more value. The node
//! *out* reads the value and writes a copy, which has no bytes in the arena; the node *in* reads
//! the copy and makes the value again. So a sequence with copies is a sequence of executions like
//! any other: a value that comes back was made again by another node. A schedule runs *out* at most
//! once, and *in* as often as worthwhile.

use alloc::{vec, vec::Vec};

use super::narrow_ids::{NONE, at, narrow};
use super::paged_values::PagedValues;
use super::sequence::Evaluation;
use super::sequence_model::{NodeFacts, SequenceModel};
use crate::base::SpaceId;
use crate::graph::{Graph, ValueKind};
use crate::pack::Space;

impl SequenceModel {
    /// Adds nodes that copy values to `slow` and back: values between two nodes, in the default
    /// space, that show no bytes of another value.
    pub(super) fn add_paging(&mut self, graph: &Graph, slow: &Space) {
        let count = graph.values().len();
        let mut paging = PagedValues {
            first: narrow(self.nodes.len()),
            values: Vec::new(),
            pairs: vec![NONE; count],
            slow: Vec::new(),
            capacity: slow.capacity(),
        };
        for (index, value) in graph.values().iter().enumerate() {
            let may_be_copied = value.kind() == ValueKind::Activation
                && value.space() == SpaceId::new(0)
                && value.pin().is_none()
                && self.producer[index] != NONE
                && self.bytes[index] > 0
                && self.shows[index] == NONE
                && !self.kept[index];
            let fits = slow.capacity().is_none_or(|most| value.bytes() <= most);
            if !may_be_copied || !fits {
                continue;
            }
            let (value_id, copy) = (narrow(index), narrow(self.bytes.len()));
            let cost = value.bytes().saturating_mul(slow.cost());
            let out = narrow(self.nodes.len());
            self.nodes.push(NodeFacts {
                reads: vec![value_id],
                writes: vec![copy],
                cost,
                ..NodeFacts::default()
            });
            self.nodes.push(NodeFacts {
                reads: vec![copy],
                writes: vec![value_id],
                cost,
                is_pure: true,
                ..NodeFacts::default()
            });
            self.bytes.push(0);
            self.own.push(0);
            self.shows.push(NONE);
            self.producer.push(out);
            self.kept.push(false);
            self.may_take.push(false);
            self.replaced_by.push(NONE);
            paging.pairs[index] = narrow(paging.values.len());
            paging.values.push(value_id);
            paging.slow.push(value.bytes());
        }
        self.paging = Some(paging);
    }

    /// Returns the node that copies a value in, and the cost of both copies.
    pub(super) fn paged(&self, value: u32) -> Option<(u32, u64)> {
        let (out, back) = self.paging.as_ref()?.nodes_of(value)?;
        let cost = self.nodes[at(out)].cost.saturating_add(self.nodes[at(back)].cost);
        Some((back, cost))
    }

    /// Returns whether a node copies a value, and is not in the graph.
    pub(super) fn is_copy(&self, node: u32) -> bool {
        at(node) >= self.count
    }

    /// Returns the sequence without copies out that nothing reads, copies in without a copy out, and
    /// second copies out.
    pub(super) fn tidied(&self, sequence: &[u32]) -> Vec<u32> {
        let Some(paging) = &self.paging else { return sequence.to_vec() };
        let mut returns = vec![false; paging.values.len()];
        let mut left = vec![false; paging.values.len()];
        for &node in sequence {
            if let Some((pair, true)) = paging.pair_of(node) {
                returns[at(pair)] = true;
            }
        }
        let is_needed = |node: &u32| match paging.pair_of(*node) {
            None => true,
            Some((pair, true)) => left[at(pair)],
            Some((pair, false)) => {
                !core::mem::replace(&mut left[at(pair)], true) && returns[at(pair)]
            }
        };
        sequence.iter().copied().filter(is_needed).collect()
    }

    /// Returns the sequence with each copy in moved as early as `budget` permits, until the nodes
    /// in between cost as much as the copy: on a machine that copies beside the computation, no
    /// node then waits for the copy.
    pub(super) fn prefetched(&self, sequence: Vec<u32>, budget: u64) -> Vec<u32> {
        let Some(paging) = &self.paging else { return sequence };
        let mut sequence = sequence;
        let mut now = Evaluation::default();
        if !now.run(self, &sequence) {
            return sequence;
        }
        let mut trial = Evaluation::default();
        for position in 0..sequence.len() {
            let node = sequence[position];
            let Some((pair, true)) = paging.pair_of(node) else { continue };
            let value = paging.value_of(pair);
            let bytes = self.bytes[at(value)];
            let (mut start, mut hidden) = (position, 0_u64);
            while start > 0 && hidden < self.nodes[at(node)].cost {
                let before = sequence[start - 1];
                let facts = &self.nodes[at(before)];
                let touches = |other: &u32| self.root(*other) == value;
                let is_bound = facts.reads.iter().chain(&facts.writes).any(touches)
                    || paging.pair_of(before).is_some();
                if is_bound || now.live[start - 1].saturating_add(bytes) > budget {
                    break;
                }
                hidden = hidden.saturating_add(facts.cost);
                start -= 1;
            }
            if start == position {
                continue;
            }
            let mut moved = sequence.clone();
            moved[start..=position].rotate_right(1);
            if trial.run(self, &moved) && trial.peak <= budget {
                sequence = moved;
                core::mem::swap(&mut now, &mut trial);
            }
        }
        sequence
    }
}
