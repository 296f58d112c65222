//! Chains of elementwise functions: one pass over memory, for any number of functions.
//!
//! A chain is a short program over registers of 512 elements, which stay in a first-level
//! cache. Operands are broadcast as in NumPy.

use std::ops::Range;

use rten_simd::ops::{BitOps, FloatOps, NumOps};
use rten_simd::{Isa, SimdOp, SimdUnaryOp};
use rten_vecmath::{Exp, Sigmoid, Tanh};

use crate::error::{Error, Result};
use crate::order::{larger, smaller};
use crate::raw::{Elements, Kind, look_up};
use crate::table::CODES;
use crate::team::{Team, even, ranges};

/// Elements per register.
const BLOCK: usize = 512;
/// Cycles that a block takes whose results are looked up.
const LOOKUP: usize = BLOCK;
/// Register count.
pub const REGISTERS: usize = 8;
/// Most dimensions in a loop, after dimensions that can be walked as one are merged.
const DIMENSIONS: usize = 6;
/// Most arrays among a chain's operands.
pub const OPERANDS: usize = 8;

/// A function with up to three arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Function {
    /// `a + b`
    Add,
    /// `a - b`
    Sub,
    /// `a * b`
    Mul,
    /// `a / b`
    Div,
    /// The larger number, or the operand that is not a number.
    Max,
    /// The smaller number, or the operand that is not a number.
    Min,
    /// `-a`
    Neg,
    /// `|a|`
    Abs,
    /// The exponential function.
    Exp,
    /// The hyperbolic tangent.
    Tanh,
    /// `1 / (1 + exp(-a))`
    Sigmoid,
    /// The error function.
    Erf,
    /// `a`
    Copy,
    /// `a * b + c`, rounded once where the processor has such an instruction.
    MulAdd,
}

impl Function {
    /// Returns the function with a lower-case name.
    pub fn of_name(name: &str) -> Option<Self> {
        Some(match name {
            "add" => Self::Add,
            "sub" => Self::Sub,
            "mul" => Self::Mul,
            "div" => Self::Div,
            "max" => Self::Max,
            "min" => Self::Min,
            "neg" => Self::Neg,
            "abs" => Self::Abs,
            "exp" => Self::Exp,
            "tanh" => Self::Tanh,
            "sigmoid" => Self::Sigmoid,
            "erf" => Self::Erf,
            "copy" => Self::Copy,
            "mul_add" => Self::MulAdd,
            _ => return None,
        })
    }
}

/// A function argument.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Argument {
    /// A register number.
    Register(usize),
    /// A constant.
    Number(f32),
}

/// A step in a chain.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Step {
    /// Loads an operand into a register.
    Load {
        /// The operand.
        from: usize,
        /// The register.
        to: usize,
    },
    /// Applies a function.
    Apply {
        /// The function.
        function: Function,
        /// The arguments; arguments behind the function's last are not read.
        arguments: [Argument; 3],
        /// The result register, which is not an argument.
        to: usize,
    },
}

/// Dimensions, and every operand's steps along the dimensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Loop {
    count: usize,
    sizes: [usize; DIMENSIONS],
    /// Per operand, the last one being the result.
    steps: [[usize; DIMENSIONS]; OPERANDS + 1],
}

/// A program with the operand dimensions.
#[derive(Clone, Debug, PartialEq)]
pub struct Chain {
    steps: Vec<Step>,
    /// The result register.
    result: usize,
    operands: usize,
    walk: Loop,
    /// About how many cycles a block takes.
    cycles: usize,
    /// For each byte of the only operand: the result byte.
    table: Option<Table>,
}

/// A byte for each byte.
type Table = [u8; CODES];

impl Chain {
    /// Returns a chain.
    ///
    /// # Arguments
    ///
    /// * `result`: the register that is written to memory.
    /// * `shape`: the result shape, to which operands are broadcast.
    /// * `strides`: per operand, and for the result at last, elements from one index of a dimension to
    ///   the next.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfRange`] if a register, operand or dimension does not exist, or elements of the
    /// last dimension are apart.
    pub fn new(
        steps: Vec<Step>,
        result: usize,
        shape: &[usize],
        strides: &[Vec<usize>],
    ) -> Result<Self> {
        let operands = strides.len().checked_sub(1).filter(|&count| count <= OPERANDS);
        let operands = operands.ok_or(Error::OutOfRange { what: "the number of operands" })?;
        let mut known = [false; REGISTERS];
        for step in &steps {
            let to = match *step {
                Step::Load { from, to } if from < operands => to,
                Step::Apply { arguments, to, .. } => {
                    for argument in arguments {
                        if let Argument::Register(at) = argument
                            && (at == to || known.get(at) != Some(&true))
                        {
                            return Err(Error::OutOfRange { what: "a register that is read" });
                        }
                    }
                    to
                }
                Step::Load { .. } => return Err(Error::OutOfRange { what: "an operand" }),
            };
            *known.get_mut(to).ok_or(Error::OutOfRange { what: "a register" })? = true;
        }
        if known.get(result) != Some(&true) {
            return Err(Error::OutOfRange { what: "the register of the result" });
        }
        let walk = merged(shape, strides)?;
        let cycles = steps.iter().map(Step::cycles).sum();
        Ok(Self { steps, result, operands, walk, cycles, table: None })
    }

