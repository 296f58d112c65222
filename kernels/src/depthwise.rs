//! Convolution of every channel by itself.

use std::array;

use rten_simd::ops::BitOps;
use rten_simd::{Isa, SimdOp};

use crate::error::{Error, Result, check, check_at_least};
use crate::order::bounded;
use crate::pack::{Sliding, every_second};
use crate::raw::{Axis, Planes, PlanesMut, add_products, add_row, load_part, store_part};
use crate::team::{Team, even, ranges};

/// Most result vectors in one row that are made at a time.
const VECTORS: usize = 2;
/// Result rows that are made at a time.
const ROWS: usize = 4;
/// The same if each row is a single vector, if there are so many rows; and for small planes.
const MANY_ROWS: usize = 7;
const SMALL_ROWS: usize = 3;
/// Elements behind each row of the padded plane, which the widest vector may reach.
const SLACK: usize = 16;

/// The sizes of a depthwise convolution, with one or more results per channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Depthwise {
    window: Sliding,
    channels: usize,
    fan_out: usize,
}

impl Depthwise {
    /// Returns a convolution from each of some channels to `fan_out` channels.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfRange`] if a size is zero, or a product of sizes overflows.
    pub fn new(window: Sliding, channels: usize, fan_out: usize) -> Result<Self> {
        let made = Self { window, channels, fan_out };
        let weights = channels.checked_mul(fan_out).and_then(|n| n.checked_mul(window.taps()));
        if weights.is_none_or(|weights| weights == 0) || made.padded_len().is_none() {
            return Err(Error::OutOfRange { what: "the number of weights" });
        }
        Ok(made)
    }

    /// Returns the scratch elements for a run: a padded plane.
    pub fn scratch_len(&self) -> usize {
        self.padded_len().unwrap_or(usize::MAX)
    }

    pub(crate) fn window(&self) -> &Sliding {
        &self.window
    }

    pub(crate) fn channels(&self) -> usize {
        self.channels
    }

    pub(crate) fn fan_out(&self) -> usize {
        self.fan_out
    }

    fn padded_len(&self) -> Option<usize> {
        self.height().checked_mul(self.pitch())
    }

    /// Returns the rows in the padded plane.
    fn height(&self) -> usize {
        let side = &self.window.rows;
        (side.out - 1) * side.stride + (side.kernel - 1) * side.dilation + 1
    }

    /// Returns the elements of the padded plane that have the same remainder modulo the stride, in
    /// one row.
    fn phase(&self) -> usize {
        let side = &self.window.columns;
        side.out + ((side.kernel - 1) * side.dilation).div_ceil(side.stride) + SLACK
    }

    /// Returns the elements from one row of the padded plane to the next.
    fn pitch(&self) -> usize {
        self.phase() * self.window.columns.stride
    }

    /// Computes the convolution, plane by plane: no image slice is in use while results are
    /// written. So the result may be the image's memory if each plane makes one.
    ///
    /// # Arguments
    ///
    /// * `weights`: one window per result channel.
    /// * `bias`: one number per result channel.
    /// * `bounds`: results below the first or above the second become that number.
    /// * `scratch`: see [`Depthwise::scratch_len`]; each helper in the team has as much.
    ///
    /// # Errors
    ///
    /// [`Error::WrongSize`] if an operand has the wrong size.
    #[allow(clippy::too_many_arguments, reason = "operands of different kinds")]
    pub fn run(
        &self,
        image: &Planes<'_>,
        weights: &[f32],
        bias: Option<&[f32]>,
        bounds: (f32, f32),
        output: &mut PlanesMut<'_>,
        scratch: &mut [f32],
        team: &Team,
    ) -> Result<()> {
        let [images, channels] = image.counts();
        let made = self.channels * self.fan_out;
        check("the image's channels", channels, self.channels)?;
        check("a plane of the image", image.size(), self.window.plane())?;
        check("the batch of the result", output.counts()[0], images)?;
        check("the result's channels", output.counts()[1], made)?;
        check("a plane of the result", output.size(), self.window.positions())?;
        check("the weights", weights.len(), made * self.window.taps())?;
        if let Some(bias) = bias {
            check("the bias", bias.len(), made)?;
        }
        check_at_least("the scratch memory", scratch.len(), self.scratch_len())?;
        let cycles = images * (made * self.window.positions() * self.window.taps() / 8);
        let length = even(team, channels, cycles);
        let mut rest = output.reborrow();
        let parts = ranges(channels, length).map(move |channels| {
            let made = channels.start * self.fan_out..channels.end * self.fan_out;
            DepthwiseSweep {
                sizes: Self { channels: channels.len(), ..*self },
                image: image.part(0..images, channels, 0..image.size()),
                weights: &weights[made.start * self.window.taps()..made.end * self.window.taps()],
                bias: bias.map(|bias| &bias[made.clone()]),
                bounds,
                output: rest.split_off(Axis::Channels, made.len()),
                scratch: &mut [],
            }
        });
        team.run(parts, scratch, |part, scratch| DepthwiseSweep { scratch, ..part }.dispatch());
        Ok(())
    }
}

