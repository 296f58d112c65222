//! The pipeline, graph to checked plan, and its stages.
#![allow(missing_docs, clippy::unwrap_used, reason = "a benchmark is no library")]

use std::hint::black_box;

use arenaplan::{DType, Graph, Liveness, LivenessOptions, Node, Plan, Planner, Value, ValueKind};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};

/// Builds dense blocks like those of DenseNet-121: each layer reads the concatenation of
/// all layers before it in its block.
fn dense_net() -> Graph {
    let mut builder = Graph::builder("dense");
    let mut count = 0;
    let mut value = |builder: &mut arenaplan::GraphBuilder, kind, channels: u64, side: u64| {
        count += 1;
        let shape = [1, channels, side, side];
        builder.add_value(Value::new(format!("v{count}"), kind, DType::FLOAT32, shape).unwrap())
    };
    let mut last = value(&mut builder, ValueKind::Input, 3, 224);
    let mut channels = 64;
    for (block, (layers, side)) in [(6, 56), (12, 28), (24, 14), (16, 7)].into_iter().enumerate() {
        let first = value(&mut builder, ValueKind::Activation, channels, side);
        builder.add_node(Node::new(format!("enter{block}"), "Conv").reads([last]).writes([first]));
        last = first;
        for layer in 0..layers {
            let mut hidden = last;
            for (part, width) in [channels, channels, 128, 128, 128, 32].into_iter().enumerate() {
                let next = value(&mut builder, ValueKind::Activation, width, side);
                let node = Node::new(format!("b{block}l{layer}p{part}"), "Op")
                    .reads([hidden])
                    .writes([next]);
                builder.add_node(if part == 1 || part == 4 { node.in_place(0, 0) } else { node });
                hidden = next;
            }
            channels += 32;
            let joined = value(&mut builder, ValueKind::Activation, channels, side);
            let node = Node::new(format!("b{block}l{layer}cat"), "Concat");
            builder.add_node(node.reads([last, hidden]).writes([joined]));
            last = joined;
        }
        channels /= 2;
    }
    builder.add_output(last);
    builder.build().unwrap()
}

/// Builds a chain in which every tenth value is read again twenty nodes later.
fn chain(nodes: usize) -> Graph {
    let mut builder = Graph::builder("chain");
    let bytes = |index: u64| 64 * (1 + (index * 7919) % 97);
    let mut values = Vec::with_capacity(nodes + 1);
    values.push(builder.add_value(Value::new("x", ValueKind::Input, DType::UINT8, [64]).unwrap()));
    for index in 0..nodes {
        let name = format!("v{index}");
        let shape = [bytes(u64::try_from(index).unwrap())];
        let next = Value::new(&*name, ValueKind::Activation, DType::UINT8, shape).unwrap();
        let next = builder.add_value(next);
        let skip = (index > 20 && index % 10 == 0).then(|| values[index - 20]);
        builder.add_node(Node::new(name, "Op").reads([Some(values[index]), skip]).writes([next]));
        values.push(next);
    }
    builder.add_output(values[nodes]);
    builder.build().unwrap()
}

fn dense(criterion: &mut Criterion) {
    let graph = dense_net();
    let plan = Planner::new().plan(&graph).unwrap();
    let text = plan.to_json();
    let mut group = criterion.benchmark_group("dense_net");
    group.bench_function("plan", |bencher| bencher.iter(|| Planner::new().plan(black_box(&graph))));
    group.bench_function("liveness", |bencher| {
        bencher.iter(|| {
            Liveness::new(&graph, graph.order(), LivenessOptions::default(), &[], Vec::new())
        });
    });
    group.bench_function("check", |bencher| bencher.iter(|| plan.check(black_box(&graph))));
    group.bench_function("digest", |bencher| bencher.iter(|| black_box(&graph).digest()));
    group.bench_function("to_json", |bencher| bencher.iter(|| black_box(&plan).to_json()));
    group.bench_function("from_json", |bencher| bencher.iter(|| Plan::from_json(text.as_bytes())));
    group.finish();
}

fn chains(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("chain");
    group.sample_size(10);
    for nodes in [1_000, 10_000, 100_000] {
        let graph = chain(nodes);
        group.throughput(Throughput::Elements(u64::try_from(nodes).unwrap()));
        group.bench_with_input(BenchmarkId::new("plan", nodes), &graph, |bencher, graph| {
            bencher.iter(|| Planner::new().plan(graph));
        });
    }
    group.finish();
}

fn arena(criterion: &mut Criterion) {
    let graph = dense_net();
    let plan = Planner::new().plan(&graph).unwrap();
    let mut arena = plan.commit().unwrap();
    criterion.bench_function("lend_every_node", |bencher| {
        bencher.iter(|| {
            for node in plan.order() {
                black_box(arena.node(&plan, node).unwrap());
            }
        });
    });
}

criterion_group!(benches, dense, chains, arena);
criterion_main!(benches);
