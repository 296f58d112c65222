//! Graphs as JSON, published as [`graph_schema`].
//!
//! The text is untrusted: the text is read once, with a limit, into typed fields, and the graph is
//! built and validated like any other graph. The digest in the file is compared with the graph's
//! digest.

#![allow(clippy::zero_sized_map_values, reason = "of unknown fields only the names matter")]

use alloc::collections::BTreeMap;
use alloc::{format, string::String, vec, vec::Vec};
#[cfg(feature = "std")]
use std::path::Path;

use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

use super::attribute_json::AttributeRows;
#[cfg(feature = "std")]
use super::file;
use super::form::{Form, to_text};
use super::{admit, checksum, is_default};
use crate::base::{Alignment, Error, NodeId, Result, SpaceId, ValueId, quoted};
use crate::graph::{
    Choice, Covers, DType, Effects, Flow, Graph, InPlace, Node, Overlap, Value, View, Window,
    Workspace, WriteBack,
};
use crate::pack::Space;

/// The version of graph files that this crate writes, and the only version that this crate reads.
pub const GRAPH_VERSION: u32 = 1;

const FORM: Form = Form {
    format: "arenaplan-graph",
    version: GRAPH_VERSION,
    too_large: |bytes, limit| Error::FileTooLarge { what: "graph", bytes, limit },
    corrupt,
    other_version: |reason| Error::GraphVersion { reason },
};

/// Most steps of work to compare a graph's effects with operands.
///
/// A node's effects name operands by position, and some effects are compared with each other. A
/// concatenation of ten thousand operands takes some ten thousand steps.
const MAX_WORK: usize = 1 << 28;

/// Returns the JSON Schema (draft 2020-12) for graph files.
///
/// ```
/// assert!(arenaplan::format::graph_schema().contains("\"in_place\""));
/// ```
#[must_use]
pub const fn graph_schema() -> &'static str {
    include_str!("../../schema/graph.schema.json")
}

