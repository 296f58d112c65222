//! When each value is needed.

use crate::graph::{Graph, ValueKind};
use crate::index::{NodeId, ValueId};
use crate::units::{LiveRange, Step};

/// The live range of every value, under one execution order.
///
/// A value is live from the step that produces it until after the last step that
/// reads its bytes. Graph inputs and states are live from step 0; graph outputs and
/// states, and inputs that are to be preserved, until the end; a value that nobody
/// reads, for the one step that produces it.
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
        let mut live: Vec<Option<(Step, Step)>> = graph
            .values()
            .iter()
            .map(|value| match value.kind() {
                ValueKind::Input if preserve_inputs => Some((Step::new(0), horizon)),
                ValueKind::State => Some((Step::new(0), horizon)),
                ValueKind::Input => Some((Step::new(0), Step::new(1))),
                ValueKind::Constant | ValueKind::Activation => None,
            })
            .collect();
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
        let range = |(start, end): (Step, Step)| {
            LiveRange::new(start.get(), end.get()).expect("a value lives at least one step")
        };
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
