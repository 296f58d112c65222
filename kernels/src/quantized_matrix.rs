//! The product of byte rows and a constant matrix, with exact sums and a byte result.
//!
//! As in [`crate::QuantizedConv`], a few row elements and as many matrix rows lie beside each other
//! in [lanes](crate::lanes): row elements take the place of image channels. The matrix is stored in
//! column panels; lanes for some rows at a time are made in scratch memory, and multiplied by each
//! panel.

use rten_simd::{Isa, SimdOp};

use crate::bytes::Encoding;
use crate::error::{Error, Result, check, check_at_least};
use crate::lane_product::accumulate;
use crate::lanes::{Lane, Lanes, MOST_CHANNELS, MOST_TERMS, Pairs, Turned, quads};
use crate::raw::{Axis, Planes, PlanesMut};
use crate::requantize::Requantization;
use crate::team::{Team, even, ranges};
use crate::tile::{COLUMNS, ROWS};

/// Columns in the last panels.
const FEW: usize = 16;
/// Most row blocks whose lanes are made at a time: a panel is read once for all blocks.
const BLOCKS: usize = 8;

/// Constant integer matrix sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuantizedMatrix {
    depth: usize,
    columns: usize,
    lanes: Lanes,
}

impl QuantizedMatrix {
    /// Returns a matrix with `depth` rows.
    ///
    /// # Arguments
    ///
    /// * `lanes`: the lanes for the elements. Scratch memory for [`Lanes::Pairs`] has room for
    ///   other lanes.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfRange`] if a size is zero, the number of elements overflows, or a sum has more
    /// terms than 32 bits can hold.
    pub fn new(depth: usize, columns: usize, lanes: Lanes) -> Result<Self> {
        let len = columns.checked_next_multiple_of(FEW).and_then(|all| all.checked_mul(depth));
        if len.is_none_or(|len| len == 0) || depth > MOST_TERMS {
            return Err(Error::OutOfRange { what: "the size of the matrix" });
        }
        Ok(Self { depth, columns, lanes })
    }

    /// Returns the lanes per row.
    fn depth_lanes(&self) -> usize {
        self.depth.div_ceil(self.lanes.channels())
    }

    /// Returns the first column of each panel, and the panel's number of columns.
    fn panels(&self) -> impl Iterator<Item = (usize, usize)> {
        let wide = self.columns / COLUMNS;
        let few = (self.columns % COLUMNS).div_ceil(FEW);
        let last = (0..few).map(move |panel| (wide * COLUMNS + panel * FEW, FEW));
        (0..wide).map(|panel| (panel * COLUMNS, COLUMNS)).chain(last)
    }

    /// Returns the packed matrix length.
    pub fn packed_len(&self) -> usize {
        self.lanes_len() + self.totals_len()
    }

    /// Returns the matrix lane count.
    fn lanes_len(&self) -> usize {
        self.columns.next_multiple_of(FEW) * self.depth_lanes()
    }

    /// Returns the number of column sums, if sums are needed.
    fn totals_len(&self) -> usize {
        if self.lanes == Lanes::Pairs { 0 } else { self.columns }
    }

    /// Writes a matrix of integers less their zero point in reading order. For lanes whose zero
    /// point stays in rows, each column's sum follows, as the bits of an integer.
    ///
    /// # Arguments
    ///
    /// * `elements`: the matrix rows one after another.
    ///
    /// # Errors
    ///
    /// [`Error::WrongSize`] if an operand is of another size, [`Error::OutOfRange`] if the lanes do not
    /// hold an element.
    pub fn pack(&self, elements: &[i16], target: &mut [f32]) -> Result<()> {
        let (depth, columns) = (self.depth, self.columns);
        check("the matrix", elements.len(), depth * columns)?;
        check("the packed matrix", target.len(), self.packed_len())?;
        let (mut rest, totals) = target.split_at_mut(self.lanes_len());
        for (first, width) in self.panels() {
            let (panel, others) = rest.split_at_mut(width * self.depth_lanes());
            rest = others;
            for (lane, line) in panel.chunks_exact_mut(width).enumerate() {
                for (at, to) in line.iter_mut().enumerate() {
                    let mut rows = [0; MOST_CHANNELS];
                    let first_row = lane * self.lanes.channels();
                    let below = first_row..depth.min(first_row + self.lanes.channels());
                    if first + at < columns {
                        for (row, from) in rows.iter_mut().zip(below) {
                            *row = elements[from * columns + first + at];
                        }
                    }
                    *to = f32::from_bits(self.lanes.join(rows)?.cast_unsigned());
                }
            }
        }
        for (column, total) in totals.iter_mut().enumerate() {
            let column = elements[column..].iter().step_by(columns);
            let sum: i32 = column.copied().map(i32::from).sum();
            *total = f32::from_bits(sum.cast_unsigned());
        }
        Ok(())
    }

    /// Returns the scratch elements for the fastest product with some rows; fewer suffice, but at
    /// least those for one row.
    pub fn scratch_len(&self, rows: usize) -> usize {
        rows.div_ceil(ROWS).clamp(1, BLOCKS) * ROWS * self.depth_lanes()
    }

