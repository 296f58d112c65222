//! Questions about packing problems, most of them answered by several calls of the solver: which buffers make
//! a problem infeasible, how few buffers have to move, and how low the others can be at the peak.

mod compact;
mod infeasible;
mod live_pairs;
mod repack;

pub use compact::compact;
pub use infeasible::infeasible_subset;
pub use repack::{Repacking, repack};
