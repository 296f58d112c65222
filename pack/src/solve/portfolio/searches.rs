//! Exact searches in a core for one target after the other.

use alloc::{boxed::Box, vec::Vec};

use super::incumbent::Incumbent;
use crate::base::Result;
use crate::solve::assume::restrictions::Restrictions;
use crate::solve::budget::Stage;
use crate::solve::exact::outcome::Outcome;
use crate::solve::exact::windowed::Windowed;
use crate::solve::model::Model;
use crate::solve::model::clock::Clock;
use crate::solve::tuning;

/// Exact searches in a core.
///
/// The target is the lowest peak that is not excluded. After `hard_after` searches, some searches
/// aim halfway between this target and the best packing's peak.
#[derive(Debug)]
pub(crate) struct Searches {
    kind: SearchKind,
    count: usize,
}

/// The exact search that fits a core's items.
#[derive(Debug)]
enum SearchKind {
    /// Solid items: restricted models for the lowest target, and for the halfway target.
    Solid(Box<[Restrictions; 2]>),
    /// Items with windows and gaps.
    Windowed(Box<Windowed>),
}

impl Searches {
    /// Returns searches in a core; nothing if the core is too large.
    pub(crate) fn new(core: &Model, clock: &Clock<'_>) -> Result<Option<Self>> {
        let kind = if core.all_solid() {
            let restrictions = || Restrictions::new(core.bound);
            Some(SearchKind::Solid(Box::new([restrictions(), restrictions()])))
        } else {
            Windowed::new(core, clock)?.map(|search| SearchKind::Windowed(Box::new(search)))
        };
        Ok(kind.map(|kind| Self { kind, count: 0 }))
    }

    /// Returns whether all of the core's models are too large.
    pub(crate) fn are_closed(&self) -> bool {
        match &self.kind {
            SearchKind::Solid(restrictions) => restrictions[0].are_closed(),
            SearchKind::Windowed(_) => false,
        }
    }

    /// Runs a search, for a peak of at least `goal` bytes.
    pub(crate) fn step(
        &mut self,
        core: &Model,
        goal: u64,
        best: &mut Incumbent<'_>,
        clock: &Clock<'_>,
    ) -> Result<()> {
        let low = best.bound().max(goal);
        let middle = core.peak_from(low + (best.peak() - low) / 2);
        self.count += 1;
        let every = if goal == 0 {
            tuning::portfolio::HALFWAY_EVERY
        } else {
            tuning::portfolio::HALFWAY_EVERY_GOAL
        };
        let to_middle = clock.methods().halfway_targets
            && self.count >= tuning::portfolio::HARD_AFTER
            && self.count.is_multiple_of(every.max(1));
        let to_middle = to_middle && low < middle && middle < best.peak();
        let target = if to_middle { middle } else { low };
        let (outcome, offsets) = match &mut self.kind {
            SearchKind::Solid(restrictions) => {
                let restrictions = &mut restrictions[usize::from(to_middle)];
                restrictions.aim_at(target);
                restrictions.step(core, clock)?
            }
            SearchKind::Windowed(search) => match search.step(core, target, clock) {
                Outcome::Found => (Outcome::Found, search.offsets()),
                outcome => (outcome, Vec::new()),
            },
        };
        match outcome {
            Outcome::Found => best.offer(Some(offsets), Stage::Exact),
            Outcome::Impossible => {
                best.raise_bound(core.peak_from(target + 1), Stage::Exact);
            }
            Outcome::Undecided => {}
        }
        Ok(())
    }
}
