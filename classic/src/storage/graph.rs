//! Layout graphs: the facts that a planner may know about a graph that was planned with storage
//! ids.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::{
    format,
    string::{String, ToString as _},
    vec,
    vec::Vec,
};

use hashbrown::{HashMap, HashSet};

use super::layout::{CALL, FUNCTION, NOP};
use super::{StorageLayout, StorageNode, storage};
use crate::error::Result;
use arenaplan::base::{ValueId, quoted};
use arenaplan::graph::{Effects, Graph, InPlace, Node, Value, ValueKind};
use arenaplan::pack::Space;

impl StorageNode {
    /// Returns the operator: for a call, the function that is called.
    pub fn operator(&self) -> &str {
        let function = self.attributes.get(FUNCTION).filter(|_| self.op == CALL);
        function.map_or(&self.op, String::as_str)
    }
}

impl StorageLayout {
    /// Returns the graph that the layout was made for, to be planned anew; value positions stay.
    ///
    /// - A value without a producer is an input if it is among the [inputs](Self::inputs) and
    ///   `parameters` does not have its name, a state if a node overwrites the value, and otherwise
    ///   a constant.
    /// - A node overwrites the operand whose version the node raises.
    /// - A result in the block of an operand is made in place, as in the runtime. Other effects are
    ///   unknown.
    /// - The spaces are named by device number.
    ///
    /// # Errors
    ///
    /// - [`Error::Storage`](crate::Error::Storage) if a node overwrites a node's result, or reads
    ///   an older version.
    /// - As [`GraphBuilder::build`](arenaplan::GraphBuilder::build).
    ///
    /// ```
    /// use arenaplan::Planner;
    /// use arenaplan_classic::storage::StorageLayout;
    ///
    /// let text = r#"{"nodes": [{"op": "null", "name": "x", "inputs": []},
    ///     {"op": "tvm_op", "name": "y", "inputs": [[0, 0, 0]], "attrs": {"func_name": "relu"}}],
    ///   "arg_nodes": [0], "node_row_ptr": [0, 1, 2], "heads": [[1, 0, 0]],
    ///   "attrs": {"storage_id": ["list_int", [0, 1]], "shape": ["list_shape", [[64], [64]]],
    ///             "dltype": ["list_str", ["float32", "float32"]]}}"#;
    /// let graph = StorageLayout::from_json(text)?.to_graph("model", &[])?;
    /// assert_eq!(graph.nodes()[0].op(), "relu");
    /// assert_eq!(Planner::new().plan(&graph)?.arena_bytes(), 512);
    /// # Ok::<(), arenaplan_classic::Error>(())
    /// ```
    pub fn to_graph(&self, name: &str, parameters: &[&str]) -> Result<Graph> {
        let mutated = self.mutated()?;
        let mut builder = Graph::builder(name);
        let devices: BTreeSet<_> = self.entries().iter().map(|entry| entry.space).collect();
        let mut spaces = BTreeMap::new();
        for (position, &device) in devices.iter().enumerate() {
            let space =
                Space::new(if devices.len() > 1 { device.to_string() } else { "arena".into() });
            let id = if position == 0 {
                builder.set_default_space(space);
                0_u32.into()
            } else {
                builder.add_space(space)
            };
            spaces.insert(device, id);
        }
        let mut kinds = vec![ValueKind::Constant; self.entries().len()];
        for node in self.nodes() {
            for &output in node.outputs.iter().filter(|_| node.op != StorageNode::VARIABLE) {
                kinds[output] = ValueKind::Activation;
            }
        }
        let parameters: HashSet<&str> = parameters.iter().copied().collect();
        for &input in self.inputs() {
            let is_parameter = parameters.contains(self.entries()[input].name.as_str());
            if kinds[input] == ValueKind::Constant && !is_parameter {
                kinds[input] = ValueKind::Input;
            }
        }
        for &(value, _) in mutated.iter().flatten() {
            kinds[value] = ValueKind::State;
        }
        let mut sizes = Vec::with_capacity(kinds.len());
        for (entry, &kind) in self.entries().iter().zip(&kinds) {
            let value = Value::new(&*entry.name, kind, entry.dtype, &*entry.shape)?;
            sizes.push(value.bytes());
            builder.add_value(value.with_space(spaces[&entry.space]));
        }
        let mut ids = vec![None; self.nodes().len()];
        for (position, node) in self.nodes().iter().enumerate() {
            if node.op == StorageNode::VARIABLE {
                continue;
            }
            let after = node.after.iter().filter_map(|&before| ids[before]);
            let reads = node.inputs.iter().map(|it| self.nodes()[it.node].outputs[it.output]);
            let reads: Vec<usize> = reads.collect();
            let mut effects = self.effects(node, &reads, &kinds, &mutated[position]);
            // A block holds values of several sizes: some values are larger than the values before.
            effects
                .in_place
                .retain(|pair| sizes[node.outputs[pair.output]] <= sizes[reads[pair.input]]);
            let row = Node::new(&*node.name, node.operator())
                .reads(reads.into_iter().map(ValueId::new))
                .writes(node.outputs.iter().copied().map(ValueId::new))
                .with_effects(effects)
                .after(after);
            ids[position] = Some(builder.add_node(row));
        }
        self.outputs().iter().for_each(|&output| builder.add_output(ValueId::new(output)));
        Ok(builder.build()?)
    }

