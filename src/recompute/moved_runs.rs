//! Executions that run earlier or later, so that fewer bytes are live at the highest position.
//!
//! The order of the first executions decides how much must run again. The product for a weight's
//! gradient, for example, may wait until its operand is made again for another node, and the
//! result then exists for a shorter time. Such a product has a result that the graph keeps, so no
//! repetition can replace the product: the product itself must move.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::{vec, vec::Vec};
use core::cmp::Reverse;

use super::closure::Closure;
use super::narrow_ids::{NONE, at, narrow};
use super::sequence::Evaluation;
use super::sequence_model::SequenceModel;
use super::trial::rate;

/// Most executions that move together.
const TOGETHER: usize = 12;

/// Most executions with results that may be made later, and most that may free values earlier.
const MOVABLE: usize = 4;

/// Most later positions per execution.
const TARGETS: usize = 2;

/// Most moves that are evaluated at a time.
const EVALUATED: usize = 4;

/// The part of all bytes above the budget that a move must promise to save, as a divisor.
const PROMISED: u128 = 8;

/// An execution that moves across the highest position.
pub(super) struct MovedRun {
    /// The position of the execution.
    from: u32,
    /// The position before which the execution will run.
    to: u32,
    /// Nodes that run again before the execution.
    nodes: Vec<u32>,
    /// The cost of these nodes.
    cost: u64,
    /// Most bytes above the budget that the move saves, summed over positions.
    saved: u128,
}

/// Moves that did not help: the node, the node before which it would have run, and whether operands
/// would have been made again.
#[derive(Default)]
pub(super) struct TriedMoves(BTreeSet<(u32, u32, bool)>);

impl TriedMoves {
    /// Notes a move that does not help. Neighboring sequences are not tried with the move again.
    pub(super) fn add(&mut self, moved: &MovedRun, sequence: &[u32]) {
        self.0.insert(moved.name(sequence));
    }
}

impl MovedRun {
    /// Returns what a move is in similar sequences.
    fn name(&self, sequence: &[u32]) -> (u32, u32, bool) {
        let before = sequence.get(at(self.to)).copied().unwrap_or(NONE);
        (sequence[at(self.from)], before, self.nodes.is_empty())
    }

    /// Returns the sequence with the move; `None` if too many executions would move together.
    pub(super) fn applied(&self, model: &SequenceModel, sequence: &[u32]) -> Option<Vec<u32>> {
        let (from, to) = (at(self.from), at(self.to));
        let range = from.min(to)..(from + 1).max(to);
        let mut moves = vec![false; range.len()];
        let is_later = from < to;
        if is_later {
            mark_dependents(model, &sequence[range.clone()], &mut moves);
        } else {
            mark_needed(model, &sequence[range.clone()], &mut moves);
        }
        if moves.iter().filter(|&&moves| moves).count() > TOGETHER {
            return None;
        }
        let chosen = |moved: bool| {
            let nodes = sequence[range.clone()].iter().zip(&moves);
            nodes.filter(move |it| *it.1 == moved).map(|it| *it.0)
        };
        let mut result = Vec::with_capacity(sequence.len() + self.nodes.len());
        result.extend_from_slice(&sequence[..range.start]);
        result.extend(chosen(!is_later));
        result.extend_from_slice(&self.nodes);
        result.extend(chosen(is_later));
        result.extend_from_slice(&sequence[range.end..]);
        Some(result)
    }
}

/// Marks the first execution of a part of a sequence, and the executions that depend on it.
fn mark_dependents(model: &SequenceModel, part: &[u32], moves: &mut [bool]) {
    let mut is_late = vec![false; model.bytes.len()];
    for (position, (&node, moves)) in part.iter().zip(moves).enumerate() {
        let facts = &model.nodes[at(node)];
        *moves = position == 0 || facts.reads.iter().any(|&value| is_late[at(value)]);
        facts.writes.iter().for_each(|&value| is_late[at(value)] = *moves);
    }
}

/// Marks the last execution of a part of a sequence, and the executions that make its operands.
fn mark_needed(model: &SequenceModel, part: &[u32], moves: &mut [bool]) {
    let mut is_needed = vec![false; model.bytes.len()];
    for (position, (&node, moves)) in part.iter().zip(moves).enumerate().rev() {
        let facts = &model.nodes[at(node)];
        *moves =
            position + 1 == part.len() || facts.writes.iter().any(|&value| is_needed[at(value)]);
        if *moves {
            facts.writes.iter().for_each(|&value| is_needed[at(value)] = false);
            facts.reads.iter().for_each(|&value| is_needed[at(value)] = true);
        }
    }
}

