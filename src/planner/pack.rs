//! Offsets for one order, and workspace sizes to match.

use alloc::vec::Vec;

use super::attempt::{Attempt, total_load};
use super::context::Context;
use super::step_schedule::StepSchedule;
use crate::base::{Alignment, BufferId, NodeId, Result, SpaceId, Step};
use crate::graph::{Graph, Workspace};
use crate::liveness::{ChosenWorkspace, Lifetimes, Liveness, LivenessOptions};
use crate::pack::{Packing, Problem, SpacePacking, Status, solve};
use crate::plan::MoveCost;

/// Buffers with spaces and offsets.
#[derive(Clone, Debug)]
pub(super) struct Placed {
    pub(super) liveness: Liveness,
    pub(super) packing: Packing,
    /// Move cost, if the planner chose the spaces.
    pub(super) move_cost: Option<MoveCost>,
}

/// An attempt with placed buffers.
pub(super) struct Best<'t, 'g> {
    pub(super) attempt: &'t Attempt<'g>,
    pub(super) placed: Placed,
}

impl Best<'_, '_> {
    /// Returns the arena bytes.
    pub(super) fn peak(&self) -> u64 {
        self.placed.packing.peak()
    }
}

/// Returns a schedule's placed buffers.
///
/// An output in a larger input's bytes ties its place to the input's place, which can cost more
/// bytes than are saved. Unless the result equals the bytes that are live at once, a packing is
/// tried in which outputs take over only inputs of equal size. Outputs of the nodes `overlapped`
/// overlap an input where possible.
pub(super) fn pack(
    context: &Context<'_>,
    schedule: &StepSchedule<'_>,
    elision: bool,
    overlapped: &[NodeId],
) -> Result<Placed> {
    let options = context.liveness_options(false, elision)?;
    let first = pack_with(context, schedule, options, overlapped)?;
    let mut buffers = first.liveness.problem.buffers().iter();
    let is_least = first.packing.peak() <= total_load(&first.liveness.problem)?;
    if is_least || buffers.all(|buffer| buffer.solid().is_some()) {
        return Ok(first);
    }
    let options = context.liveness_options(true, elision)?;
    let second = pack_with(context, schedule, options, overlapped)?;
    Ok(if second.packing.peak() < first.packing.peak() { second } else { first })
}

/// Returns the placed buffers of a schedule under given rules.
fn pack_with(
    context: &Context<'_>,
    schedule: &StepSchedule<'_>,
    options: LivenessOptions,
    overlapped: &[NodeId],
) -> Result<Placed> {
    let (graph, order) = (&*schedule.graph, &*schedule.order);
    let placed = |liveness, packing| Ok(Placed { liveness, packing, move_cost: None });
    let liveness = schedule.liveness_of(graph, options, overlapped)?;
    if !context.has_workspaces() {
        let packing = pack_problem(context, &liveness.problem)?;
        return placed(liveness, packing);
    }
    let live = liveness.profile(SpaceId::new(0));
    let mut chosen = smallest_workspaces(graph, order, liveness.overlapped());
    let smallest = liveness.with_workspaces(graph, options, chosen.clone())?;
    if chosen.is_empty() {
        let packing = pack_problem(context, &smallest.problem)?;
        return placed(smallest, packing);
    }
    // Larger workspaces must not exceed the peak with the smallest workspaces.
    let least = pack_problem(context, &smallest.problem)?;
    let SpacePacking { peak: smallest_peak, lower_bound, .. } = least.spaces[0];
    let peak = smallest_peak.max(context.room.min(options.capacity.unwrap_or(u64::MAX)));
    let free = live.iter().map(|&live| peak.saturating_sub(live)).collect();
    enlarge_workspaces(graph, options.alignment, &smallest.lifetimes, free, &mut chosen);
    loop {
        let larger = smallest.clone().with_workspaces(graph, options, chosen.clone())?;
        let mut packing = pack_problem(context, &larger.problem)?;
        if packing.spaces[0].peak <= peak {
            // Smaller workspaces might need fewer bytes: the bound is that of the smallest
            // workspaces.
            let packed = &mut packing.spaces[0];
            packed.lower_bound = lower_bound;
            packed.status =
                Status::of(packed.peak, lower_bound, larger.problem.spaces()[0].capacity());
            return placed(larger, packing);
        }
        // The bytes are there at every step, but no offsets were found: step down
        // the workspaces that ended above the peak.
        let first = larger.classes.classes().len();
        let too_high: Vec<_> = (0..chosen.len())
            .filter(|&index| {
                let buffer = BufferId::new(first + index);
                packing.offset(buffer) + larger.problem.buffer(buffer).bytes() > peak
            })
            .collect();
        let any_high = !too_high.is_empty();
        let mut shrunk = false;
        for index in if any_high { too_high } else { (0..chosen.len()).collect() } {
            shrunk |= shrink_workspace(graph, &mut chosen[index]);
        }
        if !shrunk {
            return placed(smallest, least);
        }
    }
}

