//! Lending: what a plan says is what a program finds in memory.

use arenaplan::{
    Error, Graph, Input, NodeId, Output, SpaceId, ValueId, ValueKind, Whole, WorkspacePolicy,
};
use proptest::prelude::*;

use crate::graphs::{Sketch, graphs, in_place, reshape};
use crate::planners::ideal_planner;

/// Returns the bytes that `value` must hold in any correct run.
///
/// A node's output bytes are a hash of what the node reads, so that any byte that is wrong
/// shows; views show bytes of their inputs.
fn expected(graph: &Graph) -> Vec<Vec<u8>> {
    let mut bytes: Vec<Vec<u8>> = graph
        .values()
        .iter()
        .enumerate()
        .map(|(index, value)| seed(index, value.bytes()))
        .collect();
    for &id in graph.order() {
        let node = graph.node(id);
        let key = node_key(graph, id, &bytes);
        for (position, output) in node.produces() {
            let mut content = noise(key.wrapping_add(position as u64), graph.value(output).bytes());
            for view in node.effects().views.iter().filter(|view| view.output == position) {
                let Some(input) = node.input(view.input) else { continue };
                let (offset, read) = (view.offset as usize, &bytes[input.index()]);
                match view.whole {
                    Whole::Input => {
                        let length = content.len();
                        content.copy_from_slice(&read[offset..offset + length]);
                    }
                    Whole::Output => content[offset..offset + read.len()].copy_from_slice(read),
                }
            }
            bytes[output.index()] = content;
        }
    }
    bytes
}

/// Mixes everything that a node reads into one number.
fn node_key(graph: &Graph, id: NodeId, bytes: &[Vec<u8>]) -> u64 {
    let mut key = 0xcbf2_9ce4_8422_2325 ^ id.index() as u64;
    for (_, value) in graph.node(id).reads_bytes_of() {
        for &byte in &bytes[value.index()] {
            key = (key ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
    key
}

fn noise(mut key: u64, bytes: u64) -> Vec<u8> {
    let next = || {
        key = key.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (key >> 33) as u8
    };
    std::iter::repeat_with(next).take(bytes as usize).collect()
}

fn seed(index: usize, bytes: u64) -> Vec<u8> {
    noise(index as u64 + 1, bytes)
}

/// Runs `graph` inside the arena of `plan`, garbage in every workspace, and compares each
/// graph output, and each byte that is read on the way, with what it must be.
pub fn run_and_compare(graph: &Graph, plan: &arenaplan::Plan) {
    let expected = expected(graph);
    let mut arena = plan.commit().unwrap();
    for (index, value) in graph.values().iter().enumerate() {
        if matches!(value.kind(), ValueKind::Input | ValueKind::State) {
            let bytes = arena.value_mut(plan, ValueId::new(index)).unwrap();
            bytes.copy_from_slice(&expected[index]);
        }
    }
    for node in plan.order() {
        for (_, value) in graph.node(node).reads_bytes_of() {
            if graph.value(value).is_planned() {
                assert_eq!(arena.value(plan, value).unwrap(), expected[value.index()], "{value:?}");
            }
        }
        let mut memory = arena.node(plan, node).unwrap();
        memory.workspaces.iter_mut().for_each(|bytes| bytes.fill(0xa5));
        for (position, output) in graph.node(node).produces() {
            if let Output::Exclusive(bytes) = &mut memory.outputs[position] {
                let wanted = &expected[output.index()];
                bytes[..wanted.len()].copy_from_slice(wanted);
            }
        }
    }
    for output in graph.outputs().iter().filter(|output| graph.value(**output).is_planned()) {
        assert_eq!(arena.value(plan, *output).unwrap(), expected[output.index()], "{output:?}");
    }
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
    let mut sketch = Sketch::new();
    let x = sketch.input("x", 64);
    let a = sketch.node("a", &[x], 64);
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
    let fast = builder.add_space(arenaplan::Space::new("fast").with_capacity(64));
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
    let mut arena = small.commit().unwrap();
    assert_eq!(arena.node(&plan, NodeId::new(0)).unwrap_err().kind(), "PlanOutOfBounds");
    assert_eq!(arena.value(&plan, ValueId::new(1)).unwrap_err().kind(), "PlanOutOfBounds");
    assert_eq!(arena.value(&plan, ValueId::new(7)).unwrap_err().kind(), "UndefinedValue");
}

#[test]
fn f03_an_arena_that_no_machine_has_is_an_error() {
    let mut sketch = Sketch::new();
    let x = sketch.input("x", 1 << 62);
    let plan = ideal_planner().plan(&sketch.build(&[x])).unwrap();
    assert_eq!(plan.commit().unwrap_err(), Error::ArenaCommit { bytes: 1 << 62 });
}
