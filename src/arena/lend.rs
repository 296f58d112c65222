//! Lending one node its operands, without `unsafe`: the arena is cut into disjoint slices.

use std::ops::Range;

use crate::arena::{Arena, Region, out_of_bounds, placement, span};
use crate::error::{Error, Result, quoted};
use crate::index::{NodeId, ValueId};
use crate::plan::{Placement, Plan, PlanStep, ShareRule};

/// What a node reads and writes, for as long as the arena is borrowed.
///
/// No byte that is lent to be written is lent a second time.
#[derive(Debug)]
pub struct NodeMemory<'a> {
    /// What the node reads, by position.
    pub inputs: Vec<Input<'a>>,
    /// What the node writes, by position.
    pub outputs: Vec<Output<'a>>,
    /// Scratch bytes, by slot.
    pub workspaces: Vec<&'a mut [u8]>,
}

/// Memory of an operand that a node reads.
#[derive(Debug)]
pub enum Input<'a> {
    /// The operand is left out, or its bytes are never read.
    Absent,
    /// The operand is not in the arena: it is a constant.
    External,
    /// Its bytes.
    Shared(&'a [u8]),
    /// Its bytes are part of an output: the node works in place, or the output is a
    /// concatenation that already holds them, or both overlap. In the last case the node must
    /// make the output in order, and read each byte before it writes there: see
    /// [`Graph::overlaps`](crate::Graph::overlaps).
    Within {
        /// Position of the output.
        output: usize,
        /// First byte of the operand in the output.
        offset: usize,
    },
}

/// Memory of an operand that a node writes.
#[derive(Debug)]
pub enum Output<'a> {
    /// The operand is left out.
    Absent,
    /// Its bytes. If the node works in place they hold the input, and may be more than
    /// the output needs where the input is larger; so they are, too, where both overlap.
    Exclusive(&'a mut [u8]),
    /// Its bytes are part of an input, and already what they should be.
    Within {
        /// Position of the input.
        input: usize,
        /// First byte of the operand in the input.
        offset: usize,
    },
}

/// Bytes to be lent, and to whom.
#[derive(Debug)]
struct Claim {
    region: usize,
    bytes: Range<usize>,
    holder: Holder,
}

#[derive(Clone, Copy, Debug)]
enum Holder {
    Output(usize),
    Workspace(usize),
    /// Bytes that some inputs share.
    Inputs,
}

/// Lends the operands of `node`.
pub(super) fn lend<'a>(
    arena: &'a mut Arena<'_>,
    plan: &Plan,
    node: NodeId,
) -> Result<NodeMemory<'a>> {
    let step = plan.step_of(node).ok_or_else(|| Error::UndefinedValue {
        user: "the caller".into(),
        value: format!("node {node}"),
    })?;
    let place = |operand: &Option<u32>| match operand {
        Some(value) => Ok(plan.placement(ValueId::from(*value))),
        None => Ok::<_, Error>(None),
    };
    let inputs: Vec<_> = step.inputs.iter().map(place).collect::<Result<_>>()?;
    let outputs = step
        .outputs
        .iter()
        .map(|operand| operand.map(|value| placement(plan, ValueId::from(value))).transpose())
        .collect::<Result<Vec<_>>>()?;

    let mut memory = NodeMemory {
        inputs: Vec::with_capacity(inputs.len()),
        outputs: outputs.iter().map(|_| Output::Absent).collect(),
        workspaces: plan.workspaces_of(node).iter().map(|_| Default::default()).collect(),
    };
    let mut claims = Vec::new();
    claim_outputs(arena, step, &inputs, &outputs, &mut memory, &mut claims)?;
    claim_workspaces(arena, plan, node, step, &mut claims)?;
    claims.sort_unstable_by_key(|claim| (claim.region, claim.bytes.start, claim.bytes.end));
    for pair in claims.windows(2) {
        if pair[0].region == pair[1].region && pair[1].bytes.start < pair[0].bytes.end {
            return Err(overlap(plan, node, step, pair[1].bytes.start));
        }
    }
    let shared =
        claim_inputs(arena, plan, node, step, (&inputs, &outputs), &mut memory, &mut claims)?;
    hand_out(arena, claims, shared, &mut memory);
    Ok(memory)
}

