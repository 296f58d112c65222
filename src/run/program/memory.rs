//! A step's memory, lent without allocating.

use alloc::{
    format,
    string::{String, ToString as _},
};
use core::array;

use bytemuck::Pod;

use crate::base::{Error, Result, ValueId, quoted};
use crate::run::arena::{
    Arena, Input, Memory, Output, Slots, Stretch, Writing, cast, cast_mut, count, mismatch,
};
use crate::run::program::operands::{Operands, whole};
use crate::run::program::{Program, ProgramStep};

impl Arena<'_> {
    /// Lends the memory of a step without allocating: see [`StepMemory`].
    ///
    /// # Errors
    ///
    /// [`Error::ArenaMismatch`] if the arena and the program have different plans, or the step
    /// belongs to another program.
    pub fn step<'a>(
        &'a mut self,
        program: &Program,
        step: ProgramStep<'a>,
    ) -> Result<StepMemory<'a>> {
        if !self.belongs_to(program.layout) {
            return Err(mismatch(&program.plan));
        }
        if step.program.layout != program.layout {
            return Err(mismatch(&step.program.plan));
        }
        Ok(StepMemory { memory: &mut self.regions, step })
    }

    /// Runs a program: calls `kernel` with every step and the step's memory, in order.
    ///
    /// # Errors
    ///
    /// As [`step`](Self::step), and the first error of `kernel`.
    pub fn run<E: From<Error>>(
        &mut self,
        program: &Program,
        mut kernel: impl FnMut(ProgramStep<'_>, &mut StepMemory<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        for step in program.steps() {
            kernel(step, &mut self.step(program, step)?)?;
        }
        Ok(())
    }
}

/// A step's memory, while the arena is borrowed.
///
/// There are several ways to access the memory, from the simplest to the most general; none
/// allocates.
///
/// - [`elementwise`](Self::elementwise) computes an output from inputs of equal size, wherever they
///   are.
/// - [`input`](Self::input), [`output`](Self::output) and [`workspace`](Self::workspace) lend an
///   operand.
/// - [`split`](Self::split) lends all operands at once, if the kernel knows their numbers at
///   compile time.
/// - [`lend`](Self::lend) fills the caller's slots, for any number of operands.
///
/// All except the first also return typed slices: [`input_as`](Self::input_as),
/// [`split_as`](Self::split_as).
#[derive(Debug)]
pub struct StepMemory<'a> {
    pub(super) memory: &'a mut (dyn Memory + 'a),
    pub(super) step: ProgramStep<'a>,
}

/// The operand kind in an error.
#[derive(Clone, Copy)]
enum Kind {
    Input,
    Output,
    Workspace,
}

