//! Phase saving.

use super::state::State;
use crate::error::Result;

/// How far searches for one target came.
#[derive(Debug, Default)]
pub(super) struct SavedPhases {
    /// Whether it is written down.
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

    /// Writes down a state if nothing is, or less is open than in what is.
    pub(super) fn update(&mut self, state: &State) -> Result<()> {
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
