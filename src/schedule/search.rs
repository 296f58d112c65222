//! The search for the order with the lowest peak.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet};

use super::model::{Model, NodeModel, State, at};
use super::{FoundOrder, OrderLimits};
use crate::index::NodeId;

/// How many nodes run between two looks at whether to stop.
const PATIENCE: usize = 1 << 10;

/// Returns the best order that the limits let us find.
pub(super) fn best_order(
    model: &Model,
    floor: u64,
    limits: OrderLimits,
    stop: &dyn Fn() -> bool,
) -> FoundOrder {
    let given = peak_of(model, &model.given);
    let mut search = Search { model, floor, stop, work: 0, stopped: false };
    let mut best = (given, model.given.clone());
    let mut is_optimal = best.0 <= floor;
    if !is_optimal {
        let (found, complete) = search.complete(best.0, limits.states);
        is_optimal = complete;
        best = found.unwrap_or(best);
    }
    if !is_optimal && limits.width > 0 {
        best = search.beam(best.0, limits.width).unwrap_or(best);
        is_optimal = best.0 <= floor;
    }
    let order = best.1.iter().map(|&node| model.nodes[at(node)].id).collect::<Vec<NodeId>>();
    FoundOrder { order, peak: best.0, given, floor, is_optimal }
}

/// Returns the highest number of bytes live while nodes run in this order.
fn peak_of(model: &Model, order: &[u32]) -> u64 {
    let mut state = State::start(model);
    order.iter().map(|&node| state.run(model, node).during).max().unwrap_or(0).max(state.live)
}

/// Returns the bytes that some node needs by itself, in any order, if it can do with fewer by
/// `saved`, or by what its outputs can take over.
pub(super) fn floor_of(model: &Model, saved: impl Fn(&NodeModel) -> u64) -> u64 {
    let mut floor = 0;
    for node in &model.nodes {
        let mut atoms: Vec<u32> = node
            .reads
            .iter()
            .chain(&node.writes)
            .flat_map(|&value| model.atoms_of[at(value)].iter().copied())
            .collect();
        atoms.sort_unstable();
        atoms.dedup();
        let touched: u64 = atoms.iter().map(|&atom| model.bytes[at(atom)]).sum();
        // At best, every output takes over an input.
        let credit: u64 = node
            .writes
            .iter()
            .map(|&output| {
                let pairs = node.in_place.iter().filter(|&&(_, written)| written == output);
                pairs
                    .map(|&(input, _)| model.size(input).min(model.size(output)))
                    .max()
                    .unwrap_or(0)
            })
            .sum();
        floor = floor.max(touched.saturating_sub(credit.max(saved(node))));
    }
    floor
}

struct Search<'a> {
    model: &'a Model,
    floor: u64,
    stop: &'a dyn Fn() -> bool,
    work: usize,
    stopped: bool,
}

/// How a state was reached: from which one, by running which nodes.
struct Step {
    parent: Option<usize>,
    nodes: Vec<u32>,
}

