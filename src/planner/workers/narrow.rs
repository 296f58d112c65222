//! Short schedules within a byte limit.
//!
//! A list schedule that waits at a limit can reach a state in which no step fits any more. The
//! banker's rule (Dijkstra) avoids such states: a step starts only if the steps that have not
//! started could then run one after the other, in an order that is known to fit. If one worker has
//! an order within the limit, so have several workers, and the ranks decide the time alone. The
//! serial order and the ranks are changed at random, and changes that are not longer are kept.

use alloc::rc::Rc;
use alloc::vec::Vec;

use super::candidate::{ListCandidate, candidate};
use super::list::{Limit, Listed, MOST_STEPS_TO_LIMIT, Steps};
use super::random_moves::Numbers;
use crate::base::Result;
use crate::plan::Effort;
use crate::planner::context::Context;

/// Serial schedules whose steps are tried with limits.
const MOST_BASES: usize = 2;
/// Limits that are tried with one serial schedule.
const MOST_LIMITS: usize = 6;
/// Random changes of a schedule, per step and limit. Small graphs have few orders.
const MOST_ROUNDS: usize = 40;
/// Most ready steps that are considered.
const LOOKED: [usize; 4] = [2, 4, 8, 16];

/// Adds schedules in fewer bytes that are not longer than `longest`; with a capacity, also the
/// shortest schedules within the capacity.
pub(super) fn narrow(
    context: &Context<'_>,
    found: &mut Vec<ListCandidate<'_, '_>>,
    longest: u64,
) -> Result<()> {
    let work: usize = match context.options.effort {
        Effort::Fast => 50_000,
        Effort::Default => 300_000,
        Effort::Max => 10_000_000,
    };
    let mut bases: Vec<usize> = Vec::new();
    for (index, it) in found.iter().enumerate() {
        let is_known = bases.iter().any(|&other| core::ptr::eq(found[other].base, it.base));
        let is_large = it.listed.order.len() > MOST_STEPS_TO_LIMIT;
        if bases.len() < MOST_BASES && !is_known && !is_large && !it.listed.order.is_empty() {
            bases.push(index);
        }
    }
    let mut least = found.iter().map(|it| it.attempt.load).min().unwrap_or(0);
    for at in bases {
        let (base, steps) = (found[at].base, Rc::clone(&found[at].steps));
        let nodes = found[at].listed.order.len();
        let work = work.min(nodes.saturating_mul(nodes).saturating_mul(MOST_ROUNDS));
        let mut add = |listed: Listed| -> Result<u64> {
            let it = candidate(context, base, &steps, listed)?;
            let load = it.attempt.load;
            found.push(it);
            Ok(load)
        };
        let search = ListSearch { context, steps: &steps, ranks: steps.ranks() };
        if let Some(capacity) = context.options.capacity.filter(|&bytes| bytes >= steps.alone()) {
            add(search.shortest(capacity, 0, work))?;
        }
        // Bisects between the bytes for one worker and the best so far.
        let (mut low, mut high) = (steps.alone(), least);
        for _ in 0..MOST_LIMITS {
            if low >= high || context.budget.exhausted() {
                break;
            }
            let limit = low.midpoint(high - 1);
            let listed = search.shortest(limit, longest, work);
            if listed.span > longest {
                low = limit + 1;
                continue;
            }
            high = listed.bytes;
            least = least.min(add(listed)?);
        }
    }
    Ok(())
}

/// A search for short schedules of some steps.
struct ListSearch<'s> {
    context: &'s Context<'s>,
    steps: &'s Steps,
    /// Ranks to begin with.
    ranks: Vec<Vec<u64>>,
}

impl ListSearch<'_> {
    /// Returns a short schedule within a limit of bytes that one worker keeps; ends at a span that is
    /// short enough, or with the work.
    fn shortest(&self, limit: u64, enough: u64, mut work: usize) -> Listed {
        let (steps, workers) = (self.steps, self.context.options.workers);
        let list = |rank: &[u64], order: &[usize], looked| {
            steps.list(rank, Limit::Safe { bytes: limit, order, looked }, workers, u64::MAX)
        };
        let mut order: Vec<usize> = steps.serial().collect();
        let nodes = order.len();
        let mut looked = LOOKED[LOOKED.len() - 1];
        let mut rank: Vec<u64> = steps.rank_of(&order);
        let mut best = list(&rank, &order, looked);
        for other in &self.ranks {
            for depth in [LOOKED[1], LOOKED[3]] {
                let listed = list(other, &order, depth);
                work = work.saturating_sub(listed.work);
                if listed.span < best.span {
                    (best, looked) = (listed, depth);
                    rank.clone_from(other);
                }
            }
        }
        let mut numbers = Numbers::new();
        while best.span > enough && work > 0 && !self.context.budget.exhausted() {
            let (mut new_order, mut new_rank, mut new_looked) = (None, None, looked);
            work = work.saturating_sub(nodes);
            match numbers.below(4) {
                // Another serial order within the limit.
                0 | 1 => {
                    let mut moved = steps.rank_of(&order);
                    for _ in 0..=numbers.below(3) {
                        numbers.move_one(&mut moved);
                    }
                    let serial = steps.list(&moved, Limit::None, 1, u64::MAX);
                    if serial.bytes > limit {
                        continue;
                    }
                    new_order = Some(serial.order);
                }
                // Other ranks.
                2 => {
                    let mut other = rank.clone();
                    let most = other.iter().copied().max().unwrap_or(0);
                    let reach = usize::try_from(most / 4).unwrap_or(usize::MAX);
                    for _ in 0..=numbers.below(2) {
                        let at = numbers.below(nodes);
                        let way = u64::try_from(numbers.below(reach)).unwrap_or(0);
                        other[at] = (other[at] + way).saturating_sub(most / 8);
                    }
                    new_rank = Some(other);
                }
                // The order of the best schedule, in which one worker needs no more bytes.
                _ => {
                    new_order = Some(best.order.clone());
                    if numbers.below(4) == 0 {
                        new_looked = LOOKED[numbers.below(LOOKED.len())];
                    }
                }
            }
            let by_order = new_order.as_ref().unwrap_or(&order);
            let listed = list(new_rank.as_ref().unwrap_or(&rank), by_order, new_looked);
            work = work.saturating_sub(listed.work);
            // In-place rules may raise the bytes of a serial order above those of its schedule.
            if listed.span <= best.span && listed.bytes <= limit {
                best = listed;
                order = new_order.unwrap_or(order);
                rank = new_rank.unwrap_or(rank);
                looked = new_looked;
            }
        }
        best
    }
}
