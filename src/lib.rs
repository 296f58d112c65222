//! x
mod bound;
mod error;
mod index;
mod packing;
mod problem;
mod solve;
mod units;

pub use bound::max_load;
pub use error::{Error, Result, quoted};
pub use index::{BufferId, NodeId, SpaceId, ValueId};
pub use packing::{Packing, SpacePacking, Status};
pub use problem::{Buffer, Part, Problem, Space};
pub use solve::{Budget, Progress, solve};
pub use units::{Alignment, LiveRange, MAX_BYTES, Step};
