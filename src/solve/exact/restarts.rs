//! Many short searches instead of a long one.

use super::super::arith::{fraction, index, number, whole};
use super::super::clock::Clock;
use super::super::first_fit::most_loaded;
use super::super::memory::{filled, with_capacity};
use super::super::model::Model;
use super::super::random::Random;
use super::branch::SectionRule;
use super::state::{Kind, State};
use super::{Outcome, Search};
use crate::error::Result;

/// In which order items are preferred, all else being equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rank {
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

/// Searches of one model, one after the other.
///
/// How long a search takes depends on early choices by many orders of magnitude,
/// so each gets few nodes, the next a little more, with other rules. What they learn
/// is kept: the states that have failed, and which sections were the cause.
#[derive(Debug)]
pub(crate) struct Restarts {
    search: Search,
    ranks: [Vec<f64>; 2],
    random: Random,
}

/// How many searches for one target there were: each target has its own turns.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Turns {
    turn: usize,
    nodes: f64,
}

impl Turns {
    /// Returns that there were none.
    pub(crate) fn new(model: &Model) -> Self {
        Self::from(model, 0)
    }

    /// Returns that other threads are having the first few.
    pub(crate) fn from(model: &Model, turn: usize) -> Self {
        // Many items take many nodes, even if the search hardly ever goes back.
        let items = number(model.items.len());
        let nodes = if items > MANY { 2.0 * f64::from(items) } else { FIRST_NODES };
        Self { turn, nodes }
    }

    /// Counts a search that has no rules to take turns with.
    pub(crate) const fn count(&mut self) {
        self.turn += 1;
    }

    /// Returns whether every pair of rules has had a turn.
    pub(crate) const fn all_tried(self) -> bool {
        self.turn >= TURNS.len()
    }

    /// Returns whether every pair of rules has had several turns.
    pub(crate) const fn all_tried_often(self) -> bool {
        self.turn >= 4 * TURNS.len()
    }
}

/// Items above which the first search needs more than [`FIRST_NODES`].
const MANY: u32 = 600;
/// Decisions of the first search.
const FIRST_NODES: f64 = 400.0;
/// By how much later searches are longer.
const GROWTH: f64 = 1.06;
/// How much chance there is in the ranks of later searches.
const NOISE: f64 = 0.05;
/// Entries of a state's tables at most: about 300 MB.
const LARGEST: usize = 20_000_000;

impl Restarts {
    /// Returns searches of `model`, or nothing if it is too large to be searched.
    pub(crate) fn new(model: &Model, seed: u64) -> Result<Option<Self>> {
        let Some(state) = State::new(model, LARGEST)? else { return Ok(None) };
        let loads = most_loaded(model)?;
        let first = |kind: &Kind| index(kind.copies[0]);
        let ranks = [
            ranks(&state.kinds, |kind| {
                (u64::from(kind.length()), kind.area(), loads[first(kind)])
            })?,
            ranks(&state.kinds, |kind| {
                (loads[first(kind)], kind.area(), u64::from(kind.length()))
            })?,
        ];
        let weights = filled(1.0, model.loads.len(), "sections")?;
        let search = Search::new(state, ranks[0].clone(), weights)?;
        let random = Random::new(seed);
        Ok(Some(Self { search, ranks, random }))
    }

    /// Runs the next search for a packing below byte `target`.
    pub(crate) fn step(
        &mut self,
        model: &Model,
        target: u64,
        turns: &mut Turns,
        clock: &Clock<'_>,
    ) -> Outcome {
        let (section, rank) = TURNS[turns.turn % TURNS.len()];
        if turns.turn.is_multiple_of(2) {
            self.search.weights.fill(1.0);
        }
        self.search.ranks.clone_from(&self.ranks[usize::from(rank == Rank::Load)]);
        if turns.all_tried() {
            for rank in &mut self.search.ranks {
                *rank += NOISE * self.random.unit();
            }
        }
        // Once all rules had a turn, every second search looks for cracks.
        let cracks = turns.all_tried() && (turns.turn + turns.turn / TURNS.len()) % 2 == 1;
        let nodes = whole(turns.nodes);
        turns.turn += 1;
        turns.nodes *= GROWTH;
        self.search.run(model, target, section, cracks, nodes, clock)
    }

    /// Returns the offsets that the last search has found.
    pub(crate) fn offsets(&self, model: &Model) -> Result<Vec<u64>> {
        self.search.state.offsets(model.items.len())
    }
}

/// Returns the place of each kind from 0 for the largest key to 1 for the smallest.
fn ranks<K: Ord>(kinds: &[Kind], key: impl Fn(&Kind) -> K) -> Result<Vec<f64>> {
    let mut order = with_capacity(kinds.len(), "ranks")?;
    order.extend(0..kinds.len());
    order.sort_by_key(|&kind| std::cmp::Reverse(key(&kinds[kind])));
    let mut ranks = filled(0.0, kinds.len(), "ranks")?;
    for (place, kind) in order.into_iter().enumerate() {
        ranks[kind] = fraction(place, kinds.len());
    }
    Ok(ranks)
}