impl<'a> StepMemory<'a> {
    /// Returns the memory's step.
    pub const fn step(&self) -> ProgramStep<'a> {
        self.step
    }

    /// Returns the bytes of the input at `position`.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidOperand`] if there is no such input, or the input is not in the arena.
    pub fn input(&self, position: usize) -> Result<&[u8]> {
        let place = self.step.spans.inputs.get(position).and_then(|input| input.place);
        let bytes = place.and_then(|place| self.memory.bytes(place));
        bytes.ok_or_else(|| missing(self.step, Kind::Input, position))
    }

    /// Returns the input at `position` with element type `T`: `memory.input_as::<f32>(0)`.
    ///
    /// # Errors
    ///
    /// As [`input`](Self::input), and if size or address of the input does not fit the element
    /// type.
    pub fn input_as<T: Pod>(&self, position: usize) -> Result<&[T]> {
        cast(self.input(position)?)
            .map_err(|reason| invalid(self.step, Kind::Input, position, reason))
    }

    /// Returns the bytes of the output at `position`, exactly the value's bytes.
    ///
    /// If the step works in place, the bytes hold an input: see [`split`](Self::split).
    ///
    /// # Errors
    ///
    /// [`Error::InvalidOperand`] if there is no such output, or the output is a
    /// [view](ProgramStep::is_view) of an input, which must not be written.
    pub fn output(&mut self, position: usize) -> Result<&mut [u8]> {
        let step = self.step;
        let output = step.spans.outputs.get(position);
        let place = output.filter(|it| it.access == Writing::Exclusive).and_then(|it| it.place);
        let bytes = place.and_then(|place| self.memory.bytes_mut(place));
        bytes.ok_or_else(|| missing(step, Kind::Output, position))
    }

    /// Returns the output at `position` with element type `T`.
    ///
    /// # Errors
    ///
    /// As [`output`](Self::output), and if size or address of the output does not fit the element
    /// type.
    pub fn output_as<T: Pod>(&mut self, position: usize) -> Result<&mut [T]> {
        let step = self.step;
        cast_mut(self.output(position)?)
            .map_err(|reason| invalid(step, Kind::Output, position, reason))
    }

    /// Returns the scratch bytes at `position`; the workspaces of fused nodes follow each other.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidOperand`] if the plan has no such workspace.
    pub fn workspace(&mut self, position: usize) -> Result<&mut [u8]> {
        let step = self.step;
        let place = step.spans.workspaces.get(position).map(|scratch| scratch.place);
        let bytes = place.and_then(|place| self.memory.bytes_mut(place));
        bytes.ok_or_else(|| missing(step, Kind::Workspace, position))
    }

    /// Returns the scratch memory at `position` with element type `T`.
    ///
    /// # Errors
    ///
    /// As [`workspace`](Self::workspace), and if size or address of the workspace does not fit the
    /// element type.
    pub fn workspace_as<T: Pod>(&mut self, position: usize) -> Result<&mut [T]> {
        let step = self.step;
        cast_mut(self.workspace(position)?)
            .map_err(|reason| invalid(step, Kind::Workspace, position, reason))
    }

    /// Lends all operands: `I` inputs, `O` outputs, `W` workspaces.
    ///
    /// ```
    /// use arenaplan::arena::{Input, Output};
    /// use arenaplan::program::{Operands, StepMemory};
    /// use arenaplan::Result;
    ///
    /// /// Adds up bytes, modulo 256, from the last to the first.
    /// fn suffix_sums(mut memory: StepMemory<'_>) -> Result<()> {
    ///     let Operands { inputs: [x], outputs: [y], workspaces: [] } = memory.split()?;
    ///     let Output::Exclusive(y) = y else { return Ok(()) };
    ///     if let Input::Shared(x) = x {
    ///         y[..x.len()].copy_from_slice(x);
    ///     } // Otherwise the step works in place.
    ///     for at in (1..y.len()).rev() {
    ///         y[at - 1] = y[at - 1].wrapping_add(y[at]);
    ///     }
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::InvalidOperand`] if the step has not exactly as many.
    pub fn split<const I: usize, const O: usize, const W: usize>(
        &mut self,
    ) -> Result<Operands<'_, I, O, W>> {
        let step = self.step;
        let found =
            [step.spans.inputs.len(), step.spans.outputs.len(), step.spans.workspaces.len()];
        if found != [I, O, W] {
            return Err(counts(step, "asked for were", [I, O, W]));
        }
        let mut inputs = [const { Input::Absent }; I];
        let mut outputs = [const { Output::Absent }; O];
        let mut workspaces = array::from_fn(|_| Default::default());
        let slots =
            Slots { inputs: &mut inputs, outputs: &mut outputs, workspaces: &mut workspaces };
        match self.memory.lend(step.spans, slots) {
            Some(()) => Ok(Operands { inputs, outputs, workspaces }),
            None => Err(mismatch(&step.program.plan)),
        }
    }

    /// Lends all operands as elements of type `T`, and workspaces as bytes:
    /// `memory.split_as::<f32, 2, 1, 0>()`.
    ///
    /// If an output and an input share more bytes than either needs, trailing bytes that are not a
    /// whole element are left out.
    ///
    /// # Errors
    ///
    /// As [`split`](Self::split), and if size or address of an operand does not fit the element
    /// type.
    pub fn split_as<T: Pod, const I: usize, const O: usize, const W: usize>(
        &mut self,
    ) -> Result<Operands<'_, I, O, W, T>> {
        let step = self.step;
        for (position, input) in step.spans.inputs.iter().enumerate() {
            check_size::<T>(step, Kind::Input, position, input.place)?;
        }
        for (position, output) in step.spans.outputs.iter().enumerate() {
            check_size::<T>(step, Kind::Output, position, output.place)?;
        }
        let Operands { inputs, outputs, workspaces } = self.split()?;
        let mut error = None;
        let mut position = 0;
        let inputs = inputs.map(|input| {
            let typed = input.elements();
            position += 1;
            typed.unwrap_or_else(|reason| {
                error.get_or_insert_with(|| invalid(step, Kind::Input, position - 1, reason));
                Input::Absent
            })
        });
        position = 0;
        let outputs = outputs.map(|output| {
            let typed = output.elements();
            position += 1;
            typed.unwrap_or_else(|reason| {
                error.get_or_insert_with(|| invalid(step, Kind::Output, position - 1, reason));
                Output::Absent
            })
        });
        match error {
            None => Ok(Operands { inputs, outputs, workspaces }),
            Some(error) => Err(error),
        }
    }

    /// Lends all operands into the caller's slots, by position; surplus slots do not change.
    ///
    /// ```
    /// use arenaplan::arena::{Input, Output};
    /// use arenaplan::program::StepMemory;
    /// use arenaplan::Result;
    ///
    /// /// Joins up to eight inputs, except those that the plan put in their place.
    /// fn concatenate(mut memory: StepMemory<'_>) -> Result<()> {
    ///     let sizes = memory.step().inputs().map(|input| input.span.map_or(0, |span| span.bytes));
    ///     let mut inputs = [const { Input::Absent }; 8];
    ///     let mut outputs = [Output::Absent];
    ///     memory.lend(&mut inputs, &mut outputs, &mut [])?;
    ///     let [Output::Exclusive(output)] = outputs else { return Ok(()) };
    ///     let mut rest = output;
    ///     for (input, bytes) in inputs.iter().zip(sizes) {
    ///         let (piece, behind) = rest.split_at_mut(usize::try_from(bytes).unwrap());
    ///         if let Input::Shared(bytes) = input {
    ///             piece.copy_from_slice(bytes);
    ///         }
    ///         rest = behind;
    ///     }
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::InvalidOperand`] if there are fewer slots than operands.
    pub fn lend<'m>(
        &'m mut self,
        inputs: &mut [Input<'m>],
        outputs: &mut [Output<'m>],
        workspaces: &mut [&'m mut [u8]],
    ) -> Result<()> {
        let step = self.step;
        let spans = step.spans;
        if inputs.len() < spans.inputs.len()
            || outputs.len() < spans.outputs.len()
            || workspaces.len() < spans.workspaces.len()
        {
            let slots = [inputs.len(), outputs.len(), workspaces.len()];
            return Err(counts(step, "there are slots for", slots));
        }
        let lent = self.memory.lend(spans, Slots { inputs, outputs, workspaces });
        lent.ok_or_else(|| mismatch(&step.program.plan))
    }

    /// Computes each element of the only output from the elements at the same place of all `I`
    /// inputs, in order: whether the step works in place, or the output overlaps an input, makes no
    /// difference. An output that is a view of an input does not change.
    ///
    /// ```
    /// # use arenaplan::{DType, Graph, Node, Planner, Value, ValueKind};
    /// # let mut builder = Graph::builder("sum");
    /// # let array = |name, kind| Value::new(name, kind, DType::FLOAT32, [4]);
    /// # let a = builder.add_value(array("a", ValueKind::Input)?);
    /// # let b = builder.add_value(array("b", ValueKind::Input)?);
    /// # let c = builder.add_value(array("c", ValueKind::Activation)?);
    /// # builder.add_node(Node::new("sum", "Add").reads([a, b]).writes([c]).in_place(1, 0));
    /// # builder.add_output(c);
    /// # let graph = builder.build()?;
    /// # let plan = Planner::new().plan(&graph)?;
    /// # let program = plan.program(&graph)?;
    /// # let mut arena = plan.commit()?;
    /// # arena.value_as_mut::<f32>(&plan, a)?.fill(1.0);
    /// # arena.value_as_mut::<f32>(&plan, b)?.fill(2.0);
    /// # for step in program.steps() {
    /// let mut memory = arena.step(&program, step)?;
    /// memory.elementwise(|[a, b]: [f32; 2]| a + b)?;
    /// # }
    /// # assert_eq!(arena.value_as::<f32>(&plan, c)?, [3.0; 4]);
    /// # Ok::<(), arenaplan::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::InvalidOperand`] if the step does not have one output and `I` inputs, or an operand
    /// is not in the arena, or has another size, or an address that is not a multiple of an
    /// element's alignment.
    pub fn elementwise<T: Pod, const I: usize>(
        &mut self,
        mut compute: impl FnMut([T; I]) -> T,
    ) -> Result<()> {
        let step = self.step;
        let &[output] = &*step.spans.outputs else {
            return Err(counts(step, "asked for were", [I, 1, 0]));
        };
        if step.spans.inputs.len() != I {
            return Err(counts(step, "asked for were", [I, 1, 0]));
        }
        let bytes = output.place.map_or(0, |place| place.len());
        let elements = count::<T>(bytes);
        let elements = elements.map_err(|reason| invalid(step, Kind::Output, 0, reason))?;
        for (position, input) in step.spans.inputs.iter().enumerate() {
            let Some(place) = input.place else {
                return Err(missing(step, Kind::Input, position));
            };
            if place.len() != bytes {
                let reason = format!("it has {} bytes, and the output {bytes}", place.len());
                return Err(invalid(step, Kind::Input, position, reason));
            }
        }
        let mut inputs = [const { Input::Absent }; I];
        let mut outputs = [Output::Absent];
        let slots = Slots { inputs: &mut inputs, outputs: &mut outputs, workspaces: &mut [] };
        if self.memory.lend(step.spans, slots).is_none() {
            return Err(mismatch(&step.program.plan));
        }
        let [output] = outputs;
        let Output::Exclusive(output) = output else { return Ok(()) };
        let output = whole::<T>(output);
        let output = output.map_err(|reason| invalid(step, Kind::Output, 0, reason))?;
        let mut sources = [const { Source::Behind(0) }; I];
        for (position, (source, input)) in sources.iter_mut().zip(inputs).enumerate() {
            let found = match input.elements() {
                Ok(Input::Shared(elements)) => Ok(Source::Apart(elements)),
                Ok(Input::Within { offset, .. }) => Ok(Source::Behind(offset)),
                Ok(_) => Err("it is a state that the step mutates".into()),
                Err(reason) => Err(reason),
            };
            *source = found.map_err(|reason| invalid(step, Kind::Input, position, reason))?;
        }
        for at in 0..elements {
            // An input within the output begins at `at` or behind it, and was not yet written.
            let operands = array::from_fn(|position| match &sources[position] {
                Source::Apart(elements) => elements[at],
                Source::Behind(offset) => output[at + offset],
            });
            output[at] = compute(operands);
        }
        Ok(())
    }
}

