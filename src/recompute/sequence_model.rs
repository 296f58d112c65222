//! A graph reduced to the facts that decide how many bytes a sequence of executions needs.

use alloc::{vec, vec::Vec};

use super::narrow_ids::{NONE, at, narrow};
use super::paged_values::PagedValues;
use crate::base::{NodeId, ValueId};
use crate::graph::{Graph, Node, ValueKind, Whole};
use crate::liveness::LivenessOptions;
use crate::plan::{InputMemory, OutputMemory};

/// The facts about a graph.
pub(super) struct SequenceModel {
    pub(super) nodes: Vec<NodeFacts>,
    /// For each value: bytes in the arena, rounded up; 0 outside the arena.
    pub(super) bytes: Vec<u64>,
    /// For each value: bytes in the arena that no operand of the producer may be a piece of.
    pub(super) own: Vec<u64>,
    /// For each value: the value whose bytes the value shows, or [`NONE`].
    pub(super) shows: Vec<u32>,
    /// For each value: the producer, or [`NONE`].
    pub(super) producer: Vec<u32>,
    /// For each value: whether the value is needed after the last node.
    pub(super) kept: Vec<bool>,
    /// For each value: whether an output may take over the bytes.
    pub(super) may_take: Vec<bool>,
    /// Values that are there before the first node runs.
    pub(super) supplied: Vec<u32>,
    /// Bytes that are held at every step.
    pub(super) resident: u64,
    /// Bytes of the caller's outputs, in which values between nodes may lie before.
    pub(super) spared: u64,
    /// Cost if every node runs once.
    pub(super) cost: u64,
    /// For each value: the node that replaces the value, or [`NONE`].
    pub(super) replaced_by: Vec<u32>,
    /// The graph's order.
    pub(super) given: Vec<u32>,
    /// Number of graph nodes; the nodes behind copy values.
    pub(super) count: usize,
    /// The values that may be copied to a slow memory, if there is such a memory.
    pub(super) paging: Option<PagedValues>,
}

/// The facts about a node.
#[derive(Default)]
pub(super) struct NodeFacts {
    /// Values whose bytes the node reads, once per read.
    pub(super) reads: Vec<u32>,
    pub(super) writes: Vec<u32>,
    /// Pairs of an input and an output that may take over the input, by output.
    pub(super) in_place: Vec<(u32, u32)>,
    pub(super) cost: u64,
    /// Whether the node may run again.
    pub(super) is_pure: bool,
    /// Nodes that must run before.
    pub(super) after: Vec<u32>,
    /// Replaceable values whose previous content the node reads.
    pub(super) previous: Vec<u32>,
    /// Values that the node replaces.
    pub(super) replaces: Vec<u32>,
    /// Whether the output may overlap an input at a distance.
    pub(super) overlaps: bool,
}

