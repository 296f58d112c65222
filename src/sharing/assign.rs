//! Variables: which assignments write directly, in which order variables change, and the
//! storage of variables.

use crate::error::{Error, Result, quoted};
use crate::graph::{Assignment, Graph, InPlace, Node, ValueKind};
use crate::index::{NodeId, ValueId};
use crate::sharing::{Block, Storage, StoragePlan, TakenFrom, reference_counts};

/// The way in which an assignment is carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AssignKind {
    /// The node copies its right side into the state.
    Copy,
    /// The producer of the right side writes into the state; the node does nothing.
    Direct,
}

/// A node that overwrites a state with the bytes of another value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Assign {
    /// The way in which it is carried out.
    pub kind: AssignKind,
    /// The left side.
    pub state: ValueId,
    /// The right side.
    pub source: ValueId,
    /// The result of the node: the new bytes of the state.
    pub result: ValueId,
}

/// Returns, for every node, its assignment if it is one.
///
/// An [assignment](Graph::assignment) is [direct](AssignKind::Direct) if its right side comes
/// from a node that
///
/// - `is_elementwise`, so that it may write into a state that it reads,
/// - has no other result, and no other node reads its result,
/// - and has no other node wait for it.
#[must_use]
pub fn find_assigns(graph: &Graph, is_elementwise: impl Fn(NodeId) -> bool) -> Vec<Option<Assign>> {
    let counts = reference_counts(graph);
    let mut awaited = vec![false; graph.nodes().len()];
    for dependency in graph.nodes().iter().flat_map(Node::control_dependencies) {
        awaited[dependency.index()] = true;
    }
    let writes_directly = |source: ValueId| {
        graph.producer(source).is_some_and(|producer| {
            let others = graph.node(producer).produces().count() > 1;
            let mutates = !graph.node(producer).effects().mutates.is_empty();
            counts[source.index()] <= 1
                && !others
                && !mutates
                && !awaited[producer.index()]
                && is_elementwise(producer)
        })
    };
    let assign = |node: usize| {
        let Assignment { state, source, result } = graph.assignment(NodeId::new(node))?;
        let kind = if writes_directly(source) { AssignKind::Direct } else { AssignKind::Copy };
        Some(Assign { kind, state, source, result })
    };
    (0..graph.nodes().len()).map(assign).collect()
}

/// Returns a copy of `graph` in which states change in the order in which its nodes were added,
/// for any order of execution.
///
/// A node that was added before another one that writes a state sees the state's old
/// bytes, and one that was added later sees the new ones. The node that writes at run time is, for
/// a [direct](AssignKind::Direct) assignment, the producer of its right side: this producer waits
/// for the readers of the old bytes.
///
/// # Errors
///
/// [`Error::GraphCycle`] if the nodes were added in an order in which they cannot run.
pub fn order_mutations(graph: &Graph, assigns: &[Option<Assign>]) -> Result<Graph> {
    let values = graph.values().len();
    let mut after: Vec<Vec<NodeId>> =
        graph.nodes().iter().map(|node| node.control_dependencies().to_vec()).collect();
    // By state: the nodes that wrote it last, and its readers since.
    let mut writers: Vec<Vec<NodeId>> = vec![Vec::new(); values];
    let mut readers: Vec<Vec<NodeId>> = vec![Vec::new(); values];
    // By value: the state whose bytes it shows.
    let mut shows: Vec<Option<ValueId>> = graph
        .values()
        .iter()
        .enumerate()
        .map(|(index, value)| (value.kind() == ValueKind::State).then(|| ValueId::new(index)))
        .collect();
    for (index, node) in graph.nodes().iter().enumerate() {
        let id = NodeId::new(index);
        for (_, read) in node.reads_bytes_of() {
            if let Some(state) = shows[read.index()] {
                after[index].extend(&writers[state.index()]);
                readers[state.index()].push(id);
            }
        }
        let assign = assigns.get(index).copied().flatten();
        for &position in &node.effects().mutates {
            let Some(state) = node.input(position) else { continue };
            let direct = assign.filter(|assign| assign.kind == AssignKind::Direct);
            let producer = direct.and_then(|assign| graph.producer(assign.source));
            let writer = producer.unwrap_or(id);
            let waits = &mut after[writer.index()];
            waits.extend(&writers[state.index()]);
            waits.extend(readers[state.index()].drain(..).filter(|&reader| reader != writer));
            writers[state.index()] = vec![writer, id];
        }
        if let Some(assign) = assign {
            shows[assign.result.index()] = Some(assign.state);
        }
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
    builder.build()
}

impl StoragePlan {
    /// Returns the plan with storage for values that no node produces, and with assignments tied
    /// to their states.
    ///
    /// Graph inputs, constants and states get fresh blocks after the last one, in order.
    /// The result of an assignment gets its state's block, and so does the right side of a
    /// direct one. Blocks that nothing is left in stay, with a size of 0.
    ///
    /// With direct assignments the plan is only right for a graph whose nodes wait for
    /// each other as [`order_mutations`] makes them, and where a node that computes a new
    /// value of a state from the old one permits that in place: [`to_plan`](Self::to_plan)
    /// checks both.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidOption`] if a value that a node produces has no block.
    pub fn decorate(mut self, graph: &Graph, assigns: &[Option<Assign>]) -> Result<Self> {
        for (index, value) in graph.values().iter().enumerate() {
            if value.kind() != ValueKind::Activation {
                let block = u32::try_from(self.blocks.len()).expect("fewer blocks than values");
                self.blocks.push(Block { bytes: 0, space: value.space() });
                self.storages[index] = Storage::Block(block);
            } else if self.storages[index].block().is_none() {
                let name = quoted(value.name());
                let reason = format!("value {name} has no block: its memory is not static");
                return Err(Error::InvalidOption { option: "assigned", reason });
            }
        }
        for assign in assigns.iter().flatten() {
            self.tied.push(assign.result);
            self.storages[assign.result.index()] = self.storages[assign.state.index()];
            if assign.kind == AssignKind::Direct {
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
                        // The value that it took over was a result that is in a state's block now.
                        self.taken_from[output.index()] = self.operand_in_block(graph, output);
                    }
                }
            }
        }
        Ok(self)
    }

    /// Returns which operand of its producer is in the block of `value`, and may be there.
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
