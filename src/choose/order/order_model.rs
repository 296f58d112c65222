//! The change of live bytes by a node, for any set of earlier nodes.

use alloc::collections::BTreeMap;
use alloc::{boxed::Box, vec, vec::Vec};
use core::cmp::Reverse;
use core::ops::Range;

use crate::base::{Error, NodeId, Result, ValueId, quoted};
use crate::graph::{Graph, Node, ValueKind};
use crate::liveness::{AliasClass, AliasClasses, Lifetimes, LivenessOptions, matched};
use crate::plan::InputMemory;

/// A graph reduced to the facts that determine the live bytes.
///
/// Bytes come in *atoms*: stretches covered by the same values. An atom is live while a covering
/// value is live: produced, with a reader left.
pub(super) struct OrderModel {
    pub(super) nodes: Vec<NodeModel>,
    /// By value: the covered atoms, which are adjacent.
    pub(super) atoms_of: Vec<Range<usize>>,
    /// By atom: bytes.
    pub(super) bytes: Vec<u64>,
    /// By atom: bytes of all atoms before, modulo 2^64, and an entry for the end. A value's bytes
    /// are a difference, and below 2^64.
    before: Vec<u64>,
    /// By value: reads left before the first node runs; the caller reads outputs.
    pub(super) reads: Vec<u32>,
    /// Values that are there before the first node runs.
    pub(super) supplied: Vec<u32>,
    /// Bytes of supplied values without readers, which are live at the first step.
    pub(super) unread: u64,
    /// The graph's own order, as positions.
    pub(super) given: Vec<u32>,
}

/// A node.
pub(super) struct NodeModel {
    pub(super) id: NodeId,
    /// Values read, repeated per read.
    pub(super) reads: Vec<u32>,
    pub(super) writes: Vec<u32>,
    /// Pairs of an input and an output that may take over the input, by output.
    pub(super) in_place: Vec<(u32, u32)>,
    /// Whether several outputs may take over the same input.
    pub(super) competes: bool,
    /// Dependent nodes, repeated per dependency.
    pub(super) dependents: Vec<u32>,
    /// Number of dependencies.
    pub(super) waits_for: u32,
}

impl OrderModel {
    pub(super) fn new(graph: &Graph, options: LivenessOptions) -> Result<Self> {
        let narrow = |index: usize| u32::try_from(index).expect("tables have 32 bits");
        let lifetimes = Lifetimes::new(graph, graph.order(), options.keeps_inputs());
        let linked = LivenessOptions { in_place: false, ..options };
        let classes =
            AliasClasses::new(graph, graph.order(), &lifetimes, linked.alias_rules(), None, &[]);
        let mut bytes = Vec::new();
        let mut atoms_of = vec![0..0; graph.values().len()];
        let overwritten = graph.overwritten();
        let callers = |value: ValueId| match graph.value(value).kind() {
            _ if overwritten[value.index()] => false,
            ValueKind::State => true,
            ValueKind::Input => options.inputs != InputMemory::Reuse,
            _ => false,
        };
        // Views of the caller's bytes must not be overwritten, either.
        let mut is_callers = vec![false; graph.values().len()];
        for class in classes.classes().iter().chain(classes.of_caller()) {
            if class.members.iter().any(|member| callers(member.value)) {
                class.members.iter().for_each(|member| is_callers[member.value.index()] = true);
            }
        }
        let elsewhere = outside(graph, &classes, options.in_place);
        for class in classes.classes() {
            if class.members.iter().any(|member| elsewhere[member.value.index()]) {
                continue;
            }
            let mut spans = Vec::with_capacity(class.members.len());
            for member in &class.members {
                let value = graph.value(member.value);
                let what = || Error::SizeOverflow { what: quoted(value.name()) };
                let end = member.start.checked_add(value.bytes()).ok_or_else(what)?;
                let start = member.start - member.start % options.alignment.bytes();
                let rounded = options.alignment.round_up(end).ok_or_else(what)?;
                spans.push((start, if value.bytes() == 0 { start } else { rounded }));
            }
            let mut cuts: Vec<u64> = spans.iter().flat_map(|&(start, end)| [start, end]).collect();
            cuts.sort_unstable();
            cuts.dedup();
            let first = bytes.len();
            bytes.extend(cuts.windows(2).map(|cut| cut[1] - cut[0]));
            for (member, (start, end)) in class.members.iter().zip(spans) {
                let [from, to] = [start, end].map(|cut| cuts.partition_point(|&at| at < cut));
                atoms_of[member.value.index()] = first + from..first + to;
            }
        }
        let mut reads = vec![0_u32; graph.values().len()];
        let mut supplied = Vec::new();
        for output in graph.read_at_end() {
            reads[output.index()] += 1;
        }
        for (index, value) in graph.values().iter().enumerate() {
            match value.kind() {
                ValueKind::Input | ValueKind::State if overwritten[index] => {}
                ValueKind::State => reads[index] += 1,
                ValueKind::Input if options.keeps_inputs() => reads[index] += 1,
                ValueKind::Input => {}
                ValueKind::Constant | ValueKind::Activation | ValueKind::Inner => continue,
            }
            supplied.push(narrow(index));
        }
        let mut nodes: Vec<NodeModel> = Vec::with_capacity(graph.nodes().len());
        for (index, node) in graph.nodes().iter().enumerate() {
            let id = NodeId::new(index);
            let planned = |value: &ValueId| graph.value(*value).is_planned();
            let read = node.reads_bytes_of().map(|(_, value)| value).filter(planned);
            let read: Vec<u32> = read.map(u32::from).collect();
            for &value in &read {
                reads[ValueId::from(value).index()] += 1;
            }
            let allowed =
                |value: ValueId| graph.value(value).is_planned() && !is_callers[value.index()];
            let in_place = if options.in_place { pairs(graph, node, allowed) } else { Vec::new() };
            nodes.push(NodeModel {
                id,
                reads: read,
                writes: node.produces().map(|(_, value)| value.into()).collect(),
                competes: competes(&in_place),
                in_place,
                dependents: Vec::new(),
                waits_for: 0,
            });
        }
        let all = (0..nodes.len()).map(NodeId::new);
        let data = all.flat_map(|id| graph.dependencies(id).map(move |before| (before, id)));
        for (before, after) in data.chain(graph.state_order()) {
            nodes[before.index()].dependents.push(after.into());
            nodes[after.index()].waits_for += 1;
        }
        let given = graph.order().iter().map(|&id| id.into()).collect();
        let mut before = Vec::with_capacity(bytes.len() + 1);
        let mut total = 0_u64;
        before.push(total);
        for &bytes in &bytes {
            total = total.wrapping_add(bytes);
            before.push(total);
        }
        let mut model = Self { nodes, atoms_of, bytes, before, reads, supplied, unread: 0, given };
        let unread = model.supplied.iter().filter(|&&value| model.reads[at(value)] == 0);
        model.unread = unread.map(|&value| model.size(value)).sum();
        Ok(model)
    }

