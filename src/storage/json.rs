//! The JSON form of a planned graph, as NNVM's graph runtime reads it: storage ids, shapes
//! and types, but no sizes.

use serde::Deserialize;
use serde_json::json;

use super::{StorageEntry, StoragePool, storage};
use crate::error::Result;
use crate::graph::DType;

#[derive(Deserialize)]
struct Document {
    nodes: Vec<NamedNode>,
    arg_nodes: Vec<usize>,
    node_row_ptr: Vec<usize>,
    /// `[node, output]`, and a version that may be left out.
    heads: Vec<Vec<usize>>,
    attrs: Attributes,
}

#[derive(Deserialize)]
struct NamedNode {
    name: String,
}

/// Lists by value, each behind the name of its type.
#[derive(Deserialize)]
struct Attributes {
    storage_id: (String, Vec<i64>),
    shape: (String, Vec<Vec<u64>>),
    dltype: (String, Vec<String>),
    device_index: Option<(String, Vec<u32>)>,
}

impl StoragePool<'_> {
    /// Returns the pool of a graph in the JSON form of NNVM's graph runtime.
    ///
    /// A result of a node with several is called `node:1` and so on, the first one `node`.
    ///
    /// # Errors
    ///
    /// - [`Error::Storage`](crate::Error::Storage) if the text is no such graph, or a value
    ///   has no block.
    /// - As [`new`](Self::new).
    pub fn from_json(text: &str) -> Result<Self> {
        let document: Document = serde_json::from_str(text).map_err(|error| refused(&error))?;
        let names = document.names()?;
        let Attributes { storage_id: (_, blocks), shape: (_, shapes), dltype: (_, types), .. } =
            document.attrs;
        let spaces = document.attrs.device_index.map_or(vec![0; names.len()], |(_, list)| list);
        if [blocks.len(), shapes.len(), types.len(), spaces.len()] != [names.len(); 4] {
            return Err(refused(&"a list of attributes does not have one entry per value"));
        }
        let mut entries = Vec::with_capacity(names.len());
        let rows = names.iter().zip(blocks).zip(shapes).zip(types.iter().zip(spaces));
        for (((name, block), shape), (dtype, space)) in rows {
            let Ok(block) = u32::try_from(block) else {
                let name = crate::error::quoted(name);
                return Err(storage(format!("value {name} has no block: its id is {block}")));
            };
            let (name, dtype, space) = (name.clone(), dtype.parse::<DType>()?, space.into());
            entries.push(StorageEntry { name, dtype, shape, block, space });
        }
        let value = |node: usize, output: usize| {
            let rows = document.node_row_ptr.get(node).zip(document.node_row_ptr.get(node + 1));
            let found = rows.and_then(|(start, end)| {
                start.checked_add(output).filter(|position| position < end)
            });
            found.ok_or_else(|| refused(&format!("there is no output {output} of node {node}")))
        };
        let arguments = document.arg_nodes.iter().map(|&node| value(node, 0));
        let heads = document.heads.iter().map(|head| match head.as_slice() {
            &[node, output] | &[node, output, _] => value(node, output),
            _ => Err(refused(&"a head is a node and an output")),
        });
        let (inputs, outputs) = (arguments.collect::<Result<_>>()?, heads.collect::<Result<_>>()?);
        Self::new(entries, inputs, outputs)
    }

    /// Returns the JSON form that [`from_json`](Self::from_json) reads, without the operands
    /// of nodes.
    pub fn to_json(&self) -> String {
        let list = |tag, values: Vec<serde_json::Value>| json!([tag, values]);
        let by_entry = |field: fn(&StorageEntry) -> serde_json::Value| {
            self.entries.iter().map(field).collect::<Vec<_>>()
        };
        let document = json!({
            "nodes": by_entry(|it| json!({"op": "null", "name": it.name, "inputs": []})),
            "arg_nodes": self.inputs,
            "node_row_ptr": (0..=self.entries.len()).collect::<Vec<_>>(),
            "heads": self.outputs.iter().map(|output| json!([output, 0, 0])).collect::<Vec<_>>(),
            "attrs": {
                "storage_id": list("list_int", by_entry(|it| json!(it.block))),
                "shape": list("list_shape", by_entry(|it| json!(it.shape))),
                "dltype": list("list_str", by_entry(|it| json!(it.dtype.name()))),
                "device_index": list("list_int", by_entry(|it| json!(u32::from(it.space)))),
            },
        });
        document.to_string()
    }
}

impl Document {
    /// Returns the name of every value.
    fn names(&self) -> Result<Vec<String>> {
        let rows = &self.node_row_ptr;
        if rows.len() != self.nodes.len() + 1
            || rows[0] != 0
            || rows.windows(2).any(|pair| pair[0] > pair[1])
            || rows.last() != Some(&self.attrs.storage_id.1.len())
        {
            return Err(refused(&"node_row_ptr does not say which values are whose"));
        }
        let mut names = Vec::new();
        for (node, row) in self.nodes.iter().zip(rows.windows(2)) {
            names.extend((0..row[1] - row[0]).map(|output| match output {
                0 => node.name.clone(),
                _ => format!("{}:{output}", node.name),
            }));
        }
        Ok(names)
    }
}

fn refused(reason: &dyn std::fmt::Display) -> crate::error::Error {
    storage(format!("not the JSON form of a planned graph: {reason}"))
}
