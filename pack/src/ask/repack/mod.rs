//! Packing again after a problem has changed, with few buffers at other offsets.

mod eject;
mod restack;

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use crate::base::{BufferId, Error, LiveRange, MAX_BYTES, Result, SpaceId};
use crate::solve::{Budget, solve};
use crate::{Buffer, Packing, Problem, Space, SpacePacking, Status};
use eject::eject;
use restack::restack;

/// Search nodes per packing with fixed buffers, unless the caller sets a limit.
const NODES: u64 = 5_000;
/// Times that more buffers are released before all are.
const RINGS: usize = 4;

/// A packing close to an old packing.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Repacking {
    /// The packing.
    pub packing: Packing,
    /// Buffers that are not at their old offset.
    pub moved: Vec<BufferId>,
    /// Bytes that all spaces together need if only those buffers move that must: the price of
    /// staying is the difference to the packing's peak.
    pub peak_of_staying: u64,
}

/// Packs a changed problem such that few buffers leave their `old` offsets.
///
/// The peak of each space is at most the peak by [`solve`] from scratch, or at most the capacity,
/// if the capacity can be met. New buffers have no old offset. At first, only buffers move whose
/// old offsets contradict each other or exceed that peak. If the other buffers leave no room,
/// ejection chains displace a few of them. Where the largest load is nearly the peak, the buffers
/// live there form a stack without gaps: the stack is rebuilt with few moves, and chains place the
/// other buffers around it. Alternatively, all buffers that are live together with moved buffers
/// move, too, and so on. The answer with the fewest moves is returned.
///
/// # Errors
///
/// As [`solve`], and [`Error::InvalidBuffer`] if `old` does not have one entry per buffer, or if a
/// buffer may be in several spaces.
///
/// # Examples
///
/// ```
/// use arenaplan_pack::base::{BufferId, LiveRange};
/// use arenaplan_pack::{Buffer, Space, repack};
/// use arenaplan_pack::{Budget, Problem};
/// // The first buffer has grown from 8 to 12 bytes: the second one makes room.
/// let buffer = |bytes, start, end| Ok(Buffer::new(bytes, LiveRange::new(start, end)?));
/// let buffers = vec![buffer(12, 0, 2)?, buffer(8, 1, 4)?, buffer(8, 3, 5)?];
/// let problem = Problem::new(buffers, vec![Space::default()])?;
/// let again = repack(&problem, &[Some(0), Some(8), Some(0)], &Budget::default())?;
/// assert_eq!((again.packing.peak(), again.moved), (20, vec![BufferId::new(1)]));
/// # Ok::<(), arenaplan_pack::Error>(())
/// ```
pub fn repack(problem: &Problem, old: &[Option<u64>], budget: &Budget<'_>) -> Result<Repacking> {
    let count = problem.buffers().len();
    if old.len() != count {
        let reason = alloc::format!("there are {} old offsets and {count} buffers", old.len());
        return Err(Error::InvalidBuffer { buffer: count.min(old.len()), reason });
    }
    if let Some(buffer) = problem.buffers().iter().position(Buffer::has_choice) {
        let reason = "it may be in several spaces, and an old offset names none".into();
        return Err(Error::InvalidBuffer { buffer, reason });
    }
    let fresh = solve(problem, budget)?;
    let limits: Vec<u64> = problem
        .spaces()
        .iter()
        .zip(fresh.spaces())
        .map(|(space, found)| match space.capacity() {
            Some(bytes) if found.peak <= bytes => bytes,
            _ => found.peak,
        })
        .collect();
    let limited = budget.nodes.is_some() || budget.deadline.is_some();
    let short = Budget { nodes: if limited { budget.nodes } else { Some(NODES) }, ..*budget };
    let nothing = alloc::vec![false; count];
    let kept = keepable(problem, old, &[], &nothing);
    let unlimited: Vec<u64> = problem.spaces().iter().map(|_| MAX_BYTES).collect();
    let staying = around(problem, old, &kept, &unlimited, &short)?;
    let peak_of_staying = staying.map_or(fresh.peak(), |packing| packing.peak());
    // Only offsets below the limits may stay.
    let mut kept = keepable(problem, old, &limits, &nothing);
    let mut best = around(problem, old, &kept, &limits, &short)?;
    if best.is_none() {
        let chained = eject(problem, old, &only(old, &kept), &nothing, &limits, budget);
        let stacked = around_stacks(problem, old, &limits, budget);
        let of_chains = chained.into_iter().chain(stacked);
        let of_chains = of_chains.map(|offsets| packing_of(problem, offsets, fresh.nodes()));
        // Chains apply a problem's rules in separate code: a mistake there must not get out.
        let is_valid = |it: &Packing| {
            let checked = it.check(problem);
            debug_assert!(checked.is_ok(), "a chain broke a rule: {checked:?}");
            checked.is_ok()
        };
        let mut found: Vec<Packing> = of_chains.filter(is_valid).collect();
        for _ in 0..RINGS {
            release_neighbors(problem, &mut kept);
            if let Some(packing) = around(problem, old, &kept, &limits, &short)? {
                found.push(packing);
                break;
            }
        }
        best = found.into_iter().min_by_key(|it| moved(old, it).count());
    }
    let mut packing = best.unwrap_or_else(|| fresh.clone());
    // The bounds belong to the problem, not to the problem with fixed buffers.
    for ((it, fresh), space) in packing.spaces.iter_mut().zip(&fresh.spaces).zip(problem.spaces()) {
        it.lower_bound = fresh.lower_bound.min(it.peak);
        it.status = Status::of(it.peak, it.lower_bound, space.capacity());
    }
    let moved = moved(old, &packing).collect();
    Ok(Repacking { packing, moved, peak_of_staying })
}

