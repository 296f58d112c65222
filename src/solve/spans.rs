//! Many unions of intervals in one piece of memory.

use super::arith::{index, number};
use super::memory::reserve;
use crate::error::{Error, Result};

/// Disjoint intervals of grains in ascending order, merged where they touch.
///
/// Most unions are a single interval. The others are in a [`Pool`].
#[derive(Clone, Copy, Debug)]
pub(super) enum Spans {
    /// One interval, or none if it is empty.
    One((u64, u64)),
    Many(Run),
}

/// A part of a pool with room for a power of two of intervals.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    place: u32,
    count: u32,
    /// Binary logarithm of the room.
    class: u8,
}

impl Spans {
    /// The empty union.
    pub(super) const NONE: Self = Self::One((0, 0));
}

/// The intervals of unions that have more than one.
///
/// A million unions with memory of their own take as long to be freed as to be made.
#[derive(Debug, Default)]
pub(super) struct Pool {
    spans: Vec<(u64, u64)>,
    /// Places of runs that can be used again, by class.
    vacant: Vec<Vec<u32>>,
}

impl Pool {
    /// Forgets all intervals, but keeps the memory.
    pub(super) fn clear(&mut self) {
        self.spans.clear();
        self.vacant.iter_mut().for_each(Vec::clear);
    }

    /// Returns the intervals of a union.
    pub(super) fn list<'a>(&'a self, spans: &'a Spans) -> &'a [(u64, u64)] {
        match spans {
            Spans::One((0, 0)) => &[],
            Spans::One(span) => std::slice::from_ref(span),
            Spans::Many(run) => &self.spans[index(run.place)..index(run.place + run.count)],
        }
    }

    /// Adds an interval to a union; returns whether some of it is new.
    pub(super) fn merge(&mut self, spans: &mut Spans, (start, end): (u64, u64)) -> Result<bool> {
        match spans {
            Spans::One(span) if *span == (0, 0) => *span = (start, end),
            Spans::One(span) if start <= span.1 && span.0 <= end => {
                let before = *span;
                *span = (span.0.min(start), span.1.max(end));
                return Ok(*span != before);
            }
            Spans::One(span) => {
                let run = Run { place: self.take(1)?, count: 2, class: 1 };
                let both =
                    if span.0 < start { [*span, (start, end)] } else { [(start, end), *span] };
                self.spans[index(run.place)..][..2].copy_from_slice(&both);
                *spans = Spans::Many(run);
            }
            Spans::Many(run) => {
                let list = &mut self.spans[index(run.place)..index(run.place + run.count)];
                let first = list.partition_point(|&(_, other)| other < start);
                // Those that touch the new one become part of it, so that counting them is fast.
                let touching = list[first..].iter().take_while(|&&(other, _)| other <= end).count();
                if touching == 0 {
                    self.insert(run, first, (start, end))?;
                    return Ok(true);
                }
                let (low, high) = (list[first].0, list[first + touching - 1].1);
                if low <= start && end <= high && touching == 1 {
                    return Ok(false);
                }
                list[first] = (low.min(start), high.max(end));
                list.copy_within(first + touching.., first + 1);
                run.count -= number(touching - 1);
                if run.count == 1 {
                    let span = list[0];
                    self.give(run);
                    *spans = Spans::One(span);
                }
            }
        }
        Ok(true)
    }

    /// Inserts an interval at a position of a run.
    fn insert(&mut self, run: &mut Run, position: usize, span: (u64, u64)) -> Result<()> {
        if run.count == 1 << run.class {
            let larger = Run { place: self.take(run.class + 1)?, class: run.class + 1, ..*run };
            let old = index(run.place)..index(run.place + run.count);
            self.spans.copy_within(old, index(larger.place));
            self.give(run);
            *run = larger;
        }
        let at = index(run.place) + position;
        self.spans.copy_within(at..index(run.place + run.count), at + 1);
        self.spans[at] = span;
        run.count += 1;
        Ok(())
    }

    /// Returns the place of a run of some class.
    fn take(&mut self, class: u8) -> Result<u32> {
        if let Some(place) = self.vacant.get_mut(usize::from(class)).and_then(Vec::pop) {
            return Ok(place);
        }
        let (place, room) = (self.spans.len(), 1 << class);
        reserve(&mut self.spans, room, WHAT)?;
        self.spans.resize(place + room, (0, 0));
        // The end, too, has to be a number.
        u32::try_from(place + room).map_err(|_| Error::OutOfMemory { what: WHAT })?;
        Ok(number(place))
    }

    /// Makes the place of a run available again.
    fn give(&mut self, run: &Run) {
        let class = usize::from(run.class);
        if self.vacant.len() <= class {
            self.vacant.resize_with(class + 1, Vec::new);
        }
        self.vacant[class].push(run.place);
    }
}

const WHAT: &str = "occupied intervals";
