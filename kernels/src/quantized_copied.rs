//! Byte convolutions with columns copied side by side, for a processor with 16 registers.
//!
//! Columns are lanes with the size of single precision, copied as in [`crate::copied`]. Sums cannot
//! wait in the result, which has bytes, so the sums for some channels at a few tiles are in
//! separate memory until complete.

use std::ops::Range;

use rten_simd::ops::BitOps;
use rten_simd::{Isa, SimdOp};

use crate::copied::{Copiable, Copied, Memory};
use crate::cost::copied_cycles;
use crate::frame::{Frame, Source};
use crate::lane_image::{Image, ImageRows};
use crate::lane_product::{UnrolledLanes, tile};
use crate::lanes::{Lane, Pairs};
use crate::pack::Segments;
use crate::product::{self, Framed};
use crate::quantized_shape::{ImageForm, QuantizedConv, QuantizedSweep};
use crate::raw::PlanesMut;
use crate::requantize::Requantization;
use crate::tile::{COLUMNS, COPIED_COLUMNS, COPIED_ROWS, FEW_ROWS, FEW_VECTORS};

/// Positions whose sums are made at a time, in several tiles.
const POSITIONS: usize = COLUMNS;
/// Panels whose sums are made at a time.
const PANELS: usize = 21;
/// The same if the columns of all tiles are copied first: the sums stay in a first-level cache.
const FEW_PANELS: usize = 4;

/// Returns about how many cycles the product of one group takes with the image in a frame.
pub(crate) fn framed_cycles(conv: &QuantizedConv, frame: &Frame) -> usize {
    // Rows of two channels are converted and put beside each other.
    let converted = frame.bands() * frame.channels * frame.plane();
    converted + frame.copied_cycles(conv.lanes(), conv.fan_out)
}

/// Returns an estimate of the cycles for one group's product with unrolled columns: in scratch
/// memory, or, if that is short, in copy memory, once for some result channels.
pub(crate) fn unrolled_cycles(conv: &QuantizedConv, is_direct: bool) -> usize {
    let (positions, lanes) = (conv.window.positions(), conv.depth_lanes());
    let each = if conv.window.is_identity() { 4 } else { 24 };
    let times = if is_direct { conv.panels().div_ceil(PANELS) * 2 } else { 1 };
    let unrolled = positions.div_ceil(COPIED_COLUMNS) * lanes * each * times;
    unrolled + copied_cycles(positions, conv.fan_out, lanes, 1, 1)
}

/// Divides positions into as few parts of at most [`POSITIONS`] as possible, with about equal
/// sizes; each part but the last has whole tiles.
fn blocks(positions: Range<usize>, tile: usize) -> impl Iterator<Item = Range<usize>> {
    let tiles = positions.len().div_ceil(tile);
    let count = tiles.div_ceil(POSITIONS / tile);
    (0..count).map(move |block| {
        let [start, end] = [block, block + 1].map(|block| tiles * block / count * tile);
        positions.start + start..positions.end.min(positions.start + end)
    })
}

/// Makes the results for all images and groups, at some positions.
#[inline(always)]
pub(crate) fn sweep<I: Isa>(isa: I, sweep: QuantizedSweep<'_, '_>, scratch: &mut [f32]) {
    let images = sweep.image.counts()[0];
    let conv = sweep.conv;
    #[allow(clippy::large_stack_arrays, reason = "a part of a second-level cache")]
    let mut work = Work {
        sweep,
        n: 0,
        group: 0,
        memory: Memory::new(),
        sums: [[0.0; POSITIONS]; PANELS * FEW_ROWS],
    };
    for n in 0..images {
        for group in 0..conv.groups {
            (work.n, work.group) = (n, group);
            match work.sweep.way.form {
                ImageForm::Framed(frame) => work.framed(isa, &frame, scratch),
                ImageForm::Unrolled { columns: COLUMNS, rows, .. }
                    if rows >= conv.depth_lanes() =>
                {
                    work.unrolled(isa, scratch);
                }
                ImageForm::Unrolled { .. } => work.direct(isa),
            }
        }
    }
}

/// The work for one group in an image.
struct Work<'a, 'o> {
    sweep: QuantizedSweep<'a, 'o>,
    n: usize,
    group: usize,
    memory: Memory,
    /// Sums for some channels and positions.
    sums: [[f32; POSITIONS]; PANELS * FEW_ROWS],
}

