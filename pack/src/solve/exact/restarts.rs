//! Restarts: many short searches with different rules instead of a long one.
//!
//! # References
//!
//! Gomes, Selman and Kautz, "Boosting combinatorial search through randomization", AAAI 1998; Luby,
//! Sinclair and Zuckerman, "Optimal speedup of Las Vegas algorithms", Information Processing
//! Letters 47, 1993. Here the lengths grow geometrically; later, short searches alternate with a
//! growing search.

use alloc::vec::Vec;

use super::exact_search::DepthSearch;
use super::kinds::ItemKind;
use super::outcome::Outcome;
use super::state::SkylineState;
use super::turns::{Rank, Turns};
use crate::base::Result;
use crate::solve::model::Model;
use crate::solve::model::arith::{fraction, index, share};
use crate::solve::model::clock::Clock;
use crate::solve::model::loads::most_loaded;
use crate::solve::model::memory::{filled, with_capacity};
use crate::solve::model::random::Random;
use crate::solve::tuning;

/// Searches in a model, one after the other.
///
/// Search times vary by orders of magnitude with early choices. So each search gets few nodes, and
/// the next search a few more, with other rules. Nogoods and failure weights are kept.
#[derive(Debug)]
pub(crate) struct Restarts {
    search: DepthSearch,
    ranks: [Vec<f64>; 2],
    random: Random,
    /// Total grains × sections of all items.
    area: u128,
}

impl Restarts {
    /// Returns searches in `model`; nothing if the model is too large to be searched.
    pub(crate) fn new(model: &Model, clock: &Clock<'_>) -> Result<Option<Self>> {
        let Some(state) = SkylineState::new(model, clock)? else { return Ok(None) };
        let loads = most_loaded(model)?;
        let first = |kind: &ItemKind| index(kind.copies[0]);
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
        let search = DepthSearch::new(state, ranks[0].clone(), weights, clock)?;
        let random = Random::new(clock.seed());
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
        let is_random = turns.all_tried() && clock.methods().random_ranks;
        let noise = tuning::exact::RANK_NOISE;
        let (strategy, rank) = turns.next(&mut self.random);
        self.search.ranks.clone_from(&self.ranks[usize::from(rank == Rank::Load)]);
        if is_random {
            for rank in &mut self.search.ranks {
                *rank += noise * self.random.unit();
            }
        }
        self.search.run(model, target, strategy, &mut turns.phases, clock)
    }

    /// Returns the least fraction of all grains × sections left open by any search.
    pub(crate) fn least_open(&self) -> f64 {
        share(self.search.least_left, self.area)
    }

    /// Returns the offsets that the last search has found.
    pub(crate) fn offsets(&self, model: &Model) -> Result<Vec<u64>> {
        self.search.state.offsets(model.items.len())
    }
}

/// Returns each kind's rank, from 0 for the largest key to 1 for the smallest.
fn ranks<K: Ord>(kinds: &[ItemKind], key: impl Fn(&ItemKind) -> K) -> Result<Vec<f64>> {
    let mut order = with_capacity(kinds.len(), "ranks")?;
    order.extend(0..kinds.len());
    order.sort_by_key(|&kind| core::cmp::Reverse(key(&kinds[kind])));
    let mut ranks = filled(0.0, kinds.len(), "ranks")?;
    for (place, kind) in order.into_iter().enumerate() {
        ranks[kind] = fraction(place, kinds.len());
    }
    Ok(ranks)
}
