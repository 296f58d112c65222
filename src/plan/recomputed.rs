//! Nodes that run again in a plan, as separate steps, and values that are copied to a slow memory
//! and back.

use alloc::{string::String, vec::Vec};

use crate::base::Execution;
use crate::graph::ChosenInner;
use crate::pack::Space;

/// The schedule of a plan in which nodes run again, and the extra work.
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
    /// The nodes that have less inner memory than in the graph.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Vec::is_empty"))]
    pub inner: Vec<ChosenInner>,
    /// Cost if each node runs once.
    pub cost: u64,
    /// Cost of the repetitions and copies, and of repetitions inside of nodes.
    pub extra_cost: u64,
    /// Lower bound of the extra cost over all schedules, in any order, that keep no more bytes
    /// between two steps than the arena has, and run each node by itself.
    pub extra_bound: u64,
    /// Least bytes in every such schedule: one node's operands.
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
    /// The memory's name; the memory is the plan's last space.
    pub space: String,
    /// Memory capacity in bytes; `None` if unlimited.
    pub capacity: Option<u64>,
    /// Cost to copy one byte in one direction, in the unit of node costs.
    pub cost: u64,
}

impl Paging {
    /// Returns the record for a memory.
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
    /// Returns the extra work in millionths of the work if each node runs once.
    #[must_use]
    pub fn extra_millionths(&self) -> u64 {
        millionths(self.extra_cost, self.cost)
    }
}

/// Returns `part` in millionths of `whole`, rounded up.
fn millionths(part: u64, whole: u64) -> u64 {
    let found = (u128::from(part) * 1_000_000).div_ceil(u128::from(whole.max(1)));
    u64::try_from(found).unwrap_or(u64::MAX)
}
