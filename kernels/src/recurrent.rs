//! Steps of recurrent layers: a product of the state with a constant matrix, and the gates.

use rten_simd::ops::{BitOps, NumOps};
use rten_simd::{Isa, SimdOp, SimdUnaryOp};
use rten_vecmath::{Sigmoid, Tanh};

use crate::error::{Error, Result, check};
use crate::matrix::Matrix;
use crate::order::larger;
use crate::raw::{Planes, PlanesMut, load_part, store_part};

/// A recurrent layer's kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cell {
    /// The hyperbolic tangent of each sum.
    Plain,
    /// Each sum, or zero if negative.
    Rectified,
    /// Gates *update*, *reset* and *hidden*.
    Gated {
        /// Whether the reset comes after the product with the hidden state.
        resets_late: bool,
    },
    /// Gates *input*, *output*, *forget* and *cell*.
    Memory,
}

/// Recurrent layer sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recurrence {
    cell: Cell,
    hidden: usize,
}

/// A layer's state, which steps change: as many numbers as the hidden state has.
#[derive(Debug)]
pub struct State<'a> {
    /// The hidden state.
    pub hidden: &'a mut [f32],
    /// The cell for [`Cell::Memory`]; scratch memory for [`Cell::Gated`]; unused otherwise.
    pub cell: &'a mut [f32],
}

impl Recurrence {
    /// Returns a layer with so many hidden elements per sequence.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfRange`] if the size is zero, or a product of sizes overflows.
    pub fn new(cell: Cell, hidden: usize) -> Result<Self> {
        if hidden.checked_mul(4).is_none() {
            return Err(Error::OutOfRange { what: "the size of the hidden state" });
        }
        let made = Self { cell, hidden };
        made.early()?;
        Ok(made)
    }

    /// Returns the gate count.
    pub fn gates(&self) -> usize {
        match self.cell {
            Cell::Plain | Cell::Rectified => 1,
            Cell::Gated { .. } => 3,
            Cell::Memory => 4,
        }
    }

    /// Returns the matrix that the hidden state is multiplied by, with the columns for all gates;
    /// for [`Cell::Gated`], for the first two.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfRange`] if the number of elements overflows.
    pub fn early(&self) -> Result<Matrix> {
        let gates = if let Cell::Gated { .. } = self.cell { 2 } else { self.gates() };
        Matrix::new(self.hidden, gates * self.hidden)
    }

    /// Returns the matrix for the last gate of [`Cell::Gated`].
    ///
    /// # Errors
    ///
    /// [`Error::OutOfRange`] if the number of elements overflows.
    pub fn late(&self) -> Result<Matrix> {
        Matrix::new(self.hidden, self.hidden)
    }

    /// Does some steps for some sequences.
    ///
    /// # Arguments
    ///
    /// * `sums`: per step and sequence, one plane with the gates' products with the input, and the
    ///   biases. The planes are overwritten.
    /// * `early`, `late`: packed matrices; the second is for [`Cell::Gated`] alone.
    /// * `bias`: the bias of the product with the last matrix, if the reset comes late.
    /// * `made`: per step and sequence, the hidden state afterwards.
    /// * `is_backward`: whether the last step comes first.
    ///
    /// # Errors
    ///
    /// [`Error::WrongSize`] if an operand has the wrong size.
    #[allow(clippy::too_many_arguments, reason = "operands of different kinds")]
    pub fn run(
        &self,
        sums: &mut PlanesMut<'_>,
        state: &mut State<'_>,
        early: &[f32],
        late: &[f32],
        bias: Option<&[f32]>,
        mut made: Option<&mut PlanesMut<'_>>,
        is_backward: bool,
    ) -> Result<()> {
        let [steps, sequences] = sums.counts();
        let width = self.hidden;
        let states = sequences.checked_mul(width).ok_or(Error::OutOfRange { what: "a size" })?;
        check("the sums", sums.size(), self.gates() * width)?;
        check("the hidden state", state.hidden.len(), states)?;
        if !matches!(self.cell, Cell::Plain | Cell::Rectified) {
            check("the cell", state.cell.len(), states)?;
        }
        if let Some(bias) = bias {
            check("the bias", bias.len(), width)?;
        }
        if let Some(made) = &made {
            check("the steps of the result", made.counts()[0], steps)?;
            check("the sequences of the result", made.counts()[1], sequences)?;
            check("the result of a step", made.size(), width)?;
        }
        for at in 0..steps {
            let at = if is_backward { steps - 1 - at } else { at };
            let mut sums = sums.part(at..at + 1, 0..sequences, 0..self.gates() * width);
            self.step(&mut sums, state, early, late, bias)?;
            if let Some(made) = &mut made {
                for (n, hidden) in state.hidden.chunks_exact(width).enumerate() {
                    made.plane(at, n).copy_from_slice(hidden);
                }
            }
        }
        Ok(())
    }

