//! Dependence of nodes: colors of long paths, and reachability.
//!
//! [`color_nodes`] is the coloring of `MXNet`'s memory planner: it covers the graph with
//! long paths, whose nodes can never run at the same time, and gives each path a color.
//! [`Reachability`] answers exactly whether one node runs before another in *every* order that
//! the graph permits; coloring is an estimate of it.

use crate::error::{Error, Result};
use crate::graph::Graph;
use crate::index::NodeId;

/// A color for every node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Coloring {
    colors: Vec<u32>,
    count: u32,
}

impl Coloring {
    /// Returns the color of every node, by [`NodeId`].
    pub fn colors(&self) -> &[u32] {
        &self.colors
    }

    /// Returns the color of one node.
    pub fn color(&self, node: NodeId) -> u32 {
        self.colors[node.index()]
    }

    /// Returns the number of colors: the paths that were found, and one for the rest.
    pub const fn count(&self) -> u32 {
        self.count
    }

    /// Returns the color of values on no path, such as values that no node produces.
    pub const fn rest(&self) -> u32 {
        self.count - 1
    }
}

/// Returns colors for the nodes of `graph`, at most `most` of them.
///
/// Color 0 is the longest path along data operands, color 1 the longest among the remaining nodes,
/// and so on; a path may run through nodes that have a color already, but does not count them.
/// Nodes on none of the first `most - 1` paths share the last color.
/// Control dependencies are not part of a path.
///
/// # Errors
///
/// [`Error::InvalidOption`] if `most` is 0.
///
/// # References
///
/// The coloring of NNVM's memory planner, whose environment option is `NNVM_EXEC_NUM_TEMP`.
///
/// ```
/// use arenaplan::{DType, Graph, Node, Value, ValueKind, color_nodes};
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
/// # Ok::<(), arenaplan::Error>(())
/// ```
pub fn color_nodes(graph: &Graph, most: u32) -> Result<Coloring> {
    color_weighted(graph, &vec![1; graph.nodes().len()], most)
}

/// Returns colors where a path is worth the sum of its nodes' `importance`.
///
/// # Errors
///
/// [`Error::InvalidOption`] if `most` is 0, or `importance` does not have one entry per node.
pub fn color_weighted(graph: &Graph, importance: &[u32], most: u32) -> Result<Coloring> {
    if most == 0 {
        let reason = "there must be a color for the nodes that are on no path".into();
        return Err(Error::InvalidOption { option: "num_temp", reason });
    }
    if importance.len() != graph.nodes().len() {
        let reason = format!("{} entries for {} nodes", importance.len(), graph.nodes().len());
        return Err(Error::InvalidOption { option: "importance", reason });
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
            if std::mem::take(&mut left[position]) > 0 {
                colors[order[position].index()] = Some(color);
            }
        }
        color += 1;
    }
    let colors = colors.into_iter().map(|found| found.unwrap_or(color)).collect();
    Ok(Coloring { colors, count: color + 1 })
}

/// The producers of the operands of each node; nodes by position in the order.
///
/// Every path is found by a walk over all nodes. This is small and read from one end to the
/// other, which the graph is not.
struct Operands {
    producers: Vec<usize>,
    /// By node: the end of its part of `producers`.
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

    /// Returns the producers of the operands of a node, in the order of the operands.
    fn of(&self, position: usize) -> &[usize] {
        let start = if position == 0 { 0 } else { self.ends[position - 1] };
        &self.producers[start..self.ends[position]]
    }
}

/// Returns the path with the largest sum of importance, or nothing if all sums are 0.
///
/// Of several, it starts as late as possible in the order; where several successors are
/// worth the same, it goes on to the one that runs last.
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
    std::iter::successors(best, |&position| next[position]).collect()
}

/// Most entries of the table that [`Reachability`] keeps: 256 MiB.
const MOST_ENTRIES: usize = 1 << 26;

/// The reachability relation of a graph: pairs of nodes that run in this sequence in every order
/// that the graph permits.
///
/// Nodes are cut into chains in which each depends on the one before. For every node and
/// chain one number is kept: how many nodes of the chain come before the node. That takes
/// `O(n · chains)` time and memory; real networks have few chains. Where the table would
/// be larger than 256 MiB the shortest chains are left out, and nothing is claimed of
/// their nodes.
#[derive(Clone, Debug)]
pub struct Reachability {
    /// By node: its chain (`chains` or more if the node is in none) and its position in the chain.
    place: Vec<(usize, u32)>,
    /// By node, then chain: how many nodes of the chain come before it.
    before: Vec<u32>,
    chains: usize,
    descendants: Vec<u32>,
}

impl Reachability {
    /// Returns the reachability relation of `graph`.
    #[must_use]
    pub fn new(graph: &Graph) -> Self {
        Self::with_limit(graph, MOST_ENTRIES)
    }

    /// Returns the relation with a table of at most `entries`.
    fn with_limit(graph: &Graph, entries: usize) -> Self {
        let nodes = graph.nodes().len();
        let (place, all) = chains(graph);
        let chains = all.min(entries / nodes.max(1));
        let mut before = vec![0_u32; nodes * chains];
        for &id in graph.order() {
            let row = id.index() * chains;
            for dependency in graph.dependencies(id) {
                let from = dependency.index() * chains;
                for chain in 0..chains {
                    before[row + chain] = before[row + chain].max(before[from + chain]);
                }
                let (chain, at) = place[dependency.index()];
                if chain < chains {
                    before[row + chain] = before[row + chain].max(at + 1);
                }
            }
        }
        let mut result = Self { place, before, chains, descendants: Vec::new() };
        result.descendants = result.count_descendants(nodes);
        result
    }

