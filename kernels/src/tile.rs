//! Tiles: the weight rows and the columns that registers have room for.

use rten_simd::ops::BitOps;
use rten_simd::{Isa, SimdOp};

/// Window positions that are unrolled at a time: three AVX-512 vectors, six AVX2 vectors.
pub const COLUMNS: usize = 48;
/// Elements per vector in cycle counts.
pub(crate) const LANES: usize = 16;
/// Column vectors at a time: with eight rows, the sums take 24 of 32 registers.
pub(crate) const VECTORS: usize = 3;
/// The same where there are 16 registers: with six rows, the sums, the vectors and a weight take 15.
pub(crate) const FEW_VECTORS: usize = 2;
/// Weight rows per panel if there are 32 registers.
pub(crate) const ROWS: usize = 8;
/// The same where there are 16.
pub(crate) const FEW_ROWS: usize = 6;
/// Most columns in a tile: [`FEW_VECTORS`] vectors with eight elements.
pub(crate) const COPIED_COLUMNS: usize = FEW_VECTORS * 8;
/// Operand rows that are copied at a time: half a first-level cache with 32 KiB.
pub(crate) const COPIED_ROWS: usize = 256;
/// Weights that are multiplied by all columns in turn: three quarters of a second-level cache with
/// 512 KiB.
pub(crate) const COPIED_WEIGHTS: usize = 3 << 15;

/// Whether there are 32 registers.
#[inline(always)]
pub(crate) fn is_wide<I: Isa>(isa: I) -> bool {
    isa.f32().len() >= 16 || cfg!(target_arch = "aarch64")
}

/// Returns the weight rows per panel on this processor.
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

/// Returns the number of column vectors for the next tile, if so many columns are left.
#[inline(always)]
pub(crate) fn tile_vectors<I: Isa>(isa: I, columns: usize) -> usize {
    let left = columns.div_ceil(isa.f32().len());
    if is_wide(isa) { next_vectors(left) } else { left.min(FEW_VECTORS) }
}

/// Returns the number of column vectors for the next tile, if so many vectors are left, on a
/// processor with 32 registers.
///
/// A single vector keeps a processor waiting for sums, so four are two times two.
#[inline(always)]
pub(crate) fn next_vectors(left: usize) -> usize {
    if left == VECTORS + 1 { 2 } else { left.min(VECTORS) }
}
