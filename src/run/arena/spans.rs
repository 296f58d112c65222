//! The spans of a step's operands, settled once. Invariant: a byte that is lent for writing is lent
//! to only one operand.

use alloc::{boxed::Box, format, string::String, vec::Vec};
use core::ops::Range;

use crate::base::{Error, NodeId, Result, ValueId, quoted};
use crate::plan::{Placement, Plan, PlanStep, ShareRule};
use crate::run::arena::span;

/// Bytes in a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stretch {
    /// The space's position in the plan.
    pub(crate) region: usize,
    /// First byte.
    pub(crate) start: usize,
    /// Byte after the last.
    pub(crate) end: usize,
}

impl Stretch {
    /// Returns the byte count.
    pub(crate) const fn len(&self) -> usize {
        self.end - self.start
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.end == self.start
    }

    /// Returns the bytes as positions in a slice.
    pub(crate) const fn range(&self) -> Range<usize> {
        self.start..self.end
    }

    fn contains(&self, other: &Self) -> bool {
        self.region == other.region && self.start <= other.start && other.end <= self.end
    }

    fn key(&self) -> (usize, usize, usize) {
        (self.region, self.start, self.end)
    }
}

/// The way in which an input is lent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reading {
    /// The operand is left out, or never read.
    Absent,
    /// The operand has no memory in the arena.
    External,
    /// To be read.
    Shared,
    /// In an output's bytes.
    Within { output: usize, offset: usize },
    /// To be read and written.
    State,
    /// In the bytes of a state that is lent for writing.
    WithinState { input: usize, offset: usize },
}

/// The way in which an output is lent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Writing {
    /// The operand is left out.
    Absent,
    /// To be written.
    Exclusive,
    /// In the bytes of an input with the right content.
    Within { input: usize, offset: usize },
}

/// A step's operand.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Operand<A> {
    /// The value; `None` if left out.
    pub(crate) value: Option<ValueId>,
    /// The bytes, if the value has a place.
    pub(crate) place: Option<Stretch>,
    /// How the operand is lent.
    pub(crate) access: A,
}

/// A step's scratch memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scratch {
    /// The node that declares the workspace.
    pub(crate) node: NodeId,
    /// Position among the node's workspaces.
    pub(crate) slot: usize,
    /// The workspace's bytes.
    pub(crate) place: Stretch,
}

/// Bytes that are cut off a region as a whole.
#[derive(Clone, Debug)]
pub(crate) struct Piece {
    /// The piece's bytes.
    pub(crate) place: Stretch,
    /// The operands that receive the piece.
    pub(crate) holder: Holder,
}

/// The operand that receives a piece's bytes.
#[derive(Clone, Debug)]
pub(crate) enum Holder {
    /// The output at this position.
    Output(usize),
    /// The workspace at this position.
    Workspace(usize),
    /// The state that is the input at this position.
    State(usize),
    /// A range of readers.
    Readers(Range<usize>),
}

/// An input that lies in a piece with others.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader {
    /// The input's position.
    pub(crate) input: usize,
    /// First byte in the piece.
    pub(crate) start: usize,
    /// Byte after the last in the piece.
    pub(crate) end: usize,
}

/// A step's memory.
#[derive(Clone, Debug, Default)]
pub(crate) struct StepSpans {
    /// Inputs, by position.
    pub(crate) inputs: Box<[Operand<Reading>]>,
    /// Outputs, by position.
    pub(crate) outputs: Box<[Operand<Writing>]>,
    /// Workspaces of the step's nodes, in order.
    pub(crate) workspaces: Box<[Scratch]>,
    /// Disjoint pieces, ascending by region and first byte; none is empty.
    pub(crate) pieces: Box<[Piece]>,
    /// The inputs that are only read, by piece.
    pub(crate) readers: Box<[Reader]>,
}

/// Settles the places of a step's operands.
///
/// `states` are the inputs that the step writes, by position.
///
/// # Errors
///
/// - [`Error::UndefinedValue`] if an output has no place.
/// - [`Error::PlanOutOfBounds`] if an operand ends after its space.
/// - [`Error::PlanOverlap`] if the step would write bytes that the step also uses otherwise.
pub(crate) fn settle(
    plan: &Plan,
    step: &PlanStep,
    states: &[(usize, ValueId)],
) -> Result<StepSpans> {
    let mut settling = Settling {
        plan,
        step,
        inputs: read(plan, step, states)?,
        outputs: written(plan, step)?,
        workspaces: scratch(plan, step)?,
        pieces: Vec::new(),
    };
    settling.claim_outputs();
    settling.claim_states();
    settling.claim_workspaces();
    settling.pieces.sort_unstable_by_key(|piece| piece.place.key());
    for pair in settling.pieces.windows(2) {
        let [first, second] = [pair[0].place, pair[1].place];
        if first.region == second.region && second.start < first.end {
            return Err(overlap(plan, step, second.start));
        }
    }
    let readers = settling.claim_inputs()?;
    settling.pieces.sort_unstable_by_key(|piece| piece.place.key());
    Ok(StepSpans {
        inputs: settling.inputs.into(),
        outputs: settling.outputs.into(),
        workspaces: settling.workspaces.into(),
        pieces: settling.pieces.into(),
        readers,
    })
}

