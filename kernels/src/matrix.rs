//! The product of a matrix and a constant matrix, whose columns are packed beforehand.
//!
//! The constant matrix is stored panel by panel: a few column vectors, row by row. So a panel is
//! read from front to back, and multiplied by numbers in the other matrix that stay in place.

use rten_simd::ops::{BitOps, NumOps};
use rten_simd::{Isa, SimdOp};

use crate::error::{Error, Result, check};
use crate::raw::{Axis, Planes, PlanesMut, load_part, load_vectors, store_part};
use crate::team::{Team, even, ranges};
use crate::tile::{
    FEW_ROWS, LANES, ROWS, VECTORS, is_wide, next_vectors, panel_rows, tile_vectors,
};

/// Panel rows at a time: they stay in a first-level cache.
const DEPTH: usize = 192;
/// The same where there are 16 registers, and panels are narrower.
const FEW_DEPTH: usize = 256;
/// Elements of the left operand that stay in a second-level cache.
const CACHED: usize = 1 << 18;
/// The same where there are 16 registers.
const FEW_CACHED: usize = 1 << 17;
/// Elements between two that have one place in a first-level cache.
const PAGE: usize = 1024;
/// Columns per panel, except the last panels.
const PANEL: usize = VECTORS * LANES;

/// Constant matrix sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Matrix {
    depth: usize,
    columns: usize,
}

impl Matrix {
    /// Returns a matrix with `depth` rows.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfRange`] if a size is zero, or the number of elements overflows.
    pub fn new(depth: usize, columns: usize) -> Result<Self> {
        let len = columns.checked_next_multiple_of(LANES).and_then(|all| all.checked_mul(depth));
        if len.is_none_or(|len| len == 0) {
            return Err(Error::OutOfRange { what: "the size of the matrix" });
        }
        Ok(Self { depth, columns })
    }

    /// Returns the packed matrix length.
    pub fn packed_len(&self) -> usize {
        self.columns.next_multiple_of(LANES) * self.depth
    }

    /// Writes a matrix in reading order. Columns that fill up a vector are zero.
    ///
    /// # Arguments
    ///
    /// * `elements`: the matrix rows one after another, or the columns if `is_transposed`.
    ///
    /// # Errors
    ///
    /// [`Error::WrongSize`] if an operand has the wrong size.
    pub fn pack(&self, elements: &[f32], is_transposed: bool, target: &mut [f32]) -> Result<()> {
        check("the matrix", elements.len(), self.depth * self.columns)?;
        check("the packed matrix", target.len(), self.packed_len())?;
        let is_wide = panel_rows() == ROWS;
        let mut rest = target;
        let mut first = 0;
        while first < self.columns {
            let width = self.panel(first, is_wide);
            let count = width.min(self.columns - first);
            let (panel, behind) = rest.split_at_mut(self.depth * width);
            for (at, row) in panel.chunks_exact_mut(width).enumerate() {
                if is_transposed {
                    let elements = elements[first * self.depth + at..].iter().step_by(self.depth);
                    for (to, from) in row[..count].iter_mut().zip(elements) {
                        *to = *from;
                    }
                } else {
                    let start = at * self.columns + first;
                    row[..count].copy_from_slice(&elements[start..start + count]);
                }
                row[count..].fill(0.0);
            }
            rest = behind;
            first += width;
        }
        Ok(())
    }

    /// Returns the column count.
    pub(crate) fn columns(&self) -> usize {
        self.columns
    }

    /// Adds the product to the output rows.
    ///
    /// # Errors
    ///
    /// [`Error::WrongSize`] if an operand has the wrong size.
    pub(crate) fn add(
        &self,
        rows: &Planes<'_>,
        packed: &[f32],
        output: &mut PlanesMut<'_>,
    ) -> Result<()> {
        self.check_operands(rows, packed, output)?;
        let (matrix, rows, output) = (*self, *rows, output.reborrow());
        let (bias, evicts) = (None, false);
        Multiplication { matrix, rows, packed, bias, adds: true, evicts, output }.dispatch();
        Ok(())
    }

    fn check_operands(
        &self,
        rows: &Planes<'_>,
        packed: &[f32],
        output: &PlanesMut<'_>,
    ) -> Result<()> {
        check("the packed matrix", packed.len(), self.packed_len())?;
        check("a row", rows.size(), self.depth)?;
        check("a row of the result", output.size(), self.columns)?;
        check("the rows of the result", output.counts()[0], rows.counts()[0])?;
        check("the rows of the result", output.counts()[1], rows.counts()[1])
    }

    /// Returns the columns of the panel that begins with a column, zeros included: a tile's
    /// columns.
    #[inline(always)]
    fn panel(&self, first: usize, is_wide: bool) -> usize {
        if is_wide { next_vectors((self.columns - first).div_ceil(LANES)) * LANES } else { LANES }
    }

