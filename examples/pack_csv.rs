//! Packs the buffers of a CSV file: `cargo run --release --example pack_csv FILE.csv…`.
//!
//! Options are given before the files they apply to: `--capacity BYTES`, `--nodes N`,
//! `--seconds S`, `--seed N`, `--trace`.
#![allow(clippy::print_stdout, reason = "it is a command")]

use std::error::Error;
use std::time::{Duration, Instant};

use arenaplan::format::CsvProblem;
use arenaplan::pack::{Progress, Space};
use arenaplan::{Budget, solve};

fn main() -> Result<(), Box<dyn Error>> {
    let mut capacity = None;
    let mut seconds = None;
    let mut trace = false;
    let mut budget = Budget::default();
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or(format!("{argument} needs a value"));
        match argument.as_str() {
            "--capacity" => capacity = Some(value()?.parse()?),
            "--nodes" => budget.nodes = Some(value()?.parse()?),
            "--seconds" => seconds = Some(value()?.parse()?),
            "--seed" => budget.seed = value()?.parse()?,
            "--trace" => trace = true,
            file => pack(file, capacity, seconds, trace, budget)?,
        }
    }
    Ok(())
}

/// Packs one file and prints one line about it.
fn pack(
    file: &str,
    capacity: Option<u64>,
    seconds: Option<f64>,
    trace: bool,
    budget: Budget<'_>,
) -> Result<(), Box<dyn Error>> {
    let started = Instant::now();
    let text = std::fs::read_to_string(file)?;
    let mut space = Space::default();
    if let Some(bytes) = capacity {
        space = space.with_capacity(bytes);
    }
    let csv = CsvProblem::parse(&text, space)?;
    let tell = |now: Progress| {
        let (stage, elapsed) = (now.stage.name(), started.elapsed());
        println!("  {elapsed:?} {stage}: {} nodes, {} of {}", now.nodes, now.peak, now.lower_bound);
    };
    let mut budget = budget;
    budget.deadline = seconds.map(|seconds| started + Duration::from_secs_f64(seconds));
    if trace {
        budget.progress = Some(&tell);
    }
    let packing = solve(&csv.problem, &budget)?;
    let elapsed = started.elapsed();
    packing.check(&csv.problem)?;
    let (status, peak, bound) = (packing.status(), packing.peak(), packing.lower_bound());
    println!("{file}: {status} peak {peak} bound {bound} in {elapsed:?}");
    Ok(())
}
