//! Plans that take less time and more bytes than another plan.

use alloc::vec::Vec;

use super::maker::{Finish, Maker, Timed};
use crate::base::{NodeId, Result};
use crate::choose::time::StepWays;

/// Most rounds in which the steps of a plan are split further.
pub(super) const ROUNDS: usize = 4;

/// Returns the fewest bytes of a plan that is fast enough; `u64::MAX` if there is no such plan.
pub(super) fn bytes_within<'t>(tried: impl IntoIterator<Item = &'t Timed>, limit: u64) -> u64 {
    let within = tried.into_iter().filter(|timed| timed.time() <= limit);
    within.map(|timed| timed.plan.arena_bytes()).min().unwrap_or(u64::MAX)
}

/// Returns more bytes than `bytes`: room for offsets that were not found, a thirtieth.
pub(super) fn widened(bytes: u64) -> u64 {
    bytes.saturating_add((bytes / 100).saturating_mul(3).max(1))
}

/// Returns plans that take less time and more bytes, until a plan is fast enough.
pub(super) fn faster(
    maker: &Maker<'_, '_>,
    from: &Timed,
    limit: u64,
    below: u64,
) -> Result<Vec<Timed>> {
    let mut found: Vec<Timed> = Vec::new();
    let mut timed = from.clone();
    let mut least = timed.plan.arena_bytes();
    for _ in 0..ROUNDS {
        if timed.time() <= limit {
            break;
        }
        let steps = maker.ways(&timed);
        let room = least_room(&steps, least, limit);
        if room >= below {
            break;
        }
        // Bytes that fit by size may have no offsets: the next round has more room.
        least = widened(room);
        if let Some(other) = with_ways(maker, &timed, &steps, room)? {
            if other.time() < timed.time() {
                timed = other.clone();
            }
            found.push(other);
        }
    }
    Ok(found)
}

/// Returns the fewest bytes in which steps are fast enough, or all useful bytes.
fn least_room(steps: &[StepWays], least: u64, limit: u64) -> u64 {
    let ways = steps.iter().flat_map(|step| &step.ways);
    let mut sizes: Vec<u64> = ways.map(|way| way.bytes).filter(|&bytes| bytes > least).collect();
    sizes.push(least);
    sizes.sort_unstable();
    sizes.dedup();
    let time = |room: u64| {
        let fastest = steps.iter().map(|step| step.fastest(room).time);
        fastest.fold(0, u64::saturating_add)
    };
    let (mut low, mut high) = (0, sizes.len() - 1);
    while low < high {
        let middle = low + (high - low) / 2;
        if time(sizes[middle]) <= limit {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    sizes[low]
}

/// Returns a plan whose steps run in the fastest ways within so many bytes; `None` if the result is
/// the plan itself.
fn with_ways(
    maker: &Maker<'_, '_>,
    timed: &Timed,
    steps: &[StepWays],
    room: u64,
) -> Result<Option<Timed>> {
    let mut wanted: Vec<Vec<NodeId>> = Vec::new();
    let mut staged: Vec<NodeId> = Vec::new();
    for step in steps {
        let way = step.fastest(room);
        if way.parts.is_empty() {
            wanted.push(step.nodes.clone());
            staged.extend(step.nodes.last().filter(|_| way.staged));
        } else {
            wanted.extend(way.parts.iter().cloned());
        }
    }
    let plan = &timed.plan;
    let is_same = wanted.iter().map(Vec::as_slice).eq(steps.iter().map(|step| &*step.nodes));
    if is_same && staged == plan.overlapped() && room <= plan.arena_bytes() {
        return Ok(None);
    }
    let finish = Finish {
        steps: Some(wanted),
        overlapping: Some(staged),
        room,
        ..maker.unchanged(&plan.strips())
    };
    maker.finish(&timed.draft, finish).map(Some)
}
