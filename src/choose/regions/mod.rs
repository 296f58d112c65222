//! Chooses the steps that run strip by strip, for the fewest bytes.
//!
//! A *region* is a run of steps whose last result is made some rows at a time, through all steps.
//! The bytes between the steps shrink to line buffers; operands and result stay whole. A choice of
//! regions is a path through the steps in order; each edge is an unchanged step or a region (the
//! fusion graph of msf-CNN, Huang and Baccelli 2025). Bisection finds the smallest size with a path
//! that is fast enough, and the fastest path in that size is taken.
//!
//! A runner with kernels gives the nodes performed by one call, and the cost of calls on some rows.
//! Without kernels, every call takes one time unit.

mod kernels;
mod rows;
mod stage;

pub use kernels::{RowCost, RowKernel, RowMoveCost, Way};

use alloc::collections::BTreeMap;
use alloc::{vec, vec::Vec};
use core::ops::Range;

use crate::base::{NodeId, Result, ValueId};
use crate::graph::{Graph, ValueKind, Window};
use crate::pack::Budget;
use crate::plan::Strips;
use kernels::Inside;
pub(crate) use kernels::Kernels;
use rows::{Growth, InStrips, strips_of};

/// Most steps in a region.
const LONGEST: usize = 64;
/// Most steps that are tried as the ends of regions.
const MOST_ENDINGS: usize = 400;
/// Tried numbers of rows per strip.
const HEIGHTS: [u64; 9] = [1, 2, 3, 4, 6, 8, 12, 16, 32];

/// A placed value, in the bytes shared with other values.
#[derive(Clone, Debug)]
pub(crate) struct PlacedPiece {
    /// The bytes, rounded outward to the alignment.
    pub(crate) bytes: Range<u64>,
    /// The first live step, and the step after the last.
    pub(crate) live: (usize, usize),
    /// The step that makes the value, if the value is not supplied.
    pub(crate) made: Option<usize>,
}

/// Steps, some of which run strip by strip.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StripChoice {
    /// Each step's nodes.
    pub steps: Vec<Vec<NodeId>>,
    /// The steps in strips, by last node.
    pub strips: Vec<(NodeId, Strips)>,
    /// Bytes that are needed at once, as far as regions tell.
    pub bytes: u64,
    /// Time of all steps, in the same unit.
    pub time: u64,
}

/// A run of steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct StripRegion {
    first: usize,
    last: usize,
    /// Result rows made at once.
    rows: u64,
    /// Live bytes during the region, and time.
    way: Way,
}

/// Limits for a choice of steps in strips.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StripLimits {
    /// The choice needs more bytes than this.
    pub above: u64,
    /// The choice needs fewer bytes than this.
    pub below: u64,
    /// The choice takes at most this time.
    pub time: u64,
}

/// Returns how `nodes` run in strips of so many rows by row kernels, in execution order; `None` if
/// impossible.
///
/// # Errors
///
/// [`InvalidOption`](crate::Error::InvalidOption) if a kernel cannot make its result some rows at a
/// time. Errors of packing line buffers.
pub fn nodes_in_strips(
    graph: &Graph,
    kernels: Vec<RowKernel>,
    moves: RowMoveCost,
    nodes: &[NodeId],
    rows: u64,
) -> Result<Option<(Vec<NodeId>, Strips)>> {
    let kernels = Kernels::new(graph, kernels, moves)?;
    let found = strips_of(&kernels, nodes, rows, &Budget::default())?;
    Ok(found.map(|InStrips { nodes, strips }| (nodes, strips)))
}

/// Steps without strips.
#[derive(Debug)]
pub(crate) struct WholeSteps<'a> {
    /// Each step's nodes.
    pub(crate) steps: Vec<Vec<NodeId>>,
    /// Bytes that are live at each step.
    pub(crate) live: &'a [u64],
    /// The values in these bytes, grouped by shared bytes.
    pub(crate) held: &'a [Vec<PlacedPiece>],
}

/// The regions of some steps.
#[derive(Debug)]
pub(crate) struct StripRegions {
    steps: Vec<Vec<NodeId>>,
    /// Per step, the ways to run the step.
    ways: Vec<Vec<Way>>,
    kernels: Kernels,
    found: Vec<StripRegion>,
    /// The regions in the last returned choice.
    chosen: Vec<StripRegion>,
}

