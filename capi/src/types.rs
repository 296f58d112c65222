//! The structs and enums in the interface.
//!
//! A struct whose first field is `size` may grow: a caller sets the field to the compiled size, and
//! zeros mean the default in every field. No such struct has padding where pointers have 64 bits,
//! so that each byte belongs to a field.

use std::ffi::{CString, c_char, c_void};

use arenaplan::pack;
use arenaplan::plan::{HazardKind as CoreHazardKind, ShareRule as CoreShareRule};

use crate::cancel::Cancel;

/// The number for an absent value or node.
pub const NONE: u32 = u32::MAX;

/// A size's proven status.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Status {
    /// The size is the smallest possible.
    Optimal = 0,
    /// The size fits the capacity, and may not be the smallest possible.
    Feasible = 1,
    /// The size exceeds the capacity, and no smaller size fits: proven.
    Infeasible = 2,
    /// The size exceeds the capacity; a smaller size may exist.
    #[default]
    Unknown = 3,
}

impl From<pack::Status> for Status {
    fn from(status: pack::Status) -> Self {
        match status {
            pack::Status::Optimal => Self::Optimal,
            pack::Status::Feasible => Self::Feasible,
            pack::Status::Infeasible => Self::Infeasible,
            pack::Status::Unknown => Self::Unknown,
        }
    }
}

/// Flag of options: buffers are moved to lower offsets at last, until none can move alone.
pub const OPTIONS_COMPACT: u32 = 1;

/// Search limits. All zeros, except `size`, are the defaults.
///
/// Without a time limit the result depends on the problem and the options alone, and equals the
/// result of `arenaplan pack` with the same options.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// `sizeof(ap_options)`.
    pub size: u32,
    /// `AP_OPTIONS_COMPACT`, or 0.
    pub flags: u32,
    /// Milliseconds after which the best packing so far is returned; 0 is no limit.
    pub time_limit_ms: u64,
    /// Search nodes after which the best packing so far is returned; 0 is no limit.
    pub node_limit: u64,
    /// Bytes of the only space; 0 leaves the space as described by `ap_problem_set_space`.
    pub capacity: u64,
    /// Seed for every random choice.
    pub seed: u64,
    /// Called now and then, and whenever a better packing is found; or null.
    pub progress: ProgressFunction,
    /// First argument to `progress`.
    pub context: *mut c_void,
    /// Ends the search when requested; may be null. Read until the search ends.
    pub cancel: *const Cancel,
}

/// Receives search progress; the struct is valid during the call. A result other than 0 ends the
/// search, which then returns the best result so far.
///
/// The function must return, so the function throws no exception, and must not use the search's
/// handles.
pub type ProgressFunction =
    Option<unsafe extern "C" fn(context: *mut c_void, progress: *const Progress) -> i32>;

/// Search progress.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// `sizeof(ap_progress)` in the library; fields past this size do not exist.
    pub size: u32,
    /// Space that is being packed.
    pub space: u32,
    /// Name of the method that is at work, for people. Valid during the call.
    pub stage: *const c_char,
    /// Bytes of the best result so far; before packing, the live bytes at the highest step.
    pub peak: u64,
    /// Bytes that no result can go below.
    pub lower_bound: u64,
    /// Search nodes so far.
    pub nodes: u64,
}

/// A way to run a step.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Way {
    /// Scratch bytes.
    pub bytes: u64,
    /// Nanoseconds per run.
    pub nanoseconds: u64,
}

/// Most ways that a step can run in.
pub const MOST_WAYS: usize = 16;

/// States the cost of running `count` nodes, by position in the graph, as one step in this order.
/// The function writes the ways to run the step, ascending bytes, to `ways`, an array with
/// `AP_MOST_WAYS` elements, and returns the number of ways; 0 if the program has no kernel for the
/// step.
///
/// Equal nodes must have equal costs. The function must return, so the function throws no
/// exception, and must not use the search's handles. Outputs that overlap an input at a distance,
/// and steps that run strip by strip, have no costs in C: the plan has no such outputs and steps.
pub type CostFunction = Option<
    unsafe extern "C" fn(
        context: *mut c_void,
        nodes: *const u32,
        count: usize,
        ways: *mut Way,
    ) -> usize,
>;

