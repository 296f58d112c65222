//! Numbers for tests that compare a structure with a table.

/// Returns a deterministic source of numbers below a limit.
pub(super) fn numbers() -> impl FnMut(u64) -> u64 {
    let mut state = 7_u64;
    move |limit| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) % limit
    }
}
