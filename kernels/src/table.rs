//! Softmax over byte rows, by a table of powers.

use rten_simd::{Isa, SimdOp};

use crate::error::{Error, Result, check};
use crate::raw::Elements;
use crate::team::{Team, even, ranges};

/// How many different bytes exist.
pub const CODES: usize = 256;
/// Elements that are converted at a time.
const BLOCK: usize = 256;
/// Cycles per element.
const CYCLES: usize = 12;

/// A softmax over rows of 8-bit integers.
///
/// The power of an element is looked up: `table[255]` is the power for the largest element in a
/// row, the entry before for an integer less by one, and so on. Powers are added in order.
#[derive(Clone, Copy, Debug)]
pub struct TableSoftmax<'a> {
    /// Elements per row.
    pub length: usize,
    /// [`CODES`] powers.
    pub table: &'a [f32],
    /// Factor for each power, before the division by their sum.
    pub factor: f32,
    /// Added to the quotient at rounding.
    pub zero: f32,
}

impl TableSoftmax<'_> {
    /// Writes `rint(power * factor / sum) + zero`, bounded, for each element in some contiguous
    /// rows. The output may be the memory of the source.
    ///
    /// # Errors
    ///
    /// [`Error::WrongSize`] if there are more or fewer powers, or the source or the output has fewer
    /// elements; [`Error::OutOfRange`] if rows have no elements.
    pub fn run<'m>(
        &self,
        source: &Elements<'m>,
        output: &mut Elements<'m>,
        rows: usize,
        team: &Team,
    ) -> Result<()> {
        check("the table of powers", self.table.len(), CODES)?;
        let all = rows.checked_mul(self.length).filter(|_| self.length > 0);
        let all = all.ok_or(Error::OutOfRange { what: "the elements of a row" })?;
        check("the rows", source.len(), all)?;
        check("the output", output.len(), all)?;
        let parts = ranges(rows, even(team, rows, all * CYCLES));
        let parts = parts.map(|some| (some, *output));
        team.run(parts, &mut [], |(some, output), _| {
            for row in some {
                SoftmaxRow { softmax: self, source, output, first: row * self.length }.dispatch();
            }
        });
        Ok(())
    }
}

struct SoftmaxRow<'a, 'm> {
    softmax: &'a TableSoftmax<'a>,
    source: &'a Elements<'m>,
    output: Elements<'m>,
    /// The first element.
    first: usize,
}

impl SoftmaxRow<'_, '_> {
    /// Calls a function with the elements, block by block, and each block's first index.
    #[inline(always)]
    fn blocks<I: Isa>(&self, isa: I, mut function: impl FnMut(usize, &mut [f32])) {
        let end = self.first + self.softmax.length;
        let mut block = [0.0; BLOCK];
        for start in (self.first..end).step_by(BLOCK) {
            let part = &mut block[..BLOCK.min(end - start)];
            self.source.read(isa, start, part);
            function(start, part);
        }
    }
}

impl SimdOp for SoftmaxRow<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn eval<I: Isa>(self, isa: I) {
        let TableSoftmax { table, factor, zero, .. } = *self.softmax;
        let mut largest = f32::MIN;
        self.blocks(isa, |_, part| largest = part.iter().fold(largest, |most, &x| most.max(x)));
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::as_conversions,
            reason = "the difference of two bytes is between 0 and 255"
        )]
        let power = |x: f32| table[usize::from((x - largest + 255.0) as u8)];
        let mut sum = 0.0;
        self.blocks(isa, |_, part| sum = part.iter().fold(sum, |sum, &x| sum + power(x)));
        let mut output = self.output;
        // The closure has vector instructions.
        self.blocks(
            isa,
            #[inline(always)]
            |start, part| {
                for x in &mut *part {
                    *x = (power(*x) * factor / sum).round_ties_even() + zero;
                }
                output.write(isa, start, part);
            },
        );
    }
}
