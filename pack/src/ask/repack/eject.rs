//! Ejection chains around buffers at their old offsets.
//!
//! # References
//!
//! Glover, "Ejection chains, reference structures and alternating path methods for traveling
//! salesman problems", Discrete Applied Mathematics 65, 1996. Weights that grow with each ejection
//! are the weights in the breakout method (Morris, AAAI 1993).

use alloc::vec::Vec;
use core::cmp::Reverse;
use core::ops::Range;

use crate::ask::live_pairs::{Births, least_common_multiple};
use crate::base::BufferId;
use crate::solve::Budget;
use crate::{Buffer, Problem};

/// Cost of a buffer that must not be displaced; the costs of all other buffers sum to less.
const FIXED: i128 = 1 << 100;
/// Cost of a buffer that leaves the old offset.
const LEAVES_HOME: i128 = 1 << 20;
/// Most placements for each buffer without an offset at the start.
const STEPS_PER_BUFFER: usize = 32;
/// Placements for small problems.
const LEAST_STEPS: usize = 4096;
/// Most pairs of buffers that are compared.
const MOST_PAIRS: usize = 1 << 26;
/// Rounds in which every moved buffer is tried at its old offset: a buffer that returns may make
/// room for another.
const ROUNDS: usize = 3;

/// Places the buffers without an offset in `places`, below the limits of their spaces.
///
/// Each buffer gets the offset at which displaced buffers cost least: a buffer costs more if it is
/// large and lives long, and if it is at its old offset, `home`. Displaced buffers are placed in
/// turn. Buffers that are `fixed` are never displaced. At last, buffers return to free old offsets.
/// Returns `None` if the chains do not end, or if the problem has groups, or pairs that must be
/// apart.
pub(super) fn eject(
    problem: &Problem,
    home: &[Option<u64>],
    places: &[Option<u64>],
    fixed: &[bool],
    limits: &[u64],
    budget: &Budget<'_>,
) -> Option<Vec<u64>> {
    let has_group = problem.buffers().iter().any(|it| it.group().is_some());
    if has_group || !problem.rules().apart.is_empty() {
        return None;
    }
    let mut chains = BufferChains::new(problem, home, places, fixed, limits);
    chains.settle(budget)?;
    chains.return_home();
    chains.offsets.into_iter().collect()
}

/// The buffers of a problem, some with offsets.
struct BufferChains<'p> {
    problem: &'p Problem,
    home: &'p [Option<u64>],
    fixed: &'p [bool],
    limits: &'p [u64],
    offsets: Vec<Option<u64>>,
    births: Births,
    /// Bytes × steps by buffer, relative to the mean buffer.
    area: Vec<i128>,
    /// The price to displace each buffer.
    weight: Vec<i128>,
    waiting: Vec<usize>,
    /// Offset ranges at which the current buffer would displace another buffer.
    blocks: Vec<BlockedOffsets>,
    pairs: usize,
}

/// Offsets at which a buffer collides with another buffer, or with reserved bytes.
struct BlockedOffsets {
    offsets: Range<u64>,
    cost: i128,
    other: Option<usize>,
}

impl<'p> BufferChains<'p> {
    fn new(
        problem: &'p Problem,
        home: &'p [Option<u64>],
        places: &[Option<u64>],
        fixed: &'p [bool],
        limits: &'p [u64],
    ) -> Self {
        let area = |it: &Buffer| {
            let live = it.live();
            i128::from(it.bytes()) * i128::from(live.end().get() - live.start().get())
        };
        let buffers = problem.buffers();
        let count = i128::try_from(buffers.len()).unwrap_or(i128::MAX);
        let mean = (buffers.iter().map(area).sum::<i128>() / count.max(1)).max(1);
        // Relative to the mean, so that no sum of costs reaches a fixed buffer's cost.
        let area: Vec<i128> =
            buffers.iter().map(|it| area(it).saturating_mul(LEAVES_HOME) / mean).collect();
        let weight = area.clone();
        let waiting = (0..buffers.len()).filter(|&it| places[it].is_none()).collect();
        let (offsets, births) = (places.to_vec(), Births::new(problem));
        let (blocks, pairs) = (Vec::new(), 0);
        Self { problem, home, fixed, limits, offsets, births, area, weight, waiting, blocks, pairs }
    }

    /// Places all waiting buffers, the largest first.
    fn settle(&mut self, budget: &Budget<'_>) -> Option<()> {
        let steps = self.waiting.len().saturating_mul(STEPS_PER_BUFFER).max(LEAST_STEPS);
        let nodes = budget.nodes.and_then(|nodes| usize::try_from(nodes).ok());
        let steps = nodes.map_or(steps, |nodes| nodes.min(steps));
        for _ in 0..=steps {
            let key = |&place: &usize| {
                let item = self.waiting[place];
                (self.area[item], Reverse(item))
            };
            let Some(place) = (0..self.waiting.len()).max_by_key(key) else { return Some(()) };
            if self.pairs > MOST_PAIRS || budget.exhausted() {
                return None;
            }
            let item = self.waiting.swap_remove(place);
            self.find_blocks(item);
            let (cost, offset) = self.cheapest(item)?;
            if cost >= FIXED {
                return None;
            }
            self.displace(offset);
            self.offsets[item] = Some(offset);
        }
        None
    }