    /// Returns the total bytes of some values, each byte once.
    pub(super) fn size_of(&self, values: impl Iterator<Item = u32>) -> u64 {
        let mut spans: Vec<_> = values.map(|value| self.atoms_of[at(value)].clone()).collect();
        spans.sort_unstable_by_key(|span| span.start);
        let (mut total, mut counted) = (0_u64, 0);
        for span in spans {
            let start = span.start.max(counted);
            if start < span.end {
                let bytes = self.before[span.end].wrapping_sub(self.before[start]);
                total = bytes.saturating_add(total);
                counted = span.end;
            }
        }
        total
    }

    /// Returns the work of creating an [`OrderState`].
    pub(super) fn copy_work(&self) -> usize {
        1 + (self.nodes.len() + self.reads.len() + self.bytes.len()) / COPIED_AT_ONCE
    }

    /// Returns a value's bytes.
    pub(super) fn size(&self, value: u32) -> u64 {
        let atoms = &self.atoms_of[at(value)];
        self.before[atoms.end].wrapping_sub(self.before[atoms.start])
    }
}

/// Returns the pairs of an input and an output that may take over the input, by output.
fn pairs(graph: &Graph, node: &Node, allowed: impl Fn(ValueId) -> bool) -> Vec<(u32, u32)> {
    let pairs = node.effects().in_place.iter().filter_map(|pair| {
        let (input, output) = (node.input(pair.input)?, node.output(pair.output)?);
        let fits = graph.value(output).bytes() <= graph.value(input).bytes();
        (allowed(input) && fits).then(|| (input.into(), output.into()))
    });
    let mut pairs: Vec<(u32, u32)> = pairs.collect();
    pairs.sort_by_key(|&(_, output)| output);
    pairs
}

/// Returns whether several outputs may take over the same input.
fn competes(pairs: &[(u32, u32)]) -> bool {
    let mut outputs = BTreeMap::new();
    pairs.len() > 1
        && pairs.iter().any(|&(input, output)| *outputs.entry(input).or_insert(output) != output)
}

