//! The stages of a plan without scratch memory that kernels declare, up to the check.

use super::assemble::assemble;
use super::context::Context;
use super::joint_choice::candidates;
use super::memory_choice::best_of;
use super::scope::scope;
use super::strip_plans::planned_in_strips;
use super::workers::add_timetable;
use crate::base::Result;
use crate::graph::Graph;
use crate::plan::Plan;

/// Returns an unchecked plan of `graph`.
pub(super) fn unchecked(context: &Context<'_>, graph: &Graph) -> Result<Plan> {
    let attempts = candidates(context, graph)?;
    let best = best_of(context, &attempts)?;
    let mut plan = assemble(context, graph, &best.attempt.schedule, &best.placed);
    plan.search = Some(scope(context, &attempts, &best)?);
    add_timetable(context, graph, &best.attempt.schedule, &mut plan)?;
    Ok(planned_in_strips(context, graph, &attempts, &plan)?.unwrap_or(plan))
}
