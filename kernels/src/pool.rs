//! Pooling: the largest element of every window, or the mean.

use rten_simd::ops::{BitOps, FloatOps, NumOps};
use rten_simd::{Isa, SimdOp};

use crate::conv::LANES;
use crate::error::{Result, check, check_at_least};
use crate::pack::{Sliding, every_second};
use crate::raw::{Axis, Planes, PlanesMut, store_part};
use crate::team::{Team, even, ranges};

/// Elements of rows with their padding that are worked on as vectors.
const SHORT: usize = 1024;

/// The combination of the elements of a window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pooling<'a> {
    /// The largest one; if one is no number, that.
    Max,
    /// The sum divided by the product of a number per row and one per column.
    Mean {
        /// One number per row of the result.
        rows: &'a [f32],
        /// One number per column of the result.
        columns: &'a [f32],
    },
}

/// Pools all planes.
///
/// # Arguments
///
/// * `scratch`: one row of the image; each helper of the team has one, too.
///
/// # Errors
///
/// [`Error::WrongSize`](crate::Error::WrongSize) if an operand is of another size.
pub fn pool(
    window: &Sliding,
    pooling: Pooling<'_>,
    image: &Planes<'_>,
    output: &mut PlanesMut<'_>,
    scratch: &mut [f32],
    team: &Team,
) -> Result<()> {
    for at in 0..2 {
        check("the planes of the result", output.counts()[at], image.counts()[at])?;
    }
    check("a plane of the image", image.size(), window.plane())?;
    check("a plane of the result", output.size(), window.positions())?;
    check_at_least("the scratch memory", scratch.len(), window.columns.size)?;
    if let Pooling::Mean { rows, columns } = pooling {
        check("the numbers per row", rows.len(), window.rows.out)?;
        check("the numbers per column", columns.len(), window.columns.out)?;
    }
    let line = &mut scratch[..window.columns.size];
    let [images, channels] = image.counts();
    let cycles = images * channels * (window.positions() * window.taps() / 4);
    let mut rest = output.reborrow();
    let parts = ranges(channels, even(team, channels, cycles)).map(move |some| {
        let output = rest.split_off(Axis::Channels, some.len());
        (image.part(0..images, some, 0..image.size()), output)
    });
    team.run(parts, line, |(image, output), line| {
        let line = &mut line[..window.columns.size];
        Sweep { window, pooling, image, output, line }.dispatch();
    });
    Ok(())
}

struct Sweep<'a, 'l> {
    window: &'a Sliding,
    pooling: Pooling<'a>,
    image: Planes<'a>,
    output: PlanesMut<'a>,
    line: &'l mut [f32],
}

impl SimdOp for Sweep<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn eval<I: Isa>(self, isa: I) {
        let Self { window, pooling, image, mut output, line } = self;
        let [images, channels] = image.counts();
        let mut short = Short::new(window, pooling);
        for n in 0..images {
            for channel in 0..channels {
                let (source, target) = (image.plane(n, channel), output.plane(n, channel));
                if let Some(short) = &mut short {
                    short.plane(isa, window, pooling, source, target);
                    continue;
                }
                for (row, target) in target.chunks_exact_mut(window.columns.out).enumerate() {
                    match pooling {
                        Pooling::Max => {
                            reduce(window, source, row, line, target, f32::NEG_INFINITY, larger);
                        }
                        Pooling::Mean { rows, columns } => {
                            reduce(
                                window,
                                source,
                                row,
                                line,
                                target,
                                0.0,
                                #[inline(always)]
                                |a, b| a + b,
                            );
                            for (element, column) in target.iter_mut().zip(columns) {
                                *element /= rows[row] * column;
                            }
                        }
                    }
                }
            }
        }
    }
}

/// The combined elements of the columns of a few rows, each with its padding.
///
/// A vector cannot be loaded soon after parts of it were stored, so several rows are stored before the
/// first one is loaded.
struct Short {
    /// Elements from one row to the next.
    pitch: usize,
    all: [f32; SHORT],
    /// Every second one, from the first and from the second one on.
    halves: [[f32; SHORT / 2]; 2],
}

impl Short {
    /// Returns memory for rows that are not too long.
    fn new(window: &Sliding, pooling: Pooling<'_>) -> Option<Self> {
        let side = &window.columns;
        let reach = (side.out - 1) * side.stride + (side.kernel - 1) * side.dilation + 2 * LANES;
        let pitch = reach.max(side.before + side.size + LANES).next_multiple_of(2);
        let identity = identity(pooling);
        (side.stride <= 2 && pitch <= SHORT).then_some(Self {
            pitch,
            all: [identity; SHORT],
            halves: [[identity; SHORT / 2]; 2],
        })
    }

