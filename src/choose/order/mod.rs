//! Operator order: the order of nodes decides which values are live at the same step.
//!
//! The live bytes after some nodes have run depend on the *set* of those nodes, not on their
//! order. So orders are paths through sets of executed nodes, and the best one is the path whose
//! highest point is lowest: a search over sets, not over permutations (Serenity: Ahn et al., `MLSys`
//! 2020).

mod depth_first;
mod order_model;
mod order_search;

use alloc::vec::Vec;

use crate::base::{NodeId, Result};
use crate::graph::{Graph, ValueKind};
use crate::liveness::LivenessOptions;
use order_model::OrderModel;

/// Limits of the work of a search for an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OrderLimits {
    /// Sets of executed nodes to visit in the complete search.
    pub states: usize,
    /// Sets to keep per number of executed nodes where the complete search is too much; 0
    /// leaves it at that.
    pub width: usize,
    /// Table entries to read or write in both searches together, about ten nanoseconds each:
    /// a node of which an operand has many pieces takes longer than others.
    pub work: usize,
}

/// An order, and the scope of its proof.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FoundOrder {
    /// Every node once, each after its dependencies.
    pub order: Vec<NodeId>,
    /// Bytes that are live at the highest step, with outputs in place of dying inputs where
    /// that helps most.
    pub peak: u64,
    /// Bytes that are live at the highest step of the graph's own order, by the same count.
    pub given: u64,
    /// Bytes that some node needs by itself: its inputs and outputs.
    pub floor: u64,
    /// Whether no order has a lower peak.
    pub is_optimal: bool,
    /// Table entries that the search read or wrote.
    pub work: usize,
}

/// Returns an order of `graph` in which as few bytes as possible are live at once.
///
/// `stop` is asked now and then whether to return the best order so far. Orders are compared
/// by bytes that are live, over all spaces; the caller packs the result.
///
/// # Errors
///
/// [`SizeOverflow`](crate::Error::SizeOverflow) if sizes overflow.
///
/// # References
///
/// Ahn et al., "Ordering chaos: memory-aware scheduling of irregularly wired neural networks
/// for edge devices", `MLSys` 2020, search by dynamic programming over sets too.
pub fn find_order(
    graph: &Graph,
    options: LivenessOptions,
    limits: OrderLimits,
    stop: &dyn Fn() -> bool,
) -> Result<FoundOrder> {
    Ok(Orders::new(graph, options)?.best(limits, stop))
}

/// The orders of a graph, before one is chosen.
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

    /// Returns the bytes that some node needs by itself, in any order: its inputs and outputs,
    /// less the bytes that an output can take over.
    pub(crate) const fn floor(&self) -> u64 {
        self.floor
    }

    /// Returns the same if outputs may overlap inputs besides.
    ///
    /// `graph` is the one that the orders are of.
    pub(crate) fn floor_with_overlaps(&self, graph: &Graph) -> u64 {
        let model = &self.model;
        order_search::floor_of(model, |node| {
            let made = node.writes.first().map_or(0, |&output| model.size(output));
            let operands = graph.node(node.id);
            let saved = graph.overlaps(node.id).into_iter().filter_map(|overlap| {
                let input = operands.input(overlap.input)?;
                let is_callers = graph.value(input).kind() != ValueKind::Activation;
                (!is_callers)
                    .then(|| model.size(input.into()).min(made.saturating_sub(overlap.distance)))
            });
            saved.fold(0, u64::saturating_add).min(made)
        })
    }

    /// Returns the order in which the fewest bytes are live at once, as far as the limits
    /// let it be found.
    pub(crate) fn best(&self, limits: OrderLimits, stop: &dyn Fn() -> bool) -> FoundOrder {
        order_search::best_order(&self.model, self.floor, limits, stop)
    }
}
