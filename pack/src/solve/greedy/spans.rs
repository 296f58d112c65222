//! Many unions of intervals in a single block of memory.

use alloc::vec::Vec;

use crate::base::{Error, Result};
use crate::solve::model::arith::{index, number};
use crate::solve::model::memory::reserve;

/// Disjoint intervals of grains in ascending order, merged where they touch.
///
/// Most unions are a single interval. All other unions are in a [`Pool`].
#[derive(Clone, Copy, Debug)]
pub(crate) enum Spans {
    /// An interval, or none if empty.
    One((u64, u64)),
    Many(Run),
}

/// A part of a pool with room for a power-of-two number of intervals.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    place: u32,
    count: u32,
    /// Binary logarithm of the room.
    class: u8,
}

impl Spans {
    /// The empty union.
    pub(crate) const NONE: Self = Self::One((0, 0));
}

/// The intervals of unions with more than one interval.
///
/// A million separately allocated unions take as long to free as to make.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    spans: Vec<(u64, u64)>,
    /// Free run places, by class.
    vacant: Vec<Vec<u32>>,
}

impl Pool {
    /// Forgets all intervals, but keeps the memory.
    pub(crate) fn clear(&mut self) {
        self.spans.clear();
        self.vacant.iter_mut().for_each(Vec::clear);
    }

    /// Returns a union's intervals.
    pub(crate) fn list<'a>(&'a self, spans: &'a Spans) -> &'a [(u64, u64)] {
        match spans {
            Spans::One((0, 0)) => &[],
            Spans::One(span) => core::slice::from_ref(span),
            Spans::Many(run) => &self.spans[index(run.place)..index(run.place + run.count)],
        }
    }

    /// Adds an interval to a union; returns whether any part of the interval is new.
    pub(crate) fn merge(&mut self, spans: &mut Spans, (start, end): (u64, u64)) -> Result<bool> {
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
                // Touching intervals merge into the new interval, so counting them is fast.
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

    /// Inserts an interval at a position in a run.
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

    /// Returns the place of a run with the given class.
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

    /// Frees a run's place for reuse.
    fn give(&mut self, run: &Run) {
        let class = usize::from(run.class);
        if self.vacant.len() <= class {
            self.vacant.resize_with(class + 1, Vec::new);
        }
        self.vacant[class].push(run.place);
    }
}

const WHAT: &str = "occupied intervals";

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;
    use crate::solve::model::random::Random;

    #[test]
    fn unions_in_one_pool_are_as_if_each_marked_its_grains() {
        let mut random = Random::new(3);
        let mut pool = Pool::default();
        for _ in 0..3 {
            pool.clear();
            let mut unions = [Spans::NONE; 5];
            let mut marks = [[false; 200]; 5];
            for _ in 0..400 {
                let (which, start) = (random.below(5), random.below(195));
                let end = start + 1 + random.below(5);
                let grains = &mut marks[which][start..end];
                let some_are_new = grains.contains(&false);
                grains.fill(true);
                let span = [start, end].map(|grain| u64::try_from(grain).unwrap());
                let new = pool.merge(&mut unions[which], (span[0], span[1])).unwrap();
                assert_eq!(new, some_are_new);
            }
            for (union, marks) in unions.iter().zip(&marks) {
                let list = pool.list(union);
                assert!(list.windows(2).all(|pair| pair[0].1 < pair[1].0), "{list:?}");
                for (grain, &mark) in (0_u64..).zip(marks) {
                    let there = list.iter().any(|&(start, end)| start <= grain && grain < end);
                    assert_eq!(there, mark);
                }
            }
        }
    }
}
