//! Packing again after a problem has changed, with few buffers at other offsets.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use crate::base::{BufferId, Error, LiveRange, MAX_BYTES, Result, Step};
use crate::pack::solve::{Budget, solve};
use crate::pack::{Buffer, Methods, Packing, Problem, SolveOptions, Space, Status};

/// Search nodes of each packing with fixed buffers, unless the caller limits them.
const NODES: u64 = 5_000;
/// Times that more buffers are released before all are.
const RINGS: usize = 4;
/// Times that each moved buffer is tried at its old offset: one that returns may make room for another.
const ROUNDS: usize = 3;
/// Methods that move few buffers.
const CHAINED: [&str; 2] = ["hints", "ejection_chains"];

/// A packing beside an old one.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Repacking {
    /// The packing.
    pub packing: Packing,
    /// Buffers that are not at their old offset.
    pub moved: Vec<BufferId>,
    /// Bytes that all spaces together need if only those buffers move that must: the price of
    /// staying is the difference to the peak of the packing.
    pub peak_of_staying: u64,
}

/// Packs a changed problem so that few buffers leave their `old` offsets.
///
/// The peak of each space is at most that of [`solve`] from scratch, or at most the capacity if there
/// is one that can be met. New buffers have no old offset. First only those buffers move whose old
/// offsets contradict each other or are above that peak. If the others leave these no room, ejection
/// chains move some of them, or all that are live with moved ones do, and so on; the packing with
/// the fewest moved buffers is returned.
///
/// # Errors
///
/// Those of [`solve`], and [`Error::InvalidBuffer`] if there is not one old offset, or none, for each
/// buffer.
///
/// # Examples
///
/// ```
/// use arenaplan::base::{BufferId, LiveRange};
/// use arenaplan::pack::{Buffer, Space, repack};
/// use arenaplan::{Budget, Problem};
/// // The first buffer has grown from 8 to 12 bytes: the second one makes room.
/// let buffer = |bytes, start, end| Ok(Buffer::new(bytes, LiveRange::new(start, end)?));
/// let buffers = vec![buffer(12, 0, 2)?, buffer(8, 1, 4)?, buffer(8, 3, 5)?];
/// let problem = Problem::new(buffers, vec![Space::default()])?;
/// let again = repack(&problem, &[Some(0), Some(8), Some(0)], &Budget::default())?;
/// assert_eq!((again.packing.peak(), again.moved), (20, vec![BufferId::new(1)]));
/// # Ok::<(), arenaplan::Error>(())
/// ```
pub fn repack(problem: &Problem, old: &[Option<u64>], budget: &Budget<'_>) -> Result<Repacking> {
    let count = problem.buffers().len();
    if old.len() != count {
        let reason = alloc::format!("there are {} old offsets and {count} buffers", old.len());
        return Err(Error::InvalidBuffer { buffer: count.min(old.len()), reason });
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
    let mut kept = keepable(problem, old, &[]);
    let unlimited: Vec<u64> = problem.spaces().iter().map(|_| MAX_BYTES).collect();
    let staying = around(problem, old, &kept, &unlimited, &short)?;
    let peak_of_staying = staying.map_or(fresh.peak(), |packing| packing.peak());
    // Only offsets below the limits may stay.
    kept = keepable(problem, old, &limits);
    let count_moved = |packing: &Packing| {
        old.iter().zip(packing.offsets()).filter(|&(old, new)| *old != Some(*new)).count()
    };
    let mut best = around(problem, old, &kept, &limits, &short)?;
    if best.is_none() {
        best = chained(problem, old, &kept, &limits, budget)?;
        for _ in 0..RINGS {
            release_neighbors(problem, &mut kept);
            if let Some(packing) = around(problem, old, &kept, &limits, &short)? {
                best = best.into_iter().chain([packing]).min_by_key(count_moved);
                break;
            }
        }
    }
    let mut packing = best.unwrap_or_else(|| fresh.clone());
    return_home(problem, old, &limits, &mut packing);
    // The bounds are those of the problem, not of the one with fixed buffers.
    for ((it, fresh), space) in packing.spaces.iter_mut().zip(&fresh.spaces).zip(problem.spaces()) {
        it.lower_bound = fresh.lower_bound.min(it.peak);
        it.status = Status::of(it.peak, it.lower_bound, space.capacity());
    }
    let is_moved = |&id: &usize| old[id] != Some(packing.offsets()[id]);
    let moved = (0..count).filter(is_moved).map(BufferId::new).collect();
    Ok(Repacking { packing, moved, peak_of_staying })
}

/// Packs around the buffers that are `kept` at their old offsets; nothing if that exceeds a limit.
fn around(
    problem: &Problem,
    old: &[Option<u64>],
    kept: &[bool],
    limits: &[u64],
    budget: &Budget<'_>,
) -> Result<Option<Packing>> {
    let fixed = |buffer: &Buffer, old: u64, is_kept: bool| {
        if is_kept { buffer.clone().with_pin(old) } else { buffer.clone().with_hint(old) }
    };
    let Some(fixed) = near(problem, old, kept, limits, fixed)? else { return Ok(None) };
    // The first answer places buffers at their hints, while searches do not look at hints.
    for nodes in [Some(0), budget.nodes] {
        if let Some(packing) = within(&fixed, limits, &Budget { nodes, ..*budget })? {
            return Ok(Some(packing));
        }
    }
    Ok(None)
}

/// Packs by ejection chains that start from the offsets of the buffers that are `kept`, with the others
/// above them; nothing if that exceeds a limit.
///
/// A chain displaces as little as it can, so most buffers stay.
fn chained(
    problem: &Problem,
    old: &[Option<u64>],
    kept: &[bool],
    limits: &[u64],
    budget: &Budget<'_>,
) -> Result<Option<Packing>> {
    let hinted = |buffer: &Buffer, old: u64, is_kept: bool| {
        if is_kept { buffer.clone().with_hint(old) } else { buffer.clone() }
    };
    let Some(hinted) = near(problem, old, kept, limits, hinted)? else { return Ok(None) };
    let others = Methods::NAMES.iter().filter(|name| !CHAINED.contains(name));
    let methods = others.fold(Methods::ALL, |on, name| on.without(name).unwrap_or(on));
    let mut tuning = budget.options.copied().unwrap_or_default().tuning;
    // The limits are known: a target on the way there would move buffers in vain.
    tuning.chains.ambition = 1.0;
    let options = SolveOptions { methods, tuning };
    within(&hinted, limits, &Budget { options: Some(&options), ..*budget })
}

/// Returns the problem with limits and, of each buffer without a pin that has an old offset, what `place`
/// makes of it; nothing if pins contradict each other.
fn near(
    problem: &Problem,
    old: &[Option<u64>],
    kept: &[bool],
    limits: &[u64],
    place: impl Fn(&Buffer, u64, bool) -> Buffer,
) -> Result<Option<Problem>> {
    let buffers = problem.buffers().iter().zip(old.iter().zip(kept));
    let buffers = buffers.map(|(buffer, (old, &kept))| match (old, buffer.pin()) {
        (Some(old), None) => place(buffer, *old, kept),
        _ => buffer.clone(),
    });
    let limited = |(space, &limit): (&Space, &u64)| {
        if limit == MAX_BYTES { space.clone() } else { space.clone().with_capacity(limit) }
    };
    let spaces = problem.spaces().iter().zip(limits).map(limited).collect();
    match Problem::with_rules(buffers.collect(), spaces, problem.rules().clone()) {
        Ok(fixed) => Ok(Some(fixed)),
        Err(Error::PinConflict { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns a packing within the limits, if one is found.
fn within(problem: &Problem, limits: &[u64], budget: &Budget<'_>) -> Result<Option<Packing>> {
    match solve(problem, budget) {
        Ok(packing) => {
            let mut peaks = packing.spaces().iter().map(|it| it.peak).zip(limits);
            Ok(peaks.all(|(peak, &limit)| peak <= limit).then_some(packing))
        }
        Err(Error::PinConflict { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Moves buffers back to their old offsets where these are free: chains displace some buffers for others
/// that move on.
///
/// Rules and groups make buffers depend on others, so problems that have some stay as they are.
fn return_home(problem: &Problem, old: &[Option<u64>], limits: &[u64], packing: &mut Packing) {
    let has_group = problem.buffers().iter().any(|it| it.group().is_some());
    if has_group || !problem.rules().may_overlap.is_empty() || !problem.rules().apart.is_empty() {
        return;
    }
    let may_stay = own_offsets(problem, old, limits);
    let held = |index: usize, at: u64| {
        let rectangles = problem.buffers()[index].rectangles();
        rectangles.map(move |(bytes, live)| (at + bytes.start, at + bytes.end, live))
    };
    let mut away: Vec<usize> = (0..may_stay.len())
        .filter(|&it| may_stay[it] && old[it] != Some(packing.offsets[it]))
        .collect();
    away.sort_unstable_by_key(|&it| (core::cmp::Reverse(problem.buffers()[it].bytes()), it));
    let by_birth = Births::new(problem);
    for _ in 0..ROUNDS {
        away.retain(|&it| {
            let Some(home) = old[it] else { return false };
            let is_free = by_birth.live_with(problem, it).all(|other| {
                let mut rectangles = held(it, home);
                rectangles.all(|(start, end, live)| {
                    held(other, packing.offsets[other]).all(|(low, high, range)| {
                        end <= low || high <= start || !live.overlaps(range)
                    })
                })
            });
            if is_free {
                packing.offsets[it] = home;
            }
            !is_free
        });
    }
    let mut peaks = alloc::vec![0_u64; packing.spaces.len()];
    for (buffer, &at) in problem.buffers().iter().zip(&packing.offsets) {
        let peak = &mut peaks[buffer.space().index()];
        *peak = (*peak).max(at + buffer.bytes());
    }
    for (it, peak) in packing.spaces.iter_mut().zip(peaks) {
        it.peak = peak;
    }
}

/// Buffers in the order of their births.
struct Births {
    order: Vec<usize>,
    /// By position in the order, the last step at which a buffer up to there is live.
    ends: Vec<Step>,
}

impl Births {
    fn new(problem: &Problem) -> Self {
        let live = |it: usize| problem.buffers()[it].live();
        let mut order: Vec<usize> = (0..problem.buffers().len()).collect();
        order.sort_unstable_by_key(|&it| (live(it).start(), it));
        let mut ends: Vec<Step> = Vec::with_capacity(order.len());
        for &it in &order {
            let end = live(it).end();
            ends.push(ends.last().map_or(end, |&last| end.max(last)));
        }
        Self { order, ends }
    }

    /// Returns the other buffers of the same space that are live together with one.
    fn live_with<'p>(
        &'p self,
        problem: &'p Problem,
        one: usize,
    ) -> impl Iterator<Item = usize> + 'p {
        let (live, space) = (problem.buffers()[one].live(), problem.buffers()[one].space());
        let first = self.ends.partition_point(|&end| end <= live.start());
        let others = self.order[first..].iter().copied();
        let others =
            others.take_while(move |&it| problem.buffers()[it].live().start() < live.end());
        others.filter(move |&it| {
            let other = &problem.buffers()[it];
            it != one && other.space() == space && other.live().overlaps(live)
        })
    }
}

/// Returns which buffers may stay together at their old offsets, below the limits if there are any.
///
/// Of each contradiction, the buffer with most contradictions moves.
fn keepable(problem: &Problem, old: &[Option<u64>], limits: &[u64]) -> Vec<bool> {
    let mut kept = own_offsets(problem, old, limits);
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
        let movable = |&it: &usize| problem.buffers()[it].pin().is_none();
        let most = (0..kept.len()).filter(movable).max_by_key(|&it| (degree[it], it));
        let Some(most) = most.filter(|&it| degree[it] > 0) else { break };
        kept[most] = false;
    }
    // Buffers of one group stay together, or none does.
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

/// Returns which buffers may each stay at their old offsets, if no other one is in the way.
fn own_offsets(problem: &Problem, old: &[Option<u64>], limits: &[u64]) -> Vec<bool> {
    problem
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
        .collect()
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

/// Releases the buffers that are live together with released ones.
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
