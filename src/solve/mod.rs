//! Solvers: from a [`Problem`] to a [`Packing`].
//!
//! [`solve`] runs a portfolio and keeps the best answer of each space. It stops
//! as soon as an answer meets the lower bound, for then it is optimal.

mod sweep;

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use crate::bound::max_load;
use crate::error::{Error, Result};
use crate::index::{BufferId, SpaceId};
use crate::packing::{Packing, SpacePacking, Status};
use crate::problem::Problem;
use crate::units::MAX_BYTES;

/// How much work a solver may do, and whom it tells about it.
///
/// The default has no limits of its own: a solver then stops when it has proven
/// its answer optimal, or has nothing left to try that is worth its cost.
///
/// A search limited by `nodes` is deterministic; one limited by `deadline` depends
/// on the machine.
#[derive(Clone, Copy, Default)]
#[non_exhaustive]
pub struct Budget<'a> {
    /// When to stop searching and return the best answer so far.
    pub deadline: Option<Instant>,
    /// How many search nodes to visit at most.
    pub nodes: Option<u64>,
    /// Set by another thread to stop: the best answer so far is returned.
    pub cancel: Option<&'a AtomicBool>,
    /// Called now and then, and whenever a better answer is found.
    pub progress: Option<&'a (dyn Fn(Progress) + Sync)>,
    /// Seed of every random choice.
    pub seed: u64,
}

impl Budget<'_> {
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

/// How far a solver has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Space that is being packed.
    pub space: SpaceId,
    /// Peak of the best answer so far, in bytes.
    pub peak: u64,
    /// Bytes that no answer can go below.
    pub lower_bound: u64,
    /// Search nodes visited so far.
    pub nodes: u64,
}

/// Returns the best packing of `problem` that the portfolio finds within `budget`.
///
/// Each space is packed on its own. A packing larger than its space's capacity is
/// returned all the same, with [`Status::Unknown`] or [`Status::Infeasible`].
///
/// # Errors
///
/// - [`Error::SizeOverflow`] if what is live at one step exceeds [`MAX_BYTES`], or
///   no offsets below it were found.
/// - [`Error::OutOfMemory`] if the solver cannot allocate its tables.
pub fn solve(problem: &Problem, budget: &Budget<'_>) -> Result<Packing> {
    let mut offsets = vec![0; problem.buffers().len()];
    let mut members = vec![Vec::new(); problem.spaces().len()];
    for (index, buffer) in problem.buffers().iter().enumerate() {
        members[buffer.space().index()].push(BufferId::new(index));
    }
    let mut spaces = Vec::with_capacity(members.len());
    for (index, members) in members.iter().enumerate() {
        let space = SpaceId::new(index);
        let (lower_bound, _) = max_load(problem, space)?;
        let peak = sweep::best_fit(problem, members, &mut offsets)?;
        if let Some(tell) = budget.progress {
            tell(Progress { space, peak, lower_bound, nodes: 0 });
        }
        let status = Status::of(peak, lower_bound, problem.spaces()[index].capacity());
        spaces.push(SpacePacking { peak, lower_bound, status });
    }
    Ok(Packing { offsets, spaces })
}

/// Returns the end of `bytes` bytes at `offset`, or the error that no arena can hold it.
fn end_of(offset: u64, bytes: u64) -> Result<u64> {
    offset
        .checked_add(bytes)
        .filter(|&end| end <= MAX_BYTES)
        .ok_or_else(|| Error::SizeOverflow { what: "the arena".into() })
}
