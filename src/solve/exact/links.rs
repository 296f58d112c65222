//! Items of which one takes the room of others: where they can be follows from each other.

use std::ops::Range;

use super::super::arith::{index, number};
use super::super::memory::with_capacity;
use super::super::sort::order_by_number;
use super::state::{Change, Kind, State, Stuck};
use crate::error::Result;

/// Items of which some take over the room of the others: all of it, and nothing else.
///
/// It is one piece. Those that had it lie directly on top of each other, in any order, and so
/// do those that take it.
#[derive(Clone, Debug)]
pub(crate) struct Link {
    /// Those that had the room, and those that take it.
    pub(crate) sides: [Vec<u32>; 2],
}

/// The links of all kinds of items, and what is to be looked at.
#[derive(Debug)]
pub(super) struct Links {
    list: Vec<Room>,
    /// The links of kind *k* are those from place *k* to place *k* + 1.
    first: Vec<u32>,
    of_kinds: Vec<u32>,
    /// Kinds that can be at fewer offsets than before.
    moved: Vec<u32>,
}

/// The room of linked kinds, and the lowest and the highest offset that it can have.
#[derive(Debug)]
struct Room {
    size: u64,
    low: u64,
    high: u64,
    sides: [Vec<u32>; 2],
}

impl Links {
    /// Returns the links of kinds, given those of items.
    ///
    /// Of an item that is one of several copies, nobody knows which one it is.
    pub(super) fn new(links: &[Link], kind_of: &[Option<u32>], kinds: &[Kind]) -> Result<Self> {
        let mut list = with_capacity(links.len(), "links")?;
        for link in links {
            let of = |items: &Vec<u32>| -> Option<Vec<u32>> {
                items.iter().map(|&item| kind_of[index(item)]).collect()
            };
            if let [Some(had), Some(take)] = link.sides.each_ref().map(of) {
                let size = had.iter().map(|&kind| kinds[index(kind)].size).sum();
                list.push(Room { size, low: 0, high: u64::MAX, sides: [had, take] });
            }
        }
        let count = list.iter().flat_map(|room: &Room| &room.sides).map(Vec::len).sum();
        let mut linked = with_capacity(count, "links")?;
        let mut link_of = with_capacity(count, "links")?;
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
    fn of(&self, kind: u32) -> Range<usize> {
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

impl State {
    /// Narrows down where linked kinds can be, after others were; `done` is how much room
    /// what has happened before gave up, and returned is what this gives up besides.
    pub(super) fn follow_links(&mut self, done: Result<f64, Stuck>) -> Result<f64, Stuck> {
        let mut done = done;
        self.uncovered.clear();
        while let Ok(loss) = done
            && let Some(kind) = self.links.moved.pop()
        {
            for at in self.links.of(kind) {
                let link = index(self.links.of_kinds[at]);
                done = self.follow(link).map(|()| loss);
                if done.is_err() {
                    break;
                }
            }
        }
        self.links.forget();
        if self.uncovered.is_empty() {
            return done;
        }
        done.and_then(|loss| Ok(loss + self.cover()?))
    }

    /// Restores that each kind of a link can be only where others of it allow that.
    ///
    /// With *p* the offset of the room, and *P* its size, each kind, of size *s*, starts
    /// between *p* and *p* + *P* − *s*; and on either side some kind starts at *p*.
    fn follow(&mut self, link: usize) -> Result<(), Stuck> {
        let room = &self.links.list[link];
        let (whole, mut low, mut high) = (room.size, room.low, room.high);
        for side in &room.sides {
            let mut least = u64::MAX;
            for &kind in side {
                let at = index(kind);
                low = low.max((self.low[at] + self.kinds[at].size).saturating_sub(whole));
                high = high.min(self.high[at]);
                least = least.min(self.low[at]);
            }
            low = low.max(least);
        }
        if (low, high) == (room.low, room.high) {
            return Ok(());
        }
        let change = Change::Room { link: number(link), low: room.low, high: room.high };
        self.trail.push(change);
        self.links.reset(number(link), low, high);
        for side in 0..2 {
            for position in 0..self.links.list[link].sides[side].len() {
                let kind = self.links.list[link].sides[side][position];
                let size = self.kinds[index(kind)].size;
                self.raise(kind, low)?;
                self.lower(kind, high.saturating_add(whole - size))?;
            }
        }
        Ok(())
    }

    /// Raises the low of a kind to `to`.
    fn raise(&mut self, kind: u32, to: u64) -> Result<(), Stuck> {
        let low = self.low[index(kind)];
        if low >= to {
            return Ok(());
        }
        let it = &self.kinds[index(kind)];
        let sections = it.sections();
        if to > self.ceiling(it).min(self.high[index(kind)]) {
            return Err(Stuck { section: it.left });
        }
        self.trail.push(Change::Low { kind, low });
        self.low[index(kind)] = to;
        self.links.note(kind);
        for section in sections {
            if self.floor[section] == low {
                self.drop_count(section);
            } else {
                self.cracks.suspect(section);
            }
        }
        Ok(())
    }

    /// Lowers the high of a kind to `to`.
    fn lower(&mut self, kind: u32, to: u64) -> Result<(), Stuck> {
        let high = self.high[index(kind)];
        if high <= to {
            return Ok(());
        }
        if to < self.low[index(kind)] {
            return Err(Stuck { section: self.kinds[index(kind)].left });
        }
        self.trail.push(Change::High { kind, high });
        self.high[index(kind)] = to;
        self.links.note(kind);
        Ok(())
    }
}
