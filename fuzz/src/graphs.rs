//! Graphs and options made of bytes: every effect that a node can declare.

use arbitrary::{Result, Unstructured};
use arenaplan::base::Alignment;
use arenaplan::graph::{Choice, Flow, InPlace, Overlap, View, Whole, Window, Workspace};
use arenaplan::pack::Space;
use arenaplan::plan::{Effort, InputMemory, OutputMemory, WorkspacePolicy};
use arenaplan::{
    Budget, DType, Effects, Graph, GraphBuilder, Node, NodeId, Planner, SpaceId, Target, Technique,
    Techniques, Value, ValueId, ValueKind,
};

/// Most nodes of a graph: plans stay quick, so that many are tried.
const MOST_NODES: usize = 14;

/// A graph while it is made, and the bytes of its values.
struct Sketch {
    builder: GraphBuilder,
    values: Vec<(ValueId, u64)>,
}

/// Returns a graph, or nothing if the bytes describe none that is valid.
pub fn graph(bytes: &mut Unstructured<'_>) -> Result<Option<Graph>> {
    let mut sketch = Sketch { builder: Graph::builder("fuzzed"), values: Vec::new() };
    let several = bytes.ratio(1, 8)?;
    if bytes.ratio(1, 4)? {
        let space = Space::default().with_alignment(alignment(bytes)?);
        sketch.builder.set_default_space(match bytes.arbitrary::<Option<u16>>()? {
            Some(capacity) => space.with_capacity(capacity.into()),
            None => space,
        });
    }
    if several {
        sketch
            .builder
            .add_space(Space::new("other").with_capacity(bytes.arbitrary::<u16>()?.into()));
    }
    for index in 0..bytes.int_in_range(1..=4_usize)? {
        let kinds = [ValueKind::Input, ValueKind::Input, ValueKind::State, ValueKind::Constant];
        let kind = *bytes.choose(&kinds)?;
        let size = size(bytes)?;
        let mut value = value(&format!("in{index}"), kind, size);
        if bytes.ratio(1, 16)? {
            value = value.with_pin(bytes.int_in_range(0..=40_u64)? * 8);
        }
        if several && bytes.ratio(1, 2)? {
            value = value.with_space(SpaceId::new(1));
        }
        if bytes.ratio(1, 16)? {
            value = value.with_alignment(alignment(bytes)?);
        }
        sketch.add(value, size);
    }
    let supplied = sketch.values.len();
    for index in 0..bytes.int_in_range(0..=MOST_NODES)? {
        add_node(&mut sketch, index, bytes)?;
    }
    if let (Some(&(last, _)), true) = (sketch.values.last(), bytes.ratio(7, 8)?) {
        sketch.builder.add_output(last);
    }
    let (given, made) = sketch.values.split_at(supplied);
    let alike = |&(new, bytes): &(ValueId, u64)| {
        let same = given.iter().filter(move |&&(_, size)| size == bytes);
        same.map(move |&(old, _)| (new, old))
    };
    let pairs: Vec<_> = made.iter().flat_map(alike).collect();
    if !pairs.is_empty() && bytes.int_in_range(0..=3_u8)? == 3 {
        let &(new, old) = bytes.choose(&pairs)?;
        sketch.builder.add_write_back(new, old);
    }
    let Ok(graph) = sketch.builder.build() else { return Ok(None) };
    if made.is_empty() || bytes.int_in_range(0..=3_u8)? < 3 {
        return Ok(Some(graph));
    }
    let &(pinned, _) = bytes.choose(made)?;
    Ok(graph.with_pins([(pinned, bytes.int_in_range(0..=40_u64)? * 8)]).ok())
}

impl Sketch {
    fn add(&mut self, value: Value, bytes: u64) -> ValueId {
        let id = self.builder.add_value(value);
        self.values.push((id, bytes));
        id
    }
}

fn value(name: &str, kind: ValueKind, bytes: u64) -> Value {
    Value::new(name, kind, DType::UINT8, [bytes]).expect("it is small")
}

