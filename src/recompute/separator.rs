//! Separators: the values that later nodes need from earlier nodes, and the cheapest way to provide
//! these values with few retained bytes.
//!
//! When a node *d* runs first, in any sequence of executions, the operands of *d* are there, beside
//! the results of *d*. Each other value that the descendants of *d* read from other nodes, and each
//! output of the graph, is retained, or made later. An ancestor of *d* that runs later runs again,
//! and makes no output. The cheapest choice for a price per retained byte is a minimum cut.

use alloc::{vec, vec::Vec};

use super::cut::{Network, UNLIMITED};
use super::narrow_ids::{NONE, at, narrow};
use super::sequence_model::SequenceModel;

/// Fractional binary digits of a price.
const PRICE_BITS: u32 = 16;

/// A node before which values are retained or made again.
pub(super) struct Separator {
    /// The node.
    pub(super) node: u32,
    /// For each node: whether the node comes before the separator in every order.
    is_ancestor: Vec<bool>,
    /// The values that the separator and its descendants read from other nodes, and the graph's
    /// outputs by other nodes.
    pub(super) needed: Vec<u32>,
    /// Bytes that the separator's results need beside the operands.
    pub(super) written: u64,
    /// The bytes of `needed` and `written` together.
    pub(super) bytes: u64,
}

/// The cheapest choice at a price.
pub(super) struct RetainedChoice {
    /// Price of the retained bytes plus cost of the repeated nodes.
    pub(super) total: u64,
    /// For each value: whether the value is retained.
    pub(super) retained: Vec<bool>,
    /// Retained values that are cheaper to copy to the slow memory and back.
    pub(super) copied: Vec<u32>,
}

impl Separator {
    pub(super) fn new(model: &SequenceModel, dependents: &[Vec<u32>], node: u32) -> Self {
        let walk = |next: &dyn Fn(u32) -> Vec<u32>| {
            let mut met = vec![false; model.nodes.len()];
            let mut pending = vec![node];
            while let Some(node) = pending.pop() {
                for next in next(node) {
                    if !core::mem::replace(&mut met[at(next)], true) {
                        pending.push(next);
                    }
                }
            }
            met
        };
        let is_ancestor = walk(&|node| dependencies(model, node).collect());
        let mut is_descendant = walk(&|node| dependents[at(node)].clone());
        is_descendant[at(node)] = true;
        let mut is_needed = vec![false; model.bytes.len()];
        let mut needed = Vec::new();
        let mut is_counted = vec![false; model.bytes.len()];
        let written = model.written_beside(node);
        let mut bytes = written;
        let inside = model.nodes.iter().zip(&is_descendant).filter(|it| *it.1);
        let reads = inside.flat_map(|(facts, _)| facts.reads.iter().copied());
        let kept = (0..model.bytes.len()).filter(|&value| model.kept[value]).map(narrow);
        for value in reads.chain(kept) {
            let producer = model.producer[at(value)];
            let is_inside = producer != NONE && is_descendant[at(producer)];
            if !is_inside && !core::mem::replace(&mut is_needed[at(value)], true) {
                needed.push(value);
                let root = model.root(value);
                if !core::mem::replace(&mut is_counted[at(root)], true) {
                    bytes = bytes.saturating_add(model.bytes[at(root)]);
                }
            }
        }
        Self { node, is_ancestor, needed, written, bytes }
    }

