//! Values, nodes and positions as 32-bit numbers.

use crate::base::ValueId;

/// Marks the absence of a value, node or position.
pub(super) const NONE: u32 = u32::MAX;

/// Returns an index as a position.
pub(super) fn at(index: u32) -> usize {
    ValueId::from(index).index()
}

/// Returns a position as an index.
pub(super) fn narrow(position: usize) -> u32 {
    u32::try_from(position).unwrap_or(NONE)
}
