//! The choice of spaces: from buffers that may be in several spaces to one space for each.
//!
//! [`search`](assignment_search::SpaceSearch) assigns one buffer after the other, depth first with branch and bound: the
//! loads of the spaces bound the peaks from below. Spaces that a pair excludes leave the choices of its
//! other buffer (forward checking), and buffers of pairs come first, those with the fewest spaces left at
//! the front, as in the coloring of graphs (Brélaz, "New methods to color the vertices of a graph",
//! Communications of the ACM 22, 1979). Each assignment that is complete is packed, space by space.

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

/// Returns the packing with the fewest bytes in all spaces together that is found, and the effort of the
/// search. If all spaces have a capacity, the search ends as soon as all buffers fit.
///
/// # Errors
///
/// [`Error::PinConflict`](crate::Error::PinConflict) if no spaces and offsets obey all rules, or none were
/// found; the other errors of `pack`.
pub(super) fn solve(
    problem: &Problem,
    budget: &Budget<'_>,
    pack: PackSpace<'_>,
) -> Result<(Packing, usize)> {
    SpaceSearch::new(problem, budget, pack)?.run()
}
