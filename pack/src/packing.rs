//! The answer of a solver: an offset for every buffer, and proofs about the peak.

use alloc::vec::Vec;
use core::fmt;

use crate::base::{BufferId, SpaceId};

/// An answer's proven quality.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "lowercase"))]
pub enum Status {
    /// No smaller peak is possible: proven.
    Optimal,
    /// The offsets are valid; a smaller peak is not excluded.
    Feasible,
    /// No offsets fit the capacity: proven.
    Infeasible,
    /// No offsets were found that fit the capacity, and none are excluded.
    Unknown,
}

impl Status {
    /// Returns the status of a valid packing in a space.
    #[must_use]
    pub fn of(peak: u64, lower_bound: u64, capacity: Option<u64>) -> Self {
        match capacity {
            Some(capacity) if lower_bound > capacity => Self::Infeasible,
            Some(capacity) if peak > capacity => Self::Unknown,
            _ if peak == lower_bound => Self::Optimal,
            _ => Self::Feasible,
        }
    }

    /// Returns the weaker status: the status of both spaces together.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        let rank = |status| match status {
            Self::Optimal => 0,
            Self::Feasible => 1,
            Self::Unknown => 2,
            Self::Infeasible => 3,
        };
        if rank(self) >= rank(other) { self } else { other }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Optimal => "optimal",
            Self::Feasible => "feasible",
            Self::Infeasible => "infeasible",
            Self::Unknown => "unknown",
        })
    }
}

/// A space's peak, bound and status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpacePacking {
    /// Bytes that the space's arena must have.
    pub peak: u64,
    /// Bytes that the arena needs in any packing of the buffers in the space: proven.
    pub lower_bound: u64,
    /// The peak's quality.
    pub status: Status,
}

/// An offset for every buffer in a [`Problem`](crate::Problem).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packing {
    // Planners compose packings: of several graphs, or of one memory among several.
    #[doc(hidden)]
    pub offsets: Vec<u64>,
    /// Space of every buffer; empty if the problem has one space.
    #[doc(hidden)]
    pub places: Vec<SpaceId>,
    #[doc(hidden)]
    pub spaces: Vec<SpacePacking>,
    /// Search nodes that were visited.
    pub(crate) nodes: u64,
    /// Proof about all spaces together, if the search chose spaces.
    pub(crate) choice: Option<ChoiceProof>,
}

/// Proof about all spaces together, where buffers may be in several spaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChoiceProof {
    /// Bytes that all spaces together need under any choice that keeps all capacities.
    pub(crate) lower_bound: u64,
    /// Whether no choice keeps all capacities.
    pub(crate) is_infeasible: bool,
}

impl Packing {
    /// Returns the first byte of every buffer in its space, by [`BufferId`].
    pub fn offsets(&self) -> &[u64] {
        &self.offsets
    }

    /// Returns the first byte of `buffer` in the space.
    pub fn offset(&self, buffer: BufferId) -> u64 {
        self.offsets[buffer.index()]
    }

    /// Returns the space of `buffer`.
    pub fn space_of(&self, buffer: BufferId) -> SpaceId {
        self.places.get(buffer.index()).copied().unwrap_or(SpaceId::new(0))
    }

    /// Returns the visited search nodes: the unit of [`Budget::nodes`](crate::Budget).
    pub const fn nodes(&self) -> u64 {
        self.nodes
    }

    /// Returns peak, bound and status of each space, by [`SpaceId`].
    pub fn spaces(&self) -> &[SpacePacking] {
        &self.spaces
    }

    /// Returns peak, bound and status of `space`.
    pub fn space(&self, space: SpaceId) -> SpacePacking {
        self.spaces[space.index()]
    }

    /// Returns the bytes that all spaces together need.
    pub fn peak(&self) -> u64 {
        self.spaces.iter().fold(0, |sum, space| sum.saturating_add(space.peak))
    }

    /// Returns the bytes that all spaces together need in any packing; if buffers may be in several
    /// spaces, under any choice that keeps all capacities.
    pub fn lower_bound(&self) -> u64 {
        if let Some(proof) = self.choice {
            return proof.lower_bound;
        }
        self.spaces.iter().fold(0, |sum, space| sum.saturating_add(space.lower_bound))
    }

    /// Returns the status of all spaces together.
    pub fn status(&self) -> Status {
        let weakest =
            self.spaces.iter().fold(Status::Optimal, |status, space| status.and(space.status));
        match (weakest, self.choice) {
            (_, None) => weakest,
            (Status::Optimal | Status::Feasible, Some(proof)) => {
                Status::of(self.peak(), proof.lower_bound, None)
            }
            // Another choice may keep a capacity that this one exceeds.
            (_, Some(proof)) if proof.is_infeasible => Status::Infeasible,
            _ => Status::Unknown,
        }
    }
}
