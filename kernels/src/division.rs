//! The division of a convolution among threads.
//!
//! A part of a convolution is itself a convolution, over some images, groups, channels or
//! positions.

use std::ops::Range;

use crate::conv_shape::{Conv, Start};
use crate::pack::{Side, Sliding};
use crate::raw::{Axis, Planes, PlanesMut};
use crate::team::LEAST;
use crate::tile::{COLUMNS, panel_rows};

/// Length in cycles from which on each thread may get two parts.
const LONG: usize = 1 << 21;

/// A division into parts of equal size; the last part may be smaller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cut {
    by: By,
    /// The size per part.
    step: usize,
}

/// The dimension that is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    Images,
    Groups,
    /// Result channels in one group: every part copies the image.
    Channels,
    Rows,
    /// Positions in an image with one row, or for a window with one element.
    Columns,
}

impl Cut {
    /// Returns the fastest division of a convolution that takes some cycles, if that pays.
    pub(crate) fn fastest(
        conv: &Conv,
        images: usize,
        room: usize,
        threads: usize,
        cycles: usize,
    ) -> Option<Self> {
        if threads < 2 || cycles < 2 * LEAST {
            return None;
        }
        let window = &conv.window;
        let dimensions = [
            (By::Images, images, 1),
            (By::Groups, conv.groups, 1),
            (By::Channels, if conv.groups == 1 { conv.fan_out } else { 1 }, panel_rows()),
            (By::Rows, if window.is_identity() { 1 } else { window.rows.out }, 1),
            (By::Columns, if flat(window).is_some() { window.positions() } else { 1 }, COLUMNS / 3),
        ];
        let counts = [threads, 2 * threads];
        let counts = &counts[..if cycles / threads > LONG { 2 } else { 1 }];
        let divided = dimensions.into_iter().flat_map(|dimension| {
            counts.iter().filter_map(move |&parts| {
                let (by, count, unit) = dimension;
                let step = count.div_ceil(parts.min(cycles / LEAST)).next_multiple_of(unit);
                let made = count.div_ceil(step);
                if made < 2 {
                    return None;
                }
                let cut = Self { by, step };
                let rounds = made.div_ceil(threads);
                let time = cut.part_cycles(conv, images, room).saturating_mul(rounds);
                // A single part per thread waits longer for a thread that does something else.
                let wait = if parts == threads { time / 32 } else { 0 };
                Some((time + wait, cut))
            })
        });
        let (time, cut) = divided.min_by_key(|(time, _)| *time)?;
        (time < cycles / 8 * 7).then_some(cut)
    }

    /// Returns about how many cycles a part takes.
    fn part_cycles(&self, conv: &Conv, images: usize, room: usize) -> usize {
        let (mut part, mut images) = (*conv, images);
        match self.by {
            By::Images => images = self.step,
            By::Groups => part.groups = self.step,
            By::Channels => part.fan_out = self.step,
            By::Rows => part.window.rows.out = self.step,
            By::Columns => {
                part.window = flat(&conv.window).map_or(conv.window, |mut window| {
                    window.columns.out = self.step;
                    // For a window with one element, columns are the image's columns.
                    if conv.window.is_identity() {
                        window.columns.size = self.step;
                    }
                    window
                });
            }
        }
        part.fastest(room, part.copies()).cycles().saturating_mul(images * part.groups)
    }
}

/// Returns an equivalent window over one row, if there is one.
fn flat(window: &Sliding) -> Option<Sliding> {
    if window.is_identity() {
        let count = window.positions();
        let rows = Side { size: 1, out: 1, ..window.rows };
        Some(Sliding { rows, columns: Side { size: count, out: count, ..window.columns } })
    } else {
        (window.rows.size == 1 && window.rows.out == 1).then_some(*window)
    }
}