    /// Returns a chain whose results are looked up, if that is faster: if the only operand and the
    /// result are bytes, at most 256 results exist, which are computed here.
    ///
    /// # Arguments
    ///
    /// * `operand`, `result`: the element kinds in a run.
    #[must_use]
    pub fn tabulated(mut self, operand: Kind, result: Kind) -> Self {
        let are_bytes = operand != Kind::Single && result != Kind::Single;
        if self.operands == 1 && are_bytes && self.cycles > LOOKUP {
            let mut table = std::array::from_fn(|code| code.to_le_bytes()[0]);
            let mut walk = Loop { count: 1, ..self.walk };
            (walk.sizes[0], walk.steps) = (CODES, [[1; DIMENSIONS]; OPERANDS + 1]);
            let chain = Self { walk, steps: self.steps.clone(), ..self };
            let source = table;
            let (operand, output) = Elements::of_codes(&source, operand, &mut table, result);
            ChainPass {
                chain: &chain,
                operands: &[operand],
                output,
                rows: 0..1,
                columns: 0..CODES,
            }
            .dispatch();
            self.table = Some(table);
        }
        self
    }

    /// Computes all result elements in order. The result may be the memory of an operand with the
    /// same strides, or begin before the memory of a contiguous operand with wider elements.
    ///
    /// # Errors
    ///
    /// [`Error::WrongSize`] if there are more or fewer operands.
    pub fn run<'m>(
        &self,
        operands: &[Elements<'m>],
        output: &mut Elements<'m>,
        team: &Team,
    ) -> Result<()> {
        crate::error::check("the list of operands", operands.len(), self.operands)?;
        let (outer, inner) = self.walk.rows();
        let blocks = inner.div_ceil(BLOCK);
        let cycles = outer * blocks * self.cycles;
        let by_rows = outer > blocks;
        // A result that is written over elements with another size must follow the read elements.
        let is_ordered = !operands.iter().all(|operand| operand.is_same_or_apart(output));
        let (count, unit) = if by_rows { (outer, 1) } else { (blocks, BLOCK) };
        let output = *output;
        let length = if is_ordered { count.max(1) } else { even(team, count, cycles) };
        let parts = ranges(count, length).map(move |some| {
            let some = some.start * unit..some.end * unit;
            if by_rows { (some, 0..inner) } else { (0..outer, some.start..inner.min(some.end)) }
        });
        // Each result element is read and written in a single part.
        team.run(parts, &mut [], |(rows, columns), _| {
            ChainPass { chain: self, operands, output, rows, columns }.dispatch();
        });
        Ok(())
    }
}

/// Returns the loop over a shape, with dimensions merged that all operands walk as one.
fn merged(shape: &[usize], strides: &[Vec<usize>]) -> Result<Loop> {
    let mut all: Vec<(usize, Vec<usize>)> = Vec::new();
    for (axis, &size) in shape.iter().enumerate() {
        let own: Option<Vec<usize>> = strides.iter().map(|each| each.get(axis).copied()).collect();
        let own = own.ok_or(Error::OutOfRange { what: "the number of strides" })?;
        if size == 1 {
            continue;
        }
        let joins = |before: &[usize]| {
            before.iter().zip(&own).all(|(&outer, &inner)| Some(outer) == inner.checked_mul(size))
        };
        match all.last_mut() {
            Some((outer, steps)) if joins(steps) => {
                *outer =
                    outer.checked_mul(size).ok_or(Error::OutOfRange { what: "a dimension" })?;
                *steps = own;
            }
            _ => all.push((size, own)),
        }
    }
    let is_dense = |all: &[(usize, Vec<usize>)]| {
        all.last().is_some_and(|(_, steps)| {
            steps.iter().all(|&step| step <= 1) && steps.last() == Some(&1)
        })
    };
    // A last dimension with one element is dense, whatever its stride.
    if all.is_empty() || (shape.last() == Some(&1) && !is_dense(&all)) {
        all.push((1, vec![1; strides.len()]));
    }
    if all.len() > DIMENSIONS || !is_dense(&all) {
        return Err(Error::NotContiguous { what: "the last dimension of an operand" });
    }
    let mut walk =
        Loop { count: all.len(), sizes: [1; DIMENSIONS], steps: [[0; DIMENSIONS]; OPERANDS + 1] };
    for (axis, (size, steps)) in all.iter().enumerate() {
        walk.sizes[axis] = *size;
        for (to, step) in walk.steps.iter_mut().zip(steps) {
            to[axis] = *step;
        }
    }
    Ok(walk)
}

