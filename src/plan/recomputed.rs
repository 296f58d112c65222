//! Nodes that run again in a plan, as steps of their own, and values that are copied to a slow
//! memory and back.

use alloc::{string::String, vec::Vec};

use crate::base::Execution;
use crate::pack::Space;

/// The schedule of a plan in which nodes run again, and its extra work.
///
/// The plan is of the graph in which each execution is a node
/// ([`Graph::scheduled`](crate::Graph::scheduled)); [`Plan::check`](crate::Plan::check) takes the
/// graph without repetitions, too.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
#[non_exhaustive]
pub struct Recomputed {
    /// The executions: nodes of the graph without repetitions, and values that are copied. A
    /// reader reads the latest value that was made before.
    pub schedule: Vec<Execution>,
    /// Cost of running each node once.
    pub cost: u64,
    /// Cost of the repetitions and of the copies.
    pub extra_cost: u64,
    /// Lower bound of the extra cost of every schedule, in any order, that keeps no more bytes
    /// between two steps than the arena has, and runs each node by itself.
    pub extra_bound: u64,
    /// Bytes that no such schedule goes below: the operands of one node.
    pub floor: u64,
    /// The memory that values are copied to, if any may be.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub paging: Option<Paging>,
}

/// A slow memory that values are copied to and back from.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
#[non_exhaustive]
pub struct Paging {
    /// Name of the memory, which is the last space of the plan.
    pub space: String,
    /// Bytes that it holds; `None` if it is unlimited.
    pub capacity: Option<u64>,
    /// Cost of copying one byte in one direction, in the units of the costs of nodes.
    pub cost: u64,
}

impl Paging {
    /// Returns the record of a memory.
    #[must_use]
    pub fn of(space: &Space) -> Self {
        Self { space: space.name().into(), capacity: space.capacity(), cost: space.cost() }
    }

    /// Returns the memory.
    #[must_use]
    pub fn to_space(&self) -> Space {
        let space = Space::new(self.space.clone()).with_cost(self.cost);
        match self.capacity {
            Some(bytes) => space.with_capacity(bytes),
            None => space,
        }
    }
}

impl Recomputed {
    /// Returns the extra work in millionths of the work of running each node once.
    #[must_use]
    pub fn extra_millionths(&self) -> u64 {
        millionths(self.extra_cost, self.cost)
    }
}

/// Returns a part in millionths of the whole, rounded up.
fn millionths(part: u64, whole: u64) -> u64 {
    let found = (u128::from(part) * 1_000_000).div_ceil(u128::from(whole.max(1)));
    u64::try_from(found).unwrap_or(u64::MAX)
}
