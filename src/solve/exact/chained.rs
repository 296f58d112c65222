//! Items of which one takes the room of others: where they can be follows from each other.

use std::ops::Range;

use super::kinds::Kind;
use crate::error::Result;
use crate::solve::model::arith::{index, number};
use crate::solve::model::memory::with_capacity;
use crate::solve::model::sort::order_by_number;

/// Items of which some take over the room of the others: all of it, and nothing else.
///
/// It is one piece. Those that had it lie directly on top of each other, in any order, and so
/// do those that take it.
#[derive(Clone, Debug)]
pub(crate) struct ChainedInterval {
    /// Those that had the room, and those that take it.
    pub(crate) sides: [Vec<u32>; 2],
}

/// The links of all kinds of items, and what is to be looked at.
#[derive(Debug)]
pub(super) struct ChainedIntervals {
    pub(super) list: Vec<Interval>,
    /// The links of kind *k* are those from place *k* to place *k* + 1.
    first: Vec<u32>,
    pub(super) of_kinds: Vec<u32>,
    /// Kinds that can be at fewer offsets than before.
    pub(super) moved: Vec<u32>,
}

/// The room of linked kinds, and the lowest and the highest offset that it can have.
#[derive(Debug)]
pub(super) struct Interval {
    pub(super) size: u64,
    pub(super) low: u64,
    pub(super) high: u64,
    pub(super) sides: [Vec<u32>; 2],
}

impl ChainedIntervals {
    /// Returns the links of kinds, given those of items.
    ///
    /// Of an item that is one of several copies, nobody knows which one it is.
    pub(super) fn new(
        chains: &[ChainedInterval],
        kind_of: &[Option<u32>],
        kinds: &[Kind],
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
        Ok(Self { list, first, of_kinds, moved: Vec::new() })
    }

    /// Undoes that a room was narrowed down.
    pub(super) fn reset(&mut self, link: u32, low: u64, high: u64) {
        let room = &mut self.list[index(link)];
        (room.low, room.high) = (low, high);
    }

    /// Returns where in `of_kinds` the links of a kind are.
    pub(super) fn of(&self, kind: u32) -> Range<usize> {
        index(self.first[index(kind)])..index(self.first[index(kind) + 1])
    }

    /// Returns whether a kind is in any link.
    pub(super) fn has(&self, kind: u32) -> bool {
        !self.of(kind).is_empty()
    }

    /// Notes that a kind can be at fewer offsets than before.
    pub(super) fn note(&mut self, kind: u32) {
        if self.has(kind) {
            self.moved.push(kind);
        }
    }

    /// Forgets what was noted.
    pub(super) fn forget(&mut self) {
        self.moved.clear();
    }
}
