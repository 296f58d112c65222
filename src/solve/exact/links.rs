//! Items of which one takes the room of others: where they can be follows from each other.

use super::super::arith::{index, number};
use super::super::memory::{filled, with_capacity};
use super::state::{Change, State, Stuck};
use crate::error::Result;

/// An item that has the room of a few others, as long as those are not live or no more.
///
/// In a packing that is looked for, these lie directly on top of each other, in any order,
/// from its offset up to its end.
#[derive(Clone, Debug)]
pub(crate) struct Link {
    /// The item.
    pub(crate) one: u32,
    /// The others.
    pub(crate) many: Vec<u32>,
}

/// The links of all kinds of items, and what is to be looked at.
#[derive(Debug)]
pub(super) struct Links {
    list: Vec<Link>,
    /// The links of kind *k* are those from place *k* to place *k* + 1.
    first: Vec<usize>,
    of_kinds: Vec<u32>,
    /// Kinds that can be at fewer offsets than before.
    moved: Vec<u32>,
}

impl Links {
    /// Returns the links of kinds, given those of items.
    ///
    /// Of an item that is one of several copies, nobody knows which one it is.
    pub(super) fn new(links: &[Link], kind_of: &[Option<u32>], kinds: usize) -> Result<Self> {
        let mut list = with_capacity(links.len(), "links")?;
        for link in links {
            let kind = |&item: &u32| kind_of[index(item)];
            if let Some(one) = kind(&link.one)
                && let Some(many) = link.many.iter().map(kind).collect()
            {
                list.push(Link { one, many });
            }
        }
        let mut first = filled(0, kinds + 1, "links")?;
        for kind in list.iter().flat_map(Link::kinds) {
            first[index(kind) + 1] += 1;
        }
        for kind in 0..kinds {
            first[kind + 1] += first[kind];
        }
        let mut next = first.clone();
        let mut of_kinds = filled(0, first[kinds], "links")?;
        for (link, it) in list.iter().enumerate() {
            for kind in it.kinds() {
                of_kinds[next[index(kind)]] = number(link);
                next[index(kind)] += 1;
            }
        }
        Ok(Self { list, first, of_kinds, moved: Vec::new() })
    }

    /// Notes that a kind can be at fewer offsets than before.
    pub(super) fn note(&mut self, kind: u32) {
        if self.first[index(kind)] < self.first[index(kind) + 1] {
            self.moved.push(kind);
        }
    }

    /// Forgets what was noted.
    pub(super) fn forget(&mut self) {
        self.moved.clear();
    }
}

impl Link {
    fn kinds(&self) -> impl Iterator<Item = u32> {
        self.many.iter().copied().chain([self.one])
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
            for at in self.links.first[index(kind)]..self.links.first[index(kind) + 1] {
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
    /// With *p* the offset of the one, and *P* its size, each of the others, of size *s*, starts
    /// between *p* and *p* + *P* − *s*; and some other one starts at *p*.
    fn follow(&mut self, link: usize) -> Result<(), Stuck> {
        let one = self.links.list[link].one;
        let whole = self.kinds[index(one)].size;
        let mut least = u64::MAX;
        for position in 0..self.links.list[link].many.len() {
            let it = self.links.list[link].many[position];
            let size = self.kinds[index(it)].size;
            self.raise(one, (self.low[index(it)] + size).saturating_sub(whole))?;
            self.lower(one, self.high[index(it)])?;
            least = least.min(self.low[index(it)]);
        }
        self.raise(one, least)?;
        for position in 0..self.links.list[link].many.len() {
            let it = self.links.list[link].many[position];
            let size = self.kinds[index(it)].size;
            self.raise(it, self.low[index(one)])?;
            self.lower(it, self.high[index(one)].saturating_add(whole - size))?;
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
