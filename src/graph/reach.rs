//! Reachability: which node runs before which in every order that a graph permits.

use alloc::{vec, vec::Vec};

use crate::base::NodeId;
use crate::graph::Graph;

/// Most table entries in a [`Reachability`]: 256 MiB.
const MOST_ENTRIES: usize = 1 << 26;

/// The reachability relation of a graph: pairs of nodes that run in this sequence in every
/// permitted order.
///
/// Nodes are cut into chains in which each node depends on the previous node. The table has for
/// every node and chain the number of chain nodes that come before the node. The table takes
/// `O(n · chains)` time and memory; real networks have few chains. If the table would be larger
/// than 256 MiB the shortest chains are left out, and nothing is claimed about nodes in those
/// chains.
#[derive(Clone, Debug)]
pub struct Reachability {
    /// For each node: the chain (`chains` or more if the node is in no chain) and the position in
    /// the chain.
    place: Vec<(usize, u32)>,
    /// For each node, then chain: the number of chain nodes before the node.
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

    /// Counts for every node the rows that have the node before another node.
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

/// Returns the index of a pair whose second node may run before the first, if any.
///
/// Walks the graph once for 64 nodes that come first: `O(nodes / 64 · edges)` time.
pub(crate) fn unordered(graph: &Graph, pairs: &[(NodeId, NodeId)]) -> Option<usize> {
    let direct = |first, second| graph.dependencies(second).any(|before| before == first);
    let mut open: Vec<usize> =
        (0..pairs.len()).filter(|&at| !direct(pairs[at].0, pairs[at].1)).collect();
    open.sort_by_key(|&at| pairs[at].0);
    let mut open = &open[..];
    while let Some(&lowest) = open.first() {
        let lowest = pairs[lowest].0.index();
        let batch = open.partition_point(|&at| pairs[at].0.index() < lowest + 64);
        // For each node: the nodes in the batch from which a path leads to the node, one bit each.
        let mut reached = vec![0_u64; graph.nodes().len()];
        for &id in graph.order() {
            let own = id.index().checked_sub(lowest).filter(|&bit| bit < 64);
            let before = graph.dependencies(id).map(|before| reached[before.index()]);
            reached[id.index()] =
                before.fold(own.map_or(0, |bit| 1 << bit), |all, some| all | some);
        }
        let apart = |at: &usize| {
            let (first, second) = pairs[*at];
            reached[second.index()] & (1 << (first.index() - lowest)) == 0
        };
        if let Some(found) = open[..batch].iter().copied().find(apart) {
            return Some(found);
        }
        open = &open[batch..];
    }
    None
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
    longest.sort_by_key(|&chain| core::cmp::Reverse(length(chain)));
    let mut rank = vec![0; tails.len()];
    longest.iter().enumerate().for_each(|(position, &chain)| rank[chain] = position);
    for (chain, _) in &mut place {
        *chain = rank[*chain];
    }
    (place, tails.len())
}

#[cfg(test)]
mod tests {
    use alloc::{format, vec, vec::Vec};

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
                    let apart = unordered(&graph, &[(NodeId::new(first), id)]).is_some();
                    assert_eq!(apart, first != second && !row[second]);
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

    /// More first nodes than one walk looks at.
    #[test]
    fn the_pair_without_a_path_is_found_among_many() {
        // Two chains, of 150 and 50 nodes.
        let reads = (0..200_usize).map(|node| match node {
            0 | 150 => vec![],
            _ => vec![node - 1],
        });
        let graph = graph(&reads.collect::<Vec<_>>());
        let id = NodeId::new;
        let pairs = |end: usize| (0..end).rev().map(move |at| (id(at), id(end)));
        let within: Vec<_> = pairs(149).chain((150..199).map(|at| (id(at), id(199)))).collect();
        assert_eq!(unordered(&graph, &within), None);
        let across: Vec<_> = within.iter().copied().chain([(id(149), id(150))]).collect();
        assert_eq!(unordered(&graph, &across), Some(within.len()));
        assert_eq!(unordered(&graph, &[(id(3), id(2))]), Some(0));
    }
}
