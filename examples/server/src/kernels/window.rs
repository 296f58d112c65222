//! Operators whose windows slide over images: convolutions and pools.

use std::ops::Range;
use std::sync::Arc;

use arenaplan::program::StepMemory;
use ndarray::linalg::general_mat_mul;

use super::Kernel;
use super::operator::{Lent, Operand, Operator, lend};
use super::product::Layout;
use crate::error::Result;

/// One dimension of a window that slides over images.
#[derive(Clone, Copy)]
struct Slide {
    /// Elements of the input.
    input: usize,
    /// Elements of the output.
    output: usize,
    /// Taps of the window.
    taps: usize,
    stride: usize,
    dilation: usize,
    /// Elements by which the first window begins before the input.
    before: usize,
}

impl Slide {
    /// Returns the outputs at which a tap is over an element of the input.
    fn valid(&self, tap: usize) -> Range<usize> {
        let at = tap * self.dilation;
        let first = self.before.saturating_sub(at).div_ceil(self.stride);
        let end = (self.input + self.before).saturating_sub(at).div_ceil(self.stride);
        let end = end.min(self.output);
        first.min(end)..end
    }

    /// Returns the element of the input that is under a tap, for an output of [`valid`](Self::valid).
    fn under(&self, tap: usize, output: usize) -> usize {
        output * self.stride + tap * self.dilation - self.before
    }
}

/// Windows over images.
struct Windows {
    images: usize,
    channels: usize,
    rows: Slide,
    columns: Slide,
}

impl Windows {
    /// Reads the attributes that convolutions and pools have in common.
    fn of(operator: &Operator<'_>, taps: &[usize]) -> Result<Self> {
        let (input, output) = (operator.shape(0)?, operator.output()?);
        let (&[images, channels, height, width], &[_, _, rows, columns], &[high, wide]) =
            (input.as_slice(), output.as_slice(), taps)
        else {
            return Err(operator.refuse("its operands are no images"));
        };
        let strides = operator.sizes("strides", &[1, 1])?;
        let dilations = operator.sizes("dilations", &[1, 1])?;
        let pads = match operator.text("auto_pad", "NOTSET")? {
            "NOTSET" => operator.sizes("pads", &[0; 4])?,
            "VALID" => vec![0; 4],
            other => return Err(operator.refuse(format!("auto_pad is {other}"))),
        };
        let slide = |axis: usize, input, output, taps| Slide {
            input,
            output,
            taps,
            stride: strides[axis].max(1),
            dilation: dilations[axis],
            before: pads[axis],
        };
        if [strides.len(), dilations.len(), pads.len()] != [2, 2, 4] {
            return Err(operator.refuse("an attribute has not one number per dimension"));
        }
        let rows = slide(0, height, rows, high);
        Ok(Self { images, channels, rows, columns: slide(1, width, columns, wide) })
    }

    fn input_plane(&self) -> usize {
        self.rows.input * self.columns.input
    }

    fn output_plane(&self) -> usize {
        self.rows.output * self.columns.output
    }

    /// Calls `visit` for each tap and row of the output plane with the elements of the output row,
    /// and those of the input from the element that is under the tap at the first of them.
    fn each_row(
        &self,
        source: &[f32],
        target: &mut [f32],
        mut visit: impl FnMut(usize, &mut [f32], &[f32]),
    ) {
        let Self { rows, columns, .. } = self;
        for tap in 0..rows.taps * columns.taps {
            let (high, wide) = (tap / columns.taps, tap % columns.taps);
            let across = columns.valid(wide);
            if across.is_empty() {
                continue;
            }
            let first = columns.under(wide, across.start);
            for row in rows.valid(high) {
                let source = &source[rows.under(high, row) * columns.input..][..columns.input];
                let target = &mut target[row * columns.output..][across.clone()];
                visit(tap, target, &source[first..]);
            }
        }
    }
}

/// A convolution.
struct Conv {
    windows: Windows,
    source: Operand,
    weights: Arc<[f32]>,
    bias: Option<Arc<[f32]>>,
    groups: usize,
    /// Channels of the output.
    made: usize,
}

/// Returns the kernel of a convolution of images.
pub(super) fn conv(operator: &Operator<'_>) -> Result<Box<dyn Kernel>> {
    let &[made, read, high, wide] = operator.shape(1)?.as_slice() else {
        return Err(operator.refuse("its weights are no filters of images"));
    };
    let taps = [high, wide];
    if operator.sizes("kernel_shape", &taps)? != taps {
        return Err(operator.refuse("kernel_shape is not that of its weights"));
    }
    let windows = Windows::of(operator, &taps)?;
    let groups = usize::try_from(operator.integer("group", 1)?).unwrap_or(0);
    if groups == 0 || read * groups != windows.channels || made % groups != 0 {
        return Err(operator.refuse("its groups do not fit its channels"));
    }
    let bias = if operator.has(2) { Some(operator.reals(2)?) } else { None };
    Ok(Box::new(Conv {
        windows,
        source: operator.operand(0)?,
        weights: operator.reals(1)?,
        bias,
        groups,
        made,
    }))
}

impl Conv {
    /// Returns whether each output needs the elements at its own place alone.
    fn is_pointwise(&self) -> bool {
        let plain = |slide: &Slide| (slide.taps, slide.stride, slide.before) == (1, 1, 0);
        let Windows { rows, columns, .. } = &self.windows;
        plain(rows) && plain(columns) && self.windows.input_plane() == self.windows.output_plane()
    }
}

