//! Values that replace an input or a state at the same address: donation.

use alloc::{format, vec, vec::Vec};

use crate::base::{Error, NodeId, Result, ValueId, quoted};
use crate::graph::{Node, Value, ValueKind, Whole};

/// Most nodes that are visited to leave out edges that follow from others.
const MOST_VISITED: usize = 1 << 26;

/// A value that replaces an input or a state at the same address.
///
/// See [`GraphBuilder::add_write_back`](crate::GraphBuilder::add_write_back).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct WriteBack {
    /// The value that a node makes.
    pub value: ValueId,
    /// The input or state.
    pub into: ValueId,
}

impl WriteBack {
    /// Returns the two values as numbers, for a digest.
    pub(super) fn numbers(self) -> [u64; 2] {
        [self.value, self.into].map(|value| u32::from(value).into())
    }
}

/// Refuses values that cannot replace an input or state at the same address.
pub(super) fn check(
    write_backs: &[WriteBack],
    values: &[Value],
    nodes: &[Node],
    producers: &[Option<NodeId>],
) -> Result<()> {
    let (mut is_value, mut is_into) = (vec![false; values.len()], vec![false; values.len()]);
    for &WriteBack { value, into } in write_backs {
        let [Some(made), Some(home)] = [value, into].map(|it| values.get(it.index())) else {
            let missing = if value.index() < values.len() { into } else { value };
            let user = "a write-back".into();
            return Err(Error::UndefinedValue { user, value: format!("value {missing}") });
        };
        let refuse = |reason: &str| {
            let [value, into] = [made.name(), home.name()].map(quoted);
            Err(Error::InvalidWriteBack { value, into, reason: reason.into() })
        };
        let Some(producer) = producers[value.index()].map(|id| &nodes[id.index()]) else {
            return refuse("no node makes the value");
        };
        if !matches!(home.kind(), ValueKind::Input | ValueKind::State) {
            return refuse("only inputs and states can be replaced");
        }
        if core::mem::replace(&mut is_value[value.index()], true) {
            return refuse("the value replaces another one, too");
        }
        if core::mem::replace(&mut is_into[into.index()], true) {
            return refuse("another value replaces it, too");
        }
        if made.bytes() != home.bytes() {
            return refuse("the two have different sizes");
        }
        if made.space() != home.space() {
            return refuse("the two are in different spaces");
        }
        let pairs = &producer.effects.in_place;
        let may_take = |position: usize| {
            let mut pairs = pairs.iter().filter(|pair| pair.input == position);
            pairs.any(|pair| producer.output(pair.output) == Some(value))
        };
        if !producer.reads_bytes_of().all(|(position, read)| read != into || may_take(position)) {
            return refuse("its producer reads the previous content, and cannot write in place");
        }
        let is_read = producer.reads_bytes_of().any(|(_, read)| read == into);
        let stores = !is_read
            && pairs
                .iter()
                .any(|pair| pair.identity && producer.output(pair.output) == Some(value));
        let mut mutated = producer.effects.mutates.iter().map(|&at| producer.input(at));
        if mutated.any(|state| state == Some(into)) && !stores {
            return refuse("its producer changes the previous content, too");
        }
        if producer.effects.repeats {
            return refuse("its producer may run again");
        }
    }
    Ok(())
}

/// Makes the producer of each value run after the nodes that read the previous content.
///
/// Edges that follow from others are left out. Nodes that read views of the previous content run
/// before, too, unless they need the new value: then a plan copies the view.
///
/// # Errors
///
/// [`Error::InvalidWriteBack`] if a node reads the previous content and needs the value.
pub(super) fn order(
    write_backs: &[WriteBack],
    values: &[Value],
    nodes: &mut [Node],
    producers: &[Option<NodeId>],
) -> Result<()> {
    if write_backs.is_empty() {
        return Ok(());
    }
    let mut edges = Edges::new(nodes, values.len(), producers);
    for &WriteBack { value, into } in write_backs {
        let Some(producer) = producers[value.index()] else { continue };
        let readers = edges.readers[into.index()].clone();
        if let Some(reader) = edges.add(nodes, &readers, producer).first() {
            let [value, into] = [value, into].map(|id| quoted(values[id.index()].name()));
            let reader = quoted(nodes[reader.index()].name());
            let reason = format!("node {reader} reads the previous content, and needs the value");
            return Err(Error::InvalidWriteBack { value, into, reason });
        }
    }
    for &WriteBack { value, into } in write_backs {
        let Some(producer) = producers[value.index()] else { continue };
        let readers = edges.readers_of_views(nodes, into);
        edges.add(nodes, &readers, producer);
    }
    Ok(())
}

