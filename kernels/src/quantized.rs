//! Byte convolution with exact sums and a byte result.
//!
//! A few channels lie beside each other in [lanes](crate::lanes) in scratch memory, and as many
//! weights in another lane. The forms are those of [`crate::Conv`]: some rows of all channels in a
//! [`Frame`], or the columns of the unrolled image (im2col) for a few positions at a time. Sums
//! stay in registers, or in scratch memory between passes, until they become bytes.

use std::ops::Range;

use rten_simd::{Isa, SimdOp};

use crate::bytes::Encoding;
use crate::error::{Result, check, check_at_least};
use crate::frame::{Frame, Lines};
use crate::lane_image::ImageRows;
use crate::lane_product::{Bits, LaneColumns, accumulate, tile};
use crate::lanes::{Lane, Lanes, MOST_CHANNELS, Pairs, quads};
use crate::pack::Segments;
use crate::quantized_copied;
use crate::quantized_shape::{ImageForm, QuantizedConv, QuantizedSweep, QuantizedWay};
use crate::raw::{Axis, Planes, PlanesMut};
use crate::requantize::Requantization;
use crate::team::{Team, even, ranges};
use crate::tile::{COLUMNS, LANES, ROWS, is_wide, panel_rows};

/// Positions that are unrolled at a time where scratch memory is short.
const FEW: usize = 16;
/// Most lane rows that are unrolled at a time.
const DEPTH: usize = 384;
/// Rows of lanes that are unrolled at a time, at least, unless there are fewer.
const SHALLOW: usize = 24;
/// Most parts into which the result rows may be cut.
const MOST_BANDS: usize = 32;
/// Weights that stay in a second-level cache while all positions are worked on.
const CACHED: usize = 1 << 16;
/// Elements in a tile's vectors.
const TILE: usize = 48;

impl QuantizedConv {
    /// Returns the length of the weights by [`QuantizedConv::pack`].
    pub fn packed_len(&self) -> usize {
        self.lanes_len() + self.totals_len()
    }

    /// Returns the weight lane count.
    fn lanes_len(&self) -> usize {
        self.groups * self.panels() * panel_rows() * self.depth_lanes()
    }

    /// Returns the number of weight sums: one per result channel, if sums are needed.
    fn totals_len(&self) -> usize {
        if self.lanes == Lanes::Pairs { 0 } else { self.groups * self.fan_out }
    }

    /// Writes weights less their zero point in reading order: per group, panels with a few outputs,
    /// eight if a processor has 32 registers, otherwise six. A panel has one row per channel lane
    /// and window element. For lanes whose zero point stays in the image, each output's weight sum
    /// follows behind all panels.
    ///
    /// # Errors
    ///
    /// [`Error::WrongSize`](crate::Error::WrongSize) if an operand is of another size, [`Error::OutOfRange`](crate::Error::OutOfRange) if the lanes do not
    /// hold a weight.
    pub fn pack(&self, weights: &[i16], target: &mut [i32]) -> Result<()> {
        let (depth, lanes, taps) = (self.depth(), self.depth_lanes(), self.window.taps());
        check("the weights", weights.len(), self.groups * self.fan_out * depth)?;
        check("the packed weights", target.len(), self.packed_len())?;
        let (target, totals) = target.split_at_mut(self.lanes_len());
        target.fill(0);
        let height = panel_rows();
        for (row, weights) in weights.chunks_exact(depth).enumerate() {
            let (group, channel) = (row / self.fan_out, row % self.fan_out);
            let panel = group * self.panels() + channel / height;
            for (lane, weights) in weights.chunks(self.lanes.channels() * taps).enumerate() {
                for tap in 0..taps {
                    let mut channels = [0; MOST_CHANNELS];
                    for (to, from) in channels.iter_mut().zip(weights[tap..].iter().step_by(taps)) {
                        *to = *from;
                    }
                    let at = (panel * lanes + lane * taps + tap) * height + channel % height;
                    target[at] = self.lanes.join(channels)?;
                }
            }
            if let Some(total) = totals.get_mut(row) {
                *total = weights.iter().copied().map(i32::from).sum();
            }
        }
        Ok(())
    }

