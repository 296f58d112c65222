//! Local search for items that may be at some distances from each other and not at others.

use alloc::{borrow::ToOwned as _, vec, vec::Vec};

use crate::base::{Error, MAX_BYTES, Result};
use crate::solve::model::random::Random;

/// Orders tried before the search goes back to the best order.
const PATIENCE: usize = 120;
/// Single-item moves per ten moves.
const SINGLE: usize = 7;

/// A rule for two items: the first must not begin more than `low` and less than `high` bytes after
/// the second. Both ends are allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forbidden {
    /// The item whose distance is measured.
    pub item: usize,
    /// The item from which the distance is measured.
    pub from: usize,
    /// Bytes; negative in front of the other item.
    pub low: i64,
    /// Bytes; larger than `low`.
    pub high: i64,
}

/// How long [`Apart::pack`] searches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tries {
    /// Number of placing orders tried.
    pub orders: usize,
    /// Seed for the order of moves.
    pub seed: u64,
    /// Bytes that are good enough.
    pub goal: u64,
}

/// Items with forbidden distances: groups of buffers at fixed distances, whose parts are live at
/// different times, collide at some distances and fit into each other at other distances.
///
/// ```
/// use arenaplan_pack::{Apart, Forbidden, Tries};
///
/// // Two pyramids of 48 bytes: one may begin 32 bytes after the other, but no closer.
/// let rule = Forbidden { item: 1, from: 0, low: -32, high: 32 };
/// let apart = Apart::new(&[48, 48], &[rule])?;
/// let offsets = apart.pack(&[vec![0, 1]], &[], Tries { orders: 10, ..Tries::default() }, &|| false);
/// assert_eq!(offsets[0].abs_diff(offsets[1]), 32);
/// # Ok::<(), arenaplan_pack::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Apart {
    sizes: Vec<i64>,
    /// Per item: another item, and an open range of distances from that item.
    near: Vec<Vec<(usize, i64, i64)>>,
}

impl Apart {
    /// Returns items with `sizes` bytes that obey `rules`.
    ///
    /// # Errors
    ///
    /// - [`Error::InvalidBuffer`] if a rule names a missing item or an item twice, or has an empty
    ///   range.
    /// - [`Error::SizeOverflow`] if sizes or distances are so large that offsets may overflow.
    pub fn new(sizes: &[u64], rules: &[Forbidden]) -> Result<Self> {
        let too_large = || Error::SizeOverflow { what: "the items".into() };
        let mut near = vec![Vec::new(); sizes.len()];
        let mut reach = sizes.iter().try_fold(0_u64, |sum, &size| sum.checked_add(size));
        for rule in rules {
            let Forbidden { item, from, low, high } = *rule;
            let refuse = |reason: &str| {
                Err(Error::InvalidBuffer { buffer: item, reason: reason.to_owned() })
            };
            if item >= sizes.len() || from >= sizes.len() {
                return refuse("a rule names an item that does not exist");
            }
            if item == from || low >= high {
                return refuse("a rule is about one item alone, or about no distance");
            }
            let longest = low.unsigned_abs().max(high.unsigned_abs());
            reach = reach.and_then(|sum| sum.checked_add(longest));
            if reach.is_some_and(|sum| sum <= MAX_BYTES / 4) {
                near[item].push((from, low, high));
                near[from].push((item, -high, -low));
            }
        }
        // Every offset is a sum of sizes and distances, each counted once.
        if reach.is_none_or(|sum| sum > MAX_BYTES / 4) {
            return Err(too_large());
        }
        let sizes = sizes.iter().map(|&size| i64::try_from(size).map_err(|_| too_large()));
        Ok(Self { sizes: sizes.collect::<Result<_>>()?, near })
    }