    /// Returns for each node the overwritten values and their positions among the operands.
    fn mutated(&self) -> Result<Vec<Vec<(usize, usize)>>> {
        let mut versions = vec![0_u64; self.entries().len()];
        let mut rows = Vec::with_capacity(self.nodes().len());
        for node in self.nodes() {
            let mut row: Vec<(usize, usize)> = Vec::new();
            for (position, operand) in node.inputs.iter().enumerate() {
                let maker = &self.nodes()[operand.node];
                let value = maker.outputs[operand.output];
                let name = || (quoted(&node.name), quoted(&self.entries()[value].name));
                if operand.version < versions[value] {
                    let (node, value) = name();
                    return Err(storage(format!(
                        "node {node} reads {value} as it was before a node overwrote it"
                    )));
                }
                if operand.version > versions[value] {
                    if maker.op != StorageNode::VARIABLE {
                        let (node, value) = name();
                        return Err(storage(format!(
                            "node {node} overwrites {value}, which another node makes"
                        )));
                    }
                    versions[value] = operand.version;
                    row.push((value, position));
                }
            }
            rows.push(row);
        }
        Ok(rows)
    }

    /// Returns the effects of a node that reads some values.
    fn effects(
        &self,
        node: &StorageNode,
        reads: &[usize],
        kinds: &[ValueKind],
        overwritten: &[(usize, usize)],
    ) -> Effects {
        let mutates: Vec<usize> = overwritten.iter().map(|&(_, position)| position).collect();
        let is_nop = node.operator() == NOP;
        // Two results of a node are in two blocks: both are there at once.
        let mut by_block = HashMap::new();
        for (output, &value) in node.outputs.iter().enumerate() {
            by_block.entry(self.entries()[value].block).or_insert(output);
        }
        let mut in_place = Vec::new();
        for (input, &value) in reads.iter().enumerate() {
            let is_own = matches!(kinds[value], ValueKind::Activation | ValueKind::Input);
            let shared = by_block.get(&self.entries()[value].block).copied().filter(|_| is_own);
            let output = if is_nop && !node.outputs.is_empty() { Some(0) } else { shared };
            if let Some(output) = output.filter(|_| mutates.binary_search(&input).is_err()) {
                in_place.push(InPlace { input, output, identity: is_nop });
            }
        }
        // The result of a direct assignment is the new content; nothing reads the old content.
        let ignores = if is_nop { mutates.clone() } else { Vec::new() };
        Effects { in_place, ignores, mutates, ..Effects::default() }
    }
}
