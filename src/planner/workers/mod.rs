//! Timetables: when several workers run the steps, in about the shortest time and few bytes.
//!
//! A *list schedule* gives each free worker the ready step with the first rank (Graham 1966). Its
//! span is at most twice the shortest span. The ranks decide the bytes. The best orders for one
//! worker are good ranks: with *p* workers, a list schedule by a serial order of *S* bytes and
//! depth *D* needs *S + O(p · D)* (Blelloch, Gibbons and Matias 1999). The longest path to the end
//! is the rank for a short span. So both ranks are tried and mixed, with and without a limit on
//! live bytes, at which steps wait until others end (`list.rs`). The best of these ranks are then
//! changed at random, until the counted work is spent (`improve.rs`). Other schedules stay below a
//! byte limit by construction, and are made shorter (`narrow.rs`).
//!
//! Of all schedules whose span is close to the shortest span, the schedules with the fewest live
//! bytes are packed. With a capacity, the shortest schedules that fit are packed.

mod candidate;
mod improve;
mod list;
mod live_bytes;
mod narrow;
mod random_moves;

use alloc::rc::Rc;
use alloc::vec::Vec;

use super::attempt::Attempt;
use super::context::Context;
use super::step_schedule::StepSchedule;
use crate::base::Result;
use crate::graph::Graph;
use crate::plan::{Hazards, Plan, Timetable};
use crate::run::dependencies::{hazards_of, ordered, settled};
use candidate::{ListCandidate, candidate};
use improve::improve;
use list::{Limit, Steps};
use narrow::narrow;

/// Longest span of a schedule, in thousandths of the shortest span, unless the options set a limit:
/// ten elevenths of the parallelism are kept.
const SLOWDOWN: u64 = 1100;
/// Most one-worker schedules that serve as a base for several workers.
const MOST_BASES: usize = 4;
/// Schedules that are packed.
const MOST_TIMED: usize = 6;

/// Returns schedules in which several workers run the steps of `serial` attempts, lowest load
/// first. At least one schedule is returned.
pub(super) fn for_workers<'g>(
    context: &Context<'_>,
    serial: &[Attempt<'g>],
) -> Result<Vec<Attempt<'g>>> {
    let mut found = Vec::new();
    let bases = serial
        .iter()
        .enumerate()
        .filter(|(index, attempt)| *index < MOST_BASES || attempt.schedule.is_given());
    for (_, base) in bases {
        let steps = Rc::new(Steps::new(context, base));
        // Schedules with one order differ where a step waits for bytes.
        let mut known: Vec<(Vec<usize>, Vec<u64>)> = Vec::new();
        for (rank, limit) in steps.choices() {
            if !found.is_empty() && context.budget.exhausted() {
                break;
            }
            let limit = Limit::waiting(limit);
            let listed = steps.list(&rank, limit, context.options.workers, u64::MAX);
            let times = (listed.order.clone(), listed.starts.clone());
            if !known.contains(&times) {
                known.push(times);
                found.push(candidate(context, base, &steps, listed)?);
            }
        }
    }
    let shortest = found.iter().map(|it| it.listed.span).min().unwrap_or(0);
    let slowdown = context.options.max_slowdown.unwrap_or(SLOWDOWN);
    let longest = u128::from(shortest) * u128::from(slowdown) / 1000;
    let longest = u64::try_from(longest).unwrap_or(u64::MAX).max(shortest);
    found.retain(|it| it.listed.span <= longest);
    found.sort_by_key(ListCandidate::key);
    improve(context, &mut found, longest)?;
    found.sort_by_key(ListCandidate::key);
    narrow(context, &mut found, longest)?;
    found.sort_by_key(|it| (it.attempt.rank(context.options.capacity), it.listed.span));
    found.truncate(MOST_TIMED);
    Ok(found.into_iter().map(|it| it.attempt).collect())
}

/// Adds the timetable to a plan for several workers.
///
/// The steps start as in the schedule if the schedule respects the plan's hazards. That fails only
/// if a node, such as a concatenation, takes over more bytes than the node makes. Then each step
/// starts when a worker is free and all steps before it have ended. The packing's lower bound is
/// valid for the schedule; for other times, only the bytes of one step are a bound.
pub(super) fn add_timetable(
    context: &Context<'_>,
    graph: &Graph,
    schedule: &StepSchedule<'_>,
    plan: &mut Plan,
) -> Result<()> {
    let Some(table) = schedule.table() else { return Ok(()) };
    let hazards = hazards_of(plan, &ordered(plan, graph), &settled(plan, graph)?);
    let workers = context.options.workers;
    let mut starts = table.starts.clone();
    if !respects(&starts, &table.costs, &hazards) {
        starts = hazards.timetable(&table.costs, workers).starts;
        let least = plan.search.map_or(0, |search| search.floor);
        let is_one = plan.arenas().len() == 1;
        for space in plan.spaces.iter_mut().filter(|space| space.caller.is_none()) {
            space.lower_bound = if is_one { least.min(space.arena_bytes) } else { 0 };
            space.status =
                crate::pack::Status::of(space.arena_bytes, space.lower_bound, space.capacity);
        }
        if let Some(search) = &mut plan.search {
            search.floor = search.floor.min(plan.spaces.iter().map(|it| it.lower_bound).sum());
        }
    }
    plan.timetable = Some(Timetable { workers, costs: table.costs.clone(), starts });
    Ok(())
}

/// Returns whether each step starts after the steps that it waits for have ended.
fn respects(starts: &[u64], costs: &[u64], hazards: &Hazards) -> bool {
    let at = |step: u32| usize::try_from(step).unwrap_or(usize::MAX);
    hazards.edges().iter().all(|edge| {
        let (before, after) = (at(edge.before), at(edge.after));
        starts[before].saturating_add(costs[before]) <= starts[after]
    })
}
