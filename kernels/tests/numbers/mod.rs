//! Numbers for tests of kernels.

/// Returns numbers that look random, between -1 and 1.
pub(crate) fn numbers(count: usize, seed: u64) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    #[allow(clippy::cast_precision_loss, clippy::as_conversions, reason = "any numbers will do")]
    (0..count).map(|_| (next() % 2001) as f32 / 1000.0 - 1.0).collect()
}
