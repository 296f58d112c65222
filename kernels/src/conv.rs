//! Convolution as a matrix product whose right operand is made a few columns at a time.
//!
//! The columns of the unrolled image (im2col) are written to scratch memory for
//! [`COLUMNS`] positions and some rows at once, and multiplied from there while they are in cache.

use rten_simd::ops::{BitOps, NumOps};
use rten_simd::{Isa, SimdOp};

use crate::error::{Error, Result, check, check_at_least};
use crate::pack::{Segments, Sliding, pack};
use crate::product::{VECTORS, multiply};
use crate::raw::{Planes, PlanesMut};

/// Rows of weights in one panel.
pub const ROWS: usize = 8;
/// Positions of the window that are unrolled at a time: three vectors of AVX-512, six of AVX2.
pub const COLUMNS: usize = 48;
/// Rows of the unrolled image that are unrolled at a time, at most.
const DEPTH: usize = 384;
/// Weights that stay in a second-level cache while all positions are worked on.
const CACHED: usize = 1 << 18;

/// Returns the number of elements of [`packed_weights`].
pub fn packed_weights_len(groups: usize, fan_out: usize, depth: usize) -> usize {
    groups * fan_out.div_ceil(ROWS) * ROWS * depth
}

/// Writes weights in the order in which they are read: per group panels of [`ROWS`] outputs, in each
/// one row per element of a window. Outputs that fill up a panel are zero.
///
/// # Errors
///
/// [`Error::WrongSize`] if an operand is of another size.
pub fn packed_weights(
    weights: &[f32],
    groups: usize,
    fan_out: usize,
    depth: usize,
    target: &mut [f32],
) -> Result<()> {
    check("the weights", weights.len(), groups * fan_out * depth)?;
    check("the packed weights", target.len(), packed_weights_len(groups, fan_out, depth))?;
    if depth == 0 || fan_out == 0 {
        return Ok(());
    }
    let panels = fan_out.div_ceil(ROWS);
    for (group, weights) in weights.chunks_exact(fan_out * depth).enumerate() {
        for (panel, rows) in weights.chunks(ROWS * depth).enumerate() {
            let start = (group * panels + panel) * ROWS * depth;
            let target = &mut target[start..start + ROWS * depth];
            target.fill(0.0);
            for (row, weights) in rows.chunks_exact(depth).enumerate() {
                for (at, weight) in weights.iter().enumerate() {
                    target[at * ROWS + row] = *weight;
                }
            }
        }
    }
    Ok(())
}

/// The sizes of a convolution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conv {
    window: Sliding,
    groups: usize,
    fan_in: usize,
    fan_out: usize,
}

impl Conv {
    /// Returns a convolution of `groups` groups, each from `fan_in` channels to `fan_out`.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfRange`] if a size is zero, or a product of sizes overflows.
    pub fn new(window: Sliding, groups: usize, fan_in: usize, fan_out: usize) -> Result<Self> {
        let weights = [groups, fan_in, fan_out.next_multiple_of(ROWS), window.taps()]
            .iter()
            .try_fold(1_usize, |product, &size| product.checked_mul(size));
        if weights.is_none_or(|weights| weights == 0) {
            return Err(Error::OutOfRange { what: "the number of weights" });
        }
        Ok(Self { window, groups, fan_in, fan_out })
    }

    /// Returns the number of rows of the unrolled image of one group.
    pub fn depth(&self) -> usize {
        self.fan_in * self.window.taps()
    }

    /// Returns the elements of scratch memory with which a run is fastest. With fewer, at least
    /// [`COLUMNS`], it unrolls fewer rows at a time; the result has the same bits.
    pub fn scratch_len(&self) -> usize {
        COLUMNS * self.depth().div_ceil(self.depth().div_ceil(DEPTH))
    }

