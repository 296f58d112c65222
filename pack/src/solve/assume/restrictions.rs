//! Exact searches in a core for a target, under one assumption after the other.
//!
//! A *restricted model* is a core with assumed tight cuts. Restricted models have fewer and longer
//! items, so searches are shorter. A packing found under any assumption is a packing of the core.
//! Only the last model, which assumes nothing, can prove infeasibility.
//!
//! # References
//!
//! Restricting a search to a likely solution structure is a matheuristic; Fischetti and Lodi,
//! "Local branching", Mathematical Programming 98, 2003, restrict integer programs in this way. The
//! assumption of equal-sum cuts is new, as far as known.

use alloc::{boxed::Box, vec::Vec};

use super::join::{Cuts, Joined, join};
use crate::base::Result;
use crate::solve::exact::outcome::Outcome;
use crate::solve::exact::restarts::Restarts;
use crate::solve::exact::turns::Turns;
use crate::solve::model::Model;
use crate::solve::model::clock::Clock;
use crate::solve::options::Methods;
use crate::solve::tuning;

/// The cuts that each restricted model assumes to be tight; the last model assumes nothing.
const ASSUMPTIONS: [Cuts; 3] = [Cuts::Whole, Cuts::Parts, Cuts::Certain];
/// The model that assumes nothing.
const CERTAIN: usize = ASSUMPTIONS.len() - 1;

/// Restricted models of a core that take turns in the search for a target.
#[derive(Debug)]
pub(crate) struct Restrictions {
    /// Target peak in bytes.
    target: u64,
    /// The thread's number.
    turn: usize,
    slots: [RestrictedSlot; ASSUMPTIONS.len()],
}

/// A restricted model's state.
#[derive(Debug, Default)]
enum RestrictedSlot {
    /// The model has not had a turn.
    #[default]
    New,
    /// The model is searched.
    Open(Box<Restriction>),
    /// The model is equal to another model, infeasible, too large, or switched off.
    Closed,
}

/// A restricted model and its searches.
#[derive(Debug)]
struct Restriction {
    /// The model with joined items; none if the core itself is searched.
    joined: Option<Joined>,
    search: Restarts,
    turns: Turns,
}

impl Restrictions {
    /// Returns a core's restricted models for packings that end at byte `target` or before.
    pub(crate) fn new(target: u64) -> Self {
        Self { target, turn: 0, slots: Default::default() }
    }

    /// Starts over if `target` is another target.
    pub(crate) fn aim_at(&mut self, target: u64) {
        if self.target != target {
            *self = Self::new(target);
        }
    }

    /// Returns whether no model is left that could be searched.
    pub(crate) fn are_closed(&self) -> bool {
        self.slots.iter().all(|slot| matches!(slot, RestrictedSlot::Closed))
    }

    /// Returns the model that is searched next.
    ///
    /// Models take turns in order. After `turns_each` turns per model, every second turn goes to
    /// the model with the least open area after a search.
    fn next(&mut self, turns_each: usize) -> usize {
        self.turn += 1;
        let turn = self.turn - 1;
        if turn < turns_each.saturating_mul(ASSUMPTIONS.len()) {
            return turn % ASSUMPTIONS.len();
        }
        if turn.is_multiple_of(2) {
            return turn / 2 % ASSUMPTIONS.len();
        }
        let open = |&slot: &usize| self.slots[slot].least_open();
        let all = 0..ASSUMPTIONS.len();
        all.min_by(|a, b| open(a).total_cmp(&open(b))).unwrap_or(CERTAIN)
    }

    /// Runs a search in the next model, and returns the offsets if a packing is found.
    pub(crate) fn step(&mut self, core: &Model, clock: &Clock<'_>) -> Result<(Outcome, Vec<u64>)> {
        for _ in 0..2 * ASSUMPTIONS.len() {
            let number = self.next(tuning::assume::TURNS_EACH);
            let slot = &mut self.slots[number];
            if let RestrictedSlot::New = slot {
                let restriction = restricted(core, self.target, number, clock)?;
                *slot =
                    restriction.map(Box::new).map_or(RestrictedSlot::Closed, RestrictedSlot::Open);
            }
            let RestrictedSlot::Open(restriction) = slot else { continue };
            let (outcome, offsets) = restriction.step(core, self.target, clock)?;
            if outcome == Outcome::Impossible && number != CERTAIN {
                *slot = RestrictedSlot::Closed; // its assumption is wrong
                return Ok((Outcome::Undecided, offsets));
            }
            return Ok((outcome, offsets));
        }
        // No model can be searched. The effort keeps the caller from asking forever.
        clock.tick(core.items.len());
        Ok((Outcome::Undecided, Vec::new()))
    }
}

