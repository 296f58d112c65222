//! Best fit in birth order, the cheapest valid packing; and best fit away from the fullest section.
//!
//! # References
//!
//! Best fit from Knuth, "The Art of Computer Programming", volume 1, section 2.5, with boundary
//! tags as doubly linked blocks. A pass that starts at the peak is new, as far as known.

use alloc::collections::BTreeSet;
use alloc::{vec, vec::Vec};
use core::cmp::Reverse;

use super::nests::Nests;
use crate::base::Result;
use crate::solve::model::arith::{align_up, index, number};
use crate::solve::model::clock::Clock;
use crate::solve::model::memory::{filled, with_capacity};
use crate::solve::model::sort::{order_by_number, sort};
use crate::solve::model::{Item, Model};
use crate::solve::tuning;

/// Grains that are taken now.
#[derive(Clone, Copy, Debug)]
struct TakenGrains {
    start: u64,
    end: u64,
    /// The adjacent blocks below and above, where [`GROUND`] is below all and above all.
    below: u32,
    above: u32,
    /// The section at whose start the block dies.
    dies: u32,
    /// The next block that dies at the same time.
    next_dying: u32,
}

/// A block that has no place yet.
#[derive(Clone, Copy, Debug)]
struct Wanted {
    size: u64,
    mask: u64,
    dies: u32,
}

/// The block without grains that everything stands on.
const GROUND: u32 = 0;

/// Free grains between blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct GrainGap {
    grains: u64,
    start: u64,
    /// The block below the gap.
    below: u32,
}

/// The taken blocks at a moment, as a ring in ascending order, and the gaps between blocks by size.
///
/// A block knows its neighbors, so its end merges gaps without a search. Places of dead blocks are
/// reused, so memory is proportional to the live blocks.
#[derive(Debug)]
struct Tower {
    blocks: Vec<TakenGrains>,
    /// Places in `blocks` that can be used again.
    vacant: Vec<u32>,
    gaps: BTreeSet<GrainGap>,
    /// End of the highest block so far: everything above is free.
    top: u64,
}

impl Tower {
    fn new() -> Self {
        let (below, above, next_dying) = (GROUND, GROUND, GROUND);
        let ground = TakenGrains { start: 0, end: 0, below, above, dies: u32::MAX, next_dying };
        Self { blocks: vec![ground], vacant: Vec::new(), gaps: BTreeSet::new(), top: 0 }
    }

    /// Takes grains from the smallest sufficient gap, or from the top, and returns the block with
    /// the grains.
    ///
    /// The block is at the lower end of the gap, or, with a choice, beside the neighbor that lives
    /// longer. Neighbors that die early then leave gaps that grow.
    fn take(&mut self, wanted: Wanted, tries: usize, chooses_end: bool) -> u32 {
        let Wanted { size, mask, dies } = wanted;
        let from = |grains| self.gaps.range(GrainGap { grains, start: 0, below: GROUND }..);
        let fits = |gap: &&GrainGap| align_up(gap.start, mask) - gap.start + size <= gap.grains;
        let gap = from(size).take(tries).find(fits).or_else(|| from(size + mask).next()).copied();
        // The topmost gap grows into the free space above.
        let below = gap.map_or(self.blocks[index(GROUND)].below, |gap| gap.below);
        let above = self.blocks[index(below)].above;
        let mut start = align_up(self.blocks[index(below)].end, mask);
        let lives = |block: u32| self.blocks[index(block)].dies;
        if chooses_end && above != GROUND && lives(above) > lives(below) {
            start = (self.blocks[index(above)].start - size) & !mask;
        }
        self.insert(below, start, start + size, dies)
    }

    /// Takes grains above all blocks so far, and returns the block with the grains.
    fn stack(&mut self, start: u64, end: u64, dies: u32) -> u32 {
        self.insert(self.blocks[index(GROUND)].below, start, end, dies)
    }

    /// Takes grains from the gap above a block, and returns the block with the grains.
    fn insert(&mut self, below: u32, start: u64, end: u64, dies: u32) -> u32 {
        self.close_gap(below);
        let above = self.blocks[index(below)].above;
        let block = TakenGrains { start, end, below, above, dies, next_dying: GROUND };
        let place = if let Some(place) = self.vacant.pop() {
            self.blocks[index(place)] = block;
            place
        } else {
            self.blocks.push(block);
            number(self.blocks.len() - 1)
        };
        self.blocks[index(below)].above = place;
        self.blocks[index(above)].below = place;
        self.top = self.top.max(block.end);
        self.open_gap(below);
        self.open_gap(place);
        place
    }

