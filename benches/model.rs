//! Model files: a family of 96 shapes, read and checked.
#![allow(missing_docs, clippy::unwrap_used, reason = "a benchmark is no library")]

use std::hint::black_box;

use arenaplan::model::Bucket;
use arenaplan::{DType, Graph, GraphBuilder, Model, Node, Planner, Value, ValueId, ValueKind};
use criterion::{Criterion, criterion_group, criterion_main};

/// Adds values and nodes with names of their own.
struct Layers {
    builder: GraphBuilder,
    count: usize,
}

impl Layers {
    fn value(&mut self, kind: ValueKind, shape: &[u64]) -> ValueId {
        self.count += 1;
        let name = format!("model.encoder.value_{}", self.count);
        self.builder.add_value(Value::new(name, kind, DType::FLOAT32, shape).unwrap())
    }

    fn node(&mut self, op: &str, inputs: &[ValueId], shape: &[u64]) -> ValueId {
        let output = self.value(ValueKind::Activation, shape);
        let name = format!("model.encoder.{op}_{}", self.count);
        let pieces: u64 = shape.iter().product();
        let mut node = Node::new(name, op).reads(inputs.iter().copied()).writes([output]);
        match op {
            "Reshape" => node = node.view(0, 0),
            "Add" | "Gelu" | "Softmax" => {
                node = node.in_place(0, 0).flow(0, pieces, [0]);
            }
            "MatMul" => node = node.flow(0, shape[..shape.len() - 1].iter().product(), [0]),
            _ => {}
        }
        self.builder.add_node(node);
        output
    }
}

/// Builds an encoder like BERT's: with 12 layers, 326 nodes.
fn encoder(layers: usize, batch: u64, seq: u64) -> Graph {
    const WIDTH: u64 = 768;
    const HEADS: u64 = 12;
    let mut of = Layers { builder: Graph::builder("encoder"), count: 0 };
    let flat = [batch, seq, WIDTH];
    let split = [batch, seq, HEADS, WIDTH / HEADS];
    let heads = [batch, HEADS, seq, WIDTH / HEADS];
    let mut x = of.value(ValueKind::Input, &flat);
    for _ in 0..layers {
        let mut rows = Vec::new();
        for _ in 0..3 {
            let weight = of.value(ValueKind::Constant, &[WIDTH, WIDTH]);
            let row = of.node("MatMul", &[x, weight], &flat);
            let bias = of.value(ValueKind::Constant, &[WIDTH]);
            let row = of.node("Add", &[row, bias], &flat);
            let row = of.node("Reshape", &[row], &split);
            rows.push(of.node("Transpose", &[row], &heads));
        }
        let scores = of.node("MatMul", &[rows[0], rows[1]], &[batch, HEADS, seq, seq]);
        let scores = of.node("Softmax", &[scores], &[batch, HEADS, seq, seq]);
        let mixed = of.node("MatMul", &[scores, rows[2]], &heads);
        let mixed = of.node("Transpose", &[mixed], &split);
        let mixed = of.node("Reshape", &[mixed], &flat);
        let weight = of.value(ValueKind::Constant, &[WIDTH, WIDTH]);
        let mixed = of.node("MatMul", &[mixed, weight], &flat);
        let sum = of.node("Add", &[mixed, x], &flat);
        let normal = of.node("Norm", &[sum], &flat);
        let wide = [batch, seq, 4 * WIDTH];
        let weight = of.value(ValueKind::Constant, &[WIDTH, 4 * WIDTH]);
        let hidden = of.node("MatMul", &[normal, weight], &wide);
        let bias = of.value(ValueKind::Constant, &[4 * WIDTH]);
        let hidden = of.node("Add", &[hidden, bias], &wide);
        let hidden = of.node("Gelu", &[hidden], &wide);
        let weight = of.value(ValueKind::Constant, &[4 * WIDTH, WIDTH]);
        let hidden = of.node("MatMul", &[hidden, weight], &flat);
        let sum = of.node("Add", &[hidden, normal], &flat);
        x = of.node("Norm", &[sum], &flat);
    }
    of.builder.add_output(x);
    of.builder.build().unwrap()
}

/// Returns a family of 96 shapes: batches from 1 to 32, three lengths.
fn family(layers: usize) -> Model {
    let mut builder = Model::builder("encoder", ["batch", "seq"]);
    for batch in 1..=32 {
        for seq in [16, 32, 128] {
            let graph = encoder(layers, batch, seq);
            let plan = Planner::new().plan(&graph).unwrap();
            builder.add(&[batch, seq], &graph, &plan).unwrap();
        }
    }
    builder.build().unwrap()
}

fn load(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("family_of_96");
    group.sample_size(10);
    for layers in [2, 12] {
        let model = family(layers);
        let text = model.to_json();
        let items = encoder(layers, 1, 16);
        let about = format!("{}_nodes_{}_kb", items.nodes().len(), text.len() / 1000);
        group.bench_function(format!("load_{about}"), |bencher| {
            bencher.iter(|| Model::from_json(black_box(text.as_bytes())).unwrap());
        });
        for shape in model.shapes() {
            shape.plan().unwrap();
        }
        group.bench_function(format!("check_{about}"), |bencher| {
            bencher.iter(|| {
                for shape in model.shapes() {
                    shape.plan().unwrap().check(black_box(shape.graph().unwrap())).unwrap();
                }
            });
        });
        group
            .bench_function(format!("to_json_{about}"), |bencher| bencher.iter(|| model.to_json()));
        let wanted = [("batch", 5), ("seq", 100)];
        group.bench_function(format!("find_{about}"), |bencher| {
            bencher.iter(|| model.find(black_box(&wanted), Bucket::Padded).unwrap());
        });
    }
    group.finish();
}

criterion_group!(benches, load);
criterion_main!(benches);