/// All planes, one after another.
struct DepthwiseSweep<'a, 's> {
    sizes: Depthwise,
    image: Planes<'a>,
    weights: &'a [f32],
    bias: Option<&'a [f32]>,
    bounds: (f32, f32),
    output: PlanesMut<'a>,
    scratch: &'s mut [f32],
}

impl SimdOp for DepthwiseSweep<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn eval<I: Isa>(self, isa: I) {
        let Self { ref sizes, image, weights, bias, bounds, mut output, scratch } = self;
        let taps = sizes.window.taps();
        let offsets = sizes.offsets();
        let scratch = &mut scratch[..sizes.scratch_len()];
        // The padding is zero for all planes.
        scratch.fill(0.0);
        for n in 0..image.counts()[0] {
            for channel in 0..sizes.channels {
                sizes.pad(isa, image.plane(n, channel), scratch);
                for made in channel * sizes.fan_out..(channel + 1) * sizes.fan_out {
                    let weights = &weights[made * taps..(made + 1) * taps];
                    let bias = bias.map_or(0.0, |bias| bias[made]);
                    let window = WeightedWindow { weights, offsets: &offsets, bias };
                    sizes.plane(scratch, &window, bounds, output.plane(n, made));
                }
            }
        }
    }
}

/// See [`Depthwise::offsets`].
pub(crate) type Offsets = [usize; 64];

/// The window for one result channel.
pub(crate) struct WeightedWindow<'a> {
    pub(crate) weights: &'a [f32],
    pub(crate) offsets: &'a Offsets,
    /// The number that sums begin with.
    pub(crate) bias: f32,
}

impl Depthwise {
    /// Returns the distance in the padded plane of the element that a window weight multiplies for
    /// the first result.
    fn offset(&self, tap: usize) -> usize {
        let (rows, columns) = (&self.window.rows, &self.window.columns);
        let (row, column) = (tap / columns.kernel, tap % columns.kernel * columns.dilation);
        let beside = column % columns.stride * self.phase() + column / columns.stride;
        row * rows.dilation * self.pitch() + beside
    }

    /// Returns the first of these [distances](Self::offset), which take divisions.
    pub(crate) fn offsets(&self) -> Offsets {
        let taps = self.window.taps();
        array::from_fn(|tap| if tap < taps { self.offset(tap) } else { 0 })
    }

    /// Makes a result plane from a padded plane.
    pub(crate) fn plane(
        &self,
        padded: &[f32],
        window: &WeightedWindow<'_>,
        bounds: (f32, f32),
        output: &mut [f32],
    ) {
        let plane = Plane { sizes: self, padded, window, bounds };
        PlaneSums { plane, output }.dispatch();
    }

    /// Copies a plane into its frame.
    #[inline(always)]
    fn pad<I: Isa>(&self, isa: I, plane: &[f32], padded: &mut [f32]) {
        for (y, line) in plane.chunks_exact(self.window.columns.size).enumerate() {
            self.pad_row(isa, y, line, padded);
        }
    }

