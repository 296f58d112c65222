//! The pipeline, graph to checked plan, and its stages.
#![allow(missing_docs, clippy::unwrap_used, reason = "a benchmark is no library")]

use std::hint::black_box;

use arenaplan::arena::{Input, Output};
use arenaplan::choose::{OrderLimits, find_order};
use arenaplan::liveness::LivenessOptions;
use arenaplan::{DType, Graph, Liveness, Node, Plan, Planner, Techniques, Value, ValueKind};
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

/// Builds one stage of a randomly wired network: every unit adds up what it reads, and most
/// are read by two others.
fn wired_net(units: usize) -> Graph {
    let mut builder = Graph::builder("wired");
    let mut seed = 5_u64;
    let mut draw = |below: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(seed >> 33).unwrap() % below
    };
    let activation = |builder: &mut arenaplan::GraphBuilder, name: String| {
        let value = Value::new(name, ValueKind::Activation, DType::FLOAT32, [1, 78, 28, 28]);
        builder.add_value(value.unwrap())
    };
    let shape = [1, 39, 56, 56];
    let x = builder.add_value(Value::new("x", ValueKind::Input, DType::FLOAT32, shape).unwrap());
    let mut made = vec![x];
    for unit in 0..units {
        let near = made.len().min(8);
        let sources = [made.len() - 1 - draw(near), made.len() - 1 - draw(near)];
        let mut value = made[sources[0]];
        if sources[0] != sources[1] && value != x && made[sources[1]] != x {
            let sum = activation(&mut builder, format!("sum{unit}"));
            let node = Node::new(format!("add{unit}"), "Add").in_place(0, 0).in_place(1, 0);
            builder.add_node(node.reads([value, made[sources[1]]]).writes([sum]));
            value = sum;
        }
        for part in 0..2 {
            let next = activation(&mut builder, format!("conv{unit}_{part}"));
            let node = Node::new(format!("conv{unit}_{part}"), "Conv");
            builder.add_node(node.reads([value]).writes([next]));
            value = next;
        }
        made.push(value);
    }
    let last = *made.last().unwrap();
    builder.add_output(last);
    builder.build().unwrap()
}

fn orders(criterion: &mut Criterion) {
    let graph = wired_net(40);
    let mut group = criterion.benchmark_group("wired_net");
    group.sample_size(10);
    for (name, states, width) in [("complete", 20_000, 0), ("beam", 0, 100)] {
        let limits = OrderLimits { states, width, work: usize::MAX };
        group.bench_function(name, |bencher| {
            bencher.iter(|| find_order(&graph, LivenessOptions::default(), limits, &|| false));
        });
    }
    group.finish();
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
    let plan = Planner::new().optimize(Techniques::BASIC).plan(&graph).unwrap();
    let program = plan.program(&graph).unwrap();
    let mut arena = plan.commit().unwrap();
    let mut group = criterion.benchmark_group("lend");
    group.throughput(Throughput::Elements(u64::try_from(program.len()).unwrap()));
    group.bench_function("program", |bencher| bencher.iter(|| plan.program(black_box(&graph))));
    group.bench_function("node", |bencher| {
        bencher.iter(|| {
            for node in plan.order() {
                black_box(arena.node(&plan, node).unwrap());
            }
        });
    });
    group.bench_function("step", |bencher| {
        bencher.iter(|| {
            for step in program.steps() {
                black_box(arena.step(&program, step).unwrap());
            }
        });
    });
    group.bench_function("step_and_slots", |bencher| {
        bencher.iter(|| {
            for step in program.steps() {
                let mut memory = arena.step(&program, step).unwrap();
                let mut inputs = [const { Input::Absent }; 2];
                let mut outputs = [const { Output::Absent }; 1];
                memory.lend(&mut inputs, &mut outputs, &mut []).unwrap();
                black_box((&inputs, &outputs));
            }
        });
    });
    group.bench_function("step_and_split", |bencher| {
        bencher.iter(|| {
            for step in program.steps() {
                let mut memory = arena.step(&program, step).unwrap();
                if step.inputs().len() == 1 {
                    black_box(memory.split::<1, 1, 0>().unwrap());
                } else {
                    black_box(memory.split_as::<f32, 2, 1, 0>().unwrap());
                }
            }
        });
    });
    group.finish();
}

criterion_group!(benches, dense, chains, orders, arena);
criterion_main!(benches);
