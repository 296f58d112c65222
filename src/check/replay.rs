//! A graph run on symbolic memory.

use alloc::rc::Rc;
use alloc::{format, string::String, vec, vec::Vec};
use core::cell::RefCell;
use core::ops::Range;

use super::races::Races;
use crate::base::{Error, NodeId, Result, Step, ValueId, quoted};
use crate::check::symbolic_memory::{Owner, SymbolicMemory};
use crate::check::unit::Unit;
use crate::check::{is_at, replaced};
use crate::graph::{Assignment, Graph, ValueKind, View, Whole};
use crate::plan::{Placement, Plan, Share, ShareRule};

/// Bytes of a value that equal another value's bytes, or are the value's own.
#[derive(Clone, Copy, Debug)]
struct ContentPiece {
    /// First byte, counted from the value's start.
    start: u64,
    /// Byte after the last.
    end: u64,
    /// The value that the bytes were written as.
    origin: ValueId,
    /// The position of `start` in `origin`.
    origin_start: u64,
}

impl ContentPiece {
    /// Returns the byte count.
    fn bytes(&self) -> u64 {
        self.end - self.start
    }

    /// Returns whether `next` goes on where these bytes end, in the value and in the origin.
    fn is_followed_by(&self, next: &Self) -> bool {
        (self.end, self.origin, self.origin_start + self.bytes())
            == (next.start, next.origin, next.origin_start)
    }
}

/// Bytes that a node writes.
#[derive(Clone, Copy, Debug)]
struct Write {
    space: u32,
    start: u64,
    end: u64,
    by: Writer,
}

/// A write's content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Writer {
    /// The output at this position.
    Output(usize, ValueId),
    /// A mutated state.
    State(ValueId),
    /// Scratch: a node, and the position among the node's workspaces.
    Workspace(NodeId, u32),
}

/// The graph's run on symbolic memory.
pub(super) struct Replay<'a> {
    plan: &'a Plan,
    graph: &'a Graph,
    /// By value: the placement; `None` for constants.
    places: Vec<Option<&'a Placement>>,
    /// By value: the owner of the bytes; `None` for the value itself.
    contents: Vec<Option<Rc<[ContentPiece]>>>,
    /// By value: the larger value that contains all of the value's own bytes, and the offset there.
    parts: RefCell<Vec<Option<(ValueId, u64)>>>,
    /// By value: whether the value is a mutated state, which has no views.
    is_mutated: Vec<bool>,
    memories: Vec<SymbolicMemory>,
    step: Step,
    /// The users of every byte, if the plan must be safe in every order.
    races: Option<Races>,
}

impl<'a> Replay<'a> {
    pub(super) fn new(plan: &'a Plan, graph: &'a Graph) -> Self {
        let mut places = vec![None; graph.values().len()];
        for placement in &plan.placements {
            let id = usize::try_from(placement.value).expect("placements were checked");
            places[id] = Some(placement);
        }
        let memories = plan.spaces.iter().map(|_| SymbolicMemory::default()).collect();
        let contents = vec![None; graph.values().len()];
        let races = plan.options.parallel_safe.then(Races::default);
        let parts = RefCell::new(vec![None; graph.values().len()]);
        let mut is_mutated = vec![false; graph.values().len()];
        for node in graph.nodes() {
            let states = node.effects().mutates.iter().filter_map(|&position| node.input(position));
            states.for_each(|state| is_mutated[state.index()] = true);
        }
        let step = Step::new(0);
        Self { plan, graph, places, contents, parts, is_mutated, memories, step, races }
    }