impl StripRegions {
    /// Returns the regions of steps whose kernels are single nodes; each run of a node or a step
    /// takes one time unit. `makes_rows` says with which windows the runner makes rows.
    pub(crate) fn of_nodes(
        graph: &Graph,
        makes_rows: &dyn Fn(&[Window]) -> bool,
        whole: WholeSteps<'_>,
        limits: StripLimits,
        budget: &Budget<'_>,
    ) -> Self {
        let ways = whole.live.iter().map(|&bytes| vec![Way { bytes, time: 1 }]).collect();
        Self::of_kernels(
            graph,
            Kernels::of_each_node(graph, makes_rows),
            whole,
            ways,
            limits,
            budget,
        )
    }

    /// Returns the regions of steps with these kernels and ways to run each step. Regions that
    /// exceed the limits by themselves are left out.
    pub(crate) fn of_kernels(
        graph: &Graph,
        kernels: Kernels,
        whole: WholeSteps<'_>,
        ways: Vec<Vec<Way>>,
        limits: StripLimits,
        budget: &Budget<'_>,
    ) -> Self {
        let found = regions(graph, &kernels, &whole, limits, budget);
        Self { steps: whole.steps, ways, kernels, found, chosen: Vec::new() }
    }

    /// Returns the steps with the fewest bytes within the limits; `None` if no step runs strip by
    /// strip.
    ///
    /// # Errors
    ///
    /// Errors of packing line buffers.
    pub(crate) fn least(
        &mut self,
        limits: StripLimits,
        budget: &Budget<'_>,
    ) -> Result<Option<StripChoice>> {
        while let Some(Path { way, regions }) = least_path(&self.ways, &self.found, limits) {
            let Way { bytes, time } = way;
            let mut choice = StripChoice { steps: Vec::new(), strips: Vec::new(), bytes, time };
            let mut refused = None;
            let mut at = 0;
            for region in &regions {
                choice.steps.extend_from_slice(&self.steps[at..region.first]);
                let nodes: Vec<NodeId> = self.steps[region.first..=region.last].concat();
                let Some(found) = strips_of(&self.kernels, &nodes, region.rows, budget)? else {
                    refused = Some(*region);
                    break;
                };
                let InStrips { nodes, strips } = found;
                choice.strips.push((*nodes.last().expect("a region has steps"), strips));
                choice.steps.push(nodes);
                at = region.last + 1;
            }
            if let Some(refused) = refused {
                self.refuse(refused);
                continue;
            }
            choice.steps.extend_from_slice(&self.steps[at..]);
            self.chosen = regions;
            return Ok((!choice.strips.is_empty()).then_some(choice));
        }
        Ok(None)
    }

    /// Excludes a run of steps in the last returned choice, by position, from all later choices.
    pub(crate) fn refuse_chosen(&mut self, position: usize) {
        if let Some(&region) = self.chosen.get(position) {
            self.refuse(region);
        }
    }

    fn refuse(&mut self, refused: StripRegion) {
        let key = |region: &StripRegion| (region.first, region.last, region.rows);
        self.found.retain(|region| key(region) != key(&refused));
    }
}

/// Returns regions that need fewer bytes than their highest step, within the limits.
fn regions(
    graph: &Graph,
    kernels: &Kernels,
    whole: &WholeSteps<'_>,
    limits: StripLimits,
    budget: &Budget<'_>,
) -> Vec<StripRegion> {
    let WholeSteps { steps, live, held } = whole;
    let hot = hot(graph, live);
    let mut found = Vec::new();
    let is_near = |&last: &usize| {
        let before = hot.partition_point(|&at| at <= last);
        before > 0 && last - hot[before - 1] < LONGEST
    };
    for last in (0..steps.len()).filter(is_near).take(MOST_ENDINGS) {
        if budget.exhausted() {
            break;
        }
        let since = (last + 1).saturating_sub(LONGEST);
        let is_there = |piece: &PlacedPiece| piece.live.0 <= last && piece.live.1 > since;
        let near = held.iter().filter(|pieces| pieces.iter().any(is_there));
        let near: Vec<&[PlacedPiece]> = near.map(Vec::as_slice).collect();
        ending(kernels, steps, last, &mut |first, growths| {
            growths.retain(|growth| {
                growth.ways().any(|way| way.bytes < limits.below && way.time <= limits.time)
            });
            if first == last || growths.is_empty() {
                return;
            }
            let warmest = live[first..=last].iter().copied().max().unwrap_or(0);
            let around = around(&near, first, last);
            let mut own: Vec<StripRegion> = Vec::new();
            for growth in growths.iter() {
                own.extend(growth.ways().map(|way| {
                    let way = Way { bytes: way.bytes.saturating_add(around), ..way };
                    StripRegion { first, last, rows: growth.rows, way }
                }));
            }
            own.retain(|region| region.way.bytes < warmest.min(limits.below));
            own.sort_by_key(|region| (region.way.bytes, region.way.time));
            let mut best = limits.time;
            for region in own {
                if region.way.time < best {
                    best = region.way.time;
                    found.push(region);
                }
            }
        });
    }
    found
}