/// Returns a step's inputs, as if the step wrote nothing.
fn read(
    plan: &Plan,
    step: &PlanStep,
    states: &[(usize, ValueId)],
) -> Result<Vec<Operand<Reading>>> {
    let state_at = |position| states.iter().find(|(at, _)| *at == position).map(|found| found.1);
    let mut inputs = Vec::with_capacity(step.inputs.len());
    for (position, operand) in step.inputs.iter().enumerate() {
        // A written state may be a state that is not read.
        let state = state_at(position);
        let value = operand.map(ValueId::from).or(state);
        let place = value.and_then(|value| plan.placement(value));
        let place = place.map(|placement| locate(plan, placement)).transpose()?;
        let access = match (value, place) {
            (None, _) => Reading::Absent,
            (Some(_), None) => Reading::External,
            (Some(_), Some(_)) if state.is_some() => Reading::State,
            (Some(_), Some(_)) => Reading::Shared,
        };
        inputs.push(Operand { value, place, access });
    }
    Ok(inputs)
}

/// Returns a step's outputs, as if the step shared nothing.
fn written(plan: &Plan, step: &PlanStep) -> Result<Vec<Operand<Writing>>> {
    let mut outputs = Vec::with_capacity(step.outputs.len());
    for operand in &step.outputs {
        let value = operand.map(ValueId::from);
        let place = value.map(|value| locate(plan, super::placement(plan, value)?)).transpose()?;
        let access = if place.is_some() { Writing::Exclusive } else { Writing::Absent };
        outputs.push(Operand { value, place, access });
    }
    Ok(outputs)
}

/// Returns the scratch memory for the step's nodes.
fn scratch(plan: &Plan, step: &PlanStep) -> Result<Vec<Scratch>> {
    let mut found = Vec::new();
    for workspace in plan.workspaces_in(step) {
        let node = NodeId::from(workspace.node);
        let known = plan.workspaces_of(node).iter().position(|other| other.slot == workspace.slot);
        let slot = known.unwrap_or(0);
        let what = || format!("workspace {slot} of node {}", quoted(&step.name));
        let place = inside(plan, workspace.space, workspace.offset, workspace.bytes, what)?;
        found.push(Scratch { node, slot, place });
    }
    Ok(found)
}

/// Returns a value's bytes, within the value's space.
fn locate(plan: &Plan, placement: &Placement) -> Result<Stretch> {
    let what = || format!("value {}", quoted(&placement.name));
    inside(plan, placement.space, placement.offset, placement.bytes, what)
}

fn inside(
    plan: &Plan,
    space: u32,
    offset: u64,
    bytes: u64,
    what: impl Fn() -> String,
) -> Result<Stretch> {
    let region = usize::try_from(space).unwrap_or(usize::MAX);
    let arena = plan.spaces().get(region).map_or(0, |space| space.arena_bytes);
    let end = u128::from(offset) + u128::from(bytes);
    span(offset, bytes)
        .filter(|_| end <= u128::from(arena))
        .map(|span| Stretch { region, start: span.start, end: span.end })
        .ok_or_else(|| Error::PlanOutOfBounds { what: what(), start: offset, end, arena })
}

/// Returns the error for operands that share bytes without permission.
fn overlap(plan: &Plan, step: &PlanStep, byte: usize) -> Error {
    let position = plan.steps().iter().position(|other| other.node == step.node);
    Error::PlanOverlap {
        first: format!("an operand of node {}", quoted(&step.name)),
        second: "another".into(),
        step: position.and_then(|at| u32::try_from(at).ok()).unwrap_or(u32::MAX),
        byte: u64::try_from(byte).unwrap_or(u64::MAX),
    }
}

/// A step whose operands are being settled.
struct Settling<'a> {
    plan: &'a Plan,
    step: &'a PlanStep,
    inputs: Vec<Operand<Reading>>,
    outputs: Vec<Operand<Writing>>,
    workspaces: Vec<Scratch>,
    pieces: Vec<Piece>,
}

