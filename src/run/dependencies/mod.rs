//! Hazards: the steps that each plan step must wait for.
//!
//! A step uses the lent bytes: inputs for reading; outputs, states and workspaces for writing. An
//! input that an output takes over is lent whole for writing. Two steps *conflict* if both use a
//! byte that at least one step writes. A step also depends on its operands' producers and on
//! control dependencies. Such steps keep the plan's order.
//!
//! A sweep over the steps (`bytes.rs`) finds the pairs, leaving out most pairs that follow from
//! others; `reduce.rs` removes the rest.

mod bytes;
mod reduce;

use alloc::{borrow::ToOwned as _, vec::Vec};

use crate::base::{NodeId, Result, ValueId};
use crate::graph::Graph;
use crate::plan::{Hazard, HazardKind, Hazards, Plan, PlanStep};
use crate::run::arena::{StepSpans, settle};

impl Plan {
    /// Checks the plan against its graph, and returns the dependencies between steps, without
    /// dependencies that follow from others.
    ///
    /// A runner that starts each step after the required steps may run all other steps in any order
    /// and concurrently: every step finds the same bytes as in the plan's order. The time is nearly
    /// linear in the number of operands.
    ///
    /// # Errors
    ///
    /// As [`check`](Self::check).
    pub fn hazards(&self, graph: &Graph) -> Result<Hazards> {
        self.check(graph)?;
        Ok(hazards_of(self, &ordered(self, graph), &settled(self, graph)?))
    }
}

/// Returns the memory of every plan step.
///
/// # Errors
///
/// As [`settle`], if the plan is not valid.
pub(crate) fn settled(plan: &Plan, graph: &Graph) -> Result<Vec<StepSpans>> {
    let settled = |step| settle(plan, step, &states(plan, graph, step));
    plan.steps().iter().map(settled).collect()
}

/// Returns the states that a step writes, by input position, except states whose bytes are written
/// as a result of the step.
fn states(plan: &Plan, graph: &Graph, step: &PlanStep) -> Vec<(usize, ValueId)> {
    let id = NodeId::from(step.node);
    let place = |value| {
        let placement = plan.placement(value)?;
        Some((placement.space, placement.offset))
    };
    let assignment = graph.assignment(id);
    let assigned = assignment.filter(|it| place(it.state) == place(it.result));
    let node = graph.node(id);
    let mutates = node.effects().mutates.iter();
    let states = mutates.filter_map(|&position| Some((position, node.input(position)?)));
    states.filter(|(_, value)| assigned.is_none_or(|it| it.state != *value)).collect()
}

/// Returns the reduced dependencies between steps with the given memory; `ordered` has the graph's
/// own dependencies.
pub(crate) fn hazards_of(plan: &Plan, ordered: &[Hazard], spans: &[StepSpans]) -> Hazards {
    let mut edges = bytes::conflicts(plan, spans);
    edges.extend_from_slice(ordered);
    // Of several reasons for a pair, the first kind stays.
    edges.sort_unstable();
    edges.dedup_by_key(|edge| (edge.after, edge.before));
    let reduced = reduce::reduced(spans.len(), &edges);
    let (model, digest) = (plan.model().to_owned(), plan.digest().to_owned());
    Hazards::new(model, digest, spans.len(), reduced).expect("edges lead to later steps, once each")
}

/// Returns the dependencies between steps that the graph has, whatever bytes the steps use.
pub(crate) fn ordered(plan: &Plan, graph: &Graph) -> Vec<Hazard> {
    let mut edges = Vec::with_capacity(plan.steps().len());
    for (after, step) in (0_u32..).zip(plan.steps()) {
        for id in step.nodes() {
            let mut note = |node: NodeId, kind| {
                if step.fused.contains(&node.into()) {
                    return; // The node also runs in this step.
                }
                let before = plan.step_of.get(node.index()).copied().unwrap_or(after);
                if before < after {
                    edges.push(Hazard { after, before, kind });
                }
            };
            for (_, value) in graph.node(id).reads_bytes_of() {
                if let Some(producer) = graph.producer(value) {
                    note(producer, HazardKind::Data);
                }
            }
            graph.dependencies(id).for_each(|before| note(before, HazardKind::Control));
        }
    }
    edges
}
