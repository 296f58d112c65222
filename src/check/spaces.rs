//! What a plan says of its spaces, and of what it costs to move bytes in them.

use crate::check::unit::Unit;
use crate::check::{is_at, mismatch};
use crate::error::{Error, Result, quoted};
use crate::graph::Graph;
use crate::index::{SpaceId, ValueId};
use crate::plan::{Plan, ShareRule};
use crate::problem::Space;
use crate::units::Alignment;

impl Plan {
    /// Checks that the plan's spaces are the graph's, or its own where it chose them.
    pub(super) fn check_spaces(&self, graph: &Graph) -> Result<()> {
        let planned: Vec<_> = self.arenas().iter().map(|space| space.name.as_str()).collect();
        if planned.is_empty() {
            return Err(Error::PlanCorrupt { reason: "it has no space".into() });
        }
        if self.move_cost.is_some() {
            for (index, name) in planned.iter().enumerate() {
                if planned[..index].contains(name) {
                    let reason = format!("two of its spaces are called {}", quoted(name));
                    return Err(Error::PlanCorrupt { reason });
                }
            }
        } else if !planned.iter().copied().eq(graph.spaces().iter().map(Space::name)) {
            return mismatch("its spaces are not those of the graph".into());
        }
        for space in &self.spaces {
            Alignment::new(space.alignment).map_err(|_| Error::PlanCorrupt {
                reason: format!("the alignment {} is not a power of two", space.alignment),
            })?;
        }
        self.check_caller_buffers(graph)
    }

    /// Returns whether a value that the graph has in `declared` may be in `chosen`.
    ///
    /// A plan that chose spaces may put what the graph has in its default space anywhere; the
    /// others stay in the space of that name.
    pub(super) fn may_be_in(&self, graph: &Graph, declared: SpaceId, chosen: u32) -> bool {
        if self.move_cost.is_none() {
            return is_at(chosen, declared.index());
        }
        let found = self.arenas().get(SpaceId::from(chosen).index());
        let named = |name: &str| found.is_some_and(|space| space.name == name);
        found.is_some() && (declared.index() == 0 || named(graph.space(declared).name()))
    }

    /// Checks what the plan says of the cost of moving bytes.
    pub(super) fn check_move_cost(&self, graph: &Graph, units: &[Unit<'_>]) -> Result<()> {
        let Some(said) = self.move_cost else { return Ok(()) };
        let space_cost = |space: u32| u128::from(self.spaces[SpaceId::from(space).index()].cost);
        let mut cost_of = vec![0_u128; graph.values().len()];
        for placement in &self.placements {
            cost_of[ValueId::from(placement.value).index()] = space_cost(placement.space);
        }
        let bytes = |value: ValueId| u128::from(graph.value(value).bytes());
        let mut total = 0_u128;
        for (unit, step) in units.iter().zip(&self.steps) {
            let views: Vec<_> =
                step.shares.iter().filter(|share| share.rule == ShareRule::View).collect();
            for (position, value) in unit.reads() {
                if !views.iter().any(|share| is_at(share.input, position)) {
                    total += bytes(value) * cost_of[value.index()];
                }
            }
            for (position, value) in unit.writes() {
                let mut written = bytes(value);
                for share in views.iter().filter(|share| is_at(share.output, position)) {
                    let shown = usize::try_from(share.input).ok();
                    let shown = shown.and_then(|input| unit.reads.get(input).copied().flatten());
                    written = written.saturating_sub(shown.map_or(0, bytes));
                }
                total += written * cost_of[value.index()];
            }
        }
        // Scratch is written once and read once, as far as a plan can know.
        for work in &self.workspaces {
            total += 2 * u128::from(work.bytes) * space_cost(work.space);
        }
        if u128::from(said.cost) != total {
            let reason = format!("moving its bytes costs {total}, not {}", said.cost);
            return Err(Error::PlanCorrupt { reason });
        }
        if said.lower_bound > said.cost {
            let reason = format!("moving its bytes costs less than the bound {}", said.lower_bound);
            return Err(Error::PlanCorrupt { reason });
        }
        Ok(())
    }
}
