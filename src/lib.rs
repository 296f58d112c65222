//! Plans where every tensor of a neural network lives in one arena, and proves how small
//! that arena can be.
//!
//! A [`Graph`] declares the effects of each node on memory. A [`Planner`] makes a [`Plan`] of it:
//! an
//! offset for every value, so that values needed at the same time share no byte, together
//! with a lower bound that no plan can go below. The plan is committed to an [`Arena`],
//! which lends the operands of each step of a [`Program`].
//!
//! ```
//! use arenaplan::{DType, Graph, Node, Planner, Status, Value, ValueKind};
//!
//! // x -> double -> add x: 3 arrays of 256 bytes.
//! let mut builder = Graph::builder("example");
//! let array = |name, kind| Value::new(name, kind, DType::UINT8, [256]);
//! let x = builder.add_value(array("x", ValueKind::Input)?);
//! let doubled = builder.add_value(array("doubled", ValueKind::Activation)?);
//! let sum = builder.add_value(array("sum", ValueKind::Activation)?);
//! builder.add_node(Node::new("double", "Double").reads([x]).writes([doubled]));
//! let add = Node::new("add", "Add").reads([doubled, x]).writes([sum]);
//! // The addition is elementwise: its output may take over a dying operand.
//! builder.add_node(add.in_place(0, 0));
//! builder.add_output(sum);
//! let graph = builder.build()?;
//!
//! let plan = Planner::new().plan(&graph)?;
//! assert_eq!(plan.naive_bytes(), Some(768));
//! assert_eq!((plan.arena_bytes(), plan.lower_bound()), (512, 512));
//! assert_eq!(plan.status(), Status::Optimal);
//!
//! let program = plan.program(&graph)?;
//! let mut arena = plan.commit()?;
//! arena.value_mut(&plan, x)?.fill(3);
//! for step in program.steps() {
//!     let mut memory = arena.step(&program, step)?;
//!     match graph.node(step.node()).op() {
//!         "Double" => memory.elementwise(|[x]: [u8; 1]| 2 * x)?,
//!         // In place: the first operand is in the bytes of the output.
//!         _ => memory.elementwise(|[doubled, x]: [u8; 2]| doubled + x)?,
//!     }
//! }
//! assert_eq!(arena.value(&plan, sum)?, [9; 256]);
//! # Ok::<(), arenaplan::Error>(())
//! ```
//!
//! The pipeline can be entered at any stage: [`Liveness`] makes the buffers of a graph, a
//! [`Problem`] can also be written by hand or read from CSV, [`solve()`] packs it, and
//! [`Plan::check`] is the independent definition of a valid plan.

mod arena;
mod bound;
mod boundary;
mod check;
mod coloring;
mod error;
mod fingerprint;
mod format;
mod graph;
mod incremental;
mod index;
mod liveness;
mod overlap;
mod packing;
mod packing_check;
mod placement;
mod plan;
mod planner;
mod problem;
mod profile;
mod program;
mod resize;
mod schedule;
mod shared;
mod sharing;
mod solve;
mod storage;
mod target;
mod technique;
mod transform;
mod units;

pub use arena::{
    Allocation, Arena, ArenaAllocator, ArenaBlock, GapRule, IncrementalArena, Input, NodeMemory,
    Output, SimpleArena, Span, SystemAllocator,
};
pub use bound::max_load;
pub use boundary::{InputMemory, OutputMemory};
pub use check::{Proof, SharedVerdict, SpaceVerdict, Verdict};
pub use coloring::{Coloring, Reachability, color_nodes, color_weighted};
pub use error::{Error, Result, quoted};
pub use format::{
    CsvProblem, Names, PLAN_VERSION, WriteError, plan_schema, write_file, write_files,
};
pub use graph::{
    Assignment, Choice, DType, Effects, Flow, Graph, GraphBuilder, Grouped, InPlace, Node, Overlap,
    Value, ValueKind, View, Whole, Workspace,
};
pub use incremental::{
    AllocationType, IncrementalGraph, IncrementalMode, IncrementalNode, IncrementalOptions,
    IncrementalPlanner, IncrementalValue, Place, SharePair,
};
pub use index::{BufferId, NodeId, SpaceId, ValueId};
pub use liveness::{
    AliasClass, AliasClasses, AliasRules, ChosenWorkspace, Lifetimes, Liveness, LivenessOptions,
    Member, Merge,
};
pub use packing::{Packing, SpacePacking, Status};
pub use placement::{
    Assigned, AssignmentProblem, Candidate, Floor, Memories, NoRoom, SpaceAssignment, assign_spaces,
};
pub use plan::{
    Effort, MoveCost, OrderSearch, Placement, Plan, PlanOptions, PlanStep, Search, Share,
    ShareRule, SpacePlan, TimeEstimate, WorkspacePlacement, WorkspacePolicy,
};
pub use planner::{Explanation, Planner};
pub use problem::{Buffer, Part, Problem, Space};
pub use profile::Peak;
pub use program::{
    Inputs, Operands, OutputAndInputs, Program, ProgramStep, SpaceSpan, StepMemory, StepOperand,
    StepWorkspace,
};
pub use schedule::{FoundOrder, OrderLimits, find_order};
pub use shared::{SharedMember, SharedPlan, Together};
pub use sharing::{
    Assign, AssignKind, Block, SharingMode, SharingOptions, SizeRule, Storage, StoragePlan,
    TakenFrom, find_assigns, is_elementwise, order_mutations, reference_counts, share_storage,
};
#[doc(no_inline)]
pub use solve::{
    AssumeTuning, ChainsTuning, CriticalTuning, ExactTuning, GreedyTuning, LimitsTuning,
    PortfolioTuning, RestartsTuning, SkylineTuning, WindowedTuning,
};
pub use solve::{Budget, Methods, Progress, SolveOptions, Stage, Tuning, TuningValue, solve};
pub use storage::{
    StorageEntry, StorageLayout, StorageNode, StorageOperand, StoragePool, Tensor, load_params,
    save_params,
};
pub use target::{Granularity, Provider, Target};
pub use technique::{Technique, Techniques};
pub use transform::{Fusion, fuse};
pub use units::{Alignment, LiveRange, MAX_BYTES, Step};

/// The examples of the README, as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
