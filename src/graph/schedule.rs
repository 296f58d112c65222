//! Graphs in which nodes run again, and values are copied between memories: one node and one set of
//! values for each execution.

use alloc::{borrow::ToOwned as _, format, string::String, vec, vec::Vec};

use hashbrown::HashSet;

use crate::base::{Error, Execution, NodeId, Result, SpaceId, ValueId, quoted};
use crate::graph::{Graph, Node, Value, ValueKind};
use crate::pack::Space;

/// The operator for a node that copies a value to another memory.
pub const TRANSFER: &str = "Transfer";

/// The domain of [`TRANSFER`].
pub const TRANSFER_DOMAIN: &str = "arenaplan";

/// A graph in which each execution in a schedule is a node.
#[derive(Clone, Debug, PartialEq)]
pub struct Scheduled {
    /// The graph. The first execution of a node is the node itself; the second execution of `n` is
    /// called `n#2`, and its values `v#2`. These follow behind all others, in schedule order.
    pub graph: Graph,
    /// For each node of `graph`: the represented execution.
    pub origin: Vec<Execution>,
    /// The executions in schedule order.
    pub order: Vec<NodeId>,
}

impl Graph {
    /// Returns the graph in which each execution in `schedule` is a node, and each reader reads the
    /// latest value that was made before.
    ///
    /// Graph outputs, and values that are written back, are the latest values, too.
    ///
    /// # Errors
    ///
    /// - [`Error::InvalidOption`] if a node does not run, runs before an operand is there, or runs
    ///   twice and is not [pure](crate::graph::Node::is_pure).
    /// - As [`GraphBuilder::build`](crate::GraphBuilder::build).
    ///
    /// ```
    /// use arenaplan::{DType, Graph, Node, Value, ValueKind};
    ///
    /// let mut builder = Graph::builder("twice");
    /// let mut value = |name, kind| Value::new(name, kind, DType::FLOAT32, [64]);
    /// let x = builder.add_value(value("x", ValueKind::Input)?);
    /// let a = builder.add_value(value("a", ValueKind::Activation)?);
    /// let b = builder.add_value(value("b", ValueKind::Activation)?);
    /// let c = builder.add_value(value("c", ValueKind::Activation)?);
    /// let first = builder.add_node(Node::new("first", "Conv").reads([x]).writes([a]).pure());
    /// let second = builder.add_node(Node::new("second", "Conv").reads([a]).writes([b]));
    /// let third = builder.add_node(Node::new("third", "Conv").reads([b, a]).writes([c]));
    /// builder.add_output(c);
    /// let graph = builder.build()?;
    ///
    /// let again = graph.scheduled(&[first, second, first, third])?;
    /// assert_eq!(again.graph.nodes()[3].name(), "first#2");
    /// assert_eq!(again.graph.node(third).inputs()[1], Some(arenaplan::ValueId::new(4)));
    /// # Ok::<(), arenaplan::Error>(())
    /// ```
    pub fn scheduled(&self, schedule: &[NodeId]) -> Result<Scheduled> {
        let schedule: Vec<Execution> = schedule.iter().map(|&node| node.into()).collect();
        self.scheduled_with(&schedule, None)
    }

