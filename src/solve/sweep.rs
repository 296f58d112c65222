//! Best fit in the order of birth, the cheapest valid answer there is.

use crate::error::{Error, Result};
use crate::index::BufferId;
use crate::problem::Problem;

use super::end_of;

/// Places `members` in the order in which they are born, each into the smallest gap
/// that holds it, and returns the peak.
///
/// Considers every buffer as live, with all its bytes, from its first to its last step.
pub(super) fn best_fit(
    problem: &Problem,
    members: &[BufferId],
    offsets: &mut [u64],
) -> Result<u64> {
    let mut order: Vec<_> = members.iter().map(|&id| (problem.buffer(id).live(), id)).collect();
    order
        .sort_unstable_by_key(|&(live, id)| (problem.buffer(id).pin().is_none(), live.start(), id));
    let mut placed: Vec<(u64, u64, BufferId)> = Vec::new();
    let mut peak = 0;
    for (live, id) in order {
        let buffer = problem.buffer(id);
        let alignment = problem.alignment(id);
        let offset = if let Some(pin) = buffer.pin() {
            pin
        } else {
            let mut best: Option<(u64, u64)> = None;
            let mut floor = 0;
            let neighbors = placed
                .iter()
                .filter(|(.., other)| problem.buffer(*other).live().overlaps(live))
                .map(|&(start, end, _)| (start, end));
            for (start, end) in neighbors {
                let candidate = alignment.round_up(floor);
                if let Some(candidate) = candidate
                    && candidate.checked_add(buffer.bytes()).is_some_and(|end| end <= start)
                    && best.is_none_or(|(gap, _)| start - candidate < gap)
                {
                    best = Some((start - candidate, candidate));
                }
                floor = floor.max(end);
            }
            match best.map(|(_, offset)| offset).or_else(|| alignment.round_up(floor)) {
                Some(offset) => offset,
                None => return Err(Error::SizeOverflow { what: "the arena".into() }),
            }
        };
        let end = end_of(offset, buffer.bytes())?;
        offsets[id.index()] = offset;
        peak = peak.max(end);
        if buffer.bytes() > 0 {
            let position = placed.partition_point(|entry| *entry < (offset, end, id));
            placed.insert(position, (offset, end, id));
        }
    }
    Ok(peak)
}