    /// Computes the convolution.
    ///
    /// # Arguments
    ///
    /// * `weights`: those of [`packed_weights`].
    /// * `bias`: one number per channel of the result.
    /// * `bounds`: results below the first or above the second become that number.
    /// * `scratch`: see [`Conv::scratch_len`].
    ///
    /// # Errors
    ///
    /// [`Error::WrongSize`] if an operand is of another size.
    pub fn run(
        &self,
        image: &Planes<'_>,
        weights: &[f32],
        bias: Option<&[f32]>,
        bounds: (f32, f32),
        output: &mut PlanesMut<'_>,
        scratch: &mut [f32],
    ) -> Result<()> {
        let [images, channels] = image.counts();
        let made = self.groups * self.fan_out;
        let packed = packed_weights_len(self.groups, self.fan_out, self.depth());
        check("the image's channels", channels, self.groups * self.fan_in)?;
        check("a plane of the image", image.size(), self.window.plane())?;
        check("the batch of the result", output.counts()[0], images)?;
        check("the result's channels", output.counts()[1], made)?;
        check("a plane of the result", output.size(), self.window.positions())?;
        check("the weights", weights.len(), packed)?;
        if let Some(bias) = bias {
            check("the bias", bias.len(), made)?;
        }
        check_at_least("the scratch memory", scratch.len(), COLUMNS)?;
        let rows = scratch.len() / COLUMNS;
        let scratch = &mut scratch[..rows.min(self.depth()) * COLUMNS];
        for n in 0..images {
            for (group, weights) in weights.chunks_exact(packed / self.groups).enumerate() {
                Product { conv: self, image, n, group, weights, bias, bounds, output, scratch }
                    .dispatch();
            }
        }
        Ok(())
    }
}

/// The product of the weights of a group and its unrolled image.
struct Product<'a, 'i, 'o> {
    conv: &'a Conv,
    image: &'a Planes<'i>,
    n: usize,
    group: usize,
    weights: &'a [f32],
    bias: Option<&'a [f32]>,
    bounds: (f32, f32),
    output: &'a mut PlanesMut<'o>,
    scratch: &'a mut [f32],
}

impl SimdOp for Product<'_, '_, '_> {
    type Output = ();

    #[inline(always)]
    fn eval<I: Isa>(mut self, isa: I) {
        let (depth, positions) = (self.conv.depth(), self.conv.window.positions());
        let block = self.scratch.len() / COLUMNS;
        if self.weights.len() <= CACHED {
            for start in (0..positions).step_by(COLUMNS) {
                for first in (0..depth).step_by(block) {
                    self.block(isa, start, first, block.min(depth - first));
                }
            }
        } else {
            for first in (0..depth).step_by(block) {
                for start in (0..positions).step_by(COLUMNS) {
                    self.block(isa, start, first, block.min(depth - first));
                }
            }
        }
    }
}

impl Product<'_, '_, '_> {
    /// Adds the products of some rows of the unrolled image to the results at some positions.
    #[inline(always)]
    fn block<I: Isa>(&mut self, isa: I, start: usize, first: usize, rows: usize) {
        let conv = self.conv;
        let len = COLUMNS.min(conv.window.positions() - start);
        let channels = Channels { image: self.image, n: self.n, first: self.group * conv.fan_in };
        let target = &mut self.scratch[..rows * COLUMNS];
        if conv.window.is_identity() {
            copy_columns(isa, start, len, first, &channels, target);
        } else {
            let segments = Segments::new(&conv.window, start, len);
            pack(isa, &conv.window, &segments, first, &channels, target);
        }
        let depth = conv.depth();
        for (panel, weights) in self.weights.chunks_exact(ROWS * depth).enumerate() {
            let weights = &weights[first * ROWS..(first + rows) * ROWS];
            let part = Place {
                channel: panel * ROWS,
                start,
                len,
                is_first: first == 0,
                is_last: first + rows == depth,
            };
            self.panel(isa, weights, rows, &part);
        }
    }

    /// Adds the products of one panel of weights.
    #[inline(always)]
    fn panel<I: Isa>(&mut self, isa: I, weights: &[f32], rows: usize, place: &Place) {
        let width = isa.f32().len();
        let made = ROWS.min(self.conv.fan_out - place.channel);
        // Sums of eight rows take more registers than AVX2 has.
        let step = if width >= 16 || cfg!(target_arch = "aarch64") { ROWS } else { ROWS / 2 };
        let step = if made <= ROWS / 2 { ROWS / 2 } else { step };
        for row in (0..made).step_by(step) {
            for at in (0..place.len).step_by(VECTORS * width) {
                let vectors = (place.len - at).div_ceil(width).min(VECTORS);
                match (step, vectors) {
                    (ROWS, 3) => self.tile::<I, ROWS, 3>(isa, weights, rows, place, row, at),
                    (ROWS, 2) => self.tile::<I, ROWS, 2>(isa, weights, rows, place, row, at),
                    (ROWS, _) => self.tile::<I, ROWS, 1>(isa, weights, rows, place, row, at),
                    (_, 3) => self.tile::<I, 4, 3>(isa, weights, rows, place, row, at),
                    (_, 2) => self.tile::<I, 4, 2>(isa, weights, rows, place, row, at),
                    (_, _) => self.tile::<I, 4, 1>(isa, weights, rows, place, row, at),
                }
            }
        }
    }

    /// Adds the products of `R` rows of weights and `V` vectors of columns.
    #[inline(always)]
    fn tile<I: Isa, const R: usize, const V: usize>(
        &mut self,
        isa: I,
        weights: &[f32],
        rows: usize,
        place: &Place,
        row: usize,
        at: usize,
    ) {
        let ops = isa.f32();
        let width = ops.len();
        let first = self.group * self.conv.fan_out + place.channel + row;
        let made = R.min(self.conv.fan_out - place.channel - row);
        let mut sums = [[ops.zero(); V]; R];
        if !place.is_first {
            for (r, sums) in sums.iter_mut().enumerate().take(made) {
                let line = self.line(place, first + r);
                for (v, sum) in sums.iter_mut().enumerate() {
                    *sum = ops.load_pad(&line[at + v * width..]).0;
                }
            }
        } else if let Some(bias) = self.bias {
            for (r, sums) in sums.iter_mut().enumerate().take(made) {
                *sums = [ops.splat(bias[first + r]); V];
            }
        }
        let columns = &self.scratch[..rows * COLUMNS];
        multiply(isa, weights, row, columns, at, &mut sums);
        if place.is_last && self.bounds != (f32::NEG_INFINITY, f32::INFINITY) {
            let (low, high) = (ops.splat(self.bounds.0), ops.splat(self.bounds.1));
            for sums in &mut sums {
                for sum in sums {
                    *sum = bounded(isa, *sum, low, high);
                }
            }
        }
        for (r, sums) in sums.iter().enumerate().take(made) {
            let line = self.line(place, first + r);
            for (v, sum) in sums.iter().enumerate() {
                store_part(isa, *sum, &mut line[at + v * width..]);
            }
        }
    }

    /// Returns the results of a channel at the positions of a place.
    #[inline(always)]
    fn line(&mut self, place: &Place, channel: usize) -> &mut [f32] {
        &mut self.output.plane(self.n, channel)[place.start..place.start + place.len]
    }
}

