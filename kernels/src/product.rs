//! The product of a few rows of weights and a few columns.

use rten_simd::Isa;
use rten_simd::ops::{BitOps, NumOps};

use crate::conv::{COLUMNS, ROWS};

/// Vectors of columns that are worked on at a time: with eight rows, their sums take 24 registers of
/// 32; with four, 12 of 16.
pub(crate) const VECTORS: usize = 3;

/// Adds the product of `R` rows and `V` vectors of columns to `sums`.
///
/// `weights` has [`ROWS`] numbers for each row of `columns`, of which `R` from `row` on count;
/// `columns` has [`COLUMNS`] per row, of which `V` vectors from `at` on count. Terms are added in
/// order, one at a time, so that a sum does not depend on where it is made.
#[inline(always)]
pub(crate) fn multiply<I: Isa, const R: usize, const V: usize>(
    isa: I,
    weights: &[f32],
    row: usize,
    columns: &[f32],
    at: usize,
    sums: &mut [[I::F32; V]; R],
) {
    let ops = isa.f32();
    let mut total = *sums;
    let weights = weights.as_chunks::<ROWS>().0;
    let columns = columns.as_chunks::<COLUMNS>().0;
    for (weights, columns) in weights.iter().zip(columns) {
        let vectors: [I::F32; V] = ops.load_many(&columns[at..]);
        for r in 0..R {
            let weight = ops.splat(weights[row + r]);
            for v in 0..V {
                total[r][v] = ops.mul_add(weight, vectors[v], total[r][v]);
            }
        }
    }
    *sums = total;
}