    /// Combines the elements of all windows of a plane.
    #[inline(always)]
    fn plane<I: Isa>(
        &mut self,
        isa: I,
        window: &Sliding,
        pooling: Pooling<'_>,
        source: &[f32],
        target: &mut [f32],
    ) {
        let (rows, out, some) = (window.rows.out, window.columns.out, SHORT / self.pitch);
        for first in (0..rows).step_by(some) {
            let count = some.min(rows - first);
            for at in 0..count {
                self.combine_rows(isa, window, pooling, source, first + at, at * self.pitch);
            }
            if window.columns.stride == 2 {
                let len = count * self.pitch;
                for (start, half) in self.halves.iter_mut().enumerate() {
                    every_second(&self.all[start..len], &mut half[..len / 2]);
                }
            }
            for at in 0..count {
                let row = first + at;
                let target = &mut target[row * out..(row + 1) * out];
                self.combine_columns(isa, window, pooling, row, at * self.pitch, target);
            }
        }
    }

    /// Combines the elements of each column under the window.
    #[inline(always)]
    fn combine_rows<I: Isa>(
        &mut self,
        isa: I,
        window: &Sliding,
        pooling: Pooling<'_>,
        source: &[f32],
        row: usize,
        start: usize,
    ) {
        let (ops, width) = (isa.f32(), window.columns.size);
        let padding = ops.splat(identity(pooling));
        for x in (0..width).step_by(ops.len()) {
            let mut sum = padding;
            for tap in 0..window.rows.kernel {
                let Some(y) = window.rows.element(row, tap) else { continue };
                let (vector, mask) = ops.load_pad(&source[y * width + x..(y + 1) * width]);
                sum = combined(isa, pooling, sum, ops.select(vector, padding, mask));
            }
            ops.store(sum, &mut self.all[start + window.columns.before + x..]);
        }
    }

    /// Combines the columns of each window.
    #[inline(always)]
    fn combine_columns<I: Isa>(
        &self,
        isa: I,
        window: &Sliding,
        pooling: Pooling<'_>,
        row: usize,
        start: usize,
        target: &mut [f32],
    ) {
        let (ops, side) = (isa.f32(), &window.columns);
        for x in (0..side.out).step_by(ops.len()) {
            let mut sum = ops.splat(identity(pooling));
            for tap in 0..side.kernel {
                let at = tap * side.dilation;
                let elements = if side.stride == 2 {
                    &self.halves[at % 2][start / 2 + x + at / 2..]
                } else {
                    &self.all[start + x + at..]
                };
                sum = combined(isa, pooling, sum, ops.load(elements));
            }
            if let Pooling::Mean { rows, columns } = pooling {
                let counts = ops.mul(ops.splat(rows[row]), ops.load_pad(&columns[x..]).0);
                sum = ops.div(sum, counts);
            }
            store_part(isa, sum, &mut target[x..]);
        }
    }
}

/// Returns the number that changes no combination.
#[inline(always)]
fn identity(pooling: Pooling<'_>) -> f32 {
    match pooling {
        Pooling::Max => f32::NEG_INFINITY,
        Pooling::Mean { .. } => 0.0,
    }
}

/// Combines two vectors; of what is no number, the result is that.
#[inline(always)]
fn combined<I: Isa>(isa: I, pooling: Pooling<'_>, a: I::F32, b: I::F32) -> I::F32 {
    let ops = isa.f32();
    match pooling {
        Pooling::Max => {
            let larger = ops.select(b, a, ops.gt(b, a));
            ops.select(larger, b, ops.eq(b, b))
        }
        Pooling::Mean { .. } => ops.add(a, b),
    }
}

/// Returns the larger number, or what is no number.
#[inline(always)]
fn larger(a: f32, b: f32) -> f32 {
    if b > a || b.is_nan() { b } else { a }
}

/// Combines the elements of all windows of a row: first those of each column, then those beside
/// each other.
#[inline(always)]
fn reduce(
    window: &Sliding,
    source: &[f32],
    row: usize,
    line: &mut [f32],
    target: &mut [f32],
    identity: f32,
    combine: impl Fn(f32, f32) -> f32,
) {
    let width = window.columns.size;
    line.fill(identity);
    for tap in 0..window.rows.kernel {
        let Some(y) = window.rows.element(row, tap) else { continue };
        for (sum, element) in line.iter_mut().zip(&source[y * width..(y + 1) * width]) {
            *sum = combine(*sum, *element);
        }
    }
    target.fill(identity);
    let side = &window.columns;
    for tap in 0..side.kernel {
        let (start, stop) = side.inside(0, side.out, tap);
        let first = start * side.stride + tap * side.dilation;
        let elements = &line[first.saturating_sub(side.before).min(width)..];
        let target = &mut target[start..stop];
        match side.stride {
            1 => {
                for (sum, element) in target.iter_mut().zip(elements) {
                    *sum = combine(*sum, *element);
                }
            }
            2 => {
                // Of two elements beside each other, the first one counts.
                let pairs = elements.as_chunks::<2>().0;
                for (sum, [element, _]) in target.iter_mut().zip(pairs) {
                    *sum = combine(*sum, *element);
                }
                let (last, alone) = (target.get_mut(pairs.len()), elements.get(2 * pairs.len()));
                if let Some((sum, element)) = last.zip(alone) {
                    *sum = combine(*sum, *element);
                }
            }
            _ => {
                for (sum, element) in target.iter_mut().zip(elements.iter().step_by(side.stride)) {
                    *sum = combine(*sum, *element);
                }
            }
        }
    }
}
