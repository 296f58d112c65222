//! Time compression: only the overlaps of live ranges matter.
//!
//! Two live ranges overlap if and only if they share a *section*, a maximal clique of the interval
//! graph: a moment at which a death follows a birth. Solvers count time in sections. There are
//! never more sections than buffers.
//!
//! # References
//!
//! Fulkerson and Gross, "Incidence matrices and interval graphs", Pacific Journal of Mathematics
//! 15, 1965: the maximal cliques of an interval graph are linearly ordered. `MiniMalloc` (ASPLOS
//! 2023) uses sections in the same way.

use alloc::vec::Vec;
use core::ops::Range;

use super::arith::index;
use super::memory::{filled, with_capacity};
use super::sort::sort_numbers;
use crate::base::Result;

/// Events of a moment, as bits.
const BIRTH: u8 = 1;
const DEATH: u8 = 2;

/// Translates moments into sections.
#[derive(Debug)]
pub(crate) struct Sections {
    /// The moments with events, if they are few among all moments.
    times: Option<Times>,
    /// The open section after the deaths at each of these, or all, moments.
    open: Vec<u32>,
    count: u32,
}

impl Sections {
    /// Returns the sections of the live ranges `lives`.
    ///
    /// Ranges meet after the translation exactly if they met before. Takes `O(n)`, except for times
    /// crowded in few places.
    pub(crate) fn of(
        lives: impl Iterator<Item = Range<u32>> + Clone,
        ranges: usize,
    ) -> Result<Self> {
        let latest = lives.clone().map(|live| live.end).max().unwrap_or(0);
        let mut times = None;
        let mut moments = index(latest) + 1;
        if moments > 4 * ranges + 1024 {
            let mut sorted = with_capacity(2 * ranges, "moments")?;
            sorted.extend(lives.clone().flat_map(|live| [live.start, live.end]));
            sort_numbers(&mut sorted)?;
            sorted.dedup();
            moments = sorted.len();
            times = Some(Times::new(sorted, latest)?);
        }
        let mut what = filled(0, moments, "moments")?;
        for live in lives {
            what[rank(times.as_ref(), live.start)] |= BIRTH;
            what[rank(times.as_ref(), live.end)] |= DEATH;
        }
        let mut open = with_capacity(moments, "moments")?;
        let mut count = 0;
        let mut born = false;
        for what in what {
            if what & DEATH != 0 && born {
                count += 1;
                born = false;
            }
            open.push(count);
            born |= what & BIRTH != 0;
        }
        Ok(Self { times, open, count })
    }

    /// Returns how many sections there are.
    pub(crate) const fn count(&self) -> usize {
        index(self.count)
    }

    /// Returns the sections of a live range, or of the hull of several.
    pub(crate) fn span(&self, live: &Range<u32>) -> Range<u32> {
        let open = |time| self.open[rank(self.times.as_ref(), time)];
        open(live.start)..open(live.end)
    }
}

/// Returns the position of a moment among `times`, or all moments.
fn rank(times: Option<&Times>, time: u32) -> usize {
    times.map_or(index(time), |times| times.rank(time))
}

/// Moments in ascending order, and an index to find a moment.
#[derive(Debug)]
struct Times {
    sorted: Vec<u32>,
    /// Moments that agree but for so many low bits are found together.
    shift: u32,
    /// The first moment of each index entry.
    first: Vec<u32>,
}

impl Times {
    fn new(sorted: Vec<u32>, latest: u32) -> Result<Self> {
        let mut shift = 0;
        while index(latest >> shift) >= sorted.len() {
            shift += 1;
        }
        let mut first = filled(0, index(latest >> shift) + 2, "moments")?;
        for time in &sorted {
            first[index(time >> shift) + 1] += 1;
        }
        for place in 1..first.len() {
            first[place] += first[place - 1];
        }
        Ok(Self { sorted, shift, first })
    }

    fn rank(&self, time: u32) -> usize {
        let place = index(time >> self.shift);
        let (first, end) = (index(self.first[place]), index(self.first[place + 1]));
        first + self.sorted[first..end].partition_point(|&other| other < time)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;
    use crate::solve::model::arith::number;
    use crate::solve::model::random::Random;

    /// Returns every range as sections, and how many sections there are.
    fn compress(lives: &[Range<u32>]) -> (Vec<Range<u32>>, usize) {
        let sections = Sections::of(lives.iter().cloned(), lives.len()).unwrap();
        (lives.iter().map(|live| sections.span(live)).collect(), sections.count())
    }

    #[test]
    fn only_deaths_after_births_close_a_section() {
        let (spans, count) = compress(&[0..5, 1..2, 3..9, 5..7, 100..200]);
        assert_eq!(spans, [0..2, 0..1, 1..3, 2..3, 3..4]);
        assert_eq!(count, 4);
    }

    #[test]
    fn ranges_meet_after_compression_exactly_if_they_met_before() {
        let mut random = Random::new(7);
        let mut below = |limit| number(random.below(limit));
        for round in 0..500 {
            let stretch = if round % 2 == 0 { 1 } else { 1_000_000 };
            let lives: Vec<_> = (0..12)
                .map(|_| {
                    let start = below(20);
                    start * stretch..(start + 1 + below(6)) * stretch
                })
                .collect();
            let (sections, count) = compress(&lives);
            let meet = |a: &Range<u32>, b: &Range<u32>| a.start < b.end && b.start < a.end;
            for (a, x) in lives.iter().zip(&sections) {
                assert!(x.start < x.end && index(x.end) <= count);
                for (b, y) in lives.iter().zip(&sections) {
                    assert_eq!(meet(a, b), meet(x, y), "{lives:?}");
                }
            }
        }
    }
}
