//! Error messages for memories that hold too little.

use alloc::{borrow::ToOwned as _, format, string::String, vec::Vec};

use super::step_schedule::StepSchedule;
use crate::base::{BufferId, Error, Grouped, quoted};
use crate::choose::{AssignmentProblem, Floor, NoRoom};
use crate::graph::Graph;
use crate::liveness::{Liveness, Member};
use crate::pack::Space;

/// Values that an error message names.
const MOST_NAMES: usize = 6;

/// The buffers of one trial without room.
pub(super) struct Refused<'a> {
    pub(super) why: &'a NoRoom,
    pub(super) graph: &'a Graph,
    pub(super) schedule: &'a StepSchedule<'a>,
    pub(super) liveness: &'a Liveness,
    pub(super) problem: &'a AssignmentProblem,
}

impl Refused<'_> {
    /// Returns the error that names the step, the values and the spaces. The error claims no proof.
    pub(super) fn error(&self) -> Error {
        let Self { why, graph, schedule, .. } = self;
        let step = why.step.get();
        let node = schedule.order.get(why.step.index());
        let node = node.map(|&id| graph.node(id).name().to_owned());
        let at = match &node {
            Some(node) => format!("at step {step}, node {}", quoted(node)),
            None => format!("at step {step}"),
        };
        let values: Vec<_> = why.buffers.iter().map(|&buffer| self.named(buffer)).collect();
        let total = Grouped(values.iter().map(|(_, bytes)| u128::from(*bytes)).sum());
        let names = names(&values);
        let spaces = spaces(self.problem.spaces().iter());
        let reason = match why.floor {
            Floor::Buffer => self.too_large(&names, &at),
            Floor::Home(space) => {
                let space = &self.problem.spaces()[space.index()];
                self.overfull(space, total, &at)
            }
            Floor::Step => format!(
                "{total} bytes are needed at once {at}, and the spaces have no room for them: \
                 {spaces}; needed are {names}"
            ),
            Floor::History => format!(
                "{total} bytes are needed at once {at}, and wherever earlier values are, there \
                 is no room for them: {spaces}; needed are {names}"
            ),
            Floor::Offsets if why.proven => format!(
                "the spaces have room for the bytes of each step, but no offsets fit: {spaces}; \
                 most bytes, {total}, are needed {at}: {names}"
            ),
            Floor::Offsets => format!(
                "no offsets were found that fit the spaces: {spaces}; most bytes, {total}, are \
                 needed {at}: {names}"
            ),
        };
        Error::SpacesExceeded { reason, step, node, values, proven: false }
    }

    /// Returns the message for a buffer that is larger than each of the permitted spaces.
    fn too_large(&self, names: &str, at: &str) -> String {
        let home = self.why.buffers.first().and_then(|&buffer| self.home(buffer));
        match home {
            Some(home) => format!(
                "{names} is pinned to a space that is too small for it: {}; it is needed {at}",
                spaces(core::iter::once(home))
            ),
            None => format!(
                "{names} fits none of the spaces that it may be in; it is needed {at}: {}",
                spaces(self.problem.spaces().iter())
            ),
        }
    }

    /// Returns the message for one space whose values may be in no other.
    fn overfull(&self, space: &Space, total: Grouped, at: &str) -> String {
        let (pinned, large): (Vec<BufferId>, Vec<BufferId>) =
            self.why.buffers.iter().partition(|&&buffer| self.home(buffer).is_some());
        let listed = |buffers: &[BufferId]| {
            let values: Vec<_> = buffers.iter().map(|&buffer| self.named(buffer)).collect();
            names(&values)
        };
        let mut reasons = Vec::new();
        if !pinned.is_empty() {
            reasons.push(format!("pinned to it are {}", listed(&pinned)));
        }
        if !large.is_empty() {
            reasons.push(format!("too large for every other space are {}", listed(&large)));
        }
        format!(
            "space {}, and {total} bytes that may be in no other space are needed at once {at}: \
             {}",
            spaces(core::iter::once(space)),
            reasons.join("; ")
        )
    }

    /// Returns the only permitted space of a buffer, if the buffer is pinned to a space.
    fn home(&self, buffer: BufferId) -> Option<&Space> {
        let home = self.problem.candidates()[buffer.index()].home?;
        Some(&self.problem.spaces()[home.index()])
    }

    /// Returns the name and the bytes of the value that a buffer holds at the step in question.
    fn named(&self, buffer: BufferId) -> (String, u64) {
        let Self { why, graph, liveness, .. } = self;
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
}

/// Returns a trial's error with the scope of all trials.
pub(super) fn scoped(error: Error, is_excluded: bool) -> Error {
    let Error::SpacesExceeded { reason, step, node, values, .. } = error else { return error };
    let reason = if is_excluded {
        format!("{reason}; no order of the steps that were tried fits")
    } else {
        format!("no plan that fits was found, and none is excluded: {reason}")
    };
    Error::SpacesExceeded { reason, step, node, values, proven: is_excluded }
}

fn names(values: &[(String, u64)]) -> String {
    let mut names: Vec<_> = values
        .iter()
        .take(MOST_NAMES)
        .map(|(name, bytes)| format!("{} ({} bytes)", quoted(name), Grouped((*bytes).into())))
        .collect();
    if values.len() > MOST_NAMES {
        names.push(format!("{} more", values.len() - MOST_NAMES));
    }
    names.join(", ")
}

fn spaces<'s>(spaces: impl Iterator<Item = &'s Space>) -> String {
    let known: Vec<_> = spaces
        .map(|space| match space.capacity() {
            Some(capacity) => {
                format!("{} holds {} bytes", quoted(space.name()), Grouped(capacity.into()))
            }
            None => format!("{} holds any number of bytes", quoted(space.name())),
        })
        .collect();
    known.join(", ")
}
