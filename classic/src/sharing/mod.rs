//! Storage sharing: values share whole blocks, as in the memory planners of NNVM, `MXNet` and
//! Relay.
//!
//! A *block* is memory that serves one value after another and grows to the largest value; there
//! are no offsets. Blocks waste more bytes than an arena. Blocks are here for users of these
//! planners, and for runtimes that support nothing else.
//!
//! One pass walks the nodes in order. The pass lets outputs take over dying inputs, gives the other
//! outputs free blocks of a similar size, and frees blocks after the last reader.

mod assign;
mod pass;
mod pool;
mod shared_layout;

use alloc::{format, string::String, vec, vec::Vec};
use core::fmt;
use core::ops::Range;
use core::str::FromStr;

pub use assign::{Assign, AssignKind, find_assigns, is_elementwise, order_mutations};

use crate::coloring::{Coloring, color_nodes};
use crate::error::{Error, Result};
use arenaplan::Error as Core;
use arenaplan::base::{SpaceId, ValueId, quoted};
use arenaplan::graph::{Graph, Reachability, Value};
use pass::Pass;

/// The origin of a value's bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Storage {
    /// No rule applies: graph inputs, constants, and values outside a node range.
    #[default]
    Unassigned,
    /// The caller's memory.
    External,
    /// Memory that the node gets at run time.
    Dynamic,
    /// The block with this number.
    Block(u32),
}

impl Storage {
    /// Returns the number that NNVM writes: the block, or -1, -2, -3 for unassigned,
    /// external, dynamic.
    pub fn code(self) -> i64 {
        match self {
            Self::Unassigned => -1,
            Self::External => -2,
            Self::Dynamic => -3,
            Self::Block(block) => i64::from(block),
        }
    }

    /// Returns the storage for NNVM's `code`, if the code is valid.
    pub fn from_code(code: i64) -> Option<Self> {
        match code {
            -1 => Some(Self::Unassigned),
            -2 => Some(Self::External),
            -3 => Some(Self::Dynamic),
            _ => u32::try_from(code).ok().map(Self::Block),
        }
    }

    /// Returns the block number, if the storage is a block.
    pub const fn block(self) -> Option<u32> {
        match self {
            Self::Block(block) => Some(block),
            _ => None,
        }
    }
}

/// The origin of an output's block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TakenFrom {
    /// No block was taken over.
    #[default]
    Nothing,
    /// The input at this position.
    Input(u32),
    /// No block taken over, and no readers: the block was free again at once.
    NeverRead,
}

impl TakenFrom {
    /// Returns the number that NNVM writes: the position, or -1, or -2 for never read.
    pub fn code(self) -> i64 {
        match self {
            Self::Nothing => -1,
            Self::NeverRead => -2,
            Self::Input(position) => i64::from(position),
        }
    }
}

/// The measure of a value's size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SizeRule {
    /// The value's bytes.
    #[default]
    Bytes,
    /// Four bytes per element of any type, as in NNVM.
    ElementsTimes4,
}

impl FromStr for SizeRule {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "bytes" => Ok(Self::Bytes),
            "elements_x4" => Ok(Self::ElementsTimes4),
            _ => {
                let reason = format!("{} is neither 'bytes' nor 'elements_x4'", quoted(text));
                Err(Error::Core(Core::InvalidOption { option: "size_rule", reason }))
            }
        }
    }
}

/// The rules that decide.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SharingMode {
    /// The rules of this crate: blocks stay in one space; ignored operands are never taken over; an
    /// operand that is read twice can be taken over, and so can a larger operand; whole views
    /// share.
    #[default]
    Default,
    /// NNVM's, to the byte.
    Nnvm,
}

impl FromStr for SharingMode {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "default" => Ok(Self::Default),
            "nnvm" => Ok(Self::Nnvm),
            _ => {
                let reason = format!("{} is neither 'default' nor 'nnvm'", quoted(text));
                Err(Error::Core(Core::InvalidOption { option: "mode", reason }))
            }
        }
    }
}

impl fmt::Display for SharingMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Default => "default",
            Self::Nnvm => "nnvm",
        })
    }
}

/// Options for [`share_storage`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharingOptions {
    /// How many times larger or smaller than a value a block may be; 0 for a separate block for
    /// every value.
    pub match_range: u64,
    /// Whether to try the powers of two up to `match_range`, and keep the smallest result.
    pub auto_search: bool,
    /// Number of [colors](color_nodes); above 1, a block only moves on to a node with the color
    /// that freed the block.
    pub num_temp: u32,
    /// The measure of a value's size.
    pub size_rule: SizeRule,
    /// The rules that decide.
    pub mode: SharingMode,
    /// Whether the result must be safe in every permitted order, not only the given order.
    pub parallel_safe: bool,
    /// Positions in the node order to plan; all positions if `None`.
    pub nodes: Option<Range<usize>>,
    /// Number of reads for each value; counted if `None`.
    pub counts: Option<Vec<u32>>,
    /// Storage that the caller decided on, by value; nothing if `None`. Blocks named here belong to
    /// the caller: nothing else is put into these blocks.
    pub assigned: Option<Vec<Storage>>,
}

