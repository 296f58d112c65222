//! Blocks: items that together fill a rectangle of time and offsets become a single item.
//!
//! Suppose that a rectangle is cut in two at a moment: the dying side fills the rectangle before,
//! the born side after, and both sides have about the same height. Each side is an item, or several
//! stacked items with the same span. Then both sides form a *block* with the height of the higher
//! side. Blocks join in the same way, so a rectangle's cuts are undone from the smallest to the
//! largest. A packing of blocks is a packing of the items.
//!
//! Which sides belong together is a guess. The surest guess is made first: among few sides at a
//! moment, two nearly equal heights hardly meet by chance. A height is estimated from all items in
//! a block, so guesses become surer as blocks grow. If sides are left over at a moment, some guess
//! nearby was wrong: a few blocks are taken apart and joined again with some noise, and the result
//! stays if no more blocks are left than before.
//!
//! # References
//!
//! Blocks are the nodes of a slicing tree (Otten, "Automatic floorplan design", Design Automation
//! Conference 1982). Taking apart and joining again is ruin and recreate (Schrimpf, Schneider,
//! Stamm-Wilbrandt and Dueck, Journal of Computational Physics 159, 2000).

use alloc::collections::BinaryHeap;
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::ops::Range;

use crate::base::{Error, Result};
use crate::solve::model::Model;
use crate::solve::model::arith::{fraction, index, number, real};
use crate::solve::model::clock::Clock;
use crate::solve::model::memory::{filled, with_capacity};
use crate::solve::model::random::Random;

/// Standard deviations by which the two sides' estimates may differ.
const MOST_DEVIATIONS: f64 = 3.0;
/// Most stacked blocks in a side whose subsets are all tried; above, only single blocks, pairs and
/// all blocks.
const SUBSET_BLOCKS: usize = 6;
/// If more blocks have the same span, none of these blocks joins.
const MOST_TWINS: usize = 64;
/// Most pairs of sides examined for a moment.
const MOST_PAIRS: usize = 4096;
/// Blocks that are taken apart at once, at most.
const TAKEN_APART: usize = 3;
/// Attempts without fewer blocks before all begins anew.
const PATIENCE: usize = 3000;

/// An item, or two sides that fill a rectangle one after the other.
#[derive(Clone, Debug)]
struct Block {
    /// Sections.
    span: Range<u32>,
    /// Grains that the block's items need.
    size: u64,
    /// The rectangle's height, in grains: the highest possible height, estimate and variance.
    most: f64,
    height: f64,
    variance: f64,
    /// The blocks that fill the rectangle before and after the cut, from bottom to top; empty for
    /// an item.
    sides: [Vec<u32>; 2],
}

impl Block {
    fn is_item(&self) -> bool {
        self.sides[0].is_empty()
    }
}

/// Some of the blocks with the same span at a moment.
#[derive(Clone, Copy, Debug)]
struct BlockSide {
    size: u64,
    most: f64,
    height: f64,
    variance: f64,
    /// The chance that these are the right blocks for their span.
    chance: f64,
    /// The position of the span's blocks in the moment's sorted blocks, and the chosen blocks.
    first: usize,
    chosen: u64,
}

impl BlockSide {
    fn meets(&self, other: &Self) -> bool {
        self.first == other.first && self.chosen & other.chosen != 0
    }

    fn blocks(&self, sorted: &[u32]) -> Vec<u32> {
        let chosen = sorted[self.first..].iter().enumerate().take(MOST_TWINS);
        chosen.filter(|(place, _)| self.chosen >> place & 1 > 0).map(|(_, &block)| block).collect()
    }
}

/// Two sides that may form a block.
#[derive(Clone, Debug)]
struct Join {
    /// How likely the sides meet by chance, and how much better they are than the next best sides;
    /// low is good.
    doubt: f64,
    sides: [Vec<u32>; 2],
}

/// Blocks that are not part of another block, and the places of items in these blocks.
#[derive(Debug)]
pub(crate) struct Stacks {
    pub(crate) model: Model,
    /// By item: its block in the model, and the grains below the item in the block.
    places: Vec<(usize, u64)>,
}

