//! Tests topological orders, and makes a stable order.

use alloc::collections::BinaryHeap;
use alloc::{string::String, vec, vec::Vec};
use core::cmp::Reverse;

use crate::base::{Error, NodeId, Result, quoted};
use crate::graph::Node;

/// Returns the dependencies of `node`: operand producers and control dependencies.
pub(super) fn dependencies<'a>(
    node: &'a Node,
    producers: &'a [Option<NodeId>],
) -> impl Iterator<Item = NodeId> + 'a {
    let data = node.inputs.iter().flatten().filter_map(|value| producers[value.index()]);
    data.chain(node.after.iter().copied())
}

/// Returns whether `order` runs every node once, after the node's dependencies.
pub(super) fn is_topological(
    nodes: &[Node],
    producers: &[Option<NodeId>],
    order: &[NodeId],
) -> bool {
    if order.len() != nodes.len() {
        return false;
    }
    let mut done = vec![false; nodes.len()];
    for &id in order {
        let Some(node) = nodes.get(id.index()) else { return false };
        let ready = dependencies(node, producers).all(|dependency| done[dependency.index()]);
        if !ready || core::mem::replace(&mut done[id.index()], true) {
            return false;
        }
    }
    true
}

/// Returns a topological order. Among nodes that could run next, the node that was added first is
/// taken.
pub(super) fn stable_sort(nodes: &[Node], producers: &[Option<NodeId>]) -> Result<Vec<NodeId>> {
    let mut waiting = vec![0_usize; nodes.len()];
    let mut dependents = vec![Vec::new(); nodes.len()];
    for (index, node) in nodes.iter().enumerate() {
        for dependency in dependencies(node, producers) {
            waiting[index] += 1;
            dependents[dependency.index()].push(index);
        }
    }
    let mut ready: BinaryHeap<_> =
        (0..nodes.len()).filter(|&index| waiting[index] == 0).map(Reverse).collect();
    let mut order = Vec::with_capacity(nodes.len());
    while let Some(Reverse(index)) = ready.pop() {
        order.push(NodeId::new(index));
        for &dependent in &dependents[index] {
            waiting[dependent] -= 1;
            if waiting[dependent] == 0 {
                ready.push(Reverse(dependent));
            }
        }
    }
    if order.len() == nodes.len() {
        Ok(order)
    } else {
        Err(Error::GraphCycle { nodes: cycle(nodes, producers, &waiting) })
    }
}

/// Returns the names of at most ten nodes on a cycle among those still waiting.
fn cycle(nodes: &[Node], producers: &[Option<NodeId>], waiting: &[usize]) -> Vec<String> {
    const MOST: usize = 10;
    // Every waiting node depends on a waiting node, so walking back must repeat a node.
    let start = waiting.iter().position(|&count| count > 0).expect("some node waits");
    let mut place = vec![None; nodes.len()];
    let mut path = Vec::new();
    let mut at = start;
    while place[at].is_none() {
        place[at] = Some(path.len());
        path.push(at);
        at = dependencies(&nodes[at], producers)
            .map(NodeId::index)
            .find(|&dependency| waiting[dependency] > 0)
            .expect("a waiting node waits for a waiting node");
    }
    let mut names: Vec<_> = path[place[at].expect("the walk came back here")..]
        .iter()
        .rev()
        .map(|&index| quoted(nodes[index].name()))
        .collect();
    if names.len() > MOST {
        names.truncate(MOST);
        names.push("…".into());
    }
    names
}