    /// Returns the fastest way within so many scratch elements, or else the smallest way.
    ///
    /// The way is fastest on a processor with AVX-512, see [`crate::Conv::way`];
    /// [`QuantizedConv::schedule`] finds the fastest way on this processor.
    pub fn way(&self, room: usize) -> QuantizedWay {
        let unrolled = [COLUMNS, FEW].into_iter().flat_map(|columns| {
            let most = [self.depth_lanes(), DEPTH, DEPTH / 4, self.shallow()];
            most.map(|most| self.unrolled(columns, most))
        });
        let framed = self.frames(room).map(|frame| self.framed(frame));
        let fastest = unrolled.clone().chain(framed).filter(|way| way.scratch_len() <= room);
        fastest
            .min_by_key(|way| (way.cycles, way.scratch_len()))
            .or_else(|| unrolled.min_by_key(QuantizedWay::scratch_len))
            .unwrap_or_else(|| self.unrolled(FEW, self.shallow()))
    }

    /// Returns the fastest way on this processor for some threads to compute one image's
    /// convolution, within so many scratch elements, or else the smallest way.
    pub fn schedule(&self, room: usize, threads: usize) -> QuantizedWay {
        if panel_rows() == ROWS {
            return self.way(room);
        }
        let framed = self.frames(room).map(|frame| QuantizedWay {
            cycles: quantized_copied::framed_cycles(self, &frame),
            form: ImageForm::Framed(frame),
        });
        let whole = self.unrolled(COLUMNS, self.depth_lanes());
        let (form, is_direct) = if whole.scratch_len() <= room {
            (whole.form, false)
        } else {
            (self.way(0).form, true)
        };
        let cycles = quantized_copied::unrolled_cycles(self, is_direct);
        let unrolled = QuantizedWay { form, cycles };
        let time = |way: &QuantizedWay| {
            let parts = self.window.positions().div_ceil(way.step()).min(threads).max(1);
            way.cycles / parts
        };
        // A frame may need less than the smallest unrolled image.
        let fits = |way: &QuantizedWay| way.scratch_len() <= room;
        framed.chain([unrolled]).filter(fits).min_by_key(time).unwrap_or(unrolled)
    }

    /// Returns the frames within some elements that are worth a look.
    fn frames(&self, room: usize) -> impl Iterator<Item = Frame> {
        let rows = self.window.rows.out;
        let bands = (1..=rows.min(MOST_BANDS)).chain([rows]);
        let bands = bands.filter(|_| !self.window.is_identity());
        bands.filter_map(move |bands| {
            Frame::of_all(&self.window, rows.div_ceil(bands), self.lanes(), room)
        })
    }

    /// Returns the fewest lane rows that are unrolled at a time. With half as many rows as pairs,
    /// other lanes need no more scratch memory than pairs do: of more than [`SHALLOW`] rows of
    /// pairs, more than half as many are unrolled at a time, and sums are kept besides.
    fn shallow(&self) -> usize {
        if self.lanes == Lanes::Pairs { SHALLOW } else { SHALLOW / 2 }
    }

    fn framed(&self, frame: Frame) -> QuantizedWay {
        let cycles = frame.cycles(self.lanes(), self.fan_out);
        // Rows of some channels are converted and put beside each other.
        let copied = frame.bands() * frame.channels * frame.plane();
        QuantizedWay { form: ImageForm::Framed(frame), cycles: cycles + copied }
    }

