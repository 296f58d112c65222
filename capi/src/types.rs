//! The structs and enums of the interface.
//!
//! A struct whose first field is `size` may grow: a caller sets the field to the size that it was
//! compiled with, and zeros mean the default in every field. No such struct has padding where
//! pointers have 64 bits, so that each byte belongs to a field.

use std::ffi::{c_char, c_void};

use arenaplan::pack;
use arenaplan::plan::ShareRule as CoreShareRule;

/// The number of a value or a node that is none.
pub const NONE: u32 = u32::MAX;

/// What is proven about a size.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Status {
    /// It is the smallest possible.
    Optimal = 0,
    /// It fits the capacity, and may not be the smallest possible.
    Feasible = 1,
    /// It exceeds the capacity, and no smaller one fits: proven.
    Infeasible = 2,
    /// It exceeds the capacity; a smaller one may exist.
    #[default]
    Unknown = 3,
}

impl From<pack::Status> for Status {
    fn from(status: pack::Status) -> Self {
        match status {
            pack::Status::Optimal => Self::Optimal,
            pack::Status::Feasible => Self::Feasible,
            pack::Status::Infeasible => Self::Infeasible,
            _ => Self::Unknown,
        }
    }
}

/// Limits of a search. All zeros, but for `size`, are the defaults.
///
/// Without a time limit the result depends on the problem and the options alone, and is that of
/// `arenaplan pack` with the same options.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// `sizeof(ap_options)`.
    pub size: u32,
    /// Threads of a search with a time limit, at most 1024; 0 counts as 1.
    pub threads: u32,
    /// Milliseconds after which the best packing so far is returned; 0 is no limit.
    pub time_limit_ms: u64,
    /// Search nodes after which the best packing so far is returned; 0 is no limit.
    pub node_limit: u64,
    /// Bytes of the only space; 0 leaves the space as `ap_problem_set_space` described it.
    pub capacity: u64,
    /// Seed of every random choice.
    pub seed: u64,
}

/// A memory that buffers are placed in.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
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

/// Steps in which a buffer needs some of its bytes only, or none.
///
/// This struct never grows.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Gap {
    /// First step of the gap.
    pub lower: u64,
    /// Step after the last of the gap.
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
    /// Bytes of the buffer.
    pub bytes: u64,
    /// Power of two that divides the offset; 0 counts as 1.
    pub alignment: u64,
    /// With `AP_BUFFER_FIXED` the offset that the buffer must have; with `AP_BUFFER_HINTED` the
    /// offset that the search tries first.
    pub offset: u64,
    /// Number of the space.
    pub space: u32,
    /// Number of gaps.
    pub gap_count: u32,
    /// Gaps in the live range, in any order; they may overlap. Read during the call only.
    pub gaps: *const Gap,
}

impl Default for Buffer {
    fn default() -> Self {
        Self {
            size: 0,
            flags: 0,
            lower: 0,
            upper: 0,
            bytes: 0,
            alignment: 0,
            offset: 0,
            space: 0,
            gap_count: 0,
            gaps: std::ptr::null(),
        }
    }
}

/// Flag of a buffer: `offset` is the offset that the buffer must have.
pub const BUFFER_FIXED: u32 = 1;

/// Flag of a buffer: `offset` is tried first.
pub const BUFFER_HINTED: u32 = 2;

/// Result of a packing in one space.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct SpacePacking {
    /// `sizeof(ap_space_packing)`.
    pub size: u32,
    /// What is proven about the peak.
    pub status: Status,
    /// Bytes that the memory must have.
    pub peak: u64,
    /// Bytes that the memory must have under any offsets: proven.
    pub lower_bound: u64,
}

