//! Verdicts: check results about a valid plan's claims.

use alloc::vec::Vec;
use core::fmt;

/// The origin of a plan's claim, for the checker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Proof {
    /// The checker derived the claim from the graph with independent code.
    Verified,
    /// The checker neither derived nor refuted the claim: only the plan states the claim.
    Claimed,
}

impl Proof {
    /// Returns the name used in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Verified => "verified",
            Self::Claimed => "claimed",
        }
    }

    /// Returns whether the checker derived the claim.
    #[must_use]
    pub const fn is_verified(self) -> bool {
        matches!(self, Self::Verified)
    }

    pub(super) const fn of(derived: bool) -> Self {
        if derived { Self::Verified } else { Self::Claimed }
    }

    /// Returns the weaker of two proofs.
    pub(super) fn and(self, other: Self) -> Self {
        self.max(other)
    }
}

impl fmt::Display for Proof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Check result about an arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SpaceVerdict {
    /// The most live bytes at a step, as counted by the checker: no offsets need fewer bytes, with
    /// this order and this sharing. Workspaces count with their smallest sizes. Bytes of values
    /// that could share more with the same shares count nothing.
    pub max_live: u64,
    /// Whether the plan's lower bound follows from `max_live`.
    pub lower_bound: Proof,
    /// Whether the plan's status follows from `max_live`.
    pub status: Proof,
}

/// Result of [`Plan::check`](crate::Plan::check) about a valid plan's claims.
///
/// Offsets, live ranges, sharing and sizes in a valid plan are always verified. A search may prove
/// more than a check can repeat, so a claim about *all* plans is either
/// [`Verified`](Proof::Verified) or only [`Claimed`](Proof::Claimed). A claim that is provably
/// false makes the plan invalid.
///
/// ```
/// use arenaplan::check::Proof;
/// use arenaplan::{DType, Graph, Node, Planner, Value, ValueKind};
///
/// let mut builder = Graph::builder("layer");
/// let x = builder.add_value(Value::new("x", ValueKind::Input, DType::UINT8, [64])?);
/// let y = builder.add_value(Value::new("y", ValueKind::Activation, DType::UINT8, [128])?);
/// builder.add_node(Node::new("n", "Op").reads([x]).writes([y]));
/// builder.add_output(y);
/// let graph = builder.build()?;
///
/// let verdict = Planner::new().plan(&graph)?.check(&graph)?;
/// assert_eq!(verdict.lower_bound(), Proof::Verified);
/// assert_eq!(verdict.spaces()[0].max_live, 192);
/// # Ok::<(), arenaplan::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    pub(super) spaces: Vec<SpaceVerdict>,
    pub(super) chose_spaces: bool,
    pub(super) order: Option<Proof>,
    pub(super) floor: Option<Proof>,
    pub(super) move_cost: Option<Proof>,
    pub(super) repetitions: Option<Proof>,
}

impl Verdict {
    /// Returns each arena's verdict, in [`Plan::arenas`](crate::Plan::arenas) order.
    #[must_use]
    pub fn spaces(&self) -> &[SpaceVerdict] {
        &self.spaces
    }

    /// Returns whether the spaces' capacities, alignments and costs were chosen by the plan instead
    /// of the graph.
    #[must_use]
    pub const fn chose_spaces(&self) -> bool {
        self.chose_spaces
    }

    /// Returns the proof for the lower bounds of all arenas together.
    #[must_use]
    pub fn lower_bound(&self) -> Proof {
        self.spaces.iter().fold(Proof::Verified, |proof, space| proof.and(space.lower_bound))
    }

    /// Returns the proof for the statuses of all arenas together.
    #[must_use]
    pub fn status(&self) -> Proof {
        self.spaces.iter().fold(Proof::Verified, |proof, space| proof.and(space.status))
    }

    /// Returns the proof for a [complete](crate::plan::OrderSearch::Complete) order search; `None`
    /// without such a claim.
    #[must_use]
    pub const fn order(&self) -> Option<Proof> {
        self.order
    }

    /// Returns the proof for the [floor](crate::plan::Search::floor); `None` without such a claim.
    #[must_use]
    pub const fn floor(&self) -> Option<Proof> {
        self.floor
    }

    /// Returns the proof for the lower bound of the move cost; `None` without such a claim. The
    /// cost itself is always verified.
    #[must_use]
    pub const fn move_cost(&self) -> Option<Proof> {
        self.move_cost
    }

    /// Returns the proof for the claims about all schedules in a plan with repetitions: the
    /// [floor](crate::plan::Recomputed::floor) and the
    /// [bound](crate::plan::Recomputed::extra_bound); `None` for other plans. The extra work itself
    /// is always verified.
    #[must_use]
    pub const fn repetitions(&self) -> Option<Proof> {
        self.repetitions
    }

    /// Returns whether the checker derived every claim of the plan.
    #[must_use]
    pub fn is_verified(&self) -> bool {
        let others = [self.order, self.floor, self.move_cost, self.repetitions];
        self.lower_bound().and(self.status()).is_verified()
            && others.into_iter().flatten().all(Proof::is_verified)
    }
}

/// Result of [`SharedPlan::check`](crate::plan::SharedPlan::check) about the claims of valid plans
/// in a shared arena.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedVerdict {
    pub(super) members: Vec<Verdict>,
    pub(super) max_live: u64,
    pub(super) lower_bound: Proof,
    pub(super) status: Proof,
}

impl SharedVerdict {
    /// Returns each plan's own verdict, in plan order.
    #[must_use]
    pub fn members(&self) -> &[Verdict] {
        &self.members
    }

    /// Returns the most live bytes, as counted by the checker: no offsets need fewer bytes, with
    /// these orders and this sharing.
    #[must_use]
    pub const fn max_live(&self) -> u64 {
        self.max_live
    }

    /// Returns the proof for the shared arena's lower bound.
    #[must_use]
    pub const fn lower_bound(&self) -> Proof {
        self.lower_bound
    }

    /// Returns the proof for the shared arena's status.
    #[must_use]
    pub const fn status(&self) -> Proof {
        self.status
    }
}