    /// Copies a plane's row into the frame, if windows reach the row. Columns with equal remainder
    /// modulo the stride are put beside each other, so that the elements under a tap at successive
    /// positions are contiguous.
    #[inline(always)]
    pub(crate) fn pad_row<I: Isa>(&self, isa: I, y: usize, line: &[f32], padded: &mut [f32]) {
        let ops = isa.f32();
        let (rows, columns) = (&self.window.rows, &self.window.columns);
        let (phase, pitch) = (self.phase(), self.pitch());
        let (height, stride) = (self.height(), columns.stride);
        let reach = (columns.out - 1) * stride + (columns.kernel - 1) * columns.dilation + 1;
        let count = columns.size.min(reach.saturating_sub(columns.before));
        let row = y + rows.before;
        if count == 0 || row >= height {
            return;
        }
        let target = &mut padded[row * pitch..(row + 1) * pitch];
        if stride == 1 {
            // Behind the image are zeros, as in the last vector.
            for at in (0..count).step_by(ops.len()) {
                let vector = load_part(isa, &line[at..count]);
                ops.store(vector, &mut target[columns.before + at..]);
            }
            return;
        }
        for remainder in 0..stride {
            // The first image column in this part of the frame.
            let first = (remainder + stride - columns.before % stride) % stride;
            let start = remainder * phase + (columns.before + first) / stride;
            if stride == 2 {
                let source = line.get(first..count).unwrap_or_default();
                every_second(source, &mut target[start..start + source.len().div_ceil(2)]);
                continue;
            }
            let elements = line[..count].iter().skip(first).step_by(stride);
            for (to, from) in target[start..].iter_mut().zip(elements) {
                *to = *from;
            }
        }
    }
}

/// A result plane.
struct Plane<'a> {
    sizes: &'a Depthwise,
    padded: &'a [f32],
    window: &'a WeightedWindow<'a>,
    bounds: (f32, f32),
}

/// Makes one plane. A separate operation: compilers take a minute for every operation into which
/// these loops are inlined.
struct PlaneSums<'a> {
    plane: Plane<'a>,
    output: &'a mut [f32],
}

impl SimdOp for PlaneSums<'_> {
    type Output = ();

    #[inline(always)]
    fn eval<I: Isa>(self, isa: I) {
        let Self { plane, output } = self;
        let rows = &plane.sizes.window.rows;
        match (rows.kernel, rows.stride, rows.dilation) {
            (3, 1, 1) => plane.all(isa, &Adjacent::<3, 1>, output),
            (3, 2, 1) => plane.all(isa, &Adjacent::<3, 2>, output),
            (5, 1, 1) => plane.all(isa, &Adjacent::<5, 1>, output),
            (5, 2, 1) => plane.all(isa, &Adjacent::<5, 2>, output),
            (7, 1, 1) => plane.all(isa, &Adjacent::<7, 1>, output),
            _ => plane.all(isa, &Apart, output),
        }
    }
}