    /// Frees a block's grains.
    fn give(&mut self, place: u32) {
        let TakenGrains { below, above, .. } = self.blocks[index(place)];
        self.close_gap(below);
        self.close_gap(place);
        self.blocks[index(below)].above = above;
        self.blocks[index(above)].below = below;
        self.vacant.push(place);
        self.open_gap(below);
    }

    /// Returns the gap above a block, which may be empty.
    fn gap_above(&self, below: u32) -> GrainGap {
        let TakenGrains { end: start, above, .. } = self.blocks[index(below)];
        let end = if above == GROUND { self.top } else { self.blocks[index(above)].start };
        GrainGap { grains: end - start, start, below }
    }

    fn open_gap(&mut self, below: u32) {
        let gap = self.gap_above(below);
        if gap.grains > 0 {
            self.gaps.insert(gap);
        }
    }

    fn close_gap(&mut self, below: u32) {
        let gap = self.gap_above(below);
        if gap.grains > 0 {
            self.gaps.remove(&gap);
        }
    }
}

/// A pass's direction of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TimeDirection {
    Forward,
    /// Items are born at their ends and die at their starts.
    Backward,
}

impl TimeDirection {
    /// Returns an item's birth and death in the pass's direction.
    fn life(self, item: &Item, sections: u32) -> (u32, u32) {
        match self {
            Self::Forward => (item.span.start, item.span.end),
            Self::Backward => (sections - item.span.end, sections - item.span.start),
        }
    }
}

/// A pass over items in birth order.
#[derive(Debug)]
struct Sweep<'m> {
    model: &'m Model,
    direction: TimeDirection,
    tower: Tower,
    /// A block that dies at the start of each section.
    dying: Vec<u32>,
    /// Sections whose dead blocks were given back.
    passed: usize,
    nests: Nests,
    /// Whether an item may be at a gap's upper end, beside a block that lives longer.
    chooses_end: bool,
    /// The grain above which no item may end.
    limit: u64,
    tries: usize,
}

impl<'m> Sweep<'m> {
    fn new(model: &'m Model, direction: TimeDirection, limit: u64) -> Result<Self> {
        Ok(Self {
            model,
            direction,
            tower: Tower::new(),
            dying: filled(GROUND, model.loads.len() + 1, "sections")?,
            passed: 0,
            nests: Nests::default(),
            chooses_end: false,
            limit,
            tries: tuning::greedy::GAP_TRIES,
        })
    }

    fn life(&self, item: &Item) -> (u32, u32) {
        self.direction.life(item, number(self.model.loads.len()))
    }

    /// Records that a block dies at its item's end.
    fn dies_later(&mut self, place: u32) {
        let block = &mut self.tower.blocks[index(place)];
        let dies = index(block.dies);
        block.next_dying = core::mem::replace(&mut self.dying[dies], place);
    }

    /// Takes the grains from `start` on for an item above all blocks so far.
    fn stack(&mut self, item: &Item, start: u64) {
        let (_, dies) = self.life(item);
        let place = self.tower.stack(start, start + item.size, dies);
        self.dies_later(place);
    }

    /// Gives the blocks back that are dead in section `now`.
    fn advance(&mut self, now: u32) {
        while self.passed <= index(now) {
            let mut dead = self.dying[self.passed];
            while dead != GROUND {
                self.tower.give(dead);
                dead = self.tower.blocks[index(dead)].next_dying;
            }
            self.passed += 1;
        }
        self.nests.advance(now);
    }

