//! Tiles: the rows of weights and the columns that registers have room for.

use rten_simd::ops::BitOps;
use rten_simd::{Isa, SimdOp};

/// Positions of the window that are unrolled at a time: three vectors of AVX-512, six of AVX2.
pub const COLUMNS: usize = 48;
/// Elements of a vector that cycles are counted for.
pub(crate) const LANES: usize = 16;
/// Vectors of columns that are worked on at a time: with eight rows, their sums take 24 registers of
/// 32.
pub(crate) const VECTORS: usize = 3;
/// The same where there are 16 registers: with six rows, the sums, the vectors and a weight take 15.
pub(crate) const FEW_VECTORS: usize = 2;
/// Rows of weights in one panel where there are 32 registers.
pub(crate) const ROWS: usize = 8;
/// The same where there are 16.
pub(crate) const FEW_ROWS: usize = 6;
/// Columns of a tile, at most: [`FEW_VECTORS`] vectors of eight elements.
pub(crate) const COPIED_COLUMNS: usize = FEW_VECTORS * 8;
/// Rows of the operand that are copied at a time: half of a first-level cache of 32 KiB.
pub(crate) const COPIED_ROWS: usize = 256;
/// Weights that are multiplied by all columns in turn: three quarters of a second-level cache of
/// 512 KiB.
pub(crate) const COPIED_WEIGHTS: usize = 3 << 15;

/// Whether there are 32 registers.
#[inline(always)]
pub(crate) fn is_wide<I: Isa>(isa: I) -> bool {
    isa.f32().len() >= 16 || cfg!(target_arch = "aarch64")
}

/// Returns the rows of weights in one panel on this processor.
pub(crate) fn panel_rows() -> usize {
    struct Rows;

    impl SimdOp for Rows {
        type Output = usize;

        #[inline(always)]
        fn eval<I: Isa>(self, isa: I) -> usize {
            if is_wide(isa) { ROWS } else { FEW_ROWS }
        }
    }

    Rows.dispatch()
}

/// Returns how many vectors of columns are worked on at a time, of some columns that are left.
#[inline(always)]
pub(crate) fn tile_vectors<I: Isa>(isa: I, columns: usize) -> usize {
    let left = columns.div_ceil(isa.f32().len());
    if is_wide(isa) { next_vectors(left) } else { left.min(FEW_VECTORS) }
}

/// Returns how many vectors of columns are worked on at a time, of some that are left, by a processor
/// with 32 registers.
///
/// A single vector keeps a processor waiting for sums, so four are two times two.
#[inline(always)]
pub(crate) fn next_vectors(left: usize) -> usize {
    if left == VECTORS + 1 { 2 } else { left.min(VECTORS) }
}
