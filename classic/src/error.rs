//! The crate's error type.

use alloc::string::String;

/// A `Result` with this crate's [`Error`].
pub type Result<T, E = Error> = core::result::Result<T, E>;

/// Why an earlier system's planner refused a graph, an array or a call.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "every message names its fields")]
pub enum Error {
    /// Storage ids, arrays or parameters do not fit together.
    #[error("{reason}")]
    Storage { reason: String },
    /// An error from the core.
    #[error(transparent)]
    Core(#[from] arenaplan::Error),
}

impl From<arenaplan::pack::Error> for Error {
    fn from(error: arenaplan::pack::Error) -> Self {
        Self::Core(error.into())
    }
}

impl Error {
    /// Returns the name of the variant, for callers that report error kinds. For a core error,
    /// returns the kind in the core.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Storage { .. } => "StorageError",
            Self::Core(error) => error.kind(),
        }
    }
}
