//! Packs the buffers of a space, and caches results.

use alloc::{vec, vec::Vec};

use hashbrown::HashMap;

use super::AssignmentProblem;
use super::space_model::{Picks, SpaceModel};
use super::work::SpaceWork;
use crate::base::{Result, SpaceId};
use crate::pack::{Budget, Packing, Problem, SpacePacking, Status, solve};

/// Whether some buffers fit a space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FitVerdict {
    /// The items fit.
    Fits,
    /// The items need more bytes in any packing.
    Excluded,
    /// No packing was found.
    Unknown,
}

/// Packs buffers into spaces, never the same buffers twice.
pub(super) struct Packer<'a> {
    problem: &'a AssignmentProblem,
    pub(super) work: SpaceWork<'a>,
    /// By space and buffers.
    known: HashMap<(usize, Vec<usize>), FitVerdict>,
    /// Offsets that were found without a solver.
    offsets: HashMap<(usize, Vec<usize>), Vec<u64>>,
    /// Number of packing searches.
    pub(super) calls: usize,
}

impl<'a> Packer<'a> {
    pub(super) fn new(problem: &'a AssignmentProblem, work: SpaceWork<'a>) -> Self {
        Self { problem, work, known: HashMap::new(), offsets: HashMap::new(), calls: 0 }
    }

    /// Notes that buffers, in ascending order, fit `space` at the given offsets.
    pub(super) fn note(&mut self, space: usize, placed: Vec<(usize, u64)>) {
        let (members, offsets): (Vec<_>, Vec<_>) = placed.into_iter().unzip();
        self.known.insert((space, members.clone()), FitVerdict::Fits);
        self.offsets.insert((space, members), offsets);
    }

    /// Returns whether `members`, in ascending order, fit `space`.
    pub(super) fn verdict(&mut self, space: usize, members: &[usize]) -> Result<FitVerdict> {
        let key = (space, members.to_vec());
        if let Some(&known) = self.known.get(&key) {
            return Ok(known);
        }
        let verdict = match self.pack(space, members)?.space(SpaceId::new(0)).status {
            Status::Infeasible => FitVerdict::Excluded,
            Status::Unknown => FitVerdict::Unknown,
            Status::Optimal | Status::Feasible => FitVerdict::Fits,
        };
        self.known.insert(key, verdict);
        Ok(verdict)
    }

    /// Returns whether all spaces hold the items assigned by `picks`.
    pub(super) fn fits(&mut self, model: &SpaceModel<'_>, picks: &Picks) -> Result<bool> {
        for space in 0..model.capacities.len() {
            if self.verdict(space, &model.members_of(picks, space))? != FitVerdict::Fits {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Returns the buffers that end above the capacity in a packing of `members`.
    pub(super) fn too_high(&mut self, space: usize, members: &[usize]) -> Result<Vec<usize>> {
        let packing = self.pack(space, members)?;
        let capacity = self.problem.spaces[space].capacity().unwrap_or(u64::MAX);
        let ends = members.iter().zip(packing.offsets());
        let above = ends.filter(|&(&member, &offset)| {
            offset + self.problem.candidates[member].buffer.bytes() > capacity
        });
        Ok(above.map(|(&member, _)| member).collect())
    }

    /// Packs `members` until they fit `space`.
    fn pack(&mut self, space: usize, members: &[usize]) -> Result<Packing> {
        self.calls += 1;
        let buffers = members.iter().map(|&member| {
            self.problem.candidates[member].buffer.clone().with_space(SpaceId::new(0))
        });
        let problem = Problem::new(buffers.collect(), vec![self.problem.spaces[space].clone()])?;
        Ok(solve(&problem, &self.few_nodes())?)
    }

    /// Returns the budget for a packing that only has to fit.
    fn few_nodes(&self) -> Budget<'a> {
        let most = self.work.depth.packing_nodes;
        let nodes = Some(self.work.budget.nodes.unwrap_or(most).min(most));
        let mut budget = self.work.budget;
        (budget.nodes, budget.progress) = (nodes, None);
        budget
    }

    /// Returns the smallest packing of an assignment that is found; of a space that does
    /// not fit then, the one that does.
    pub(super) fn tightest(&mut self, assignment: &[usize]) -> Result<Packing> {
        let problem = self.problem.assigned(assignment)?;
        let budget = if self.work.depth.states > 0 { self.work.budget } else { self.few_nodes() };
        let mut packing = solve(&problem.without_capacities(), &budget)?;
        for (index, space) in problem.spaces().iter().enumerate() {
            let packed = &mut packing.spaces[index];
            packed.status = Status::of(packed.peak, packed.lower_bound, space.capacity());
            if matches!(packed.status, Status::Optimal | Status::Feasible) {
                continue;
            }
            let members: Vec<_> =
                (0..assignment.len()).filter(|&b| assignment[b] == index).collect();
            let bound = packing.spaces[index].lower_bound;
            // An item without bytes has no recorded place, and needs none.
            let solid = |&member: &usize| self.problem.candidates[member].buffer.bytes() > 0;
            let key = (index, members.iter().copied().filter(solid).collect());
            if let Some(noted) = self.offsets.get(&key) {
                let ends = key.1.iter().zip(noted).map(|(&member, &offset)| {
                    packing.offsets[member] = offset;
                    offset + self.problem.candidates[member].buffer.bytes()
                });
                let peak = ends.max().unwrap_or(0);
                let status = Status::of(peak, bound, space.capacity());
                packing.spaces[index] = SpacePacking { peak, lower_bound: bound, status };
                continue;
            }
            let fitting = self.pack(index, &members)?;
            let SpacePacking { peak, lower_bound, status } = fitting.space(SpaceId::new(0));
            for (&member, &offset) in members.iter().zip(fitting.offsets()) {
                packing.offsets[member] = offset;
            }
            let lower_bound = lower_bound.max(bound);
            packing.spaces[index] = SpacePacking { peak, lower_bound, status };
        }
        Ok(packing)
    }
}
