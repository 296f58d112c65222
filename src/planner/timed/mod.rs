//! Time beside bytes: the least arena among plans that are fast enough.
//!
//! A plan with every technique comes first. If that plan is slower than the limit, each step has
//! other *ways* to run: with more scratch memory, with the output beside the input instead of over
//! the input, or split. A way needs some bytes at the step and takes some time. The arena has the
//! bytes of the highest step. So in an arena of given size each step takes the fastest way that
//! fits, and bisection finds the smallest size whose steps together are within the limit. A plan
//! with these ways is packed and estimated again.

mod continued;
mod faster;
mod maker;
mod row_strips;

use alloc::vec::Vec;

use super::accepted::accepted;
use super::context::Context;
use super::scope::may_have_strips;
use super::stages;
use super::steps::plan_after;
use crate::base::{Error, Result};
use crate::choose::Costs;
use crate::choose::time::KnownCosts;
use crate::graph::Graph;
use crate::pack::Status;
use crate::plan::{Plan, Technique, Techniques, TimeEstimate, WorkspacePolicy};
use continued::mark_continued;
use faster::{bytes_within, faster};
use maker::{Finish, Maker, Timed};
use row_strips::in_strips;

/// Techniques that may cost time.
const SLOW: [Technique; 4] =
    [Technique::Overlap, Technique::Streaming, Technique::Fusion, Technique::Duplicate];

/// A plan's bytes and time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Point {
    /// Arena bytes.
    pub bytes: u64,
    /// Estimated nanoseconds per run; 0 if the runner states no costs.
    pub nanoseconds: u64,
}

impl Point {
    /// Returns the plan's point.
    pub fn of(plan: &Plan) -> Self {
        let estimate = plan.search().and_then(|search| search.estimate);
        let nanoseconds = estimate.map_or(0, |it| it.nanoseconds);
        Self { bytes: plan.arena_bytes(), nanoseconds }
    }
}

/// The chosen plan, and the points of the compared plans.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Chosen {
    /// The plan, already checked.
    pub plan: Plan,
    /// The points that no other tried plan beats: ascending bytes, descending time.
    pub points: Vec<Point>,
}

/// Returns the plan with the fewest bytes that is fast enough, and of equal bytes the fastest.
pub(super) fn chosen(context: &Context<'_>, graph: &Graph, costs: &dyn Costs) -> Result<Chosen> {
    let known = KnownCosts::new(costs);
    accepted(context, graph.nodes().len(), |context| {
        let mut chosen = if context.has_workspaces() {
            with_scratch(context, graph, &known)?
        } else {
            without_scratch(context, graph, &known)?
        };
        if let Some(search) = &mut chosen.plan.search
            && skips_strips(context, graph, costs)
        {
            search.skipped = search.skipped.with(Technique::Streaming);
        }
        mark_continued(graph, &known, &mut chosen.plan)?;
        check(&known, graph, &chosen.plan)?;
        Ok(chosen)
    })
}

/// Returns a plan that runs `steps`, already checked.
pub(super) fn with_steps(
    context: &Context<'_>,
    graph: &Graph,
    costs: &dyn Costs,
    steps: &[Vec<crate::base::NodeId>],
) -> Result<Plan> {
    let known = KnownCosts::new(costs);
    accepted(context, graph.nodes().len(), |context| {
        let maker = Maker::new(context, graph, &known)?;
        let draft = maker.draft(context.options.optimize, Some(steps), context.strips)?;
        let finish = Finish { steps: Some(steps.to_vec()), ..maker.unchanged(context.strips) };
        let mut plan = maker.finish(&draft, finish)?.plan;
        mark_continued(graph, &known, &mut plan)?;
        check(&known, graph, &plan)?;
        Ok(plan)
    })
}

/// Returns whether steps in strips might need fewer bytes and were not tried.
fn skips_strips(context: &Context<'_>, graph: &Graph, costs: &dyn Costs) -> bool {
    may_have_strips(context, graph)
        && costs.row_moves().is_some()
        && (!is_simple(context) || context.options.parallel_safe || context.budget.exhausted())
}

/// Returns whether step times are weighed. Plans for several workers are weighed by the span of the
/// timetable, plans for several memories by the moved bytes.
fn is_simple(context: &Context<'_>) -> bool {
    context.memories.is_none() && context.options.workers == 1
}

