//! Lifetimes: the live range by value.

use alloc::{vec, vec::Vec};

use crate::base::{LiveRange, NodeId, Step, ValueId};
use crate::graph::{Graph, Reachability, ValueKind};

/// The live range of every value, for a given execution order.
///
/// A value is live from the step that produces the value until after the last step that reads the
/// value's bytes. Graph inputs and states are live from step 0. Graph outputs, values that are
/// written back, states that no value replaces, and preserved inputs are live until the end. A
/// value without readers is live for a single step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lifetimes {
    live: Vec<Option<LiveRange>>,
    horizon: Step,
    /// The step ends, if several workers run the steps.
    ends: Option<Ends>,
}

/// The ends of steps that run at the same time as other steps.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Ends {
    /// For each step: the first step that starts after the step has ended.
    until: Vec<Step>,
    /// For each value: the last two ends among the steps that use the value, each with the last
    /// such step.
    last: Vec<[(Step, Option<Step>); 2]>,
}

impl Ends {
    /// Notes that a step uses a value.
    fn note(&mut self, value: ValueId, step: Step) {
        self.keep(value, self.until[step.index()], Some(step));
    }

    /// Notes that a value is needed until `end`, by one step, or by the caller.
    fn keep(&mut self, value: ValueId, end: Step, by: Option<Step>) {
        let [first, second] = &mut self.last[value.index()];
        if by.is_some() && first.1 == by {
            return;
        }
        if end >= first.0 {
            (*second, *first) = (*first, (end, by));
        } else if end > second.0 {
            *second = (end, by);
        }
    }
}

impl Lifetimes {
    /// Returns the live ranges of values when `graph` runs in `order`.
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
        for output in graph.read_at_end() {
            if let Some((_, end)) = &mut live[output.index()] {
                *end = horizon;
            }
        }
        Self { live: live.into_iter().map(|ends| ends.map(range)).collect(), horizon, ends: None }
    }

    /// Returns the live ranges of values when several workers run `graph`, and the steps start in
    /// `order`. `until` has for each step the first step that starts after the step has ended.
    ///
    /// A value is live until the first step that starts after all readers have ended. So values
    /// with disjoint ranges are never needed at the same time.
    #[must_use]
    pub fn in_timetable(
        graph: &Graph,
        order: &[NodeId],
        until: &[Step],
        preserve_inputs: bool,
    ) -> Self {
        let mut times = Self::new(graph, order, preserve_inputs);
        let last = vec![[(Step::default(), None); 2]; graph.values().len()];
        let mut ends = Ends { until: until.to_vec(), last };
        for (step, &id) in order.iter().enumerate() {
            let (step, node) = (Step::at(step), graph.node(id));
            let used = node.reads_bytes_of().chain(node.produces()).map(|(_, value)| value);
            for value in used {
                let end = ends.until[step.index()];
                if let Some(live) = &mut times.live[value.index()] {
                    ends.note(value, step);
                    *live = range((live.start(), live.end().max(end)));
                }
            }
        }
        let overwritten = graph.overwritten();
        let states = graph.values().iter().enumerate().filter_map(|(index, value)| {
            let is_kept = value.kind() == ValueKind::State
                || value.kind() == ValueKind::Input && preserve_inputs;
            (is_kept && !overwritten[index]).then(|| ValueId::new(index))
        });
        for value in states.chain(graph.read_at_end()) {
            ends.keep(value, times.horizon.next(), None);
        }
        times.ends = Some(ends);
        times
    }

    /// Returns the first step that starts after a step has ended.
    pub fn until(&self, step: Step) -> Step {
        self.ends.as_ref().map_or(step.next(), |ends| ends.until[step.index()])
    }

    /// Returns whether `step` is the last user of `value`, and all other users have ended when
    /// `step` starts.
    pub(crate) fn dies(&self, value: ValueId, step: Step) -> bool {
        let Some(live) = self.of(value) else { return false };
        let Some(ends) = &self.ends else { return live.end() == step.next() };
        let [first, second] = ends.last[value.index()];
        let others = if first.1 == Some(step) { second.0 } else { first.0 };
        live.end() == ends.until[step.index()] && others <= step
    }

    /// Returns live ranges that hold in every order that the graph permits.
    ///
    /// Step *k* stands for the *k*-th node to run. A node with *a* nodes before and *d* nodes
    /// behind in every order runs at a step in `[a, n - d)`. Two nodes that may run in either order
    /// have overlapping windows: otherwise the nodes before the first and behind the second would
    /// be more than `n`. So values whose ranges, made of such windows, are disjoint are apart in
    /// every order.
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
        for output in graph.read_at_end() {
            if let Some((_, end)) = &mut live[output.index()] {
                *end = horizon;
            }
        }
        Self { live: live.into_iter().map(|ends| ends.map(range)).collect(), horizon, ends: None }
    }

    /// Returns the live range of `value`, or `None` for a constant.
    pub fn of(&self, value: ValueId) -> Option<LiveRange> {
        self.live[value.index()]
    }

    /// Returns the step at which the run is over.
    pub const fn horizon(&self) -> Step {
        self.horizon
    }
}

/// Returns the live ranges of values without a producer, before any reader.
fn supplied(graph: &Graph, preserve_inputs: bool, horizon: Step) -> Vec<Option<(Step, Step)>> {
    let start = Step::new(0);
    let first = Some((start, Step::new(1)));
    graph
        .values()
        .iter()
        .zip(graph.overwritten())
        .map(|(value, is_overwritten)| match value.kind() {
            ValueKind::Input | ValueKind::State if is_overwritten => first,
            ValueKind::Input if preserve_inputs => Some((start, horizon)),
            ValueKind::State => Some((start, horizon)),
            ValueKind::Input => first,
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
