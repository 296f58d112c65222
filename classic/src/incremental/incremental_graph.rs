//! The graph for an incremental planner: sizes and types may change between executions.

use alloc::{
    format,
    string::{String, ToString as _},
    vec::Vec,
};
use core::str::FromStr;

use crate::error::{Error, Result};
use arenaplan::Error as Core;
use arenaplan::base::quoted;
use arenaplan::graph::{Graph, ValueKind, Whole};

/// The owner of a value's bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AllocationType {
    /// No owner.
    #[default]
    None,
    /// The model file: constants.
    ReadOnly,
    /// The temporary arena, by lifetime.
    Arena,
    /// The persistent arena, for good.
    PersistentArena,
    /// The heap, with a size that is known once the producer runs.
    Dynamic,
    /// The heap, from when the model is prepared.
    PersistentReadOnly,
    /// The caller.
    Custom,
    /// An object that is no array.
    Variant,
    /// A device.
    NonCpu,
}

impl AllocationType {
    /// Every type with a name, the same in Rust and in Python.
    pub const NAMES: [(&'static str, Self); 9] = [
        ("none", Self::None),
        ("read_only", Self::ReadOnly),
        ("arena", Self::Arena),
        ("persistent_arena", Self::PersistentArena),
        ("dynamic", Self::Dynamic),
        ("persistent_read_only", Self::PersistentReadOnly),
        ("custom", Self::Custom),
        ("variant", Self::Variant),
        ("non_cpu", Self::NonCpu),
    ];
}

impl FromStr for AllocationType {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let found = Self::NAMES.iter().find(|(name, _)| *name == text);
        found.map(|&(_, kind)| kind).ok_or_else(|| {
            let names = Self::NAMES.map(|(name, _)| name).join(", ");
            let reason = format!("{} is not one of {names}", quoted(text));
            Error::Core(Core::InvalidOption { option: "kind", reason })
        })
    }
}

/// A value: present size, and owner of the bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IncrementalValue {
    /// Size in bytes.
    pub bytes: u64,
    /// The owner of the bytes.
    pub kind: AllocationType,
}

/// Permission for an output to have an input's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SharePair {
    /// Position among the node's inputs.
    pub input: usize,
    /// Position among the node's outputs.
    pub output: usize,
    /// Whether the bytes are constant.
    pub unmodified: bool,
}

/// A node: values by index, `None` for operands that are left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IncrementalNode {
    /// Values read.
    pub inputs: Vec<Option<u32>>,
    /// Values written.
    pub outputs: Vec<Option<u32>>,
    /// Scratch values, needed while the node runs.
    pub temporaries: Vec<u32>,
    /// Outputs that may have the bytes of an input; the first that qualifies wins.
    pub shares: Vec<SharePair>,
}

/// A graph whose nodes run by ascending index.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IncrementalGraph {
    /// Every value.
    pub values: Vec<IncrementalValue>,
    /// Every node.
    pub nodes: Vec<IncrementalNode>,
    /// Values that the caller supplies.
    pub inputs: Vec<Option<u32>>,
    /// Values that the caller receives.
    pub outputs: Vec<Option<u32>>,
    /// Values that keep their bytes between runs.
    pub variables: Vec<u32>,
}

impl From<&Graph> for IncrementalGraph {
    /// Takes over sizes, operands, in-place pairs and whole views, and the smallest choice
    /// of each workspace as a temporary. States are persistent, constants are read-only.
    fn from(graph: &Graph) -> Self {
        let mut result = Self::default();
        for (index, value) in graph.values().iter().enumerate() {
            let kind = match value.kind() {
                ValueKind::State => AllocationType::PersistentArena,
                ValueKind::Input | ValueKind::Activation => AllocationType::Arena,
                _ => AllocationType::ReadOnly,
            };
            result.values.push(IncrementalValue { bytes: value.bytes(), kind });
            let id = u32::try_from(index).expect("ids have 32 bits");
            match value.kind() {
                ValueKind::Input => result.inputs.push(Some(id)),
                ValueKind::State => result.variables.push(id),
                _ => {}
            }
        }
        result.outputs = graph.outputs().iter().map(|&output| Some(output.into())).collect();
        for &id in graph.order() {
            let (node, effects) = (graph.node(id), graph.node(id).effects());
            let mut added = IncrementalNode {
                inputs: node.bytes_read().map(|read| read.map(u32::from)).collect(),
                outputs: node.outputs().iter().map(|output| output.map(u32::from)).collect(),
                ..IncrementalNode::default()
            };
            for workspace in &effects.workspaces {
                let bytes = workspace.choices.iter().map(|choice| choice.bytes).min().unwrap_or(0);
                added
                    .temporaries
                    .push(u32::try_from(result.values.len()).expect("ids have 32 bits"));
                result.values.push(IncrementalValue { bytes, kind: AllocationType::Arena });
            }
            let views = effects.views.iter();
            let whole = views.filter(|view| view.offset == 0 && view.whole == Whole::Input);
            added.shares.extend(whole.map(|view| SharePair {
                input: view.input,
                output: view.output,
                unmodified: true,
            }));
            added.shares.extend(effects.in_place.iter().map(|pair| SharePair {
                input: pair.input,
                output: pair.output,
                unmodified: pair.identity,
            }));
            result.nodes.push(added);
        }
        result
    }
}

impl IncrementalGraph {
    /// Refuses unknown values and operands.
    pub(super) fn check(&self) -> Result<()> {
        let values = self.values.len();
        if u32::try_from(values.max(self.nodes.len())).is_err() {
            return Err(Error::Core(Core::OutOfMemory { what: "more than 2^32 values or nodes" }));
        }
        let defined = |user: &dyn Fn() -> String, value: u32| {
            if at(value) < values {
                return Ok(());
            }
            Err(Error::Core(Core::UndefinedValue { user: user(), value: format!("value {value}") }))
        };
        let ends = self.inputs.iter().chain(&self.outputs).flatten().chain(&self.variables);
        for &value in ends {
            defined(&|| "the graph".into(), value)?;
        }
        for (index, node) in self.nodes.iter().enumerate() {
            let name = || format!("node {index}");
            let operands = node.inputs.iter().chain(&node.outputs).flatten();
            for &value in operands.chain(&node.temporaries) {
                defined(&name, value)?;
            }
            for pair in &node.shares {
                if pair.input >= node.inputs.len() || pair.output >= node.outputs.len() {
                    let (input, output) = (pair.input, pair.output);
                    let reason = format!("shared {input} -> {output} must name two operands");
                    return Err(Error::Core(Core::InvalidEffect {
                        node: index.to_string(),
                        reason,
                    }));
                }
            }
        }
        Ok(())
    }
}

/// Returns a value's place in a table.
pub(super) fn at(value: u32) -> usize {
    usize::try_from(value).expect("pointers have at least 32 bits")
}