impl RestrictedSlot {
    /// Returns the least fraction of the core's area left open by a search in the model.
    fn least_open(&self) -> f64 {
        match self {
            Self::Open(restriction) => restriction.search.least_open(),
            Self::New | Self::Closed => f64::INFINITY,
        }
    }
}

/// Returns a model's cuts, if the methods for these cuts are switched on.
fn permitted(number: usize, on: &Methods) -> Option<Cuts> {
    let cuts = ASSUMPTIONS[number];
    let is_on = match cuts {
        Cuts::Whole => on.assumed_cuts,
        Cuts::Parts => on.assumed_parts,
        Cuts::Certain => true,
    };
    (is_on && on.tight_cuts).then_some(cuts)
}

/// Returns a restricted model of a core; nothing if equal to the core, or too large.
fn restricted(
    core: &Model,
    target: u64,
    number: usize,
    clock: &Clock<'_>,
) -> Result<Option<Restriction>> {
    let joined = match permitted(number, clock.methods()) {
        Some(cuts) => join(core, target, cuts)?,
        None => None,
    };
    if joined.is_none() && number != CERTAIN {
        return Ok(None);
    }
    Restriction::new(core, joined, clock)
}

impl Restriction {
    /// Returns a model's searches; nothing if the model is too large.
    fn new(core: &Model, joined: Option<Joined>, clock: &Clock<'_>) -> Result<Option<Self>> {
        let model = joined.as_ref().map_or(core, Joined::model);
        // A search with so many items hardly ever ends. Joined items may be few even for many
        // items.
        if model.items.len() > tuning::portfolio::SMALL_CORE {
            return Ok(None);
        }
        let turns = Turns::new(model, 0, clock);
        let search = Restarts::new(model, clock)?;
        Ok(search.map(|search| Self { joined, search, turns }))
    }

    /// Runs a search, and returns the offsets if a packing is found.
    fn step(
        &mut self,
        core: &Model,
        target: u64,
        clock: &Clock<'_>,
    ) -> Result<(Outcome, Vec<u64>)> {
        let model = self.joined.as_ref().map_or(core, Joined::model);
        let outcome = self.search.step(model, target, &mut self.turns, clock)?;
        if outcome != Outcome::Found {
            return Ok((outcome, Vec::new()));
        }
        let offsets = self.search.offsets(model)?;
        match &self.joined {
            Some(joined) => Ok((outcome, joined.offsets(&offsets)?)),
            None => Ok((outcome, offsets)),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;
    use crate::solve::budget::Budget;
    use crate::solve::model::random::Random;
    use crate::solve::testing::{assert_packed, model_of, replaced_buffers};

    #[test]
    fn restricted_models_decide_as_the_core_itself_does() {
        let mut random = Random::new(5);
        let budget = Budget { seed: 7, ..Budget::default() };
        let mut count = [0, 0];
        for round in 0..1000 {
            let clock = Clock::new(&budget);
            let model = model_of(replaced_buffers(&mut random));
            let target = model.bound + u64::from(random.below(3) == 0);
            let mut plain = Restriction::new(&model, None, &clock).unwrap().unwrap();
            let expected = loop {
                let (outcome, _) = plain.step(&model, target, &clock).unwrap();
                if outcome != Outcome::Undecided {
                    break outcome;
                }
            };
            let mut restrictions = Restrictions::new(target);
            let (outcome, offsets) = loop {
                let (outcome, offsets) = restrictions.step(&model, &clock).unwrap();
                if outcome != Outcome::Undecided {
                    break (outcome, offsets);
                }
            };
            assert_eq!(outcome, expected, "round {round}");
            if outcome == Outcome::Found {
                assert_packed(&model, &offsets, target);
            }
            count[usize::from(outcome == Outcome::Found)] += 1;
        }
        assert!(count.iter().all(|&many| many > 20), "of both outcomes there are many: {count:?}");
    }
}