    /// Places items, given in birth order, and stores the offsets; false if an item would end above
    /// the limit, or if the caller wants an answer before the end.
    fn place(&mut self, items: &[u32], offsets: &mut [u64], clock: &Clock<'_>) -> Result<bool> {
        let model = self.model;
        let (direction, sections) = (self.direction, number(model.loads.len()));
        let born = |&item: &u32| direction.life(&model.items[index(item)], sections).0;
        let mut order = with_capacity(16, "an order")?;
        let mut count = 0;
        for together in items.chunk_by(|one, other| born(one) == born(other)) {
            let now = born(&together[0]);
            self.advance(now);
            // Largest first, then longest.
            order.clear();
            order.extend(together.iter().map(|&item| {
                let it = &model.items[index(item)];
                (Reverse((it.size, self.life(it).1)), item)
            }));
            if !sort(&mut order, clock) {
                return Ok(false);
            }
            for &(_, item) in &order {
                let it = &model.items[index(item)];
                let nest =
                    if model.all_solid() { None } else { self.nests.take(it, now, self.tries) };
                let start = if let Some(start) = nest {
                    start
                } else {
                    let (_, dies) = self.life(it);
                    let block = Wanted { size: it.size, mask: it.mask(), dies };
                    let place = self.tower.take(block, self.tries, self.chooses_end);
                    self.dies_later(place);
                    self.tower.blocks[index(place)].start
                };
                if !it.solid() {
                    self.nests.host(model, it, start);
                }
                if start + it.size > self.limit || clock.is_over_at(count) {
                    return Ok(false);
                }
                offsets[index(item)] = start;
                count += 1;
            }
        }
        Ok(true)
    }
}

/// Places items without pins in birth order, each into the smallest sufficient gap, and returns the
/// offsets.
///
/// Room that an item with windows does not need for some time is a gap for items that die before.
/// Returns nothing if an item would end above grain `limit`, or if the caller wants an
/// answer before the end.
pub(crate) fn best_fit(model: &Model, limit: u64, clock: &Clock<'_>) -> Result<Option<Vec<u64>>> {
    let mut offsets = filled(0, model.items.len(), "offsets")?;
    let mut items = with_capacity(model.items.len(), "an order")?;
    items.extend(0..number(model.items.len()));
    let mut sweep = Sweep::new(model, TimeDirection::Forward, limit)?;
    Ok(sweep.place(&items, &mut offsets, clock)?.then_some(offsets))
}

/// The order in which a pass from the peak stacks the fullest section's items.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StackOrder {
    /// Whether classes are by death, each in birth order; else the reverse.
    pub(crate) by_death: bool,
    /// The number of classes, with about as many grains each.
    pub(crate) classes: u64,
}

/// Stacks the fullest section's items without gaps, then places all other items by best fit, away
/// from the section in both time directions, and returns the offsets.
///
/// The fullest section loses no room, and loads are smaller elsewhere. In one direction, items
/// stacked in death order free a single growing piece of room. In the other direction, births take
/// the place of deaths. So the stack has classes by death, ordered by birth, or the reverse.
///
/// Returns nothing if an item would end above grain `limit`, or if the caller wants an answer before
/// the end.
pub(crate) fn from_peak(
    model: &Model,
    stack: StackOrder,
    limit: u64,
    clock: &Clock<'_>,
) -> Result<Option<Vec<u64>>> {
    let fullest = (0..model.loads.len()).max_by_key(|&at| (model.loads[at].grains, Reverse(at)));
    let fullest = number(fullest.unwrap_or(0));
    let (mut middle, mut after, mut ends) = (Vec::new(), Vec::new(), Vec::new());
    let mut before = Vec::new();
    for (item, it) in model.items.iter().enumerate() {
        if it.span.start > fullest {
            after.push(number(item));
        } else if it.span.end <= fullest {
            before.push(number(item));
            ends.push(number(model.loads.len()) - it.span.end);
        } else {
            middle.push(number(item));
        }
    }
    let (order, _) = order_by_number(&ends, model.loads.len() + 1)?;
    let before: Vec<u32> = order.into_iter().map(|place| before[index(place)]).collect();
    stacked(model, &mut middle, stack);
    let mut offsets = filled(0, model.items.len(), "offsets")?;
    for (direction, others) in
        [(TimeDirection::Forward, &after), (TimeDirection::Backward, &before)]
    {
        let mut sweep = Sweep::new(model, direction, limit)?;
        sweep.chooses_end = true;
        let mut top = 0;
        for &item in &middle {
            let it = &model.items[index(item)];
            let start = align_up(top, it.mask());
            top = start + it.size;
            if top > limit {
                return Ok(None);
            }
            sweep.stack(it, start);
            offsets[index(item)] = start;
        }
        if !sweep.place(others, &mut offsets, clock)? {
            return Ok(None);
        }
    }
    Ok(Some(offsets))
}