    /// Finds the offsets at which a buffer collides with a placed buffer.
    fn find_blocks(&mut self, item: usize) {
        let Self { problem, births, offsets, blocks, .. } = self;
        let buffer = &problem.buffers()[item];
        blocks.clear();
        for it in problem.spaces()[buffer.space().index()].reserved() {
            let low = it.start.saturating_add(1).saturating_sub(buffer.bytes());
            blocks.push(BlockedOffsets { offsets: low..it.end, cost: FIXED, other: None });
        }
        for other in births.live_with(problem, item, &mut self.pairs) {
            let Some(at) = offsets[other] else { continue };
            if problem.rules().permits(BufferId::new(item), BufferId::new(other)) {
                continue;
            }
            let is_fixed = self.fixed[other] || problem.buffers()[other].pin().is_some();
            let leaves = if self.home[other] == Some(at) { LEAVES_HOME } else { 0 };
            let cost = if is_fixed { FIXED } else { self.weight[other] + leaves };
            for (own, live) in buffer.rectangles() {
                for (taken, range) in problem.buffers()[other].rectangles() {
                    let low = (at + taken.start + 1).saturating_sub(own.end);
                    let high = (at + taken.end).saturating_sub(own.start);
                    if live.overlaps(range) && low < high && !own.is_empty() && !taken.is_empty() {
                        blocks.push(BlockedOffsets {
                            offsets: low..high,
                            cost,
                            other: Some(other),
                        });
                    }
                }
            }
        }
    }

    /// Returns the offset with the least cost, the old offset or the lowest such offset, with the
    /// cost.
    fn cheapest(&self, item: usize) -> Option<(i128, u64)> {
        let buffer = &self.problem.buffers()[item];
        let limit = self.limits[buffer.space().index()];
        let range = buffer.range().unwrap_or(0..limit);
        let last = limit.min(range.end).checked_sub(buffer.bytes())?;
        let alignment = self.problem.alignment(BufferId::new(item)).bytes();
        let multiple = least_common_multiple(alignment, buffer.multiple_of())?;
        let home = self.home[item];
        let mut places: Vec<u64> = if let Some(pin) = buffer.pin() {
            alloc::vec![pin]
        } else {
            let ends = self.blocks.iter().map(|it| it.offsets.end).chain([range.start, 0]);
            let ends = ends.filter_map(|it| it.checked_next_multiple_of(multiple));
            let ends = ends.chain(home.filter(|it| it.is_multiple_of(multiple)));
            ends.filter(|it| (range.start..=last).contains(it)).collect()
        };
        places.sort_unstable();
        places.dedup();
        let changes =
            |it: &BlockedOffsets| [(it.offsets.start, it.cost), (it.offsets.end, -it.cost)];
        let mut edges: Vec<(u64, i128)> = self.blocks.iter().flat_map(changes).collect();
        edges.sort_unstable();
        let (mut cost, mut next) = (0, 0);
        let costs = places.into_iter().map(|place| {
            while let Some(&(_, change)) = edges.get(next).filter(|edge| edge.0 <= place) {
                cost += change;
                next += 1;
            }
            (cost, Some(place) != home, place)
        });
        costs.min().map(|(cost, _, place)| (cost, place))
    }

    /// Displaces all that collides with the current buffer at an offset.
    fn displace(&mut self, offset: u64) {
        for block in self.blocks.iter().filter(|it| it.offsets.contains(&offset)) {
            let Some(other) = block.other else { continue };
            if self.offsets[other].take().is_some() {
                self.weight[other] += self.area[other] + LEAVES_HOME;
                self.waiting.push(other);
            }
        }
    }

    /// Moves buffers back to free old offsets.
    fn return_home(&mut self) {
        let buffers = self.problem.buffers();
        let is_away =
            |it: &usize| buffers[*it].pin().is_none() && self.offsets[*it] != self.home[*it];
        let mut away: Vec<usize> = (0..buffers.len()).filter(is_away).collect();
        away.sort_unstable_by_key(|&it| (Reverse(buffers[it].bytes()), it));
        for _ in 0..ROUNDS {
            away.retain(|&it| {
                if self.pairs > MOST_PAIRS || self.home[it].is_none() {
                    return false;
                }
                self.find_blocks(it);
                // The old offset comes first among free offsets.
                let found =
                    self.cheapest(it).filter(|&(cost, at)| cost == 0 && Some(at) == self.home[it]);
                if let Some((_, at)) = found {
                    self.offsets[it] = Some(at);
                }
                found.is_none()
            });
        }
    }
}
