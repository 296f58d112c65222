//! Policies: the threads that run steps and operations.

use std::num::NonZeroUsize;

/// The threads that run steps and operations.
///
/// MXNet calls these `NaiveEngine`, `ThreadedEngine` and `ThreadedEnginePerDevice`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Policy {
    /// The thread of the caller, in order.
    Serial,
    /// So many threads, each of which takes the first of all that may run.
    Workers(NonZeroUsize),
    /// One thread per memory space, which runs the steps that write there. An operation names its
    /// space; there are as many threads.
    PerSpace(NonZeroUsize),
}

impl Policy {
    /// Returns the policy of so many threads; one for 0.
    #[must_use]
    pub fn workers(threads: usize) -> Self {
        Self::Workers(NonZeroUsize::new(threads).unwrap_or(NonZeroUsize::MIN))
    }

    /// Returns the policy of one thread per space; one for 0.
    #[must_use]
    pub fn per_space(spaces: usize) -> Self {
        Self::PerSpace(NonZeroUsize::new(spaces).unwrap_or(NonZeroUsize::MIN))
    }

    /// Returns the number of queues, each with its threads.
    pub(crate) const fn queues(self) -> usize {
        match self {
            Self::Serial | Self::Workers(_) => 1,
            Self::PerSpace(spaces) => spaces.get(),
        }
    }

    /// Returns the number of threads of each queue.
    pub(crate) const fn threads_per_queue(self) -> usize {
        match self {
            Self::Serial => 0,
            Self::Workers(threads) => threads.get(),
            Self::PerSpace(_) => 1,
        }
    }
}
