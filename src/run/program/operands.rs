//! All operands of a step, lent at once.

use alloc::string::String;

use bytemuck::Pod;

use crate::run::arena::{Input, Output, cast, cast_mut, count};

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
