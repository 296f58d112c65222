//! Counts work and knows when to stop.

use core::cell::Cell;
use core::sync::atomic::Ordering;
use core::time::Duration;

use crate::base::Instant;
use crate::solve::budget::{Budget, Progress};
use crate::solve::options::{Methods, SolveOptions};
use crate::solve::tuning;
use crate::solve::tuning::layout::{EFFORT_PER_LOOK, ITEMS_PER_LOOK, PATIENCE};

/// Options for a caller without options.
static DEFAULT: SolveOptions = SolveOptions::DEFAULT;

/// The running total of a solver's work, and the caller's limits.
///
/// Once time is up, it stays up. A search without deadline or cancellation depends only on the node
/// count, and so is deterministic.
#[derive(Debug)]
pub(crate) struct Clock<'a> {
    budget: &'a Budget<'a>,
    options: &'a SolveOptions,
    nodes: Cell<u64>,
    limit: u64,
    effort: Cell<usize>,
    largest_effort: Cell<usize>,
    /// The most that the caller allows.
    share: usize,
    /// The effort at which the turn of a method ends.
    turn: Cell<usize>,
    reserved: Cell<Duration>,
    up: Cell<bool>,
}

impl<'a> Clock<'a> {
    /// Starts counting.
    pub(crate) fn new(budget: &'a Budget<'a>) -> Self {
        let options = budget.options.unwrap_or(&DEFAULT);
        let limit = budget.nodes.unwrap_or(u64::MAX);
        let limited = budget.nodes.is_some() || budget.deadline.is_some();
        let share = budget.share();
        let largest_effort = if limited { usize::MAX } else { options.effort.min(share) };
        Self {
            budget,
            options,
            nodes: Cell::new(0),
            limit,
            effort: Cell::new(0),
            largest_effort: Cell::new(largest_effort),
            share,
            turn: Cell::new(usize::MAX),
            reserved: Cell::new(Duration::ZERO),
            up: Cell::new(limit == 0 || largest_effort == 0),
        }
    }

    /// Reserves time before the deadline for the work that follows the search.
    pub(crate) fn reserve(&self, time: Duration) {
        self.reserved.set(time);
    }

    /// Tells the caller how far the search is.
    pub(crate) fn tell(&self, progress: Progress) {
        if let Some(tell) = self.budget.progress {
            tell(progress);
        }
    }

    /// Returns the seed for all random choices.
    pub(crate) const fn seed(&self) -> u64 {
        self.budget.seed
    }

    /// Returns the methods that may be used.
    pub(crate) const fn methods(&self) -> &'a Methods {
        &self.options.methods
    }

    /// Returns the nodes counted so far.
    pub(crate) fn nodes(&self) -> u64 {
        self.nodes.get()
    }

    /// Counts a node with about `effort` memory accesses, and returns whether to stop.
    pub(crate) fn tick(&self, effort: usize) -> bool {
        let nodes = self.nodes.get() + 1;
        self.nodes.set(nodes);
        if nodes >= self.limit {
            self.up.set(true);
        }
        let before = self.effort.get();
        self.spend(effort);
        let effort = self.effort.get();
        let up = if before / EFFORT_PER_LOOK == effort / EFFORT_PER_LOOK {
            self.up.get()
        } else {
            self.is_up()
        };
        up || effort >= self.turn.get()
    }

    /// Counts effort that is no search node.
    pub(crate) fn spend(&self, effort: usize) {
        let effort = self.effort.get().saturating_add(effort);
        self.effort.set(effort);
        if effort >= self.largest_effort.get() {
            self.up.set(true);
        }
    }

    /// Extends the effort for so many items in a large problem, if the caller set no limit.
    pub(crate) fn allow_for(&self, items: usize) {
        let more = items
            .saturating_mul(tuning::limits::EFFORT_PER_ITEM)
            .min(tuning::limits::MOST_ITEM_EFFORT);
        if self.is_unlimited() {
            let most = self.largest_effort.get().saturating_add(more);
            self.largest_effort.set(most.min(self.share));
        }
    }

    /// Makes allowance for few items with windows, alignments or pins, if the caller set no limit.
    pub(crate) fn allow_for_rigid(&self, items: usize) {
        if items <= tuning::limits::RIGID_ITEMS && self.is_unlimited() {
            let most = self.largest_effort.get().max(tuning::limits::RIGID_EFFORT);
            self.largest_effort.set(most.min(self.share));
        }
    }

    /// Returns whether only the effort limits the search.
    pub(crate) fn is_unlimited(&self) -> bool {
        self.largest_effort.get() < usize::MAX
    }

    /// Returns the effort counted so far.
    pub(crate) fn effort(&self) -> usize {
        self.effort.get()
    }

    /// Ends a turn after `effort` more: ticks say so, but time is not up.
    pub(crate) fn begin_turn(&self, effort: usize) {
        self.turn.set(self.effort.get().saturating_add(effort));
    }

    /// Returns whether the last tick has ended a turn.
    pub(crate) fn turn_is_over(&self) -> bool {
        self.effort.get() >= self.turn.get()
    }

    /// Returns to counting without turns.
    pub(crate) fn end_turn(&self) {
        self.turn.set(usize::MAX);
    }

    /// Returns whether the deadline has passed, or the caller has cancelled.
    pub(crate) fn is_over(&self) -> bool {
        self.is_late() || self.budget.cancel.is_some_and(|flag| flag.load(Ordering::Relaxed))
    }

    /// Asks [`Clock::is_over`] now and then as `count` grows.
    pub(crate) fn is_over_at(&self, count: usize) -> bool {
        count % ITEMS_PER_LOOK == ITEMS_PER_LOOK - 1 && self.is_over()
    }

    /// Returns from time to time, as `count` grows, whether the deadline, minus the reserved time,
    /// has passed, or the caller's patience has ended.
    pub(crate) fn is_late_at(&self, count: usize) -> bool {
        count % ITEMS_PER_LOOK == ITEMS_PER_LOOK - 1
            && self.budget.deadline.is_some_and(|deadline| Instant::now() >= deadline + PATIENCE)
    }

    fn is_late(&self) -> bool {
        self.budget.deadline.is_some_and(|deadline| Instant::now() >= deadline)
    }

    /// Returns whether to stop, looking at the time.
    pub(crate) fn is_up(&self) -> bool {
        if !self.up.get() {
            let cancelled = self.budget.cancel.is_some_and(|flag| flag.load(Ordering::Relaxed));
            let late = self
                .budget
                .deadline
                .is_some_and(|deadline| Instant::now() + self.reserved.get() >= deadline);
            self.up.set(cancelled || late);
        }
        self.up.get()
    }
}