impl Stacks {
    /// Returns the offsets of all items, in grains, from the blocks' offsets.
    pub(crate) fn offsets(&self, blocks: &[u64]) -> Vec<u64> {
        self.places.iter().map(|&(block, low)| blocks[block] + low).collect()
    }
}

/// Blocks of the items of a model.
#[derive(Debug)]
pub(crate) struct Blocks {
    all: Vec<Block>,
    /// By block: whether the block is not part of another block.
    is_free: Vec<bool>,
    /// By moment: the free blocks that begin, and the free blocks that end.
    begin: Vec<Vec<u32>>,
    end: Vec<Vec<u32>>,
    free: usize,
    items: usize,
    /// Blocks that became free or part of another block since the last attempt began.
    changes: Vec<u32>,
    /// By moment: whether to find the best join again.
    is_stale: Vec<bool>,
    stale: Vec<u32>,
    /// By moment: how often the best join was found, and the join.
    versions: Vec<u32>,
    joins: Vec<Option<Join>>,
    open: BinaryHeap<Reverse<(u64, u32, u32)>>,
    random: Random,
    /// Noise in the choice of joins, and attempts without fewer blocks.
    heat: f64,
    failures: usize,
}

impl Blocks {
    /// Returns the items of a plain model as unjoined blocks, if each item fills its rectangle
    /// except at most `slack` of the height.
    pub(crate) fn new(model: &Model, slack: f64, seed: u64) -> Result<Self> {
        let (items, moments) = (model.items.len(), model.loads.len() + 1);
        let mut blocks = with_capacity(2 * items, "blocks")?;
        for item in &model.items {
            let size = real(item.size);
            // All slacks up to the largest are assumed equally likely.
            let deviation = (size * slack / libm::sqrt(12.0)).max(0.3);
            blocks.push(Block {
                span: item.span.clone(),
                size: item.size,
                most: size / (1.0 - slack) + 1.0,
                height: size * (1.0 + slack / 2.0),
                variance: deviation * deviation,
                sides: [Vec::new(), Vec::new()],
            });
        }
        let mut made = Self {
            all: blocks,
            is_free: filled(false, items, "blocks")?,
            begin: filled(Vec::new(), moments, "blocks")?,
            end: filled(Vec::new(), moments, "blocks")?,
            free: 0,
            items,
            changes: Vec::new(),
            is_stale: filled(false, moments, "blocks")?,
            stale: Vec::new(),
            versions: filled(0, moments, "blocks")?,
            joins: filled(None, moments, "blocks")?,
            open: BinaryHeap::new(),
            random: Random::new(seed),
            heat: 0.0,
            failures: 0,
        };
        for item in 0..number(items) {
            made.toggle(item);
        }
        Ok(made)
    }

    /// Returns the number of blocks that are not part of another block.
    pub(crate) const fn count(&self) -> usize {
        self.free
    }

    /// Joins all that can be joined, the surest first, then improves the guesses for about `effort`
    /// memory accesses; returns whether no sides are left over, or no better guesses are in sight.
    pub(crate) fn improve(&mut self, effort: usize, clock: &Clock<'_>) -> bool {
        let end = clock.effort().saturating_add(effort);
        self.join_all(clock);
        self.changes.clear();
        self.heat = 1.0;
        while clock.effort() < end && !clock.is_up() {
            let moment = self.open_moment().filter(|_| self.failures < PATIENCE);
            let Some(moment) = moment else { return true };
            self.attempt(moment, clock);
        }
        false
    }

    /// Takes all blocks apart. Noise makes the next blocks different.
    pub(crate) fn begin_anew(&mut self) {
        let free: Vec<u32> = self.end.iter().flatten().copied().collect();
        for block in free {
            self.toggle(block);
        }
        self.all.truncate(self.items);
        self.is_free.truncate(self.items);
        for item in 0..number(self.items) {
            self.toggle(item);
        }
        self.changes.clear();
        self.failures = 0;
    }

