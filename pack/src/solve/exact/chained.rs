//! Chained intervals: tight cuts that are not rectangles.

use alloc::vec::Vec;
use core::ops::Range;

use super::kinds::ItemKind;
use crate::base::Result;
use crate::solve::model::arith::{index, number};
use crate::solve::model::memory::{filled, with_capacity};
use crate::solve::model::sort::order_by_number;

/// Two sets of items, given by their numbers, that occupy the same interval of offsets one after
/// the other.
///
/// The interval is one piece. The items of either side are directly on top of each other, in any
/// order.
#[derive(Clone, Debug)]
pub(crate) struct ChainedInterval {
    /// The items before the cut, and those after it.
    pub(crate) sides: [Vec<u32>; 2],
}

/// The chained intervals, and the queue of kinds whose bounds have changed.
#[derive(Debug)]
pub(super) struct ChainedIntervals {
    pub(super) list: Vec<Interval>,
    /// The intervals of kind *k* are those from place `first[k]` to place `first[k + 1]` of
    /// `of_kinds`.
    first: Vec<u32>,
    pub(super) of_kinds: Vec<u32>,
    /// Kinds whose bounds have changed, in the order of the changes, and how many of them were
    /// taken. First in, first out: bounds that rise in many small steps are propagated once.
    moved: Vec<u32>,
    taken: usize,
    /// Whether a kind is queued, by kind.
    is_queued: Vec<bool>,
}

/// Size and bounds of the offset of one interval, and the kinds of both sides.
#[derive(Debug)]
pub(super) struct Interval {
    pub(super) size: u64,
    pub(super) low: u64,
    pub(super) high: u64,
    pub(super) sides: [Vec<u32>; 2],
}

impl ChainedIntervals {
    /// Returns the intervals of kinds, given those of items.
    ///
    /// Intervals with an item that is one of several copies are left out: copies are
    /// interchangeable, so the interval does not say which copy it constrains.
    pub(super) fn new(
        chains: &[ChainedInterval],
        kind_of: &[Option<u32>],
        kinds: &[ItemKind],
    ) -> Result<Self> {
        let mut list = with_capacity(chains.len(), "chains")?;
        for link in chains {
            let of = |items: &Vec<u32>| -> Option<Vec<u32>> {
                items.iter().map(|&item| kind_of[index(item)]).collect()
            };
            if let [Some(had), Some(take)] = link.sides.each_ref().map(of) {
                let size = had.iter().map(|&kind| kinds[index(kind)].size).sum();
                list.push(Interval { size, low: 0, high: u64::MAX, sides: [had, take] });
            }
        }
        let count = list.iter().flat_map(|room: &Interval| &room.sides).map(Vec::len).sum();
        let mut linked = with_capacity(count, "chains")?;
        let mut link_of = with_capacity(count, "chains")?;
        for (link, room) in list.iter().enumerate() {
            for &kind in room.sides.iter().flatten() {
                linked.push(kind);
                link_of.push(number(link));
            }
        }
        let (mut of_kinds, first) = order_by_number(&linked, kinds.len())?;
        for place in &mut of_kinds {
            *place = link_of[index(*place)];
        }
        let is_queued = filled(false, kinds.len(), "chains")?;
        Ok(Self { list, first, of_kinds, moved: Vec::new(), taken: 0, is_queued })
    }

    /// Restores the bounds of an interval.
    pub(super) fn reset(&mut self, link: u32, low: u64, high: u64) {
        let room = &mut self.list[index(link)];
        (room.low, room.high) = (low, high);
    }

    /// Returns the places in `of_kinds` of the intervals of a kind.
    pub(super) fn of(&self, kind: u32) -> Range<usize> {
        index(self.first[index(kind)])..index(self.first[index(kind) + 1])
    }

    /// Returns whether a kind is in an interval.
    pub(super) fn has(&self, kind: u32) -> bool {
        !self.of(kind).is_empty()
    }

    /// Queues a kind whose bounds have changed.
    pub(super) fn note(&mut self, kind: u32) {
        if self.has(kind) && !core::mem::replace(&mut self.is_queued[index(kind)], true) {
            self.moved.push(kind);
        }
    }

    /// Takes the kind out of the queue that has waited longest.
    pub(super) fn next_moved(&mut self) -> Option<u32> {
        let kind = *self.moved.get(self.taken)?;
        self.taken += 1;
        self.is_queued[index(kind)] = false;
        Some(kind)
    }

    /// Empties the queue.
    pub(super) fn forget(&mut self) {
        for kind in self.moved.drain(self.taken..) {
            self.is_queued[index(kind)] = false;
        }
        self.moved.clear();
        self.taken = 0;
    }
}