    /// Returns the graph in which each execution in `schedule` is a node, as
    /// [`scheduled`](Self::scheduled) does, and values are copied to the memory `slow` and back.
    ///
    /// The copy of a value `v` is called `v@slow`, by the memory's name; the memory becomes the
    /// last space of the graph. The copying nodes have the operator [`TRANSFER`] and the names
    /// `v.out` and `v.in`, and cost as much per byte as the memory states. The value that comes
    /// back is called `v#in`. A value is copied out once, and may come back several times.
    ///
    /// # Errors
    ///
    /// - As [`scheduled`](Self::scheduled).
    /// - [`Error::InvalidOption`] if a value is copied twice, back before it was copied, without a
    ///   slow memory, is not the result of a node, or is needed at the end of the run.
    ///
    /// ```
    /// use arenaplan::base::Execution;
    /// use arenaplan::pack::Space;
    /// use arenaplan::{DType, Graph, Node, Value, ValueKind};
    ///
    /// let mut builder = Graph::builder("paged");
    /// let mut value = |name, kind| Value::new(name, kind, DType::FLOAT32, [64]);
    /// let x = builder.add_value(value("x", ValueKind::Input)?);
    /// let a = builder.add_value(value("a", ValueKind::Activation)?);
    /// let b = builder.add_value(value("b", ValueKind::Activation)?);
    /// let c = builder.add_value(value("c", ValueKind::Activation)?);
    /// let first = builder.add_node(Node::new("first", "Conv").reads([x]).writes([a]));
    /// let second = builder.add_node(Node::new("second", "Conv").reads([a]).writes([b]));
    /// let third = builder.add_node(Node::new("third", "Conv").reads([b, a]).writes([c]));
    /// builder.add_output(c);
    /// let graph = builder.build()?;
    ///
    /// let host = Space::new("host").with_cost(10);
    /// let (out, back) = (Execution::PageOut { value: a }, Execution::PageIn { value: a });
    /// let schedule = [first.into(), out, second.into(), back, third.into()];
    /// let paged = graph.scheduled_with(&schedule, Some(&host))?.graph;
    /// assert_eq!((paged.nodes()[3].name(), paged.nodes()[3].cost()), ("a.out", 2560));
    /// assert_eq!(paged.value(arenaplan::ValueId::new(4)).name(), "a@host");
    /// assert_eq!(paged.node(third).inputs()[1], Some(arenaplan::ValueId::new(5)));
    /// # Ok::<(), arenaplan::Error>(())
    /// ```
    pub fn scheduled_with(
        &self,
        schedule: &[Execution],
        slow: Option<&Space>,
    ) -> Result<Scheduled> {
        let mut executions = Executions::new(self, slow)?;
        for &execution in schedule {
            match execution {
                Execution::Run(id) => executions.run(id)?,
                Execution::PageOut { value } => executions.page_out(value)?,
                Execution::PageIn { value } => executions.page_in(value)?,
            }
        }
        executions.build()
    }
}

/// A graph that grows by one node for each execution.
struct Executions<'a> {
    graph: &'a Graph,
    slow: Option<&'a Space>,
    names: HashSet<String>,
    values: Vec<Value>,
    nodes: Vec<Node>,
    origin: Vec<Execution>,
    order: Vec<NodeId>,
    /// For each node: the number of runs.
    runs: Vec<u32>,
    /// For each value: the latest instance, if any.
    latest: Vec<Option<ValueId>>,
    /// For each value: the copy in the slow memory, if any.
    copies: Vec<Option<ValueId>>,
    /// For each value: whether the end of the run needs the value.
    kept: Vec<bool>,
}

impl<'a> Executions<'a> {
    fn new(graph: &'a Graph, slow: Option<&'a Space>) -> Result<Self> {
        if let Some(slow) =
            slow.filter(|slow| graph.spaces.iter().any(|it| it.name() == slow.name()))
        {
            let reason = format!("the graph has a space {} already", quoted(slow.name()));
            return Err(Error::InvalidOption { option: "schedule", reason });
        }
        let count = graph.values.len();
        let is_there = |index: usize| graph.producers[index].is_none();
        let mut kept = vec![false; count];
        graph.read_at_end().for_each(|value| kept[value.index()] = true);
        Ok(Self {
            graph,
            slow,
            names: graph.values.iter().map(|value| value.name.clone()).collect(),
            values: graph.values.clone(),
            nodes: graph.nodes.clone(),
            origin: (0..graph.nodes.len()).map(|index| NodeId::new(index).into()).collect(),
            order: Vec::with_capacity(graph.nodes.len()),
            runs: vec![0; graph.nodes.len()],
            latest: (0..count).map(|index| is_there(index).then(|| ValueId::new(index))).collect(),
            copies: vec![None; count],
            kept,
        })
    }

    fn run(&mut self, id: NodeId) -> Result<()> {
        let Some(node) = self.graph.nodes.get(id.index()) else {
            return refuse(format!("node {id} is not there"));
        };
        let name = || quoted(&node.name);
        self.runs[id.index()] += 1;
        let run = self.runs[id.index()];
        if run > 1 && !node.is_pure() {
            return refuse(format!("node {} runs again, and is not pure", name()));
        }
        let mut execution = node.clone();
        for input in execution.inputs.iter_mut().flatten() {
            match self.latest[input.index()] {
                Some(found) => *input = found,
                None => {
                    return refuse(format!(
                        "node {} runs before a value that it reads is made",
                        name()
                    ));
                }
            }
        }
        if node.after.iter().any(|before| self.runs[before.index()] == 0) {
            return refuse(format!("node {} runs before a node that it waits for", name()));
        }
        if run == 1 {
            for (_, output) in node.produces() {
                self.latest[output.index()] = Some(output);
            }
            self.nodes[id.index()] = execution;
            self.order.push(id);
            return Ok(());
        }
        execution.name = format!("{}#{run}", node.name);
        for output in execution.outputs.iter_mut().flatten() {
            let name = format!("{}#{run}", self.graph.value(*output).name);
            let found = self.instance(*output, name);
            self.latest[output.index()] = Some(found);
            *output = found;
        }
        self.push(execution, id.into());
        Ok(())
    }

