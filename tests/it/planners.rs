//! Planners that tests share.

use arenaplan::{Planner, Target};

static IDEAL: Target = Target::IDEAL;

/// Returns a planner that may use every technique and counts values only.
pub fn ideal_planner<'a>() -> Planner<'a> {
    Planner::new().target(&IDEAL)
}