impl Settling<'_> {
    fn claim(&mut self, place: Stretch, holder: Holder) {
        if !place.is_empty() {
            self.pieces.push(Piece { place, holder });
        }
    }

    /// Claims the outputs' exclusive bytes.
    fn claim_outputs(&mut self) {
        for position in 0..self.outputs.len() {
            let Some(mut place) = self.outputs[position].place else { continue };
            for share in &self.step.shares {
                if usize::try_from(share.output).ok() != Some(position) {
                    continue;
                }
                let input = usize::try_from(share.input).unwrap_or(usize::MAX);
                let Some(from) = self.inputs.get(input).and_then(|input| input.place) else {
                    continue;
                };
                match share.rule {
                    ShareRule::View if from.contains(&place) => {
                        let offset = place.start - from.start;
                        self.outputs[position].access = Writing::Within { input, offset };
                    }
                    // The input's bytes are lent whole, because a kernel reads all of them.
                    ShareRule::InPlace if from.contains(&place) && from.start == place.start => {
                        place = self.with_inputs(from);
                    }
                    // The same holds for an input that the output only overlaps, behind the input's
                    // start.
                    ShareRule::Overlap
                        if from.region == place.region && place.range().contains(&from.start) =>
                    {
                        place = self.with_inputs(place);
                    }
                    ShareRule::View | ShareRule::InPlace | ShareRule::Overlap => {}
                }
            }
            if self.outputs[position].access == Writing::Exclusive {
                self.claim(place, Holder::Output(position));
            }
        }
    }

    /// Extends a place by the rest of every input that begins in the place: slices of a value may
    /// overlap.
    fn with_inputs(&self, mut place: Stretch) -> Stretch {
        let places = || self.inputs.iter().filter_map(|input| input.place);
        let begins = |input: &Stretch, place: &Stretch| {
            input.region == place.region && place.range().contains(&input.start)
        };
        while let Some(input) =
            places().find(|input| begins(input, &place) && place.end < input.end)
        {
            place.end = input.end;
        }
        place
    }

    /// Claims the states that the step writes, each once.
    fn claim_states(&mut self) {
        let mut claimed: Vec<ValueId> = Vec::new();
        for position in 0..self.inputs.len() {
            let Operand { value: Some(value), place: Some(place), access: Reading::State } =
                self.inputs[position]
            else {
                continue;
            };
            if claimed.contains(&value) {
                self.inputs[position].access = Reading::Shared;
            } else {
                claimed.push(value);
                self.claim(place, Holder::State(position));
            }
        }
    }

    fn claim_workspaces(&mut self) {
        for position in 0..self.workspaces.len() {
            self.claim(self.workspaces[position].place, Holder::Workspace(position));
        }
    }

    /// Finds the way to read each input, and claims the inputs' own bytes.
    ///
    /// The pieces so far are disjoint and sorted.
    fn claim_inputs(&mut self) -> Result<Box<[Reader]>> {
        let mut shared: Vec<(Stretch, usize)> = Vec::new();
        for position in 0..self.inputs.len() {
            let input = self.inputs[position];
            let Some(place) = input.place.filter(|place| !place.is_empty()) else { continue };
            if input.access != Reading::Shared {
                continue;
            }
            let next = self.pieces.partition_point(|piece| {
                (piece.place.region, piece.place.end) <= (place.region, place.start)
            });
            let touched = self.pieces.get(next).filter(|piece| {
                piece.place.region == place.region && piece.place.start < place.end
            });
            let Some(piece) = touched else {
                shared.push((place, position));
                continue;
            };
            let offset = place.start.checked_sub(piece.place.start);
            let offset = offset.filter(|_| piece.place.contains(&place));
            self.inputs[position].access = match (&piece.holder, offset) {
                (&Holder::Output(output), Some(offset)) => Reading::Within { output, offset },
                (&Holder::State(input), Some(offset)) => Reading::WithinState { input, offset },
                _ => return Err(overlap(self.plan, self.step, place.start)),
            };
        }
        Ok(self.claim_readers(shared))
    }

    /// Claims the union over inputs that share bytes.
    fn claim_readers(&mut self, mut shared: Vec<(Stretch, usize)>) -> Box<[Reader]> {
        shared.sort_unstable_by_key(|&(place, position)| (place.key(), position));
        let mut readers: Vec<Reader> = Vec::with_capacity(shared.len());
        let mut open: Option<(Stretch, usize)> = None;
        for (place, input) in shared {
            let joins = |(piece, _): &(Stretch, usize)| {
                piece.region == place.region && place.start < piece.end
            };
            let (mut piece, first) = match open.take() {
                Some(found) if joins(&found) => found,
                Some((piece, first)) => {
                    self.claim(piece, Holder::Readers(first..readers.len()));
                    (place, readers.len())
                }
                None => (place, readers.len()),
            };
            piece.end = piece.end.max(place.end);
            let start = place.start - piece.start;
            readers.push(Reader { input, start, end: start + place.len() });
            open = Some((piece, first));
        }
        if let Some((piece, first)) = open {
            self.claim(piece, Holder::Readers(first..readers.len()));
        }
        readers.into()
    }
}
