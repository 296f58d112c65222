//! A node while its kernel is made, and operands while it runs.

use std::sync::Arc;

use arenaplan::arena::{Input, Output};
use arenaplan::graph::{Attribute, Node};
use arenaplan::program::StepMemory;
use arenaplan::{Graph, NodeId, ValueKind};
use bytemuck::Pod;

use crate::error::{Error, Result};
use crate::tensors::{Elements, Weight, Weights};

/// A node, with the shapes of its operands and access to its attributes and weights.
pub(crate) struct Operator<'g> {
    graph: &'g Graph,
    node: &'g Node,
    weights: &'g Weights,
    sizes: &'g str,
}

/// An operand that a kernel reads: in the arena, or a weight.
pub(crate) enum Operand {
    Arena(usize),
    Weight(Arc<[f32]>),
}

/// Where the elements of an operand are while a kernel runs.
pub(crate) enum Place<'m> {
    /// Apart from the output.
    Apart(&'m [f32]),
    /// In the output, from its first element on: the step works in place.
    Output,
}

impl<'g> Operator<'g> {
    pub(super) fn new(
        graph: &'g Graph,
        node: NodeId,
        weights: &'g Weights,
        sizes: &'g str,
    ) -> Self {
        Self { graph, node: graph.node(node), weights, sizes }
    }

    /// Returns the error of a node that no kernel runs.
    pub(crate) fn refuse(&self, reason: impl Into<String>) -> Error {
        let (node, op) = (self.node.name().into(), self.node.op().into());
        Error::Unsupported { node, op, reason: reason.into() }
    }

    /// Returns the number of inputs, with those that are left out.
    pub(crate) fn inputs(&self) -> usize {
        self.node.inputs().len()
    }

    /// Returns whether the node has an input at a position.
    pub(crate) fn has(&self, input: usize) -> bool {
        self.node.input(input).is_some()
    }

    /// Returns the version of the operator set.
    pub(crate) fn version(&self) -> u32 {
        self.node.version()
    }

    /// Returns the dimensions of an input.
    pub(crate) fn shape(&self, input: usize) -> Result<Vec<usize>> {
        let value = self.node.input(input);
        let value = value.ok_or_else(|| self.refuse(format!("input {input} is left out")))?;
        self.dims(self.graph.value(value).shape())
    }

    /// Returns the dimensions of the output.
    pub(crate) fn output(&self) -> Result<Vec<usize>> {
        let value = self.node.output(0).ok_or_else(|| self.refuse("it has no output"))?;
        self.dims(self.graph.value(value).shape())
    }

    /// Returns the bytes of an element of the output.
    pub(crate) fn output_bytes(&self) -> Result<usize> {
        let value = self.node.output(0).ok_or_else(|| self.refuse("it has no output"))?;
        usize::try_from(self.graph.value(value).bytes()).map_err(|_| self.refuse("it is too large"))
    }

    fn dims(&self, shape: &[u64]) -> Result<Vec<usize>> {
        let dims = shape.iter().map(|&dim| usize::try_from(dim));
        dims.collect::<Result<_, _>>().map_err(|_| self.refuse("an operand is too large"))
    }