    /// Returns the blocks that are not part of another block; nothing if the blocks are too large.
    pub(crate) fn stacks(&self, items: &Model) -> Result<Option<Stacks>> {
        let mut free: Vec<u32> = self.end.iter().flatten().copied().collect();
        free.sort_unstable_by_key(|&block| {
            let it = &self.all[index(block)];
            (it.span.start, it.span.end, it.size, block)
        });
        let solids = free.iter().map(|&block| &self.all[index(block)]);
        let mut model = match items.of_solids(solids.map(|it| (it.span.clone(), it.size))) {
            Ok(model) => model,
            Err(Error::SizeOverflow { .. }) => return Ok(None),
            Err(error) => return Err(error),
        };
        let loads = model.loads.iter().map(|load| load.grains.saturating_mul(model.grain));
        model.bound = loads.fold(model.bound, u64::max);
        let mut places = filled((0, 0), self.items, "blocks")?;
        let mut open: Vec<(u32, usize, u64)> =
            free.iter().enumerate().map(|(place, &block)| (block, place, 0)).collect();
        while let Some((block, place, low)) = open.pop() {
            if let Some(item) = places.get_mut(index(block)) {
                *item = (place, low);
            }
            for side in &self.all[index(block)].sides {
                let mut low = low;
                for &part in side {
                    open.push((part, place, low));
                    low += self.all[index(part)].size;
                }
            }
        }
        Ok(Some(Stacks { model, places }))
    }

    /// Makes a block free, or part of another block.
    fn toggle(&mut self, block: u32) {
        let Range { start, end } = self.all[index(block)].span;
        let is_free = &mut self.is_free[index(block)];
        *is_free = !*is_free;
        for (list, moment) in [(&mut self.begin, start), (&mut self.end, end)] {
            let list = &mut list[index(moment)];
            if *is_free {
                list.push(block);
            } else if let Some(place) = list.iter().position(|&it| it == block) {
                list.swap_remove(place);
            }
        }
        self.free = if *is_free { self.free + 1 } else { self.free - 1 };
        self.changes.push(block);
        self.forget(start);
        self.forget(end);
    }

    /// Marks a moment's best join as outdated.
    fn forget(&mut self, moment: u32) {
        if !core::mem::replace(&mut self.is_stale[index(moment)], true) {
            self.stale.push(moment);
        }
    }

    /// Joins blocks until no two sides may form a block.
    fn join_all(&mut self, clock: &Clock<'_>) {
        loop {
            while let Some(moment) = self.stale.pop() {
                self.is_stale[index(moment)] = false;
                let version = &mut self.versions[index(moment)];
                *version = version.wrapping_add(1);
                let version = *version;
                let join = self.best_join(moment, clock);
                if let Some(join) = &join {
                    // Doubts are positive, so bit order is value order.
                    self.open.push(Reverse((join.doubt.to_bits(), moment, version)));
                }
                self.joins[index(moment)] = join;
            }
            let Some(Reverse((_, moment, version))) = self.open.pop() else { return };
            if self.versions[index(moment)] != version {
                continue;
            }
            let Some(join) = self.joins[index(moment)].take() else { continue };
            self.join(join);
            self.forget(moment);
            if clock.is_up() {
                self.open.clear();
                return;
            }
        }
    }

    /// Joins two sides into a block.
    fn join(&mut self, join: Join) {
        for &block in join.sides.iter().flatten() {
            self.toggle(block);
        }
        let all = |side: &[u32]| {
            let blocks = side.iter().map(|&block| &self.all[index(block)]);
            blocks.fold((0_u64, 0.0, 0.0, 0.0), |(size, most, height, variance), it| {
                let size = size.saturating_add(it.size);
                (size, most + it.most, height + it.height, variance + it.variance)
            })
        };
        let [one, other] = [all(&join.sides[0]), all(&join.sides[1])];
        let first = |side: &[u32]| self.all[index(side[0])].span.clone();
        let span = first(&join.sides[0]).start..first(&join.sides[1]).end;
        let variances = one.3 + other.3;
        self.all.push(Block {
            span,
            size: one.0.max(other.0),
            most: one.1.min(other.1),
            height: (one.2 * other.3 + other.2 * one.3) / variances,
            variance: one.3 * other.3 / variances,
            sides: join.sides,
        });
        self.is_free.push(false);
        self.toggle(number(self.all.len() - 1));
    }

