//! Steps, live ranges and alignments: the units that everything is counted in.

use core::fmt;

use crate::base::{Error, Result};

/// The most bytes that any buffer, and any arena, can have: `i64::MAX`.
///
/// Rust allocations are at most `isize::MAX` bytes, and two sizes up to this limit
/// add without wrapping around in a `u64`.
pub const MAX_BYTES: u64 = i64::MAX.unsigned_abs();

/// A number that is shown with a comma between each three digits, as in `36,864`.
#[derive(Clone, Copy, Debug)]
pub struct Grouped(pub u128);

impl fmt::Display for Grouped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut divisor = 1;
        while self.0 / divisor >= 1000 {
            divisor *= 1000;
        }
        write!(f, "{}", self.0 / divisor)?;
        while divisor > 1 {
            divisor /= 1000;
            write!(f, ",{:03}", self.0 / divisor % 1000)?;
        }
        Ok(())
    }
}

/// A point in the execution order: step *k* is the *k*-th node to run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Step(u32);

impl Step {
    /// Returns step number `step`.
    #[must_use]
    pub const fn new(step: u32) -> Self {
        Self(step)
    }

    /// Returns the step's number.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }

    /// Returns the step as a position in the order.
    #[must_use]
    #[allow(clippy::as_conversions, reason = "pointers have at least 32 bits")]
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// Returns the step at position `index` of the order.
    ///
    /// # Panics
    ///
    /// If `index` does not fit 32 bits; graphs have at most 2^32 - 2 nodes.
    #[must_use]
    pub fn at(index: usize) -> Self {
        Self(u32::try_from(index).expect("graphs have fewer than 2^32 nodes"))
    }

    /// Returns the next step.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A half-open, non-empty step range `[start, end)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LiveRange {
    start: Step,
    end: Step,
}

impl LiveRange {
    /// Returns the range from `start` up to, and without, `end`.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidLiveRange`] if the range is empty.
    ///
    /// ```
    /// use arenaplan_pack::base::LiveRange;
    /// assert!(LiveRange::new(2, 5)?.overlaps(LiveRange::new(4, 6)?));
    /// assert!(!LiveRange::new(2, 5)?.overlaps(LiveRange::new(5, 6)?)); // half-open
    /// # Ok::<(), arenaplan_pack::Error>(())
    /// ```
    pub fn new(start: u32, end: u32) -> Result<Self> {
        if start < end {
            Ok(Self { start: Step(start), end: Step(end) })
        } else {
            Err(Error::InvalidLiveRange { what: "a buffer".into(), start, end })
        }
    }

    /// Returns the range that holds `step` alone.
    #[must_use]
    pub const fn single(step: Step) -> Self {
        Self { start: step, end: step.next() }
    }

    /// Returns the first step.
    #[must_use]
    pub const fn start(self) -> Step {
        self.start
    }

    /// Returns the step after the last step.
    #[must_use]
    pub const fn end(self) -> Step {
        self.end
    }

    /// Returns whether the two ranges have a step in common.
    #[must_use]
    pub fn overlaps(self, other: Self) -> bool {
        self.start < other.end && other.start < self.end
    }

    /// Returns the smallest range that covers both.
    #[must_use]
    pub fn hull(self, other: Self) -> Self {
        Self { start: self.start.min(other.start), end: self.end.max(other.end) }
    }
}

impl fmt::Display for LiveRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}..{}", self.start, self.end)
    }
}

/// A power of two, in bytes, that divides an offset.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Alignment(u8);

impl Alignment {
    /// Any offset will do.
    pub const BYTE: Self = Self(0);

    /// Returns an alignment of `bytes`.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidAlignment`] unless `bytes` is a power of two up to 2^62.
    ///
    /// ```
    /// use arenaplan_pack::base::Alignment;
    /// assert_eq!(Alignment::new(64)?.round_up(100), Some(128));
    /// # Ok::<(), arenaplan_pack::Error>(())
    /// ```
    pub fn new(bytes: u64) -> Result<Self> {
        match u8::try_from(bytes.trailing_zeros()) {
            Ok(log2) if bytes.is_power_of_two() && log2 <= 62 => Ok(Self(log2)),
            _ => Err(Error::InvalidAlignment { what: "an offset".into(), bytes }),
        }
    }

    /// Returns the alignment in bytes.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        1 << self.0
    }

    /// Returns the smallest multiple of the alignment that is not below `offset`,
    /// or `None` if that exceeds [`MAX_BYTES`].
    #[must_use]
    pub fn round_up(self, offset: u64) -> Option<u64> {
        let mask = self.bytes() - 1;
        let rounded = offset.checked_add(mask)? & !mask;
        (rounded <= MAX_BYTES).then_some(rounded)
    }

    /// Returns whether `offset` is a multiple of the alignment.
    #[must_use]
    pub const fn divides(self, offset: u64) -> bool {
        offset & (self.bytes() - 1) == 0
    }
}

impl Default for Alignment {
    fn default() -> Self {
        Self::BYTE
    }
}

impl fmt::Debug for Alignment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Alignment({})", self.bytes())
    }
}

impl fmt::Display for Alignment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.bytes().fmt(f)
    }
}

/// Returns the greatest common divisor; of 0 and *n*, *n*.
pub const fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString as _;

    use super::Grouped;

    #[test]
    fn digits_are_grouped_by_three() {
        for (number, shown) in [
            (0, "0"),
            (999, "999"),
            (1000, "1,000"),
            (20_480, "20,480"),
            (1_000_007, "1,000,007"),
            (u128::MAX, "340,282,366,920,938,463,463,374,607,431,768,211,455"),
        ] {
            assert_eq!(Grouped(number).to_string(), shown);
        }
    }
}