/// Returns the most promising moves across the highest position that were not tried.
pub(super) fn moved_runs(
    model: &SequenceModel,
    sequence: &[u32],
    now: &Evaluation,
    budget: u64,
    tried: &TriedMoves,
) -> Vec<MovedRun> {
    let search = MoveSearch { model, sequence, now, budget, top: now.highest() };
    let least = (now.excess(budget) / PROMISED).max(1);
    let mut moves = search.earlier();
    moves.extend(search.later());
    moves.retain(|it| it.saved >= least && !tried.0.contains(&it.name(sequence)));
    moves.sort_by_key(|it| (rate(it.cost, it.saved), it.to, it.from));
    moves.truncate(EVALUATED);
    moves
}

struct MoveSearch<'a> {
    model: &'a SequenceModel,
    sequence: &'a [u32],
    now: &'a Evaluation,
    budget: u64,
    /// The highest position.
    top: usize,
}

impl MoveSearch<'_> {
    /// Returns the bytes of the results of an execution.
    fn made(&self, position: u32) -> u64 {
        self.model.made_by(self.sequence[at(position)])
    }

    /// Returns moves to the highest position: executions that free values which are live there.
    fn earlier(&self) -> Vec<MovedRun> {
        let mut freed: BTreeMap<u32, u64> = BTreeMap::new();
        for instance in &self.now.instances {
            let last = at(instance.last);
            if at(instance.birth) <= self.top && last > self.top && last < self.sequence.len() {
                *freed.entry(instance.last).or_default() += self.model.bytes[at(instance.value)];
            }
        }
        let mut freed: Vec<(u64, u32)> = freed
            .iter()
            .map(|(&last, &bytes)| (bytes.saturating_sub(self.made(last)), last))
            .collect();
        freed.sort_by_key(|&(bytes, last)| (Reverse(bytes), last));
        freed.truncate(MOVABLE);
        let moved = |(bytes, from): (u64, u32)| {
            let saved = self.now.excess_at(self.top..at(from), self.budget, bytes);
            MovedRun { from, to: narrow(self.top), nodes: Vec::new(), cost: 0, saved }
        };
        freed.into_iter().map(moved).collect()
    }

    /// Returns moves from the highest position, and of executions whose results are live there and
    /// not read yet, behind the position.
    fn later(&self) -> Vec<MovedRun> {
        let mut moves = Vec::new();
        let mut closure = Closure::new(self.model, self.now, self.top);
        for from in self.movable() {
            let facts = &self.model.nodes[at(self.sequence[at(from)])];
            let made = self.made(from);
            let is_top = at(from) == self.top;
            let top = if is_top { self.now.peak.saturating_sub(self.budget) } else { 0 };
            let (first, end) = self.now.reads_at(at(from));
            for to in self.targets(from) {
                let saved = |held: u64| {
                    let between = at(from) + 1..at(to);
                    let more = self.now.excess_at(between, self.budget, made.saturating_sub(held));
                    u128::from(top) + more
                };
                // Operands are held until the execution, or made again before the execution.
                let read =
                    self.now.reads[first..end].iter().map(|it| self.now.instances[at(it.instance)]);
                let held = read.filter(|it| it.last < to).map(|it| self.model.bytes[at(it.value)]);
                let held = saved(held.fold(0, u64::saturating_add));
                moves.push(MovedRun { from, to, nodes: Vec::new(), cost: 0, saved: held });
                let mut missing = facts.reads.clone();
                missing.retain(|&value| !closure.is_there(value, NONE, to));
                if !missing.is_empty()
                    && let Some((nodes, cost)) = closure.of(&missing, NONE, to, NONE)
                {
                    moves.push(MovedRun { from, to, nodes, cost, saved: saved(0) });
                }
            }
        }
        moves
    }

    /// Returns the highest position, and the positions that make the largest values which are live
    /// there and not read yet. To make a view is not to read.
    fn movable(&self) -> Vec<u32> {
        let mut is_read = vec![false; self.now.instances.len()];
        for read in &self.now.reads[..self.now.reads_at(self.top).1] {
            let writes = &self.model.nodes[at(self.sequence[at(read.position)])].writes;
            let shows = writes.iter().all(|&value| self.model.shows[at(value)] != NONE);
            is_read[at(read.instance)] |= at(read.position) == self.top || !shows;
        }
        let idle = self.now.instances.iter().zip(is_read).filter(|(instance, is_read)| {
            let spans = at(instance.birth) < self.top && at(instance.last) > self.top;
            instance.is_made && spans && !is_read
        });
        let mut movable: Vec<u32> = idle.map(|(instance, _)| instance.birth).collect();
        movable.sort_by_key(|&birth| (Reverse(self.made(birth)), birth));
        movable.dedup();
        movable.insert(0, narrow(self.top));
        movable.truncate(MOVABLE);
        movable
    }

    /// Returns positions behind the highest position before which an execution may run: before the
    /// first readers of the results, behind executions that read or make an operand, and the end.
    fn targets(&self, from: u32) -> Vec<u32> {
        let facts = &self.model.nodes[at(self.sequence[at(from)])];
        let homes: Vec<u32> = facts.reads.iter().map(|&value| self.model.root(value)).collect();
        let mut targets = Vec::new();
        for (position, &node) in (0_u32..).zip(self.sequence).skip(self.top + 1) {
            let other = &self.model.nodes[at(node)];
            if other.reads.iter().any(|&value| facts.writes.contains(&self.model.root(value))) {
                targets.push(position);
            }
            let mut touched = other.reads.iter().chain(&other.writes);
            if touched.any(|&value| homes.contains(&self.model.root(value))) {
                targets.push(position + 1);
            }
            if targets.len() >= TARGETS {
                break;
            }
        }
        targets.push(narrow(self.sequence.len()));
        targets.dedup();
        targets.truncate(TARGETS);
        targets
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;
    use crate::graph::{DType, Graph, Node, Value, ValueKind};
    use crate::liveness::LivenessOptions;
    use crate::plan::InputMemory;

    /// Returns the model of nodes that read and write values, `x` included; a node whose name starts
    /// with `o` makes an output.
    fn model(sizes: &[(&str, u64)], nodes: &[(&str, &[&str])]) -> SequenceModel {
        let mut builder = Graph::builder("moves");
        let mut known = BTreeMap::new();
        for &(name, bytes) in sizes {
            let kind = if name == "x" { ValueKind::Input } else { ValueKind::Activation };
            let value = Value::new(name, kind, DType::UINT8, [bytes]).unwrap();
            let id = builder.add_value(value);
            known.insert(name, id);
            if name.starts_with('o') {
                builder.add_output(id);
            }
        }
        for &(name, reads) in nodes {
            let reads = reads.iter().map(|&read| known[read]);
            builder.add_node(Node::new(name, "Layer").reads(reads).writes([known[name]]).pure());
        }
        let options = LivenessOptions { inputs: InputMemory::Caller, ..LivenessOptions::default() };
        SequenceModel::new(&builder.build().unwrap(), options)
    }

    /// Returns the peaks of a sequence before and after the first move that lowers the peak.
    fn moved(model: &SequenceModel, budget: u64) -> Option<(u64, u64, Vec<u32>)> {
        let mut now = Evaluation::default();
        assert!(now.run(model, &model.given));
        let before = now.peak;
        let moves = moved_runs(model, &model.given, &now, budget, &TriedMoves::default());
        moves.iter().find_map(|it| {
            let result = it.applied(model, &model.given)?;
            let mut after = Evaluation::default();
            let is_lower = after.run(model, &result) && after.peak < before;
            is_lower.then_some((before, after.peak, result))
        })
    }

    /// Returns the model of an output that is made first, and of a chain.
    fn waiting() -> SequenceModel {
        let sizes = [("x", 64), ("o1", 1024), ("a", 1024), ("b", 1024), ("o2", 64)];
        let nodes: [(&str, &[&str]); 4] =
            [("o1", &["x"]), ("a", &["x"]), ("b", &["a"]), ("o2", &["b"])];
        model(&sizes, &nodes)
    }

    #[test]
    fn a_result_that_nothing_waits_for_is_made_behind_the_highest_position() {
        let (before, after, sequence) = moved(&waiting(), 2048).unwrap();
        assert_eq!((before, after), (3072, 2048));
        assert_eq!(sequence, [1, 2, 3, 0]);
    }

    #[test]
    fn a_reader_that_frees_bytes_runs_before_the_highest_position_with_the_nodes_that_it_needs() {
        let sizes =
            [("x", 64), ("h", 1024), ("a", 1024), ("b", 1024), ("s", 64), ("o1", 64), ("o2", 64)];
        let nodes: [(&str, &[&str]); 6] = [
            ("h", &["x"]),
            ("a", &["x"]),
            ("b", &["a"]),
            ("o1", &["b"]),
            ("s", &["x"]),
            ("o2", &["h", "s"]),
        ];
        let (before, after, sequence) = moved(&model(&sizes, &nodes), 2200).unwrap();
        assert_eq!((before, after), (3072, 2176));
        assert_eq!(sequence, [0, 1, 4, 5, 2, 3]);
    }

    #[test]
    fn a_move_that_did_not_help_is_not_tried_again() {
        let model = waiting();
        let mut now = Evaluation::default();
        assert!(now.run(&model, &model.given));
        let mut tried = TriedMoves::default();
        let first = moved_runs(&model, &model.given, &now, 2048, &tried);
        for moved in &first {
            tried.add(moved, &model.given);
        }
        let names: Vec<_> = first.iter().map(|moved| moved.name(&model.given)).collect();
        let second = moved_runs(&model, &model.given, &now, 2048, &tried);
        assert!(!names.is_empty());
        assert!(second.iter().all(|moved| !names.contains(&moved.name(&model.given))));
    }
}