    /// Returns whether `first` runs before `second` in every order.
    ///
    /// `false` if the table had no room for the answer.
    pub fn is_before(&self, first: NodeId, second: NodeId) -> bool {
        let (chain, at) = self.place[first.index()];
        chain < self.chains && self.before[second.index() * self.chains + chain] > at
    }

    /// Returns how many nodes are known to run before `node` in every order.
    pub fn ancestors(&self, node: NodeId) -> u32 {
        let row = node.index() * self.chains;
        self.before[row..row + self.chains].iter().sum()
    }

    /// Returns how many nodes are known to run after `node` in every order.
    pub fn descendants(&self, node: NodeId) -> u32 {
        self.descendants[node.index()]
    }

    /// Counts, for every node, the nodes whose rows say that it comes before them.
    fn count_descendants(&self, nodes: usize) -> Vec<u32> {
        let mut lengths = vec![0; self.chains];
        for &(chain, _) in self.place.iter().filter(|(chain, _)| *chain < self.chains) {
            lengths[chain] += 1;
        }
        // By chain and place: rows in which the chain's count ends there.
        let mut ends: Vec<Vec<u32>> =
            lengths.iter().map(|&length: &usize| vec![0; length + 1]).collect();
        for node in 0..nodes {
            for (chain, ends) in ends.iter_mut().enumerate() {
                let count = self.before[node * self.chains + chain];
                ends[usize::try_from(count).expect("chains are shorter than 2^32")] += 1;
            }
        }
        for ends in &mut ends {
            let mut after = 0;
            for end in ends.iter_mut().rev() {
                after += *end;
                *end = after;
            }
        }
        let after = |&(chain, at): &(usize, u32)| match ends.get(chain) {
            // A count above `at` includes the node at `at`.
            Some(ends) => ends[usize::try_from(at).expect("chains are shorter than 2^32") + 1],
            None => 0,
        };
        self.place.iter().map(after).collect()
    }
}

/// Cuts the nodes into chains, longest first; returns each node's chain and place, and the
/// number of chains.
fn chains(graph: &Graph) -> (Vec<(usize, u32)>, usize) {
    let mut place = vec![(0, 0); graph.nodes().len()];
    let mut tails: Vec<NodeId> = Vec::new();
    for &id in graph.order() {
        let found = graph.dependencies(id).find(|dependency| {
            let (chain, _) = place[dependency.index()];
            tails[chain] == *dependency
        });
        place[id.index()] = if let Some(last) = found {
            let (chain, at) = place[last.index()];
            tails[chain] = id;
            (chain, at + 1)
        } else {
            tails.push(id);
            (tails.len() - 1, 0)
        };
    }
    let length = |chain: usize| place[tails[chain].index()].1;
    let mut longest: Vec<usize> = (0..tails.len()).collect();
    longest.sort_by_key(|&chain| std::cmp::Reverse(length(chain)));
    let mut rank = vec![0; tails.len()];
    longest.iter().enumerate().for_each(|(position, &chain)| rank[chain] = position);
    for (chain, _) in &mut place {
        *chain = rank[*chain];
    }
    (place, tails.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{DType, Node, Value, ValueKind};

    /// Builds a graph whose node `k` reads the outputs of the nodes in `reads[k]`.
    fn graph(reads: &[Vec<usize>]) -> Graph {
        let mut builder = Graph::builder("edges");
        let mut values = Vec::new();
        for (index, inputs) in reads.iter().enumerate() {
            let name = format!("v{index}");
            let value =
                Value::new(&*name, ValueKind::Activation, DType::UINT8, [1]).expect("a byte");
            let value = builder.add_value(value);
            let inputs = inputs.iter().map(|&input| values[input]);
            builder
                .add_node(Node::new(name, "Op").reads(inputs.collect::<Vec<_>>()).writes([value]));
            values.push(value);
        }
        builder.build().expect("a valid graph")
    }

    /// All pairs, by walking from every node.
    fn closure(reads: &[Vec<usize>]) -> Vec<Vec<bool>> {
        let mut before = vec![vec![false; reads.len()]; reads.len()];
        for node in 0..reads.len() {
            for &input in &reads[node] {
                for (first, row) in before.iter_mut().enumerate() {
                    row[node] |= first == input || row[input];
                }
            }
        }
        before
    }

    #[test]
    fn reachability_is_the_transitive_closure_and_its_counts() {
        let mut seed = 1_u64;
        let mut random = |limit: usize| {
            seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            usize::try_from(seed >> 33).expect("31 bits") % limit
        };
        for _ in 0..300 {
            let nodes = 1 + random(14);
            let reads: Vec<Vec<usize>> =
                (0..nodes).map(|node| (0..node).filter(|_| random(4) == 0).collect()).collect();
            let (graph, truth) = (graph(&reads), closure(&reads));
            let exact = Reachability::new(&graph);
            let limited = Reachability::with_limit(&graph, 2 * nodes);
            for second in 0..nodes {
                let id = NodeId::new(second);
                for (first, row) in truth.iter().enumerate() {
                    assert_eq!(exact.is_before(NodeId::new(first), id), row[second]);
                    assert!(!limited.is_before(NodeId::new(first), id) || row[second]);
                }
                let ancestors = truth.iter().filter(|row| row[second]).count();
                let descendants = truth[second].iter().filter(|&&after| after).count();
                assert_eq!(exact.ancestors(id), u32::try_from(ancestors).expect("few"));
                assert_eq!(exact.descendants(id), u32::try_from(descendants).expect("few"));
                assert!(limited.ancestors(id) <= exact.ancestors(id));
                assert!(limited.descendants(id) <= exact.descendants(id));
            }
        }
    }
}
