//! The depth-first order of a graph, which needs no search.

use alloc::{vec, vec::Vec};
use core::cmp::Reverse;

use super::order_model::{OrderModel, at};

/// Returns the order in which a node's dependencies run right before the node.
///
/// Among several operands, the operand whose nodes need the most bytes beside the operand itself
/// comes first. In a tree, no other order that finishes a subtree before the next has a lower peak.
///
/// # References
///
/// Liu, "On the storage requirement in the out-of-core multifrontal method for sparse factorization",
/// ACM TOMS 12 (1986).
pub(super) fn depth_first(model: &OrderModel) -> Vec<u32> {
    let made: Vec<u64> =
        model.nodes.iter().map(|node| model.size_of(node.writes.iter().copied())).collect();
    let mut before: Vec<Vec<u32>> = vec![Vec::new(); model.nodes.len()];
    for (index, node) in (0..).zip(&model.nodes) {
        for &dependent in &node.dependents {
            before[at(dependent)].push(index);
        }
    }
    let mut needed = vec![0; model.nodes.len()];
    let by_need = |operands: &mut [u32], needed: &[u64]| {
        let beside = |node: usize| needed[node].saturating_sub(made[node]);
        operands.sort_by_key(|&node| (Reverse(beside(at(node))), node));
    };
    for &node in &model.given {
        let operands = &mut before[at(node)];
        by_need(operands, &needed);
        let (mut live, mut most) = (0_u64, 0_u64);
        for operand in operands.iter().map(|&operand| at(operand)) {
            most = most.max(live.saturating_add(needed[operand]));
            live = live.saturating_add(made[operand]);
        }
        needed[at(node)] = most.max(live.saturating_add(made[at(node)]));
    }
    let is_last = |&node: &u32| model.nodes[at(node)].dependents.is_empty();
    let mut last: Vec<u32> = model.given.iter().copied().filter(is_last).collect();
    by_need(&mut last, &needed);
    let mut order = Vec::with_capacity(model.nodes.len());
    let mut is_listed = vec![false; model.nodes.len()];
    for root in last {
        // The nodes from the root down, each with the number of visited operands.
        let mut path = vec![(root, 0)];
        while let Some((node, looked)) = path.last_mut() {
            let next = before[at(*node)].get(*looked).copied();
            *looked += 1;
            match next {
                Some(operand) if !is_listed[at(operand)] => path.push((operand, 0)),
                Some(_) => {}
                None => {
                    if !core::mem::replace(&mut is_listed[at(*node)], true) {
                        order.push(*node);
                    }
                    path.pop();
                }
            }
        }
    }
    order
}
