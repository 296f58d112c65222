//! Arenas of `TensorFlow` Lite, in which offsets are found one allocation at a time.

pub(crate) mod backing;
mod gaps;
mod incremental_arena;
mod overlaps;
mod simple;

pub use gaps::GapRule;
pub use incremental_arena::{Allocation, IncrementalArena};
pub use simple::{SimpleArena, Span};
