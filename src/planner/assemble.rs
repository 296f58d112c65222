//! Writing a plan down.

use super::Planner;
use super::schedule::Schedule;
use crate::graph::{Graph, Value};
use crate::index::{BufferId, NodeId, ValueId};
use crate::liveness::{ChosenWorkspace, Liveness};
use crate::packing::Packing;
use crate::plan::{Placement, Plan, PlanStep, SpacePlan, WorkspacePlacement, index_steps};
use crate::units::Alignment;

impl Planner<'_> {
    /// Writes down where everything went.
    pub(super) fn assemble(
        &self,
        graph: &Graph,
        schedule: &Schedule<'_>,
        liveness: &Liveness,
        packing: &Packing,
    ) -> Plan {
        let narrow = |index: usize| u32::try_from(index).expect("positions have 32 bits");
        let place = |(index, value): (usize, &Value)| {
            let id = ValueId::new(index);
            let buffer = liveness.buffer_of(id)?;
            let live = liveness.lifetimes.of(id)?;
            Some(Placement {
                value: id.into(),
                name: value.name().to_owned(),
                space: value.space().into(),
                offset: packing.offset(buffer) + liveness.classes.start_of(id),
                bytes: value.bytes(),
                live: [live.start().get(), live.end().get()],
            })
        };
        let placements = graph.values().iter().enumerate().filter_map(place).collect();
        let first = liveness.classes.classes().len();
        let mut workspaces: Vec<_> = liveness
            .workspaces
            .iter()
            .enumerate()
            .map(|(index, workspace)| {
                let (node, slot) = declared_by(graph, schedule, workspace);
                WorkspacePlacement {
                    node: node.into(),
                    slot: narrow(slot),
                    choice: narrow(workspace.choice),
                    space: 0,
                    offset: packing.offset(BufferId::new(first + index)),
                    bytes: workspace.bytes,
                }
            })
            .collect();
        workspaces.sort_unstable_by_key(|workspace| (workspace.node, workspace.slot));
        let spaces = graph
            .spaces()
            .iter()
            .zip(liveness.problem.spaces())
            .zip(packing.spaces())
            .map(|((declared, space), packed)| SpacePlan {
                name: declared.name().to_owned(),
                arena_bytes: packed.peak,
                lower_bound: packed.lower_bound,
                status: packed.status,
                alignment: self.options.alignment.max(space.alignment().bytes()),
                capacity: space.capacity(),
            })
            .collect();
        let steps = steps(schedule, liveness);
        Plan {
            model: graph.name().to_owned(),
            digest: graph.digest(),
            options: self.options,
            search: None,
            step_of: index_steps(&steps).expect("the order runs every node once"),
            steps,
            spaces,
            naive_bytes: naive_bytes(graph, self.options.alignment),
            value_count: narrow(graph.values().len()),
            placements,
            workspaces,
        }
    }
}

/// Returns every step with its operands and what they share.
fn steps(schedule: &Schedule<'_>, liveness: &Liveness) -> Vec<PlanStep> {
    let mut merges = liveness.classes.merges().iter().peekable();
    let mut steps = Vec::with_capacity(schedule.order.len());
    for id in &schedule.order {
        let node = schedule.graph.node(*id);
        let mut shares = Vec::new();
        // Merges are in execution order, as the steps are.
        while let Some(merge) = merges.next_if(|merge| merge.node == *id) {
            shares.push(merge.share);
        }
        let (last, fused) = schedule.members(id).split_last().expect("a step runs a node");
        steps.push(PlanStep {
            node: (*last).into(),
            name: node.name().to_owned(),
            fused: fused.iter().map(|&node| node.into()).collect(),
            inputs: node.bytes_read().map(|read| read.map(u32::from)).collect(),
            outputs: node.outputs().iter().map(|output| output.map(u32::from)).collect(),
            shares,
        });
    }
    steps
}

/// Returns the node of `graph` that declares a workspace, and its position there: a step has
/// the workspaces of all its nodes.
fn declared_by(
    graph: &Graph,
    schedule: &Schedule<'_>,
    workspace: &ChosenWorkspace,
) -> (NodeId, usize) {
    let mut slot = workspace.slot;
    for &member in schedule.members(&workspace.node) {
        let count = graph.node(member).effects().workspaces.len();
        if slot < count {
            return (member, slot);
        }
        slot -= count;
    }
    unreachable!("a step has the workspaces of its nodes and no others")
}

/// Returns the bytes of all values in the arena, each rounded up to `alignment`.
fn naive_bytes(graph: &Graph, alignment: u64) -> Option<u64> {
    let alignment = Alignment::new(alignment).ok()?;
    graph
        .values()
        .iter()
        .filter(|value| value.is_planned())
        .try_fold(0_u64, |sum, value| sum.checked_add(alignment.round_up(value.bytes())?))
}
