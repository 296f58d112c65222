//! Packing a space with rules: ranges, groups, reserved bytes, pairs, multiples.

use alloc::{format, string::String, vec::Vec};
use core::cmp::Reverse;

use crate::base::{BufferId, Error, MAX_BYTES, Result, SpaceId, quoted};
use crate::packing::{SpacePacking, Status};
use crate::problem::Problem;
use crate::solve::budget::{Progress, Stage};
use crate::solve::disjunctive::conflicts::Conflicts;
use crate::solve::disjunctive::disjunctive_search::Disjunctive;
use crate::solve::disjunctive::rule_conflicts::{Ruled, RuledNeighbors};
use crate::solve::disjunctive::stacks::least_stack;
use crate::solve::exact::outcome::Outcome;
use crate::solve::model::arith::signed;
use crate::solve::model::clock::Clock;
use crate::solve::model::random::Random;
use crate::solve::tuning;
use crate::space::Space;

/// Packs the buffers `members` of a space, and stores the offsets.
///
/// First fit in several orders, and then in changed orders, takes turns with disjunctive search.
///
/// # Errors
///
/// [`Error::PinConflict`] if no offsets obey the rules, or none were found, and the errors of
/// [`Ruled::new`].
pub(crate) fn pack(
    problem: &Problem,
    space: SpaceId,
    members: &[BufferId],
    offsets: &mut [u64],
    clock: &Clock<'_>,
) -> Result<SpacePacking> {
    let ruled = Ruled::new(problem, space, members, tuning::disjunctive::MOST_RULED_PAIRS)?;
    let capacity = problem.spaces()[space.index()].capacity();
    clock.allow_for_rigid(ruled.buffers.len());
    clock.allow_for(ruled.buffers.len());
    let mut best = Best { space, clock, found: None, bound: 0 };
    let proven = best.search(&ruled, capacity)?;
    let Some((peak, found)) = best.found else {
        let reason = no_offsets(&problem.spaces()[space.index()], proven);
        return Err(Error::PinConflict { reason });
    };
    for (buffers, &offset) in ruled.buffers.iter().zip(&found) {
        for id in buffers {
            offsets[id.index()] = offset.unsigned_abs();
        }
    }
    let lower_bound = best.bound.min(peak);
    Ok(SpacePacking { peak, lower_bound, status: Status::of(peak, lower_bound, capacity) })
}

/// Returns the message that a space has no packing, or that none was found.
pub(crate) fn no_offsets(space: &Space, proven: bool) -> String {
    let result = if proven { "exist" } else { "were found" };
    format!("no offsets {result} that obey all rules of space {}", quoted(space.name()))
}

/// The best packing so far, with the peak and the bound.
struct Best<'a> {
    space: SpaceId,
    clock: &'a Clock<'a>,
    found: Option<(u64, Vec<i64>)>,
    bound: u64,
}

impl Best<'_> {
    fn peak(&self) -> u64 {
        self.found.as_ref().map_or(MAX_BYTES, |&(peak, _)| peak)
    }

    fn is_decided(&self, capacity: Option<u64>) -> bool {
        let fits = |bytes| self.found.is_some() && self.peak() <= bytes;
        fits(self.bound)
            || capacity
                .is_some_and(|bytes| fits(bytes) || self.bound > bytes && self.found.is_some())
    }

    fn offer(&mut self, conflicts: &Conflicts, offsets: Vec<i64>, stage: Stage) {
        let ends = offsets.iter().enumerate().map(|(item, &at)| conflicts.end_in_bytes(item, at));
        let peak = ends.max().unwrap_or(0);
        if self.found.is_none() || peak < self.peak() {
            self.found = Some((peak, offsets));
            self.report(stage);
        }
    }

    fn raise_bound(&mut self, bytes: u64) {
        if bytes > self.bound {
            self.bound = bytes;
            self.report(Stage::Disjunctive);
        }
    }

    fn report(&self, stage: Stage) {
        let (space, peak, lower_bound) = (self.space, self.peak(), self.bound);
        self.clock.tell(Progress { space, stage, peak, lower_bound, nodes: self.clock.nodes() });
    }

    /// Searches until the packing is decided; returns whether it is proven that no packing exists.
    fn search(&mut self, ruled: &Ruled, capacity: Option<u64>) -> Result<bool> {
        let (conflicts, clock) = (&ruled.conflicts, self.clock);
        let near = RuledNeighbors::new(conflicts)?;
        let mut orders = FitOrders::new(conflicts, clock.seed());
        self.raise_bound(simple_bound(conflicts));
        let mut first = Vec::new();
        if !ruled.hints.is_empty() {
            first.push((orders.hinted(conflicts, &ruled.hints), &ruled.hints[..]));
        }
        first.extend(orders.first(conflicts).map(|order| (order, &[][..])));
        for (order, hints) in first {
            let (offsets, effort) = near.first_fit(conflicts, &order, hints, self.peak() - 1);
            if let Some(offsets) = offsets {
                orders.best = order;
                self.offer(conflicts, offsets, Stage::FirstFit);
            }
            clock.tick(effort);
            if self.is_decided(capacity) || clock.is_up() {
                return Ok(false);
            }
        }
        self.raise_bound(least_stack(conflicts, tuning::disjunctive::STACK_TASKS, clock)?);
        let is_small = conflicts.disjunctions.len() <= tuning::disjunctive::MOST_PAIRS;
        let is_small = is_small && clock.methods().disjunctive;
        let (mut down, mut up) = (Disjunctive::new(conflicts)?, Disjunctive::new(conflicts)?);
        // Effort of disjunctive search, its part for bounds, and the effort of other orders.
        let (mut exact, mut bounding, mut local, mut closer) = (0, 0, 0, 0);
        while !self.is_decided(capacity) && !clock.is_up() {
            let before = clock.effort();
            if !is_small || 2 * local < exact {
                let order = orders.changed();
                let (offsets, effort) = near.first_fit(conflicts, &order, &[], self.peak() - 1);
                if let Some(offsets) = offsets {
                    orders.best = order;
                    self.offer(conflicts, offsets, Stage::FirstFit);
                }
                clock.tick(effort);
                local += clock.effort() - before;
                continue;
            }
            let highest = match (capacity, &self.found) {
                (Some(bytes), Some(_)) => bytes,
                (None, Some((peak, _))) => peak - 1,
                (_, None) => MAX_BYTES,
            };
            let bisects = capacity.is_none() && self.found.is_some() && 2 * bounding < exact;
            let target = if bisects {
                self.bound + ((highest - self.bound) >> (closer + 1))
            } else {
                highest
            };
            let search = if bisects { &mut up } else { &mut down };
            match search.step(conflicts, target, clock) {
                Outcome::Found => {
                    let offsets = search.offsets().into_iter().map(signed).collect();
                    self.offer(conflicts, offsets, Stage::Disjunctive);
                }
                Outcome::Impossible if self.found.is_none() => return Ok(true),
                Outcome::Impossible => self.raise_bound(target + 1),
                Outcome::Undecided if bisects => closer = (closer + 1) % 6,
                Outcome::Undecided => {}
            }
            let effort = clock.effort() - before;
            exact += effort;
            bounding += if bisects { effort } else { 0 };
        }
        Ok(false)
    }
}

