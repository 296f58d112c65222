//! Goals of recomputation, and the bytes that count for a goal.

use alloc::vec::Vec;

use crate::plan::Plan;
use crate::recompute::Strategy;

/// A recomputation goal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Goal {
    /// The least extra work in an arena with at most so many bytes.
    Bytes(u64),
    /// The fewest bytes with at most so many millionths of extra work.
    Extra(u64),
    /// The schedule by a named strategy.
    Strategy(Strategy),
}

/// A point on a curve: bytes over extra work.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct CurvePoint {
    /// Arena bytes, without the slow memory.
    pub arena_bytes: u64,
    /// Extra work in cost units.
    pub extra_cost: u64,
    /// Proven lower bound: no schedule in so many bytes has less extra work.
    pub extra_bound: u64,
    /// The plan.
    pub plan: Plan,
}

/// Arena bytes over extra work.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Curve {
    /// Points in descending order by bytes and ascending order by work. The first point repeats
    /// nothing.
    pub points: Vec<CurvePoint>,
    /// Cost if each node runs once.
    pub cost: u64,
    /// Lower bound of the bytes, if each node runs by itself.
    pub floor: u64,
}

/// Returns the bytes of all arenas except the slow memory.
pub(super) fn fast_bytes(plan: &Plan) -> u64 {
    bytes_beside(plan, plan.recomputed().is_some_and(|it| it.paging.is_some()))
}

/// Returns the bytes of all arenas except the slow memory, which is last if `has_slow`.
pub(super) fn bytes_beside(plan: &Plan, has_slow: bool) -> u64 {
    let count = plan.arenas().len() - usize::from(has_slow);
    plan.arenas()[..count].iter().fold(0, |sum, space| sum.saturating_add(space.arena_bytes))
}
