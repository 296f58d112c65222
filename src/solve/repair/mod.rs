//! Repair.

pub(super) mod chains;
mod edges;
mod neighbors;
