//! Names, blocks and nodes of a planned graph, without memory.

use alloc::collections::BTreeMap;
use alloc::{
    borrow::ToOwned as _,
    format,
    string::{String, ToString as _},
    vec,
    vec::Vec,
};

use hashbrown::HashMap;

use crate::error::{Error, Result};
use crate::sharing::{Block, StoragePlan};
use crate::storage::{storage, undefined};
use arenaplan::Error as Core;
use arenaplan::base::{NodeId, SpaceId, ValueId, quoted};
use arenaplan::graph::{DType, Graph, Node};

/// Function for a call that does nothing: a direct assignment.
pub(super) const NOP: &str = "__nop";
/// Operator for a call to the function in the attribute `func_name`.
pub(super) const CALL: &str = "tvm_op";
/// Attribute with the function to call.
pub(super) const FUNCTION: &str = "func_name";

/// A value with its block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StorageEntry {
    /// Value name.
    pub name: String,
    /// Element type.
    pub dtype: DType,
    /// Value dimensions.
    pub shape: Vec<u64>,
    /// Block number.
    pub block: u32,
    /// Memory that the block is in.
    pub space: SpaceId,
}

impl StorageEntry {
    /// Returns the value's size in bytes.
    pub(super) fn bytes(&self) -> Result<u64> {
        let what = || format!("value {}", quoted(&self.name));
        let bytes = self.dtype.array_bytes(&self.shape);
        bytes.ok_or_else(|| Error::Core(Core::SizeOverflow { what: what() }))
    }
}

/// A node's result, as an operand of a later node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StorageOperand {
    /// Producer index.
    pub node: usize,
    /// Position among the producer's results.
    pub output: usize,
    /// Number of times that the value was overwritten, this node included.
    pub version: u64,
}

/// A node in the form that a graph runtime runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StorageNode {
    /// Node name: the name of the first result, if any.
    pub name: String,
    /// Operator in the runtime's terms: `"null"` for a value without a producer, `"tvm_op"` for a
    /// call to the function in the attribute `func_name`.
    pub op: String,
    /// Attributes by name.
    pub attributes: BTreeMap<String, String>,
    /// Operands from earlier nodes.
    pub inputs: Vec<StorageOperand>,
    /// Indices of earlier nodes that must run first, although no operand says so.
    pub after: Vec<usize>,
    /// Result indices among the entries.
    pub outputs: Vec<usize>,
}

impl StorageNode {
    /// Operator name for a value without a producer.
    pub const VARIABLE: &'static str = "null";

    /// Returns the node for a value without a producer.
    fn variable(name: &str, position: usize) -> Self {
        Self {
            name: name.to_owned(),
            op: Self::VARIABLE.to_owned(),
            outputs: vec![position],
            ..Self::default()
        }
    }
}

/// The values, blocks and nodes of a graph that was planned with storage ids.
///
/// A layout has no memory: a [`StoragePool`](crate::storage::StoragePool) is a layout with a memory
/// block for each number. A block has the size of its largest value.
///
/// ```
/// use arenaplan_classic::storage::{StorageEntry, StorageLayout};
/// use arenaplan::{DType, SpaceId};
///
/// let entry = |name: &str, elements, block| StorageEntry {
///     name: name.into(),
///     dtype: DType::FLOAT32,
///     shape: vec![elements],
///     block,
///     space: SpaceId::new(0),
/// };
/// let layout = StorageLayout::new(vec![entry("a", 10, 0), entry("b", 4, 0)], vec![0], vec![1])?;
/// assert_eq!(layout.blocks()[&0].bytes, 40);
/// assert_eq!(StorageLayout::from_json(&layout.to_json())?, layout);
/// # Ok::<(), arenaplan_classic::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StorageLayout {
    entries: Vec<StorageEntry>,
    nodes: Vec<StorageNode>,
    positions: HashMap<String, usize>,
    inputs: Vec<usize>,
    outputs: Vec<usize>,
    blocks: BTreeMap<u32, Block>,
}

impl StorageLayout {
    /// Returns the layout for values without a producer; `inputs` and `outputs` are positions.
    ///
    /// # Errors
    ///
    /// - [`Error::Storage`] if a block has values in two spaces.
    /// - [`Error::DuplicateName`](arenaplan::Error::DuplicateName), [`Error::UndefinedValue`](arenaplan::Error::UndefinedValue), [`Error::SizeOverflow`](arenaplan::Error::SizeOverflow) if
    ///   the entries contradict each other.
    pub fn new(
        entries: Vec<StorageEntry>,
        inputs: Vec<usize>,
        outputs: Vec<usize>,
    ) -> Result<Self> {
        let named = entries.iter().enumerate();
        let nodes = named.map(|(at, entry)| StorageNode::variable(&entry.name, at)).collect();
        Self::with_nodes(entries, nodes, inputs, outputs)
    }

