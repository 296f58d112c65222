//! Improves a packing by taking out what is too high and making room for it.

use super::arith::{align_up, index, number, real, whole};
use super::clock::Clock;
use super::memory::{filled, with_capacity};
use super::model::Model;
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
    /// How often each item was thrown out.
    history: Vec<f64>,
    waiting: Vec<u32>,
    /// Offsets that an item would throw somebody out from, and what that would cost.
    blocks: Vec<Block>,
    starts: Vec<Edge>,
    ends: Vec<Edge>,
    candidates: Vec<u64>,
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

/// An end of a block: offset, weight, and whether it cannot be thrown out.
type Edge = (u64, f64, u32);

/// Steps of the first attempt.
const FIRST_STEPS: usize = 2_000;
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
            history: filled(1.0, count, "offsets")?,
            waiting: with_capacity(count, "offsets")?,
            blocks: Vec::new(),
            starts: Vec::new(),
            ends: Vec::new(),
            candidates: Vec::new(),
            random: Random::new(seed),
            ambition: 0.5,
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
        self.history.fill(1.0);
        if self.attempt(model, target, clock) {
            self.ambition = (self.ambition * 1.5).min(1.0);
            self.steps = FIRST_STEPS;
            return Some(self.offsets.clone());
        }
        self.ambition = (self.ambition * 0.6).max(0.001);
        self.steps = (self.steps * 2).min(MOST_STEPS);
        None
    }

    /// Packs everything below `target`, or gives up.
    fn attempt(&mut self, model: &Model, target: u64, clock: &Clock<'_>) -> bool {
        self.waiting.clear();
        for item in 0..self.offsets.len() {
            if model.end_in_bytes(item, self.offsets[item]) > target {
                if model.items[item].pin.is_some() {
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
            self.eject(offset);
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
    /// The best offsets touch somebody, so those at the ends of blocks are tried. What an
    /// offset costs is the weight of the blocks that have started less that of those
    /// that have ended.
    fn cheapest_offset(&mut self, model: &Model, item: usize, ceiling: u64) -> Option<u64> {
        let mask = model.items[item].mask;
        self.starts.clear();
        self.ends.clear();
        self.candidates.clear();
        self.candidates.extend([0, ceiling]);
        for block in &self.blocks {
            let other = index(block.neighbor);
            let it = &model.items[other];
            let fixed = u32::from(it.pin.is_some());
            let area = real(it.size) * f64::from(it.length());
            let weight = area.sqrt() * self.history[other];
            self.starts.push((block.start, weight, fixed));
            self.ends.push((block.end, weight, fixed));
            self.candidates.push(align_up(block.end, mask));
            if block.start > 0 {
                self.candidates.push((block.start - 1) & !mask);
            }
        }
        self.candidates.retain(|&offset| offset <= ceiling);
        self.candidates.sort_unstable();
        self.candidates.dedup();
        self.starts.sort_unstable_by_key(|edge| edge.0);
        self.ends.sort_unstable_by_key(|edge| edge.0);
        let (mut started, mut ended) = (0, 0);
        let (mut cost, mut fixed) = (0.0, 0);
        let mut best: Option<(f64, u64)> = None;
        for &offset in &self.candidates {
            while let Some(&(at, weight, pinned)) = self.starts.get(started)
                && at <= offset
            {
                (cost, fixed, started) = (cost + weight, fixed + pinned, started + 1);
            }
            while let Some(&(at, weight, pinned)) = self.ends.get(ended)
                && at <= offset
            {
                (cost, fixed, ended) = (cost - weight, fixed - pinned, ended + 1);
            }
            if started == ended {
                return Some(offset); // free: rounding errors aside, nothing is cheaper
            }
            if fixed == 0 && best.is_none_or(|(least, _)| cost < least) {
                best = Some((cost, offset));
            }
        }
        best.map(|(_, offset)| offset)
    }

    /// Throws out everybody whose blocks hold `offset`.
    fn eject(&mut self, offset: u64) {
        for block in &self.blocks {
            let other = index(block.neighbor);
            if block.start <= offset && offset < block.end && self.placed[other] {
                self.placed[other] = false;
                self.history[other] += 1.0;
                self.waiting.push(block.neighbor);
            }
        }
    }
}
