//! Counts work and knows when to stop.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::random::mix;
use super::{Budget, Progress};

/// How often the time is read: every millisecond or so.
const EFFORT_PER_LOOK: usize = 1 << 15;
/// What is almost done may be ended this much after the deadline.
const PATIENCE: Duration = Duration::from_millis(30);
/// Items of a pass between two looks at the time: placing that many takes some milliseconds
/// at most.
const ITEMS_PER_LOOK: usize = 1 << 8;
/// When to stop if the caller set no limit: after some tenths of a second.
const LARGEST_EFFORT: usize = 10_000_000;
/// What each item of a large problem adds to that, whose passes alone take longer.
const EFFORT_PER_ITEM: usize = 5_000;
/// What all of them add at most: some seconds.
const MOST_MORE_EFFORT: usize = 100_000_000;

/// The running total of a solver's work, and the limits that its caller set.
///
/// Once time is up it stays up. The count of nodes is all that a search without
/// deadline or cancellation depends on, so it is deterministic.
#[derive(Debug)]
pub(super) struct Clock<'a> {
    budget: &'a Budget<'a>,
    nodes: Cell<u64>,
    limit: u64,
    effort: Cell<usize>,
    largest_effort: Cell<usize>,
    /// The effort at which the turn of a method ends.
    turn: Cell<usize>,
    reserved: Cell<Duration>,
    up: Cell<bool>,
}

impl<'a> Clock<'a> {
    /// Starts counting.
    pub(super) fn new(budget: &'a Budget<'a>) -> Self {
        let limit = budget.nodes.unwrap_or(u64::MAX);
        let limited = budget.nodes.is_some() || budget.deadline.is_some();
        let largest_effort = if limited { usize::MAX } else { LARGEST_EFFORT };
        Self {
            budget,
            nodes: Cell::new(0),
            limit,
            effort: Cell::new(0),
            largest_effort: Cell::new(largest_effort),
            turn: Cell::new(usize::MAX),
            reserved: Cell::new(Duration::ZERO),
            up: Cell::new(limit == 0),
        }
    }

    /// Sets time aside for what is left to do once time is up.
    pub(super) fn reserve(&self, time: Duration) {
        self.reserved.set(time);
    }

    /// Tells the caller how far the search is.
    pub(super) fn tell(&self, progress: Progress) {
        if let Some(tell) = self.budget.progress {
            tell(progress);
        }
    }

    /// Returns the seed of all random choices.
    pub(super) const fn seed(&self) -> u64 {
        self.budget.seed
    }

    /// Returns how many threads may work: several only if a deadline ends the search.
    pub(super) fn threads(&self) -> usize {
        let timed = self.budget.deadline.is_some() && self.budget.nodes.is_none();
        if timed { self.budget.threads.max(1) } else { 1 }
    }

    /// Returns the budget of another thread, which `stop` ends.
    pub(super) fn budget_of<'b>(&self, worker: usize, stop: &'b AtomicBool) -> Budget<'b> {
        let early = |deadline: Instant| deadline.checked_sub(self.reserved.get());
        Budget {
            deadline: self.budget.deadline.map(|deadline| early(deadline).unwrap_or(deadline)),
            cancel: Some(stop),
            seed: mix(worker, self.budget.seed),
            ..Budget::default()
        }
    }

    /// Returns the nodes counted so far.
    pub(super) fn nodes(&self) -> u64 {
        self.nodes.get()
    }

    /// Counts one node that took about `effort` memory accesses, and returns whether to stop.
    pub(super) fn tick(&self, effort: usize) -> bool {
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
    pub(super) fn spend(&self, effort: usize) {
        let effort = self.effort.get().saturating_add(effort);
        self.effort.set(effort);
        if effort >= self.largest_effort.get() {
            self.up.set(true);
        }
    }

    /// Makes allowance for so many items of a large problem, if the caller set no limit.
    pub(super) fn allow_for(&self, items: usize) {
        let more = items.saturating_mul(EFFORT_PER_ITEM).min(MOST_MORE_EFFORT);
        self.largest_effort.set(self.largest_effort.get().saturating_add(more));
    }

    /// Returns the effort counted so far.
    pub(super) fn effort(&self) -> usize {
        self.effort.get()
    }

    /// Ends a turn after `effort` more: ticks say so, but time is not up.
    pub(super) fn begin_turn(&self, effort: usize) {
        self.turn.set(self.effort.get().saturating_add(effort));
    }

    /// Returns whether the last tick has ended a turn.
    pub(super) fn turn_is_over(&self) -> bool {
        self.effort.get() >= self.turn.get()
    }

    /// Returns to counting without turns.
    pub(super) fn end_turn(&self) {
        self.turn.set(usize::MAX);
    }

    /// Returns whether the caller wants an answer now, whatever it is.
    pub(super) fn is_over(&self) -> bool {
        self.is_late() || self.budget.cancel.is_some_and(|flag| flag.load(Ordering::Relaxed))
    }

    /// Asks [`Clock::is_over`] now and then as `count` grows.
    pub(super) fn is_over_at(&self, count: usize) -> bool {
        count % ITEMS_PER_LOOK == ITEMS_PER_LOOK - 1 && self.is_over()
    }

    /// Returns now and then as `count` grows whether the deadline has passed, with it the
    /// time that was reserved, and the caller's patience.
    pub(super) fn is_late_at(&self, count: usize) -> bool {
        count % ITEMS_PER_LOOK == ITEMS_PER_LOOK - 1
            && self.budget.deadline.is_some_and(|deadline| Instant::now() >= deadline + PATIENCE)
    }

    fn is_late(&self) -> bool {
        self.budget.deadline.is_some_and(|deadline| Instant::now() >= deadline)
    }

    /// Returns whether to stop, looking at the time.
    pub(super) fn is_up(&self) -> bool {
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