    /// Computes the product.
    ///
    /// # Arguments
    ///
    /// * `rows`: the left operand's rows, as planes.
    /// * `packed`: see [`Matrix::pack`].
    /// * `bias`: one number per column, which is added.
    ///
    /// # Errors
    ///
    /// [`Error::WrongSize`] if an operand has the wrong size.
    pub fn run(
        &self,
        rows: &Planes<'_>,
        packed: &[f32],
        bias: Option<&[f32]>,
        output: &mut PlanesMut<'_>,
        team: &Team,
    ) -> Result<()> {
        self.check_operands(rows, packed, output)?;
        if let Some(bias) = bias {
            check("the bias", bias.len(), self.columns)?;
        }
        let [images, count] = rows.counts();
        let Self { depth, columns } = *self;
        let cycles = (images * count).div_ceil(4) * 4 * depth * columns.div_ceil(LANES) / 2;
        // Whichever operand is larger is read by one thread only. Panels of less than three vectors
        // are in the last part.
        let panels = (columns.div_ceil(LANES) - 1) / VECTORS;
        let is_high = images * count > columns && count >= ROWS * team.threads();
        let axis = if is_high || panels < team.threads() { Axis::Channels } else { Axis::Elements };
        let (units, unit, all) = match axis {
            Axis::Elements => (panels, PANEL, columns),
            _ => (count.div_ceil(ROWS), ROWS, count),
        };
        let length = even(team, units, cycles);
        let evicts = rows.step().is_multiple_of(PAGE) && rows.step() > 0;
        let mut rest = output.reborrow();
        let parts = ranges(units, length).map(move |some| {
            let stop = if some.end == units { all } else { some.end * unit };
            let some = some.start * unit..stop;
            let output = rest.split_off(axis, some.len());
            if axis == Axis::Elements {
                let packed = &packed[some.start * depth..];
                let bias = bias.map(|bias| &bias[some.clone()]);
                let matrix = Self { depth, columns: some.len() };
                Multiplication { matrix, rows: *rows, packed, bias, adds: false, evicts, output }
            } else {
                let rows = rows.part(0..images, some, 0..depth);
                Multiplication { matrix: *self, rows, packed, bias, adds: false, evicts, output }
            }
        });
        team.run(parts, &mut [], |part, _| part.dispatch());
        Ok(())
    }
}

struct Multiplication<'a> {
    matrix: Matrix,
    rows: Planes<'a>,
    packed: &'a [f32],
    bias: Option<&'a [f32]>,
    /// Whether sums begin with the content of the result's memory.
    adds: bool,
    /// Whether elements in successive rows evict each other from a first-level cache.
    evicts: bool,
    output: PlanesMut<'a>,
}

/// Copies of a few rows whose elements would evict each other.
type Copies = Option<[[f32; FEW_DEPTH]; ROWS]>;

/// The present panel part.
struct PanelPart<'p> {
    elements: &'p [f32],
    /// Columns in the panel.
    width: usize,
    /// The first column.
    column: usize,
    /// Columns that are no zeros.
    count: usize,
    /// The first matrix row.
    first: usize,
    /// Matrix rows.
    depth: usize,
}

impl SimdOp for Multiplication<'_> {
    type Output = ();

    #[inline(always)]
    fn eval<I: Isa>(mut self, isa: I) {
        let Matrix { depth, columns } = self.matrix;
        let [images, rows] = self.rows.counts();
        let mut copies: Copies = if self.evicts { Some([[0.0; FEW_DEPTH]; ROWS]) } else { None };
        let most = if is_wide(isa) { DEPTH } else { FEW_DEPTH };
        // A panel that is read once need not stay in cache.
        let block = if rows <= ROWS { depth } else { depth.div_ceil(depth.div_ceil(most)) };
        // Narrow panels read the left operand more often, so some of its columns are used at a
        // time.
        let (some, outer) = if is_wide(isa) || rows * depth <= FEW_CACHED {
            ((CACHED / depth).max(64).next_multiple_of(ROWS), depth)
        } else {
            ((FEW_CACHED / block).next_multiple_of(FEW_ROWS), block)
        };
        for image in 0..images {
            for start in (0..rows).step_by(some) {
                let stop = rows.min(start + some);
                for outer in (0..depth).step_by(outer).map(|first| first..depth.min(first + outer))
                {
                    let mut column = 0;
                    let mut rest = self.packed;
                    while column < columns {
                        let width = self.matrix.panel(column, is_wide(isa));
                        let (panel, behind) = rest.split_at(depth * width);
                        for first in outer.clone().step_by(block) {
                            let count = width.min(columns - column);
                            let depth = block.min(depth - first);
                            let elements = &panel[first * width..(first + depth) * width];
                            let part = PanelPart { elements, width, column, count, first, depth };
                            self.part(isa, image, start, stop, &part, &mut copies);
                        }
                        rest = behind;
                        column += width;
                    }
                }
            }
        }
    }
}