    /// Returns a constant input.
    pub(crate) fn weight(&self, input: usize) -> Result<Option<&'g Weight>> {
        let Some(value) = self.node.input(input) else { return Ok(None) };
        let value = self.graph.value(value);
        if value.kind() != ValueKind::Constant {
            return Ok(None);
        }
        self.weights.get(value.name(), self.sizes, value.shape()).map(Some)
    }

    /// Returns an input of real numbers.
    pub(crate) fn operand(&self, input: usize) -> Result<Operand> {
        let value = self.node.input(input);
        let value = value.ok_or_else(|| self.refuse(format!("input {input} is left out")))?;
        let dtype = self.graph.value(value).dtype();
        if dtype != arenaplan::DType::FLOAT32 {
            return Err(self.refuse(format!("input {input} has elements of {}", dtype.name())));
        }
        match self.weight(input)?.map(|weight| &weight.elements) {
            Some(Elements::Reals(elements)) => Ok(Operand::Weight(Arc::clone(elements))),
            Some(Elements::Integers(_)) => Err(self.refuse(format!("input {input} is whole"))),
            None => Ok(Operand::Arena(input)),
        }
    }

    /// Returns a constant input of real numbers.
    pub(crate) fn reals(&self, input: usize) -> Result<Arc<[f32]>> {
        match self.operand(input)? {
            Operand::Weight(elements) => Ok(elements),
            Operand::Arena(_) => Err(self.refuse(format!("input {input} is no constant"))),
        }
    }

    /// Returns a whole attribute, or its default.
    pub(crate) fn integer(&self, name: &str, default: i64) -> Result<i64> {
        self.attribute(name, default, Attribute::as_integer)
    }

    /// Returns a real attribute, or its default.
    #[allow(clippy::cast_possible_truncation, reason = "ONNX has attributes of 32 bits")]
    pub(crate) fn real(&self, name: &str, default: f64) -> Result<f32> {
        Ok(self.attribute(name, default, Attribute::as_real)? as f32)
    }

    /// Returns a text attribute, or its default.
    pub(crate) fn text(&self, name: &str, default: &'g str) -> Result<&'g str> {
        self.attribute(name, default, Attribute::as_text)
    }

    /// Returns a list of sizes, or its default.
    pub(crate) fn sizes(&self, name: &str, default: &[usize]) -> Result<Vec<usize>> {
        let Some(list) = self.attribute(name, None, |list| list.as_integers().map(Some))? else {
            return Ok(default.to_vec());
        };
        let sizes = list.iter().map(|&size| usize::try_from(size));
        let sizes: Result<Vec<_>, _> = sizes.collect();
        sizes.map_err(|_| self.refuse(format!("attribute {name} has a negative size")))
    }

    /// Returns an axis, counted from the front, that an attribute names.
    pub(crate) fn axis(&self, default: i64, rank: usize) -> Result<usize> {
        let axis = self.integer("axis", default)?;
        let from_front = if axis < 0 { axis + i64::try_from(rank).unwrap_or(0) } else { axis };
        let found = usize::try_from(from_front).ok().filter(|&axis| axis <= rank);
        found.ok_or_else(|| self.refuse(format!("axis {axis} is out of range")))
    }

    /// Reads an attribute. A value of another kind, or one that the file does not hold, is refused:
    /// its default would compute something else.
    fn attribute<T>(
        &self,
        name: &str,
        default: T,
        read: impl FnOnce(&'g Attribute) -> Option<T>,
    ) -> Result<T> {
        match self.node.attribute(name) {
            None => Ok(default),
            Some(attribute) => read(attribute).ok_or_else(|| {
                self.refuse(format!("attribute {name} has a value of another kind: {attribute:?}"))
            }),
        }
    }
}

/// Most inputs of a node.
pub(crate) const MOST_INPUTS: usize = 64;
/// Most outputs of a node, of which kernels make the first.
const MOST_OUTPUTS: usize = 8;

/// The inputs of a running kernel, by position.
pub(crate) type Inputs<'m> = [Input<'m>; MOST_INPUTS];

/// Output and inputs of a running kernel.
pub(crate) struct Lent<'m> {
    pub(crate) output: &'m mut [f32],
    pub(crate) inputs: Inputs<'m>,
}

/// Lends the output and all inputs; `None` if the output is a view, and already there.
///
/// The output has `elements` elements, also where the input that it replaces has more.
pub(crate) fn lend<'m>(
    memory: &'m mut StepMemory<'_>,
    elements: usize,
) -> arenaplan::Result<Option<Lent<'m>>> {
    let (Output::Exclusive(output), inputs) = operands(memory)? else { return Ok(None) };
    let bytes = output.get_mut(..elements * size_of::<f32>()).unwrap_or_default();
    let output = bytemuck::try_cast_slice_mut(bytes).map_err(|error| misplaced(&error))?;
    Ok(Some(Lent { output, inputs }))
}

/// Lends the bytes of the first output, and of all inputs.
pub(crate) fn operands<'m>(
    memory: &'m mut StepMemory<'_>,
) -> arenaplan::Result<(Output<'m>, Inputs<'m>)> {
    let mut inputs = [const { Input::Absent }; MOST_INPUTS];
    let mut outputs = [const { Output::Absent }; MOST_OUTPUTS];
    memory.lend(&mut inputs, &mut outputs, &mut [])?;
    let [output, ..] = outputs;
    Ok((output, inputs))
}

/// Returns the elements of an input in the arena, which no kernel finds in its output.
pub(crate) fn input<'m, T: Pod>(
    inputs: &Inputs<'m>,
    position: usize,
) -> arenaplan::Result<&'m [T]> {
    match inputs.get(position) {
        Some(Input::Shared(bytes)) => {
            bytemuck::try_cast_slice(bytes).map_err(|error| misplaced(&error))
        }
        _ => Err(misplaced(&format!("input {position} is not beside the output"))),
    }
}

impl Operand {
    /// Returns the elements, for kernels that never work in place.
    pub(crate) fn elements<'m>(&'m self, inputs: &Inputs<'m>) -> arenaplan::Result<&'m [f32]> {
        match self {
            Self::Weight(elements) => Ok(elements),
            Self::Arena(position) => input(inputs, *position),
        }
    }

    /// Returns the place of the elements, for kernels that may work in place.
    pub(crate) fn place<'m>(&'m self, inputs: &Inputs<'m>) -> arenaplan::Result<Place<'m>> {
        if let Self::Arena(position) = self
            && let Some(Input::Within { offset: 0, .. }) = inputs.get(*position)
        {
            return Ok(Place::Output);
        }
        Ok(Place::Apart(self.elements(inputs)?))
    }
}

#[cold]
fn misplaced(reason: &impl ToString) -> arenaplan::Error {
    arenaplan::Error::ArenaState { reason: reason.to_string() }
}
