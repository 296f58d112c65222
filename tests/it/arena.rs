//! Lending: what a plan says is what a program finds in memory.

use arenaplan::arena::{Input, Output};
use arenaplan::pack::Space;
use arenaplan::plan::WorkspacePolicy;
use arenaplan::{Error, Graph, Memories, NodeId, SpaceId, Techniques, ValueId, ValueKind};
use proptest::prelude::*;

use crate::check::forge;
use crate::graphs::{Sketch, graphs, in_place, reshape};
use crate::planners::ideal_planner;
use crate::program::interpreter::run;

/// Runs `graph` inside the arena of `plan`, garbage in every workspace, and compares all that
/// is made with what it must be.
pub fn run_and_compare(graph: &Graph, plan: &arenaplan::Plan) {
    let program = plan.program(graph).unwrap();
    run(graph, &program, &mut plan.commit().unwrap()).unwrap();
}

proptest! {
    /// A run inside the arena reads and returns the right bytes, whatever shares memory.
    #[test]
    fn a_run_in_the_arena_is_right(graph in graphs(24)) {
        for in_place in [false, true] {
            let planner = ideal_planner().workspace(WorkspacePolicy::Auto).in_place(in_place);
            run_and_compare(&graph, &planner.plan(&graph).unwrap());
        }
    }
}

#[test]
fn an_in_place_pair_is_lent_once() {
    let mut sketch = Sketch::new();
    let x = sketch.input("x", 64);
    let a = sketch.node("a", &[x], 64);
    let b = sketch.effectful("b", &[a], 64, in_place(0));
    let graph = sketch.build(&[b]);
    let plan = ideal_planner().plan(&graph).unwrap();
    let mut arena = plan.commit().unwrap();
    let memory = arena.node(&plan, NodeId::new(1)).unwrap();
    assert!(matches!(memory.inputs[0], Input::Within { output: 0, offset: 0 }));
    assert!(matches!(&memory.outputs[0], Output::Exclusive(bytes) if bytes.len() == 64));
}

#[test]
fn a_view_is_read_and_not_written() {
    let mut sketch = Sketch::new();
    let x = sketch.input("x", 64);
    let a = sketch.effectful("a", &[x], 64, reshape());
    let graph = sketch.build(&[a]);
    let plan = ideal_planner().plan(&graph).unwrap();
    let mut arena = plan.commit().unwrap();
    let memory = arena.node(&plan, NodeId::new(0)).unwrap();
    assert!(matches!(memory.inputs[0], Input::Shared(bytes) if bytes.len() == 64));
    assert!(matches!(memory.outputs[0], Output::Within { input: 0, offset: 0 }));
}

#[test]
fn one_value_can_be_read_at_two_positions() {
    let mut sketch = Sketch::new();
    let x = sketch.input("x", 64);
    let constant = sketch.value("c", ValueKind::Constant, 64);
    let a = sketch.node("a", &[x, x, constant], 64);
    let graph = sketch.build(&[a]);
    let plan = ideal_planner().plan(&graph).unwrap();
    let mut arena = plan.commit().unwrap();
    let memory = arena.node(&plan, NodeId::new(0)).unwrap();
    assert!(matches!(
        memory.inputs[..],
        [Input::Shared(first), Input::Shared(second), Input::External] if first.as_ptr() == second.as_ptr()
    ));
}

fn chain() -> (Graph, arenaplan::Plan) {
    chain_of(64)
}

fn chain_of(bytes: u64) -> (Graph, arenaplan::Plan) {
    let mut sketch = Sketch::new();
    let x = sketch.input("x", bytes);
    let a = sketch.node("a", &[x], bytes);
    let graph = sketch.build(&[a]);
    let plan = ideal_planner().plan(&graph).unwrap();
    (graph, plan)
}

#[test]
fn f01_a_buffer_one_byte_too_small_is_refused() {
    let (_, plan) = chain();
    let mut bytes = vec![0; 127];
    assert_eq!(
        plan.bind(&mut bytes).unwrap_err(),
        Error::BufferTooSmall { bytes: 127, needed: 128 }
    );
}

#[test]
fn a17_a_misaligned_buffer_is_refused_and_an_aligned_one_used() {
    let (graph, plan) = chain();
    let mut bytes = vec![0; 256];
    let start = bytes.as_ptr().align_offset(64);
    assert_eq!(
        plan.bind(&mut bytes[start + 1..]).unwrap_err(),
        Error::MisalignedBuffer { alignment: 64 }
    );
    let mut arena = plan.bind(&mut bytes[start..]).unwrap();
    arena.value_mut(&plan, ValueId::new(0)).unwrap().fill(9);
    assert_eq!(arena.value(&plan, ValueId::new(0)).unwrap(), [9; 64]);
    let _ = graph;
}

