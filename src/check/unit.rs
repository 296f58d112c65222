//! Units: the node or the fused group of a step.
//!
//! The checker derives anew, forwards, whether nodes can be fused: for every value inside a group,
//! the part of each outside value needed for a *piece* of the inner value.

use alloc::borrow::Cow;
use alloc::collections::BTreeMap;
use alloc::{format, vec, vec::Vec};

use crate::base::{NodeId, Result, ValueId, quoted};
use crate::check::mismatch;
use crate::check::strip_replay::{Border, LineMemory, StripReplay};
use crate::graph::{Effects, Graph, InPlace, Node, Overlap, ValueKind, Whole, Window};
use crate::plan::{Plan, PlanStep, Provider, ShareRule, Strips};

/// A step's operands, and the step's permissions on the operands.
pub(super) struct Unit<'a> {
    /// The nodes that run, in order.
    pub(super) nodes: Vec<NodeId>,
    /// The last node's name.
    pub(super) name: &'a str,
    /// Values whose bytes are read, by position.
    pub(super) reads: Vec<Option<ValueId>>,
    /// Written values, by position.
    pub(super) writes: Vec<Option<ValueId>>,
    /// Permissions, by position.
    pub(super) effects: Cow<'a, Effects>,
    /// Written states.
    pub(super) mutates: Vec<ValueId>,
    /// The inputs that the output may overlap, if the plan has an overlap.
    pub(super) overlaps: Vec<Overlap>,
    /// Positions of the inputs that an output may share bytes with under some plan.
    pub(super) takes: Vec<usize>,
    /// The memory for line buffers, if the unit runs strip by strip.
    pub(super) lines: LineMemory,
}

impl<'a> Unit<'a> {
    /// Returns each step's unit.
    pub(super) fn all(plan: &Plan, graph: &'a Graph) -> Result<Vec<Self>> {
        let readers = graph.readers();
        plan.steps().iter().map(|step| Self::of(plan, step, graph, &readers)).collect()
    }

    fn of(plan: &Plan, step: &PlanStep, graph: &'a Graph, readers: &[Vec<NodeId>]) -> Result<Self> {
        let id = NodeId::from(step.node);
        let node = graph.node(id);
        let overlaps = step.shares.iter().any(|share| share.rule == ShareRule::Overlap);
        let early = plan.target().early_writes();
        if !step.fused.is_empty() {
            let nodes: Vec<_> =
                step.fused.iter().chain([&step.node]).map(|&node| NodeId::from(node)).collect();
            if let Some(strips) = &step.strips {
                let axis = plan.target().strip_axis();
                let mut windows = nodes.iter().flat_map(|&id| &graph.node(id).effects().windows);
                if windows.any(|window| axis.is_some_and(|axis| !is_along(window, axis))) {
                    let what = "makes strips that its runner does not make";
                    return mismatch(format!("node {} {what}", quoted(node.name())));
                }
                let scratch = plan.workspaces_of(id).first().map(|first| first.bytes);
                let unit = strip_unit(graph, nodes, strips, scratch, readers)?;
                // With scratch memory, calls of several nodes may be one, whose order is not known.
                let in_order = plan.target().scratch() == Provider::Nobody;
                return Ok(if in_order { unit } else { unit.without_overlaps() });
            }
            let group = CheckedGroup { graph, nodes: &nodes, made: BTreeMap::new() };
            return group.unit(readers, overlaps.then_some(early));
        }
        if step.strips.is_some() {
            return mismatch(format!("node {} runs alone, and in strips", quoted(node.name())));
        }
        let state = |&position: &usize| node.input(position);
        Ok(Self {
            nodes: vec![id],
            name: node.name(),
            reads: node.bytes_read().collect(),
            writes: node.outputs().to_vec(),
            effects: Cow::Borrowed(node.effects()),
            mutates: node.effects().mutates.iter().filter_map(state).collect(),
            overlaps: if overlaps { overlaps_of(graph, node, early) } else { Vec::new() },
            takes: takes_of(node),
            lines: LineMemory::default(),
        })
    }

    /// Returns the unit with an output that shares no byte with inputs.
    fn without_overlaps(self) -> Self {
        Self { overlaps: Vec::new(), takes: Vec::new(), ..self }
    }

    /// Iterates over the read values, with positions.
    pub(super) fn reads(&self) -> impl Iterator<Item = (usize, ValueId)> + '_ {
        present(&self.reads)
    }

    /// Iterates over the written values, with positions.
    pub(super) fn writes(&self) -> impl Iterator<Item = (usize, ValueId)> + '_ {
        present(&self.writes)
    }

    /// Returns the last node.
    pub(super) fn last(&self) -> NodeId {
        *self.nodes.last().expect("something runs at every step")
    }
}

fn present(operands: &[Option<ValueId>]) -> impl Iterator<Item = (usize, ValueId)> + '_ {
    let operands = operands.iter().enumerate();
    operands.filter_map(|(position, operand)| operand.map(|value| (position, value)))
}

/// The part of an outside value needed for a piece.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Need {
    /// The bytes at the same place.
    Piece,
    /// Any piece.
    All,
}

