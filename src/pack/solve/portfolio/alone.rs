//! Searches of one thread, for machines without threads: stands in for `threads.rs`.

use super::incumbent::Incumbent;
use crate::base::Result;
use crate::pack::solve::model::Model;
use crate::pack::solve::model::clock::Clock;

/// The packings of other threads, of which there are none.
#[derive(Debug)]
pub(crate) enum Exchange {}

impl Exchange {
    /// Exchanges packing and bound with the other threads.
    pub(crate) fn exchange(&self, _: &mut Incumbent<'_>) {
        match *self {}
    }
}

/// Runs `first`.
pub(crate) fn improve_together(
    _: &Model,
    best: &mut Incumbent<'_>,
    clock: &Clock<'_>,
    mut first: impl FnMut(&mut Incumbent<'_>, &Clock<'_>, Option<&Exchange>) -> Result<()>,
    _: impl Fn(usize, &mut Incumbent<'_>, &Clock<'_>, &Exchange) -> Result<()> + Sync,
) -> Result<()> {
    first(best, clock, None)
}
