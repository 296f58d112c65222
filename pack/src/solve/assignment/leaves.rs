//! Complete assignments: each is packed, space by space.

use alloc::vec::Vec;

use hashbrown::HashMap;

use crate::base::{BufferId, Error, Instant, Result, SpaceId};
use crate::packing::{SpacePacking, Status};
use crate::problem::Problem;
use crate::solve::budget::Budget;
use crate::solve::options::SolveOptions;
use crate::solve::portfolio::ruled::no_offsets;

/// Most packings of the default effort in a search without limits.
const PACKINGS: usize = 8;
/// Options for a caller without options.
static DEFAULT: SolveOptions = SolveOptions::DEFAULT;

/// The packing of a space.
#[derive(Clone, Debug)]
pub(in crate::solve) struct Packed {
    pub(in crate::solve) about: SpacePacking,
    /// Offsets of the space's buffers.
    pub(in crate::solve) offsets: Vec<u64>,
    pub(in crate::solve) nodes: u64,
    pub(in crate::solve) effort: usize,
}

/// Packs some buffers of a space within a budget.
pub(in crate::solve) type PackSpace<'a> =
    &'a mut dyn FnMut(&Problem, SpaceId, &[BufferId], &Budget<'_>) -> Result<Packed>;

/// Bytes past the capacities, followed by the bytes of all spaces: smaller is better.
pub(super) type Cost = (u128, u128);

/// The packing of an assignment.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    pub(super) places: Vec<SpaceId>,
    pub(super) offsets: Vec<u64>,
    pub(super) spaces: Vec<SpacePacking>,
    pub(super) cost: Cost,
}

/// The outcome for an assignment.
pub(super) enum Leaf {
    /// A packing; `least` is a lower bound of the cost of this assignment's packings.
    Packed { answer: Answer, least: Cost },
    /// No offsets obey the rules, or none were found.
    Refused { proven: bool },
}

/// Result for some buffers in a space, or whether it is proven that no packing exists.
type Known = core::result::Result<Packed, bool>;

/// Packs assignments, never the same buffers of a space twice.
pub(super) struct Leaves<'a> {
    problem: &'a Problem,
    budget: &'a Budget<'a>,
    pack: PackSpace<'a>,
    known: HashMap<(SpaceId, Vec<BufferId>), Known>,
    /// Whether every space has a capacity, so that all packings that fit are equally good.
    pub(super) is_limited: bool,
    pub(super) nodes: u64,
    effort: usize,
}

impl<'a> Leaves<'a> {
    pub(super) fn new(problem: &'a Problem, budget: &'a Budget<'a>, pack: PackSpace<'a>) -> Self {
        let is_limited = problem.spaces().iter().all(|space| space.capacity().is_some());
        Self { problem, budget, pack, known: HashMap::new(), is_limited, nodes: 0, effort: 0 }
    }

    /// Counts nodes of the assignment search, and their effort in approximate memory accesses.
    pub(super) fn spend(&mut self, nodes: u64, effort: usize) {
        self.nodes = self.nodes.saturating_add(nodes);
        self.effort = self.effort.saturating_add(effort);
    }

    /// Returns the effort so far.
    pub(super) const fn effort(&self) -> usize {
        self.effort
    }

    /// Returns whether the caller's limits, or else the effort limit, are reached.
    pub(super) fn are_over(&self) -> bool {
        let Budget { deadline, nodes, options, .. } = *self.budget;
        let largest =
            options.unwrap_or(&DEFAULT).effort.saturating_mul(PACKINGS).min(self.budget.share());
        let unlimited = deadline.is_none() && nodes.is_none();
        self.budget.exhausted()
            || nodes.is_some_and(|limit| self.nodes >= limit)
            || unlimited && self.effort >= largest
    }

