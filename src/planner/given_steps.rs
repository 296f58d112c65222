//! Plans for steps that the caller gives.

use alloc::vec::Vec;

use super::Planner;
use super::accepted::accepted_plan;
use super::steps::{plan_after, with_steps};
use super::timed;
use crate::base::{NodeId, Result};
use crate::graph::Graph;
use crate::plan::Plan;

impl Planner<'_> {
    /// Returns a checked plan of `graph` that runs `steps`.
    ///
    /// Each step lists in order the nodes that [run as one](Graph::grouped). Every node is in one
    /// step.
    ///
    /// # Errors
    ///
    /// As [`plan`](Self::plan), and
    ///
    /// - [`InvalidGroup`](crate::Error::InvalidGroup) if the nodes in a step cannot run as one.
    /// - [`InvalidOption`](crate::Error::InvalidOption) if the steps do not run every node once,
    ///   after the node's dependencies.
    pub fn plan_steps(&self, graph: &Graph, steps: &[Vec<NodeId>]) -> Result<Plan> {
        let context = self.context(graph)?;
        if let Some(costs) = context.costs.filter(|_| context.has_workspaces()) {
            return timed::with_steps(&context, graph, costs, steps);
        }
        accepted_plan(&context, graph, |context| Ok(with_steps(context, graph, steps)?.plan))
    }

    /// Returns a checked plan of `graph` that runs the steps of another plan for the graph.
    ///
    /// For plans with workspaces, which depend on the fused groups. The scope of the step choice is
    /// copied, as far as valid for this plan.
    ///
    /// # Errors
    ///
    /// As [`plan_steps`](Self::plan_steps).
    pub fn plan_steps_of(&self, graph: &Graph, other: &Plan) -> Result<Plan> {
        let steps: Vec<_> = other.steps().iter().map(|step| step.nodes().collect()).collect();
        self.plan_steps_after(graph, &steps, other)
    }

    /// Returns a checked plan of `graph` that runs `steps`, which were derived from another plan
    /// for the graph.
    ///
    /// The scope of the other plan's step choice is copied, as far as valid for these steps.
    ///
    /// # Errors
    ///
    /// As [`plan_steps`](Self::plan_steps).
    pub fn plan_steps_after(
        &self,
        graph: &Graph,
        steps: &[Vec<NodeId>],
        other: &Plan,
    ) -> Result<Plan> {
        accepted_plan(&self.context(graph)?, graph, |context| {
            plan_after(context, graph, steps, other)
        })
    }
}
