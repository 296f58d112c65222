//! Packings of blocks, which are items that together fill rectangles.

use alloc::{boxed::Box, vec::Vec};

use super::grown::Whole;
use super::incumbent::Incumbent;
use super::searches::Searches;
use crate::base::Result;
use crate::solve::assume::blocks::{Blocks, Stacks};
use crate::solve::budget::Stage;
use crate::solve::greedy::sweep;
use crate::solve::model::arith::{index, real};
use crate::solve::model::clock::Clock;
use crate::solve::tuning::{self, layout::EFFORT_PER_SWEPT};

/// Joins items to blocks, and packs the blocks.
///
/// Among several tolerances, the tolerance with the fewest initial blocks is kept. If many blocks
/// are left with each tolerance, the items were not cut like that, and the search gives up.
#[derive(Debug)]
pub(crate) struct BlockSearches<'m> {
    whole: Whole<'m>,
    state: BlockedState,
}

/// The search's state.
#[derive(Debug)]
enum BlockedState {
    /// No items have been joined.
    New,
    /// Blocks are joined and packed.
    Open(Box<JoinedBlocks>),
    /// Too many blocks are left, or the model is not plain or too large.
    Closed,
}

/// Blocks for a tolerance.
#[derive(Debug)]
struct JoinedBlocks {
    blocks: Blocks,
    /// The fewest blocks so far.
    fewest: Option<Fewest>,
    /// The number of blocks at the last packing.
    packed: usize,
    /// Effort so far in memory accesses: joining, and searching.
    joining: usize,
    searching: usize,
}

/// Few blocks, and facts about their packings.
#[derive(Debug)]
struct Fewest {
    stacks: Stacks,
    searches: Option<Searches>,
    peak: u64,
    bound: u64,
}

impl<'m> BlockSearches<'m> {
    pub(crate) fn new(whole: Whole<'m>) -> Self {
        let is_small = whole.model.items.len() <= tuning::portfolio::LARGE_CORE;
        let is_fit = is_small && whole.model.is_plain();
        Self { whole, state: if is_fit { BlockedState::New } else { BlockedState::Closed } }
    }

    /// Returns whether there is something left to try.
    pub(crate) fn can(&self) -> bool {
        !matches!(self.state, BlockedState::Closed)
    }

    /// Joins items to blocks, or packs blocks, for a peak of at least `goal` bytes.
    pub(crate) fn step(
        &mut self,
        goal: u64,
        best: &mut Incumbent<'_>,
        clock: &Clock<'_>,
    ) -> Result<()> {
        if let BlockedState::New = self.state {
            let joined = JoinedBlocks::new(self.whole, clock)?;
            self.state = joined.map(Box::new).map_or(BlockedState::Closed, BlockedState::Open);
        }
        match &mut self.state {
            BlockedState::Open(joined) => joined.step(self.whole, goal, best, clock),
            _ => Ok(()),
        }
    }
}

impl JoinedBlocks {
    /// Joins with each tolerance, and returns the fewest blocks if few.
    fn new(whole: Whole<'_>, clock: &Clock<'_>) -> Result<Option<Self>> {
        let mut fewest: Option<Blocks> = None;
        for tolerance in tuning::assume::GROWTH_TOLERANCES {
            let slack = 1.0 / real(tolerance.max(2));
            let mut blocks = Blocks::new(whole.model, slack, clock.seed())?;
            blocks.improve(0, clock);
            if fewest.as_ref().is_none_or(|it| blocks.count() <= it.count()) {
                fewest = Some(blocks);
            }
        }
        let most = whole.model.items.len() / tuning::assume::ITEMS_PER_BLOCK;
        let joined =
            |blocks| Self { blocks, fewest: None, packed: usize::MAX, joining: 0, searching: 0 };
        Ok(fewest.filter(|it| it.count() <= most).map(joined))
    }