/// Returns the bytes needed by single items and by the sums of cliques.
fn simple_bound(conflicts: &Conflicts) -> u64 {
    let items = conflicts.domains.iter().enumerate();
    let items = items.map(|(item, domain)| conflicts.end_in_bytes(item, domain.least()));
    let sums = conflicts.cliques.iter().map(|clique| {
        let lowest = clique.tasks.iter().map(|it| conflicts.domains[it.item].least() + it.start);
        let sum: i64 = clique.tasks.iter().map(|it| it.end - it.start).sum();
        (lowest.min().unwrap_or(0) + sum).unsigned_abs()
    });
    items.chain(sums).max().unwrap_or(0)
}

/// Returns the bytes between an item's least and largest offsets.
fn room(conflicts: &Conflicts, item: usize) -> i64 {
    conflicts.ceiling(item, MAX_BYTES) - conflicts.domains[item].least()
}

/// First-fit orders.
struct FitOrders {
    best: Vec<usize>,
    random: Random,
}

impl FitOrders {
    fn new(conflicts: &Conflicts, seed: u64) -> Self {
        Self { best: (0..conflicts.domains.len()).collect(), random: Random::new(seed) }
    }

    /// Returns the first orders: items with few offsets first, then by size, by conflicts, or both.
    fn first(&self, conflicts: &Conflicts) -> [Vec<usize>; 3] {
        let mut degree = alloc::vec![0_u64; self.best.len()];
        for it in &conflicts.disjunctions {
            degree[it.lower] += 1;
            degree[it.upper] += 1;
        }
        let room = |item: usize| room(conflicts, item);
        let size = |item: usize| conflicts.end_in_bytes(item, 0);
        let sorted = |key: &dyn Fn(usize) -> (i64, Reverse<(u128, u64)>)| {
            let mut order = self.best.clone();
            order.sort_by_key(|&item| key(item));
            order
        };
        [
            sorted(&|item| (room(item), Reverse((size(item).into(), degree[item])))),
            sorted(&|item| (room(item), Reverse((degree[item].into(), size(item))))),
            sorted(&|item| {
                let weight = u128::from(size(item)) * u128::from(degree[item]);
                (room(item), Reverse((weight, size(item))))
            }),
        ]
    }

    /// Returns the items with only one offset, then the items with hints in hint order, then the
    /// other items with few offsets first.
    fn hinted(&self, conflicts: &Conflicts, hints: &[Option<i64>]) -> Vec<usize> {
        let mut order = self.best.clone();
        order.sort_by_key(|&item| {
            let room = room(conflicts, item);
            (room > 0, hints[item].is_none(), hints[item], room)
        });
        order
    }

    /// Returns the best order with one or two items at other places.
    fn changed(&mut self) -> Vec<usize> {
        let mut order = self.best.clone();
        for _ in 0..=self.random.below(2) {
            let item = order.remove(self.random.below(order.len()));
            order.insert(self.random.below(order.len() + 1), item);
        }
        order
    }
}