/// Returns, by value, whether the value may be in the caller's memory: its class is the caller's,
/// or may be taken over by a class of the caller's.
///
/// The final place depends on the order. So orders are compared by lower bounds.
fn outside(graph: &Graph, classes: &AliasClasses, in_place: bool) -> Vec<bool> {
    let mut outside = vec![false; graph.values().len()];
    let bytes = |class: &AliasClass| class.owner.map_or(0, |owner| graph.value(owner).bytes());
    let mut owned: Vec<_> = classes.of_caller().iter().collect();
    // Values that fit into the largest buffer are not considered again.
    owned.sort_by_key(|class| Reverse(bytes(class)));
    for class in owned {
        let room = bytes(class);
        let mut pending: Vec<ValueId> = class.members.iter().map(|member| member.value).collect();
        while let Some(value) = pending.pop() {
            outside[value.index()] = true;
            let Some(producer) = graph.producer(value).filter(|_| in_place) else { continue };
            let node = graph.node(producer);
            let pairs = node.effects().in_place.iter();
            let pairs = pairs.filter(|pair| node.output(pair.output) == Some(value));
            let overlaps = graph.overlaps(producer, false).into_iter();
            let overlaps = overlaps.filter(|pair| node.output(pair.output) == Some(value));
            let taken = pairs.map(|pair| pair.input).chain(overlaps.map(|pair| pair.input));
            let taken = taken.filter_map(|input| node.input(input));
            let taken = taken.filter(|&taken| graph.value(taken).bytes() <= room);
            for class in taken.filter_map(|taken| classes.class_of(taken)) {
                let members = classes.classes()[class].members.iter().map(|member| member.value);
                pending.extend(members.filter(|member| !outside[member.index()]));
            }
        }
    }
    outside
}

/// Table entries that are copied in the time that a scattered access takes.
const COPIED_AT_ONCE: usize = 8;

/// A set of nodes, with a bit for each node.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct Executed(Box<[u64]>);

impl Executed {
    /// Returns the empty set.
    pub(super) fn none(model: &OrderModel) -> Self {
        Self(vec![0; model.nodes.len().div_ceil(64)].into())
    }

    fn contains(&self, node: u32) -> bool {
        self.0[at(node) / 64] >> (node % 64) & 1 == 1
    }

    fn flip(&mut self, node: u32) {
        self.0[at(node) / 64] ^= 1 << (node % 64);
    }

    /// Iterates over the nodes in the set.
    fn of<'m>(&self, model: &'m OrderModel) -> impl Iterator<Item = &'m NodeModel> {
        (0..).zip(&model.nodes).filter(|&(node, _)| self.contains(node)).map(|(_, node)| node)
    }
}

/// The executed nodes, and the bytes that are live therefore.
pub(super) struct OrderState {
    pub(super) executed: Executed,
    /// By value: reads left.
    reads: Vec<u32>,
    /// By atom: the number of live covering values.
    covers: Vec<u32>,
    /// By node: the number of pending dependencies.
    waiting: Vec<u32>,
    /// Nodes that can run next.
    pub(super) ready: Vec<u32>,
    pub(super) live: u64,
    pub(super) count: u32,
    /// Table entries that were read or written since [`take_work`](Self::take_work).
    work: usize,
}

/// A node's effect on the state.
#[derive(Clone, Copy)]
pub(super) struct Effect {
    /// The node.
    pub(super) node: u32,
    /// Live bytes during the node.
    pub(super) during: u64,
    /// Bytes live afterwards.
    pub(super) after: u64,
}

impl OrderState {
    /// Returns the state after some nodes have run.
    pub(super) fn after(model: &OrderModel, executed: &Executed) -> Self {
        let mut state = Self {
            executed: executed.clone(),
            reads: model.reads.clone(),
            covers: vec![0; model.bytes.len()],
            waiting: model.nodes.iter().map(|node| node.waits_for).collect(),
            ready: Vec::new(),
            live: 0,
            count: 0,
            work: model.copy_work(),
        };
        for node in executed.of(model) {
            state.count += 1;
            for &value in &node.reads {
                state.reads[at(value)] -= 1;
            }
            for &dependent in &node.dependents {
                state.waiting[at(dependent)] -= 1;
            }
        }
        let made = executed.of(model).flat_map(|node| &node.writes);
        for &value in made.chain(&model.supplied) {
            if state.reads[at(value)] > 0 {
                state.cover(model, value);
            }
        }
        let waiting = (0..).zip(&state.waiting);
        let ready = waiting.filter(|&(node, &count)| count == 0 && !executed.contains(node));
        state.ready = ready.map(|(node, _)| node).collect();
        state
    }

    fn cover(&mut self, model: &OrderModel, value: u32) {
        self.work += 1 + model.atoms_of[at(value)].len();
        for atom in model.atoms_of[at(value)].clone() {
            if self.covers[atom] == 0 {
                self.live += model.bytes[atom];
            }
            self.covers[atom] += 1;
        }
    }

