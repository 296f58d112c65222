//! Limits of a search, and reports of its progress.

use core::fmt;
use core::sync::atomic::{AtomicBool, Ordering};

use super::options::SolveOptions;
use crate::base::{Instant, SpaceId};

/// Limits of a search, its options, and the callback for its progress.
///
/// The default has no limit: a search then ends when its answer is proven optimal, or after a fixed
/// effort that grows with the problem.
///
/// A search limited by `nodes` is deterministic; one limited by `deadline` depends on the machine.
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
    /// Seed of every random choice.
    pub seed: u64,
    /// Methods and tuning values; the default ones if there are none.
    pub options: Option<&'a SolveOptions>,
}

impl<'a> Budget<'a> {
    /// Returns the budget with a time at which the search ends.
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
    /// let deadline = Instant::now() + Duration::from_secs(1);
    /// let budget = Budget::default().with_deadline(deadline).with_nodes(10_000).with_seed(7);
    /// assert_eq!(solve(&problem, &budget)?.peak(), 96);
    /// # Ok::<(), arenaplan_pack::Error>(())
    /// ```
    #[must_use]
    pub fn with_deadline(mut self, deadline: Instant) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// Returns the budget with a number of search nodes to visit at most.
    #[must_use]
    pub fn with_nodes(mut self, nodes: u64) -> Self {
        self.nodes = Some(nodes);
        self
    }

    /// Returns the budget with a flag that another thread sets to end the search.
    #[must_use]
    pub fn with_cancel(mut self, cancel: &'a AtomicBool) -> Self {
        self.cancel = Some(cancel);
        self
    }

    /// Returns the budget with a function that is called now and then, and whenever a better
    /// answer is found.
    #[must_use]
    pub fn with_progress(mut self, progress: &'a (dyn Fn(Progress) + Sync)) -> Self {
        self.progress = Some(progress);
        self
    }

    /// Returns the budget with a seed of every random choice.
    #[must_use]
    pub fn with_seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Returns the budget with methods and tuning values of the search.
    #[must_use]
    pub fn with_options(mut self, options: &'a SolveOptions) -> Self {
        self.options = Some(options);
        self
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
    /// Choosing which nodes run as one.
    Fusion,
    /// Choosing in which order nodes run.
    Order,
    /// First fit at the hints.
    Hints,
    /// Best fit in the order of birth.
    Sweep,
    /// Best fit away from the section with the largest load, in both directions of time.
    FromPeak,
    /// The order that follows if items always take over the room of others in one piece.
    Handovers,
    /// First fit in several orders.
    FirstFit,
    /// Best fit in several orders.
    BestFit,
    /// Skyline heuristic.
    Skyline,
    /// Exact search of the items in the sections with the largest loads, first fit for the others.
    Critical,
    /// Exact search.
    Exact,
    /// Disjunctive search, and the bound of single sections.
    Disjunctive,
    /// Exact search of items that have grown a little, so that their sizes add up.
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

/// Progress of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Progress {
    /// Space that is being packed.
    pub space: SpaceId,
    /// Solver that is at work.
    pub stage: Stage,
    /// Peak of the best answer so far, in bytes; before packing, the bytes that are live at its
    /// highest step.
    pub peak: u64,
    /// Bytes that no answer can go below.
    pub lower_bound: u64,
    /// Search nodes visited so far.
    pub nodes: u64,
}

impl Progress {
    /// Returns the progress of a planner that chooses what to pack.
    #[must_use]
    pub fn of_choice(stage: Stage, peak: u64, lower_bound: u64) -> Self {
        Self { space: SpaceId::new(0), stage, peak, lower_bound, nodes: 0 }
    }
}