impl Step {
    /// Returns an estimate of the cycles per block.
    fn cycles(&self) -> usize {
        let each = match self {
            Self::Apply {
                function: Function::Tanh | Function::Sigmoid | Function::Erf, ..
            } => 16,
            Self::Apply { function: Function::Exp | Function::Div, .. } => 8,
            _ => 2,
        };
        each * BLOCK / 16
    }
}

impl Loop {
    /// Returns the row count, and the elements per row.
    fn rows(&self) -> (usize, usize) {
        let outer = self.count - 1;
        (self.sizes[..outer].iter().product(), self.sizes[outer])
    }
}

/// A chain run over some rows, and some elements per row.
struct ChainPass<'a, 'm> {
    chain: &'a Chain,
    operands: &'a [Elements<'m>],
    output: Elements<'m>,
    rows: Range<usize>,
    columns: Range<usize>,
}

type Registers = [[f32; BLOCK]; REGISTERS];

impl SimdOp for ChainPass<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn eval<I: Isa>(self, isa: I) {
        let Self { chain, operands, mut output, rows, columns } = self;
        let walk = &chain.walk;
        let outer = walk.count - 1;
        let mut registers: Registers = [[0.0; BLOCK]; REGISTERS];
        let mut codes = [0; BLOCK];
        let mut index = [0_usize; DIMENSIONS];
        let mut first = rows.start;
        for axis in (0..outer).rev() {
            (first, index[axis]) = (first / walk.sizes[axis], first % walk.sizes[axis]);
        }
        let offset = |operand: usize, index: &[usize; DIMENSIONS]| -> usize {
            index[..outer].iter().zip(&walk.steps[operand]).map(|(&at, &step)| at * step).sum()
        };
        for _ in rows {
            for start in columns.clone().step_by(BLOCK) {
                let count = BLOCK.min(columns.end - start);
                if let Some(table) = &chain.table {
                    let step = walk.steps[0][outer];
                    let (codes, first) = (&mut codes[..count], offset(0, &index) + step * start);
                    if step == 0 {
                        operands[0].read_codes(first, &mut codes[..1]);
                        let code = codes[0];
                        codes.fill(code);
                    } else {
                        operands[0].read_codes(first, codes);
                    }
                    look_up(table, codes);
                    output.write_codes(offset(1, &index) + start, codes);
                    continue;
                }
                for step in &chain.steps {
                    match *step {
                        Step::Load { from, to } => {
                            let (first, register) = (offset(from, &index), &mut registers[to]);
                            if walk.steps[from][outer] == 0 {
                                let mut number = [0.0];
                                operands[from].read(isa, first, &mut number);
                                register[..count.next_multiple_of(64).min(BLOCK)].fill(number[0]);
                            } else {
                                operands[from].read(isa, first + start, &mut register[..count]);
                            }
                        }
                        Step::Apply { function, arguments, to } => {
                            apply(isa, &mut registers, function, arguments, to, count);
                        }
                    }
                }
                let first = offset(chain.operands, &index) + start;
                output.write(isa, first, &registers[chain.result][..count]);
            }
            for axis in (0..outer).rev() {
                index[axis] += 1;
                if index[axis] < walk.sizes[axis] {
                    break;
                }
                index[axis] = 0;
            }
        }
    }
}

/// The elements behind an argument.
#[derive(Clone, Copy)]
enum ArgumentSource<'a> {
    Register(&'a [f32; BLOCK]),
    Number(f32),
}

impl ArgumentSource<'_> {
    /// Returns some elements.
    #[inline(always)]
    fn load<I: Isa>(self, isa: I, at: usize) -> I::F32 {
        match self {
            Self::Register(register) => isa.f32().load(&register[at..]),
            Self::Number(number) => isa.f32().splat(number),
        }
    }
}

