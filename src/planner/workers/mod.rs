//! Timetables: when several workers run the steps, in about the shortest time and few bytes.
//!
//! A *list schedule* gives each free worker the ready step of the first rank (Graham 1966). Its span
//! is at most twice the shortest one. The ranks decide the bytes. The orders that one worker needs
//! fewest bytes for are good ranks: with *p* workers, a list schedule by a serial order of *S* bytes
//! and depth *D* needs *S + O(p · D)* (Blelloch, Gibbons and Matias 1999). The longest path to the
//! end is the rank for a short span. So both are tried and mixed, with and without a limit of the
//! bytes that are live at once, at which steps wait for others to end. The best of these ranks are
//! then changed at random, as long as the counted work lasts.
//!
//! Of all schedules whose span is close to the shortest one, those with the fewest live bytes are
//! packed.

mod bytes;
mod list;

use alloc::rc::Rc;
use alloc::vec::Vec;

use super::attempt::{Attempt, measured};
use super::context::Context;
use super::schedule::{Schedule, Table};
use crate::base::{NodeId, Result};
use crate::graph::Graph;
use crate::hazards::{hazards_of, ordered, settled};
use crate::plan::{Effort, Hazards, Plan, Timetable};
use list::{Listed, Steps};

/// A schedule may take longer than the shortest one by one part in so many of its span: it keeps
/// ten elevenths of the parallelism.
const SLACK: u64 = 10;
/// Schedules of one worker that several workers are tried with.
const MOST_BASES: usize = 4;
/// Schedules that are changed at random.
const MOST_IMPROVED: usize = 4;
/// Random changes of a schedule, per step.
const MOST_ROUNDS: usize = 40;
/// Schedules that are packed.
const MOST_TIMED: usize = 6;

/// A list schedule, and its bytes.
struct Candidate<'t, 'g> {
    base: &'t Attempt<'g>,
    steps: Rc<Steps>,
    listed: Listed,
    attempt: Attempt<'g>,
}

impl Candidate<'_, '_> {
    fn key(&self) -> (u64, u64) {
        (self.attempt.load, self.listed.span)
    }
}

/// Returns schedules in which several workers run the steps of `serial` attempts, those with the
/// lowest load first. There is at least one.
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
        // Schedules of one order differ where a step waits for bytes.
        let mut known: Vec<(Vec<usize>, Vec<u64>)> = Vec::new();
        for (rank, limit) in steps.choices() {
            if !found.is_empty() && context.budget.exhausted() {
                break;
            }
            let listed = steps.list(&rank, limit, context.options.workers, u64::MAX);
            let times = (listed.order.clone(), listed.starts.clone());
            if !known.contains(&times) {
                known.push(times);
                found.push(candidate(context, base, &steps, listed)?);
            }
        }
    }
    let span = |found: &[Candidate<'_, '_>]| found.iter().map(|it| it.listed.span).min();
    let limit = |span: u64| span.saturating_add(span / SLACK);
    let longest = limit(span(&found).unwrap_or(0));
    found.retain(|it| it.listed.span <= longest);
    found.sort_by_key(Candidate::key);
    improve(context, &mut found, longest)?;
    found.sort_by_key(Candidate::key);
    found.truncate(MOST_TIMED);
    Ok(found.into_iter().map(|it| it.attempt).collect())
}

/// Returns a list schedule with its bytes.
fn candidate<'t, 'g>(
    context: &Context<'_>,
    base: &'t Attempt<'g>,
    steps: &Rc<Steps>,
    listed: Listed,
) -> Result<Candidate<'t, 'g>> {
    let order: Vec<NodeId> = listed.order.iter().map(|&at| base.schedule.order[at]).collect();
    let costs = listed.order.iter().map(|&at| steps.costs[at]).collect();
    let schedule = base.schedule.timed(order, Table::new(costs, listed.starts.clone()));
    let own = base.context(context);
    let attempt = measured(&own, schedule, base.elision)?;
    let Attempt { fusion, floor, order, .. } = *base;
    let attempt = Attempt { fusion, floor, order, ..attempt };
    Ok(Candidate { base, steps: Rc::clone(steps), listed, attempt })
}

