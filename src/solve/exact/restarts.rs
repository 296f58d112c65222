//! Many short searches instead of a long one.

use super::super::arith::{fraction, index, share};
use super::super::clock::Clock;
use super::super::first_fit::most_loaded;
use super::super::memory::{filled, with_capacity};
use super::super::model::Model;
use super::super::random::Random;
use super::links::Link;
use super::state::{Kind, State};
use super::turns::{Rank, Turns};
use super::{Outcome, Search};
use crate::error::Result;

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
    /// Grains × sections of all items.
    area: u128,
}

/// How much chance there is in the ranks of later searches.
const NOISE: f64 = 0.05;
/// Entries of a state's tables at most: about 300 MB.
const LARGEST: usize = 20_000_000;

impl Restarts {
    /// Returns searches of `model`, or nothing if it is too large to be searched.
    pub(crate) fn new(model: &Model, links: &[Link], seed: u64) -> Result<Option<Self>> {
        let Some(state) = State::new(model, links, LARGEST)? else { return Ok(None) };
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
        let area = state.left;
        let search = Search::new(state, ranks[0].clone(), weights)?;
        let random = Random::new(seed);
        Ok(Some(Self { search, ranks, random, area }))
    }

    /// Runs the next search for a packing below byte `target`.
    pub(crate) fn step(
        &mut self,
        model: &Model,
        target: u64,
        turns: &mut Turns,
        clock: &Clock<'_>,
    ) -> Result<Outcome> {
        if turns.forgets_failures() {
            self.search.weights.fill(1.0);
        }
        let noisy = turns.all_tried();
        let (manner, rank) = turns.next(&mut self.random);
        self.search.ranks.clone_from(&self.ranks[usize::from(rank == Rank::Load)]);
        if noisy {
            for rank in &mut self.search.ranks {
                *rank += NOISE * self.random.unit();
            }
        }
        self.search.run(model, target, manner, &mut turns.farthest, clock)
    }

    /// Returns the least share of all grains × sections that any search has left open.
    pub(crate) fn least_open(&self) -> f64 {
        share(self.search.least_left, self.area)
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
