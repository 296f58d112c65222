//! Questions about packing problems, answered by several calls of the solver: which buffers make a
//! problem infeasible, and how few buffers have to move.

mod infeasible;
mod repack;

pub use infeasible::infeasible_subset;
pub use repack::{Repacking, repack};
