//! Some channels and rows of an image in a frame whose elements stand for zero.
//!
//! A frame has one part per row and column remainder modulo the stride. In a part the elements
//! under a tap at successive positions lie side by side, and the elements one position below lie
//! one *pitch* behind. So position vectors can go over row ends: the lanes there are no positions,
//! and are not stored.

use std::ops::Range;

use rten_simd::Isa;
use rten_simd::ops::BitOps;

use crate::cost::{copied_cycles, product_cycles};
use crate::pack::Channels;
use crate::pack::{Side, Sliding, every_second};
use crate::product::Run;
use crate::raw::{load_part, store_part};
use crate::tile::{COLUMNS, COPIED_COLUMNS, LANES, tile_vectors};

/// Most taps in a window.
const TAPS: usize = 64;
/// Elements behind the last position, which vectors may reach.
const SLACK: usize = COLUMNS;

/// Weights that stay in a second-level cache while all positions are worked on.
const CACHED: usize = 1 << 18;

/// Frame sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    /// Result rows that are made at a time.
    pub(crate) rows: usize,
    /// Image channels at a time.
    pub(crate) channels: usize,
    /// Parts by rows, and by columns.
    parts: [usize; 2],
    /// Rows per part.
    height: usize,
    /// Columns per part.
    pitch: usize,
    /// Positions per result row.
    width: usize,
    /// Rows in the whole result.
    out: usize,
    taps: usize,
}

impl Frame {
    /// Returns the frame for some rows of the result, and as many channels as some elements have
    /// room for, in as few passes; `None` if there is room for none, or no frame for such a window.
    pub(crate) fn within(
        window: &Sliding,
        rows: usize,
        (fan_in, fan_out): (usize, usize),
        room: usize,
    ) -> Option<Self> {
        let reach = |side: &Side, out: usize| {
            (out - 1) + (side.kernel - 1) * side.dilation / side.stride + 1
        };
        // Where one element is under the window, the others of a step are never looked at.
        let parts = |side: &Side| if side.kernel == 1 { 1 } else { side.stride };
        let mut frame = Self {
            rows,
            channels: 1,
            parts: [parts(&window.rows), parts(&window.columns)],
            height: reach(&window.rows, rows),
            pitch: reach(&window.columns, window.columns.out),
            width: window.columns.out,
            out: window.rows.out,
            taps: window.taps(),
        };
        let most = room.saturating_sub(SLACK) / frame.plane();
        if most == 0 || frame.taps > TAPS {
            return None;
        }
        let cached = CACHED / (frame.taps * fan_out).max(1);
        frame.channels = fan_in.div_ceil(fan_in.div_ceil(most.min(cached.max(1))));
        Some(frame)
    }

    /// Returns the frame for some rows of the result and all channels; `None` as above.
    pub(crate) fn of_all(
        window: &Sliding,
        rows: usize,
        fan_in: usize,
        room: usize,
    ) -> Option<Self> {
        let frame = Self::within(window, rows, (1, 1), room)?;
        let frame = Self { channels: fan_in, ..frame };
        (frame.len() <= room).then_some(frame)
    }

    /// Returns the positions per result row.
    pub(crate) fn width(&self) -> usize {
        self.width
    }

    /// Returns the elements from a position to the position in the next result row.
    pub(crate) fn pitch(&self) -> usize {
        self.pitch
    }

    /// Returns the row part count.
    pub(crate) fn bands(&self) -> usize {
        self.out.div_ceil(self.rows)
    }

    /// Returns the elements per channel.
    pub(crate) fn plane(&self) -> usize {
        self.parts[0] * self.parts[1] * self.height * self.pitch
    }

    /// Returns the elements of all channels, and the elements that vectors may reach.
    pub(crate) fn len(&self) -> usize {
        self.channels * self.plane() + SLACK
    }

