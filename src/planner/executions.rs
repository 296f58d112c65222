//! Recomputation with scratch memory.
//!
//! The schedule search counts values only. So the budget for values follows from the scratch memory
//! that the kernels of the executions turn out to need.

use alloc::vec::Vec;

use super::Planner;
use super::goal::{Goal, fast_bytes};
use crate::base::{Error, Execution, NodeId, Result};
use crate::choose::time::KnownCosts;
use crate::choose::{Costs, StepCost, StepForm};
use crate::graph::Graph;
use crate::pack::Space;
use crate::plan::{Paging, Plan, WorkspacePolicy};

/// Value budgets tried for one budget of values and scratch memory.
const ATTEMPTS: usize = 6;
/// Most extra work in the search for the smallest arena, in millionths.
const MOST_EXTRA: u64 = 1_000_000;

/// Costs by execution: an execution costs as much as the executed node.
#[derive(Debug)]
struct ExecutionCosts<'a> {
    runner: &'a dyn Costs,
    origin: &'a [Execution],
}

impl Costs for ExecutionCosts<'_> {
    fn step(&self, nodes: &[NodeId], form: StepForm<'_>) -> Option<StepCost> {
        let origin = |node: &NodeId| match self.origin.get(node.index()) {
            Some(&Execution::Run(origin)) => Some(origin),
            _ => None,
        };
        let nodes: Option<Vec<NodeId>> = nodes.iter().map(origin).collect();
        self.runner.step(&nodes?, form)
    }
}

/// Returns the best plan of `graph` with scratch memory that meets a goal, with or without a slow
/// memory. Of equal plans, the plan without slow memory is returned.
pub(super) fn with_scratch(
    planner: &Planner<'_>,
    graph: &Graph,
    goal: Goal,
    costs: &dyn Costs,
) -> Result<Plan> {
    let unpaged = Planner { paging: None, ..*planner };
    let paged = planner.paging.map(|_| *planner);
    let worth = |plan: &Plan| match goal {
        Goal::Extra(_) => fast_bytes(plan),
        Goal::Bytes(_) | Goal::Strategy(_) => plan.recomputed().map_or(0, |it| it.extra_cost),
    };
    let mut best: Option<Plan> = None;
    let mut refused = None;
    for way in [Some(unpaged), paged].into_iter().flatten() {
        match meeting(&way, graph, goal, costs) {
            Ok(found) if best.as_ref().is_none_or(|best| worth(&found) < worth(best)) => {
                best = Some(found);
            }
            Ok(_) => {}
            Err(error @ Error::RecomputeExceeded { .. }) => refused = Some(error),
            Err(error) => return Err(error),
        }
    }
    match (best, refused) {
        (Some(best), _) => Ok(best),
        (None, Some(error)) => Err(error),
        (None, None) => planner.plan(graph),
    }
}

/// Returns a plan with values and scratch memory that meets a goal.
fn meeting(planner: &Planner<'_>, graph: &Graph, goal: Goal, costs: &dyn Costs) -> Result<Plan> {
    let made = |goal| scheduled(planner, graph, goal, costs);
    let most = match goal {
        Goal::Strategy(_) => return made(goal),
        Goal::Extra(_) => {
            let (none, some) = (made(Goal::Extra(0))?, made(goal)?);
            return Ok(if fast_bytes(&some) < fast_bytes(&none) { some } else { none });
        }
        Goal::Bytes(most) => most,
    };
    let (mut budget, mut least, mut lowest) = (most, u64::MAX, 0);
    for _ in 0..ATTEMPTS {
        let found = match made(Goal::Bytes(budget)) {
            Ok(found) => found,
            Err(Error::RecomputeExceeded { floor, .. }) => {
                lowest = floor;
                break;
            }
            Err(error) => return Err(error),
        };
        let bytes = fast_bytes(&found);
        least = least.min(bytes);
        if bytes <= most {
            return Ok(found);
        }
        budget = budget.saturating_sub(bytes - most);
        if budget == 0 {
            break;
        }
    }
    let found = made(Goal::Extra(MOST_EXTRA))?;
    least = least.min(fast_bytes(&found));
    if fast_bytes(&found) <= most {
        return Ok(found);
    }
    let floor = found.recomputed().map_or(lowest, |it| it.floor);
    Err(Error::RecomputeExceeded { budget: most, least, floor })
}

/// Returns the plan with scratch memory of the schedule that values alone lead to.
fn scheduled(planner: &Planner<'_>, graph: &Graph, goal: Goal, costs: &dyn Costs) -> Result<Plan> {
    let bare = Planner { costs: None, ..*planner }.max_slowdown(None);
    let found = bare.workspace(WorkspacePolicy::None).of_values(graph, goal)?;
    let Some(recomputed) = found.recomputed() else { return planner.plan(graph) };
    let slow: Option<Space> = recomputed.paging.as_ref().map(Paging::to_space);
    let executions =
        graph.with_inner(&recomputed.inner)?.scheduled_with(&recomputed.schedule, slow.as_ref())?;
    let runner = ExecutionCosts { runner: costs, origin: &executions.origin };
    let alone: Vec<Vec<NodeId>> =
        (0..executions.graph.nodes().len()).map(|at| alloc::vec![NodeId::new(at)]).collect();
    let declared = KnownCosts::new(&runner).declared(&executions.graph, &alone, &[], &[])?;
    bare.plan_executions(graph, &declared, &found)
}
