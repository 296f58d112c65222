//! Stages: nodes that make result rows from operand rows.

use alloc::vec::Vec;

use crate::base::{NodeId, ValueId};
use crate::graph::{Graph, Node, ValueKind, Window};

/// A node that makes some rows of its only result from some operand rows.
#[derive(Debug)]
pub(super) struct Stage {
    /// The result.
    pub(super) value: ValueId,
    /// Result rows.
    pub(super) rows: u64,
    /// Bytes per row in all planes of the result.
    pub(super) row_bytes: u64,
    /// The row dimension, also in operands.
    axis: usize,
    /// Operands that are read row by row.
    pub(super) reads: Vec<RowRead>,
    /// Operands that are read whole.
    wholes: Vec<ValueId>,
    /// Operands in whose rows the result can be made, because only this node reads the operands.
    pub(super) may_take: Vec<ValueId>,
}

/// An operand that is read row by row.
#[derive(Debug)]
pub(super) struct RowRead {
    pub(super) value: ValueId,
    pub(super) window: Window,
    /// The value's rows.
    pub(super) rows: u64,
}

impl Stage {
    pub(super) fn of(graph: &Graph, node: &Node, users: &[Vec<NodeId>]) -> Option<Self> {
        let effects = node.effects();
        let is_simple = effects.mutates.is_empty()
            && effects.ignores.is_empty()
            && node.control_dependencies().is_empty();
        let mut produced = node.produces();
        let (position, value) = produced.next().filter(|_| is_simple)?;
        let mut windows = effects.windows.iter().filter(|window| window.output == position);
        let axis = windows.clone().next()?.axis;
        if produced.next().is_some() || effects.windows.iter().any(|window| window.axis != axis) {
            return None;
        }
        let made = graph.value(value);
        let rows = *made.shape().get(axis).filter(|&&rows| rows > 0)?;
        let is_whole = made.dtype().bits() >= 8 && made.bytes() > 0;
        if !is_whole || !made.bytes().is_multiple_of(rows) {
            return None;
        }
        let (mut reads, mut wholes) = (Vec::new(), Vec::new());
        let mut may_take = Vec::new();
        for (input, value) in node.reads_bytes_of() {
            let Some(&window) = windows.clone().find(|window| window.input == input) else {
                wholes.push(value);
                continue;
            };
            let operand = graph.value(value);
            let rows = *operand.shape().get(axis)?;
            reads.push(RowRead { value, window, rows });
            let is_free = window.is_pointwise()
                && effects.in_place.iter().any(|it| (it.input, it.output) == (input, position))
                && users[value.index()].len() == 1
                && operand.kind() == ValueKind::Activation
                && !graph.outputs().contains(&value)
                && (operand.shape(), operand.dtype()) == (made.shape(), made.dtype());
            if is_free {
                may_take.push(value);
            }
        }
        windows.next()?;
        let row_bytes = made.bytes() / rows;
        Some(Self { value, rows, row_bytes, axis, reads, wholes, may_take })
    }

    /// Iterates over the values read.
    pub(super) fn operands(&self) -> impl Iterator<Item = ValueId> + '_ {
        self.reads.iter().map(|read| read.value).chain(self.wholes.iter().copied())
    }

    /// Returns whether the stage can read the values made by another stage, if it reads any.
    pub(super) fn can_follow(&self, other: &Self) -> bool {
        let is_read = self.reads.iter().any(|read| read.value == other.value);
        (!is_read || self.axis == other.axis) && !self.wholes.contains(&other.value)
    }
}