/// The place where an operand's elements are.
enum Source<'m, T> {
    Apart(&'m [T]),
    /// In the output, so many elements behind its start.
    Behind(usize),
}

/// Refuses an operand without a whole number of elements of `T`.
fn check_size<T>(
    step: ProgramStep<'_>,
    kind: Kind,
    position: usize,
    place: Option<Stretch>,
) -> Result<()> {
    let bytes = place.map_or(0, |place| place.len());
    match count::<T>(bytes) {
        Ok(_) => Ok(()),
        Err(reason) => Err(invalid(step, kind, position, reason)),
    }
}

#[cold]
fn counts(
    step: ProgramStep<'_>,
    context: &str,
    [inputs, outputs, workspaces]: [usize; 3],
) -> Error {
    let spans = step.spans;
    let found = [spans.inputs.len(), spans.outputs.len(), spans.workspaces.len()];
    let [i, o, w] = found;
    Error::InvalidOperand {
        step: quoted(step.name()),
        operand: "all operands".into(),
        reason: format!(
            "there are {i} inputs, {o} outputs and {w} workspaces; {context} {inputs}, {outputs} and {workspaces}"
        ),
    }
}

#[cold]
fn missing(step: ProgramStep<'_>, kind: Kind, position: usize) -> Error {
    let spans = step.spans;
    let value = match kind {
        Kind::Input => spans.inputs.get(position).map(|input| input.value),
        Kind::Output => spans.outputs.get(position).map(|output| output.value),
        Kind::Workspace => None,
    };
    let reason = match value {
        None => "there is no such operand",
        Some(None) => "it is left out, or not read",
        Some(Some(_)) if step.is_view(position) && matches!(kind, Kind::Output) => {
            "it is a view of an input, and already what it should be"
        }
        Some(Some(_)) => "it is not in the arena",
    };
    invalid(step, kind, position, reason.into())
}

#[cold]
fn invalid(step: ProgramStep<'_>, kind: Kind, position: usize, reason: String) -> Error {
    let (word, value) = match kind {
        Kind::Input => ("input", step.inputs().nth(position).and_then(|input| input.value)),
        Kind::Output => ("output", step.outputs().nth(position).and_then(|output| output.value)),
        Kind::Workspace => ("workspace", None),
    };
    let named = |value: ValueId| Some(quoted(&step.program.plan.placement(value)?.name));
    let operand = match value.map(|value| named(value).unwrap_or_else(|| value.to_string())) {
        Some(name) => format!("{word} {position} (value {name})"),
        None => format!("{word} {position}"),
    };
    Error::InvalidOperand { step: quoted(step.name()), operand, reason }
}
