//! The classic planners: how their cost grows with the number of nodes.
#![allow(missing_docs, reason = "a benchmark")]

use std::hint::black_box;

use arenaplan::graph::InPlace;
use arenaplan::{DType, Graph, Node, Value, ValueKind};
use arenaplan_classic::coloring::color_nodes;
use arenaplan_classic::incremental::{
    AllocationType, IncrementalGraph, IncrementalNode, IncrementalOptions, IncrementalPlanner,
    IncrementalValue,
};
use arenaplan_classic::sharing::{SharingOptions, share_storage};
use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};

/// Returns numbers that look random and are the same every time.
fn random(seed: &mut u64, limit: usize) -> usize {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    usize::try_from(*seed >> 33).expect("31 bits") % limit
}

/// A deep network with skip connections: each node reads its predecessor and one of the
/// sixteen values before it.
fn graph(nodes: usize) -> Graph {
    let mut seed = 1;
    let mut builder = Graph::builder("skips");
    let input = Value::new("x", ValueKind::Input, DType::FLOAT32, [64]).expect("a valid value");
    let mut values = vec![builder.add_value(input)];
    let mut sizes = vec![64];
    for index in 0..nodes {
        let size = u64::try_from(16 << random(&mut seed, 8)).expect("small");
        let name = format!("v{index}");
        let value = Value::new(&*name, ValueKind::Activation, DType::FLOAT32, [size])
            .expect("a valid value");
        let value = builder.add_value(value);
        let back = 1 + random(&mut seed, values.len().min(16));
        let read = [values.len() - 1, values.len() - back];
        let mut node = Node::new(name, "Op").reads(read.map(|at| values[at])).writes([value]);
        // An output is in place of an input that is no smaller.
        for input in (0..2).filter(|&input| sizes[read[input]] >= size) {
            let mut effects = node.effects().clone();
            effects.in_place.push(InPlace { input, output: 0, identity: false });
            node = node.with_effects(effects);
        }
        builder.add_node(node);
        values.push(value);
        sizes.push(size);
    }
    builder.add_output(values[nodes]);
    builder.build().expect("a valid graph")
}

/// The same kind of network for the incremental planner.
fn incremental(nodes: u32) -> IncrementalGraph {
    let mut seed = 1;
    let kind = AllocationType::Arena;
    let mut result = IncrementalGraph {
        values: vec![IncrementalValue { bytes: 256, kind }],
        inputs: vec![Some(0)],
        outputs: vec![Some(nodes)],
        ..IncrementalGraph::default()
    };
    for index in 0..nodes {
        let back = u32::try_from(random(&mut seed, 16)).expect("small").min(index);
        let bytes = 64 + u64::try_from(random(&mut seed, 4000)).expect("small");
        result.values.push(IncrementalValue { bytes, kind });
        result.nodes.push(IncrementalNode {
            inputs: vec![Some(index), Some(index - back)],
            outputs: vec![Some(index + 1)],
            ..IncrementalNode::default()
        });
    }
    result
}

fn sharing(c: &mut Criterion) {
    let mut group = c.benchmark_group("sharing");
    group.sample_size(10);
    for nodes in [1_000, 10_000, 100_000] {
        let graph = graph(nodes);
        group.bench_with_input(BenchmarkId::new("share", nodes), &graph, |b, graph| {
            let options = SharingOptions::default();
            b.iter(|| share_storage(black_box(graph), &options));
        });
        group.bench_with_input(
            BenchmarkId::new("share_parallel_safe", nodes),
            &graph,
            |b, graph| {
                let options = SharingOptions { parallel_safe: true, ..SharingOptions::default() };
                b.iter(|| share_storage(black_box(graph), &options));
            },
        );
        group.bench_with_input(BenchmarkId::new("color_8", nodes), &graph, |b, graph| {
            b.iter(|| color_nodes(black_box(graph), 8));
        });
    }
}

fn incremental_planner(c: &mut Criterion) {
    let mut group = c.benchmark_group("incremental");
    group.sample_size(10);
    for nodes in [10_000_u32, 100_000] {
        for preserve_all in [false, true] {
            let options = IncrementalOptions { preserve_all, ..IncrementalOptions::default() };
            let name = if preserve_all { "stepwise_preserve_all" } else { "stepwise" };
            group.bench_function(BenchmarkId::new(name, nodes), |b| {
                b.iter(|| {
                    let mut planner = IncrementalPlanner::new(incremental(nodes), options)?;
                    for node in 0..planner.graph().nodes.len() {
                        planner.execute(node..node + 1)?;
                    }
                    Ok::<_, arenaplan_classic::Error>(planner.arena_bytes())
                });
            });
            let name = if preserve_all { "at_once_preserve_all" } else { "at_once" };
            group.bench_function(BenchmarkId::new(name, nodes), |b| {
                b.iter(|| {
                    let mut planner = IncrementalPlanner::new(incremental(nodes), options)?;
                    planner.execute(0..planner.graph().nodes.len())?;
                    Ok::<_, arenaplan_classic::Error>(planner.arena_bytes())
                });
            });
        }
    }
}

criterion_group!(benches, sharing, incremental_planner);
criterion_main!(benches);
