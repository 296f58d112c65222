//! Node orders without repetitions that need fewer live bytes than the given order.

use alloc::{vec, vec::Vec};

use super::narrow_ids::{NONE, at, narrow};
use super::separator::{dependencies, dependents};
use super::sequence::Evaluation;
use super::sequence_model::SequenceModel;

/// Returns the best of several orders: the given order, and orders in which nodes that free bytes
/// run early and nodes that take bytes run late.
pub(super) fn improved(model: &SequenceModel, others: &[Vec<u32>]) -> Vec<u32> {
    let mut found = Evaluation::default();
    let mut best = model.given.clone();
    if !found.run(model, &best) {
        return best;
    }
    let mut rank = (found.peak, found.live.iter().map(|&live| u128::from(live)).sum::<u128>());
    let mut starts = vec![model.given.clone()];
    starts.extend(others.iter().cloned());
    let mut tried: Vec<Vec<u32>> = Vec::new();
    for start in starts {
        let eager = early(model, &start);
        let lazy = late(model, &start);
        let (eager_late, lazy_early) = (late(model, &eager), early(model, &lazy));
        tried.extend([start, eager, lazy, eager_late, lazy_early]);
    }
    for order in tried {
        if found.run(model, &order) {
            let sum = found.live.iter().map(|&live| u128::from(live)).sum();
            if (found.peak, sum) < rank {
                (rank, best) = ((found.peak, sum), order);
            }
        }
    }
    best
}

/// Returns the order in which each node that does not raise the live bytes runs as soon as
/// possible: after the operands, and after the readers of any content that the node replaces.
fn early(model: &SequenceModel, order: &[u32]) -> Vec<u32> {
    let dependents = dependents(model);
    let mut waits: Vec<usize> = vec![0; model.nodes.len()];
    for &dependent in dependents.iter().flatten() {
        waits[at(dependent)] += 1;
    }
    // By value: reads left.
    let mut left = vec![0_u32; model.bytes.len()];
    for facts in &model.nodes {
        facts.reads.iter().for_each(|&value| left[at(model.root(value))] += 1);
    }
    for value in (0..model.bytes.len()).filter(|&value| model.kept[value]) {
        left[at(model.root(narrow(value)))] += 1;
    }
    let grows = |node: u32, left: &[u32]| {
        let facts = &model.nodes[at(node)];
        let (mut made, mut freed) = (0_u64, 0_u64);
        for &value in facts.writes.iter().filter(|&&value| model.shows[at(value)] == NONE) {
            made += if left[at(value)] > 0 { model.bytes[at(value)] } else { 0 };
        }
        let mut seen: Vec<u32> = Vec::new();
        for &read in &facts.reads {
            let root = model.root(read);
            if !seen.contains(&root) {
                seen.push(root);
                let own = facts.reads.iter().filter(|&&it| model.root(it) == root).count();
                if usize::try_from(left[at(root)]).is_ok_and(|left| left <= own) {
                    freed += model.bytes[at(root)];
                }
            }
        }
        made > freed || made == 0 && freed == 0 && facts.replaces.is_empty()
    };
    let mut done = vec![false; model.nodes.len()];
    let mut result = Vec::with_capacity(order.len());
    for &next in order {
        let mut pending = vec![next];
        while let Some(node) = pending.pop() {
            if done[at(node)] || waits[at(node)] > 0 {
                continue;
            }
            if node != next && grows(node, &left) {
                continue;
            }
            done[at(node)] = true;
            result.push(node);
            let facts = &model.nodes[at(node)];
            facts.reads.iter().for_each(|&value| left[at(model.root(value))] -= 1);
            for &dependent in dependents[at(node)].iter().rev() {
                waits[at(dependent)] -= 1;
                if waits[at(dependent)] == 0 {
                    pending.push(dependent);
                }
            }
            // The readers of the node's operands may be the last readers now.
            for &read in &facts.reads {
                let producer = model.producer[at(read)];
                if producer != NONE && left[at(model.root(read))] <= 2 {
                    let others = dependents[at(producer)].iter().copied();
                    pending.extend(others.filter(|&it| !done[at(it)] && waits[at(it)] == 0));
                }
            }
        }
    }
    let rest = order.iter().copied().filter(|&node| !done[at(node)]);
    let rest: Vec<u32> = rest.collect();
    result.extend(rest);
    result
}

