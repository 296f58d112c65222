//! The product of a few weight rows and a few columns, and the place for the results.

use std::hint::black_box;

use rten_simd::Isa;
use rten_simd::ops::{BitOps, NumOps};

use crate::conv_shape::Start;
use crate::order::bounded;
use crate::raw::{PlanesMut, load_part, load_vectors, store_part};
use crate::tile::{COLUMNS, FEW_ROWS, ROWS, is_wide};

/// Rows that are worked on at a time if fewer of a panel count.
const LEAST_ROWS: usize = 4;
/// Elements in a tile's vectors, and in one more vector.
const LANES: usize = 64;

/// A product's right operand.
pub(crate) trait Columns {
    /// Adds the product of `R` weight rows and `V` column vectors from `at` on to `sums`.
    ///
    /// `weights` has `P` numbers for each operand row, of which the first `R` count. Terms are
    /// added in order, one at a time, so that a sum does not depend on the place of its
    /// computation.
    fn multiply<I: Isa, const P: usize, const R: usize, const V: usize>(
        &self,
        isa: I,
        weights: &[[f32; P]],
        at: usize,
        sums: &mut [[I::F32; V]; R],
    );
}

/// Adds the products of `R` weights and `V` vectors in one row of the right operand.
#[inline(always)]
fn add_products<I: Isa, const P: usize, const R: usize, const V: usize>(
    isa: I,
    weights: &[f32; P],
    elements: &[f32],
    total: &mut [[I::F32; V]; R],
) {
    let ops = isa.f32();
    let vectors: [I::F32; V] = load_vectors(isa, &elements[..V * ops.len()]);
    for r in 0..R {
        let weight = ops.splat(weights[r]);
        for v in 0..V {
            total[r][v] = ops.mul_add(weight, vectors[v], total[r][v]);
        }
    }
}

/// A matrix with `N` columns.
pub(crate) struct Unrolled<'a, const N: usize = COLUMNS>(pub(crate) &'a [[f32; N]]);

impl<const N: usize> Columns for Unrolled<'_, N> {
    #[inline(always)]
    fn multiply<I: Isa, const P: usize, const R: usize, const V: usize>(
        &self,
        isa: I,
        weights: &[[f32; P]],
        at: usize,
        sums: &mut [[I::F32; V]; R],
    ) {
        let mut total = *sums;
        for (weights, columns) in weights.iter().zip(self.0) {
            add_products(isa, weights, &columns[at..], &mut total);
        }
        *sums = total;
    }
}

/// Image channels, in each of which the elements under a tap at successive positions lie side by
/// side. Rows of this operand are channels times taps.
pub(crate) struct Framed<'a> {
    pub(crate) elements: &'a [f32],
    /// Elements from one channel to the next.
    pub(crate) plane: usize,
    /// For each tap the element under the tap at position 0.
    pub(crate) taps: &'a [usize],
    /// Positions per result row.
    pub(crate) width: usize,
    /// Elements from a position to the position in the next result row.
    pub(crate) pitch: usize,
}

impl Columns for Framed<'_> {
    #[inline(always)]
    fn multiply<I: Isa, const P: usize, const R: usize, const V: usize>(
        &self,
        isa: I,
        weights: &[[f32; P]],
        at: usize,
        sums: &mut [[I::F32; V]; R],
    ) {
        let mut total = *sums;
        let mut first = at;
        for weights in weights.chunks_exact(self.taps.len()) {
            let elements = &self.elements[first..];
            for (weights, tap) in weights.iter().zip(self.taps) {
                add_products(isa, weights, &elements[*tap..], &mut total);
            }
            first += self.plane;
        }
        *sums = total;
    }
}

/// Successive lanes in a tile, with their destination.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Run {
    pub(crate) lane: usize,
    /// The first element in a result plane.
    pub(crate) at: usize,
    pub(crate) count: usize,
}

/// A pass in a sum's making.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pass {
    /// Whether nothing was added up yet.
    pub(crate) is_first: bool,
    /// Whether nothing will be added any more.
    pub(crate) is_last: bool,
}