    fn unrolled(&self, columns: usize, most: usize) -> QuantizedWay {
        let (lanes, positions) = (self.depth_lanes(), self.window.positions());
        let passes = lanes.div_ceil(most.max(1));
        let rows = lanes.div_ceil(passes);
        let held = if passes > 1 { self.fan_out.next_multiple_of(ROWS) } else { 0 };
        let (blocks, vectors) = (positions.div_ceil(columns), columns.div_ceil(LANES));
        let copied = if self.window.is_identity() { 4 } else { 60 } + 8 * vectors;
        // A row of weights is read once per block, from a cache that is slower the more there are.
        let halves = self.fan_out.div_ceil(ROWS / 2);
        let product = vectors * halves * (lanes * 2 + passes * 48) + halves * lanes;
        let form = ImageForm::Unrolled { columns, rows, held };
        QuantizedWay { form, cycles: blocks * (copied * lanes + product) }
    }

    /// Computes the convolution.
    ///
    /// # Arguments
    ///
    /// * `encoding`: the image bytes.
    /// * `weights`: packed by [`QuantizedConv::pack`].
    /// * `addend`: for each result channel, an integer that its sums begin with.
    /// * `scratch`: as much as the way needs.
    ///
    /// # Errors
    ///
    /// [`Error::WrongSize`](crate::Error::WrongSize) if an operand is of another size, [`Error::OutOfRange`](crate::Error::OutOfRange) if this processor
    /// does not multiply such lanes.
    #[allow(clippy::too_many_arguments, reason = "operands of different kinds")]
    pub fn run(
        &self,
        way: &QuantizedWay,
        image: &Planes<'_, u8>,
        encoding: Encoding,
        weights: &[i32],
        addend: Option<&[i32]>,
        finish: &Requantization<'_>,
        output: &mut PlanesMut<'_, u8>,
        scratch: &mut [f32],
        team: &Team,
    ) -> Result<()> {
        let [images, channels] = image.counts();
        let made = self.groups * self.fan_out;
        check("the image's channels", channels, self.groups * self.fan_in)?;
        check("a plane of the image", image.size(), self.window.plane())?;
        check("the batch of the result", output.counts()[0], images)?;
        check("the result's channels", output.counts()[1], made)?;
        check("a plane of the result", output.size(), self.window.positions())?;
        check("the weights", weights.len(), self.packed_len())?;
        if let Some(addend) = addend {
            check("the addend", addend.len(), made)?;
        }
        finish.check(made)?;
        check_at_least("the scratch memory", scratch.len(), way.scratch_len())?;
        let (weights, totals) = weights.split_at(self.lanes_len());
        let step = way.step();
        let blocks = self.window.positions().div_ceil(step);
        let cycles = way.cycles.saturating_mul(self.groups * images);
        let mut rest = output.reborrow();
        let parts = ranges(blocks, even(team, blocks, cycles)).map(move |some| {
            let start = some.start * step;
            let end = self.window.positions().min(some.end * step);
            let output = rest.split_off(Axis::Elements, end - start);
            QuantizedSweep {
                conv: self,
                way,
                image,
                encoding,
                weights,
                totals,
                addend,
                finish,
                start,
                output,
            }
        });
        match self.lanes {
            Lanes::Pairs => {
                team.run(parts, scratch, |sweep, scratch| Paired { sweep, scratch }.dispatch());
            }
            Lanes::Quads => {
                let lane = quads()?;
                team.run(parts, scratch, |sweep, scratch| {
                    lane.dispatch(Wide { sweep, scratch, lane });
                });
            }
        }
        Ok(())
    }
}

/// A work part with lanes, and its scratch memory.
struct Paired<'a, 'o, 's> {
    sweep: QuantizedSweep<'a, 'o>,
    scratch: &'s mut [f32],
}

impl SimdOp for Paired<'_, '_, '_> {
    type Output = ();

    #[inline(always)]
    fn eval<I: Isa>(self, isa: I) {
        let Self { sweep, scratch } = self;
        if is_wide(isa) {
            Wide { sweep, scratch, lane: Pairs }.eval(isa);
        } else {
            quantized_copied::sweep(isa, sweep, scratch);
        }
    }
}

