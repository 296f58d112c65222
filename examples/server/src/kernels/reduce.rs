//! Operators that reduce runs of elements to sums or maxima.

use std::sync::Arc;

use arenaplan::program::StepMemory;

use super::Kernel;
use super::operator::{Lent, Operand, Operator, Place, lend};
use crate::error::Result;

/// The mean of each channel of each image.
struct GlobalAveragePool {
    source: Operand,
    /// Elements of one channel of one image.
    plane: usize,
    elements: usize,
}

/// Returns the kernel of means over all places.
pub(super) fn global_average_pool(operator: &Operator<'_>) -> Result<Box<dyn Kernel>> {
    Ok(Box::new(GlobalAveragePool {
        source: operator.operand(0)?,
        plane: operator.shape(0)?.iter().skip(2).product(),
        elements: operator.output()?.iter().product(),
    }))
}

impl Kernel for GlobalAveragePool {
    #[allow(clippy::cast_precision_loss, reason = "no image has 2^24 places")]
    fn run(&self, memory: &mut StepMemory<'_>) -> arenaplan::Result<()> {
        let Some(Lent { output, inputs }) = lend(memory, self.elements)? else { return Ok(()) };
        let planes = self.source.elements(&inputs)?.chunks_exact(self.plane.max(1));
        for (mean, plane) in output.iter_mut().zip(planes) {
            *mean = plane.iter().sum::<f32>() / self.plane as f32;
        }
        Ok(())
    }
}

/// Exponentials of a row, divided by their sum.
struct Softmax {
    source: Operand,
    row: usize,
    elements: usize,
}

/// Returns the kernel of a softmax whose elements are neighbors.
pub(super) fn softmax(operator: &Operator<'_>) -> Result<Box<dyn Kernel>> {
    let dims = operator.output()?;
    // Before version 13 all dimensions from the axis on are one.
    let axis = operator.axis(if operator.version() < 13 { 1 } else { -1 }, dims.len())?;
    let behind: usize = dims.iter().skip(axis + 1).product();
    if operator.version() >= 13 && behind != 1 {
        return Err(operator.refuse("its axis is not the last one"));
    }
    let row = dims.iter().skip(axis).product();
    let elements = dims.iter().product();
    Ok(Box::new(Softmax { source: operator.operand(0)?, row, elements }))
}

impl Kernel for Softmax {
    fn run(&self, memory: &mut StepMemory<'_>) -> arenaplan::Result<()> {
        let Some(Lent { output, inputs }) = lend(memory, self.elements)? else { return Ok(()) };
        if let Place::Apart(source) = self.source.place(&inputs)? {
            output.copy_from_slice(source);
        }
        for row in output.chunks_exact_mut(self.row.max(1)) {
            let largest = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let mut sum = 0.0;
            for x in row.iter_mut() {
                *x = (*x - largest).exp();
                sum += *x;
            }
            for x in row {
                *x /= sum;
            }
        }
        Ok(())
    }
}

/// Rows with a mean of 0 and a variance of 1, scaled and shifted.
struct LayerNormalization {
    source: Operand,
    scale: Arc<[f32]>,
    shift: Option<Arc<[f32]>>,
    epsilon: f32,
    elements: usize,
}

/// Returns the kernel of a normalization of rows.
pub(super) fn layer_normalization(operator: &Operator<'_>) -> Result<Box<dyn Kernel>> {
    let dims = operator.output()?;
    let axis = operator.axis(-1, dims.len())?;
    let (row, scale): (usize, _) = (dims.iter().skip(axis).product(), operator.reals(1)?);
    let shift = if operator.has(2) { Some(operator.reals(2)?) } else { None };
    if scale.len() != row || shift.as_ref().is_some_and(|shift| shift.len() != row) {
        return Err(operator.refuse("scale or bias is broadcast"));
    }
    let elements = dims.iter().product();
    let epsilon = operator.real("epsilon", 1e-5)?;
    Ok(Box::new(LayerNormalization {
        source: operator.operand(0)?,
        scale,
        shift,
        epsilon,
        elements,
    }))
}

impl Kernel for LayerNormalization {
    #[allow(clippy::cast_precision_loss, reason = "no row has 2^24 elements")]
    fn run(&self, memory: &mut StepMemory<'_>) -> arenaplan::Result<()> {
        let Some(Lent { output, inputs }) = lend(memory, self.elements)? else { return Ok(()) };
        if let Place::Apart(source) = self.source.place(&inputs)? {
            output.copy_from_slice(source);
        }
        let count = self.scale.len() as f32;
        for row in output.chunks_exact_mut(self.scale.len().max(1)) {
            let mean = row.iter().sum::<f32>() / count;
            let variance = row.iter().map(|x| (x - mean) * (x - mean)).sum::<f32>() / count;
            let factor = 1.0 / (variance + self.epsilon).sqrt();
            for (x, scale) in row.iter_mut().zip(&*self.scale) {
                *x = (*x - mean) * factor * scale;
            }
            if let Some(shift) = &self.shift {
                row.iter_mut().zip(&**shift).for_each(|(x, shift)| *x += shift);
            }
        }
        Ok(())
    }
}