    /// Returns the layout for the results of `nodes`; each value is one of these results.
    ///
    /// # Errors
    ///
    /// - [`Error::Storage`] if a node names an operand or a node that does not come before, or a
    ///   value is the result of no node or of two.
    /// - As [`new`](Self::new).
    pub fn with_nodes(
        entries: Vec<StorageEntry>,
        nodes: Vec<StorageNode>,
        inputs: Vec<usize>,
        outputs: Vec<usize>,
    ) -> Result<Self> {
        let mut positions = HashMap::with_capacity(entries.len());
        for (position, entry) in entries.iter().enumerate() {
            if positions.insert(entry.name.clone(), position).is_some() {
                return Err(Error::Core(Core::DuplicateName {
                    what: "values",
                    name: quoted(&entry.name),
                }));
            }
        }
        if let Some(&missing) = inputs.iter().chain(&outputs).find(|&&it| it >= entries.len()) {
            return Err(undefined(&format!("value {missing}")));
        }
        check_nodes(&nodes, entries.len())?;
        let blocks = blocks_of(&entries)?;
        Ok(Self { entries, nodes, positions, inputs, outputs, blocks })
    }

    /// Returns the layout of `graph` under `plan`; positions are those of the graph's values.
    ///
    /// Values without a block in the plan, such as graph inputs, get separate blocks. The inputs
    /// are all values without a producer: graph inputs, constants and states. A node calls the
    /// function with the operator's name, with the attributes that TVM's graph runtime requires; a
    /// direct assignment is `__nop`.
    ///
    /// # Errors
    ///
    /// [`Error::Storage`] if the plan is not for this graph.
    pub fn from_plan(graph: &Graph, plan: &StoragePlan) -> Result<Self> {
        if plan.storages().len() != graph.values().len() {
            return Err(storage("the plan is for another graph".into()));
        }
        let mut fresh = u32::try_from(plan.blocks().len()).expect("blocks have 32 bits")..;
        let entries = graph.values().iter().zip(plan.storages()).map(|(value, storage)| {
            let block = storage.block().or_else(|| fresh.next()).expect("blocks have 32 bits");
            StorageEntry {
                name: value.name().to_owned(),
                dtype: value.dtype(),
                shape: value.shape().to_vec(),
                block,
                space: value.space(),
            }
        });
        let entries: Vec<_> = entries.collect();
        let variables = (0..entries.len()).filter(|&it| graph.producer(ValueId::new(it)).is_none());
        let inputs: Vec<usize> = variables.collect();
        let outputs = graph.outputs().iter().copied().map(ValueId::index).collect();
        let nodes = nodes_of(graph, plan, &inputs);
        Self::with_nodes(entries, nodes, inputs, outputs)
    }

    /// Adds attributes to nodes; the attributes of a call that the runtime needs stay unchanged.
    ///
    /// `attributes` pairs the name of a node's first result, which is the node's name here, with
    /// attributes by name.
    #[must_use]
    pub fn with_attributes(
        mut self,
        attributes: impl IntoIterator<Item = (String, BTreeMap<String, String>)>,
    ) -> Self {
        let mut attributes: HashMap<String, BTreeMap<String, String>> =
            attributes.into_iter().collect();
        for node in &mut self.nodes {
            for (name, text) in attributes.remove(&node.name).into_iter().flatten() {
                node.attributes.entry(name).or_insert(text);
            }
        }
        self
    }

    /// Returns every value, by position.
    pub fn entries(&self) -> &[StorageEntry] {
        &self.entries
    }

    /// Returns the nodes in execution order, among them a node for each value without a producer.
    pub fn nodes(&self) -> &[StorageNode] {
        &self.nodes
    }

    /// Returns the positions of the values that the caller supplies.
    pub fn inputs(&self) -> &[usize] {
        &self.inputs
    }

    /// Returns the positions of the values that the caller receives.
    pub fn outputs(&self) -> &[usize] {
        &self.outputs
    }

    /// Returns size and space of every block, by number.
    pub const fn blocks(&self) -> &BTreeMap<u32, Block> {
        &self.blocks
    }

    /// Returns the value position by `name`.
    pub fn position(&self, name: &str) -> Option<usize> {
        self.positions.get(name).copied()
    }

    /// Returns the input position by `name`.
    ///
    /// # Errors
    ///
    /// [`Error::UndefinedValue`](arenaplan::Error::UndefinedValue) if there is no such input.
    pub fn input(&self, name: &str) -> Result<usize> {
        let position = self.position(name).filter(|position| self.inputs.contains(position));
        position.ok_or_else(|| undefined(&format!("input {}", quoted(name))))
    }

    /// Returns the input position by `name`, for an array of this type and shape.
    ///
    /// # Errors
    ///
    /// - [`Error::UndefinedValue`](arenaplan::Error::UndefinedValue) if there is no such input.
    /// - [`Error::Storage`] if the type or shape differs.
    pub fn fitting_input(&self, name: &str, dtype: DType, shape: &[u64]) -> Result<usize> {
        let position = self.input(name)?;
        let entry = &self.entries[position];
        if (dtype, shape) != (entry.dtype, &entry.shape[..]) {
            let name = quoted(name);
            return Err(storage(format!(
                "input {name} is {} {:?}, given was {dtype} {shape:?}",
                entry.dtype, entry.shape
            )));
        }
        Ok(position)
    }

