//! Finds two rectangles of bytes × steps that meet, if any do.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::base::{LiveRange, Step};

/// A rectangle: bytes that one owner holds during some steps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held {
    /// First byte.
    pub(crate) start: u64,
    /// Byte after the last byte; a rectangle without bytes meets nothing.
    pub(crate) end: u64,
    /// When the bytes are held.
    pub(crate) live: LiveRange,
    /// The owner's number.
    pub(crate) owner: usize,
}

/// Two owners with a common byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Overlap {
    /// The owner that holds the byte first.
    pub(crate) first: usize,
    /// The owner that holds the byte second; equal to `first` if an owner holds a byte twice.
    pub(crate) second: usize,
    /// A step at which both hold the byte.
    pub(crate) step: Step,
    /// The lowest byte that both hold.
    pub(crate) byte: u64,
}

/// Returns the earliest meeting of two rectangles, if any meet.
///
/// Sweeps over time with the bytes held at the current step in a search tree:
/// `O(n log n)` for `n` rectangles of any size.
pub(crate) fn first_overlap(rectangles: impl Iterator<Item = Held>) -> Option<Overlap> {
    let mut held: Vec<Held> = rectangles.filter(|held| held.start < held.end).collect();
    held.sort_unstable_by_key(|held| (held.live.start(), held.owner));
    let mut deaths: Vec<_> = held.iter().map(|held| (held.live.end(), held.start)).collect();
    deaths.sort_unstable();
    let mut dying = deaths.into_iter().peekable();
    let mut now: BTreeMap<u64, (u64, usize)> = BTreeMap::new();
    for born in held {
        while let Some((_, dead)) = dying.next_if(|&(end, _)| end <= born.live.start()) {
            now.remove(&dead);
        }
        // Rectangles held now are disjoint. So only the last rectangle that starts below the
        // newcomer's end can reach into the newcomer from below.
        if let Some((&start, &(end, owner))) = now.range(..born.end).next_back()
            && end > born.start
        {
            let (step, byte) = (born.live.start(), start.max(born.start));
            return Some(Overlap { first: owner, second: born.owner, step, byte });
        }
        now.insert(born.start, (born.end, born.owner));
    }
    None
}

/// Returns a meeting of two rectangles whose owners are not permitted to meet.
///
/// Compares each rectangle with the rectangles held at its first step: `O(n log n + p)` for `p`
/// pairs held at the same time.
pub(crate) fn overlap_beyond(
    rectangles: impl Iterator<Item = Held>,
    permits: impl Fn(usize, usize) -> bool,
) -> Option<Overlap> {
    let mut held: Vec<Held> = rectangles.filter(|held| held.start < held.end).collect();
    held.sort_unstable_by_key(|held| (held.live.start(), held.owner));
    let mut now: Vec<Held> = Vec::new();
    for born in held {
        now.retain(|other| other.live.end() > born.live.start());
        for other in &now {
            let byte = other.start.max(born.start);
            if byte < other.end.min(born.end) && !permits(other.owner, born.owner) {
                let step = born.live.start();
                return Some(Overlap { first: other.owner, second: born.owner, step, byte });
            }
        }
        now.push(born);
    }
    None
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;

    fn held(owner: usize, bytes: (u64, u64), steps: (u32, u32)) -> Held {
        let live = LiveRange::new(steps.0, steps.1).unwrap();
        Held { start: bytes.0, end: bytes.1, live, owner }
    }

    #[test]
    fn rectangles_that_only_touch_do_not_meet() {
        let apart = [held(0, (0, 4), (0, 2)), held(1, (4, 8), (0, 2)), held(2, (0, 8), (2, 3))];
        assert_eq!(first_overlap(apart.into_iter()), None);
    }

    #[test]
    fn the_first_common_byte_and_step_are_named() {
        let meeting = [held(0, (0, 4), (0, 9)), held(1, (3, 8), (5, 6))];
        let expected = Overlap { first: 0, second: 1, step: Step::new(5), byte: 3 };
        assert_eq!(first_overlap(meeting.into_iter()), Some(expected));
    }

    #[test]
    fn a_rectangle_without_bytes_meets_nothing() {
        let empty = [held(0, (0, 4), (0, 9)), held(1, (2, 2), (5, 6))];
        assert_eq!(first_overlap(empty.into_iter()), None);
    }

    /// Against the definition, on every placement of three rectangles in a small grid.
    #[test]
    fn agrees_with_comparing_all_pairs() {
        let mut state = 1_u64;
        let mut below = |limit: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % limit
        };
        for _ in 0..20_000 {
            let some: Vec<_> = (0..4)
                .map(|owner| {
                    let (start, from) = (below(6), u32::try_from(below(6)).unwrap());
                    let steps = (from, from + 1 + u32::try_from(below(3)).unwrap());
                    held(owner, (start, start + below(4)), steps)
                })
                .collect();
            let meet = |a: &Held, b: &Held| {
                a.start.max(b.start) < a.end.min(b.end) && a.live.overlaps(b.live)
            };
            let expected =
                some.iter().any(|a| some.iter().any(|b| a.owner < b.owner && meet(a, b)));
            assert_eq!(first_overlap(some.iter().copied()).is_some(), expected, "{some:?}");
            let all = overlap_beyond(some.iter().copied(), |_, _| false);
            assert_eq!(all.is_some(), expected, "{some:?}");
            let permits = |one: usize, other: usize| one + other == 3;
            let expected = some.iter().any(|a| {
                some.iter().any(|b| a.owner < b.owner && meet(a, b) && !permits(a.owner, b.owner))
            });
            assert_eq!(overlap_beyond(some.iter().copied(), permits).is_some(), expected);
        }
    }
}
