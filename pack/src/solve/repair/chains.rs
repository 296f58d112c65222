//! Ejection chains: the highest item is moved down, and so are the displaced items.
//!
//! # References
//!
//! Glover, "Ejection chains, reference structures and alternating path methods for traveling
//! salesman problems", Discrete Applied Mathematics 65, 1996: the chain of displaced items. Weights
//! that grow with each ejection come from the breakout method (Morris, "The breakout method", AAAI
//! 1993). New, as far as known: successful chains are kept when a later chain fails.

use alloc::vec::Vec;
use core::cmp::Reverse;

use super::edges::Edges;
use super::neighbors::Neighbors;
use crate::base::Result;
use crate::solve::model::arith::{align_up, index, number, real, whole};
use crate::solve::model::clock::Clock;
use crate::solve::model::memory::filled;
use crate::solve::model::random::Random;
use crate::solve::model::{Item, Model};
use crate::solve::tuning::{
    self,
    chains::{CHAINS_PER_ITEM, EFFORT_PER_NEIGHBOR, EFFORT_PER_STEP, MOST_STUCK},
};

/// A local search by ejection chains.
///
/// An item is placed at the offset where the displaced items weigh least. The displaced items are
/// placed in turn, until no item is displaced. An item's weight grows with each ejection, so that
/// the search does not cycle. No list of pairs is stored, so packings of any size can be improved.
#[derive(Debug)]
pub(crate) struct EjectionChains {
    neighbors: Neighbors,
    /// The current packing, whose peak is at most the last given packing's.
    offsets: Vec<u64>,
    placed: Vec<bool>,
    /// Each item's weight: the cost of its ejection.
    weight: Vec<f64>,
    waiting: Vec<u32>,
    /// Items moved by the current chain, with their former offsets.
    moved: Vec<(u32, u64)>,
    /// Offsets at which the current item overlaps a neighbor.
    blocks: Vec<BlockingRange>,
    /// The cost of each offset, as a list of changes.
    edges: Edges,
    random: Random,
    /// Distance from the peak to the next target, as a fraction of the gap to the bound.
    ambition: f64,
    /// Steps after which a chain is given up.
    steps: usize,
    is_new: bool,
}

/// Offsets at which an item meets a neighbor's part.
#[derive(Clone, Copy, Debug)]
struct BlockingRange {
    start: u64,
    end: u64,
    neighbor: u32,
}

/// How a chain ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// Everything has a place.
    Done,
    /// The chain went on for too long, or some item fits nowhere.
    Stuck,
    /// Time or the turn is over.
    Over,
}

impl EjectionChains {
    /// Returns a repair of packings of `model`.
    pub(crate) fn new(model: &Model, clock: &Clock<'_>) -> Result<Self> {
        let count = model.items.len();
        Ok(Self {
            neighbors: Neighbors::new(model)?,
            offsets: filled(0, count, "offsets")?,
            placed: filled(true, count, "offsets")?,
            weight: filled(0.0, count, "offsets")?,
            waiting: Vec::new(),
            moved: Vec::new(),
            blocks: Vec::new(),
            edges: Edges::default(),
            random: Random::new(clock.seed()),
            ambition: tuning::chains::AMBITION,
            steps: tuning::chains::FIRST_STEPS,
            is_new: true,
        })
    }

    /// Lowers the peak toward `bound`, and returns a better packing, if found.
    ///
    /// A successful chain's result stays when a later chain fails: items far apart in time hardly
    /// affect each other.
    pub(crate) fn improve(
        &mut self,
        model: &Model,
        offsets: &[u64],
        bound: u64,
        clock: &Clock<'_>,
    ) -> Option<Vec<u64>> {
        let peak = model.peak(offsets);
        if self.is_new || peak < model.peak(&self.offsets) {
            self.is_new = false;
            self.offsets.copy_from_slice(offsets);
            self.forget(model);
        }
        let distance = whole(real(peak - bound) * self.ambition).clamp(1, peak - bound);
        let target = peak - distance;
        let (stuck, _) = self.lower(model, target, CHAINS_PER_ITEM, MOST_STUCK, clock);
        if stuck > 0 {
            self.ambition =
                (self.ambition * tuning::chains::AMBITION_DOWN).max(tuning::chains::LEAST_AMBITION);
            self.steps = self
                .steps
                .saturating_mul(tuning::chains::STEPS_GROWTH)
                .min(tuning::chains::MOST_STEPS);
            self.forget(model);
        } else if model.peak(&self.offsets) <= target {
            self.ambition = (self.ambition * tuning::chains::AMBITION_UP).min(1.0);
        }
        (model.peak(&self.offsets) < peak).then(|| self.offsets.clone())
    }

