//! The allowed offsets of an item.

use alloc::vec::Vec;
use core::ops::Range;

/// An offset past all others; sums of four such numbers do not wrap.
pub(crate) const FAR: i64 = i64::MAX / 8;

/// Multiples of a step between a least and a largest offset, without some ranges.
///
/// Rounding up or down to such an offset is monotone. So the least offsets that satisfy a set of
/// minimum distances are found by propagation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Domain {
    low: i64,
    high: i64,
    step: i64,
    /// Forbidden offset ranges, in order and without overlap.
    holes: Vec<Range<i64>>,
}

impl Domain {
    /// Returns the multiples of `step` from `low` to `high`, both inclusive.
    pub(crate) fn new(low: i64, high: i64, step: i64) -> Self {
        Self { low, high, step: step.max(1), holes: Vec::new() }
    }

    /// Removes the offsets in some ranges.
    pub(crate) fn without(mut self, mut holes: Vec<Range<i64>>) -> Self {
        holes.retain(|hole| hole.start < hole.end);
        holes.sort_unstable_by_key(|hole| hole.start);
        for hole in holes {
            match self.holes.last_mut() {
                Some(last) if hole.start <= last.end => last.end = last.end.max(hole.end),
                _ => self.holes.push(hole),
            }
        }
        self
    }

    /// Returns the least offset, which is larger than the largest offset if the domain is empty.
    pub(crate) fn least(&self) -> i64 {
        self.raise(self.low)
    }

    /// Returns the largest offset.
    pub(crate) fn largest(&self) -> i64 {
        self.lower(self.high)
    }

    /// Returns the number that divides all offsets.
    pub(crate) const fn step(&self) -> i64 {
        self.step
    }

    /// Returns the least allowed multiple of the step from `offset` on.
    pub(crate) fn raise(&self, offset: i64) -> i64 {
        let mut at = self.round_up(offset);
        let first = self.holes.partition_point(|hole| hole.end <= at);
        for hole in &self.holes[first..] {
            if at < hole.start {
                break;
            }
            if at < hole.end {
                at = self.round_up(hole.end);
            }
        }
        at
    }

    /// Returns the largest allowed multiple of the step up to `offset`.
    pub(crate) fn lower(&self, offset: i64) -> i64 {
        let mut at = self.round_down(offset);
        let last = self.holes.partition_point(|hole| hole.start <= at);
        for hole in self.holes[..last].iter().rev() {
            if at >= hole.end {
                break;
            }
            if at >= hole.start {
                at = self.round_down(hole.start - 1);
            }
        }
        at
    }

    fn round_up(&self, offset: i64) -> i64 {
        -self.round_down(-offset)
    }

    fn round_down(&self, offset: i64) -> i64 {
        offset.div_euclid(self.step) * self.step
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounding_is_that_of_the_list_of_offsets() {
        let domain = Domain::new(2, 40, 3).without(alloc::vec![10..14, 3..5, 12..17, 30..30]);
        let allowed: Vec<i64> = (-60..60)
            .filter(|at| at % 3 == 0 && !(10..17).contains(at) && !(3..5).contains(at))
            .collect();
        for at in -50..50 {
            assert_eq!(Some(&domain.raise(at)), allowed.iter().find(|&&it| it >= at), "{at}");
            assert_eq!(Some(&domain.lower(at)), allowed.iter().rfind(|&&it| it <= at), "{at}");
        }
        assert_eq!((domain.least(), domain.largest()), (6, 39));
    }
}
