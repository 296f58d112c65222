//! List schedules: a free worker takes the ready step with the first rank.

use alloc::collections::{BTreeSet, BinaryHeap};
use alloc::{vec, vec::Vec};
use core::cmp::Reverse;

use super::live_bytes::StepBytes;
use crate::base::NodeId;
use crate::graph::{Graph, Whole};
use crate::plan::Technique;
use crate::planner::attempt::Attempt;
use crate::planner::context::Context;

/// Weights of the longest path in a rank, in quarters; the rest is the serial order.
const QUARTERS: [u64; 5] = [0, 1, 2, 3, 4];
/// Limits on live bytes, in sixteenths of the bytes for one worker.
const LIMITS: [u64; 4] = [16, 17, 19, 24];
/// For larger graphs, fewer ranks and no limit on live bytes are tried.
pub(super) const MOST_STEPS_TO_LIMIT: usize = 5_000;
/// Most ready steps that are considered in the search for a step that fits below the limit.
const MOST_PASSED_OVER: usize = 16;
/// Ranks are counted in this many parts of the longest path.
const RANKS: u64 = 1 << 20;

/// A list schedule.
#[derive(Clone, Debug)]
pub(super) struct Listed {
    /// The steps in start order.
    pub(super) order: Vec<usize>,
    /// The start times, in that order.
    pub(super) starts: Vec<u64>,
    /// The time at which the last one ends.
    pub(super) span: u64,
    /// The limit on live bytes.
    pub(super) limit: Option<u64>,
    /// Bytes that are live at once, about.
    pub(super) bytes: u64,
    /// Sum over time of the squares of live bytes above the target.
    excess: f64,
    /// Number of steps that were run or tried for this schedule.
    pub(super) work: usize,
}

/// The rule that keeps the bytes of a list schedule low.
#[derive(Clone, Copy, Debug)]
pub(super) enum Limit<'s> {
    /// Nothing does.
    None,
    /// A step that would exceed so many bytes waits as long as another one runs.
    Wait(u64),
    /// A step starts only if the steps that have not started can then run one after the other, in a
    /// given order, within the limit (the banker's rule, Dijkstra). No schedule exceeds the limit
    /// if the order does not.
    Safe {
        bytes: u64,
        order: &'s [usize],
        /// Most ready steps that are considered.
        looked: usize,
    },
}

impl Limit<'_> {
    /// Returns a limit at which steps wait, if a limit is given.
    pub(super) fn waiting(bytes: Option<u64>) -> Self {
        bytes.map_or(Self::None, Self::Wait)
    }

    const fn bytes(self) -> Option<u64> {
        match self {
            Limit::None => None,
            Limit::Wait(bytes) | Limit::Safe { bytes, .. } => Some(bytes),
        }
    }
}

impl Listed {
    /// Returns the byte measure, then the span.
    pub(super) const fn estimate(&self) -> (f64, u64) {
        (self.excess, self.span)
    }
}

/// The steps in one serial schedule.
#[derive(Debug)]
pub(super) struct Steps {
    /// Time by step.
    pub(super) costs: Vec<u64>,
    /// For each step: the number of steps that must end before.
    waits: Vec<u32>,
    /// For each step: the steps that wait for the step.
    after: Vec<Vec<usize>>,
    bytes: StepBytes,
    /// Bytes that are live at once with one worker, about.
    alone: u64,
}

impl Steps {
    pub(super) fn new(context: &Context<'_>, base: &Attempt<'_>) -> Self {
        let schedule = &base.schedule;
        let (graph, order) = (&*schedule.graph, &schedule.order);
        let cost = |id: &NodeId| match context.node_times {
            Some(costs) => {
                let members = schedule.members(id).iter();
                members.fold(0_u64, |sum, node| sum.saturating_add(costs[node.index()]))
            }
            None => touched(graph, *id),
        };
        // A sum over all steps of this longest time does not wrap.
        let most = u64::MAX / 4 / u64::try_from(order.len().max(1)).unwrap_or(u64::MAX);
        let costs: Vec<u64> = order.iter().map(|id| cost(id).clamp(1, most)).collect();
        let elides = base.elision && base.techniques.contains(Technique::Elision);
        let pairs = pairs(graph, order, elides);
        let mut waits = vec![0; order.len()];
        let mut after: Vec<Vec<usize>> = vec![Vec::new(); order.len()];
        for (first, second) in pairs {
            waits[second] += 1;
            after[first].push(second);
        }
        let bytes = StepBytes::new(context, base, elides);
        let mut steps = Self { costs, waits, after, bytes, alone: u64::MAX };
        let serial: Vec<u64> = (0_u64..).take(order.len()).collect();
        steps.alone = steps.list(&serial, Limit::None, 1, u64::MAX).bytes;
        steps
    }