#[test]
fn a_plan_with_two_spaces_needs_two_buffers() {
    let mut builder = Graph::builder("two");
    let fast = builder.add_space(arenaplan::pack::Space::new("fast").with_capacity(64));
    let value = |name, space| {
        arenaplan::Value::new(name, ValueKind::Input, arenaplan::DType::UINT8, [64])
            .unwrap()
            .with_space(space)
    };
    let slow = builder.add_value(value("slow", SpaceId::new(0)));
    let quick = builder.add_value(value("quick", fast));
    builder.add_output(slow);
    builder.add_output(quick);
    let plan = ideal_planner().alignment(1).plan(&builder.build().unwrap()).unwrap();
    assert_eq!((plan.arena_bytes(), plan.spaces().len()), (128, 2));
    let mut bytes = [0; 128];
    let (first, second) = bytes.split_at_mut(64);
    assert_eq!(plan.bind(&mut *first).unwrap_err(), Error::SpaceCount { spaces: 2, given: 1 });
    assert!(plan.bind_all([first, second]).is_ok());
    assert_eq!(plan.fits(), Ok(()));
}

#[test]
fn an_arena_of_another_plan_is_refused() {
    let (_, plan) = chain();
    let mut sketch = Sketch::new();
    let x = sketch.input("x", 1);
    let small = ideal_planner().plan(&sketch.build(&[x])).unwrap();
    let refusal = Error::ArenaMismatch { model: "'sketch'".into() };
    // Too small, or large enough.
    for mut arena in [small.commit().unwrap(), chain_of(128).1.commit().unwrap()] {
        assert_eq!(arena.node(&plan, NodeId::new(0)).unwrap_err(), refusal);
        assert_eq!(arena.value(&plan, ValueId::new(1)).unwrap_err(), refusal);
        assert_eq!(arena.value_mut(&plan, ValueId::new(1)).unwrap_err(), refusal);
    }
    let arena = plan.commit().unwrap();
    assert_eq!(arena.value(&plan, ValueId::new(7)).unwrap_err().kind(), "UndefinedValue");
}

#[test]
fn an_arena_becomes_that_of_another_plan_where_it_fits() {
    let (_, plan) = chain();
    let (_, larger) = chain_of(128);
    let mut arena = larger.commit().unwrap();
    arena.rebind(&plan).unwrap();
    assert!(arena.node(&plan, NodeId::new(0)).is_ok());
    assert_eq!(arena.node(&larger, NodeId::new(0)).unwrap_err().kind(), "ArenaMismatch");
    // A refusal leaves it what it was.
    let mut arena = plan.commit().unwrap();
    let refusal = Error::BufferTooSmall { bytes: 128, needed: 256 };
    assert_eq!(arena.rebind(&larger).unwrap_err(), refusal);
    assert!(arena.node(&plan, NodeId::new(0)).is_ok());
    // The plan of an arena may be another object with the same content.
    let copy = arenaplan::Plan::from_json(plan.to_json().as_bytes()).unwrap();
    assert!(arena.node(&copy, NodeId::new(0)).is_ok());
}

#[test]
fn f03_an_arena_that_no_machine_has_is_an_error() {
    let mut sketch = Sketch::new();
    let x = sketch.input("x", 1 << 62);
    let plan = ideal_planner().plan(&sketch.build(&[x])).unwrap();
    assert_eq!(plan.commit().unwrap_err(), Error::ArenaCommit { bytes: 1 << 62 });
}

/// A plan that nobody checked is refused when a step would write what it reads, with its position.
#[test]
fn operands_that_share_bytes_are_refused_with_the_step() {
    let mut sketch = Sketch::new();
    let x = sketch.input("x", 64);
    let a = sketch.node("a", &[x], 64);
    let b = sketch.node("b", &[a], 64);
    let y = sketch.node("y", &[b], 64);
    let graph = sketch.build(&[y]);
    let plan = ideal_planner().optimize(Techniques::NONE).plan(&graph).unwrap();
    let forged = forge(&plan, |json| {
        for (name, offset) in [("a", 0), ("b", 32)] {
            crate::forged::value(json, name)["offset"] = offset.into();
        }
    });
    let forged = forged.unwrap();
    let refused = forged.commit().unwrap().node(&forged, NodeId::new(1)).unwrap_err();
    assert!(matches!(refused, Error::PlanOverlap { step: 1, .. }), "{refused}");
}

#[test]
fn arenas_side_by_side_are_as_large_as_machines_address() {
    let mut sketch = Sketch::new();
    let x = sketch.input("x", 40);
    let graph = sketch.build(&[x]);
    let memories = ["fast", "slow"].map(|name| Space::new(name).with_capacity(1 << 20));
    let memories = Memories::new(memories.to_vec()).unwrap();
    let plan = ideal_planner().alignment(16).memories(&memories).plan(&graph).unwrap();
    let sized = |sizes: [u64; 2]| {
        let forged = forge(&plan, |json| {
            for (space, bytes) in sizes.into_iter().enumerate() {
                json["spaces"][space]["arena_bytes"] = bytes.into();
            }
            json["arena_bytes"] = (sizes[0] + sizes[1]).into();
        });
        forged.unwrap().side_by_side().map_err(|error| error.kind())
    };
    let alignment = plan.spaces()[1].alignment;
    let base = 40_u64.next_multiple_of(alignment);
    assert_eq!(sized([40, 24]), Ok((vec![0, base], base + 24)));
    let most = arenaplan::base::MAX_BYTES;
    assert_eq!(sized([40, most - base]), Ok((vec![0, base], most)));
    assert_eq!(sized([40, most - base + 1]), Err("SizeOverflow"));
}