/// A convolution with all operands.
pub(crate) struct ConvPart<'m> {
    pub(crate) conv: Conv,
    pub(crate) image: Planes<'m>,
    pub(crate) weights: &'m [f32],
    pub(crate) bias: Option<&'m [f32]>,
    pub(crate) start: Start<'m>,
    pub(crate) bounds: (f32, f32),
    pub(crate) output: PlanesMut<'m>,
}

/// A convolution's parts.
pub(crate) struct Parts<'m> {
    /// All operands; the result of the parts that follow.
    rest: ConvPart<'m>,
    cut: Cut,
    /// The divided dimension's size.
    count: usize,
    /// The size that has been handed out.
    made: usize,
}

impl<'m> Parts<'m> {
    pub(crate) fn new(mut whole: ConvPart<'m>, cut: Cut, images: usize) -> Self {
        let count = match cut.by {
            By::Images => images,
            By::Groups => whole.conv.groups,
            By::Channels => whole.conv.fan_out,
            By::Rows => whole.conv.window.rows.out,
            By::Columns => {
                whole.conv.window = flat(&whole.conv.window).unwrap_or(whole.conv.window);
                whole.conv.window.columns.out
            }
        };
        Self { rest: whole, cut, count, made: 0 }
    }
}

impl<'m> Iterator for Parts<'m> {
    type Item = ConvPart<'m>;

    fn next(&mut self) -> Option<ConvPart<'m>> {
        if self.made == self.count {
            return None;
        }
        let some = self.made..self.count.min(self.made + self.cut.step);
        self.made = some.end;
        Some(self.rest.take(self.cut.by, some))
    }
}

impl ConvPart<'_> {
    /// Takes the part with some indices, the first that are left.
    fn take(&mut self, by: By, some: Range<usize>) -> Self {
        let mut conv = self.conv;
        let Self { image, mut weights, mut bias, bounds, .. } = *self;
        let [images, channels] = image.counts();
        let (mut n, mut inward, mut read) = (0..images, 0..channels, 0..image.size());
        // Weights per result channel, in a panel.
        let each = conv.depth();
        let (axis, made) = match by {
            By::Images => {
                n = some.clone();
                (Axis::Images, some)
            }
            By::Groups => {
                let (fan_in, fan_out) = (conv.fan_in, conv.fan_out);
                conv.groups = some.len();
                inward = some.start * fan_in..some.end * fan_in;
                let each = each * fan_out.next_multiple_of(panel_rows());
                weights = &weights[some.start * each..some.end * each];
                let made = some.start * fan_out..some.end * fan_out;
                bias = bias.map(|bias| &bias[made.clone()]);
                (Axis::Channels, made)
            }
            By::Channels => {
                conv.fan_out = some.len();
                weights =
                    &weights[some.start * each..some.end.next_multiple_of(panel_rows()) * each];
                bias = bias.map(|bias| &bias[some.clone()]);
                (Axis::Channels, some)
            }
            By::Rows => {
                let Sliding { rows, columns } = self.conv.window;
                let (part, elements) = rows.part(some.clone());
                conv.window.rows = part;
                read = elements.start * columns.size..elements.end * columns.size;
                (Axis::Elements, some.start * columns.out..some.end * columns.out)
            }
            By::Columns => {
                let (part, elements) = self.conv.window.columns.part(some.clone());
                conv.window.columns = part;
                read = elements;
                (Axis::Elements, some)
            }
        };
        let start = match self.start {
            Start::Numbers(numbers) => {
                let [images, channels] = numbers.counts();
                let (mut n, mut c, mut e) = (0..images, 0..channels, 0..numbers.size());
                match axis {
                    Axis::Images => n = made.clone(),
                    Axis::Channels => c = made.clone(),
                    Axis::Elements => e = made.clone(),
                }
                Start::Numbers(numbers.part(n, c, e))
            }
            start => start,
        };
        let output = self.output.split_off(axis, made.len());
        let image = image.part(n, inward, read);
        Self { conv, image, weights, bias, start, bounds, output }
    }
}
