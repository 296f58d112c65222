//! Functions over whole rows: softmax, and normalization by mean and deviation.

use rten_simd::SimdOp;
use rten_vecmath::{Normalize, NormalizeOptions, Softmax, Sum, SumSquare, SumSquareSub};

use crate::error::{Result, check};
use crate::raw::{Axis, Planes, PlanesMut};
use crate::team::{Team, even, ranges};

/// Cycles per row element.
const SOFTMAX: usize = 2;
const NORMALIZATION: usize = 1;

/// Writes the exponentials in each row, divided by their sum.
///
/// Planes are rows. Without a `source`, the rows are replaced.
///
/// # Errors
///
/// [`Error::WrongSize`](crate::Error::WrongSize) if there are more or fewer rows than results.
pub fn softmax(source: Option<&Planes<'_>>, output: &mut PlanesMut<'_>, team: &Team) -> Result<()> {
    each(source, output, team, SOFTMAX, |row| {
        Softmax::new_mut(row).dispatch();
    })
}

/// A row normalization.
#[derive(Clone, Copy, Debug)]
pub struct Normalization<'a> {
    /// Whether the mean is subtracted.
    pub is_centered: bool,
    /// Added to the variance.
    pub epsilon: f32,
    /// Factors for the elements in each row.
    pub scale: Option<&'a [f32]>,
    /// Numbers that are added to the elements in each row.
    pub shift: Option<&'a [f32]>,
}

impl Normalization<'_> {
    /// Normalizes each row: see [`softmax`].
    ///
    /// # Errors
    ///
    /// [`Error::WrongSize`](crate::Error::WrongSize) if an operand has the wrong size.
    pub fn run(
        &self,
        source: Option<&Planes<'_>>,
        output: &mut PlanesMut<'_>,
        team: &Team,
    ) -> Result<()> {
        for (what, operand) in [("the scale", self.scale), ("the shift", self.shift)] {
            if let Some(operand) = operand {
                check(what, operand.len(), output.size())?;
            }
        }
        #[allow(clippy::cast_precision_loss, clippy::as_conversions, reason = "as NumPy has it")]
        let count = output.size() as f32;
        let (lowest, highest) = self.scale.map_or((1.0, 1.0), extent);
        each(source, output, team, NORMALIZATION, |row| {
            let mean = if self.is_centered { Sum::new(row).dispatch() / count } else { 0.0 };
            let squares = if self.is_centered {
                SumSquareSub::new(row, mean).dispatch()
            } else {
                SumSquare::new(row).dispatch()
            };
            let factor = (squares / count + self.epsilon).sqrt().recip();
            let after = NormalizeOptions {
                element_scale: self.scale,
                element_bias: self.shift,
                ..NormalizeOptions::default()
            };
            let first = NormalizeOptions {
                pre_scale_bias: mean,
                scale: factor,
                ..NormalizeOptions::default()
            };
            // At once, scales are multiplied with the factor before elements are.
            if (highest * factor).is_finite() && (lowest * factor).is_normal() {
                let options = NormalizeOptions { pre_scale_bias: mean, scale: factor, ..after };
                Normalize::new_mut(row, options).dispatch();
            } else {
                Normalize::new_mut(row, first).dispatch();
                Normalize::new_mut(row, after).dispatch();
            }
        })
    }
}

/// Returns the least magnitude of numbers besides zeros, and the largest.
fn extent(numbers: &[f32]) -> (f32, f32) {
    let sizes = numbers.iter().map(|number| number.abs()).filter(|&size| size > 0.0);
    sizes.fold((f32::MAX, f32::MIN_POSITIVE), |(least, most), size| {
        (size.min(least), size.max(most))
    })
}

/// Copies each row to its place, if not there yet, and calls a function with the row.
fn each(
    source: Option<&Planes<'_>>,
    output: &mut PlanesMut<'_>,
    team: &Team,
    cycles: usize,
    function: impl Fn(&mut [f32]) + Sync,
) -> Result<()> {
    let counts = output.counts();
    if let Some(source) = source {
        check("the rows", source.counts()[0], counts[0])?;
        check("the rows", source.counts()[1], counts[1])?;
        check("a row", source.size(), output.size())?;
    }
    let (axis, count) =
        if counts[0] > counts[1] { (Axis::Images, counts[0]) } else { (Axis::Channels, counts[1]) };
    let length = even(team, count, counts[0] * counts[1] * output.size() * cycles);
    let mut rest = output.reborrow();
    let parts = ranges(count, length).map(move |some| {
        let output = rest.split_off(axis, some.len());
        (some.start, output)
    });
    team.run(parts, &mut [], |(first, mut output), _| {
        let [images, rows] = output.counts();
        for n in 0..images {
            for at in 0..rows {
                let row = output.plane(n, at);
                if let Some(source) = source {
                    let (n, at) =
                        if axis == Axis::Images { (first + n, at) } else { (n, first + at) };
                    row.copy_from_slice(source.plane(n, at));
                }
                function(row);
            }
        }
    });
    Ok(())
}
