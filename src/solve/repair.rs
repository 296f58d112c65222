//! Improves a packing by taking out what is too high and making room for it.

use super::arith::{align_up, index, number, real, whole};
use super::clock::Clock;
use super::memory::{filled, with_capacity};
use super::model::{Item, Model};
use super::neighbors::Neighbors;
use super::random::Random;
use crate::error::Result;

/// An ejection chain: an item is put where the items that it throws out matter least,
/// which are then put elsewhere in the same way.
///
/// Items that were thrown out often matter more, so that the search does not go in
/// circles. It needs no list of pairs and can improve packings of any size.
#[derive(Debug)]
pub(super) struct Repair {
    neighbors: Neighbors,
    offsets: Vec<u64>,
    placed: Vec<bool>,
    /// What throwing out each item costs; more each time that it happens.
    weight: Vec<f64>,
    waiting: Vec<u32>,
    /// Offsets that an item would throw somebody out from, and what that would cost.
    blocks: Vec<Block>,
    /// Where blocks start (even) and end (odd), to be sorted.
    edges: Vec<(u64, u32)>,
    random: Random,
    /// Part of the distance to the bound to go for.
    ambition: f64,
    steps: usize,
}

/// Offsets at which an item meets a part of a neighbor.
#[derive(Clone, Copy, Debug)]
struct Block {
    start: u64,
    end: u64,
    neighbor: u32,
}

/// Steps of the first attempt.
const FIRST_STEPS: usize = 2_000;
/// Steps of the longest attempt, for each item.
const STEPS_PER_ITEM: usize = 50;
/// Steps of the longest attempt.
const MOST_STEPS: usize = 200_000;

impl Repair {
    /// Returns a repair of packings of `model`.
    pub(super) fn new(model: &Model, seed: u64) -> Result<Self> {
        let count = model.items.len();
        Ok(Self {
            neighbors: Neighbors::new(model)?,
            offsets: filled(0, count, "offsets")?,
            placed: filled(true, count, "offsets")?,
            weight: filled(0.0, count, "offsets")?,
            waiting: with_capacity(count, "offsets")?,
            blocks: Vec::new(),
            edges: Vec::new(),
            random: Random::new(seed),
            ambition: 0.15,
            steps: FIRST_STEPS,
        })
    }

    /// Tries to lower the peak of a packing towards `bound`, and returns a better one.
    pub(super) fn improve(
        &mut self,
        model: &Model,
        offsets: &[u64],
        bound: u64,
        clock: &Clock<'_>,
    ) -> Option<Vec<u64>> {
        let peak = model.peak(offsets);
        let distance = whole(real(peak - bound) * self.ambition).clamp(1, peak - bound);
        let target = peak - distance;
        self.offsets.copy_from_slice(offsets);
        self.placed.fill(true);
        for (weight, item) in self.weight.iter_mut().zip(&model.items) {
            *weight = base_weight(item);
        }
        if self.attempt(model, target, clock) {
            self.ambition = (self.ambition * 1.5).min(1.0);
            return Some(self.offsets.clone());
        }
        self.ambition = (self.ambition * 0.6).max(0.001);
        self.steps = (self.steps * 2).min(STEPS_PER_ITEM * offsets.len()).min(MOST_STEPS);
        None
    }

    /// Packs everything below `target`, or gives up.
    fn attempt(&mut self, model: &Model, target: u64, clock: &Clock<'_>) -> bool {
        self.waiting.clear();
        for item in 0..self.offsets.len() {
            if model.end_in_bytes(item, self.offsets[item]) > target {
                if model.pin(&model.items[item]).is_some() {
                    return false;
                }
                self.placed[item] = false;
                self.waiting.push(number(item));
            }
        }
        for _ in 0..self.steps {
            let Some(place) = self.choose_waiting(model) else { return true };
            let item = index(self.waiting.swap_remove(place));
            let Some(ceiling) = model.ceiling(item, target) else { return false };
            self.find_blocks(model, item);
            if clock.tick(16 * self.blocks.len() + 100) {
                return false;
            }
            let Some(offset) = self.cheapest_offset(model, item, ceiling) else { return false };
            self.eject(model, offset);
            self.offsets[item] = offset;
            self.placed[item] = true;
        }
        self.waiting.is_empty()
    }

