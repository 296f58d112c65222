//! The time that the engine takes by itself, per step, and the time of hazards.

#![allow(
    missing_docs,
    clippy::print_stdout,
    clippy::as_conversions,
    clippy::cast_precision_loss,
    reason = "a table for people"
)]

use std::convert::Infallible;
use std::hint::black_box;
use std::time::Instant;

use arenaplan::{DType, Graph, Node, Planner, Techniques, Value, ValueId, ValueKind};
use arenaplan_engine::{Engine, Operation, Policy, Queue};

/// Returns a network of layers: of `width` nodes each, every node reads two of the layer before.
fn layers(nodes: usize, width: usize) -> Graph {
    let mut builder = Graph::builder("layers");
    let mut add = |name: String, kind| {
        builder.add_value(Value::new(name, kind, DType::UINT8, [64]).expect("a small value"))
    };
    let input = add("x".into(), ValueKind::Input);
    let values: Vec<ValueId> =
        (0..nodes).map(|node| add(format!("v{node}"), ValueKind::Activation)).collect();
    for node in 0..nodes {
        let layer = node / width * width;
        let before = |at: usize| match layer.checked_sub(width) {
            Some(start) => values[start + (node + at) % width],
            None => input,
        };
        let name = format!("n{node}");
        builder
            .add_node(Node::new(name, "Op").reads([before(0), before(1)]).writes([values[node]]));
    }
    values[nodes - width..].iter().for_each(|&value| builder.add_output(value));
    builder.build().expect("a valid graph")
}

/// CPU seconds of this process so far.
fn cpu_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    let nanoseconds = text.split_whitespace().next().and_then(|it| it.parse::<f64>().ok());
    nanoseconds.unwrap_or(f64::NAN) / 1e9
}

fn main() {
    println!(
        "| nodes | plan and check, CPU s | hazards with check | hazards alone | check_hazards | edges |"
    );
    println!("| ---: | ---: | ---: | ---: | ---: | ---: |");
    for (nodes, width) in [(1_000, 8), (10_000, 8), (100_000, 8), (100_000, 64), (100_000, 1_000)] {
        let graph = layers(nodes, width);
        let start = cpu_seconds();
        let planner = Planner::new().optimize(Techniques::NONE);
        let plan = planner.plan(&graph).expect("a plan");
        let made = cpu_seconds();
        let hazards = plan.hazards(&graph).expect("a valid plan");
        let found = cpu_seconds();
        let program = plan.program(&graph).expect("a valid plan");
        let prepared = cpu_seconds();
        black_box(program.hazards());
        let alone = cpu_seconds();
        plan.check_hazards(&graph, &hazards).expect("they are those of the plan");
        let checked = cpu_seconds();
        println!(
            "| {nodes} × {width} | {:.3} | {:.3} | {:.3} | {:.3} | {} |",
            made - start,
            found - made,
            alone - prepared,
            checked - alone,
            hazards.edges().len(),
        );
    }
    let graph = layers(10_000, 8);
    let plan =
        Planner::new().optimize(Techniques::NONE).parallel_safe(true).plan(&graph).expect("a plan");
    let program = plan.program(&graph).expect("a valid plan");
    let mut arena = plan.commit().expect("memory");
    println!("\n| policy | ns per empty step |");
    println!("| --- | ---: |");
    for policy in [Policy::Serial, Policy::workers(1), Policy::workers(2)] {
        let runner = Engine::new(policy).prepare(&program);
        let mut best = f64::MAX;
        for _ in 0..20 {
            let start = Instant::now();
            let done = runner.run(&mut arena, |step, _| {
                black_box(step.index());
                Ok::<(), Infallible>(())
            });
            done.expect("nothing fails");
            best = best.min(start.elapsed().as_secs_f64());
        }
        println!("| {policy:?} | {:.0} |", best * 1e9 / program.len() as f64);
    }
    println!("\n| queue | ns per empty operation |");
    println!("| --- | ---: |");
    for policy in [Policy::Serial, Policy::workers(1), Policy::workers(2)] {
        let mut best = f64::MAX;
        for _ in 0..5 {
            let queue = Queue::new(policy);
            let variables: Vec<_> = (0..100).map(|_| queue.variable(0_u64)).collect();
            let start = Instant::now();
            for at in 0..20_000 {
                let (read, write) = (&variables[at % 100], &variables[(at + 7) % 100]);
                let pushed = queue.push(Operation::new("x").reads(read).writes(write), |_| Ok(()));
                pushed.expect("two variables");
            }
            queue.wait_all().expect("nothing fails");
            best = best.min(start.elapsed().as_secs_f64());
        }
        println!("| {policy:?} | {:.0} |", best * 1e9 / 20_000.0);
    }
}