    /// Returns an offset for every item, moving items to shrink the whole.
    ///
    /// Items in `orders` are searched; items in `last` are placed afterwards, in this order, at the
    /// lowest offsets. Equal arguments give equal offsets.
    ///
    /// # Panics
    ///
    /// If not every order, followed by `last`, has each item once.
    #[must_use]
    pub fn pack(
        &self,
        orders: &[Vec<usize>],
        last: &[usize],
        tries: Tries,
        is_over: &dyn Fn() -> bool,
    ) -> Vec<u64> {
        for order in orders {
            let mut all: Vec<usize> = order.iter().chain(last).copied().collect();
            all.sort_unstable();
            assert!(all.into_iter().eq(0..self.sizes.len()), "an order has each item once");
        }
        let goal = i64::try_from(tries.goal).unwrap_or(i64::MAX);
        let mut search =
            ApartSearch { apart: self, random: Random::new(tries.seed), blocked: Vec::new(), goal };
        let mut best = search.begin(orders);
        let half = tries.orders / 2;
        search.by_height(&mut best, half, is_over);
        search.by_order(&mut best, orders, tries.orders - half, is_over);
        let mut offsets = best.offsets;
        let low = offsets.iter().flatten().copied().min().unwrap_or(0);
        for offset in offsets.iter_mut().flatten() {
            *offset -= low;
        }
        search.lowest(last, &mut offsets, i64::MAX);
        offsets.iter().map(|offset| offset.unwrap_or(0).unsigned_abs()).collect()
    }
}

/// Offsets by item; items that are not placed have none.
type Offsets = Vec<Option<i64>>;

/// Places of the searched items.
#[derive(Clone, Debug)]
struct Found {
    offsets: Offsets,
    height: i64,
}

/// A search.
struct ApartSearch<'a> {
    apart: &'a Apart,
    random: Random,
    /// Reused: open offset ranges at which an item collides with placed items.
    blocked: Vec<(i64, i64)>,
    goal: i64,
}

impl ApartSearch<'_> {
    /// Returns the best of the given orders.
    fn begin(&mut self, orders: &[Vec<usize>]) -> Found {
        let nothing = vec![None; self.apart.sizes.len()];
        let mut best = Found { offsets: nothing.clone(), height: i64::MAX };
        for order in orders {
            if let Some(found) = self.spread(order, best.height) {
                best = if found.height < best.height { found } else { best };
            }
            let mut offsets = nothing.clone();
            if self.lowest(order, &mut offsets, best.height) {
                let height = self.height(&offsets);
                best = if height < best.height { Found { offsets, height } } else { best };
            }
        }
        best
    }

    /// Moves items in offset order, and places each at the lowest offset.
    fn by_height(&mut self, best: &mut Found, tries: usize, is_over: &dyn Fn() -> bool) {
        let mut now = best.clone();
        let mut order: Vec<usize> =
            (0..now.offsets.len()).filter(|&item| now.offsets[item].is_some()).collect();
        if order.is_empty() {
            return;
        }
        for attempt in 0..tries {
            if best.height <= self.goal || is_over() {
                return;
            }
            if attempt % PATIENCE == 0 {
                now = best.clone();
            }
            order.sort_unstable_by_key(|&item| (now.offsets[item], item));
            let mut start = order.len();
            for _ in 0..if self.random.below(10) < SINGLE { 1 } else { 2 } {
                let item = self.guilty(&now, &order);
                let Some(at) = order.iter().position(|&other| other == item) else { continue };
                let to = self.random.below(at.max(1));
                order.remove(at);
                order.insert(to, item);
                start = start.min(to);
            }
            let mut offsets = vec![None; now.offsets.len()];
            for &item in &order[..start] {
                offsets[item] = now.offsets[item];
            }
            if self.lowest(&order[start..], &mut offsets, now.height) {
                let height = self.height(&offsets);
                now = Found { offsets, height };
                if height < best.height {
                    *best = now.clone();
                }
            }
        }
    }

    /// Moves items in the placing order, and places each below or above the others.
    fn by_order(
        &mut self,
        best: &mut Found,
        orders: &[Vec<usize>],
        tries: usize,
        is_over: &dyn Fn() -> bool,
    ) {
        let mut first: Option<(i64, &Vec<usize>)> = None;
        for order in orders {
            if let Some(found) = self.spread(order, i64::MAX)
                && first.is_none_or(|(height, _)| found.height < height)
            {
                first = Some((found.height, order));
            }
        }
        let Some((mut low, order)) = first.filter(|(_, order)| !order.is_empty()) else { return };
        let mut order = order.clone();
        let (mut now, mut height) = (order.clone(), low);
        for attempt in 0..tries {
            if best.height <= self.goal || is_over() {
                return;
            }
            if attempt % PATIENCE == 0 {
                now.clone_from(&order);
                height = low;
            }
            let mut trial = now.clone();
            for _ in 0..=self.random.below(3) {
                let at = self.random.below(trial.len());
                let to = self.random.below(trial.len());
                let item = trial.remove(at);
                trial.insert(to, item);
            }
            let Some(found) = self.spread(&trial, height) else { continue };
            now = trial;
            height = found.height;
            if height < low {
                order.clone_from(&now);
                low = height;
            }
            if height < best.height {
                *best = found;
            }
        }
    }

    /// Returns an item that reaches the top, or any.
    fn guilty(&mut self, now: &Found, order: &[usize]) -> usize {
        if self.random.below(2) == 0 {
            let end = |item: usize| now.offsets[item].unwrap_or(0) + self.apart.sizes[item];
            let top = order.iter().map(|&item| end(item)).max().unwrap_or(0);
            let highest: Vec<usize> =
                order.iter().copied().filter(|&item| end(item) == top).collect();
            return highest[self.random.below(highest.len())];
        }
        order[self.random.below(order.len())]
    }

    /// Returns the bytes between the first and the last.
    fn height(&self, offsets: &Offsets) -> i64 {
        let placed = offsets.iter().zip(&self.apart.sizes);
        let ends = placed.filter_map(|(offset, size)| Some((*offset)? + size));
        let low = offsets.iter().flatten().min().copied().unwrap_or(0);
        ends.max().unwrap_or(0) - low
    }

    /// Places items below or above others, so that the whole grows least; nothing if above a limit.
    fn spread(&mut self, order: &[usize], limit: i64) -> Option<Found> {
        let mut offsets = vec![None; self.apart.sizes.len()];
        let (mut low, mut high) = (0, 0);
        for &item in order {
            let size = self.apart.sizes[item];
            self.block(item, &offsets);
            let offset = free(&self.blocked, size, low, high);
            low = low.min(offset);
            high = high.max(offset + size);
            if high - low > limit {
                return None;
            }
            offsets[item] = Some(offset);
        }
        Some(Found { offsets, height: high - low })
    }

    /// Places items at the lowest free offsets; returns whether all end below the limit.
    fn lowest(&mut self, order: &[usize], offsets: &mut Offsets, limit: i64) -> bool {
        for &item in order {
            self.block(item, offsets);
            let mut offset = 0;
            for &(start, stop) in &self.blocked {
                if start >= offset {
                    break;
                }
                offset = offset.max(stop);
            }
            if offset + self.apart.sizes[item] > limit {
                return false;
            }
            offsets[item] = Some(offset);
        }
        true
    }

    /// Records the open offset ranges at which an item collides with placed items, in order.
    fn block(&mut self, item: usize, offsets: &Offsets) {
        self.blocked.clear();
        for &(other, low, high) in &self.apart.near[item] {
            if let Some(base) = offsets[other] {
                self.blocked.push((low + base, high + base));
            }
        }
        self.blocked.sort_unstable();
    }
}

