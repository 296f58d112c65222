//! The graph: values, nodes, and the effects of each node on memory.
//!
//! A [`Graph`] is immutable and valid: a [`GraphBuilder`] checks every graph.

mod attribute;
mod builder;
mod covers;
mod group;
mod inner;
mod node;
#[cfg(feature = "serde")]
mod numbers;
mod overlap;
mod reach;
mod repeat;
mod schedule;
mod topological;
mod value;
mod write_back;

use alloc::{
    format,
    string::{String, ToString as _},
    vec,
    vec::Vec,
};

pub use attribute::Attribute;
pub use builder::GraphBuilder;
pub use covers::Covers;
pub use group::Grouped;
pub use inner::ChosenInner;
pub use node::{
    Choice, Effects, Flow, InPlace, InnerSize, Node, Overlap, View, Whole, Window, Workspace,
};
pub use reach::Reachability;
pub(crate) use reach::unordered;
pub(crate) use repeat::{Repeated, Stored};
pub use schedule::{Scheduled, TRANSFER, TRANSFER_DOMAIN};
pub use value::{DType, Value, ValueKind};
pub use write_back::WriteBack;

use crate::base::{Alignment, Error, Hasher, NodeId, Result, SpaceId, ValueId};
use crate::pack::Space;

/// A neural network for the planner: immutable and valid.
#[derive(Clone, Debug, PartialEq)]
pub struct Graph {
    name: String,
    values: Vec<Value>,
    nodes: Vec<Node>,
    outputs: Vec<ValueId>,
    write_backs: Vec<WriteBack>,
    spaces: Vec<Space>,
    covers: Covers,
    producers: Vec<Option<NodeId>>,
    order: Vec<NodeId>,
    sorted: bool,
}

/// A node that overwrites a state with another value's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Assignment {
    /// The left side.
    pub state: ValueId,
    /// The right side.
    pub source: ValueId,
    /// The node's result: the new bytes of the state.
    pub result: ValueId,
}

/// Two nodes that use a state's bytes, at least one of which changes the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StateConflict {
    pub(crate) state: ValueId,
    /// The node that comes first in the graph's own order.
    pub(crate) first: NodeId,
    pub(crate) second: NodeId,
}

impl Graph {
    /// Returns an empty builder for a graph called `name`.
    #[must_use]
    pub fn builder(name: impl Into<String>) -> GraphBuilder {
        GraphBuilder::new(name)
    }

    /// Returns the model name, for people.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the part of the model in the graph.
    pub const fn covers(&self) -> &Covers {
        &self.covers
    }

    /// Returns every value, by [`ValueId`].
    pub fn values(&self) -> &[Value] {
        &self.values
    }

    /// Returns one value.
    pub fn value(&self, id: ValueId) -> &Value {
        &self.values[id.index()]
    }

