//! Nodes: operands, results, and effects on memory.

use alloc::{boxed::Box, collections::BTreeMap, string::String, vec::Vec};
use core::ops::Range;

use super::Attribute;
use crate::base::{Alignment, NodeId, ValueId};

/// Permission for an output to take over the bytes of an input.
///
/// The node must read the input elementwise: everything needed of byte *i* has been read when byte
/// *i* is written. A permission for an output with more bytes than the input has no effect: a built
/// graph does not have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct InPlace {
    /// Position among the node's inputs.
    pub input: usize,
    /// Position among the node's outputs.
    pub output: usize,
    /// Whether the output's bytes equal the input's.
    pub identity: bool,
}

/// The value of a [`View`] that contains the other one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Whole {
    /// The output shows bytes of the input: a reshape, a slice, a part of a split.
    Input,
    /// The input is a piece of the output: an operand of a concatenation.
    Output,
}

/// An output that shows bytes of an input unchanged, or the reverse.
///
/// Views are permissions: a planner may share the bytes; otherwise the node copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct View {
    /// Position among the node's inputs.
    pub input: usize,
    /// Position among the node's outputs.
    pub output: usize,
    /// First byte of the smaller value inside the larger one.
    pub offset: u64,
    /// The larger one of the two.
    pub whole: Whole,
}

/// One size of a workspace that a node can work with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Choice {
    /// Size in bytes.
    pub bytes: u64,
    /// Cost of running with this size, relative to the other choices; lower is better.
    pub cost: f64,
}

/// An output that a node can make in pieces, one after the other, and never needs whole.
///
/// Cut the output, and each input that it `follows`, into `pieces` equal runs of neighboring
/// bytes: for piece *i* of the output the node needs piece *i* of those inputs, and all of
/// the others. An elementwise node has as many pieces as elements and follows its full-size
/// operands; a matrix product has one piece per row and follows its left operand; a
/// convolution can make any piece, but follows nothing.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Flow {
    /// Position among the node's outputs.
    pub output: usize,
    /// Number of equal pieces.
    pub pieces: u64,
    /// Positions of the inputs that are needed piece by piece, too.
    pub follows: Vec<usize>,
}

/// An output that is made in order, and an input that is used up on the way.
///
/// The node makes the output from its first byte to its last. When it has written the first
/// *k* bytes, it needs no byte of the input before byte *k* − `distance` any more. So the
/// two may overlap, if the input begins at least `distance` bytes behind the output's start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Overlap {
    /// Position among the node's inputs.
    pub input: usize,
    /// Position among the node's outputs.
    pub output: usize,
    /// Bytes by which writing is ahead of reading, at most.
    pub distance: u64,
}

/// An output of which some rows can be made from some rows of an input: a window that slides.
///
/// Rows are the indices of one dimension of both operands. Rows *a* up to *b* of the output are made
/// from the rows of the input from ⌊(*a* · `stride` − `before`) / `scale`⌋ up to and with
/// ⌊((*b* − 1) · `stride` − `before` + `extent` − 1) / `scale`⌋, as far as the input has them. A
/// convolution has the stride, the padding and the dilated height of its kernel, and a scale of 1;
/// an elementwise node has an extent and a stride of 1; a node that repeats every row has these, and
/// the number of repetitions as its scale. An input without a window is needed whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Window {
    /// Position among the node's inputs.
    pub input: usize,
    /// Position among the node's outputs.
    pub output: usize,
    /// The dimension that rows are counted along.
    pub axis: usize,
    /// Rows under the window, from the first to the last.
    pub extent: u64,
    /// Rows by which the window moves from one row of the output to the next.
    pub stride: u64,
    /// Rows by which the first window begins before the input, which may be negative.
    pub before: i64,
    /// Steps of the window in one row of the input.
    pub scale: u64,
}