/// Such a part of the work with any lanes, where there are 32 registers.
struct Wide<'a, 'o, 's, L> {
    sweep: QuantizedSweep<'a, 'o>,
    scratch: &'s mut [f32],
    lane: L,
}

impl<L: Lane> SimdOp for Wide<'_, '_, '_, L> {
    type Output = ();

    #[inline(always)]
    fn eval<I: Isa>(self, isa: I) {
        let Self { mut sweep, scratch, lane } = self;
        for n in 0..sweep.image.counts()[0] {
            for group in 0..sweep.conv.groups {
                match sweep.way.form {
                    ImageForm::Framed(frame) => sweep.framed(isa, lane, &frame, n, group, scratch),
                    ImageForm::Unrolled { columns: COLUMNS, rows, .. } => {
                        sweep.unrolled::<I, L, COLUMNS>(isa, lane, rows, n, group, scratch);
                    }
                    ImageForm::Unrolled { rows, .. } => {
                        sweep.unrolled::<I, L, FEW>(isa, lane, rows, n, group, scratch);
                    }
                }
            }
        }
    }
}

impl QuantizedSweep<'_, '_> {
    /// Makes the results of a group with the image in a frame, some rows at a time.
    #[inline(always)]
    fn framed<I: Isa, L: Lane>(
        &mut self,
        isa: I,
        lane: L,
        frame: &Frame,
        n: usize,
        group: usize,
        scratch: &mut [f32],
    ) {
        let conv = self.conv;
        let (depth, width) = (conv.depth_lanes(), frame.width());
        let image = self.image_of::<L>(n, group);
        let offsets = frame.offsets(&conv.window);
        let offsets = &offsets[..conv.window.taps()];
        let weights = &self.weights[group * conv.panels() * ROWS * depth..];
        let weights = &weights[..conv.panels() * ROWS * depth];
        // As many panels at a time as a second-level cache has room for.
        let some = (CACHED / (ROWS * depth)).max(1);
        let (first, last) = (self.start / width, (self.start + self.output.size()) / width);
        for band in (first..last).step_by(frame.rows) {
            let rows = frame.rows.min(last - band);
            frame.fill(isa, &conv.window, band, &image, 0..frame.channels, scratch);
            for (chunk, weights) in weights.chunks(some * ROWS * depth).enumerate() {
                let mut lines = Lines::new(frame, band, rows);
                while let Some(tile) = lines.next(isa) {
                    for (panel, weights) in weights.chunks_exact(ROWS * depth).enumerate() {
                        let row = (chunk * some + panel) * ROWS;
                        let made = ROWS.min(conv.fan_out - row);
                        let channel = group * conv.fan_out + row;
                        let mut sums = [[0.0; TILE]; ROWS];
                        self.begin::<L, TILE>(channel, made, &mut sums);
                        let source = FramedLanes { scratch, frame, offsets, at: tile.at };
                        source.accumulate(isa, lane, weights, tile.vectors, &mut sums);
                        for (row, sums) in sums.iter().enumerate().take(made) {
                            let plane = self.output.plane(n, channel + row);
                            for run in &tile.runs[..tile.count] {
                                let start = run.at - self.start;
                                let target = &mut plane[start..start + run.count];
                                let sums = &sums[run.lane..run.lane + run.count];
                                self.finish.integers(isa, channel + row, sums, target);
                            }
                        }
                    }
                }
            }
        }
    }

    /// Makes a group's results with the image unrolled.
    #[inline(always)]
    fn unrolled<I: Isa, L: Lane, const N: usize>(
        &mut self,
        isa: I,
        lane: L,
        rows: usize,
        n: usize,
        group: usize,
        scratch: &mut [f32],
    ) {
        let (columns, held) = scratch.as_chunks_mut::<N>().0.split_at_mut(rows);
        for start in (0..self.output.size()).step_by(N) {
            let len = N.min(self.output.size() - start);
            self.block(isa, lane, n, group, start..start + len, columns, held);
        }
    }

