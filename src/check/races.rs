//! Races: bytes that two nodes use, at least one for writing, although either node may run first. A
//! plan that is safe in every order must have no races.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::{format, vec, vec::Vec};
use core::ops::Range;

use crate::base::{Error, NodeId, Result, quoted};
use crate::graph::Graph;

/// The nodes that used a stretch of memory since the last write.
#[derive(Clone, Debug)]
struct UsedStretch {
    end: u64,
    /// `None` for the caller, whose accesses end before the run.
    writer: Option<NodeId>,
    readers: Vec<NodeId>,
}

/// Memory that stores the users of every byte, and the resulting dependencies.
#[derive(Debug, Default)]
pub(super) struct Races {
    spaces: BTreeMap<u32, BTreeMap<u64, UsedStretch>>,
    /// The first must run before the second; with a byte that both use.
    pairs: BTreeMap<(NodeId, NodeId), ByteConflict>,
}

/// How two nodes use a byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ByteConflict {
    pub(super) space: u32,
    pub(super) byte: u64,
    /// Whether the second reads bytes that the first wrote.
    pub(super) reads_written: bool,
    /// Whether the second writes bytes that the first read.
    pub(super) writes_read: bool,
}

impl Races {
    /// Notes that `node` reads `span`.
    pub(super) fn read(&mut self, space: u32, span: Range<u64>, node: NodeId) {
        self.use_bytes(space, span, node, false);
    }

    /// Notes that `node` writes `span`.
    pub(super) fn write(&mut self, space: u32, span: Range<u64>, node: NodeId) {
        self.use_bytes(space, span, node, true);
    }

    fn use_bytes(&mut self, space: u32, span: Range<u64>, node: NodeId, is_write: bool) {
        if span.is_empty() {
            return;
        }
        let stretches = self.spaces.entry(space).or_default();
        split(stretches, span.start);
        split(stretches, span.end);
        let mut covered = span.start;
        let mut gaps = Vec::new();
        for (&start, stretch) in stretches.range_mut(span.clone()) {
            if covered < start {
                gaps.push(covered..start);
            }
            covered = stretch.end;
            let writer = stretch.writer.iter().map(|&other| (other, true));
            let readers = stretch.readers.iter().filter(|_| is_write).map(|&other| (other, false));
            for (other, wrote) in writer.chain(readers).filter(|&(other, _)| other != node) {
                let (reads_written, writes_read) = (wrote && !is_write, !wrote);
                let conflict = ByteConflict { space, byte: start, reads_written, writes_read };
                let known = self.pairs.entry((other, node)).or_insert(conflict);
                known.reads_written |= reads_written;
                known.writes_read |= writes_read;
            }
            if is_write {
                stretch.writer = Some(node);
                stretch.readers.clear();
            } else if stretch.readers.last() != Some(&node) {
                stretch.readers.push(node);
            }
        }
        if covered < span.end {
            gaps.push(covered..span.end);
        }
        for Range { start, end } in gaps {
            let (writer, readers) =
                if is_write { (Some(node), Vec::new()) } else { (None, vec![node]) };
            stretches.insert(start, UsedStretch { end, writer, readers });
        }
    }

    /// Returns the pairs; the first node must run before the second.
    pub(super) fn into_pairs(self) -> impl Iterator<Item = (NodeId, NodeId, ByteConflict)> {
        self.pairs.into_iter().map(|((first, second), conflict)| (first, second, conflict))
    }

