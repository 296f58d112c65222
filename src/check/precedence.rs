//! Pairs of steps that must keep their order, and the proof that edges order these pairs.

use alloc::collections::BTreeMap;
use alloc::{vec, vec::Vec};

use crate::base::{NodeId, ValueId};
use crate::check::is_at;
use crate::check::races::Races;
use crate::check::unit::Unit;
use crate::graph::Graph;
use crate::plan::{HazardKind, Plan, ShareRule};

/// Most entries of a path table at a time.
const MOST_ENTRIES: usize = 1 << 24;

/// Why a step must wait for another step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reason {
    pub(super) kind: HazardKind,
    /// A byte used by both steps, if any, with the space.
    pub(super) byte: Option<(u32, u64)>,
}

/// By later and earlier step: the reason. Each pair that must keep its order is in the map, or
/// follows from several pairs in the map.
pub(super) type Required = BTreeMap<(usize, usize), Reason>;

/// Bytes in a space.
struct SpaceBytes {
    space: u32,
    start: u64,
    end: u64,
}

/// Returns the pairs of steps in a valid plan that must keep their order.
///
/// A step uses the bytes that its node may use: the read inputs; the outputs, unless an output is a
/// view within an input; all bytes of inputs that an output takes over or overlaps, and of inputs
/// that begin in such bytes; the mutated states; the workspaces.
pub(super) fn required(plan: &Plan, graph: &Graph, units: &[Unit<'_>]) -> Required {
    let mut required = Required::new();
    let mut users = Races::default();
    let ids = units.iter().map(Unit::last).enumerate().map(|(step, id)| (id, step));
    let steps: BTreeMap<NodeId, usize> = ids.collect();
    for unit in units {
        let id = unit.last();
        for used in reads(plan, unit) {
            users.read(used.space, used.start..used.end, id);
        }
        for used in writes(plan, unit, steps[&id]) {
            users.write(used.space, used.start..used.end, id);
        }
    }
    for (before, after, found) in users.into_pairs() {
        let kind = if found.reads_written {
            HazardKind::Data
        } else if found.writes_read {
            HazardKind::WriteAfterRead
        } else {
            HazardKind::WriteAfterWrite
        };
        let reason = Reason { kind, byte: Some((found.space, found.byte)) };
        required.insert((steps[&after], steps[&before]), reason);
    }
    for (after, unit) in units.iter().enumerate() {
        for (at, &id) in unit.nodes.iter().enumerate() {
            let producers =
                graph.node(id).reads_bytes_of().filter_map(|(_, it)| graph.producer(it));
            let data = producers.map(|before| (before, HazardKind::Data));
            let control = graph.dependencies(id).map(|before| (before, HazardKind::Control));
            // A node that runs in this step, too, is not waited for.
            let others = |(before, _): &(NodeId, HazardKind)| !unit.nodes[..at].contains(before);
            for (before, kind) in data.chain(control).filter(others) {
                let before = usize::try_from(plan.step_of[before.index()]).unwrap_or(usize::MAX);
                if before == after {
                    continue;
                }
                let reason = Reason { kind, byte: None };
                let known = required.entry((after, before)).or_insert(reason);
                known.kind = known.kind.min(kind);
            }
        }
    }
    required
}

/// Iterates over the bytes that a unit reads.
fn reads<'a>(plan: &'a Plan, unit: &'a Unit<'_>) -> impl Iterator<Item = SpaceBytes> + 'a {
    unit.reads().filter_map(|(_, value)| place(plan, value))
}

/// Returns the bytes that a unit of a valid plan may write.
fn writes(plan: &Plan, unit: &Unit<'_>, step: usize) -> Vec<SpaceBytes> {
    let mut found = Vec::new();
    let mut inputs: Vec<SpaceBytes> = reads(plan, unit).collect();
    inputs.sort_unstable_by_key(|input| input.start);
    for (position, value) in unit.writes() {
        let Some(mut own) = place(plan, value) else { continue };
        let (mut is_view, mut takes_over) = (false, false);
        for share in plan.steps[step].shares.iter().filter(|it| is_at(it.output, position)) {
            let input = usize::try_from(share.input).ok().and_then(|at| unit.reads.get(at));
            let Some(input) = input.copied().flatten().and_then(|input| place(plan, input)) else {
                continue;
            };
            // Both are in the same space, at the distance permitted by the rule: see
            // `check_shares`.
            let is_within = input.start <= own.start && own.end <= input.end;
            match share.rule {
                ShareRule::View if is_within => is_view = true,
                ShareRule::View => {}
                ShareRule::InPlace => {
                    takes_over = true;
                    own.end = own.end.max(input.end);
                }
                ShareRule::Overlap => takes_over = true,
            }
        }
        // In start order, each input that begins in the bytes so far adds its own bytes.
        for input in inputs.iter().filter(|_| takes_over) {
            if input.space == own.space && (own.start..own.end).contains(&input.start) {
                own.end = own.end.max(input.end);
            }
        }
        if !is_view {
            found.push(own);
        }
    }
    found.extend(unit.mutates.iter().filter_map(|&state| place(plan, state)));
    for work in plan.workspaces_in(&plan.steps[step]) {
        let (space, start) = (work.space, work.offset);
        found.push(SpaceBytes { space, start, end: start + work.bytes });
    }
    found
}

fn place(plan: &Plan, value: ValueId) -> Option<SpaceBytes> {
    let placement = plan.placement(value)?;
    let (space, start) = (placement.space, placement.offset);
    Some(SpaceBytes { space, start, end: start + placement.bytes })
}