/// Changes the ranks and limits of the best schedules at random, and keeps what needs fewer bytes,
/// or as many in less time.
///
/// The changes are judged by the estimate of live bytes: the sum over time of the squares of the
/// bytes above a target just below the least peak so far. The sum falls before the peak does.
/// Schedules with the least peaks are measured.
fn improve(context: &Context<'_>, found: &mut [Candidate<'_, '_>], longest: u64) -> Result<()> {
    let work: usize = match context.options.effort {
        Effort::Fast => 200_000,
        Effort::Default => 4_000_000,
        Effort::Max => 100_000_000,
    };
    let workers = context.options.workers;
    let mut numbers = Numbers(0x9e37_79b9_7f4a_7c15);
    // The best schedules of each base: others of the same base lead to the same places.
    let mut starts: Vec<usize> = Vec::new();
    for (index, it) in found.iter().enumerate() {
        let alike = starts.iter().filter(|&&other| core::ptr::eq(found[other].base, it.base));
        if starts.len() < MOST_IMPROVED && alike.count() < 2 {
            starts.push(index);
        }
    }
    let work = work / starts.len().max(1);
    for start in starts {
        let nodes = found[start].listed.order.len();
        if nodes == 0 {
            continue;
        }
        // Small graphs have few orders.
        let rounds = (work / nodes).min(MOST_ROUNDS * nodes);
        let steps = Rc::clone(&found[start].steps);
        let mut least = found[start].listed.bytes;
        let mut rank = steps.rank_of(&found[start].listed.order);
        let mut target = least.saturating_sub(1);
        let mut now = steps.list(&rank, found[start].listed.limit, workers, target);
        for _ in 0..rounds {
            if found[start].attempt.load <= found[start].attempt.floor.unwrap_or(0)
                || context.budget.exhausted()
            {
                break;
            }
            let mut other = rank.clone();
            for _ in 0..=numbers.below(2) {
                let moved = numbers.below(nodes);
                // Mostly a short way, sometimes any.
                let reach = if numbers.below(4) == 0 { nodes } else { 1 + nodes / 8 };
                let way = u64::try_from(numbers.below(2 * reach + 1)).unwrap_or(0);
                let to = rank[moved] / 4 + way;
                other[moved] = 4 * to.saturating_sub(u64::try_from(reach).unwrap_or(0)) + 1;
            }
            let limit = match (now.limit, numbers.below(8)) {
                (limit, 0) => limit.or(Some(now.bytes)).map(|limit| limit / 64 * 63),
                (limit, 1) => limit.map(|limit| limit / 64 * 65),
                (_, 2) => None,
                (limit, _) => limit,
            };
            let listed = steps.list(&other, limit, workers, target);
            if listed.span > longest || listed.estimate() > now.estimate() {
                continue;
            }
            let is_less = listed.bytes < least;
            rank = steps.rank_of(&listed.order);
            now = listed;
            if is_less {
                least = now.bytes;
                target = least.saturating_sub(1);
                let it = candidate(context, found[start].base, &steps, now.clone())?;
                if it.key() < found[start].key() {
                    found[start] = it;
                }
                now = steps.list(&rank, now.limit, workers, target);
            }
        }
        let it = candidate(context, found[start].base, &steps, now)?;
        if it.key() < found[start].key() {
            found[start] = it;
        }
    }
    Ok(())
}

/// Numbers that look random, the same in every run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap_or(0) % limit.max(1)
    }
}

/// Adds the timetable to a plan for several workers.
///
/// The steps start as in the schedule if that respects the hazards of the plan: it does, unless a
/// node is lent more bytes than it makes, as a concatenation is lent its operands. Otherwise each
/// step starts when a worker is free and the steps that it waits for have ended. The lower bound of
/// the packing is that of the schedule; of other times, only the bytes of one step are a bound.
pub(super) fn add_timetable(
    context: &Context<'_>,
    graph: &Graph,
    schedule: &Schedule<'_>,
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

/// Returns whether each step starts after those that it waits for have ended.
fn respects(starts: &[u64], costs: &[u64], hazards: &Hazards) -> bool {
    let at = |step: u32| usize::try_from(step).unwrap_or(usize::MAX);
    hazards.edges().iter().all(|edge| {
        let (before, after) = (at(edge.before), at(edge.after));
        starts[before].saturating_add(costs[before]) <= starts[after]
    })
}
