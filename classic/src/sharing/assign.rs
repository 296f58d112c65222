//! Assignments to states: direct assignments, the order of reads and writes, and state blocks.
//!
//! An assignment is direct if the producer of the right side writes into the state. That producer
//! is then the true writer, and waits for readers of the old bytes.

use alloc::{format, vec, vec::Vec};

use crate::error::{Error, Result};
use crate::sharing::{Block, Storage, StoragePlan, TakenFrom, reference_counts};
use arenaplan::Error as Core;
use arenaplan::base::{NodeId, ValueId, quoted};
use arenaplan::graph::{Assignment, Graph, InPlace, Node, ValueKind};

/// The way in which an assignment is carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AssignKind {
    /// The node copies the right side into the state.
    Copy,
    /// The producer of the right side writes into the state; the node does nothing.
    Direct,
}

/// A node that overwrites a state with another value's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Assign {
    /// The way in which the assignment is carried out.
    pub kind: AssignKind,
    /// The left side.
    pub state: ValueId,
    /// The right side.
    pub source: ValueId,
    /// The node's result: the new bytes of the state.
    pub result: ValueId,
}

/// Returns for every node the assignment, if the node is an assignment.
///
/// An [assignment](Graph::assignment) is [direct](AssignKind::Direct) if the right side comes from
/// a node that
///
/// - `is_elementwise`, so that the node may write into a state that it reads,
/// - has no other result, and no other node reads the result,
/// - and has no other node wait for it.
#[must_use]
pub fn find_assigns(graph: &Graph, is_elementwise: impl Fn(NodeId) -> bool) -> Vec<Option<Assign>> {
    let counts = reference_counts(graph);
    let mut awaited = vec![false; graph.nodes().len()];
    for dependency in graph.nodes().iter().flat_map(Node::control_dependencies) {
        awaited[dependency.index()] = true;
    }
    let mut followers = None;
    let mut states = States::new(graph);
    let mut found = Vec::with_capacity(graph.nodes().len());
    for index in 0..graph.nodes().len() {
        let id = NodeId::new(index);
        states.read(graph, id);
        let assign = graph.assignment(id).map(|Assignment { state, source, result }| {
            let is_direct = graph.producer(source).is_some_and(|producer| {
                let node = graph.node(producer);
                counts[source.index()] <= 1
                    && node.produces().count() == 1
                    && node.effects().mutates.is_empty()
                    && is_elementwise(producer)
                    && !(awaited[producer.index()]
                        && followers
                            .get_or_insert_with(|| Followers::new(graph))
                            .has_any_of(producer, states.before(state)))
            });
            let kind = if is_direct { AssignKind::Direct } else { AssignKind::Copy };
            Assign { kind, state, source, result }
        });
        states.write(graph, id, assign, |_, _| ());
        found.push(assign);
    }
    found
}

/// Returns whether a node's effects permit writing the output element by element into a state that
/// the node reads.
///
/// The node has one output, which either has a [flow](arenaplan::graph::Flow) with one element per
/// piece or may be in place of an operand. Every operand that shows a state with the output's size
/// has an in-place pair with the output.
///
/// ```
/// use arenaplan_classic::sharing::is_elementwise;
/// use arenaplan::{DType, Graph, Node, NodeId, Value, ValueKind};
///
/// let mut builder = Graph::builder("update");
/// let w = builder.add_value(Value::new("w", ValueKind::State, DType::FLOAT32, [4])?);
/// let value = |name| Value::new(name, ValueKind::Activation, DType::FLOAT32, [4]);
/// let (sum, product) = (builder.add_value(value("sum")?), builder.add_value(value("product")?));
/// builder.add_node(Node::new("sum", "AddOne").reads([w]).writes([sum]).in_place(0, 0));
/// builder.add_node(Node::new("product", "MatMul").reads([w]).writes([product]));
/// let graph = builder.build()?;
/// assert!(is_elementwise(&graph, NodeId::new(0)));
/// assert!(!is_elementwise(&graph, NodeId::new(1)));
/// # Ok::<(), arenaplan_classic::Error>(())
/// ```
#[must_use]
pub fn is_elementwise(graph: &Graph, node: NodeId) -> bool {
    let node = graph.node(node);
    let mut produced = node.produces();
    let (Some((output, value)), None) = (produced.next(), produced.next()) else { return false };
    let made = graph.value(value);
    let effects = node.effects();
    let has_pair = |input: Option<usize>| {
        effects.in_place.iter().any(|pair| {
            pair.output == output && input.is_none_or(|position| pair.input == position)
        })
    };
    let by_element = |flow: &arenaplan::graph::Flow| {
        flow.output == output && Some(flow.pieces) == made.elements()
    };
    let shows_state = |read: ValueId| {
        let assigned = graph.producer(read).and_then(|producer| graph.assignment(producer));
        graph.value(read).kind() == ValueKind::State
            || assigned.is_some_and(|assignment| assignment.result == read)
    };
    (has_pair(None) || effects.flows.iter().any(by_element))
        && node.reads_bytes_of().all(|(position, read)| {
            graph.value(read).bytes() != made.bytes()
                || !shows_state(read)
                || has_pair(Some(position))
        })
}