/// Plan options. All zeros, except `size`, are the defaults.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PlanOptions {
    /// `sizeof(ap_plan_options)`.
    pub size: u32,
    /// `AP_PLAN_PARALLEL_SAFE` and the flags behind.
    pub flags: u32,
    /// Target name, such as "nodes" or "c"; null stands for "nodes", one node per step.
    pub target: *const c_char,
    /// Power of two that divides every offset; 0 stands for the target's alignment.
    pub alignment: u64,
    /// Arena bytes; 0 is no limit.
    pub capacity: u64,
    /// Milliseconds after which the best plan so far is returned; 0 is no limit.
    pub time_limit_ms: u64,
    /// Workers that run steps at the same time; 0 counts as 1.
    pub workers: u32,
    /// `AP_EFFORT_FAST` or `AP_EFFORT_MAX`, or 0.
    pub effort: u32,
    /// Called now and then; or null.
    pub progress: ProgressFunction,
    /// First argument to `progress` and `costs`.
    pub context: *mut c_void,
    /// Ends the search when requested; may be null. Read until the search ends.
    pub cancel: *const Cancel,
    /// States the scratch memory and the time of steps, which the plan then has and weighs, for a
    /// target whose kernels have scratch memory, such as "numpy"; or null.
    pub costs: CostFunction,
    /// With `costs`: longest time, in thousandths of the fastest plan's time; 0 is no limit.
    pub max_slowdown: u64,
}

/// Plan flag: the plan is safe in every order that the graph permits.
pub const PLAN_PARALLEL_SAFE: u32 = 1;

/// Plan flag: inputs keep their bytes until the run ends.
pub const PLAN_PRESERVE_INPUTS: u32 = 2;

/// Plan flag: inputs are in the caller's memory, a space each.
pub const PLAN_CALLER_INPUTS: u32 = 4;

/// Plan flag: outputs are in the caller's memory, a space each.
pub const PLAN_CALLER_OUTPUTS: u32 = 8;

/// Milliseconds of effort.
pub const EFFORT_FAST: u32 = 1;

/// Up to a minute or two of effort.
pub const EFFORT_MAX: u32 = 2;

/// The reason why a step must wait for another step; the first of several reasons.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HazardKind {
    /// The later step reads a value, or bytes, that the earlier step writes.
    Data = 0,
    /// The later step writes bytes that the earlier step reads.
    WriteAfterRead = 1,
    /// The later step writes bytes that the earlier step writes.
    WriteAfterWrite = 2,
    /// The graph demands the order, and no byte does.
    Control = 3,
}

impl TryFrom<CoreHazardKind> for HazardKind {
    type Error = ();

    fn try_from(kind: CoreHazardKind) -> Result<Self, ()> {
        match kind {
            CoreHazardKind::Data => Ok(Self::Data),
            CoreHazardKind::WriteAfterRead => Ok(Self::WriteAfterRead),
            CoreHazardKind::WriteAfterWrite => Ok(Self::WriteAfterWrite),
            CoreHazardKind::Control => Ok(Self::Control),
            _ => Err(()),
        }
    }
}

/// A step that must wait for another step.
///
/// This struct never grows.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Hazard {
    /// The waiting step's index.
    pub after: u32,
    /// The required earlier step's index.
    pub before: u32,
    /// The reason.
    pub kind: HazardKind,
}

/// Returns `bytes` bytes at a multiple of `alignment`, or null. Called on any thread, one call at a
/// time per pool.
pub type AllocateFunction =
    Option<unsafe extern "C" fn(context: *mut c_void, bytes: u64, alignment: u64) -> *mut c_void>;

/// Frees a block from the other function, with the same `bytes`. Called on any thread.
pub type DeallocateFunction =
    Option<unsafe extern "C" fn(context: *mut c_void, memory: *mut c_void, bytes: u64)>;

/// Pool options. All zeros, except `size`, are the defaults.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PoolOptions {
    /// `sizeof(ap_pool_options)`.
    pub size: u32,
    /// `AP_POOL_CLEAR` and `AP_POOL_KEEP_NOTHING`, or 0.
    pub flags: u32,
    /// Bytes that the blocks of the pool, leased and free, may have together; 0 is no limit.
    pub cap: u64,
    /// Bytes of free blocks that are kept for later leases; 0 keeps all.
    pub keep: u64,
    /// Source of blocks; null stands for the library's allocator. Both functions, or none.
    pub allocate: AllocateFunction,
    /// Frees a block from `allocate`.
    pub deallocate: DeallocateFunction,
    /// First argument to both functions.
    pub context: *mut c_void,
}

/// Pool flag: returned blocks are filled with zeros.
pub const POOL_CLEAR: u32 = 1;

/// Pool flag: no free blocks are kept.
pub const POOL_KEEP_NOTHING: u32 = 2;

/// A wait without a time limit.
pub const FOREVER: u64 = u64::MAX;

