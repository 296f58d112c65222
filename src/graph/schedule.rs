//! Graphs in which nodes run again: one node and one set of values for each execution.

use alloc::{borrow::ToOwned as _, format, string::String, vec, vec::Vec};

use hashbrown::HashSet;

use crate::base::{Error, NodeId, Result, ValueId, quoted};
use crate::graph::{Graph, Value};

/// A graph in which each execution of a schedule is a node.
#[derive(Clone, Debug, PartialEq)]
pub struct Scheduled {
    /// The graph. The first execution of a node is the node itself; the second one of `n` is called
    /// `n#2`, and its values `v#2`. These follow behind all others, in the order of the schedule.
    pub graph: Graph,
    /// By node of that graph: the node of which it is an execution.
    pub origin: Vec<NodeId>,
    /// The executions, in the order of the schedule.
    pub order: Vec<NodeId>,
}

impl Graph {
    /// Returns the graph in which each execution of `schedule` is a node, and each reader reads the
    /// latest value that was made before.
    ///
    /// Graph outputs, and values that are written back, are the latest ones, too.
    ///
    /// # Errors
    ///
    /// - [`Error::InvalidOption`] if a node does not run, runs before a value that it reads is there,
    ///   or runs twice and is not [pure](crate::graph::Node::is_pure).
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
        let refuse = |id: NodeId, what: &str| {
            let name = self
                .nodes
                .get(id.index())
                .map_or_else(|| format!("{id}"), |node| quoted(&node.name));
            Err(Error::InvalidOption { option: "schedule", reason: format!("node {name} {what}") })
        };
        let mut names: HashSet<String> =
            self.values.iter().map(|value| value.name.clone()).collect();
        let mut values = self.values.clone();
        let mut nodes = self.nodes.clone();
        let mut origin: Vec<NodeId> = (0..nodes.len()).map(NodeId::new).collect();
        let mut order = Vec::with_capacity(schedule.len());
        let mut runs = vec![0_u32; nodes.len()];
        // By value: the latest instance, if there is one.
        let is_there = |index: usize| self.producers[index].is_none();
        let mut latest: Vec<Option<ValueId>> =
            (0..values.len()).map(|index| is_there(index).then(|| ValueId::new(index))).collect();
        for &id in schedule {
            let Some(node) = self.nodes.get(id.index()) else {
                return refuse(id, "is not there");
            };
            runs[id.index()] += 1;
            let run = runs[id.index()];
            if run > 1 && !node.is_pure() {
                return refuse(id, "runs again, and is not pure");
            }
            let mut execution = node.clone();
            for input in execution.inputs.iter_mut().flatten() {
                match latest[input.index()] {
                    Some(found) => *input = found,
                    None => return refuse(id, "runs before a value that it reads is made"),
                }
            }
            if node.after.iter().any(|before| runs[before.index()] == 0) {
                return refuse(id, "runs before a node that it waits for");
            }
            let this = if run == 1 { id } else { NodeId::new(nodes.len()) };
            if run > 1 {
                execution.name = format!("{}#{run}", node.name);
                for output in execution.outputs.iter_mut().flatten() {
                    let value = self.value(*output);
                    let copy =
                        Value { name: instance(&mut names, &value.name, run), ..value.clone() };
                    latest[output.index()] = Some(ValueId::new(values.len()));
                    *output = ValueId::new(values.len());
                    values.push(Value { pin: None, ..copy });
                }
                nodes.push(execution);
                origin.push(id);
            } else {
                for (_, output) in node.produces() {
                    latest[output.index()] = Some(output);
                }
                nodes[id.index()] = execution;
            }
            order.push(this);
        }
        if let Some(index) = runs.iter().position(|&runs| runs == 0) {
            return refuse(NodeId::new(index), "does not run");
        }
        let mut builder = Self::builder(self.name.clone());
        for (index, space) in self.spaces.iter().enumerate() {
            if index == 0 {
                builder.set_default_space(space.clone());
            } else {
                builder.add_space(space.clone());
            }
        }
        for value in values {
            builder.add_value(value);
        }
        for node in nodes {
            builder.add_node(node);
        }
        let last = |value: ValueId| latest[value.index()].unwrap_or(value);
        self.outputs.iter().for_each(|&output| builder.add_output(last(output)));
        for pair in &self.write_backs {
            builder.add_write_back(last(pair.value), pair.into);
        }
        let graph = builder.build()?;
        if !graph.is_topological(&order) {
            let reason = "a node reads a content that was replaced before".to_owned();
            return Err(Error::InvalidOption { option: "schedule", reason });
        }
        Ok(Scheduled { graph, origin, order })
    }
}

/// Returns a name for an instance of a value that no other value has.
fn instance(names: &mut HashSet<String>, name: &str, run: u32) -> String {
    let mut found = format!("{name}#{run}");
    while !names.insert(found.clone()) {
        found.push('\'');
    }
    found
}
