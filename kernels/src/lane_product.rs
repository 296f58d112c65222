//! Products of weight [lanes](crate::lanes) and image lanes, with 32-bit sums.

use rten_simd::ops::BitOps;
use rten_simd::{Isa, Simd};

use crate::lanes::Lane;
use crate::tile::{ROWS, is_wide};

/// A lane, whose bits are kept as an integer or in single precision.
pub(crate) trait Bits: Copy {
    /// Returns the bits.
    fn bits(self) -> i32;
}

impl Bits for i32 {
    #[inline(always)]
    fn bits(self) -> i32 {
        self
    }
}

impl Bits for f32 {
    #[inline(always)]
    fn bits(self) -> i32 {
        self.to_bits().cast_signed()
    }
}

/// The product's right operand: lane vectors.
pub(crate) trait LaneColumns {
    /// Calls a function with each weight row, and the elements to multiply, from a tile's first
    /// column on.
    fn each<W: Bits, const P: usize>(
        &self,
        weights: &[[W; P]],
        multiply: impl FnMut(&[W; P], &[f32]),
    );
}

/// Some unrolled columns.
pub(crate) struct UnrolledLanes<'a, const N: usize> {
    pub(crate) columns: &'a [[f32; N]],
    /// The tile's first column.
    pub(crate) at: usize,
}

impl<const N: usize> LaneColumns for UnrolledLanes<'_, N> {
    #[inline(always)]
    fn each<W: Bits, const P: usize>(
        &self,
        weights: &[[W; P]],
        mut multiply: impl FnMut(&[W; P], &[f32]),
    ) {
        for (weights, line) in weights.iter().zip(self.columns) {
            multiply(weights, &line[self.at..]);
        }
    }
}

/// Adds products to sums, which are the bits of integers: products of columns and rows of weight
/// lanes, in each of which the first `made` count.
#[inline(always)]
pub(crate) fn accumulate<I: Isa, L: Lane, W: Bits, const N: usize>(
    isa: I,
    lane: L,
    weights: &[[W; ROWS]],
    made: usize,
    columns: &[[f32; N]],
    sums: &mut [[f32; N]],
) {
    let width = isa.f32().len();
    let mut at = 0;
    while at < N {
        let vectors = (N - at) / width;
        let source = UnrolledLanes { columns, at };
        if is_wide(isa) {
            match vectors {
                0 | 1 => {
                    tile::<I, L, _, ROWS, ROWS, 1, N>(isa, lane, weights, 0, &source, at, sums);
                }
                2 => {
                    tile::<I, L, _, ROWS, ROWS, 2, N>(isa, lane, weights, 0, &source, at, sums);
                }
                _ => {
                    tile::<I, L, _, ROWS, ROWS, 3, N>(isa, lane, weights, 0, &source, at, sums);
                }
            }
            at += width * vectors.clamp(1, 3);
            continue;
        }
        for row in (0..made).step_by(ROWS / 2) {
            tile::<I, L, _, ROWS, { ROWS / 2 }, 2, N>(isa, lane, weights, row, &source, at, sums);
        }
        at += 2 * width;
    }
}

/// Adds the products of `R` weight rows, with `P` in each panel row, and `V` column vectors.
#[inline(always)]
pub(crate) fn tile<
    I: Isa,
    L: Lane,
    W: Bits,
    const P: usize,
    const R: usize,
    const V: usize,
    const N: usize,
>(
    isa: I,
    lane: L,
    weights: &[[W; P]],
    row: usize,
    columns: &impl LaneColumns,
    at: usize,
    sums: &mut [[f32; N]],
) {
    let (ops, bits) = (isa.i32(), isa.f32());
    let width = bits.len();
    let mut total = [[ops.zero(); V]; R];
    for (r, total) in total.iter_mut().enumerate() {
        for (v, total) in total.iter_mut().enumerate() {
            *total = bits.load(&sums[row + r][at + v * width..]).reinterpret_cast();
        }
    }
    columns.each(weights, |weights, elements| {
        let elements = &elements[..V * width];
        let mut vectors = [ops.zero(); V];
        for (v, vector) in vectors.iter_mut().enumerate() {
            *vector = bits.load(&elements[v * width..]).reinterpret_cast();
        }
        for (r, total) in total.iter_mut().enumerate() {
            let weight = ops.splat(weights[row + r].bits());
            for (total, vector) in total.iter_mut().zip(vectors) {
                *total = lane.add(isa, *total, weight, vector);
            }
        }
    });
    for (r, total) in total.iter().enumerate() {
        for (v, total) in total.iter().enumerate() {
            bits.store(total.reinterpret_cast(), &mut sums[row + r][at + v * width..]);
        }
    }
}
