//! Windows that slide over images, and the elements under windows as matrix columns.

use std::ops::Range;

use rten_simd::Isa;
use rten_simd::ops::BitOps;

use crate::bytes::Encoding;
use crate::error::{Error, Result};
use crate::lanes::{self, Lane};
use crate::raw::Planes;
use crate::tile::COLUMNS;

/// One spatial dimension of a sliding window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Side {
    /// Input elements.
    pub size: usize,
    /// Window positions.
    pub out: usize,
    /// Elements under the window.
    pub kernel: usize,
    /// Elements from one position to the next.
    pub stride: usize,
    /// Elements from one under the window to the next.
    pub dilation: usize,
    /// Zeros in front of the input.
    pub before: usize,
}

impl Side {
    /// Returns the element under the window at a position, if that is not padding.
    #[inline(always)]
    pub(crate) fn element(&self, position: usize, tap: usize) -> Option<usize> {
        (position * self.stride + tap * self.dilation)
            .checked_sub(self.before)
            .filter(|&element| element < self.size)
    }

    /// Returns the positions, of some, at which an element under the window is not padding.
    #[inline(always)]
    pub(crate) fn inside(&self, first: usize, count: usize, tap: usize) -> (usize, usize) {
        let offset = first * self.stride + tap * self.dilation;
        let start = self.steps(self.before.saturating_sub(offset)).min(count);
        let room = (self.size + self.before).saturating_sub(offset);
        (start, self.steps(room).clamp(start, count))
    }

    /// Returns elements by the stride, rounded up; divisions take longer than all else of a row.
    #[inline(always)]
    fn steps(&self, elements: usize) -> usize {
        match self.stride {
            1 => elements,
            2 => elements.div_ceil(2),
            stride => elements.div_ceil(stride),
        }
    }

    /// Returns the dimension at some positions, and the input elements that are left: the elements
    /// under the window at those positions, or a single element if there are none.
    pub(crate) fn part(&self, positions: Range<usize>) -> (Self, Range<usize>) {
        let first = positions.start * self.stride;
        let reach = (positions.len() - 1) * self.stride + (self.kernel - 1) * self.dilation + 1;
        let start = first.saturating_sub(self.before);
        let stop = self.size.min((first + reach).saturating_sub(self.before));
        let (before, elements) = if start < stop {
            (self.before.saturating_sub(first), start..stop)
        } else {
            (reach, 0..1) // Padding alone: the element lies behind all positions.
        };
        (Self { size: elements.len(), out: positions.len(), before, ..*self }, elements)
    }

    fn is_valid(&self) -> bool {
        const MOST: usize = 1 << 28;
        let sizes = [self.size, self.out, self.kernel, self.stride, self.dilation];
        sizes.iter().all(|size| (1..=MOST).contains(size)) && self.before <= MOST
    }
}

/// A window that slides over images: rows, then columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sliding {
    pub(crate) rows: Side,
    pub(crate) columns: Side,
}

impl Sliding {
    /// Returns a two-dimensional window.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfRange`] if a size is zero, or larger than any image.
    pub fn new(rows: Side, columns: Side) -> Result<Self> {
        if rows.is_valid() && columns.is_valid() {
            Ok(Self { rows, columns })
        } else {
            Err(Error::OutOfRange { what: "a size of the window" })
        }
    }

    /// Returns the elements under the window.
    pub fn taps(&self) -> usize {
        self.rows.kernel * self.columns.kernel
    }

    /// Returns the elements per input plane.
    pub fn plane(&self) -> usize {
        self.rows.size * self.columns.size
    }

    /// Returns the elements per input row.
    pub fn width(&self) -> usize {
        self.columns.size
    }

    /// Returns the window position count.
    pub fn positions(&self) -> usize {
        self.rows.out * self.columns.out
    }

    /// Returns whether the elements at all positions are the input elements, in order.
    pub(crate) fn is_identity(&self) -> bool {
        [self.rows, self.columns].iter().all(|side| {
            side.kernel == 1 && side.stride == 1 && side.before == 0 && side.out == side.size
        })
    }
}

/// Positions in one output row.
#[derive(Clone, Copy, Debug, Default)]
struct Segment {
    row: usize,
    first: usize,
    at: usize,
    count: usize,
}

/// Some window positions, row by row.
#[derive(Debug)]
pub(crate) struct Segments {
    all: [Segment; COLUMNS],
    count: usize,
    /// Position count.
    pub(crate) len: usize,
}

impl Segments {
    /// Returns the segments for up to [`COLUMNS`] positions, counted row by row.
    pub(crate) fn new(window: &Sliding, start: usize, len: usize) -> Self {
        let width = window.columns.out;
        let mut found = Self { all: [Segment::default(); COLUMNS], count: 0, len };
        let mut at = 0;
        while at < len {
            let (row, first) = ((start + at) / width, (start + at) % width);
            let count = (width - first).min(len - at);
            found.all[found.count] = Segment { row, first, at, count };
            found.count += 1;
            at += count;
        }
        found
    }

