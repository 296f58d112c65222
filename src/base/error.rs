//! The crate's error type.

use alloc::{boxed::Box, format, string::String, vec::Vec};
use arenaplan_pack::base::{Error as Packing, Grouped, quoted};

/// A `Result` with this crate's [`Error`].
pub type Result<T, E = Error> = core::result::Result<T, E>;

/// The reason why a graph, problem, plan or arena was refused.
///
/// A message suffices to act: the message names the value, node or field. Names are quoted, escaped
/// and shortened by [`quoted`], since names come from untrusted files.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "every message names its fields")]
pub enum Error {
    /// A size in bytes exceeds a machine's address space.
    #[error("{what} needs more bytes than a machine can address")]
    SizeOverflow { what: String },
    /// An alignment is not a power of two.
    #[error("alignment {bytes} of {what} is 0, above 2^62, or not a power of two")]
    InvalidAlignment { what: String, bytes: u64 },
    /// A live range is empty or reversed.
    #[error("the live range {start}..{end} of {what} is empty")]
    InvalidLiveRange { what: String, start: u32, end: u32 },
    /// An element type is unknown.
    #[error("element type {dtype} of {what} has no size in bytes")]
    UnsupportedDtype { what: String, dtype: String },

    /// Nodes depend on each other in a circle.
    #[error("nodes depend on each other in a circle: {}", .nodes.join(" -> "))]
    GraphCycle { nodes: Vec<String> },
    /// Two nodes produce one value, or a node produces an input or constant.
    #[error("value {value} is produced by {first} and by {second}")]
    DuplicateProducer { value: String, first: String, second: String },
    /// Two values or nodes share a name.
    #[error("two {what} are called {name}")]
    DuplicateName { what: &'static str, name: String },
    /// Something is read that nothing produces.
    #[error("{user} reads {value}, which nothing produces")]
    UndefinedValue { user: String, value: String },
    /// A name is empty or unknown.
    #[error("{what}")]
    InvalidName { what: String },
    /// An effect names an operand that the node does not have.
    #[error("node {node}: {reason}")]
    InvalidEffect { node: String, reason: String },
    /// A graph cannot hold an operator's attribute.
    #[error("node {node}: attribute {attribute}: {reason}")]
    InvalidAttribute { node: String, attribute: String, reason: String },
    /// A value cannot replace an input or a state at the same address.
    #[error("value {value} cannot replace {into} at its address: {reason}")]
    InvalidWriteBack { value: String, into: String, reason: String },
    /// Nodes cannot run as one.
    #[error("the nodes up to {node} cannot run as one: {reason}")]
    InvalidGroup { node: String, reason: String },
    /// A view reaches past the end of the viewed value.
    #[error("node {node}: the view reaches byte {end} of {value}, which has {bytes} bytes")]
    AliasOutOfBounds { node: String, value: String, end: u64, bytes: u64 },

    /// A problem is malformed.
    #[error("buffer {buffer}: {reason}")]
    InvalidBuffer { buffer: usize, reason: String },
    /// Pinned offsets contradict each other or their space.
    #[error("{reason}")]
    PinConflict { reason: String },
    /// A space is too small.
    #[error(
        "space {space} holds {} bytes; the best plan needs {}, and no plan with its steps, order and sharing of bytes needs fewer than {}",
        grouped(*capacity), grouped(*needed), grouped(*lower_bound)
    )]
    CapacityExceeded { space: String, capacity: u64, needed: u64, lower_bound: u64 },

    /// Something stands for a part of a model, and the answer would be about the whole.
    #[error(
        "{model} is planned in part: {part}; how many bytes the whole model needs is not known"
    )]
    PartOfModel { model: String, part: String },

    /// No schedule was found in so many bytes.
    #[error(
        "no schedule was found in {} bytes; the best one needs {}, and none needs fewer than {}",
        grouped(*budget), grouped(*least), grouped(*floor)
    )]
    RecomputeExceeded { budget: u64, least: u64, floor: u64 },

    /// The permitted spaces cannot hold the values.
    #[error("{reason}")]
    SpacesExceeded {
        reason: String,
        /// Step at which there is no room.
        step: u32,
        /// Node that runs at that step, if any.
        node: Option<String>,
        /// The values that are needed at that step, with bytes, the largest first.
        values: Vec<(String, u64)>,
        /// Whether a proof exists that no tried step order fits, however values share bytes;
        /// otherwise no plan was found. Never if a technique other than order was asked for and
        /// left out.
        proven: bool,
    },

    /// A line in a CSV file has the wrong form.
    #[error("line {line}: {reason}")]
    InvalidCsv { line: usize, reason: String },
    /// The text is not a plan.
    #[error("not a valid plan: {reason}")]
    PlanCorrupt { reason: String },
    /// This version cannot read the version of the plan.
    #[error("plan version: {reason}")]
    PlanVersion { reason: String },
    /// The plan is implausibly large.
    #[error("the plan has {bytes} bytes, more than the limit of {limit}")]
    PlanTooLarge { bytes: u64, limit: u64 },
    /// The plan was made for another graph.
    #[error("the plan does not belong to this graph: {reason}")]
    PlanMismatch { reason: String },
    /// The runner that a plan is for, or is exported to, cannot run the plan.
    #[error("target {target} cannot run the plan: {reason}")]
    TargetMismatch { target: String, reason: String },
    /// The text is not a graph.
    #[error("not a valid graph: {reason}")]
    GraphCorrupt { reason: String },
    /// This version cannot read the version of the graph.
    #[error("graph version: {reason}")]
    GraphVersion { reason: String },
    /// The text is not a model.
    #[error("not a valid model: {reason}")]
    ModelCorrupt { reason: String },
    /// This version cannot read the version of the model.
    #[error("model version: {reason}")]
    ModelVersion { reason: String },
    /// A file is implausibly large.
    #[error("the {what} has {bytes} bytes, more than the limit of {limit}")]
    FileTooLarge { what: &'static str, bytes: u64, limit: u64 },
    /// A model has no dimension with this name.
    #[error("the model has no dimension {name}; there {known}")]
    UnknownDim { name: String, known: String },
    /// A dimension has several sizes, and none was given.
    #[error("dimension {name} has several sizes: say which, {known}")]
    UnboundDim { name: String, known: String },
    /// A model has no plan for a shape; `nearest` is a planned shape.
    #[error("{what} is not one of the shapes that were planned; the nearest is {nearest}")]
    ShapeNotPlanned { what: String, nearest: String },
    /// An error about one shape of a model.
    #[error("with {shape}: {source}")]
    AtShape { shape: String, source: Box<Error> },
    /// A placed value or workspace lies outside its arena.
    #[error("{what} occupies bytes {start}..{end} of an arena of {arena} bytes")]
    PlanOutOfBounds { what: String, start: u64, end: u128, arena: u64 },
    /// Two things needed at the same time share bytes.
    #[error("{first} and {second} share byte {byte} of the arena at step {step}")]
    PlanOverlap { first: String, second: String, step: u32, byte: u64 },
    /// Hazards leave two steps unordered that use the same bytes, or have an edge too many.
    #[error("the hazards are not those of the plan: {reason}")]
    HazardMismatch { reason: String },
    /// An offset is not a multiple of the alignment.
    #[error("{what} is at offset {offset}, which is not a multiple of its alignment {alignment}")]
    PlanMisaligned { what: String, offset: u64, alignment: u64 },

    /// The arena's bytes could not be allocated.
    #[error("an arena of {bytes} bytes could not be allocated")]
    ArenaCommit { bytes: u64 },
    /// The bytes given as an arena are too few.
    #[error("the buffer has {bytes} bytes, and the plan needs {needed}")]
    BufferTooSmall { bytes: u64, needed: u64 },
    /// The bytes given as an arena start at a badly aligned address.
    #[error("the buffer's address is not a multiple of {alignment}")]
    MisalignedBuffer { alignment: u64 },
    /// The plan's spaces do not map to one buffer.
    #[error("the plan has {spaces} spaces, and {given} buffers were given")]
    SpaceCount { spaces: usize, given: usize },

    /// An option contradicts another option, or the graph.
    #[error("option {option}: {reason}")]
    InvalidOption { option: &'static str, reason: String },
    /// Storage ids, arrays or parameters do not fit together.
    #[error("{reason}")]
    Storage { reason: String },
    /// An arena is not in the state that a call needs.
    #[error("{reason}")]
    ArenaState { reason: String },
    /// An arena was made for another plan, or for none.
    #[error("the arena is not that of the plan of {model}; `Arena::rebind` makes it so")]
    ArenaMismatch { model: String },
    /// A plan needs more bytes than a pool may ever hold.
    #[error("a lease of {bytes} bytes is larger than the pool, whose cap is {cap}")]
    LeaseTooLarge { bytes: u64, cap: u64 },
    /// The bytes of a pool are leased, and not enough bytes were given back in time.
    #[error("a lease of {bytes} bytes is refused: {leased} of {cap} bytes are leased")]
    PoolBusy { bytes: u64, leased: u64, cap: u64 },
    /// A node has no separate memory, since the node runs in a fused group.
    #[error(
        "node {node} runs as one with others in step {step}, which is lent as a whole: use `Arena::step`"
    )]
    FusedNode { node: String, step: String },
    /// An operand of a step cannot be lent in the way that is asked for.
    #[error("step {step}, {operand}: {reason}")]
    InvalidOperand { step: String, operand: String, reason: String },
    /// Bytes cannot be cast to elements of a type.
    #[error("{what} cannot be read as elements: {reason}")]
    InvalidCast { what: String, reason: String },

    /// A file cannot be read; `code` is the number that the system has for the reason.
    #[error("{path}: {reason}")]
    FileUnreadable { path: String, code: Option<i32>, reason: String },
    /// The work was interrupted by the caller.
    #[error("interrupted")]
    Interrupted,
    /// The planner itself ran out of memory.
    #[error("not enough memory for {what}")]
    OutOfMemory { what: &'static str },
}