/// Pool statistics.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PoolNumbers {
    /// `sizeof(ap_pool_numbers)`.
    pub size: u32,
    /// Requests that wait now.
    pub waiting: u32,
    /// Bytes in the blocks that are leased now.
    pub leased_bytes: u64,
    /// Bytes of the blocks that are free now, and kept.
    pub free_bytes: u64,
    /// Most bytes, leased and free, at any time.
    pub peak_bytes: u64,
    /// Leases that were given.
    pub leases: u64,
    /// Blocks that were leased again.
    pub reused: u64,
    /// Blocks that were allocated.
    pub allocated: u64,
    /// Free blocks that were freed.
    pub evicted: u64,
    /// Requests that had to wait.
    pub waits: u64,
    /// Requests that were refused because their time was over.
    pub refused: u64,
}

/// A memory that buffers are placed in.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Space {
    /// `sizeof(ap_space)`.
    pub size: u32,
    /// 0.
    pub flags: u32,
    /// Bytes that the memory holds; 0 is unlimited.
    pub capacity: u64,
    /// Power of two that divides every offset; 0 counts as 1.
    pub alignment: u64,
}

/// Steps that need only some bytes of a buffer, or none.
///
/// This struct never grows.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Gap {
    /// First step in the gap.
    pub lower: u64,
    /// Step after the gap's last step.
    pub upper: u64,
    /// First byte that stays needed.
    pub bytes_lower: u64,
    /// Byte after the last that stays needed; equal to `bytes_lower` if none do.
    pub bytes_upper: u64,
}

/// A buffer with rare properties.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Buffer {
    /// `sizeof(ap_buffer)`.
    pub size: u32,
    /// `AP_BUFFER_FIXED` or `AP_BUFFER_HINTED`, or 0.
    pub flags: u32,
    /// First step in which the buffer is needed.
    pub lower: u64,
    /// Step after the last in which the buffer is needed.
    pub upper: u64,
    /// Buffer bytes.
    pub bytes: u64,
    /// Number that divides the offset, which need not be a power of two; 0 counts as 1.
    pub alignment: u64,
    /// With `AP_BUFFER_FIXED` the offset that the buffer must have; with `AP_BUFFER_HINTED` the
    /// offset that the search tries first.
    pub offset: u64,
    /// Space number.
    pub space: u32,
    /// Gap count.
    pub gap_count: u32,
    /// Gaps in the live range, in any order; gaps may overlap. Read during the call only.
    pub gaps: *const Gap,
}

/// Buffer flag: `offset` is the offset that the buffer must have.
pub const BUFFER_FIXED: u32 = 1;

/// Buffer flag: `offset` is tried first.
pub const BUFFER_HINTED: u32 = 2;

/// Result of a packing in one space.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct SpacePacking {
    /// `sizeof(ap_space_packing)`.
    pub size: u32,
    /// The peak's proven status.
    pub status: Status,
    /// Bytes that the memory must have.
    pub peak: u64,
    /// Bytes that the memory must have under any offsets: proven.
    pub lower_bound: u64,
}

/// Plan sizes. Strings belong to the plan.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PlanInfo {
    /// `sizeof(ap_plan_info)`.
    pub size: u32,
    /// The arena bytes' proven status.
    pub status: Status,
    /// Model name.
    pub model: *const c_char,
    /// Planned graph digest, in hexadecimal.
    pub digest: *const c_char,
    /// Target name: the program that the plan is for.
    pub target: *const c_char,
    /// Total arena bytes, without the caller's buffers.
    pub arena_bytes: u64,
    /// Bytes that no plan with this order and this sharing can go below: proven.
    pub lower_bound: u64,
    /// Number of spaces: arenas, then the caller's buffers for single values.
    pub space_count: u32,
    /// Space count, arenas only.
    pub arena_count: u32,
    /// Number of values in the graph, values without a place included.
    pub value_count: u32,
    /// Step count.
    pub step_count: u32,
}

/// A plan's space. Strings belong to the plan.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PlanSpace {
    /// `sizeof(ap_plan_space_info)`.
    pub size: u32,
    /// The value that the caller brings this memory for, or `AP_NONE` for an arena.
    pub caller_value: u32,
    /// Space name.
    pub name: *const c_char,
    /// Bytes that the memory must have.
    pub bytes: u64,
    /// Power of two that must divide the space's first address.
    pub alignment: u64,
}

/// A plan's value. Strings belong to the plan.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PlanValue {
    /// `sizeof(ap_plan_value_info)`.
    pub size: u32,
    /// Space number.
    pub space: u32,
    /// Value name.
    pub name: *const c_char,
    /// First byte in the space.
    pub offset: u64,
    /// Value bytes.
    pub bytes: u64,
    /// First step in which the bytes are needed.
    pub lower: u32,
    /// Step after the last in which the bytes are needed.
    pub upper: u32,
}

