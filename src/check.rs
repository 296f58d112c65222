//! What a valid plan is.
//!
//! This module is the definition of correct, and shares no code with what it checks.
//! It believes nothing that a plan says about itself: it derives live ranges from the
//! graph, and then *replays* the run on symbolic memory, which remembers for every byte
//! whose bytes it holds. A plan is valid if each read finds its own value, whatever the
//! reason for which two values share bytes.
//!
//! Runs in `O(n log n)` for `n` operands.

use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

use crate::error::{Error, Result, quoted};
use crate::graph::{Graph, Node, ValueKind, View, Whole};
use crate::index::{NodeId, ValueId};
use crate::packing::Status;
use crate::plan::{Placement, Plan, ShareRule, WorkspacePolicy};
use crate::units::{Alignment, Step};

impl Plan {
    /// Returns whether the plan is valid for `graph`.
    ///
    /// # Errors
    ///
    /// - [`Error::PlanMismatch`] if the plan was made for another graph, or says other
    ///   things about the graph than are true.
    /// - [`Error::PlanMisaligned`], [`Error::PlanOutOfBounds`] if a value or workspace is
    ///   at an offset where it cannot be.
    /// - [`Error::PlanOverlap`] if bytes are overwritten that are read later.
    /// - [`Error::PlanCorrupt`] if the plan contradicts itself.
    pub fn check(&self, graph: &Graph) -> Result<()> {
        let digest = graph.digest();
        if self.digest != digest {
            return mismatch(format!(
                "it was made for {}, whose digest begins with {}, and the digest of {} begins with {}",
                quoted(&self.model),
                quoted(self.digest.get(..12).unwrap_or(&self.digest)),
                quoted(graph.name()),
                quoted(&digest[..12]),
            ));
        }
        let order: Vec<NodeId> = self.order().collect();
        if !graph.is_topological(&order) {
            return mismatch("its order does not run every node after what it depends on".into());
        }
        self.check_steps(graph)?;
        self.check_spaces(graph)?;
        self.check_placements(graph, &order)?;
        self.check_workspaces(graph)?;
        self.check_claims(graph)?;
        Replay::new(self, graph).run(&order)
    }

    /// Checks that the plan's steps have the graph's operands, and that the bytes they are
    /// said to share are shared and may be.
    fn check_steps(&self, graph: &Graph) -> Result<()> {
        for step in &self.steps {
            let node = graph.node(NodeId::from(step.node));
            let same = |planned: &[Option<u32>], operands: &[Option<ValueId>]| {
                planned.iter().copied().eq(operands.iter().map(|operand| operand.map(u32::from)))
            };
            if step.name != node.name()
                || !same(&step.inputs, node.inputs())
                || !same(&step.outputs, node.outputs())
            {
                return mismatch(format!("node {} has other operands", quoted(node.name())));
            }
            for share in &step.shares {
                let pair = (share.input, share.output);
                let is_pair = |input: usize, output: usize| {
                    u32::try_from(input).is_ok_and(|input| input == pair.0)
                        && u32::try_from(output).is_ok_and(|output| output == pair.1)
                };
                let effects = node.effects();
                let mut in_place = effects.in_place.iter();
                let mut views = effects.views.iter();
                let permitted = match share.rule {
                    ShareRule::InPlace => in_place.any(|pair| is_pair(pair.input, pair.output)),
                    ShareRule::View => {
                        views.any(|view| is_pair(view.input, view.output))
                            || in_place
                                .any(|pair| pair.identity && is_pair(pair.input, pair.output))
                    }
                };
                if !permitted {
                    let (input, output) = pair;
                    let name = quoted(node.name());
                    return mismatch(format!(
                        "node {name} cannot put output {output} into input {input}"
                    ));
                }
            }
        }
        Ok(())
    }

