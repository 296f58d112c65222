//! Convolution as a matrix product whose right operand is made one part at a time.
//!
//! There are two forms. Either the unrolled image (im2col) is written to scratch memory for
//! [`COLUMNS`] positions and some rows at once, and multiplied while in cache. Or some channels are
//! copied into a frame with zeros, where the elements under a tap at successive positions lie side
//! by side ([`Frame`]): each element is copied once and not once per tap. Both forms add terms in
//! the same order.

use std::ops::Range;

use rten_simd::ops::BitOps;
use rten_simd::{Isa, SimdOp};

use crate::conv_shape::{Conv, Start};
use crate::copied::{self, Copiable, Memory, Panel, Whole, WholePanels};
use crate::cost::{copied_cycles, product_cycles};
use crate::division::{ConvPart, Cut, Parts};
use crate::error::{Result, check, check_at_least};
use crate::frame::{Frame, Lines};
use crate::pack::Channels;
use crate::pack::{Segments, pack};
use crate::product::{Columns, Framed, Made, Pass, Place, Run, Unrolled};
use crate::raw::{Planes, PlanesMut};
use crate::team::Team;
use crate::tile::{
    COLUMNS, COPIED_ROWS, COPIED_WEIGHTS, FEW_ROWS, FEW_VECTORS, LANES, ROWS, is_wide,
    next_vectors, panel_rows, tile_vectors,
};

/// Most rows that are unrolled at a time.
const DEPTH: usize = 384;
/// Most image elements in a frame: beside so many, weights still fit the cache.
const FRAMED: usize = 28_672;
/// Most parts into which the result rows may be cut.
const MOST_BANDS: usize = 32;
/// Weights that stay in a second-level cache while all positions are worked on.
const CACHED: usize = 1 << 18;

/// Returns the length of the [`packed_weights`].
pub fn packed_weights_len(groups: usize, fan_out: usize, depth: usize) -> usize {
    groups * fan_out.next_multiple_of(panel_rows()) * depth
}

/// Writes weights in reading order: per group, panels with a few outputs, eight if a processor has
/// 32 registers, otherwise six. A panel has one row per window element. Outputs that fill up a
/// panel are zero.
///
/// # Errors
///
/// [`Error::WrongSize`](crate::Error::WrongSize) if an operand has the wrong size.
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
    let height = panel_rows();
    let panels = fan_out.div_ceil(height);
    for (group, weights) in weights.chunks_exact(fan_out * depth).enumerate() {
        for (panel, rows) in weights.chunks(height * depth).enumerate() {
            let start = (group * panels + panel) * height * depth;
            let target = &mut target[start..start + height * depth];
            target.fill(0.0);
            for (row, weights) in rows.chunks_exact(depth).enumerate() {
                for (at, weight) in weights.iter().enumerate() {
                    target[at * height + row] = *weight;
                }
            }
        }
    }
    Ok(())
}

impl Conv {
    /// Returns the fastest way within so many scratch elements, at least [`COLUMNS`].
    ///
    /// The way is fastest on a processor with AVX-512, whatever the processor here, since plans,
    /// which depend on the way, are the same everywhere. [`Conv::schedule`] finds the fastest way
    /// on this processor.
    pub fn way(&self, room: usize) -> Way {
        self.fastest(room, false)
    }

    /// Returns the fastest way within so many scratch elements.
    ///
    /// # Arguments
    ///
    /// * `copies`: whether columns are copied, see [`Conv::copies`].
    pub(crate) fn fastest(&self, room: usize, copies: bool) -> Way {
        let rows = (room / COLUMNS).clamp(1, DEPTH).min(self.depth());
        // As many rows at a time, in as few passes.
        let rows = self.depth().div_ceil(self.depth().div_ceil(rows));
        let cycles = self.unrolled_cycles(rows, copies);
        let unrolled = Way { form: ProductForm::Unrolled(rows), cycles };
        self.frames(room, copies).fold(unrolled, |best, frame| {
            let cycles = if copies {
                frame.copied_cycles(self.fan_in, self.fan_out)
            } else {
                frame.cycles(self.fan_in, self.fan_out)
            };
            if cycles < best.cycles {
                Way { form: ProductForm::Framed(frame), cycles }
            } else {
                best
            }
        })
    }

    /// Whether columns are copied on this processor, see [`copied`].
    pub(crate) fn copies(&self) -> bool {
        panel_rows() == FEW_ROWS && self.fan_out > copied::FEW
    }

    /// Returns the frames that are worth a look.
    fn frames(&self, room: usize, copies: bool) -> impl Iterator<Item = Frame> {
        let rows = self.window.rows.out;
        let most = if self.window.is_identity() { 0 } else { rows.min(MOST_BANDS) };
        // Copied columns are multiplied by weights that fit a cache, for any frame.
        let fan_out = if copies { 1 } else { self.fan_out };
        (1..=most).filter_map(move |bands| {
            let counts = (self.fan_in, fan_out);
            Frame::within(&self.window, rows.div_ceil(bands), counts, room.min(FRAMED))
        })
    }

