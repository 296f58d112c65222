//! A plan's claims: sizes, and bounds that hold for all plans.
//!
//! A claim is first checked for contradictions. For a valid plan, each bound is then derived,
//! refuted, or reported as claimed.

use alloc::{format, string::String, vec, vec::Vec};

use crate::base::{Alignment, Error, MAX_BYTES, Result, quoted};
use crate::check::bound::{compacted, live, max_live};
use crate::check::needs::StepNeeds;
use crate::check::rigid::Rigid;
use crate::check::unit::Unit;
use crate::check::verdict::{Proof, SpaceVerdict, Verdict};
use crate::graph::Graph;
use crate::pack::Status;
use crate::plan::{OrderSearch, Plan, Technique};

fn corrupt<T>(reason: String) -> Result<T> {
    Err(Error::PlanCorrupt { reason })
}

impl Plan {
    /// Checks that the plan's sizes and proofs do not contradict each other.
    pub(super) fn check_claims(&self, graph: &Graph) -> Result<()> {
        let Ok(alignment) = Alignment::new(self.options.alignment) else {
            return corrupt(format!("alignment {} is not a power of two", self.options.alignment));
        };
        let padded = |bytes: u64| u128::from(bytes).next_multiple_of(u128::from(alignment.bytes()));
        let mut extents = vec![0_u128; self.spaces.len()];
        let values = self.placements.iter().map(|value| (value.space, value.offset, value.bytes));
        let scratch = self.workspaces.iter().map(|work| (work.space, work.offset, work.bytes));
        for (space, offset, bytes) in values.chain(scratch) {
            if bytes > 0 {
                let extent = usize::try_from(space).ok().and_then(|space| extents.get_mut(space));
                let extent = extent.expect("every span was checked to be in a space");
                let end = u128::from(offset) + u128::from(bytes);
                let is_arena = usize::try_from(space).is_ok_and(|it| it < self.arenas().len());
                let grain = if is_arena { alignment.bytes() } else { 1 };
                *extent = (*extent).max(end.next_multiple_of(grain.into()));
            }
        }
        for (space, extent) in self.spaces.iter().zip(extents) {
            let name = quoted(&space.name);
            let bytes = space.arena_bytes;
            if bytes > MAX_BYTES {
                return corrupt(format!("space {name} has {bytes} bytes, more than any memory"));
            }
            if u128::from(bytes) != extent {
                return corrupt(format!(
                    "space {name} has {bytes} bytes, and values end at {extent}"
                ));
            }
            let fits = space.capacity.is_none_or(|capacity| bytes <= capacity);
            let none_fits = space.capacity.is_some_and(|capacity| space.lower_bound > capacity);
            let agrees = match space.status {
                Status::Optimal => fits && space.lower_bound == bytes,
                Status::Feasible => fits && space.lower_bound < bytes,
                Status::Unknown => !fits && !none_fits,
                Status::Infeasible => !fits && none_fits,
            };
            if !agrees || space.lower_bound > bytes {
                let (status, bound) = (space.status, space.lower_bound);
                return corrupt(format!(
                    "space {name} is not {status} with the lower bound {bound}"
                ));
            }
        }
        let naive = graph
            .values()
            .iter()
            .filter(|value| value.is_planned())
            .map(|value| padded(value.bytes()))
            .sum::<u128>();
        if self.naive_bytes != u64::try_from(naive).ok() {
            return corrupt(format!("all values together have {naive} bytes"));
        }
        match self.search {
            Some(search) if search.floor > self.lower_bound() => corrupt(format!(
                "its floor of {} bytes is above its lower bound {}",
                search.floor,
                self.lower_bound()
            )),
            _ => Ok(()),
        }
    }

