//! The crate's error type.

use alloc::string::String;
use core::fmt::Write as _;

/// A `Result` with this crate's [`Error`].
pub type Result<T, E = Error> = core::result::Result<T, E>;

/// The reason why a problem or packing was refused.
///
/// A message suffices to act. Names are quoted, escaped and shortened by [`quoted`], since names
/// come from untrusted files.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "every message names its fields")]
pub enum Error {
    /// A size in bytes exceeds a machine's address space.
    #[error("{what} needs more bytes than a machine can address")]
    SizeOverflow { what: String },
    /// An alignment is not a power of two.
    #[error("alignment {bytes} of {what} is 0, above 2^62, or not a power of two")]
    InvalidAlignment { what: String, bytes: u64 },
    /// A live range is empty or reversed.
    #[error("the live range {start}..{end} of {what} is empty")]
    InvalidLiveRange { what: String, start: u32, end: u32 },
    /// A problem is malformed.
    #[error("buffer {buffer}: {reason}")]
    InvalidBuffer { buffer: usize, reason: String },
    /// Pinned offsets contradict each other or their space.
    #[error("{reason}")]
    PinConflict { reason: String },
    /// The plan was made for another graph.
    #[error("the plan does not belong to this graph: {reason}")]
    PlanMismatch { reason: String },
    /// A buffer lies outside its arena.
    #[error("{what} occupies bytes {start}..{end} of an arena of {arena} bytes")]
    PlanOutOfBounds { what: String, start: u64, end: u128, arena: u64 },
    /// Two things needed at the same time share bytes.
    #[error("{first} and {second} share byte {byte} of the arena at step {step}")]
    PlanOverlap { first: String, second: String, step: u32, byte: u64 },
    /// An offset is not a multiple of the alignment.
    #[error("{what} is at offset {offset}, which is not a multiple of its alignment {alignment}")]
    PlanMisaligned { what: String, offset: u64, alignment: u64 },
    /// The planner itself ran out of memory.
    #[error("not enough memory for {what}")]
    OutOfMemory { what: &'static str },
}

impl Error {
    /// Returns the name of the variant, for callers that report error kinds.
    ///
    /// ```
    /// let error = arenaplan_pack::base::Alignment::new(3).unwrap_err();
    /// assert_eq!(error.kind(), "InvalidAlignment");
    /// ```
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::SizeOverflow { .. } => "SizeOverflow",
            Self::InvalidAlignment { .. } => "InvalidAlignment",
            Self::InvalidLiveRange { .. } => "InvalidLiveRange",
            Self::InvalidBuffer { .. } => "InvalidBuffer",
            Self::PinConflict { .. } => "PinConflict",
            Self::PlanMismatch { .. } => "PlanMismatch",
            Self::PlanOutOfBounds { .. } => "PlanOutOfBounds",
            Self::PlanOverlap { .. } => "PlanOverlap",
            Self::PlanMisaligned { .. } => "PlanMisaligned",
            Self::OutOfMemory { .. } => "OutOfMemory",
        }
    }
}

/// Returns `name` in quotes, control characters escaped, cut after 80 characters.
///
/// ```
/// assert_eq!(arenaplan_pack::base::quoted("a\nb"), "'a\\nb'");
/// ```
#[must_use]
pub fn quoted(name: &str) -> String {
    const LONGEST: usize = 80;
    let mut text = String::from("'");
    for (position, character) in name.chars().enumerate() {
        if position == LONGEST {
            text.push('…');
            break;
        }
        if character == '\'' {
            text.push('\'');
        } else {
            // Writing to a string cannot fail.
            let _ = write!(text, "{}", character.escape_debug());
        }
    }
    text.push('\'');
    text
}