    /// Checks that the plan's spaces are the graph's.
    fn check_spaces(&self, graph: &Graph) -> Result<()> {
        let planned = self.spaces.iter().map(|space| space.name.as_str());
        if !planned.eq(graph.spaces().iter().map(crate::problem::Space::name)) {
            return mismatch("its spaces are not those of the graph".into());
        }
        for space in &self.spaces {
            Alignment::new(space.alignment).map_err(|_| Error::PlanCorrupt {
                reason: format!("the alignment {} is not a power of two", space.alignment),
            })?;
        }
        Ok(())
    }

    /// Checks that exactly the values in the arena are placed, each where it can be.
    fn check_placements(&self, graph: &Graph, order: &[NodeId]) -> Result<()> {
        let live = live_ranges(graph, order, self.options.preserve_inputs);
        let mut placements = self.placements.iter();
        for (index, value) in graph.values().iter().enumerate() {
            if value.kind() == ValueKind::Constant {
                continue;
            }
            let name = || format!("value {}", quoted(value.name()));
            let Some(placement) = placements.next() else {
                return mismatch(format!("{} has no place", name()));
            };
            if !usize::try_from(placement.value).is_ok_and(|id| id == index)
                || placement.name != value.name()
            {
                let found = quoted(&placement.name);
                return mismatch(format!("where {} should be placed it places {found}", name()));
            }
            if placement.bytes != value.bytes() {
                let (planned, bytes) = (placement.bytes, value.bytes());
                return mismatch(format!("{} has {bytes} bytes, planned were {planned}", name()));
            }
            if !usize::try_from(placement.space).is_ok_and(|space| space == value.space().index()) {
                return mismatch(format!("{} is in another space", name()));
            }
            if placement.live != live[index] {
                let [start, end] = live[index];
                return mismatch(format!("{} is live in steps {start}..{end}", name()));
            }
            if value.pin().is_some_and(|pin| pin != placement.offset) {
                return mismatch(format!("{} is not where it is pinned", name()));
            }
            self.check_span(
                name,
                placement.space,
                placement.offset,
                placement.bytes,
                value.alignment(),
            )?;
        }
        match placements.next() {
            None => Ok(()),
            Some(extra) => mismatch(format!("it places {} too", quoted(&extra.name))),
        }
    }

    /// Checks that every workspace of every node is placed, in one of its sizes.
    fn check_workspaces(&self, graph: &Graph) -> Result<()> {
        let mut placed = self.workspaces.iter();
        if self.options.workspace == WorkspacePolicy::Auto {
            for (index, node) in graph.nodes().iter().enumerate() {
                for (slot, workspace) in node.effects().workspaces.iter().enumerate() {
                    let what = || format!("workspace {slot} of node {}", quoted(node.name()));
                    let Some(found) = placed.next() else {
                        return mismatch(format!("{} has no place", what()));
                    };
                    let same = |id: u32, expected: usize| {
                        usize::try_from(id).is_ok_and(|id| id == expected)
                    };
                    if !same(found.node, index) || !same(found.slot, slot) {
                        return mismatch(format!("{} is not where it should be listed", what()));
                    }
                    let choice =
                        usize::try_from(found.choice).ok().and_then(|id| workspace.choices.get(id));
                    if choice.is_none_or(|choice| choice.bytes != found.bytes) {
                        return mismatch(format!("{} has no such size", what()));
                    }
                    self.check_span(
                        what,
                        found.space,
                        found.offset,
                        found.bytes,
                        workspace.alignment,
                    )?;
                }
            }
        }
        match placed.next() {
            None => Ok(()),
            Some(extra) => mismatch(format!("node {} has no such workspace", extra.node)),
        }
    }

    /// Checks one span against its alignment and its arena.
    fn check_span(
        &self,
        what: impl Fn() -> String,
        space: u32,
        offset: u64,
        bytes: u64,
        alignment: Alignment,
    ) -> Result<()> {
        let Some(space) = usize::try_from(space).ok().and_then(|space| self.spaces.get(space))
        else {
            return mismatch(format!("{} is in a space that is not there", what()));
        };
        let alignment = alignment.bytes().max(space.alignment).max(self.options.alignment);
        if offset % alignment != 0 {
            return Err(Error::PlanMisaligned { what: what(), offset, alignment });
        }
        let end = u128::from(offset) + u128::from(bytes);
        if end > u128::from(space.arena_bytes) {
            let arena = space.arena_bytes;
            return Err(Error::PlanOutOfBounds { what: what(), start: offset, end, arena });
        }
        Ok(())
    }

