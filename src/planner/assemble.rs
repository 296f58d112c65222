//! Assembles a plan from a schedule, live ranges and a packing.

use alloc::{borrow::ToOwned as _, vec, vec::Vec};

use super::context::Context;
use super::pack::Placed;
use super::step_schedule::StepSchedule;
use crate::base::{Alignment, BufferId, Fingerprint, NodeId, SpaceId, ValueId};
use crate::graph::{Graph, Value};
use crate::liveness::{ChosenWorkspace, Lifetimes, Liveness};
use crate::pack::Status;
use crate::plan::{
    InputMemory, Placement, Plan, PlanStep, SpacePlan, Strips, WorkspacePlacement, index_steps,
};

/// Writes down where everything went.
pub(super) fn assemble(
    context: &Context<'_>,
    graph: &Graph,
    schedule: &StepSchedule<'_>,
    placed: &Placed,
) -> Plan {
    let Placed { liveness, packing, move_cost } = placed;
    let narrow = |index: usize| u32::try_from(index).expect("positions have 32 bits");
    let arenas = liveness.problem.spaces().len();
    let keeps_inputs =
        context.options.preserve_inputs || context.options.inputs == InputMemory::Caller;
    // The live ranges in a plan are those of a serial run, for any number of workers.
    let serial =
        schedule.table().map(|_| Lifetimes::new(&schedule.graph, &schedule.order, keeps_inputs));
    let lifetimes = serial.as_ref().unwrap_or(&liveness.lifetimes);
    let place = |(index, value): (usize, &Value)| {
        let id = ValueId::new(index);
        let live = lifetimes.of(id)?;
        let (space, base) = match liveness.buffer_of(id) {
            Some(buffer) => (liveness.problem.buffer(buffer).space(), packing.offset(buffer)),
            None => (SpaceId::new(arenas + liveness.classes.caller_class_of(id)?), 0),
        };
        Some(Placement {
            value: id.into(),
            name: value.name().to_owned(),
            space: space.into(),
            offset: base + liveness.classes.start_of(id),
            bytes: value.bytes(),
            live: [live.start().get(), live.end().get()],
        })
    };
    let placements = graph.values().iter().enumerate().filter_map(place).collect();
    let first = liveness.classes.classes().len();
    let mut runs = vec![0_usize; graph.nodes().len()];
    for id in &schedule.order {
        schedule.members(id).iter().for_each(|member| runs[member.index()] += 1);
    }
    let mut workspaces: Vec<_> = liveness
        .workspaces
        .iter()
        .enumerate()
        .map(|(index, workspace)| {
            let (node, slot) = declared_by(graph, schedule, &runs, workspace);
            let buffer = BufferId::new(first + index);
            WorkspacePlacement {
                node: node.into(),
                slot: narrow(slot),
                choice: narrow(workspace.choice),
                space: liveness.problem.buffer(buffer).space().into(),
                offset: packing.offset(buffer),
                bytes: workspace.bytes,
            }
        })
        .collect();
    workspaces.sort_unstable_by_key(|workspace| (workspace.node, workspace.slot));
    let mut spaces: Vec<_> = liveness
        .problem
        .spaces()
        .iter()
        .zip(packing.spaces())
        .map(|(space, packed)| SpacePlan {
            name: space.name().to_owned(),
            arena_bytes: packed.peak,
            lower_bound: packed.lower_bound,
            status: packed.status,
            alignment: context.options.alignment.max(space.alignment().bytes()),
            capacity: space.capacity(),
            cost: space.cost(),
            caller: None,
        })
        .collect();
    let brought = liveness.classes.of_caller().iter().filter_map(|class| class.owner);
    spaces.extend(brought.map(|owner| {
        let value = graph.value(owner);
        SpacePlan {
            name: value.name().to_owned(),
            arena_bytes: value.bytes(),
            lower_bound: value.bytes(),
            status: Status::Optimal,
            alignment: context.options.alignment,
            capacity: None,
            cost: 0,
            caller: Some(owner.into()),
        }
    }));
    let steps = steps(schedule, liveness, context.strips);
    let alignment = Alignment::new(context.options.alignment);
    Plan {
        model: graph.name().to_owned(),
        digest: graph.digest(),
        covers: graph.covers().clone(),
        target: context.target.clone(),
        options: context.options,
        search: None,
        step_of: index_steps(&steps).expect("the order runs every node once"),
        steps,
        spaces,
        naive_bytes: alignment.ok().and_then(|alignment| graph.naive_bytes(alignment)),
        move_cost: *move_cost,
        timetable: None,
        recomputed: None,
        value_count: narrow(graph.values().len()),
        placements,
        workspaces,
        fingerprint: Fingerprint::default(),
    }
}

/// Returns every step with operands and shares.
pub(super) fn steps(
    schedule: &StepSchedule<'_>,
    liveness: &Liveness,
    strips: &[(NodeId, Strips)],
) -> Vec<PlanStep> {
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
            strips: strips
                .iter()
                .find(|(node, _)| node == last && !fused.is_empty())
                .map(|(_, strips)| strips.clone()),
            continues: false,
        });
    }
    steps
}

/// Returns the node of `graph` that declares a workspace, and the workspace's position in that
/// declaration. A step has the workspaces of all its nodes, except nodes that run in several steps,
/// by `runs`, and do not end this step.
fn declared_by(
    graph: &Graph,
    schedule: &StepSchedule<'_>,
    runs: &[usize],
    workspace: &ChosenWorkspace,
) -> (NodeId, usize) {
    let mut slot = workspace.slot;
    let members = schedule.members(&workspace.node);
    let last = *members.last().expect("a step runs a node");
    if workspace.staging {
        return (last, slot);
    }
    let own = members.iter().copied().filter(|&id| id == last || runs[id.index()] < 2);
    for member in own {
        let count = graph.node(member).effects().workspaces.len();
        if slot < count {
            return (member, slot);
        }
        slot -= count;
    }
    unreachable!("a step has the workspaces of its nodes and no others")
}
