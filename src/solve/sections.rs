//! Time compression: only the moments at which most is live matter.
//!
//! Two live ranges meet if and only if they meet in a *section*, a moment at which
//! a death follows a birth: the maximal cliques of an interval graph. So solvers
//! count time in sections, of which there are never more than buffers.

use std::ops::Range;

use super::arith::{index, number};
use super::memory::{filled, with_capacity};
use crate::error::Result;

/// Returns every range of `lives` as a range of sections, and the number of sections.
///
/// Ranges meet after the translation exactly if they met before. Takes
/// `O(n log n)`, or `O(n)` if the times are about as dense as the ranges.
pub(super) fn compress(lives: &[Range<u32>]) -> Result<(Vec<Range<u32>>, usize)> {
    let mut sections = with_capacity(lives.len(), "live ranges")?;
    let latest = lives.iter().map(|live| live.end).max().unwrap_or(0);
    if index(latest) <= 4 * lives.len() + 1024 {
        let count = compress_dense(lives, latest, &mut sections)?;
        return Ok((sections, count));
    }
    let mut times = with_capacity(2 * lives.len(), "live ranges")?;
    times.extend(lives.iter().flat_map(|live| [live.start, live.end]));
    times.sort_unstable();
    times.dedup();
    let rank = |time: u32| number(times.partition_point(|&other| other < time));
    let mut ranks = with_capacity(lives.len(), "live ranges")?;
    ranks.extend(lives.iter().map(|live| rank(live.start)..rank(live.end)));
    let count = compress_dense(&ranks, number(times.len()), &mut sections)?;
    Ok((sections, count))
}

/// As [`compress`], with one table entry per moment up to `latest`.
fn compress_dense(
    lives: &[Range<u32>],
    latest: u32,
    sections: &mut Vec<Range<u32>>,
) -> Result<usize> {
    let moments = index(latest) + 1;
    let mut born = filled(false, moments, "moments")?;
    let mut dies = filled(false, moments, "moments")?;
    for live in lives {
        born[index(live.start)] = true;
        dies[index(live.end)] = true;
    }
    // `section[t]` is the section that is open after the deaths at moment t.
    let mut section = filled(0_u32, moments, "moments")?;
    let mut count = 0;
    let mut open = false;
    for moment in 0..moments {
        if dies[moment] && open {
            count += 1;
            open = false;
        }
        section[moment] = count;
        open |= born[moment];
    }
    sections.extend(lives.iter().map(|live| section[index(live.start)]..section[index(live.end)]));
    Ok(index(count))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;

    #[test]
    fn only_deaths_after_births_close_a_section() {
        let (sections, count) = compress(&[0..5, 1..2, 3..9, 5..7, 100..200]).unwrap();
        assert_eq!(sections, [0..2, 0..1, 1..3, 2..3, 3..4]);
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
            let (sections, count) = compress(&lives).unwrap();
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
