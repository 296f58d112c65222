//! Nodes that compute something: what their effects say, and no less.
//!
//! A byte of an output is a hash of all that the effects let the node read for it, so that any
//! byte that is wrong, or gone too early, shows. Steps run piece by piece in the memory that
//! they are lent, and read it as late as they may; the reference runs node by node, every value
//! in memory of its own.

use std::collections::HashMap;
use std::ops::Range;

use arenaplan::arena::{Input, Output};
use arenaplan::graph::Whole;
use arenaplan::program::{ProgramStep, StepMemory};
use arenaplan::{Arena, Graph, Node, NodeId, Plan, Program, Result, ValueId, ValueKind};

/// Returns the bytes of an operand, by position.
type Read<'a> = dyn FnMut(usize, Range<usize>) -> Vec<u8> + 'a;

fn size(graph: &Graph, value: ValueId) -> usize {
    usize::try_from(graph.value(value).bytes()).unwrap()
}

/// Returns bytes for an input, constant or state.
pub fn seed(index: usize, bytes: u64) -> Vec<u8> {
    noise(index as u64 + 1, usize::try_from(bytes).unwrap())
}

fn noise(mut key: u64, bytes: usize) -> Vec<u8> {
    let next = || {
        key = key.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (key >> 33) as u8
    };
    std::iter::repeat_with(next).take(bytes).collect()
}

