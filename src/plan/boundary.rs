//! The memory for graph inputs and outputs: the arena or the caller's buffers.

use core::str::FromStr;

use crate::base::{Error, Result};

/// The memory for graph inputs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "lowercase"))]
#[non_exhaustive]
pub enum InputMemory {
    /// The arena. An input's bytes are reused after the last reader, but no node writes its result
    /// in place over an input.
    #[default]
    Inside,
    /// The caller's memory: each input is in a read-only buffer.
    Caller,
    /// The arena, and nodes may write their results over inputs in place.
    Reuse,
}

impl InputMemory {
    /// Returns the name used in plan files and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Inside => "inside",
            Self::Caller => "caller",
            Self::Reuse => "reuse",
        }
    }

    #[allow(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
    pub(crate) fn is_default(&self) -> bool {
        *self == Self::Inside
    }
}

impl FromStr for InputMemory {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let mut known = [Self::Inside, Self::Caller, Self::Reuse].into_iter();
        let found = known.find(|memory| memory.name() == text);
        found.ok_or_else(|| Error::unknown_name("input memory", text, "inside,caller,reuse"))
    }
}

/// The memory for graph outputs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "lowercase"))]
#[non_exhaustive]
pub enum OutputMemory {
    /// The arena.
    #[default]
    Inside,
    /// The caller's memory: each output is in a separate buffer, which also holds the values that
    /// the output takes over, shows, or is joined from.
    Caller,
}

impl OutputMemory {
    /// Returns the name used in plan files and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Inside => "inside",
            Self::Caller => "caller",
        }
    }

    #[allow(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
    pub(crate) fn is_default(&self) -> bool {
        *self == Self::Inside
    }
}

impl FromStr for OutputMemory {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let mut known = [Self::Inside, Self::Caller].into_iter();
        let found = known.find(|memory| memory.name() == text);
        found.ok_or_else(|| Error::unknown_name("output memory", text, "inside,caller"))
    }
}