/// Sizes that cut into pieces, and others.
fn size(bytes: &mut Unstructured<'_>) -> Result<u64> {
    Ok(match bytes.int_in_range(0..=9_u8)? {
        0 => bytes.int_in_range(0..=300)?,
        1 => 0,
        2 => 1,
        even => [8, 16, 24, 48, 64, 64, 128, 256][usize::from(even - 2)],
    })
}

fn alignment(bytes: &mut Unstructured<'_>) -> Result<Alignment> {
    Ok(Alignment::new(1 << bytes.int_in_range(0..=8_u8)?).expect("it is a power of two"))
}

/// Returns a power of two that divides all of some sizes.
fn pieces(bytes: &mut Unstructured<'_>, sizes: impl Iterator<Item = u64>) -> Result<u64> {
    let most = sizes.map(|size| if size == 0 { 0 } else { size.trailing_zeros() }).min();
    Ok(1 << bytes.int_in_range(0..=most.unwrap_or(0))?)
}

/// Returns the sizes of the outputs of a node, and its effects.
fn effects(bytes: &mut Unstructured<'_>, inputs: &[(ValueId, u64)]) -> Result<(Vec<u64>, Effects)> {
    let mut effects = Effects::default();
    let made = size(bytes)?;
    let Some(&(_, first)) = inputs.first() else { return Ok((vec![made], effects)) };
    let pair = |input| InPlace { input, output: 0, identity: false };
    let made = match bytes.int_in_range(0..=12_u8)? {
        // All of input 0 in another shape.
        0 | 1 => {
            effects.views.push(View { input: 0, output: 0, offset: 0, whole: Whole::Input });
            first
        }
        // A slice.
        2 => {
            let offset = bytes.int_in_range(0..=first)?;
            effects.views.push(View { input: 0, output: 0, offset, whole: Whole::Input });
            bytes.int_in_range(0..=first - offset)?
        }
        // A concatenation.
        3 | 4 => {
            let mut offset = 0;
            for (input, &(_, bytes)) in inputs.iter().enumerate() {
                effects.views.push(View { input, output: 0, offset, whole: Whole::Output });
                offset += bytes;
            }
            offset
        }
        // Elementwise.
        5 | 6 => {
            let same = (0..inputs.len()).filter(|&input| inputs[input].1 == first);
            let same: Vec<_> = same.collect();
            if first > 0 {
                let flow = Flow { output: 0, pieces: first, follows: same.clone() };
                effects.flows.push(flow);
            }
            effects.in_place = same.into_iter().map(pair).collect();
            first
        }
        // In place, without pieces.
        7 => {
            let larger = (0..inputs.len()).filter(|&input| inputs[input].1 >= first);
            effects.in_place = larger.map(pair).collect();
            first
        }
        // Pieces of the output from pieces of some inputs.
        8 | 9 => {
            let count = pieces(bytes, [made, first].into_iter())?;
            let is_followed = bytes.ratio(2, 3)? && first % count == 0;
            let follows = if is_followed { vec![0] } else { vec![] };
            if made % count == 0 {
                effects.flows.push(Flow { output: 0, pieces: count, follows });
            }
            if bytes.arbitrary()? {
                effects.loads.push(0);
            }
            made
        }
        // Made in order.
        10 => {
            let distance = bytes.int_in_range(0..=made)?;
            effects.overlaps.push(Overlap { input: 0, output: 0, distance });
            made
        }
        // Elementwise as rows that a window slides over.
        11 => {
            let window =
                Window { input: 0, output: 0, axis: 0, extent: 1, stride: 1, before: 0, scale: 1 };
            effects.windows.push(window);
            effects.in_place.push(pair(0));
            first
        }
        _ => made,
    };
    let mut outputs = vec![made];
    if effects == Effects::default() && bytes.ratio(1, 4)? {
        outputs.push(size(bytes)?);
    }
    Ok((outputs, effects))
}

