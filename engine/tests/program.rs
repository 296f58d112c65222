//! Runs of programs on several threads: bit-equal to serial runs, whatever the timing.

#![allow(
    clippy::unwrap_used,
    clippy::as_conversions,
    clippy::cast_possible_truncation,
    unreachable_pub,
    reason = "tests"
)]

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use arenaplan::arena::{Input, Output};
use arenaplan::pack::Space;
use arenaplan::plan::Effort;
use arenaplan::program::{ProgramStep, StepMemory};
use arenaplan::{
    Arena, DType, Graph, Memories, Node, Plan, Planner, Program, Result, Target, Value, ValueId,
    ValueKind,
};
use arenaplan_engine::{Engine, Policy, RunError, StepError};

#[path = "../../tests/it/randwire.rs"]
mod randwire;

use randwire::{Edges, Numbers, Wiring, randwire};

/// Returns a random graph of nodes that read up to 4 values, some of which work in place.
fn random_graph(nodes: usize, seed: u64) -> Graph {
    let mut numbers = Numbers::new(seed);
    let mut builder = Graph::builder(format!("random_{seed}"));
    let array = |name: String, kind, bytes| Value::new(name, kind, DType::UINT8, [bytes]).unwrap();
    let size = |numbers: &mut Numbers| 64 * (1 + numbers.below(4) as u64);
    let mut values: Vec<(ValueId, u64)> = Vec::new();
    for index in 0..3 {
        let bytes = size(&mut numbers);
        let id = builder.add_value(array(format!("in{index}"), ValueKind::Input, bytes));
        values.push((id, bytes));
    }
    for index in 0..nodes {
        let recent = values.len().saturating_sub(12);
        let reads = 1 + numbers.below(4);
        let reads: Vec<(ValueId, u64)> = (0..reads)
            .map(|_| {
                values[if numbers.below(8) == 0 { 0 } else { recent }
                    + numbers.below(values.len() - recent).min(values.len() - 1)]
            })
            .collect();
        let in_place = numbers.below(2) == 0;
        let bytes = if in_place { reads[0].1 } else { size(&mut numbers) };
        let output = builder.add_value(array(format!("v{index}"), ValueKind::Activation, bytes));
        let mut node = Node::new(format!("n{index}"), "Mix")
            .reads(reads.iter().map(|read| read.0))
            .writes([output]);
        if in_place && reads[1..].iter().all(|read| read.0 != reads[0].0) {
            node = node.in_place(0, 0);
        }
        builder.add_node(node);
        values.push((output, bytes));
        if numbers.below(10) == 0 {
            builder.add_output(output);
        }
    }
    builder.add_output(values[values.len() - 1].0);
    builder.build().unwrap()
}