fn mix(mut key: u64, bytes: &[u8]) -> u64 {
    for &byte in bytes {
        key = (key ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    key ^ (key >> 29)
}

fn start(id: NodeId, position: usize, at: usize) -> u64 {
    let words = [id.index(), position, at].map(|word| word as u64);
    words.iter().fold(0xcbf2_9ce4_8422_2325, |key, word| mix(key, &word.to_le_bytes()))
}

/// How one output of a node is made.
enum Recipe {
    /// It shows inputs.
    Views,
    /// In so many pieces, each from the same piece of these inputs.
    Pieces(usize, Vec<usize>),
    /// Byte by byte, each from this input from so many bytes before it on.
    InOrder(usize, usize),
    /// Byte by byte, each from the same byte of these inputs.
    Elementwise(Vec<usize>),
    /// From all inputs.
    Whole,
}

fn recipe(node: &Node, position: usize) -> Recipe {
    let effects = node.effects();
    if effects.views.iter().any(|view| view.output == position) {
        return Recipe::Views;
    }
    if let Some(flow) = effects.flows.iter().find(|flow| flow.output == position) {
        return Recipe::Pieces(usize::try_from(flow.pieces).unwrap(), flow.follows.clone());
    }
    if let Some(overlap) = effects.overlaps.iter().find(|overlap| overlap.output == position) {
        return Recipe::InOrder(overlap.input, usize::try_from(overlap.distance).unwrap());
    }
    let taken = effects.in_place.iter().filter(|pair| pair.output == position);
    let taken: Vec<_> = taken.map(|pair| pair.input).collect();
    if taken.is_empty() { Recipe::Whole } else { Recipe::Elementwise(taken) }
}

/// Computes some bytes of an output.
fn compute(
    graph: &Graph,
    id: NodeId,
    position: usize,
    range: Range<usize>,
    read: &mut Read<'_>,
) -> Vec<u8> {
    let node = graph.node(id);
    let bytes = size(graph, node.output(position).unwrap());
    let reads: Vec<_> = node.reads_bytes_of().map(|(at, value)| (at, size(graph, value))).collect();
    let mut made = Vec::with_capacity(range.len());
    match recipe(node, position) {
        Recipe::Views => {
            made = noise(start(id, position, 0), bytes);
            for view in node.effects().views.iter().filter(|view| view.output == position) {
                let offset = usize::try_from(view.offset).unwrap();
                let Some(shown) = node.input(view.input) else { continue };
                let place = match view.whole {
                    Whole::Input => 0..bytes,
                    Whole::Output => offset..offset + size(graph, shown),
                };
                let needed = place.start.max(range.start)..place.end.min(range.end);
                if needed.start < needed.end {
                    let from = match view.whole {
                        Whole::Input => needed.start + offset..needed.end + offset,
                        Whole::Output => needed.start - offset..needed.end - offset,
                    };
                    made[needed].copy_from_slice(&read(view.input, from));
                }
            }
            return made[range].to_vec();
        }
        Recipe::Pieces(pieces, follows) => {
            let piece = bytes / pieces;
            let Some(first) = range.start.checked_div(piece) else { return made };
            for at in first..range.end.div_ceil(piece) {
                let mut key = start(id, position, at);
                for &(input, bytes) in &reads {
                    let share = bytes / pieces;
                    let all = if follows.contains(&input) {
                        at * share..(at + 1) * share
                    } else {
                        0..bytes
                    };
                    key = mix(key, &read(input, all));
                }
                made.extend(noise(key, piece));
            }
            let skipped = range.start - first * piece;
            return made[skipped..skipped + range.len()].to_vec();
        }
        Recipe::InOrder(used, distance) => {
            for at in range {
                let mut key = start(id, position, at);
                for &(input, bytes) in &reads {
                    let from = if input == used { at.saturating_sub(distance) } else { 0 };
                    key = mix(key, &read(input, from.min(bytes)..bytes));
                }
                made.extend(noise(key, 1));
            }
        }
        Recipe::Elementwise(taken) => {
            let mut whole = start(id, position, 0);
            let mut parts = Vec::new();
            for &(input, bytes) in &reads {
                if taken.contains(&input) {
                    parts.push(read(input, range.start.min(bytes)..range.end.min(bytes)));
                } else {
                    whole = mix(whole, &read(input, 0..bytes));
                }
            }
            for at in 0..range.len() {
                let elements: Vec<u8> =
                    parts.iter().filter_map(|part| part.get(at).copied()).collect();
                made.extend(noise(mix(mix(whole, &[(range.start + at) as u8]), &elements), 1));
            }
        }
        Recipe::Whole => {
            let mut key = start(id, position, 0);
            for &(input, bytes) in &reads {
                key = mix(key, &read(input, 0..bytes));
            }
            made = noise(key, bytes)[range].to_vec();
        }
    }
    made
}

/// Returns what every value holds when the graph has run, each in memory of its own.
pub fn reference(graph: &Graph) -> Vec<Vec<u8>> {
    let values = graph.values().iter().enumerate();
    let mut contents: Vec<_> = values.map(|(index, value)| seed(index, value.bytes())).collect();
    for &id in graph.order() {
        let node = graph.node(id);
        for (position, output) in node.produces() {
            let mut read = |input, range: Range<usize>| {
                contents[node.input(input).unwrap().index()][range].to_vec()
            };
            let made = compute(graph, id, position, 0..size(graph, output), &mut read);
            contents[output.index()] = made;
        }
    }
    contents
}

/// Bytes that a step was lent.
struct Lent<'m> {
    inputs: Vec<Input<'m>>,
    outputs: Vec<Output<'m>>,
}

impl Lent<'_> {
    /// Reads an operand where it is now.
    fn read(
        &self,
        graph: &Graph,
        step: ProgramStep<'_>,
        input: usize,
        range: Range<usize>,
    ) -> Vec<u8> {
        let bytes = match &self.inputs[input] {
            Input::Shared(bytes) => &bytes[range],
            Input::State(bytes) => &bytes[range],
            &Input::Within { output, offset } => match &self.outputs[output] {
                Output::Exclusive(bytes) => &bytes[offset + range.start..offset + range.end],
                other => panic!("{other:?} holds no input"),
            },
            Input::External => {
                let value = step.inputs().nth(input).unwrap().value.unwrap();
                return seed(value.index(), graph.value(value).bytes())[range].to_vec();
            }
            other => panic!("{other:?} is read"),
        };
        bytes.to_vec()
    }

    /// Writes some bytes of an output.
    fn write(&mut self, output: usize, at: usize, bytes: &[u8]) {
        if let Output::Exclusive(to) = &mut self.outputs[output] {
            to[at..at + bytes.len()].copy_from_slice(bytes);
        }
    }
}

