//! Whose memory the inputs and outputs of a graph are in.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result, quoted};

/// Whose memory graph inputs are in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum InputMemory {
    /// The arena's: their bytes are given away after the last reader, but no node writes its
    /// result over them.
    #[default]
    Inside,
    /// The caller's: each input is in a buffer of its own, which is only ever read.
    Caller,
    /// The arena's, and nodes may write their results over them.
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
        found.ok_or_else(|| Error::InvalidName {
            what: format!("the input memory {}", quoted(text)),
        })
    }
}

/// Whose memory graph outputs are in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum OutputMemory {
    /// The arena's.
    #[default]
    Inside,
    /// The caller's: each output is in a buffer of its own, which also holds what the output
    /// takes over, shows, or is joined from.
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
        found.ok_or_else(|| Error::InvalidName {
            what: format!("the output memory {}", quoted(text)),
        })
    }
}