    /// Returns the sides of some blocks, which are sorted by each block's moment `other`.
    fn sides(&self, sorted: &[u32], other: impl Fn(&Block) -> u32) -> (Vec<BlockSide>, usize) {
        let (mut sides, mut spans, mut first) = (Vec::new(), 0, 0);
        let end_of = |block: u32| other(&self.all[index(block)]);
        for twins in sorted.chunk_by(|&one, &two| end_of(one) == end_of(two)) {
            let (all, begin) =
                (u64::MAX >> (MOST_TWINS - twins.len().min(MOST_TWINS)), sides.len());
            let mut add = |chosen: u64| {
                let mut side = BlockSide {
                    size: 0,
                    most: 0.0,
                    height: 0.0,
                    variance: 0.0,
                    chance: 1.0,
                    first,
                    chosen,
                };
                for (_, &block) in twins.iter().enumerate().filter(|it| chosen >> it.0 & 1 > 0) {
                    let it = &self.all[index(block)];
                    side.size = side.size.saturating_add(it.size);
                    side.most += it.most;
                    side.height += it.height;
                    side.variance += it.variance;
                }
                sides.push(side);
            };
            if twins.len() <= SUBSET_BLOCKS {
                (1..=all).for_each(&mut add);
            } else if twins.len() <= MOST_TWINS {
                for one in 0..twins.len() {
                    (one..twins.len()).for_each(|two| add(1 << one | 1 << two));
                }
                add(all);
            }
            // All subsets are equally likely.
            let made = &mut sides[begin..];
            if made.len() > 1 {
                let of_others = 0.5 * fraction(1, made.len() - 1);
                for side in made {
                    side.chance = if side.chosen == all { 0.5 } else { of_others };
                }
            }
            first += twins.len();
            spans += 1;
        }
        (sides, spans)
    }

    /// Returns the join with the least doubt at a moment.
    fn best_join(&mut self, moment: u32, clock: &Clock<'_>) -> Option<Join> {
        let (mut ending, mut born) =
            (self.end[index(moment)].clone(), self.begin[index(moment)].clone());
        if ending.is_empty() || born.is_empty() {
            return None;
        }
        ending.sort_unstable_by_key(|&block| (self.all[index(block)].span.start, block));
        born.sort_unstable_by_key(|&block| (self.all[index(block)].span.end, block));
        let (before, spans_before) = self.sides(&ending, |it| it.span.start);
        let (mut after, spans_after) = self.sides(&born, |it| it.span.end);
        after.sort_unstable_by(|one, other| one.height.total_cmp(&other.height));
        let is_all = |side: &BlockSide, all: &[u32]| index(side.chosen.count_ones()) == all.len();
        let mut found = Vec::new();
        for one in &before {
            let reach = 4.0 * MOST_DEVIATIONS * libm::sqrt(one.variance) + one.height / 1024.0;
            let near = after.partition_point(|it| it.height < one.height - reach);
            let near = after[near..].iter().take_while(|it| it.height <= one.height + reach);
            for other in near.take(MOST_PAIRS - found.len()) {
                let variance = one.variance + other.variance;
                let difference = one.height - other.height;
                let deviations = difference * difference / variance;
                if real(one.size) > other.most
                    || real(other.size) > one.most
                    || deviations > MOST_DEVIATIONS * MOST_DEVIATIONS
                    // The remaining blocks at the moment must have two sides, too.
                    || is_all(one, &ending) != is_all(other, &born)
                {
                    continue;
                }
                let mut by_chance = fraction(spans_before * spans_after, 1)
                    * (libm::sqrt(variance) / one.height)
                    * libm::exp(deviations / 2.0);
                if self.heat > 0.0 {
                    let [a, b, c] = [(); 3].map(|()| self.random.unit());
                    by_chance *= libm::exp(self.heat * (2.0 * (a + b + c) - 3.0));
                }
                found.push((by_chance / (one.chance * other.chance), one, other));
            }
        }
        clock.spend(before.len() + after.len() + found.len());
        let &(least, one, other) = found.iter().min_by(|it, that| it.0.total_cmp(&that.0))?;
        let rivals = found.iter().filter(|(_, it, that)| {
            let is_same = it.first == one.first
                && it.chosen == one.chosen
                && that.first == other.first
                && that.chosen == other.chosen;
            !is_same && (it.meets(one) || that.meets(other))
        });
        let next = rivals.map(|it| it.0).min_by(f64::total_cmp);
        let doubt = least + next.map_or(0.0, |next| least / next);
        Some(Join { doubt, sides: [one.blocks(&ending), other.blocks(&born)] })
    }

