//! How much work an assignment search may do: counted, so that results do not depend on the
//! machine.

use crate::pack::{Allowance, Budget};

/// Limits of a search.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Depth {
    /// States that may stand next to each other in the first walk through time.
    pub(super) narrow: usize,
    /// States that a second, unlimited walk may have in all; 0 for no such walk.
    pub(super) states: usize,
    /// Partial assignments that the best-first search looks at.
    pub(super) nodes: usize,
    /// Packings that the best-first search asks for.
    pub(super) packings: usize,
    /// Packings that push-out and pull-in ask for.
    pub(super) improvements: usize,
    /// Search nodes for a packing that only has to fit.
    pub(super) packing_nodes: u64,
    /// Neighbors that exchanges in a layout look at.
    pub(super) looks: usize,
    /// Earlier moments from which a chain of the overflow bound may continue.
    pub(super) chain: usize,
}

impl Depth {
    /// Some tenths of a millisecond for a hundred buffers.
    pub(crate) const QUICK: Self = Self {
        narrow: 64,
        states: 0,
        nodes: 2_000,
        packings: 20,
        improvements: 40,
        packing_nodes: 200,
        looks: 100_000,
        chain: 8,
    };
    /// Some milliseconds for a hundred buffers.
    pub(crate) const MEDIUM: Self = Self {
        narrow: 512,
        states: 60_000,
        nodes: 20_000,
        packings: 100,
        improvements: 100,
        packing_nodes: 1_000,
        looks: 2_000_000,
        chain: 16,
    };
    /// Up to a second or more for a hard problem of a hundred buffers.
    pub(crate) const FULL: Self = Self {
        narrow: 512,
        states: 1_500_000,
        nodes: 400_000,
        packings: 600,
        improvements: 400,
        packing_nodes: 20_000,
        looks: 60_000_000,
        chain: 64,
    };
}

/// The limits of one search.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SpaceWork<'a> {
    pub(crate) budget: Budget<'a>,
    pub(crate) depth: Depth,
}

impl SpaceWork<'_> {
    /// Counts work that was done.
    pub(super) fn spend(&self, work: usize) {
        if let Some(allowance) = self.budget.allowance {
            allowance.spend(work);
        }
    }

    /// Returns whether to stop with the best assignment so far.
    pub(super) fn is_over(&self) -> bool {
        self.budget.allowance.is_some_and(Allowance::is_spent) || self.budget.exhausted()
    }
}
