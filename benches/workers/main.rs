//! Bytes and parallelism of plans for several workers, on networks that the search was tuned on and
//! on others: `cargo bench --bench workers [-- TARGET] [-- curve]`.

#![allow(
    missing_docs,
    unreachable_pub,
    clippy::print_stdout,
    clippy::as_conversions,
    clippy::cast_precision_loss,
    reason = "a table for people"
)]

mod networks;
#[path = "../../tests/it/randwire.rs"]
mod randwire;
mod span;

use std::time::Instant;

use arenaplan::plan::Hazards;
use arenaplan::{Graph, Plan, Planner, Target, Techniques};

use networks::{Named, held_out, tuned_on};
use span::least_span;

/// Number of workers of the tables.
const WORKERS: u32 = 4;

/// Returns the cost of each step of a plan: bytes that its node touches.
fn costs(graph: &Graph, plan: &Plan) -> Vec<u64> {
    let like = Planner::new().workers(2).effort(arenaplan::plan::Effort::Fast);
    let like = like.plan(graph).expect("a plan");
    let table = like.timetable().expect("it is for two workers");
    let mut by_node = vec![0; graph.nodes().len()];
    for (step, &cost) in like.steps().iter().zip(&table.costs) {
        by_node[step.node as usize] = cost;
    }
    plan.steps().iter().map(|step| by_node[step.node as usize]).collect()
}

/// Returns the parallelism that the hazards of a plan leave to workers.
fn kept(graph: &Graph, plan: &Plan) -> f64 {
    let hazards: Hazards = plan.hazards(graph).expect("a valid plan");
    hazards.timetable(&costs(graph, plan), WORKERS).parallelism()
}

/// One row: the plan for four workers beside that for one and for every order.
fn row(Named { name, graph }: &Named, target: &Target) -> bool {
    let planner = Planner::new().target(target);
    let one = planner.plan(graph).expect("a plan");
    let safe = planner.parallel_safe(true).plan(graph).expect("a plan");
    let apart = planner.optimize(Techniques::NONE).parallel_safe(true);
    let apart = apart.plan(graph).expect("a plan");
    let data = apart.hazards(graph).expect("a valid plan");
    let costs = costs(graph, &apart);
    let path = data.critical_path(&costs).parallelism();
    let work: u64 = costs.iter().sum();
    let most = work as f64 / least_span(&data, &costs, WORKERS) as f64;
    let before = Instant::now();
    let four = planner.workers(WORKERS).plan(graph).expect("a plan");
    let seconds = before.elapsed().as_secs_f64();
    let ratio = |plan: &Plan| plan.arena_bytes() as f64 / one.arena_bytes() as f64;
    let parallelism = four.timetable().expect("a table").parallelism();
    let is_met = ratio(&four) <= 1.1 && parallelism >= 0.9 * most;
    println!(
        "| {name} | {} | {} | {path:.2} | {most:.2} | {:.2} | {:.2} | {parallelism:.2} | {:.2} | {} | {:.2} | {:.2} | {seconds:.1} |",
        graph.nodes().len(),
        one.arena_bytes(),
        kept(graph, &one),
        ratio(&four),
        parallelism / most,
        if is_met { "yes" } else { "no" },
        ratio(&safe),
        kept(graph, &safe),
    );
    is_met
}

fn main() {
    let target = std::env::args().find_map(|it| Target::known(&it)).unwrap_or(Target::NODES);
    let only = std::env::var("ARENAPLAN_NETWORK").unwrap_or_default();
    for (title, networks) in [("tuned on", tuned_on()), ("held out", held_out())] {
        println!(
            "\n| {title} | nodes | bytes of one worker | data | with 4 workers at most | hazards of one worker | 4 workers: bytes | parallelism | of the most | met | every order: bytes | parallelism | s |"
        );
        println!(
            "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- | ---: | ---: | ---: |"
        );
        let networks: Vec<&Named> = networks.iter().filter(|it| it.name.contains(&only)).collect();
        let met = networks.iter().filter(|it| row(it, &target)).count();
        println!("\nMet by {met} of {}.", networks.len());
    }
}
