//! The JSON form of a planned graph for the graph runtimes of NNVM and TVM: nodes with operands,
//! storage ids, shapes and types, but no sizes.

use alloc::collections::BTreeMap;
use alloc::{
    borrow::ToOwned as _,
    format,
    string::{String, ToString as _},
    vec,
    vec::Vec,
};

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{StorageEntry, StorageLayout, StorageNode, StorageOperand, StoragePool, storage};
use crate::error::Result;
use arenaplan::base::quoted;
use arenaplan::graph::DType;

/// Attribute of a node whose results have separate names: a JSON list of names. Without the
/// attribute, the results of `node` are `node`, `node:1` and so on.
const OUTPUT_NAMES: &str = "output_names";

#[derive(Deserialize)]
struct Document {
    nodes: Vec<JsonNode>,
    arg_nodes: Vec<usize>,
    node_row_ptr: Vec<usize>,
    /// `[node, output]`, and a version that may be left out.
    heads: Vec<Reference>,
    attrs: Attributes,
}

#[derive(Deserialize, Serialize)]
struct JsonNode {
    op: String,
    name: String,
    #[serde(default, alias = "attr", skip_serializing_if = "BTreeMap::is_empty")]
    attrs: BTreeMap<String, String>,
    inputs: Vec<Reference>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    control_deps: Vec<usize>,
}

/// A node's result: `[node, output, version]`, or without the version.
#[derive(Clone, Copy, Deserialize, Serialize)]
#[serde(untagged)]
enum Reference {
    Versioned((usize, usize, u64)),
    Plain((usize, usize)),
}

impl Reference {
    const fn parts(self) -> (usize, usize, u64) {
        match self {
            Self::Versioned(parts) => parts,
            Self::Plain((node, output)) => (node, output, 0),
        }
    }
}

/// Lists by value, each behind a type name.
#[derive(Deserialize)]
struct Attributes {
    storage_id: (String, Vec<i64>),
    shape: (String, Vec<Vec<u64>>),
    dltype: (String, Vec<String>),
    device_index: Option<(String, Vec<u32>)>,
}

impl StorageLayout {
    /// Returns the layout of a graph in the JSON form that the graph runtimes of NNVM and TVM read.
    ///
    /// Several results of one node are called `node`, `node:1` and so on, unless the node has an
    /// attribute `output_names`.
    ///
    /// # Errors
    ///
    /// - [`Error::Storage`](crate::Error::Storage) if the text is not such a graph, or a value
    ///   has no block.
    /// - As [`with_nodes`](Self::with_nodes).
    pub fn from_json(text: &str) -> Result<Self> {
        let document: Document = serde_json::from_str(text).map_err(|error| refused(&error))?;
        let (nodes, names) = document.nodes()?;
        let Attributes { storage_id: (_, blocks), shape: (_, shapes), dltype: (_, types), .. } =
            document.attrs;
        let spaces = document.attrs.device_index.map_or(vec![0; names.len()], |(_, list)| list);
        if [blocks.len(), shapes.len(), types.len(), spaces.len()] != [names.len(); 4] {
            return Err(refused(&"a list of attributes does not have one entry per value"));
        }
        let mut entries = Vec::with_capacity(names.len());
        let rows = names.into_iter().zip(blocks).zip(shapes).zip(types.iter().zip(spaces));
        for (((name, block), shape), (dtype, space)) in rows {
            let Ok(block) = u32::try_from(block) else {
                return Err(storage(format!("value {} has no storage: {block}", quoted(&name))));
            };
            let (dtype, space) = (dtype.parse::<DType>()?, space.into());
            entries.push(StorageEntry { name, dtype, shape, block, space });
        }
        let value = |node: usize, output: usize| {
            let found = nodes.get(node).and_then(|node| node.outputs.get(output)).copied();
            found.ok_or_else(|| refused(&format!("there is no output {output} of node {node}")))
        };
        let arguments = document.arg_nodes.iter().map(|&node| value(node, 0));
        let heads = document.heads.iter().map(|head| {
            let (node, output, _) = head.parts();
            value(node, output)
        });
        let (inputs, outputs) = (arguments.collect::<Result<_>>()?, heads.collect::<Result<_>>()?);
        Self::with_nodes(entries, nodes, inputs, outputs)
    }

