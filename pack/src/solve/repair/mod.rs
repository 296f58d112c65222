//! Local search: ejection chains that lower a packing's peak, and the placing order of items with
//! forbidden distances.

pub(super) mod apart;
pub(super) mod chains;
mod edges;
mod neighbors;