    /// Returns every node, by [`NodeId`].
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Returns one node.
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.index()]
    }

    /// Iterates over the values that the caller supplies.
    pub fn inputs(&self) -> impl Iterator<Item = ValueId> + '_ {
        let is_input = |value: &Value| value.kind() == ValueKind::Input;
        (0..self.values.len()).filter(move |&index| is_input(&self.values[index])).map(ValueId::new)
    }

    /// Returns the values that the caller receives, in order. A value may come twice.
    pub fn outputs(&self) -> &[ValueId] {
        &self.outputs
    }

    /// Returns pairs: a value, and the input or state that the value replaces in place.
    pub fn write_backs(&self) -> &[WriteBack] {
        &self.write_backs
    }

    /// Returns, by value, whether another value replaces the value in place.
    pub(crate) fn overwritten(&self) -> Vec<bool> {
        let mut overwritten = vec![false; self.values.len()];
        for write_back in &self.write_backs {
            overwritten[write_back.into.index()] = true;
        }
        overwritten
    }

    /// Iterates over the values that must last after the last node: graph outputs, and values that are
    /// written back.
    pub(crate) fn read_at_end(&self) -> impl Iterator<Item = ValueId> + '_ {
        let written_back = self.write_backs.iter().map(|write_back| write_back.value);
        self.outputs.iter().copied().chain(written_back)
    }

    /// Returns every memory space, by [`SpaceId`].
    pub fn spaces(&self) -> &[Space] {
        &self.spaces
    }

    /// Returns one memory space.
    pub fn space(&self, id: SpaceId) -> &Space {
        &self.spaces[id.index()]
    }

    /// Returns the node that produces `value`, or `None` for inputs, constants and states.
    pub fn producer(&self, value: ValueId) -> Option<NodeId> {
        self.producers[value.index()]
    }

    /// Returns, by value, the nodes that read bytes of the value, in execution order. A node that reads
    /// the value at two positions comes twice.
    pub fn readers(&self) -> Vec<Vec<NodeId>> {
        let mut readers = vec![Vec::new(); self.values.len()];
        for &id in &self.order {
            for (_, value) in self.node(id).reads_bytes_of() {
                readers[value.index()].push(id);
            }
        }
        readers
    }

    /// Returns pairs of nodes whose order must stay, because both use a state and at least one node
    /// writes the state. The first node in a pair comes first in the graph's own order.
    ///
    /// A node that mutates a state depends on every node that reads the previous content of that
    /// state.
    pub fn state_order(&self) -> Vec<(NodeId, NodeId)> {
        let conflicts = self.state_conflicts(|_, _| true).into_iter();
        conflicts.map(|conflict| (conflict.first, conflict.second)).collect()
    }

    /// Returns the pairs of [`state_order`](Self::state_order) with the states. `count` decides which
    /// operands count, given a node and an input position.
    pub(crate) fn state_conflicts(
        &self,
        counts: impl Fn(&Node, usize) -> bool,
    ) -> Vec<StateConflict> {
        let mut last: Vec<(Option<NodeId>, Vec<NodeId>)> =
            vec![Default::default(); self.values.len()];
        let mut conflicts = Vec::new();
        for &id in &self.order {
            let node = self.node(id);
            for (position, operand) in node.inputs.iter().enumerate() {
                let is_state = |value: &ValueId| self.value(*value).kind == ValueKind::State;
                let Some(state) = operand.filter(is_state).filter(|_| counts(node, position))
                else {
                    continue;
                };
                let (writer, readers) = &mut last[state.index()];
                let before = writer.iter().copied();
                let conflict = |first| StateConflict { state, first, second: id };
                if node.effects.mutates.contains(&position) {
                    let before = before.chain(readers.iter().copied());
                    conflicts.extend(before.filter(|&before| before != id).map(conflict));
                    last[state.index()] = (Some(id), Vec::new());
                } else {
                    conflicts.extend(before.filter(|&before| before != id).map(conflict));
                    readers.push(id);
                }
            }
        }
        conflicts
    }

    /// Returns, by value, the nodes that name the value as an operand, in execution order. A node
    /// may ignore the operand's bytes.
    pub(crate) fn users(&self) -> Vec<Vec<NodeId>> {
        let mut users = vec![Vec::new(); self.values.len()];
        for &id in &self.order {
            for value in self.node(id).inputs.iter().flatten() {
                users[value.index()].push(id);
            }
        }
        users
    }

    /// Iterates over the dependencies of `node`: the producers of the operands, then the control
    /// dependencies. A node may come twice.
    pub fn dependencies(&self, node: NodeId) -> impl Iterator<Item = NodeId> + '_ {
        topological::dependencies(self.node(node), &self.producers)
    }

    /// Returns the execution order: the order of insertion if that order is topological, else a stable
    /// topological sort.
    pub fn order(&self) -> &[NodeId] {
        &self.order
    }

    /// Returns whether the nodes had to be sorted.
    pub const fn was_sorted(&self) -> bool {
        self.sorted
    }

    /// Returns whether `order` runs every node once, after all dependencies of the node.
    pub fn is_topological(&self, order: &[NodeId]) -> bool {
        topological::is_topological(&self.nodes, &self.producers, order)
    }

    /// Returns the assignment that `node` performs, if any.
    ///
    /// An assignment mutates one state without reading the state. The effects have an in-place
    /// *identity* pair from another operand of the state's size to the result. So the state has the
    /// operand's bytes from then on.
    pub fn assignment(&self, node: NodeId) -> Option<Assignment> {
        let node = self.node(node);
        let effects = node.effects();
        let &[position] = effects.mutates.as_slice() else { return None };
        let pair = effects.in_place.iter().find(|pair| pair.identity && pair.input != position)?;
        let state = node.input(position)?;
        let (source, result) = (node.input(pair.input)?, node.output(pair.output)?);
        let bytes = |value: ValueId| self.value(value).bytes();
        let same_size = bytes(source) == bytes(state) && bytes(result) == bytes(state);
        let unread = node.reads_bytes_of().all(|(_, value)| value != state);
        (unread && same_size).then_some(Assignment { state, source, result })
    }

    /// Returns a copy of the graph whose nodes have other workspaces.
    ///
    /// `workspaces` pairs nodes with scratch buffers. Nodes that are not named stay unchanged.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidEffect`] if a workspace has no choices or a node is not there.
    pub fn with_workspaces(
        &self,
        workspaces: impl IntoIterator<Item = (NodeId, Vec<Workspace>)>,
    ) -> Result<Self> {
        let mut graph = self.clone();
        graph.set_scratch(workspaces, |effects, own| effects.workspaces = own)?;
        Ok(graph)
    }

    /// Returns a copy of the graph with other workspaces for nodes whose output
    /// [overlaps](Self::overlaps) an input.
    ///
    /// # Errors
    ///
    /// As [`with_workspaces`](Self::with_workspaces).
    pub fn with_staging(
        &self,
        workspaces: impl IntoIterator<Item = (NodeId, Vec<Workspace>)>,
    ) -> Result<Self> {
        let mut graph = self.clone();
        graph.set_scratch(workspaces, |effects, own| effects.staging = Some(own))?;
        Ok(graph)
    }

    /// Returns a copy of the graph with pinned values: each value lies at the given offset in its
    /// space, in bytes. A pin has no effect if the value has no bytes.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidOption`] if no such value exists. The planner refuses pins that contradict
    /// each other or an alignment.
    ///
    /// # Examples
    ///
    /// ```
    /// use arenaplan::{DType, Graph, Value, ValueId, ValueKind};
    ///
    /// let mut builder = Graph::builder("pinned");
    /// let x = builder.add_value(Value::new("x", ValueKind::Input, DType::FLOAT32, [16])?);
    /// let graph = builder.build()?.with_pins([(x, 128)])?;
    /// assert_eq!(graph.value(x).pin(), Some(128));
    /// assert!(graph.with_pins([(ValueId::new(7), 0)]).is_err());
    /// # Ok::<(), arenaplan::Error>(())
    /// ```
    pub fn with_pins(&self, pins: impl IntoIterator<Item = (ValueId, u64)>) -> Result<Self> {
        let mut graph = self.clone();
        for (id, offset) in pins {
            let Some(value) = graph.values.get_mut(id.index()) else {
                let reason = format!("there is no value {id}, only {}", graph.values.len());
                return Err(Error::InvalidOption { option: "pins", reason });
            };
            value.pin = Some(offset);
        }
        Ok(graph)
    }

    /// Returns a copy of the graph with workspaces and staging.
    pub(crate) fn with_scratch_of(
        &self,
        workspaces: Vec<(NodeId, Vec<Workspace>)>,
        staging: Vec<(NodeId, Vec<Workspace>)>,
    ) -> Result<Self> {
        let mut graph = self.clone();
        graph.set_scratch(workspaces, |effects, own| effects.workspaces = own)?;
        graph.set_scratch(staging, |effects, own| effects.staging = Some(own))?;
        Ok(graph)
    }

    fn set_scratch(
        &mut self,
        workspaces: impl IntoIterator<Item = (NodeId, Vec<Workspace>)>,
        set: impl Fn(&mut Effects, Vec<Workspace>),
    ) -> Result<()> {
        for (id, workspaces) in workspaces {
            let Some(node) = self.nodes.get_mut(id.index()) else {
                let reason = "there is no such node".into();
                return Err(Error::InvalidEffect { node: id.to_string(), reason });
            };
            set(&mut node.effects, workspaces);
            builder::check_workspaces(node)?;
        }
        Ok(())
    }

    /// Returns the bytes of all values in the arena, each rounded up to `alignment`; `None`
    /// if no machine has as many.
    pub(crate) fn naive_bytes(&self, alignment: Alignment) -> Option<u64> {
        let mut planned = self.values.iter().filter(|value| value.is_planned());
        planned.try_fold(0_u64, |sum, value| sum.checked_add(alignment.round_up(value.bytes())?))
    }

    /// Returns a copy of the graph with other spaces, in which `home` puts values.
    ///
    /// Outputs of nodes in `apart` take over no input.
    pub(crate) fn with_spaces(
        &self,
        spaces: Vec<Space>,
        home: impl Fn(ValueId) -> SpaceId,
        apart: &[NodeId],
    ) -> Self {
        let mut graph = self.clone();
        graph.spaces = spaces;
        for (index, value) in graph.values.iter_mut().enumerate() {
            value.space = home(ValueId::new(index));
        }
        for node in apart {
            graph.nodes[node.index()].effects.in_place.retain(|pair| pair.identity);
        }
        graph
    }

    /// Returns the SHA-256, in hexadecimal, of everything that a plan depends on:
    /// names, sizes, kinds, operands, effects, order and outputs.
    ///
    /// The digest does not cover constant data: other weights with the same shape make the same
    /// plan. Operators and attributes, which decide what kernels compute, are not covered; files
    /// that hold attributes have a checksum. Workspaces, which belong to an executor, are not
    /// covered.
    pub fn digest(&self) -> String {
        let mut hash = Hasher::new();
        hash.count(self.spaces.len());
        for space in &self.spaces {
            hash.text(space.name());
        }
        hash.count(self.values.len());
        for value in &self.values {
            hash.text(&value.name);
            hash.text(value.dtype.name());
            hash.text(value.kind.name());
            hash.count(value.shape.len());
            for &dim in &value.shape {
                hash.number(dim);
            }
            hash.number(value.alignment.bytes());
            hash.count(value.space.index());
            hash.number(value.pin.map_or(u64::MAX, |pin| pin));
        }
        hash.count(self.nodes.len());
        for node in &self.nodes {
            hash.text(&node.name);
            for operands in [&node.inputs, &node.outputs] {
                hash.count(operands.len());
                for operand in operands {
                    hash.count(operand.map_or(0, |value| value.index() + 1));
                }
            }
            hash.count(node.effects.in_place.len());
            for pair in &node.effects.in_place {
                hash.count(pair.input);
                hash.count(pair.output);
                hash.count(usize::from(pair.identity));
            }
            hash.count(node.effects.views.len());
            for view in &node.effects.views {
                hash.count(view.input);
                hash.count(view.output);
                hash.number(view.offset);
                hash.count(usize::from(view.whole == Whole::Output));
            }
            hash.count(node.effects.flows.len());
            for flow in &node.effects.flows {
                hash.count(flow.output);
                hash.number(flow.pieces);
                hash.count(flow.follows.len());
                for &position in &flow.follows {
                    hash.count(position);
                }
            }
            let effects = &node.effects;
            hash.count(effects.overlaps.len());
            for overlap in &effects.overlaps {
                hash.count(overlap.input);
                hash.count(overlap.output);
                hash.number(overlap.distance);
            }
            for positions in [&effects.loads, &effects.ignores, &effects.mutates] {
                hash.count(positions.len());
                for &position in positions {
                    hash.count(position);
                }
            }
            hash.count(node.after.len());
            for dependency in &node.after {
                hash.count(dependency.index());
            }
        }
        hash.count(self.outputs.len());
        self.outputs.iter().for_each(|output| hash.count(output.index()));
        // Graphs without windows keep the digest from before windows existed.
        for (index, node) in self.nodes.iter().enumerate() {
            for window in &node.effects.windows {
                hash.count(index);
                hash.count(window.input);
                hash.count(window.output);
                hash.count(window.axis);
                hash.number(window.extent);
                hash.number(window.stride);
                hash.number(window.before.cast_unsigned());
                hash.number(window.scale);
            }
        }
        // The same for nodes that repeat; no window is of the node that ends the list.
        if self.nodes.iter().any(|node| node.effects.repeats) {
            hash.number(u64::MAX);
            for (index, _) in self.nodes.iter().enumerate().filter(|(_, node)| node.effects.repeats)
            {
                hash.count(index);
            }
        }
        // The same for costs, pure nodes and write-backs: each list ends with a distinct number.
        let extras: [(u64, Vec<[u64; 2]>); 3] = [
            (u64::MAX - 1, self.list(|node| (node.cost > 0).then_some(node.cost))),
            (u64::MAX - 2, self.list(|node| node.effects.pure.then_some(1))),
            (u64::MAX - 3, self.write_backs.iter().map(|&pair| pair.numbers()).collect()),
        ];
        for (mark, rows) in extras.into_iter().filter(|(_, rows)| !rows.is_empty()) {
            hash.number(mark);
            hash.count(rows.len());
            rows.into_iter().flatten().for_each(|number| hash.number(number));
        }
        self.covers.hash(&mut hash);
        hash.finish()
    }

    /// Returns the nodes with a number, and the number.
    fn list(&self, number: impl Fn(&Node) -> Option<u64>) -> Vec<[u64; 2]> {
        let rows = (0_u64..).zip(&self.nodes);
        rows.filter_map(|(index, node)| Some([index, number(node)?])).collect()
    }
}
