//! Phase saving: the offsets of the search with the least open area.
//!
//! # References
//!
//! Pipatsrisawat and Darwiche, "A lightweight component caching scheme for satisfiability solvers",
//! SAT 2007. Here, the phases of the search with the least open area are kept, rather than the last
//! phases.

use alloc::vec::Vec;

use super::state::SkylineState;
use crate::base::Result;

/// The offsets of the search with the least open area, for a target.
#[derive(Debug, Default)]
pub(super) struct SavedPhases {
    /// Whether phases are saved.
    pub(super) wanted: bool,
    /// Grains × sections that were still open.
    left: u128,
    /// Each kind's offset at that time, if there was such a search.
    offsets: Vec<u64>,
    /// Searches since then.
    pub(super) age: u32,
}

impl SavedPhases {
    /// Returns an empty store.
    pub(super) fn new(wanted: bool) -> Self {
        Self { wanted, ..Self::default() }
    }

    /// Saves a state if less area is open than in the saved state, or if no state is saved.
    pub(super) fn update(&mut self, state: &SkylineState) -> Result<()> {
        if self.wanted && (self.offsets.is_empty() || state.left < self.left) {
            state.record(&mut self.offsets)?;
            self.left = state.left;
            self.age = 0;
        }
        Ok(())
    }

    /// Returns each kind's offset, with `u64::MAX` for none; empty if no state is saved.
    pub(super) fn offsets(&self) -> &[u64] {
        &self.offsets
    }
}