    /// Packs the buffers at their `places`.
    pub(super) fn pack(&mut self, places: &[SpaceId]) -> Result<Leaf> {
        let problem = match self.problem.in_spaces(places) {
            Ok(problem) => problem,
            Err(Error::PinConflict { .. } | Error::InvalidBuffer { .. }) => {
                return Ok(Leaf::Refused { proven: true });
            }
            Err(error) => return Err(error),
        };
        let mut members = alloc::vec![Vec::new(); problem.spaces().len()];
        for (buffer, space) in places.iter().enumerate() {
            members[space.index()].push(BufferId::new(buffer));
        }
        let open = if self.is_limited { None } else { Some(problem.without_capacities()) };
        let mut answer = Answer {
            places: places.to_vec(),
            offsets: alloc::vec![0; places.len()],
            spaces: Vec::new(),
            cost: (0, 0),
        };
        let mut least = (0, 0);
        for (index, members) in members.iter().enumerate() {
            let packed = match self.space(&problem, open.as_ref(), SpaceId::new(index), members)? {
                Ok(packed) => packed,
                Err(proven) => return Ok(Leaf::Refused { proven }),
            };
            let capacity = problem.spaces()[index].capacity();
            let over = |bytes: u64| capacity.map_or(0, |capacity| bytes.saturating_sub(capacity));
            let SpacePacking { peak, lower_bound, .. } = packed.about;
            for (sum, bytes) in [(&mut answer.cost, peak), (&mut least, lower_bound)] {
                *sum = (sum.0 + u128::from(over(bytes)), sum.1 + u128::from(bytes));
            }
            for (&id, &offset) in members.iter().zip(&packed.offsets) {
                answer.offsets[id.index()] = offset;
            }
            answer.spaces.push(packed.about);
        }
        Ok(Leaf::Packed { answer, least })
    }

    /// Packs the buffers of a space: to the least peak if any space has no capacity, else until the
    /// buffers fit.
    fn space(
        &mut self,
        problem: &Problem,
        open: Option<&Problem>,
        space: SpaceId,
        members: &[BufferId],
    ) -> Result<Known> {
        let key = (space, members.to_vec());
        if let Some(known) = self.known.get(&key) {
            return Ok(known.clone());
        }
        let capacity = problem.spaces()[space.index()].capacity();
        let mut found = self.ask(open.unwrap_or(problem), space, members)?;
        if let (Ok(packed), Some(_), Some(bytes)) = (&mut found, open, capacity) {
            if packed.about.lower_bound <= bytes && bytes < packed.about.peak {
                // If there is a capacity, the search first tries to meet it.
                if let Ok(fitting) = self.ask(problem, space, members)?
                    && fitting.about.peak < packed.about.peak
                {
                    let bound = packed.about.lower_bound.max(fitting.about.lower_bound);
                    *packed = fitting;
                    packed.about.lower_bound = bound.min(packed.about.peak);
                }
            }
            let SpacePacking { peak, lower_bound, .. } = packed.about;
            packed.about.status = Status::of(peak, lower_bound, capacity);
        }
        self.known.insert(key, found.clone());
        Ok(found)
    }

    /// Packs the buffers of a space with half of the remaining budget.
    fn ask(&mut self, problem: &Problem, space: SpaceId, members: &[BufferId]) -> Result<Known> {
        let now = Instant::now();
        let half = |limit: u64| limit.saturating_sub(self.nodes).div_ceil(2);
        let deadline = self.budget.deadline.map(|it| now + it.saturating_duration_since(now) / 2);
        let budget = Budget { deadline, nodes: self.budget.nodes.map(half), ..*self.budget };
        match (self.pack)(problem, space, members, &budget) {
            Ok(packed) => {
                self.spend(packed.nodes, packed.effort);
                Ok(Ok(packed))
            }
            Err(Error::PinConflict { reason }) => {
                self.spend(1, members.len());
                let about = &problem.spaces()[space.index()];
                Ok(Err(reason != no_offsets(about, false)))
            }
            Err(error) => Err(error),
        }
    }
}
