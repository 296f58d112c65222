//! Nodes: operands, results, and effects on memory.

use alloc::{boxed::Box, collections::BTreeMap, string::String, vec::Vec};
use core::ops::Range;

use super::Attribute;
use crate::base::{Alignment, NodeId, ValueId};

/// Permission for an output to take over an input's bytes.
///
/// The node must read the input elementwise: when the node writes byte *i*, every read of byte *i* is
/// done. A permission for an output with more bytes than the input has no effect: a built graph drops
/// such permissions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct InPlace {
    /// Position among the node's inputs.
    pub input: usize,
    /// Position among the node's outputs.
    pub output: usize,
    /// Whether the output's bytes equal the input's.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "core::ops::Not::not"))]
    pub identity: bool,
}

/// The larger value of a [`View`], which contains the other value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "lowercase"))]
pub enum Whole {
    /// The output shows bytes of the input: a reshape, a slice, a split part.
    Input,
    /// The input is a piece of the output: a concatenation operand.
    Output,
}

/// An output that shows an input's bytes unchanged, or the reverse.
///
/// Views are permissions: a planner may share the bytes; otherwise the node copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct View {
    /// Position among the node's inputs.
    pub input: usize,
    /// Position among the node's outputs.
    pub output: usize,
    /// First byte of the smaller value inside the larger value.
    pub offset: u64,
    /// Which operand is the larger.
    #[cfg_attr(feature = "serde", serde(rename = "of"))]
    pub whole: Whole,
}

/// A size of a workspace that a node can work with.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct Choice {
    /// Size in bytes.
    pub bytes: u64,
    /// Run cost with this size, relative to the other choices; lower is better.
    pub cost: f64,
}

/// An output that a node can make piece by piece and never needs whole.
///
/// Cut the output, and each input in `follows`, into `pieces` equal runs of neighboring bytes: for
/// piece *i* of the output the node needs piece *i* of these inputs, and all other inputs whole. An
/// elementwise node has as many pieces as elements and follows the full-size operands. A matrix
/// product has one piece per row and follows the left operand. A convolution can make any piece,
/// but follows nothing.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct Flow {
    /// Position among the node's outputs.
    pub output: usize,
    /// Number of equal pieces.
    pub pieces: u64,
    /// Positions of the inputs that are needed piece by piece, too.
    pub follows: Vec<usize>,
}

/// An output that the node makes in order while using up an input.
///
/// The node writes the output from the first byte to the last. After *k* written bytes, the node needs
/// no input byte before byte *k* − `distance` any more. So input and output may overlap if the input
/// begins at least `distance` bytes behind the start of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct Overlap {
    /// Position among the node's inputs.
    pub input: usize,
    /// Position among the node's outputs.
    pub output: usize,
    /// Most bytes by which writing is ahead of reading.
    pub distance: u64,
}

/// A sliding window: some output rows depend on some input rows.
///
/// Rows are the indices of one dimension in both operands. Output rows *a* up to *b* depend on the
/// input rows from ⌊(*a* · `stride` − `before`) / `scale`⌋ up to and with ⌊((*b* − 1) · `stride` −
/// `before` + `extent` − 1) / `scale`⌋, as far as the input has these rows. A convolution has the
/// kernel's stride, padding and dilated height, and scale 1. An elementwise node has extent 1 and
/// stride 1. A node that repeats every row has extent 1, stride 1, and the number of repetitions as
/// scale. An input without a window is needed whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct Window {
    /// Position among the node's inputs.
    pub input: usize,
    /// Position among the node's outputs.
    pub output: usize,
    /// The dimension that counts rows.
    pub axis: usize,
    /// Rows under the window, from the first to the last.
    pub extent: u64,
    /// Rows by which the window moves from one row of the output to the next.
    pub stride: u64,
    /// Rows by which the first window begins before the input, which may be negative.
    pub before: i64,
    /// Window steps per input row.
    pub scale: u64,
}

impl Window {
    /// Returns the rows that some output rows need of an input with `rows` rows: no rows if the windows
    /// lie in the padding.
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

    /// Returns true if every output row needs the same input row alone.
    pub const fn is_pointwise(&self) -> bool {
        self.extent == 1 && self.stride == 1 && self.before == 0 && self.scale == 1
    }
}

/// Memory effects of a node. By default, a node reads every input and writes every output.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Effects {
    /// Outputs that may take over a dying input's bytes.
    pub in_place: Vec<InPlace>,
    /// Outputs that show an input's bytes, or inputs that are pieces of an output.
    pub views: Vec<View>,
    /// Outputs that the node can make in pieces, for fusion.
    pub flows: Vec<Flow>,
    /// Positions of inputs that the node copies to scratch memory, tile by tile, before the computation.
    /// Elementwise producers can run during the copy.
    pub loads: Vec<usize>,
    /// Outputs that the node makes in order and that may overlap a dying input. Overlaps that follow from
    /// [`flows`](Self::flows) need no declaration.
    pub overlaps: Vec<Overlap>,
    /// Outputs whose rows need only some rows of inputs, so that the node can run strip by strip in a
    /// group.
    pub windows: Vec<Window>,
    /// Positions of inputs whose shape alone is read.
    pub ignores: Vec<usize>,
    /// Positions of inputs that the node writes; each input must be a state.
    pub mutates: Vec<usize>,
    /// Whether the node may run again in each fused group that reads the output. Then memory keeps the
    /// inputs from the first reader to the last, in place of the output. Meant for cheap nodes whose inputs
    /// are smaller than the output. Such a node has one output, mutates nothing and reads no state, so
    /// every run makes equal bytes.
    pub repeats: bool,
    /// Whether every run on equal operands makes equal bytes and has no other effect. A plan may
    /// run a pure node again as a separate step instead of keeping an output. A node that draws
    /// random numbers without a key, or does input or output, is not pure. The default is `false`.
    pub pure: bool,
    /// Scratch buffers, each with one or several sizes to choose from.
    pub workspaces: Vec<Workspace>,
    /// Scratch buffers in place of `workspaces` if the output overlaps an input; a piece of the
    /// output waits there. `None` if the sizes are unknown: then plans with workspaces have no such
    /// overlap.
    pub staging: Option<Vec<Workspace>>,
}