/// A graph file.
#[derive(Serialize, Deserialize)]
pub(crate) struct GraphDocument {
    format: String,
    version: u32,
    name: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    digest: String,
    #[serde(default, skip_serializing_if = "is_default")]
    covers: Covers,
    #[serde(default = "default_spaces")]
    spaces: Vec<SpaceRow>,
    values: Vec<ValueRow>,
    nodes: Vec<NodeRow>,
    outputs: Vec<ValueId>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    write_backs: Vec<WriteBack>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    checksum: String,
    /// Other programs' fields; by convention, names begin with `x-`.
    #[serde(flatten, skip_serializing)]
    extra: BTreeMap<String, IgnoredAny>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SpaceRow {
    name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    capacity: Option<u64>,
    #[serde(default = "one", skip_serializing_if = "is_one")]
    alignment: u64,
    #[serde(default, skip_serializing_if = "is_default")]
    cost: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ValueRow {
    name: String,
    kind: String,
    dtype: String,
    shape: Vec<u64>,
    #[serde(default = "one", skip_serializing_if = "is_one")]
    alignment: u64,
    #[serde(default, skip_serializing_if = "is_default")]
    space: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pin: Option<u64>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct NodeRow {
    name: String,
    op: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    domain: String,
    #[serde(default, skip_serializing_if = "is_default")]
    version: u32,
    #[serde(default, skip_serializing_if = "AttributeRows::is_empty")]
    attributes: AttributeRows,
    inputs: Vec<Option<ValueId>>,
    outputs: Vec<Option<ValueId>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    in_place: Vec<InPlace>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    views: Vec<View>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    flows: Vec<Flow>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    loads: Vec<usize>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    overlaps: Vec<Overlap>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    windows: Vec<Window>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    ignores: Vec<usize>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    mutates: Vec<usize>,
    #[serde(default, skip_serializing_if = "is_default")]
    repeats: bool,
    #[serde(default, skip_serializing_if = "is_default")]
    pure: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    workspaces: Vec<WorkspaceRow>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    staging: Option<Vec<WorkspaceRow>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    after: Vec<NodeId>,
    #[serde(default, skip_serializing_if = "is_default")]
    cost: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WorkspaceRow {
    #[serde(default = "one", skip_serializing_if = "is_one")]
    alignment: u64,
    choices: Vec<Choice>,
}

const fn one() -> u64 {
    1
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
const fn is_one(number: &u64) -> bool {
    *number == 1
}

fn default_spaces() -> Vec<SpaceRow> {
    vec![SpaceRow { name: Space::default().name().into(), capacity: None, alignment: 1, cost: 0 }]
}

impl Graph {
    /// Returns the graph as JSON text: the same graph always gives the same bytes.
    ///
    /// The text has everything that a planner reads, operators with attributes, and no weights. A
    /// [grouped](Self::grouped) graph is written too, but [`from_json`](Self::from_json) refuses
    /// such a text: only a planner makes values inside groups.
    #[must_use]
    pub fn to_json(&self) -> String {
        to_text(&GraphDocument::of(self))
    }

    /// Returns the graph in a JSON text.
    ///
    /// Other programs may leave out `digest` and `checksum`; present fields are compared.
    ///
    /// # Errors
    ///
    /// - [`Error::FileTooLarge`] if the text is longer than 1 GiB.
    /// - [`Error::GraphVersion`] if the version is not [`GRAPH_VERSION`], or a field is unknown.
    /// - [`Error::GraphCorrupt`] if the text is not JSON, a field is missing, twice there, or of
    ///   the wrong type, or digest or checksum do not fit.
    /// - As [`GraphBuilder::build`](crate::GraphBuilder::build), if the values and nodes make no
    ///   valid graph.
    /// - [`Error::OutOfMemory`] if there is not enough memory to read the text.
    ///
    /// ```
    /// use arenaplan::{DType, Graph, Node, Value, ValueKind};
    ///
    /// let text = r#"{"format":"arenaplan-graph","version":1,"name":"two layers","values":[
    ///     {"name":"x","kind":"input","dtype":"float32","shape":[1,64]},
    ///     {"name":"y","kind":"activation","dtype":"float32","shape":[1,64]}],"nodes":[
    ///     {"name":"relu","op":"Relu","inputs":[0],"outputs":[1],
    ///      "in_place":[{"input":0,"output":0}]}],"outputs":[1]}"#;
    /// let graph = Graph::from_json(text.as_bytes())?;
    /// assert_eq!(graph.values()[1].bytes(), 256);
    /// assert_eq!(Graph::from_json(graph.to_json().as_bytes())?, graph);
    /// # Ok::<(), arenaplan::Error>(())
    /// ```
    pub fn from_json(text: &[u8]) -> Result<Self> {
        FORM.check_size(text)?;
        admit(text.len(), "the graph of a file")?;
        FORM.parse::<GraphDocument>(text)?.into_graph()
    }

    /// Writes the graph to a file, as [`write_file`](crate::format::write_file) does.
    ///
    /// # Errors
    ///
    /// As [`write_file`](crate::format::write_file).
    #[cfg(feature = "std")]
    pub fn save(&self, path: impl AsRef<Path>) -> std::io::Result<()> {
        file::write_file(path, self.to_json().as_bytes()).map_err(|error| error.source)
    }

    /// Reads a graph from a file.
    ///
    /// # Errors
    ///
    /// [`Error::FileUnreadable`], and as [`from_json`](Self::from_json).
    #[cfg(feature = "std")]
    pub fn load(path: impl AsRef<Path>) -> Result<Self> {
        Self::from_json(&file::read(path.as_ref())?)
    }
}

impl GraphDocument {
    /// Returns the document for a graph, with digest and checksum.
    pub(crate) fn of(graph: &Graph) -> Self {
        let mut document = Self { digest: graph.digest(), ..Self::unsealed(graph) };
        document.checksum = checksum(&document);
        document
    }

    /// Returns the document for a graph without digest and checksum.
    pub(crate) fn unsealed(graph: &Graph) -> Self {
        Self {
            format: FORM.format.into(),
            version: FORM.version,
            name: graph.name().into(),
            digest: String::new(),
            covers: graph.covers().clone(),
            spaces: graph.spaces().iter().map(SpaceRow::of).collect(),
            values: graph.values().iter().map(ValueRow::of).collect(),
            nodes: graph.nodes().iter().map(NodeRow::of).collect(),
            outputs: graph.outputs().to_vec(),
            write_backs: graph.write_backs().to_vec(),
            checksum: String::new(),
            extra: BTreeMap::new(),
        }
    }

    /// Returns the graph that the document describes; see [`Graph::from_json`].
    pub(crate) fn into_graph(mut self) -> Result<Graph> {
        FORM.check_head(&self.format, self.version.into())?;
        FORM.check_fields(&self.extra)?;
        let found = core::mem::take(&mut self.checksum);
        if !found.is_empty() && found != checksum(&self) {
            return Err(corrupt("its checksum does not fit its content".into()));
        }
        let digest = core::mem::take(&mut self.digest);
        let graph = self.build()?;
        if !digest.is_empty() && digest != graph.digest() {
            return Err(corrupt("its digest is that of another graph".into()));
        }
        Ok(graph)
    }

    fn build(self) -> Result<Graph> {
        let work = self.nodes.iter().map(NodeRow::work);
        if work.fold(0_usize, usize::saturating_add) > MAX_WORK {
            return Err(corrupt("the effects of its nodes take too long to compare".into()));
        }
        let mut builder = Graph::builder(self.name);
        builder.set_covers(self.covers);
        let mut spaces = self.spaces.into_iter();
        let first = spaces.next().ok_or_else(|| corrupt("it has no space".into()))?;
        builder.set_default_space(first.space()?);
        for space in spaces {
            builder.add_space(space.space()?);
        }
        for value in self.values {
            builder.add_value(value.value()?);
        }
        for node in self.nodes {
            builder.add_node(node.node()?);
        }
        for output in self.outputs {
            builder.add_output(output);
        }
        for WriteBack { value, into } in self.write_backs {
            builder.add_write_back(value, into);
        }
        builder.build()
    }
}

impl SpaceRow {
    fn of(space: &Space) -> Self {
        Self {
            name: space.name().into(),
            capacity: space.capacity(),
            alignment: space.alignment().bytes(),
            cost: space.cost(),
        }
    }

    fn space(self) -> Result<Space> {
        let alignment = aligned(self.alignment, || format!("space {}", quoted(&self.name)))?;
        let space = Space::new(self.name).with_alignment(alignment).with_cost(self.cost);
        Ok(match self.capacity {
            Some(capacity) => space.with_capacity(capacity),
            None => space,
        })
    }
}

impl ValueRow {
    fn of(value: &Value) -> Self {
        Self {
            name: value.name().into(),
            kind: value.kind().name().into(),
            dtype: value.dtype().name().into(),
            shape: value.shape().to_vec(),
            alignment: value.alignment().bytes(),
            space: value.space().into(),
            pin: value.pin(),
        }
    }

    fn value(self) -> Result<Value> {
        let what = || format!("value {}", quoted(&self.name));
        let dtype: DType = self
            .dtype
            .parse()
            .map_err(|_| Error::UnsupportedDtype { what: what(), dtype: quoted(&self.dtype) })?;
        let alignment = aligned(self.alignment, what)?;
        let kind = self.kind.parse()?;
        let value = Value::new(self.name, kind, dtype, self.shape)?;
        let value = value.with_alignment(alignment).with_space(SpaceId::from(self.space));
        Ok(match self.pin {
            Some(pin) => value.with_pin(pin),
            None => value,
        })
    }
}

impl NodeRow {
    fn of(node: &Node) -> Self {
        let effects = node.effects().clone();
        let workspaces = |all: Vec<Workspace>| all.into_iter().map(WorkspaceRow::of).collect();
        Self {
            name: node.name().into(),
            op: node.op().into(),
            domain: node.domain().into(),
            version: node.version(),
            attributes: AttributeRows(node.attributes().clone()),
            inputs: node.inputs().to_vec(),
            outputs: node.outputs().to_vec(),
            in_place: effects.in_place,
            views: effects.views,
            flows: effects.flows,
            loads: effects.loads,
            overlaps: effects.overlaps,
            windows: effects.windows,
            ignores: effects.ignores,
            mutates: effects.mutates,
            repeats: effects.repeats,
            pure: effects.pure,
            workspaces: workspaces(effects.workspaces),
            staging: effects.staging.map(workspaces),
            after: node.control_dependencies().to_vec(),
            cost: node.cost(),
        }
    }

    /// Returns the number of comparisons that validation and the checker make for the node.
    fn work(&self) -> usize {
        let operands = self.inputs.len() + self.outputs.len();
        let positions = self.ignores.len() + self.mutates.len() + self.loads.len();
        let follows = self.flows.iter().fold(0, |sum, flow| flow.follows.len().saturating_add(sum));
        let flows = self.flows.len().saturating_add(self.windows.len());
        let compared = positions.saturating_add(flows).saturating_add(follows);
        let listed = operands.saturating_add(self.views.len()).saturating_add(compared);
        listed.saturating_mul(compared)
    }

    fn node(self) -> Result<Node> {
        let name = self.name;
        let workspaces = |rows: Vec<WorkspaceRow>| -> Result<Vec<Workspace>> {
            rows.into_iter().map(|row| row.workspace(&name)).collect()
        };
        let effects = Effects {
            in_place: self.in_place,
            views: self.views,
            flows: self.flows,
            loads: self.loads,
            overlaps: self.overlaps,
            windows: self.windows,
            ignores: self.ignores,
            mutates: self.mutates,
            repeats: self.repeats,
            pure: self.pure,
            workspaces: workspaces(self.workspaces)?,
            staging: self.staging.map(workspaces).transpose()?,
        };
        let node = Node::new(name, self.op)
            .with_operator_set(self.domain, self.version)
            .with_attributes(self.attributes.0)
            .reads(self.inputs)
            .writes(self.outputs)
            .with_effects(effects)
            .with_cost(self.cost);
        Ok(node.after(self.after))
    }
}

impl WorkspaceRow {
    fn of(workspace: Workspace) -> Self {
        Self { alignment: workspace.alignment.bytes(), choices: workspace.choices }
    }

    fn workspace(self, node: &str) -> Result<Workspace> {
        let what = || format!("a workspace of node {}", quoted(node));
        Ok(Workspace { alignment: aligned(self.alignment, what)?, choices: self.choices })
    }
}

/// Returns an alignment, or an error that names the owner by `what`.
fn aligned(bytes: u64, what: impl Fn() -> String) -> Result<Alignment> {
    Alignment::new(bytes).map_err(|_| Error::InvalidAlignment { what: what(), bytes })
}

fn corrupt(reason: String) -> Error {
    Error::GraphCorrupt { reason }
}