    /// Returns about how many cycles the product of one group takes with an unrolled image.
    fn unrolled_cycles(&self, rows: usize, copies: bool) -> usize {
        let (depth, positions) = (self.depth(), self.window.positions());
        let blocks = positions.div_ceil(COLUMNS);
        if !copies {
            let each = if self.window.is_identity() { 6 } else { 24 };
            let passes = depth.div_ceil(rows);
            return blocks * depth * each
                + product_cycles(positions.div_ceil(LANES), self.fan_out, depth, passes);
        }
        let product = copied_cycles(positions, self.fan_out, depth, depth.div_ceil(rows), 1);
        if self.window.is_identity() {
            return product;
        }
        let strided = if self.window.columns.stride == 1 { 0 } else { 15 };
        depth * (blocks * (24 + strided) + (blocks + self.window.rows.out) * 9) + product
    }

    /// Returns the scratch elements for the fastest run. With fewer, at least [`COLUMNS`], a run
    /// works on smaller parts at a time; the result has the same bits.
    pub fn scratch_len(&self) -> usize {
        self.way(FRAMED.max(COLUMNS * DEPTH)).scratch_len()
    }

    /// Returns the fastest way for some threads to compute the convolution of some images, each
    /// thread within so many scratch elements, at least [`COLUMNS`].
    pub fn schedule(&self, images: usize, room: usize, threads: usize) -> Schedule {
        let way = self.fastest(room, self.copies());
        let cycles = way.cycles.saturating_mul(self.groups * images);
        let cut = Cut::fastest(self, images, room, threads, cycles);
        Schedule { form: way.form, room, cut }
    }

    /// Computes the convolution.
    ///
    /// # Arguments
    ///
    /// * `weights`: packed by [`packed_weights`].
    /// * `bias`: one number per result channel.
    /// * `start`: numbers to add, one per result element.
    /// * `bounds`: results below the first or above the second become that number.
    /// * `scratch`: as much as the schedule is for, and each helper of the team has as much.
    ///
    /// # Errors
    ///
    /// [`Error::WrongSize`](crate::Error::WrongSize) if an operand has the wrong size.
    #[allow(clippy::too_many_arguments, reason = "operands of different kinds")]
    pub fn run(
        &self,
        schedule: &Schedule,
        image: &Planes<'_>,
        weights: &[f32],
        bias: Option<&[f32]>,
        start: Start<'_>,
        bounds: (f32, f32),
        output: &mut PlanesMut<'_>,
        scratch: &mut [f32],
        team: &Team,
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
        if let Start::Numbers(numbers) = start {
            check("the batch of the addend", numbers.counts()[0], images)?;
            check("the addend's channels", numbers.counts()[1], made)?;
            check("a plane of the addend", numbers.size(), output.size())?;
        }
        check_at_least("the scratch memory", scratch.len(), schedule.room.max(COLUMNS))?;
        let output = output.reborrow();
        let whole = ConvPart { conv: *self, image: *image, weights, bias, start, bounds, output };
        match schedule.cut {
            None => whole.run(schedule.form, scratch),
            Some(cut) => team.run(Parts::new(whole, cut, images), scratch, |part, scratch| {
                // Another column part has another frame.
                let way = part.conv.fastest(schedule.room, part.conv.copies());
                part.run(way.form, scratch);
            }),
        }
        Ok(())
    }
}

impl ConvPart<'_> {
    /// Computes all results.
    fn run(mut self, form: ProductForm, scratch: &mut [f32]) {
        let Self { conv, image, bias, start, bounds, .. } = self;
        let packed = packed_weights_len(1, conv.fan_out, conv.depth());
        for n in 0..image.counts()[0] {
            for (group, weights) in self.weights.chunks_exact(packed).enumerate() {
                let output = &mut self.output;
                let result = Made { n, first: group * conv.fan_out, bias, start, bounds, output };
                let channels = Channels { image: &image, n, first: group * conv.fan_in };
                GroupProduct {
                    conv: &conv,
                    form,
                    channels,
                    weights,
                    result,
                    scratch: &mut *scratch,
                }
                .dispatch();
            }
        }
    }
}

/// The way to compute a convolution, and the division among threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Schedule {
    form: ProductForm,
    /// Scratch elements that the schedule assumes.
    room: usize,
    cut: Option<Cut>,
}

/// A way to compute a convolution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way {
    form: ProductForm,
    cycles: usize,
}