/// Claims what the outputs need for themselves.
fn claim_outputs(
    arena: &Arena<'_>,
    step: &PlanStep,
    inputs: &[Option<&Placement>],
    outputs: &[Option<&Placement>],
    memory: &mut NodeMemory<'_>,
    claims: &mut Vec<Claim>,
) -> Result<()> {
    for (position, &output) in outputs.iter().enumerate() {
        let Some(output) = output else { continue };
        let (region, mut bytes) = locate(arena, output)?;
        for share in &step.shares {
            let input_position = usize::try_from(share.input).unwrap_or(usize::MAX);
            let is_this = usize::try_from(share.output).is_ok_and(|shared| shared == position);
            let Some(input) = inputs.get(input_position).copied().flatten().filter(|_| is_this)
            else {
                continue;
            };
            let (input_region, from) = locate(arena, input)?;
            let inside =
                input_region == region && from.start <= bytes.start && bytes.end <= from.end;
            match share.rule {
                ShareRule::View if inside => {
                    let offset = bytes.start - from.start;
                    memory.outputs[position] = Output::Within { input: input_position, offset };
                }
                // The input's bytes are lent whole, for a kernel reads them all.
                ShareRule::InPlace if inside && from.start == bytes.start => bytes = from,
                // So are those of an input that the output only overlaps, behind its start.
                ShareRule::Overlap if input_region == region && bytes.contains(&from.start) => {
                    bytes.end = bytes.end.max(from.end);
                }
                ShareRule::View | ShareRule::InPlace | ShareRule::Overlap => {}
            }
        }
        if bytes.is_empty() {
            memory.outputs[position] = Output::Exclusive(&mut []);
        } else if matches!(memory.outputs[position], Output::Absent) {
            claims.push(Claim { region, bytes, holder: Holder::Output(position) });
        }
    }
    Ok(())
}

/// Claims the node's workspaces.
fn claim_workspaces(
    arena: &Arena<'_>,
    plan: &Plan,
    node: NodeId,
    step: &PlanStep,
    claims: &mut Vec<Claim>,
) -> Result<()> {
    for (slot, workspace) in plan.workspaces_of(node).iter().enumerate() {
        let region = usize::try_from(workspace.space).unwrap_or(usize::MAX);
        let arena_bytes = arena.regions.get(region).map_or(0, |region| region.bytes().len());
        let bytes = span(workspace.offset, workspace.bytes)
            .filter(|bytes| bytes.end <= arena_bytes)
            .ok_or_else(|| Error::PlanOutOfBounds {
                what: format!("workspace {slot} of node {}", quoted(&step.name)),
                start: workspace.offset,
                end: u128::from(workspace.offset) + u128::from(workspace.bytes),
                arena: u64::try_from(arena_bytes).unwrap_or(u64::MAX),
            })?;
        if !bytes.is_empty() {
            claims.push(Claim { region, bytes, holder: Holder::Workspace(slot) });
        }
    }
    Ok(())
}

/// Inputs that only share bytes with each other: position, region, bytes.
type SharedInputs = Vec<(usize, usize, Range<usize>)>;

