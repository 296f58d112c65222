//! Local search: ejection chains lower the peak of a packing.

pub(super) mod chains;
mod edges;
mod neighbors;