impl Effects {
    /// Returns the scratch buffers of the node, with or without an output that overlaps an input.
    pub fn scratch(&self, overlaps: bool) -> &[Workspace] {
        if overlaps { self.staging.as_deref().unwrap_or_default() } else { &self.workspaces }
    }
}

/// A node's scratch bytes, needed during the step only.
#[derive(Clone, Debug, PartialEq)]
pub struct Workspace {
    /// Sizes that the node can work with: one size or more.
    pub choices: Vec<Choice>,
    /// Alignment of the workspace's offset in bytes.
    pub alignment: Alignment,
}

/// A smaller size of a node's inner memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InnerSize {
    /// Size in bytes.
    pub bytes: u64,
    /// Work of each execution beyond [`Node::cost`](crate::Node::cost): nodes inside run again.
    pub extra_cost: u64,
}

/// An operator in a graph.
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
    pub(super) inner_sizes: Vec<InnerSize>,
}

impl Node {
    /// Returns a node called `name` without operands.
    ///
    /// `op` is for people and kernels; the planner never reads the operator.
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
            inner_sizes: Vec::new(),
        }
    }

    /// Sets name and version of the operator set that defines the operator.
    ///
    /// An operator may differ between versions. Operators that belong to no set have the default: an empty
    /// name and version 0.
    #[must_use]
    pub fn with_operator_set(mut self, domain: impl Into<String>, version: u32) -> Self {
        self.domain = domain.into();
        self.version = version;
        self
    }

    /// Adds an attribute, or replaces the attribute with this name.
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

    /// Adds attributes by name.
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

    /// Sets the node's other effects on memory.
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

    /// Lets the node make `output` in `pieces`. Each piece needs only the same piece of the inputs in
    /// `follows`, by position.
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

    /// Lets `output` overlap `input`, by position, if the input begins at least `distance` bytes behind
    /// the output.
    #[must_use]
    pub fn overlap(mut self, input: usize, output: usize, distance: u64) -> Self {
        self.effects.overlaps.push(Overlap { input, output, distance });
        self
    }

    /// Lets output rows depend on some rows of an input alone.
    #[must_use]
    pub fn window(mut self, window: Window) -> Self {
        self.effects.windows.push(window);
        self
    }

    /// Lets the node run again in each fused group that reads the output.
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

    /// Sets the run cost, in a work unit that all nodes in the graph share: the larger of
    /// floating-point operations and 8 times the moved bytes, or a measured time. 0 stands for an
    /// unknown cost.
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

    /// Makes the node run after `nodes`, whose outputs the node need not read.
    #[must_use]
    pub fn after(mut self, nodes: impl IntoIterator<Item = NodeId>) -> Self {
        self.after = nodes.into_iter().collect();
        self
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the operator name, for people and kernels.
    pub fn op(&self) -> &str {
        &self.op
    }

    /// Returns the name of the operator set; empty for the model format's default set.
    pub fn domain(&self) -> &str {
        &self.domain
    }

    /// Returns the version of the operator set; 0 if the format has no versions.
    pub const fn version(&self) -> u32 {
        self.version
    }

    /// Returns the operator's attributes by name.
    ///
    /// Attributes are for kernels. A plan does not depend on attributes.
    pub const fn attributes(&self) -> &BTreeMap<String, Attribute> {
        &self.attributes
    }

    /// Returns the attribute called `name`, if the node has such an attribute.
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

    /// Returns the value read at `position`, if any.
    pub fn input(&self, position: usize) -> Option<ValueId> {
        self.inputs.get(position).copied().flatten()
    }

    /// Returns the value written at `position`, if any.
    pub fn output(&self, position: usize) -> Option<ValueId> {
        self.outputs.get(position).copied().flatten()
    }

    /// Returns the node's effects on memory.
    pub const fn effects(&self) -> &Effects {
        &self.effects
    }

    /// Returns the run cost in work units; 0 if unknown.
    pub const fn cost(&self) -> u64 {
        self.cost
    }

    /// Returns the smaller sizes of the node's inner memory, by falling bytes: see
    /// [`Graph::with_inner_sizes`](crate::Graph::with_inner_sizes).
    pub fn inner_sizes(&self) -> &[InnerSize] {
        &self.inner_sizes
    }

    /// Returns true if another run on equal operands makes equal bytes and has no other effect: the node
    /// is declared [`pure`](Effects::pure) or [`repeats`](Effects::repeats).
    pub const fn is_pure(&self) -> bool {
        self.effects.pure || self.effects.repeats
    }

    /// Returns the nodes that must run before, besides the input producers.
    pub fn control_dependencies(&self) -> &[NodeId] {
        &self.after
    }

    /// Iterates over the inputs by position; `None` for inputs that are left out or whose bytes the node
    /// ignores.
    pub fn bytes_read(&self) -> impl Iterator<Item = Option<ValueId>> + '_ {
        let ignores = &self.effects.ignores;
        self.inputs
            .iter()
            .enumerate()
            .map(|(position, input)| input.filter(|_| !ignores.contains(&position)))
    }

    /// Iterates over the values whose bytes the node reads, with positions.
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
