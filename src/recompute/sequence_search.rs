//! The search: starts, greedy reduction, pruning, and rounds that undo a part and repair the
//! sequence.

use alloc::vec::Vec;

use super::cost_bound::extra_bound;
use super::greedy::{SequenceWork, pruned, reduced};
use super::narrow_ids::{NONE, at};
use super::node_orders::{improved, small_first, updates_early};
use super::retain_falling;
use super::separator::{Separator, price_of, separators};
use super::sequence::{Evaluation, repeated, without};
use super::sequence_model::SequenceModel;
use super::starts::{chen, mirror, rebuilt, rebuilt_with_copies, reversal};
use crate::graph::Graph;
use crate::pack::{Budget, Space};

/// Separators that starts and bounds are made with.
const SEPARATORS: usize = 12;

/// Separators that starts are made with.
const STARTED: usize = 3;

/// Prices for starts, each twice the previous price.
const PRICES: usize = 28;

/// Most segments in a start by Chen et al.
const SEGMENTS: usize = 40;

/// Most starts that the greedy search goes on from.
const CONTINUED: usize = 10;

/// Improvement rounds.
const ROUNDS: usize = 60;

/// A sequence with peak and cost.
#[derive(Clone)]
pub(super) struct SequenceCandidate {
    /// Bytes that are live at the highest position.
    pub(super) peak: u64,
    /// Cost of all executions.
    pub(super) cost: u64,
    pub(super) sequence: Vec<u32>,
}

/// A graph that is searched for several budgets.
pub(super) struct SequenceSearch<'a> {
    pub(super) model: SequenceModel,
    pub(super) limits: &'a Budget<'a>,
    pub(super) separators: Vec<Separator>,
    /// Each node once.
    pub(super) plain: SequenceCandidate,
    /// Sequences that are there for every budget: ascending cost.
    pub(super) starts: Vec<SequenceCandidate>,
    /// The best sequences so far: ascending bytes, descending cost.
    pub(super) front: Vec<SequenceCandidate>,
    /// Whether schedules were searched for.
    pub(super) is_walked: bool,
}

impl<'a> SequenceSearch<'a> {
    /// Prepares a search. `orders` are orders of the nodes that are known to be good.
    pub(super) fn new(model: SequenceModel, orders: &[Vec<u32>], limits: &'a Budget<'a>) -> Self {
        let mut search = Self::before_starts(model, orders, limits);
        search.start();
        search
    }

    /// Prepares a search that may also copy values to `slow` and back, and starts from the
    /// sequences of a search without copies.
    pub(super) fn with_paging(&self, graph: &Graph, model: SequenceModel, slow: &Space) -> Self {
        let plain = self.plain.clone();
        let separators = separators(&model, &plain.sequence, SEPARATORS);
        let mut search = Self {
            model,
            limits: self.limits,
            separators,
            plain,
            starts: Vec::new(),
            front: Vec::new(),
            is_walked: false,
        };
        search.model.add_paging(graph, slow);
        self.starts.iter().chain(&self.front).for_each(|it| search.keep(it.clone()));
        let mut found = Vec::new();
        for separator in search.separators.iter().take(STARTED) {
            let highest = price_of(search.model.cost, separator.bytes);
            for step in 0..PRICES {
                if search.limits.exhausted() {
                    break;
                }
                let price = highest.saturating_mul(16) >> step;
                let choice = separator.choose(&search.model, price.max(1));
                if !choice.copied.is_empty() {
                    let order = &search.plain.sequence;
                    let (retained, copied) = (&choice.retained, &choice.copied);
                    found.push(rebuilt_with_copies(
                        &search.model,
                        order,
                        separator,
                        retained,
                        copied,
                    ));
                }
            }
        }
        for sequence in found {
            search.begin_with(&sequence);
        }
        search
    }

    /// Adds a valid sequence to the starts of searches.
    fn begin_with(&mut self, sequence: &[u32]) {
        if let Some(candidate) = self.candidate(self.model.tidied(sequence)) {
            self.keep(candidate.clone());
            self.starts.push(candidate);
        }
    }

    /// Takes the sequences that a search without copies has found since.
    pub(super) fn take_front(&mut self, other: &Self) {
        other.front.iter().for_each(|it| self.keep(it.clone()));
    }

    /// Returns the search with copies to `slow` among the nodes, if there is such a memory.
    pub(super) fn with_copies(mut self, graph: &Graph, slow: Option<&Space>) -> Self {
        if let Some(slow) = slow {
            self.model.add_paging(graph, slow);
        }
        self
    }

    pub(super) fn before_starts(
        model: SequenceModel,
        orders: &[Vec<u32>],
        limits: &'a Budget<'a>,
    ) -> Self {
        let order = improved(&model, orders);
        let mut found = Evaluation::default();
        found.run(&model, &order);
        let plain = SequenceCandidate { peak: found.peak, cost: found.cost, sequence: order };
        let separators = separators(&model, &plain.sequence, SEPARATORS);
        let (starts, front) = (Vec::new(), Vec::new());
        let mut search = Self { model, limits, separators, plain, starts, front, is_walked: false };
        search.keep(search.plain.clone());
        search
    }

