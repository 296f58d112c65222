//! Questions about packing problems: which buffers make a problem infeasible, how few buffers have
//! to move, and how low other buffers can be at the peak. Most answers take several calls to the
//! solver.

mod compact;
mod infeasible;
mod live_pairs;
mod repack;

pub use compact::compact;
pub use infeasible::infeasible_subset;
pub use repack::{Repacking, repack};