    /// Refuses a pair whose second node can run before the first. Each entry in `steps` names a
    /// step's nodes; the last node represents the step, which waits for the predecessors of all its
    /// nodes.
    ///
    /// Handles 64 first nodes at a time: `O(first nodes / 64 · edges)`.
    pub(super) fn check(self, graph: &Graph, steps: &[&[NodeId]]) -> Result<()> {
        let before = before(graph, steps);
        let open = self.pairs.into_iter();
        let open: Vec<_> =
            open.filter(|((first, second), _)| !before[second.index()].contains(first)).collect();
        let firsts: BTreeSet<NodeId> = open.iter().map(|&((first, _), _)| first).collect();
        let firsts: Vec<NodeId> = firsts.into_iter().collect();
        let mut open = open.into_iter().peekable();
        for batch in firsts.chunks(64) {
            let mut mask = vec![0_u64; graph.nodes().len()];
            batch.iter().enumerate().for_each(|(bit, first)| mask[first.index()] = 1 << bit);
            let mut reached = vec![0_u64; graph.nodes().len()];
            for &id in steps.iter().filter_map(|nodes| nodes.last()) {
                let known = before[id.index()].iter().map(|it| reached[it.index()]);
                reached[id.index()] = known.fold(mask[id.index()], |all, some| all | some);
            }
            let last = *batch.last().expect("chunks are not empty");
            while let Some(((first, second), ByteConflict { byte, .. })) =
                open.next_if(|((first, _), _)| *first <= last)
            {
                if reached[second.index()] & mask[first.index()] == 0 {
                    let name = |id| format!("what node {} uses", quoted(graph.node(id).name()));
                    let is_there = |nodes: &&[NodeId]| nodes.last() == Some(&second);
                    let step = steps.iter().position(is_there).unwrap_or_default();
                    return Err(Error::PlanOverlap {
                        first: name(first),
                        second: name(second),
                        step: u32::try_from(step).unwrap_or(u32::MAX),
                        byte,
                    });
                }
            }
        }
        Ok(())
    }
}

/// Returns, by each step's last node, the preceding steps' last nodes.
fn before(graph: &Graph, steps: &[&[NodeId]]) -> Vec<Vec<NodeId>> {
    let mut last_of = vec![None; graph.nodes().len()];
    for nodes in steps {
        nodes.iter().for_each(|id| last_of[id.index()] = nodes.last().copied());
    }
    // For a node that runs again inside other steps, the step that ends with the node counts.
    for &last in steps.iter().filter_map(|nodes| nodes.last()) {
        last_of[last.index()] = Some(last);
    }
    let mut before = vec![Vec::new(); graph.nodes().len()];
    for nodes in steps {
        let waits = nodes.iter().flat_map(|&id| graph.dependencies(id));
        let outside = waits.filter(|id| !nodes.contains(id));
        let found = outside.filter_map(|id| last_of[id.index()]).collect();
        if let Some(last) = nodes.last() {
            before[last.index()] = found;
        }
    }
    before
}

