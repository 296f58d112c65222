//! Bytes and parallelism of plans for several workers, on randomly wired networks.

#![allow(
    missing_docs,
    unreachable_pub,
    clippy::print_stdout,
    clippy::as_conversions,
    clippy::cast_precision_loss,
    reason = "a table for people"
)]

use std::time::Instant;

use arenaplan::plan::{Hazards, Timetable};
use arenaplan::{Graph, Plan, Planner, Target};

#[path = "../tests/it/randwire.rs"]
mod randwire;

use randwire::{Wiring, randwire};

/// The small regime of the paper.
const SMALL: Wiring = Wiring { nodes: 32, neighbors: 4, rewired: 75, channels: 78 };

/// Returns the cost of each step of a plan: bytes that its node touches.
fn costs(graph: &Graph, plan: &Plan) -> Vec<u64> {
    let like = Planner::new().workers(2).plan(graph).expect("a plan");
    let table = like.timetable().expect("it is for two workers");
    let mut by_node = vec![0; graph.nodes().len()];
    for (step, &cost) in like.steps().iter().zip(&table.costs) {
        by_node[step.node as usize] = cost;
    }
    plan.steps().iter().map(|step| by_node[step.node as usize]).collect()
}

/// Returns the parallelism that the hazards of a plan leave to workers.
fn kept(graph: &Graph, plan: &Plan, workers: u32) -> f64 {
    let hazards = plan.hazards(graph).expect("a valid plan");
    let table: Timetable = hazards.timetable(&costs(graph, plan), workers);
    table.parallelism()
}

/// Returns the parallelism of the list schedule by longest paths: about the most that the workers
/// can have.
fn longest_first(data: &Hazards, costs: &[u64], workers: usize) -> f64 {
    let dependents = data.dependents();
    let mut longest = costs.to_vec();
    for step in (0..longest.len()).rev() {
        let after = dependents[step].iter().map(|&next| longest[next as usize]).max();
        longest[step] += after.unwrap_or(0);
    }
    let mut waits: Vec<usize> = (0..costs.len()).map(|step| data.of(step).len()).collect();
    let mut ready: Vec<usize> = (0..costs.len()).filter(|&step| waits[step] == 0).collect();
    let mut running: Vec<(u64, usize)> = Vec::new();
    let mut now = 0;
    while !ready.is_empty() || !running.is_empty() {
        ready.sort_by_key(|&step| longest[step]);
        while running.len() < workers
            && let Some(step) = ready.pop()
        {
            running.push((now + costs[step], step));
        }
        running.sort_unstable_by_key(|&it| std::cmp::Reverse(it));
        let (end, step) = running.pop().expect("a step runs");
        now = end;
        for &next in &dependents[step] {
            waits[next as usize] -= 1;
            if waits[next as usize] == 0 {
                ready.push(next as usize);
            }
        }
    }
    costs.iter().sum::<u64>() as f64 / now as f64
}

fn main() {
    println!(
        "| network | nodes | one worker | its hazards | data | 2 workers | parallelism | 4 workers | parallelism | of the graph's | parallel_safe | parallelism | seconds |"
    );
    println!(
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
    );
    let wide = Wiring { nodes: 24, neighbors: 6, rewired: 50, channels: 32 };
    let sparse = Wiring { nodes: 48, neighbors: 2, rewired: 90, channels: 64 };
    let target = std::env::args().find_map(|it| Target::known(&it)).unwrap_or(Target::NODES);
    for (name, wiring) in [("WS(4, 0.75)", SMALL), ("WS(6, 0.5)", wide), ("WS(2, 0.9)", sparse)] {
        for seed in 1..=4 {
            let graph = randwire(wiring, seed);
            let planner = Planner::new().target(&target);
            let one = planner.plan(&graph).expect("a plan");
            let safe = planner.parallel_safe(true).plan(&graph).expect("a plan");
            let apart = planner.optimize(arenaplan::Techniques::NONE).parallel_safe(true);
            let apart = apart.plan(&graph).expect("a plan");
            let data = apart.hazards(&graph).expect("a valid plan");
            let path = data.critical_path(&costs(&graph, &apart));
            let most = longest_first(&data, &costs(&graph, &apart), 4);
            let two = planner.workers(2).plan(&graph).expect("a plan");
            let before = Instant::now();
            let four = planner.workers(4).plan(&graph).expect("a plan");
            let seconds = before.elapsed().as_secs_f64();
            let ratio = |plan: &Plan| plan.arena_bytes() as f64 / one.arena_bytes() as f64;
            let parallelism = |plan: &Plan| plan.timetable().expect("a table").parallelism();
            println!(
                "| {name} {seed} | {} | {} | {:.2} | {:.2} | {:.2} × | {:.2} | {:.2} × ({:.2}) | {:.2} | {:.2} | {:.2} × | {:.2} | {seconds:.1} |",
                graph.nodes().len(),
                one.arena_bytes(),
                kept(&graph, &one, 4),
                path.parallelism(),
                ratio(&two),
                parallelism(&two),
                ratio(&four),
                four.lower_bound() as f64 / one.arena_bytes() as f64,
                parallelism(&four),
                parallelism(&four) / most,
                ratio(&safe),
                kept(&graph, &safe, 4),
            );
        }
    }
}
