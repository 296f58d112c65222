//! Plans in which some steps run strip by strip.
//!
//! A runner that knows kernels chooses the strip steps by [`StripSearch`](super::StripSearch) and
//! gives the steps to the planner. If nobody provides scratch memory, no runner chooses: the
//! planner chooses strip steps by bytes.

use alloc::{vec, vec::Vec};

use super::attempt::Attempt;
use super::context::{Context, MOST_NODES_TO_SHARE_LESS};
use super::scope::{is_unfit_for_strips, may_have_strips};
use super::steps::plan_after;
use crate::base::{Alignment, NodeId, Result, SpaceId};
use crate::choose::regions::{PlacedPiece, StripRegions, WholeSteps};
use crate::choose::{StripChoice, StripLimits};
use crate::graph::Graph;
use crate::liveness::{Liveness, Member};
use crate::plan::{Plan, Technique};

/// Most choices of strip steps that are planned per attempt.
const ROUNDS: usize = 4;

/// Returns a plan with fewer bytes than `plan` in which some steps run strip by strip, if one of
/// the attempts leads to such a plan.
///
/// The best attempt and the best one without groups are tried: a group cannot be cut in two.
pub(super) fn planned_in_strips(
    context: &Context<'_>,
    graph: &Graph,
    attempts: &[Attempt<'_>],
    plan: &Plan,
) -> Result<Option<Plan>> {
    if !may_have_strips(context, graph) || is_unfit_for_strips(context, graph) {
        return Ok(None);
    }
    let has_groups = |attempt: &&Attempt<'_>| steps_of(attempt).any(|step| step.len() > 1);
    let alone = attempts.iter().filter(|attempt| !has_groups(attempt));
    // Attempts are sorted, so the first attempt may be both.
    let alone = alone.min_by_key(|attempt| attempt.load);
    let is_other = |attempt: &&Attempt<'_>| !core::ptr::eq(*attempt, &raw const attempts[0]);
    let drafts: Vec<_> = attempts.iter().take(1).chain(alone.filter(is_other)).collect();
    // Results in place tie values of several steps together, and no strips may then be chosen.
    let mut apart = Vec::new();
    for &draft in &drafts {
        let is_small = draft.schedule.order.len() <= MOST_NODES_TO_SHARE_LESS;
        if is_small && draft.techniques.contains(Technique::InPlace) {
            let techniques = draft.techniques.without(Technique::InPlace);
            apart.push(Attempt { techniques, ..draft.clone() });
        }
    }
    let mut best: Option<Plan> = None;
    for draft in drafts.into_iter().chain(&apart) {
        let below = best.as_ref().unwrap_or(plan).arena_bytes();
        if let Some(found) = of_draft(context, graph, draft, plan, below)? {
            best = Some(found);
        }
    }
    Ok(best)
}

/// Returns a plan with fewer than `below` bytes in which steps of an attempt, alone or in regions,
/// run in strips. Bytes that fit by size may have no offsets, so a few choices are tried.
fn of_draft(
    context: &Context<'_>,
    graph: &Graph,
    draft: &Attempt<'_>,
    plan: &Plan,
    mut below: u64,
) -> Result<Option<Plan>> {
    let context = &draft.context(context);
    let options = context.liveness_options(false, draft.elision)?;
    let liveness = draft.schedule.liveness(options)?;
    let steps: Vec<Vec<NodeId>> = steps_of(draft).map(<[NodeId]>::to_vec).collect();
    let live = liveness.profile(SpaceId::new(0));
    let live = &live[..steps.len().min(live.len())];
    let held = held(graph, draft, &liveness, options.alignment);
    let budget = context.packing_budget();
    let whole = WholeSteps { steps, live, held: &held };
    // Regions do not count that results overlap inputs: those below the steps as they are may do.
    let own = live.iter().copied().max().filter(|_| context.overlaps_in_strips()).unwrap_or(0);
    let limits = StripLimits { above: 0, below: own.max(below), time: u64::MAX };
    let mut regions = StripRegions::of_nodes(
        graph,
        &|windows| context.makes_rows(windows),
        whole,
        limits,
        &budget,
    );
    let (mut best, mut above) = (None, 0);
    for _ in 0..ROUNDS {
        if context.budget.exhausted() {
            break;
        }
        let limits = StripLimits { above, below: own.max(below), ..limits };
        let Some(StripChoice { steps, strips, bytes, .. }) = regions.least(limits, &budget)? else {
            break;
        };
        let other = plan_after(&Context { strips: &strips, ..*context }, graph, &steps, plan)?;
        let found = other.arena_bytes();
        if found < below {
            (best, below) = (Some(other), found);
        }
        above = bytes;
    }
    Ok(best)
}

/// Iterates over the nodes in each step of an attempt.
fn steps_of<'a>(attempt: &'a Attempt<'_>) -> impl Iterator<Item = &'a [NodeId]> {
    attempt.schedule.order.iter().map(|node| attempt.schedule.members(node))
}

/// Returns the values that have a place in the arena, grouped by shared bytes.
fn held(
    graph: &Graph,
    attempt: &Attempt<'_>,
    liveness: &Liveness,
    alignment: Alignment,
) -> Vec<Vec<PlacedPiece>> {
    let schedule = &attempt.schedule;
    let mut made = vec![None; graph.values().len()];
    for (step, &node) in schedule.order.iter().enumerate() {
        for (_, value) in schedule.graph.node(node).produces() {
            made[value.index()] = Some(step);
        }
    }
    let piece = |member: &Member| {
        let id = member.value;
        let live = liveness.lifetimes.of(id)?;
        let end = member.start.saturating_add(graph.value(id).bytes());
        Some(PlacedPiece {
            bytes: member.start - member.start % alignment.bytes()
                ..alignment.round_up(end).unwrap_or(u64::MAX),
            live: (live.start().index(), live.end().index()),
            made: made[id.index()],
        })
    };
    let classes = liveness.classes.classes().iter();
    classes.map(|class| class.members.iter().filter_map(piece).collect()).collect()
}
