//! Rigid bodies: values at fixed distances from each other, and workspaces. A new layout moves
//! each body as a whole.

use alloc::collections::BTreeMap;
use alloc::{vec, vec::Vec};

use crate::base::{Alignment, NodeId, ValueId};
use crate::check::Joined;
use crate::check::unit::Unit;
use crate::graph::{Graph, ValueKind};
use crate::plan::Plan;

/// Bytes of a rigid body, and the steps that hold the bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    /// First byte, counted from the body's lowest byte.
    pub(super) start: u64,
    /// Byte after the last.
    pub(super) end: u64,
    /// First step, and first step after the last.
    pub(super) live: [u32; 2],
}

/// Spans that keep their distances at any address.
#[derive(Clone, Debug)]
#[allow(clippy::struct_excessive_bools, reason = "facts that do not depend on each other")]
pub(super) struct Rigid {
    /// The space's position in the plan.
    pub(super) space: usize,
    /// The lowest byte in the plan.
    pub(super) base: u64,
    /// A distance by which the body can be moved without violating a value's alignment.
    pub(super) alignment: u64,
    /// True if a value in the body is pinned.
    pub(super) is_pinned: bool,
    /// True if the body holds a state, whose bytes survive between runs.
    pub(super) has_state: bool,
    /// True if the body's values could share more bytes with the same shares: an output is farther
    /// ahead of an input than necessary, or an assignment's result is not at the state's address.
    pub(super) is_loose: bool,
    pub(super) spans: Vec<Span>,
}

/// A workspace's smallest size and offset alignment.
#[derive(Clone, Copy, Debug)]
pub(super) struct ScratchNeed {
    pub(super) bytes: u64,
    pub(super) alignment: u64,
}

impl Rigid {
    /// Returns the end of the last byte, counted from the base.
    pub(super) fn height(&self) -> u64 {
        self.spans.iter().map(|span| span.end).max().unwrap_or(0)
    }

    /// Rounds spans outward to `alignment`, which divides every body's base: at each step, a line
    /// of so many bytes belongs to a single body.
    fn rounded(mut self, alignment: Alignment) -> Self {
        for span in &mut self.spans {
            span.start -= span.start % alignment.bytes();
            span.end = alignment.round_up(span.end).unwrap_or(span.end);
        }
        self
    }
}

impl Plan {
    /// Returns the bodies in the arenas of a valid plan: a body per set of values that share bytes,
    /// and a body per workspace, in its smallest size.
    pub(super) fn rigids(
        &self,
        graph: &Graph,
        units: &[Unit<'_>],
        joined: &Joined,
        smallest: &[ScratchNeed],
    ) -> Vec<Rigid> {
        let alignment = Alignment::new(self.options.alignment).unwrap_or_default();
        let needed = self.needed(graph, units);
        let clock = self.clock();
        let arenas = self.arenas();
        let mut members: BTreeMap<(usize, usize), Vec<usize>> = BTreeMap::new();
        for (index, placement) in self.placements.iter().enumerate() {
            let space = position(placement.space);
            if space < arenas.len() {
                let root = joined.root[ValueId::from(placement.value).index()];
                members.entry((root, space)).or_default().push(index);
            }
        }
        // By root: the most bytes by which an overlap in the body exceeds the necessary distance.
        let mut slack: BTreeMap<usize, u64> = BTreeMap::new();
        // An assignment's result that is not in the state's bytes could be there.
        for unit in units.iter().filter(|unit| self.stored(graph, unit).is_none()) {
            let &[node] = unit.nodes.as_slice() else { continue };
            if let Some(assignment) = graph.assignment(node) {
                slack.insert(joined.root[assignment.result.index()], u64::MAX);
            }
        }
        for (value, bytes) in self.slack(units) {
            let most = slack.entry(joined.root[value.index()]).or_default();
            *most = (*most).max(bytes);
        }
        let mut rigids = Vec::with_capacity(members.len() + self.workspaces.len());
        for ((root, space), members) in members {
            let all = || members.iter().map(|&index| &self.placements[index]);
            let values = || all().filter(|value| value.bytes > 0);
            let Some(base) = values().map(|value| value.offset).min() else { continue };
            let spans = values().map(|value| Span {
                start: value.offset - base,
                end: value.offset - base + value.bytes,
                live: needed[ValueId::from(value.value).index()],
            });
            // A value without bytes moves with the body, so its alignment also holds.
            let declared = || all().map(|value| graph.value(ValueId::from(value.value)));
            let own = declared().map(|value| value.alignment().bytes()).max().unwrap_or(1);
            let unit = own.max(alignment.bytes()).max(arenas[space].alignment);
            let rigid = Rigid {
                space,
                base,
                alignment: unit,
                is_loose: slack.get(&root).is_some_and(|&bytes| bytes >= unit),
                is_pinned: declared().any(|value| value.bytes() > 0 && value.pin().is_some()),
                has_state: declared().any(|value| value.kind() == ValueKind::State),
                spans: spans.collect(),
            };
            rigids.push(rigid.rounded(alignment));
        }
        for (work, scratch) in self.workspaces.iter().zip(smallest) {
            let space = position(work.space);
            let step = self.step_of[NodeId::from(work.node).index()];
            let live = clock.as_ref().map_or([step, step + 1], |clock| clock.live(position(step)));
            let span = Span { start: 0, end: scratch.bytes, live };
            let rigid = Rigid {
                space,
                base: work.offset,
                alignment: scratch.alignment.max(alignment.bytes()).max(arenas[space].alignment),
                is_pinned: false,
                has_state: false,
                is_loose: false,
                spans: vec![span],
            };
            if scratch.bytes > 0 {
                rigids.push(rigid.rounded(alignment));
            }
        }
        rigids
    }
}

fn position(space: u32) -> usize {
    usize::try_from(space).unwrap_or(usize::MAX)
}