    /// Returns the candidate for a sequence, if the sequence is valid.
    pub(super) fn candidate(&self, sequence: Vec<u32>) -> Option<SequenceCandidate> {
        let mut found = Evaluation::default();
        let is_valid = found.run(&self.model, &sequence);
        is_valid.then_some(SequenceCandidate { peak: found.peak, cost: found.cost, sequence })
    }

    /// Makes the starts that do not depend on the budget.
    fn start(&mut self) {
        let mut orders = alloc::vec![self.plain.sequence.clone()];
        if self.model.given != self.plain.sequence {
            orders.push(self.model.given.clone());
        }
        for order in orders.clone() {
            let other = small_first(&self.model, &order);
            if !orders.contains(&other) {
                orders.push(other);
            }
        }
        let mut found = Vec::new();
        for separator in self.separators.iter().take(STARTED) {
            let highest = price_of(self.model.cost, separator.bytes);
            let mut choices: Vec<Vec<bool>> = Vec::new();
            for step in 0..PRICES {
                if self.limits.exhausted() {
                    break;
                }
                // From 16 times the price at which all retained bytes cost the whole graph.
                let price = highest.saturating_mul(16) >> step;
                if price > 0 {
                    choices.push(separator.choose(&self.model, price).retained);
                }
            }
            choices.dedup();
            for order in &orders {
                for retained in &choices {
                    if self.limits.exhausted() {
                        break;
                    }
                    found.push(rebuilt(&self.model, order, separator, retained));
                }
                let mut slots = 1;
                while slots <= 256 {
                    let chain = reversal(&self.model, order, separator, slots);
                    match chain {
                        Some(sequence) => found.push(sequence),
                        None => break,
                    }
                    slots += 1 + slots / 8;
                }
            }
            for segments in 2..=SEGMENTS {
                let retained = chen(&self.model, &orders[0], separator, segments);
                found.push(rebuilt(&self.model, &orders[0], separator, &retained));
            }
            let retained = mirror(&self.model);
            found.push(rebuilt(&self.model, &orders[0], separator, &retained));
        }
        for sequence in found {
            let other = updates_early(&self.model, &sequence);
            for sequence in [sequence, other] {
                if let Some(candidate) = self.candidate(sequence) {
                    self.keep(candidate.clone());
                    self.starts.push(candidate);
                }
            }
        }
        self.starts.sort_by_key(|it| (it.cost, it.peak));
        self.starts.dedup_by_key(|it| (it.cost, it.peak));
    }

    /// Puts a candidate into the front, if none there is as good in both figures.
    pub(super) fn keep(&mut self, candidate: SequenceCandidate) {
        let is_worse = |other: &SequenceCandidate| {
            other.peak <= candidate.peak && other.cost <= candidate.cost
        };
        if self.front.iter().any(is_worse) {
            return;
        }
        self.front.retain(|other| other.peak < candidate.peak || other.cost < candidate.cost);
        let position = self.front.partition_point(|other| other.peak < candidate.peak);
        self.front.insert(position, candidate);
    }

    /// Returns the cheapest sequence known that needs at most `bytes`.
    pub(super) fn cheapest(&self, bytes: u64) -> Option<&SequenceCandidate> {
        let end = self.front.partition_point(|it| it.peak <= bytes);
        self.front[..end].iter().min_by_key(|it| (it.cost, it.peak))
    }

    /// Searches for cheap sequences with at most `bytes` live, from many starts, with a `share`-th of
    /// the usual work.
    pub(super) fn improve(&mut self, bytes: u64, share: u64) {
        let size = u64::try_from(self.plain.sequence.len()).unwrap_or(u64::MAX);
        let left = size.saturating_mul(EVALUATIONS) / share.max(1);
        let limits = self.limits;
        let mut work = SequenceWork { left, limits };
        let mut chosen: Vec<SequenceCandidate> = Vec::new();
        // The cheapest starts that fit, the starts that nearly fit, and the sequence without
        // repetition.
        let fits = self.starts.iter().chain(&self.front).filter(|it| it.peak <= bytes);
        let mut fits: Vec<&SequenceCandidate> = fits.collect();
        fits.sort_by_key(|it| (it.cost, it.peak));
        fits.dedup_by_key(|it| (it.cost, it.peak));
        chosen.extend(fits.into_iter().take(3).cloned());
        let near = self.starts.iter().chain(&self.front).filter(|it| it.peak > bytes);
        let mut near: Vec<&SequenceCandidate> = near.collect();
        near.sort_by_key(|it| (it.cost, it.peak));
        near.dedup_by_key(|it| (it.cost, it.peak));
        // Of starts that need more bytes, only the starts that no other start beats.
        retain_falling(&mut near, |it| it.peak);
        let stride = near.len().div_ceil(CONTINUED).max(1);
        chosen.extend(near.into_iter().rev().step_by(stride).cloned());
        chosen.push(self.plain.clone());
        let mut best: Option<SequenceCandidate> = self.cheapest(bytes).cloned();
        let share = left / 8;
        for start in chosen {
            if work.left < left / 3 || work.is_over() {
                break;
            }
            let most =
                best.as_ref().map_or(u64::MAX, |best| best.cost.saturating_add(best.cost / 4));
            let mut own = SequenceWork { left: share, limits };
            let found = reduced(&self.model, &start.sequence, bytes, most, &mut own);
            let found = found.map(|found| pruned(&self.model, found, bytes, &mut own));
            let found = found.map(|found| self.model.tidied(&found));
            work.left = work.left.saturating_sub(share - own.left);
            let Some(found) = found else { continue };
            if let Some(candidate) = self.candidate(found) {
                if best.as_ref().is_none_or(|best| candidate.cost < best.cost) {
                    best = Some(candidate.clone());
                }
                self.keep(candidate);
            }
        }
        if let Some(best) = best {
            self.repair(best, bytes, ROUNDS, &mut work);
        }
    }

