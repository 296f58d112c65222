//! Finds items that live within a section range, best first.

use alloc::vec::Vec;
use core::ops::Range;

use crate::base::Result;
use crate::solve::model::Model;
use crate::solve::model::arith::{index, number};
use crate::solve::model::memory::{filled, with_capacity};
use crate::solve::tuning::layout::CONTAINED_BUCKET as BUCKET;

/// The items as points (birth, death) in a k-d tree (Bentley, "Multidimensional binary search
/// trees", CACM 18, 1975).
///
/// Items within a range are the points in a quadrant, so a query reads about √*n* nodes besides the
/// result's nodes. Items can be removed.
#[derive(Debug)]
pub(crate) struct Contained {
    /// Items in leaf order.
    order: Vec<u32>,
    /// Where in `order` each item is.
    places: Vec<u32>,
    births: Vec<u32>,
    deaths: Vec<u32>,
    merits: Vec<f64>,
    is_left: Vec<bool>,
    /// A summary of each subtree; the children of node *k* are 2*k* and 2*k* + 1.
    nodes: Vec<SubtreeNode>,
    leaves: usize,
    pending: Vec<usize>,
    /// Nodes and items read since the last call of [`Contained::take_work`].
    work: usize,
}

/// A summary of a subtree's remaining items.
#[derive(Clone, Copy, Debug)]
struct SubtreeNode {
    latest_birth: u32,
    earliest_death: u32,
    best: f64,
}

impl SubtreeNode {
    const EMPTY: Self = Self { latest_birth: 0, earliest_death: u32::MAX, best: f64::NEG_INFINITY };

    fn join(self, other: Self) -> Self {
        Self {
            latest_birth: self.latest_birth.max(other.latest_birth),
            earliest_death: self.earliest_death.min(other.earliest_death),
            best: self.best.max(other.best),
        }
    }

    /// Returns whether some item below the node might live within `span`.
    fn may_be_within(&self, span: &Range<u32>) -> bool {
        self.latest_birth >= span.start && self.earliest_death <= span.end
    }
}

impl Contained {
    /// Returns a tree of a model's items, all removed.
    pub(crate) fn new(model: &Model) -> Result<Self> {
        let count = model.items.len();
        let mut order = with_capacity(count, "an order")?;
        order.extend(0..number(count));
        let leaves = count.div_ceil(BUCKET).next_power_of_two();
        for depth in 0..leaves.trailing_zeros() {
            let width = (leaves >> depth) * BUCKET;
            for part in order.chunks_mut(width).filter(|part| part.len() > width / 2) {
                part.select_nth_unstable_by_key(width / 2, |&item| {
                    let span = &model.items[index(item)].span;
                    (if depth % 2 == 0 { span.start } else { span.end }, item)
                });
            }
        }
        let mut places = filled(0, count, "an order")?;
        for (place, &item) in order.iter().enumerate() {
            places[index(item)] = number(place);
        }
        let of = |time: fn(&Range<u32>) -> u32| -> Result<Vec<u32>> {
            let mut times = with_capacity(count, "an order")?;
            times.extend(order.iter().map(|&item| time(&model.items[index(item)].span)));
            Ok(times)
        };
        Ok(Self {
            births: of(|span| span.start)?,
            deaths: of(|span| span.end)?,
            order,
            places,
            merits: filled(0.0, count, "an order")?,
            is_left: filled(false, count, "an order")?,
            nodes: filled(SubtreeNode::EMPTY, 2 * leaves, "an order")?,
            leaves,
            pending: Vec::new(),
            work: 0,
        })
    }

    /// Puts all items back, each with its merit.
    pub(crate) fn refill(&mut self, mut merit: impl FnMut(usize) -> f64) {
        for (place, &item) in self.order.iter().enumerate() {
            self.merits[place] = merit(index(item));
        }
        self.is_left.fill(true);
        for leaf in 0..self.leaves {
            self.nodes[self.leaves + leaf] = self.of_leaf(leaf);
        }
        for node in (1..self.leaves).rev() {
            self.nodes[node] = self.nodes[2 * node].join(self.nodes[2 * node + 1]);
        }
    }

    fn of_leaf(&self, leaf: usize) -> SubtreeNode {
        let left = self.places_of(leaf).filter(|&place| self.is_left[place]);
        let of_item = |place: usize| SubtreeNode {
            latest_birth: self.births[place],
            earliest_death: self.deaths[place],
            best: self.merits[place],
        };
        left.map(of_item).fold(SubtreeNode::EMPTY, SubtreeNode::join)
    }

    /// Returns the places of a leaf's items.
    fn places_of(&self, leaf: usize) -> Range<usize> {
        (leaf * BUCKET).min(self.order.len())..((leaf + 1) * BUCKET).min(self.order.len())
    }