impl Window {
    /// Returns the rows of an input of `rows` rows that some rows of the output are made from; they
    /// are none if the windows lie in the padding.
    ///
    /// ```
    /// use arenaplan::graph::Window;
    ///
    /// let window = Window { input: 0, output: 0, axis: 1, extent: 3, stride: 2, before: 1, scale: 1 };
    /// assert_eq!(window.needs(0..2, 8), 0..4);
    /// assert_eq!(window.needs(2..4, 8), 3..8);
    /// ```
    #[must_use]
    pub fn needs(&self, made: Range<u64>, rows: u64) -> Range<u64> {
        if made.is_empty() {
            return 0..0;
        }
        let (stride, scale) = (i128::from(self.stride), i128::from(self.scale.max(1)));
        let first = |row: u64| i128::from(row) * stride - i128::from(self.before);
        let start = first(made.start).div_euclid(scale);
        let last = (first(made.end - 1) + i128::from(self.extent) - 1).div_euclid(scale);
        let clamped = |row: i128| u64::try_from(row.clamp(0, i128::from(rows))).unwrap_or(rows);
        let (start, end) = (clamped(start), clamped(last + 1));
        start..end.max(start)
    }

    /// Returns whether every row of the output is made from the same row of the input alone.
    pub const fn is_pointwise(&self) -> bool {
        self.extent == 1 && self.stride == 1 && self.before == 0 && self.scale == 1
    }
}

/// Effects of a node on memory. The default is to read every input and write every output.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Effects {
    /// Outputs that may take over the bytes of a dying input.
    pub in_place: Vec<InPlace>,
    /// Outputs that show bytes of an input, or inputs that are pieces of an output.
    pub views: Vec<View>,
    /// Outputs that can be made in pieces, so that the node can be fused with others.
    pub flows: Vec<Flow>,
    /// Positions of inputs that the node copies to scratch memory, tile by tile, before it
    /// computes with them: elementwise producers can be applied on the way.
    pub loads: Vec<usize>,
    /// Outputs that are made in order, so that they may overlap a dying input. Overlaps that
    /// follow from [`flows`](Self::flows) need not be declared.
    pub overlaps: Vec<Overlap>,
    /// Outputs whose rows can be made from some rows of inputs, so that the node can run strip by
    /// strip together with others.
    pub windows: Vec<Window>,
    /// Positions of inputs whose bytes are never read; only their shape is.
    pub ignores: Vec<usize>,
    /// Positions of inputs that the node writes; each must be a state.
    pub mutates: Vec<usize>,
    /// Whether the node may run again in each fused group that reads its output. The output then
    /// need not last from the first reader to the last one: its inputs do. For cheap nodes whose
    /// inputs are smaller than their output. Such a node has one output, mutates nothing and reads
    /// no state, so that every run makes equal bytes.
    pub repeats: bool,
    /// Whether every run of the node on equal operands makes equal bytes and has no other effect.
    /// A plan may then run the node again, as a step of its own, in place of keeping an output. A
    /// node that draws random numbers without a key, or does input or output, is not pure. The
    /// default is `false`.
    pub pure: bool,
    /// Scratch buffers, each with one or several sizes to choose from.
    pub workspaces: Vec<Workspace>,
    /// Scratch buffers that are needed instead if the output overlaps an input; a piece of
    /// the output waits there. `None` if nothing is known of them: then plans with
    /// workspaces have no such overlap.
    pub staging: Option<Vec<Workspace>>,
}

impl Effects {
    /// Returns the scratch buffers that the node needs if its output overlaps an input, or if
    /// it does not.
    pub fn scratch(&self, overlaps: bool) -> &[Workspace] {
        if overlaps { self.staging.as_deref().unwrap_or_default() } else { &self.workspaces }
    }
}

/// Scratch bytes of one node, needed for its step only.
#[derive(Clone, Debug, PartialEq)]
pub struct Workspace {
    /// Sizes that the node can work with; at least one.
    pub choices: Vec<Choice>,
    /// Alignment of the workspace's offset, in bytes.
    pub alignment: Alignment,
}

/// One operator of a graph.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    pub(super) name: String,
    pub(super) op: String,
    pub(super) domain: String,
    pub(super) version: u32,
    pub(super) attributes: BTreeMap<String, Attribute>,
    pub(super) inputs: Box<[Option<ValueId>]>,
    pub(super) outputs: Box<[Option<ValueId>]>,
    pub(super) effects: Effects,
    pub(super) after: Box<[NodeId]>,
    pub(super) cost: u64,
}

