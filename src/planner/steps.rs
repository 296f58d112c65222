//! Plans for given steps.

use alloc::{format, vec::Vec};

use super::assemble::assemble;
use super::attempt::with_copies;
use super::context::Context;
use super::lines::with_line_buffers;
use super::memory_choice::best_of;
use super::other_orders::floor;
use super::scope::skips_overlaps;
use super::step_schedule::StepSchedule;
use super::workers::{add_timetable, for_workers};
use crate::base::{Error, NodeId, Result, quoted};
use crate::graph::Graph;
use crate::plan::{Granularity, OrderSearch, Plan, Search, Technique};

/// A plan for given steps.
pub(super) struct Stepped {
    pub(super) plan: Plan,
    /// Whether possible overlaps were not tried.
    skips_overlaps: bool,
    /// Bytes that some step needs by itself.
    floor: u64,
}

/// Returns an unchecked plan that runs `steps`, which were derived from another plan. The scope of
/// the other plan's step choice is copied, as far as valid for these steps.
pub(super) fn plan_after(
    context: &Context<'_>,
    graph: &Graph,
    steps: &[Vec<NodeId>],
    other: &Plan,
) -> Result<Plan> {
    let Stepped { mut plan, skips_overlaps, floor: lowest } = with_steps(context, graph, steps)?;
    let same = plan.steps.len() == other.steps.len()
        && plan
            .steps
            .iter()
            .zip(&other.steps)
            .all(|(a, b)| (a.node, &a.fused) == (b.node, &b.fused));
    plan.search = other.search().map(|Search { order, floor, skipped, .. }| Search {
        skipped: if skips_overlaps && context.options.optimize.contains(Technique::Overlap) {
            skipped.with(Technique::Overlap)
        } else {
            skipped
        },
        order: match order {
            // Another order might have fewer bytes at the step with a costly workspace.
            OrderSearch::Complete if !same || plan.lower_bound() > other.lower_bound() => {
                OrderSearch::Beam
            }
            order => order,
        },
        // These steps may need fewer bytes than the other plan knew.
        floor: floor.min(plan.lower_bound()).min(lowest),
        estimate: None,
    });
    Ok(plan)
}

/// Returns a plan that runs `steps` and is not checked yet.
pub(super) fn with_steps(
    context: &Context<'_>,
    graph: &Graph,
    steps: &[Vec<NodeId>],
) -> Result<Stepped> {
    let is_grouped = steps.iter().any(|step| step.len() > 1);
    if is_grouped && context.target.granularity() == Granularity::Node {
        let name = quoted(context.target.name());
        let reason = format!("target {name} runs one node at a time");
        return Err(Error::InvalidOption { option: "steps", reason });
    }
    for (node, _) in context.strips {
        if !steps.iter().any(|step| step.len() > 1 && step.last() == Some(node)) {
            let reason = format!("node {node} is not the last of nodes that run as one");
            return Err(Error::InvalidOption { option: "strips", reason });
        }
    }
    if context.strips.is_empty() || context.has_workspaces() {
        unchecked(context, graph, steps, false)
    } else {
        // Line buffers hold rows of values, so line buffers are placed even if no scratch memory
        // is.
        let with_lines = with_line_buffers(graph, context.strips)?;
        let overlap = context.overlaps_in_strips();
        let mut stepped = unchecked(&context.with_workspaces(), &with_lines, steps, overlap)?;
        stepped.plan.options = context.options;
        Ok(stepped)
    }
}

/// Returns a plan that runs `steps`. Outputs of steps in strips overlap inputs only if told so.
fn unchecked(
    context: &Context<'_>,
    graph: &Graph,
    steps: &[Vec<NodeId>],
    overlap: bool,
) -> Result<Stepped> {
    let schedule = StepSchedule::in_strips(graph, steps, context.strips, overlap)?;
    let mut attempts = with_copies(context, schedule)?;
    if context.options.workers > 1 {
        attempts = for_workers(context, &attempts)?;
    }
    let best = best_of(context, &attempts)?;
    let mut plan = assemble(context, graph, &best.attempt.schedule, &best.placed);
    add_timetable(context, graph, &best.attempt.schedule, &mut plan)?;
    let floor = floor(context, &attempts)?;
    Ok(Stepped { plan, skips_overlaps: skips_overlaps(context, &attempts), floor })
}