/// Runs one step in the memory that it is lent.
fn run_step(graph: &Graph, step: ProgramStep<'_>, lent: &mut Lent<'_>) {
    let nodes: Vec<_> = step.nodes().collect();
    let node = graph.node(step.node());
    if nodes.len() > 1 {
        let (position, output) = node.produces().next().unwrap();
        let bytes = size(graph, output);
        let pieces = nodes.iter().fold(0, |pieces, &id| gcd(pieces, piece_count(graph, id)));
        for at in 0..pieces {
            let range = at * (bytes / pieces)..(at + 1) * (bytes / pieces);
            let mut group = Group { graph, step, nodes: &nodes, lent, made: HashMap::new() };
            let made = group.compute(step.node(), position, range.clone());
            lent.write(0, range.start, &made);
        }
        return;
    }
    let outputs: Vec<_> = node.produces().collect();
    let mut late = Vec::new();
    for &(position, output) in &outputs {
        let bytes = size(graph, output);
        if matches!(lent.outputs[position], Output::Within { .. }) {
            continue;
        }
        let piece = match recipe(node, position) {
            Recipe::Pieces(pieces, _) => bytes / pieces,
            Recipe::InOrder(..) => 1,
            // Not one by one, to be done sooner.
            Recipe::Elementwise(_) => bytes.div_ceil(4),
            Recipe::Views | Recipe::Whole => bytes,
        };
        for at in (0..bytes).step_by(piece.max(1)) {
            let range = at..(at + piece).min(bytes);
            let mut read = |input, range| lent.read(graph, step, input, range);
            let made = compute(graph, step.node(), position, range, &mut read);
            if outputs.len() == 1 {
                lent.write(position, at, &made);
            } else {
                late.push((position, at, made));
            }
        }
    }
    for (position, at, made) in late {
        lent.write(position, at, &made);
    }
}

fn piece_count(graph: &Graph, id: NodeId) -> usize {
    let flow = graph.node(id).effects().flows.first().map(|flow| flow.pieces);
    let (_, made) = graph.node(id).produces().next().unwrap();
    usize::try_from(flow.or(graph.value(made).elements()).unwrap()).unwrap()
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// Nodes that run as one, at one piece.
struct Group<'a, 'm> {
    graph: &'a Graph,
    step: ProgramStep<'a>,
    nodes: &'a [NodeId],
    lent: &'a Lent<'m>,
    /// What was made for this piece.
    made: HashMap<(ValueId, Range<usize>), Vec<u8>>,
}

impl Group<'_, '_> {
    fn compute(&mut self, id: NodeId, position: usize, range: Range<usize>) -> Vec<u8> {
        let graph = self.graph;
        let node = graph.node(id);
        let mut read = |input: usize, range| self.value(node.input(input).unwrap(), range);
        compute(graph, id, position, range, &mut read)
    }

    fn value(&mut self, value: ValueId, range: Range<usize>) -> Vec<u8> {
        let graph = self.graph;
        match graph.producer(value).filter(|producer| self.nodes.contains(producer)) {
            None => {
                let input = self.step.input_of(value).expect("it is read from outside");
                self.lent.read(graph, self.step, input, range)
            }
            Some(producer) => {
                if let Some(made) = self.made.get(&(value, range.clone())) {
                    return made.clone();
                }
                let made = self.compute(producer, 0, range.clone());
                self.made.insert((value, range), made.clone());
                made
            }
        }
    }
}

/// Writes the graph's inputs and states.
pub fn supply(graph: &Graph, plan: &Plan, arena: &mut Arena<'_>) -> Result<()> {
    for (index, value) in graph.values().iter().enumerate() {
        if matches!(value.kind(), ValueKind::Input | ValueKind::State) {
            let bytes = arena.value_mut(plan, ValueId::new(index))?;
            bytes.copy_from_slice(&seed(index, value.bytes()));
        }
    }
    Ok(())
}

/// Runs one step in its memory, garbage in every workspace.
pub fn run_lent(graph: &Graph, mut memory: StepMemory<'_>) -> Result<()> {
    let step = memory.step();
    let mut lent = Lent {
        inputs: step.inputs().map(|_| Input::Absent).collect(),
        outputs: step.outputs().map(|_| Output::Absent).collect(),
    };
    let mut workspaces: Vec<_> = step.workspaces().map(|_| Default::default()).collect();
    memory.lend(&mut lent.inputs, &mut lent.outputs, &mut workspaces)?;
    workspaces.iter_mut().for_each(|bytes: &mut &mut [u8]| bytes.fill(0xa5));
    run_step(graph, step, &mut lent);
    Ok(())
}

/// Runs a program, garbage in every workspace, and compares what each step leaves with the
/// reference.
pub fn run(graph: &Graph, program: &Program, arena: &mut Arena<'_>) -> Result<()> {
    let expected = reference(graph);
    let plan = program.plan();
    supply(graph, plan, arena)?;
    for step in program.steps() {
        run_lent(graph, arena.step(program, step)?)?;
        for made in step.outputs().filter_map(|output| output.value) {
            let found = arena.value(plan, made)?;
            assert_eq!(found, expected[made.index()], "{} makes other bytes", step.name());
        }
    }
    for &output in graph.outputs().iter().filter(|output| graph.value(**output).is_planned()) {
        assert_eq!(arena.value(plan, output)?, expected[output.index()], "output {output}");
    }
    Ok(())
}