impl<'a> Work<'a, '_> {
    fn unrolling(&self) -> Unrolling<'a> {
        let image = self.sweep.image_of(self.n, self.group);
        Unrolling { conv: self.sweep.conv, image, start: self.sweep.start }
    }

    /// Makes the results with the image in a frame, some rows at a time.
    #[inline(always)]
    fn framed<I: Isa>(&mut self, isa: I, frame: &Frame, scratch: &mut [f32]) {
        let QuantizedSweep { conv, start, .. } = self.sweep;
        let (window, width) = (&conv.window, frame.width());
        let image = self.sweep.image_of::<Pairs>(self.n, self.group);
        let offsets = frame.offsets(window);
        let (first, last) = (start / width, (start + self.sweep.output.size()) / width);
        for band in (first..last).step_by(frame.rows) {
            let rows = frame.rows.min(last - band);
            frame.fill(isa, window, band, &image, 0..frame.channels, scratch);
            let columns = Framed {
                elements: scratch,
                plane: frame.plane(),
                taps: &offsets[..window.taps()],
                width,
                pitch: frame.pitch(),
            };
            let at = band * width - start;
            self.multiply(isa, &columns, at..at + rows * width);
        }
    }

    /// Makes the results with the image unrolled in scratch memory, some positions at a time.
    #[inline(always)]
    fn unrolled<I: Isa>(&mut self, isa: I, scratch: &mut [f32]) {
        let QuantizedSweep { conv, start, .. } = self.sweep;
        let unrolling = self.unrolling();
        let columns = &mut scratch.as_chunks_mut::<COLUMNS>().0[..conv.depth_lanes()];
        for some in blocks(0..self.sweep.output.size(), FEW_VECTORS * isa.f32().len()) {
            unrolling.write(isa, 0, start + some.start..start + some.end, columns);
            self.multiply(isa, &product::Unrolled(columns), some);
        }
    }

    /// Makes the results with the image unrolled in memory for copies.
    #[inline(always)]
    fn direct<I: Isa>(&mut self, isa: I) {
        let unrolling = self.unrolling();
        self.multiply(isa, &unrolling, 0..self.sweep.output.size());
    }

    /// Makes the group's results at some positions.
    ///
    /// # Arguments
    ///
    /// * `columns`: as many as positions.
    /// * `positions`: counted from the part's first position.
    #[inline(always)]
    fn multiply<I: Isa>(&mut self, isa: I, columns: &impl Copiable, positions: Range<usize>) {
        let Self { sweep, n, group, memory, sums } = self;
        let conv = sweep.conv;
        let (length, lanes, panels) = (isa.f32().len(), conv.depth_lanes(), conv.panels());
        let width = FEW_VECTORS * length;
        // As many rows and panels at a time, in as few parts.
        let depth = lanes.div_ceil(lanes.div_ceil(COPIED_ROWS));
        let is_shallow = POSITIONS.div_ceil(width) * lanes <= COPIED_ROWS;
        let most = if is_shallow { FEW_PANELS } else { PANELS };
        let many = panels.div_ceil(panels.div_ceil(most));
        let each = FEW_ROWS * lanes;
        let weights = &sweep.weights[*group * panels * each..(*group + 1) * panels * each];
        for Range { start, end } in blocks(positions.clone(), width) {
            let taken = end - start;
            let tiles = || (0..taken).step_by(width).map(|at| (at, width.min(taken - at)));
            let column = start - positions.start;
            if is_shallow {
                for (tile, (at, count)) in tiles().enumerate() {
                    memory.fill_from(tile * lanes, isa, columns, 0..lanes, column + at, count);
                }
            }
            for first in (0..panels).step_by(many) {
                let some = first..panels.min(first + many);
                let channel = *group * conv.fan_out + first * FEW_ROWS;
                let made = conv.fan_out.min(some.end * FEW_ROWS) - first * FEW_ROWS;
                let sums = &mut sums[..some.len() * FEW_ROWS];
                let weights = &weights[some.start * each..some.end * each];
                sweep.begin::<Pairs, POSITIONS>(channel, made, sums);
                for row in (0..lanes).step_by(depth) {
                    let rows = row..lanes.min(row + depth);
                    for (tile, (at, count)) in tiles().enumerate() {
                        let columns = if is_shallow {
                            memory.part(tile * lanes, lanes)
                        } else {
                            memory.fill(isa, columns, rows.clone(), column + at, count)
                        };
                        let (columns, vectors) = (&columns, count.div_ceil(length));
                        let sums = &mut *sums;
                        Panels { weights, lanes, row, columns, vectors, sums, at }.dispatch();
                    }
                }
                let (finish, output) = (sweep.finish, &mut sweep.output);
                let (sums, positions) = (&sums[..made], start..start + taken);
                Complete { finish, sums, n: *n, channel, positions, output }.dispatch();
            }
        }
    }
}