/// Returns the steps that regions should make smaller: steps that need more bytes than the whole
/// values, whatever is in strips.
fn hot(graph: &Graph, live: &[u64]) -> Vec<usize> {
    let bytes = |values: &mut dyn Iterator<Item = ValueId>| -> u64 {
        values.fold(0, |sum, value| sum.saturating_add(graph.value(value).bytes()))
    };
    let is_input = |value: &ValueId| graph.value(*value).kind() == ValueKind::Input;
    let inputs = bytes(&mut (0..graph.values().len()).map(ValueId::new).filter(is_input));
    let least = inputs.max(bytes(&mut graph.outputs().iter().copied()));
    (0..live.len()).filter(|&at| live[at] > least).collect()
}

/// Returns the nodes that can be in a region with a step that should become smaller.
pub(crate) fn nodes_in_reach(
    graph: &Graph,
    steps: &[Vec<NodeId>],
    live: &[u64],
    wanted: &[usize],
) -> Vec<NodeId> {
    let mut is_wanted = vec![false; steps.len()];
    for &at in wanted {
        if let Some(is_wanted) = is_wanted.get_mut(at) {
            *is_wanted = true;
        }
    }
    let mut hot = hot(graph, live);
    hot.retain(|&at| is_wanted[at]);
    let is_near = |at: &usize| {
        let next = hot.partition_point(|&hot| hot + LONGEST <= *at);
        hot.get(next).is_some_and(|&hot| hot < at + LONGEST)
    };
    (0..steps.len()).filter(is_near).flat_map(|at| steps[at].iter().copied()).collect()
}

/// Returns the bytes that a region reads, makes, or leaves alone.
fn around(held: &[&[PlacedPiece]], first: usize, last: usize) -> u64 {
    let is_outside = |piece: &&PlacedPiece| {
        let (start, end) = piece.live;
        // Made and used up between the steps, but for the result.
        let is_inside = piece.made.is_some_and(|made| first <= made && made < last);
        start <= last && end > first && !(is_inside && end <= last + 1)
    };
    let covered = |pieces: &&[PlacedPiece]| -> u64 {
        let mut spans: Vec<&Range<u64>> =
            pieces.iter().filter(is_outside).map(|piece| &piece.bytes).collect();
        spans.sort_unstable_by_key(|span| span.start);
        let (mut sum, mut end) = (0, 0);
        for span in spans {
            sum += span.end.saturating_sub(span.start.max(end));
            end = span.end.max(end);
        }
        sum
    };
    held.iter().map(covered).fold(0, u64::saturating_add)
}

/// Calls `each` with the first step of every region that ends with the step `last`, and its kernels
/// by height; heights removed by `each` are not tried further.
fn ending(
    kernels: &Kernels,
    steps: &[Vec<NodeId>],
    last: usize,
    each: &mut dyn FnMut(usize, &mut Vec<Growth>),
) {
    let from = (last + 1).saturating_sub(LONGEST);
    let is_apart = |at: &usize| steps[*at].iter().all(|&id| kernels.stage(id).is_some());
    let first = (from..=last).rev().take_while(is_apart).last();
    let Some(first) = first else { return };
    let nodes: Vec<NodeId> = steps[first..=last].concat();
    let step_of: BTreeMap<NodeId, usize> =
        (first..=last).flat_map(|at| steps[at].iter().map(move |&id| (id, at))).collect();
    let Some(exit) = nodes.last().and_then(|&id| kernels.stage(id)) else { return };
    let heights = HEIGHTS.iter().filter(|&&rows| 2 * rows <= exit.rows);
    let mut growths: Vec<Growth> =
        heights.filter_map(|&rows| Growth::new(kernels, exit, rows)).collect();
    let takers = kernels.takers(&nodes);
    let mut inside = Inside::default();
    // The first step with a node inside.
    let mut lowest = last;
    for at in (first..=last).rev() {
        for id in steps[at].iter().rev() {
            let Some(kernel) = kernels.of(*id) else { return };
            if kernel.nodes.last() != Some(id) {
                if inside.nodes.contains(id) {
                    continue;
                }
                return; // The kernel also performs nodes after the last node.
            }
            if !inside.add(kernels, kernel) {
                return;
            }
            for id in &kernel.nodes {
                let Some(&step) = step_of.get(id) else { return };
                lowest = lowest.min(step);
            }
            growths.retain_mut(|growth| growth.add(kernels, kernel, &takers));
        }
        if lowest >= at {
            each(at, &mut growths);
        }
        if growths.is_empty() {
            return;
        }
    }
}