/// The dependencies between nodes, in both directions.
struct Edges {
    /// For each value: the nodes that read or mutate the value.
    readers: Vec<Vec<NodeId>>,
    before: Vec<Vec<NodeId>>,
    after: Vec<Vec<NodeId>>,
    /// For each node: the number of the last walk that met the node.
    met: Vec<usize>,
    walks: usize,
    visited: usize,
}

impl Edges {
    fn new(nodes: &[Node], values: usize, producers: &[Option<NodeId>]) -> Self {
        let mut readers = vec![Vec::new(); values];
        let (mut before, mut after) =
            (vec![Vec::new(); nodes.len()], vec![Vec::new(); nodes.len()]);
        for (index, node) in nodes.iter().enumerate() {
            let id = NodeId::new(index);
            let mutated = node.effects.mutates.iter().filter_map(|&position| node.input(position));
            let used = node.reads_bytes_of().map(|(_, value)| value).chain(mutated);
            for value in used.filter(|value| value.index() < values) {
                if readers[value.index()].last() != Some(&id) {
                    readers[value.index()].push(id);
                }
            }
            let made = node.inputs.iter().flatten();
            let made = made.filter_map(|value| *producers.get(value.index())?);
            let known = made.chain(node.after.iter().copied());
            for dependency in known.filter(|dependency| dependency.index() < nodes.len()) {
                before[index].push(dependency);
                after[dependency.index()].push(id);
            }
        }
        let met = vec![0; nodes.len()];
        Self { readers, before, after, met, walks: 0, visited: 0 }
    }

    /// Makes `producer` run after `readers`, and returns the readers that need the producer.
    fn add(&mut self, nodes: &mut [Node], readers: &[NodeId], producer: NodeId) -> Vec<NodeId> {
        let mut others: Vec<NodeId> =
            readers.iter().copied().filter(|&reader| reader != producer).collect();
        others.sort_unstable();
        others.dedup();
        if others.is_empty() {
            return others;
        }
        self.walk(producer, true);
        let met = |this: &Self, node: &NodeId| this.met[node.index()] == this.walks;
        others.retain(|node| !met(self, node));
        self.walk(producer, false);
        let (descendants, free): (Vec<_>, Vec<_>) =
            others.into_iter().partition(|node| met(self, node));
        let node = &mut nodes[producer.index()];
        let added = free.into_iter().filter(|reader| !node.after.contains(reader));
        let added: Vec<NodeId> = added.collect();
        for &reader in &added {
            self.before[producer.index()].push(reader);
            self.after[reader.index()].push(producer);
        }
        node.after = node.after.iter().copied().chain(added).collect();
        descendants
    }

    /// Meets the nodes that come before `start`, or after `start`.
    fn walk(&mut self, start: NodeId, backwards: bool) {
        self.walks += 1;
        let edges = if backwards { &self.before } else { &self.after };
        let mut pending = vec![start];
        while let Some(node) = pending.pop() {
            if self.visited >= MOST_VISITED {
                return;
            }
            for &next in &edges[node.index()] {
                self.visited += 1;
                if self.met[next.index()] != self.walks {
                    self.met[next.index()] = self.walks;
                    pending.push(next);
                }
            }
        }
    }

    /// Returns the nodes that read a value which may show bytes of `value`.
    fn readers_of_views(&self, nodes: &[Node], value: ValueId) -> Vec<NodeId> {
        let mut shown = vec![value];
        let mut readers = Vec::new();
        let mut at = 0;
        while let Some(&value) = shown.get(at) {
            at += 1;
            for &reader in &self.readers[value.index()] {
                let node = &nodes[reader.index()];
                let effects = &node.effects;
                let views = effects.views.iter().filter(|view| view.whole == Whole::Input);
                let views = views.map(|view| (view.input, view.output));
                let copies = effects.in_place.iter().filter(|pair| pair.identity);
                let copies = copies.map(|pair| (pair.input, pair.output));
                let pairs = views.chain(copies).filter(|pair| node.input(pair.0) == Some(value));
                for output in pairs.filter_map(|pair| node.output(pair.1)) {
                    if !shown.contains(&output) && shown.len() < MOST_VIEWS {
                        readers.extend_from_slice(&self.readers[output.index()]);
                        shown.push(output);
                    }
                }
            }
        }
        readers
    }
}

/// Most values that show the bytes of one input or state.
const MOST_VIEWS: usize = 256;
