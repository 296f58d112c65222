//! Phase saving: the offsets of the search that left the least area open.
//!
//! # References
//!
//! Pipatsrisawat and Darwiche, "A lightweight component caching scheme for satisfiability solvers",
//! SAT 2007. Here, the phases of the search with the least open area are kept, rather than the last
//! phases.

use alloc::vec::Vec;

use super::state::SkylineState;
use crate::base::Result;

/// The offsets of the search for one target that left the least area open.
#[derive(Debug, Default)]
pub(super) struct SavedPhases {
    /// Whether phases are saved.
    pub(super) wanted: bool,
    /// Grains × sections that were still open.
    left: u128,
    /// The offset of each kind at that time, if there was any such search.
    offsets: Vec<u64>,
    /// Searches since then.
    pub(super) age: u32,
}

impl SavedPhases {
    /// Returns that nothing is saved yet.
    pub(super) fn new(wanted: bool) -> Self {
        Self { wanted, ..Self::default() }
    }

    /// Saves a state if it has less open area than the saved one, or if none is saved.
    pub(super) fn update(&mut self, state: &SkylineState) -> Result<()> {
        if self.wanted && (self.offsets.is_empty() || state.left < self.left) {
            state.record(&mut self.offsets)?;
            self.left = state.left;
            self.age = 0;
        }
        Ok(())
    }

    /// Returns the offset of each kind, of which `u64::MAX` is none, or nothing.
    pub(super) fn offsets(&self) -> &[u64] {
        &self.offsets
    }
}