/// A value inside a group.
struct InnerValue {
    /// The piece count.
    pieces: u64,
    needs: BTreeMap<ValueId, Need>,
}

struct CheckedGroup<'a, 'n> {
    graph: &'a Graph,
    nodes: &'n [NodeId],
    made: BTreeMap<ValueId, InnerValue>,
}

impl<'a> CheckedGroup<'a, '_> {
    /// Returns the unit; with `early`, whether kernels write early, of a plan with overlaps.
    fn unit(mut self, readers: &[Vec<NodeId>], early: Option<bool>) -> Result<Unit<'a>> {
        let (graph, nodes) = (self.graph, self.nodes);
        let (&last, inner) = nodes.split_last().expect("a step runs a node");
        let mut outside: Vec<ValueId> = Vec::new();
        for &id in nodes {
            let node = graph.node(id);
            let (value, made) = self.run(node)?;
            let found = node.reads_bytes_of().map(|(_, read)| read);
            for read in found.filter(|read| !self.made.contains_key(read)) {
                if !outside.contains(&read) {
                    outside.push(read);
                }
            }
            self.made.insert(value, made);
            let elsewhere = |reader: &NodeId| !nodes.contains(reader);
            let leaves = graph.outputs().contains(&value)
                || readers[value.index()].iter().any(elsewhere)
                || graph.value(value).kind() != ValueKind::Activation;
            // If the node runs again, another step puts the output into memory.
            if inner.contains(&id) && leaves && !node.effects().repeats {
                return self.refuse(node, "what it makes is needed elsewhere");
            }
        }
        let node = graph.node(last);
        let output = node.produces().next().expect("it was run").1;
        let result = &self.made[&output];
        if result.pieces < 2 {
            return self.refuse(node, "it is made in one piece");
        }
        let bytes = |value: ValueId| graph.value(value).bytes();
        let mut effects = Effects::default();
        for (position, &value) in outside.iter().enumerate() {
            let rewrites = node
                .reads_bytes_of()
                .filter(|&(_, read)| read == value)
                .all(|(at, _)| node.effects().in_place.iter().any(|pair| pair.input == at));
            let fits = bytes(value) == bytes(output) && graph.value(value).is_planned();
            if fits && rewrites && result.needs.get(&value) == Some(&Need::Piece) {
                let (input, output) = (position, 0);
                effects.in_place.push(InPlace { input, output, identity: false });
            }
        }
        let in_pieces = |(input, &value): (usize, &ValueId)| {
            let is_piece = result.needs.get(&value) == Some(&Need::Piece);
            let distance = lead(graph, output, value, result.pieces, early?);
            let distance = distance.filter(|_| is_piece)?;
            Some(Overlap { input, output: 0, distance })
        };
        let overlaps = outside.iter().enumerate().filter_map(in_pieces).collect();
        let is_piece = |value| result.needs.get(value) == Some(&Need::Piece);
        let pieces = outside.iter().enumerate().filter(|(_, value)| is_piece(value));
        let takes = pieces.map(|(position, _)| position).collect();
        Ok(Unit {
            nodes: nodes.to_vec(),
            name: node.name(),
            reads: outside.into_iter().map(Some).collect(),
            writes: vec![Some(output)],
            effects: Cow::Owned(effects),
            mutates: Vec::new(),
            overlaps,
            takes,
            lines: LineMemory::default(),
        })
    }

    /// Returns a node's dependence on outside values.
    fn run(&self, node: &Node) -> Result<(ValueId, InnerValue)> {
        let effects = node.effects();
        let outputs: Vec<_> = node.produces().collect();
        let &[(position, output)] = outputs.as_slice() else {
            return self.refuse(node, "it does not have one output");
        };
        if !effects.mutates.is_empty() || !effects.ignores.is_empty() {
            return self.refuse(node, "it mutates or ignores an operand");
        }
        let count = |value: ValueId| self.graph.value(value).elements().unwrap_or(0);
        let flow = effects.flows.iter().find(|flow| flow.output == position);
        let reshaped = effects.views.iter().find(|view| {
            let shown = node.input(view.input).map(count);
            view.output == position
                && view.whole == Whole::Input
                && view.offset == 0
                && shown == Some(count(output))
        });
        let (mut pieces, follows) = match (flow, reshaped) {
            (Some(flow), _) => (flow.pieces, flow.follows.clone()),
            (None, Some(view)) => (count(output), vec![view.input]),
            (None, None) => return self.refuse(node, "it is not made in pieces"),
        };
        let mut needs: BTreeMap<ValueId, Need> = BTreeMap::new();
        let mut demand = |value, need| {
            let known = needs.entry(value).or_insert(need);
            if need == Need::All {
                *known = Need::All;
            }
        };
        for (position, value) in node.reads_bytes_of() {
            let in_step = follows.contains(&position);
            match self.made.get(&value) {
                None => demand(value, if in_step { Need::Piece } else { Need::All }),
                Some(made) if in_step => {
                    pieces = common(pieces, made.pieces);
                    made.needs.iter().for_each(|(&value, &need)| demand(value, need));
                }
                Some(made) if effects.loads.contains(&position) => {
                    if made.pieces != count(value) {
                        return self.refuse(node, "it loads what is not made element by element");
                    }
                    made.needs.keys().for_each(|&value| demand(value, Need::All));
                }
                Some(_) => return self.refuse(node, "it needs whole what another of them makes"),
            }
        }
        Ok((output, InnerValue { pieces, needs }))
    }

    fn refuse<T>(&self, node: &Node, reason: &str) -> Result<T> {
        let last = self.nodes.last().map(|&id| self.graph.node(id).name()).unwrap_or_default();
        let (node, last) = (quoted(node.name()), quoted(last));
        mismatch(format!("node {node} cannot run as one with {last}: {reason}"))
    }
}

