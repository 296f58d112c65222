//! A walk over falling budgets, whose steps serve every goal.
//!
//! A search for one budget may find a dearer schedule than a search for a smaller budget. So all
//! budgets have a single search: down from the sequence without repetitions over a grid of budgets,
//! which depends on the graph alone, and up again. Each step starts from the neighbors' schedules.
//! All schedules that no other schedule beats are kept, and a goal is a choice among them: work
//! never falls with falling bytes.

use alloc::vec::Vec;

use super::greedy::{SequenceWork, pruned, reduced};
use super::sequence_search::{SequenceCandidate, SequenceSearch};

/// The grid divides the bytes without repetitions into so many parts, or into twice as many, and so on.
const PARTS: u64 = 20;

/// Sequences with more nodes have the coarsest grid.
const LARGE: usize = 2_000;

/// Parts of the grid at which the search goes on from many starts, with the share of the usual work
/// per budget, as a divisor.
const ANCHORS: [(u64, u64); 3] = [(10, 1), (6, 2), (5, 2)];

/// A search that may copy values has so much less work, as a divisor.
const COPYING: u64 = 8;

/// Sequence evaluations per grid budget.
const EVALUATIONS: u64 = 3_000;

/// The share of the usual work per budget, as a divisor, for budgets that a step down misses.
const SHARE: u64 = 2;

/// Failures in a row that end the walk down.
const FAILURES: usize = 2;

/// Starts that a step down goes on from.
const PASSED: usize = 2;

/// Improvement rounds per step.
const ROUNDS: usize = 1;

/// Most schedules that a step down goes on from, besides the best schedule and the starts.
const LINES: usize = 3;

impl SequenceSearch<'_> {
    /// Searches for schedules within all budgets, once.
    pub(super) fn walk(&mut self) {
        if core::mem::replace(&mut self.is_walked, true) {
            return;
        }
        let budgets = self.budgets();
        let size = u64::try_from(self.plain.sequence.len()).unwrap_or(u64::MAX);
        // A change to a sequence with copies is evaluated with the whole sequence.
        let share = if self.model.paging.is_some() { COPYING } else { 1 };
        let left = size.saturating_mul(EVALUATIONS) / share;
        let allowed = SequenceWork { left, limits: self.limits };
        for (part, own) in ANCHORS {
            let budget = portion(self.plain.peak, part, PARTS);
            if budget >= self.model.floor() {
                self.improve(budget, own * share);
            }
        }
        let mut lines = alloc::vec![self.plain.clone()];
        let (mut above, mut failures) = (u64::MAX, 0);
        for &budget in &budgets {
            self.step_down(&mut lines, above, budget, &mut allowed.clone());
            above = budget;
            if failures == 0 && self.cheapest(budget).is_none() && self.model.paging.is_none() {
                self.improve_anew(budget);
            }
            failures = if self.cheapest(budget).is_some() { 0 } else { failures + 1 };
            if failures == FAILURES || self.limits.exhausted() {
                break;
            }
        }
        for pair in budgets.windows(2).rev() {
            self.step_up(pair[1], pair[0], &mut allowed.clone());
        }
    }

    /// Searches for a budget from the starts alone: schedules for larger budgets can lead away from
    /// sequences that fit.
    fn improve_anew(&mut self, budget: u64) {
        let known = core::mem::take(&mut self.front);
        self.keep(self.plain.clone());
        self.improve(budget, 1);
        for candidate in known {
            self.keep(candidate);
        }
    }

    /// Returns the budgets of the walk, from the largest down.
    fn budgets(&self) -> Vec<u64> {
        let (most, least) = (self.plain.peak, self.model.floor());
        let size = self.plain.sequence.len().max(1);
        let wanted = (28_000 / size).clamp(10, 128);
        let mut parts = if size > LARGE { PARTS } else { 2 * PARTS };
        loop {
            let budgets = (1..parts).rev().map(|part| portion(most, part, parts));
            let mut budgets: Vec<u64> = budgets.filter(|&bytes| bytes >= least).collect();
            budgets.dedup();
            if budgets.len() >= wanted || parts >= most.min(1 << 16) {
                return budgets;
            }
            parts *= 2;
        }
    }

    /// Goes on from some schedules, and from starts between two budgets, to the smaller budget.
    ///
    /// The cheapest schedule within one budget need not lead to the cheapest one within the next: so
    /// several are gone on from.
    fn step_down(
        &mut self,
        lines: &mut Vec<SequenceCandidate>,
        above: u64,
        budget: u64,
        work: &mut SequenceWork<'_>,
    ) {
        let (fits, higher): (Vec<&SequenceCandidate>, Vec<&SequenceCandidate>) =
            self.starts.iter().partition(|it| it.peak <= budget);
        let mut chosen = core::mem::take(lines);
        let passed = higher.into_iter().filter(|it| it.peak <= above);
        chosen.extend(passed.take(PASSED).cloned());
        chosen.extend(fits.first().copied().cloned());
        for start in chosen {
            if start.peak <= budget && self.starts.iter().all(|it| it.cost != start.cost) {
                lines.push(start);
            } else {
                lines.extend(self.go_on(&start, budget, work));
            }
        }
        lines.sort_by_key(|it| (it.cost, it.peak));
        lines.dedup_by_key(|it| (it.cost, it.peak));
        lines.truncate(LINES);
        match self.cheapest(budget).cloned() {
            Some(best) => self.repair(best, budget, ROUNDS, work),
            // The search may go on from any start.
            None if self.model.paging.is_none() => self.improve(budget, SHARE),
            None => {}
        }
        let best = self.cheapest(budget).cloned();
        lines.extend(best.filter(|best| lines.iter().all(|it| it.cost != best.cost)));
    }

    /// Goes on from the schedules for the budget `below` to schedules for a larger budget.
    fn step_up(&mut self, below: u64, budget: u64, work: &mut SequenceWork<'_>) {
        let Some(lower) = self.cheapest(below).cloned() else { return };
        self.go_on(&lower, budget, work);
        if let Some(best) = self.cheapest(budget).cloned() {
            self.repair(best, budget, ROUNDS, work);
        }
    }

    /// Reduces a sequence to a budget, leaves out superfluous executions, and keeps the result.
    fn go_on(
        &mut self,
        start: &SequenceCandidate,
        budget: u64,
        work: &mut SequenceWork<'_>,
    ) -> Option<SequenceCandidate> {
        let known = self.cheapest(budget).map_or(u64::MAX, |best| best.cost);
        let most = known.saturating_add(known / 4);
        let found = reduced(&self.model, &start.sequence, budget, most, work)?;
        let found = self.model.tidied(&pruned(&self.model, found, budget, work));
        let candidate = self.candidate(found)?;
        self.keep(candidate.clone());
        Some(candidate)
    }
}

/// Returns a part of some bytes, rounded down.
fn portion(bytes: u64, part: u64, parts: u64) -> u64 {
    let portion = u128::from(bytes) * u128::from(part) / u128::from(parts);
    u64::try_from(portion).unwrap_or(bytes)
}
