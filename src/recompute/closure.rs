//! The nodes that make a value again.

use alloc::{vec, vec::Vec};

use super::narrow_ids::{NONE, at};
use super::sequence::Evaluation;
use super::sequence_model::SequenceModel;

/// Most nodes that one change runs again.
const MOST_NODES: usize = 200;

/// Finds the nodes that must run again before a value can be read.
pub(super) struct Closure<'a> {
    model: &'a SequenceModel,
    now: &'a Evaluation,
    top: usize,
    /// For each node: the number of the last search that met the node.
    met: Vec<u32>,
    searches: u32,
}

impl<'a> Closure<'a> {
    pub(super) fn new(model: &'a SequenceModel, now: &'a Evaluation, top: usize) -> Self {
        Self { model, now, top, met: vec![0; model.nodes.len()], searches: 0 }
    }

    /// Returns the nodes that make `values` again before a position, without the instance
    /// `dropped`, in a valid order, and the cost. The value `leaving` will have been copied to the
    /// slow memory.
    pub(super) fn of(
        &mut self,
        values: &[u32],
        dropped: u32,
        before: u32,
        leaving: u32,
    ) -> Option<(Vec<u32>, u64)> {
        self.searches += 1;
        let mut nodes = Vec::new();
        let mut cost = 0_u64;
        // Nodes are pushed twice: at the second visit the operands are there.
        let mut pending: Vec<(u32, bool)> = Vec::new();
        for &value in values {
            pending.push((self.maker(value, before, leaving), false));
        }
        while let Some((node, is_ready)) = pending.pop() {
            if node == NONE || !self.model.nodes[at(node)].is_pure {
                return None;
            }
            if is_ready {
                if nodes.len() >= MOST_NODES {
                    return None;
                }
                nodes.push(node);
                cost = cost.saturating_add(self.model.nodes[at(node)].cost);
                continue;
            }
            if core::mem::replace(&mut self.met[at(node)], self.searches) == self.searches {
                continue;
            }
            pending.push((node, true));
            if self.model.is_copy(node) {
                continue;
            }
            for &read in &self.model.nodes[at(node)].reads {
                if !self.is_there(read, dropped, before) {
                    let producer = self.maker(read, before, leaving);
                    if producer == NONE {
                        return None;
                    }
                    if self.met[at(producer)] != self.searches {
                        pending.push((producer, false));
                    }
                }
            }
            if pending.len() > 4 * MOST_NODES {
                return None;
            }
        }
        Some((nodes, cost))
    }

    /// Returns the node that makes a value again before a position: the node that copies the value
    /// back, if the value has left, or is `leaving`, and copying costs no more than the producer.
    fn maker(&self, value: u32, before: u32, leaving: u32) -> u32 {
        let producer = self.model.producer[at(value)];
        let Some((_, back)) = self.model.paging.as_ref().and_then(|paging| paging.nodes_of(value))
        else {
            return producer;
        };
        let cost = |node: u32| self.model.nodes[at(node)].cost;
        let is_cheap = producer == NONE
            || !self.model.nodes[at(producer)].is_pure
            || cost(back) <= cost(producer);
        if value == leaving || is_cheap && self.has_left(value, before) { back } else { producer }
    }

    /// Returns whether a value was copied to the slow memory before a position.
    pub(super) fn has_left(&self, value: u32, before: u32) -> bool {
        let pair = self.model.paging.as_ref().and_then(|paging| paging.nodes_of(value));
        let copy = pair.and_then(|(out, _)| self.model.nodes[at(out)].writes.first());
        let binding = copy.map_or(NONE, |&copy| self.now.latest[at(copy)]);
        binding != NONE && self.now.bindings[at(binding)].position < before
    }

    /// Returns whether a value can be read before a position, without bytes at the top.
    pub(super) fn is_there(&self, value: u32, dropped: u32, before: u32) -> bool {
        let mut binding = self.now.latest[at(value)];
        while binding != NONE && self.now.bindings[at(binding)].position >= before {
            let found = self.now.bindings[at(binding)];
            if found.position == 0 && found.before == NONE {
                break;
            }
            binding = found.before;
        }
        if binding == NONE {
            return self.model.producer[at(value)] == NONE;
        }
        let instance = self.now.bindings[at(binding)].instance;
        instance == NONE
            || instance != dropped && at(self.now.instances[at(instance)].last) > self.top
    }
}