    fn page_out(&mut self, value: ValueId) -> Result<()> {
        let (Some(slow), Some(found)) = (self.slow, self.graph.values.get(value.index())) else {
            return refuse(
                "a value is copied, and there is no such value or no slow memory".into(),
            );
        };
        let name = quoted(&found.name);
        if found.kind != ValueKind::Activation || self.kept[value.index()] {
            return refuse(format!("value {name} is copied, and is not between two nodes"));
        }
        let Some(latest) = self.latest[value.index()] else {
            return refuse(format!("value {name} is copied before it is made"));
        };
        if self.copies[value.index()].is_some() {
            return refuse(format!("value {name} is copied twice"));
        }
        let copy = self.instance(value, format!("{}@{}", found.name, slow.name()));
        self.values[copy.index()].space = SpaceId::new(self.graph.spaces.len());
        self.copies[value.index()] = Some(copy);
        self.transfer(
            value,
            format!("{}.out", found.name),
            latest,
            copy,
            Execution::PageOut { value },
        );
        Ok(())
    }

    fn page_in(&mut self, value: ValueId) -> Result<()> {
        let Some(copy) = self.copies.get(value.index()).copied().flatten() else {
            return refuse(format!("value {value} comes back, and was not copied before"));
        };
        let name = &self.graph.value(value).name;
        let back = self.instance(value, format!("{name}#in"));
        self.latest[value.index()] = Some(back);
        self.transfer(value, format!("{name}.in"), copy, back, Execution::PageIn { value });
        Ok(())
    }

    /// Adds a node that copies `from` to `to`.
    fn transfer(&mut self, of: ValueId, name: String, from: ValueId, to: ValueId, kind: Execution) {
        let cost = self.slow.map_or(0, Space::cost).saturating_mul(self.graph.value(of).bytes());
        let node = Node::new(name, TRANSFER).with_operator_set(TRANSFER_DOMAIN, 1);
        self.push(node.reads([from]).writes([to]).with_cost(cost).pure(), kind);
    }

    fn push(&mut self, node: Node, origin: Execution) {
        self.order.push(NodeId::new(self.nodes.len()));
        self.nodes.push(node);
        self.origin.push(origin);
    }

    /// Adds another instance of a value.
    fn instance(&mut self, value: ValueId, name: String) -> ValueId {
        let value = Value {
            name: unique(&mut self.names, name),
            pin: None,
            ..self.graph.value(value).clone()
        };
        self.values.push(value);
        ValueId::new(self.values.len() - 1)
    }

    fn build(self) -> Result<Scheduled> {
        if let Some(index) = self.runs.iter().position(|&runs| runs == 0) {
            return refuse(format!("node {} does not run", quoted(&self.graph.nodes[index].name)));
        }
        let mut builder = Graph::builder(self.graph.name.clone());
        builder.set_covers(self.graph.covers.clone());
        for (index, space) in self.graph.spaces.iter().chain(self.slow).enumerate() {
            if index == 0 {
                builder.set_default_space(space.clone());
            } else {
                builder.add_space(space.clone());
            }
        }
        for value in self.values {
            builder.add_value(value);
        }
        for node in self.nodes {
            builder.add_node(node);
        }
        let latest = &self.latest;
        let last = |value: ValueId| latest[value.index()].unwrap_or(value);
        self.graph.outputs.iter().for_each(|&output| builder.add_output(last(output)));
        for pair in &self.graph.write_backs {
            builder.add_write_back(last(pair.value), pair.into);
        }
        let graph = builder.build()?;
        if !graph.is_topological(&self.order) {
            return refuse("a node reads a content that was replaced before".to_owned());
        }
        Ok(Scheduled { graph, origin: self.origin, order: self.order })
    }
}

fn refuse<T>(reason: String) -> Result<T> {
    Err(Error::InvalidOption { option: "schedule", reason })
}

/// Returns a name for an instance of a value that no other value has.
fn unique(names: &mut HashSet<String>, mut name: String) -> String {
    while !names.insert(name.clone()) {
        name.push('\'');
    }
    name
}