impl Way {
    /// Returns the scratch elements that the schedule needs.
    pub fn scratch_len(&self) -> usize {
        match self.form {
            ProductForm::Unrolled(rows) => COLUMNS * rows,
            ProductForm::Framed(frame) => frame.len(),
        }
    }

    /// Returns an estimate of the cycles for one group's product on a processor with AVX-512, with
    /// operands in cache.
    pub fn cycles(&self) -> usize {
        self.cycles
    }
}

/// The form for the product's right operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ProductForm {
    /// So many rows of the unrolled image, for a few positions.
    Unrolled(usize),
    /// Some image channels, in a frame with zeros.
    Framed(Frame),
}

/// The product between a group's weights and unrolled image.
struct GroupProduct<'a, 'i, 'o> {
    conv: &'a Conv,
    form: ProductForm,
    channels: Channels<'a, 'i>,
    weights: &'a [f32],
    result: Made<'a, 'i, 'o>,
    scratch: &'a mut [f32],
}

impl SimdOp for GroupProduct<'_, '_, '_> {
    type Output = ();

    #[inline(always)]
    fn eval<I: Isa>(self, isa: I) {
        let Self { conv, form, channels, weights, result, scratch } = self;
        let mut weighted = WeightedGroup { conv, weights, result };
        match form {
            ProductForm::Unrolled(_) if conv.window.is_identity() && weighted.copies(isa) => {
                let positions = 0..conv.window.positions();
                weighted.add_copied(isa, &Whole(&channels), 0..conv.depth(), positions);
            }
            ProductForm::Framed(frame) => framed(isa, &frame, &channels, &mut weighted, scratch),
            ProductForm::Unrolled(block) => {
                let (depth, positions) = (conv.depth(), conv.window.positions());
                // Weights that fit a cache are read once per part of the positions.
                let many = if weights.len() <= CACHED { depth } else { block };
                for some in (0..depth).step_by(many) {
                    let mut start = 0;
                    while start < positions {
                        let left = positions - start;
                        let len = (next_vectors(left.div_ceil(LANES)) * LANES).min(left);
                        for first in (some..depth.min(some + many)).step_by(block) {
                            let rows = first..depth.min(first + block);
                            let part = start..start + len;
                            unrolled(isa, part, rows, &channels, &mut weighted, scratch);
                        }
                        start += len;
                    }
                }
            }
        }
    }
}

/// Adds the products for some unrolled rows to the results at some positions.
#[inline(always)]
fn unrolled<I: Isa>(
    isa: I,
    positions: Range<usize>,
    rows: Range<usize>,
    channels: &Channels<'_, '_>,
    weighted: &mut WeightedGroup<'_, '_, '_>,
    scratch: &mut [f32],
) {
    let (start, len) = (positions.start, positions.len());
    let window = &weighted.conv.window;
    let target = &mut scratch[..rows.len() * COLUMNS];
    if window.is_identity() {
        copy_columns(isa, start, len, rows.start, channels, target);
    } else {
        let segments = Segments::new(window, start, len);
        pack(isa, window, &segments, rows.start, channels, target);
    }
    let columns = Unrolled(target.as_chunks().0);
    if weighted.copies(isa) {
        weighted.add_copied(isa, &columns, rows, positions);
        return;
    }
    let mut at = 0;
    while at < len {
        let vectors = tile_vectors(isa, len - at);
        let lanes = (vectors * isa.f32().len()).min(len - at);
        let runs = [Run { lane: 0, at: start + at, count: lanes }];
        weighted.add(isa, &columns, rows.clone(), &ColumnTile { vectors, at, runs: &runs });
        at += lanes;
    }
}

/// Computes a product with the image in a frame, some rows and channels at a time.
#[inline(always)]
fn framed<I: Isa>(
    isa: I,
    frame: &Frame,
    channels: &Channels<'_, '_>,
    weighted: &mut WeightedGroup<'_, '_, '_>,
    scratch: &mut [f32],
) {
    let conv = weighted.conv;
    let (window, taps) = (&conv.window, conv.window.taps());
    let offsets = frame.offsets(window);
    for band in (0..window.rows.out).step_by(frame.rows) {
        let rows = frame.rows.min(window.rows.out - band);
        for first in (0..conv.fan_in).step_by(frame.channels) {
            let some = first..conv.fan_in.min(first + frame.channels);
            frame.fill(isa, window, band, channels, some.clone(), scratch);
            let columns = Framed {
                elements: scratch,
                plane: frame.plane(),
                taps: &offsets[..taps],
                width: frame.width(),
                pitch: frame.pitch(),
            };
            let depth = some.start * taps..some.end * taps;
            if weighted.copies(isa) {
                let positions = band * frame.width()..(band + rows) * frame.width();
                weighted.add_copied(isa, &columns, depth, positions);
                continue;
            }
            let mut lines = Lines::new(frame, band, rows);
            while let Some(tile) = lines.next(isa) {
                let runs = &tile.runs[..tile.count];
                let tile = ColumnTile { vectors: tile.vectors, at: tile.at, runs };
                weighted.add(isa, &columns, depth.clone(), &tile);
            }
        }
    }
}