impl Kernel for Conv {
    fn run(&self, memory: &mut StepMemory<'_>) -> arenaplan::Result<()> {
        let windows = &self.windows;
        let (input, output) = (windows.input_plane(), windows.output_plane());
        let Some(lent) = lend(memory, windows.images * self.made * output)? else { return Ok(()) };
        let source = self.source.elements(&lent.inputs)?;
        let (read, made) = (windows.channels / self.groups, self.made / self.groups);
        let taps = windows.rows.taps * windows.columns.taps;
        for group in 0..windows.images * self.groups {
            let first = group % self.groups * made;
            let weights = &self.weights[first * read * taps..][..made * read * taps];
            let source = &source[group * read * input..][..read * input];
            let target = &mut lent.output[group * made * output..][..made * output];
            for (channel, plane) in target.chunks_exact_mut(output.max(1)).enumerate() {
                plane.fill(self.bias.as_ref().map_or(0.0, |bias| bias[first + channel]));
            }
            if self.is_pointwise() {
                let weights = Layout::of_rows(made, read).of(weights)?;
                let source = Layout::of_rows(read, input).of(source)?;
                let mut target = Layout::of_rows(made, output).of_mut(target)?;
                general_mat_mul(1.0, &weights, &source, 1.0, &mut target);
                continue;
            }
            let filters = weights.chunks_exact((read * taps).max(1));
            for (plane, filter) in target.chunks_exact_mut(output.max(1)).zip(filters) {
                let sources = source.chunks_exact(input.max(1));
                for (source, filter) in sources.zip(filter.chunks_exact(taps.max(1))) {
                    windows.each_row(source, plane, |tap, target, source| {
                        add_scaled(target, source, windows.columns.stride, filter[tap]);
                    });
                }
            }
        }
        Ok(())
    }
}

/// Adds `factor` times every `stride`-th element of a row to another row.
fn add_scaled(target: &mut [f32], source: &[f32], stride: usize, factor: f32) {
    if stride == 1 {
        target.iter_mut().zip(source).for_each(|(y, x)| *y += factor * x);
    } else {
        target.iter_mut().zip(source.iter().step_by(stride)).for_each(|(y, x)| *y += factor * x);
    }
}

/// The largest element under each window.
struct MaxPool {
    windows: Windows,
    source: Operand,
}

/// Returns the kernel of a pool of maxima.
pub(super) fn max_pool(operator: &Operator<'_>) -> Result<Box<dyn Kernel>> {
    let windows = Windows::of(operator, &operator.sizes("kernel_shape", &[])?)?;
    Ok(Box::new(MaxPool { windows, source: operator.operand(0)? }))
}

impl Kernel for MaxPool {
    fn run(&self, memory: &mut StepMemory<'_>) -> arenaplan::Result<()> {
        pool(&self.windows, &self.source, memory, f32::NEG_INFINITY, |y, x| *y = y.max(x))?;
        Ok(())
    }
}

/// The mean of the elements under each window.
struct AveragePool {
    windows: Windows,
    source: Operand,
    counts_padding: bool,
}

/// Returns the kernel of a pool of means.
pub(super) fn average_pool(operator: &Operator<'_>) -> Result<Box<dyn Kernel>> {
    let windows = Windows::of(operator, &operator.sizes("kernel_shape", &[])?)?;
    if operator.integer("ceil_mode", 0)? != 0 {
        return Err(operator.refuse("ceil_mode is 1"));
    }
    let counts_padding = operator.integer("count_include_pad", 0)? != 0;
    Ok(Box::new(AveragePool { windows, source: operator.operand(0)?, counts_padding }))
}

impl Kernel for AveragePool {
    #[allow(clippy::cast_precision_loss, reason = "no window has 2^24 taps")]
    fn run(&self, memory: &mut StepMemory<'_>) -> arenaplan::Result<()> {
        let windows = &self.windows;
        let Some(output) = pool(windows, &self.source, memory, 0.0, |y, x| *y += x)? else {
            return Ok(());
        };
        let Windows { rows, columns, .. } = windows;
        let inside = |slide: &Slide, output: usize| {
            (0..slide.taps).filter(|&tap| slide.valid(tap).contains(&output)).count()
        };
        for (index, sum) in output.iter_mut().enumerate() {
            let place = index % windows.output_plane();
            let (row, column) = (place / columns.output, place % columns.output);
            let taps = if self.counts_padding {
                rows.taps * columns.taps
            } else {
                inside(rows, row) * inside(columns, column)
            };
            *sum /= taps.max(1) as f32;
        }
        Ok(())
    }
}

/// Folds the elements under each window, and returns the output; `None` if it is a view.
fn pool<'m>(
    windows: &Windows,
    source: &Operand,
    memory: &'m mut StepMemory<'_>,
    start: f32,
    fold: impl Fn(&mut f32, f32),
) -> arenaplan::Result<Option<&'m mut [f32]>> {
    let planes = windows.images * windows.channels;
    let Some(lent) = lend(memory, planes * windows.output_plane())? else { return Ok(None) };
    let Lent { output, inputs } = lent;
    let Operand::Arena(position) = source else { return Ok(None) };
    let sources = super::operator::input::<f32>(&inputs, *position)?;
    output.fill(start);
    let sources = sources.chunks_exact(windows.input_plane().max(1));
    let targets = output.chunks_exact_mut(windows.output_plane().max(1));
    for (source, target) in sources.zip(targets) {
        windows.each_row(source, target, |_, target, source| {
            let under = source.iter().step_by(windows.columns.stride);
            target.iter_mut().zip(under).for_each(|(y, &x)| fold(y, x));
        });
    }
    Ok(Some(output))
}