/// The present result part.
pub(crate) struct Place<'r> {
    /// The first channel in the group.
    pub(crate) channel: usize,
    /// Channel count.
    pub(crate) made: usize,
    pub(crate) runs: &'r [Run],
    pub(crate) pass: Pass,
}

/// A group's result, and the treatment of its sums.
pub(crate) struct Made<'a, 'i, 'o> {
    pub(crate) n: usize,
    /// The group's first channel.
    pub(crate) first: usize,
    pub(crate) bias: Option<&'a [f32]>,
    pub(crate) start: Start<'i>,
    pub(crate) bounds: (f32, f32),
    pub(crate) output: &'a mut PlanesMut<'o>,
}

impl Made<'_, '_, '_> {
    /// Adds the products of one weight panel and some vectors.
    #[inline(always)]
    pub(crate) fn panel<I: Isa>(
        &mut self,
        isa: I,
        weights: &[f32],
        vectors: usize,
        columns: &impl Columns,
        at: usize,
        place: &Place<'_>,
    ) {
        let is_high = place.made > LEAST_ROWS;
        if is_wide(isa) {
            let weights = weights.as_chunks::<ROWS>().0;
            match (is_high, vectors) {
                (true, 3) => self.tile::<I, _, ROWS, 3>(isa, weights, columns, at, place),
                (true, 2) => self.tile::<I, _, ROWS, 2>(isa, weights, columns, at, place),
                (true, _) => self.tile::<I, _, ROWS, 1>(isa, weights, columns, at, place),
                (false, 3) => self.tile::<I, _, LEAST_ROWS, 3>(isa, weights, columns, at, place),
                (false, 2) => self.tile::<I, _, LEAST_ROWS, 2>(isa, weights, columns, at, place),
                (false, _) => self.tile::<I, _, LEAST_ROWS, 1>(isa, weights, columns, at, place),
            }
        } else {
            let weights = weights.as_chunks::<FEW_ROWS>().0;
            match (is_high, vectors) {
                (true, 2) => self.tile::<I, _, FEW_ROWS, 2>(isa, weights, columns, at, place),
                (true, _) => self.tile::<I, _, FEW_ROWS, 1>(isa, weights, columns, at, place),
                (false, 2) => self.tile::<I, _, LEAST_ROWS, 2>(isa, weights, columns, at, place),
                (false, _) => self.tile::<I, _, LEAST_ROWS, 1>(isa, weights, columns, at, place),
            }
        }
    }

    /// Adds the products of `R` weight rows and `V` column vectors.
    #[inline(always)]
    fn tile<I: Isa, const P: usize, const R: usize, const V: usize>(
        &mut self,
        isa: I,
        weights: &[[f32; P]],
        columns: &impl Columns,
        at: usize,
        place: &Place<'_>,
    ) {
        let ops = isa.f32();
        let first = self.first + place.channel;
        let made = R.min(place.made);
        let mut sums = [[ops.zero(); V]; R];
        let is_held = !place.pass.is_first || matches!(self.start, Start::Result);
        for (r, sums) in sums.iter_mut().enumerate().take(made) {
            if is_held {
                *sums = gather(isa, self.output.plane(self.n, first + r), place.runs);
            } else if let Start::Numbers(numbers) = self.start {
                *sums = gather(isa, numbers.plane(self.n, first + r), place.runs);
            }
        }
        self.add_bias(isa, first, made, place.pass, &mut sums);
        columns.multiply(isa, weights, at, &mut sums);
        self.bound(isa, place.pass, &mut sums);
        if let [run @ Run { lane: 0, .. }] = place.runs {
            for (r, sums) in sums.iter().enumerate().take(made) {
                let line = &mut self.output.plane(self.n, first + r)[run.at..run.at + run.count];
                for (v, sum) in sums.iter().enumerate() {
                    store_part(isa, *sum, &mut line[v * ops.len()..]);
                }
            }
            return;
        }
        let mut all = [[0.0; LANES]; R];
        for (sums, all) in sums.iter().zip(&mut all) {
            for (v, sum) in sums.iter().enumerate() {
                ops.store(*sum, &mut all[v * ops.len()..]);
            }
        }
        for (r, all) in all.iter().enumerate().take(made) {
            let made = self.output.plane(self.n, first + r);
            for run in place.runs {
                let line = &mut made[run.at..run.at + run.count];
                for at in (0..run.count).step_by(ops.len()) {
                    store_part(isa, ops.load(&all[run.lane + at..]), &mut line[at..]);
                }
            }
        }
    }
}

