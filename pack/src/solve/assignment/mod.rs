//! The choice of spaces: from buffers that may be in several spaces to one space per buffer.
//!
//! [`search`](assignment_search::SpaceSearch) assigns the buffers one by one, depth first with
//! branch and bound: the loads of the spaces are lower bounds of the peaks. Spaces excluded by a
//! pair are removed from the other buffer's choices (forward checking), and buffers in pairs come
//! first, fewest remaining spaces first, as in graph coloring (Brélaz, "New methods to color the
//! vertices of a graph", Communications of the ACM 22, 1979). Each complete assignment is packed,
//! space by space.

mod assignment_search;
mod leaves;
mod pairs;
mod space_loads;

use crate::base::Result;
use crate::packing::Packing;
use crate::problem::Problem;
use crate::solve::budget::Budget;
use assignment_search::SpaceSearch;
pub(super) use leaves::{PackSpace, Packed};

/// Returns the packing found with the fewest total bytes in all spaces, and the search effort. If
/// all spaces have a capacity, the search ends as soon as all buffers fit.
///
/// # Errors
///
/// [`Error::PinConflict`](crate::Error::PinConflict) if no spaces and offsets obey all rules, or
/// none were found; otherwise the errors of `pack`.
pub(super) fn solve(
    problem: &Problem,
    budget: &Budget<'_>,
    pack: PackSpace<'_>,
) -> Result<(Packing, usize)> {
    SpaceSearch::new(problem, budget, pack)?.run()
}