    /// Does one step for all sequences.
    fn step(
        &self,
        sums: &mut PlanesMut<'_>,
        state: &mut State<'_>,
        early: &[f32],
        late: &[f32],
        bias: Option<&[f32]>,
    ) -> Result<()> {
        let (sequences, width) = (sums.counts()[1], self.hidden);
        let counts = [1, sequences];
        let matrix = self.early()?;
        let mut first = sums.part(0..1, 0..sequences, 0..matrix.columns());
        matrix.add(&Planes::new(state.hidden, counts, width)?, early, &mut first)?;
        let each = |sums: &mut PlanesMut<'_>, state: &mut State<'_>, what: What| {
            let states = state.hidden.chunks_exact_mut(width);
            let mut cells = state.cell.chunks_exact_mut(width);
            for (n, hidden) in states.enumerate() {
                let cell = cells.next().unwrap_or_default();
                Gates { what, sums: sums.plane(0, n), hidden, cell }.dispatch();
            }
        };
        match self.cell {
            Cell::Plain => each(sums, state, What::Plain),
            Cell::Rectified => each(sums, state, What::Rectified),
            Cell::Memory => each(sums, state, What::Memory),
            Cell::Gated { resets_late: false } => {
                each(sums, state, What::Reset);
                let mut last = sums.part(0..1, 0..sequences, 2 * width..3 * width);
                self.late()?.add(&Planes::new(state.cell, counts, width)?, late, &mut last)?;
                each(sums, state, What::Update);
            }
            Cell::Gated { resets_late: true } => {
                let hidden = Planes::new(state.hidden, counts, width)?;
                for cell in state.cell.chunks_exact_mut(width) {
                    match bias {
                        Some(bias) => cell.copy_from_slice(bias),
                        None => cell.fill(0.0),
                    }
                }
                let mut product = PlanesMut::new(state.cell, counts, width)?;
                self.late()?.add(&hidden, late, &mut product)?;
                each(sums, state, What::LateReset);
                each(sums, state, What::Update);
            }
        }
        Ok(())
    }
}

/// A step's part between products.
#[derive(Clone, Copy)]
enum What {
    /// `h = tanh(sum)`
    Plain,
    /// `h = max(sum, 0)`
    Rectified,
    /// `z, r = sigmoid(sums)`, `cell = r h`
    Reset,
    /// `z, r = sigmoid(sums)`, `sum += r cell`
    LateReset,
    /// `h = H + z (h - H)` with `H = tanh(sum)`
    Update,
    /// `i, o, f = sigmoid(sums)`, `c = f c + i tanh(sum)`, `h = o tanh(c)`
    Memory,
}

/// The gates for one sequence.
struct Gates<'a> {
    what: What,
    sums: &'a mut [f32],
    hidden: &'a mut [f32],
    cell: &'a mut [f32],
}

impl SimdOp for Gates<'_> {
    type Output = ();

    #[inline(always)]
    fn eval<I: Isa>(self, isa: I) {
        let Self { what, sums, hidden, cell } = self;
        let (ops, width) = (isa.f32(), hidden.len());
        for at in (0..width).step_by(ops.len()) {
            let end = width.min(at + ops.len());
            // No closures: vector instructions belong to the function around.
            macro_rules! load {
                ($from:expr) => {
                    load_part(isa, &$from[at..end])
                };
            }
            macro_rules! gate {
                ($index:literal) => {
                    load!(sums[$index * width..])
                };
            }
            match what {
                What::Plain => {
                    store_part(isa, Tanh::apply(isa, gate!(0)), &mut hidden[at..end]);
                }
                What::Rectified => {
                    let made = larger(isa, ops.zero(), gate!(0));
                    store_part(isa, made, &mut hidden[at..end]);
                }
                What::Reset | What::LateReset => {
                    let update = Sigmoid::apply(isa, gate!(0));
                    let reset = Sigmoid::apply(isa, gate!(1));
                    if let What::Reset = what {
                        let kept = ops.mul(reset, load!(hidden));
                        store_part(isa, kept, &mut cell[at..end]);
                    } else {
                        let sum = ops.mul_add(reset, load!(cell), gate!(2));
                        store_part(isa, sum, &mut sums[2 * width + at..2 * width + end]);
                    }
                    store_part(isa, update, &mut sums[at..end]);
                }
                What::Update => {
                    let fresh = Tanh::apply(isa, gate!(2));
                    let change = ops.sub(load!(hidden), fresh);
                    let made = ops.mul_add(gate!(0), change, fresh);
                    store_part(isa, made, &mut hidden[at..end]);
                }
                What::Memory => {
                    let taken = Sigmoid::apply(isa, gate!(0));
                    let shown = Sigmoid::apply(isa, gate!(1));
                    let kept = Sigmoid::apply(isa, gate!(2));
                    let fresh = ops.mul(taken, Tanh::apply(isa, gate!(3)));
                    let sum = ops.mul_add(kept, load!(cell), fresh);
                    store_part(isa, sum, &mut cell[at..end]);
                    let made = ops.mul(shown, Tanh::apply(isa, sum));
                    store_part(isa, made, &mut hidden[at..end]);
                }
            }
        }
    }
}
