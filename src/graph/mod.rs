//! The graph: values, nodes, and what each node does to memory.
//!
//! A [`Graph`] is immutable and valid by construction: a [`GraphBuilder`] checks it.

mod builder;
mod group;
mod node;
mod order;
mod value;

use sha2::{Digest as _, Sha256};

pub use builder::GraphBuilder;
pub use group::Grouped;
pub use node::{Choice, Effects, Flow, InPlace, Node, View, Whole, Workspace};
pub use value::{DType, Value, ValueKind};

use crate::error::{Error, Result, hexadecimal};
use crate::index::{NodeId, SpaceId, ValueId};
use crate::problem::Space;

/// A neural network as a planner sees it: immutable and valid.
#[derive(Clone, Debug, PartialEq)]
pub struct Graph {
    name: String,
    values: Vec<Value>,
    nodes: Vec<Node>,
    outputs: Vec<ValueId>,
    spaces: Vec<Space>,
    producers: Vec<Option<NodeId>>,
    order: Vec<NodeId>,
    sorted: bool,
}

impl Graph {
    /// Returns an empty builder for a graph called `name`.
    #[must_use]
    pub fn builder(name: impl Into<String>) -> GraphBuilder {
        GraphBuilder::new(name)
    }

    /// Returns the name of the model, for people.
    pub fn name(&self) -> &str {
        &self.name
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

    /// Returns the values that the caller receives, in order; one may come twice.
    pub fn outputs(&self) -> &[ValueId] {
        &self.outputs
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

    /// Returns, by value, the nodes that read its bytes, in execution order; one that reads
    /// them at two positions comes twice.
    pub fn readers(&self) -> Vec<Vec<NodeId>> {
        let mut readers = vec![Vec::new(); self.values.len()];
        for &id in &self.order {
            for (_, value) in self.node(id).reads_bytes_of() {
                readers[value.index()].push(id);
            }
        }
        readers
    }

    /// Iterates over what `node` must run after: the producers of its operands, then its
    /// control dependencies; a node may come twice.
    pub fn dependencies(&self, node: NodeId) -> impl Iterator<Item = NodeId> + '_ {
        order::dependencies(self.node(node), &self.producers)
    }

    /// Returns the execution order: the nodes as they were added if that is a
    /// topological order, else a stable topological sort of them.
    pub fn order(&self) -> &[NodeId] {
        &self.order
    }

    /// Returns whether the nodes had to be sorted.
    pub const fn was_sorted(&self) -> bool {
        self.sorted
    }

    /// Returns whether `order` runs every node once, each after what it depends on.
    pub fn is_topological(&self, order: &[NodeId]) -> bool {
        order::is_topological(&self.nodes, &self.producers, order)
    }

    /// Returns a copy of the graph whose nodes have other workspaces.
    ///
    /// `workspaces` pairs a node with its scratch buffers; nodes that are not named keep theirs.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidEffect`] if a workspace has no choices or a node is not there.
    pub fn with_workspaces(
        &self,
        workspaces: impl IntoIterator<Item = (NodeId, Vec<Workspace>)>,
    ) -> Result<Self> {
        let mut graph = self.clone();
        for (id, workspaces) in workspaces {
            let Some(node) = graph.nodes.get_mut(id.index()) else {
                let reason = "there is no such node".into();
                return Err(Error::InvalidEffect { node: id.to_string(), reason });
            };
            node.effects.workspaces = workspaces;
            builder::check_workspaces(node)?;
        }
        Ok(graph)
    }

    /// Returns the SHA-256, in hexadecimal, of everything that a plan depends on:
    /// names, sizes, kinds, operands, effects, order and outputs.
    ///
    /// Constant data is not part of it: other weights of the same shape make the same
    /// plan. Workspaces are not either, since they belong to an executor.
    pub fn digest(&self) -> String {
        let mut hash = Hasher(Sha256::new());
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
        for output in &self.outputs {
            hash.count(output.index());
        }
        hash.finish()
    }
}

/// Feeds a hash so that no two graphs give the same bytes.
struct Hasher(Sha256);

impl Hasher {
    fn number(&mut self, number: u64) {
        self.0.update(number.to_le_bytes());
    }

    fn count(&mut self, count: usize) {
        self.number(u64::try_from(count).unwrap_or(u64::MAX));
    }

    fn text(&mut self, text: &str) {
        self.count(text.len());
        self.0.update(text.as_bytes());
    }

    fn finish(self) -> String {
        hexadecimal(&self.0.finalize())
    }
}