/// The channels of one group of an image.
pub(crate) struct Channels<'a, 'i> {
    image: &'a Planes<'i>,
    n: usize,
    first: usize,
}

impl<'i> Channels<'_, 'i> {
    /// Returns the elements of a channel of the group.
    #[inline(always)]
    pub(crate) fn plane(&self, channel: usize) -> &'i [f32] {
        self.image.plane(self.n, self.first + channel)
    }
}

/// The part of a result that is worked on.
struct Place {
    /// The first channel of the group.
    channel: usize,
    start: usize,
    len: usize,
    /// Whether nothing was added up yet.
    is_first: bool,
    /// Whether nothing will be added any more.
    is_last: bool,
}

/// Returns numbers within bounds. What is no number stays that: x86 returns the second operand of a
/// comparison then.
#[inline(always)]
pub(crate) fn bounded<I: Isa>(isa: I, x: I::F32, low: I::F32, high: I::F32) -> I::F32 {
    let ops = isa.f32();
    ops.min(high, ops.max(low, x))
}

/// Writes as many elements of a vector as a slice has.
#[inline(always)]
pub(crate) fn store_part<I: Isa>(isa: I, vector: I::F32, target: &mut [f32]) {
    let ops = isa.f32();
    if target.len() >= ops.len() {
        ops.store(vector, target);
    } else {
        let mut all = [0.0; 64];
        ops.store(vector, &mut all);
        target.copy_from_slice(&all[..target.len()]);
    }
}

/// Writes rows of the matrix where the window has one element, and the columns are the image.
#[inline(always)]
fn copy_columns<I: Isa>(
    isa: I,
    start: usize,
    len: usize,
    first: usize,
    channels: &Channels<'_, '_>,
    target: &mut [f32],
) {
    let ops = isa.f32();
    for (at, row) in target.as_chunks_mut::<COLUMNS>().0.iter_mut().enumerate() {
        let source = &channels.plane(first + at)[start..start + len];
        if len == COLUMNS && COLUMNS.is_multiple_of(ops.len()) {
            for v in (0..COLUMNS).step_by(ops.len()) {
                ops.store(ops.load(&source[v..]), &mut row[v..]);
            }
        } else {
            row[..len].copy_from_slice(source);
            row[len..].fill(0.0);
        }
    }
}