/// A plan's step. Strings and arrays belong to the plan.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PlanStep {
    /// `sizeof(ap_plan_step_info)`.
    pub size: u32,
    /// Node count in the step.
    pub node_count: u32,
    /// The last node's name.
    pub name: *const c_char,
    /// Node numbers in the graph, in order.
    pub nodes: *const u32,
    /// Operands that share bytes.
    pub shares: *const Share,
    /// Share count.
    pub share_count: u32,
    /// Input count.
    pub input_count: u32,
    /// Output count.
    pub output_count: u32,
    /// Workspace count.
    pub workspace_count: u32,
    /// Operator of the last node; null if the plan was read without a graph.
    pub op: *const c_char,
}

/// A model. Strings and arrays belong to the model.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ModelInfo {
    /// `sizeof(ap_model_info)`.
    pub size: u32,
    /// Shape count.
    pub shape_count: u32,
    /// Model name.
    pub name: *const c_char,
    /// Variable dimension names.
    pub dims: *const *const c_char,
    /// Arena bytes that suffice for every shape.
    pub arena_bytes: u64,
    /// Dimension count.
    pub dim_count: u32,
    /// 0.
    pub flags: u32,
}

/// A model's shape. Strings and arrays belong to the model.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ModelShape {
    /// `sizeof(ap_model_shape_info)`.
    pub size: u32,
    /// Dimension count.
    pub dim_count: u32,
    /// Size by dimension, in the order of `ap_model_info::dims`.
    pub sizes: *const u64,
    /// Graph digest, in hexadecimal.
    pub digest: *const c_char,
    /// Total arena bytes.
    pub arena_bytes: u64,
}

/// A dimension in a request, with a size.
///
/// This struct never grows.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Dim {
    /// Dimension name.
    pub name: *const c_char,
    /// Dimension size.
    pub size: u64,
}

/// Flag of `ap_model_find`: if the shape was not planned, the smallest shape that is at least as
/// large in every dimension is found.
pub const FIND_PADDED: u32 = 1;

/// The reason why an output and an input of a step share bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShareRule {
    /// The smaller operand shows the larger operand's bytes unchanged: the step need not write the
    /// bytes.
    View = 0,
    /// The output takes over the bytes of an input that dies: the step works in place.
    InPlace = 1,
    /// The output begins before a dying input and overlaps the input: the step makes the output in
    /// order, and reads each byte for the last time before writing there.
    Overlap = 2,
}

impl TryFrom<CoreShareRule> for ShareRule {
    type Error = ();

    fn try_from(rule: CoreShareRule) -> Result<Self, ()> {
        match rule {
            CoreShareRule::View => Ok(Self::View),
            CoreShareRule::InPlace => Ok(Self::InPlace),
            CoreShareRule::Overlap => Ok(Self::Overlap),
            _ => Err(()),
        }
    }
}

/// Two operands of a step that share bytes.
///
/// This struct never grows.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Share {
    /// Position among the inputs.
    pub input: u32,
    /// Position among the outputs.
    pub output: u32,
    /// The rule that permits sharing.
    pub rule: ShareRule,
}

/// Bytes in memory.
///
/// This struct never grows.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    /// First byte.
    pub pointer: *mut c_void,
    /// Byte count.
    pub bytes: usize,
}

/// How a step uses an operand.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// The operand is left out, or the bytes are never read. `pointer` is null.
    Absent = 0,
    /// The operand has no place in the plan: a constant, which the program has. `pointer` is null.
    External = 1,
    /// The step reads the bytes. If the step mutates the operand as a state, the step writes the
    /// bytes, too.
    Read = 2,
    /// The step writes the bytes.
    Write = 3,
    /// The bytes belong to an input, and already have the final content: not to be written.
    View = 4,
}

/// An operand of a step, and the operand's bytes in memory.
///
/// This struct never grows.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Operand {
    /// First byte, or null.
    pub pointer: *mut c_void,
    /// Byte count.
    pub bytes: usize,
    /// Value number, or `AP_NONE`.
    pub value: u32,
    /// How the step uses the operand.
    pub access: Access,
}

/// Memory for one step. The arrays belong to the arena.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct StepMemory {
    /// `sizeof(ap_step_memory)`.
    pub size: u32,
    /// Input count.
    pub input_count: u32,
    /// Output count.
    pub output_count: u32,
    /// Workspace count.
    pub workspace_count: u32,
    /// Inputs, by position.
    pub inputs: *const Operand,
    /// Outputs, by position.
    pub outputs: *const Operand,
    /// Scratch memory of the nodes, in order. The content is lost after the step.
    pub workspaces: *const Memory,
}

/// Returns text that ends with a zero; zeros inside become question marks.
pub(crate) fn c_string(text: &str) -> CString {
    CString::new(text).unwrap_or_else(|_| CString::new(text.replace('\0', "?")).unwrap_or_default())
}

/// Returns a 32-bit number as an index.
pub(crate) fn position(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}
