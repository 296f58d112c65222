//! x
mod bound;
mod error;
mod format;
mod index;
mod overlap;
mod packing;
mod packing_check;
mod problem;
mod solve;
mod units;

pub use bound::max_load;
pub use error::{Error, Result, quoted};
pub use format::CsvProblem;
pub use index::{BufferId, NodeId, SpaceId, ValueId};
pub use packing::{Packing, SpacePacking, Status};
pub use problem::{Buffer, Part, Problem, Space};
pub use solve::{Budget, Progress, Stage, solve};
pub use units::{Alignment, LiveRange, MAX_BYTES, Step};
