//! Greedy changes of a sequence: values that are dropped and made again, and executions that turn
//! out to be superfluous.

use alloc::{vec, vec::Vec};

use super::closure::Closure;
use super::moved_runs::{TriedMoves, moved_runs};
use super::narrow_ids::{NONE, at, narrow};
use super::sequence::{Evaluation, Instance, repeated, without};
use super::sequence_model::SequenceModel;
use super::starts::repaired;
use super::trial::{Trial, TrialFigures, rate};
use crate::pack::Budget;

/// Promising changes that are evaluated.
const EVALUATED: usize = 10;

/// The work of a search, counted in evaluated sequence positions, so that results do not depend on
/// the machine.
#[derive(Clone)]
pub(super) struct SequenceWork<'a> {
    pub(super) left: u64,
    pub(super) limits: &'a Budget<'a>,
}

impl SequenceWork<'_> {
    /// Counts an evaluation, and returns whether the search may go on.
    fn spend(&mut self, positions: usize) -> bool {
        let positions = u64::try_from(positions).unwrap_or(u64::MAX);
        self.left = self.left.saturating_sub(positions);
        !self.is_over()
    }

    /// Returns whether the search must end.
    pub(super) fn is_over(&self) -> bool {
        self.left == 0 || self.limits.exhausted()
    }
}

/// A value that is dropped for some steps, and made again before the next reader.
struct DroppedValue {
    /// The position before which the nodes run again.
    before: u32,
    nodes: Vec<u32>,
    /// The node that copies the value to the slow memory, and the position that the copy runs
    /// before.
    out: Option<(u32, u32)>,
    cost: u64,
    /// Most bytes above the budget that the gap saves, summed over the gap's steps.
    saved: u128,
}

/// Changes a sequence until at most `budget` bytes are live; `None` if no change helps.
///
/// Each step moves an execution across the highest position without more work. If no such move helps,
/// the step takes the change with the largest gain per cost: a value that is dropped, or a move that
/// makes operands again. The gain is the bytes above the budget, summed over positions, that the
/// change removes.
pub(super) fn reduced(
    model: &SequenceModel,
    sequence: &[u32],
    budget: u64,
    most_cost: u64,
    work: &mut SequenceWork<'_>,
) -> Option<Vec<u32>> {
    let mut sequence = sequence.to_vec();
    let mut trial = Trial::new(model);
    let mut other = Evaluation::default();
    let mut tried = TriedMoves::default();
    if !trial.run(&sequence) {
        return None;
    }
    while trial.now.peak > budget {
        if trial.now.cost > most_cost {
            return None;
        }
        let mut best = BestChange::new(&trial.now, budget);
        for moved in moved_runs(model, &sequence, &trial.now, budget, &tried) {
            if !work.spend(sequence.len()) {
                return None;
            }
            let longer = moved.applied(model, &sequence).filter(|it| other.run(model, it));
            let figures = TrialFigures::of(&other, budget);
            if !longer.is_some_and(|longer| best.offer(figures, || longer)) {
                tried.add(&moved, &sequence);
            }
        }
        if !best.is_free() {
            let changes = changes(model, &sequence, &trial.now, budget);
            for change in changes.into_iter().take(EVALUATED) {
                if !work.spend(sequence.len()) {
                    return None;
                }
                let simple = model
                    .paging
                    .is_none()
                    .then(|| trial.with(&sequence, change.before, &change.nodes, budget));
                if let Some(found) = simple.flatten() {
                    best.offer(found, || change.applied(&sequence));
                    continue;
                }
                let mut whole = change.applied(&sequence);
                if !other.run(model, &whole) {
                    whole = repaired(model, &whole);
                    if !other.run(model, &whole) {
                        continue;
                    }
                }
                best.offer(TrialFigures::of(&other, budget), || whole);
            }
        }
        sequence = best.sequence?;
        let is_valid = trial.run(&sequence);
        debug_assert!(is_valid);
    }
    Some(sequence)
}

/// The change with the largest gain per cost so far.
struct BestChange {
    excess: u128,
    cost: u64,
    gain: u128,
    more: u64,
    sequence: Option<Vec<u32>>,
}

impl BestChange {
    fn new(now: &Evaluation, budget: u64) -> Self {
        let (excess, cost) = (now.excess(budget), now.cost);
        Self { excess, cost, gain: 0, more: u64::MAX, sequence: None }
    }

    /// Returns whether the change costs nothing.
    const fn is_free(&self) -> bool {
        self.more == 0
    }

    /// Takes a change if the change is better, and returns whether the change has a gain.
    fn offer(&mut self, found: TrialFigures, sequence: impl FnOnce() -> Vec<u32>) -> bool {
        let gain = self.excess.saturating_sub(found.excess);
        let more = found.cost.saturating_sub(self.cost);
        // gain / cost > best gain / best cost
        let own = gain.saturating_mul(u128::from(self.more.saturating_add(1)));
        if gain > 0 && own > self.gain.saturating_mul(u128::from(more) + 1) {
            (self.gain, self.more, self.sequence) = (gain, more, Some(sequence()));
        }
        gain > 0
    }
}

impl DroppedValue {
    /// Returns a sequence with the change.
    fn applied(&self, sequence: &[u32]) -> Vec<u32> {
        let mut longer = Vec::with_capacity(sequence.len() + self.nodes.len() + 1);
        let mut start = 0;
        if let Some((out, position)) = self.out {
            longer.extend_from_slice(&sequence[..at(position)]);
            longer.push(out);
            start = at(position);
        }
        // A value leaves once: a later copy out reads the copied content.
        let is_other = |node: &&u32| self.out.is_none_or(|(out, _)| **node != out);
        longer.extend(sequence[start..at(self.before)].iter().filter(is_other));
        longer.extend_from_slice(&self.nodes);
        longer.extend(sequence[at(self.before)..].iter().filter(is_other));
        longer
    }
}