    /// Returns a moment with leftover sides, near a random moment.
    fn open_moment(&mut self) -> Option<u32> {
        let last = self.begin.len().checked_sub(1).filter(|&last| last > 1)?;
        let start = self.random.below(last - 1);
        let mut moments = (1..last).cycle().skip(start).take(last - 1);
        let is_open = |&at: &usize| !self.begin[at].is_empty() || !self.end[at].is_empty();
        moments.find(is_open).map(number)
    }

    /// Takes blocks apart that begin, end or are live at a moment, and joins all again; goes back if
    /// more are left than before.
    fn attempt(&mut self, moment: u32, clock: &Clock<'_>) {
        let (free, made) = (self.free, self.all.len());
        let mut near: Vec<u32> = Vec::new();
        for &block in self.end[index(moment)..].iter().flatten() {
            let it = &self.all[index(block)];
            if it.span.start <= moment && !it.is_item() {
                near.push(block);
            }
        }
        // The moments' lists are read in order.
        clock.tick((self.end.len() + free) / 16 + 1);
        for _ in 0..=self.random.below(TAKEN_APART) {
            if near.is_empty() {
                break;
            }
            let chosen = near.swap_remove(self.random.below(near.len()));
            self.take_apart(chosen);
        }
        self.forget(moment);
        self.join_all(clock);
        self.failures = if self.free < free { 0 } else { self.failures + 1 };
        if self.free > free {
            while let Some(block) = self.changes.pop() {
                self.toggle(block);
                self.changes.pop();
            }
            self.all.truncate(made);
            self.is_free.truncate(made);
            // As before, no two sides may form a block.
            for moment in self.stale.drain(..) {
                self.is_stale[index(moment)] = false;
            }
        }
        self.changes.clear();
    }

