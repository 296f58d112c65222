//! A memory for every buffer, and offsets there.

use super::assemble::steps;
use super::pack::smallest_workspaces;
use super::schedule::Schedule;
use super::search::Attempt;
use super::{Placed, Planner};
use crate::error::{Error, Result, quoted};
use crate::graph::Graph;
use crate::index::{BufferId, NodeId, SpaceId, ValueId};
use crate::liveness::{Liveness, Member, Merge};
use crate::placement::{
    Assigned, AssignmentProblem, Candidate, Floor, Memories, NoRoom, SpaceAssignment, assign_spaces,
};
use crate::plan::{MoveCost, ShareRule, WorkspacePolicy, bytes_moved};
use crate::problem::Space;

/// How often values that share bytes are taken apart, to see whether one then fits a faster
/// memory.
const MOST_ROUNDS: usize = 4;
/// Values that an error message names.
const MOST_NAMES: usize = 6;

/// How many schedules are placed at most, besides the given one.
const MOST_PLACED: usize = 8;

/// Buffers with memories and offsets, and what they cost.
struct Found {
    liveness: Liveness,
    assignment: SpaceAssignment,
}

impl Found {
    /// What is compared: first the cost, then the bytes.
    fn key(&self) -> (u64, u64) {
        (self.assignment.cost, self.assignment.packing.peak())
    }
}

impl Planner<'_> {
    /// Returns the attempt whose buffers cost least in the memories, of the best few and the
    /// given one.
    pub(super) fn cheapest<'t, 'g>(
        &self,
        attempts: &'t [Attempt<'g>],
        memories: &Memories,
    ) -> Result<(&'t Attempt<'g>, Placed)> {
        if self.options.capacity.is_some() {
            let reason = "each memory has a capacity of its own".into();
            return Err(Error::InvalidOption { option: "capacity", reason });
        }
        let mut best: Option<(&Attempt<'_>, Found)> = None;
        let mut failed = None;
        for (index, attempt) in attempts.iter().enumerate() {
            if index >= MOST_PLACED && !attempt.schedule.is_given() {
                continue;
            }
            match self.place(attempt, memories) {
                Ok(found) if best.as_ref().is_none_or(|(_, best)| found.key() < best.key()) => {
                    best = Some((attempt, found));
                }
                Ok(_) => {}
                // What does not fit in one order may fit in another; the first is the one
                // that needs the fewest bytes at once.
                Err(error @ Error::SpacesExceeded { .. }) => {
                    failed.get_or_insert(error);
                }
                Err(error) => return Err(error),
            }
        }
        let Some((attempt, Found { mut liveness, assignment })) = best else {
            return Err(failed.expect("the given order is always tried"));
        };
        let SpaceAssignment { problem, packing, cost, lower_bound } = assignment;
        liveness.problem = problem;
        let move_cost = Some(MoveCost { cost, lower_bound });
        Ok((attempt, Placed { liveness, packing, move_cost }))
    }

    /// Returns the buffers of an attempt, in the memories where they cost least.
    ///
    /// Values that share bytes share a memory. Where that is a slow one, they are taken
    /// apart, if it makes the plan cheaper.
    fn place(&self, attempt: &Attempt<'_>, memories: &Memories) -> Result<Found> {
        let homes = homes(&attempt.schedule.graph, memories)?;
        let mut best = self.place_with(attempt, memories, &homes, &[], false)?;
        if best.liveness.problem.buffers().iter().any(|buffer| buffer.solid().is_none()) {
            best = cheaper(best, self.place_with(attempt, memories, &homes, &[], true));
        }
        let mut apart = Vec::new();
        for _ in 0..MOST_ROUNDS {
            let before = apart.len();
            apart.extend(merges_in_slow_memories(&best, &attempt.schedule, memories));
            if apart.len() == before || self.budget.exhausted() {
                break;
            }
            let cost = best.assignment.cost;
            best = cheaper(best, self.place_with(attempt, memories, &homes, &apart, false));
            if best.assignment.cost == cost {
                break;
            }
        }
        Ok(best)
    }

    /// Places the buffers that result if outputs of the nodes `apart` take over no input, and
    /// others take over inputs of any size, or of the same size only.
    fn place_with(
        &self,
        attempt: &Attempt<'_>,
        memories: &Memories,
        homes: &[Option<SpaceId>],
        apart: &[NodeId],
        same_size: bool,
    ) -> Result<Found> {
        let schedule = &attempt.schedule;
        // Space 0 stands for any: values only share bytes with those of the same home.
        let mut spaces = vec![Space::new("any")];
        spaces.extend(memories.spaces().iter().cloned());
        let home = |value: ValueId| {
            homes[value.index()].map_or(SpaceId::new(0), |home| SpaceId::new(home.index() + 1))
        };
        let graph = schedule.graph.with_spaces(spaces, home, apart);
        let options = self.liveness_options(same_size, attempt.elision)?;
        let workspaces = match self.options.workspace {
            WorkspacePolicy::None => Vec::new(),
            WorkspacePolicy::Auto => {
                smallest_workspaces(&graph, &schedule.order, std::iter::empty())
            }
        };
        let liveness = Liveness::new(&graph, &schedule.order, options, &[], workspaces)?;
        let problem = AssignmentProblem::new(
            candidates(&graph, schedule, &liveness),
            memories.spaces().to_vec(),
        )?;
        match assign_spaces(&problem, &self.budget)? {
            Assigned::Fits(assignment) => Ok(Found { liveness, assignment }),
            Assigned::NoRoom(why) => Err(explain(&why, &graph, schedule, &liveness, &problem)),
        }
    }
}

