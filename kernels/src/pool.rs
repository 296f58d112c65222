//! Pooling: the largest element, or the mean, under every window.

use rten_simd::ops::{BitOps, FloatOps, NumOps};
use rten_simd::{Isa, SimdOp};

use crate::error::{Result, check, check_at_least};
use crate::order::{larger, larger_of};
use crate::pack::{Sliding, every_second};
use crate::raw::{Axis, Planes, PlanesMut, load_part, store_part};
use crate::team::{Team, even, ranges};
use crate::tile::LANES;

/// Elements per padded row that fit the vector code.
const SHORT: usize = 512;

/// The combination of the elements under a window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pooling<'a> {
    /// The largest element; NaN if any element is NaN.
    Max,
    /// The sum divided by the product of a number per row and one per column.
    Mean {
        /// One number per result row.
        rows: &'a [f32],
        /// One number per result column.
        columns: &'a [f32],
    },
}

/// Pools all planes.
///
/// # Arguments
///
/// * `scratch`: one image row; each helper in the team has a row, too.
///
/// # Errors
///
/// [`Error::WrongSize`](crate::Error::WrongSize) if an operand has the wrong size.
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
        PoolSweep { window, pooling, image, output, line }.dispatch();
    });
    Ok(())
}

struct PoolSweep<'a, 'l> {
    window: &'a Sliding,
    pooling: Pooling<'a>,
    image: Planes<'a>,
    output: PlanesMut<'a>,
    line: &'l mut [f32],
}

impl SimdOp for PoolSweep<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn eval<I: Isa>(self, isa: I) {
        let Self { window, pooling, image, mut output, line } = self;
        let [images, channels] = image.counts();
        let mut short = is_short(window).then_some(Short::new());
        for n in 0..images {
            for channel in 0..channels {
                let (source, target) = (image.plane(n, channel), output.plane(n, channel));
                for (row, target) in target.chunks_exact_mut(window.columns.out).enumerate() {
                    if let Some(short) = &mut short {
                        short.reduce(isa, window, pooling, source, row, target);
                        continue;
                    }
                    match pooling {
                        Pooling::Max => {
                            reduce(window, source, row, line, target, f32::NEG_INFINITY, larger_of);
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

/// Whether rows are worked on as vectors.
fn is_short(window: &Sliding) -> bool {
    let side = &window.columns;
    let reach = (side.out - 1) * side.stride + (side.kernel - 1) * side.dilation;
    side.stride <= 2 && reach.max(side.before + side.size) + 3 * LANES <= SHORT
}

/// The combined column elements in a row, with padding around.
struct Short {
    all: [f32; SHORT],
    /// Every second element, from the first and from the second on.
    halves: [[f32; SHORT / 2]; 2],
}

impl Short {
    const fn new() -> Self {
        Self { all: [0.0; SHORT], halves: [[0.0; SHORT / 2]; 2] }
    }

    /// Combines the elements under all windows in a row.
    #[inline(always)]
    fn reduce<I: Isa>(
        &mut self,
        isa: I,
        window: &Sliding,
        pooling: Pooling<'_>,
        source: &[f32],
        row: usize,
        target: &mut [f32],
    ) {
        let ops = isa.f32();
        match pooling {
            Pooling::Max => self.combine(
                isa,
                window,
                source,
                row,
                target,
                f32::NEG_INFINITY,
                #[inline(always)]
                |a, b| larger(isa, a, b),
                #[inline(always)]
                |sum, _| sum,
            ),
            Pooling::Mean { rows, columns } => {
                let rows = ops.splat(rows[row]);
                self.combine(
                    isa,
                    window,
                    source,
                    row,
                    target,
                    0.0,
                    #[inline(always)]
                    |a, b| ops.add(a, b),
                    #[inline(always)]
                    |sum, x| ops.div(sum, ops.mul(rows, load_part(isa, &columns[x..]))),
                );
            }
        }
    }

    #[inline(always)]
    #[allow(clippy::too_many_arguments, reason = "operands of different kinds")]
    fn combine<I: Isa>(
        &mut self,
        isa: I,
        window: &Sliding,
        source: &[f32],
        row: usize,
        target: &mut [f32],
        identity: f32,
        combine: impl Fn(I::F32, I::F32) -> I::F32,
        finish: impl Fn(I::F32, usize) -> I::F32,
    ) {
        let (ops, side) = (isa.f32(), &window.columns);
        let (width, before, padding) = (side.size, side.before, ops.splat(identity));
        let reach = (side.out - 1) * side.stride + (side.kernel - 1) * side.dilation + 2 * LANES;
        for x in (0..width).step_by(ops.len()) {
            let mut sum = padding;
            for tap in 0..window.rows.kernel {
                let Some(y) = window.rows.element(row, tap) else { continue };
                let line = &source[y * width..(y + 1) * width];
                sum = combine(sum, load_part(isa, &line[x..]));
            }
            ops.store(sum, &mut self.all[before + x..]);
        }
        self.all[..before].fill(identity);
        let end = before + width;
        self.all[end..end.max(reach)].fill(identity);
        if side.stride == 2 {
            let half = reach.div_ceil(2);
            for (first, half_line) in self.halves.iter_mut().enumerate() {
                every_second(&self.all[first..], &mut half_line[..half.min(SHORT / 2 - 1)]);
            }
        }
        for x in (0..side.out).step_by(ops.len()) {
            let mut sum = padding;
            for tap in 0..side.kernel {
                let at = tap * side.dilation;
                let elements = if side.stride == 2 {
                    &self.halves[at % 2][x + at / 2..]
                } else {
                    &self.all[x + at..]
                };
                sum = combine(sum, ops.load(elements));
            }
            store_part(isa, finish(sum, x), &mut target[x..]);
        }
    }
}

/// Combines the elements under all windows in a row: first per column, then side by side.
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
                // Of two elements beside each other, the first counts.
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
