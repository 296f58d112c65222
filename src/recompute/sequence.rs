//! Sequences of node executions: which instance each reader reads, and the bytes live at each step.

use alloc::{vec, vec::Vec};
use core::ops::Range;

use super::narrow_ids::{NONE, at, narrow};
use super::sequence_model::SequenceModel;

/// One content of a value: live from the execution that makes the content to the last reader.
#[derive(Clone, Copy, Debug)]
pub(super) struct Instance {
    /// The value.
    pub(super) value: u32,
    /// The position that makes the content; 0 for a supplied value.
    pub(super) birth: u32,
    /// The last position that reads the content.
    pub(super) last: u32,
    /// Whether a node makes the content.
    pub(super) is_made: bool,
}

/// A value that became readable: reads of the value are reads of the bound instance.
#[derive(Clone, Copy, Debug)]
pub(super) struct Binding {
    /// The position that makes the value.
    pub(super) position: u32,
    /// The instance, or [`NONE`] for bytes outside the arena.
    pub(super) instance: u32,
    /// The previous binding of the same value, or [`NONE`].
    pub(super) before: u32,
    /// The binding of another value whose bytes the value shows, or [`NONE`].
    pub(super) shown: u32,
}

/// A read from an instance.
#[derive(Clone, Copy, Debug)]
pub(super) struct InstanceRead {
    pub(super) instance: u32,
    /// The value under whose name the instance is read.
    pub(super) value: u32,
    /// The position that reads the instance; the end for values that are kept.
    pub(super) position: u32,
    /// The binding of the value at that position.
    pub(super) binding: u32,
}

/// The evaluation of a sequence.
#[derive(Default)]
pub(super) struct Evaluation {
    pub(super) instances: Vec<Instance>,
    pub(super) bindings: Vec<Binding>,
    /// For each value: the last binding, or [`NONE`].
    pub(super) latest: Vec<u32>,
    /// Reads in sequence order; reads at the end are last.
    pub(super) reads: Vec<InstanceRead>,
    /// For each position: the first read; one more for the end.
    first_read: Vec<u32>,
    /// For each node: the number of runs.
    pub(super) runs: Vec<u32>,
    /// For each value: the position at which the value was replaced, or [`NONE`].
    pub(super) replaced_at: Vec<u32>,
    /// By position: bytes that are live.
    pub(super) live: Vec<u64>,
    /// The same, with the bytes of outputs that take over inputs; one more for the end.
    pub(super) gross: Vec<i64>,
    /// The most live bytes at any position.
    pub(super) peak: u64,
    /// Cost of all executions.
    pub(super) cost: u64,
    change: Vec<i64>,
    taken: Vec<u32>,
    /// By pair of copies: when the slow memory holds the value, first and last position.
    stays: Vec<[u32; 2]>,
}

impl Evaluation {
    /// Returns the bytes above `budget`, summed over positions.
    pub(super) fn excess(&self, budget: u64) -> u128 {
        self.excess_at(0..self.live.len(), budget, u64::MAX)
    }

    /// Returns the bytes above `budget`, at most `most` at each position, summed over some positions.
    pub(super) fn excess_at(&self, positions: Range<usize>, budget: u64, most: u64) -> u128 {
        let over = self.live[positions].iter().map(|&live| live.saturating_sub(budget));
        over.map(|over| u128::from(over.min(most))).sum()
    }

    /// Returns the first position with the most live bytes.
    pub(super) fn highest(&self) -> usize {
        self.live.iter().position(|&live| live == self.peak).unwrap_or(0)
    }

    /// Returns the range of the reads at a position.
    pub(super) fn reads_at(&self, position: usize) -> (usize, usize) {
        (at(self.first_read[position]), at(self.first_read[position + 1]))
    }

    /// Evaluates a sequence, and returns whether the sequence is valid: each reader finds the
    /// operands with the same content as in the graph.
    pub(super) fn run(&mut self, model: &SequenceModel, sequence: &[u32]) -> bool {
        self.bind(model, sequence) && {
            self.sweep(model, sequence);
            true
        }
    }

