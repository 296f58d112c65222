//! Operands that are lent at once: all operands of a step, or an output and all inputs.

use alloc::string::String;

use bytemuck::Pod;

use crate::run::arena::{Input, Output, Reading, Rest, cast, cast_mut, count};
use crate::run::program::ProgramStep;

/// A step's operands: bytes, or elements of type `T`.
#[derive(Debug)]
pub struct Operands<'m, const I: usize, const O: usize, const W: usize, T = u8> {
    /// Inputs, by position.
    pub inputs: [Input<'m, T>; I],
    /// Outputs, by position.
    pub outputs: [Output<'m, T>; O],
    /// Scratch bytes: the nodes' workspaces, in order.
    pub workspaces: [&'m mut [u8]; W],
}

/// An output to write, and all inputs to read.
#[derive(Debug)]
pub struct OutputAndInputs<'m> {
    /// The output's bytes.
    pub output: Output<'m>,
    /// The step's inputs.
    pub inputs: Inputs<'m>,
}

/// A step's inputs, while an output of the step is lent for writing.
#[derive(Clone, Copy, Debug)]
pub struct Inputs<'m> {
    pub(super) step: ProgramStep<'m>,
    /// The output's position.
    pub(super) output: usize,
    /// The bytes that are not lent to be written.
    pub(super) rest: Rest<'m>,
}

impl<'m> Inputs<'m> {
    /// Returns the input count.
    pub const fn len(&self) -> usize {
        self.step.spans.inputs.len()
    }

    /// Returns whether there is no input.
    pub const fn is_empty(&self) -> bool {
        self.step.spans.inputs.is_empty()
    }

    /// Returns the input at `position`, or `None` if there is none.
    pub fn get(&self, position: usize) -> Option<Input<'m>> {
        let input = self.step.spans.inputs.get(position)?;
        Some(match (input.access, input.place) {
            (Reading::External, _) => Input::External,
            (Reading::Within { output, offset }, _) if output == self.output => {
                Input::Within { output, offset }
            }
            (_, Some(place)) => Input::Shared(self.rest.bytes(place)?),
            (_, None) => Input::Absent,
        })
    }

    /// Iterates over the inputs, by position.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Input<'m>> + '_ {
        (0..self.len()).map(|position| self.get(position).unwrap_or_default())
    }
}

impl<'m> Input<'m> {
    /// Casts the operand to elements of type `T`; fails if length or address does not fit `T`.
    pub(super) fn elements<T: Pod>(self) -> Result<Input<'m, T>, String> {
        Ok(match self {
            Self::Absent => Input::Absent,
            Self::External => Input::External,
            Self::Shared(bytes) => Input::Shared(cast(bytes)?),
            Self::Within { output, offset } => {
                Input::Within { output, offset: count::<T>(offset)? }
            }
            Self::State(bytes) => Input::State(cast_mut(bytes)?),
            Self::WithinState { input, offset } => {
                Input::WithinState { input, offset: count::<T>(offset)? }
            }
        })
    }
}

impl<'m> Output<'m> {
    /// Casts the operand to elements of type `T`; fails if length or address does not fit `T`.
    pub(super) fn elements<T: Pod>(self) -> Result<Output<'m, T>, String> {
        Ok(match self {
            Self::Absent => Output::Absent,
            Self::Exclusive(bytes) => Output::Exclusive(whole(bytes)?),
            Self::Within { input, offset } => Output::Within { input, offset: count::<T>(offset)? },
        })
    }
}

/// Returns the whole elements of `T` in bytes that an input may share.
pub(super) fn whole<T: Pod>(bytes: &mut [u8]) -> Result<&mut [T], String> {
    let rest = bytes.len().checked_rem(size_of::<T>()).unwrap_or(0);
    let end = bytes.len() - rest;
    cast_mut(&mut bytes[..end])
}