    /// Returns the JSON form that [`from_json`](Self::from_json) and graph runtimes read.
    ///
    /// Values are ordered by their producers. An operand is `[node, output, version]`; control
    /// dependencies are `control_deps`.
    ///
    /// # Panics
    ///
    /// Never: every value is the result of a node.
    #[must_use]
    pub fn to_json(&self) -> String {
        let mut rows = vec![0];
        let mut order = Vec::with_capacity(self.entries().len());
        let mut made = vec![(0, 0); self.entries().len()];
        for (index, node) in self.nodes().iter().enumerate() {
            for (output, &position) in node.outputs.iter().enumerate() {
                made[position] = (index, output);
                order.push(&self.entries()[position]);
            }
            rows.push(order.len());
        }
        let by_value = |tag: &str, field: fn(&StorageEntry) -> serde_json::Value| {
            json!([tag, order.iter().map(|entry| field(entry)).collect::<Vec<_>>()])
        };
        let head = |&position: &usize| {
            let (node, output) = made[position];
            [node, output, 0]
        };
        let nodes: Vec<_> = self.nodes().iter().map(|node| self.json_node(node)).collect();
        json!({
            "nodes": nodes,
            "arg_nodes": self.inputs().iter().map(|&input| made[input].0).collect::<Vec<_>>(),
            "node_row_ptr": rows,
            "heads": self.outputs().iter().map(head).collect::<Vec<_>>(),
            "attrs": {
                "storage_id": by_value("list_int", |it| json!(it.block)),
                "shape": by_value("list_shape", |it| json!(it.shape)),
                "dltype": by_value("list_str", |it| json!(it.dtype.name())),
                "device_index": by_value("list_int", |it| json!(u32::from(it.space))),
            },
        })
        .to_string()
    }

    fn json_node(&self, node: &StorageNode) -> JsonNode {
        let operand = |it: &StorageOperand| Reference::Versioned((it.node, it.output, it.version));
        let mut attrs = node.attributes.clone();
        let names = node.outputs.iter().map(|&position| self.entries()[position].name.as_str());
        let is_plain =
            names.clone().enumerate().all(|(output, name)| name == output_name(&node.name, output));
        if !is_plain {
            attrs.insert(OUTPUT_NAMES.into(), json!(names.collect::<Vec<_>>()).to_string());
        }
        JsonNode {
            op: node.op.clone(),
            name: node.name.clone(),
            attrs,
            inputs: node.inputs.iter().map(operand).collect(),
            control_deps: node.after.clone(),
        }
    }
}

impl StoragePool<'_> {
    /// Returns the pool for a graph in the JSON form of graph runtimes.
    ///
    /// # Errors
    ///
    /// As [`StorageLayout::from_json`] and [`with_layout`](Self::with_layout).
    pub fn from_json(text: &str) -> Result<Self> {
        Self::with_layout(StorageLayout::from_json(text)?)
    }

    /// Returns the JSON form of the pool's [layout](StorageLayout::to_json).
    #[must_use]
    pub fn to_json(&self) -> String {
        self.layout().to_json()
    }
}

impl Document {
    /// Returns the nodes, and the name of every value.
    fn nodes(&self) -> Result<(Vec<StorageNode>, Vec<String>)> {
        let rows = &self.node_row_ptr;
        if rows.len() != self.nodes.len() + 1
            || rows[0] != 0
            || rows.windows(2).any(|pair| pair[0] > pair[1])
            || rows.last() != Some(&self.attrs.storage_id.1.len())
        {
            return Err(refused(&"node_row_ptr does not say which values are whose"));
        }
        let operand = |reference: &Reference| {
            let (node, output, version) = reference.parts();
            StorageOperand { node, output, version }
        };
        let (mut nodes, mut names) = (Vec::with_capacity(self.nodes.len()), Vec::new());
        for (node, row) in self.nodes.iter().zip(rows.windows(2)) {
            let mut attributes = node.attrs.clone();
            let count = row[1] - row[0];
            match attributes.remove(OUTPUT_NAMES) {
                None => names.extend((0..count).map(|output| output_name(&node.name, output))),
                Some(text) => {
                    let given: Vec<String> =
                        serde_json::from_str(&text).map_err(|error| refused(&error))?;
                    if given.len() != count {
                        let (node, given) = (quoted(&node.name), given.len());
                        let reason = format!("node {node} has {count} results, {given} names");
                        return Err(refused(&reason));
                    }
                    names.extend(given);
                }
            }
            nodes.push(StorageNode {
                name: node.name.clone(),
                op: node.op.clone(),
                attributes,
                inputs: node.inputs.iter().map(operand).collect(),
                after: node.control_deps.clone(),
                outputs: (row[0]..row[1]).collect(),
            });
        }
        Ok((nodes, names))
    }
}

/// Returns the name of a result without a name of its own.
fn output_name(node: &str, output: usize) -> String {
    if output == 0 { node.to_owned() } else { format!("{node}:{output}") }
}

fn refused(reason: &dyn core::fmt::Display) -> crate::Error {
    storage(format!("not the JSON form of a planned graph: {reason}"))
}