/// Returns the offset outside all open ranges with the least growth of the whole.
///
/// The whole reaches from `low` to `high`.
fn free(blocked: &[(i64, i64)], size: i64, low: i64, high: i64) -> i64 {
    // Between these two offsets the whole grows by the same, and by least.
    let (first, last) = (low.min(high - size), low.max(high - size));
    let (mut best, mut distance) = (0, i64::MAX);
    let mut reach = i64::MIN;
    for &(start, stop) in blocked.iter().chain(&[(i64::MAX, i64::MAX)]) {
        if start >= reach {
            if reach.max(first) <= start.min(last) {
                return reach.max(first);
            }
            if start < first && first - start < distance {
                (best, distance) = (start, first - start);
            } else if reach > last && reach - last < distance {
                (best, distance) = (reach, reach - last);
            }
            if reach > last {
                break;
            }
        }
        reach = reach.max(stop);
    }
    best
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::as_conversions, reason = "tests")]
mod tests {
    use super::*;

    /// Returns random items and rules.
    fn items(seed: u64) -> (Vec<u64>, Vec<Forbidden>) {
        let mut random = Random::new(seed);
        let count = 2 + random.below(12);
        let sizes: Vec<u64> = (0..count).map(|_| 16 * (1 + random.below(9)) as u64).collect();
        let mut rules = Vec::new();
        for item in 0..count {
            for from in 0..item {
                for _ in 0..random.below(3) {
                    let low = 16 * (i64::try_from(random.below(12)).unwrap() - 8);
                    let high = low + 16 * (1 + i64::try_from(random.below(7)).unwrap());
                    rules.push(Forbidden { item, from, low, high });
                }
            }
        }
        (sizes, rules)
    }