    fn reset(&mut self, model: &SequenceModel) {
        self.instances.clear();
        self.bindings.clear();
        self.reads.clear();
        self.first_read.clear();
        self.latest.clear();
        self.latest.resize(model.bytes.len(), NONE);
        self.replaced_at.clear();
        self.replaced_at.resize(model.bytes.len(), NONE);
        self.runs.clear();
        self.runs.resize(model.nodes.len(), 0);
        self.cost = 0;
        self.peak = 0;
    }

    fn make(&mut self, model: &SequenceModel, value: u32, position: u32, is_made: bool) {
        let source = model.shows[at(value)];
        let shown = if source == NONE { NONE } else { self.latest[at(source)] };
        let instance = if source != NONE {
            if shown == NONE { NONE } else { self.bindings[at(shown)].instance }
        } else if model.bytes[at(value)] == 0 {
            NONE
        } else {
            self.instances.push(Instance { value, birth: position, last: position, is_made });
            narrow(self.instances.len() - 1)
        };
        let before = self.latest[at(value)];
        self.latest[at(value)] = narrow(self.bindings.len());
        self.bindings.push(Binding { position, instance, before, shown });
    }

    /// Binds each read to the latest instance.
    fn bind(&mut self, model: &SequenceModel, sequence: &[u32]) -> bool {
        self.reset(model);
        for &value in &model.supplied {
            self.make(model, value, 0, false);
        }
        let mut ran = 0;
        for (position, &node) in sequence.iter().enumerate() {
            let position = narrow(position);
            let facts = &model.nodes[at(node)];
            self.first_read.push(narrow(self.reads.len()));
            if facts.previous.iter().any(|&value| self.replaced_at[at(value)] != NONE) {
                return false;
            }
            for &value in &facts.reads {
                let binding = self.latest[at(value)];
                if binding == NONE {
                    // Constants are made by no node.
                    if model.producer[at(value)] != NONE {
                        return false;
                    }
                    continue;
                }
                let instance = self.bindings[at(binding)].instance;
                if instance != NONE {
                    self.instances[at(instance)].last = position;
                    self.reads.push(InstanceRead { instance, value, position, binding });
                }
            }
            if facts.after.iter().any(|&other| self.runs[at(other)] == 0) {
                return false;
            }
            self.runs[at(node)] += 1;
            if model.is_copy(node) {
                if self.runs[at(node)] > 1 && !facts.is_pure {
                    return false;
                }
            } else if self.runs[at(node)] == 1 {
                ran += 1;
            } else if !facts.is_pure {
                return false;
            }
            for &value in &facts.replaces {
                self.replaced_at[at(value)] = position;
            }
            for &value in &facts.writes {
                self.make(model, value, position, true);
            }
            self.cost = self.cost.saturating_add(facts.cost);
        }
        self.first_read.push(narrow(self.reads.len()));
        let end = narrow(sequence.len());
        for value in (0..model.bytes.len()).filter(|&value| model.kept[value]) {
            let binding = self.latest[value];
            if binding != NONE && self.bindings[at(binding)].instance != NONE {
                let instance = self.bindings[at(binding)].instance;
                self.instances[at(instance)].last = end;
                let value = narrow(value);
                self.reads.push(InstanceRead { instance, value, position: end, binding });
            }
        }
        ran == model.count && self.fits_slow_memory(model, sequence)
    }

