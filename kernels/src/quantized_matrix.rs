//! The product of rows of bytes and a constant matrix, with exact sums and a result of bytes.
//!
//! As in [`crate::QuantizedConv`], two elements of a row and two rows of the matrix lie beside each
//! other in lanes of 32 bits, which are kept as vectors of `f32`. The matrix is stored in panels of
//! columns; some rows at a time are widened in scratch memory, and multiplied by each panel.

use rten_simd::{Isa, SimdOp};

use crate::bytes::Encoding;
use crate::conv::COLUMNS;
use crate::error::{Error, Result, check, check_at_least};
use crate::pairs::{MOST_TERMS, accumulate, pair_of};
use crate::product::ROWS;
use crate::raw::{Axis, Planes, PlanesMut};
use crate::requantize::Requantization;
use crate::team::{Team, even, ranges};

/// Columns of the last panels.
const FEW: usize = 16;
/// Blocks of rows that are widened at a time, at most: a panel is read once for all of them.
const BLOCKS: usize = 8;

/// The sizes of a constant matrix of integers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuantizedMatrix {
    depth: usize,
    columns: usize,
}

impl QuantizedMatrix {
    /// Returns a matrix of `depth` rows.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfRange`] if a size is zero, the number of elements overflows, or a sum has so many
    /// terms that 32 bits might not hold it.
    pub fn new(depth: usize, columns: usize) -> Result<Self> {
        let len = columns.checked_next_multiple_of(FEW).and_then(|all| all.checked_mul(depth));
        if len.is_none_or(|len| len == 0) || depth > MOST_TERMS {
            return Err(Error::OutOfRange { what: "the size of the matrix" });
        }
        Ok(Self { depth, columns })
    }

    fn pairs(&self) -> usize {
        self.depth.div_ceil(2)
    }

    /// Returns the first column of each panel, and how many columns it has.
    fn panels(&self) -> impl Iterator<Item = (usize, usize)> {
        let wide = self.columns / COLUMNS;
        let few = (self.columns % COLUMNS).div_ceil(FEW);
        let last = (0..few).map(move |panel| (wide * COLUMNS + panel * FEW, FEW));
        (0..wide).map(|panel| (panel * COLUMNS, COLUMNS)).chain(last)
    }

    /// Returns the number of elements of the packed matrix.
    pub fn packed_len(&self) -> usize {
        self.columns.next_multiple_of(FEW) * self.pairs()
    }

    /// Writes a matrix of integers less their zero point in the order in which it is read.
    ///
    /// # Arguments
    ///
    /// * `elements`: rows of the matrix one after another.
    ///
    /// # Errors
    ///
    /// [`Error::WrongSize`] if an operand is of another size.
    pub fn pack(&self, elements: &[i16], target: &mut [f32]) -> Result<()> {
        let (depth, columns) = (self.depth, self.columns);
        check("the matrix", elements.len(), depth * columns)?;
        check("the packed matrix", target.len(), self.packed_len())?;
        let mut rest = target;
        for (first, width) in self.panels() {
            let (panel, others) = rest.split_at_mut(width * self.pairs());
            rest = others;
            for (pair, line) in panel.chunks_exact_mut(width).enumerate() {
                for (at, both) in line.iter_mut().enumerate() {
                    let element = |row: usize| {
                        let is_inside = row < depth && first + at < columns;
                        if is_inside { elements[row * columns + first + at] } else { 0 }
                    };
                    let bits = pair_of(element(2 * pair), element(2 * pair + 1));
                    *both = f32::from_bits(bits.cast_unsigned());
                }
            }
        }
        Ok(())
    }

    /// Returns the elements of scratch memory with which a product of some rows is fastest; fewer, but
    /// at least those for one row, do.
    pub fn scratch_len(&self, rows: usize) -> usize {
        rows.div_ceil(ROWS).clamp(1, BLOCKS) * ROWS * self.pairs()
    }

