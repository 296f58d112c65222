//! Operator order: the order of nodes decides which values are live at the same step.
//!
//! The live bytes after some nodes have run depend on the *set* of executed nodes, not on the
//! order. So orders are paths through sets of executed nodes, and the best order is the path with
//! the lowest highest point: a search over sets, not over permutations (Serenity: Ahn et al.,
//! `MLSys` 2020).

mod depth_first;
mod order_model;
mod order_search;

use alloc::vec::Vec;

use crate::base::{NodeId, Result};
use crate::graph::{Graph, ValueKind};
use crate::liveness::LivenessOptions;
use order_model::OrderModel;

/// Work limits for an order search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OrderLimits {
    /// Sets of executed nodes to visit in the complete search.
    pub states: usize,
    /// Sets to keep per number of executed nodes if the complete search is too large; 0 disables
    /// the beam search.
    pub width: usize,
    /// Table entries to read or write in both searches together, about ten nanoseconds each. A node
    /// with an operand that has many pieces takes longer than other nodes.
    pub work: usize,
}

/// An order, and the scope of its proof.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FoundOrder {
    /// Every node once, each after its dependencies.
    pub order: Vec<NodeId>,
    /// Most live bytes at a step, with outputs in place of dying inputs where most useful.
    pub peak: u64,
    /// Most live bytes at a step in the graph's own order, counted in the same way.
    pub given: u64,
    /// Most bytes that a node needs by itself: inputs and outputs.
    pub floor: u64,
    /// Whether no order has a lower peak.
    pub is_optimal: bool,
    /// Table entries that the search read or wrote.
    pub work: usize,
}

/// Returns an order of `graph` with as few live bytes as possible.
///
/// The search calls `stop` now and then, and returns the best order so far if the result is true.
/// Orders are compared by live bytes over all spaces; the caller packs the result.
///
/// # Errors
///
/// [`SizeOverflow`](crate::Error::SizeOverflow) if sizes overflow.
///
/// # References
///
/// Ahn et al., "Ordering chaos: memory-aware scheduling of irregularly wired neural networks for
/// edge devices", `MLSys` 2020, also search by dynamic programming over sets.
pub fn find_order(
    graph: &Graph,
    options: LivenessOptions,
    limits: OrderLimits,
    stop: &dyn Fn() -> bool,
) -> Result<FoundOrder> {
    Ok(Orders::new(graph, options)?.best(limits, stop))
}

/// The orders of a graph, before the choice.
pub(crate) struct Orders {
    model: OrderModel,
    floor: u64,
}

impl Orders {
    /// Returns the orders of `graph`.
    pub(crate) fn new(graph: &Graph, options: LivenessOptions) -> Result<Self> {
        let model = OrderModel::new(graph, options)?;
        let floor = order_search::floor_of(&model, |_| 0);
        Ok(Self { model, floor })
    }

    /// Returns the most bytes that a node needs by itself, in any order: inputs and outputs, minus
    /// bytes that an output can take over.
    pub(crate) const fn floor(&self) -> u64 {
        self.floor
    }

    /// Returns the floor if outputs may also overlap inputs.
    ///
    /// `graph` is the graph of the orders.
    pub(crate) fn floor_with_overlaps(&self, graph: &Graph) -> u64 {
        let model = &self.model;
        order_search::floor_of(model, |node| {
            let made = node.writes.first().map_or(0, |&output| model.size(output));
            let operands = graph.node(node.id);
            let saved = graph.overlaps(node.id, false).into_iter().filter_map(|overlap| {
                let input = operands.input(overlap.input)?;
                let is_callers = graph.value(input).kind() != ValueKind::Activation;
                (!is_callers)
                    .then(|| model.size(input.into()).min(made.saturating_sub(overlap.distance)))
            });
            saved.fold(0, u64::saturating_add).min(made)
        })
    }

    /// Returns the order with the fewest live bytes found within the limits.
    pub(crate) fn best(&self, limits: OrderLimits, stop: &dyn Fn() -> bool) -> FoundOrder {
        order_search::best_order(&self.model, self.floor, limits, stop)
    }
}
