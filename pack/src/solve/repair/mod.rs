//! Local search: ejection chains lower the peak of a packing; orders of placing, that of items with
//! forbidden distances.

pub(super) mod apart;
pub(super) mod chains;
mod edges;
mod neighbors;
