//! Solvers: from a [`Problem`] to a [`Packing`].
//!
//! [`solve`] runs a portfolio and keeps the best answer of each space. It stops
//! as soon as an answer meets the lower bound, for then it is optimal.

mod arith;
mod clock;
mod contained;
mod critical;
mod descent;
mod edges;
mod exact;
mod first_fit;
mod incumbent;
mod join;
mod memory;
mod model;
mod neighbors;
mod occupancy;
mod peel;
mod portfolio;
mod random;
mod repair;
mod rigid;
mod searches;
mod sections;
mod shared;
mod sort;
mod spans;
mod stack;
mod sweep;
mod tools;
mod views;

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use crate::error::{Error, Result};
use crate::index::{BufferId, SpaceId};
use crate::packing::{Packing, SpacePacking, Status};
use crate::problem::Problem;
#[cfg(doc)]
use crate::units::MAX_BYTES;
use clock::Clock;
use incumbent::Incumbent;
use model::Model;

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
    /// Threads of a search with a deadline; 0 counts as 1. Others use one thread, so that
    /// their result depends on the problem and the budget alone.
    pub threads: usize,
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

/// A solver of the portfolio, or what a planner does before it asks one.
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
    /// First fit in several orders.
    FirstFit,
    /// Best fit in several orders.
    BestFit,
    /// Filling the lowest place first.
    Descent,
    /// Exact search where most is live, first fit elsewhere.
    Critical,
    /// Exact search.
    Exact,
    /// Ejection chains.
    Repair,
    /// Another thread.
    Threads,
    /// Putting back what was set aside because it always fits.
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
            Self::FirstFit => "first fit",
            Self::BestFit => "best fit",
            Self::Descent => "descent",
            Self::Critical => "critical part",
            Self::Exact => "exact search",
            Self::Repair => "repair",
            Self::Threads => "another thread",
            Self::PutBack => "put back",
        }
    }
}

/// How far a solver has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
    solve_counted(problem, budget).map(|solved| solved.packing)
}

/// A packing, and the work that finding it took, in about as many memory accesses.
pub(crate) struct Solved {
    pub(crate) packing: Packing,
    pub(crate) effort: usize,
}

/// Does what [`solve`] does, and says how much work that was.
pub(crate) fn solve_counted(problem: &Problem, budget: &Budget<'_>) -> Result<Solved> {
    let mut offsets = memory::filled(0, problem.buffers().len(), "offsets")?;
    let mut members = vec![Vec::new(); problem.spaces().len()];
    for (position, buffer) in problem.buffers().iter().enumerate() {
        // What has no bytes can be anywhere, unless it is pinned.
        offsets[position] = buffer.pin().unwrap_or(0);
        members[buffer.space().index()].push(BufferId::new(position));
    }
    let clock = Clock::new(budget);
    let mut spaces = Vec::with_capacity(members.len());
    for (position, members) in members.iter().enumerate() {
        let space = SpaceId::new(position);
        spaces.push(pack(problem, space, members, &mut offsets, &clock)?);
    }
    Ok(Solved { packing: Packing { offsets, spaces }, effort: clock.effort() })
}

/// Packs the buffers `members` of one space, and stores their offsets.
fn pack(
    problem: &Problem,
    space: SpaceId,
    members: &[BufferId],
    offsets: &mut [u64],
    clock: &Clock<'_>,
) -> Result<SpacePacking> {
    if let Some(packing) = search(problem, space, members, offsets, clock)? {
        return Ok(packing);
    }
    let capacity = problem.spaces()[space.index()].capacity();
    if let Some(packing) = stack::stack(problem, members, capacity, offsets) {
        return Ok(packing);
    }
    // There is to be an answer, whatever the limits.
    let patient = Budget { nodes: Some(0), ..Budget::default() };
    let packing = search(problem, space, members, offsets, &Clock::new(&patient))?;
    packing.ok_or_else(|| Error::SizeOverflow { what: "the arena".into() })
}

/// Packs the buffers `members` of one space as well as the clock allows; returns nothing
/// if it does not allow any answer, or there is none.
fn search(
    problem: &Problem,
    space: SpaceId,
    members: &[BufferId],
    offsets: &mut [u64],
    clock: &Clock<'_>,
) -> Result<Option<SpacePacking>> {
    let Some(model) = Model::new(problem, members, clock)? else { return Ok(None) };
    let mut best = Incumbent::new(&model, space, clock);
    let capacity = problem.spaces()[space.index()].capacity();
    let mut hints = Vec::new();
    if model.ids.iter().any(|&id| problem.buffer(id).hint().is_some()) {
        let of = |&id| problem.buffer(id).hint().map(|hint| hint / model.grain);
        hints.extend(model.ids.iter().map(of));
    }
    portfolio::run(&model, &hints, capacity, &mut best, clock)?;
    let Some(found) = best.offsets() else { return Ok(None) };
    for (&id, &offset) in model.ids.iter().zip(found) {
        offsets[id.index()] = offset * model.grain;
    }
    // A pinned buffer without bytes ends somewhere, too.
    let ends = members.iter().map(|&id| offsets[id.index()] + problem.buffer(id).bytes());
    let peak = ends.max().unwrap_or(0);
    let lower_bound = best.bound();
    Ok(Some(SpacePacking { peak, lower_bound, status: Status::of(peak, lower_bound, capacity) }))
}