    /// Returns the ranks and limits on live bytes to try.
    pub(super) fn choices(&self) -> Vec<(Vec<u64>, Option<u64>)> {
        let count = u64::try_from(self.costs.len()).unwrap_or(u64::MAX).max(1);
        let mut longest = self.costs.clone();
        for step in (0..longest.len()).rev() {
            let after = self.after[step].iter().map(|&next| longest[next]).max().unwrap_or(0);
            longest[step] = longest[step].saturating_add(after);
        }
        let most = longest.iter().copied().max().unwrap_or(0).max(1);
        let part = |of: u64, all: u64| {
            let rank = u128::from(of) * u128::from(RANKS) / u128::from(all);
            u64::try_from(rank).unwrap_or(RANKS)
        };
        let is_large = self.costs.len() > MOST_STEPS_TO_LIMIT;
        let serial: Vec<u64> = (0..count).map(|at| part(at, count)).collect();
        let mut choices = Vec::new();
        for quarters in QUARTERS.into_iter().filter(|quarters| !is_large || quarters % 2 == 0) {
            let rank = serial.iter().zip(&longest);
            let rank = rank.map(|(&serial, &longest)| {
                (4 - quarters) * serial + quarters * part(most - longest, most)
            });
            let rank: Vec<u64> = rank.collect();
            for limit in LIMITS.into_iter().filter(|_| !is_large) {
                choices.push((rank.clone(), Some(self.alone / 16 * limit)));
            }
            choices.push((rank, None));
        }
        choices
    }

    /// Returns the ranks to try.
    pub(super) fn ranks(&self) -> Vec<Vec<u64>> {
        let without = self.choices().into_iter().filter(|(_, limit)| limit.is_none());
        without.map(|(rank, _)| rank).collect()
    }

    /// Returns the bytes that one worker needs for the serial schedule, about.
    pub(super) const fn alone(&self) -> u64 {
        self.alone
    }

    /// Returns the steps in serial order.
    pub(super) const fn serial(&self) -> core::ops::Range<usize> {
        0..self.costs.len()
    }

    /// Returns ranks that give the steps an order, with room between two ranks.
    pub(super) fn rank_of(&self, order: &[usize]) -> Vec<u64> {
        let mut rank = vec![0; self.costs.len()];
        for (position, &step) in (0_u64..).zip(order) {
            rank[step] = 4 * position + 2;
        }
        rank
    }

    /// Returns the list schedule for so many workers, with the measure of live bytes above a
    /// target.
    pub(super) fn list(&self, rank: &[u64], limit: Limit<'_>, workers: u32, target: u64) -> Listed {
        let steps = self.costs.len();
        let workers = usize::try_from(workers).unwrap_or(usize::MAX);
        let mut waits = self.waits.clone();
        let mut ready: BTreeSet<(u64, usize)> =
            (0..steps).filter(|&step| waits[step] == 0).map(|step| (rank[step], step)).collect();
        let mut running: BinaryHeap<Reverse<(u64, usize)>> = BinaryHeap::new();
        let mut live = self.bytes.start();
        let (mut serial, looked) = match limit {
            Limit::Safe { order, looked, .. } => (Some(Serial::new(order)), looked),
            Limit::None | Limit::Wait(_) => (None, MOST_PASSED_OVER),
        };
        let mut after = live.clone();
        let mut listed = Listed {
            order: Vec::with_capacity(steps),
            starts: Vec::with_capacity(steps),
            span: 0,
            limit: limit.bytes(),
            bytes: 0,
            excess: 0.0,
            work: steps,
        };
        let mut now = 0;
        loop {
            while running.len() < workers {
                let mut fits = |&&(_, step): &&(u64, usize)| {
                    let Some(limit) = limit.bytes() else { return true };
                    if live.bytes_with(&self.bytes, step) > limit {
                        return false;
                    }
                    let rest = serial.as_ref().map_or(&[][..], |serial| serial.rest(step));
                    let Some(serial) = serial.as_ref().filter(|_| !rest.is_empty()) else {
                        return true;
                    };
                    listed.work += rest.len();
                    after.clone_from(&live);
                    after.run(&self.bytes, step);
                    let running = running.iter().map(|&Reverse((_, step))| step).chain([step]);
                    let rest = rest.iter().filter(|&&it| it != step && !serial.is_started(it));
                    after.fits_after(&self.bytes, limit, running, rest.copied())
                };
                let first = ready.iter().take(looked).find(&mut fits);
                let first = match &serial {
                    _ if !running.is_empty() => first,
                    // No step runs, so the next step in serial order may start.
                    Some(serial) => first.or_else(|| {
                        let next = serial.next()?;
                        ready.get(&(rank[next], next))
                    }),
                    None => first.or(ready.first()),
                };
                let Some(&(rank, step)) = first else { break };
                ready.remove(&(rank, step));
                live.run(&self.bytes, step);
                listed.order.push(step);
                listed.starts.push(now);
                running.push(Reverse((now + self.costs[step], step)));
                if let Some(serial) = &mut serial {
                    serial.start(step);
                }
            }
            let Some(&Reverse((end, _))) = running.peek() else { break };
            listed.excess += excess(live.now().saturating_sub(target), end - now);
            now = end;
            while let Some(Reverse((_, step))) = running.pop_if_ends(now) {
                live.end(&self.bytes, step);
                for &next in &self.after[step] {
                    waits[next] -= 1;
                    if waits[next] == 0 {
                        ready.insert((rank[next], next));
                    }
                }
            }
        }
        (listed.span, listed.bytes) = (now, live.most());
        listed
    }
}