impl Made<'_, '_, '_> {
    /// Adds the products of `R` weight rows and `V` column vectors. All sums are results, side by
    /// side, so the compiler keeps the sums in registers.
    ///
    /// # Arguments
    ///
    /// * `channel`: the first channel in the group.
    /// * `at`: the first element in a result plane.
    #[inline(always)]
    pub(crate) fn whole<I: Isa, const P: usize, const R: usize, const V: usize>(
        &mut self,
        isa: I,
        weights: &[[f32; P]],
        columns: &impl Columns,
        channel: usize,
        at: usize,
        pass: Pass,
    ) {
        let ops = isa.f32();
        let (first, some) = (self.first + channel, at..at + V * ops.len());
        let mut sums = [[ops.zero(); V]; R];
        if !pass.is_first || matches!(self.start, Start::Result) {
            for (r, sums) in sums.iter_mut().enumerate() {
                *sums = load_vectors(isa, &self.output.plane(self.n, first + r)[some.clone()]);
            }
        } else if let Start::Numbers(numbers) = self.start {
            for (r, sums) in sums.iter_mut().enumerate() {
                *sums = load_vectors(isa, &numbers.plane(self.n, first + r)[some.clone()]);
            }
        }
        self.add_bias(isa, first, R, pass, &mut sums);
        columns.multiply(isa, weights, 0, &mut sums);
        self.bound(isa, pass, &mut sums);
        for (r, sums) in sums.iter().enumerate() {
            let line = &mut self.output.plane(self.n, first + r)[some.clone()];
            for (v, sum) in sums.iter().enumerate() {
                ops.store(*sum, &mut line[v * ops.len()..]);
            }
        }
    }

    /// Adds the bias of some channels in the first pass; rows without a bias get the last bias.
    #[inline(always)]
    fn add_bias<I: Isa, const R: usize, const V: usize>(
        &self,
        isa: I,
        first: usize,
        made: usize,
        pass: Pass,
        sums: &mut [[I::F32; V]; R],
    ) {
        let ops = isa.f32();
        if let Some(bias) = self.bias.filter(|_| pass.is_first) {
            let bias = &bias[first..first + made];
            for (r, sums) in sums.iter_mut().enumerate() {
                let bias = ops.splat(bias[r.min(made - 1)]);
                for sum in sums {
                    *sum = ops.add(*sum, bias);
                }
            }
        }
    }

    /// Bounds results in the last pass.
    #[inline(always)]
    fn bound<I: Isa, const R: usize, const V: usize>(
        &self,
        isa: I,
        pass: Pass,
        sums: &mut [[I::F32; V]; R],
    ) {
        let ops = isa.f32();
        if pass.is_last && self.bounds != (f32::NEG_INFINITY, f32::INFINITY) {
            // Vectors that stay in registers while sums are added up would be too many.
            let (low, high) = black_box(self.bounds);
            let (low, high) = (ops.splat(low), ops.splat(high));
            for sums in sums {
                for sum in sums {
                    *sum = bounded(isa, *sum, low, high);
                }
            }
        }
    }
}

/// Returns a plane's elements that some lanes stand for.
#[inline(always)]
fn gather<I: Isa, const V: usize>(isa: I, plane: &[f32], runs: &[Run]) -> [I::F32; V] {
    let ops = isa.f32();
    let mut all = [0.0; LANES];
    if let [run @ Run { lane: 0, .. }] = runs {
        let line = &plane[run.at..run.at + run.count];
        return load_vectors(isa, line);
    }
    for run in runs {
        let line = &plane[run.at..run.at + run.count];
        for at in (0..run.count).step_by(ops.len()) {
            ops.store(load_part(isa, &line[at..]), &mut all[run.lane + at..]);
        }
    }
    load_vectors(isa, &all)
}