/// Returns the unit of nodes that run strip by strip.
fn strip_unit<'a>(
    graph: &'a Graph,
    nodes: Vec<NodeId>,
    strips: &Strips,
    scratch: Option<u64>,
    readers: &[Vec<NodeId>],
) -> Result<Unit<'a>> {
    let Border { reads, output, lines, overlaps } =
        StripReplay::new(graph, &nodes, strips, scratch, readers)?.run()?;
    let name = graph.node(*nodes.last().expect("a step runs a node")).name();
    Ok(Unit {
        nodes,
        name,
        reads: reads.into_iter().map(Some).collect(),
        writes: vec![Some(output)],
        effects: Cow::Owned(Effects::default()),
        mutates: Vec::new(),
        takes: overlaps.iter().map(|overlap| overlap.input).collect(),
        overlaps,
        lines,
    })
}

/// Returns whether a window is over rows along a dimension, and does not widen them.
fn is_along(window: &Window, axis: usize) -> bool {
    window.axis == axis && window.scale == 1
}

/// Returns the positions of the inputs that a node's output may share bytes with: in place, as a
/// view, or at a distance.
fn takes_of(node: &Node) -> Vec<usize> {
    let effects = node.effects();
    let in_place = effects.in_place.iter().map(|pair| pair.input);
    let views = effects.views.iter().map(|view| view.input);
    let overlaps = effects.overlaps.iter().map(|overlap| overlap.input);
    let flows = effects.flows.iter().flat_map(|flow| flow.follows.iter().copied());
    let mut takes: Vec<usize> = in_place.chain(views).chain(overlaps).chain(flows).collect();
    takes.sort_unstable();
    takes.dedup();
    takes
}

/// Returns the inputs that a node's output may overlap, and the largest distance behind each.
fn overlaps_of(graph: &Graph, node: &Node, early: bool) -> Vec<Overlap> {
    let effects = node.effects();
    let outputs: Vec<_> = node.produces().collect();
    let &[(output, made)] = outputs.as_slice() else { return Vec::new() };
    if !effects.mutates.is_empty() {
        return Vec::new();
    }
    let mut overlaps = effects.overlaps.clone();
    overlaps.retain(|overlap| overlap.output == output);
    for flow in effects.flows.iter().filter(|flow| flow.output == output) {
        for (input, read) in node.reads_bytes_of() {
            let distance = lead(graph, made, read, flow.pieces, early);
            if let Some(distance) = distance.filter(|_| flow.follows.contains(&input)) {
                overlaps.push(Overlap { input, output, distance });
            }
        }
    }
    overlaps
}

/// Returns the most bytes by which writing `made` is ahead of reading `read`, if both go piece by
/// piece and a piece is written when complete.
///
/// After the last piece, no input is needed any more; each earlier piece is ahead by another
/// difference. With `early`, a piece of several elements is written while its inputs are read.
fn lead(graph: &Graph, made: ValueId, read: ValueId, pieces: u64, early: bool) -> Option<u64> {
    let bits = |value: ValueId| {
        let value = graph.value(value);
        Some(u128::from(value.elements()?) * u128::from(value.dtype().bits()))
    };
    let (written, used, pieces) = (bits(made)?, bits(read)?, u128::from(pieces));
    let whole = 8 * pieces;
    if pieces < 2 || written % whole != 0 || used % whole != 0 {
        return None;
    }
    let (written, used) = (written / whole, used / whole);
    let is_written = early && graph.value(made).elements().map(u128::from) != Some(pieces);
    let own = if is_written { written } else { 0 };
    let after = |piece: u128| (piece * written + own).saturating_sub(piece * used);
    u64::try_from(after(0).max(after(1)).max(after(pieces - 1))).ok()
}

/// Returns the number of pieces common to two divisions.
fn common(a: u64, b: u64) -> u64 {
    let (mut high, mut low) = (a.max(b), a.min(b));
    while low > 0 {
        (high, low) = (low, high % low);
    }
    high
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_divisions_have_their_common_pieces() {
        for (a, b, pieces) in [(16, 24, 8), (24, 16, 8), (7, 5, 1), (6, 6, 6), (1, 9, 1), (0, 4, 4)]
        {
            assert_eq!(common(a, b), pieces, "{a} and {b}");
        }
    }
}