    /// Frees a block's parts, and recursively the parts' parts with an even chance.
    fn take_apart(&mut self, block: u32) {
        let mut open = Vec::from([block]);
        while let Some(block) = open.pop() {
            self.toggle(block);
            let parts: Vec<u32> = self.all[index(block)].sides.iter().flatten().copied().collect();
            for part in parts {
                self.toggle(part);
                if !self.all[index(part)].is_item() && self.random.below(2) == 0 {
                    open.push(part);
                }
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;
    use crate::base::LiveRange;
    use crate::problem::Buffer;
    use crate::solve::budget::Budget;
    use crate::solve::greedy::sweep;
    use crate::solve::testing::{assert_packed, model_of, random_buffers};

    /// Joins a model's items with at most so many attempts, and returns the blocks.
    fn joined(model: &Model, slack: f64, effort: usize) -> (Blocks, bool) {
        let budget = Budget::default();
        let mut blocks = Blocks::new(model, slack, 1).unwrap();
        let is_over = blocks.improve(effort, &Clock::new(&budget));
        (blocks, is_over)
    }

    /// Packs the blocks, asserts that the items inside are disjoint, and returns the peak in
    /// grains.
    fn peak(model: &Model, blocks: &Blocks) -> u64 {
        let budget = Budget::default();
        let stacks = blocks.stacks(model).unwrap().unwrap();
        assert_eq!(stacks.model.items.len(), blocks.count());
        let offsets = sweep::best_fit(&stacks.model, 1 << 40, &Clock::new(&budget));
        let offsets = stacks.offsets(&offsets.unwrap().unwrap());
        let ends = offsets.iter().zip(&model.items).map(|(low, it)| low + it.size);
        let peak = ends.max().unwrap();
        assert_packed(model, &offsets, peak * model.grain);
        peak
    }

    fn rows(rows: &[(u32, u32, u64)]) -> Model {
        let buffer = |&(start, end, size)| Buffer::new(size, LiveRange::new(start, end).unwrap());
        model_of(rows.iter().map(buffer).collect())
    }

    #[test]
    fn sides_of_a_cut_are_one_block() {
        // At 2, 100 gives way to 60 and 39, and, elsewhere, 31 to 30. The items of 60 and 39 are
        // twins of an item of 17, which is on the ground all the time up to 3.
        let cuts =
            [(0, 2, 100), (2, 4, 60), (2, 4, 39), (1, 2, 31), (2, 3, 30), (0, 1, 30), (3, 4, 31)];
        let model = rows(&cuts);
        let (blocks, is_over) = joined(&model, 1.0 / 32.0, 1 << 16);
        assert!(is_over);
        let mut left: Vec<_> =
            blocks.end.iter().flatten().map(|&it| &blocks.all[index(it)]).collect();
        left.sort_unstable_by_key(|it| it.size);
        let left: Vec<_> = left.iter().map(|it| (it.span.clone(), it.size)).collect();
        assert_eq!(left, [(0..4, 31), (0..4, 100)]);
        assert_eq!(peak(&model, &blocks), 131);
    }

    #[test]
    fn sides_that_are_not_near_stay_apart() {
        let model = rows(&[(0, 2, 100), (2, 4, 90), (0, 3, 7), (3, 4, 5)]);
        let (blocks, _) = joined(&model, 1.0 / 32.0, 1 << 12);
        assert_eq!(blocks.count(), 4);
        assert_eq!(peak(&model, &blocks), 107);
    }

    /// Returns the pieces of a rectangle with 64 steps, randomly cut across, each slightly
    /// shortened.
    fn cut_rectangle(random: &mut Random, pieces: usize) -> Vec<Buffer> {
        let mut whole = Vec::from([(0, 64, 1_u64 << 20)]);
        while whole.len() < pieces {
            let (start, end, height) = whole.swap_remove(random.below(whole.len()));
            if random.below(2) == 0 && end - start > 1 {
                let cut = start + 1 + number(random.below(index(end - start - 1)));
                whole.extend([(start, cut, height), (cut, end, height)]);
            } else if height > 64 {
                let cut = 1 + u64::from(number(random.below(usize::try_from(height - 1).unwrap())));
                whole.extend([(start, end, cut), (start, end, height - cut)]);
            } else {
                whole.push((start, end, height));
            }
        }
        let shorter = |(start, end, height): (u32, u32, u64)| {
            let slack = (u64::from(number(random.below(1 << 16))) * (height / 50)) >> 16;
            Buffer::new(height - slack, LiveRange::new(start, end).unwrap())
        };
        whole.into_iter().map(shorter).collect()
    }

    #[test]
    fn most_cuts_of_a_rectangle_are_undone() {
        let mut random = Random::new(4);
        let mut undone = 0;
        for _ in 0..20 {
            let model = model_of(cut_rectangle(&mut random, 200));
            let (blocks, is_over) = joined(&model, 1.0 / 32.0, 1 << 22);
            let peak = peak(&model, &blocks) * model.grain;
            if is_over && peak <= 1 << 20 {
                undone += 1;
            }
        }
        assert!(undone > 10, "{undone} of 20");
    }

    #[test]
    fn packings_of_blocks_are_packings_of_any_items() {
        let mut random = Random::new(9);
        let mut joins = 0;
        for _ in 0..100 {
            let model = model_of(random_buffers(&mut random, 60, 12, 4, 9));
            let (mut blocks, _) = joined(&model, 0.25, 1 << 16);
            joins += model.items.len() - blocks.count();
            peak(&model, &blocks);
            blocks.begin_anew();
            assert_eq!(blocks.count(), model.items.len());
            peak(&model, &blocks);
        }
        assert!(joins > 500, "{joins}");
    }
}
