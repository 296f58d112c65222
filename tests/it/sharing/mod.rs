//! Storage sharing: what NNVM answers on graphs small enough to follow, and where ours has
//! to do better.

mod cases;
mod laws;
mod storage;
mod variables;

use arenaplan::graph::InPlace;
use arenaplan::{DType, Effects, Graph, Node, Value, ValueId, ValueKind};
use arenaplan_classic::sharing::{SharingOptions, StoragePlan, share_storage};

/// Builds graphs of named `float32` arrays, ten elements each unless said otherwise.
struct Net {
    builder: arenaplan::GraphBuilder,
    names: Vec<String>,
}

const I0: &[(usize, usize, bool)] = &[(0, 0, false)];
const I01: &[(usize, usize, bool)] = &[(0, 0, false), (1, 0, false)];
const ID: &[(usize, usize, bool)] = &[(0, 0, true)];
const P: &[(usize, usize, bool)] = &[];

impl Net {
    fn new() -> Self {
        Self { builder: Graph::builder("net"), names: Vec::new() }
    }

    fn value(&mut self, name: &str, kind: ValueKind, dtype: DType, shape: &[u64]) -> ValueId {
        self.names.push(name.into());
        self.builder.add_value(Value::new(name, kind, dtype, shape).unwrap())
    }

    fn input(&mut self, name: &str) -> ValueId {
        self.value(name, ValueKind::Input, DType::FLOAT32, &[10])
    }

    /// Adds a node with one output of ten elements.
    fn op(&mut self, name: &str, pairs: &[(usize, usize, bool)], inputs: &[ValueId]) -> ValueId {
        self.sized(name, pairs, inputs, &[&[10]])[0]
    }

    fn sized(
        &mut self,
        name: &str,
        pairs: &[(usize, usize, bool)],
        inputs: &[ValueId],
        shapes: &[&[u64]],
    ) -> Vec<ValueId> {
        let outputs: Vec<ValueId> = shapes
            .iter()
            .enumerate()
            .map(|(slot, shape)| {
                let name = if slot == 0 { name.to_owned() } else { format!("{name}{slot}") };
                self.value(&name, ValueKind::Activation, DType::FLOAT32, shape)
            })
            .collect();
        let pair =
            |&(input, output, identity): &(usize, usize, bool)| InPlace { input, output, identity };
        let effects = Effects { in_place: pairs.iter().map(pair).collect(), ..Effects::default() };
        let node = Node::new(name, "Op").reads(inputs.iter().copied());
        self.builder.add_node(node.writes(outputs.clone()).with_effects(effects));
        outputs
    }

    fn build(mut self, outputs: &[ValueId]) -> Graph {
        outputs.iter().for_each(|&output| self.builder.add_output(output));
        self.builder.build().unwrap()
    }
}

fn nnvm(graph: &Graph) -> StoragePlan {
    share_storage(graph, &SharingOptions::nnvm()).unwrap()
}

/// Returns `id (in-place index)` of the values that nodes produce.
fn codes(graph: &Graph, plan: &StoragePlan) -> Vec<(i64, i64)> {
    (0..graph.values().len())
        .map(ValueId::new)
        .filter(|&value| graph.producer(value).is_some())
        .map(|value| (plan.storage(value).code(), plan.taken_from()[value.index()].code()))
        .collect()
}

fn ids(graph: &Graph, plan: &StoragePlan) -> Vec<i64> {
    codes(graph, plan).into_iter().map(|(id, _)| id).collect()
}
/// Adds an operator that ignores input 0 and offers to take it over.
fn ignoring(net: &mut Net, name: &str, input: ValueId) -> ValueId {
    let output = net.value(name, ValueKind::Activation, DType::FLOAT32, &[10]);
    let pair = InPlace { input: 0, output: 0, identity: false };
    let effects = Effects { in_place: vec![pair], ignores: vec![0], ..Effects::default() };
    net.builder
        .add_node(Node::new(name, "Op").reads([input]).writes([output]).with_effects(effects));
    output
}

/// Two branches from `a` that meet in `j`.
fn branches() -> Graph {
    let mut net = Net::new();
    let x = net.input("x");
    let a = net.op("a", P, &[x]);
    let l1 = net.op("l1", P, &[a]);
    let l2 = net.op("l2", P, &[l1]);
    let l3 = net.op("l3", P, &[l2]);
    let r1 = net.op("r1", P, &[a]);
    let r2 = net.op("r2", P, &[r1]);
    let j = net.op("j", P, &[l3, r2]);
    net.build(&[j])
}
