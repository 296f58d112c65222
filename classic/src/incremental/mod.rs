//! Planning while a model runs, as in TensorFlow Lite.
//!
//! An [`IncrementalPlanner`] places values node range by node range, because sizes of later values
//! may only be known when earlier nodes have run. The planner is for runtimes whose shapes change.
//! For sizes that are known beforehand, [`Planner`](arenaplan::Planner) needs fewer bytes.

mod events;
mod incremental_graph;
mod planner;
mod ranges;
mod share;

use alloc::format;
use core::fmt;
use core::str::FromStr;

pub use incremental_graph::{
    AllocationType, IncrementalGraph, IncrementalNode, IncrementalValue, SharePair,
};
pub use planner::{IncrementalPlanner, Place};

use crate::error::{Error, Result};
use arenaplan::Error as Core;
use arenaplan::base::{Alignment, quoted};

/// The rules that decide.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum IncrementalMode {
    /// The rules of this crate: an output is only written over bytes that no alias reads later; a
    /// value without readers lives for one step; a grown value is placed anew.
    #[default]
    Default,
    /// The rules of today's TensorFlow Lite, to the byte.
    LiteRt,
    /// The rules of TensorFlow Lite in 2019, to the byte.
    TfLite2019,
}

impl FromStr for IncrementalMode {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "default" => Ok(Self::Default),
            "litert" => Ok(Self::LiteRt),
            "tflite-2019" => Ok(Self::TfLite2019),
            _ => {
                let reason =
                    format!("{} is not one of 'default', 'litert', 'tflite-2019'", quoted(text));
                Err(Error::Core(Core::InvalidOption { option: "mode", reason }))
            }
        }
    }
}

impl fmt::Display for IncrementalMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Default => "default",
            Self::LiteRt => "litert",
            Self::TfLite2019 => "tflite-2019",
        })
    }
}

/// Options for an [`IncrementalPlanner`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IncrementalOptions {
    /// The rules that decide.
    pub mode: IncrementalMode,
    /// Offset alignment in bytes.
    pub alignment: Alignment,
    /// Alignment of each arena's address in bytes.
    pub arena_alignment: Alignment,
    /// Whether graph inputs keep their bytes until the end; today's TensorFlow Lite always keeps
    /// input bytes.
    pub preserve_inputs: bool,
    /// Whether every value keeps its bytes until the end.
    pub preserve_all: bool,
}

impl Default for IncrementalOptions {
    fn default() -> Self {
        let alignment = Alignment::new(64).expect("64 is a power of two");
        Self {
            mode: IncrementalMode::Default,
            alignment,
            arena_alignment: alignment,
            preserve_inputs: true,
            preserve_all: false,
        }
    }
}
