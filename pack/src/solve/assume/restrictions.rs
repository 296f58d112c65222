//! Exact searches of one core for one target, under one assumption after the other.
//!
//! A *restricted model* is a core in which tight cuts are assumed. It has fewer and longer items, so
//! a search of it is shorter. A packing found under any assumption is a packing of the core.
//! Infeasibility is proven only by the last model, which assumes nothing.
//!
//! # References
//!
//! Restriction of a search by structure that a solution is likely to have is a matheuristic; Fischetti
//! and Lodi, "Local branching", Mathematical Programming 98, 2003, restrict integer programs that
//! way. The assumption of equal-sum cuts is new, as far as known.

use alloc::{boxed::Box, vec::Vec};

use super::join::{Cuts, Joined, join};
use crate::base::Result;
use crate::solve::exact::outcome::Outcome;
use crate::solve::exact::restarts::Restarts;
use crate::solve::exact::turns::Turns;
use crate::solve::model::Model;
use crate::solve::model::clock::Clock;
use crate::solve::options::Methods;

/// The cuts that each restricted model takes for tight; the last one assumes nothing.
const ASSUMPTIONS: [Cuts; 3] = [Cuts::Whole, Cuts::Parts, Cuts::Certain];
/// The model that assumes nothing.
const CERTAIN: usize = ASSUMPTIONS.len() - 1;

/// Restricted models of one core that take turns in the search for one target.
#[derive(Debug)]
pub(crate) struct Restrictions {
    /// Peak in bytes of the packings that are searched for.
    target: u64,
    /// The number of the thread.
    turn: usize,
    slots: [RestrictedSlot; ASSUMPTIONS.len()],
}

/// State of one restricted model.
#[derive(Debug, Default)]
enum RestrictedSlot {
    /// The model has not had a turn.
    #[default]
    New,
    /// The model is searched.
    Open(Box<Restriction>),
    /// The model is equal to another one, infeasible, too large, or switched off.
    Closed,
}

/// A restricted model and its searches.
#[derive(Debug)]
struct Restriction {
    /// The model with joined items; none if the core is searched as it is.
    joined: Option<Joined>,
    search: Restarts,
    turns: Turns,
}

impl Restrictions {
    /// Returns the restricted models of a core for packings that end at byte `target` or before.
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
    /// Models take turns in their order. After `turns_each` turns of each, every second turn goes to
    /// the model in which a search has left the least area open.
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

    /// Runs one search of the next model, and returns the offsets if a packing is found.
    pub(crate) fn step(&mut self, core: &Model, clock: &Clock<'_>) -> Result<(Outcome, Vec<u64>)> {
        for _ in 0..2 * ASSUMPTIONS.len() {
            let number = self.next(clock.tuning().assume.turns_each);
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
    /// Returns the least part of the area of the core that a search of the model has left open.
    fn least_open(&self) -> f64 {
        match self {
            Self::Open(restriction) => restriction.search.least_open(),
            Self::New | Self::Closed => f64::INFINITY,
        }
    }
}

/// Returns the cuts of a model, if the methods for them are switched on.
fn permitted(number: usize, on: &Methods) -> Option<Cuts> {
    let cuts = ASSUMPTIONS[number];
    let is_on = match cuts {
        Cuts::Whole => on.assumed_cuts,
        Cuts::Parts => on.assumed_parts,
        Cuts::Certain => true,
    };
    (is_on && on.tight_cuts).then_some(cuts)
}

/// Returns a restricted model of a core; nothing if it is equal to the core, or too large.
fn restricted(
    core: &Model,
    target: u64,
    number: usize,
    clock: &Clock<'_>,
) -> Result<Option<Restriction>> {
    let joined = match permitted(number, clock.methods()) {
        Some(cuts) => join(core, target, cuts, &clock.tuning().assume)?,
        None => None,
    };
    if joined.is_none() && number != CERTAIN {
        return Ok(None);
    }
    Restriction::new(core, joined, clock)
}

impl Restriction {
    /// Returns the searches of a model, or nothing if the model is too large.
    fn new(core: &Model, joined: Option<Joined>, clock: &Clock<'_>) -> Result<Option<Self>> {
        let model = joined.as_ref().map_or(core, Joined::model);
        // A search of so many items hardly ever ends. Joined items may be few where items are many.
        if model.items.len() > clock.tuning().portfolio.small_core {
            return Ok(None);
        }
        let turns = Turns::new(model, 0, clock);
        let search = Restarts::new(model, clock)?;
        Ok(search.map(|search| Self { joined, search, turns }))
    }

    /// Runs one search, and returns the offsets if a packing is found.
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
