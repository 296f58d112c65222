//! Search limits, and reports of search progress.

use core::fmt;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::options::SolveOptions;
use crate::base::{Instant, SpaceId};

/// A search's limits, options, and progress callback.
///
/// The default has no limit: a search then ends when its answer is proven optimal, or after a fixed
/// effort that grows with the problem and is at most half of what is left of an [`Allowance`].
///
/// A search limited by `nodes` is deterministic; a search limited by `deadline` depends on the
/// machine.
///
/// ```
/// use std::time::Duration;
///
/// use arenaplan_pack::base::{Instant, LiveRange};
/// use arenaplan_pack::{Buffer, Space};
/// use arenaplan_pack::{Budget, Problem, solve};
///
/// let buffers =
///     vec![Buffer::new(64, LiveRange::new(0, 2)?), Buffer::new(32, LiveRange::new(1, 3)?)];
/// let problem = Problem::new(buffers, vec![Space::new("sram")])?;
/// let mut budget = Budget::default().with_nodes(10_000);
/// budget.deadline = Some(Instant::now() + Duration::from_secs(1));
/// budget.seed = 7;
/// assert_eq!(solve(&problem, &budget)?.peak(), 96);
/// # Ok::<(), arenaplan_pack::Error>(())
/// ```
#[derive(Clone, Copy, Default)]
#[non_exhaustive]
pub struct Budget<'a> {
    /// When to stop searching and return the best answer so far; never on a machine without a clock.
    pub deadline: Option<Instant>,
    /// How many search nodes to visit at most.
    pub nodes: Option<u64>,
    /// Set by another thread to stop: the best answer so far is returned.
    pub cancel: Option<&'a AtomicBool>,
    /// Called now and then, and whenever a better answer is found.
    pub progress: Option<&'a (dyn Fn(Progress) + Sync)>,
    /// Seed for every random choice.
    pub seed: u64,
    /// Methods and effort; `None` for the default.
    pub options: Option<&'a SolveOptions>,
    /// Effort that this search shares with other searches.
    pub allowance: Option<&'a Allowance>,
}

/// Search effort that several packings share, in about as many memory accesses.
///
/// Each packing counts the effort that the packing took. A packing without a deadline and without a node
/// limit takes at most half of the effort that is left: the first packings get most, and all packings
/// together take no more than the whole.
///
/// ```
/// use arenaplan_pack::base::LiveRange;
/// use arenaplan_pack::{Allowance, Budget, Buffer, Problem, Space, solve};
///
/// let buffers = vec![Buffer::new(4, LiveRange::new(0, 2)?), Buffer::new(6, LiveRange::new(1, 3)?)];
/// let problem = Problem::new(buffers, vec![Space::default()])?;
/// let allowance = Allowance::new(1_000_000);
/// let budget = Budget::default().with_allowance(&allowance);
/// assert_eq!(solve(&problem, &budget)?.peak(), 10);
/// assert!(!allowance.is_spent());
/// # Ok::<(), arenaplan_pack::Error>(())
/// ```
#[derive(Debug)]
pub struct Allowance(AtomicUsize);

impl Allowance {
    /// Returns an allowance of so much effort.
    pub const fn new(effort: usize) -> Self {
        Self(AtomicUsize::new(effort))
    }

    /// Counts effort that was taken.
    pub fn spend(&self, effort: usize) {
        // Several threads may lose a count, which costs time and no answer.
        self.0.store(self.left().saturating_sub(effort), Ordering::Relaxed);
    }

    /// Returns whether no effort is left.
    pub fn is_spent(&self) -> bool {
        self.left() == 0
    }

    /// Returns the most effort that the next packing takes.
    pub(super) fn share(&self) -> usize {
        self.left() / 2
    }

    fn left(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

impl<'a> Budget<'a> {
    /// Returns the budget with a maximum number of search nodes.
    #[must_use]
    pub fn with_nodes(mut self, nodes: u64) -> Self {
        self.nodes = Some(nodes);
        self
    }

    /// Returns the budget with effort that this search shares with other searches.
    #[must_use]
    pub fn with_allowance(mut self, allowance: &'a Allowance) -> Self {
        self.allowance = Some(allowance);
        self
    }

    /// Returns the most effort of a search that nothing else limits.
    pub(super) fn share(&self) -> usize {
        self.allowance.map_or(usize::MAX, Allowance::share)
    }

    /// Returns whether the deadline has passed or the caller has cancelled.
    pub fn exhausted(&self) -> bool {
        self.cancel.is_some_and(|cancel| cancel.load(Ordering::Relaxed))
            || self.deadline.is_some_and(|deadline| Instant::now() >= deadline)
    }
}

impl fmt::Debug for Budget<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Budget")
            .field("deadline", &self.deadline)
            .field("nodes", &self.nodes)
            .field("seed", &self.seed)
            .finish_non_exhaustive()
    }
}