    /// Multiplies byte rows by the matrix.
    ///
    /// # Arguments
    ///
    /// * `rows`: channels of one image, each a row.
    /// * `matrix`: packed by [`QuantizedMatrix::pack`].
    /// * `addend`: for each column, an integer that its sums begin with.
    /// * `finish`: scales and shifts are per column.
    /// * `scratch`: at least [`QuantizedMatrix::scratch_len`] for one row.
    ///
    /// # Errors
    ///
    /// [`Error::WrongSize`] if an operand is of another size, [`Error::OutOfRange`] if this processor
    /// does not multiply such lanes.
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
        let (matrix, totals) = matrix.split_at(self.lanes_len());
        let blocks = scratch.len() / (ROWS * self.depth_lanes());
        let height = ROWS * blocks.min(BLOCKS);
        let cycles = images * count * self.depth * self.columns / 32;
        let length = even(team, count, cycles).next_multiple_of(ROWS);
        let mut rest = output.reborrow();
        let parts = ranges(count, length).map(move |some| MatrixSweep {
            sizes: self,
            height,
            rows: rows.part(0..images, some.clone(), 0..rows.size()),
            encoding,
            matrix,
            totals,
            addend,
            finish,
            output: rest.split_off(Axis::Channels, some.len()),
        });
        match self.lanes {
            Lanes::Pairs => team.run(parts, scratch, |sweep, scratch| {
                Bound { sweep, scratch, lane: Turned(Pairs) }.dispatch();
            }),
            Lanes::Quads => {
                let vnni = quads()?;
                team.run(parts, scratch, |sweep, scratch| {
                    vnni.dispatch(Bound { sweep, scratch, lane: Turned(vnni) });
                });
            }
        }
        Ok(())
    }
}

/// Some rows.
struct MatrixSweep<'a, 'o> {
    sizes: &'a QuantizedMatrix,
    /// Rows whose lanes are made at a time.
    height: usize,
    rows: Planes<'a, u8>,
    encoding: Encoding,
    matrix: &'a [f32],
    /// The sum of each column, if a zero point is in rows.
    totals: &'a [f32],
    addend: Option<&'a [i32]>,
    finish: &'a Requantization<'a>,
    output: PlanesMut<'o, u8>,
}

/// A work part with its scratch memory.
struct Bound<'a, 'o, 's, L> {
    sweep: MatrixSweep<'a, 'o>,
    scratch: &'s mut [f32],
    lane: L,
}

impl<L: Lane> SimdOp for Bound<'_, '_, '_, L> {
    type Output = ();

    #[inline(always)]
    fn eval<I: Isa>(self, isa: I) {
        let Self { mut sweep, scratch, lane } = self;
        let [images, count] = sweep.rows.counts();
        for n in 0..images {
            for first in (0..count).step_by(sweep.height) {
                let rows = sweep.height.min(count - first);
                sweep.fill::<L>(n, first, rows, scratch);
                let mut panel = 0;
                for (column, width) in sweep.sizes.panels() {
                    let end = panel + width * sweep.sizes.depth_lanes();
                    if width == COLUMNS {
                        sweep.panel::<I, L, COLUMNS>(
                            isa, lane, n, first, rows, column, panel, scratch,
                        );
                    } else {
                        sweep.panel::<I, L, FEW>(isa, lane, n, first, rows, column, panel, scratch);
                    }
                    panel = end;
                }
            }
        }
    }
}

impl MatrixSweep<'_, '_> {
    /// Writes lanes for some rows; the lanes for [`ROWS`] rows lie beside each other.
    #[inline(always)]
    fn fill<L: Lane>(&self, n: usize, first: usize, rows: usize, scratch: &mut [f32]) {
        let lanes = self.sizes.depth_lanes();
        for (block, target) in scratch.chunks_exact_mut(ROWS * lanes).enumerate() {
            for row in 0..ROWS {
                let at = block * ROWS + row;
                if at >= rows {
                    continue; // No result uses the lanes there.
                }
                let line = self.rows.plane(n, first + at);
                let elements = line.chunks(L::LANES.channels());
                for (to, some) in target.as_chunks_mut::<ROWS>().0.iter_mut().zip(elements) {
                    // The weights for missing elements are zero.
                    let mut channels = [L::Element::default(); MOST_CHANNELS];
                    for (element, &byte) in channels.iter_mut().zip(some) {
                        *element = L::element(self.encoding, byte);
                    }
                    to[row] = f32::from_bits(L::join(channels).cast_unsigned());
                }
            }
        }
    }

    /// Makes the results for some rows and a column panel.
    #[inline(always)]
    #[allow(clippy::too_many_arguments, reason = "numbers of rows and columns")]
    fn panel<I: Isa, L: Lane, const N: usize>(
        &mut self,
        isa: I,
        lane: L,
        n: usize,
        first: usize,
        rows: usize,
        column: usize,
        start: usize,
        scratch: &[f32],
    ) {
        let lanes = self.sizes.depth_lanes();
        let panel = self.matrix[start..start + N * lanes].as_chunks().0;
        let width = N.min(self.sizes.columns - column);
        let mut starts = [0.0; N];
        let zero = L::zero(self.encoding);
        for (start, column) in starts.iter_mut().zip(column..column + width) {
            let addend = self.addend.map_or(0, |addend| addend[column]);
            let total = self.totals.get(column).map_or(0, |total| total.to_bits().cast_signed());
            // Sums are right modulo 2³², and complete sums are in range.
            let sum = addend.wrapping_sub(total.wrapping_mul(zero));
            *start = f32::from_bits(sum.cast_unsigned());
        }
        for (block, some) in scratch.chunks_exact(ROWS * lanes).enumerate() {
            let Some(left) = rows.checked_sub(block * ROWS).filter(|&left| left > 0) else {
                break;
            };
            let made = left.min(ROWS);
            let mut sums = [starts; ROWS];
            accumulate::<I, L, f32, N>(isa, lane, some.as_chunks().0, made, panel, &mut sums);
            for (row, sums) in sums.iter().enumerate().take(made) {
                let plane = self.output.plane(n, first + block * ROWS + row);
                self.finish.row(isa, column, sums, &mut plane[column..column + width]);
            }
        }
    }
}