    /// Writes the elements of a byte plane under one tap as lane elements; padding stands for zero.
    /// Elements behind the positions may be written, too.
    #[inline(always)]
    pub(crate) fn convert<L: Lane>(
        &self,
        window: &Sliding,
        (y, x): (usize, usize),
        encoding: Encoding,
        plane: &[u8],
        padding: L::Element,
        target: &mut [L::Element],
    ) {
        let columns = &window.columns;
        for segment in &self.all[..self.count] {
            let Segment { row, first, at, count } = *segment;
            let Some(line) = window.rows.element(row, y) else {
                target[at..at + count].fill(padding);
                continue;
            };
            let (start, stop) = columns.inside(first, count, x);
            target[at..at + start].fill(padding);
            if stop > start {
                let origin =
                    line * columns.size + (first + start) * columns.stride + x * columns.dilation
                        - columns.before;
                let source = &plane[origin..];
                let target = &mut target[at + start..];
                lanes::convert::<L>(encoding, source, columns.stride, stop - start, target);
            }
            target[at + stop..at + count].fill(padding);
        }
    }
}

/// The channels in one image group.
pub(crate) struct Channels<'a, 'i> {
    pub(crate) image: &'a Planes<'i>,
    pub(crate) n: usize,
    pub(crate) first: usize,
}

impl<'i> Channels<'_, 'i> {
    /// Returns a channel's elements in the group.
    #[inline(always)]
    pub(crate) fn plane(&self, channel: usize) -> &'i [f32] {
        self.image.plane(self.n, self.first + channel)
    }
}

/// Writes rows of a matrix with one column per window position.
///
/// Row `r` of the result is matrix row `first + r`: rows are channels times elements under the
/// window. Each row has [`COLUMNS`] elements; elements behind the positions are zero.
#[inline(always)]
pub(crate) fn pack<I: Isa>(
    isa: I,
    window: &Sliding,
    segments: &Segments,
    first: usize,
    channels: &Channels<'_, '_>,
    target: &mut [f32],
) {
    let width = window.columns.size;
    let mut channel = first / window.taps();
    let tap = first % window.taps();
    let (mut y, mut x) = (tap / window.columns.kernel, tap % window.columns.kernel);
    let mut image = channels.plane(channel);
    let mut rest = target;
    while !rest.is_empty() {
        if x == window.columns.kernel {
            (y, x) = (y + 1, 0);
        }
        if y == window.rows.kernel {
            y = 0;
            channel += 1;
            image = channels.plane(channel);
        }
        for segment in &segments.all[..segments.count] {
            let Segment { row, first, at, count } = *segment;
            let Some(line) = window.rows.element(row, y) else {
                rest[at..at + count].fill(0.0);
                continue;
            };
            let (start, stop) = window.columns.inside(first, count, x);
            rest[at..at + start].fill(0.0);
            if stop > start {
                let origin = line * width
                    + (first + start) * window.columns.stride
                    + x * window.columns.dilation
                    - window.columns.before;
                let source = &image[origin..];
                match window.columns.stride {
                    1 => copy(isa, source, &mut rest[at + start..], stop - start),
                    2 => every_second(source, &mut rest[at + start..at + stop]),
                    _ => {
                        let elements = source.iter().step_by(window.columns.stride);
                        for (to, from) in rest[at + start..at + stop].iter_mut().zip(elements) {
                            *to = *from;
                        }
                    }
                }
            }
            rest[at + stop..at + count].fill(0.0);
        }
        rest[segments.len..COLUMNS].fill(0.0);
        rest = &mut rest[COLUMNS..];
        x += 1;
    }
}

/// Copies every second element, beginning with the first.
#[inline(always)]
pub(crate) fn every_second(source: &[f32], target: &mut [f32]) {
    let pairs = source.as_chunks::<2>().0;
    for (to, [from, _]) in target.iter_mut().zip(pairs) {
        *to = *from;
    }
    // The last element may be alone.
    if let Some(to) = target.get_mut(pairs.len()) {
        *to = source[2 * pairs.len()];
    }
}

/// Copies elements, and may overwrite elements behind them in `target`.
///
/// Matrix rows are written from front to back, so that all elements which are overwritten here are
/// written later.
#[inline(always)]
fn copy<I: Isa>(isa: I, source: &[f32], target: &mut [f32], count: usize) {
    let ops = isa.f32();
    let step = ops.len();
    let mut at = 0;
    while at < count {
        if source.len() - at >= step && target.len() - at >= step {
            ops.store(ops.load(&source[at..]), &mut target[at..]);
        } else {
            target[at..count].copy_from_slice(&source[at..count]);
            return;
        }
        at += step;
    }
}
