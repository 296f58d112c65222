//! Graphs to test on: small ones by hand, and random ones with random effects.

use arenaplan::graph::{Choice, InPlace, View, Whole, Workspace};
use arenaplan::{DType, Effects, Graph, GraphBuilder, Node, NodeId, Value, ValueId, ValueKind};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

/// Builds graphs of `UINT8` arrays, so that elements are bytes.
pub struct Sketch {
    pub builder: GraphBuilder,
    pub values: Vec<(ValueId, u64)>,
}

impl Sketch {
    pub fn new() -> Self {
        Self { builder: Graph::builder("sketch"), values: Vec::new() }
    }

    pub fn value(&mut self, name: &str, kind: ValueKind, bytes: u64) -> ValueId {
        self.array(name, kind, &[bytes])
    }

    /// Adds a value of several dimensions; what is not said otherwise has one.
    pub fn array(&mut self, name: &str, kind: ValueKind, shape: &[u64]) -> ValueId {
        let value = Value::new(name, kind, DType::UINT8, shape).unwrap();
        let id = self.builder.add_value(value);
        self.values.push((id, shape.iter().product()));
        id
    }

    pub fn input(&mut self, name: &str, bytes: u64) -> ValueId {
        self.value(name, ValueKind::Input, bytes)
    }

    /// Adds a node `name` that reads `inputs` and writes one value of the same name.
    pub fn node(&mut self, name: &str, inputs: &[ValueId], bytes: u64) -> ValueId {
        self.effectful(name, inputs, bytes, Effects::default())
    }

    pub fn effectful(
        &mut self,
        name: &str,
        inputs: &[ValueId],
        bytes: u64,
        effects: Effects,
    ) -> ValueId {
        let output = self.value(name, ValueKind::Activation, bytes);
        let node = Node::new(name, "Op").reads(inputs.iter().copied()).writes([output]);
        self.builder.add_node(node.with_effects(effects));
        output
    }

    pub fn build(mut self, outputs: &[ValueId]) -> Graph {
        outputs.iter().for_each(|&output| self.builder.add_output(output));
        self.builder.build().unwrap()
    }
}

/// The output of position 0 may take over input `input`.
pub fn in_place(input: usize) -> Effects {
    Effects { in_place: vec![InPlace { input, output: 0, identity: false }], ..Effects::default() }
}

/// The output of position 0 shows all of input 0.
pub fn reshape() -> Effects {
    let view = View { input: 0, output: 0, offset: 0, whole: Whole::Input };
    Effects { views: vec![view], ..Effects::default() }
}

/// Returns values of a strategy that are the same in every run: a change of the checker is noticed
/// without random cases.
pub fn same<T>(strategy: impl Strategy<Value = T>, count: usize) -> Vec<T> {
    let mut runner = TestRunner::deterministic();
    (0..count).map(|_| strategy.new_tree(&mut runner).unwrap().current()).collect()
}

/// One node of a random graph, as choices that are made to fit when it is built.
#[derive(Clone, Debug)]
pub struct RandomNode {
    inputs: Vec<prop::sample::Index>,
    bytes: Vec<u64>,
    kind: u8,
    ignored: bool,
    workspace: Option<(u64, u64)>,
    control: Option<prop::sample::Index>,
    is_output: bool,
}

fn random_node() -> impl Strategy<Value = RandomNode> {
    (
        prop::collection::vec(any::<prop::sample::Index>(), 0..4),
        prop::collection::vec(0_u64..300, 0..3),
        0_u8..6,
        prop::bool::weighted(0.1),
        prop::option::weighted(0.3, (0_u64..200, 0_u64..400)),
        prop::option::weighted(0.2, any::<prop::sample::Index>()),
        prop::bool::weighted(0.15),
    )
        .prop_map(|(inputs, bytes, kind, ignored, workspace, control, is_output)| RandomNode {
            inputs,
            bytes,
            kind,
            ignored,
            workspace,
            control,
            is_output,
        })
}

/// Random graphs: any shape, reshapes, in-place chains, constants, states, dead outputs,
/// ignored inputs, workspaces, control dependencies.
pub fn graphs(nodes: usize) -> impl Strategy<Value = Graph> {
    let inputs = prop::collection::vec((0_u64..300, 0_u8..8), 1..4);
    (inputs, prop::collection::vec(random_node(), 0..nodes)).prop_map(|(inputs, nodes)| {
        let mut sketch = Sketch::new();
        for (index, (bytes, kind)) in inputs.into_iter().enumerate() {
            let kind = match kind {
                0 => ValueKind::State,
                1 => ValueKind::Constant,
                _ => ValueKind::Input,
            };
            sketch.value(&format!("in{index}"), kind, bytes);
        }
        for (index, node) in nodes.into_iter().enumerate() {
            add_random(&mut sketch, index, &node);
        }
        sketch.builder.build().unwrap()
    })
}

fn add_random(sketch: &mut Sketch, index: usize, random: &RandomNode) {
    let inputs: Vec<(ValueId, u64)> =
        random.inputs.iter().map(|choice| *choice.get(&sketch.values)).collect();
    let first = inputs.first().map(|&(_, bytes)| bytes);
    let mut bytes = random.bytes.clone();
    let mut effects = Effects::default();
    match (random.kind, first) {
        // A reshape of input 0.
        (0, Some(first)) => {
            bytes = vec![first];
            effects = reshape();
        }
        // Elementwise: every input of the output's size may be taken over.
        (1..=3, Some(first)) => {
            bytes = vec![first];
            for (position, &(_, other)) in inputs.iter().enumerate() {
                if other >= first {
                    let pair = InPlace { input: position, output: 0, identity: false };
                    effects.in_place.push(pair);
                }
            }
        }
        // A slice of input 0, or a concatenation of all inputs.
        (4, Some(first)) => {
            bytes = vec![first / 2];
            effects.views =
                vec![View { input: 0, output: 0, offset: first / 4, whole: Whole::Input }];
        }
        (5, Some(_)) => {
            bytes = vec![inputs.iter().map(|&(_, bytes)| bytes).sum()];
            let mut offset = 0;
            for (position, &(_, piece)) in inputs.iter().enumerate() {
                effects.views.push(View {
                    input: position,
                    output: 0,
                    offset,
                    whole: Whole::Output,
                });
                offset += piece;
            }
        }
        _ => {}
    }
    if random.ignored && !inputs.is_empty() && effects.views.is_empty() {
        effects.ignores = vec![inputs.len() - 1];
    }
    if let Some((small, large)) = random.workspace {
        let choices =
            [small, small + large].map(|bytes| Choice { bytes, cost: 1.0 / (1.0 + bytes as f64) });
        let alignment = arenaplan::base::Alignment::BYTE;
        effects.workspaces = vec![Workspace { choices: choices.into(), alignment }];
    }
    let outputs: Vec<ValueId> = bytes
        .iter()
        .enumerate()
        .map(|(slot, &bytes)| {
            sketch.value(&format!("v{index}_{slot}"), ValueKind::Activation, bytes)
        })
        .collect();
    if random.is_output {
        outputs.iter().for_each(|&output| sketch.builder.add_output(output));
    }
    let mut node = Node::new(format!("n{index}"), "Op")
        .reads(inputs.iter().map(|&(value, _)| value))
        .writes(outputs)
        .with_effects(effects);
    if let Some(control) = random.control.filter(|_| index > 0) {
        node = node.after([NodeId::new(control.index(index))]);
    }
    sketch.builder.add_node(node);
}