    /// Returns the cheapest choice at a price per byte, in units of 2^-16.
    pub(super) fn choose(&self, model: &SequenceModel, price: u64) -> RetainedChoice {
        let values = model.bytes.len();
        let value_at = |value: u32| 2 + at(value);
        let node_at = |node: u32| 2 + values + at(node);
        let mut network = Network::new(2 + values + model.nodes.len());
        let mut is_met = vec![false; values];
        let mut node_met = vec![false; model.nodes.len()];
        let mut is_operand = vec![false; values];
        for &value in &model.nodes[at(self.node)].reads {
            let root = model.root(value);
            is_operand[at(value)] = true;
            is_operand[at(root)] |= model.bytes[at(value)] == model.bytes[at(root)];
        }
        let mut pending: Vec<u32> = Vec::new();
        for &value in &self.needed {
            network.arc(0, value_at(value), UNLIMITED);
            is_met[at(value)] = true;
            pending.push(value);
        }
        let mut meet = |pending: &mut Vec<u32>, value: u32| {
            if !core::mem::replace(&mut is_met[at(value)], true) {
                pending.push(value);
            }
        };
        while let Some(value) = pending.pop() {
            let shown = model.shows[at(value)];
            let producer = model.producer[at(value)];
            if shown != NONE {
                // A piece of another value may be retained without the rest.
                let is_part = model.bytes[at(value)] < model.bytes[at(model.root(value))];
                let price = if is_part { 0 } else { UNLIMITED };
                network.arc(value_at(value), value_at(shown), price);
                meet(&mut pending, shown);
                continue;
            }
            let retained = cost_of(model.own[at(value)], price).min(UNLIMITED - 1);
            if model.bytes[at(value)] == 0 && (producer == NONE || model.kept[at(value)]) {
                continue;
            }
            if producer == NONE || is_operand[at(value)] {
                network.arc(value_at(value), 1, retained);
                continue;
            }
            // Bytes that are copied to a slow memory and back are retained at a fixed cost.
            let retained = match model.paged(value) {
                Some((_, copies)) => retained.min(copies),
                None => retained,
            };
            network.arc(value_at(value), node_at(producer), retained);
            if core::mem::replace(&mut node_met[at(producer)], true) {
                continue;
            }
            let facts = &model.nodes[at(producer)];
            let cost = match (self.is_ancestor[at(producer)], facts.is_pure) {
                (false, _) => 0,
                (true, true) => facts.cost.min(UNLIMITED - 1),
                (true, false) => UNLIMITED,
            };
            network.arc(node_at(producer), 1, cost);
            for &read in &facts.reads {
                network.arc(node_at(producer), value_at(read), UNLIMITED);
                meet(&mut pending, read);
            }
        }
        let total = network.flow();
        let side = network.source_side();
        let mut retained = vec![false; values];
        for value in (0..values).map(narrow) {
            let producer = model.producer[at(value)];
            let is_made = producer != NONE && side[node_at(producer)];
            retained[at(value)] = side[value_at(value)] && !is_made;
        }
        let is_copied = |&value: &u32| {
            let copies = model.paged(value).map(|(_, cost)| cost);
            retained[at(value)]
                && copies.is_some_and(|cost| cost < cost_of(model.own[at(value)], price))
        };
        let copied = (0..values).map(narrow).filter(is_copied).collect();
        RetainedChoice { total, retained, copied }
    }
}

/// Returns the price for some bytes, rounded down.
pub(super) fn cost_of(bytes: u64, price: u64) -> u64 {
    let cost = (u128::from(bytes) * u128::from(price)) >> PRICE_BITS;
    u64::try_from(cost).unwrap_or(u64::MAX)
}

/// Returns the price at which `bytes` cost `cost`.
pub(super) fn price_of(cost: u64, bytes: u64) -> u64 {
    let price = (u128::from(cost) << PRICE_BITS) / u128::from(bytes.max(1));
    u64::try_from(price).unwrap_or(u64::MAX >> 1).max(1)
}

/// Iterates over the nodes that must run before a node.
pub(super) fn dependencies(model: &SequenceModel, node: u32) -> impl Iterator<Item = u32> + '_ {
    let facts = &model.nodes[at(node)];
    let made = facts.reads.iter().map(|&value| model.producer[at(value)]);
    made.filter(|&producer| producer != NONE).chain(facts.after.iter().copied())
}

/// Returns for each node the dependent nodes.
pub(super) fn dependents(model: &SequenceModel) -> Vec<Vec<u32>> {
    let mut dependents = vec![Vec::new(); model.nodes.len()];
    for node in (0..model.nodes.len()).map(narrow) {
        for before in dependencies(model, node) {
            if dependents[at(before)].last() != Some(&node) {
                dependents[at(before)].push(node);
            }
        }
    }
    dependents
}

/// Most nodes that are looked at for separators.
const MOST_LOOKED_AT: usize = 96;

/// Returns the separators of a sequence that most bytes cross, at most `count`, far from each other.
pub(super) fn separators(model: &SequenceModel, sequence: &[u32], count: usize) -> Vec<Separator> {
    let dependents = dependents(model);
    let stride = sequence.len().div_ceil(MOST_LOOKED_AT).max(1);
    let positions = (0..sequence.len()).step_by(stride);
    let mut found: Vec<(usize, Separator)> = positions
        .map(|position| (position, Separator::new(model, &dependents, sequence[position])))
        .collect();
    found.sort_by_key(|(position, it)| (core::cmp::Reverse(it.bytes), *position));
    let mut chosen: Vec<(usize, Separator)> = Vec::new();
    for (position, separator) in found {
        let is_apart =
            |other: &(usize, Separator)| other.0.abs_diff(position) * 24 >= sequence.len().max(24);
        if chosen.len() < count && chosen.iter().all(is_apart) {
            chosen.push((position, separator));
        }
    }
    // The best of the neighbors around the first separators, which were not examined.
    for (position, separator) in chosen.iter_mut().take(REFINED) {
        let around = position.saturating_sub(stride)..(*position + stride).min(sequence.len());
        for &node in &sequence[around] {
            let other = Separator::new(model, &dependents, node);
            if other.bytes > separator.bytes {
                *separator = other;
            }
        }
    }
    chosen.into_iter().map(|(_, separator)| separator).collect()
}

/// Separators that are compared with their neighbors.
const REFINED: usize = 3;