    /// Returns about how many cycles a convolution takes.
    pub(crate) fn cycles(&self, fan_in: usize, fan_out: usize) -> usize {
        let bands = self.bands();
        let passes = fan_in.div_ceil(self.channels);
        let copied = fan_in * (self.plane() / 2 + 8 * self.height * self.parts[0]);
        let vectors = if self.is_flat(self.rows) {
            self.flat(self.rows).div_ceil(LANES)
        } else {
            self.rows * self.width.div_ceil(LANES)
        };
        // Results in several rows are stored in more than one piece.
        let stored = if self.is_flat(self.rows) { 2 } else { 1 };
        bands * (copied + product_cycles(vectors, fan_out, fan_in * self.taps, stored * passes))
    }

    /// Returns about how many cycles a convolution takes whose columns are copied.
    pub(crate) fn copied_cycles(&self, fan_in: usize, fan_out: usize) -> usize {
        let lines = self.parts[0] * self.parts[1] * self.height;
        let filled = fan_in * (self.plane() + 8 * lines);
        let (positions, depth) = (self.rows * self.width, fan_in * self.taps);
        let passes = fan_in.div_ceil(self.channels);
        let pieces = 1 + COPIED_COLUMNS / self.width;
        self.bands() * (filled + copied_cycles(positions, fan_out, depth, passes, pieces))
    }

    /// Returns the lanes for some rows, with the lanes between rows.
    fn flat(&self, rows: usize) -> usize {
        (rows - 1) * self.pitch + self.width
    }

    /// Returns whether vectors go over row ends.
    fn is_flat(&self, rows: usize) -> bool {
        let by_rows = rows * self.width.div_ceil(LANES);
        let flat = self.flat(rows).div_ceil(LANES);
        // A single vector at a time takes longer, and storing a row in pieces does, too.
        rows > 1 && (flat + flat / 16 < by_rows || self.width <= LANES)
    }

    /// Returns for each tap the element under the tap at position 0 in the first channel.
    pub(crate) fn offsets(&self, window: &Sliding) -> [usize; TAPS] {
        let mut offsets = [0; TAPS];
        let kernel = window.columns.kernel;
        for (tap, offset) in offsets.iter_mut().enumerate().take(self.taps) {
            let (y, x) =
                (tap / kernel * window.rows.dilation, tap % kernel * window.columns.dilation);
            let (rows, columns) = (window.rows.stride, window.columns.stride);
            let part = y % rows * self.parts[1] + x % columns;
            *offset = (part * self.height + y / rows) * self.pitch + x / columns;
        }
        offsets
    }

    /// Copies image channels into the frame, for the result rows from `band` on.
    #[inline(always)]
    pub(crate) fn fill<I: Isa>(
        &self,
        isa: I,
        window: &Sliding,
        band: usize,
        channels: &impl Source,
        some: Range<usize>,
        target: &mut [f32],
    ) {
        let (rows, columns) = (&window.rows, &window.columns);
        let nothing = isa.f32().splat(channels.nothing());
        let end = some.len() * self.plane();
        let mut lines = target[..end].chunks_exact_mut(self.pitch);
        for channel in some {
            for part in 0..self.parts[0] {
                for x in 0..self.parts[1] {
                    // Image columns in this part.
                    let skipped = columns.before.saturating_sub(x).div_ceil(columns.stride);
                    let first = skipped * columns.stride + x;
                    let first = first - columns.before.min(first);
                    let count = columns.size.saturating_sub(first).div_ceil(columns.stride);
                    let start = skipped.min(self.pitch);
                    let stop = (start + count).min(self.pitch);
                    for (y, line) in lines.by_ref().take(self.height).enumerate() {
                        let row = ((band + y) * rows.stride + part)
                            .checked_sub(rows.before)
                            .filter(|&row| row < rows.size && stop > start);
                        let Some(row) = row else {
                            fill(isa, nothing, line);
                            continue;
                        };
                        fill(isa, nothing, &mut line[..start]);
                        let some = row * columns.size + first..(row + 1) * columns.size;
                        channels.row(isa, channel, some, columns.stride, &mut line[start..stop]);
                        fill(isa, nothing, &mut line[stop..]);
                    }
                }
            }
        }
        fill(isa, nothing, &mut target[end..end + SLACK]);
    }
}