/// Returns the smallest packing found for unlimited capacities. Capacities become the target only
/// if that packing does not fit, since the solver stops as soon as a given target is met.
pub(super) fn pack_problem(context: &Context<'_>, problem: &Problem) -> Result<Packing> {
    let limited = problem.spaces().iter().any(|space| space.capacity().is_some());
    let budget = context.packing_budget();
    let mut packing = solve(&problem.without_capacities(), &budget)?;
    if !limited {
        return Ok(packing);
    }
    for (packed, space) in packing.spaces.iter_mut().zip(problem.spaces()) {
        packed.status = Status::of(packed.peak, packed.lower_bound, space.capacity());
    }
    if packing.status() != Status::Unknown {
        return Ok(packing);
    }
    let fitting = solve(problem, &budget)?;
    let decided = fitting.status() != Status::Unknown;
    Ok(if decided || fitting.peak() < packing.peak() { fitting } else { packing })
}

/// Returns the buffers of `graph`, which the schedule runs, with every workspace at the smallest
/// size, if workspaces count. Outputs of the nodes `overlapped` overlap an input where possible.
pub(super) fn smallest(
    context: &Context<'_>,
    schedule: &StepSchedule<'_>,
    graph: &Graph,
    options: LivenessOptions,
    overlapped: &[NodeId],
) -> Result<Liveness> {
    let liveness = schedule.liveness_of(graph, options, overlapped)?;
    if !context.has_workspaces() {
        return Ok(liveness);
    }
    let workspaces = smallest_workspaces(graph, &schedule.order, liveness.overlapped());
    liveness.with_workspaces(graph, options, workspaces)
}

/// Returns every workspace that the nodes in `graph` need, at the smallest size, if the outputs of
/// `overlapped` overlap inputs.
fn smallest_workspaces(
    graph: &Graph,
    order: &[NodeId],
    overlapped: impl Iterator<Item = NodeId>,
) -> Vec<ChosenWorkspace> {
    let mut overlapped = overlapped.peekable();
    let mut chosen = Vec::new();
    for (step, &node) in order.iter().enumerate() {
        // Both are in execution order.
        let staging = overlapped.next_if_eq(&node).is_some();
        for (slot, workspace) in graph.node(node).effects().scratch(staging).iter().enumerate() {
            let sizes = workspace.choices.iter().map(|choice| choice.bytes).enumerate();
            let (choice, bytes) =
                sizes.min_by_key(|&(_, bytes)| bytes).expect("a workspace has a choice");
            let step = Step::at(step);
            chosen.push(ChosenWorkspace { node, staging, slot, choice, bytes, step });
        }
    }
    chosen
}

/// Gives each workspace the cheapest size that fits into the `free` bytes of the step and of the
/// steps that run at the same time.
fn enlarge_workspaces(
    graph: &Graph,
    alignment: Alignment,
    lifetimes: &Lifetimes,
    mut free: Vec<u64>,
    chosen: &mut [ChosenWorkspace],
) {
    let rounded = |bytes| alignment.round_up(bytes).unwrap_or(u64::MAX);
    let steps = |step: Step| step.index()..lifetimes.until(step).index();
    // Workspaces in a step share the bytes that the step leaves free.
    for workspace in &*chosen {
        for free in &mut free[steps(workspace.step)] {
            *free = free.saturating_sub(rounded(workspace.bytes));
        }
    }
    for workspace in chosen {
        let free = &mut free[steps(workspace.step)];
        let least = free.iter().copied().min().unwrap_or(0);
        let room = least.saturating_add(rounded(workspace.bytes));
        let choices = &workspace_of(graph, workspace).choices;
        let cheapest = choices
            .iter()
            .enumerate()
            .filter(|(_, choice)| rounded(choice.bytes) <= room)
            .min_by(|(_, a), (_, b)| a.cost.total_cmp(&b.cost).then(a.bytes.cmp(&b.bytes)));
        if let Some((choice, size)) = cheapest {
            let before = rounded(workspace.bytes);
            for free in free {
                *free = free.saturating_add(before).saturating_sub(rounded(size.bytes));
            }
            workspace.choice = choice;
            workspace.bytes = size.bytes;
        }
    }
}

/// Gives a workspace the next smaller size, and returns whether such a size exists.
fn shrink_workspace(graph: &Graph, workspace: &mut ChosenWorkspace) -> bool {
    let choices = &workspace_of(graph, workspace).choices;
    let smaller = choices
        .iter()
        .enumerate()
        .filter(|(_, choice)| choice.bytes < workspace.bytes)
        .max_by_key(|(_, choice)| choice.bytes);
    if let Some((choice, size)) = smaller {
        workspace.choice = choice;
        workspace.bytes = size.bytes;
    }
    smaller.is_some()
}

/// Returns a workspace's declaration.
fn workspace_of<'g>(graph: &'g Graph, chosen: &ChosenWorkspace) -> &'g Workspace {
    &graph.node(chosen.node).effects().scratch(chosen.staging)[chosen.slot]
}