impl Plane<'_> {
    /// Makes all results by one kind of taps.
    #[inline(always)]
    fn all<I: Isa>(&self, isa: I, taps: &impl Taps, output: &mut [f32]) {
        let (rows, columns) = (&self.sizes.window.rows, &self.sizes.window.columns);
        let width = isa.f32().len();
        for at in (0..columns.out).step_by(VECTORS * width) {
            let is_single = columns.out - at <= width;
            let some = match rows.out {
                MANY_ROWS.. if is_single => MANY_ROWS,
                SMALL_ROWS if is_single => SMALL_ROWS,
                _ => ROWS,
            };
            if rows.out < some {
                for row in 0..rows.out {
                    if is_single {
                        self.tile::<I, 1, 1>(isa, taps, row, at, output);
                    } else {
                        self.tile::<I, 1, VECTORS>(isa, taps, row, at, output);
                    }
                }
                continue;
            }
            for row in (0..rows.out).step_by(some) {
                // The last rows may be made twice, which is faster than row by row.
                let row = row.min(rows.out - some);
                if !is_single {
                    self.tile::<I, ROWS, VECTORS>(isa, taps, row, at, output);
                } else if some == MANY_ROWS {
                    self.tile::<I, MANY_ROWS, 1>(isa, taps, row, at, output);
                } else if some == SMALL_ROWS {
                    self.tile::<I, SMALL_ROWS, 1>(isa, taps, row, at, output);
                } else {
                    self.tile::<I, ROWS, 1>(isa, taps, row, at, output);
                }
            }
        }
    }

    /// Makes `V` vectors in each of `R` result rows.
    #[inline(always)]
    fn tile<I: Isa, const R: usize, const V: usize>(
        &self,
        isa: I,
        taps: &impl Taps,
        row: usize,
        at: usize,
        output: &mut [f32],
    ) {
        let ops = isa.f32();
        let (width, sizes) = (ops.len(), self.sizes);
        let columns = &sizes.window.columns;
        let mut sums = [[ops.splat(self.window.bias); V]; R];
        let first = row * sizes.window.rows.stride * sizes.pitch() + at;
        taps.add(isa, self, &self.padded[first..], &mut sums);
        let (low, high) = (ops.splat(self.bounds.0), ops.splat(self.bounds.1));
        for (r, sums) in sums.iter().enumerate() {
            let start = (row + r) * columns.out;
            // Elements of the next row are made later, if rows are made in one piece.
            let is_whole = columns.out <= VECTORS * width;
            let end = if is_whole { output.len() } else { start + columns.out };
            let line = &mut output[start + at..end];
            for (v, sum) in sums.iter().enumerate() {
                let Some(target) = line.get_mut(v * width..) else { break };
                store_part(isa, bounded(isa, *sum, low, high), target);
            }
        }
    }

    /// Returns the distance to the element that a weight multiplies: see [`Depthwise::offset`].
    #[inline(always)]
    fn offset(&self, tap: usize) -> usize {
        let known = self.window.offsets.get(tap);
        known.copied().unwrap_or_else(|| self.sizes.offset(tap))
    }
}

/// Adds up the elements under a window. All tiles add a sum's terms in the same order.
trait Taps {
    /// Adds all products in a tile, whose padded plane begins with the tile's first element.
    fn add<I: Isa, const R: usize, const V: usize>(
        &self,
        isa: I,
        plane: &Plane<'_>,
        under: &[f32],
        sums: &mut [[I::F32; V]; R],
    );
}

/// Windows with `K` rows that lie beside each other, at every `S`-th row: an element under the
/// windows of several result rows is read once.
struct Adjacent<const K: usize, const S: usize>;

impl<const K: usize, const S: usize> Taps for Adjacent<K, S> {
    #[inline(always)]
    fn add<I: Isa, const R: usize, const V: usize>(
        &self,
        isa: I,
        plane: &Plane<'_>,
        under: &[f32],
        sums: &mut [[I::F32; V]; R],
    ) {
        let (kernel, pitch) = (plane.sizes.window.columns.kernel, plane.sizes.pitch());
        for column in 0..kernel {
            let factors = &plane.window.weights[column..];
            let under = &under[plane.offset(column)..];
            // Compilers keep a loop over five rows as a loop, and reload the elements under the
            // rows for each row.
            macro_rules! add_rows {
                ($($row:literal)*) => {$(
                    if K > $row {
                        add_row::<I, $row, S, R, V>(isa, sums, under, pitch, factors, kernel);
                    }
                )*};
            }
            add_rows!(0 1 2 3 4 5 6);
        }
    }
}

/// All other windows.
struct Apart;

impl Taps for Apart {
    #[inline(always)]
    fn add<I: Isa, const R: usize, const V: usize>(
        &self,
        isa: I,
        plane: &Plane<'_>,
        under: &[f32],
        sums: &mut [[I::F32; V]; R],
    ) {
        let step = plane.sizes.window.rows.stride * plane.sizes.pitch();
        for (tap, &weight) in plane.window.weights.iter().enumerate() {
            add_products(isa, sums, &under[plane.offset(tap)..], step, isa.f32().splat(weight));
        }
    }
}