    /// Checks what the plan says of its sizes and of their proof.
    fn check_claims(&self, graph: &Graph) -> Result<()> {
        let corrupt = |reason: String| Err(Error::PlanCorrupt { reason });
        let Ok(alignment) = Alignment::new(self.options.alignment) else {
            return corrupt(format!("the alignment {} is no power of two", self.options.alignment));
        };
        let padded = |bytes: u64| u128::from(bytes).next_multiple_of(u128::from(alignment.bytes()));
        let mut extents = vec![0_u128; self.spaces.len()];
        let values = self.placements.iter().map(|value| (value.space, value.offset, value.bytes));
        let scratch = self.workspaces.iter().map(|work| (work.space, work.offset, work.bytes));
        for (space, offset, bytes) in values.chain(scratch) {
            if bytes > 0 {
                let extent = usize::try_from(space).ok().and_then(|space| extents.get_mut(space));
                let extent = extent.expect("every span was checked to be in a space");
                *extent = (*extent).max(u128::from(offset) + padded(bytes));
            }
        }
        for (space, extent) in self.spaces.iter().zip(extents) {
            let name = quoted(&space.name);
            if u128::from(space.arena_bytes) != extent {
                let bytes = space.arena_bytes;
                return corrupt(format!(
                    "space {name} has {bytes} bytes, and values end at {extent}"
                ));
            }
            let fits = space.capacity.is_none_or(|capacity| space.arena_bytes <= capacity);
            let proven = match space.status {
                Status::Optimal => fits && space.lower_bound == space.arena_bytes,
                Status::Feasible => fits && space.lower_bound < space.arena_bytes,
                Status::Unknown | Status::Infeasible => !fits,
            };
            if !proven || space.lower_bound > space.arena_bytes {
                let (status, bound) = (space.status, space.lower_bound);
                return corrupt(format!(
                    "space {name} is not {status} with the lower bound {bound}"
                ));
            }
        }
        let naive = graph
            .values()
            .iter()
            .filter(|value| value.kind() != ValueKind::Constant)
            .map(|value| padded(value.bytes()))
            .sum::<u128>();
        if self.naive_bytes != u64::try_from(naive).ok() {
            return corrupt(format!("all values together have {naive} bytes"));
        }
        Ok(())
    }
}

/// Returns when each value is needed, first step and first step after the last.
fn live_ranges(graph: &Graph, order: &[NodeId], preserve_inputs: bool) -> Vec<[u32; 2]> {
    let mut step_of = vec![0_u32; graph.nodes().len()];
    for (step, node) in (0_u32..).zip(order) {
        step_of[node.index()] = step;
    }
    let end = u32::try_from(order.len()).unwrap_or(u32::MAX).max(1);
    let mut live: Vec<[u32; 2]> = (0..graph.values().len())
        .map(|index| match graph.producer(ValueId::new(index)) {
            Some(node) => [step_of[node.index()], step_of[node.index()] + 1],
            None => [0, 1],
        })
        .collect();
    for (index, node) in graph.nodes().iter().enumerate() {
        for (_, value) in node.reads_bytes_of() {
            live[value.index()][1] = live[value.index()][1].max(step_of[index] + 1);
        }
    }
    for (index, value) in graph.values().iter().enumerate() {
        let kept = match value.kind() {
            ValueKind::State => true,
            ValueKind::Input => preserve_inputs,
            ValueKind::Activation | ValueKind::Constant => false,
        };
        if kept {
            live[index][1] = end;
        }
    }
    for output in graph.outputs() {
        live[output.index()][1] = end;
    }
    live
}

