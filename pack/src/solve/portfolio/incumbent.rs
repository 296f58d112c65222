//! The best answer so far.

use alloc::vec::Vec;

use crate::base::{MAX_BYTES, SpaceId};
use crate::solve::budget::{Progress, Stage};
use crate::solve::model::Model;
use crate::solve::model::arith::index;
use crate::solve::model::clock::Clock;

/// A space's best packing so far, and the lower bound.
#[derive(Debug)]
pub(crate) struct Incumbent<'a> {
    model: &'a Model,
    space: SpaceId,
    clock: &'a Clock<'a>,
    /// Offsets in grains, by item.
    offsets: Option<Vec<u64>>,
    peak: u64,
    /// Bytes that no answer can go below.
    bound: u64,
    /// Whether the answers belong to another problem.
    is_quiet: bool,
}

impl<'a> Incumbent<'a> {
    /// Returns an incumbent without an answer.
    pub(crate) fn new(model: &'a Model, space: SpaceId, clock: &'a Clock<'a>) -> Self {
        Self {
            model,
            space,
            clock,
            offsets: None,
            peak: u64::MAX,
            bound: model.bound,
            is_quiet: false,
        }
    }

    /// Returns an incumbent for the core of the items `kept`: this incumbent without the other
    /// items.
    pub(crate) fn for_core<'b>(&self, core: &'b Model, kept: &[u32]) -> Incumbent<'b>
    where
        'a: 'b,
    {
        let of_core =
            |all: &Vec<u64>| kept.iter().map(|&item| all[index(item)]).collect::<Vec<_>>();
        let offsets = self.offsets.as_ref().map(of_core);
        let peak = offsets.as_ref().map_or(self.peak, |offsets| core.peak(offsets));
        Incumbent { model: core, offsets, peak: peak.max(self.bound), ..*self }
    }

    /// Returns an incumbent for a model with the same items, grown. The incumbent reports no
    /// progress.
    pub(crate) fn of_grown<'b>(
        &self,
        grown: &'b Model,
        peak: u64,
        bound: u64,
        clock: &'b Clock<'b>,
    ) -> Incumbent<'b> {
        let (space, peak) = (self.space, peak.min(self.peak));
        Incumbent { model: grown, space, clock, offsets: None, peak, bound, is_quiet: true }
    }

    /// Returns whether no answer can be better.
    pub(crate) const fn is_proven(&self) -> bool {
        self.peak <= self.bound
    }

    /// Returns the offsets, if there are any.
    pub(crate) fn offsets(&self) -> Option<&[u64]> {
        self.offsets.as_deref()
    }

    /// Returns the peak in bytes; `u64::MAX` before the first packing.
    pub(crate) const fn peak(&self) -> u64 {
        self.peak
    }

    /// Returns the peak's lower bound, in bytes.
    pub(crate) const fn bound(&self) -> u64 {
        self.bound
    }

    /// Returns the highest grain at which a better answer's items may end.
    pub(crate) fn limit(&self) -> u64 {
        let highest = MAX_BYTES.min(self.peak.saturating_sub(1));
        // Pads are smaller than a grain: the true test is the peak in bytes.
        (highest / self.model.grain).saturating_add(1)
    }

    /// Keeps `offsets` if better, and reports progress.
    pub(crate) fn offer(&mut self, offsets: Option<Vec<u64>>, stage: Stage) {
        let Some(offsets) = offsets else { return };
        let peak = self.model.peak(&offsets);
        if peak < self.peak && peak <= MAX_BYTES {
            self.peak = peak;
            self.offsets = Some(offsets);
            self.report(stage);
        }
    }

    /// Records the proof that no answer has a peak below `bytes`.
    pub(crate) fn raise_bound(&mut self, bytes: u64, stage: Stage) {
        if bytes > self.bound {
            self.bound = bytes;
            self.report(stage);
        }
    }

    /// Tells how far the search is.
    pub(crate) fn report(&self, stage: Stage) {
        if self.is_quiet {
            return;
        }
        let (space, peak, lower_bound) = (self.space, self.peak, self.bound);
        let nodes = self.clock.nodes();
        self.clock.tell(Progress { space, stage, peak, lower_bound, nodes });
    }
}