/// Checks a plan against the graph with the scratch memory of the plan's steps.
fn check(known: &KnownCosts<'_>, graph: &Graph, plan: &Plan) -> Result<()> {
    if plan.options.workspace == WorkspacePolicy::None {
        plan.check(graph)?;
    } else {
        plan.check(&known.declared_for(graph, plan)?)?;
    }
    Ok(())
}

/// Returns a plan without kernel scratch memory. The steps of the plan with scratch memory are
/// tried, too: without scratch memory those steps need no more bytes.
fn without_scratch(context: &Context<'_>, graph: &Graph, known: &KnownCosts<'_>) -> Result<Chosen> {
    let mut plan = stages::unchecked(context, graph)?;
    if is_simple(context) && !context.budget.exhausted() {
        let timed = with_scratch(&context.with_workspaces(), graph, known)?.plan;
        let strips = timed.strips();
        let steps: Vec<Vec<_>> = timed.steps().iter().map(|step| step.nodes().collect()).collect();
        let bare = Context { strips: &strips, ..*context };
        let other = plan_after(&bare, graph, &steps, &plan)?;
        if other.arena_bytes() < plan.arena_bytes() {
            plan = other;
        }
    }
    let points = alloc::vec![Point::of(&plan)];
    Ok(Chosen { plan, points })
}

/// Returns the plan with scratch memory.
fn with_scratch(context: &Context<'_>, graph: &Graph, known: &KnownCosts<'_>) -> Result<Chosen> {
    let maker = &Maker::new(context, graph, known)?;
    let techniques = context.options.optimize;
    let draft = maker.draft(techniques, None, &[])?;
    let first = maker.finish(&draft, maker.unchanged(&[]))?;
    if !is_simple(context) {
        let points = alloc::vec![first.point()];
        let exceeds = context.options.capacity.is_some_and(|it| it < first.plan.arena_bytes());
        if exceeds && !context.budget.exhausted() {
            // The shortest timetable that fits was chosen, and before scratch memory was counted.
            let smallest = with_scratch(&context.without_capacity(), graph, known)?;
            if smallest.plan.arena_bytes() < first.plan.arena_bytes() {
                let plan = limited(context, smallest.plan);
                return Ok(Chosen { plan, ..smallest });
            }
        }
        return Ok(Chosen { plan: first.plan, points });
    }
    let bare = maker.draft(Techniques::NONE, None, &[])?;
    let simple =
        maker.finish(&bare, Finish { optimize: Techniques::NONE, ..maker.unchanged(&[]) })?;
    let mut quickest = quickest(maker, &simple).min(first.time());
    let mut limit = context.slowest(quickest);
    let is_over = || context.budget.exhausted();
    let mut tried = alloc::vec![first];
    if !is_over() {
        tried.extend(grouped(maker)?);
    }
    let is_wanting = tried[0].plan.arena_bytes() > draft.arena_bytes() || tried[0].time() > limit;
    if is_wanting && !is_over() {
        let found = with_fewer(maker, &tried[0], limit)?;
        tried.extend(found);
    }
    quickest = tried.iter().map(Timed::time).min().unwrap_or(quickest).min(quickest);
    limit = context.slowest(quickest);
    for at in 0..tried.len() {
        if is_over() {
            break;
        }
        let found = faster(maker, &tried[at], limit, bytes_within(&tried, limit))?;
        tried.extend(found);
    }
    let within = |tried: &[Timed]| bytes_within(tried, limit).min(bytes_within([&simple], limit));
    if within(&tried) == u64::MAX && !is_over() {
        tried.extend(faster(maker, &simple, limit, u64::MAX)?);
    }
    tried.extend(in_strips(maker, limit, within(&tried))?);
    if bytes_within(&tried, limit) > simple.plan.arena_bytes() {
        // As the plain plan, and values share bytes besides.
        let room = simple.plan.arena_bytes();
        let finish = Finish { overlapping: Some(Vec::new()), room, ..maker.unchanged(&[]) };
        tried.push(maker.finish(&simple.draft, finish)?);
    }
    tried.push(simple);
    let fast_enough = tried.iter().filter(|timed| timed.time() <= limit);
    let best = fast_enough.min_by_key(|timed| timed.point());
    let best = best.or_else(|| tried.iter().min_by_key(|timed| timed.time()));
    let best = best.expect("there is the plain plan").clone();
    let points = pareto(tried.iter().map(Timed::point).collect());
    let nanoseconds = best.time();
    let fastest_nanoseconds = quickest.min(nanoseconds);
    let plan = best.plan.with_estimate(TimeEstimate { nanoseconds, fastest_nanoseconds });
    Ok(Chosen { plan, points })
}