    /// Joins for a while, or searches the fewest blocks for a quarter of the effort.
    fn step(
        &mut self,
        whole: Whole<'_>,
        goal: u64,
        best: &mut Incumbent<'_>,
        clock: &Clock<'_>,
    ) -> Result<()> {
        let before = clock.effort();
        let fewest = self.fewest.as_mut().filter(|it| it.can_search(best));
        if let Some(fewest) = fewest.filter(|_| self.searching < self.joining / 3) {
            fewest.search(whole, goal, best, clock)?;
            self.searching += clock.effort() - before;
        } else {
            self.join(whole, best, clock)?;
            self.joining += clock.effort() - before;
        }
        Ok(())
    }

    /// Joins for a while, and packs the blocks if there are fewer than before.
    fn join(
        &mut self,
        whole: Whole<'_>,
        best: &mut Incumbent<'_>,
        clock: &Clock<'_>,
    ) -> Result<()> {
        let is_over = self.blocks.improve(tuning::assume::BLOCK_EFFORT, clock);
        if !is_over && self.blocks.count() >= self.packed {
            return Ok(());
        }
        let stacks = self.blocks.stacks(whole.model)?;
        self.packed = self.blocks.count();
        if is_over {
            self.blocks.begin_anew();
            self.packed = usize::MAX;
        }
        let Some(stacks) = stacks.filter(|it| it.model.bound < best.peak()) else {
            return Ok(());
        };
        let mut fewest = Fewest::new(stacks, clock)?;
        fewest.sweep(whole, best, clock)?;
        let rank = |it: &Fewest| (it.stacks.model.items.len(), it.bound);
        let is_better = |it: &Fewest| !it.can_search(best) || rank(&fewest) < rank(it);
        if self.fewest.as_ref().is_none_or(is_better) {
            self.fewest = Some(fewest);
        }
        Ok(())
    }
}

impl Fewest {
    fn new(stacks: Stacks, clock: &Clock<'_>) -> Result<Self> {
        let is_small = stacks.model.items.len() <= tuning::portfolio::SMALL_CORE;
        let searches = if is_small { Searches::new(&stacks.model, clock)? } else { None };
        let bound = stacks.model.bound;
        Ok(Self { stacks, searches, peak: u64::MAX, bound })
    }

    /// Returns whether a search may find a better packing.
    fn can_search(&self, best: &Incumbent<'_>) -> bool {
        let is_open = self.searches.as_ref().is_some_and(|searches| !searches.are_closed());
        is_open && self.bound < best.peak().min(self.peak)
    }

    /// Packs the blocks by best fit in birth order.
    fn sweep(
        &mut self,
        whole: Whole<'_>,
        best: &mut Incumbent<'_>,
        clock: &Clock<'_>,
    ) -> Result<()> {
        let model = &self.stacks.model;
        let mut of_blocks = best.of_grown(model, self.peak, self.bound, clock);
        let offsets = sweep::best_fit(model, of_blocks.limit(), clock)?;
        clock.spend(model.items.len() * EFFORT_PER_SWEPT);
        of_blocks.offer(offsets, Stage::Sweep);
        self.peak = of_blocks.peak();
        offer(&self.stacks, of_blocks.offsets(), whole, best);
        Ok(())
    }

    /// Runs an exact search.
    fn search(
        &mut self,
        whole: Whole<'_>,
        goal: u64,
        best: &mut Incumbent<'_>,
        clock: &Clock<'_>,
    ) -> Result<()> {
        let Some(searches) = &mut self.searches else { return Ok(()) };
        let model = &self.stacks.model;
        let mut of_blocks = best.of_grown(model, self.peak, self.bound, clock);
        searches.step(model, goal, &mut of_blocks, clock)?;
        (self.peak, self.bound) = (of_blocks.peak(), of_blocks.bound());
        offer(&self.stacks, of_blocks.offsets(), whole, best);
        Ok(())
    }
}

/// Offers a packing of blocks, if any.
fn offer(stacks: &Stacks, blocks: Option<&[u64]>, whole: Whole<'_>, best: &mut Incumbent<'_>) {
    let of_core = |blocks: &[u64]| {
        let all = stacks.offsets(blocks);
        whole.core.iter().map(|&item| all[index(item)]).collect::<Vec<_>>()
    };
    best.offer(blocks.map(of_core), Stage::Grown);
}
