//! Fewer bytes in about the same time, by random changes to list schedules.

use alloc::rc::Rc;
use alloc::vec::Vec;

use super::candidate::{ListCandidate, candidate};
use super::list::Limit;
use super::random_moves::Numbers;
use crate::base::Result;
use crate::plan::Effort;
use crate::planner::context::Context;

/// Schedules that are changed at random.
const MOST_IMPROVED: usize = 4;
/// Random changes per step of a schedule.
const MOST_ROUNDS: usize = 40;

/// Changes the ranks and limits of the best schedules at random, and keeps changes that need fewer
/// bytes, or equal bytes in less time.
///
/// The measure is an estimate: the sum over time of the squares of the live bytes above a target
/// just below the least peak so far. The sum falls before the peak does. Schedules with the least
/// estimated peaks are measured exactly.
pub(super) fn improve(
    context: &Context<'_>,
    found: &mut [ListCandidate<'_, '_>],
    longest: u64,
) -> Result<()> {
    let work: usize = match context.options.effort {
        Effort::Fast => 200_000,
        Effort::Default => 4_000_000,
        Effort::Max => 100_000_000,
    };
    let workers = context.options.workers;
    let mut numbers = Numbers::new();
    // Only the best schedules of each base: other schedules of a base lead to the same places.
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
        let mut now = steps.list(&rank, Limit::waiting(found[start].listed.limit), workers, target);
        for _ in 0..rounds {
            if found[start].attempt.load <= found[start].attempt.floor.unwrap_or(0)
                || context.budget.exhausted()
            {
                break;
            }
            let mut other = rank.clone();
            for _ in 0..=numbers.below(2) {
                numbers.move_one(&mut other);
            }
            let limit = match (now.limit, numbers.below(8)) {
                (limit, 0) => limit.or(Some(now.bytes)).map(|limit| limit / 64 * 63),
                (limit, 1) => limit.map(|limit| limit / 64 * 65),
                (_, 2) => None,
                (limit, _) => limit,
            };
            let listed = steps.list(&other, Limit::waiting(limit), workers, target);
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
                now = steps.list(&rank, Limit::waiting(now.limit), workers, target);
            }
        }
        let it = candidate(context, found[start].base, &steps, now)?;
        if it.key() < found[start].key() {
            found[start] = it;
        }
    }
    Ok(())
}