    /// Returns the work since the last call, in table entries.
    pub(super) fn take_work(&mut self) -> usize {
        core::mem::take(&mut self.work)
    }

    fn uncover(&mut self, model: &OrderModel, value: u32) {
        self.work += 1 + model.atoms_of[at(value)].len();
        for atom in model.atoms_of[at(value)].clone() {
            self.covers[atom] -= 1;
            if self.covers[atom] == 0 {
                self.live -= model.bytes[atom];
            }
        }
    }

    /// Runs the ready node at a position, and returns the node's effect.
    pub(super) fn run(&mut self, model: &OrderModel, position: usize) -> Effect {
        let index = self.ready.remove(position);
        let node = &model.nodes[at(index)];
        self.work += 1 + node.reads.len() + node.dependents.len() + node.in_place.len();
        let before = self.live;
        for &value in &node.writes {
            self.cover(model, value);
        }
        let first = if self.count == 0 { model.unread } else { 0 };
        let mut during = self.live + first;
        for &value in &node.reads {
            self.reads[at(value)] -= 1;
            if self.reads[at(value)] == 0 {
                self.uncover(model, value);
            }
        }
        during -= self.credit(model, node, during - first - before);
        for &value in &node.writes {
            if self.reads[at(value)] == 0 {
                self.uncover(model, value);
            }
        }
        self.executed.flip(index);
        self.count += 1;
        for &dependent in &node.dependents {
            self.waiting[at(dependent)] -= 1;
            if self.waiting[at(dependent)] == 0 {
                self.ready.push(dependent);
            }
        }
        Effect { node: index, during, after: self.live }
    }

    /// Undoes the last [`run`](Self::run), of the node at `position`.
    ///
    /// So trying a node needs no copy of the state.
    pub(super) fn undo(&mut self, model: &OrderModel, index: u32, position: usize) {
        let node = &model.nodes[at(index)];
        for &dependent in node.dependents.iter().rev() {
            if self.waiting[at(dependent)] == 0 {
                self.ready.pop();
            }
            self.waiting[at(dependent)] += 1;
        }
        self.ready.insert(position, index);
        self.count -= 1;
        self.executed.flip(index);
        for &value in &node.reads {
            if self.reads[at(value)] == 0 {
                self.cover(model, value);
            }
            self.reads[at(value)] += 1;
        }
        for &value in &node.writes {
            // Values without readers were dropped at once.
            if self.reads[at(value)] > 0 {
                self.uncover(model, value);
            }
        }
    }

    /// Returns how many of a node's output bytes are bytes of inputs that just died.
    fn credit(&self, model: &OrderModel, node: &NodeModel, made: u64) -> u64 {
        if node.competes {
            return self.matched_credit(model, node).min(made);
        }
        let mut credit = 0;
        for pairs in node.in_place.chunk_by(|one, other| one.1 == other.1) {
            // Values that may be in the caller's memory do not count, and so give no gain.
            let sizes = pairs.iter().filter(|&&(input, _)| self.is_dead(model, input));
            let sizes = sizes.map(|&(input, _)| model.size(input));
            if let Some(size) = sizes.min_by_key(|&size| (size == 0, size)) {
                credit += model.size(pairs[0].1).min(size);
            }
        }
        credit.min(made)
    }

    /// Returns whether no value in the bytes of `input` has a reader left.
    fn is_dead(&self, model: &OrderModel, input: u32) -> bool {
        let atoms = model.atoms_of[at(input)].clone();
        self.reads[at(input)] == 0 && self.covers[atoms].iter().all(|&covers| covers == 0)
    }

    /// Returns the bytes of outputs that take over dying inputs, if several outputs may take over
    /// the same input.
    fn matched_credit(&self, model: &OrderModel, node: &NodeModel) -> u64 {
        let sizes: Vec<u64> = node.writes.iter().map(|&output| model.size(output)).collect();
        let inputs = |output: u32| {
            let pairs = node.in_place.iter().filter(|&&(input, written)| {
                written == output && model.size(input) > 0 && self.is_dead(model, input)
            });
            let mut inputs: Vec<ValueId> = pairs.map(|&(input, _)| ValueId::from(input)).collect();
            inputs.sort_by_key(|&input| model.size(input.into()));
            inputs
        };
        let candidates: Vec<_> = node.writes.iter().map(|&output| inputs(output)).collect();
        let taken = matched(&sizes, &candidates);
        sizes.iter().zip(taken).filter_map(|(&size, input)| input.map(|_| size)).sum()
    }
}

/// Returns an index as a position.
pub(super) fn at(index: u32) -> usize {
    ValueId::from(index).index()
}
