//! The search for the order with the lowest peak.

use alloc::collections::BinaryHeap;
use alloc::{vec, vec::Vec};
use core::cmp::Reverse;

use hashbrown::{HashMap, HashSet};

use super::depth_first::depth_first;
use super::order_model::{Executed, NodeModel, OrderModel, OrderState, at};
use super::{FoundOrder, OrderLimits};
use crate::base::NodeId;

/// Work between two looks at whether to stop.
const PATIENCE: usize = 1 << 14;
/// Work of storing a set of executed nodes: two allocations and a hash table lookup.
const STORE_WORK: usize = 16;
/// With more ready nodes, harmless nodes are not searched for.
const MOST_READY_TO_CLOSE: usize = 64;
/// Ratio of the sets collected by a beam, before dropping the worst, to the kept sets.
const SURPLUS: usize = 8;

/// Returns the best order that the limits let us find.
pub(super) fn best_order(
    model: &OrderModel,
    floor: u64,
    limits: OrderLimits,
    stop: &dyn Fn() -> bool,
) -> FoundOrder {
    let given = peak_of(model, &model.given);
    let mut search =
        BestOrderSearch { model, floor, stop, work: 0, limit: 0, next_look: 0, stopped: false };
    let mut best = (given, model.given.clone());
    let mut is_optimal = best.0 <= floor;
    if !is_optimal {
        let deep = depth_first(model);
        let peak = peak_of(model, &deep);
        if peak < best.0 {
            best = (peak, deep);
        }
        is_optimal = best.0 <= floor;
    }
    if !is_optimal {
        search.limit = limits.work / 2;
        let (found, complete) = search.complete(best.0, limits.states);
        is_optimal = complete;
        best = found.unwrap_or(best);
    }
    // A beam creates about as many states as it keeps sets.
    let sets = (limits.work - search.work.min(limits.work)) / (2 * model.copy_work());
    let mut width = limits.width.min(sets.div_ceil(model.nodes.len().max(1)));
    while !is_optimal && width > 0 && search.work < limits.work && !stop() {
        search.limit = search.work + (limits.work - search.work).div_ceil(4) * 3;
        match search.beam(best.0, width) {
            Some(found) => best = found,
            // Narrower, there is time to get to the end.
            None if search.stopped => width /= 10,
            None => break,
        }
        is_optimal = best.0 <= floor;
    }
    let order = best.1.iter().map(|&node| model.nodes[at(node)].id).collect::<Vec<NodeId>>();
    FoundOrder { order, peak: best.0, given, floor, is_optimal, work: search.work }
}

/// Returns the most live bytes in an order.
fn peak_of(model: &OrderModel, order: &[u32]) -> u64 {
    let mut state = OrderState::after(model, &Executed::none(model));
    let mut highest = 0;
    for &node in order {
        let ready = state.ready.iter().position(|&ready| ready == node);
        highest = highest.max(state.run(model, ready.expect("orders are topological")).during);
    }
    highest.max(state.live)
}

