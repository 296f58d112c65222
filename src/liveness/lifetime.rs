//! Lifetimes: the live range of each value.

use crate::base::{LiveRange, NodeId, Step, ValueId};
use crate::graph::{Graph, Reachability, ValueKind};

/// The live range of every value, under one execution order.
///
/// A value is live from the step that produces it until after the last step that
/// reads its bytes. Graph inputs and states are live from step 0; graph outputs and
/// states, and inputs that are to be preserved, until the end; a value without readers, for the
/// one step that produces it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lifetimes {
    live: Vec<Option<LiveRange>>,
    horizon: Step,
}

impl Lifetimes {
    /// Returns the live ranges of `graph`'s values when it runs in `order`.
    #[must_use]
    pub fn new(graph: &Graph, order: &[NodeId], preserve_inputs: bool) -> Self {
        let horizon = Step::at(order.len().max(1));
        let mut live = supplied(graph, preserve_inputs, horizon);
        for (step, &id) in order.iter().enumerate() {
            let (step, node) = (Step::at(step), graph.node(id));
            for (_, value) in node.reads_bytes_of() {
                if let Some((_, end)) = &mut live[value.index()] {
                    *end = (*end).max(step.next());
                }
            }
            for (_, value) in node.produces() {
                live[value.index()] = Some((step, step.next()));
            }
        }
        for output in graph.outputs() {
            if let Some((_, end)) = &mut live[output.index()] {
                *end = horizon;
            }
        }
        Self { live: live.into_iter().map(|ends| ends.map(range)).collect(), horizon }
    }

    /// Returns live ranges that hold in every order that the graph permits.
    ///
    /// Step *k* stands for the *k*-th node to run, whichever it is. A node with *a* nodes
    /// before it and *d* behind it in every order runs at a step in `[a, n - d)`. Two nodes
    /// that may run in either order have such windows in common, or else the nodes before
    /// the one and those behind the other were more than there are; so values whose ranges
    /// made of windows are apart are apart in every order.
    #[must_use]
    pub fn in_every_order(graph: &Graph, reach: &Reachability, preserve_inputs: bool) -> Self {
        let horizon = Step::at(graph.order().len().max(1));
        let mut live = supplied(graph, preserve_inputs, horizon);
        for &id in graph.order() {
            let window = node_window(reach, id, horizon);
            for (_, value) in graph.node(id).produces() {
                live[value.index()] = Some((window.start(), window.end()));
            }
        }
        for &id in graph.order() {
            let window = node_window(reach, id, horizon);
            for (_, value) in graph.node(id).reads_bytes_of() {
                if let Some((_, end)) = &mut live[value.index()] {
                    *end = (*end).max(window.end());
                }
            }
        }
        for output in graph.outputs() {
            if let Some((_, end)) = &mut live[output.index()] {
                *end = horizon;
            }
        }
        Self { live: live.into_iter().map(|ends| ends.map(range)).collect(), horizon }
    }

    /// Returns when `value` is live, or `None` if it is a constant.
    pub fn of(&self, value: ValueId) -> Option<LiveRange> {
        self.live[value.index()]
    }

    /// Returns the step at which the run is over.
    pub const fn horizon(&self) -> Step {
        self.horizon
    }
}

/// Returns the live ranges of values that no node produces, before any reader.
fn supplied(graph: &Graph, preserve_inputs: bool, horizon: Step) -> Vec<Option<(Step, Step)>> {
    let start = Step::new(0);
    graph
        .values()
        .iter()
        .map(|value| match value.kind() {
            ValueKind::Input if preserve_inputs => Some((start, horizon)),
            ValueKind::State => Some((start, horizon)),
            ValueKind::Input => Some((start, Step::new(1))),
            ValueKind::Constant | ValueKind::Activation | ValueKind::Inner => None,
        })
        .collect()
}

/// Returns the live range with these ends.
fn range((start, end): (Step, Step)) -> LiveRange {
    LiveRange::new(start.get(), end.get()).expect("a value lives at least one step")
}

/// Returns the steps at which `node` runs in some order.
pub(super) fn node_window(reach: &Reachability, node: NodeId, horizon: Step) -> LiveRange {
    let end = horizon.get() - reach.descendants(node);
    range((Step::new(reach.ancestors(node)), Step::new(end)))
}
