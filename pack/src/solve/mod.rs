//! Solvers: from a [`Problem`] to a [`Packing`].
//!
//! [`solve`] runs a portfolio and keeps the best answer for each space. The solver stops as soon as
//! an answer meets the lower bound, and so is optimal.

mod assignment;
mod assume;
mod budget;
mod disjunctive;
mod exact;
mod greedy;
mod model;
mod options;
mod portfolio;
mod repair;
#[cfg(test)]
mod testing;
mod tuning;

use alloc::{vec, vec::Vec};

#[cfg(doc)]
use crate::base::MAX_BYTES;
use crate::base::{BufferId, Error, Result, SpaceId};
use crate::packing::{Packing, SpacePacking, Status};
use crate::problem::{Buffer, Problem};
use assignment::Packed;
use greedy::stack;
use model::Model;
use model::clock::Clock;
use model::memory;
use portfolio::incumbent::Incumbent;

pub use budget::{Allowance, Budget, Progress, Stage};
pub use options::{Methods, SolveOptions};
pub(crate) use portfolio::ruled::no_offsets;
pub use repair::apart::{Apart, Forbidden, Tries};

/// Returns the best packing of `problem` found by the portfolio within `budget`.
///
/// Each space is packed separately. If buffers may be in several spaces, a search chooses spaces
/// such that all spaces together need the fewest bytes within their capacities; if each space has a
/// capacity, the search ends as soon as all buffers fit. A packing larger than its space's capacity
/// is still returned, with [`Status::Unknown`] or [`Status::Infeasible`].
///
/// # Errors
///
/// - [`Error::SizeOverflow`] if a step's load exceeds [`MAX_BYTES`], or no offsets below
///   [`MAX_BYTES`] were found.
/// - [`Error::OutOfMemory`] if the solver cannot allocate its tables.
/// - [`Error::PinConflict`] if no offsets obey a space's rules, or none were found. Only ranges,
///   groups, reserved bytes and pairs can cause this error: without these there is always an
///   answer. Also if no spaces keep all pairs separate, with the numbers of buffers that leave
///   another buffer without a space.
pub fn solve(problem: &Problem, budget: &Budget<'_>) -> Result<Packing> {
    let (packing, effort) = if problem.has_choice() {
        solve_choices(problem, budget)?
    } else {
        solve_spaces(problem, budget)?
    };
    if let Some(allowance) = budget.allowance {
        allowance.spend(effort);
    }
    Ok(packing)
}

/// Packs a problem in which each buffer has a space, and returns the effort, too.
fn solve_spaces(problem: &Problem, budget: &Budget<'_>) -> Result<(Packing, usize)> {
    let mut offsets = memory::filled(0, problem.buffers().len(), "offsets")?;
    let mut members = vec![Vec::new(); problem.spaces().len()];
    for (position, buffer) in problem.buffers().iter().enumerate() {
        // A buffer without bytes may be at any offset, unless it is pinned.
        offsets[position] = buffer.pin().unwrap_or(0);
        members[buffer.space().index()].push(BufferId::new(position));
    }
    let clock = Clock::new(budget);
    let mut spaces = Vec::with_capacity(members.len());
    for (position, members) in members.iter().enumerate() {
        let space = SpaceId::new(position);
        spaces.push(pack(problem, space, members, &mut offsets, &clock)?);
    }
    let places = if spaces.len() > 1 {
        problem.buffers().iter().map(Buffer::space).collect()
    } else {
        Vec::new()
    };
    let packing = Packing { offsets, places, spaces, nodes: clock.nodes(), choice: None };
    Ok((packing, clock.effort()))
}

/// Packs a problem in which buffers may be in several spaces, and returns the effort, too.
fn solve_choices(problem: &Problem, budget: &Budget<'_>) -> Result<(Packing, usize)> {
    let mut offsets = memory::filled(0, problem.buffers().len(), "offsets")?;
    let mut pack_space =
        |problem: &Problem, space, members: &[BufferId], budget: &Budget<'_>| -> Result<Packed> {
            for &id in members {
                offsets[id.index()] = problem.buffer(id).pin().unwrap_or(0);
            }
            let clock = Clock::new(budget);
            let about = pack(problem, space, members, &mut offsets, &clock)?;
            let offsets = members.iter().map(|id| offsets[id.index()]).collect();
            Ok(Packed { about, offsets, nodes: clock.nodes(), effort: clock.effort() })
        };
    assignment::solve(problem, budget, &mut pack_space)
}

/// Packs the buffers `members` of a space, and stores the offsets.
fn pack(
    problem: &Problem,
    space: SpaceId,
    members: &[BufferId],
    offsets: &mut [u64],
    clock: &Clock<'_>,
) -> Result<SpacePacking> {
    if problem.is_ruled(space) {
        return portfolio::ruled::pack(problem, space, members, offsets, clock);
    }
    if let Some(packing) = search(problem, space, members, offsets, clock)? {
        return Ok(packing);
    }
    let capacity = problem.spaces()[space.index()].capacity();
    if let Some(packing) = stack::stack(problem, members, capacity, offsets) {
        return Ok(packing);
    }
    // An answer is returned under all limits.
    let patient = Budget { nodes: Some(0), ..Budget::default() };
    let packing = search(problem, space, members, offsets, &Clock::new(&patient))?;
    packing.ok_or_else(|| Error::SizeOverflow { what: "the arena".into() })
}

/// Packs the buffers `members` of a space as well as the clock allows; returns nothing if the clock
/// allows no answer, or there is none.
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
    portfolio::run::run(&model, &hints, capacity, &mut best, clock)?;
    let Some(found) = best.offsets() else { return Ok(None) };
    for (&id, &offset) in model.ids.iter().zip(found) {
        offsets[id.index()] = offset * model.grain;
    }
    // A pinned buffer without bytes has an end as well, which counts for the peak.
    let ends = members.iter().map(|&id| offsets[id.index()] + problem.buffer(id).bytes());
    let peak = ends.max().unwrap_or(0);
    let lower_bound = best.bound();
    Ok(Some(SpacePacking { peak, lower_bound, status: Status::of(peak, lower_bound, capacity) }))
}
