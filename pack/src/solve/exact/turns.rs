//! The restart schedule of one target: rule and length of each search.

use super::branch::SectionRule;
use super::exact_search::Strategy;
use crate::solve::model::Model;
use crate::solve::model::arith::{number, whole};
use crate::solve::model::clock::Clock;
use crate::solve::tuning::RestartsTuning;

/// In which order items are preferred, all else being equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rank {
    /// Longest, then largest area.
    Length,
    /// In the fullest sections, then largest area.
    Load,
}

/// Rules of the searches, in turn. No rule is best on all problems.
const TURNS: [(SectionRule, Rank); 8] = [
    (SectionRule::FewLoaded, Rank::Length),
    (SectionRule::FewLoaded, Rank::Load),
    (SectionRule::Few, Rank::Length),
    (SectionRule::Few, Rank::Load),
    (SectionRule::FewTight, Rank::Length),
    (SectionRule::Lowest, Rank::Length),
    (SectionRule::Emptiest, Rank::Load),
    (SectionRule::Tight, Rank::Load),
];

/// The searches for one target so far: each target has its own turns.
#[derive(Debug)]
pub(crate) struct Turns {
    turn: usize,
    /// Decisions of the next search.
    nodes: f64,
    tuning: RestartsTuning,
}

impl Turns {
    /// Returns a schedule that starts at search number `turn`.
    pub(crate) fn new(model: &Model, turn: usize, clock: &Clock<'_>) -> Self {
        let tuning = clock.tuning().restarts;
        // Many items take many nodes, even if the search hardly ever goes back.
        let items = number(model.items.len());
        let nodes = if items > tuning.many_items {
            tuning.nodes_per_item * f64::from(items)
        } else {
            tuning.first_nodes
        };
        Self { turn, nodes, tuning }
    }

    /// Returns whether every pair of rules has had a turn.
    pub(crate) const fn all_tried(&self) -> bool {
        self.turn >= TURNS.len()
    }

    /// Returns whether weights of failures are reset before the next search.
    pub(crate) fn forgets_failures(&self) -> bool {
        self.turn.is_multiple_of(self.tuning.reset_every)
    }

    /// Starts the next search.
    pub(super) fn next(&mut self) -> (Strategy, Rank) {
        let (rule, rank) = TURNS[self.turn % TURNS.len()];
        let strategy = Strategy { rule, nodes: whole(self.nodes) };
        self.nodes *= self.tuning.growth;
        self.turn += 1;
        (strategy, rank)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;
    use crate::solve::budget::Budget;
    use crate::solve::exact::outcome::Outcome;
    use crate::solve::exact::restarts::Restarts;
    use crate::solve::model::random::Random;
    use crate::solve::testing::{assert_packed, crowded_buffers, model_of};

    /// Searches until the target is decided, and checks a packing that is found.
    fn decided(model: &Model, target: u64, turns: &mut Turns, clock: &Clock<'_>) -> Outcome {
        let mut search = Restarts::new(model, clock).unwrap().unwrap();
        loop {
            let outcome = search.step(model, target, turns, clock).unwrap();
            if outcome == Outcome::Found {
                assert_packed(model, &search.offsets(model).unwrap(), target);
            }
            assert!(!clock.is_up(), "it ends by itself");
            if outcome != Outcome::Undecided {
                return outcome;
            }
        }
    }

    #[test]
    fn searches_with_few_nodes_decide_what_long_ones_do() {
        let mut random = Random::new(1);
        let budget = Budget { seed: 7, ..Budget::default() };
        let mut count = [0, 0];
        for _ in 0..1000 {
            let clock = Clock::new(&budget);
            let model = model_of(crowded_buffers(&mut random));
            let target = model.bound + u64::from(random.below(3) == 0);
            let outcome = decided(&model, target, &mut Turns::new(&model, 0, &clock), &clock);
            let first = Turns::new(&model, TURNS.len(), &clock);
            let mut short = Turns { nodes: 6.0, ..first };
            assert_eq!(decided(&model, target, &mut short, &clock), outcome);
            count[usize::from(outcome == Outcome::Found)] += 1;
        }
        assert!(count.iter().all(|&many| many > 20), "of both outcomes there are many: {count:?}");
    }
}
