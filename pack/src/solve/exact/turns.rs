//! The restart schedule for a target: rules, lengths and weights of each search.

use super::branch::{BranchWeights, SectionRule};
use super::exact_search::Strategy;
use super::phases::SavedPhases;
use crate::solve::model::Model;
use crate::solve::model::arith::{number, whole};
use crate::solve::model::clock::Clock;
use crate::solve::model::random::Random;
use crate::solve::options::Methods;
use crate::solve::tuning;

/// In which order items are preferred, all else being equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rank {
    /// Longest, then largest area.
    Length,
    /// In the fullest sections, then largest area.
    Load,
}

/// The searches' rules, in turn. No rule is best on all problems.
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

/// The searches for a target so far: each target has separate turns.
#[derive(Debug)]
pub(crate) struct Turns {
    turn: usize,
    /// Decisions in the next search, or in the next long search.
    nodes: f64,
    /// Decisions in short searches, and in the searches since the last long search.
    short: f64,
    since: f64,
    /// Turns for every pair of rules before short searches begin.
    rounds: usize,
    pub(super) phases: SavedPhases,
    methods: Methods,
}

impl Turns {
    /// Returns a schedule that starts at search number `turn`.
    pub(crate) fn new(model: &Model, turn: usize, clock: &Clock<'_>) -> Self {
        let methods = *clock.methods();
        // Many items take many nodes, even if the search hardly ever goes back.
        let items = number(model.items.len());
        let nodes = if items > tuning::restarts::MANY_ITEMS {
            tuning::restarts::NODES_PER_ITEM * f64::from(items)
        } else {
            tuning::restarts::FIRST_NODES
        };
        let fullest = model.loads.iter().map(|load| load.grains).max();
        let full = model.loads.iter().filter(|load| Some(load.grains) == fullest).count();
        let rounds = if full * tuning::restarts::FULL_FACTOR > model.loads.len() {
            1
        } else {
            tuning::restarts::ROUNDS
        };
        let phases = SavedPhases::default();
        Self {
            turn,
            nodes,
            short: tuning::restarts::SHORT * nodes,
            since: 0.0,
            rounds,
            phases,
            methods,
        }
    }

    /// Returns whether every pair of rules has had a turn.
    pub(crate) const fn all_tried(&self) -> bool {
        self.turn >= TURNS.len()
    }

    /// Returns whether short searches have begun, with occasional long searches.
    pub(crate) const fn are_short(&self) -> bool {
        self.methods.short_searches && self.turn >= self.rounds * TURNS.len()
    }

    /// Returns whether failure weights are reset before the next search.
    pub(crate) fn forgets_failures(&self) -> bool {
        let searches = if self.are_short() {
            tuning::restarts::RESET_SHORT
        } else {
            tuning::restarts::RESET_LONG
        };
        self.turn.is_multiple_of(searches)
    }

    /// Starts the next search.
    pub(super) fn next(&mut self, random: &mut Random) -> (Strategy, Rank) {
        let (rule, rank) = TURNS[self.turn % TURNS.len()];
        // Once all rules had a turn, every second search uses subset-sum pruning.
        let sums = self.methods.subset_sums
            && self.all_tried()
            && (self.turn + self.turn / TURNS.len()) % 2 == 1;
        let mut strategy =
            Strategy { rule, preferences: BranchWeights::STANDARD, sums, nodes: whole(self.nodes) };
        self.phases.wanted = self.are_short() && self.methods.phase_saving;
        if !self.are_short() {
            self.nodes *= tuning::restarts::GROWTH;
        } else if self.nodes <= tuning::restarts::LONG_SHARE * self.since {
            self.nodes *= tuning::restarts::LONG_GROWTH;
            self.since = 0.0;
        } else {
            strategy.nodes = whole(self.short);
            strategy.preferences = self.some_taste(random);
            self.since += self.short;
        }
        self.turn += 1;
        (strategy, rank)
    }

    /// Returns random weights for a short search.
    fn some_taste(&mut self, random: &mut Random) -> BranchWeights {
        self.phases.age += 1;
        if self.phases.age > tuning::restarts::STALE {
            self.phases = SavedPhases::new(self.methods.phase_saving);
        }
        BranchWeights {
            tried: tuning::restarts::CANDIDATES,
            rank: tuning::restarts::RANKS[random.below(3)],
            fit: tuning::restarts::FITS[random.below(4)],
            phase: if random.below(tuning::restarts::FREE_EVERY) == 0 {
                0.0
            } else {
                tuning::restarts::PHASE
            },
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;
    use crate::solve::budget::Budget;
    use crate::solve::exact::outcome::Outcome;
    use crate::solve::exact::restarts::Restarts;
    use crate::solve::model::clock::Clock;
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
    fn short_searches_decide_what_long_ones_do() {
        let mut random = Random::new(1);
        let budget = Budget { seed: 7, ..Budget::default() };
        let mut count = [0, 0];
        for _ in 0..1000 {
            let clock = Clock::new(&budget);
            let model = model_of(crowded_buffers(&mut random));
            let target = model.bound + u64::from(random.below(3) == 0);
            let outcome = decided(&model, target, &mut Turns::new(&model, 0, &clock), &clock);
            // Such short searches follow saved phases many times.
            let first = Turns::new(&model, TURNS.len(), &clock);
            let mut short = Turns { rounds: 1, short: 3.0, nodes: 6.0, ..first };
            assert_eq!(decided(&model, target, &mut short, &clock), outcome);
            count[usize::from(outcome == Outcome::Found)] += 1;
        }
        assert!(count.iter().all(|&many| many > 20), "of both outcomes there are many: {count:?}");
    }
}