impl SequenceModel {
    pub(super) fn new(graph: &Graph, options: LivenessOptions) -> Self {
        let values = graph.values().len();
        let mut model = Self {
            nodes: Vec::with_capacity(graph.nodes().len()),
            bytes: vec![0; values],
            own: Vec::new(),
            shows: vec![NONE; values],
            producer: vec![NONE; values],
            kept: vec![false; values],
            may_take: vec![true; values],
            supplied: Vec::new(),
            resident: 0,
            spared: 0,
            cost: 0,
            replaced_by: vec![NONE; values],
            given: graph.order().iter().map(|&id| id.into()).collect(),
            count: graph.nodes().len(),
            paging: None,
        };
        let mut written_back = vec![false; values];
        for pair in graph.write_backs() {
            written_back[pair.value.index()] = true;
            if let Some(producer) = graph.producer(pair.value) {
                model.replaced_by[pair.into.index()] = producer.into();
            }
        }
        let mut is_output = vec![false; values];
        graph.outputs().iter().for_each(|output| is_output[output.index()] = true);
        for value in graph.read_at_end() {
            model.kept[value.index()] = true;
        }
        for (index, value) in graph.values().iter().enumerate() {
            let rounded = options.alignment.round_up(value.bytes()).unwrap_or(u64::MAX / 4);
            let is_callers = match value.kind() {
                ValueKind::Input => options.inputs == InputMemory::Caller,
                _ => is_output[index] && options.outputs == OutputMemory::Caller,
            };
            match value.kind() {
                ValueKind::Constant | ValueKind::Inner => {}
                ValueKind::Activation => {
                    // The bytes of a value that is written back are the bytes of the replaced
                    // value.
                    if is_callers {
                        model.spared = model.spared.saturating_add(rounded);
                    } else if !written_back[index] {
                        model.bytes[index] = rounded;
                    }
                }
                ValueKind::Input | ValueKind::State => {
                    let stays = value.kind() == ValueKind::State
                        || model.replaced_by[index] != NONE
                        || options.keeps_inputs();
                    if is_callers {
                    } else if stays {
                        model.resident = model.resident.saturating_add(rounded);
                    } else {
                        model.bytes[index] = rounded;
                        model.may_take[index] = options.inputs == InputMemory::Reuse;
                    }
                    model.supplied.push(narrow(index));
                }
            }
        }
        let mut is_mutated = vec![false; values];
        for node in graph.nodes() {
            let states = node.effects().mutates.iter().filter_map(|&position| node.input(position));
            states.for_each(|state| is_mutated[state.index()] = true);
        }
        let mut state_order = vec![Vec::new(); graph.nodes().len()];
        for (first, second) in graph.state_order() {
            state_order[second.index()].push(u32::from(first));
        }
        for (index, node) in graph.nodes().iter().enumerate() {
            let mut facts = model.facts(graph, options, node, &is_mutated);
            facts.after.append(&mut state_order[index]);
            facts.overlaps = !graph.overlaps(NodeId::new(index), false).is_empty();
            for &value in &facts.writes {
                model.producer[at(value)] = narrow(index);
                // Outputs keep their names, and the values of a second run have other names.
                facts.is_pure &= !model.kept[at(value)];
            }
            model.cost = model.cost.saturating_add(facts.cost);
            model.nodes.push(facts);
        }
        for (index, &node) in model.replaced_by.iter().enumerate().filter(|(_, it)| **it != NONE) {
            model.nodes[at(node)].replaces.push(narrow(index));
            model.nodes[at(node)].is_pure = false;
        }
        model.own.clone_from(&model.bytes);
        for node in graph.nodes().iter().filter(|_| options.elision) {
            let pieces = node.effects().views.iter().filter(|view| view.whole == Whole::Output);
            for view in pieces {
                if let (Some(piece), Some(whole)) =
                    (node.input(view.input), node.output(view.output))
                {
                    let own = &mut model.own[whole.index()];
                    *own = own.saturating_sub(model.bytes[piece.index()]);
                }
            }
        }
        model.settle_views(options);
        model
    }

    fn facts(
        &self,
        graph: &Graph,
        options: LivenessOptions,
        node: &Node,
        is_mutated: &[bool],
    ) -> NodeFacts {
        let effects = node.effects();
        let reads: Vec<ValueId> = node.reads_bytes_of().map(|(_, value)| value).collect();
        let only_elementwise = |value: ValueId, output: usize| {
            node.reads_bytes_of().filter(|&(_, read)| read == value).all(|(position, _)| {
                let mut pairs = effects.in_place.iter();
                pairs.any(|pair| (pair.input, pair.output) == (position, output))
            })
        };
        let mut in_place: Vec<(u32, u32)> = Vec::new();
        for pair in effects.in_place.iter().filter(|_| options.in_place) {
            let operands = (node.input(pair.input), node.output(pair.output));
            let (Some(input), Some(output)) = operands else { continue };
            let fits = self.bytes[output.index()] <= self.bytes[input.index()];
            if fits && self.bytes[output.index()] > 0 && only_elementwise(input, pair.output) {
                in_place.push((input.into(), output.into()));
            }
        }
        in_place.sort_by_key(|&(_, output)| output);
        in_place.dedup();
        let touches = node.inputs().iter().flatten().any(|value| is_mutated[value.index()]);
        NodeFacts {
            reads: reads.into_iter().map(u32::from).collect(),
            writes: node.produces().map(|(_, value)| value.into()).collect(),
            in_place,
            cost: node.cost(),
            is_pure: node.is_pure() && effects.mutates.is_empty() && !touches,
            after: node.control_dependencies().iter().map(|&id| id.into()).collect(),
            previous: Vec::new(),
            replaces: Vec::new(),
            overlaps: false,
        }
        .with_views(graph, options, node)
    }

