//! Contents of values as terms, for plans with repeated nodes or copied values.
//!
//! A term is a node, an output position, and the operands' terms; the term of an input or state
//! names the version, which counts the writes so far. Equal terms have the same number (hash
//! consing). Each execution of a node must make the same terms as the node in the graph without
//! repetitions, and each copy of a value the value's term.

use alloc::collections::BTreeMap;
use alloc::{format, vec, vec::Vec};

use crate::base::{Execution, NodeId, Result, ValueId, quoted};
use crate::check::mismatch;
use crate::graph::{Effects, Graph, Node, TRANSFER, TRANSFER_DOMAIN};
use crate::plan::Plan;

/// The content of a value, with numbers for the operands' contents.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Term {
    /// A version of a value without a producer.
    Supplied(ValueId, u32),
    /// A node's output, and the operands.
    Made(NodeId, usize, Vec<Option<usize>>),
}

/// Term numbers.
#[derive(Default)]
struct Terms(BTreeMap<Term, usize>);

impl Terms {
    fn number(&mut self, term: Term) -> usize {
        let next = self.0.len();
        *self.0.entry(term).or_insert(next)
    }
}

/// A graph run on terms.
struct Run<'a> {
    graph: &'a Graph,
    /// By value: its content.
    contents: Vec<Option<usize>>,
    /// Write count by value.
    versions: Vec<u32>,
    /// By node: the values whose addresses the outputs take.
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

    /// Records that a node copies its operand.
    fn copy(&mut self, id: NodeId) {
        let node = self.graph.node(id);
        let read = node.inputs().first().copied().flatten();
        for (_, made) in node.produces() {
            self.contents[made.index()] = read.and_then(|value| self.contents[value.index()]);
        }
    }

    /// Runs a node as an execution of `origin`, and records the outputs' contents.
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
    /// Checks that a plan of `graph`, with a node for each execution in the schedule, computes the
    /// same as `original`.
    ///
    /// # Errors
    ///
    /// [`Error::PlanMismatch`](crate::Error::PlanMismatch) if an execution's content differs from
    /// the node's, or a content is missing at the end.
    pub(super) fn check_contents(&self, original: &Graph, graph: &Graph) -> Result<()> {
        let Some(recomputed) = &self.recomputed else { return Ok(()) };
        let origin = origins(original, graph, &recomputed.schedule)?;
        for (index, &from) in origin.iter().enumerate() {
            let node = &graph.nodes()[index];
            let Execution::Run(from) = from else {
                self.check_transfer(original, graph, node, from)?;
                continue;
            };
            let from = original.node(from);
            if !is_same(node, from) {
                return refuse(node, "does not execute the node that it should repeat");
            }
            if index >= original.nodes().len() && !from.is_pure() {
                return refuse(node, "runs again, and is not pure");
            }
        }
        let order: Vec<NodeId> = self.order().collect();
        if !graph.is_topological(&order) {
            return mismatch(
                "its steps do not run every execution after what it depends on".into(),
            );
        }
        let mut terms = Terms::default();
        let mut first = Run::new(original);
        for &id in original.order() {
            first.execute(&mut terms, id, id);
        }
        let mut run = Run::new(graph);
        for id in order {
            let node = graph.node(id);
            let from = match origin[id.index()] {
                Execution::Run(from) => from,
                Execution::PageOut { value } | Execution::PageIn { value } => {
                    run.copy(id);
                    let mut made = node.produces();
                    let is_value = |made: ValueId| {
                        run.contents[made.index()].is_some()
                            && run.contents[made.index()] == first.contents[value.index()]
                    };
                    if !made.all(|(_, made)| is_value(made)) {
                        return refuse(node, "copies another content than that of its value");
                    }
                    continue;
                }
            };
            run.execute(&mut terms, id, from);
            let from = original.node(from);
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
        Ok(())
    }

    /// Checks that a node of `graph` only copies a value of `original` to slow memory or back.
    fn check_transfer(
        &self,
        original: &Graph,
        graph: &Graph,
        node: &Node,
        execution: Execution,
    ) -> Result<()> {
        let (value, is_out) = match execution {
            Execution::PageOut { value } => (value, true),
            Execution::PageIn { value } => (value, false),
            Execution::Run(_) => return refuse(node, "copies no value"),
        };
        let Some(value) = original.values().get(value.index()) else {
            return refuse(node, "copies a value that is not there");
        };
        let Some(paging) = self.recomputed.as_ref().and_then(|it| it.paging.as_ref()) else {
            return refuse(node, "copies a value, and the plan has no slow memory");
        };
        let (&[Some(read)], &[Some(made)]) = (node.inputs(), node.outputs()) else {
            return refuse(node, "copies more than one value");
        };
        let does_copy = (node.op(), node.domain()) == (TRANSFER, TRANSFER_DOMAIN)
            && *node.effects() == Effects { pure: true, ..Effects::default() }
            && node.cost() == value.bytes().saturating_mul(paging.cost);
        let is_slow = |id: ValueId| graph.space(graph.value(id).space()).name() == paging.space;
        let has_form = |id: ValueId| {
            let found = graph.value(id);
            (found.dtype(), found.shape()) == (value.dtype(), value.shape())
        };
        let is_copy = has_form(read) && has_form(made);
        if !does_copy || !is_copy || (is_slow(read), is_slow(made)) != (!is_out, is_out) {
            return refuse(node, "does not copy its value to the slow memory or back");
        }
        Ok(())
    }

    /// Checks the figures about the work beyond that of `original`, whose nodes have the inner memory
    /// of the plan in `inner`.
    pub(super) fn check_extra(&self, original: &Graph, inner: &Graph) -> Result<()> {
        let Some(recomputed) = &self.recomputed else { return Ok(()) };
        let once =
            original.nodes().iter().fold(0, |sum: u64, node| sum.saturating_add(node.cost()));
        let per_byte = recomputed.paging.as_ref().map_or(0, |paging| paging.cost);
        let cost = |execution: &Execution| match *execution {
            Execution::Run(id) => inner.node(id).cost(),
            Execution::PageOut { value } | Execution::PageIn { value } => {
                original.value(value).bytes().saturating_mul(per_byte)
            }
        };
        let all = recomputed.schedule.iter().map(cost).fold(0, u64::saturating_add);
        let extra = all.saturating_sub(once);
        if (recomputed.cost, recomputed.extra_cost) != (once, extra) {
            return mismatch(format!("its extra work is {extra} beside {once}"));
        }
        if recomputed.extra_bound > extra {
            return mismatch(format!("its extra work of {extra} is below its bound"));
        }
        let slow = recomputed.paging.as_ref().map(|paging| paging.space.as_str());
        let fast = self.spaces.iter().filter(|space| Some(space.name.as_str()) != slow);
        if recomputed.floor > fast.fold(0, |sum: u64, space| sum.saturating_add(space.arena_bytes))
        {
            return mismatch("its arena is below its floor".into());
        }
        Ok(())
    }
}

/// Returns, by node of a graph with repetitions and copies, the original execution.
fn origins(original: &Graph, graph: &Graph, schedule: &[Execution]) -> Result<Vec<Execution>> {
    let nodes = (0..original.nodes().len()).map(|index| Execution::Run(NodeId::new(index)));
    let mut origins: Vec<Execution> = nodes.collect();
    let mut ran = vec![false; original.nodes().len()];
    for &execution in schedule {
        let Execution::Run(id) = execution else {
            origins.push(execution);
            continue;
        };
        match ran.get_mut(id.index()) {
            Some(ran) if *ran => origins.push(execution),
            Some(ran) => *ran = true,
            None => return mismatch(format!("its schedule names node {id}, which is not there")),
        }
    }
    if origins.len() != graph.nodes().len() || ran.contains(&false) {
        return mismatch("its schedule does not run every node".into());
    }
    Ok(origins)
}

/// Returns whether two nodes compute the same result from equal operands.
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