/// A path through all steps.
#[derive(Debug, PartialEq, Eq)]
struct Path {
    /// The most bytes of a step or region on the path, or more, and the total time.
    way: Way,
    regions: Vec<StripRegion>,
}

/// Returns the path with the fewest bytes within the limits; for equal bytes, the fastest path.
fn least_path(steps: &[Vec<Way>], regions: &[StripRegion], limits: StripLimits) -> Option<Path> {
    let mut by_first: Vec<Vec<&StripRegion>> = vec![Vec::new(); steps.len()];
    for region in regions {
        by_first[region.first].push(region);
    }
    let ways = steps.iter().flatten().chain(regions.iter().map(|region| &region.way));
    let is_wanted = |&size: &u64| limits.above < size && size < limits.below;
    let mut sizes: Vec<u64> = ways.map(|way| way.bytes).filter(is_wanted).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let (mut low, mut high) = (0, sizes.len());
    let mut best = None;
    while low < high {
        let middle = low + (high - low) / 2;
        match fastest(steps, &by_first, sizes[middle]).filter(|path| path.way.time <= limits.time) {
            Some(path) => (best, high) = (Some(path), middle),
            None => low = middle + 1,
        }
    }
    best
}

/// Returns the fastest path in an arena of `room` bytes.
fn fastest(steps: &[Vec<Way>], by_first: &[Vec<&StripRegion>], room: u64) -> Option<Path> {
    let count = steps.len();
    let mut times: Vec<Option<u64>> = vec![None; count + 1];
    let mut before: Vec<Option<&StripRegion>> = vec![None; count + 1];
    times[0] = Some(0);
    for at in 0..count {
        let Some(now) = times[at] else { continue };
        let mut reach = |to: usize, time: u64, by| {
            let total = now.saturating_add(time);
            if times[to].is_none_or(|known| total < known) {
                (times[to], before[to]) = (Some(total), by);
            }
        };
        let alone = steps[at].iter().filter(|way| way.bytes <= room);
        if let Some(time) = alone.map(|way| way.time).min() {
            reach(at + 1, time, None);
        }
        for &region in by_first[at].iter().filter(|region| region.way.bytes <= room) {
            reach(region.last + 1, region.way.time, Some(region));
        }
    }
    let time = times[count]?;
    let mut regions = Vec::new();
    let mut at = count;
    while at > 0 {
        at = match before[at] {
            Some(region) => {
                regions.push(*region);
                region.first
            }
            None => at - 1,
        };
    }
    regions.reverse();
    Some(Path { way: Way { bytes: room, time }, regions })
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn way(bytes: u64, time: u64) -> Way {
        Way { bytes, time }
    }

    #[test]
    fn the_least_path_is_the_smallest_within_the_limit() {
        let steps =
            [vec![way(10, 5), way(30, 1)], vec![way(50, 1)], vec![way(40, 1)], vec![way(5, 1)]];
        let region =
            |first, last, bytes, time| StripRegion { first, last, rows: 1, way: way(bytes, time) };
        let regions = [region(0, 1, 20, 9), region(1, 2, 25, 3), region(0, 3, 12, 30)];
        let best = |above, time| {
            let path = least_path(&steps, &regions, StripLimits { above, below: 1000, time })?;
            let runs = path.regions.iter().map(|region| (region.first, region.last));
            Some((path.way.bytes, runs.collect::<Vec<_>>()))
        };
        assert_eq!(best(0, 3), None);
        assert_eq!(best(0, 4), Some((50, vec![])));
        assert_eq!(best(0, 5), Some((30, vec![(1, 2)])));
        assert_eq!(best(0, 9), Some((25, vec![(1, 2)])));
        assert_eq!(best(0, 30), Some((12, vec![(0, 3)])));
        assert_eq!(best(25, 30), best(0, 8));
    }
}
