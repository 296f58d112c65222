//! Best fit in the order of birth: the cheapest valid packing.
//!
//! # References
//!
//! Best fit of Knuth, "The Art of Computer Programming", volume 1, section 2.5, with boundary tags
//! as doubly linked blocks.

use alloc::collections::BTreeSet;
use alloc::{vec, vec::Vec};
use core::cmp::Reverse;

use crate::base::Result;
use crate::pack::solve::model::Model;
use crate::pack::solve::model::arith::{align_up, index, number};
use crate::pack::solve::model::clock::Clock;
use crate::pack::solve::model::memory::filled;
use crate::pack::solve::model::sort::sort;

/// Grains that are taken now.
#[derive(Clone, Copy, Debug)]
struct Block {
    start: u64,
    end: u64,
    /// The blocks below and above it, where [`GROUND`] is below all and above all.
    below: u32,
    above: u32,
    /// The next block that dies when this one does.
    next_dying: u32,
}

/// The block without grains that everything stands on.
const GROUND: u32 = 0;

/// Free grains between blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Gap {
    grains: u64,
    start: u64,
    /// The block that it is above.
    below: u32,
}

/// The blocks that are taken at one moment, as a ring in ascending order, and the gaps between them
/// by size.
///
/// A block knows its neighbors, so its end merges gaps without a search. Places of dead blocks are
/// used again, so memory is proportional to the blocks that are live at once.
#[derive(Debug)]
struct Tower {
    blocks: Vec<Block>,
    /// Places in `blocks` that can be used again.
    vacant: Vec<u32>,
    gaps: BTreeSet<Gap>,
    /// Where the highest block so far ended: above it, everything is free.
    top: u64,
}

impl Tower {
    fn new() -> Self {
        let ground = Block { start: 0, end: 0, below: GROUND, above: GROUND, next_dying: GROUND };
        Self { blocks: vec![ground], vacant: Vec::new(), gaps: BTreeSet::new(), top: 0 }
    }

    /// Takes `size` grains from the smallest gap that holds them, or from the top, and returns
    /// the block that has them.
    fn take(&mut self, size: u64, mask: u64, tries: usize) -> u32 {
        let from = |grains| self.gaps.range(Gap { grains, start: 0, below: GROUND }..);
        let fits = |gap: &&Gap| align_up(gap.start, mask) - gap.start + size <= gap.grains;
        let gap = from(size).take(tries).find(fits).or_else(|| from(size + mask).next());
        // The topmost gap grows into the free space above it.
        let below = gap.map_or(self.blocks[index(GROUND)].below, |gap| gap.below);
        self.close_gap(below);
        let above = self.blocks[index(below)].above;
        let start = align_up(self.blocks[index(below)].end, mask);
        let block = Block { start, end: start + size, below, above, next_dying: GROUND };
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

    /// Gives the grains of a block back.
    fn give(&mut self, place: u32) {
        let Block { below, above, .. } = self.blocks[index(place)];
        self.close_gap(below);
        self.close_gap(place);
        self.blocks[index(below)].above = above;
        self.blocks[index(above)].below = below;
        self.vacant.push(place);
        self.open_gap(below);
    }

    /// Returns the gap above a block, which may be empty.
    fn gap_above(&self, below: u32) -> Gap {
        let Block { end: start, above, .. } = self.blocks[index(below)];
        let end = if above == GROUND { self.top } else { self.blocks[index(above)].start };
        Gap { grains: end - start, start, below }
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

/// Places solid items without pins in the order in which they are born, each into the
/// smallest gap that holds it, and returns their offsets.
///
/// Returns nothing if an item would end above grain `limit`, or if the caller wants an
/// answer before the end.
pub(crate) fn best_fit(model: &Model, limit: u64, clock: &Clock<'_>) -> Result<Option<Vec<u64>>> {
    let sections = model.loads.len();
    let mut offsets = filled(0, model.items.len(), "offsets")?;
    // One of the blocks that die at the start of each section.
    let mut dying = filled(GROUND, sections + 1, "sections")?;
    let tries = clock.tuning().greedy.gap_tries;
    let mut tower = Tower::new();
    let mut order = Vec::new();
    let mut count = 0;
    for items in model.items.chunk_by(|one, other| one.span.start == other.span.start) {
        let mut dead = dying[index(items[0].span.start)];
        while dead != GROUND {
            tower.give(dead);
            dead = tower.blocks[index(dead)].next_dying;
        }
        // Largest first, then longest.
        order.clear();
        order.extend(
            items
                .iter()
                .enumerate()
                .map(|(position, it)| (Reverse((it.size, it.span.end)), number(position))),
        );
        if !sort(&mut order, clock) {
            return Ok(None);
        }
        for &(_, position) in &order {
            let item = &items[index(position)];
            let place = tower.take(item.size, item.mask(), tries);
            let block = &mut tower.blocks[index(place)];
            block.next_dying = core::mem::replace(&mut dying[index(item.span.end)], place);
            if block.end > limit || clock.is_over_at(count + index(position)) {
                return Ok(None);
            }
            offsets[count + index(position)] = block.start;
        }
        count += items.len();
    }
    Ok(Some(offsets))
}