fn mismatch<T>(reason: String) -> Result<T> {
    Err(Error::PlanMismatch { reason })
}

/// Whose bytes a stretch of memory holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    /// Those of a value whose first byte is, or would be, at address `base`.
    Value { value: ValueId, base: i128 },
    /// Scratch of a node.
    Workspace(NodeId),
}

/// Bytes of one value that equal bytes of another, or are its own.
#[derive(Clone, Copy, Debug)]
struct Piece {
    /// First byte, counted from the start of the value.
    start: u64,
    /// Byte after the last.
    end: u64,
    /// The value that the bytes were written as.
    origin: ValueId,
    /// Where `start` is in `origin`.
    origin_start: u64,
}

/// Memory that remembers for every byte whose bytes it holds.
#[derive(Debug, Default)]
struct Memory(BTreeMap<u64, (u64, Owner)>);

impl Memory {
    /// Makes `span` hold the bytes of `owner`.
    fn write(&mut self, span: Range<u64>, owner: Owner) {
        if span.is_empty() {
            return;
        }
        self.split(span.start);
        self.split(span.end);
        let covered: Vec<u64> = self.0.range(span.clone()).map(|(&start, _)| start).collect();
        for start in covered {
            self.0.remove(&start);
        }
        self.0.insert(span.start, (span.end, owner));
    }

    /// Cuts the stretch that contains `address` in two there.
    fn split(&mut self, address: u64) {
        if let Some((_, stretch)) = self.0.range_mut(..address).next_back()
            && stretch.0 > address
        {
            let rest = *stretch;
            stretch.0 = address;
            self.0.insert(address, rest);
        }
    }

    /// Returns the first byte of `span` that `owner` does not own, and who owns it.
    fn find_other(&self, span: Range<u64>, owner: Owner) -> Option<(u64, Option<Owner>)> {
        let mut at = span.start;
        let first = self.0.range(..=at).next_back().map_or(at, |(&start, _)| start);
        for (&start, &(end, found)) in self.0.range(first..span.end) {
            if end <= at {
                continue;
            }
            if start > at {
                return Some((at, None));
            }
            if found != owner {
                return Some((at, Some(found)));
            }
            at = end;
        }
        (at < span.end).then_some((at, None))
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

/// What a node writes bytes as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Writer {
    /// The output at this position.
    Output(usize, ValueId),
    /// A state that it mutates.
    State(ValueId),
    /// Scratch.
    Workspace(usize),
}

/// One run of the graph on symbolic memory.
struct Replay<'a> {
    plan: &'a Plan,
    graph: &'a Graph,
    /// By value: where it is; `None` for constants.
    places: Vec<Option<&'a Placement>>,
    /// By value: whose bytes it holds; `None` for its own.
    contents: Vec<Option<Rc<[Piece]>>>,
    memories: Vec<Memory>,
    step: Step,
}

impl<'a> Replay<'a> {
    fn new(plan: &'a Plan, graph: &'a Graph) -> Self {
        let mut places = vec![None; graph.values().len()];
        for placement in &plan.placements {
            let id = usize::try_from(placement.value).expect("placements were checked");
            places[id] = Some(placement);
        }
        let memories = plan.spaces.iter().map(|_| Memory::default()).collect();
        let contents = vec![None; graph.values().len()];
        Self { plan, graph, places, contents, memories, step: Step::new(0) }
    }

