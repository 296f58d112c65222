//! Graphs in which nodes that may run again run once for each reader.

use alloc::collections::BTreeSet;
use alloc::{vec, vec::Vec};

use crate::base::{NodeId, ValueId};
use crate::graph::{Graph, ValueKind};

/// Pairs of a node that may run again and a reader that still reads the node's output from memory.
pub(crate) type Stored = BTreeSet<(NodeId, NodeId)>;

/// A graph in which each reader of a node that [repeats](crate::graph::Effects::repeats) has a
/// separate copy of the node. The graph serves to find groups and is never planned.
pub(crate) struct Repeated {
    pub(crate) graph: Graph,
    /// For each node of `graph`: the original node.
    pub(crate) origin: Vec<NodeId>,
}

impl Graph {
    /// Returns whether a node could run again for each reader.
    pub(crate) fn has_repeats(&self) -> bool {
        self.nodes.iter().any(|node| node.effects.repeats)
    }

    /// Returns the graph in which each reader of a repeating node has a separate copy of the node,
    /// except readers in `stored`; `None` if too many nodes are copied.
    ///
    /// A reader that is copied counts once per copy, so chains of such nodes are copied as a whole.
    pub(crate) fn repeated(&self, stored: &Stored) -> Option<Repeated> {
        let most = 2 * self.nodes.len() + 64;
        let mut graph = self.clone();
        let mut origin: Vec<NodeId> = (0..self.nodes.len()).map(NodeId::new).collect();
        let mut users = self.users();
        // For each node: the copies, which run at the node's place.
        let mut copies: Vec<Vec<NodeId>> = vec![Vec::new(); self.nodes.len()];
        for &id in self.order.iter().rev() {
            let node = self.node(id);
            let Some((_, value)) = node.produces().next().filter(|_| node.effects.repeats) else {
                continue;
            };
            let mut readers = core::mem::take(&mut users[value.index()]);
            readers.dedup();
            // The original node serves graph outputs and readers of the node's memory.
            let is_stored = |reader: &NodeId| stored.contains(&(id, origin[reader.index()]));
            let (kept, mut others): (Vec<_>, Vec<_>) = readers.into_iter().partition(is_stored);
            if kept.is_empty() && !self.outputs.contains(&value) && !others.is_empty() {
                others.remove(0);
            }
            for reader in others {
                if graph.nodes.len() >= most {
                    return None;
                }
                let copy = NodeId::new(graph.nodes.len());
                let made = ValueId::new(graph.values.len());
                graph.values.push(self.value(value).clone());
                graph.producers.push(Some(copy));
                users.push(Vec::new());
                let mut twin = node.clone();
                for output in twin.outputs.iter_mut().flatten() {
                    *output = made;
                }
                for input in twin.inputs.iter().flatten() {
                    users[input.index()].push(copy);
                }
                let operands = graph.nodes[reader.index()].inputs.iter_mut().flatten();
                operands.filter(|operand| **operand == value).for_each(|operand| *operand = made);
                graph.nodes.push(twin);
                origin.push(id);
                copies[id.index()].push(copy);
            }
        }
        let runs = self
            .order
            .iter()
            .flat_map(|&id| core::iter::once(id).chain(copies[id.index()].iter().copied()));
        graph.order = runs.collect();
        debug_assert!(graph.is_topological(&graph.order));
        debug_assert!(graph.values.iter().all(|value| value.kind != ValueKind::Inner));
        Some(Repeated { graph, origin })
    }
}