/// Columns that are multiplied at a time.
struct ColumnTile<'r> {
    vectors: usize,
    /// The first column.
    at: usize,
    /// Where the results go.
    runs: &'r [Run],
}

/// A group's weights and result.
struct WeightedGroup<'a, 'i, 'o> {
    conv: &'a Conv,
    weights: &'a [f32],
    result: Made<'a, 'i, 'o>,
}

impl<'a> WeightedGroup<'a, '_, '_> {
    /// Whether columns are copied first, see [`Conv::copies`].
    #[inline(always)]
    fn copies<I: Isa>(&self, isa: I) -> bool {
        !is_wide(isa) && self.conv.fan_out > copied::FEW
    }

    /// Adds the products of all weights and a tile's columns.
    ///
    /// # Arguments
    ///
    /// * `rows`: the operand's rows in all passes.
    #[inline(always)]
    fn add<I: Isa>(
        &mut self,
        isa: I,
        columns: &impl Columns,
        rows: Range<usize>,
        tile: &ColumnTile<'_>,
    ) {
        let height = if is_wide(isa) { ROWS } else { FEW_ROWS };
        for panel in 0..self.conv.fan_out.div_ceil(height) {
            let (weights, place) = self.panel(panel, height, &rows, tile.runs);
            self.result.panel(isa, weights, tile.vectors, columns, tile.at, &place);
        }
    }

    /// Returns some rows of a weight panel, and the place for the results.
    #[inline(always)]
    fn panel<'r>(
        &self,
        panel: usize,
        height: usize,
        rows: &Range<usize>,
        runs: &'r [Run],
    ) -> (&'a [f32], Place<'r>) {
        let (depth, first) = (self.conv.depth(), panel * height);
        let weights = &self.weights[first * depth..][rows.start * height..rows.end * height];
        let pass = Pass { is_first: rows.start == 0, is_last: rows.end == depth };
        let made = height.min(self.conv.fan_out - first);
        (weights, Place { channel: first, made, runs, pass })
    }

    /// Adds the products of all weights and columns that are copied tile by tile.
    ///
    /// # Arguments
    ///
    /// * `rows`: the operand's rows in all passes.
    /// * `positions`: the result positions for the operand's columns.
    #[inline(always)]
    fn add_copied<I: Isa>(
        &mut self,
        isa: I,
        columns: &impl Copiable,
        rows: Range<usize>,
        positions: Range<usize>,
    ) {
        let lanes = isa.f32().len();
        let mut memory = Memory::new();
        let all = self.conv.fan_out.div_ceil(FEW_ROWS);
        let depth = rows.len().div_ceil(rows.len().div_ceil(COPIED_ROWS));
        // As many panels at a time, in as few parts.
        let many = all.div_ceil((all * depth * FEW_ROWS).div_ceil(COPIED_WEIGHTS));
        for first in rows.clone().step_by(depth) {
            let some = first..rows.end.min(first + depth);
            let inner = some.start - rows.start..some.end - rows.start;
            for panels in (0..all).step_by(many) {
                let panels = panels..all.min(panels + many);
                for start in positions.clone().step_by(FEW_VECTORS * lanes) {
                    let count = (FEW_VECTORS * lanes).min(positions.end - start);
                    let at = start - positions.start;
                    let columns = memory.fill(isa, columns, inner.clone(), at, count);
                    let runs = [Run { lane: 0, at: start, count }];
                    let vectors = count.div_ceil(lanes);
                    let whole = if count == FEW_VECTORS * lanes {
                        panels.end.min(self.conv.fan_out / FEW_ROWS).max(panels.start)
                    } else {
                        panels.start
                    };
                    if panels.start < whole {
                        let depth = self.conv.depth();
                        let each = depth * FEW_ROWS;
                        let weights = &self.weights[panels.start * each..whole * each];
                        let (columns, result) = (&columns, &mut self.result);
                        let pass = Pass { is_first: some.start == 0, is_last: some.end == depth };
                        let (row, channel, at) = (some.start, panels.start * FEW_ROWS, start);
                        WholePanels { weights, depth, row, columns, channel, at, pass, result }
                            .dispatch();
                    }
                    for panel in whole..panels.end {
                        let (weights, place) = self.panel(panel, FEW_ROWS, &some, &runs);
                        let (columns, place) = (&columns, &place);
                        let result = &mut self.result;
                        Panel { weights, columns, vectors, place, result }.dispatch();
                    }
                }
            }
        }
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