    /// Returns whether the slow memory holds the copies, from each copy out to the last copy in.
    fn fits_slow_memory(&mut self, model: &SequenceModel, sequence: &[u32]) -> bool {
        let Some((paging, capacity)) =
            model.paging.as_ref().and_then(|paging| Some((paging, paging.capacity?)))
        else {
            return true;
        };
        self.stays.clear();
        self.stays.resize(paging.slow.len(), [NONE; 2]);
        for (position, &node) in sequence.iter().enumerate() {
            if let Some((pair, is_in)) = paging.pair_of(node) {
                let stay = &mut self.stays[at(pair)];
                stay[1] = narrow(position);
                if !is_in {
                    stay[0] = stay[1];
                }
            }
        }
        self.change.clear();
        self.change.resize(sequence.len() + 1, 0);
        for (stay, &bytes) in self.stays.iter().zip(&paging.slow).filter(|it| it.0[0] != NONE) {
            let bytes = i64::try_from(bytes).unwrap_or(i64::MAX >> 20);
            self.change[at(stay[0])] += bytes;
            self.change[at(stay[1]) + 1] -= bytes;
        }
        let mut held = 0_i64;
        self.change.iter().all(|change| {
            held = held.saturating_add(*change);
            u64::try_from(held).unwrap_or(0) <= capacity
        })
    }

    /// Sums up the bytes that are live at each position.
    fn sweep(&mut self, model: &SequenceModel, sequence: &[u32]) {
        let steps = sequence.len();
        self.change.clear();
        self.change.resize(steps + 2, 0);
        for instance in &self.instances {
            let bytes = signed(model.bytes[at(instance.value)]);
            self.change[at(instance.birth)] += bytes;
            self.change[(at(instance.last) + 1).min(steps + 1)] -= bytes;
        }
        self.live.clear();
        self.gross.clear();
        let mut live = i64::try_from(model.resident).unwrap_or(i64::MAX >> 1);
        for (position, &node) in sequence.iter().enumerate() {
            live += self.change[position];
            self.gross.push(live);
            let mut credit = 0;
            if !model.nodes[at(node)].in_place.is_empty() {
                let (from, to) = self.reads_at(position);
                let (instances, reads) = (&self.instances, &self.reads[from..to]);
                let taken = &mut self.taken;
                credit = self::credit(model, instances, narrow(position), node, reads, taken);
            }
            let now = u64::try_from(live).unwrap_or(0).saturating_sub(credit);
            self.peak = self.peak.max(now);
            self.live.push(now);
        }
        self.gross.push(live + self.change[steps]);
    }
}

/// Returns the bytes of node outputs that take over inputs which die at the node's position.
pub(super) fn credit(
    model: &SequenceModel,
    instances: &[Instance],
    position: u32,
    node: u32,
    reads: &[InstanceRead],
    taken: &mut Vec<u32>,
) -> u64 {
    taken.clear();
    let mut credit = 0;
    let mut done = NONE;
    for &(input, output) in &model.nodes[at(node)].in_place {
        if done == output {
            continue;
        }
        let Some(read) = reads.iter().find(|read| read.value == input) else { continue };
        let instance = instances[at(read.instance)];
        let is_alone =
            reads.iter().all(|other| other.instance != read.instance || other.value == input);
        let is_free = instance.last == position
            && is_alone
            && model.may_take[at(instance.value)]
            && !taken.contains(&read.instance);
        if is_free {
            taken.push(read.instance);
            credit += model.bytes[at(output)];
            done = output;
        }
    }
    credit
}

/// Returns bytes as a difference.
pub(super) fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX >> 20)
}

/// Returns the sequence without the positions that are marked.
pub(super) fn without(sequence: &[u32], is_dropped: impl Fn(usize) -> bool) -> Vec<u32> {
    let kept = sequence.iter().enumerate().filter(|&(position, _)| !is_dropped(position));
    kept.map(|(_, &node)| node).collect()
}

/// Returns, by position, whether the node ran before, or copies a value.
pub(super) fn repeated(model: &SequenceModel, sequence: &[u32]) -> Vec<bool> {
    let mut ran = vec![false; model.nodes.len()];
    let mut is_repeated =
        |node: u32| core::mem::replace(&mut ran[at(node)], true) || model.is_copy(node);
    sequence.iter().map(|&node| is_repeated(node)).collect()
}
