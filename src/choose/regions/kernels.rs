//! Kernels: nodes that one call performs on some rows, with the call's memory and time.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::{format, vec, vec::Vec};

use super::stage::Stage;
use crate::base::{Error, NodeId, Result, ValueId};
use crate::graph::{Graph, ValueKind, Window};

/// A way to run something: scratch memory, or all memory that is in use meanwhile, and time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Way {
    /// Bytes.
    pub bytes: u64,
    /// Time, in a unit common to a search.
    pub time: u64,
}

/// The ways to make some result rows in one call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowCost {
    /// Result rows.
    pub rows: u64,
    /// Scratch memory and time, per tried scratch size: as many entries as for all other kernels in
    /// a search, or none if the kernel cannot make so many rows.
    pub ways: Vec<Way>,
}

/// Nodes that one call performs, on any rows of the last node's result.
///
/// Every node except the first makes its result in the previous node's rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowKernel {
    /// The nodes, in order.
    pub nodes: Vec<NodeId>,
    /// The first node's operand in whose rows the node makes its result, if any.
    pub takes: Option<ValueId>,
    /// The costs of some row counts, ascending. Costs are interpolated linearly between row counts;
    /// more rows than the last count cost as much as the last count.
    pub costs: Vec<RowCost>,
}

/// The time of moving rows needed by a later strip to the front of their line buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RowMoveCost {
    /// Time per call, which moves as many rows as are new.
    pub call: u64,
    /// Time per thousand bytes.
    pub thousand_bytes: u64,
}

impl RowKernel {
    /// Returns the ways to make so many rows; empty if impossible.
    pub(super) fn ways(&self, rows: u64) -> Vec<Way> {
        let after = self.costs.partition_point(|cost| cost.rows < rows);
        let Some(high) = self.costs.get(after).or(self.costs.last()) else { return Vec::new() };
        let low = after.checked_sub(1).and_then(|at| self.costs.get(at));
        let Some(low) = low.filter(|low| !low.ways.is_empty() && low.rows < high.rows) else {
            return high.ways.clone();
        };
        let part = |low: u64, high: u64, position: u64, length: u64| -> u64 {
            let sum = u128::from(low) * u128::from(length - position)
                + u128::from(high) * u128::from(position);
            u64::try_from(sum.div_ceil(u128::from(length))).unwrap_or(u64::MAX)
        };
        let (position, length) = (rows.min(high.rows) - low.rows, high.rows - low.rows);
        let between = |(low, high): (&Way, &Way)| Way {
            bytes: part(low.bytes, high.bytes, position, length),
            time: part(low.time, high.time, position, length),
        };
        low.ways.iter().zip(&high.ways).map(between).collect()
    }
}

/// The kernels of a graph.
#[derive(Debug)]
pub(crate) struct Kernels {
    /// By node.
    stages: Vec<Option<Stage>>,
    /// By value: the nodes that name the value; `None` if the value is also needed elsewhere.
    users: Vec<Option<Vec<NodeId>>>,
    /// By node: the kernel's position.
    of_node: Vec<Option<usize>>,
    all: Vec<RowKernel>,
    pub(super) moves: RowMoveCost,
    /// Number of tried scratch sizes.
    pub(super) sizes: usize,
}

impl Kernels {
    /// Returns a kernel without scratch memory for every node that makes rows from rows; each call
    /// takes one time unit. `makes_rows` says with which windows the runner makes rows.
    pub(super) fn of_each_node(graph: &Graph, makes_rows: &dyn Fn(&[Window]) -> bool) -> Self {
        let mut found = Self::without(graph, RowMoveCost::default(), 1);
        for (index, stage) in found.stages.iter().enumerate() {
            let windows = &graph.nodes()[index].effects().windows;
            let Some(stage) = stage.as_ref().filter(|_| makes_rows(windows)) else { continue };
            found.of_node[index] = Some(found.all.len());
            let ways = vec![Way { bytes: 0, time: 1 }];
            found.all.push(RowKernel {
                nodes: vec![NodeId::new(index)],
                takes: stage.may_take.first().copied(),
                costs: vec![RowCost { rows: 1, ways }],
            });
        }
        found
    }

    fn without(graph: &Graph, moves: RowMoveCost, sizes: usize) -> Self {
        let users = graph.users();
        let stages = graph.nodes().iter().map(|node| Stage::of(graph, node, &users)).collect();
        let of_node = vec![None; graph.nodes().len()];
        let mut users: Vec<_> = users.into_iter().map(Some).collect();
        for (value, users) in graph.values().iter().zip(&mut users) {
            if value.kind() != ValueKind::Activation {
                *users = None;
            }
        }
        for output in graph.outputs() {
            users[output.index()] = None;
        }
        Self { stages, users, of_node, all: Vec::new(), moves, sizes }
    }

