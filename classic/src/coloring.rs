//! Node colors: a cover of the graph by long paths.
//!
//! [`color_nodes`] is the coloring in `MXNet`'s memory planner: the graph is covered with long
//! paths, whose nodes can never run at the same time, and each path gets a color. Colors are an
//! estimate of [`Reachability`](arenaplan::graph::Reachability), which is exact.

use alloc::{format, vec, vec::Vec};

use crate::error::{Error, Result};
use arenaplan::Error as Core;
use arenaplan::base::NodeId;
use arenaplan::graph::Graph;

/// A color for every node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Coloring {
    colors: Vec<u32>,
    count: u32,
}

impl Coloring {
    /// Returns every node's color, by [`NodeId`].
    pub fn colors(&self) -> &[u32] {
        &self.colors
    }

    /// Returns a node's color.
    pub fn color(&self, node: NodeId) -> u32 {
        self.colors[node.index()]
    }

    /// Returns the number of colors: the paths that were found, and one color for the rest.
    pub const fn count(&self) -> u32 {
        self.count
    }

    /// Returns the color of values on no path, such as values that no node produces.
    pub const fn rest(&self) -> u32 {
        self.count - 1
    }
}

/// Returns colors for the nodes of `graph`, at most `most` colors.
///
/// Color 0 is the longest path along data operands, color 1 the longest among the remaining nodes,
/// and so on; a path may run through nodes that already have a color, but does not count them.
/// Nodes on none of the first `most - 1` paths share the last color. Control dependencies are not
/// part of a path.
///
/// # Errors
///
/// [`Error::InvalidOption`](arenaplan::Error::InvalidOption) if `most` is 0.
///
/// # References
///
/// The coloring in NNVM's memory planner, whose environment option is `NNVM_EXEC_NUM_TEMP`.
///
/// ```
/// use arenaplan_classic::coloring::color_nodes;
/// use arenaplan::{DType, Graph, Node, Value, ValueKind};
///
/// let mut builder = Graph::builder("fork");
/// let mut value = |name| Value::new(name, ValueKind::Activation, DType::UINT8, [1]);
/// let [a, b, c] = [value("a")?, value("b")?, value("c")?].map(|v| builder.add_value(v));
/// builder.add_node(Node::new("a", "Op").writes([a]));
/// builder.add_node(Node::new("b", "Op").reads([a]).writes([b]));
/// builder.add_node(Node::new("c", "Op").reads([a]).writes([c]));
/// let graph = builder.build()?;
/// // Two paths of the same length: the one whose end runs last.
/// assert_eq!(color_nodes(&graph, 2)?.colors(), [0, 1, 0]);
/// # Ok::<(), arenaplan_classic::Error>(())
/// ```
pub fn color_nodes(graph: &Graph, most: u32) -> Result<Coloring> {
    color_weighted(graph, &vec![1; graph.nodes().len()], most)
}

/// Returns colors where a path is worth the sum of its nodes' `importance`.
///
/// # Errors
///
/// [`Error::InvalidOption`](arenaplan::Error::InvalidOption) if `most` is 0, or `importance` does not have one entry per node.
pub fn color_weighted(graph: &Graph, importance: &[u32], most: u32) -> Result<Coloring> {
    if most == 0 {
        let reason = "there must be a color for the nodes that are on no path".into();
        return Err(Error::Core(Core::InvalidOption { option: "num_temp", reason }));
    }
    if importance.len() != graph.nodes().len() {
        let reason = format!("{} entries for {} nodes", importance.len(), graph.nodes().len());
        return Err(Error::Core(Core::InvalidOption { option: "importance", reason }));
    }
    let order = graph.order();
    let operands = Operands::new(graph);
    let mut left: Vec<u32> = order.iter().map(|id| importance[id.index()]).collect();
    let mut colors: Vec<Option<u32>> = vec![None; importance.len()];
    let mut color = 0;
    while color < most - 1 {
        let path = best_path(&operands, &left);
        if path.is_empty() {
            break;
        }
        for position in path {
            if core::mem::take(&mut left[position]) > 0 {
                colors[order[position].index()] = Some(color);
            }
        }
        color += 1;
    }
    let colors = colors.into_iter().map(|found| found.unwrap_or(color)).collect();
    Ok(Coloring { colors, count: color + 1 })
}

/// The operand producers of each node; nodes by position in the order.
///
/// Every path takes a walk over all nodes. Unlike the graph, this table is small and read
/// sequentially.
struct Operands {
    producers: Vec<usize>,
    /// For each node: the end of the node's part in `producers`.
    ends: Vec<usize>,
}

impl Operands {
    fn new(graph: &Graph) -> Self {
        let mut position_of = vec![0; graph.nodes().len()];
        for (position, id) in graph.order().iter().enumerate() {
            position_of[id.index()] = position;
        }
        let (mut producers, mut ends) = (Vec::new(), Vec::new());
        for &id in graph.order() {
            let inputs = graph.node(id).inputs().iter().flatten();
            let found = inputs.filter_map(|&value| graph.producer(value));
            producers.extend(found.map(|producer| position_of[producer.index()]));
            ends.push(producers.len());
        }
        Self { producers, ends }
    }

    /// Returns the operand producers of a node, in operand order.
    fn of(&self, position: usize) -> &[usize] {
        let start = if position == 0 { 0 } else { self.ends[position - 1] };
        &self.producers[start..self.ends[position]]
    }
}

/// Returns the path with the largest sum of importance, or nothing if all sums are 0.
///
/// Of equal paths, the path that starts last in the order is returned; of successors with equal
/// sums, the path takes the successor that runs last.
fn best_path(operands: &Operands, importance: &[u32]) -> Vec<usize> {
    let mut reward = vec![0_u64; importance.len()];
    let mut next: Vec<Option<usize>> = vec![None; importance.len()];
    let mut best = None;
    let mut most = 0;
    for position in (0..importance.len()).rev() {
        reward[position] += u64::from(importance[position]);
        let own = reward[position];
        if own > most {
            most = own;
            best = Some(position);
        }
        for &producer in operands.of(position) {
            if own > reward[producer] {
                reward[producer] = own;
                next[producer] = Some(position);
            }
        }
    }
    core::iter::successors(best, |&position| next[position]).collect()
}
