//! Contents of values as terms, for plans in which nodes run again.
//!
//! A term is a node, the position of an output, and the terms of the operands; the term of an input
//! or a state names its version: how often the state was written before. Equal terms are one number
//! (hash consing). Each execution of a node must make the terms that the node makes in the graph
//! without repetitions.

use alloc::collections::BTreeMap;
use alloc::{format, vec, vec::Vec};

use crate::base::{NodeId, Result, ValueId, quoted};
use crate::check::mismatch;
use crate::graph::{Graph, Node};
use crate::plan::Plan;

/// The content of a value, with numbers for the contents of operands.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Term {
    /// A version of a value that no node makes.
    Supplied(ValueId, u32),
    /// An output of a node, and its operands.
    Made(NodeId, usize, Vec<Option<usize>>),
}

/// Numbers of terms.
#[derive(Default)]
struct Terms(BTreeMap<Term, usize>);

impl Terms {
    fn number(&mut self, term: Term) -> usize {
        let next = self.0.len();
        *self.0.entry(term).or_insert(next)
    }
}

/// A run of a graph on terms.
struct Run<'a> {
    graph: &'a Graph,
    /// By value: its content.
    contents: Vec<Option<usize>>,
    /// By value: how often it was written.
    versions: Vec<u32>,
    /// By node: the values whose address its outputs take.
    replaces: Vec<Vec<ValueId>>,
}

impl<'a> Run<'a> {
    fn new(graph: &'a Graph) -> Self {
        let mut replaces = vec![Vec::new(); graph.nodes().len()];
        for pair in graph.write_backs() {
            if let Some(id) = graph.producer(pair.value) {
                replaces[id.index()].push(pair.into);
            }
        }
        let values = graph.values().len();
        Self { graph, contents: vec![None; values], versions: vec![0; values], replaces }
    }

    /// Runs a node as an execution of `origin`, and notes the contents of its outputs.
    fn execute(&mut self, terms: &mut Terms, id: NodeId, origin: NodeId) {
        let node = self.graph.node(id);
        let mut read = |value: ValueId| {
            if self.graph.producer(value).is_some() {
                return self.contents[value.index()];
            }
            Some(terms.number(Term::Supplied(value, self.versions[value.index()])))
        };
        let operands: Vec<Option<usize>> =
            node.inputs().iter().map(|input| input.and_then(&mut read)).collect();
        for (position, value) in node.produces() {
            let term = Term::Made(origin, position, operands.clone());
            self.contents[value.index()] = Some(terms.number(term));
        }
        let mutated = node.effects().mutates.iter().filter_map(|&position| node.input(position));
        for value in mutated.chain(self.replaces[id.index()].iter().copied()) {
            self.versions[value.index()] += 1;
        }
    }
}

impl Plan {
    /// Checks that a plan of `graph`, in which each execution of its schedule is a node, computes
    /// the same as `original` does.
    ///
    /// # Errors
    ///
    /// [`Error::PlanMismatch`](crate::Error::PlanMismatch) if an execution makes another content
    /// than its node does, a content is missing at the end, or the extra cost is another one.
    pub(super) fn check_contents(&self, original: &Graph, graph: &Graph) -> Result<()> {
        let Some(recomputed) = &self.recomputed else { return Ok(()) };
        let origin = origins(original, graph, &recomputed.schedule)?;
        for (index, &from) in origin.iter().enumerate() {
            let (node, from) = (&graph.nodes()[index], original.node(from));
            if !is_same(node, from) {
                return refuse(node, "is no execution of the node that it should repeat");
            }
            if index >= original.nodes().len() && !from.is_pure() {
                return refuse(node, "runs again, and is not pure");
            }
        }
        let mut terms = Terms::default();
        let mut first = Run::new(original);
        for &id in original.order() {
            first.execute(&mut terms, id, id);
        }
        let mut run = Run::new(graph);
        for id in self.order() {
            run.execute(&mut terms, id, origin[id.index()]);
            let (node, from) = (graph.node(id), original.node(origin[id.index()]));
            for ((_, made), (_, value)) in node.produces().zip(from.produces()) {
                if run.contents[made.index()] != first.contents[value.index()] {
                    return refuse(node, "reads other contents than in the graph");
                }
                let (made, value) = (graph.value(made), original.value(value));
                if (made.dtype(), made.shape()) != (value.dtype(), value.shape()) {
                    return refuse(node, "makes a value of another form");
                }
            }
        }
        let ends = |run: &Run<'_>| -> Vec<Option<usize>> {
            let written_back = run.graph.write_backs().iter().map(|pair| pair.value);
            let ends = run.graph.outputs().iter().copied().chain(written_back);
            let supplied = |value: ValueId| run.graph.producer(value).is_none();
            ends.map(|value| if supplied(value) { None } else { run.contents[value.index()] })
                .collect()
        };
        let homes = |graph: &Graph| -> Vec<ValueId> {
            graph.write_backs().iter().map(|pair| pair.into).collect()
        };
        if ends(&first) != ends(&run) || homes(original) != homes(graph) {
            return mismatch("its results are other ones than those of the graph".into());
        }
        self.check_extra(original)
    }

    /// Checks the figures about extra work.
    fn check_extra(&self, original: &Graph) -> Result<()> {
        let Some(recomputed) = &self.recomputed else { return Ok(()) };
        let cost = |sum: u64, node: &Node| sum.saturating_add(node.cost());
        let once = original.nodes().iter().fold(0, cost);
        let all = recomputed
            .schedule
            .iter()
            .filter_map(|&id| original.nodes().get(usize::try_from(id).ok()?));
        let extra = all.fold(0, cost).saturating_sub(once);
        if (recomputed.cost, recomputed.extra_cost) != (once, extra) {
            return mismatch(format!("its extra work is {extra} beside {once}"));
        }
        if recomputed.extra_bound > extra {
            return mismatch(format!("its extra work of {extra} is below its bound"));
        }
        if recomputed.floor
            > self.spaces.iter().fold(0_u64, |sum, space| sum.saturating_add(space.arena_bytes))
        {
            return mismatch("its arena is below its floor".into());
        }
        Ok(())
    }
}

/// Returns, by node of a graph with repetitions, the node that it is an execution of.
fn origins(original: &Graph, graph: &Graph, schedule: &[u32]) -> Result<Vec<NodeId>> {
    let mut origins: Vec<NodeId> = (0..original.nodes().len()).map(NodeId::new).collect();
    let mut ran = vec![false; original.nodes().len()];
    for &id in schedule {
        let id = NodeId::from(id);
        match ran.get_mut(id.index()) {
            Some(ran) if *ran => origins.push(id),
            Some(ran) => *ran = true,
            None => return mismatch(format!("its schedule names node {id}, which is not there")),
        }
    }
    if origins.len() != graph.nodes().len() || ran.contains(&false) {
        return mismatch("its schedule does not run every node".into());
    }
    Ok(origins)
}

/// Returns whether a node computes the same as another one does from equal operands.
fn is_same(node: &Node, other: &Node) -> bool {
    (node.op(), node.domain(), node.version(), node.attributes())
        == (other.op(), other.domain(), other.version(), other.attributes())
        && node.inputs().len() == other.inputs().len()
        && node.outputs().len() == other.outputs().len()
        && node.effects().mutates == other.effects().mutates
        && node.produces().map(|it| it.0).eq(other.produces().map(|it| it.0))
}

fn refuse<T>(node: &Node, what: &str) -> Result<T> {
    mismatch(format!("node {} {what}", quoted(node.name())))
}
