//! A program's step: nodes, and the places of operands.

use crate::base::{NodeId, SpaceId, ValueId};
use crate::plan::{PlanStep, Share};
use crate::run::arena::{Stretch, Writing};
use crate::run::program::{Program, StepSpans};

/// A step of a [`Program`]: a node, or several fused nodes.
#[derive(Clone, Copy, Debug)]
pub struct ProgramStep<'p> {
    pub(super) program: &'p Program,
    pub(super) index: usize,
    pub(super) row: &'p PlanStep,
    pub(super) spans: &'p StepSpans,
}

/// Bytes in a space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SpaceSpan {
    /// The space.
    pub space: SpaceId,
    /// First byte in the space.
    pub offset: u64,
    /// Size in bytes.
    pub bytes: u64,
}

/// A step's operand, and the operand's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct StepOperand {
    /// The value; `None` if the operand is left out, or neither read nor written.
    pub value: Option<ValueId>,
    /// The operand's bytes; `None` if not in the arena.
    pub span: Option<SpaceSpan>,
}

/// A step's scratch memory, and the memory's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct StepWorkspace {
    /// The node that uses the scratch memory.
    pub node: NodeId,
    /// Position among the node's workspaces.
    pub slot: usize,
    /// The workspace's bytes.
    pub span: SpaceSpan,
}

impl From<Stretch> for SpaceSpan {
    fn from(place: Stretch) -> Self {
        let wide = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
        let (offset, bytes) = (wide(place.start), wide(place.len()));
        Self { space: SpaceId::new(place.region), offset, bytes }
    }
}

impl<'p> ProgramStep<'p> {
    /// Returns the position among the steps.
    pub const fn index(self) -> usize {
        self.index
    }

    /// Returns the last node's name.
    pub fn name(self) -> &'p str {
        &self.row.name
    }

    /// Returns the step's node; for a fused group, the last node.
    pub fn node(self) -> NodeId {
        NodeId::from(self.row.node)
    }

    /// Iterates over the step's nodes, in order; mostly a single node.
    pub fn nodes(self) -> impl Iterator<Item = NodeId> + 'p {
        self.row.nodes()
    }

    /// Returns whether several nodes are fused: values between them are passed on piece by piece
    /// and have no place.
    pub const fn is_fused(self) -> bool {
        !self.row.fused.is_empty()
    }

    /// Iterates over the inputs, by position: the node's inputs, or the values that a fused group
    /// reads from outside, each value once.
    pub fn inputs(self) -> impl ExactSizeIterator<Item = StepOperand> + 'p {
        let inputs = self.spans.inputs.iter();
        inputs.map(|it| StepOperand { value: it.value, span: it.place.map(SpaceSpan::from) })
    }

    /// Iterates over the outputs, by position.
    pub fn outputs(self) -> impl ExactSizeIterator<Item = StepOperand> + 'p {
        let outputs = self.spans.outputs.iter();
        outputs.map(|it| StepOperand { value: it.value, span: it.place.map(SpaceSpan::from) })
    }

    /// Iterates over the workspaces of the step's nodes, in order.
    pub fn workspaces(self) -> impl ExactSizeIterator<Item = StepWorkspace> + 'p {
        let workspaces = self.spans.workspaces.iter();
        workspaces.map(|it| StepWorkspace { node: it.node, slot: it.slot, span: it.place.into() })
    }

    /// Returns the operands that share bytes, with the rule that permits each share.
    pub fn shares(self) -> &'p [Share] {
        &self.row.shares
    }

    /// Returns the first position at which `value` is read, if any.
    pub fn input_of(self, value: ValueId) -> Option<usize> {
        self.spans.inputs.iter().position(|input| input.value == Some(value))
    }

    /// Returns whether the output at a position is part of an input, and so already has the final
    /// content.
    pub fn is_view(self, output: usize) -> bool {
        let access = self.spans.outputs.get(output).map(|output| output.access);
        matches!(access, Some(Writing::Within { .. }))
    }
}
