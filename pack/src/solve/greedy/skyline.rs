//! Skyline heuristic: the lowest plateau is filled first, with the item that loses the least room.
//!
//! # References
//!
//! Burke, Kendall and Whitwell, "A new placement heuristic for the orthogonal stock-cutting
//! problem", Operations Research 52, 2004: the lowest gap first, with the best-fitting item. Wei,
//! Oon, Zhu and Lim, "A skyline heuristic for the 2D rectangular packing and strip packing
//! problems", EJOR 215, 2011: scores of candidates. Here, items are fixed in time, so only items
//! within the plateau are candidates. New: the loss is weighted by the room that a section can
//! still lose at the bound.

use alloc::collections::BinaryHeap;
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::ops::Range;

use libm::sqrt;

use super::contained::Contained;
use crate::base::Result;
use crate::solve::model::arith::{align_up, fraction, index, number, real};
use crate::solve::model::clock::Clock;
use crate::solve::model::memory::{filled, with_capacity};
use crate::solve::model::random::Random;
use crate::solve::model::{Item, Model};
use crate::solve::tuning;
use crate::solve::tuning::layout::PLACED_PER_LOOK;

/// A pass's weights.
#[derive(Clone, Copy, Debug)]
struct PassWeights {
    /// Fourths in the exponent of the size in an item's merit; the length's exponent is 1.
    size: usize,
    /// How many items are tried.
    tried: usize,
    /// Weight of a candidate's rank beside the lost room.
    merit: f64,
    /// By how much merits vary by chance.
    noise: f64,
}

impl PassWeights {
    /// Returns the weights for pass number `pass`: the first passes have fixed weights, later
    /// passes random weights.
    fn of_pass(pass: usize, random: &mut Random) -> Self {
        if pass < tuning::skyline::FIRST_CANDIDATES.len() {
            return Self {
                size: tuning::skyline::FIRST_EXPONENTS[pass],
                tried: tuning::skyline::FIRST_CANDIDATES[pass],
                merit: tuning::skyline::FIRST_MERITS[pass],
                noise: 0.0,
            };
        }
        Self {
            size: random.below(5),
            tried: tuning::skyline::RANDOM_CANDIDATES << random.below(3),
            merit: tuning::skyline::RANDOM_MERITS
                [random.below(tuning::skyline::RANDOM_MERITS.len())],
            noise: random.unit(),
        }
    }

    /// Returns an item's merit.
    fn of(self, item: &Item, random: &mut Random) -> f64 {
        let root = sqrt(real(item.size));
        let size = [1.0, sqrt(root), root, root * sqrt(root), real(item.size)][self.size.min(4)];
        let chance = if self.noise > 0.0 { self.noise * random.unit() } else { 0.0 };
        f64::from(item.length()) * size * (1.0 + chance)
    }
}

/// A series of passes, each with different weights.
///
/// A pass raises a *skyline* from the ground. The lowest *plateau* is a range of sections between
/// higher sections. Candidates are the best few items by size and length that live within the
/// plateau. The pass takes the candidate that loses the least room. A section's room beside the
/// candidate is lost if no remaining item within the rest of the plateau covers the section. The
/// loss counts more in sections that can lose less at the bound. A plateau without candidates is
/// raised to its lower neighbor.
#[derive(Debug)]
pub(crate) struct SkylineHeuristic {
    left: Contained,
    skyline: Skyline,
    /// Room that each section can still lose in a packing at the bound, in grains.
    room: Vec<f64>,
    /// Least divisor of a loss, so that full sections do not outweigh all others.
    least_room: f64,
    random: Random,
    passes: usize,
    candidates: Vec<(f64, u32)>,
    beside: Vec<u32>,
    work: usize,
}

impl SkylineHeuristic {
    /// Returns a series of descents for solid items without pins.
    pub(crate) fn new(model: &Model, clock: &Clock<'_>) -> Result<Self> {
        Ok(Self {
            left: Contained::new(model)?,
            skyline: Skyline::new(model.loads.len())?,
            room: filled(0.0, model.loads.len(), "sections")?,
            least_room: real(model.bound / model.grain) / tuning::skyline::LEAST_ROOM_DIVISOR,
            random: Random::new(clock.seed()),
            passes: 0,
            candidates: Vec::new(),
            beside: Vec::new(),
            work: 0,
        })
    }

    /// Returns the next descent's offsets; nothing if an item would end above grain `limit`, or
    /// time is up.
    pub(crate) fn run(
        &mut self,
        model: &Model,
        limit: u64,
        clock: &Clock<'_>,
    ) -> Result<Option<Vec<u64>>> {
        let weights = PassWeights::of_pass(self.passes, &mut self.random);
        self.passes += 1;
        self.left.refill(|item| weights.of(&model.items[item], &mut self.random));
        self.skyline.flatten();
        let most = real(model.bound / model.grain);
        for (room, load) in self.room.iter_mut().zip(&model.loads) {
            *room = most - real(load.grains);
        }
        let mut offsets = filled(0, model.items.len(), "offsets")?;
        let mut placed = 0;
        while placed < model.items.len() {
            let (plateau, floor) = self.skyline.lowest();
            let Some(item) = self.choose(model, &plateau, floor, weights) else {
                let (left, right) = self.skyline.neighbors(&plateau);
                let roof = left.min(right);
                for room in &mut self.room[index(plateau.start)..index(plateau.end)] {
                    *room -= real(roof - floor);
                }
                self.work += plateau.len();
                self.skyline.raise(&plateau, &plateau, roof);
                continue;
            };
            let it = &model.items[index(item)];
            let offset = align_up(floor, it.mask());
            if offset + it.size > limit {
                return Ok(None);
            }
            offsets[index(item)] = offset;
            self.left.remove(index(item));
            self.skyline.raise(&plateau, &it.span, offset + it.size);
            placed += 1;
            clock.spend(self.left.take_work() + core::mem::take(&mut self.work));
            if placed % PLACED_PER_LOOK == PLACED_PER_LOOK - 1 && clock.is_up() {
                return Ok(None);
            }
        }
        Ok(Some(offsets))
    }