    /// Leaves out some repetitions and reduces again, and keeps a cheaper result.
    pub(super) fn repair(
        &mut self,
        mut best: SequenceCandidate,
        bytes: u64,
        rounds: usize,
        work: &mut SequenceWork<'_>,
    ) {
        let mut random = Random(0x9e37_79b9_7f4a_7c15);
        for _ in 0..rounds {
            if work.is_over() {
                break;
            }
            let is_repeated = repeated(&self.model, &best.sequence);
            let positions: Vec<usize> =
                (0..best.sequence.len()).filter(|&it| is_repeated[it]).collect();
            if positions.is_empty() {
                break;
            }
            // A run of neighbors, or random single positions.
            let count = 1 + random.below(positions.len().div_ceil(3));
            let first = random.below(positions.len());
            let is_run = random.below(2) == 0;
            let mut dropped = alloc::vec![false; best.sequence.len()];
            for offset in 0..count {
                let at = if is_run { first + offset } else { random.below(positions.len()) };
                dropped[positions[at % positions.len()]] = true;
            }
            let shorter = without(&best.sequence, |position| dropped[position]);
            let shorter = self.model.tidied(&shorter);
            if self.candidate(shorter.clone()).is_none() {
                continue;
            }
            let Some(found) = reduced(&self.model, &shorter, bytes, best.cost, work) else {
                continue;
            };
            let found = self.model.tidied(&pruned(&self.model, found, bytes, work));
            if let Some(candidate) = self.candidate(found)
                && candidate.peak <= bytes
                && candidate.cost < best.cost
            {
                best = candidate.clone();
                self.keep(candidate);
            }
        }
    }

    /// Returns the proven least extra cost of any schedule within `bytes`.
    pub(super) fn bound(&self, bytes: u64) -> u64 {
        extra_bound(&self.model, &self.separators, bytes, self.limits)
    }

    /// Returns the sequence by a named strategy that needs the fewest bytes.
    pub(super) fn classic(&self, is_mirror: bool) -> Option<SequenceCandidate> {
        let mut best: Option<SequenceCandidate> = None;
        for separator in self.separators.iter().take(1) {
            let retained: Vec<Vec<bool>> = if is_mirror {
                alloc::vec![mirror(&self.model)]
            } else {
                let order = &self.plain.sequence;
                (2..=SEGMENTS).map(|count| chen(&self.model, order, separator, count)).collect()
            };
            for retained in retained {
                let sequence = rebuilt(&self.model, &self.plain.sequence, separator, &retained);
                let Some(found) = self.candidate(sequence) else { continue };
                if best.as_ref().is_none_or(|best| found.peak < best.peak) {
                    best = Some(found);
                }
            }
        }
        best
    }

    /// Returns the cost of the cheapest sequence by Chen et al. within `bytes`, over all numbers of
    /// segments.
    pub(super) fn cheapest_of_chen(&self, bytes: u64) -> Option<u64> {
        let separator = self.separators.first()?;
        let order = &self.plain.sequence;
        let costs = (2..=SEGMENTS).filter_map(|segments| {
            let retained = chen(&self.model, order, separator, segments);
            let sequence = rebuilt(&self.model, order, separator, &retained);
            self.candidate(sequence).filter(|it| it.peak <= bytes).map(|it| it.cost)
        });
        costs.min()
    }
}

/// Evaluations per budget.
const EVALUATIONS: u64 = 36_000;

/// A generator of pseudo-random numbers (xorshift, Marsaglia 2003).
struct Random(u64);

impl Random {
    /// Returns a number below `end`, or 0.
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        let end = u64::try_from(end.max(1)).unwrap_or(1);
        usize::try_from(self.0 % end).unwrap_or(0)
    }
}

/// Returns whether some node of a model may run again and has a cost.
pub(super) fn can_repeat(model: &SequenceModel) -> bool {
    model.nodes.iter().any(|facts| facts.is_pure)
        && model.producer.iter().any(|&node| node != NONE && model.nodes[at(node)].is_pure)
}