/// Returns the better of two placements; the second may have failed.
fn cheaper(first: Found, second: Result<Found>) -> Found {
    match second {
        Ok(second) if second.key() < first.key() => second,
        _ => first,
    }
}

/// Returns the only memory that each value may be in.
fn homes(graph: &Graph, memories: &Memories) -> Result<Vec<Option<SpaceId>>> {
    let mut homes = Vec::with_capacity(graph.values().len());
    for value in graph.values() {
        homes.push(match value.space().index() {
            0 => None,
            _ => Some(memories.find(graph.space(value.space()).name())?),
        });
    }
    for &(value, space) in memories.homes() {
        let known = space.index() < memories.spaces().len();
        let Some(home) = homes.get_mut(value.index()).filter(|_| known) else {
            let reason = format!("value {value} or space {space} is not there");
            return Err(Error::InvalidOption { option: "spaces", reason });
        };
        *home = Some(space);
    }
    Ok(homes)
}

/// Returns the buffers with what is moved in them.
fn candidates(graph: &Graph, schedule: &Schedule<'_>, liveness: &Liveness) -> Vec<Candidate> {
    let sizes: Vec<_> = graph.values().iter().map(crate::graph::Value::bytes).collect();
    let moved = bytes_moved(&steps(schedule, liveness), &sizes);
    let mut traffic: Vec<u64> = liveness
        .classes
        .classes()
        .iter()
        .map(|class| {
            class.members.iter().fold(0, |sum: u64, id| sum.saturating_add(moved[id.value.index()]))
        })
        .collect();
    // Scratch is written once and read once, as far as a plan can know.
    traffic.extend(liveness.workspaces.iter().map(|work| work.bytes.saturating_mul(2)));
    let buffers = liveness.problem.buffers().iter().zip(traffic);
    buffers
        .map(|(buffer, traffic)| {
            let home = buffer.space().index().checked_sub(1).map(SpaceId::new);
            Candidate { buffer: buffer.clone(), traffic, home }
        })
        .collect()
}