impl Default for SharingOptions {
    fn default() -> Self {
        Self {
            match_range: 16,
            auto_search: false,
            num_temp: 1,
            size_rule: SizeRule::Bytes,
            mode: SharingMode::Default,
            parallel_safe: false,
            nodes: None,
            counts: None,
            assigned: None,
        }
    }
}

impl SharingOptions {
    /// Returns the options under which NNVM's planner is reproduced to the byte.
    #[must_use]
    pub fn nnvm() -> Self {
        Self { mode: SharingMode::Nnvm, size_rule: SizeRule::ElementsTimes4, ..Self::default() }
    }
}

/// Memory that serves one value after another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// Size in bytes, as the size rule counts.
    pub bytes: u64,
    /// The block's memory.
    pub space: SpaceId,
}

/// The values' blocks: values with one block share storage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoragePlan {
    pub(crate) storages: Vec<Storage>,
    pub(crate) taken_from: Vec<TakenFrom>,
    pub(crate) blocks: Vec<Block>,
    pub(crate) given: u32,
    /// Results and right sides of assignments, which have a state's block.
    pub(crate) tied: Vec<ValueId>,
    /// Results of direct assignments: their nodes do nothing.
    pub(crate) direct: Vec<ValueId>,
    pub(crate) not_allocated: usize,
    pub(crate) match_range: u64,
    pub(crate) coloring: Option<Coloring>,
    pub(crate) parallel_safe: bool,
}

impl StoragePlan {
    /// Returns where each value's bytes come from, by [`ValueId`].
    pub fn storages(&self) -> &[Storage] {
        &self.storages
    }

    /// Returns where one value's bytes come from.
    pub fn storage(&self, value: ValueId) -> Storage {
        self.storages[value.index()]
    }

    /// Returns the origin of each value's block, by [`ValueId`].
    pub fn taken_from(&self) -> &[TakenFrom] {
        &self.taken_from
    }

    /// Returns the blocks, by number. The first [`given`](Self::given) are the caller's.
    pub fn blocks(&self) -> &[Block] {
        &self.blocks
    }

    /// Returns the number of the caller's blocks.
    pub const fn given(&self) -> u32 {
        self.given
    }

    /// Returns the bytes of all blocks except the caller's.
    pub fn allocated_bytes(&self) -> u64 {
        // The sum was checked when the plan was made.
        self.own_blocks().iter().map(|block| block.bytes).sum()
    }

    /// Returns the number of results in the node range without storage.
    pub const fn not_allocated(&self) -> usize {
        self.not_allocated
    }

    /// Returns the match range of the pass that was kept.
    pub const fn match_range(&self) -> u64 {
        self.match_range
    }

    /// Returns the colors, if there were several.
    pub const fn coloring(&self) -> Option<&Coloring> {
        self.coloring.as_ref()
    }

    fn own_blocks(&self) -> &[Block] {
        let given = usize::try_from(self.given).expect("blocks are numbered by 32 bits");
        &self.blocks[given..]
    }
}

/// Returns the values in `graph` that can share blocks.
///
/// # Errors
///
/// - [`Error::InvalidOption`](arenaplan::Error::InvalidOption) if the options contradict each other or the graph.
/// - [`Error::SizeOverflow`](arenaplan::Error::SizeOverflow) if all blocks together exceed [`MAX_BYTES`](arenaplan::base::MAX_BYTES).
///
/// # References
///
/// NNVM's `PlanMemory` pass; Chen et al., "Training Deep Nets with Sublinear Memory Cost",
/// 2016, arXiv:1604.06174, section 3.
///
/// ```
/// use arenaplan_classic::sharing::{SharingOptions, share_storage};
/// use arenaplan::{DType, Graph, Node, Value, ValueKind};
///
/// let mut builder = Graph::builder("chain");
/// let mut last = builder.add_value(Value::new("x", ValueKind::Input, DType::FLOAT32, [10])?);
/// for name in ["a", "b", "c"] {
///     let next = builder.add_value(Value::new(name, ValueKind::Activation, DType::FLOAT32, [10])?);
///     builder.add_node(Node::new(name, "Conv").reads([last]).writes([next]));
///     last = next;
/// }
/// builder.add_output(last);
/// let plan = share_storage(&builder.build()?, &SharingOptions::default())?;
/// let codes: Vec<_> = plan.storages().iter().map(|storage| storage.code()).collect();
/// assert_eq!(codes, [-1, 0, 1, 0]); // `x` is the caller's
/// assert_eq!(plan.allocated_bytes(), 80);
/// # Ok::<(), arenaplan_classic::Error>(())
/// ```
pub fn share_storage(graph: &Graph, options: &SharingOptions) -> Result<StoragePlan> {
    check_options(graph, options)?;
    let counts = match &options.counts {
        Some(counts) => counts.clone(),
        None => reference_counts(graph),
    };
    check_counts(graph, options, &counts)?;
    let sizes = graph
        .values()
        .iter()
        .map(|value| size_of(value, options.size_rule))
        .collect::<Result<Vec<_>>>()?;
    let coloring =
        if options.num_temp > 1 { Some(color_nodes(graph, options.num_temp)?) } else { None };
    let reach = options.parallel_safe.then(|| Reachability::new(graph));
    let mut best: Option<(u64, StoragePlan)> = None;
    for match_range in ranges(options) {
        let pass = Pass::new(graph, options, match_range, &counts, &sizes);
        let plan = pass.colored(coloring.as_ref()).ordered(reach.as_ref()).run();
        let bytes = plan.own_blocks().iter().try_fold(0_u64, |sum, block| {
            sum.checked_add(block.bytes).filter(|&sum| sum <= arenaplan::base::MAX_BYTES)
        });
        let bytes = bytes.ok_or_else(|| {
            Error::Core(Core::SizeOverflow { what: "all blocks together".into() })
        })?;
        if best.as_ref().is_none_or(|(least, _)| bytes < *least) {
            best = Some((bytes, plan));
        }
    }
    let (_, mut plan) = best.expect("there is a range to try");
    plan.coloring = coloring;
    plan.parallel_safe = options.parallel_safe;
    Ok(plan)
}