/// Returns the buffers that are not at their old offsets.
fn moved<'a>(old: &'a [Option<u64>], packing: &'a Packing) -> impl Iterator<Item = BufferId> + 'a {
    let is_moved = |&id: &usize| old[id] != Some(packing.offsets()[id]);
    (0..old.len()).filter(is_moved).map(BufferId::new)
}

/// Returns the offsets by ejection chains around rebuilt stacks at the fullest steps.
fn around_stacks(
    problem: &Problem,
    old: &[Option<u64>],
    limits: &[u64],
    budget: &Budget<'_>,
) -> Option<Vec<u64>> {
    let mut places = old.to_vec();
    let mut is_stacked = alloc::vec![false; old.len()];
    for (space, &limit) in limits.iter().enumerate() {
        for (index, offset) in restack(problem, old, SpaceId::new(space), limit).unwrap_or_default()
        {
            places[index] = Some(offset);
            is_stacked[index] = true;
        }
    }
    if !is_stacked.contains(&true) {
        return None;
    }
    let kept = keepable(problem, &places, limits, &is_stacked);
    eject(problem, old, &only(&places, &kept), &is_stacked, limits, budget)
}

/// Returns the offsets of the buffers in `kept`.
fn only(offsets: &[Option<u64>], kept: &[bool]) -> Vec<Option<u64>> {
    offsets.iter().zip(kept).map(|(at, kept)| at.filter(|_| *kept)).collect()
}

/// Returns a packing with these offsets, with bounds that hold for any packing.
fn packing_of(problem: &Problem, offsets: Vec<u64>, nodes: u64) -> Packing {
    let spaces = problem.spaces().iter().enumerate().map(|(space, it)| {
        let placed = problem.buffers().iter().zip(&offsets);
        let ends =
            placed.filter(|it| it.0.space().index() == space).map(|(it, at)| at + it.bytes());
        let peak = ends.max().unwrap_or(0);
        SpacePacking { peak, lower_bound: 0, status: Status::of(peak, 0, it.capacity()) }
    });
    let places = problem.buffers().iter().map(Buffer::space);
    let places = if problem.spaces().len() > 1 { places.collect() } else { Vec::new() };
    Packing { spaces: spaces.collect(), places, offsets, nodes, choice: None }
}

