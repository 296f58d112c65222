//! Conversions between the integers that solvers count in.
#![allow(
    clippy::as_conversions,
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the one place that converts: each function says why it is right"
)]

/// Returns a 32-bit number as a position: pointers have at least 32 bits.
pub(crate) const fn index(number: u32) -> usize {
    number as usize
}

/// Returns a position as a number: models hold fewer than 2^32 buffers and sections.
pub(crate) const fn number(index: usize) -> u32 {
    debug_assert!(index <= u32::MAX as usize);
    index as u32
}

/// Returns a size or count for a heuristic, which tolerates rounding.
pub(crate) const fn real(size: u64) -> f64 {
    size as f64
}

/// Returns 32 bits that are ordered as sizes are, but for small differences.
pub(crate) const fn log_scale(size: u64) -> u64 {
    (size as f32).to_bits() as u64
}

/// Returns the quotient of two counts.
pub(crate) const fn fraction(part: usize, whole: usize) -> f64 {
    part as f64 / whole as f64
}

/// Returns the quotient of two areas.
pub(crate) const fn share(part: u128, whole: u128) -> f64 {
    part as f64 / whole as f64
}

/// Returns a positive real number without its fraction.
pub(crate) const fn whole(number: f64) -> u64 {
    number as u64
}

/// Returns a size or an offset as a signed number: both are at most 2^63 - 1.
pub(crate) const fn signed(size: u64) -> i64 {
    debug_assert!(size <= i64::MAX.unsigned_abs());
    size.cast_signed()
}

/// Returns a hash's low bits as a position.
pub(crate) const fn low_bits(hash: u64) -> usize {
    hash as usize
}

/// Returns the smallest multiple of `mask + 1`, a power of two, that is at least `offset`.
///
/// Offsets are at most 2^63, and so are alignments: the sum cannot wrap.
pub(crate) const fn align_up(offset: u64, mask: u64) -> u64 {
    (offset + mask) & !mask
}