/// Returns the order in which each node that takes more bytes than the node frees runs as late as
/// possible: just before the first dependent node.
fn late(model: &SequenceModel, order: &[u32]) -> Vec<u32> {
    let dependents = dependents(model);
    let mut position = vec![0; model.nodes.len()];
    let mut last_reader = vec![0; model.bytes.len()];
    for (step, &node) in order.iter().enumerate() {
        position[at(node)] = step;
        for &read in &model.nodes[at(node)].reads {
            let root = at(model.root(read));
            last_reader[root] = last_reader[root].max(step);
        }
    }
    // Walks backwards: a node is emitted before the first emitted dependent node.
    let mut held: Vec<Vec<u32>> = vec![Vec::new(); order.len() + 1];
    for (step, &node) in order.iter().enumerate().rev() {
        let facts = &model.nodes[at(node)];
        let made = facts.writes.iter().filter(|&&value| model.shows[at(value)] == NONE);
        let made: u64 = made.map(|&value| model.bytes[at(value)]).sum();
        let mut freed = 0_u64;
        for &read in &facts.reads {
            let root = model.root(read);
            if last_reader[at(root)] <= step {
                freed += model.bytes[at(root)];
            }
        }
        let first = dependents[at(node)].iter().map(|&it| position[at(it)]).min();
        let is_late = made > freed && dependents[at(node)].iter().all(|&it| it != node);
        let to = match first {
            Some(first) if is_late && first > step => first,
            _ => step,
        };
        position[at(node)] = to;
        held[to].push(node);
        for &read in &facts.reads {
            let root = at(model.root(read));
            last_reader[root] = last_reader[root].max(to);
        }
    }
    let mut result = Vec::with_capacity(order.len());
    for step in held {
        result.extend(step.into_iter().rev());
    }
    if is_topological(model, &result) { result } else { order.to_vec() }
}

fn is_topological(model: &SequenceModel, order: &[u32]) -> bool {
    let mut done = vec![false; model.nodes.len()];
    order.iter().all(|&node| {
        let is_ready = dependencies(model, node).all(|before| done[at(before)]);
        done[at(node)] = true;
        is_ready
    })
}

/// Bytes of a small value: an optimizer scalar, not a layer tensor.
const SMALL: u64 = 1024;

/// Returns the order in which nodes that need and make only small values run first.
///
/// An optimizer's step counter is such a value, and so are decay rates. A graph may make these
/// values last, and then each gradient would wait for them.
pub(super) fn small_first(model: &SequenceModel, order: &[u32]) -> Vec<u32> {
    let mut readers: Vec<Vec<u32>> = vec![Vec::new(); model.bytes.len()];
    for node in (0..model.nodes.len()).map(narrow) {
        for &read in &model.nodes[at(node)].reads {
            readers[at(model.root(read))].push(node);
        }
    }
    let are_small =
        |values: &[u32]| values.iter().all(|&value| model.bytes[at(model.root(value))] <= SMALL);
    let mut is_first = vec![false; model.nodes.len()];
    for &node in order {
        let facts = &model.nodes[at(node)];
        let is_settled = |&value: &u32| {
            let mut others = readers[at(model.root(value))].iter();
            others.all(|&other| other == node || is_first[at(other)])
        };
        let found = (facts.is_pure || !facts.replaces.is_empty())
            && are_small(&facts.reads)
            && are_small(&facts.writes)
            && dependencies(model, node).all(|before| is_first[at(before)])
            && facts.replaces.iter().all(is_settled);
        is_first[at(node)] = found;
    }
    let (mut first, rest): (Vec<u32>, Vec<u32>) =
        order.iter().partition(|&&node| is_first[at(node)]);
    first.extend(rest);
    first
}

/// Returns the sequence in which each node that replaces a content runs as soon as possible: behind
/// the operands and the last reader of the content. So a gradient ends with the update that reads
/// the gradient.
pub(super) fn updates_early(model: &SequenceModel, sequence: &[u32]) -> Vec<u32> {
    // By value: reads left.
    let mut left = vec![0_usize; model.bytes.len()];
    for &node in sequence {
        model.nodes[at(node)].reads.iter().for_each(|&it| left[at(model.root(it))] += 1);
    }
    // For each value: the updates that read the value, and the updates that replace the value.
    let mut reads: Vec<Vec<u32>> = vec![Vec::new(); model.bytes.len()];
    let mut replaces: Vec<Vec<u32>> = vec![Vec::new(); model.bytes.len()];
    for (node, facts) in (0_u32..).zip(&model.nodes).filter(|(_, it)| !it.replaces.is_empty()) {
        facts.reads.iter().for_each(|&value| reads[at(value)].push(node));
        facts.replaces.iter().for_each(|&value| replaces[at(model.root(value))].push(node));
    }
    let mut is_there: Vec<bool> = model.producer.iter().map(|&it| it == NONE).collect();
    let mut is_done = vec![false; model.nodes.len()];
    let mut result = Vec::with_capacity(sequence.len());
    for &next in sequence {
        let mut pending = vec![next];
        while let Some(node) = pending.pop() {
            let facts = &model.nodes[at(node)];
            let is_last = |&value: &u32| {
                let root = model.root(value);
                let own = facts.reads.iter().filter(|&&read| model.root(read) == root).count();
                left[at(root)] <= own
            };
            let is_ready = || {
                facts.after.iter().all(|&before| is_done[at(before)])
                    && facts.reads.iter().all(|&value| is_there[at(value)])
                    && facts.replaces.iter().all(is_last)
            };
            if !facts.replaces.is_empty() && (is_done[at(node)] || (node != next && !is_ready())) {
                continue;
            }
            is_done[at(node)] = true;
            result.push(node);
            for &value in &facts.reads {
                let root = at(model.root(value));
                left[root] -= 1;
                pending.extend(&replaces[root]);
            }
            for &value in &facts.writes {
                is_there[at(value)] = true;
                pending.extend(&reads[at(value)]);
            }
        }
    }
    result
}
