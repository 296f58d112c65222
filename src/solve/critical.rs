//! Searches where most is live, and places the rest greedily around what it finds.

use std::cmp::Reverse;

use super::Stage;
use super::arith::{index, number, real, whole};
use super::clock::Clock;
use super::exact::{Outcome, Restarts, Turns};
use super::first_fit::{self, Fit, Order, most_loaded};
use super::incumbent::Incumbent;
use super::memory::{filled, with_capacity};
use super::model::Model;
use super::occupancy::Occupancy;
use crate::error::Result;

/// A series of searches for ever larger parts of a model that is too large to be searched.
///
/// Of many items, few decide the peak: those that are live when most is. If they are
/// packed well below the target, the others find room around them, for where they are
/// live there is more of it. So exact search packs the most critical items, and first
/// fit the others; when some of those end too high, more items count as critical.
#[derive(Debug)]
pub(super) struct Critical {
    /// Items by the largest load that they meet, descending.
    by_load: Vec<u32>,
    /// How many of them are critical.
    count: usize,
    search: Option<(Model, Restarts, Turns)>,
    kept: Vec<u32>,
    space: Occupancy,
    tries: usize,
    /// How many targets were given up: the next is closer to the best peak.
    level: i32,
    target: u64,
    /// The number of the thread: each has other rules first.
    worker: usize,
}

/// Critical items at first.
const FIRST: usize = 250;
/// Searches for a packing of the critical items before giving up.
const TRIES: usize = 8;
/// The same for many items.
const FEWER_TRIES: usize = 2;
/// What counts as many.
const MANY: usize = 2_000;
/// Targets that are given up before it starts over, halfway to the bound.
const MOST_GIVEN_UP: i32 = 5;
/// How the other items are ordered: those that often do best.
const REST: [Order; 4] = [Order::Load, Order::Size, Order::SizeRootLength, Order::Length];

impl Critical {
    /// Returns a series that has not begun.
    pub(super) fn new(model: &Model, worker: usize) -> Result<Self> {
        let loads = most_loaded(model)?;
        let mut by_load = with_capacity(model.items.len(), "an order")?;
        by_load.extend(0..number(model.items.len()));
        by_load.sort_unstable_by_key(|&item| (Reverse(loads[index(item)]), item));
        let space = Occupancy::new(model.loads.len())?;
        let (count, kept) = (FIRST, Vec::new());
        let (search, tries, level, target) = (None, 0, 0, 0);
        Ok(Self { by_load, count, search, kept, space, tries, level, target, worker })
    }

    /// Returns whether the lowest target has not been given up.
    pub(super) const fn is_hopeful(&self) -> bool {
        self.level == 0
    }

    /// Searches once for a packing of the critical items, and completes it if there is one.
    ///
    /// The first target is the bound. When the items that count as critical cannot be
    /// packed below it soon, the next target is halfway to the best peak, and so on.
    pub(super) fn step(
        &mut self,
        model: &Model,
        best: &mut Incumbent<'_>,
        clock: &Clock<'_>,
    ) -> Result<()> {
        if self.search.is_none() && !self.begin(model, best, clock)? {
            return Ok(());
        }
        let Some((part, search, turns)) = &mut self.search else { return Ok(()) };
        match search.step(part, self.target, turns, clock)? {
            Outcome::Found => {
                let offsets = search.offsets(part)?;
                self.search = None;
                self.complete(model, &offsets, best, clock)?;
                if self.count < self.by_load.len() {
                    self.count = self.by_load.len().min(self.count.saturating_mul(2));
                } else {
                    self.give_up();
                }
            }
            // What is impossible for some is impossible for all.
            Outcome::Impossible => {
                best.raise_bound(model.peak_from(self.target + 1), Stage::Critical);
                self.search = None;
            }
            Outcome::Undecided => {
                self.tries += 1;
                if self.tries >= if self.count > MANY { FEWER_TRIES } else { TRIES } {
                    self.give_up();
                }
            }
        }
        Ok(())
    }

    /// Prepares the search for the next target; false if there is no memory for it.
    fn begin(&mut self, model: &Model, best: &Incumbent<'_>, clock: &Clock<'_>) -> Result<bool> {
        let distance = real(best.peak() - best.bound());
        let below = whole(distance * 0.5_f64.powi(self.level)).max(1);
        self.target = match self.level {
            0 => best.bound(),
            _ => model.peak_from(best.peak() - below),
        };
        self.tries = 0;
        self.kept.clear();
        self.kept.extend_from_slice(&self.by_load[..self.count.min(self.by_load.len())]);
        self.kept.sort_unstable();
        let part = model.restricted_to(&self.kept)?;
        let turns = Turns::from(&part, self.worker);
        match Restarts::new(&part, clock.seed())? {
            Some(search) => self.search = Some((part, search, turns)),
            None => self.give_up(),
        }
        Ok(self.search.is_some())
    }

    /// Goes for a higher target with fewer items.
    fn give_up(&mut self) {
        self.search = None;
        self.count = (self.count / 4).max(FIRST);
        self.level = if self.level < MOST_GIVEN_UP { self.level + 1 } else { 1 };
    }

    /// Places the other items around the critical ones, in several orders.
    fn complete(
        &mut self,
        model: &Model,
        offsets: &[u64],
        best: &mut Incumbent<'_>,
        clock: &Clock<'_>,
    ) -> Result<()> {
        let mut fixed = filled(None, model.items.len(), "offsets")?;
        for (&item, &offset) in self.kept.iter().zip(offsets) {
            fixed[index(item)] = Some(offset);
        }
        for order in REST {
            let Some(mut order) = first_fit::sorted(model, order, clock)? else { break };
            order.sort_by_key(|&item| fixed[index(item)].is_none());
            let stop = |count| count % 64 == 63 && clock.is_up();
            let (limit, space) = (best.limit(), &mut self.space);
            let offsets = first_fit::place(model, &order, &fixed, Fit::First, limit, space, stop)?;
            best.offer(offsets, Stage::Critical);
            if best.is_proven() || clock.is_up() {
                break;
            }
        }
        Ok(())
    }
}
