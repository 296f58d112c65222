//! Assigns buffers to memories: from buffers that may be in several spaces to a [`Problem`] with
//! one space per buffer, and a packing.
//!
//! A moved byte costs more in one memory than in another. The result is the cheapest assignment in
//! which every space can be packed within its capacity.
//!
//! - `sweep` walks through time once, with the spaces of the live items as states, and finds the
//!   cheapest assignment whose *loads* fit, and the remaining cost of each state. Exact, unless
//!   there are too many states.
//! - `search` lists assignments by ascending cost (best-first, with the remaining costs as
//!   heuristic). The first assignment whose spaces can be packed is optimal.
//! - `layout` and `improve` serve larger problems. `layout` builds assignments together with
//!   offsets, and exchanges buffers. `improve` calls the packing solvers, pushes out buffers until
//!   everything fits, and pulls others in.

mod exchange;
mod memories;
mod packer;
mod push_pull;
mod space_model;
mod space_search;
mod sweep;
mod work;

pub use memories::Memories;

use alloc::{format, vec, vec::Vec};

use crate::base::{BufferId, Error, MAX_BYTES, Result, SpaceId, Step};
use crate::pack::{Budget, Buffer, Packing, Problem, Space, Status};
use packer::Packer;
use space_model::{Crowd, SpaceModel};
use space_search::FoundAssignment;
use sweep::{Outcome, SweepLimits, SweepTable};
pub(crate) use work::{Depth, SpaceWork};

/// More spaces than any machine has.
const MOST_SPACES: usize = 64;

/// A buffer that has no space yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Size and live range; the space is ignored.
    pub buffer: Buffer,
    /// Bytes of the buffer read and written in a run.
    pub traffic: u64,
    /// The only permitted space; `None` for any.
    pub home: Option<SpaceId>,
}

/// Buffers to be given a space and an offset, at the least move cost.
///
/// ```
/// use arenaplan::base::LiveRange;
/// use arenaplan::choose::{Assigned, AssignmentProblem, Candidate, assign_spaces};
/// use arenaplan::pack::{Buffer, Space};
/// use arenaplan::Budget;
/// let buffer = |bytes, start, end, traffic| -> arenaplan::Result<Candidate> {
///     let buffer = Buffer::new(bytes, LiveRange::new(start, end)?);
///     Ok(Candidate { buffer, traffic, home: None })
/// };
/// let problem = AssignmentProblem::new(
///     vec![buffer(60, 0, 3, 120)?, buffer(60, 1, 2, 600)?],
///     vec![Space::new("sram").with_capacity(100), Space::new("psram").with_cost(2)],
/// )?;
/// let Assigned::Fits(best) = assign_spaces(&problem, &Budget::default())? else { panic!() };
/// // The buffer that is moved less goes to the slow memory: 120 bytes, at 2 each.
/// assert_eq!((best.cost, best.lower_bound), (240, 240));
/// # Ok::<(), arenaplan::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AssignmentProblem {
    candidates: Vec<Candidate>,
    spaces: Vec<Space>,
}

impl AssignmentProblem {
    /// Returns the problem of assigning `candidates` to `spaces`.
    ///
    /// # Errors
    ///
    /// - [`Error::InvalidOption`] if there is no space, or more than 64.
    /// - [`Error::InvalidBuffer`] if a home is not among the spaces.
    /// - [`Error::SizeOverflow`] if a buffer's size, or the cost of moving all bytes, exceeds
    ///   [`MAX_BYTES`].
    pub fn new(candidates: Vec<Candidate>, spaces: Vec<Space>) -> Result<Self> {
        if spaces.is_empty() || spaces.len() > MOST_SPACES {
            let reason = format!("{} spaces, and there can be 1 to {MOST_SPACES}", spaces.len());
            return Err(Error::InvalidOption { option: "spaces", reason });
        }
        let dearest = spaces.iter().map(Space::cost).max().unwrap_or(0);
        let mut most = 0_u128;
        for (index, candidate) in candidates.iter().enumerate() {
            if let Some(home) = candidate.home.filter(|home| home.index() >= spaces.len()) {
                let reason = format!("its home is space {home}, which is not there");
                return Err(Error::InvalidBuffer { buffer: index, reason });
            }
            if candidate.buffer.bytes() > MAX_BYTES {
                return Err(Error::SizeOverflow { what: format!("buffer {index}") });
            }
            most += u128::from(candidate.traffic) * u128::from(dearest);
            if most > u128::from(MAX_BYTES) {
                return Err(Error::SizeOverflow { what: "the cost of moving all bytes".into() });
            }
        }
        Ok(Self { candidates, spaces })
    }