/// Returns the nodes whose outputs took over an input in another than the cheapest memory.
fn merges_in_slow_memories(
    found: &Found,
    schedule: &Schedule<'_>,
    memories: &Memories,
) -> Vec<NodeId> {
    let Found { liveness, assignment } = found;
    let least = memories.spaces().iter().map(Space::cost).min().unwrap_or(0);
    let is_slow = |merge: &&Merge| {
        let output = usize::try_from(merge.share.output).ok();
        let output = output.and_then(|output| schedule.graph.node(merge.node).output(output));
        let class = output.and_then(|output| liveness.classes.class_of(output));
        class.is_some_and(|class| {
            let space = assignment.problem.buffer(BufferId::new(class)).space();
            memories.spaces()[space.index()].cost() > least
        })
    };
    let merges = liveness.classes.merges().iter();
    let in_place = merges.filter(|merge| merge.share.rule == ShareRule::InPlace);
    in_place.filter(is_slow).map(|merge| merge.node).collect()
}

/// Returns the error that says what there is no room for.
fn explain(
    why: &NoRoom,
    graph: &Graph,
    schedule: &Schedule<'_>,
    liveness: &Liveness,
    problem: &AssignmentProblem,
) -> Error {
    let step = why.step.get();
    let node = schedule.order.get(why.step.index());
    let node = node.map(|&id| graph.node(id).name().to_owned());
    let values: Vec<_> =
        why.buffers.iter().map(|&buffer| named(buffer, why, graph, liveness)).collect();
    let total = values.iter().map(|(_, bytes)| u128::from(*bytes)).sum::<u128>();
    let mut names: Vec<_> = values
        .iter()
        .take(MOST_NAMES)
        .map(|(name, bytes)| format!("{} ({bytes} bytes)", quoted(name)))
        .collect();
    if values.len() > MOST_NAMES {
        names.push(format!("{} more", values.len() - MOST_NAMES));
    }
    let names = names.join(", ");
    let spaces: Vec<_> = problem
        .spaces()
        .iter()
        .map(|space| match space.capacity() {
            Some(capacity) => format!("{} holds {capacity}", quoted(space.name())),
            None => format!("{} holds any number", quoted(space.name())),
        })
        .collect();
    let spaces = spaces.join(", ");
    let at = match &node {
        Some(node) => format!("at step {step}, node {}", quoted(node)),
        None => format!("at step {step}"),
    };
    let reason = match (why.floor, why.proven) {
        (Floor::Buffer, _) => format!(
            "{names} fits none of the spaces that it may be in; it is needed {at}: {spaces}"
        ),
        (Floor::Step, _) => format!(
            "{total} bytes are needed at once {at}, and the spaces have no room for them: \
             {spaces}; needed are {names}"
        ),
        (Floor::History, true) => format!(
            "{total} bytes are needed at once {at}, and wherever earlier values are, there is \
             no room for them: {spaces}; needed are {names}"
        ),
        (_, true) => format!(
            "the spaces have room for the bytes of each step, but no offsets fit: {spaces}; \
             most bytes, {total}, are needed {at}: {names}"
        ),
        (_, false) => format!(
            "no plan was found that fits the spaces, and none is excluded: {spaces}; most \
             bytes, {total}, are needed {at}: {names}"
        ),
    };
    Error::SpacesExceeded { reason, step, node, values, proven: why.proven }
}

/// Returns the value that is in a buffer at the step in question, with its bytes.
fn named(buffer: BufferId, why: &NoRoom, graph: &Graph, liveness: &Liveness) -> (String, u64) {
    let classes = liveness.classes.classes();
    let Some(class) = classes.get(buffer.index()) else {
        let workspace = &liveness.workspaces[buffer.index() - classes.len()];
        let node = graph.node(workspace.node).name();
        return (format!("workspace {} of {node}", workspace.slot), workspace.bytes);
    };
    let is_live = |member: &&Member| {
        let live = liveness.lifetimes.of(member.value);
        live.is_some_and(|live| live.start() <= why.step && why.step < live.end())
    };
    let member = class.members.iter().find(is_live).unwrap_or(&class.members[0]);
    let value = graph.value(member.value);
    (value.name().to_owned(), value.bytes())
}
