//! Random numbers that are the same everywhere.

use super::arith::{low_bits, real};

/// A generator of 64-bit numbers (`SplitMix64`, Steele, Lea and Flood, OOPSLA 2014).
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    /// Returns the generator that starts with `seed`.
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns the next number.
    pub(crate) const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut number = self.0;
        number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        number ^ (number >> 31)
    }

    /// Returns a position below `count`, which is not 0.
    pub(crate) fn below(&mut self, count: usize) -> usize {
        low_bits(self.next() >> 16) % count
    }

    /// Returns a number from 0 up to, and without, 1.
    pub(crate) fn unit(&mut self) -> f64 {
        real(self.next() >> 11) / real(1 << 53)
    }
}

/// Returns a hash of two numbers: every input bit changes half of the hash's bits.
pub(crate) const fn mix(key: usize, value: u64) -> u64 {
    // Products with large odd numbers, folded; any such finisher suffices.
    #[allow(clippy::as_conversions, reason = "a position has at most 64 bits")]
    let key = key as u64;
    let mut hash = value
        .wrapping_add(0x9e37_79b9_7f4a_7c15)
        .wrapping_add(key.wrapping_mul(0xd6e8_feb8_6659_fd93));
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}