    /// Returns the position of the smallest block in `free` that has room in the same space, for
    /// every block, in the order in which blocks are to be served.
    ///
    /// The largest block comes first, and no free block serves two blocks.
    pub fn reuse(&self, free: &[Block]) -> Vec<(u32, Option<usize>)> {
        let mut order: Vec<(u32, Block)> =
            self.blocks.iter().map(|(&number, &block)| (number, block)).collect();
        order.sort_by_key(|&(number, block)| (core::cmp::Reverse(block.bytes), number));
        let mut is_taken = vec![false; free.len()];
        let serve = |(number, block): (u32, Block)| {
            let fits = |position: &usize| {
                let other = free[*position];
                !is_taken[*position] && other.space == block.space && other.bytes >= block.bytes
            };
            let found = (0..free.len()).filter(fits).min_by_key(|&position| free[position].bytes);
            if let Some(position) = found {
                is_taken[position] = true;
            }
            (number, found)
        };
        order.into_iter().map(serve).collect()
    }
}

/// Refuses nodes that do not make every value once, or refer to later nodes.
fn check_nodes(nodes: &[StorageNode], values: usize) -> Result<()> {
    let mut is_made = vec![false; values];
    for (index, node) in nodes.iter().enumerate() {
        let refuse = |reason: &str| Err(storage(format!("node {} {reason}", quoted(&node.name))));
        let is_operand = |operand: &StorageOperand| {
            operand.node < index && operand.output < nodes[operand.node].outputs.len()
        };
        if !node.inputs.iter().all(is_operand) {
            return refuse("has an operand that no earlier node makes");
        }
        if node.after.iter().any(|&before| before >= index) {
            return refuse("waits for a node that does not come before");
        }
        for &output in &node.outputs {
            match is_made.get_mut(output) {
                Some(made) if !*made => *made = true,
                _ => return refuse("makes a value that another node makes, or there is none"),
            }
        }
    }
    match is_made.iter().position(|made| !made) {
        Some(value) => Err(storage(format!("no node makes value {value}"))),
        None => Ok(()),
    }
}

/// Returns size and space of every block.
fn blocks_of(entries: &[StorageEntry]) -> Result<BTreeMap<u32, Block>> {
    let mut blocks: BTreeMap<u32, Block> = BTreeMap::new();
    for entry in entries {
        let first = Block { bytes: 0, space: entry.space };
        let block = blocks.entry(entry.block).or_insert(first);
        if block.space != entry.space {
            return Err(storage(format!("block {} is in two spaces, on two devices", entry.block)));
        }
        block.bytes = entry.bytes()?.max(block.bytes);
    }
    Ok(blocks)
}

/// Returns the nodes of `graph` in execution order, after a node for each of the `variables`.
fn nodes_of(graph: &Graph, plan: &StoragePlan, variables: &[usize]) -> Vec<StorageNode> {
    let name = |position: usize| graph.values()[position].name();
    let mut nodes: Vec<StorageNode> =
        variables.iter().map(|&at| StorageNode::variable(name(at), at)).collect();
    // For each value: the index of the producer, and of the value among the results.
    let mut made = vec![(0, 0); graph.values().len()];
    for (node, &position) in variables.iter().enumerate() {
        made[position] = (node, 0);
    }
    let mut place = vec![0; graph.nodes().len()];
    let mut versions = vec![0_u64; graph.values().len()];
    for &id in graph.order() {
        let node = graph.node(id);
        place[id.index()] = nodes.len();
        for state in node.effects().mutates.iter().filter_map(|&position| node.input(position)) {
            versions[state.index()] += 1;
        }
        let operand = |value: &ValueId| {
            let (node, output) = made[value.index()];
            StorageOperand { node, output, version: versions[value.index()] }
        };
        let inputs: Vec<_> = node.inputs().iter().flatten().map(operand).collect();
        let outputs: Vec<_> = node.produces().map(|(_, value)| value.index()).collect();
        for (output, &value) in outputs.iter().enumerate() {
            made[value] = (nodes.len(), output);
        }
        let after = node.control_dependencies().iter().map(|it| place[it.index()]).collect();
        let attributes = call_of(graph, plan, id, node, inputs.len(), outputs.len());
        let name = outputs.first().map_or(node.name(), |&first| name(first)).to_owned();
        nodes.push(StorageNode { name, op: CALL.into(), attributes, inputs, after, outputs });
    }
    nodes
}

/// Returns the attributes of a call that TVM's graph runtime requires.
fn call_of(
    graph: &Graph,
    plan: &StoragePlan,
    id: NodeId,
    node: &Node,
    inputs: usize,
    outputs: usize,
) -> BTreeMap<String, String> {
    let assigned = graph.assignment(id).map(|assignment| assignment.result);
    let is_nop = assigned.is_some_and(|result| plan.direct.contains(&result));
    let function = if is_nop { NOP } else { node.op() };
    BTreeMap::from([
        ("flatten_data".into(), "0".into()),
        (FUNCTION.into(), function.into()),
        ("num_inputs".into(), inputs.to_string()),
        ("num_outputs".into(), outputs.to_string()),
    ])
}
