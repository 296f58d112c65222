//! Places the buffers of one schedule in the memories with the lowest move cost.

use alloc::rc::Rc;
use alloc::{format, vec, vec::Vec};

use super::assemble::steps;
use super::attempt::Attempt;
use super::context::Context;
use super::no_room::Refused;
use super::pack::smallest;
use super::step_schedule::StepSchedule;
use crate::base::{BufferId, Error, NodeId, Result, SpaceId, ValueId};
use crate::choose::spaces::{SpaceWork, assign_within};
use crate::choose::{Assigned, AssignmentProblem, Candidate, Memories, SpaceAssignment};
use crate::graph::Graph;
use crate::liveness::{Liveness, Merge};
use crate::pack::Space;
use crate::plan::{ShareRule, bytes_moved};

/// The pairs of values that share bytes in a trial.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Sharing {
    /// Whether outputs take over only inputs of the same size.
    pub(super) same_size: bool,
    /// Nodes whose outputs take over no input.
    pub(super) apart: Vec<NodeId>,
    /// Nodes whose outputs overlap an input at a distance, where possible.
    pub(super) overlapped: Vec<NodeId>,
}

/// Buffers with memories, offsets and cost.
#[derive(Clone, Debug)]
pub(super) struct FoundPlaces {
    pub(super) liveness: Liveness,
    pub(super) assignment: SpaceAssignment,
    /// The cost if every buffer were in the cheapest memory.
    pub(super) least: u64,
}

impl FoundPlaces {
    /// Sort key: first the cost, then the bytes.
    pub(super) fn key(&self) -> (u64, u64) {
        (self.assignment.cost, self.assignment.packing.peak())
    }

    /// Returns whether buffers may be elsewhere than at the start of a gap, because outputs are in
    /// larger or smaller inputs.
    pub(super) fn has_parts(&self) -> bool {
        self.liveness.problem.buffers().iter().any(|buffer| buffer.solid().is_none())
    }
}

/// A trial's result.
#[derive(Clone, Debug)]
pub(super) enum Tried {
    Fits(Rc<FoundPlaces>),
    NoRoom {
        error: Error,
        /// Whether these buffers fit in no way.
        proven: bool,
    },
}

impl Tried {
    /// Returns whether a deeper search cannot find a lower cost.
    pub(super) fn is_settled(&self) -> bool {
        match self {
            Self::Fits(found) => found.assignment.cost == found.assignment.lower_bound,
            Self::NoRoom { proven, .. } => *proven,
        }
    }

    /// Returns the cost below which a deeper search finds nothing.
    pub(super) fn bound(&self) -> u64 {
        match self {
            Self::Fits(found) => found.assignment.lower_bound,
            Self::NoRoom { proven: true, .. } => u64::MAX,
            Self::NoRoom { .. } => 0,
        }
    }
}

/// Places the buffers that result from a schedule and one way to share bytes.
pub(super) fn place(
    context: &Context<'_>,
    attempt: &Attempt<'_>,
    memories: &Memories,
    sharing: &Sharing,
    work: SpaceWork<'_>,
) -> Result<Tried> {
    let schedule = &attempt.schedule;
    let homes = homes(&schedule.graph, memories)?;
    // Space 0 stands for any space: values share bytes only with values in the same space.
    let strictest = memories.spaces().iter().map(Space::alignment).max().unwrap_or_default();
    let mut spaces = vec![Space::new("any").with_alignment(strictest)];
    spaces.extend(memories.spaces().iter().cloned());
    let home = |value: ValueId| {
        homes[value.index()].map_or(SpaceId::new(0), |home| SpaceId::new(home.index() + 1))
    };
    let graph = schedule.graph.with_spaces(spaces, home, &sharing.apart);
    let options = attempt.context(context).liveness_options(sharing.same_size, attempt.elision)?;
    let liveness = smallest(context, schedule, &graph, options, &sharing.overlapped)?;
    let candidates = candidates(&graph, schedule, &liveness);
    let cheapest = memories.spaces().iter().map(Space::cost).min().unwrap_or(0);
    let traffic = candidates.iter().fold(0, |sum: u64, one| sum.saturating_add(one.traffic));
    let problem = AssignmentProblem::new(candidates, memories.spaces().to_vec())?;
    Ok(match assign_within(&problem, work)? {
        Assigned::Fits(assignment) => {
            let least = traffic.saturating_mul(cheapest);
            Tried::Fits(Rc::new(FoundPlaces { liveness, assignment, least }))
        }
        Assigned::NoRoom(why) => {
            let liveness = &liveness;
            let refused =
                Refused { why: &why, graph: &graph, schedule, liveness, problem: &problem };
            Tried::NoRoom { error: refused.error(), proven: why.proven }
        }
    })
}

/// Returns the only memory that each value may be in.
pub(super) fn homes(graph: &Graph, memories: &Memories) -> Result<Vec<Option<SpaceId>>> {
    let mut homes = Vec::with_capacity(graph.values().len());
    let default = graph.space(SpaceId::new(0)).name();
    let is_free = default == Space::default().name()
        && (graph.spaces().len() == 1
            || memories.spaces().iter().all(|space| space.name() != default));
    for value in graph.values() {
        homes.push(match value.space().index() {
            0 if is_free => None,
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

/// Returns the buffers with the bytes that are moved in each.
pub(super) fn candidates(
    graph: &Graph,
    schedule: &StepSchedule<'_>,
    liveness: &Liveness,
) -> Vec<Candidate> {
    let sizes: Vec<_> = graph.values().iter().map(crate::graph::Value::bytes).collect();
    let moved = bytes_moved(&steps(schedule, liveness, &[]), &sizes);
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

/// Returns the nodes whose outputs share bytes with an input, by `rule`, in another memory than
/// the cheapest.
pub(super) fn shared_in_slow_memories(
    found: &FoundPlaces,
    schedule: &StepSchedule<'_>,
    memories: &Memories,
    rule: ShareRule,
) -> Vec<NodeId> {
    let FoundPlaces { liveness, assignment, .. } = found;
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
    let of_rule = merges.filter(|merge| merge.share.rule == rule);
    of_rule.filter(is_slow).map(|merge| merge.node).collect()
}