/// Returns the drops that lower the highest position: ascending cost per saved byte.
fn changes(
    model: &SequenceModel,
    sequence: &[u32],
    now: &Evaluation,
    budget: u64,
) -> Vec<DroppedValue> {
    let top = now.highest();
    let count = now.instances.len();
    let is_used_at = |position: usize| {
        let (from, to) = now.reads_at(position);
        &now.reads[from..to]
    };
    let spans = |instance: &Instance| {
        at(instance.birth) < top && at(instance.last) > top && instance.is_made
    };
    let mut next = vec![NONE; count];
    // The same, but for copies out: a value that has left need not be read to leave.
    let mut next_run = vec![NONE; count];
    let mut names: Vec<Vec<u32>> = vec![Vec::new(); count];
    for (position, &node) in sequence.iter().enumerate().skip(top + 1) {
        for read in is_used_at(position) {
            let index = at(read.instance);
            if spans(&now.instances[index]) {
                if next[index] == NONE {
                    next[index] = narrow(position);
                }
                if next_run[index] == NONE && !model.is_copy(node) {
                    next_run[index] = narrow(position);
                }
                if !names[index].contains(&read.value) {
                    names[index].push(read.value);
                }
            }
        }
    }
    let mut previous: Vec<u32> = now.instances.iter().map(|instance| instance.birth).collect();
    for position in 0..=top {
        for read in is_used_at(position) {
            previous[at(read.instance)] = narrow(position);
        }
    }
    // Positions above the budget with the excess; for each position, the number of earlier such
    // positions.
    let mut over: Vec<u64> = Vec::new();
    let mut over_before = Vec::with_capacity(now.live.len() + 1);
    for &live in &now.live {
        over_before.push(over.len());
        over.extend(live.checked_sub(budget).filter(|&over| over > 0));
    }
    over_before.push(over.len());
    let mut changes = Vec::new();
    let mut closure = Closure::new(model, now, top);
    for (index, instance) in now.instances.iter().enumerate() {
        if !spans(instance) || at(previous[index]) == top {
            continue;
        }
        let bytes = model.bytes[at(instance.value)];
        // An instance that is only kept for the end is made again behind the last node.
        let before = if next[index] == NONE { narrow(sequence.len()) } else { next[index] };
        if bytes == 0 || next[index] == NONE && !model.kept[at(instance.value)] {
            continue;
        }
        let mut wanted = core::mem::take(&mut names[index]);
        if model.kept[at(instance.value)] && !wanted.contains(&instance.value) {
            wanted.push(instance.value);
        }
        let saved = |before: u32| {
            let gap = over_before[at(previous[index]) + 1]..over_before[at(before)];
            over[gap].iter().map(|&over| u128::from(over.min(bytes))).sum()
        };
        if let Some((nodes, cost)) = closure.of(&wanted, narrow(index), before, NONE) {
            changes.push(DroppedValue { before, nodes, out: None, cost, saved: saved(before) });
        }
        let pair = model.paging.as_ref().and_then(|paging| paging.nodes_of(instance.value));
        let Some((out, _)) = pair else { continue };
        let before = next_run[index];
        if before == NONE {
            continue;
        }
        if let Some((nodes, cost)) = closure.of(&wanted, narrow(index), before, instance.value) {
            let behind = previous[index] + 1;
            let has_left = closure.has_left(instance.value, behind);
            let out = (!has_left).then_some((out, behind));
            let leaving = out.map_or(0, |(out, _)| model.nodes[at(out)].cost);
            let cost = cost.saturating_add(leaving);
            changes.push(DroppedValue { before, nodes, out, cost, saved: saved(before) });
        }
    }
    changes.sort_by_key(|change| (rate(change.cost, change.saved), change.before));
    changes
}

/// Leaves out executions that are not needed within `budget`, the dearest first.
pub(super) fn pruned(
    model: &SequenceModel,
    sequence: Vec<u32>,
    budget: u64,
    work: &mut SequenceWork<'_>,
) -> Vec<u32> {
    let mut sequence = sequence;
    let mut trial = Trial::new(model);
    let mut other = Evaluation::default();
    for _ in 0..3 {
        if !trial.run(&sequence) {
            break;
        }
        let is_repeated = repeated(model, &sequence);
        let mut positions: Vec<usize> =
            (0..sequence.len()).filter(|&position| is_repeated[position]).collect();
        positions.sort_by_key(|&position| {
            let node = sequence[position];
            // A copy out is left out after the copies in that read the same value.
            let is_out = model.is_copy(node) && !model.nodes[at(node)].is_pure;
            (core::cmp::Reverse(model.nodes[at(node)].cost), is_out, position)
        });
        let mut changed = false;
        let mut dropped: Vec<usize> = Vec::new();
        for position in positions {
            if !work.spend(sequence.len()) {
                break;
            }
            let before = dropped.iter().filter(|&&other| other < position).count();
            let now = position - before;
            let shorter = || without(&sequence, |position| position == now);
            let fits = if model.paging.is_none() {
                trial.peak_without(&sequence, narrow(now), budget).is_some()
            } else {
                other.run(model, &shorter()) && other.peak <= budget
            };
            if fits {
                sequence = shorter();
                dropped.push(position);
                changed = true;
                if model.paging.is_none() {
                    trial.run(&sequence);
                }
            }
        }
        if !changed || work.is_over() {
            break;
        }
    }
    sequence
}
