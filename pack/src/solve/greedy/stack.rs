//! The fallback if time does not suffice for any pass: every buffer above the previous buffer.

use crate::base::{BufferId, MAX_BYTES};
use crate::packing::{SpacePacking, Status};
use crate::problem::Problem;

/// Stacks the buffers `members` of a space, and stores the offsets.
///
/// Returns nothing if the stack does not fit into memory.
pub(crate) fn stack(
    problem: &Problem,
    members: &[BufferId],
    capacity: Option<u64>,
    offsets: &mut [u64],
) -> Option<SpacePacking> {
    let buffers = members.iter().map(|&id| (id, problem.buffer(id)));
    let pinned = buffers.clone().map(|(_, it)| it.pin().map_or(0, |pin| pin + it.bytes()));
    let mut peak = pinned.max().unwrap_or(0);
    let lower_bound = buffers.clone().map(|(_, it)| it.bytes()).fold(peak, u64::max);
    for (id, buffer) in buffers.filter(|(_, it)| it.pin().is_none() && it.bytes() > 0) {
        // Offsets are at most 2^63, and so are alignments and sizes: no sum wraps.
        let offset = peak.next_multiple_of(problem.alignment(id).bytes());
        peak = offset + buffer.bytes();
        if peak > MAX_BYTES {
            return None;
        }
        offsets[id.index()] = offset;
    }
    Some(SpacePacking { peak, lower_bound, status: Status::of(peak, lower_bound, capacity) })
}