/// The channels that a frame has.
pub(crate) trait Source {
    /// Returns the element that stands for zero.
    fn nothing(&self) -> f32 {
        0.0
    }

    /// Writes every `stride`-th element of a channel, until `target` is full.
    fn row<I: Isa>(
        &self,
        isa: I,
        channel: usize,
        elements: Range<usize>,
        stride: usize,
        target: &mut [f32],
    );
}

impl Source for Channels<'_, '_> {
    #[inline(always)]
    fn row<I: Isa>(
        &self,
        isa: I,
        channel: usize,
        elements: Range<usize>,
        stride: usize,
        target: &mut [f32],
    ) {
        let source = &self.plane(channel)[elements];
        match stride {
            1 => copy(isa, source, target),
            2 => every_second(source, target),
            stride => {
                for (to, from) in target.iter_mut().zip(source.iter().step_by(stride)) {
                    *to = *from;
                }
            }
        }
    }
}

/// Fills a short slice with a vector's elements, which are equal.
#[inline(always)]
fn fill<I: Isa>(isa: I, vector: I::F32, target: &mut [f32]) {
    for part in target.chunks_mut(isa.f32().len()) {
        store_part(isa, vector, part);
    }
}

/// Copies a short slice.
#[inline(always)]
fn copy<I: Isa>(isa: I, source: &[f32], target: &mut [f32]) {
    let ops = isa.f32();
    for (to, from) in target.chunks_mut(ops.len()).zip(source.chunks(ops.len())) {
        store_part(isa, load_part(isa, from), to);
    }
}

/// A few vectors in a frame.
pub(crate) struct FrameTile {
    pub(crate) vectors: usize,
    /// The position in the first part of the frame.
    pub(crate) at: usize,
    pub(crate) runs: [Run; COLUMNS],
    pub(crate) count: usize,
}

/// The tiles in a frame, in order.
pub(crate) struct Lines<'f> {
    frame: &'f Frame,
    /// The first result row.
    band: usize,
    /// Lane lines that are left, with the present line.
    left: usize,
    /// Lanes per line.
    len: usize,
    /// The line's first lane in the frame.
    line: usize,
    /// The next lane in the line.
    next: usize,
}

impl<'f> Lines<'f> {
    pub(crate) fn new(frame: &'f Frame, band: usize, rows: usize) -> Self {
        let (left, len) =
            if frame.is_flat(frame.rows) { (1, frame.flat(rows)) } else { (rows, frame.width) };
        Self { frame, band, left, len, line: 0, next: 0 }
    }

    /// Returns the next tile.
    #[inline(always)]
    pub(crate) fn next<I: Isa>(&mut self, isa: I) -> Option<FrameTile> {
        if self.next == self.len {
            (self.line, self.next) = (self.line + self.frame.pitch, 0);
            self.left -= 1;
        }
        if self.left == 0 {
            return None;
        }
        let vectors = tile_vectors(isa, self.len - self.next);
        let lanes = (vectors * isa.f32().len()).min(self.len - self.next);
        let at = self.line + self.next;
        let mut tile = FrameTile { vectors, at, runs: [Run::default(); COLUMNS], count: 0 };
        let (pitch, out) = (self.frame.pitch, self.frame.width);
        let (mut row, mut column) = (at / pitch, at % pitch);
        let mut lane = 0;
        while lane < lanes {
            if column < out {
                let count = (out - column).min(lanes - lane);
                let at = (self.band + row) * out + column;
                tile.runs[tile.count] = Run { lane, at, count };
                tile.count += 1;
            }
            lane += pitch - column;
            (row, column) = (row + 1, 0);
        }
        self.next += lanes;
        Some(tile)
    }
}