/// Returns the most bytes that a node needs by itself, in any order, minus `saved`, or minus the
/// bytes that outputs can take over.
pub(super) fn floor_of(model: &OrderModel, saved: impl Fn(&NodeModel) -> u64) -> u64 {
    let mut floor = 0;
    for node in &model.nodes {
        let touched = model.size_of(node.reads.iter().chain(&node.writes).copied());
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

struct BestOrderSearch<'a> {
    model: &'a OrderModel,
    floor: u64,
    stop: &'a dyn Fn() -> bool,
    /// Table entries read or written so far.
    work: usize,
    /// The work at which the present search ends.
    limit: usize,
    /// The work at which to ask whether to stop.
    next_look: usize,
    stopped: bool,
}

/// An executed node, and the node's position among the ready nodes.
#[derive(Clone, Copy)]
struct Move {
    node: u32,
    position: usize,
}

/// A state's predecessor, and the nodes executed since.
struct Step {
    parent: Option<usize>,
    nodes: Vec<u32>,
}

/// A set of nodes reached by the beam.
struct Reached {
    peak: u64,
    live: u64,
    step: usize,
    executed: Executed,
}

impl BestOrderSearch<'_> {
    /// Runs the nodes that cannot raise the peak: nodes that leave no more bytes live than before,
    /// and need at most `allowed` while they run. Adds these nodes to `path`.
    ///
    /// In any order of the other nodes, such a node can move to the front without raising a step:
    /// the inputs die earlier, and the outputs are not larger than these inputs.
    fn close(&mut self, state: &mut OrderState, allowed: u64, path: &mut Vec<Move>) {
        if state.count == 0 && self.model.unread > 0 {
            return; // Which node comes first matters.
        }
        let mut position = 0;
        while position < state.ready.len() && state.ready.len() <= MOST_READY_TO_CLOSE {
            let before = state.live;
            let effect = state.run(self.model, position);
            self.count(state.take_work());
            if effect.after <= before && effect.during <= allowed {
                path.push(Move { node: effect.node, position });
                position = 0;
            } else {
                state.undo(self.model, effect.node, position);
                position += 1;
            }
        }
    }

    /// Runs the ready node at a position, and then the nodes that cannot raise the peak. Returns
    /// the highest peak on the way, or `None` if not below `known`. `path` lists the executed
    /// nodes.
    fn advance(
        &mut self,
        state: &mut OrderState,
        position: usize,
        peak: u64,
        known: u64,
        path: &mut Vec<Move>,
    ) -> Option<u64> {
        path.clear();
        let effect = state.run(self.model, position);
        path.push(Move { node: effect.node, position });
        self.count(state.take_work());
        let peak = peak.max(effect.during).max(effect.after);
        if peak >= known {
            return None;
        }
        self.close(state, peak, path);
        Some(peak)
    }

    /// Undoes a call of [`advance`](Self::advance).
    fn retreat(&self, state: &mut OrderState, path: &[Move]) {
        for step in path.iter().rev() {
            state.undo(self.model, step.node, step.position);
        }
    }

    fn count(&mut self, work: usize) {
        self.work = self.work.saturating_add(work);
        let looks = self.work >= self.next_look;
        if looks {
            self.next_look = self.work.saturating_add(PATIENCE);
        }
        if self.work >= self.limit || looks && (self.stop)() {
            self.stopped = true;
        }
    }

    /// Visits sets of executed nodes, lowest peak first, until all nodes have run; returns the
    /// order if the peak is below `known`, and whether no lower peak exists.
    fn complete(&mut self, known: u64, most: usize) -> (Option<(u64, Vec<u32>)>, bool) {
        self.stopped = false;
        let total = u32::try_from(self.model.nodes.len()).expect("ids have 32 bits");
        let mut steps: Vec<Step> = Vec::new();
        let mut sets: Vec<Executed> = Vec::new();
        let mut queue = BinaryHeap::new();
        let mut seen: HashMap<Executed, u64> = HashMap::new();
        let mut path = Vec::new();
        let mut start = OrderState::after(self.model, &Executed::none(self.model));
        let lowest = self.floor.max(start.live);
        self.close(&mut start, lowest, &mut path);
        queue.push((Reverse(lowest), start.count, Reverse(0_usize)));
        steps.push(Step { parent: None, nodes: nodes_of(&path) });
        sets.push(start.executed);
        while let Some((Reverse(peak), count, Reverse(index))) = queue.pop() {
            if self.stopped {
                return (None, false);
            }
            if peak >= known {
                return (None, true);
            }
            if count == total {
                return (Some((peak, trace(&steps, index))), true);
            }
            if steps.len() >= most {
                return (None, false);
            }
            if seen.get(&sets[index]).is_some_and(|&best| best < peak) {
                continue;
            }
            let mut state = OrderState::after(self.model, &sets[index]);
            for position in 0..state.ready.len() {
                if let Some(peak) = self.advance(&mut state, position, peak, known, &mut path) {
                    let best = seen.get(&state.executed).copied();
                    if best.is_none_or(|best| peak < best) {
                        self.count(STORE_WORK);
                        seen.insert(state.executed.clone(), peak);
                        queue.push((Reverse(peak), state.count, Reverse(steps.len())));
                        steps.push(Step { parent: Some(index), nodes: nodes_of(&path) });
                        sets.push(state.executed.clone());
                    }
                }
                self.retreat(&mut state, &path);
                if self.stopped {
                    break;
                }
            }
        }
        (None, !self.stopped)
    }

    /// Keeps the `width` most promising sets for each number of executed nodes; returns an order
    /// with a peak below `known`, if found.
    fn beam(&mut self, known: u64, width: usize) -> Option<(u64, Vec<u32>)> {
        self.stopped = false;
        let total = self.model.nodes.len();
        let mut steps: Vec<Step> = vec![Step { parent: None, nodes: Vec::new() }];
        let mut levels: Vec<Vec<Reached>> = (0..=total).map(|_| Vec::new()).collect();
        let executed = Executed::none(self.model);
        let live = OrderState::after(self.model, &executed).live;
        let mut path = Vec::new();
        levels[0].push(Reached { peak: self.floor.max(live), live, step: 0, executed });
        for level in 0..total {
            let mut reached = core::mem::take(&mut levels[level]);
            keep_best(&mut reached, width);
            for Reached { peak, step, executed, .. } in reached {
                if self.stopped {
                    return None;
                }
                let mut state = OrderState::after(self.model, &executed);
                for position in 0..state.ready.len() {
                    if let Some(peak) = self.advance(&mut state, position, peak, known, &mut path) {
                        self.count(STORE_WORK);
                        let others = &mut levels[at(state.count)];
                        others.push(Reached {
                            peak,
                            live: state.live,
                            step: steps.len(),
                            executed: state.executed.clone(),
                        });
                        if others.len() >= SURPLUS * width {
                            keep_best(others, width);
                        }
                        steps.push(Step { parent: Some(step), nodes: nodes_of(&path) });
                    }
                    self.retreat(&mut state, &path);
                }
            }
        }
        let last = core::mem::take(&mut levels[total]);
        let best = last.into_iter().min_by_key(|set| (set.peak, set.step))?;
        Some((best.peak, trace(&steps, best.step)))
    }
}

/// Keeps the `width` sets with the fewest bytes live, each once.
fn keep_best(reached: &mut Vec<Reached>, width: usize) {
    reached.sort_by_key(|set| (set.live, set.peak, set.step));
    let mut seen: HashSet<Executed> = HashSet::new();
    reached.retain(|set| seen.insert(set.executed.clone()));
    reached.truncate(width);
}

fn nodes_of(path: &[Move]) -> Vec<u32> {
    path.iter().map(|step| step.node).collect()
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