/// Cuts the stretch that contains `address` in two there.
fn split(stretches: &mut BTreeMap<u64, UsedStretch>, address: u64) {
    if let Some((_, stretch)) = stretches.range_mut(..address).next_back()
        && stretch.end > address
    {
        let rest = stretch.clone();
        stretch.end = address;
        stretches.insert(address, rest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::ValueId;
    use crate::check::random::numbers;
    use crate::graph::{DType, Node, Value, ValueKind};

    /// Against the definition: the writer and the readers of each of 24 bytes.
    #[test]
    fn pairs_are_those_of_a_table() {
        let mut below = numbers();
        for _ in 0..300 {
            let mut races = Races::default();
            let mut expected = BTreeSet::new();
            let mut table = vec![(None, Vec::new()); 24];
            for step in 0..10 {
                let node = NodeId::new(step / 2);
                let start = below(24);
                let end = start + below(25 - start);
                let is_write = below(3) == 0;
                for byte in start..end {
                    let (writer, readers) = &mut table[usize::try_from(byte).unwrap_or(usize::MAX)];
                    let readers_of_old = readers.iter().filter(|_| is_write);
                    let before = writer.iter().chain(readers_of_old).copied();
                    expected.extend(before.filter(|&it| it != node).map(|it| (it, node)));
                    if is_write {
                        (*writer, *readers) = (Some(node), Vec::new());
                    } else {
                        readers.push(node);
                    }
                }
                if is_write {
                    races.write(0, start..end, node);
                } else {
                    races.read(0, start..end, node);
                }
                let found: BTreeSet<_> = races.pairs.keys().copied().collect();
                assert_eq!(found, expected);
            }
        }
    }

    #[test]
    fn a_step_waits_for_what_any_of_its_nodes_waits_for() {
        let mut builder = Graph::builder("steps");
        let mut values: Vec<ValueId> = Vec::new();
        for (index, reads) in [vec![], vec![0], vec![1], vec![2], vec![]].into_iter().enumerate() {
            let value = Value::new(format!("v{index}"), ValueKind::Activation, DType::UINT8, [1]);
            let value = builder.add_value(value.expect("it is small"));
            let reads: Vec<ValueId> = reads.into_iter().map(|read: usize| values[read]).collect();
            builder.add_node(Node::new(format!("n{index}"), "Op").reads(reads).writes([value]));
            values.push(value);
        }
        let graph = builder.build().expect("it has no cycle");
        let ids: Vec<_> = (0..5).map(NodeId::new).collect();
        let steps = [&ids[..1], &ids[1..3], &ids[3..4], &ids[4..]];
        let found = ByteConflict { space: 0, byte: 0, reads_written: false, writes_read: true };
        let check = |first, second| {
            let pairs = BTreeMap::from([((NodeId::new(first), NodeId::new(second)), found)]);
            Races { pairs, ..Races::default() }.check(&graph, &steps)
        };
        for (first, second) in [(0, 2), (2, 3), (0, 3)] {
            assert_eq!(check(first, second), Ok(()));
        }
        assert!(check(0, 4).is_err() && check(2, 4).is_err());
    }

    /// Against the definition: the nodes after each node, more than fit into a mask.
    #[test]
    fn pairs_are_in_order_if_a_path_leads_from_one_to_the_other() {
        const NODES: usize = 150;
        let mut below = numbers();
        let mut builder = Graph::builder("paths");
        let mut values: Vec<ValueId> = Vec::new();
        let mut behind: Vec<BTreeSet<usize>> = Vec::new();
        for index in 0..NODES {
            let value = Value::new(format!("v{index}"), ValueKind::Activation, DType::UINT8, [1]);
            let value = builder.add_value(value.expect("it is small"));
            let reads =
                (0..below(3)).map(|_| usize::try_from(below(1000)).unwrap_or(0) % (index + 1));
            let reads: BTreeSet<usize> = reads.filter(|&read| read < index).collect();
            let before = reads.iter().flat_map(|&read| behind[read].iter().copied().chain([read]));
            let before = before.collect();
            let node = Node::new(format!("n{index}"), "Op").writes([value]);
            let node = node.reads(reads.into_iter().map(|read| values[read]));
            builder.add_node(node);
            values.push(value);
            behind.push(before);
        }
        let graph = builder.build().expect("it has no cycle");
        let order: Vec<_> = (0..NODES).map(NodeId::new).collect();
        let steps: Vec<&[NodeId]> = order.chunks(1).collect();
        let found = ByteConflict { space: 0, byte: 5, reads_written: true, writes_read: false };
        let pair = |first, second| ((NodeId::new(first), NodeId::new(second)), found);
        let paths =
            || (0..NODES).flat_map(|second| behind[second].iter().map(move |&it| pair(it, second)));
        let check =
            |pairs: BTreeMap<_, _>| Races { pairs, ..Races::default() }.check(&graph, &steps);
        assert_eq!(check(paths().collect()), Ok(()));
        for second in (0..NODES).step_by(7) {
            let Some(first) = (0..second).rev().find(|it| !behind[second].contains(it)) else {
                continue;
            };
            let name = |index| format!("what node 'n{index}' uses");
            let step = u32::try_from(second).unwrap_or(u32::MAX);
            let (first, refused) = (name(first), paths().chain([pair(first, second)]).collect());
            let error = Error::PlanOverlap { first, second: name(second), step, byte: 5 };
            assert_eq!(check(refused), Err(error));
        }
    }
}