    /// Multiplies rows of bytes by the matrix.
    ///
    /// # Arguments
    ///
    /// * `rows`: channels of one image, each a row.
    /// * `matrix`: that of [`QuantizedMatrix::pack`].
    /// * `addend`: an integer for each column, which its sums begin with.
    /// * `finish`: scales and shifts are those of columns.
    /// * `scratch`: at least [`QuantizedMatrix::scratch_len`] of one row.
    ///
    /// # Errors
    ///
    /// [`Error::WrongSize`] if an operand is of another size.
    #[allow(clippy::too_many_arguments, reason = "operands of different kinds")]
    pub fn run(
        &self,
        rows: &Planes<'_, u8>,
        encoding: Encoding,
        matrix: &[f32],
        addend: Option<&[i32]>,
        finish: &Requantization<'_>,
        output: &mut PlanesMut<'_, u8>,
        scratch: &mut [f32],
        team: &Team,
    ) -> Result<()> {
        let [images, count] = rows.counts();
        check("a row", rows.size(), self.depth)?;
        check("the stacks of the result", output.counts()[0], images)?;
        check("the rows of the result", output.counts()[1], count)?;
        check("a row of the result", output.size(), self.columns)?;
        check("the matrix", matrix.len(), self.packed_len())?;
        if let Some(addend) = addend {
            check("the addend", addend.len(), self.columns)?;
        }
        finish.check(self.columns)?;
        check_at_least("the scratch memory", scratch.len(), self.scratch_len(1))?;
        let blocks = scratch.len() / (ROWS * self.pairs());
        let height = ROWS * blocks.min(BLOCKS);
        let cycles = images * count * self.depth * self.columns / 32;
        let length = even(team, count, cycles).next_multiple_of(ROWS);
        let mut rest = output.reborrow();
        let parts = ranges(count, length).map(move |some| Sweep {
            sizes: self,
            height,
            rows: rows.part(0..images, some.clone(), 0..rows.size()),
            encoding,
            matrix,
            addend,
            finish,
            output: rest.split_off(Axis::Channels, some.len()),
        });
        team.run(parts, scratch, |sweep, scratch| Bound { sweep, scratch }.dispatch());
        Ok(())
    }
}

/// Some of the rows.
struct Sweep<'a, 'o> {
    sizes: &'a QuantizedMatrix,
    /// Rows that are widened at a time.
    height: usize,
    rows: Planes<'a, u8>,
    encoding: Encoding,
    matrix: &'a [f32],
    addend: Option<&'a [i32]>,
    finish: &'a Requantization<'a>,
    output: PlanesMut<'o, u8>,
}

/// Such a part of the work, and its scratch memory.
struct Bound<'a, 'o, 's> {
    sweep: Sweep<'a, 'o>,
    scratch: &'s mut [f32],
}

impl SimdOp for Bound<'_, '_, '_> {
    type Output = ();

    #[inline(always)]
    fn eval<I: Isa>(self, isa: I) {
        let Self { mut sweep, scratch } = self;
        let [images, count] = sweep.rows.counts();
        for n in 0..images {
            for first in (0..count).step_by(sweep.height) {
                let rows = sweep.height.min(count - first);
                sweep.widen(n, first, rows, scratch);
                let mut panel = 0;
                for (column, width) in sweep.sizes.panels() {
                    let end = panel + width * sweep.sizes.pairs();
                    if width == COLUMNS {
                        sweep.panel::<I, COLUMNS>(isa, n, first, rows, column, panel, scratch);
                    } else {
                        sweep.panel::<I, FEW>(isa, n, first, rows, column, panel, scratch);
                    }
                    panel = end;
                }
            }
        }
    }
}

impl Sweep<'_, '_> {
    /// Writes pairs of elements of some rows, those of [`ROWS`] rows beside each other.
    #[inline(always)]
    fn widen(&self, n: usize, first: usize, rows: usize, scratch: &mut [f32]) {
        let pairs = self.sizes.pairs();
        for (block, target) in scratch.chunks_exact_mut(ROWS * pairs).enumerate() {
            for row in 0..ROWS {
                let at = block * ROWS + row;
                if at >= rows {
                    continue; // No result is made of what is there.
                }
                let line = self.rows.plane(n, first + at);
                let lanes = target.as_chunks_mut::<ROWS>().0.iter_mut();
                for (lane, both) in lanes.zip(line.chunks(2)) {
                    let second = both.get(1).map_or(0, |&byte| self.encoding.number(byte));
                    let bits = pair_of(self.encoding.number(both[0]), second);
                    lane[row] = f32::from_bits(bits.cast_unsigned());
                }
            }
        }
    }

    /// Makes the results of some rows and a panel of columns.
    #[inline(always)]
    #[allow(clippy::too_many_arguments, reason = "numbers of rows and columns")]
    fn panel<I: Isa, const N: usize>(
        &mut self,
        isa: I,
        n: usize,
        first: usize,
        rows: usize,
        column: usize,
        start: usize,
        scratch: &[f32],
    ) {
        let pairs = self.sizes.pairs();
        let panel = self.matrix[start..start + N * pairs].as_chunks().0;
        let width = N.min(self.sizes.columns - column);
        let mut starts = [0.0; N];
        if let Some(addend) = self.addend {
            for (start, addend) in starts.iter_mut().zip(&addend[column..column + width]) {
                *start = f32::from_bits(addend.cast_unsigned());
            }
        }
        for (block, lanes) in scratch.chunks_exact(ROWS * pairs).enumerate() {
            let Some(left) = rows.checked_sub(block * ROWS).filter(|&left| left > 0) else {
                break;
            };
            let made = left.min(ROWS);
            let mut sums = [starts; ROWS];
            accumulate::<I, f32, N>(isa, lanes.as_chunks().0, made, panel, &mut sums);
            for (row, sums) in sums.iter().enumerate().take(made) {
                let plane = self.output.plane(n, first + block * ROWS + row);
                self.finish.row(isa, column, sums, &mut plane[column..column + width]);
            }
        }
    }
}
