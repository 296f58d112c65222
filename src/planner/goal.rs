//! The aim of a recomputation, and the bytes that count for that aim.

use alloc::vec::Vec;

use crate::plan::Plan;
use crate::recompute::Strategy;

/// The aim of a recomputation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Goal {
    /// The least extra work with an arena of at most so many bytes.
    Bytes(u64),
    /// The fewest bytes with at most so many millionths of extra work.
    Extra(u64),
    /// The schedule of a named strategy.
    Strategy(Strategy),
}

/// One point of a curve of bytes over extra work.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CurvePoint {
    /// Bytes of the arena, without the slow memory.
    pub arena_bytes: u64,
    /// Extra work in units of cost.
    pub extra_cost: u64,
    /// Proven lower bound of the extra work of every schedule in so many bytes.
    pub extra_bound: u64,
}

/// Bytes of the arena over extra work.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Curve {
    /// Points in descending order of bytes and ascending order of work; the first one repeats
    /// nothing.
    pub points: Vec<CurvePoint>,
    /// Cost of running each node once.
    pub cost: u64,
    /// Bytes that no schedule goes below that runs each node by itself.
    pub floor: u64,
}

/// Returns the bytes of all arenas but that of the slow memory.
pub(super) fn fast_bytes(plan: &Plan) -> u64 {
    bytes_beside(plan, plan.recomputed().is_some_and(|it| it.paging.is_some()))
}

/// Returns the bytes of all arenas, without the last one if that is the slow memory.
pub(super) fn bytes_beside(plan: &Plan, has_slow: bool) -> u64 {
    let count = plan.arenas().len() - usize::from(has_slow);
    plan.arenas()[..count].iter().fold(0, |sum, space| sum.saturating_add(space.arena_bytes))
}