    /// Returns the given kernels.
    ///
    /// # Errors
    ///
    /// [`InvalidOption`](Error::InvalidOption) if a kernel cannot make its result some rows at a
    /// time, or its costs are not ascending.
    pub(crate) fn new(graph: &Graph, kernels: Vec<RowKernel>, moves: RowMoveCost) -> Result<Self> {
        let refused = |at: usize, reason: &str| {
            let reason = format!("kernel {at} {reason}");
            Err(Error::InvalidOption { option: "kernels", reason })
        };
        let ways = |kernel: &RowKernel| kernel.costs.iter().map(|cost| cost.ways.len()).max();
        let sizes = kernels.iter().filter_map(ways).max().unwrap_or(0);
        let mut found = Self::without(graph, moves, sizes);
        for (at, kernel) in kernels.iter().enumerate() {
            let mut before = None;
            for (position, &id) in kernel.nodes.iter().enumerate() {
                let Some(Some(stage)) = found.stages.get(id.index()) else {
                    return refused(at, "has a node that does not make rows from rows");
                };
                let takes = if position == 0 { kernel.takes } else { before };
                if takes.is_some_and(|value| !stage.may_take.contains(&value)) {
                    return refused(at, "makes a result in rows that it cannot take over");
                }
                if found.of_node[id.index()].replace(at).is_some() {
                    return refused(at, "has a node of another kernel");
                }
                before = Some(stage.value);
            }
            if kernel.nodes.is_empty() || kernel.costs.is_empty() {
                return refused(at, "has no nodes or no costs");
            }
            let is_ascending = kernel.costs.is_sorted_by(|a, b| a.rows < b.rows);
            let is_whole = |cost: &RowCost| [0, sizes].contains(&cost.ways.len());
            if !is_ascending || !kernel.costs.iter().all(is_whole) {
                return refused(at, "has costs of descending rows, or of too few sizes");
            }
        }
        found.all = kernels;
        Ok(found)
    }

    /// Returns a node that a kernel performs.
    pub(super) fn stage(&self, node: NodeId) -> Option<&Stage> {
        self.of(node).and_then(|_| self.stages.get(node.index())?.as_ref())
    }

    /// Returns the kernel that performs a node.
    pub(super) fn of(&self, node: NodeId) -> Option<&RowKernel> {
        let kernel = *self.of_node.get(node.index())?;
        self.all.get(kernel?)
    }

    /// Returns the value in whose rows a node makes its result, if any.
    fn taken_by(&self, node: NodeId) -> Option<ValueId> {
        let kernel = self.of(node)?;
        match kernel.nodes.iter().position(|&id| id == node)? {
            0 => kernel.takes,
            at => Some(self.stage(kernel.nodes[at - 1])?.value),
        }
    }

    /// Returns, by value that nodes make in another value's rows, the node that takes the rows
    /// over.
    pub(super) fn takers(&self, nodes: &[NodeId]) -> BTreeMap<ValueId, NodeId> {
        let made: BTreeSet<ValueId> =
            nodes.iter().filter_map(|&id| self.stage(id)).map(|stage| stage.value).collect();
        let taken = nodes.iter().filter_map(|&id| Some((self.taken_by(id)?, id)));
        taken.filter(|(value, _)| made.contains(value)).collect()
    }

    /// Returns nodes in an order in which each kernel's nodes are adjacent, with the kernels;
    /// `None` if a kernel is incomplete.
    pub(super) fn in_order(&self, nodes: &[NodeId]) -> Option<Vec<&RowKernel>> {
        let mut found: Vec<&RowKernel> = Vec::new();
        for &id in nodes {
            let kernel = self.of(id)?;
            if kernel.nodes.last() == Some(&id) {
                found.push(kernel);
            }
        }
        let inside: BTreeSet<&NodeId> = nodes.iter().collect();
        let performed = || found.iter().flat_map(|kernel| &kernel.nodes);
        let is_whole = performed().count() == nodes.len() && inside.len() == nodes.len();
        (is_whole && performed().all(|id| inside.contains(id))).then_some(found)
    }
}

/// The nodes of a region, added from the last node backward.
#[derive(Debug, Default)]
pub(super) struct Inside<'k> {
    pub(super) nodes: BTreeSet<NodeId>,
    readers: BTreeMap<ValueId, Vec<&'k Stage>>,
}

impl<'k> Inside<'k> {
    /// Adds a kernel before the present kernels; returns whether its results are needed only
    /// inside, and by rows. The last result may be needed anywhere.
    pub(super) fn add(&mut self, kernels: &'k Kernels, kernel: &RowKernel) -> bool {
        for &id in kernel.nodes.iter().rev() {
            let is_last = self.nodes.is_empty();
            let Some(stage) = kernels.stage(id) else { return false };
            if !self.nodes.insert(id) {
                return false; // The node runs in several steps.
            }
            let users = kernels.users[stage.value.index()].as_ref();
            let stays = users.is_some_and(|users| {
                !users.is_empty() && users.iter().all(|user| self.nodes.contains(user))
            });
            let readers = self.readers.get(&stage.value);
            let is_read_by_rows =
                readers.is_none_or(|readers| readers.iter().all(|reader| reader.can_follow(stage)));
            if !(is_last || (stays && is_read_by_rows)) {
                return false;
            }
            for value in stage.operands() {
                self.readers.entry(value).or_default().push(stage);
            }
        }
        true
    }
}
