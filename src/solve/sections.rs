//! Time compression: only the moments at which most is live matter.
//!
//! Two live ranges meet if and only if they meet in a *section*, a moment at which
//! a death follows a birth: the maximal cliques of an interval graph. So solvers
//! count time in sections, of which there are never more than buffers.

use std::ops::Range;

use super::arith::index;
use super::memory::{filled, with_capacity};
use crate::error::Result;

/// What happens at a moment, as bits.
const BIRTH: u8 = 1;
const DEATH: u8 = 2;

/// Translates moments into sections.
#[derive(Debug)]
pub(super) struct Sections {
    /// The moments at which something happens, in order, if those are few of all moments.
    times: Option<Vec<u32>>,
    /// The section that is open after the deaths of each of these, or of all, moments.
    open: Vec<u32>,
    count: u32,
}

impl Sections {
    /// Returns the sections of `lives`, so many live ranges.
    ///
    /// Ranges meet after the translation exactly if they met before. Takes
    /// `O(n log n)`, or `O(n)` if the times are about as dense as the ranges.
    pub(super) fn of(
        lives: impl Iterator<Item = Range<u32>> + Clone,
        ranges: usize,
    ) -> Result<Self> {
        let latest = lives.clone().map(|live| live.end).max().unwrap_or(0);
        if index(latest) <= 4 * ranges + 1024 {
            let mut moments = filled(0, index(latest) + 1, "moments")?;
            for live in lives {
                moments[index(live.start)] |= BIRTH;
                moments[index(live.end)] |= DEATH;
            }
            return Self::counted(None, moments);
        }
        let mut events = with_capacity(2 * ranges, "moments")?;
        events.extend(lives.flat_map(|live| [(live.start, BIRTH), (live.end, DEATH)]));
        events.sort_unstable();
        events.dedup();
        let mut times = with_capacity(events.len(), "moments")?;
        let mut moments = with_capacity(events.len(), "moments")?;
        for events in events.chunk_by(|one, other| one.0 == other.0) {
            times.push(events[0].0);
            moments.push(events.iter().fold(0, |all, (_, what)| all | what));
        }
        Self::counted(Some(times), moments)
    }

    /// Returns the sections, given what happens at each moment.
    fn counted(times: Option<Vec<u32>>, moments: Vec<u8>) -> Result<Self> {
        let mut open = with_capacity(moments.len(), "moments")?;
        let mut count = 0;
        let mut born = false;
        for what in moments {
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
    pub(super) const fn count(&self) -> usize {
        index(self.count)
    }

    /// Returns the sections of one of the live ranges, or of the hull of several.
    pub(super) fn span(&self, live: &Range<u32>) -> Range<u32> {
        let moment = |time| match &self.times {
            None => index(time),
            Some(times) => times.partition_point(|&other| other < time),
        };
        self.open[moment(live.start)]..self.open[moment(live.end)]
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;

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
        let mut state = 7_u64;
        let mut below = |limit: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            u32::try_from((state >> 33) % limit).unwrap()
        };
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
