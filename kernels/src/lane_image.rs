//! Lanes for a byte image: a few channels per position.

use std::marker::PhantomData;
use std::ops::Range;

use rten_simd::Isa;

use crate::bytes::Encoding;
use crate::frame::Source;
use crate::lanes::{Lane, MOST_CHANNELS, SOME, convert};
use crate::pack::{Segments, Sliding};
use crate::raw::Planes;
use crate::tile::COLUMNS;

/// Elements in a line under construction: as many as positions, and elements that conversions may
/// write behind.
const LINE: usize = COLUMNS + SOME;

/// Lines for the channels in a lane.
type LinesOf<L> = [[<L as Lane>::Element; LINE]; MOST_CHANNELS];

/// A group's channels, some per lane; channels in the last lane may be missing.
#[derive(Clone)]
pub(crate) struct Image<'a, L> {
    pub(crate) planes: &'a Planes<'a, u8>,
    pub(crate) encoding: Encoding,
    /// The image in the batch.
    pub(crate) n: usize,
    pub(crate) channels: Range<usize>,
    pub(crate) lane: PhantomData<L>,
}

impl<L: Lane> Image<'_, L> {
    /// Returns the planes for a lane's channels. Planes for missing channels count for nothing,
    /// since their weights are zero.
    #[inline(always)]
    fn planes(&self, lane: usize) -> [&[u8]; MOST_CHANNELS] {
        let first = self.channels.start + lane * L::LANES.channels();
        let last = self.channels.end - 1;
        std::array::from_fn(|at| self.planes.plane(self.n, (first + at).min(last)))
    }

    /// Returns the element that stands for zero.
    #[inline(always)]
    fn padding(&self) -> L::Element {
        let zero = self.encoding.zero.to_le_bytes()[0];
        L::element(self.encoding, zero)
    }
}

impl<L: Lane> Source for Image<'_, L> {
    #[inline(always)]
    fn nothing(&self) -> f32 {
        bits(L::join([self.padding(); MOST_CHANNELS]))
    }

    #[inline(always)]
    fn row<I: Isa>(
        &self,
        _: I,
        channel: usize,
        elements: Range<usize>,
        stride: usize,
        target: &mut [f32],
    ) {
        let planes = self.planes(channel).map(|plane| &plane[elements.clone()]);
        let encoding = self.encoding;
        if stride == 1 {
            join(planes, |byte| L::element(encoding, byte), L::join, target);
            return;
        }
        let mut lines: LinesOf<L> = [[L::Element::default(); LINE]; MOST_CHANNELS];
        for (at, target) in target.chunks_mut(COLUMNS).enumerate() {
            for (line, plane) in lines.iter_mut().zip(planes).take(L::LANES.channels()) {
                let source = &plane[at * COLUMNS * stride..];
                convert::<L>(encoding, source, stride, target.len(), line);
            }
            join_lines::<L>(&lines, target);
        }
    }
}

/// Writes lanes from the channels in some lines.
#[inline(always)]
fn join_lines<L: Lane>(lines: &LinesOf<L>, target: &mut [f32]) {
    join(lines.each_ref().map(|line| &line[..]), |element| element, L::join, target);
}

/// Writes lanes from channels; each channel has a slice of elements.
#[inline(always)]
fn join<T: Copy, E>(
    channels: [&[T]; MOST_CHANNELS],
    element: impl Fn(T) -> E,
    join: impl Fn([E; MOST_CHANNELS]) -> i32,
    target: &mut [f32],
) {
    let [first, second, third, fourth] = channels;
    let channels = first.iter().zip(second).zip(third.iter().zip(fourth));
    for (to, ((&a, &b), (&c, &d))) in target.iter_mut().zip(channels) {
        *to = bits(join([a, b, c, d].map(&element)));
    }
}

fn bits(lane: i32) -> f32 {
    f32::from_bits(lane.cast_unsigned())
}

/// The rows of a group's unrolled image, from some row on.
pub(crate) struct ImageRows<'a, L> {
    pub(crate) window: &'a Sliding,
    /// The first channels are the channels in the next row.
    pub(crate) image: Image<'a, L>,
    /// The element under the window in the next row.
    pub(crate) tap: (usize, usize),
    pub(crate) positions: Range<usize>,
    pub(crate) segments: &'a Segments,
}

impl<L: Lane> ImageRows<'_, L> {
    /// Writes the next rows, each with the channels in a lane.
    #[inline(always)]
    pub(crate) fn unroll<const N: usize>(&mut self, target: &mut [[f32; N]]) {
        // Elements behind the positions are stale: no result uses them.
        let mut lines: LinesOf<L> = [[L::Element::default(); LINE]; MOST_CHANNELS];
        for lane in target {
            let planes = self.image.planes(0);
            for (line, plane) in lines.iter_mut().zip(planes).take(L::LANES.channels()) {
                self.line(plane, line);
            }
            join_lines::<L>(&lines, lane);
            self.tap.1 += 1;
            if self.tap.1 == self.window.columns.kernel {
                self.tap = (self.tap.0 + 1, 0);
            }
            if self.tap.0 == self.window.rows.kernel {
                self.tap = (0, 0);
                self.image.channels.start += L::LANES.channels();
            }
        }
    }

    /// Writes a channel's elements under the tap.
    #[inline(always)]
    fn line(&self, plane: &[u8], line: &mut [L::Element; LINE]) {
        let encoding = self.image.encoding;
        if self.window.is_identity() {
            let source = &plane[self.positions.start..];
            convert::<L>(encoding, source, 1, self.positions.len(), line);
        } else {
            let padding = self.image.padding();
            self.segments.convert::<L>(self.window, self.tap, encoding, plane, padding, line);
        }
    }
}