/// Readers and writers of every state, for nodes in the order in which they were added.
struct States {
    /// For each state: the last writers.
    writers: Vec<Vec<NodeId>>,
    /// For each state: the readers since the last write.
    readers: Vec<Vec<NodeId>>,
    /// For each value: the state whose bytes the value shows.
    shows: Vec<Option<ValueId>>,
}

impl States {
    fn new(graph: &Graph) -> Self {
        let is_state = |(index, value): (usize, &arenaplan::graph::Value)| {
            (value.kind() == ValueKind::State).then(|| ValueId::new(index))
        };
        let values = graph.values();
        Self {
            writers: vec![Vec::new(); values.len()],
            readers: vec![Vec::new(); values.len()],
            shows: values.iter().enumerate().map(is_state).collect(),
        }
    }

    /// Records the states that a node reads, and returns the nodes that wrote these states.
    fn read(&mut self, graph: &Graph, id: NodeId) -> Vec<NodeId> {
        let mut writers = Vec::new();
        for (_, read) in graph.node(id).reads_bytes_of() {
            if let Some(state) = self.shows[read.index()] {
                writers.extend(&self.writers[state.index()]);
                self.readers[state.index()].push(id);
            }
        }
        writers
    }

    /// Returns the nodes that must run before the next writer of `state`.
    fn before(&self, state: ValueId) -> impl Iterator<Item = NodeId> + Clone + '_ {
        self.writers[state.index()].iter().chain(&self.readers[state.index()]).copied()
    }

    /// Records the states that a node writes, and calls `wait` with each true writer and the nodes
    /// that must run before the writer.
    fn write(
        &mut self,
        graph: &Graph,
        id: NodeId,
        assign: Option<Assign>,
        mut wait: impl FnMut(NodeId, NodeId),
    ) {
        let node = graph.node(id);
        for &position in &node.effects().mutates {
            let Some(state) = node.input(position) else { continue };
            let direct = assign.filter(|assign| assign.kind == AssignKind::Direct);
            let producer = direct.and_then(|assign| graph.producer(assign.source));
            let writer = producer.unwrap_or(id);
            self.before(state).filter(|&before| before != writer).for_each(|it| wait(writer, it));
            self.readers[state.index()].clear();
            self.writers[state.index()] = vec![writer, id];
        }
        if let Some(assign) = assign {
            self.shows[assign.result.index()] = Some(assign.state);
        }
    }
}

/// The nodes that wait for each node, by operand or by control dependency.
struct Followers(Vec<Vec<NodeId>>);

impl Followers {
    fn new(graph: &Graph) -> Self {
        let mut followers = vec![Vec::new(); graph.nodes().len()];
        for index in 0..followers.len() {
            let id = NodeId::new(index);
            for dependency in graph.dependencies(id) {
                followers[dependency.index()].push(id);
            }
        }
        Self(followers)
    }

    /// Returns whether any of `nodes` runs after `first` in every order.
    fn has_any_of(&self, first: NodeId, nodes: impl Iterator<Item = NodeId> + Clone) -> bool {
        let mut wanted = vec![false; self.0.len()];
        // A node that reads the state which the node overwrites does both in one step.
        for node in nodes.filter(|&node| node != first) {
            wanted[node.index()] = true;
        }
        let mut seen = vec![false; self.0.len()];
        let mut open = vec![first];
        while let Some(node) = open.pop() {
            for &follower in &self.0[node.index()] {
                if wanted[follower.index()] {
                    return true;
                }
                if !core::mem::replace(&mut seen[follower.index()], true) {
                    open.push(follower);
                }
            }
        }
        false
    }
}

/// Returns a copy of `graph` in which states change in the order in which nodes were added, for any
/// execution order.
///
/// A node that was added before a writer of a state sees the state's old bytes, and a node that was
/// added later sees the new bytes. For a [direct](AssignKind::Direct) assignment, the producer of
/// the right side writes at run time: this producer waits for the readers of the old bytes.
///
/// # Errors
///
/// [`Error::GraphCycle`](arenaplan::Error::GraphCycle) if the nodes cannot run in the order in
/// which they were added.
pub fn order_mutations(graph: &Graph, assigns: &[Option<Assign>]) -> Result<Graph> {
    let mut after: Vec<Vec<NodeId>> =
        graph.nodes().iter().map(|node| node.control_dependencies().to_vec()).collect();
    let mut states = States::new(graph);
    for index in 0..graph.nodes().len() {
        let id = NodeId::new(index);
        after[index].extend(states.read(graph, id));
        let assign = assigns.get(index).copied().flatten();
        states.write(graph, id, assign, |writer, before| after[writer.index()].push(before));
    }
    rebuild(graph, after)
}