/// Returns a plan that was made without the capacity of a context, for that capacity.
fn limited(context: &Context<'_>, mut plan: Plan) -> Plan {
    plan.options = context.options;
    for space in plan.spaces.iter_mut().filter(|space| space.caller.is_none()) {
        space.capacity = space.capacity.into_iter().chain(context.options.capacity).min();
        space.status = Status::of(space.arena_bytes, space.lower_bound, space.capacity);
    }
    plan
}

/// Returns the estimated time of a plan whose steps each run in the fastest way, in any bytes.
fn quickest(maker: &Maker<'_, '_>, plain: &Timed) -> u64 {
    let steps = maker.ways(plain);
    let fastest = steps.iter().map(|step| step.fastest(u64::MAX).time);
    fastest.fold(0, u64::saturating_add)
}

/// Returns the points that no other point beats.
fn pareto(mut points: Vec<Point>) -> Vec<Point> {
    points.sort_unstable();
    let mut least = None;
    points.retain(|point| {
        let is_faster = least.is_none_or(|least| point.nanoseconds < least);
        if is_faster {
            least = Some(point.nanoseconds);
        }
        is_faster
    });
    points
}

/// Returns plans without a technique that may cost time, if such a plan might be better.
fn with_fewer(maker: &Maker<'_, '_>, first: &Timed, limit: u64) -> Result<Vec<Timed>> {
    let mut found: Vec<Timed> = Vec::new();
    let mut known = alloc::vec![maker::steps_of(&first.draft)];
    let all = maker.context.options.optimize;
    let without = |left_out: &[Technique]| {
        left_out.iter().fold(all, |techniques, &one| techniques.without(one))
    };
    let mut fewer = Vec::new();
    if !first.draft.overlapped().is_empty() {
        fewer.push((without(&[Technique::Overlap]), true));
    }
    if !first.draft.repeated().is_empty() {
        fewer.push((without(&[Technique::Duplicate]), false));
    }
    fewer.extend([(without(&[Technique::Streaming]), false), (without(&SLOW), false)]);
    for (techniques, may_repeat_steps) in fewer {
        if techniques == all {
            continue;
        }
        let draft = maker.draft(techniques, None, &[])?;
        let steps = maker::steps_of(&draft);
        let best = bytes_within(found.iter().chain([first]), limit);
        if draft.arena_bytes() >= best || (!may_repeat_steps && known.contains(&steps)) {
            continue;
        }
        known.push(steps);
        found.push(maker.finish(&draft, maker.unchanged(&[]))?);
    }
    Ok(found)
}

/// Returns plans with the steps that the runner proposes.
fn grouped(maker: &Maker<'_, '_>) -> Result<Vec<Timed>> {
    let techniques = maker.context.options.optimize;
    let needed = [Technique::Fusion, Technique::Duplicate];
    if !needed.into_iter().all(|technique| techniques.contains(technique)) {
        return Ok(Vec::new());
    }
    let mut found = Vec::new();
    let mut known: Vec<Vec<Vec<_>>> = Vec::new();
    for steps in maker.costs.runner.groupings() {
        if known.contains(&steps) {
            continue;
        }
        let made = maker.draft(techniques, Some(&steps), &[]).and_then(|draft| {
            let finish = Finish { steps: Some(steps.clone()), ..maker.unchanged(&[]) };
            maker.finish(&draft, finish)
        });
        match made {
            Ok(timed) => found.push(timed),
            // Proposed nodes that cannot run as one make no plan of this graph.
            Err(Error::InvalidGroup { .. } | Error::InvalidOption { option: "steps", .. }) => {}
            Err(error) => return Err(error),
        }
        known.push(steps);
    }
    Ok(found)
}