    /// Returns every buffer.
    pub fn candidates(&self) -> &[Candidate] {
        &self.candidates
    }

    /// Returns every space.
    pub fn spaces(&self) -> &[Space] {
        &self.spaces
    }

    /// Returns the cost of `candidate` in `space`.
    fn cost(&self, candidate: usize, space: usize) -> u64 {
        self.candidates[candidate].traffic * self.spaces[space].cost()
    }

    /// Returns the problem with every buffer in the space given by `assignment`.
    fn assigned(&self, assignment: &[usize]) -> Result<Problem> {
        let buffers =
            self.candidates.iter().zip(assignment).map(|(candidate, &space)| {
                candidate.buffer.clone().with_space(SpaceId::new(space))
            });
        Ok(Problem::new(buffers.collect(), self.spaces.clone())?)
    }
}

/// Result for an [`AssignmentProblem`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::large_enum_variant, reason = "there is only ever one")]
pub enum Assigned {
    /// Every buffer has a space and an offset, and every space holds its buffers.
    Fits(SpaceAssignment),
    /// There is none, or none was found.
    NoRoom(NoRoom),
}

/// A space and an offset for every buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SpaceAssignment {
    /// The buffers, in their spaces.
    pub problem: Problem,
    /// Offsets of the buffers; the bounds hold for this assignment.
    pub packing: Packing,
    /// Cost of moving all bytes.
    pub cost: u64,
    /// Proven minimum of the cost, for any assignment.
    pub lower_bound: u64,
}

impl SpaceAssignment {
    /// Returns whether the cost is proven to be the least.
    pub const fn status(&self) -> Status {
        if self.cost == self.lower_bound { Status::Optimal } else { Status::Feasible }
    }
}

/// Why there is no assignment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoRoom {
    /// A conflict: buffers without room.
    pub floor: Floor,
    /// Step with the conflict.
    pub step: Step,
    /// Buffers that are live then.
    pub buffers: Vec<BufferId>,
    /// Whether it is proven that no assignment exists; otherwise none was found.
    pub proven: bool,
}

/// The cause of a conflict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Floor {
    /// A buffer that is larger than each permitted space.
    Buffer,
    /// The buffers that are live at a step and may be only in this space: buffers whose home is the
    /// space, and buffers too large for every other space.
    Home(SpaceId),
    /// Buffers that are live at a step.
    Step,
    /// Buffers that are live at a step, because some had to be elsewhere before.
    History,
    /// The buffers in a space, because of offsets: each step by itself has room.
    Offsets,
}

/// Returns the cheapest assignment of buffers to spaces found within `budget`.
///
/// Never more expensive than all buffers in one space, if these fit. Each space has the smallest
/// packing found by [`solve`](crate::solve()).
///
/// # Errors
///
/// - [`Error::Interrupted`] if `budget` ends before any assignment is found.
/// - [`Error::PinConflict`], if pinned offsets contradict each other.
/// - [`Error::SizeOverflow`], [`Error::OutOfMemory`] as [`solve`](crate::solve()).
pub fn assign_spaces(problem: &AssignmentProblem, budget: &Budget<'_>) -> Result<Assigned> {
    assign_within(problem, SpaceWork { budget: *budget, depth: Depth::FULL })
}

