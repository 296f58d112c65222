//! The scope of a choice: the extent of the search, and the untried techniques.

use super::attempt::Attempt;
use super::context::{Context, MOST_NODES_TO_OVERLAP};
use super::joint_choice::MOST_NODES_TO_TRY;
use super::other_orders::floor;
use super::pack::{Best, Placed};
use crate::base::{Result, SpaceId};
use crate::graph::Graph;
use crate::liveness::Liveness;
use crate::pack::{Problem, max_load};
use crate::plan::{Effort, Granularity, OrderSearch, Provider, Search, Technique, Techniques};

/// Graphs with more nodes have no steps in strips.
const MOST_NODES_IN_STRIPS: usize = 5_000;

/// Returns the scope of the best attempt's choice, with a lower bound over all attempts and orders.
pub(super) fn scope(
    context: &Context<'_>,
    attempts: &[Attempt<'_>],
    best: &Best<'_, '_>,
) -> Result<Search> {
    let Best { attempt, placed: Placed { liveness, packing, .. } } = best;
    // Orders are compared as if no output overlapped an input.
    let overlaps = liveness.overlapped().next().is_some();
    // And without scratch memory, which another order may need at a lower step.
    let by_scratch = is_raised_by_scratch(liveness)?;
    // The bound also holds for one memory, in which values share all bytes that can be shared.
    let is_split = context.memories.is_some_and(|memories| memories.spaces().len() > 1);
    // And as if values shared bytes by all techniques.
    let shares_less = attempt.techniques != context.options.optimize;
    let order = match attempt.order {
        // Orders for one worker, too.
        _ if context.options.workers > 1 => OrderSearch::Beam,
        OrderSearch::Complete if overlaps || by_scratch || is_split || shares_less => {
            OrderSearch::Beam
        }
        order => order,
    };
    let mut skipped = skipped(context, attempts);
    if !overlaps && context.overlaps_inputs() && context.budget.exhausted() {
        skipped = skipped.with(Technique::Overlap);
    }
    let floor = floor(context, attempts)?.min(packing.lower_bound());
    Ok(Search { order, floor, skipped, estimate: None })
}

/// Returns whether the highest step of the first space has more live bytes than values alone have at
/// any step.
fn is_raised_by_scratch(liveness: &Liveness) -> Result<bool> {
    let problem = &liveness.problem;
    let values = problem.buffers().len() - liveness.workspaces.len();
    if values == problem.buffers().len() {
        return Ok(false);
    }
    let alone = Problem::new(problem.buffers()[..values].to_vec(), problem.spaces().to_vec())?;
    let load = |problem: &Problem| max_load(problem, SpaceId::new(0)).map(|(bytes, _)| bytes);
    Ok(load(problem)? > load(&alone)?)
}

/// Returns the options' techniques that were not tried: because of the graph's size, because nodes
/// may run in any order, or because time was up.
pub(super) fn skipped(context: &Context<'_>, attempts: &[Attempt<'_>]) -> Techniques {
    let given = attempts.iter().find(|attempt| attempt.schedule.is_given());
    let nodes = given.map_or(0, |attempt| attempt.schedule.order.len());
    let is_ordered = attempts.iter().any(|attempt| attempt.order != OrderSearch::Given);
    let in_any_order = context.options.parallel_safe;
    let is_late = context.budget.exhausted();
    let has_groups = attempts.iter().any(|attempt| attempt.fusion.elementwise);
    let has_streams =
        attempts.iter().any(|attempt| attempt.fusion != attempt.fusion.without_streams());
    let all = [
        (Technique::Fusion, in_any_order || (is_late && !has_groups)),
        (Technique::Order, !is_ordered),
        (
            Technique::Streaming,
            in_any_order
                || nodes > MOST_NODES_TO_TRY
                || (is_late && !has_streams)
                || given.is_some_and(|it| skips_strips(context, &it.schedule.graph)),
        ),
        (Technique::Overlap, skips_overlaps(context, attempts)),
        (
            Technique::Duplicate,
            (in_any_order || nodes > MOST_NODES_TO_TRY || is_late)
                && given.is_some_and(|attempt| attempt.schedule.graph.has_repeats()),
        ),
    ];
    let is_skipped = |&(technique, skipped): &(Technique, bool)| {
        skipped && context.options.optimize.contains(technique)
    };
    all.into_iter().filter(is_skipped).map(|(technique, _)| technique).collect()
}

/// Returns whether outputs that could overlap inputs never may.
pub(super) fn skips_overlaps(context: &Context<'_>, attempts: &[Attempt<'_>]) -> bool {
    let is_large = |attempt: &Attempt<'_>| attempt.schedule.order.len() > MOST_NODES_TO_OVERLAP;
    if context.options.parallel_safe || attempts.iter().any(is_large) {
        return true;
    }
    let nodes = || {
        let schedules = attempts.iter().map(|attempt| &attempt.schedule);
        schedules.flat_map(|schedule| schedule.order.iter().map(move |&node| (schedule, node)))
    };
    nodes().any(|(schedule, node)| !schedule.graph.overlaps(node, false).is_empty())
        && !nodes().any(|(schedule, node)| context.can_overlap(&schedule.graph, node))
}

/// Returns whether steps in a plan of `graph` might run strip by strip: some nodes make rows from
/// rows, and the options and the target permit strips.
pub(super) fn may_have_strips(context: &Context<'_>, graph: &Graph) -> bool {
    context.options.optimize.contains(Technique::Streaming)
        && context.target.granularity() == Granularity::Tile
        && graph.nodes().iter().any(|node| {
            let windows = &node.effects().windows;
            !windows.is_empty() && context.makes_rows(windows)
        })
}

/// Returns whether the planner does not choose steps in strips by bytes: the bytes of a node alone do not decide,
/// or the search would take too long.
pub(super) fn is_unfit_for_strips(context: &Context<'_>, graph: &Graph) -> bool {
    let options = &context.options;
    context.target.scratch() != Provider::Nobody
        || context.has_workspaces()
        || options.effort == Effort::Fast
        || context.memories.is_some()
        || options.workers > 1
        || options.parallel_safe
        || graph.nodes().len() > MOST_NODES_IN_STRIPS
}

/// Returns whether steps in strips might need fewer bytes and are not tried. With the costs of a
/// runner, the stage that knows the costs tells.
fn skips_strips(context: &Context<'_>, graph: &Graph) -> bool {
    let is_late = context.budget.exhausted();
    may_have_strips(context, graph)
        && context.costs.is_none()
        && (is_unfit_for_strips(context, graph) || is_late)
}