    /// Moves as many items as possible below `target`, with a chain per item. Returns the packing,
    /// and whether all items had a chain before the turn ended.
    pub(crate) fn press(
        &mut self,
        model: &Model,
        offsets: &[u64],
        target: u64,
        clock: &Clock<'_>,
    ) -> (Vec<u64>, bool) {
        self.offsets.copy_from_slice(offsets);
        self.is_new = true;
        self.forget(model);
        let steps = core::mem::replace(&mut self.steps, tuning::chains::FIRST_STEPS);
        let (_, all) = self.lower(model, target, 1, usize::MAX, clock);
        self.steps = steps;
        (self.offsets.clone(), all)
    }

    /// Moves the items that end above `target` below the target, highest first, until `most_stuck`
    /// items are stuck. Returns the number of stuck items, and whether the turn was not over
    /// before.
    fn lower(
        &mut self,
        model: &Model,
        target: u64,
        chains: usize,
        most_stuck: usize,
        clock: &Clock<'_>,
    ) -> (usize, bool) {
        let end =
            |offsets: &[u64], item: u32| model.end_in_bytes(index(item), offsets[index(item)]);
        let mut high: Vec<u32> = (0..number(self.offsets.len())).collect();
        high.retain(|&item| end(&self.offsets, item) > target);
        high.sort_unstable_by_key(|&item| (Reverse(end(&self.offsets, item)), item));
        let mut stuck = 0;
        for item in high {
            if end(&self.offsets, item) <= target {
                continue; // Another item has displaced this item.
            }
            let mut how = End::Stuck;
            for _ in 0..chains {
                how = self.chain(model, item, target, clock);
                if how != End::Stuck {
                    break;
                }
            }
            stuck += usize::from(how == End::Stuck);
            if how == End::Over {
                return (stuck, false);
            }
            if stuck == most_stuck {
                break;
            }
        }
        (stuck, true)
    }

    /// Resets all weights.
    fn forget(&mut self, model: &Model) {
        for (weight, item) in self.weight.iter_mut().zip(&model.items) {
            *weight = base_weight(item);
        }
    }

    /// Runs the chain that moves an item below `target`. The packing is unchanged if the chain
    /// fails.
    fn chain(&mut self, model: &Model, item: u32, target: u64, clock: &Clock<'_>) -> End {
        self.waiting.clear();
        self.moved.clear();
        self.take_out(item);
        let end = self.settle(model, target, clock);
        if end != End::Done {
            // An item's first former offset is the original offset.
            for (item, offset) in self.moved.drain(..).rev() {
                self.offsets[index(item)] = offset;
                self.placed[index(item)] = true;
            }
        }
        end
    }

    /// Takes an item out of the packing.
    fn take_out(&mut self, item: u32) {
        self.moved.push((item, self.offsets[index(item)]));
        self.placed[index(item)] = false;
        self.waiting.push(item);
    }

