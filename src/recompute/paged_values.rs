//! Values that may be copied to a slow memory, and the nodes that stand for the copies.

use alloc::vec::Vec;

use super::narrow_ids::{NONE, at};
use crate::base::{Execution, NodeId, ValueId};

/// The values that may be copied.
pub(super) struct PagedValues {
    /// The first node that copies.
    pub(super) first: u32,
    /// The value for each node pair.
    pub(super) values: Vec<u32>,
    /// For each value: the node pair, or [`NONE`].
    pub(super) pairs: Vec<u32>,
    /// By pair: bytes in the slow memory.
    pub(super) slow: Vec<u64>,
    /// Bytes that the slow memory holds.
    pub(super) capacity: Option<u64>,
}

impl PagedValues {
    /// Returns the nodes that copy a value out and in.
    pub(super) fn nodes_of(&self, value: u32) -> Option<(u32, u32)> {
        let pair = self.pairs.get(at(value)).copied().filter(|&pair| pair != NONE)?;
        Some((self.first + 2 * pair, self.first + 2 * pair + 1))
    }

    /// Returns the pair that a node belongs to, and whether the node copies in.
    pub(super) fn pair_of(&self, node: u32) -> Option<(u32, bool)> {
        let index = node.checked_sub(self.first)?;
        Some((index / 2, index % 2 == 1))
    }

    /// Returns the value for a node pair.
    pub(super) fn value_of(&self, pair: u32) -> u32 {
        self.values[at(pair)]
    }

    /// Returns the execution that a node stands for.
    pub(super) fn execution(&self, node: u32) -> Execution {
        match self.pair_of(node) {
            None => Execution::Run(NodeId::from(node)),
            Some((pair, is_in)) => {
                let value = ValueId::from(self.values[at(pair)]);
                if is_in { Execution::PageIn { value } } else { Execution::PageOut { value } }
            }
        }
    }
}
