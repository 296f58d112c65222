//! How searches for one target take turns: with what rules, for how long, and led by what.

use super::super::arith::{number, whole};
use super::super::model::Model;
use super::super::random::Random;
use super::branch::{SectionRule, Taste};
use super::state::State;
use super::{Manner, TASTE};
use crate::error::Result;

/// In which order items are preferred, all else being equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rank {
    /// Longest, then largest area.
    Length,
    /// In the fullest sections, then largest area.
    Load,
}

/// What the searches take turns with. No rule is best on all problems.
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

/// Items above which the first search needs more than [`FIRST_NODES`].
const MANY: u32 = 600;
/// Decisions of the first search.
const FIRST_NODES: f64 = 400.0;
/// By how much each of the first searches is longer than the one before.
const GROWTH: f64 = 1.06;
/// By how much each of the long searches is longer than the one before.
const LONG_GROWTH: f64 = 1.5;
/// A long search may have this part of the nodes that short ones had since the last one.
const LONG_SHARE: f64 = 0.15;
/// Short searches are this much longer than the first one.
const SHORT: f64 = 2.5;
/// How often every pair of rules has a turn before short searches begin.
const ROUNDS: usize = 5;
/// If more than one of so many sections is as full as any, one round is enough.
const FULL: usize = 10;
/// Short searches after which failures are forgotten.
const FORGET: usize = 16;
/// Short searches without progress after which the farthest one is forgotten.
const STALE: u32 = 30;
/// Candidates that short searches try.
const TRIED: usize = 16;
/// Of so many short searches, one is not led by the farthest one.
const FREE: usize = 3;

/// How far searches for one target came.
#[derive(Debug, Default)]
pub(crate) struct Farthest {
    /// Whether it is written down.
    wanted: bool,
    /// Grains × sections that were still open.
    left: u128,
    /// The offset of each kind at that time, if there was any such search.
    offsets: Vec<u64>,
    /// Searches since then.
    age: u32,
}

impl Farthest {
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

/// The searches for one target so far: each target has its own turns.
#[derive(Debug)]
pub(crate) struct Turns {
    turn: usize,
    /// Decisions of the next search, or of the next long one.
    nodes: f64,
    /// Decisions of short searches, and of those since the last long one.
    short: f64,
    since: f64,
    /// How often every pair of rules has a turn before short searches begin.
    rounds: usize,
    pub(super) farthest: Farthest,
}

impl Turns {
    /// Returns that there were none by this thread, and `turn` by others: each begins with others.
    pub(crate) fn new(model: &Model, turn: usize) -> Self {
        // Many items take many nodes, even if the search hardly ever goes back.
        let items = number(model.items.len());
        let nodes = if items > MANY { 2.0 * f64::from(items) } else { FIRST_NODES };
        let fullest = model.loads.iter().map(|load| load.grains).max();
        let full = model.loads.iter().filter(|load| Some(load.grains) == fullest).count();
        let rounds = if full * FULL > model.loads.len() { 1 } else { ROUNDS };
        let farthest = Farthest::default();
        Self { turn, nodes, short: SHORT * nodes, since: 0.0, rounds, farthest }
    }

    /// Returns whether every pair of rules has had a turn.
    pub(crate) const fn all_tried(&self) -> bool {
        self.turn >= TURNS.len()
    }

    /// Returns whether short searches have begun, with a long one now and then.
    pub(super) const fn are_short(&self) -> bool {
        self.turn >= self.rounds * TURNS.len()
    }

    /// Returns whether the next search starts without what failures have taught.
    pub(super) const fn forgets_failures(&self) -> bool {
        self.turn.is_multiple_of(if self.are_short() { FORGET } else { 2 })
    }

    /// Starts the next search.
    pub(super) fn next(&mut self, random: &mut Random) -> (Manner, Rank) {
        let (rule, rank) = TURNS[self.turn % TURNS.len()];
        // Once all rules had a turn, every second search looks for cracks.
        let cracks = self.all_tried() && (self.turn + self.turn / TURNS.len()) % 2 == 1;
        let mut manner = Manner { rule, taste: TASTE, cracks, nodes: whole(self.nodes) };
        self.farthest.wanted = self.are_short();
        if !self.are_short() {
            self.nodes *= GROWTH;
        } else if self.nodes <= LONG_SHARE * self.since {
            self.nodes *= LONG_GROWTH;
            self.since = 0.0;
        } else {
            manner.nodes = whole(self.short);
            manner.taste = self.some_taste(random);
            self.since += self.short;
        }
        self.turn += 1;
        (manner, rank)
    }

    /// Returns the taste of a short search.
    fn some_taste(&mut self, random: &mut Random) -> Taste {
        self.farthest.age += 1;
        if self.farthest.age > STALE {
            self.farthest = Farthest { wanted: true, ..Farthest::default() };
        }
        Taste {
            tried: TRIED,
            rank: [0.1, 0.5, 1.5][random.below(3)],
            fit: [0.0, 0.3, 1.0, 3.0][random.below(4)],
            habit: if random.below(FREE) == 0 { 0.0 } else { 1.0 },
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::super::super::Budget;
    use super::super::super::clock::Clock;
    use super::super::{Outcome, Restarts};
    use super::*;
    use crate::problem::Buffer;
    use crate::units::{Alignment, LiveRange};

    /// Returns a few buffers, most of which meet, aligned or not.
    fn some_buffers(random: &mut Random) -> Vec<Buffer> {
        let aligned = random.below(2) == 0;
        let mut buffer = || {
            let start = random.below(6);
            let end = start + 1 + random.below(6 - start);
            let live = LiveRange::new(number(start), number(end)).unwrap();
            let bytes = 1 + u64::from(number(random.below(7)));
            let alignment = 1 << if aligned { random.below(3) } else { 0 };
            Buffer::new(bytes, live).with_alignment(Alignment::new(alignment).unwrap())
        };
        (0..9).map(|_| buffer()).collect()
    }

    /// Searches until it is decided; checks what is found.
    fn decided(model: &Model, target: u64, turns: &mut Turns, clock: &Clock<'_>) -> Outcome {
        let mut search = Restarts::new(model, &[], 7).unwrap().unwrap();
        loop {
            let outcome = search.step(model, target, turns, clock).unwrap();
            if outcome == Outcome::Found {
                model.assert_packed(&search.offsets(model).unwrap(), target);
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
        let budget = Budget::default();
        let mut count = [0, 0];
        for _ in 0..1000 {
            let clock = Clock::new(&budget);
            let model = Model::of_buffers(some_buffers(&mut random));
            let target = model.bound + u64::from(random.below(3) == 0);
            let outcome = decided(&model, target, &mut Turns::new(&model, 0), &clock);
            // So short that they are led by what earlier ones recorded, many times.
            let first = Turns::new(&model, TURNS.len());
            let mut short = Turns { rounds: 1, short: 3.0, nodes: 6.0, ..first };
            assert_eq!(decided(&model, target, &mut short, &clock), outcome);
            count[usize::from(outcome == Outcome::Found)] += 1;
        }
        assert!(count.iter().all(|&many| many > 20), "of both outcomes there are many: {count:?}");
    }
}