/// Returns the cheapest assignment found within `work`; each space has the smallest packing found
/// with the nodes of one packing, unless the depth is full.
pub(crate) fn assign_within(problem: &AssignmentProblem, work: SpaceWork<'_>) -> Result<Assigned> {
    let model = match SpaceModel::new(problem) {
        Ok(model) => model,
        Err(no_room) => return Ok(Assigned::NoRoom(no_room)),
    };
    if let Some((space, crowd)) = model.first_at_home() {
        return Ok(Assigned::NoRoom(no_room(Floor::Home(SpaceId::new(space)), crowd, true)));
    }
    if let Some(crowd) = model.first_crowd() {
        return Ok(Assigned::NoRoom(no_room(Floor::Step, crowd, true)));
    }
    let mut packer = Packer::new(problem, work);
    let found = best_picks(&model, &mut packer)?;
    match found.best {
        Some(best) => {
            let cost = model.cost_of(&best);
            let assignment = model.spaces_of(&best);
            let packing = packer.tightest(&assignment)?;
            let problem = problem.assigned(&assignment)?;
            let lower_bound = found.lower_bound.min(cost);
            Ok(Assigned::Fits(SpaceAssignment { problem, packing, cost, lower_bound }))
        }
        None if !found.exhausted && work.budget.exhausted() => Err(Error::Interrupted),
        None => {
            let crowd = found.dead.unwrap_or_else(|| (Floor::Offsets, model.largest_crowd()));
            Ok(Assigned::NoRoom(no_room(crowd.0, crowd.1, found.exhausted)))
        }
    }
}

/// Returns the cheapest picks found, and their proof.
fn best_picks(model: &SpaceModel<'_>, packer: &mut Packer<'_>) -> Result<FoundAssignment> {
    let cheapest = vec![0; model.items.len()];
    if packer.fits(model, &cheapest)? {
        let lower_bound = model.cost_of(&cheapest);
        return Ok(FoundAssignment {
            best: Some(cheapest),
            lower_bound,
            ..FoundAssignment::default()
        });
    }
    let work = packer.work;
    let limits = SweepLimits { widest: work.depth.narrow, states: usize::MAX, below: u64::MAX };
    let (mut found, start) = match sweep::run(model, work, limits) {
        Outcome::Dead { crowd, exact: true } => return Ok(FoundAssignment::dead(crowd)),
        Outcome::Done(table) if table.exact => {
            let found = space_search::cheapest(model, &table, packer)?;
            if found.best.is_some() || found.exhausted {
                return Ok(found);
            }
            (found, Some(table))
        }
        Outcome::Done(table) => (FoundAssignment::default(), Some(table)),
        Outcome::Dead { .. } | Outcome::GaveUp => (FoundAssignment::default(), None),
    };
    found.best = push_pull::improved(model, start.as_ref().map(SweepTable::cheapest), packer)?;
    found.lower_bound = found.lower_bound.max(model.overflow_bound(work));
    let is_exact = start.is_some_and(|table| table.exact);
    if is_exact || work.depth.states == 0 || work.is_over() {
        return Ok(found);
    }
    // Wider, because the cost bound is known now.
    let below = found.best.as_ref().map_or(u64::MAX, |best| model.cost_of(best));
    let limits = SweepLimits { widest: usize::MAX, states: work.depth.states, below };
    let cheaper = match sweep::run(model, work, limits) {
        Outcome::Dead { crowd, exact: true } => FoundAssignment::dead(crowd),
        Outcome::Done(table) if table.exact => space_search::cheapest(model, &table, packer)?,
        _ => return Ok(found),
    };
    if cheaper.best.is_some() || found.best.is_none() {
        return Ok(cheaper);
    }
    // No assignment costs less: the result is optimal, as far as that is proven.
    let bound = if cheaper.exhausted { below } else { cheaper.lower_bound };
    found.lower_bound = found.lower_bound.max(bound);
    Ok(found)
}

/// Returns the reason why there is no assignment: buffers that are live at a step.
fn no_room(floor: Floor, crowd: Crowd, proven: bool) -> NoRoom {
    let buffers = crowd.members.into_iter().map(BufferId::new).collect();
    NoRoom { floor, step: crowd.step, buffers, proven }
}
