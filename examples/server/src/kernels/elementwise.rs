//! Operators whose output element needs the elements of the operands at one place.

use std::sync::Arc;

use arenaplan::program::StepMemory;

use super::Kernel;
use super::operator::{Lent, Operand, Operator, Place, lend};
use crate::error::Result;

/// A function of one operand.
struct Unary<F> {
    source: Operand,
    elements: usize,
    compute: F,
}

/// Returns the kernel of a function of one operand.
pub(super) fn unary(
    operator: &Operator<'_>,
    compute: impl Fn(f32) -> f32 + Send + Sync + 'static,
) -> Result<Box<dyn Kernel>> {
    let elements = operator.output()?.iter().product();
    Ok(Box::new(Unary { source: operator.operand(0)?, elements, compute }))
}

impl<F: Fn(f32) -> f32 + Send + Sync> Kernel for Unary<F> {
    fn run(&self, memory: &mut StepMemory<'_>) -> arenaplan::Result<()> {
        let Some(Lent { output, inputs }) = lend(memory, self.elements)? else { return Ok(()) };
        match self.source.place(&inputs)? {
            Place::Output => output.iter_mut().for_each(|x| *x = (self.compute)(*x)),
            Place::Apart(source) => {
                for (y, &x) in output.iter_mut().zip(source) {
                    *y = (self.compute)(x);
                }
            }
        }
        Ok(())
    }
}

/// A function of two operands that are broadcast to the shape of the output.
struct Binary<F> {
    sources: [Operand; 2],
    /// Elements from one index to the next, by operand and dimension; 0 where it is repeated.
    strides: [Vec<usize>; 2],
    dims: Vec<usize>,
    compute: F,
}

/// Returns the kernel of a function of two operands.
pub(super) fn binary(
    operator: &Operator<'_>,
    compute: impl Fn(f32, f32) -> f32 + Send + Sync + 'static,
) -> Result<Box<dyn Kernel>> {
    let dims = operator.output()?;
    let strides = |input| -> Result<Vec<usize>> {
        let own = operator.shape(input)?;
        let first = dims.len().checked_sub(own.len());
        let first = first.ok_or_else(|| operator.refuse("its output has too few dimensions"))?;
        let (mut strides, mut next) = (vec![0; dims.len()], 1);
        for (axis, &dim) in own.iter().enumerate().rev() {
            if dim > 1 {
                strides[first + axis] = next;
            }
            next *= dim;
        }
        Ok(strides)
    };
    let sources = [operator.operand(0)?, operator.operand(1)?];
    let strides = [strides(0)?, strides(1)?];
    let (dims, strides) = merged(&dims, &strides);
    Ok(Box::new(Binary { sources, strides, dims, compute }))
}

/// Merges neighboring dimensions that both operands go through as one, so that rows are long.
fn merged(dims: &[usize], strides: &[Vec<usize>; 2]) -> (Vec<usize>, [Vec<usize>; 2]) {
    let mut kept: Vec<(usize, [usize; 2])> = Vec::new();
    for (axis, &dim) in dims.iter().enumerate() {
        let own = [strides[0][axis], strides[1][axis]];
        match kept.last_mut() {
            _ if dim == 1 => {}
            Some((outer, known)) if (0..2).all(|side| known[side] == own[side] * dim) => {
                *outer *= dim;
                *known = own;
            }
            _ => kept.push((dim, own)),
        }
    }
    if kept.is_empty() {
        kept.push((dims.iter().product(), [0, 0]));
    }
    let column = |side: usize| kept.iter().map(|(_, own)| own[side]).collect();
    (kept.iter().map(|(dim, _)| *dim).collect(), [column(0), column(1)])
}

impl<F: Fn(f32, f32) -> f32 + Send + Sync> Kernel for Binary<F> {
    fn run(&self, memory: &mut StepMemory<'_>) -> arenaplan::Result<()> {
        let elements = self.dims.iter().product();
        let Some(Lent { output, inputs }) = lend(memory, elements)? else { return Ok(()) };
        let [left, right] = &self.sources;
        let places = [left.place(&inputs)?, right.place(&inputs)?];
        let (&row, outer) = self.dims.split_last().unwrap_or((&1, &[]));
        for (index, output) in output.chunks_exact_mut(row.max(1)).enumerate() {
            // First elements of the operands for this row.
            let (mut starts, mut rest) = ([0, 0], index);
            for (axis, &dim) in outer.iter().enumerate().rev() {
                for (start, strides) in starts.iter_mut().zip(&self.strides) {
                    *start += rest % dim * strides[axis];
                }
                rest /= dim;
            }
            let [a, b] = [0, 1].map(|side| match &places[side] {
                Place::Apart(source) => Row::Apart(&source[starts[side]..], self.step(side)),
                Place::Output => Row::Output,
            });
            for (at, y) in output.iter_mut().enumerate() {
                *y = (self.compute)(a.get(at, *y), b.get(at, *y));
            }
        }
        Ok(())
    }
}

impl<F> Binary<F> {
    /// Returns the elements between neighbors in a row of an operand.
    fn step(&self, side: usize) -> usize {
        self.strides[side].last().copied().unwrap_or(0)
    }
}

/// A row of an operand.
enum Row<'m> {
    Apart(&'m [f32], usize),
    Output,
}

impl Row<'_> {
    #[inline]
    fn get(&self, at: usize, output: f32) -> f32 {
        match self {
            Self::Apart(source, step) => source[at * step],
            Self::Output => output,
        }
    }
}

/// `y = x * scale + shift`, with one scale and one shift per channel.
struct Affine {
    source: Operand,
    elements: usize,
    /// Elements of one channel of one image.
    plane: usize,
    scale: Vec<f32>,
    shift: Vec<f32>,
}

/// Returns the kernel of a normalization whose statistics are constants.
pub(super) fn batch_normalization(operator: &Operator<'_>) -> Result<Box<dyn Kernel>> {
    if operator.integer("training_mode", 0)? != 0 {
        return Err(operator.refuse("it is in training mode"));
    }
    if operator.integer("spatial", 1)? != 1 {
        return Err(operator.refuse("it has statistics per place"));
    }
    let dims = operator.output()?;
    let channels: [Arc<[f32]>; 4] =
        [operator.reals(1)?, operator.reals(2)?, operator.reals(3)?, operator.reals(4)?];
    let [gamma, beta, mean, variance] = &channels;
    let epsilon = operator.real("epsilon", 1e-5)?;
    let scale: Vec<f32> =
        gamma.iter().zip(&**variance).map(|(g, v)| g / (v + epsilon).sqrt()).collect();
    let shift = beta.iter().zip(&**mean).zip(&scale).map(|((b, m), s)| b - m * s).collect();
    Ok(Box::new(Affine {
        source: operator.operand(0)?,
        elements: dims.iter().product(),
        plane: dims.iter().skip(2).product(),
        scale,
        shift,
    }))
}

impl Kernel for Affine {
    fn run(&self, memory: &mut StepMemory<'_>) -> arenaplan::Result<()> {
        let Some(Lent { output, inputs }) = lend(memory, self.elements)? else { return Ok(()) };
        if let Place::Apart(source) = self.source.place(&inputs)? {
            output.copy_from_slice(source);
        }
        let factors = self.scale.iter().zip(&self.shift).cycle();
        for (plane, (scale, shift)) in output.chunks_exact_mut(self.plane.max(1)).zip(factors) {
            for x in plane {
                *x = *x * scale + shift;
            }
        }
        Ok(())
    }
}
