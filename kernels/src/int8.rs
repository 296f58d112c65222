//! Products of matrices of bytes, with sums of 32 bits.

use rten_simd::{Isa, SimdOp};

use crate::error::{Error, Result, check};
use crate::raw::{Axis, PlanesMut};
use crate::team::{Team, even, ranges};

/// Columns of a panel of weights.
pub const BYTE_COLUMNS: usize = 64;
/// Rows that are multiplied by a panel at a time.
const ROWS: usize = 4;

/// A number of eight bits, with or without a sign.
pub trait Byte: Copy + Sync + 'static {
    /// Returns it with 16 bits.
    fn wide(self) -> i16;
}

impl Byte for u8 {
    fn wide(self) -> i16 {
        i16::from(self)
    }
}

impl Byte for i8 {
    fn wide(self) -> i16 {
        i16::from(self)
    }
}

/// Returns the number of elements of [`packed_bytes`].
pub fn packed_bytes_len(depth: usize, columns: usize) -> usize {
    columns.div_ceil(BYTE_COLUMNS) * BYTE_COLUMNS * depth.div_ceil(2) * 2
}

/// Writes a matrix of `depth` rows in the order in which [`multiply_bytes`] reads it: panels of
/// [`BYTE_COLUMNS`] columns, and of each column two rows beside each other, less a zero point.
///
/// # Errors
///
/// [`Error::WrongSize`] if an operand is of another size.
pub fn packed_bytes<T: Byte>(
    weights: &[T],
    columns: usize,
    zero: T,
    target: &mut [i16],
) -> Result<()> {
    let depth = weights.len().checked_div(columns).unwrap_or(0);
    check("the weights", weights.len(), depth * columns)?;
    check("the packed weights", target.len(), packed_bytes_len(depth, columns))?;
    target.fill(0);
    let pairs = depth.div_ceil(2);
    for (row, line) in weights.chunks_exact(columns.max(1)).enumerate() {
        for (column, weight) in line.iter().enumerate() {
            let (panel, at) = (column / BYTE_COLUMNS, column % BYTE_COLUMNS);
            let pair = (panel * pairs + row / 2) * BYTE_COLUMNS + at;
            target[2 * pair + row % 2] = weight.wide() - zero.wide();
        }
    }
    Ok(())
}

/// Writes the products of rows of bytes, less a zero point, and [`packed_bytes`].
///
/// Sums wrap around at 32 bits. No product of two differences of bytes exceeds 17 bits, so sums of
/// less than 2^15 terms are exact.
///
/// # Arguments
///
/// * `rows`: as many elements as a row has, for each row.
/// * `output`: `columns` elements for each row.
///
/// # Errors
///
/// [`Error::WrongSize`] if an operand is of another size, [`Error::OutOfRange`] if a size is zero.
pub fn multiply_bytes<T: Byte>(
    rows: &[T],
    zero: T,
    weights: &[i16],
    depth: usize,
    columns: usize,
    output: &mut [i32],
    team: &Team,
) -> Result<()> {
    if depth == 0 || columns == 0 {
        return Err(Error::OutOfRange { what: "a size of the product" });
    }
    let count = rows.len() / depth;
    check("the rows", rows.len(), count * depth)?;
    check("the packed weights", weights.len(), packed_bytes_len(depth, columns))?;
    check("the result", output.len(), count * columns)?;
    let zero = zero.wide();
    let panel = packed_bytes_len(depth, 1);
    let panels = columns.div_ceil(BYTE_COLUMNS);
    let mut rest = PlanesMut::new(output, [1, count], columns)?;
    let cycles = panels * panel / 16 * count;
    // Weights are read once per part if the rows are divided.
    let by_rows = count >= 2 * ROWS * team.threads();
    let (axis, units) =
        if by_rows { (Axis::Channels, count.div_ceil(ROWS)) } else { (Axis::Elements, panels) };
    let parts = ranges(units, even(team, units, cycles)).map(move |some| {
        if axis == Axis::Elements {
            let weights = &weights[some.start * panel..some.end * panel];
            let taken = columns.min(some.end * BYTE_COLUMNS) - some.start * BYTE_COLUMNS;
            ByteProduct { rows, zero, weights, depth, output: rest.split_off(axis, taken) }
        } else {
            let some = some.start * ROWS..count.min(some.end * ROWS);
            let rows = &rows[some.start * depth..some.end * depth];
            ByteProduct { rows, zero, weights, depth, output: rest.split_off(axis, some.len()) }
        }
    });
    team.run(parts, &mut [], |part, _| part.dispatch());
    Ok(())
}

struct ByteProduct<'a, T> {
    rows: &'a [T],
    zero: i16,
    weights: &'a [i16],
    depth: usize,
    output: PlanesMut<'a, i32>,
}

impl<T: Byte> SimdOp for ByteProduct<'_, T> {
    type Output = ();

    #[inline(always)]
    fn eval<I: Isa>(self, _: I) {
        let Self { rows, zero, weights, depth, mut output } = self;
        let (panel, columns) = (packed_bytes_len(depth, 1), output.size());
        for (at, weights) in weights.chunks_exact(panel).enumerate() {
            let first = at * BYTE_COLUMNS;
            let made = BYTE_COLUMNS.min(columns - first);
            for (block, rows) in rows.chunks(ROWS * depth).enumerate() {
                let mut sums = [[0_i32; BYTE_COLUMNS]; ROWS];
                for (sums, row) in sums.iter_mut().zip(rows.chunks_exact(depth)) {
                    accumulate(row, zero, weights, sums);
                }
                for (r, sums) in sums.iter().enumerate().take(rows.len() / depth) {
                    let line = output.plane(0, block * ROWS + r);
                    line[first..first + made].copy_from_slice(&sums[..made]);
                }
            }
        }
    }
}

/// Adds the products of a row and a panel: a form that compilers turn into multiplications of pairs
/// (`pmaddwd`).
#[inline(always)]
fn accumulate<T: Byte>(row: &[T], zero: i16, weights: &[i16], sums: &mut [i32; BYTE_COLUMNS]) {
    let pairs = weights.as_chunks::<{ 2 * BYTE_COLUMNS }>().0;
    for (numbers, pairs) in row.chunks(2).zip(pairs) {
        let first = i32::from(numbers[0].wide() - zero);
        let second = numbers.get(1).map_or(0, |number| i32::from(number.wide() - zero));
        for (sum, [a, b]) in sums.iter_mut().zip(pairs.as_chunks::<2>().0) {
            let product = first * i32::from(*a) + second * i32::from(*b);
            *sum = sum.wrapping_add(product);
        }
    }
}