    #[test]
    fn every_rule_is_kept_and_the_height_is_never_above_that_of_the_first_order() {
        for seed in 0..200 {
            let (sizes, rules) = items(seed);
            let apart = Apart::new(&sizes, &rules).unwrap();
            let hot: Vec<usize> = (0..=sizes.len() / 2).collect();
            let last: Vec<usize> = (hot.len()..sizes.len()).collect();
            let height = |orders| {
                let tries = Tries { orders, seed, goal: 0 };
                let offsets = apart.pack(core::slice::from_ref(&hot), &last, tries, &|| false);
                for rule in &rules {
                    let ends = (offsets[rule.item], offsets[rule.from]);
                    let distance = i64::try_from(ends.0).unwrap() - i64::try_from(ends.1).unwrap();
                    assert!(distance <= rule.low || distance >= rule.high, "seed {seed} {rule:?}");
                }
                hot.iter().map(|&item| offsets[item] + sizes[item]).max().unwrap()
            };
            let (many, first) = (height(300), height(0));
            assert!(many <= first, "seed {seed}: {many} {first}");
        }
    }

    #[test]
    fn all_orders_of_few_items_are_found() {
        let mut equal = 0;
        for seed in 0..60 {
            let (sizes, rules) = items(seed);
            if sizes.len() > 6 {
                continue;
            }
            let apart = Apart::new(&sizes, &rules).unwrap();
            let order: Vec<usize> = (0..sizes.len()).collect();
            let mut search =
                ApartSearch { apart: &apart, random: Random::new(0), blocked: Vec::new(), goal: 0 };
            let mut least = i64::MAX;
            for permutation in permutations(&order) {
                let mut offsets = vec![None; sizes.len()];
                assert!(search.lowest(&permutation, &mut offsets, i64::MAX));
                least = least.min(search.height(&offsets));
            }
            let offsets =
                apart.pack(&[order], &[], Tries { orders: 2000, seed, goal: 0 }, &|| false);
            let height = offsets.iter().zip(&sizes).map(|(offset, size)| offset + size).max();
            let height = i64::try_from(height.unwrap()).unwrap();
            assert!(height <= least, "seed {seed}: {height} {least}");
            equal += 1;
        }
        assert!(equal > 10);
    }

    fn permutations(items: &[usize]) -> Vec<Vec<usize>> {
        if items.is_empty() {
            return vec![Vec::new()];
        }
        let mut found = Vec::new();
        for (at, &first) in items.iter().enumerate() {
            let mut rest = items.to_vec();
            rest.remove(at);
            for mut order in permutations(&rest) {
                order.insert(0, first);
                found.push(order);
            }
        }
        found
    }

    #[test]
    fn rules_that_make_no_sense_are_refused() {
        let rule = Forbidden { item: 0, from: 1, low: 0, high: 16 };
        let refused = |sizes: &[u64], rule| Apart::new(sizes, &[rule]).unwrap_err().kind();
        assert_eq!(refused(&[16], rule), "InvalidBuffer");
        assert_eq!(refused(&[16, 16], Forbidden { from: 0, ..rule }), "InvalidBuffer");
        assert_eq!(refused(&[16, 16], Forbidden { high: 0, ..rule }), "InvalidBuffer");
        assert_eq!(refused(&[16, u64::MAX], rule), "SizeOverflow");
        assert_eq!(refused(&[16, 16], Forbidden { low: i64::MIN, ..rule }), "SizeOverflow");
        assert!(Apart::new(&[16, 16], &[rule]).is_ok());
    }

    #[test]
    fn a_search_that_is_over_keeps_the_first_places() {
        let (sizes, rules) = items(5);
        let apart = Apart::new(&sizes, &rules).unwrap();
        let order: Vec<usize> = (0..sizes.len()).collect();
        let tries = Tries { orders: 500, seed: 1, goal: 0 };
        let over = apart.pack(core::slice::from_ref(&order), &[], tries, &|| true);
        let none = apart.pack(&[order], &[], Tries { orders: 0, ..tries }, &|| false);
        assert_eq!(over, none);
    }
}