    pub(super) fn run(mut self, units: &[Unit<'_>]) -> Result<()> {
        let kinds = |wanted: &'static [ValueKind]| {
            let values = self.graph.values().iter().enumerate();
            values
                .filter(move |(_, value)| wanted.contains(&value.kind()))
                .map(|(index, _)| ValueId::new(index))
                .collect::<Vec<_>>()
        };
        let supplied = kinds(&[ValueKind::Input, ValueKind::State]);
        for &value in &supplied {
            self.write_own(value);
        }
        for &value in &supplied {
            self.read(value)?;
        }
        for (step, unit) in units.iter().enumerate() {
            self.step = Step::at(step);
            let shares = &self.plan.steps[step].shares;
            self.run_unit(unit, shares)?;
        }
        let kept: &'static [ValueKind] = if self.plan.keeps_inputs() {
            &[ValueKind::Input, ValueKind::State]
        } else {
            &[ValueKind::State]
        };
        let replaced = replaced(self.graph);
        let kept = kinds(kept).into_iter().filter(|value| !replaced[value.index()]);
        let written_back = self.graph.write_backs().iter().map(|pair| pair.value);
        for value in kept.chain(self.graph.outputs().iter().copied()).chain(written_back) {
            self.read(value)?;
        }
        let steps: Vec<&[NodeId]> = units.iter().map(|unit| &unit.nodes[..]).collect();
        self.races.take().map_or(Ok(()), |races| races.check(self.graph, &steps))
    }

    /// Checks a step's reads and writes, and performs the writes.
    fn run_unit(&mut self, unit: &Unit<'_>, shares: &[Share]) -> Result<()> {
        for (_, value) in unit.reads() {
            self.read(value)?;
        }
        let mut writes = Vec::new();
        let mut contents = Vec::new();
        for (position, output) in unit.writes() {
            let (content, missing) = self.shown(unit, shares, position, output);
            let place = self.places[output.index()].expect("outputs are in the arena");
            writes.extend(missing.into_iter().map(|range| Write {
                space: place.space,
                start: place.offset + range.start,
                end: place.offset + range.end,
                by: Writer::Output(position, output),
            }));
            contents.push((output, content));
        }
        let assignment = self.assignment_in_place(unit);
        // There the result's bytes are the state's.
        let written_as_result = |state| assignment.is_some_and(|it| it.state == state);
        for &state in unit.mutates.iter().filter(|&&state| !written_as_result(state)) {
            let place = self.places[state.index()].expect("states are in the arena");
            let (space, start) = (place.space, place.offset);
            writes.push(Write { space, start, end: start + place.bytes, by: Writer::State(state) });
        }
        let plan = self.plan;
        for workspace in plan.workspaces_in(&plan.steps[self.step.index()]) {
            let (space, start) = (workspace.space, workspace.offset);
            let (node, slot) = (NodeId::from(workspace.node), workspace.slot);
            let end = start + workspace.bytes;
            writes.push(Write { space, start, end, by: Writer::Workspace(node, slot) });
        }
        writes.retain(|write| write.start < write.end);
        self.check_writes(unit, shares, &mut writes)?;
        self.note_uses(unit, &writes);
        for write in writes {
            let owner = match write.by {
                Writer::Output(_, value) | Writer::State(value) => self.owner(value),
                Writer::Workspace(node, _) => Owner::Workspace(node),
            };
            self.memory(write.space).write(write.start..write.end, owner);
        }
        for (output, content) in contents {
            self.contents[output.index()] =
                content.and_then(|content| self.joined(output, &content));
        }
        for state in &unit.mutates {
            self.contents[state.index()] = None;
        }
        if let Some(Assignment { state, result, .. }) = assignment {
            self.contents[state.index()] = Some(self.content(result).into());
        }
        Ok(())
    }

    /// Returns a unit's assignment, if the result is at the state's address.
    fn assignment_in_place(&self, unit: &Unit<'_>) -> Option<Assignment> {
        let &[node] = unit.nodes.as_slice() else { return None };
        let assignment = self.graph.assignment(node)?;
        let place =
            |value: ValueId| self.places[value.index()].map(|place| (place.space, place.offset));
        (place(assignment.state) == place(assignment.result)).then_some(assignment)
    }

    /// Notes which bytes a node uses, if that matters.
    fn note_uses(&mut self, unit: &Unit<'_>, writes: &[Write]) {
        let Some(races) = &mut self.races else { return };
        let id = unit.last();
        let read = unit.reads().map(|(_, value)| value);
        // An output that is there already is used as well, if not written.
        let shown = unit.writes().map(|(_, value)| value);
        for place in read.chain(shown).filter_map(|value| self.places[value.index()]) {
            races.read(place.space, place.offset..place.offset + place.bytes, id);
        }
        for write in writes {
            races.write(write.space, write.start..write.end, id);
        }
    }

    /// Checks that a node writes no byte twice, and no operand byte unless the effects permit the
    /// write.
    fn check_writes(&self, unit: &Unit<'_>, shares: &[Share], writes: &mut [Write]) -> Result<()> {
        writes.sort_unstable_by_key(|write| (write.space, write.start, write.end));
        let overlap = |first: String, second: String, byte: u64| {
            Err(Error::PlanOverlap { first, second, step: self.step.get(), byte })
        };
        for pair in writes.windows(2) {
            if pair[0].space == pair[1].space && pair[1].start < pair[0].end {
                let [first, second] = [pair[0].by, pair[1].by].map(|by| self.shown_writer(by));
                return overlap(first, second, pair[1].start);
            }
        }
        let overlaps = |output| {
            let mut shares = shares.iter();
            shares.any(|share| share.rule == ShareRule::Overlap && is_at(share.output, output))
        };
        for (position, value) in unit.reads() {
            let Some(place) = self.places[value.index()].filter(|place| place.bytes > 0) else {
                continue;
            };
            let end = place.offset + place.bytes;
            // The writes are disjoint, so the writes that end after the value's start are a suffix.
            let first = writes
                .partition_point(|write| (write.space, write.end) <= (place.space, place.offset));
            let touched = writes[first..]
                .iter()
                .take_while(|write| write.space == place.space && write.start < end);
            for write in touched {
                let permitted = match write.by {
                    Writer::State(state) => state == value,
                    Writer::Workspace(..) => false,
                    Writer::Output(output, written) if overlaps(output) => {
                        let made = self.places[written.index()].expect("it is in the arena");
                        let is_all =
                            (write.start, write.end - write.start) == (made.offset, made.bytes);
                        let mut known = unit.overlaps.iter();
                        is_all
                            && known.any(|known| {
                                (known.input, known.output) == (position, output)
                                    && place.offset.checked_sub(known.distance) >= Some(write.start)
                            })
                    }
                    Writer::Output(output, written) => {
                        let mut pairs = unit.effects.in_place.iter();
                        write.start == place.offset
                            && self.graph.value(written).bytes() <= place.bytes
                            && pairs.any(|pair| (pair.input, pair.output) == (position, output))
                            && shares.iter().any(|share| {
                                share.rule == ShareRule::InPlace && is_at(share.output, output)
                            })
                    }
                };
                if !permitted {
                    let byte = write.start.max(place.offset);
                    let first = format!("value {}", quoted(self.graph.value(value).name()));
                    return overlap(first, self.shown_writer(write.by), byte);
                }
            }
        }
        Ok(())
    }

    /// Returns the owner of `output`'s bytes after the node has run, `None` for the output itself,
    /// and the bytes that the node must write because no view provides them.
    fn shown(
        &self,
        unit: &Unit<'_>,
        shares: &[Share],
        position: usize,
        output: ValueId,
    ) -> (Option<Rc<[ContentPiece]>>, Vec<Range<u64>>) {
        let bytes = self.graph.value(output).bytes();
        let mut pieces: Vec<ContentPiece> = Vec::new();
        for (view, input) in self.realized_views(unit, shares, position, output) {
            let content = self.content(input);
            let (from, to) = match view.whole {
                // Output byte 0 is input byte `offset`.
                Whole::Input => (view.offset, 0),
                // Output byte `offset` is input byte 0.
                Whole::Output => (0, view.offset),
            };
            for piece in &content {
                let start = piece.start.max(from);
                let end = piece.end.min(from.saturating_add(bytes));
                if start < end {
                    pieces.push(ContentPiece {
                        start: start - from + to,
                        end: end - from + to,
                        origin: piece.origin,
                        origin_start: piece.origin_start + (start - piece.start),
                    });
                }
            }
        }
        if pieces.is_empty() {
            return (None, core::iter::once(0..bytes).collect());
        }
        // Bytes without a view are the output's own. The node must write bytes with two views,
        // because the plan does not say which view is right.
        pieces.sort_unstable_by_key(|piece| (piece.start, piece.end));
        let mut content: Vec<ContentPiece> = Vec::new();
        let mut missing = Vec::new();
        let mut at = 0;
        let own = |start, end| ContentPiece { start, end, origin: output, origin_start: start };
        for piece in pieces {
            if piece.start > at {
                content.push(own(at, piece.start));
                missing.push(at..piece.start);
            }
            if piece.start >= at {
                content.push(piece);
                at = piece.end;
            }
        }
        if at < bytes {
            content.push(own(at, bytes));
            missing.push(at..bytes);
        }
        (Some(content.into()), missing)
    }

    /// Returns the views of an output that need no write according to the plan, as far as the
    /// memory is laid out accordingly.
    fn realized_views(
        &self,
        unit: &Unit<'_>,
        shares: &[Share],
        position: usize,
        output: ValueId,
    ) -> Vec<(View, ValueId)> {
        let shares = shares
            .iter()
            .filter(|share| share.rule == ShareRule::View && is_at(share.output, position));
        let effects = &unit.effects;
        shares
            .filter_map(|share| {
                let is_pair = |input, output| is_at(share.input, input) && output == position;
                let declared = effects.views.iter().find(|view| is_pair(view.input, view.output));
                let identity = || {
                    let mut pairs = effects.in_place.iter();
                    let pair =
                        pairs.find(|pair| pair.identity && is_pair(pair.input, pair.output))?;
                    let (input, output) = (pair.input, pair.output);
                    Some(View { input, output, offset: 0, whole: Whole::Input })
                };
                let view = declared.copied().or_else(identity)?;
                let input = unit.reads.get(view.input).copied().flatten()?;
                let (shown, bytes) =
                    (self.graph.value(input).bytes(), self.graph.value(output).bytes());
                let fits = declared.is_some() || shown == bytes;
                (fits && self.is_in_place(view, input, output)).then_some((view, input))
            })
            .collect()
    }

    /// Returns whether a view's two values lie in memory as the view says.
    fn is_in_place(&self, view: View, input: ValueId, output: ValueId) -> bool {
        let (Some(read), Some(written)) = (self.places[input.index()], self.places[output.index()])
        else {
            return false;
        };
        let (part, whole) = match view.whole {
            Whole::Input => (written, read),
            Whole::Output => (read, written),
        };
        !self.is_mutated[input.index()]
            && part.space == whole.space
            && whole.offset.checked_add(view.offset) == Some(part.offset)
    }

    /// Makes the output the owner of all completely shown values, and returns the owner of the
    /// output's bytes, `None` for the output itself.
    ///
    /// The addresses are equal, and no node can write only one of the two. The exception is another
    /// output of the same step at the same place, whose bytes keep their owner. So a concatenation
    /// chain has a single piece at each step, instead of a piece per step.
    fn joined(&mut self, output: ValueId, content: &[ContentPiece]) -> Option<Rc<[ContentPiece]>> {
        if content.len() == 1 {
            return Some(content.into());
        }
        let place = self.places[output.index()].expect("outputs are in the arena");
        let owner = self.owner(output);
        let mut joined: Vec<ContentPiece> = Vec::new();
        for &piece in content {
            let ContentPiece { start, end, .. } = piece;
            let mut piece = self.known(piece);
            let whole = self.graph.value(piece.origin);
            let span = place.offset + start..place.offset + end;
            if piece.origin != output
                && (piece.origin_start, piece.bytes()) == (0, whole.bytes())
                && whole.kind() != ValueKind::State
                && self.holds(place.space, span.clone(), piece.origin)
            {
                self.parts.borrow_mut()[piece.origin.index()] = Some((output, start));
                self.memory(place.space).write(span, owner);
                piece = ContentPiece { start, end, origin: output, origin_start: start };
            }
            match joined.last_mut() {
                Some(last) if last.is_followed_by(&piece) => last.end = end,
                _ => joined.push(piece),
            }
        }
        let is_own = joined.len() == 1 && joined[0].origin == output;
        (!is_own).then(|| joined.into())
    }

    /// Returns whether `span` holds all bytes of `value`, in order.
    fn holds(&self, space: u32, span: Range<u64>, value: ValueId) -> bool {
        let owner = Owner::Value { value, base: i128::from(span.start) };
        let space = usize::try_from(space).expect("spaces were checked");
        let other = self.memories[space].find_other(span, owner, |owner| self.known_owner(owner));
        other.is_none()
    }

    /// Returns the same bytes as part of the largest value known to contain them.
    fn known(&self, piece: ContentPiece) -> ContentPiece {
        let mut parts = self.parts.borrow_mut();
        let (mut origin, mut start) = (piece.origin, piece.origin_start);
        while let Some((whole, at)) = parts[origin.index()] {
            // The next look has half as far to go.
            if let Some((further, then)) = parts[whole.index()] {
                parts[origin.index()] = Some((further, at + then));
            }
            (origin, start) = (whole, start + at);
        }
        ContentPiece { origin, origin_start: start, ..piece }
    }

    /// Returns the owner as [`known`](Self::known) does.
    fn known_owner(&self, owner: Owner) -> Owner {
        let Owner::Value { value, base } = owner else { return owner };
        let piece = self.known(ContentPiece { start: 0, end: 0, origin: value, origin_start: 0 });
        Owner::Value { value: piece.origin, base: base - i128::from(piece.origin_start) }
    }

    /// Returns the owner of the bytes in `value`.
    fn content(&self, value: ValueId) -> Vec<ContentPiece> {
        let Some(content) = &self.contents[value.index()] else {
            let end = self.graph.value(value).bytes();
            return vec![self.known(ContentPiece {
                start: 0,
                end,
                origin: value,
                origin_start: 0,
            })];
        };
        let mut known: Vec<ContentPiece> = Vec::with_capacity(content.len());
        for &piece in content.iter() {
            let piece = self.known(piece);
            match known.last_mut() {
                Some(last) if last.is_followed_by(&piece) => last.end = piece.end,
                _ => known.push(piece),
            }
        }
        known
    }

    /// Checks that the memory of `value` holds the value's bytes.
    fn read(&self, value: ValueId) -> Result<()> {
        let Some(place) = self.places[value.index()] else { return Ok(()) };
        for piece in &self.content(value) {
            let (start, end) = (place.offset + piece.start, place.offset + piece.end);
            let base = i128::from(start) - i128::from(piece.origin_start);
            let owner = Owner::Value { value: piece.origin, base };
            let space = usize::try_from(place.space).expect("spaces were checked");
            if let Some((byte, found)) =
                self.memories[space].find_other(start..end, owner, |owner| self.known_owner(owner))
            {
                let name = |value| format!("value {}", quoted(self.graph.value(value).name()));
                let second = match found {
                    Some(Owner::Value { value, .. }) => name(value),
                    Some(Owner::Workspace(node)) => {
                        format!("a workspace of node {}", quoted(self.graph.node(node).name()))
                    }
                    None => "bytes that nobody wrote".into(),
                };
                let (first, step) = (name(value), self.step.get());
                return Err(Error::PlanOverlap { first, second, step, byte });
            }
        }
        Ok(())
    }

    /// Makes the memory of `value` hold the value's own bytes.
    fn write_own(&mut self, value: ValueId) {
        let place = self.places[value.index()].expect("inputs and states are in the arena");
        let (space, span) = (place.space, place.offset..place.offset + place.bytes);
        let owner = self.owner(value);
        self.memory(space).write(span, owner);
    }

    /// Returns the owner of the bytes that a value writes at its place.
    fn owner(&self, value: ValueId) -> Owner {
        let place = self.places[value.index()].expect("what is written is in the arena");
        Owner::Value { value, base: i128::from(place.offset) }
    }

    fn memory(&mut self, space: u32) -> &mut SymbolicMemory {
        &mut self.memories[usize::try_from(space).expect("spaces were checked")]
    }

    fn shown_writer(&self, writer: Writer) -> String {
        match writer {
            Writer::Output(_, value) | Writer::State(value) => {
                format!("value {}", quoted(self.graph.value(value).name()))
            }
            Writer::Workspace(node, slot) => {
                format!("workspace {slot} of node {}", quoted(self.graph.node(node).name()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pieces that are not joined are right, and slow.
    #[test]
    fn pieces_that_go_on_in_value_and_origin_are_one() {
        let piece = |start, end, origin, origin_start| ContentPiece {
            start,
            end,
            origin: ValueId::new(origin),
            origin_start,
        };
        let first = piece(3, 8, 1, 20);
        assert_eq!(first.bytes(), 5);
        assert!(first.is_followed_by(&piece(8, 10, 1, 25)));
        for other in [piece(9, 10, 1, 25), piece(8, 10, 2, 25), piece(8, 10, 1, 24)] {
            assert!(!first.is_followed_by(&other), "{other:?}");
        }
    }
}