/// A group's channels with unrolled columns.
struct Unrolling<'a> {
    conv: &'a QuantizedConv,
    image: Image<'a, Pairs>,
    /// The first column's position.
    start: usize,
}

impl Unrolling<'_> {
    /// Writes columns at some window positions, from a row on.
    #[inline(always)]
    fn write<I: Isa, const N: usize>(
        &self,
        isa: I,
        row: usize,
        at: Range<usize>,
        target: &mut [[f32; N]],
    ) {
        let window = &self.conv.window;
        if window.is_identity() {
            for (lane, target) in target.iter_mut().enumerate() {
                self.image.row(isa, row + lane, at.clone(), 1, &mut target[..at.len()]);
            }
            return;
        }
        let (taps, kernel) = (window.taps(), window.columns.kernel);
        let (lane, tap) = (row / taps, row % taps);
        let mut image = self.image.clone();
        image.channels.start += lane * Pairs::LANES.channels();
        let mut source = ImageRows {
            window,
            image,
            tap: (tap / kernel, tap % kernel),
            segments: &Segments::new(window, at.start, at.len()),
            positions: at,
        };
        source.unroll(target);
    }
}

impl Copiable for Unrolling<'_> {
    #[inline(always)]
    fn copy<I: Isa>(
        &self,
        isa: I,
        rows: Range<usize>,
        at: usize,
        count: usize,
        target: &mut [f32],
    ) {
        let first = self.start + at;
        let target = &mut target.as_chunks_mut::<COPIED_COLUMNS>().0[..rows.len()];
        self.write(isa, rows.start, first..first + count, target);
    }
}

/// The results of complete sums: a separate function, as in [`Panels`].
struct Complete<'p, 'o> {
    finish: &'p Requantization<'p>,
    sums: &'p [[f32; POSITIONS]],
    n: usize,
    /// The first channel.
    channel: usize,
    positions: Range<usize>,
    output: &'p mut PlanesMut<'o, u8>,
}

impl SimdOp for Complete<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn eval<I: Isa>(self, isa: I) {
        let Self { finish, sums, n, channel, positions, output } = self;
        for (row, sums) in sums.iter().enumerate() {
            let target = &mut output.plane(n, channel + row)[positions.clone()];
            finish.integers(isa, channel + row, sums, target);
        }
    }
}

/// The products of weight panels and a tile's columns: a separate function, whose sums the compiler
/// keeps in registers.
struct Panels<'p> {
    weights: &'p [i32],
    /// Rows per panel.
    lanes: usize,
    /// The first row that counts.
    row: usize,
    columns: &'p Copied<'p>,
    vectors: usize,
    sums: &'p mut [[f32; POSITIONS]],
    /// The tile's first position.
    at: usize,
}

impl SimdOp for Panels<'_> {
    type Output = ();

    #[inline(always)]
    fn eval<I: Isa>(self, isa: I) {
        let Self { weights, lanes, row, columns, vectors, sums, at } = self;
        let columns = UnrolledLanes { columns: columns.0, at: 0 };
        let panels = weights.as_chunks::<FEW_ROWS>().0.chunks_exact(lanes);
        for (weights, sums) in panels.zip(sums.chunks_exact_mut(FEW_ROWS)) {
            let weights = &weights[row..];
            if vectors == 1 {
                tile::<I, _, _, FEW_ROWS, FEW_ROWS, 1, POSITIONS>(
                    isa, Pairs, weights, 0, &columns, at, sums,
                );
            } else {
                tile::<I, _, _, FEW_ROWS, FEW_ROWS, 2, POSITIONS>(
                    isa, Pairs, weights, 0, &columns, at, sums,
                );
            }
        }
    }
}
