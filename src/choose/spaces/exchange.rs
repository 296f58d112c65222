//! Assignments built with their offsets, and improved by exchanging items.
//!
//! Every item has a space and an offset at all times, so every result fits without a search for a
//! packing.

use alloc::{vec, vec::Vec};
use core::cmp::Reverse;

use super::space_model::{Picks, SpaceModel};
use super::work::SpaceWork;
use crate::base::MAX_BYTES;

/// A space and an offset for every item.
#[derive(Clone)]
pub(super) struct Layout<'a> {
    model: &'a SpaceModel<'a>,
    /// By item: items that are live together with the item.
    neighbors: &'a [Vec<u32>],
    pub(super) picks: Picks,
    /// By item; `None` for an item without a place.
    offsets: Vec<Option<u64>>,
}

/// Returns, by item, the items that are live together with the item.
pub(super) fn neighbors(model: &SpaceModel<'_>) -> Vec<Vec<u32>> {
    let mut neighbors = vec![Vec::new(); model.items.len()];
    let mut alive: Vec<usize> = Vec::new();
    let narrow = |item: usize| u32::try_from(item).expect("ids have 32 bits");
    for (item, about) in model.items.iter().enumerate() {
        alive.retain(|&other| about.live.start() < model.items[other].live.end());
        for &other in &alive {
            neighbors[item].push(narrow(other));
            neighbors[other].push(narrow(item));
        }
        alive.push(item);
    }
    neighbors
}

/// Returns the cheapest layout reached by several first-fit orders and exchanges, if any.
pub(super) fn best<'a>(
    model: &'a SpaceModel<'a>,
    neighbors: &'a [Vec<u32>],
    work: SpaceWork<'_>,
) -> Option<Layout<'a>> {
    let built =
        orders(model).into_iter().filter_map(|order| Layout::build(model, neighbors, &order));
    // The first of the cheapest layouts, so that ties do not depend on the number of orders.
    let mut best = built.min_by_key(Layout::cost)?;
    best.improve(work);
    Some(best)
}

/// Returns orders in which to place items: items that gain most from a fast space first.
fn orders(model: &SpaceModel<'_>) -> Vec<Vec<usize>> {
    let count = model.items.len();
    let gain = |item: usize| {
        let options = &model.items[item].options;
        options.last().map_or(0, |last| last.cost - options[0].cost)
    };
    let size = |item: usize| u128::from(model.items[item].bytes);
    let length = |item: usize| {
        let live = model.items[item].live;
        u128::from(live.end().get() - live.start().get())
    };
    // Gains per unit, compared without fractions.
    let sorted = |weight: &dyn Fn(usize) -> u128| {
        let mut order: Vec<usize> = (0..count).collect();
        order.sort_by(|&a, &b| {
            let (left, right) = (u128::from(gain(a)), u128::from(gain(b)));
            right.saturating_mul(weight(a)).cmp(&left.saturating_mul(weight(b))).then(a.cmp(&b))
        });
        order
    };
    let mut by_size: Vec<usize> = (0..count).collect();
    by_size.sort_by_key(|&item| (Reverse(model.items[item].bytes), item));
    vec![
        sorted(&|_| 1),
        sorted(&size),
        sorted(&length),
        sorted(&|item| size(item) * length(item)),
        by_size,
        (0..count).collect(),
    ]
}

impl<'a> Layout<'a> {
    fn cost(&self) -> u64 {
        self.model.cost_of(&self.picks)
    }

    /// Returns the item offsets in `space`, by buffer of the problem.
    pub(super) fn offsets_in(&self, space: usize) -> Vec<(usize, u64)> {
        let inside = (0..self.picks.len()).filter(|&item| self.space_of(item) == space);
        let mut offsets: Vec<_> = inside
            .filter_map(|item| Some((self.model.items[item].buffer, self.offsets[item]?)))
            .collect();
        offsets.sort_unstable();
        offsets
    }

    /// Places items in an order, each in its cheapest space with room; fixed items first.
    fn build(
        model: &'a SpaceModel<'a>,
        neighbors: &'a [Vec<u32>],
        order: &[usize],
    ) -> Option<Self> {
        let count = model.items.len();
        let mut layout =
            Self { model, neighbors, picks: vec![0; count], offsets: vec![None; count] };
        let (fixed, free): (Vec<_>, Vec<_>) =
            order.iter().partition(|&&item| model.items[item].pin.is_some());
        for item in fixed.into_iter().chain(free) {
            if !layout.insert(item) {
                return None;
            }
        }
        Some(layout)
    }

    fn space_of(&self, item: usize) -> usize {
        self.model.picked(item, self.picks[item]).space
    }

    /// Returns the occupied bytes in `space` while `item` is live, in order.
    fn taken(&self, item: usize, space: usize) -> Vec<(u64, u64, usize)> {
        let others = self.neighbors[item].iter().filter_map(|&other| {
            let other = usize::try_from(other).ok()?;
            let offset = self.offsets[other]?;
            (self.space_of(other) == space)
                .then(|| (offset, offset + self.model.items[other].bytes, other))
        });
        let mut taken: Vec<_> = others.collect();
        taken.sort_unstable();
        taken
    }