    /// Returns the place of the largest waiting item, or now and then of another one.
    fn choose_waiting(&mut self, model: &Model) -> Option<usize> {
        if self.waiting.is_empty() {
            return None;
        }
        let count = self.waiting.len();
        if self.random.unit() < 0.2 {
            return Some(self.random.below(count));
        }
        let key = |&place: &usize| {
            let item = self.waiting[place];
            (model.items[index(item)].size, model.items[index(item)].length(), item)
        };
        (0..count).max_by_key(key)
    }

    /// Finds all offsets at which `item` meets somebody.
    fn find_blocks(&mut self, model: &Model, item: usize) {
        let Self { neighbors, placed, offsets, blocks, .. } = self;
        blocks.clear();
        neighbors.each(&model.items[item].span, |other| {
            if other == item || !placed[other] {
                return;
            }
            let at = offsets[other];
            model.each_box(other, |span, taken| {
                model.each_box(item, |own_span, own| {
                    if span.start < own_span.end && own_span.start < span.end {
                        blocks.push(Block {
                            start: (at + taken.start + 1).saturating_sub(own.end),
                            end: (at + taken.end).saturating_sub(own.start),
                            neighbor: number(other),
                        });
                    }
                });
            });
        });
    }

    /// Returns the offset up to `ceiling` that throws out what matters least, the lowest
    /// of those.
    ///
    /// What an offset costs, the weight of the blocks that hold it, changes only where a
    /// block starts or ends, so these offsets are tried, in ascending order.
    fn cheapest_offset(&mut self, model: &Model, item: usize, ceiling: u64) -> Option<u64> {
        let mask = model.items[item].mask();
        self.edges.clear();
        for (block, it) in self.blocks.iter().enumerate() {
            self.edges.push((it.start, number(2 * block)));
            self.edges.push((it.end, number(2 * block + 1)));
        }
        self.edges.sort_unstable();
        let (mut cost, mut open, mut fixed) = (0.0, 0, 0);
        let mut best: Option<(f64, u64)> = None;
        let mut next = 0;
        let mut offset = 0;
        loop {
            while let Some(&(at, edge)) = self.edges.get(next)
                && at <= offset
            {
                let neighbor = index(self.blocks[index(edge / 2)].neighbor);
                let sign = if edge.is_multiple_of(2) { 1 } else { -1 };
                cost += f64::from(sign) * self.weight[neighbor];
                open += sign;
                fixed += if model.pin(&model.items[neighbor]).is_some() { sign } else { 0 };
                next += 1;
            }
            if offset > ceiling {
                break;
            }
            if open == 0 {
                return Some(offset); // it is free
            }
            if fixed == 0 && best.is_none_or(|(least, _)| cost < least) {
                best = Some((cost, offset));
            }
            match self.edges.get(next) {
                Some(&(at, _)) => offset = align_up(at, mask),
                None => break,
            }
        }
        best.map(|(_, offset)| offset)
    }

    /// Throws out everybody whose blocks hold `offset`.
    fn eject(&mut self, model: &Model, offset: u64) {
        for block in &self.blocks {
            let other = index(block.neighbor);
            if block.start <= offset && offset < block.end && self.placed[other] {
                self.placed[other] = false;
                self.weight[other] += base_weight(&model.items[other]);
                self.waiting.push(block.neighbor);
            }
        }
    }
}

/// Returns what throwing out an item costs the first time.
fn base_weight(item: &Item) -> f64 {
    (real(item.size) * f64::from(item.length())).sqrt()
}
