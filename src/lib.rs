//! x
mod arena;
mod bound;
mod check;
mod coloring;
mod error;
mod format;
mod graph;
mod index;
mod liveness;
mod overlap;
mod packing;
mod packing_check;
mod plan;
mod planner;
mod problem;
mod sharing;
mod solve;
mod units;

pub use arena::{Arena, Input, NodeMemory, Output};
pub use bound::max_load;
pub use coloring::{Coloring, Reachability, color_nodes, color_weighted};
pub use error::{Error, Result, quoted};
pub use format::{CsvProblem, PLAN_VERSION, plan_schema};
pub use graph::{
    Choice, DType, Effects, Graph, GraphBuilder, InPlace, Node, Value, ValueKind, View, Whole,
    Workspace,
};
pub use index::{BufferId, NodeId, SpaceId, ValueId};
pub use liveness::{
    AliasClass, AliasClasses, ChosenWorkspace, Lifetimes, Liveness, LivenessOptions, Merge,
};
pub use packing::{Packing, SpacePacking, Status};
pub use plan::{
    Placement, Plan, PlanOptions, PlanStep, Share, ShareRule, SpacePlan, WorkspacePlacement,
    WorkspacePolicy,
};
pub use planner::Planner;
pub use problem::{Buffer, Part, Problem, Space};
pub use sharing::{
    Assign, AssignKind, Block, SharingMode, SharingOptions, SizeRule, Storage, StoragePlan,
    TakenFrom, find_assigns, order_mutations, reference_counts, share_storage,
};
pub use solve::{Budget, Progress, Stage, solve};
pub use units::{Alignment, LiveRange, MAX_BYTES, Step};
