//! Lower bounds on every packing's peak.

use alloc::{format, vec::Vec};

use crate::base::{Error, MAX_BYTES, Result, SpaceId, Step};
use crate::problem::Problem;

/// Returns the largest *load* of a space, the most bytes live at any step, and the first step with
/// that load. Buffers that may be in other spaces, too, do not count.
///
/// No packing needs fewer bytes. Runs in `O(n log n)` for `n` buffers; the number of steps does
/// not matter.
///
/// # Errors
///
/// [`Error::SizeOverflow`] if the bytes live at one step exceed [`MAX_BYTES`].
///
/// # References
///
/// Buchsbaum et al., "OPT versus LOAD in dynamic storage allocation", STOC 2003.
///
/// # Examples
///
/// ```
/// use arenaplan_pack::base::{LiveRange, Step};
/// use arenaplan_pack::{Buffer, Space, max_load};
/// use arenaplan_pack::{Problem, SpaceId};
/// let problem = Problem::new(
///     vec![Buffer::new(100, LiveRange::new(0, 2)?), Buffer::new(60, LiveRange::new(1, 3)?)],
///     vec![Space::default()],
/// )?;
/// assert_eq!(max_load(&problem, SpaceId::new(0))?, (160, Step::new(1)));
/// # Ok::<(), arenaplan_pack::Error>(())
/// ```
pub fn max_load(problem: &Problem, space: SpaceId) -> Result<(u64, Step)> {
    let mut births = Vec::new();
    let mut deaths = Vec::new();
    for buffer in problem.buffers().iter().filter(|buffer| buffer.spaces() == [space]) {
        for (bytes, live) in buffer.rectangles() {
            let size = bytes.end - bytes.start;
            births.push((live.start(), size));
            deaths.push((live.end(), size));
        }
    }
    births.sort_unstable();
    deaths.sort_unstable();
    let mut dying = deaths.iter().peekable();
    let mut live = 0_u128;
    let mut best = (0_u128, Step::default());
    let mut next = 0;
    while let Some(&(step, _)) = births.get(next) {
        while let Some((_, size)) = dying.next_if(|(end, _)| *end <= step) {
            live -= u128::from(*size);
        }
        while let Some((_, size)) = births.get(next).filter(|(start, _)| *start == step) {
            live += u128::from(*size);
            next += 1;
        }
        if live > best.0 {
            best = (live, step);
        }
    }
    match u64::try_from(best.0) {
        Ok(load) if load <= MAX_BYTES => Ok((load, best.1)),
        _ => Err(Error::SizeOverflow { what: format!("all that is live at step {}", best.1) }),
    }
}
