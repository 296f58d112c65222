//! A plan's spaces, and the cost of moving bytes in them.

use alloc::{format, vec, vec::Vec};

use crate::base::{Alignment, Error, Result, SpaceId, ValueId, quoted};
use crate::check::unit::Unit;
use crate::check::{Proof, is_at, mismatch};
use crate::graph::Graph;
use crate::pack::Space;
use crate::plan::{Plan, ShareRule, SpacePlan};

impl Plan {
    /// Checks that the plan's spaces come from the graph, or were chosen by the plan.
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
            self.check_declared_limits(graph)?;
        } else if !planned.iter().copied().eq(graph.spaces().iter().map(Space::name)) {
            return mismatch("its spaces are not those of the graph".into());
        } else {
            self.check_graph_spaces(graph)?;
        }
        for space in &self.spaces {
            Alignment::new(space.alignment).map_err(|_| Error::PlanCorrupt {
                reason: format!("the alignment {} is not a power of two", space.alignment),
            })?;
        }
        self.check_caller_buffers(graph)
    }

    /// Checks that a chosen space is no larger and no less aligned than the graph's space with the
    /// same name.
    fn check_declared_limits(&self, graph: &Graph) -> Result<()> {
        for declared in graph.spaces() {
            let Some(space) = self.arenas().iter().find(|it| it.name == declared.name()) else {
                continue;
            };
            let name = quoted(&space.name);
            if let Some(limit) = declared.capacity()
                && space.capacity.is_none_or(|capacity| capacity > limit)
            {
                return mismatch(format!("the graph limits space {name} to {limit} bytes"));
            }
            if space.alignment < declared.alignment().bytes() {
                let alignment = declared.alignment().bytes();
                return mismatch(format!("the graph aligns space {name} to {alignment} bytes"));
            }
        }
        Ok(())
    }

    /// Checks that capacities, alignments and costs match the graph's spaces.
    ///
    /// The options may limit the default space, and align every offset.
    fn check_graph_spaces(&self, graph: &Graph) -> Result<()> {
        for (index, (space, declared)) in self.arenas().iter().zip(graph.spaces()).enumerate() {
            let name = quoted(&space.name);
            let limit = self.options.capacity.filter(|_| index == 0).or(declared.capacity());
            if space.capacity != limit {
                let shown = |capacity: Option<u64>| {
                    capacity.map_or("no limit".into(), |bytes| format!("{bytes} bytes"))
                };
                let (said, limit) = (shown(space.capacity), shown(limit));
                return mismatch(format!("the capacity of space {name} is {limit}, not {said}"));
            }
            let alignment = declared.alignment().bytes().max(self.options.alignment);
            if space.alignment != alignment {
                let said = space.alignment;
                return mismatch(format!(
                    "the alignment of space {name} is {alignment}, not {said}"
                ));
            }
            if space.cost != declared.cost() {
                let (cost, said) = (declared.cost(), space.cost);
                return mismatch(format!("the cost of space {name} is {cost}, not {said}"));
            }
        }
        Ok(())
    }

    /// Returns whether a value declared in the space `declared` may be in `chosen`.
    ///
    /// A plan that chose spaces may put values of the graph's default space anywhere, unless the
    /// default space has a name, or the graph has several spaces and the plan also has the default
    /// space. Other values stay in the space with the name from the graph.
    pub(super) fn may_be_in(&self, graph: &Graph, declared: SpaceId, chosen: u32) -> bool {
        if self.move_cost.is_none() {
            return is_at(chosen, declared.index());
        }
        let found = self.arenas().get(SpaceId::from(chosen).index());
        let named = |name: &str| found.is_some_and(|space| space.name == name);
        let home = graph.space(declared).name();
        let is_free = declared.index() == 0
            && home == Space::default().name()
            && (graph.spaces().len() == 1 || self.arenas().iter().all(|space| space.name != home));
        found.is_some() && (is_free || named(home))
    }

    /// Returns how many bytes of each value the steps read and write.
    fn traffic(graph: &Graph, units: &[Unit<'_>], plan: &Self) -> Vec<u128> {
        let mut moved = vec![0_u128; graph.values().len()];
        let bytes = |value: ValueId| u128::from(graph.value(value).bytes());
        for (unit, step) in units.iter().zip(&plan.steps) {
            let views: Vec<_> =
                step.shares.iter().filter(|share| share.rule == ShareRule::View).collect();
            for (position, value) in unit.reads() {
                if !views.iter().any(|share| is_at(share.input, position)) {
                    moved[value.index()] += bytes(value);
                }
            }
            for (position, value) in unit.writes() {
                let mut written = bytes(value);
                for share in views.iter().filter(|share| is_at(share.output, position)) {
                    let shown = usize::try_from(share.input).ok();
                    let shown = shown.and_then(|input| unit.reads.get(input).copied().flatten());
                    written = written.saturating_sub(shown.map_or(0, bytes));
                }
                moved[value.index()] += written;
            }
        }
        moved
    }

    /// Checks the cost of moving bytes.
    pub(super) fn check_move_cost(&self, graph: &Graph, units: &[Unit<'_>]) -> Result<()> {
        let Some(said) = self.move_cost else { return Ok(()) };
        let space_cost = |space: u32| u128::from(self.spaces[SpaceId::from(space).index()].cost);
        let moved = Self::traffic(graph, units, self);
        let placed = self.placements.iter();
        let costs = placed.map(|place| {
            moved[ValueId::from(place.value).index()].saturating_mul(space_cost(place.space))
        });
        let mut total = costs.fold(0, u128::saturating_add);
        // Scratch is written once and read once, as far as a plan can know.
        for work in &self.workspaces {
            let cost = (2 * u128::from(work.bytes)).saturating_mul(space_cost(work.space));
            total = total.saturating_add(cost);
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

    /// Returns the proof for the lower bound of the move cost.
    ///
    /// No assignment costs less than putting each value into the cheapest permitted space that
    /// could hold the value alone.
    pub(super) fn judge_move_cost(&self, graph: &Graph, units: &[Unit<'_>]) -> Option<Proof> {
        let said = self.move_cost?;
        let cheapest = |bytes: u64, may_be: &dyn Fn(u32) -> bool| {
            let arenas = (0_u32..).zip(self.arenas());
            let holds = |space: &SpacePlan| space.capacity.is_none_or(|most| bytes <= most);
            let able = arenas.filter(|&(index, space)| holds(space) && may_be(index));
            able.map(|(_, space)| u128::from(space.cost)).min().unwrap_or(0)
        };
        let moved = Self::traffic(graph, units, self);
        let values = self.placements.iter().map(|place| {
            let value = ValueId::from(place.value);
            let declared = graph.value(value).space();
            let may_be = |space: u32| self.may_be_in(graph, declared, space);
            moved[value.index()].saturating_mul(cheapest(place.bytes, &may_be))
        });
        let scratch = self.workspaces.iter();
        let scratch = scratch.map(|work| {
            (2 * u128::from(work.bytes)).saturating_mul(cheapest(work.bytes, &|_| true))
        });
        let least = values.chain(scratch).fold(0, u128::saturating_add);
        Some(Proof::of(u128::from(said.lower_bound) <= least))
    }
}