    /// Returns the proofs for a valid plan's claims.
    ///
    /// # Errors
    ///
    /// [`Error::PlanCorrupt`] if a claim is provably false.
    pub(super) fn judge(
        &self,
        graph: &Graph,
        units: &[Unit<'_>],
        rigids: &[Rigid],
    ) -> Result<Verdict> {
        let horizon = u32::try_from(units.len()).unwrap_or(u32::MAX);
        let mut spaces = Vec::with_capacity(self.arenas().len());
        for (index, space) in self.arenas().iter().enumerate() {
            let inside: Vec<&Rigid> = rigids.iter().filter(|rigid| rigid.space == index).collect();
            // An arena's size is a multiple of the alignment, wherever the last value ends.
            let unit = self.options.alignment;
            let rounded = |bytes: u64| bytes.checked_next_multiple_of(unit).unwrap_or(u64::MAX);
            let max_live = rounded(max_live(inside.iter().copied(), horizon));
            let derived = space.lower_bound <= max_live;
            if !derived {
                let safe = self.options.parallel_safe;
                let reached = compacted(&inside, horizon, space.arena_bytes, safe);
                refute(&quoted(&space.name), space.lower_bound, rounded(reached))?;
            }
            let lower_bound = Proof::of(derived);
            let status = match space.status {
                Status::Optimal => lower_bound,
                Status::Feasible | Status::Unknown => Proof::Verified,
                Status::Infeasible => {
                    Proof::of(space.capacity.is_some_and(|capacity| max_live > capacity))
                }
            };
            spaces.push(SpaceVerdict { max_live, lower_bound, status });
        }
        let (order, floor) = self.judge_search(graph, units, rigids, horizon)?;
        let move_cost = self.judge_move_cost(graph, units);
        let repetitions = self.judge_repetitions(graph, units);
        let chose_spaces = self.move_cost.is_some();
        Ok(Verdict { spaces, chose_spaces, order, floor, move_cost, repetitions })
    }

    /// Returns the proof for the floor and the bound in a plan with repetitions.
    ///
    /// Every schedule that runs each node by itself needs each node's operands. Other schedules'
    /// work is not derived.
    fn judge_repetitions(&self, graph: &Graph, units: &[Unit<'_>]) -> Option<Proof> {
        let said = self.recomputed.as_ref()?;
        // A copy in slow memory does not count for the other copies.
        let is_derived = said.extra_bound == 0
            && (said.floor == 0
                || (said.paging.is_none()
                    && said.floor <= StepNeeds::new(self, graph, units).least));
        Some(Proof::of(is_derived))
    }

    /// Returns the proofs for the order and the floor.
    fn judge_search(
        &self,
        graph: &Graph,
        units: &[Unit<'_>],
        rigids: &[Rigid],
        horizon: u32,
    ) -> Result<(Option<Proof>, Option<Proof>)> {
        let Some(search) = self.search else { return Ok((None, None)) };
        let needs = StepNeeds::new(self, graph, units);
        if search.floor > needs.most.max(needs.supplied) {
            return corrupt(format!(
                "no step of it needs {} bytes by itself, as its floor says",
                search.floor
            ));
        }
        // If nodes could be fused, the search also tried other steps, which may need fewer bytes.
        let techniques = self.options.optimize;
        let fuses = [Technique::Fusion, Technique::Streaming];
        let fuses = fuses.into_iter().any(|technique| techniques.contains(technique));
        let known = if fuses { needs.supplied } else { needs.least };
        let floor = Proof::of(search.floor <= known);
        let highest = live(rigids.iter(), horizon).into_iter().max().unwrap_or(0);
        let order =
            (search.order == OrderSearch::Complete).then(|| Proof::of(highest <= needs.least));
        Ok((order, Some(floor)))
    }
}

/// Refuses a lower bound above a size that was `reached`.
pub(super) fn refute(space: &str, lower_bound: u64, reached: u64) -> Result<()> {
    if reached < lower_bound {
        return corrupt(format!(
            "space {space} does with {reached} bytes, fewer than its lower bound {lower_bound}"
        ));
    }
    Ok(())
}