/// Sizes of a plan. Strings belong to the plan.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PlanInfo {
    /// `sizeof(ap_plan_info)`.
    pub size: u32,
    /// What is proven about the bytes of all arenas.
    pub status: Status,
    /// Name of the model.
    pub model: *const c_char,
    /// Digest of the graph that was planned, in hexadecimal.
    pub digest: *const c_char,
    /// Name of the target: the program that the plan is for.
    pub target: *const c_char,
    /// Bytes of all arenas together, without buffers that the caller brings.
    pub arena_bytes: u64,
    /// Bytes that no plan with this order and this sharing can go below: proven.
    pub lower_bound: u64,
    /// Number of spaces: arenas, then buffers that the caller brings for single values.
    pub space_count: u32,
    /// Number of spaces that are arenas.
    pub arena_count: u32,
    /// Number of values of the graph, those without a place among them.
    pub value_count: u32,
    /// Number of steps.
    pub step_count: u32,
}

/// One space of a plan. Strings belong to the plan.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PlanSpace {
    /// `sizeof(ap_plan_space_info)`.
    pub size: u32,
    /// The value that the caller brings this memory for, or `AP_NONE` for an arena.
    pub caller_value: u32,
    /// Name of the space.
    pub name: *const c_char,
    /// Bytes that the memory must have.
    pub bytes: u64,
    /// Power of two that must divide the address of its first byte.
    pub alignment: u64,
}

/// One value of a plan. Strings belong to the plan.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PlanValue {
    /// `sizeof(ap_plan_value_info)`.
    pub size: u32,
    /// Number of the space.
    pub space: u32,
    /// Name of the value.
    pub name: *const c_char,
    /// First byte in the space.
    pub offset: u64,
    /// Bytes of the value.
    pub bytes: u64,
    /// First step in which the bytes are needed.
    pub lower: u32,
    /// Step after the last in which the bytes are needed.
    pub upper: u32,
}

/// One step of a plan. Strings and arrays belong to the plan.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PlanStep {
    /// `sizeof(ap_plan_step_info)`.
    pub size: u32,
    /// Number of nodes that run as one.
    pub node_count: u32,
    /// Name of the last node.
    pub name: *const c_char,
    /// Numbers of the nodes in the graph, in order.
    pub nodes: *const u32,
    /// Operands that share bytes.
    pub shares: *const Share,
    /// Number of shares.
    pub share_count: u32,
    /// Number of inputs.
    pub input_count: u32,
    /// Number of outputs.
    pub output_count: u32,
    /// Number of workspaces.
    pub workspace_count: u32,
}

/// Why an output and an input of a step share bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShareRule {
    /// The smaller shows bytes of the larger unchanged: the step need not write them.
    View = 0,
    /// The output takes over the bytes of an input that dies: the step works in place.
    InPlace = 1,
    /// The output begins before an input that dies, and overlaps it: the step makes the output in
    /// order, and reads each byte for the last time before it writes there.
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
    /// The rule that permits it.
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
    /// Number of bytes.
    pub bytes: usize,
}

/// How a step uses an operand.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// The operand is left out, or its bytes are never read. `pointer` is null.
    Absent = 0,
    /// The operand has no place in the plan: a constant, which the program has. `pointer` is null.
    External = 1,
    /// The step reads the bytes. If the step mutates the operand as a state, it writes them, too.
    Read = 2,
    /// The step writes the bytes.
    Write = 3,
    /// The bytes are those of an input, and already have their final content: not to be written.
    View = 4,
}

/// One operand of a step, and its bytes in memory.
///
/// This struct never grows.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Operand {
    /// First byte, or null.
    pub pointer: *mut c_void,
    /// Number of bytes.
    pub bytes: usize,
    /// Number of the value, or `AP_NONE`.
    pub value: u32,
    /// How the step uses it.
    pub access: Access,
}

/// Memory of one step. The arrays belong to the arena.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct StepMemory {
    /// `sizeof(ap_step_memory)`.
    pub size: u32,
    /// Number of inputs.
    pub input_count: u32,
    /// Number of outputs.
    pub output_count: u32,
    /// Number of workspaces.
    pub workspace_count: u32,
    /// Inputs, by position.
    pub inputs: *const Operand,
    /// Outputs, by position.
    pub outputs: *const Operand,
    /// Scratch memory of the nodes, in order. The content is lost after the step.
    pub workspaces: *const Memory,
}

/// Returns a number of the interface as a position.
pub(crate) fn position(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}