/// A serial order, and the progress of a schedule in that order.
struct Serial<'s> {
    order: &'s [usize],
    /// For each step: the position in the order.
    at: Vec<usize>,
    is_started: Vec<bool>,
    /// Position of the first step that has not started.
    next: usize,
    /// Position after the last step that has started.
    end: usize,
}

impl<'s> Serial<'s> {
    fn new(order: &'s [usize]) -> Self {
        let mut at = vec![0; order.len()];
        for (position, &step) in order.iter().enumerate() {
            at[step] = position;
        }
        Self { order, at, is_started: vec![false; order.len()], next: 0, end: 0 }
    }

    fn is_started(&self, step: usize) -> bool {
        self.is_started[step]
    }

    /// Returns the first step that has not started.
    fn next(&self) -> Option<usize> {
        self.order.get(self.next).copied()
    }

    /// Returns a range of steps that contains all steps which another order runs late if `step`
    /// starts now. After these steps, the same steps have run as in the serial order.
    fn rest(&self, step: usize) -> &'s [usize] {
        &self.order[self.next..self.end.max(self.at[step])]
    }

    fn start(&mut self, step: usize) {
        self.is_started[step] = true;
        self.end = self.end.max(self.at[step] + 1);
        while self.order.get(self.next).is_some_and(|&step| self.is_started[step]) {
            self.next += 1;
        }
    }
}

/// Returns the measure for bytes above the target during a time.
#[allow(clippy::as_conversions, clippy::cast_precision_loss, reason = "an estimate")]
const fn excess(bytes: u64, time: u64) -> f64 {
    bytes as f64 * bytes as f64 * time as f64
}

/// Conditional removal of the first entry of a heap.
trait PopIf {
    /// Removes the entry that ends first, if the end is at `time`.
    fn pop_if_ends(&mut self, time: u64) -> Option<Reverse<(u64, usize)>>;
}

impl PopIf for BinaryHeap<Reverse<(u64, usize)>> {
    fn pop_if_ends(&mut self, time: u64) -> Option<Reverse<(u64, usize)>> {
        if self.peek().is_some_and(|Reverse((end, _))| *end == time) { self.pop() } else { None }
    }
}

/// Returns the bytes that a node reads and writes. Views are not moved, as far as a graph can
/// tell.
fn touched(graph: &Graph, id: NodeId) -> u64 {
    let node = graph.node(id);
    let views = || node.effects().views.iter().filter(|view| view.whole == Whole::Input);
    let mut inputs: Vec<_> = node.reads_bytes_of().collect();
    inputs.sort_unstable_by_key(|&(position, value)| (value, position));
    inputs.dedup_by_key(|&mut (_, value)| value);
    let read = inputs.iter().filter(|(position, _)| views().all(|view| view.input != *position));
    let produced: Vec<_> = node.produces().collect();
    let made = produced.iter().filter(|(at, _)| views().all(|view| view.output != *at));
    let bytes = read.chain(made).map(|&(_, value)| graph.value(value).bytes());
    bytes.fold(0_u64, u64::saturating_add)
}

/// Returns pairs of steps in which the first must end before the second starts, without duplicates:
/// the graph's own pairs, and each concatenation with other readers of the concatenated operands. A
/// concatenation takes over the bytes of operands that are parts of the output.
fn pairs(graph: &Graph, order: &[NodeId], elides: bool) -> BTreeSet<(usize, usize)> {
    let mut step_of = vec![0; graph.nodes().len()];
    for (step, id) in order.iter().enumerate() {
        step_of[id.index()] = step;
    }
    let mut pairs = BTreeSet::new();
    for (step, &id) in order.iter().enumerate() {
        pairs.extend(graph.dependencies(id).map(|before| (step_of[before.index()], step)));
    }
    let states = graph.state_order().into_iter();
    pairs.extend(states.map(|(first, second)| (step_of[first.index()], step_of[second.index()])));
    if elides {
        let readers = graph.readers();
        for (step, &id) in order.iter().enumerate() {
            let node = graph.node(id);
            let parts = node.effects().views.iter().filter(|view| view.whole == Whole::Output);
            for part in parts.filter_map(|view| node.input(view.input)) {
                for other in readers[part.index()].iter().map(|other| step_of[other.index()]) {
                    pairs.insert((step.min(other), step.max(other)));
                }
            }
        }
    }
    pairs.retain(|(first, second)| first != second);
    pairs
}
