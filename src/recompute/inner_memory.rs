//! Nodes with a choice of inner memory.
//!
//! The inner memory of a node is live at the steps of the node alone. So the choice follows from the
//! sequence and a number of bytes: each node takes the cheapest size that fits at each of its
//! executions. Sequences come from two searches, with the largest and with the smallest sizes.

use alloc::{vec, vec::Vec};

use super::narrow_ids::{at, narrow};
use super::retain_falling;
use super::sequence::Evaluation;
use super::sequence_model::SequenceModel;
use super::sequence_search::{SequenceCandidate, SequenceSearch};
use crate::base::NodeId;
use crate::graph::{ChosenInner, Graph, InnerSize};
use crate::liveness::LivenessOptions;

/// A node with a choice of inner memory.
struct InnerNode {
    node: u32,
    /// The sizes by falling bytes, each with the bytes in the arena.
    sizes: Vec<(InnerSize, u64)>,
}

/// The nodes of a graph that have a choice of inner memory.
pub(super) struct InnerMemory<'a> {
    nodes: Vec<InnerNode>,
    /// The search with the largest sizes.
    pub(super) largest: SequenceSearch<'a>,
    /// The schedules that no other one beats: ascending bytes, descending cost.
    pub(super) front: Vec<SizedSchedule>,
}

/// A sequence with chosen sizes of inner memory.
#[derive(Clone)]
pub(super) struct SizedSchedule {
    pub(super) found: SequenceCandidate,
    pub(super) inner: Vec<ChosenInner>,
}

/// Returns a model of a graph in which nodes have their smallest inner memory, at no cost: a bound
/// for this model holds for all choices.
pub(super) fn smallest(graph: &Graph, options: LivenessOptions) -> SequenceModel {
    let mut model = SequenceModel::new(graph, options);
    for (index, node) in graph.nodes().iter().enumerate() {
        let inner = graph.inner_memory(NodeId::new(index));
        if let (Some(size), Some(inner)) = (node.inner_sizes().last(), inner) {
            let bytes = options.alignment.round_up(size.bytes).unwrap_or(u64::MAX / 4);
            (model.bytes[inner.index()], model.own[inner.index()]) = (bytes, bytes);
        }
    }
    model
}

impl<'a> InnerMemory<'a> {
    /// Returns the nodes with a choice, and a search that starts from `orders`; `None` if there is no
    /// such node.
    pub(super) fn new(
        graph: &Graph,
        options: LivenessOptions,
        search: impl FnOnce(SequenceModel) -> SequenceSearch<'a>,
    ) -> Option<Self> {
        let rounded = |size: InnerSize| {
            (size, options.alignment.round_up(size.bytes).unwrap_or(u64::MAX / 4))
        };
        let mut nodes = Vec::new();
        for (index, node) in graph.nodes().iter().enumerate() {
            let Some(inner) = graph.inner_memory(NodeId::new(index)) else { continue };
            if !node.inner_sizes().is_empty() {
                let most = InnerSize { bytes: graph.value(inner).bytes(), extra_cost: 0 };
                let sizes = [most].into_iter().chain(node.inner_sizes().iter().copied());
                nodes.push(InnerNode { node: narrow(index), sizes: sizes.map(rounded).collect() });
            }
        }
        if nodes.is_empty() {
            return None;
        }
        let largest = search(SequenceModel::new(graph, options));
        Some(Self { nodes, largest, front: Vec::new() })
    }

    /// Chooses sizes for the sequences of both searches, for each number of bytes that matters.
    pub(super) fn choose(&mut self, smallest: &SequenceSearch<'_>) {
        self.largest.walk();
        let mut found = Vec::new();
        for candidate in smallest.front.iter().chain(&self.largest.front) {
            self.add_choices(&smallest.model, candidate, &mut found);
        }
        found.sort_by_key(|it| (it.found.peak, it.found.cost));
        retain_falling(&mut found, |it| it.found.cost);
        self.front = found;
    }

    /// Adds the choices for one sequence.
    fn add_choices(
        &self,
        model: &SequenceModel,
        candidate: &SequenceCandidate,
        found: &mut Vec<SizedSchedule>,
    ) {
        let mut evaluation = Evaluation::default();
        if !evaluation.run(model, &candidate.sequence) {
            return;
        }
        // For each node: the most live bytes beside its inner memory.
        let mut beside = vec![0; model.nodes.len()];
        for (&node, &live) in candidate.sequence.iter().zip(&evaluation.live) {
            beside[at(node)] = live.max(beside[at(node)]);
        }
        let needed = |node: &InnerNode, bytes: u64| {
            let least = node.sizes.last().map_or(0, |size| size.1);
            beside[at(node.node)].saturating_sub(least).saturating_add(bytes)
        };
        let mut limits = vec![evaluation.peak];
        for node in &self.nodes {
            limits.extend(node.sizes.iter().map(|size| needed(node, size.1)));
        }
        limits.retain(|&limit| limit >= evaluation.peak);
        limits.sort_unstable();
        limits.dedup();
        for limit in limits {
            let (mut inner, mut cost) = (Vec::new(), evaluation.cost);
            for node in &self.nodes {
                let mut sizes = node.sizes.iter().enumerate();
                let fits = sizes.find(|(_, size)| needed(node, size.1) <= limit);
                if let Some((_, &(size, _))) = fits.filter(|it| it.0 > 0) {
                    inner.push(ChosenInner { node: NodeId::from(node.node), bytes: size.bytes });
                    let runs = u64::from(evaluation.runs[at(node.node)]);
                    cost = cost.saturating_add(size.extra_cost.saturating_mul(runs));
                }
            }
            let sequence = candidate.sequence.clone();
            let sized = SequenceCandidate { peak: limit, cost, sequence };
            found.push(SizedSchedule { found: sized, inner });
        }
    }
}
