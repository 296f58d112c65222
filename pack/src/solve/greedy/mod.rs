//! Greedy passes over all items, and kernelization.

mod contained;
pub(super) mod first_fit;
pub(super) mod kernelize;
mod nests;
pub(super) mod occupancy;
pub(super) mod skyline;
mod spans;
pub(super) mod stack;
pub(super) mod sweep;
