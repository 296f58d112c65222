//! The planner's choices, each by a separate search: groups of nodes, their order, the memories of
//! buffers, the steps that run strip by strip, and faster ways to run a step.

pub(crate) mod fuse;
pub(crate) mod order;
pub(crate) mod regions;
pub(crate) mod spaces;
pub(crate) mod time;

pub use fuse::{Fusion, fuse};
pub use order::{FoundOrder, OrderLimits, find_order};
pub use regions::{
    RowCost, RowKernel, RowMoveCost, StripChoice, StripLimits, Way, nodes_in_strips,
};
pub use spaces::{
    Assigned, AssignmentProblem, Candidate, Floor, Memories, NoRoom, SpaceAssignment, assign_spaces,
};
pub use time::{Costs, StepCost, StepForm, declared, step_times};