    /// Returns the item for a plateau; nothing if no remaining item lives within the plateau.
    fn choose(
        &mut self,
        model: &Model,
        plateau: &Range<u32>,
        floor: u64,
        weights: PassWeights,
    ) -> Option<u32> {
        let mut candidates = core::mem::take(&mut self.candidates);
        self.left.best(plateau, weights.tried, &mut candidates);
        let (left, right) = self.skyline.neighbors(plateau);
        let mut best: Option<(f64, u32)> = None;
        for (rank, &(_, item)) in candidates.iter().enumerate() {
            let mut loss = weights.merit * fraction(rank, weights.tried);
            if candidates.len() > 1 {
                let it = &model.items[index(item)];
                let (before, after) = (plateau.start..it.span.start, it.span.end..plateau.end);
                loss += self.loss(model, &before, it.size.min(left - floor), item);
                loss += self.loss(model, &after, it.size.min(right - floor), item);
            }
            if best.is_none_or(|(least, _)| loss < least) {
                best = Some((loss, item));
            }
        }
        self.candidates = candidates;
        best.map(|(_, item)| item)
    }

    /// Returns the weight of losing `height` grains in the sections of `span` that only `item`
    /// covers.
    fn loss(&mut self, model: &Model, span: &Range<u32>, height: u64, item: u32) -> f64 {
        if span.is_empty() || !self.left.list(span, tuning::skyline::MOST_BESIDE, &mut self.beside)
        {
            return 0.0;
        }
        let live = |item: &u32| &model.items[index(*item)].span;
        self.beside.sort_unstable_by_key(|other| live(other).start);
        let mut loss = 0.0;
        let mut covered = span.start;
        for other in self.beside.iter().filter(|&&other| other != item) {
            loss += self.loss_in(covered..live(other).start, height);
            covered = covered.max(live(other).end);
        }
        self.work += 4 * self.beside.len();
        loss + self.loss_in(covered..span.end, height)
    }

    /// Returns the weight of losing `height` grains in some sections.
    fn loss_in(&self, sections: Range<u32>, height: u64) -> f64 {
        let rooms = &self.room[index(sections.start)..index(sections.end.max(sections.start))];
        let stride = rooms.len().div_ceil(tuning::skyline::SAMPLES).max(1);
        let sampled = rooms.iter().step_by(stride);
        let each: f64 = sampled.map(|&room| 1.0 / room.max(self.least_room)).sum();
        real(height) * each * fraction(stride, 1)
    }
}

/// Heights of sections, as ranges of equal height.
#[derive(Debug)]
struct Skyline {
    /// Where the range that starts at a section ends; 0 if none starts there.
    ends: Vec<u32>,
    /// Where the range that ends before a section starts.
    starts: Vec<u32>,
    /// The height of the range that starts at a section.
    heights: Vec<u64>,
    /// Heights and starts of present and some former ranges.
    lowest: BinaryHeap<Reverse<(u64, u32)>>,
}

impl Skyline {
    /// Returns a skyline for some sections, to be flattened first.
    fn new(sections: usize) -> Result<Self> {
        Ok(Self {
            ends: filled(0, sections + 1, "sections")?,
            starts: filled(0, sections + 1, "sections")?,
            heights: filled(0, sections + 1, "sections")?,
            lowest: with_capacity(sections, "sections")?.into(),
        })
    }

    /// Levels the skyline with the ground.
    fn flatten(&mut self) {
        let sections = number(self.ends.len() - 1);
        self.ends.fill(0);
        self.lowest.clear();
        self.set(0..sections, 0);
    }

    fn set(&mut self, range: Range<u32>, height: u64) {
        self.ends[index(range.start)] = range.end;
        self.starts[index(range.end)] = range.start;
        self.heights[index(range.start)] = height;
        self.lowest.push(Reverse((height, range.start)));
    }

    /// Returns the lowest range, and its height.
    fn lowest(&mut self) -> (Range<u32>, u64) {
        loop {
            let &Reverse((height, start)) = self.lowest.peek().expect("there are sections");
            let end = self.ends[index(start)];
            if end != 0 && self.heights[index(start)] == height {
                return (start..end, height);
            }
            self.lowest.pop();
        }
    }

    /// Returns the heights of a range's two neighbors; `u64::MAX` at the skyline's ends.
    fn neighbors(&self, range: &Range<u32>) -> (u64, u64) {
        let left = match range.start {
            0 => u64::MAX,
            start => self.heights[index(self.starts[index(start)])],
        };
        let is_last = index(range.end) + 1 == self.ends.len();
        (left, if is_last { u64::MAX } else { self.heights[index(range.end)] })
    }

    /// Raises a part of a range to `height`, and merges the part with neighbors at that height.
    fn raise(&mut self, range: &Range<u32>, part: &Range<u32>, height: u64) {
        let floor = self.heights[index(range.start)];
        let (left, right) = self.neighbors(range);
        let mut raised = part.clone();
        if range.start < part.start {
            self.set(range.start..part.start, floor);
        } else if left == height {
            self.ends[index(range.start)] = 0;
            raised.start = self.starts[index(range.start)];
        }
        if part.end < range.end {
            self.set(part.end..range.end, floor);
        } else if right == height {
            raised.end = self.ends[index(range.end)];
            self.ends[index(range.end)] = 0;
        }
        self.set(raised, height);
    }
}
