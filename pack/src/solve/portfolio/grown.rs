//! Searches in a core with slightly grown items, so that sizes add up.

use alloc::{boxed::Box, vec::Vec};

use super::incumbent::Incumbent;
use super::searches::Searches;
use crate::base::Result;
use crate::solve::assume::grow::{NearCuts, grown};
use crate::solve::budget::Stage;
use crate::solve::model::Model;
use crate::solve::model::arith::index;
use crate::solve::model::clock::Clock;
use crate::solve::tuning;

/// All items in a space, and the core's items.
///
/// Sums add up over all items, but not without the items removed by kernelization.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Whole<'m> {
    pub(crate) model: &'m Model,
    /// The core's items, ascending.
    pub(crate) core: &'m [u32],
}

/// Exact searches of grown items, for several tolerances by turns.
///
/// Growth raises the load, so a tolerance's searches end when the best packing of the original
/// items needs no more bytes than the grown items' bound. The first kind of growth gets half of the
/// effort, the second kind half of the rest, and so on.
#[derive(Debug)]
pub(crate) struct GrownSizes<'m> {
    whole: Whole<'m>,
    slots: Vec<GrowthSlot>,
}

/// A kind of growth.
#[derive(Debug)]
struct GrowthSlot {
    near: NearCuts,
    state: GrownState,
    /// Effort so far, in memory accesses.
    spent: usize,
}

/// The search state for a kind of growth.
#[derive(Debug)]
enum GrownState {
    /// The items have not grown.
    New,
    /// The grown items are searched.
    Open(Box<Grown>),
    /// No gain is possible, or no item has grown.
    Closed,
}

/// Grown items, and facts about them.
#[derive(Debug)]
struct Grown {
    model: Model,
    searches: Searches,
    peak: u64,
    bound: u64,
}

impl<'m> GrownSizes<'m> {
    pub(crate) fn new(whole: Whole<'m>) -> Self {
        let tolerances = tuning::assume::GROWTH_TOLERANCES.into_iter();
        let ways = tolerances
            .flat_map(|tolerance| [false, true].map(|parts| NearCuts { tolerance, parts }));
        let slots =
            ways.map(|near| GrowthSlot { near, state: GrownState::New, spent: 0 }).collect();
        Self { whole, slots }
    }

    /// Returns whether there is something left to try.
    pub(crate) fn can(&self) -> bool {
        self.slots.iter().any(|slot| !matches!(slot.state, GrownState::Closed))
    }

    /// Runs a search, for a peak of at least `goal` bytes.
    pub(crate) fn step(
        &mut self,
        goal: u64,
        best: &mut Incumbent<'_>,
        clock: &Clock<'_>,
    ) -> Result<()> {
        let open = self.slots.iter_mut().enumerate();
        let open = open.filter(|(_, slot)| !matches!(slot.state, GrownState::Closed));
        let next = open.min_by_key(|(place, slot)| slot.spent << place);
        let Some((_, slot)) = next else { return Ok(()) };
        let before = clock.effort();
        slot.step(self.whole, goal, best, clock)?;
        slot.spent += clock.effort() - before;
        Ok(())
    }
}

impl GrowthSlot {
    fn step(
        &mut self,
        whole: Whole<'_>,
        goal: u64,
        best: &mut Incumbent<'_>,
        clock: &Clock<'_>,
    ) -> Result<()> {
        if let GrownState::New = self.state {
            let grown = Grown::new(whole.model, self.near, clock)?;
            self.state = grown.map(Box::new).map_or(GrownState::Closed, GrownState::Open);
        }
        let GrownState::Open(grown) = &mut self.state else { return Ok(()) };
        let grown = &mut **grown;
        let is_over = grown.bound >= best.peak() || grown.peak <= grown.bound;
        if is_over || grown.searches.are_closed() {
            self.state = GrownState::Closed;
            return Ok(());
        }
        let mut of_grown = best.of_grown(&grown.model, grown.peak, grown.bound, clock);
        grown.searches.step(&grown.model, goal, &mut of_grown, clock)?;
        (grown.peak, grown.bound) = (of_grown.peak(), of_grown.bound());
        let of_core = |all: &[u64]| whole.core.iter().map(|&item| all[index(item)]).collect();
        let offsets = of_grown.offsets().map(of_core);
        best.offer(offsets, Stage::Grown);
        Ok(())
    }
}

impl Grown {
    fn new(items: &Model, near: NearCuts, clock: &Clock<'_>) -> Result<Option<Self>> {
        let is_small = items.items.len() <= tuning::portfolio::LARGE_CORE;
        if !is_small || !items.is_plain() {
            return Ok(None);
        }
        let Some(model) = grown(items, near, clock)? else { return Ok(None) };
        let searches = Searches::new(&model, clock)?;
        let bound = model.bound;
        Ok(searches.map(|searches| Self { model, searches, peak: u64::MAX, bound }))
    }
}
