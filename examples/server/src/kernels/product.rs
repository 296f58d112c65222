//! Products of matrices, by `ndarray` and `matrixmultiply`.

use arenaplan::program::StepMemory;
use ndarray::linalg::general_mat_mul;
use ndarray::{ArrayView2, ArrayViewMut2, ShapeBuilder};

use super::Kernel;
use super::operator::{Lent, Operand, Operator, lend};
use crate::error::Result;

/// A matrix in elements of an operand: rows, columns, and the elements between neighbors of each.
#[derive(Clone, Copy)]
pub(super) struct Layout {
    pub(super) dims: (usize, usize),
    pub(super) strides: (usize, usize),
}

impl Layout {
    /// Returns a matrix whose rows are contiguous.
    pub(super) const fn of_rows(rows: usize, columns: usize) -> Self {
        Self { dims: (rows, columns), strides: (columns, 1) }
    }

    /// Returns the transposed matrix.
    pub(super) const fn transposed(self) -> Self {
        let (rows, columns) = self.dims;
        Self { dims: (columns, rows), strides: (self.strides.1, self.strides.0) }
    }

    pub(super) fn of(self, elements: &[f32]) -> arenaplan::Result<ArrayView2<'_, f32>> {
        let shape = self.dims.strides(self.strides);
        ArrayView2::from_shape(shape, elements).map_err(|error| misfit(&error))
    }

    pub(super) fn of_mut(self, elements: &mut [f32]) -> arenaplan::Result<ArrayViewMut2<'_, f32>> {
        let shape = self.dims.strides(self.strides);
        ArrayViewMut2::from_shape(shape, elements).map_err(|error| misfit(&error))
    }
}

#[cold]
fn misfit(error: &ndarray::ShapeError) -> arenaplan::Error {
    arenaplan::Error::ArenaState { reason: format!("a matrix does not fit its operand: {error}") }
}

/// Products of pairs of matrices; one side may be the same for all.
struct MatMul {
    sources: [Operand; 2],
    layouts: [Layout; 2],
    /// Elements from one matrix to the next; 0 if there is only one.
    steps: [usize; 2],
    output: Layout,
    elements: usize,
}

/// Returns the kernel of products along the last two dimensions.
pub(super) fn matmul(operator: &Operator<'_>) -> Result<Box<dyn Kernel>> {
    let [left, right] = [operator.shape(0)?, operator.shape(1)?];
    let (&[ref outer @ .., rows, inner], &[ref others @ .., same, columns]) =
        (left.as_slice(), right.as_slice())
    else {
        return Err(operator.refuse("an operand is no matrix"));
    };
    if inner != same {
        return Err(operator.refuse("its operands do not fit"));
    }
    let (count, other): (usize, usize) = (outer.iter().product(), others.iter().product());
    // One matrix on the right side: the matrices on the left are one high matrix.
    let (rows, count) = if other == 1 { (rows * count, 1) } else { (rows, count) };
    if other != 1 && outer != others {
        return Err(operator.refuse("its operands are broadcast"));
    }
    Ok(Box::new(MatMul {
        sources: [operator.operand(0)?, operator.operand(1)?],
        layouts: [Layout::of_rows(rows, inner), Layout::of_rows(inner, columns)],
        steps: [rows * inner, inner * columns],
        output: Layout::of_rows(rows, columns),
        elements: count * rows * columns,
    }))
}

impl Kernel for MatMul {
    fn run(&self, memory: &mut StepMemory<'_>) -> arenaplan::Result<()> {
        let Some(Lent { output, inputs }) = lend(memory, self.elements)? else { return Ok(()) };
        let [left, right] = &self.sources;
        let lefts = left.elements(&inputs)?.chunks_exact(self.steps[0].max(1));
        let rights = right.elements(&inputs)?.chunks_exact(self.steps[1].max(1));
        let (rows, columns) = self.output.dims;
        let outputs = output.chunks_exact_mut((rows * columns).max(1));
        for ((a, b), c) in lefts.zip(rights).zip(outputs) {
            let [a, b] = [self.layouts[0].of(a)?, self.layouts[1].of(b)?];
            general_mat_mul(1.0, &a, &b, 0.0, &mut self.output.of_mut(c)?);
        }
        Ok(())
    }
}

/// `alpha * a * b + beta * c`, where `c` is one row, or one number per row.
struct Gemm {
    sources: [Operand; 2],
    layouts: [Layout; 2],
    output: Layout,
    alpha: f32,
    /// One number per column.
    bias: Option<Vec<f32>>,
}

/// Returns the kernel of a dense layer.
pub(super) fn gemm(operator: &Operator<'_>) -> Result<Box<dyn Kernel>> {
    let layout = |input: usize, flag: &str| -> Result<Layout> {
        let &[rows, columns] = operator.shape(input)?.as_slice() else {
            return Err(operator.refuse("an operand is no matrix"));
        };
        let layout = Layout::of_rows(rows, columns);
        Ok(if operator.integer(flag, 0)? == 0 { layout } else { layout.transposed() })
    };
    let layouts = [layout(0, "transA")?, layout(1, "transB")?];
    let (rows, columns) = (layouts[0].dims.0, layouts[1].dims.1);
    let bias = if operator.has(2) {
        let (bias, beta) = (operator.reals(2)?, operator.real("beta", 1.0)?);
        if bias.len() != columns && bias.len() != 1 {
            return Err(operator.refuse("its bias is no row"));
        }
        Some(bias.iter().cycle().take(columns).map(|bias| bias * beta).collect())
    } else {
        None
    };
    Ok(Box::new(Gemm {
        sources: [operator.operand(0)?, operator.operand(1)?],
        layouts,
        output: Layout::of_rows(rows, columns),
        alpha: operator.real("alpha", 1.0)?,
        bias,
    }))
}

impl Kernel for Gemm {
    fn run(&self, memory: &mut StepMemory<'_>) -> arenaplan::Result<()> {
        let (rows, columns) = self.output.dims;
        let Some(Lent { output, inputs }) = lend(memory, rows * columns)? else { return Ok(()) };
        if let Some(bias) = &self.bias {
            output.chunks_exact_mut(columns.max(1)).for_each(|row| row.copy_from_slice(bias));
        }
        let beta = if self.bias.is_some() { 1.0 } else { 0.0 };
        let [left, right] = &self.sources;
        let a = self.layouts[0].of(left.elements(&inputs)?)?;
        let b = self.layouts[1].of(right.elements(&inputs)?)?;
        general_mat_mul(self.alpha, &a, &b, beta, &mut self.output.of_mut(output)?);
        Ok(())
    }
}
