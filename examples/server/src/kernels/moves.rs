//! Operators that move elements.

use std::sync::Arc;

use arenaplan::arena::{Input, Output};
use arenaplan::program::StepMemory;
use ndarray::{ArrayView, ArrayViewMut, IxDyn};

use super::Kernel;
use super::operator::{Lent, Operand, Operator, input, lend, operands};
use crate::error::Result;
use crate::tensors::Elements;

/// The bytes of the first operand, in another shape.
struct Copy {
    bytes: usize,
}

/// Returns the kernel of a reshape. Where the plan made the output a view, nothing is copied.
pub(super) fn copy(operator: &Operator<'_>) -> Result<Box<dyn Kernel>> {
    if operator.weight(0)?.is_some() {
        return Err(operator.refuse("its operand is a constant"));
    }
    Ok(Box::new(Copy { bytes: operator.output_bytes()? }))
}

impl Kernel for Copy {
    fn run(&self, memory: &mut StepMemory<'_>) -> arenaplan::Result<()> {
        if let (Output::Exclusive(output), [Input::Shared(source), ..]) = operands(memory)? {
            output[..self.bytes].copy_from_slice(&source[..self.bytes]);
        }
        Ok(())
    }
}

/// Operands behind each other along an axis.
struct Concat {
    sources: Vec<Operand>,
    /// Elements of a run of each operand; the output has one run of each in turn.
    runs: Vec<usize>,
    elements: usize,
}

/// Returns the kernel of a concatenation. Operands that the plan put in their place stay there.
pub(super) fn concat(operator: &Operator<'_>) -> Result<Box<dyn Kernel>> {
    let dims = operator.output()?;
    let axis = operator.axis(0, dims.len())?;
    let (mut sources, mut runs) = (Vec::new(), Vec::new());
    for input in 0..operator.inputs() {
        sources.push(operator.operand(input)?);
        runs.push(operator.shape(input)?.iter().skip(axis).product());
    }
    Ok(Box::new(Concat { sources, runs, elements: dims.iter().product() }))
}

impl Kernel for Concat {
    fn run(&self, memory: &mut StepMemory<'_>) -> arenaplan::Result<()> {
        let Some(Lent { output, inputs }) = lend(memory, self.elements)? else { return Ok(()) };
        let (period, mut first) = (self.runs.iter().sum::<usize>().max(1), 0);
        for (source, &run) in self.sources.iter().zip(&self.runs) {
            let is_there = matches!(source, Operand::Arena(position)
                if matches!(inputs.get(*position), Some(Input::Within { .. })));
            if !is_there && run > 0 {
                let pieces = source.elements(&inputs)?.chunks_exact(run);
                for (row, piece) in output.chunks_exact_mut(period).zip(pieces) {
                    row[first..first + run].copy_from_slice(piece);
                }
            }
            first += run;
        }
        Ok(())
    }
}

/// Rows of a table, or of each of several tables.
struct Gather {
    table: Operand,
    indices: Indices,
    /// Rows of a table.
    rows: usize,
    /// Elements of a row.
    row: usize,
    elements: usize,
    /// Rows of the output that are from one table.
    picked: usize,
}

enum Indices {
    Weight(Arc<[i64]>),
    Arena(usize),
}

/// Returns the kernel that looks up rows by index.
pub(super) fn gather(operator: &Operator<'_>) -> Result<Box<dyn Kernel>> {
    let table = operator.shape(0)?;
    let axis = operator.axis(0, table.len())?;
    let indices = match operator.weight(1)?.map(|weight| &weight.elements) {
        Some(Elements::Integers(elements)) => Indices::Weight(Arc::clone(elements)),
        Some(Elements::Reals(_)) => return Err(operator.refuse("its indices are not int64")),
        None => Indices::Arena(1),
    };
    Ok(Box::new(Gather {
        table: operator.operand(0)?,
        indices,
        rows: *table.get(axis).ok_or_else(|| operator.refuse("its table is a scalar"))?,
        row: table[axis + 1..].iter().product(),
        elements: operator.output()?.iter().product(),
        picked: operator.shape(1)?.iter().product(),
    }))
}

impl Kernel for Gather {
    fn run(&self, memory: &mut StepMemory<'_>) -> arenaplan::Result<()> {
        let Some(Lent { output, inputs }) = lend(memory, self.elements)? else { return Ok(()) };
        let table = self.table.elements(&inputs)?;
        let indices: &[i64] = match &self.indices {
            Indices::Weight(indices) => indices,
            Indices::Arena(position) => input(&inputs, *position)?,
        };
        let indices = &indices[..self.picked];
        let tables = table.chunks_exact((self.rows * self.row).max(1));
        let made = output.chunks_exact_mut((self.picked * self.row).max(1));
        for (table, made) in tables.zip(made) {
            for (made, &index) in made.chunks_exact_mut(self.row.max(1)).zip(indices) {
                // An index of a request is data, and may be anything.
                let from_front =
                    if index < 0 { index.saturating_add_unsigned(self.rows as u64) } else { index };
                let found = usize::try_from(from_front).ok().filter(|&row| row < self.rows);
                let row = found.ok_or_else(|| arenaplan::Error::InvalidOption {
                    option: "index",
                    reason: format!("{index} is none of {} rows", self.rows),
                })?;
                made.copy_from_slice(&table[row * self.row..][..self.row]);
            }
        }
        Ok(())
    }
}

/// The most dimensions of a tensor that is transposed: `ndarray` keeps as many without allocating.
const MAX_RANK: usize = 4;

/// Dimensions in another order.
struct Transpose {
    source: Operand,
    dims: [usize; MAX_RANK],
    permutation: [usize; MAX_RANK],
    rank: usize,
}

/// Returns the kernel that permutes dimensions.
pub(super) fn transpose(operator: &Operator<'_>) -> Result<Box<dyn Kernel>> {
    let shape = operator.shape(0)?;
    let rank = shape.len();
    if rank > MAX_RANK {
        return Err(operator.refuse(format!("it has more than {MAX_RANK} dimensions")));
    }
    let reversed: Vec<usize> = (0..rank).rev().collect();
    let order = operator.sizes("perm", &reversed)?;
    let (mut dims, mut permutation) = ([1; MAX_RANK], [0; MAX_RANK]);
    dims[..rank].copy_from_slice(&shape);
    permutation[..rank].copy_from_slice(&order);
    Ok(Box::new(Transpose { source: operator.operand(0)?, dims, permutation, rank }))
}

impl Kernel for Transpose {
    fn run(&self, memory: &mut StepMemory<'_>) -> arenaplan::Result<()> {
        let dims = &self.dims[..self.rank];
        let permutation = &self.permutation[..self.rank];
        let Some(Lent { output, inputs }) = lend(memory, dims.iter().product())? else {
            return Ok(());
        };
        let shape = |why| arenaplan::Error::ArenaState { reason: format!("transpose: {why}") };
        let source = ArrayView::from_shape(IxDyn(dims), self.source.elements(&inputs)?);
        let source = source.map_err(shape)?.permuted_axes(IxDyn(permutation));
        let target = ArrayViewMut::from_shape(source.raw_dim(), output);
        target.map_err(shape)?.assign(&source);
        Ok(())
    }
}