/// Paths along edges between steps, as a table: the steps are cut into chains, and a step's row
/// counts the steps of each chain that come before.
///
/// The table is made for some chains at a time, in `O(edges · chains)` total time.
pub(super) struct Paths<'a> {
    /// By step: the steps that edges come from.
    before: &'a [Vec<usize>],
    /// By step: the chain, and the position in the chain.
    places: Vec<(usize, u32)>,
    chains: usize,
    /// Most table entries at a time.
    entries: usize,
}

impl<'a> Paths<'a> {
    pub(super) fn new(before: &'a [Vec<usize>]) -> Self {
        let mut tails: Vec<usize> = Vec::new();
        let mut places: Vec<(usize, u32)> = Vec::with_capacity(before.len());
        for (step, before) in before.iter().enumerate() {
            let free = before.iter().find(|&&it| tails[places[it].0] == it);
            let place = match free {
                Some(&last) => (places[last].0, places[last].1 + 1),
                None => (tails.len(), 0),
            };
            if place.0 == tails.len() {
                tails.push(step);
            } else {
                tails[place.0] = step;
            }
            places.push(place);
        }
        Self { before, places, chains: tails.len(), entries: MOST_ENTRIES }
    }

    /// Returns how many chains fit a part of the table with at most `entries` entries; at least
    /// one.
    fn width(&self) -> usize {
        (self.entries / self.before.len().max(1)).clamp(1, self.chains.max(1))
    }

    /// Returns, for each pair of later and earlier step, whether a path leads from the earlier to
    /// the later step; with `indirect`, a path with more than one edge.
    pub(super) fn lead(&self, pairs: &[(usize, usize)], indirect: bool) -> Vec<bool> {
        let width = self.width();
        let mut by_part: Vec<Vec<usize>> = vec![Vec::new(); self.chains.div_ceil(width)];
        for (index, &(_, before)) in pairs.iter().enumerate() {
            by_part[self.places[before].0 / width].push(index);
        }
        let mut found = vec![false; pairs.len()];
        for (part, indices) in by_part.into_iter().enumerate() {
            if indices.is_empty() {
                continue;
            }
            let first = part * width;
            let count = width.min(self.chains - first);
            let rows = self.rows(first, count);
            for index in indices {
                let (after, before) = pairs[index];
                let (chain, at) = self.places[before];
                let reaches = |step: usize| rows[step * count + chain - first] > at;
                found[index] = if indirect {
                    self.before[after].iter().any(|&it| it != before && reaches(it))
                } else {
                    reaches(after)
                };
            }
        }
        found
    }

    /// Returns, by step and by chain from `first` on, the number of chain steps that come before.
    fn rows(&self, first: usize, count: usize) -> Vec<u32> {
        let mut rows = vec![0_u32; self.before.len() * count];
        for (step, before) in self.before.iter().enumerate() {
            let (done, rest) = rows.split_at_mut(step * count);
            let row = &mut rest[..count];
            for &it in before {
                for (mine, &other) in row.iter_mut().zip(&done[it * count..(it + 1) * count]) {
                    *mine = (*mine).max(other);
                }
                let (chain, at) = self.places[it];
                if let Some(mine) = chain.checked_sub(first).and_then(|chain| row.get_mut(chain)) {
                    *mine = (*mine).max(at + 1);
                }
            }
        }
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::random::numbers;

    /// Against the definition, with tables of one chain, several chains, and all chains.
    #[test]
    fn paths_are_those_of_a_table() {
        const STEPS: usize = 18;
        let mut below = numbers();
        for round in 0..60 {
            let mut before: Vec<Vec<usize>> = Vec::new();
            for step in 0..STEPS {
                let edges = (0..step).filter(|_| below(4 + round % 5) == 0).collect();
                before.push(edges);
            }
            let mut table = vec![[false; STEPS]; STEPS];
            for after in 0..STEPS {
                for &middle in &before[after] {
                    let behind = table[middle];
                    table[after]
                        .iter_mut()
                        .zip(behind)
                        .for_each(|(it, is_behind)| *it |= is_behind);
                    table[after][middle] = true;
                }
            }
            let pairs: Vec<_> =
                (0..STEPS).flat_map(|after| (0..after).map(move |first| (after, first))).collect();
            let all = |pair: &(usize, usize)| table[pair.0][pair.1];
            let indirect = |pair: &(usize, usize)| {
                before[pair.0].iter().any(|&middle| middle != pair.1 && table[middle][pair.1])
            };
            for entries in [1, 3 * STEPS, MOST_ENTRIES] {
                let paths = Paths { entries, ..Paths::new(&before) };
                assert_eq!(paths.lead(&pairs, false), pairs.iter().map(all).collect::<Vec<_>>());
                let found = paths.lead(&pairs, true);
                assert_eq!(found, pairs.iter().map(indirect).collect::<Vec<_>>());
                let width = paths.width();
                assert!(width * STEPS <= entries.max(STEPS), "a part is no larger than it may be");
                assert!((width + 1) * STEPS > entries || width == paths.chains, "and no smaller");
            }
        }
    }

    #[test]
    fn steps_that_follow_each_other_are_one_chain() {
        let chain = [vec![], vec![0], vec![1], vec![2]];
        assert_eq!(Paths::new(&chain).chains, 1);
        // Two steps after the first, and a step after both.
        let diamond = [vec![], vec![0], vec![0], vec![1, 2]];
        assert_eq!(Paths::new(&diamond).chains, 2);
        let apart = [vec![], vec![], vec![]];
        assert_eq!(Paths::new(&apart).chains, 3);
    }
}