    /// Places all waiting items below `target`.
    fn settle(&mut self, model: &Model, target: u64, clock: &Clock<'_>) -> End {
        for _ in 0..self.steps {
            let Some(place) = self.choose_waiting(model) else { return End::Done };
            let item = index(self.waiting.swap_remove(place));
            if model.pin(&model.items[item]).is_some() {
                return End::Stuck;
            }
            let Some(ceiling) = model.ceiling(item, target) else { return End::Stuck };
            self.find_blocks(model, item);
            if clock.tick(EFFORT_PER_NEIGHBOR * self.blocks.len() + EFFORT_PER_STEP) {
                return End::Over;
            }
            let Some(offset) = self.cheapest_offset(model, item, ceiling) else {
                return End::Stuck;
            };
            self.eject(model, offset);
            self.offsets[item] = offset;
            self.placed[item] = true;
        }
        if self.waiting.is_empty() { End::Done } else { End::Stuck }
    }

    /// Returns the place of the largest waiting item, or now and then of another item.
    fn choose_waiting(&mut self, model: &Model) -> Option<usize> {
        if self.waiting.is_empty() {
            return None;
        }
        let count = self.waiting.len();
        if self.random.unit() < tuning::chains::RANDOM_CHOICE {
            return Some(self.random.below(count));
        }
        let key = |&place: &usize| {
            let item = self.waiting[place];
            (model.items[index(item)].size, model.items[index(item)].length(), item)
        };
        (0..count).max_by_key(key)
    }

    /// Computes the intervals of offsets at which `item` overlaps a placed neighbor.
    fn find_blocks(&mut self, model: &Model, item: usize) {
        let Self { neighbors, placed, offsets, blocks, .. } = self;
        blocks.clear();
        neighbors.each(model, &model.items[item].span, |other| {
            if other == item || !placed[other] {
                return;
            }
            let at = offsets[other];
            model.each_box(other, |span, taken| {
                model.each_box(item, |own_span, own| {
                    if span.start < own_span.end && own_span.start < span.end {
                        blocks.push(BlockingRange {
                            start: (at + taken.start + 1).saturating_sub(own.end),
                            end: (at + taken.end).saturating_sub(own.start),
                            neighbor: number(other),
                        });
                    }
                });
            });
        });
    }

    /// Returns the lowest offset up to `ceiling` with the least cost.
    ///
    /// An offset's cost is the weight of all neighbors that overlap there. The cost changes only at
    /// interval ends, so only these offsets are compared, in ascending order.
    fn cheapest_offset(&mut self, model: &Model, item: usize, ceiling: u64) -> Option<u64> {
        let mask = model.items[item].mask();
        self.edges.clear();
        for block in &self.blocks {
            let neighbor = index(block.neighbor);
            let is_fixed = model.pin(&model.items[neighbor]).is_some();
            let cost = if is_fixed { f64::INFINITY } else { self.weight[neighbor] };
            self.edges.add(block.start, block.end, cost);
        }
        let edges = self.edges.sorted();
        let (mut cost, mut open, mut fixed) = (0.0, 0, 0);
        let mut best: Option<(f64, u64)> = None;
        let mut next = 0;
        let mut offset = 0;
        loop {
            while let Some(&(at, change)) = edges.get(next)
                && at <= offset
            {
                let sign = if change > 0.0 { 1 } else { -1 };
                open += sign;
                if change.is_infinite() {
                    fixed += sign;
                } else {
                    cost += change;
                }
                next += 1;
            }
            if offset > ceiling {
                break;
            }
            if open == 0 {
                return Some(offset); // The offset is free.
            }
            if fixed == 0 && best.is_none_or(|(least, _)| cost < least) {
                best = Some((cost, offset));
            }
            match edges.get(next) {
                Some(&(at, _)) => offset = align_up(at, mask),
                None => break,
            }
        }
        best.map(|(_, offset)| offset)
    }

    /// Removes all items that overlap the current item at `offset`.
    fn eject(&mut self, model: &Model, offset: u64) {
        for block in 0..self.blocks.len() {
            let block = self.blocks[block];
            let other = index(block.neighbor);
            if block.start <= offset && offset < block.end && self.placed[other] {
                self.weight[other] += base_weight(&model.items[other]);
                self.take_out(block.neighbor);
            }
        }
    }
}

/// Returns an item's initial weight: size × sections.
fn base_weight(item: &Item) -> f64 {
    real(item.size) * f64::from(item.length())
}