/// Packs around the buffers that are `kept` at their old offsets; `None` if the result exceeds a
/// limit.
fn around(
    problem: &Problem,
    old: &[Option<u64>],
    kept: &[bool],
    limits: &[u64],
    budget: &Budget<'_>,
) -> Result<Option<Packing>> {
    let buffers =
        problem.buffers().iter().zip(old.iter().zip(kept)).map(|(buffer, (old, kept))| {
            match (old, buffer.pin()) {
                (Some(old), None) if *kept => buffer.clone().with_pin(*old),
                (Some(old), None) => buffer.clone().with_hint(*old),
                _ => buffer.clone(),
            }
        });
    let limited = |(space, &limit): (&Space, &u64)| {
        if limit == MAX_BYTES { space.clone() } else { space.clone().with_capacity(limit) }
    };
    let spaces = problem.spaces().iter().zip(limits).map(limited).collect();
    let fixed = match Problem::with_rules(buffers.collect(), spaces, problem.rules().clone()) {
        Ok(fixed) => fixed,
        Err(Error::PinConflict { .. }) => return Ok(None),
        Err(error) => return Err(error),
    };
    // The first answer places buffers at their hints; searches ignore hints.
    for nodes in [Some(0), budget.nodes] {
        match solve(&fixed, &Budget { nodes, ..*budget }) {
            Ok(packing) => {
                let peaks = packing.spaces().iter().map(|it| it.peak);
                if peaks.zip(limits).all(|(peak, &limit)| peak <= limit) {
                    return Ok(Some(packing));
                }
            }
            Err(Error::PinConflict { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

/// Returns the buffers that may stay together at their old offsets, below the limits if any.
///
/// In each contradiction, the buffer with most contradictions moves, but no buffer that is `fixed`.
fn keepable(problem: &Problem, old: &[Option<u64>], limits: &[u64], fixed: &[bool]) -> Vec<bool> {
    let mut kept: Vec<bool> = problem
        .buffers()
        .iter()
        .zip(old)
        .enumerate()
        .map(|(index, (buffer, old))| {
            let Some(at) = *old else { return false };
            let Some(end) = at.checked_add(buffer.bytes()) else { return false };
            let space = &problem.spaces()[buffer.space().index()];
            let limit = limits.get(buffer.space().index()).copied().unwrap_or(MAX_BYTES);
            buffer.pin().is_none_or(|pin| pin == at)
                && end <= limit
                && end <= MAX_BYTES
                && problem.alignment(BufferId::new(index)).divides(at)
                && at.is_multiple_of(buffer.multiple_of())
                && buffer.range().is_none_or(|it| it.start <= at && end <= it.end)
                && space.reserved().iter().all(|it| end <= it.start || it.end <= at)
        })
        .collect();
    let mut conflicts = contradictions(problem, old, &kept);
    let mut degree = alloc::vec![0_usize; kept.len()];
    loop {
        conflicts.retain(|&(one, other)| kept[one] && kept[other]);
        degree.fill(0);
        for &(one, other) in &conflicts {
            degree[one] += 1;
            degree[other] += 1;
        }
        // A pinned buffer cannot move.
        let movable = |&it: &usize| problem.buffers()[it].pin().is_none() && !fixed[it];
        let most = (0..kept.len()).filter(movable).max_by_key(|&it| (degree[it], it));
        let Some(most) = most.filter(|&it| degree[it] > 0) else { break };
        kept[most] = false;
    }
    // The buffers of a group stay together, or none stays.
    let group = |index: usize| {
        let buffer = &problem.buffers()[index];
        buffer.group().map(|group| (buffer.space(), group))
    };
    let moving: BTreeSet<_> = (0..kept.len()).filter(|&it| !kept[it]).filter_map(group).collect();
    for (index, kept) in kept.iter_mut().enumerate() {
        *kept &= group(index).is_none_or(|group| !moving.contains(&group));
    }
    kept
}

/// Returns the pairs of kept buffers whose old offsets contradict each other.
fn contradictions(problem: &Problem, old: &[Option<u64>], kept: &[bool]) -> Vec<(usize, usize)> {
    let mut held: Vec<(LiveRange, u64, u64, usize)> = Vec::new();
    for (index, buffer) in problem.buffers().iter().enumerate().filter(|(it, _)| kept[*it]) {
        let at = old[index].unwrap_or(0);
        let rectangles = buffer.rectangles().filter(|(bytes, _)| bytes.start < bytes.end);
        held.extend(rectangles.map(|(it, live)| (live, at + it.start, at + it.end, index)));
    }
    held.sort_unstable_by_key(|&(live, _, _, index)| (live.start(), index));
    let space = |index: usize| problem.buffers()[index].space();
    let mut now: Vec<(LiveRange, u64, u64, usize)> = Vec::new();
    let mut pairs = Vec::new();
    for born in held {
        now.retain(|other| other.0.end() > born.0.start());
        for other in &now {
            let (one, two) = (other.3.min(born.3), other.3.max(born.3));
            let permitted = problem.rules().permits(BufferId::new(one), BufferId::new(two));
            if other.1 < born.2 && born.1 < other.2 && space(one) == space(two) && !permitted {
                pairs.push((one, two));
            }
        }
        now.push(born);
    }
    pairs.sort_unstable();
    pairs.dedup();
    pairs
}

/// Releases the buffers that are live together with released buffers.
fn release_neighbors(problem: &Problem, kept: &mut [bool]) {
    let mut free: Vec<(LiveRange, usize)> = Vec::new();
    for (buffer, _) in problem.buffers().iter().zip(&*kept).filter(|(_, kept)| !**kept) {
        free.push((buffer.live(), buffer.space().index()));
    }
    free.sort_unstable_by_key(|(live, _)| live.start());
    for (index, buffer) in problem.buffers().iter().enumerate() {
        let (live, space) = (buffer.live(), buffer.space().index());
        let last = free.partition_point(|(it, _)| it.start() < live.end());
        if free[..last].iter().any(|&(it, of)| of == space && it.overlaps(live)) {
            kept[index] = false;
        }
    }
}