fn add_node(sketch: &mut Sketch, index: usize, bytes: &mut Unstructured<'_>) -> Result<()> {
    let near = sketch.values.len().saturating_sub(5);
    let count = bytes.int_in_range(0..=3_usize)?;
    let inputs = (0..count).map(|_| bytes.choose(&sketch.values[near..]).copied());
    let inputs: Vec<_> = inputs.collect::<Result<_>>()?;
    let (made, mut effects) = effects(bytes, &inputs)?;
    if bytes.ratio(1, 8)? && effects.views.is_empty() && effects.flows.is_empty() && count > 0 {
        effects.ignores.push(count - 1);
    }
    for _ in 0..bytes.int_in_range(0..=5_u8)?.saturating_sub(3) {
        let choices = [size(bytes)?, size(bytes)?];
        let choices = choices.map(|bytes| Choice { bytes, cost: 1.0 / (1.0 + bytes as f64) });
        let alignment = alignment(bytes)?;
        effects.workspaces.push(Workspace { choices: choices.into(), alignment });
    }
    if bytes.ratio(1, 8)? {
        effects.staging = Some(effects.workspaces.clone());
    }
    effects.repeats = bytes.ratio(1, 8)?;
    effects.pure = bytes.ratio(1, 3)?;
    if bytes.ratio(1, 32)? && count > 0 {
        effects.mutates.push(0);
    }
    let mut outputs = Vec::new();
    for (slot, bytes) in made.into_iter().enumerate() {
        let value = value(&format!("v{index}_{slot}"), ValueKind::Activation, bytes);
        outputs.push(sketch.add(value, bytes));
    }
    if bytes.ratio(1, 8)? {
        outputs.iter().for_each(|&output| sketch.builder.add_output(output));
    }
    let mut node = Node::new(format!("n{index}"), "Op")
        .reads(inputs.iter().map(|&(value, _)| value))
        .writes(outputs)
        .with_effects(effects);
    if index > 0 && bytes.ratio(1, 8)? {
        node = node.after([NodeId::new(bytes.int_in_range(0..=index - 1)?)]);
    }
    sketch.builder.add_node(node);
    Ok(())
}

static TARGETS: [Target; 9] = Target::KNOWN;

/// Returns a planner with any target and options, some of which contradict each other.
pub fn planner(bytes: &mut Unstructured<'_>) -> Result<Planner<'static>> {
    let target = bytes.choose(&TARGETS)?;
    let mut planner = Planner::new().target(target).effort(Effort::Fast);
    let mut budget = Budget::default();
    budget.nodes = Some(bytes.int_in_range(0..=500)?);
    planner = planner.budget(budget);
    if bytes.ratio(1, 2)? {
        planner = planner.alignment(1 << bytes.int_in_range(0..=9_u8)?);
    }
    if bytes.ratio(1, 4)? {
        let all = Technique::ALL.into_iter();
        let mut techniques = Techniques::NONE;
        for technique in all.filter(|&technique| target.techniques().contains(technique)) {
            if bytes.arbitrary()? {
                techniques = techniques.with(technique);
            }
        }
        planner = planner.optimize(techniques);
    }
    if bytes.ratio(1, 8)? {
        planner = planner.preserve_inputs(true);
    }
    if bytes.ratio(1, 8)? {
        planner = planner.inputs(InputMemory::Caller);
    }
    if bytes.ratio(1, 8)? {
        planner = planner.outputs(OutputMemory::Caller);
    }
    if bytes.ratio(1, 8)? {
        planner = planner.parallel_safe(true);
    }
    if bytes.ratio(1, 8)? {
        planner = planner.workers(bytes.int_in_range(0..=3)?);
    }
    if bytes.ratio(1, 2)? {
        planner = planner.workspace(WorkspacePolicy::Auto);
    }
    if bytes.ratio(1, 4)? {
        planner = planner.capacity(bytes.arbitrary::<u16>()?.into());
    }
    if bytes.ratio(1, 8)? {
        planner = planner.room(bytes.arbitrary::<u16>()?.into());
    }
    Ok(planner)
}
