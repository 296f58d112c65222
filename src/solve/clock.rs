//! Counts work and knows when to stop.

use std::cell::Cell;
use std::sync::atomic::Ordering;
use std::time::Instant;

use super::{Budget, Progress};

/// The running total of a solver's work, and the limits that its caller set.
///
/// Once time is up it stays up. The count of nodes is all that a search without
/// deadline or cancellation depends on, so it is deterministic.
#[derive(Debug)]
pub(super) struct Clock<'a> {
    budget: &'a Budget<'a>,
    nodes: Cell<u64>,
    up: Cell<bool>,
}

impl<'a> Clock<'a> {
    /// Starts counting.
    pub(super) fn new(budget: &'a Budget<'a>) -> Self {
        Self { budget, nodes: Cell::new(0), up: Cell::new(false) }
    }

    /// Tells the caller how far the search is.
    pub(super) fn tell(&self, progress: Progress) {
        if let Some(tell) = self.budget.progress {
            tell(progress);
        }
    }

    /// Returns the nodes counted so far.
    pub(super) fn nodes(&self) -> u64 {
        self.nodes.get()
    }

    /// Returns whether to stop, looking at the time.
    pub(super) fn is_up(&self) -> bool {
        if !self.up.get() {
            let cancelled = self.budget.cancel.is_some_and(|flag| flag.load(Ordering::Relaxed));
            let late = self.budget.deadline.is_some_and(|deadline| Instant::now() >= deadline);
            self.up.set(cancelled || late);
        }
        self.up.get()
    }
}
