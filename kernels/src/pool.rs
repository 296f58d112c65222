//! Pooling: the largest element of every window, or the mean.

use rten_simd::{Isa, SimdOp};

use crate::error::{Result, check, check_at_least};
use crate::pack::Sliding;
use crate::raw::{Planes, PlanesMut};

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
/// * `scratch`: one row of the image.
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
    Sweep { window, pooling, image, output, line }.dispatch();
    Ok(())
}

struct Sweep<'a, 'i, 'o> {
    window: &'a Sliding,
    pooling: Pooling<'a>,
    image: &'a Planes<'i>,
    output: &'a mut PlanesMut<'o>,
    line: &'a mut [f32],
}

impl SimdOp for Sweep<'_, '_, '_> {
    type Output = ();

    #[inline(always)]
    fn eval<I: Isa>(self, _: I) {
        let Self { window, pooling, image, output, line } = self;
        let [images, channels] = image.counts();
        for n in 0..images {
            for channel in 0..channels {
                let (source, target) = (image.plane(n, channel), output.plane(n, channel));
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
                // Of two elements beside each other, the first one counts; the last may be alone.
                let pairs = elements.chunks(2);
                for (sum, pair) in target.iter_mut().zip(pairs) {
                    *sum = combine(*sum, pair[0]);
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