    /// Puts an unplaced item into the cheapest space with room.
    fn insert(&mut self, item: usize) -> bool {
        for pick in 0..self.model.options(item) {
            let space = self.model.picked(item, pick).space;
            let about = &self.model.items[item];
            let alignment = about.alignments[usize::from(pick)];
            let mut at = about.pin.unwrap_or(0);
            for (start, end, _) in self.taken(item, space) {
                if start < at.saturating_add(about.bytes) && at < end {
                    if about.pin.is_some() {
                        at = u64::MAX;
                        break;
                    }
                    at = alignment.round_up(end).unwrap_or(u64::MAX);
                }
            }
            let end = at.checked_add(about.bytes);
            if end.is_some_and(|end| end <= self.model.capacities[space].min(MAX_BYTES)) {
                self.picks[item] = pick;
                self.offsets[item] = Some(at);
                return true;
            }
        }
        false
    }

    /// Moves items to cheaper spaces as long as the total cost falls, even if other items have to
    /// leave.
    fn improve(&mut self, limits: SpaceWork<'_>) {
        let mut looks = 0;
        let mut better = true;
        while core::mem::take(&mut better) {
            let gain = |item: usize| {
                self.model.picked(item, self.picks[item]).cost - self.model.picked(item, 0).cost
            };
            let mut dear: Vec<_> = (0..self.picks.len())
                .filter(|&item| gain(item) > 0 && self.model.items[item].pin.is_none())
                .map(|item| (Reverse(gain(item)), item))
                .collect();
            dear.sort_unstable();
            for (_, item) in dear {
                for pick in 0..self.picks[item] {
                    looks += 1 + self.neighbors[item].len();
                    limits.spend(1 + self.neighbors[item].len());
                    if looks > limits.depth.looks || limits.is_over() {
                        return;
                    }
                    if let Some(work) = self.exchange(item, pick) {
                        looks += work;
                        limits.spend(work);
                        better = true;
                        break;
                    }
                }
            }
        }
    }

    /// Moves an item to a cheaper space, to the offset where the displaced items weigh least, and
    /// moves the displaced items elsewhere. Undoes all moves and returns `None` unless the total
    /// cost falls.
    fn exchange(&mut self, item: usize, pick: u8) -> Option<usize> {
        let (space, bytes) = (self.model.picked(item, pick).space, self.model.items[item].bytes);
        let alignment = self.model.items[item].alignments[usize::from(pick)];
        let capacity = self.model.capacities[space].min(MAX_BYTES);
        let gain =
            self.model.picked(item, self.picks[item]).cost - self.model.picked(item, pick).cost;
        let taken = self.taken(item, space);
        let weight = |other: usize| {
            let (options, now) = (&self.model.items[other].options, usize::from(self.picks[other]));
            match options.get(now + 1) {
                Some(next) if self.model.items[other].pin.is_none() => {
                    next.cost - options[now].cost
                }
                _ => u64::MAX,
            }
        };
        let below = |start: u64| {
            let mask = alignment.bytes() - 1;
            start.checked_sub(bytes).map(|at| at & !mask)
        };
        let starts = taken.iter().filter_map(|&(start, ..)| below(start));
        let ends = taken.iter().filter_map(|&(_, end, _)| alignment.round_up(end));
        let mut places: Vec<u64> = starts.chain(ends).chain([0]).collect();
        places.retain(|&at| at.checked_add(bytes).is_some_and(|end| end <= capacity));
        places.sort_unstable();
        places.dedup();
        let crossed =
            |at: u64| taken.iter().filter(move |(start, end, _)| *start < at + bytes && at < *end);
        let (_, at) = places
            .iter()
            .map(|&at| {
                let weights = crossed(at).map(|&(_, _, other)| weight(other));
                (weights.fold(0_u64, u64::saturating_add), at)
            })
            // A displaced item may find another gap, so a loss that slightly exceeds the gain is
            // allowed.
            .filter(|&(displaced, _)| displaced < gain.saturating_mul(2))
            .min()?;
        let displaced: Vec<_> = crossed(at).map(|&(_, _, other)| other).collect();
        let before = self.cost();
        let moved = displaced.iter().copied().chain([item]);
        let old: Vec<_> =
            moved.map(|other| (other, self.picks[other], self.offsets[other])).collect();
        for &other in &displaced {
            self.offsets[other] = None;
        }
        self.picks[item] = pick;
        self.offsets[item] = Some(at);
        let all_placed = displaced.iter().all(|&other| self.insert(other));
        if all_placed && self.cost() < before {
            return Some(places.len() * taken.len().max(1));
        }
        for (other, pick, offset) in old {
            self.picks[other] = pick;
            self.offsets[other] = offset;
        }
        None
    }
}