impl Multiplication<'_> {
    /// Adds the products of some rows and a part of a panel.
    #[inline(always)]
    fn part<I: Isa>(
        &mut self,
        isa: I,
        image: usize,
        start: usize,
        stop: usize,
        part: &PanelPart<'_>,
        copies: &mut Copies,
    ) {
        let lanes = isa.f32().len();
        // Sums for eight rows and three vectors take more registers than AVX2 has.
        let most = if is_wide(isa) { ROWS } else { FEW_ROWS };
        let mut row = start;
        while row < stop {
            let left = stop - row;
            let made = if left >= most { most } else { left.min(4) };
            let mut at = 0;
            while at < part.count {
                let vectors = tile_vectors(isa, part.count - at);
                match (made, vectors) {
                    (ROWS, 3) => self.tile::<I, ROWS, 3>(isa, image, row, at, part, copies),
                    (ROWS, 2) => self.tile::<I, ROWS, 2>(isa, image, row, at, part, copies),
                    (ROWS, _) => self.tile::<I, ROWS, 1>(isa, image, row, at, part, copies),
                    (FEW_ROWS, 2) => self.tile::<I, FEW_ROWS, 2>(isa, image, row, at, part, copies),
                    (FEW_ROWS, _) => self.tile::<I, FEW_ROWS, 1>(isa, image, row, at, part, copies),
                    (4, 3) => self.tile::<I, 4, 3>(isa, image, row, at, part, copies),
                    (4, 2) => self.tile::<I, 4, 2>(isa, image, row, at, part, copies),
                    (4, _) => self.tile::<I, 4, 1>(isa, image, row, at, part, copies),
                    (3, 3) => self.tile::<I, 3, 3>(isa, image, row, at, part, copies),
                    (3, 2) => self.tile::<I, 3, 2>(isa, image, row, at, part, copies),
                    (3, _) => self.tile::<I, 3, 1>(isa, image, row, at, part, copies),
                    (2, 3) => self.tile::<I, 2, 3>(isa, image, row, at, part, copies),
                    (2, 2) => self.tile::<I, 2, 2>(isa, image, row, at, part, copies),
                    (2, _) => self.tile::<I, 2, 1>(isa, image, row, at, part, copies),
                    (_, 3) => self.tile::<I, 1, 3>(isa, image, row, at, part, copies),
                    (_, 2) => self.tile::<I, 1, 2>(isa, image, row, at, part, copies),
                    (_, _) => self.tile::<I, 1, 1>(isa, image, row, at, part, copies),
                }
                at += vectors * lanes;
            }
            row += made;
        }
    }

    /// Adds the products of `R` rows and `V` panel vectors, term by term in order.
    #[inline(always)]
    fn tile<I: Isa, const R: usize, const V: usize>(
        &mut self,
        isa: I,
        image: usize,
        row: usize,
        at: usize,
        part: &PanelPart<'_>,
        copies: &mut Copies,
    ) {
        let ops = isa.f32();
        let column = part.column + at;
        let count = (V * ops.len()).min(part.count - at);
        let mut sums = [[ops.zero(); V]; R];
        if part.first > 0 || self.adds {
            for (r, sums) in sums.iter_mut().enumerate() {
                let line = &self.output.plane(image, row + r)[column..column + count];
                for (v, sum) in sums.iter_mut().enumerate() {
                    *sum = load_part(isa, &line[v * ops.len()..]);
                }
            }
        } else if let Some(bias) = self.bias {
            let line = &bias[column..column + count];
            sums = [load_vectors(isa, line); R];
        }
        // All rows have one length that the compiler knows, so that no index is checked below.
        let depth = part.depth;
        let mut rows: [&[f32]; R] = std::array::from_fn(
            #[inline(always)]
            |r| &self.rows.plane(image, row + r)[part.first..][..depth],
        );
        if R > 1
            && depth <= FEW_DEPTH
            && let Some(copies) = copies
        {
            for (copy, row) in copies.iter_mut().zip(rows) {
                copy[..depth].copy_from_slice(row);
            }
            rows = std::array::from_fn(
                #[inline(always)]
                |r| &copies[r][..depth],
            );
        }
        let mut total = sums;
        for (k, columns) in (0..depth).zip(part.elements.chunks_exact(part.width)) {
            let vectors: [I::F32; V] = load_vectors(isa, &columns[at..][..V * ops.len()]);
            for r in 0..R {
                let number = ops.splat(rows[r][k]);
                for v in 0..V {
                    total[r][v] = ops.mul_add(number, vectors[v], total[r][v]);
                }
            }
        }
        let sums = total;
        for (r, sums) in sums.iter().enumerate() {
            let line = &mut self.output.plane(image, row + r)[column..column + count];
            for (v, sum) in sums.iter().enumerate() {
                store_part(isa, *sum, &mut line[v * ops.len()..]);
            }
        }
    }
}