/// Returns `graph` with other control dependencies.
fn rebuild(graph: &Graph, after: Vec<Vec<NodeId>>) -> Result<Graph> {
    let mut builder = Graph::builder(graph.name());
    for (index, space) in graph.spaces().iter().enumerate() {
        if index == 0 {
            builder.set_default_space(space.clone());
        } else {
            builder.add_space(space.clone());
        }
    }
    for value in graph.values() {
        builder.add_value(value.clone());
    }
    for (index, (node, mut after)) in graph.nodes().iter().zip(after).enumerate() {
        after.sort_unstable();
        after.dedup();
        after.retain(|&dependency| dependency != NodeId::new(index));
        builder.add_node(node.clone().after(after));
    }
    for &output in graph.outputs() {
        builder.add_output(output);
    }
    Ok(builder.build()?)
}

impl StoragePlan {
    /// Returns the plan with storage for values without a producer, and with assignments tied to
    /// states.
    ///
    /// Graph inputs, constants and states get fresh blocks after the last block, in order. The
    /// result of an assignment gets the state's block, and so does the right side of a direct
    /// assignment. Blocks without a value stay, with a size of 0. `assigns` may come from the graph
    /// before [`order_mutations`]: the answer of [`find_assigns`] is the same.
    ///
    /// With direct assignments the plan is right only for a graph ordered by [`order_mutations`] in
    /// which a node that computes a new state value from the old value permits doing so in place:
    /// [`to_plan`](Self::to_plan) checks both.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidOption`](arenaplan::Error::InvalidOption) if a node's value has no block.
    pub fn decorate(mut self, graph: &Graph, assigns: &[Option<Assign>]) -> Result<Self> {
        for (index, value) in graph.values().iter().enumerate() {
            if value.kind() != ValueKind::Activation {
                let block = u32::try_from(self.blocks.len()).expect("fewer blocks than values");
                self.blocks.push(Block { bytes: 0, space: value.space() });
                self.storages[index] = Storage::Block(block);
            } else if self.storages[index].block().is_none() {
                let name = quoted(value.name());
                let reason = format!("value {name} has no block: its memory is not static");
                return Err(Error::Core(Core::InvalidOption { option: "assigned", reason }));
            }
        }
        for assign in assigns.iter().flatten() {
            self.tied.push(assign.result);
            self.storages[assign.result.index()] = self.storages[assign.state.index()];
            if assign.kind == AssignKind::Direct {
                self.direct.push(assign.result);
                self.tied.push(assign.source);
                self.storages[assign.source.index()] = self.storages[assign.state.index()];
            }
        }
        for &value in &self.tied {
            self.taken_from[value.index()] = self.operand_in_block(graph, value);
        }
        for block in &mut self.blocks {
            block.bytes = 0;
        }
        for (storage, value) in self.storages.iter().zip(graph.values()) {
            if let Some(block) = storage.block() {
                let known = &mut self.blocks[super::pool::at(block)].bytes;
                *known = value.bytes().max(*known);
            }
        }
        for node in graph.nodes() {
            for (_, output) in node.produces() {
                if let TakenFrom::Input(position) = self.taken_from[output.index()] {
                    let position = usize::try_from(position).unwrap_or(usize::MAX);
                    let input = node.input(position).map(|input| self.storages[input.index()]);
                    if input != Some(self.storages[output.index()]) {
                        // The taken-over value was a result that is in a state's block now.
                        self.taken_from[output.index()] = self.operand_in_block(graph, output);
                    }
                }
            }
        }
        Ok(self)
    }

    /// Returns the operand of the producer that is in the block of `value`, and may be there.
    fn operand_in_block(&self, graph: &Graph, value: ValueId) -> TakenFrom {
        let Some(producer) = graph.producer(value).map(|id| graph.node(id)) else {
            return TakenFrom::Nothing;
        };
        let is_there = |pair: &&InPlace| {
            let input = producer.input(pair.input).map(|input| self.storages[input.index()]);
            producer.output(pair.output) == Some(value)
                && input == Some(self.storages[value.index()])
        };
        let pair = producer.effects().in_place.iter().find(is_there);
        pair.map_or(TakenFrom::Nothing, |pair| {
            TakenFrom::Input(u32::try_from(pair.input).expect("operands are numbered by 32 bits"))
        })
    }
}