    /// Links views to the values whose bytes they show, and finds the readers of previous contents.
    fn settle_views(&mut self, options: LivenessOptions) {
        let mut position = vec![0; self.nodes.len()];
        for (step, &node) in self.given.iter().enumerate() {
            position[at(node)] = step;
        }
        // For each value: the last step in the given order that reads the value.
        let mut last = vec![0; self.bytes.len()];
        for (node, facts) in self.nodes.iter().enumerate() {
            for &read in &facts.reads {
                last[at(read)] = last[at(read)].max(position[node]);
            }
        }
        let given = self.given.clone();
        for &node in &given {
            let views = core::mem::take(&mut self.nodes[at(node)].previous);
            for pair in views.chunks_exact(2) {
                let (input, output) = (pair[0], pair[1]);
                let home = self.root(input);
                let replaced = self.replaced_by[at(home)];
                // A plan copies a view if the shown content is replaced before the last reader of
                // the view.
                let is_copied = replaced != NONE && last[at(output)] > position[at(replaced)];
                let is_view = options.views && !is_copied && !self.kept[at(output)];
                let is_open = self.shows[at(output)] == NONE;
                if is_view && is_open && self.replaced_by[at(output)] == NONE {
                    self.shows[at(output)] = input;
                }
            }
        }
        for index in 0..self.nodes.len() {
            let mut previous = Vec::new();
            for &read in &self.nodes[index].reads {
                let home = self.root(read);
                if self.replaced_by[at(home)] != NONE && !previous.contains(&home) {
                    previous.push(home);
                }
            }
            self.nodes[index].previous = previous;
        }
    }

    /// Returns the value whose bytes a value shows in the end.
    pub(super) fn root(&self, mut value: u32) -> u32 {
        while self.shows[at(value)] != NONE {
            value = self.shows[at(value)];
        }
        value
    }

    /// Returns the bytes of a node's results.
    pub(super) fn made_by(&self, node: u32) -> u64 {
        let writes = self.nodes[at(node)].writes.iter();
        writes.map(|&value| self.bytes[at(value)]).fold(0, u64::saturating_add)
    }

    /// Returns the bytes of the outputs that take over no input.
    fn written(&self, facts: &NodeFacts) -> u64 {
        let takes = |value: u32| facts.in_place.iter().any(|pair| pair.1 == value);
        let is_own = |&&value: &&u32| self.shows[at(value)] == NONE && !takes(value);
        let own = facts.writes.iter().filter(is_own).map(|&value| self.own[at(value)]);
        own.fold(0, u64::saturating_add)
    }

    /// Returns the bytes that a node writes beside the operands, in every plan.
    pub(super) fn written_beside(&self, node: u32) -> u64 {
        let facts = &self.nodes[at(node)];
        if facts.overlaps { 0 } else { self.written(facts) }
    }

    /// Returns the most bytes that one node needs by itself, in any sequence: the operands, less
    /// outputs that may take over an input.
    pub(super) fn floor(&self) -> u64 {
        let step = |facts: &NodeFacts| {
            // Of several parts of one value, the largest counts: the other parts may be within the
            // largest.
            let mut seen: Vec<(u32, u64)> = Vec::with_capacity(facts.reads.len());
            for &value in &facts.reads {
                let (root, bytes) = (self.root(value), self.bytes[at(value)]);
                match seen.iter_mut().find(|(known, _)| *known == root) {
                    Some((_, most)) => *most = bytes.max(*most),
                    None => seen.push((root, bytes.min(self.bytes[at(root)]))),
                }
            }
            let read = seen.into_iter().fold(0, |sum: u64, (_, bytes)| sum.saturating_add(bytes));
            read.saturating_add(self.written(facts))
        };
        let most = self.nodes.iter().map(step).max().unwrap_or(0);
        let supplied = self.supplied.iter().map(|&value| self.bytes[at(value)]);
        let kept = (0..self.bytes.len()).filter(|&value| self.kept[value]);
        // Outputs may show each other's bytes.
        let kept = kept.map(|value| self.bytes[value]).max().unwrap_or(0);
        let first = supplied.fold(0, u64::saturating_add);
        most.max(first).max(kept).saturating_add(self.resident)
    }
}

impl NodeFacts {
    /// Records the views of a node: pairs of an input and an output, in
    /// [`previous`](Self::previous) until all nodes are known.
    fn with_views(mut self, graph: &Graph, options: LivenessOptions, node: &Node) -> Self {
        let effects = node.effects();
        let bytes = |value: Option<ValueId>| value.map(|value| graph.value(value).bytes());
        let views = effects.views.iter().filter(|view| {
            let is_all = bytes(node.input(view.input)) == bytes(node.output(view.output));
            view.whole == Whole::Input && (is_all || options.elision)
        });
        let views = views.map(|view| (view.input, view.output));
        let copies = effects.in_place.iter().filter(|pair| {
            pair.identity && bytes(node.input(pair.input)) == bytes(node.output(pair.output))
        });
        for (input, output) in views.chain(copies.map(|pair| (pair.input, pair.output))) {
            if let (Some(input), Some(output)) = (node.input(input), node.output(output)) {
                self.previous.extend([u32::from(input), u32::from(output)]);
            }
        }
        self
    }
}