/// Applies a function to the first elements in registers.
#[inline(always)]
fn apply<I: Isa>(
    isa: I,
    registers: &mut Registers,
    function: Function,
    arguments: [Argument; 3],
    to: usize,
    count: usize,
) {
    let ops = isa.f32();
    let (before, rest) = registers.split_at_mut(to);
    let Some((target, after)) = rest.split_first_mut() else { return };
    let source = |argument: Argument| match argument {
        Argument::Number(number) => ArgumentSource::Number(number),
        Argument::Register(at) if at < to => ArgumentSource::Register(&before[at]),
        // The register is not `to`: see `Chain::new`.
        Argument::Register(at) => ArgumentSource::Register(&after[at - to - 1]),
    };
    let [a, b, c] = arguments.map(source);
    macro_rules! apply {
        (|$x:ident| $made:expr) => {
            one(
                isa,
                a,
                target,
                count,
                #[inline(always)]
                |$x| $made,
            )
        };
        (|$x:ident, $y:ident| $made:expr) => {
            two(
                isa,
                a,
                b,
                target,
                count,
                #[inline(always)]
                |$x, $y| $made,
            )
        };
    }
    match function {
        Function::Add => apply!(|x, y| ops.add(x, y)),
        Function::Sub => apply!(|x, y| ops.sub(x, y)),
        Function::Mul => apply!(|x, y| ops.mul(x, y)),
        Function::Div => apply!(|x, y| ops.div(x, y)),
        Function::Max => apply!(|x, y| larger(isa, x, y)),
        Function::Min => apply!(|x, y| smaller(isa, x, y)),
        Function::Neg => apply!(|x| ops.neg(x)),
        Function::Abs => apply!(|x| ops.abs(x)),
        Function::Exp => apply!(|x| Exp::apply(isa, x)),
        Function::Tanh => apply!(|x| Tanh::apply(isa, x)),
        Function::Sigmoid => apply!(|x| Sigmoid::apply(isa, x)),
        Function::Erf => apply!(|x| erf(isa, x)),
        Function::Copy => apply!(|x| x),
        Function::MulAdd => {
            for at in (0..count).step_by(ops.len()) {
                let made = ops.mul_add(a.load(isa, at), b.load(isa, at), c.load(isa, at));
                ops.store(made, &mut target[at..]);
            }
        }
    }
}

#[inline(always)]
fn one<I: Isa>(
    isa: I,
    a: ArgumentSource<'_>,
    target: &mut [f32; BLOCK],
    count: usize,
    function: impl Fn(I::F32) -> I::F32,
) {
    let ops = isa.f32();
    match a {
        ArgumentSource::Number(number) => {
            let made = function(ops.splat(number));
            for at in (0..count).step_by(ops.len()) {
                ops.store(made, &mut target[at..]);
            }
        }
        ArgumentSource::Register(a) => {
            for at in (0..count).step_by(ops.len()) {
                ops.store(function(ops.load(&a[at..])), &mut target[at..]);
            }
        }
    }
}

#[inline(always)]
fn two<I: Isa>(
    isa: I,
    a: ArgumentSource<'_>,
    b: ArgumentSource<'_>,
    target: &mut [f32; BLOCK],
    count: usize,
    function: impl Fn(I::F32, I::F32) -> I::F32,
) {
    let ops = isa.f32();
    match (a, b) {
        (ArgumentSource::Register(a), ArgumentSource::Register(b)) => {
            for at in (0..count).step_by(ops.len()) {
                let made = function(ops.load(&a[at..]), ops.load(&b[at..]));
                ops.store(made, &mut target[at..]);
            }
        }
        (ArgumentSource::Register(_), ArgumentSource::Number(number)) => {
            let number = ops.splat(number);
            one(
                isa,
                a,
                target,
                count,
                #[inline(always)]
                |x| function(x, number),
            );
        }
        (ArgumentSource::Number(number), _) => {
            let number = ops.splat(number);
            one(
                isa,
                b,
                target,
                count,
                #[inline(always)]
                |y| function(number, y),
            );
        }
    }
}

/// Coefficients of *P*: see [`erf`].
const ERF: [f32; 7] = [
    1.128_379_5,
    0.102_767_61,
    -0.000_188_932_38,
    -0.000_622_049_13,
    8.841_891e-5,
    -5.786_748_5e-6,
    1.481_741_2e-7,
];

/// Returns the error function as tanh(x·P(x²)).
///
/// Both functions have the same symmetry and almost the same shape, so *P* is a short polynomial,
/// fitted to atanh(erf(x))/x on (0, 3.6] with the weight that equalizes the result error, which is
/// 1.6e-7 with all roundings. *P* grows beyond the fitted range. The error function in
/// `rten_vecmath` has an absolute error of 6.6e-7 near zero, where the function itself is small.
#[inline(always)]
fn erf<I: Isa>(isa: I, x: I::F32) -> I::F32 {
    let ops = isa.f32();
    let square = ops.mul(x, x);
    let mut sum = ops.splat(ERF[6]);
    for coefficient in ERF[..6].iter().rev() {
        sum = ops.mul_add(sum, square, ops.splat(*coefficient));
    }
    Tanh::apply(isa, ops.mul(sum, x))
}