impl Search<'_> {
    /// Runs what can be run without harm: a node that leaves no more live than before, and
    /// needs no more than `allowed` while it runs.
    ///
    /// In whatever order the others follow, moving such a node to the front raises nothing:
    /// what it frees is free earlier, and what it makes is no larger than that.
    fn close(&mut self, state: &mut State, allowed: u64, nodes: &mut Vec<u32>) {
        if state.count == 0 && self.model.unread > 0 {
            return; // Which node comes first matters.
        }
        let mut position = 0;
        while position < state.ready.len() {
            let node = state.ready[position];
            let before = state.live;
            let mut trial = state.clone();
            let effect = trial.run(self.model, node);
            self.count();
            if effect.after <= before && effect.during <= allowed {
                *state = trial;
                nodes.push(node);
                position = 0;
            } else {
                position += 1;
            }
        }
    }

    fn count(&mut self) {
        self.work += 1;
        if self.work.is_multiple_of(PATIENCE) && (self.stop)() {
            self.stopped = true;
        }
    }

    /// Visits sets of executed nodes, those with the lowest peak first, until all nodes have
    /// run; returns the order if its peak is below `known`, and whether nothing lower exists.
    fn complete(&mut self, known: u64, most: usize) -> (Option<(u64, Vec<u32>)>, bool) {
        let total = u32::try_from(self.model.nodes.len()).expect("ids have 32 bits");
        let mut steps: Vec<Step> = Vec::new();
        let mut states: Vec<Option<State>> = Vec::new();
        let mut queue = BinaryHeap::new();
        let mut seen: HashMap<Vec<u64>, u64> = HashMap::new();
        let mut start = State::start(self.model);
        let mut nodes = Vec::new();
        let lowest = self.floor.max(start.live);
        self.close(&mut start, lowest, &mut nodes);
        queue.push((Reverse(lowest), start.count, Reverse(0_usize)));
        steps.push(Step { parent: None, nodes });
        states.push(Some(start));
        while let Some((Reverse(peak), count, Reverse(index))) = queue.pop() {
            if peak >= known {
                return (None, true);
            }
            if count == total {
                return (Some((peak, trace(&steps, index))), true);
            }
            if steps.len() >= most || self.stopped {
                return (None, false);
            }
            let state = states[index].take().expect("a state is visited once");
            if seen.get(&state.executed).is_some_and(|&best| best < peak) {
                continue;
            }
            for &node in &state.ready {
                let mut next = state.clone();
                let effect = next.run(self.model, node);
                self.count();
                let peak = peak.max(effect.during).max(next.live);
                if peak >= known {
                    continue;
                }
                let mut nodes = vec![node];
                self.close(&mut next, peak, &mut nodes);
                let best = seen.entry(next.executed.clone()).or_insert(u64::MAX);
                if peak >= *best {
                    continue;
                }
                *best = peak;
                queue.push((Reverse(peak), next.count, Reverse(steps.len())));
                steps.push(Step { parent: Some(index), nodes });
                states.push(Some(next));
            }
        }
        (None, true)
    }

    /// Keeps the `width` most promising sets for each number of executed nodes; returns an
    /// order with a peak below `known`, if it finds one.
    fn beam(&mut self, known: u64, width: usize) -> Option<(u64, Vec<u32>)> {
        let total = self.model.nodes.len();
        let mut steps: Vec<Step> = vec![Step { parent: None, nodes: Vec::new() }];
        let mut levels: Vec<Vec<(u64, usize, State)>> = (0..=total).map(|_| Vec::new()).collect();
        let start = State::start(self.model);
        let lowest = self.floor.max(start.live);
        levels[0].push((lowest, 0, start));
        for level in 0..total {
            let mut states = std::mem::take(&mut levels[level]);
            states.sort_by_key(|(peak, step, state)| (*peak, state.live, *step));
            let mut seen: HashSet<Vec<u64>> = HashSet::new();
            states.retain(|(_, _, state)| seen.insert(state.executed.clone()));
            states.truncate(width);
            for (peak, step, state) in states {
                if self.stopped {
                    return None;
                }
                for &node in &state.ready {
                    let mut next = state.clone();
                    let effect = next.run(self.model, node);
                    self.count();
                    let peak = peak.max(effect.during).max(next.live);
                    if peak >= known {
                        continue;
                    }
                    let mut nodes = vec![node];
                    self.close(&mut next, peak, &mut nodes);
                    steps.push(Step { parent: Some(step), nodes });
                    levels[at(next.count)].push((peak, steps.len() - 1, next));
                }
            }
        }
        let last = std::mem::take(&mut levels[total]);
        let (peak, step, _) = last.into_iter().min_by_key(|(peak, step, _)| (*peak, *step))?;
        Some((peak, trace(&steps, step)))
    }
}

/// Returns the nodes that were run on the way to a state, in order.
fn trace(steps: &[Step], index: usize) -> Vec<u32> {
    let mut path = Vec::new();
    let mut next = Some(index);
    while let Some(index) = next {
        path.push(&steps[index]);
        next = steps[index].parent;
    }
    path.iter().rev().flat_map(|step| step.nodes.iter().copied()).collect()
}
