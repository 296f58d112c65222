//! Executions: the entries of a schedule in which nodes run again and values are copied between
//! memories.

use super::{NodeId, ValueId};

/// An entry in a schedule.
///
/// In text a run is a number, and a copy is an object: `4`, `{"out": 7}`, `{"in": 7}`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(untagged, deny_unknown_fields))]
pub enum Execution {
    /// A node runs.
    Run(NodeId),
    /// A value is copied to the slow memory, and stays there.
    PageOut {
        /// The value.
        #[cfg_attr(feature = "serde", serde(rename = "out"))]
        value: ValueId,
    },
    /// A value is copied back, and readers behind read this copy.
    PageIn {
        /// The value.
        #[cfg_attr(feature = "serde", serde(rename = "in"))]
        value: ValueId,
    },
}

impl From<NodeId> for Execution {
    fn from(node: NodeId) -> Self {
        Self::Run(node)
    }
}