/// Finds out how each input can be read, and claims what inputs need for themselves.
fn claim_inputs(
    arena: &Arena<'_>,
    plan: &Plan,
    node: NodeId,
    step: &PlanStep,
    (inputs, outputs): (&[Option<&Placement>], &[Option<&Placement>]),
    memory: &mut NodeMemory<'_>,
    claims: &mut Vec<Claim>,
) -> Result<SharedInputs> {
    let written = claims.len();
    let mut shared: SharedInputs = Vec::new();
    for (position, &input) in inputs.iter().enumerate() {
        let Some(input) = input else {
            let constant = step.inputs[position].is_some();
            memory.inputs.push(if constant { Input::External } else { Input::Absent });
            continue;
        };
        let (region, bytes) = locate(arena, input)?;
        if bytes.is_empty() {
            memory.inputs.push(Input::Shared(&[]));
            continue;
        }
        // The claims so far are disjoint and sorted.
        let next = claims[..written]
            .partition_point(|claim| (claim.region, claim.bytes.end) <= (region, bytes.start));
        let touched = claims[..written]
            .get(next)
            .filter(|claim| claim.region == region && claim.bytes.start < bytes.end);
        let Some(claim) = touched else {
            shared.push((position, region, bytes));
            memory.inputs.push(Input::Shared(&[]));
            continue;
        };
        let inside = claim.bytes.start <= bytes.start && bytes.end <= claim.bytes.end;
        match claim.holder {
            Holder::Output(output) if inside && outputs[output].is_some() => {
                let offset = bytes.start - claim.bytes.start;
                memory.inputs.push(Input::Within { output, offset });
            }
            _ => return Err(overlap(plan, node, step, bytes.start)),
        }
    }
    // Inputs may share bytes with each other: claim the union of each cluster.
    shared.sort_unstable_by_key(|(position, region, bytes)| (*region, bytes.start, *position));
    for (_, region, bytes) in &shared {
        match claims[written..].last_mut() {
            Some(last) if last.region == *region && bytes.start < last.bytes.end => {
                last.bytes.end = last.bytes.end.max(bytes.end);
            }
            _ => {
                let holder = Holder::Inputs;
                claims.push(Claim { region: *region, bytes: bytes.clone(), holder });
            }
        }
    }
    Ok(shared)
}

/// Cuts the arena along `claims`, which are disjoint, and hands out the pieces.
fn hand_out<'a>(
    arena: &'a mut Arena<'_>,
    mut claims: Vec<Claim>,
    shared: SharedInputs,
    memory: &mut NodeMemory<'a>,
) {
    claims.sort_unstable_by_key(|claim| (claim.region, claim.bytes.start, claim.bytes.end));
    let mut claims = claims.into_iter().peekable();
    let mut shared = shared.into_iter().peekable();
    for (region, bytes) in arena.regions.iter_mut().map(Region::bytes_mut).enumerate() {
        let (mut rest, mut at) = (bytes, 0);
        while let Some(claim) = claims.next_if(|claim| claim.region == region) {
            let (_, tail) = rest.split_at_mut(claim.bytes.start - at);
            let (piece, tail) = tail.split_at_mut(claim.bytes.len());
            (rest, at) = (tail, claim.bytes.end);
            match claim.holder {
                Holder::Output(position) => memory.outputs[position] = Output::Exclusive(piece),
                Holder::Workspace(slot) => memory.workspaces[slot] = piece,
                Holder::Inputs => {
                    let piece: &'a [u8] = piece;
                    // Both lists are in the order of the bytes.
                    while let Some((position, _, bytes)) = shared.next_if(|(_, other, bytes)| {
                        *other == region && bytes.end <= claim.bytes.end
                    }) {
                        let start = bytes.start - claim.bytes.start;
                        memory.inputs[position] = Input::Shared(&piece[start..start + bytes.len()]);
                    }
                }
            }
        }
    }
}

/// Returns the region and bytes of a value, which the region has.
fn locate(arena: &Arena<'_>, placement: &Placement) -> Result<(usize, Range<usize>)> {
    let region = usize::try_from(placement.space).unwrap_or(usize::MAX);
    let arena_bytes = arena.regions.get(region).map_or(0, |region| region.bytes().len());
    span(placement.offset, placement.bytes)
        .filter(|bytes| bytes.end <= arena_bytes)
        .map(|bytes| (region, bytes))
        .ok_or_else(|| out_of_bounds(placement, arena_bytes))
}

/// Returns the error that a node's operands share bytes although nothing permits it.
fn overlap(plan: &Plan, node: NodeId, step: &PlanStep, byte: usize) -> Error {
    let position = plan.order().position(|other| other == node).unwrap_or_default();
    Error::PlanOverlap {
        first: format!("an operand of node {}", quoted(&step.name)),
        second: "another".into(),
        step: u32::try_from(position).unwrap_or(u32::MAX),
        byte: u64::try_from(byte).unwrap_or(u64::MAX),
    }
}