/// Mixes inputs into outputs, in place or not: every byte depends on the step and on all inputs.
fn mix(step: ProgramStep<'_>, mut memory: StepMemory<'_>) -> Result<()> {
    let mut inputs: Vec<Input<'_>> = step.inputs().map(|_| Input::Absent).collect();
    let mut outputs: Vec<Output<'_>> = step.outputs().map(|_| Output::Absent).collect();
    let mut workspaces: Vec<&mut [u8]> = step.workspaces().map(|_| &mut [][..]).collect();
    memory.lend(&mut inputs, &mut outputs, &mut workspaces)?;
    let sizes: Vec<usize> =
        step.inputs().map(|it| it.span.map_or(0, |span| span.bytes as usize)).collect();
    let own: Vec<usize> =
        step.outputs().map(|it| it.span.map_or(0, |span| span.bytes as usize)).collect();
    for (output, bytes) in outputs.iter_mut().zip(own) {
        let Output::Exclusive(to) = output else { continue };
        // Of other inputs the sum, so that the bytes taken over can be read one by one.
        let mut sum = u64::from(u32::from(step.node())) + 1;
        for (position, input) in inputs.iter().enumerate() {
            if let Input::Shared(from) = input {
                for (at, &byte) in from.iter().enumerate() {
                    sum =
                        sum.wrapping_mul(31).wrapping_add(u64::from(byte) + (at + position) as u64);
                }
            }
        }
        for at in 0..bytes {
            let mut value = sum.wrapping_add(at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            for (input, &size) in inputs.iter().zip(&sizes) {
                if let &Input::Within { offset, .. } = input {
                    value ^= if at < size { u64::from(to[at + offset]) << 32 } else { 0 };
                }
            }
            to[at] = (value >> 32) as u8;
        }
    }
    Ok(())
}

fn supply(graph: &Graph, plan: &Plan, arena: &mut Arena<'_>) {
    for input in graph.inputs() {
        for (at, byte) in arena.value_mut(plan, input).unwrap().iter_mut().enumerate() {
            *byte = (at * 7 + input.index()) as u8;
        }
    }
}

fn outputs(graph: &Graph, plan: &Plan, arena: &Arena<'_>) -> Vec<Vec<u8>> {
    graph.outputs().iter().map(|&it| arena.value(plan, it).unwrap().to_vec()).collect()
}

fn policies() -> Vec<Policy> {
    let mut policies = vec![Policy::Serial, Policy::per_space(2)];
    policies.extend((1..=8).map(Policy::workers));
    policies
}

/// Runs a plan by every policy, with yields and sleeps at random, and compares the outputs with
/// those of a serial run.
fn check(graph: &Graph, plan: &Plan, rest: impl Fn(&mut Numbers) + Sync) {
    let program = plan.program(graph).unwrap();
    let mut arena = plan.commit().unwrap();
    supply(graph, plan, &mut arena);
    for step in program.steps() {
        mix(step, arena.step(&program, step).unwrap()).unwrap();
    }
    let expected = outputs(graph, plan, &arena);
    for policy in policies() {
        let engine = Engine::new(policy);
        let runner = engine.prepare(&program);
        for round in 0..2 {
            arena.bytes_mut(arenaplan::SpaceId::new(0)).unwrap().fill(0xa5);
            supply(graph, plan, &mut arena);
            let numbers = Mutex::new(Numbers::new(round));
            let ran = AtomicUsize::new(0);
            runner
                .run(&mut arena, |step, memory| {
                    rest(&mut numbers.lock().unwrap());
                    ran.fetch_add(1, Ordering::Relaxed);
                    mix(step, memory)
                })
                .unwrap();
            assert_eq!(ran.into_inner(), program.len());
            assert_eq!(outputs(graph, plan, &arena), expected, "{policy:?}");
        }
    }
}

fn yields(numbers: &mut Numbers) {
    if numbers.below(4) == 0 {
        thread::yield_now();
    }
}

#[test]
fn random_graphs_run_as_in_order() {
    for seed in 0..8 {
        let graph = random_graph(60, seed);
        for planner in [
            Planner::new(),
            Planner::new().effort(Effort::Fast).workers(3),
            Planner::new().parallel_safe(true),
        ] {
            check(&graph, &planner.plan(&graph).unwrap(), yields);
        }
    }
}

#[test]
fn sleeping_nodes_change_nothing() {
    let graph = random_graph(40, 99);
    for planner in [Planner::new(), Planner::new().effort(Effort::Fast).workers(4)] {
        check(&graph, &planner.plan(&graph).unwrap(), |numbers| {
            thread::sleep(Duration::from_micros(numbers.below(300) as u64));
        });
    }
}

#[test]
fn randomly_wired_networks_run_as_in_order() {
    let small =
        Wiring { nodes: 10, edges: Edges::SmallWorld { neighbors: 4, rewired: 75 }, channels: 2 };
    for seed in 1..3 {
        let graph = randwire(small, seed);
        for planner in [Planner::new(), Planner::new().effort(Effort::Fast).workers(4)] {
            check(&graph, &planner.plan(&graph).unwrap(), yields);
        }
    }
}

#[test]
fn several_memories_have_a_queue_each() {
    let graph = random_graph(60, 5);
    let memories = Memories::new(vec![
        Space::new("fast").with_capacity(1024),
        Space::new("slow").with_cost(1),
    ]);
    let ideal = Target::IDEAL;
    let planner = Planner::new().target(&ideal);
    let plan = planner.memories(memories.as_ref().unwrap()).plan(&graph).unwrap();
    assert!(plan.placements().iter().any(|place| place.space == 0));
    assert!(plan.placements().iter().any(|place| place.space == 1));
    check(&graph, &plan, yields);
}

#[derive(Debug, PartialEq, thiserror::Error)]
#[error("step {0} is out of luck")]
struct Unlucky(usize);

/// Of several steps that fail, the first in the order of the plan is told, whatever the timing; and no
/// step that waits for a failed one runs.
#[test]
fn the_first_step_that_fails_is_reported() {
    let graph = random_graph(80, 3);
    let plan = Planner::new().effort(Effort::Fast).workers(4).plan(&graph).unwrap();
    let program = plan.program(&graph).unwrap();
    let mut arena = plan.commit().unwrap();
    let hazards = program.hazards();
    for policy in policies() {
        for round in 0..10 {
            let ran = Mutex::new(Vec::new());
            let result = Engine::new(policy).run(&mut arena, &program, |step, _| {
                thread::sleep(Duration::from_micros((round * step.index() as u64) % 7 * 20));
                ran.lock().unwrap().push(step.index());
                if step.index() % 20 == 15 { Err(Unlucky(step.index())) } else { Ok(()) }
            });
            let Err(RunError::Step { index, error: StepError::Kernel(error), name }) = result
            else {
                panic!("{result:?}")
            };
            assert_eq!((index, error, &*name), (15, Unlucky(15), &*plan.steps()[15].name));
            let ran = ran.into_inner().unwrap();
            for &step in &ran {
                let mut waits = hazards.of(step).iter().map(|edge| edge.before as usize);
                assert!(waits.all(|before| before % 20 != 15 && ran.contains(&before)));
            }
            assert!((0..15).all(|step| ran.contains(&step)));
        }
    }
}

#[test]
fn panics_of_kernels_are_errors() {
    let graph = random_graph(20, 3);
    let plan = Planner::new().plan(&graph).unwrap();
    let program = plan.program(&graph).unwrap();
    let mut arena = plan.commit().unwrap();
    for policy in policies() {
        let result: Result<(), RunError<arenaplan::Error>> =
            Engine::new(policy).run(&mut arena, &program, |step, memory| {
                assert!(step.index() != 7, "seven");
                mix(step, memory)
            });
        let error = result.unwrap_err();
        let name = &plan.steps()[7].name;
        assert_eq!(error.to_string(), format!("step 7 ('{name}') panicked: seven"));
    }
}

#[test]
fn another_plans_arena_is_refused() {
    let graph = random_graph(20, 3);
    let plan = Planner::new().plan(&graph).unwrap();
    let program: Program = plan.program(&graph).unwrap();
    let mut arena =
        Planner::new().parallel_safe(true).alignment(128).plan(&graph).unwrap().commit().unwrap();
    for policy in policies() {
        let result = Engine::new(policy).run(&mut arena, &program, mix);
        assert!(matches!(result, Err(RunError::Arena(error)) if error.kind() == "ArenaMismatch"));
    }
}

#[test]
fn empty_programs_run() {
    let mut builder = Graph::builder("nothing");
    let x = builder.add_value(Value::new("x", ValueKind::Input, DType::UINT8, [8]).unwrap());
    builder.add_output(x);
    let graph = builder.build().unwrap();
    let plan = Planner::new().plan(&graph).unwrap();
    let program = plan.program(&graph).unwrap();
    let mut arena = plan.commit().unwrap();
    for policy in policies() {
        Engine::new(policy).run(&mut arena, &program, mix).unwrap();
    }
}

/// The threads of a pool of rayon, of which other tasks take some.
#[cfg(feature = "rayon")]
#[test]
fn pools_of_rayon_run_programs() {
    for threads in [1, 2, 4] {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        for seed in 0..5 {
            let graph = random_graph(60, seed);
            let plan = Planner::new().effort(Effort::Fast).workers(3).plan(&graph).unwrap();
            let program = plan.program(&graph).unwrap();
            let mut arena = plan.commit().unwrap();
            supply(&graph, &plan, &mut arena);
            Engine::new(Policy::Serial).run(&mut arena, &program, mix).unwrap();
            let expected = outputs(&graph, &plan, &arena);
            for policy in [Policy::Serial, Policy::workers(2), Policy::per_space(2)] {
                supply(&graph, &plan, &mut arena);
                let runner = Engine::new(policy).prepare(&program);
                runner.run_in(&pool, &mut arena, mix).unwrap();
                assert_eq!(outputs(&graph, &plan, &arena), expected);
                let result = runner.run_in(&pool, &mut arena, |step, _| {
                    if step.index() >= 30 { Err(Unlucky(step.index())) } else { Ok(()) }
                });
                assert!(matches!(result, Err(RunError::Step { index: 30, .. })));
            }
        }
    }
}
