//! Which steps run strip by strip, for the fewest bytes.
//!
//! A *region* is a run of steps of which the last one's result is made some rows at a time, through
//! all of them. The bytes between its steps shrink to line buffers; its operands and its result stay
//! whole. A choice of regions is a path through the steps in their order, each edge of which is a
//! step as it is or a region (the graph of fusion choices of msf-CNN, Huang and Baccelli 2025). The
//! smallest size with a path is found by bisection, and of the paths in that size the one with the
//! fewest runs of nodes is taken.
//!
//! A runner with kernels has costs of its own for rows, and chooses regions itself.

mod rows;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::{vec, vec::Vec};
use core::ops::Range;

use crate::base::{NodeId, Result, ValueId};
use crate::graph::{Graph, ValueKind};
use crate::pack::Budget;
use crate::plan::Strips;
use rows::{Growth, Stage, Stages, strips_of};

/// Most steps of a region.
const LONGEST: usize = 64;
/// Steps that are tried as the ends of regions, at most.
const MOST_ENDINGS: usize = 400;
/// Rows of a strip that are tried.
const HEIGHTS: [u64; 9] = [1, 2, 3, 4, 6, 8, 12, 16, 32];

/// A value that has a place, in the bytes that it shares with other ones.
#[derive(Clone, Debug)]
pub(crate) struct Piece {
    /// Its bytes, rounded outward to the alignment.
    pub(crate) bytes: Range<u64>,
    /// The first step at which it is live, and the step after the last.
    pub(crate) live: (usize, usize),
    /// The step that makes it, if it is not there before the first one.
    pub(crate) made: Option<usize>,
}

/// Steps, of which some run strip by strip.
#[derive(Clone, Debug)]
pub(crate) struct Chosen {
    /// The nodes of each step.
    pub(crate) steps: Vec<Vec<NodeId>>,
    /// The steps in strips, by last node.
    pub(crate) strips: Vec<(NodeId, Strips)>,
    /// Bytes that are needed at once, as far as regions tell.
    pub(crate) bytes: u64,
}

/// A run of steps.
#[derive(Clone, Copy, Debug)]
struct Region {
    first: usize,
    last: usize,
    /// Rows of the result that are made at once.
    rows: u64,
    /// Bytes that are live while it runs.
    bytes: u64,
    /// Runs of nodes.
    calls: u64,
}

/// The regions of some steps.
#[derive(Debug)]
pub(crate) struct Regions<'a> {
    steps: &'a [Vec<NodeId>],
    /// Bytes that are live at each step.
    live: &'a [u64],
    stages: Stages,
    found: Vec<Region>,
}

impl<'a> Regions<'a> {
    /// Returns the regions that need fewer than `below` bytes.
    ///
    /// `live` are the bytes live at each of `steps`, and `held` the values in them: those that share
    /// bytes together.
    pub(crate) fn new(
        graph: &Graph,
        steps: &'a [Vec<NodeId>],
        live: &'a [u64],
        held: &[Vec<Piece>],
        below: u64,
        budget: &Budget<'_>,
    ) -> Self {
        let stages = Stages::new(graph);
        let found = regions(graph, &stages, steps, live, held, below, budget);
        Self { steps, live, stages, found }
    }

    /// Returns the steps that need the fewest bytes of those that need more than `above` and fewer
    /// than `below`; `None` if none run strip by strip.
    ///
    /// # Errors
    ///
    /// Those of packing line buffers.
    pub(crate) fn least(
        &mut self,
        above: u64,
        below: u64,
        budget: &Budget<'_>,
    ) -> Result<Option<Chosen>> {
        while let Some(Path { bytes, regions }) = least_path(self.live, &self.found, above, below) {
            let mut chosen = Chosen { steps: Vec::new(), strips: Vec::new(), bytes };
            let mut refused = None;
            let mut at = 0;
            for region in regions {
                chosen.steps.extend_from_slice(&self.steps[at..region.first]);
                let nodes: Vec<NodeId> = self.steps[region.first..=region.last].concat();
                let last = *nodes.last().expect("a region has steps");
                let Some(strips) = strips_of(&self.stages, &nodes, region.rows, budget)? else {
                    refused = Some(region);
                    break;
                };
                chosen.strips.push((last, strips));
                chosen.steps.push(nodes);
                at = region.last + 1;
            }
            let Some(refused) = refused else {
                chosen.steps.extend_from_slice(&self.steps[at..]);
                return Ok((!chosen.strips.is_empty()).then_some(chosen));
            };
            let key = |region: &Region| (region.first, region.last, region.rows);
            self.found.retain(|region| key(region) != key(&refused));
        }
        Ok(None)
    }
}

/// Returns regions that need fewer bytes than their highest step, and fewer than `below`.
fn regions(
    graph: &Graph,
    stages: &Stages,
    steps: &[Vec<NodeId>],
    live: &[u64],
    held: &[Vec<Piece>],
    below: u64,
    budget: &Budget<'_>,
) -> Vec<Region> {
    // Inputs and outputs are there whole, whatever is in strips.
    let bytes = |values: &mut dyn Iterator<Item = ValueId>| -> u64 {
        values.fold(0, |sum, value| sum.saturating_add(graph.value(value).bytes()))
    };
    let is_input = |value: &ValueId| graph.value(*value).kind() == ValueKind::Input;
    let inputs = bytes(&mut (0..graph.values().len()).map(ValueId::new).filter(is_input));
    let least = inputs.max(bytes(&mut graph.outputs().iter().copied()));
    let hot: Vec<usize> = (0..live.len()).filter(|&at| live[at] > least).collect();
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
        let is_there = |piece: &Piece| piece.live.0 <= last && piece.live.1 > since;
        let near = held.iter().filter(|pieces| pieces.iter().any(is_there));
        let near: Vec<&[Piece]> = near.map(Vec::as_slice).collect();
        ending(graph, stages, steps, last, &mut |first, growths| {
            growths.retain(|growth| growth.bytes() < below);
            if first == last {
                return;
            }
            let warmest = live[first..=last].iter().copied().max().unwrap_or(0);
            let around = around(&near, first, last);
            for growth in growths.iter() {
                let bytes = growth.bytes().saturating_add(around);
                if bytes < warmest.min(below) {
                    let Growth { rows, calls, .. } = *growth;
                    found.push(Region { first, last, rows, bytes, calls });
                }
            }
        });
    }
    found
}

