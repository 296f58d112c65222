//! Policies: the threads that run steps and operations.

use std::num::NonZeroUsize;

/// The threads that run steps and operations.
///
/// MXNet calls these `NaiveEngine`, `ThreadedEngine` and `ThreadedEnginePerDevice`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Policy {
    /// The caller's thread, in order.
    Serial,
    /// So many threads, each of which takes the first ready step or operation.
    Workers(NonZeroUsize),
    /// One thread per memory space, which runs the steps that write there. An operation names its
    /// space; the number counts the spaces.
    PerSpace(NonZeroUsize),
}

impl Policy {
    /// Returns the policy with so many threads; 1 for 0.
    #[must_use]
    pub fn workers(threads: usize) -> Self {
        Self::Workers(NonZeroUsize::new(threads).unwrap_or(NonZeroUsize::MIN))
    }

    /// Returns the policy with one thread per space; 1 for 0.
    #[must_use]
    pub fn per_space(spaces: usize) -> Self {
        Self::PerSpace(NonZeroUsize::new(spaces).unwrap_or(NonZeroUsize::MIN))
    }

    /// Returns the number of queues, each with separate threads.
    pub(crate) const fn queues(self) -> usize {
        match self {
            Self::Serial | Self::Workers(_) => 1,
            Self::PerSpace(spaces) => spaces.get(),
        }
    }

    /// Returns the number of threads per queue.
    pub(crate) const fn threads_per_queue(self) -> usize {
        match self {
            Self::Serial => 0,
            Self::Workers(threads) => threads.get(),
            Self::PerSpace(_) => 1,
        }
    }
}