    fn run(mut self, order: &[NodeId]) -> Result<()> {
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
        for (step, &node) in order.iter().enumerate() {
            self.step = Step::at(step);
            self.run_node(node)?;
        }
        let kept: &'static [ValueKind] = if self.plan.options.preserve_inputs {
            &[ValueKind::Input, ValueKind::State]
        } else {
            &[ValueKind::State]
        };
        for value in kinds(kept).iter().chain(self.graph.outputs()) {
            self.read(*value)?;
        }
        Ok(())
    }

    /// Checks what one node reads and writes, and writes it.
    fn run_node(&mut self, id: NodeId) -> Result<()> {
        let node = self.graph.node(id);
        for (_, value) in node.reads_bytes_of() {
            self.read(value)?;
        }
        let mut writes = Vec::new();
        let mut contents = Vec::new();
        for (position, output) in node.produces() {
            let (content, missing) = self.shown(node, position, output);
            let place = self.places[output.index()].expect("outputs are in the arena");
            writes.extend(missing.into_iter().map(|range| Write {
                space: place.space,
                start: place.offset + range.start,
                end: place.offset + range.end,
                by: Writer::Output(position, output),
            }));
            contents.push((output, content));
        }
        for &position in &node.effects().mutates {
            let state = node.input(position).expect("mutated states are there");
            let place = self.places[state.index()].expect("states are in the arena");
            let (space, start) = (place.space, place.offset);
            writes.push(Write { space, start, end: start + place.bytes, by: Writer::State(state) });
        }
        for workspace in self.plan.workspaces_of(id) {
            let (space, start) = (workspace.space, workspace.offset);
            let slot = usize::try_from(workspace.slot).expect("workspaces were checked");
            let end = start + workspace.bytes;
            writes.push(Write { space, start, end, by: Writer::Workspace(slot) });
        }
        writes.retain(|write| write.start < write.end);
        self.check_writes(node, &mut writes)?;
        for write in writes {
            let owner = match write.by {
                Writer::Output(_, value) | Writer::State(value) => self.owner(value),
                Writer::Workspace(_) => Owner::Workspace(id),
            };
            self.memory(write.space).write(write.start..write.end, owner);
        }
        for (output, content) in contents {
            self.contents[output.index()] = content;
        }
        Ok(())
    }

    /// Checks that a node writes no byte twice, and none that it still reads unless its
    /// effects permit it.
    fn check_writes(&self, node: &Node, writes: &mut [Write]) -> Result<()> {
        writes.sort_unstable_by_key(|write| (write.space, write.start, write.end));
        let overlap = |first: String, second: String, byte: u64| {
            Err(Error::PlanOverlap { first, second, step: self.step, byte })
        };
        for pair in writes.windows(2) {
            if pair[0].space == pair[1].space && pair[1].start < pair[0].end {
                let (first, second) =
                    (self.shown_writer(node, pair[0].by), self.shown_writer(node, pair[1].by));
                return overlap(first, second, pair[1].start);
            }
        }
        for (position, value) in node.reads_bytes_of() {
            let Some(place) = self.places[value.index()] else { continue };
            let end = place.offset + place.bytes;
            // The writes are disjoint, so those that end after the value begins are a suffix.
            let first = writes
                .partition_point(|write| (write.space, write.end) <= (place.space, place.offset));
            let touched = writes[first..]
                .iter()
                .take_while(|write| write.space == place.space && write.start < end);
            for write in touched {
                let permitted = match write.by {
                    Writer::State(state) => state == value,
                    Writer::Workspace(_) => false,
                    Writer::Output(output, written) => {
                        let bytes = self.graph.value(written).bytes();
                        let pairs = &node.effects().in_place;
                        write.start == place.offset
                            && bytes <= place.bytes
                            && pairs
                                .iter()
                                .any(|pair| (pair.input, pair.output) == (position, output))
                    }
                };
                if !permitted {
                    let byte = write.start.max(place.offset);
                    let first = format!("value {}", quoted(self.graph.value(value).name()));
                    return overlap(first, self.shown_writer(node, write.by), byte);
                }
            }
        }
        Ok(())
    }

    /// Returns whose bytes `output` holds after the node has run, `None` for its own, and
    /// which of its bytes the node must write because no view already put them there.
    fn shown(
        &self,
        node: &Node,
        position: usize,
        output: ValueId,
    ) -> (Option<Rc<[Piece]>>, Vec<Range<u64>>) {
        let bytes = self.graph.value(output).bytes();
        let views = node.effects().views.iter().filter(|view| view.output == position);
        let mut pieces: Vec<Piece> = Vec::new();
        for &view in views {
            let Some(input) =
                node.input(view.input).filter(|&input| self.is_in_place(view, input, output))
            else {
                continue;
            };
            let content = self.content(input);
            let (from, to) = match view.whole {
                // Output byte 0 is input byte `offset`.
                Whole::Input => (view.offset, 0),
                // Output byte `offset` is input byte 0.
                Whole::Output => (0, view.offset),
            };
            for piece in content.iter() {
                let start = piece.start.max(from);
                let end = piece.end.min(from.saturating_add(bytes));
                if start < end {
                    pieces.push(Piece {
                        start: start - from + to,
                        end: end - from + to,
                        origin: piece.origin,
                        origin_start: piece.origin_start + (start - piece.start),
                    });
                }
            }
        }
        for pair in
            node.effects().in_place.iter().filter(|pair| pair.identity && pair.output == position)
        {
            let view = View { input: pair.input, output: position, offset: 0, whole: Whole::Input };
            let input =
                node.input(pair.input).filter(|&input| self.is_in_place(view, input, output));
            if let Some(input) =
                input.filter(|&input| self.graph.value(input).bytes() == bytes && pieces.is_empty())
            {
                pieces.extend(self.content(input).iter());
            }
        }
        if pieces.is_empty() {
            return (None, std::iter::once(0..bytes).collect());
        }
        // What no view covers is the output's own; where two views cover the same bytes,
        // the node must write them, for which of the two is right cannot be told.
        pieces.sort_unstable_by_key(|piece| (piece.start, piece.end));
        let mut content: Vec<Piece> = Vec::new();
        let mut missing = Vec::new();
        let mut at = 0;
        let own = |start, end| Piece { start, end, origin: output, origin_start: start };
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
        self.graph.value(input).kind() != ValueKind::State
            && part.space == whole.space
            && whole.offset.checked_add(view.offset) == Some(part.offset)
    }

    /// Returns whose bytes `value` holds.
    fn content(&self, value: ValueId) -> Rc<[Piece]> {
        self.contents[value.index()].clone().unwrap_or_else(|| {
            let end = self.graph.value(value).bytes();
            Rc::new([Piece { start: 0, end, origin: value, origin_start: 0 }])
        })
    }

    /// Checks that the memory of `value` holds its bytes.
    fn read(&self, value: ValueId) -> Result<()> {
        let Some(place) = self.places[value.index()] else { return Ok(()) };
        for piece in self.content(value).iter() {
            let (start, end) = (place.offset + piece.start, place.offset + piece.end);
            let base = i128::from(start) - i128::from(piece.origin_start);
            let owner = Owner::Value { value: piece.origin, base };
            let space = usize::try_from(place.space).expect("spaces were checked");
            if let Some((byte, found)) = self.memories[space].find_other(start..end, owner) {
                let name = |value| format!("value {}", quoted(self.graph.value(value).name()));
                let second = match found {
                    Some(Owner::Value { value, .. }) => name(value),
                    Some(Owner::Workspace(node)) => {
                        format!("a workspace of node {}", quoted(self.graph.node(node).name()))
                    }
                    None => "bytes that nobody wrote".into(),
                };
                let (first, step) = (name(value), self.step);
                return Err(Error::PlanOverlap { first, second, step, byte });
            }
        }
        Ok(())
    }

    /// Makes the memory of `value` hold its own bytes.
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

    fn memory(&mut self, space: u32) -> &mut Memory {
        &mut self.memories[usize::try_from(space).expect("spaces were checked")]
    }

    fn shown_writer(&self, node: &Node, writer: Writer) -> String {
        match writer {
            Writer::Output(_, value) | Writer::State(value) => {
                format!("value {}", quoted(self.graph.value(value).name()))
            }
            Writer::Workspace(slot) => {
                format!("workspace {slot} of node {}", quoted(node.name()))
            }
        }
    }
}
