//! Lower bounds from single cliques: the least height of stacked parts.

use alloc::vec::Vec;

use super::conflicts::{Clique, Conflicts};
use super::domain::FAR;
use crate::base::Result;
use crate::solve::model::clock::Clock;
use crate::solve::model::memory::filled;

/// Returns a lower bound in bytes: the largest need of a clique, with the room wasted by alignments
/// and forbidden offsets in the best task order.
///
/// Cliques with more than `most_tasks` tasks are left out. Takes `O(2^n n)` for n tasks.
///
/// # References
///
/// Dynamic programming over sets (Held and Karp, Journal of SIAM 10, 1962). Offsets only rise with
/// the height below, so the least height of each set suffices.
pub(crate) fn least_stack(
    conflicts: &Conflicts,
    most_tasks: usize,
    clock: &Clock<'_>,
) -> Result<u64> {
    let mut bound = 0;
    let mut heights: Vec<i64> = Vec::new();
    for clique in conflicts.cliques.iter().filter(|it| it.tasks.len() <= most_tasks) {
        if clock.tick(clique.tasks.len() << clique.tasks.len()) {
            break;
        }
        bound = bound.max(stack(conflicts, clique, &mut heights)?);
    }
    Ok(bound)
}

/// Returns the bytes that a clique's tasks need.
fn stack(conflicts: &Conflicts, clique: &Clique, heights: &mut Vec<i64>) -> Result<u64> {
    let tasks = &clique.tasks;
    let all = (1_usize << tasks.len()) - 1;
    if heights.len() <= all {
        *heights = filled(0, all + 1, "a stack")?;
    }
    let offset = |task: usize, height: i64| {
        let domain = &conflicts.domains[tasks[task].item];
        domain.raise((height - tasks[task].start).max(domain.least()))
    };
    for set in 1..=all {
        let mut least = FAR;
        let mut left = set;
        while left != 0 {
            let task = usize::try_from(left.trailing_zeros()).unwrap_or(0);
            left &= left - 1;
            let below = heights[set & !(1 << task)];
            let at = if below >= FAR { FAR } else { offset(task, below) };
            if at <= conflicts.domains[tasks[task].item].largest() {
                least = least.min(at + tasks[task].end);
            }
        }
        heights[set] = least;
    }
    let top = |task: usize| {
        let below = heights[all & !(1 << task)];
        let at = if below >= FAR { FAR } else { offset(task, below) };
        let item = tasks[task].item;
        (at <= conflicts.domains[item].largest()).then(|| conflicts.end_in_bytes(item, at))
    };
    Ok((0..tasks.len()).filter_map(top).min().unwrap_or(0))
}