    /// Makes a group's results at some positions, counted from the part's first position.
    #[inline(always)]
    #[allow(clippy::too_many_arguments, reason = "operands of different kinds")]
    fn block<I: Isa, L: Lane, const N: usize>(
        &mut self,
        isa: I,
        lane: L,
        n: usize,
        group: usize,
        positions: Range<usize>,
        columns: &mut [[f32; N]],
        held: &mut [[f32; N]],
    ) {
        let conv = self.conv;
        let lanes = conv.depth_lanes();
        let segments = Segments::new(&conv.window, self.start + positions.start, positions.len());
        let mut image = ImageRows {
            window: &conv.window,
            image: self.image_of::<L>(n, group),
            tap: (0, 0),
            positions: self.start + positions.start..self.start + positions.end,
            segments: &segments,
        };
        let panels = conv.panels() * ROWS * lanes;
        let weights = &self.weights[group * panels..(group + 1) * panels];
        let rows = columns.len();
        for first in (0..lanes).step_by(rows) {
            let columns = &mut columns[..rows.min(lanes - first)];
            image.unroll(columns);
            let is_last = first + columns.len() == lanes;
            for (panel, weights) in weights.chunks_exact(ROWS * lanes).enumerate() {
                let channel = group * conv.fan_out + panel * ROWS;
                let made = ROWS.min(conv.fan_out - panel * ROWS);
                let mut local = [[0.0; N]; ROWS];
                let sums = match held.get_mut(panel * ROWS..(panel + 1) * ROWS) {
                    Some(held) => held,
                    None => &mut local[..],
                };
                if first == 0 {
                    self.begin::<L, N>(channel, made, sums);
                }
                let weights = &weights.as_chunks().0[first..first + columns.len()];
                accumulate(isa, lane, weights, made, columns, sums);
                if is_last {
                    for (row, sums) in sums.iter().enumerate().take(made) {
                        let plane = self.output.plane(n, channel + row);
                        let target = &mut plane[positions.clone()];
                        self.finish.integers(isa, channel + row, sums, target);
                    }
                }
            }
        }
    }
}

/// Channel lanes in a frame.
#[derive(Clone, Copy)]
struct FramedLanes<'a> {
    scratch: &'a [f32],
    frame: &'a Frame,
    offsets: &'a [usize],
    at: usize,
}

impl LaneColumns for FramedLanes<'_> {
    #[inline(always)]
    fn each<W: Bits, const P: usize>(
        &self,
        weights: &[[W; P]],
        mut multiply: impl FnMut(&[W; P], &[f32]),
    ) {
        let mut first = self.at;
        for weights in weights.chunks_exact(self.offsets.len()) {
            let elements = &self.scratch[first..];
            for (weights, offset) in weights.iter().zip(self.offsets) {
                multiply(weights, &elements[*offset..]);
            }
            first += self.frame.plane();
        }
    }
}

impl FramedLanes<'_> {
    /// Adds the products of a panel and some vectors to sums.
    #[inline(always)]
    fn accumulate<I: Isa, L: Lane>(
        &self,
        isa: I,
        lane: L,
        weights: &[i32],
        vectors: usize,
        sums: &mut [[f32; TILE]],
    ) {
        let weights = weights.as_chunks().0;
        match vectors {
            3 => tile::<I, L, _, ROWS, ROWS, 3, TILE>(isa, lane, weights, 0, self, 0, sums),
            2 => tile::<I, L, _, ROWS, ROWS, 2, TILE>(isa, lane, weights, 0, self, 0, sums),
            _ => tile::<I, L, _, ROWS, ROWS, 1, TILE>(isa, lane, weights, 0, self, 0, sums),
        }
    }
}