    /// Removes an item.
    pub(crate) fn remove(&mut self, item: usize) {
        let place = index(self.places[item]);
        self.is_left[place] = false;
        let mut node = self.leaves + place / BUCKET;
        self.nodes[node] = self.of_leaf(place / BUCKET);
        while node > 1 {
            node /= 2;
            self.nodes[node] = self.nodes[2 * node].join(self.nodes[2 * node + 1]);
        }
        self.work += index(self.leaves.trailing_zeros()) + BUCKET;
    }

    /// Lists the items that live within `span`; returns false if there are more than `most`.
    pub(crate) fn list(&mut self, span: &Range<u32>, most: usize, found: &mut Vec<u32>) -> bool {
        found.clear();
        self.pending.clear();
        self.pending.push(1);
        while let Some(node) = self.pending.pop() {
            self.work += 1;
            if !self.nodes[node].may_be_within(span) {
                continue;
            }
            if node < self.leaves {
                self.pending.extend([2 * node, 2 * node + 1]);
                continue;
            }
            for place in self.places_of(node - self.leaves) {
                if self.is_within(place, span) {
                    found.push(self.order[place]);
                }
            }
            self.work += BUCKET;
            if found.len() > most {
                return false;
            }
        }
        true
    }

    /// Lists the `most` items with the greatest merit that live within `span`, best first.
    pub(crate) fn best(&mut self, span: &Range<u32>, most: usize, found: &mut Vec<(f64, u32)>) {
        found.clear();
        self.pending.clear();
        self.pending.push(1);
        while let Some(node) = self.pending.pop() {
            self.work += 1;
            let least = if found.len() < most { f64::NEG_INFINITY } else { found[most - 1].0 };
            if !self.nodes[node].may_be_within(span) || self.nodes[node].best <= least {
                continue;
            }
            if node < self.leaves {
                let (left, right) = (2 * node, 2 * node + 1);
                let left_is_better = self.nodes[left].best >= self.nodes[right].best;
                self.pending.extend(if left_is_better { [right, left] } else { [left, right] });
                continue;
            }
            for place in self.places_of(node - self.leaves) {
                if self.is_within(place, span) {
                    let merit = self.merits[place];
                    let rank = found.partition_point(|&(other, _)| other >= merit);
                    if rank < most {
                        found.truncate(most - 1);
                        found.insert(rank, (merit, self.order[place]));
                    }
                }
            }
            self.work += BUCKET;
        }
    }

    fn is_within(&self, place: usize, span: &Range<u32>) -> bool {
        self.is_left[place] && self.births[place] >= span.start && self.deaths[place] <= span.end
    }

    /// Returns about how many memory accesses were made since the last call.
    pub(crate) fn take_work(&mut self) -> usize {
        core::mem::take(&mut self.work)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;
    use crate::solve::model::random::Random;
    use crate::solve::testing::{model_of, random_buffers};

    #[test]
    fn what_lives_within_a_range_is_found_until_it_is_removed() {
        let mut random = Random::new(7);
        for count in [1, 7, 8, 9, 100, 300] {
            let model = model_of(random_buffers(&mut random, count, 200, 60, 1));
            let mut contained = Contained::new(&model).unwrap();
            let merits: Vec<f64> = (0..count).map(|_| random.unit()).collect();
            contained.refill(|item| merits[item]);
            let mut left: Vec<u32> = (0..number(count)).collect();
            while !left.is_empty() {
                let start = number(random.below(model.loads.len()));
                let span = start..start + number(random.below(model.loads.len()));
                let is_within = |&item: &u32| {
                    let it = &model.items[index(item)].span;
                    it.start >= span.start && it.end <= span.end
                };
                let mut expected: Vec<u32> = left.iter().copied().filter(is_within).collect();
                expected.sort_unstable();
                let mut found = Vec::new();
                assert!(contained.list(&span, count, &mut found));
                found.sort_unstable();
                assert_eq!(found, expected);
                if let Some(fewer) = expected.len().checked_sub(1) {
                    // The query may read a whole leaf before counting.
                    let all = contained.list(&span, fewer, &mut found);
                    assert!(!all && found.len() > fewer);
                }
                expected.sort_by(|&a, &b| merits[index(b)].total_cmp(&merits[index(a)]));
                expected.truncate(5);
                let mut best = Vec::new();
                contained.best(&span, 5, &mut best);
                assert_eq!(best.iter().map(|&(_, item)| item).collect::<Vec<_>>(), expected);
                contained.remove(index(left.swap_remove(random.below(left.len()))));
            }
        }
    }
}
