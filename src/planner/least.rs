//! The attempt that packs into the fewest bytes.

use super::attempt::Attempt;
use super::context::{Context, MOST_NODES_TO_SHARE_LESS};
use super::overlap_search::overlapped;
use super::pack::{Best, pack};
use crate::base::Result;

/// Most schedules that are packed besides the given schedule.
const MOST_PACKED: usize = 4;

/// Returns the attempt that packs into the fewest bytes. Outputs overlap inputs only if fewer bytes
/// are possible in no other way.
pub(super) fn least<'t, 'g>(
    context: &Context<'_>,
    attempts: &'t [Attempt<'g>],
) -> Result<Best<'t, 'g>> {
    let mut best: Option<Best<'t, 'g>> = None;
    for (index, attempt) in attempts.iter().enumerate() {
        let least = best.as_ref().map_or(u64::MAX, Best::peak);
        // Where workspaces or pieces cost more than the load tells, the first few and
        // the simplest are compared.
        let is_small = attempt.schedule.order.len() <= MOST_NODES_TO_SHARE_LESS;
        let is_tried = is_small || index < MOST_PACKED || attempt.schedule.is_given();
        if attempt.load >= least || !is_tried {
            continue;
        }
        let placed = pack(&attempt.context(context), &attempt.schedule, attempt.elision, &[])?;
        let peak = placed.packing.peak();
        if peak < least {
            best = Some(Best { attempt, placed });
        }
        // Of timetables that fit, the first is the shortest.
        let is_timed = attempt.schedule.table().is_some();
        if is_timed && context.options.capacity.is_some_and(|bytes| peak <= bytes) {
            break;
        }
    }
    let best = best.expect("the given order is always tried");
    Ok(overlapped(context, attempts, best.peak())?.unwrap_or(best))
}