/// A method of the portfolio, or a step of a planner before packing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Stage {
    /// The choice of fused nodes.
    Fusion,
    /// Choosing in which order nodes run.
    Order,
    /// First fit at the hints.
    Hints,
    /// Best fit in birth order.
    Sweep,
    /// Best fit away from the section with the largest load, in both time directions.
    FromPeak,
    /// The order that follows if items always take over other items' room in one piece.
    Handovers,
    /// First fit in several orders.
    FirstFit,
    /// Best fit in several orders.
    BestFit,
    /// Skyline heuristic.
    Skyline,
    /// Exact search of the items in the most loaded sections, first fit for the other items.
    Critical,
    /// Exact search.
    Exact,
    /// Disjunctive search, and the single-section bound.
    Disjunctive,
    /// Exact search of slightly grown items, so that sizes add up.
    Grown,
    /// Ejection chains.
    Repair,
    /// Placing the items that kernelization removed.
    PutBack,
}

impl Stage {
    /// Returns the name, for people.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fusion => "fusion",
            Self::Order => "order",
            Self::Hints => "hints",
            Self::Sweep => "sweep",
            Self::FromPeak => "sweep from the peak",
            Self::Handovers => "handovers",
            Self::FirstFit => "first fit",
            Self::BestFit => "best fit",
            Self::Skyline => "skyline heuristic",
            Self::Critical => "critical part",
            Self::Exact => "exact search",
            Self::Disjunctive => "disjunctive search",
            Self::Grown => "grown sizes",
            Self::Repair => "repair",
            Self::PutBack => "put back",
        }
    }
}

/// A search's progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Progress {
    /// Space that is being packed.
    pub space: SpaceId,
    /// Solver that is at work.
    pub stage: Stage,
    /// Peak of the best answer so far, in bytes; before packing, the most live bytes at a step.
    pub peak: u64,
    /// Bytes that no answer can go below.
    pub lower_bound: u64,
    /// Search nodes visited so far.
    pub nodes: u64,
}

impl Progress {
    /// Returns the progress of a planner that chooses the packing problem.
    #[must_use]
    pub fn of_choice(stage: Stage, peak: u64, lower_bound: u64) -> Self {
        Self { space: SpaceId::new(0), stage, peak, lower_bound, nodes: 0 }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use alloc::{vec, vec::Vec};

    use super::*;
    use crate::base::Alignment;
    use crate::packing::Packing;
    use crate::problem::{Buffer, Problem};
    use crate::solve::model::random::Random;
    use crate::solve::solve;
    use crate::solve::testing::random_buffers;
    use crate::solve::tuning::limits::UNLIMITED_EFFORT;
    use crate::space::Space;

    #[test]
    fn packings_with_one_allowance_take_no_more_than_the_whole() {
        let (mut sizes, mut alignments) = (Random::new(0), Random::new(1));
        let mut aligned = |buffer: Buffer| {
            buffer.with_alignment(Alignment::new(1 << alignments.below(6)).unwrap())
        };
        let buffers = random_buffers(&mut sizes, 60, 20, 8, 30);
        let buffers = buffers.into_iter().map(&mut aligned).collect();
        let problem = Problem::new(buffers, vec![Space::default()]).unwrap();
        let alone = solve(&problem, &Budget::default()).unwrap();
        assert!(alone.peak() > alone.lower_bound(), "the search ends by its effort");

        let allowance = Allowance::new(2 * UNLIMITED_EFFORT);
        let budget = Budget::default().with_allowance(&allowance);
        let packings: Vec<_> = (0..40).map(|_| solve(&problem, &budget).unwrap()).collect();
        // The first packing has all the effort of a packing alone, and the others one half less each.
        assert_eq!(packings[0].offsets(), alone.offsets());
        assert!(packings.iter().map(Packing::nodes).sum::<u64>() < 3 * alone.nodes());
        assert_eq!(packings[39].nodes(), 0);
    }
}