impl Error {
    /// Returns the error for a name that is not in `known`.
    pub(crate) fn unknown_name(what: &str, given: &str, known: &str) -> Self {
        let what = format!("there is no {what} {}; there are {known}", quoted(given));
        Self::InvalidName { what }
    }

    /// Returns the name of the variant, for callers that report error kinds. For an error about one
    /// shape, returns the kind of the source.
    ///
    /// ```
    /// let error = arenaplan::base::Alignment::new(3).unwrap_err();
    /// assert_eq!(error.kind(), "InvalidAlignment");
    /// ```
    #[must_use]
    #[allow(clippy::match_same_arms, reason = "one row per variant")]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::SizeOverflow { .. } => "SizeOverflow",
            Self::InvalidAlignment { .. } => "InvalidAlignment",
            Self::InvalidLiveRange { .. } => "InvalidLiveRange",
            Self::UnsupportedDtype { .. } => "UnsupportedDtype",
            Self::GraphCycle { .. } => "GraphCycle",
            Self::DuplicateProducer { .. } => "DuplicateProducer",
            Self::DuplicateName { .. } => "DuplicateName",
            Self::UndefinedValue { .. } => "UndefinedValue",
            Self::InvalidName { .. } => "InvalidName",
            Self::InvalidEffect { .. } => "InvalidEffect",
            Self::InvalidAttribute { .. } => "InvalidAttribute",
            Self::InvalidWriteBack { .. } => "InvalidWriteBack",
            Self::InvalidGroup { .. } => "InvalidGroup",
            Self::AliasOutOfBounds { .. } => "AliasOutOfBounds",
            Self::InvalidBuffer { .. } => "InvalidBuffer",
            Self::PinConflict { .. } => "PinConflict",
            Self::PartOfModel { .. } => "PartOfModel",
            Self::RecomputeExceeded { .. } => "RecomputeExceeded",
            Self::CapacityExceeded { .. } => "CapacityExceeded",
            Self::SpacesExceeded { .. } => "SpacesExceeded",
            Self::InvalidCsv { .. } => "InvalidCsv",
            Self::PlanCorrupt { .. } => "PlanCorrupt",
            Self::PlanVersion { .. } => "PlanVersion",
            Self::PlanTooLarge { .. } => "PlanTooLarge",
            Self::PlanMismatch { .. } => "PlanMismatch",
            Self::TargetMismatch { .. } => "TargetMismatch",
            Self::GraphCorrupt { .. } => "GraphCorrupt",
            Self::GraphVersion { .. } => "GraphVersion",
            Self::ModelCorrupt { .. } => "ModelCorrupt",
            Self::ModelVersion { .. } => "ModelVersion",
            Self::FileTooLarge { .. } => "FileTooLarge",
            Self::UnknownDim { .. } => "UnknownDim",
            Self::UnboundDim { .. } => "UnboundDim",
            Self::ShapeNotPlanned { .. } => "ShapeNotPlanned",
            Self::AtShape { source, .. } => source.kind(),
            Self::PlanOutOfBounds { .. } => "PlanOutOfBounds",
            Self::PlanOverlap { .. } => "PlanOverlap",
            Self::HazardMismatch { .. } => "HazardMismatch",
            Self::PlanMisaligned { .. } => "PlanMisaligned",
            Self::ArenaCommit { .. } => "ArenaCommitError",
            Self::BufferTooSmall { .. } => "CapacityExceeded",
            Self::MisalignedBuffer { .. } => "MisalignedBuffer",
            Self::SpaceCount { .. } => "InvalidBuffer",
            Self::InvalidOption { .. } => "InvalidOption",
            Self::Storage { .. } => "StorageError",
            Self::ArenaState { .. } => "ArenaState",
            Self::ArenaMismatch { .. } => "ArenaMismatch",
            Self::LeaseTooLarge { .. } => "LeaseTooLarge",
            Self::PoolBusy { .. } => "PoolBusy",
            Self::FusedNode { .. } => "FusedNode",
            Self::InvalidOperand { .. } => "InvalidOperand",
            Self::InvalidCast { .. } => "InvalidCast",
            Self::FileUnreadable { .. } => "FileUnreadable",
            Self::Interrupted => "Interrupted",
            Self::OutOfMemory { .. } => "OutOfMemory",
        }
    }
}

impl From<Packing> for Error {
    fn from(error: Packing) -> Self {
        match error {
            Packing::SizeOverflow { what } => Self::SizeOverflow { what },
            Packing::InvalidAlignment { what, bytes } => Self::InvalidAlignment { what, bytes },
            Packing::InvalidLiveRange { what, start, end } => {
                Self::InvalidLiveRange { what, start, end }
            }
            Packing::InvalidBuffer { buffer, reason } => Self::InvalidBuffer { buffer, reason },
            Packing::PinConflict { reason } => Self::PinConflict { reason },
            Packing::PlanMismatch { reason } => Self::PlanMismatch { reason },
            Packing::PlanOutOfBounds { what, start, end, arena } => {
                Self::PlanOutOfBounds { what, start, end, arena }
            }
            Packing::PlanOverlap { first, second, step, byte } => {
                Self::PlanOverlap { first, second, step, byte }
            }
            Packing::PlanMisaligned { what, offset, alignment } => {
                Self::PlanMisaligned { what, offset, alignment }
            }
            Packing::OutOfMemory { what } => Self::OutOfMemory { what },
        }
    }
}

fn grouped(bytes: u64) -> Grouped {
    Grouped(bytes.into())
}