/// Returns the bytes that a region reads, makes, or leaves alone.
fn around(held: &[&[Piece]], first: usize, last: usize) -> u64 {
    let is_outside = |piece: &&Piece| {
        let (start, end) = piece.live;
        // Made and used up between the steps, but for the result.
        let is_inside = piece.made.is_some_and(|made| first <= made && made < last);
        start <= last && end > first && !(is_inside && end <= last + 1)
    };
    let covered = |pieces: &&[Piece]| -> u64 {
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

/// Calls `each` with the first step of every region that ends with the step `last`, and its stages
/// by height; heights that `each` removes are tried no further.
fn ending(
    graph: &Graph,
    stages: &Stages,
    steps: &[Vec<NodeId>],
    last: usize,
    each: &mut dyn FnMut(usize, &mut Vec<Growth>),
) {
    let from = (last + 1).saturating_sub(LONGEST);
    let is_apart = |at: &usize| steps[*at].iter().all(|&id| stages.get(id).is_some());
    let first = (from..=last).rev().take_while(is_apart).last();
    let Some(first) = first else { return };
    let nodes: Vec<NodeId> = steps[first..=last].concat();
    let Some(exit) = nodes.last().and_then(|&id| stages.get(id)) else { return };
    let heights = HEIGHTS.iter().filter(|&&rows| 2 * rows <= exit.rows);
    let mut growths: Vec<Growth> = heights.filter_map(|&rows| Growth::new(exit, rows)).collect();
    let takers = stages.takers(&nodes);
    let mut inside: BTreeSet<NodeId> = BTreeSet::new();
    let mut readers: BTreeMap<ValueId, Vec<&Stage>> = BTreeMap::new();
    for at in (first..=last).rev() {
        for &id in steps[at].iter().rev() {
            let Some(stage) = stages.get(id) else { return };
            let is_exit = stage.value == exit.value;
            if !inside.insert(id) {
                return; // It runs in several steps.
            }
            let users = &stages.users[stage.value.index()];
            let leaves = graph.outputs().contains(&stage.value)
                || users.is_empty()
                || graph.value(stage.value).kind() != ValueKind::Activation
                || !users.iter().all(|user| inside.contains(user));
            let is_read_by_rows = readers
                .get(&stage.value)
                .is_none_or(|readers| readers.iter().all(|reader| reader.can_follow(stage)));
            if !is_exit && (leaves || !is_read_by_rows) {
                return;
            }
            let has_line = !is_exit && !takers.contains_key(&stage.value);
            growths.retain_mut(|growth| growth.add(stage, has_line));
            for value in stage.operands() {
                readers.entry(value).or_default().push(stage);
            }
        }
        each(at, &mut growths);
        if growths.is_empty() {
            return;
        }
    }
}

/// A path through all steps.
struct Path {
    /// The most bytes that a step or region of it needs, or more.
    bytes: u64,
    regions: Vec<Region>,
}

/// Returns the path that needs the fewest bytes of those that need more than `above` and fewer than
/// `below`; of such paths, one with the fewest runs of nodes.
fn least_path(live: &[u64], regions: &[Region], above: u64, below: u64) -> Option<Path> {
    let mut by_first: Vec<Vec<&Region>> = vec![Vec::new(); live.len()];
    for region in regions {
        by_first[region.first].push(region);
    }
    let sizes = live.iter().copied().chain(regions.iter().map(|region| region.bytes));
    let mut sizes: Vec<u64> = sizes.filter(|&size| above < size && size < below).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let (mut low, mut high) = (0, sizes.len());
    let mut best = None;
    while low < high {
        let middle = low + (high - low) / 2;
        let bytes = sizes[middle];
        match shortest(live, &by_first, bytes) {
            Some(regions) => (best, high) = (Some(Path { bytes, regions }), middle),
            None => low = middle + 1,
        }
    }
    best
}

/// Returns the regions of the path with the fewest runs of nodes in an arena of `room` bytes.
fn shortest(live: &[u64], by_first: &[Vec<&Region>], room: u64) -> Option<Vec<Region>> {
    let count = live.len();
    let mut calls: Vec<Option<u64>> = vec![None; count + 1];
    let mut before: Vec<Option<&Region>> = vec![None; count + 1];
    calls[0] = Some(0);
    for at in 0..count {
        let Some(now) = calls[at] else { continue };
        let mut reach = |to: usize, total: u64, by| {
            if calls[to].is_none_or(|known| total < known) {
                (calls[to], before[to]) = (Some(total), by);
            }
        };
        if live[at] <= room {
            reach(at + 1, now + 1, None);
        }
        for &region in by_first[at].iter().filter(|region| region.bytes <= room) {
            reach(region.last + 1, now.saturating_add(region.calls), Some(region));
        }
    }
    calls[count]?;
    let mut path = Vec::new();
    let mut at = count;
    while at > 0 {
        at = match before[at] {
            Some(region) => {
                path.push(*region);
                region.first
            }
            None => at - 1,
        };
    }
    path.reverse();
    Some(path)
}