/// Sorts a section's items for a stack.
fn stacked(model: &Model, items: &mut [u32], order: StackOrder) {
    let ends = |item: u32| {
        let span = &model.items[index(item)].span;
        // Items that live longest, in either direction, are lowest.
        let (birth, death) = (span.start, u32::MAX - span.end);
        if order.by_death { (death, birth) } else { (birth, death) }
    };
    items.sort_unstable_by_key(|&item| (ends(item), item));
    let size = |item: u32| u128::from(model.items[index(item)].size);
    let total: u128 = items.iter().map(|&item| size(item)).sum();
    let mut below = 0;
    let mut classed: Vec<(u128, u32, u32)> = Vec::new();
    for &item in &*items {
        let class = below * u128::from(order.classes) / total.max(1);
        classed.push((class, ends(item).1, item));
        below += size(item);
    }
    classed.sort_unstable();
    for (place, (.., item)) in items.iter_mut().zip(classed) {
        *place = item;
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;
    use crate::base::{Alignment, LiveRange};
    use crate::gaps::Gap;
    use crate::problem::{Buffer, Problem};
    use crate::solve::budget::Budget;
    use crate::solve::model::random::Random;
    use crate::solve::testing::{assert_packed, model_of, random_buffers};
    use crate::space::Space;

    fn live(start: usize, end: usize) -> LiveRange {
        LiveRange::new(number(start), number(end)).unwrap()
    }

    #[test]
    fn a_pass_from_the_peak_is_valid_for_all_stacks() {
        let (mut random, budget) = (Random::new(3), Budget::default());
        for round in 0..200 {
            let mut buffers = random_buffers(&mut random, 40, 20, 8, 30);
            if round % 2 == 0 {
                let align =
                    |it: Buffer, shift| it.with_alignment(Alignment::new(1_u64 << shift).unwrap());
                buffers = buffers.into_iter().map(|it| align(it, random.below(4))).collect();
            }
            let model = model_of(buffers);
            for (by_death, classes) in [(true, 1), (false, 1), (true, 4), (false, 9)] {
                let stack = StackOrder { by_death, classes };
                let limit = u64::from(u32::MAX);
                let offsets =
                    from_peak(&model, stack, limit, &Clock::new(&budget)).unwrap().unwrap();
                assert_packed(&model, &offsets, model.peak(&offsets));
            }
        }
    }

    #[test]
    fn a_pass_from_the_peak_loses_nothing_where_all_items_meet_there() {
        // Random births and deaths around a moment; sweeps that begin early leave gaps.
        let (mut random, budget) = (Random::new(5), Budget::default());
        let mut one = |_| {
            let bytes = 1 + u64::from(number(random.below(99)));
            Buffer::new(bytes, live(random.below(300), 301 + random.below(300)))
        };
        let model = model_of((0..300).map(&mut one).collect());
        let stack = StackOrder { by_death: true, classes: 1 };
        let offsets = from_peak(&model, stack, u64::MAX, &Clock::new(&budget)).unwrap().unwrap();
        assert_eq!(model.peak(&offsets), model.bound);
    }

    #[test]
    fn items_with_gaps_give_their_room_back_and_lend_it() {
        let budget = Budget::default();
        let mut random = Random::new(8);
        let buffers: Vec<Buffer> = (0..2_000)
            .map(|_| {
                let (start, bytes) =
                    (random.below(2_000), 16 + u64::from(number(random.below(64))));
                let end = start + 6 + random.below(20);
                if random.below(2) == 0 {
                    return Buffer::new(bytes, live(start, end));
                }
                let bytes_kept = if random.below(2) == 0 { 0..0 } else { 3..bytes / 2 };
                let gap = Gap { steps: live(start + 1, end - 1), bytes: bytes_kept };
                Buffer::with_gaps(bytes, live(start, end), &[gap]).unwrap()
            })
            .collect();
        let model = model_of(buffers.clone());
        let offsets = best_fit(&model, u64::MAX, &Clock::new(&budget)).unwrap().unwrap();
        let ratio = model.peak(&offsets) * 10 / model.bound;
        assert!(ratio <= 15, "{ratio} tenths of the bound");
        // Valid: each buffer may be fixed at its offset.
        let fixed = model.ids.iter().zip(&offsets);
        let mut pinned = buffers;
        for (id, at) in fixed {
            let buffer = &mut pinned[id.index()];
            *buffer = buffer.clone().with_pin(at * model.grain);
        }
        assert!(Problem::new(pinned, alloc::vec![Space::default()]).is_ok());
    }
}
