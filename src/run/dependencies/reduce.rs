//! Transitive reduction: an edge is removed if another path connects the same steps.
//!
//! The reduction of a directed acyclic graph is unique (Aho, Garey and Ullman 1972). Most edges are
//! decided by their neighbors. Paths for the other edges are searched for 64 sources at a time,
//! only in the steps between source and target; edges of similar length are searched together, so
//! short edges visit few steps. The time is `O(n + m + Σ length / 64)` for edges of similar steps,
//! and at worst `O(n · m / 64)`.

use alloc::{vec, vec::Vec};

use crate::plan::Hazard;

/// An edge that may follow from others.
#[derive(Clone, Copy)]
struct OpenEdge {
    before: usize,
    after: usize,
    /// Position among all edges.
    edge: usize,
}

/// Returns the edges that do not follow from others.
///
/// `edges` ascend by later step, then by earlier step; each pair is there once.
pub(super) fn reduced(steps: usize, edges: &[Hazard]) -> Vec<Hazard> {
    let into = Incoming::new(steps, edges);
    let depth = into.depths(steps);
    let mut is_kept = vec![true; edges.len()];
    let mut classes: Vec<Vec<OpenEdge>> = Vec::new();
    for after in 0..steps {
        let (start, before) = into.of(after);
        // The last predecessor of a step cannot come before another predecessor.
        for (at, &first) in before.iter().enumerate().rev().skip(1) {
            let others = &before[at + 1..];
            if others.iter().all(|&other| depth[other] <= depth[first]) {
                continue;
            }
            if others.iter().any(|&other| into.of(other).1.binary_search(&first).is_ok()) {
                is_kept[start + at] = false;
                continue;
            }
            let class = usize::try_from((after - first).ilog2()).unwrap_or(0);
            if classes.len() <= class {
                classes.resize_with(class + 1, Vec::new);
            }
            classes[class].push(OpenEdge { before: first, after, edge: start + at });
        }
    }
    let mut seen = vec![0_u64; steps];
    for mut class in classes {
        class.sort_unstable_by_key(|open| (open.before, open.after));
        let mut rest = &class[..];
        while !rest.is_empty() {
            let mut sources: Vec<usize> = Vec::with_capacity(64);
            let count = rest.iter().take_while(|open| {
                if sources.last() != Some(&open.before) {
                    if sources.len() == 64 {
                        return false;
                    }
                    sources.push(open.before);
                }
                true
            });
            let (batch, others) = rest.split_at(count.count());
            search(&into, batch, &sources, &mut seen, &mut is_kept);
            rest = others;
        }
    }
    let kept = edges.iter().zip(is_kept).filter(|&(_, is_kept)| is_kept);
    kept.map(|(&edge, _)| edge).collect()
}

/// Decides edges from at most 64 `sources`, which ascend.
fn search(
    into: &Incoming,
    batch: &[OpenEdge],
    sources: &[usize],
    seen: &mut [u64],
    is_kept: &mut [bool],
) {
    let (Some(&first), Some(last)) = (sources.first(), batch.iter().map(|open| open.after).max())
    else {
        return;
    };
    let mut next = sources.iter().enumerate().peekable();
    for step in first..=last {
        let before = into.of(step).1;
        let before = &before[before.partition_point(|&before| before < first)..];
        // A source counts as seen by itself, so that successors see the source.
        let mut reached = before.iter().fold(0, |reached, &before| reached | seen[before]);
        if let Some((bit, _)) = next.next_if(|&(_, &source)| source == step) {
            reached |= 1 << bit;
        }
        seen[step] = reached;
    }
    for open in batch {
        let Ok(bit) = sources.binary_search(&open.before) else { continue };
        let mut others = into.of(open.after).1.iter().filter(|&&it| it > open.before);
        is_kept[open.edge] = others.all(|&other| seen[other] >> bit & 1 == 0);
    }
    seen[first..=last].fill(0);
}

/// The steps before each step.
struct Incoming {
    starts: Vec<usize>,
    before: Vec<usize>,
}

impl Incoming {
    fn new(steps: usize, edges: &[Hazard]) -> Self {
        let index = |step: u32| usize::try_from(step).unwrap_or(usize::MAX);
        let mut starts = Vec::with_capacity(steps + 1);
        for step in 0..=steps {
            starts.push(edges.partition_point(|edge| index(edge.after) < step));
        }
        Self { starts, before: edges.iter().map(|edge| index(edge.before)).collect() }
    }

    /// Returns the position of the first edge to a step, and the steps before the step, ascending.
    fn of(&self, step: usize) -> (usize, &[usize]) {
        let (start, end) = (self.starts[step], self.starts[step + 1]);
        (start, &self.before[start..end])
    }

    /// Returns, by step, the length of the longest path to the step, in edges.
    fn depths(&self, steps: usize) -> Vec<u32> {
        let mut depths: Vec<u32> = Vec::with_capacity(steps);
        for step in 0..steps {
            let before = self.of(step).1.iter().map(|&before| depths[before] + 1);
            depths.push(before.max().unwrap_or(0));
        }
        depths
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::HazardKind;

    /// Against the definition: an edge stays if no path with several edges connects its ends.
    #[test]
    fn the_edges_that_stay_are_the_unique_reduction() {
        let mut seed = 7_u64;
        let mut below = |limit: usize| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            usize::try_from(seed >> 33).unwrap_or(0) % limit
        };
        for round in 0..200 {
            // The last rounds have more sources than a search takes.
            let steps = if round < 190 { 2 + below(30) } else { 300 };
            let density = 1 + below(8);
            let mut edges = Vec::new();
            let narrow = |step: usize| u32::try_from(step).unwrap_or(0);
            for after in 1..steps {
                for before in 0..after {
                    let is_near = after - before < 12 || below(20) == 0;
                    if is_near && below(10) < density {
                        let (after, before) = (narrow(after), narrow(before));
                        edges.push(Hazard { after, before, kind: HazardKind::Data });
                    }
                }
            }
            let mut paths = vec![vec![false; steps]; steps];
            let mut expected = Vec::new();
            let index = |step: u32| usize::try_from(step).unwrap_or(0);
            for after in 0..steps {
                let into: Vec<&Hazard> =
                    edges.iter().filter(|edge| index(edge.after) == after).collect();
                for edge in &into {
                    let first = index(edge.before);
                    if into.iter().all(|other| !paths[first][index(other.before)]) {
                        expected.push(**edge);
                    }
                }
                for edge in into {
                    for (first, row) in paths.iter_mut().enumerate().take(after) {
                        row[after] |= first == index(edge.before) || row[index(edge.before)];
                    }
                }
            }
            assert_eq!(reduced(steps, &edges), expected);
        }
    }
}
