//! Plans from offsets by planners outside this crate.

use alloc::borrow::ToOwned as _;
use alloc::{vec, vec::Vec};

use super::index_steps;
use super::{Placement, Plan, PlanOptions, PlanStep, Share, SpacePlan, Target, Techniques};
use crate::base::{Alignment, Error, Fingerprint, LiveRange, Result, ValueId};
use crate::graph::Graph;
use crate::pack::Status;

/// Offsets that a planner outside this crate found for the values of a graph.
#[derive(Clone, Debug, Default)]
pub struct Offsets {
    /// Offset alignment.
    pub alignment: Alignment,
    /// Whether the offsets are safe in every order that the graph permits.
    pub parallel_safe: bool,
    /// Offset and live range of every value, by [`ValueId`]; `None` for values without a place.
    pub values: Vec<Option<(u64, LiveRange)>>,
    /// Operands that share bytes, by step in the graph's order.
    pub shares: Vec<Vec<Share>>,
    /// Bytes that each space needs with any offsets, by [`SpaceId`](crate::SpaceId).
    pub lower_bounds: Vec<u64>,
}

impl Plan {
    /// Returns the plan with the offsets `found`, for the order of the graph. The plan is not
    /// checked: [`Plan::check`] decides whether the plan is valid.
    ///
    /// # Errors
    ///
    /// - [`Error::SizeOverflow`] if a space exceeds a machine's address space.
    /// - [`Error::InvalidOption`] if `found` has not one entry for every value, step and space.
    pub fn from_offsets(graph: &Graph, found: Offsets) -> Result<Self> {
        let Offsets { alignment, parallel_safe, values, shares, lower_bounds } = found;
        let counts = [values.len(), shares.len(), lower_bounds.len()];
        if counts != [graph.values().len(), graph.order().len(), graph.spaces().len()] {
            let reason = "expected one entry for every value, step and space of the graph".into();
            return Err(Error::InvalidOption { option: "found", reason });
        }
        let mut placements = Vec::new();
        let mut extents = vec![0; graph.spaces().len()];
        for (index, (value, place)) in graph.values().iter().zip(values).enumerate() {
            let Some((offset, live)) = place else { continue };
            if value.bytes() > 0 {
                let overflow = || Error::SizeOverflow { what: "a block".into() };
                let bytes = alignment.round_up(value.bytes()).ok_or_else(overflow)?;
                let extent = &mut extents[value.space().index()];
                *extent = offset.saturating_add(bytes).max(*extent);
            }
            placements.push(Placement {
                value: ValueId::new(index).into(),
                name: value.name().to_owned(),
                space: value.space().into(),
                offset,
                bytes: value.bytes(),
                live: [live.start().get(), live.end().get()],
            });
        }
        let spaces = graph.spaces().iter().zip(extents.iter().zip(lower_bounds));
        let spaces = spaces.map(|(space, (&arena_bytes, lower_bound))| SpacePlan {
            name: space.name().to_owned(),
            arena_bytes,
            lower_bound,
            status: Status::of(arena_bytes, lower_bound, space.capacity()),
            alignment: alignment.max(space.alignment()).bytes(),
            capacity: space.capacity(),
            cost: space.cost(),
            caller: None,
        });
        let spaces = spaces.collect();
        let steps = graph.order().iter().zip(shares).map(|(&id, shares)| {
            let node = graph.node(id);
            PlanStep {
                fused: Vec::new(),
                node: id.into(),
                name: node.name().to_owned(),
                inputs: node.bytes_read().map(|read| read.map(u32::from)).collect(),
                outputs: node.outputs().iter().map(|output| output.map(u32::from)).collect(),
                shares,
                strips: None,
                continues: false,
            }
        });
        let steps: Vec<_> = steps.collect();
        let planned = graph.values().iter().filter(|value| value.is_planned());
        let naive_bytes = planned
            .map(|value| alignment.round_up(value.bytes()))
            .try_fold(0_u64, |sum, bytes| sum.checked_add(bytes?));
        Ok(Self {
            model: graph.name().to_owned(),
            digest: graph.digest(),
            covers: graph.covers().clone(),
            search: None,
            target: Target::NODES,
            options: PlanOptions {
                alignment: alignment.bytes(),
                optimize: Techniques::BASIC,
                parallel_safe,
                ..PlanOptions::default()
            },
            step_of: index_steps(&steps).expect("the order runs every node once"),
            steps,
            spaces,
            move_cost: None,
            timetable: None,
            recomputed: None,
            naive_bytes,
            value_count: u32::try_from(graph.values().len()).expect("ids have 32 bits"),
            placements,
            workspaces: Vec::new(),
            fingerprint: Fingerprint::default(),
        })
    }
}
