//! The search's moves: each changes the state and propagates.

use super::state::{Conflict, SkylineState};
use crate::base::Result;
use crate::solve::model::arith::index;

impl SkylineState {
    /// Places an item of `kind` at its low, which must be the floor of all its sections.
    ///
    /// Returns how much room was given up: for each section, the fraction of the slack.
    pub(super) fn place(&mut self, kind: u32) -> Result<f64, Conflict> {
        let it = &self.kinds[index(kind)];
        let (sections, size) = (it.sections(), it.size);
        let end = self.low[index(kind)] + size;
        self.close(kind, false);
        for section in sections.clone() {
            self.total[section] -= size;
            self.set_floor(section, end);
        }
        let done = self.settle(sections, end);
        self.prune_by_sums(done)
    }

    /// Raises the floor of `section` to `floor`, with the room below left empty.
    pub(super) fn give_up(&mut self, section: u32, floor: u64) -> Result<f64, Conflict> {
        let at = index(section);
        if floor + self.total[at] > self.roof[at] {
            return Err(Conflict { section });
        }
        self.set_floor(at, floor);
        let done = self.settle(at..at + 1, floor);
        self.prune_by_sums(done)
    }

    /// Dominance rule: places all items of a kind that is live in all sections of a component
    /// directly below the roof. Any packing of the other items fits below: move the packing to the
    /// roof, and the items above the kind down by its size.
    pub(super) fn lid(&mut self, kind: u32) -> Result<(), Conflict> {
        let it = &self.kinds[index(kind)];
        let (sections, size, low) = (it.sections(), it.size, self.low[index(kind)]);
        while self.left_over[index(kind)] > 0 {
            self.close(kind, true);
            for section in sections.clone() {
                self.total[section] -= size;
                self.roof[section] -= size;
            }
        }
        self.uncovered.clear();
        for section in sections {
            if self.floor[section] == low {
                self.drop_count(section);
            }
        }
        let done = self.cover();
        self.prune_by_sums(done).map(|_| ())
    }
}
