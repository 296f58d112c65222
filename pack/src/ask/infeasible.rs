//! The buffers that prove that a space is too small.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::base::{BufferId, Error, Result, SpaceId};
use crate::solve::{Budget, no_offsets, solve};
use crate::{Problem, Rules, Status};

/// Search nodes per question, unless the caller sets a limit.
const NODES: u64 = 20_000;

/// Returns buffers in `space` that do not fit its capacity, each needed for that proof; empty if no
/// proof exists that the space is too small. Buffers that may be in other spaces, too, are left
/// out.
///
/// Without any of the buffers, the others fit, or no proof was found within the budget. Each
/// question has the limits in `budget`, or 20,000 search nodes without limits. For `n` buffers
/// there are `O(k log n + k)` questions if `k` remain.
///
/// # Errors
///
/// As [`solve`].
///
/// # References
///
/// The deletion filter for irreducible infeasible subsets (Chinneck and Dravnieks, ORSA Journal on
/// Computing 3, 1991), with halved chunks (Zeller and Hildebrandt, "Simplifying and isolating
/// failure-inducing input", IEEE TSE 28, 2002).
///
/// # Examples
///
/// ```
/// use arenaplan_pack::base::{BufferId, LiveRange};
/// use arenaplan_pack::{Buffer, Space, infeasible_subset};
/// use arenaplan_pack::{Budget, Problem, SpaceId};
/// let buffer = |bytes, start| Ok(Buffer::new(bytes, LiveRange::new(start, start + 2)?));
/// let buffers = vec![buffer(60, 0)?, buffer(10, 0)?, buffer(50, 1)?, buffer(90, 5)?];
/// let problem = Problem::new(buffers, vec![Space::new("sram").with_capacity(100)])?;
/// let subset = infeasible_subset(&problem, SpaceId::new(0), &Budget::default())?;
/// assert_eq!(subset, Some(vec![BufferId::new(0), BufferId::new(2)]));
/// # Ok::<(), arenaplan_pack::Error>(())
/// ```
pub fn infeasible_subset(
    problem: &Problem,
    space: SpaceId,
    budget: &Budget<'_>,
) -> Result<Option<Vec<BufferId>>> {
    let limited = budget.nodes.is_some() || budget.deadline.is_some();
    let budget = Budget { nodes: if limited { budget.nodes } else { Some(NODES) }, ..*budget };
    let members = (0..problem.buffers().len()).map(BufferId::new);
    let mut kept: Vec<BufferId> =
        members.filter(|&id| problem.buffer(id).spaces() == [space]).collect();
    if !is_infeasible(problem, space, &kept, &budget)? {
        return Ok(None);
    }
    let mut chunk = kept.len().div_ceil(2);
    while chunk > 0 {
        let mut from = 0;
        while from < kept.len() {
            let end = (from + chunk).min(kept.len());
            let without: Vec<_> = kept[..from].iter().chain(&kept[end..]).copied().collect();
            if is_infeasible(problem, space, &without, &budget)? {
                kept = without;
            } else {
                from = end;
            }
        }
        chunk = if chunk == 1 { 0 } else { chunk.div_ceil(2) };
    }
    Ok(Some(kept))
}

/// Returns whether a proof exists that some buffers do not fit a space.
fn is_infeasible(
    problem: &Problem,
    space: SpaceId,
    kept: &[BufferId],
    budget: &Budget<'_>,
) -> Result<bool> {
    let places: BTreeMap<BufferId, BufferId> =
        kept.iter().enumerate().map(|(place, &id)| (id, BufferId::new(place))).collect();
    let pairs = |pairs: &[(BufferId, BufferId)]| {
        let both =
            pairs.iter().filter_map(|(one, other)| Some((*places.get(one)?, *places.get(other)?)));
        both.collect()
    };
    let mut rules = Rules::default();
    rules.may_overlap = pairs(&problem.rules().may_overlap);
    rules.apart = pairs(&problem.rules().apart);
    let buffer = |&id| problem.buffer(id).clone().with_space(SpaceId::new(0));
    let buffers = kept.iter().map(buffer).collect();
    let spaces = alloc::vec![problem.spaces()[space.index()].clone()];
    match solve(&Problem::with_rules(buffers, spaces, rules)?, budget) {
        Ok(packing) => Ok(packing.status() == Status::Infeasible),
        // Rules that no offsets obey at all; an unproven failure is none.
        Err(Error::PinConflict { reason }) => {
            Ok(reason != no_offsets(&problem.spaces()[space.index()], false))
        }
        Err(error) => Err(error),
    }
}