/// Returns the read count of each value: once per operand whose bytes are read, and once per time
/// that the caller receives the value.
#[must_use]
pub fn reference_counts(graph: &Graph) -> Vec<u32> {
    let mut counts = vec![0; graph.values().len()];
    for node in graph.nodes() {
        for (_, value) in node.reads_bytes_of() {
            counts[value.index()] += 1;
        }
    }
    for output in graph.outputs() {
        counts[output.index()] += 1;
    }
    counts
}

/// Returns the match ranges to try, in order.
fn ranges(options: &SharingOptions) -> Vec<u64> {
    if !options.auto_search {
        return vec![options.match_range];
    }
    core::iter::successors(Some(1_u64), |range| range.checked_mul(2))
        .take_while(|&range| range <= options.match_range)
        .collect()
}

/// Refuses options that make no sense together.
fn check_options(graph: &Graph, options: &SharingOptions) -> Result<()> {
    let refuse = |option, reason: String| Err(Error::Core(Core::InvalidOption { option, reason }));
    if options.auto_search && options.match_range == 0 {
        return refuse("auto_search", "a match range of 0 leaves nothing to search".into());
    }
    if options.num_temp == 0 {
        return refuse("num_temp", "there must be at least one color".into());
    }
    if options.parallel_safe && options.mode == SharingMode::Nnvm {
        return refuse("parallel_safe", "NNVM has no such rule; use the default mode".into());
    }
    if let Some(nodes) = &options.nodes
        && (nodes.start > nodes.end || nodes.end > graph.order().len())
    {
        let count = graph.order().len();
        return refuse(
            "nodes",
            format!("{}..{} must be within {count} nodes", nodes.start, nodes.end),
        );
    }
    let values = graph.values().len();
    if let Some(assigned) = &options.assigned {
        if assigned.len() != values {
            return refuse("assigned", format!("{} entries for {values} values", assigned.len()));
        }
        for (storage, value) in assigned.iter().zip(graph.values()) {
            // More blocks than values are never needed, and none is made for a larger number.
            let block = storage.block().and_then(|block| usize::try_from(block).ok());
            if let Some(block) = block.filter(|&block| block >= values) {
                let name = quoted(value.name());
                let reason = format!("block {block} of value {name} is past the {values} values");
                return refuse("assigned", reason);
            }
        }
    }
    Ok(())
}

/// Refuses counts below the reads by planned nodes.
fn check_counts(graph: &Graph, options: &SharingOptions, counts: &[u32]) -> Result<()> {
    let refuse =
        |reason: String| Err(Error::Core(Core::InvalidOption { option: "counts", reason }));
    if counts.len() != graph.values().len() {
        return refuse(format!("{} entries for {} values", counts.len(), graph.values().len()));
    }
    if options.counts.is_none() {
        return Ok(());
    }
    let mut reads = vec![0_u32; counts.len()];
    let nodes = options.nodes.clone().unwrap_or(0..graph.order().len());
    for &id in &graph.order()[nodes] {
        for (_, value) in graph.node(id).reads_bytes_of() {
            reads[value.index()] += 1;
        }
    }
    for ((&given, read), value) in counts.iter().zip(reads).zip(graph.values()) {
        if given < read {
            let name = quoted(value.name());
            return refuse(format!("value {name} is read {read} times, counted were {given}"));
        }
    }
    Ok(())
}

/// Returns the value's size under the size rule.
fn size_of(value: &Value, rule: SizeRule) -> Result<u64> {
    let bytes = match rule {
        SizeRule::Bytes => Some(value.bytes()),
        SizeRule::ElementsTimes4 => value.elements().and_then(|elements| elements.checked_mul(4)),
    };
    bytes.filter(|&bytes| bytes <= arenaplan::base::MAX_BYTES).ok_or_else(|| {
        Error::Core(Core::SizeOverflow { what: format!("value {}", quoted(value.name())) })
    })
}