impl Node {
    /// Returns a node called `name` without operands.
    ///
    /// `op` is for people and kernels; the planner never looks at it.
    #[must_use]
    pub fn new(name: impl Into<String>, op: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            op: op.into(),
            domain: String::new(),
            version: 0,
            attributes: BTreeMap::new(),
            inputs: Box::default(),
            outputs: Box::default(),
            effects: Effects::default(),
            after: Box::default(),
            cost: 0,
        }
    }

    /// Sets the operator set that defines the operator, and the version of the set.
    ///
    /// An operator may mean something else in another version. The default, for operators that
    /// belong to no set, is an empty name and version 0.
    #[must_use]
    pub fn with_operator_set(mut self, domain: impl Into<String>, version: u32) -> Self {
        self.domain = domain.into();
        self.version = version;
        self
    }

    /// Adds an attribute of the operator, or replaces the one of this name.
    ///
    /// ```
    /// use arenaplan::Node;
    /// use arenaplan::graph::Attribute;
    ///
    /// let node = Node::new("conv", "Conv").with_attribute("strides", vec![2, 2]);
    /// let strides = node.attribute("strides").and_then(Attribute::as_integers);
    /// assert_eq!(strides, Some(&[2, 2][..]));
    /// ```
    #[must_use]
    pub fn with_attribute(self, name: impl Into<String>, value: impl Into<Attribute>) -> Self {
        self.with_attributes([(name.into(), value.into())])
    }

    /// Adds attributes of the operator by name.
    #[must_use]
    pub fn with_attributes(
        mut self,
        attributes: impl IntoIterator<Item = (String, Attribute)>,
    ) -> Self {
        let attributes = attributes.into_iter();
        self.attributes.extend(attributes.map(|(name, value)| (name, value.settled())));
        self
    }

    /// Sets the inputs of the node, `None` for an optional operand that is left out.
    #[must_use]
    pub fn reads<V: Into<Option<ValueId>>>(mut self, inputs: impl IntoIterator<Item = V>) -> Self {
        self.inputs = inputs.into_iter().map(Into::into).collect();
        self
    }

    /// Sets the outputs of the node, `None` for an optional result that is left out.
    #[must_use]
    pub fn writes<V: Into<Option<ValueId>>>(
        mut self,
        outputs: impl IntoIterator<Item = V>,
    ) -> Self {
        self.outputs = outputs.into_iter().map(Into::into).collect();
        self
    }

    /// Sets the other effects of the node on memory.
    #[must_use]
    pub fn with_effects(mut self, effects: Effects) -> Self {
        self.effects = effects;
        self
    }

    /// Lets `output` take over the bytes of `input`, by position.
    #[must_use]
    pub fn in_place(mut self, input: usize, output: usize) -> Self {
        self.effects.in_place.push(InPlace { input, output, identity: false });
        self
    }

    /// Lets `output` be all bytes of `input`, by position: a reshape.
    #[must_use]
    pub fn view(mut self, input: usize, output: usize) -> Self {
        self.effects.views.push(View { input, output, offset: 0, whole: Whole::Input });
        self
    }

    /// Lets `output` be made in `pieces`, for each of which only the same piece of the inputs
    /// in `follows` is needed, by position.
    #[must_use]
    pub fn flow(
        mut self,
        output: usize,
        pieces: u64,
        follows: impl IntoIterator<Item = usize>,
    ) -> Self {
        let follows = follows.into_iter().collect();
        self.effects.flows.push(Flow { output, pieces, follows });
        self
    }

    /// Lets `output` overlap `input`, by position, if that begins at least `distance` bytes
    /// behind it.
    #[must_use]
    pub fn overlap(mut self, input: usize, output: usize, distance: u64) -> Self {
        self.effects.overlaps.push(Overlap { input, output, distance });
        self
    }

    /// Lets rows of an output be made from rows of an input.
    #[must_use]
    pub fn window(mut self, window: Window) -> Self {
        self.effects.windows.push(window);
        self
    }

    /// Lets the node run again in each fused group that reads its output.
    #[must_use]
    pub fn repeats(mut self) -> Self {
        self.effects.repeats = true;
        self
    }

    /// Declares that every run of the node on equal operands makes equal bytes and has no other
    /// effect, so that a plan may run the node again.
    #[must_use]
    pub fn pure(mut self) -> Self {
        self.effects.pure = true;
        self
    }

    /// Sets the cost of one run, in units of work that all nodes of the graph have in common: the
    /// larger one of floating-point operations and 8 times the bytes moved, or a measured time. 0
    /// stands for an unknown cost.
    #[must_use]
    pub fn with_cost(mut self, cost: u64) -> Self {
        self.cost = cost;
        self
    }

    /// Adds scratch memory with the given sizes to choose from.
    #[must_use]
    pub fn workspace(mut self, choices: impl IntoIterator<Item = Choice>) -> Self {
        let choices = choices.into_iter().collect();
        self.effects.workspaces.push(Workspace { choices, alignment: Alignment::BYTE });
        self
    }

    /// Makes the node run after `nodes` although it reads nothing of theirs.
    #[must_use]
    pub fn after(mut self, nodes: impl IntoIterator<Item = NodeId>) -> Self {
        self.after = nodes.into_iter().collect();
        self
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the name of the operator, for people and kernels.
    pub fn op(&self) -> &str {
        &self.op
    }

    /// Returns the name of the operator set, empty for the default one of the model's format.
    pub fn domain(&self) -> &str {
        &self.domain
    }

    /// Returns the version of the operator set; 0 if the format has no versions.
    pub const fn version(&self) -> u32 {
        self.version
    }

    /// Returns the attributes of the operator, by name.
    ///
    /// They are for kernels. A plan does not depend on attributes.
    pub const fn attributes(&self) -> &BTreeMap<String, Attribute> {
        &self.attributes
    }

    /// Returns the attribute called `name`, if the node has it.
    pub fn attribute(&self, name: &str) -> Option<&Attribute> {
        self.attributes.get(name)
    }

    /// Returns the values read, by position.
    pub fn inputs(&self) -> &[Option<ValueId>] {
        &self.inputs
    }

    /// Returns the values written, by position.
    pub fn outputs(&self) -> &[Option<ValueId>] {
        &self.outputs
    }

    /// Returns the value read at `position`, if there is one.
    pub fn input(&self, position: usize) -> Option<ValueId> {
        self.inputs.get(position).copied().flatten()
    }

    /// Returns the value written at `position`, if there is one.
    pub fn output(&self, position: usize) -> Option<ValueId> {
        self.outputs.get(position).copied().flatten()
    }

    /// Returns the effects of the node on memory.
    pub const fn effects(&self) -> &Effects {
        &self.effects
    }

    /// Returns the cost of one run, in units of work; 0 if it is unknown.
    pub const fn cost(&self) -> u64 {
        self.cost
    }

    /// Returns whether another run of the node on equal operands makes equal bytes and has no other
    /// effect: the node is declared as [`pure`](Effects::pure), or as one that
    /// [`repeats`](Effects::repeats).
    pub const fn is_pure(&self) -> bool {
        self.effects.pure || self.effects.repeats
    }

    /// Returns the nodes that must run before although nothing of theirs is read.
    pub fn control_dependencies(&self) -> &[NodeId] {
        &self.after
    }

    /// Iterates over the inputs by position, `None` for those whose bytes the node does not
    /// read: they are left out, or ignored.
    pub fn bytes_read(&self) -> impl Iterator<Item = Option<ValueId>> + '_ {
        let ignores = &self.effects.ignores;
        self.inputs
            .iter()
            .enumerate()
            .map(|(position, input)| input.filter(|_| !ignores.contains(&position)))
    }

    /// Iterates over the values whose bytes the node reads, with their positions.
    ///
    /// A value read at two positions comes twice.
    pub fn reads_bytes_of(&self) -> impl Iterator<Item = (usize, ValueId)> + '_ {
        let inputs = self.bytes_read().enumerate();
        inputs.filter_map(|(position, input)| input.map(|value| (position, value)))
    }

    /// Iterates over the values that the node produces.
    pub fn produces(&self) -> impl Iterator<Item = (usize, ValueId)> + '_ {
        self.outputs
            .iter()
            .enumerate()
            .filter_map(|(position, output)| output.map(|value| (position, value)))
    }
}
