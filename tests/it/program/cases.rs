//! Programs by hand: fused steps, wrong arenas, typed operands, every way to lend.

use arenaplan::arena::{Input, Output};
use arenaplan::base::Alignment;
use arenaplan::graph::{Overlap, View, Whole};
use arenaplan::plan::{InputMemory, OutputMemory, ShareRule, WorkspacePolicy};
use arenaplan::program::{Operands, SpaceSpan, StepMemory, StepWorkspace};
use arenaplan::{
    Arena, DType, Effects, Error, Graph, Node, NodeId, Plan, Planner, Program, Technique,
    Techniques, Value, ValueId, ValueKind,
};

use crate::graphs::{Sketch, in_place, reshape};
use crate::planners::ideal_planner;

// -- fused steps ---------------------------------------------------------------------------

/// `r = x + 1`, `a = r + 1`, `c = 3 a`, `y = c + r`, each element by element.
fn sum_of_products() -> (Graph, [ValueId; 2]) {
    let mut builder = Graph::builder("sum of products");
    let mut value =
        |name, kind| builder.add_value(Value::new(name, kind, DType::FLOAT32, [16]).unwrap());
    let x = value("x", ValueKind::Input);
    let [r, a, c, y] = ["r", "a", "c", "y"].map(|name| value(name, ValueKind::Activation));
    for (name, op, reads, writes) in [
        ("r", "AddOne", vec![x], r),
        ("a", "AddOne", vec![r], a),
        ("c", "Triple", vec![a], c),
        ("y", "Add", vec![c, r], y),
    ] {
        let follows = 0..reads.len();
        let node = Node::new(name, op).reads(reads).writes([writes]);
        builder.add_node(node.flow(0, 16, follows));
    }
    builder.add_output(y);
    (builder.build().unwrap(), [x, y])
}

/// Computes one element of what a node makes, from a function that returns elements of its
/// operands.
fn element(graph: &Graph, id: NodeId, read: &dyn Fn(ValueId) -> f32) -> f32 {
    let node = graph.node(id);
    let operand = |position| read(node.input(position).unwrap());
    match node.op() {
        "AddOne" => operand(0) + 1.0,
        "Triple" => operand(0) * 3.0,
        "Add" => operand(0) + operand(1),
        other => panic!("no kernel for {other}"),
    }
}

/// Computes a step, however many nodes run as one: each element of the result is passed from
/// node to node.
fn run_step(graph: &Graph, mut memory: StepMemory<'_>) {
    let step = memory.step();
    let nodes: Vec<_> = step.nodes().collect();
    let compute = |operands: &[f32]| {
        let mut made: Vec<(ValueId, f32)> = Vec::new();
        for &id in &nodes {
            let read = |value| match step.input_of(value) {
                Some(position) => operands[position],
                None => made.iter().find(|(known, _)| *known == value).unwrap().1,
            };
            let result = element(graph, id, &read);
            made.push((graph.node(id).output(0).unwrap(), result));
        }
        made.last().unwrap().1
    };
    match step.inputs().len() {
        1 => memory.elementwise(|operands: [f32; 1]| compute(&operands)).unwrap(),
        2 => memory.elementwise(|operands: [f32; 2]| compute(&operands)).unwrap(),
        more => panic!("{more} operands"),
    }
}

fn run(graph: &Graph, plan: &Plan, [x, y]: [ValueId; 2]) -> Vec<f32> {
    let program = plan.program(graph).unwrap();
    let mut arena = plan.commit().unwrap();
    arena.value_as_mut::<f32>(plan, x).unwrap().fill(5.0);
    for step in program.steps() {
        run_step(graph, arena.step(&program, step).unwrap());
    }
    arena.value_as::<f32>(plan, y).unwrap().to_vec()
}

#[test]
fn the_loop_of_the_readme_computes_what_the_graph_says() {
    let (graph, ends) = sum_of_products();
    let fused = Techniques::NONE.with(Technique::Views).with(Technique::InPlace);
    let fused = fused.with(Technique::Fusion);
    for planner in [
        Planner::new(),
        ideal_planner(),
        ideal_planner().optimize(Techniques::NONE),
        ideal_planner().optimize(Techniques::BASIC),
        ideal_planner().optimize(Techniques::ALL),
        ideal_planner().optimize(fused),
    ] {
        let plan = planner.plan(&graph).unwrap();
        assert_eq!(run(&graph, &plan, ends), [27.0; 16], "{}", plan.options().optimize);
    }
}

/// A plan of [`sum_of_products`] in which `c` and `y` run as one.
fn fused_plan(graph: &Graph) -> Plan {
    let steps =
        [vec![0], vec![1], vec![2, 3]].map(|step| step.into_iter().map(NodeId::new).collect());
    ideal_planner().plan_steps(graph, &steps).unwrap()
}

#[test]
fn nodes_that_run_as_one_are_lent_as_one() {
    let (graph, ends) = sum_of_products();
    let plan = fused_plan(&graph);
    assert_eq!(run(&graph, &plan, ends), [27.0; 16]);
    let program = plan.program(&graph).unwrap();
    let step = program.steps().last().unwrap();
    assert!(step.is_fused());
    assert_eq!((step.index(), step.name(), step.node()), (2, "y", NodeId::new(3)));
    assert_eq!(step.nodes().collect::<Vec<_>>(), [2, 3].map(NodeId::new));
    // a and r: what the group reads from outside.
    let read: Vec<_> = step.inputs().map(|input| input.value.unwrap().index()).collect();
    assert_eq!(read, [2, 1]);
    assert_eq!(step.input_of(ValueId::new(1)), Some(1));
    assert_eq!(step.input_of(ValueId::new(3)), None);
    assert_eq!(step.outputs().len(), 1);
}

#[test]
fn a_member_of_a_fused_step_has_no_memory_of_its_own() {
    // It would be lent the operands of all: `c = 3 a` then writes over `r`, and 27 becomes 28.
    let (graph, _) = sum_of_products();
    let plan = fused_plan(&graph);
    let mut arena = plan.commit().unwrap();
    for (node, name) in [(2, "2"), (3, "'y'")] {
        let error = arena.node(&plan, NodeId::new(node)).unwrap_err();
        let expected = Error::FusedNode { node: name.into(), step: "'y'".into() };
        assert_eq!(error, expected);
        assert!(error.to_string().contains("Arena::step"), "{error}");
    }
    assert!(arena.node(&plan, NodeId::new(0)).is_ok(), "a step by itself");
}

#[test]
fn fusion_by_default_options_is_refused_node_by_node_and_right_step_by_step() {
    let (graph, ends) = sum_of_products();
    let plan = ideal_planner().optimize(Techniques::ALL).plan(&graph).unwrap();
    let fused = plan.steps().iter().find(|step| !step.fused.is_empty());
    let fused = fused.expect("the planner fuses elementwise nodes if it may");
    let mut arena = plan.commit().unwrap();
    let refused = arena.node(&plan, NodeId::from(fused.node)).unwrap_err();
    assert_eq!(refused.kind(), "FusedNode");
    assert_eq!(run(&graph, &plan, ends), [27.0; 16]);
}

// -- wrong plans and wrong arenas ------------------------------------------------------------

fn is_send_and_sync<T: Send + Sync + 'static>() {}

#[test]
fn programs_and_arenas_go_between_threads() {
    is_send_and_sync::<Program>();
    is_send_and_sync::<Arena<'static>>();
    fn lent(memory: StepMemory<'_>) -> impl Send + Sync + '_ {
        memory
    }
    let _ = lent;
}

/// One node that reads `bytes` bytes and writes as many.
fn layer(bytes: u64) -> (Graph, Plan) {
    let mut sketch = Sketch::new();
    let x = sketch.input("x", bytes);
    let y = sketch.node("y", &[x], bytes);
    let graph = sketch.build(&[y]);
    let plan = ideal_planner().plan(&graph).unwrap();
    (graph, plan)
}

#[test]
fn a_program_is_of_the_graph_that_was_planned() {
    let (_, plan) = layer(64);
    let (other, _) = layer(65);
    assert_eq!(plan.program(&other).unwrap_err().kind(), "PlanMismatch");
}

#[test]
fn an_arena_serves_the_program_of_its_plan_only() {
    let (graph, plan) = layer(64);
    let program = plan.program(&graph).unwrap();
    let (other_graph, other) = layer(60);
    let other_program = other.program(&other_graph).unwrap();
    let step = program.step(0).unwrap();
    let refusal = Error::ArenaMismatch { model: "'sketch'".into() };

    // The sizes fit: nothing else would notice.
    assert_eq!(other.arena_bytes(), plan.arena_bytes());
    let mut arena = other.commit().unwrap();
    assert_eq!(arena.step(&program, step).unwrap_err(), refusal);
    assert_eq!(arena.step(&other_program, step).unwrap_err(), refusal, "a step of another program");
    arena.rebind(&plan).unwrap();
    assert!(arena.step(&program, step).is_ok());

    // Bytes of the caller's.
    let mut bytes = vec![0; 256];
    let start = bytes.as_ptr().align_offset(64);
    let mut arena = plan.bind(&mut bytes[start..]).unwrap();
    assert!(arena.step(&program, step).is_ok());
    assert_eq!(arena.step(&other_program, other_program.step(0).unwrap()).unwrap_err(), refusal);

    // Bytes that are no plan's.
    let mut arena = Arena::zeroed(4096, Alignment::new(64).unwrap()).unwrap();
    assert_eq!(arena.step(&program, step).unwrap_err(), refusal);
    arena.rebind(&plan).unwrap();
    assert!(arena.step(&program, step).is_ok());
    assert!(program.step(1).is_none());
    assert_eq!((program.len(), program.is_empty()), (1, false));
}

#[test]
fn an_arena_is_made_for_another_plan_only_if_it_is_as_aligned() {
    let mut bytes = vec![0; 256];
    let start = bytes.as_ptr().align_offset(64);
    let (graph, _) = layer(64);
    let loose = ideal_planner().alignment(1).plan(&graph).unwrap();
    let strict = ideal_planner().alignment(64).plan(&graph).unwrap();
    let mut arena = loose.bind(&mut bytes[start + 1..]).unwrap();
    assert_eq!(arena.rebind(&strict).unwrap_err(), Error::MisalignedBuffer { alignment: 64 });
}

#[test]
fn buffers_of_the_caller_are_lent_too() {
    let (graph, _) = layer(64);
    let planner = ideal_planner().inputs(InputMemory::Caller).outputs(OutputMemory::Caller);
    let plan = planner.alignment(1).plan(&graph).unwrap();
    let program = plan.program(&graph).unwrap();
    let (mut inside, mut x, mut y) = (Vec::new(), vec![3; 64], vec![0; 64]);
    let mut arena = plan.bind_all([&mut inside[..], &mut x, &mut y]).unwrap();
    let step = program.step(0).unwrap();
    arena.step(&program, step).unwrap().elementwise(|[x]: [u8; 1]| x + 1).unwrap();
    assert_eq!(y, [4; 64]);
}

// -- every way to lend -----------------------------------------------------------------------

/// Returns the program of a graph planned with all techniques, byte by byte, and its arena.
fn prepared(graph: &Graph) -> (Program, Arena<'static>) {
    // A plan with workspaces has no overlap without knowing the scratch memory of a piece.
    let works = graph.nodes().iter().any(|node| !node.effects().workspaces.is_empty());
    let policy = if works { WorkspacePolicy::Auto } else { WorkspacePolicy::None };
    let planner = ideal_planner().alignment(1).workspace(policy);
    let plan = planner.optimize(Techniques::ALL).plan(graph).unwrap();
    (plan.program(graph).unwrap(), plan.commit().unwrap())
}

#[test]
fn an_in_place_pair_is_one_exclusive_slice() {
    let mut sketch = Sketch::new();
    let c = sketch.input("c", 1);
    let x = sketch.node("x", &[c], 64);
    let w = sketch.value("w", ValueKind::Constant, 64);
    let y = sketch.effectful("y", &[x, w], 64, in_place(0));
    let graph = sketch.build(&[y]);
    let (program, mut arena) = prepared(&graph);
    let step = program.step(1).unwrap();
    assert_eq!(step.shares()[0].rule, ShareRule::InPlace);
    let mut memory = arena.step(&program, step).unwrap();
    memory.output(0).unwrap().copy_from_slice(&[7; 64]);
    assert_eq!(memory.input(0).unwrap(), [7; 64], "the same bytes");
    let Operands { inputs: [x, w], outputs: [y], workspaces: [] } = memory.split().unwrap();
    assert!(matches!(x, Input::Within { output: 0, offset: 0 }));
    assert!(matches!(w, Input::External));
    assert!(matches!(y, Output::Exclusive(bytes) if bytes == [7; 64]));
}

#[test]
fn a_view_is_not_to_be_written() {
    let mut sketch = Sketch::new();
    let x = sketch.input("x", 64);
    let y = sketch.effectful("y", &[x], 64, reshape());
    let graph = sketch.build(&[y]);
    let (program, mut arena) = prepared(&graph);
    let step = program.step(0).unwrap();
    assert!(step.is_view(0) && !step.is_view(1));
    let mut memory = arena.step(&program, step).unwrap();
    let refusal = memory.output(0).unwrap_err().to_string();
    assert!(refusal.contains("step 'y', output 0 (value 'y'): it is a view"), "{refusal}");
    let Operands { inputs: [x], outputs: [y], workspaces: [] } = memory.split().unwrap();
    assert!(matches!(x, Input::Shared(bytes) if bytes.len() == 64));
    assert!(matches!(y, Output::Within { input: 0, offset: 0 }));
    memory.elementwise(|_: [u8; 1]| panic!("there is nothing to do")).unwrap();
}

#[test]
fn an_overlap_is_computed_in_order() {
    // `y` begins at `x` or before, and each element is read before it is written over.
    let mut sketch = Sketch::new();
    let c = sketch.input("c", 1);
    let x = sketch.node("x", &[c], 64);
    let overlaps = vec![Overlap { input: 0, output: 0, distance: 8 }];
    let y = sketch.effectful("y", &[x], 64, Effects { overlaps, ..Effects::default() });
    let graph = sketch.build(&[y]);
    let (program, mut arena) = prepared(&graph);
    let values: Vec<u8> = (0..64).collect();
    arena.value_mut(program.plan(), x).unwrap().copy_from_slice(&values);
    let step = program.step(1).unwrap();
    assert_eq!(step.shares()[0].rule, ShareRule::Overlap);
    let mut memory = arena.step(&program, step).unwrap();
    memory.elementwise(|[x]: [u8; 1]| x + 1).unwrap();
    let expected: Vec<u8> = (1..65).collect();
    assert_eq!(arena.value(program.plan(), y).unwrap(), expected);
}

#[test]
fn any_number_of_inputs_is_lent_beside_an_output() {
    let mut sketch = Sketch::new();
    let inputs = ["a", "b", "c", "d"].map(|name| sketch.input(name, 4));
    let join =
        |input: usize| View { input, output: 0, offset: 4 * input as u64, whole: Whole::Output };
    let effects = Effects { views: (0..4).map(join).collect(), ..Effects::default() };
    let all = sketch.effectful("all", &inputs, 16, effects);
    // `a` is needed later, and so not where `all` has it.
    let last = sketch.node("last", &[all, inputs[0]], 1);
    let graph = sketch.build(&[last]);
    for techniques in [Techniques::NONE, Techniques::ALL] {
        let plan = ideal_planner().alignment(1).optimize(techniques).plan(&graph).unwrap();
        let program = plan.program(&graph).unwrap();
        let mut arena = plan.commit().unwrap();
        for (byte, value) in (0..).zip(inputs) {
            arena.value_mut(&plan, value).unwrap().fill(byte);
        }
        let mut memory = arena.step(&program, program.step(0).unwrap()).unwrap();
        let mut inputs = [const { Input::Absent }; 4];
        let mut outputs = [Output::Absent];
        memory.lend(&mut inputs, &mut outputs, &mut []).unwrap();
        if let [Output::Exclusive(output)] = outputs {
            for (position, input) in inputs.into_iter().enumerate() {
                match input {
                    Input::Shared(bytes) => output[4 * position..][..4].copy_from_slice(bytes),
                    Input::Within { output: 0, offset } => assert_eq!(offset, 4 * position),
                    other => panic!("{other:?}"),
                }
            }
        }
        let expected = [0, 1, 2, 3].map(|byte| [byte; 4]).concat();
        assert_eq!(arena.value(&plan, all).unwrap(), expected);
    }
}

#[test]
fn workspaces_of_a_step_follow_each_other() {
    let mut sketch = Sketch::new();
    let x = sketch.input("x", 8);
    let choice = |bytes| [arenaplan::graph::Choice { bytes, cost: 1.0 }];
    let y = sketch.value("y", ValueKind::Activation, 8);
    let node = Node::new("y", "Op").reads([x]).writes([y]);
    sketch.builder.add_node(node.workspace(choice(16)).workspace(choice(0)).workspace(choice(4)));
    let graph = sketch.build(&[y]);
    let (program, mut arena) = prepared(&graph);
    let step = program.step(0).unwrap();
    let slots: Vec<StepWorkspace> = step.workspaces().collect();
    let sizes = slots.iter().map(|work| (work.node.index(), work.slot, work.span.bytes));
    assert_eq!(sizes.collect::<Vec<_>>(), [(0, 0, 16), (0, 1, 0), (0, 2, 4)]);
    let mut memory = arena.step(&program, step).unwrap();
    assert_eq!(memory.workspace(0).unwrap().len(), 16);
    assert_eq!(memory.workspace_as::<u16>(2).unwrap().len(), 2);
    assert_eq!(memory.workspace(3).unwrap_err().kind(), "InvalidOperand");
    let Operands { inputs: [_], outputs: [_], workspaces: [first, none, last] } =
        memory.split().unwrap();
    assert_eq!([first.len(), none.len(), last.len()], [16, 0, 4]);
    memory.elementwise(|[x]: [u8; 1]| x).unwrap();
}

#[test]
fn a_state_that_is_mutated_is_lent_to_be_written() {
    // Whether it is read or not, and once however often it is an operand.
    for ignores in [vec![], vec![1]] {
        let mut sketch = Sketch::new();
        let x = sketch.input("x", 8);
        let state = sketch.value("state", ValueKind::State, 8);
        let y = sketch.value("y", ValueKind::Activation, 8);
        let effects = Effects { mutates: vec![1], ignores: ignores.clone(), ..Effects::default() };
        let reads = if ignores.is_empty() { vec![x, state, state] } else { vec![x, state] };
        let node = Node::new("push", "Push").reads(reads).writes([y]).with_effects(effects);
        sketch.builder.add_node(node);
        let graph = sketch.build(&[y]);
        let (program, mut arena) = prepared(&graph);
        arena.value_mut(program.plan(), state).unwrap().fill(5);
        let step = program.step(0).unwrap();
        let mut memory = arena.step(&program, step).unwrap();
        let mut inputs = [const { Input::Absent }; 4];
        let mut outputs = [const { Output::Absent }; 2];
        memory.lend(&mut inputs, &mut outputs, &mut []).unwrap();
        let [Input::Shared(_), Input::State(bytes), rest, Input::Absent] = inputs else {
            panic!("{inputs:?}");
        };
        bytes.fill(6);
        let [Output::Exclusive(y), Output::Absent] = outputs else { panic!("{outputs:?}") };
        assert_eq!(y.len(), 8);
        if ignores.is_empty() {
            assert!(matches!(rest, Input::WithinState { input: 1, offset: 0 }));
        }
        assert!(matches!(memory.input(1).unwrap(), [6, ..]));
        assert_eq!(arena.value(program.plan(), state).unwrap(), [6; 8]);
    }
}

#[test]
fn operands_that_are_left_out_or_constant_have_no_bytes() {
    let mut sketch = Sketch::new();
    let x = sketch.input("x", 8);
    let w = sketch.value("w", ValueKind::Constant, 8);
    let y = sketch.value("y", ValueKind::Activation, 8);
    let node = Node::new("y", "Op").reads([Some(x), None, Some(w)]).writes([None, Some(y)]);
    sketch.builder.add_node(node);
    let graph = sketch.build(&[y]);
    let (program, mut arena) = prepared(&graph);
    let step = program.step(0).unwrap();
    assert_eq!(step.inputs().nth(1).unwrap().value, None);
    assert_eq!(step.outputs().next().unwrap().span, None);
    let placed = program.plan().placement(y).unwrap();
    let span = SpaceSpan { space: arenaplan::SpaceId::new(0), offset: placed.offset, bytes: 8 };
    assert_eq!(step.outputs().nth(1).unwrap().span, Some(span));
    let mut memory = arena.step(&program, step).unwrap();
    for (position, reason) in [
        (1, "input 1: it is left out, or not read"),
        (2, "input 2 (value 1): it is not in the arena"),
        (3, "input 3: there is no such operand"),
    ] {
        let refusal = memory.input(position).unwrap_err().to_string();
        assert_eq!(refusal, format!("step 'y', {reason}"));
    }
    assert!(memory.output(0).is_err() && memory.output(1).is_ok() && memory.output(2).is_err());
    let Operands { inputs, outputs, workspaces: [] } = memory.split().unwrap();
    assert!(matches!(inputs, [Input::Shared(_), Input::Absent, Input::External]));
    assert!(matches!(outputs, [Output::Absent, Output::Exclusive(_)]));
}

#[test]
fn numbers_of_operands_must_fit() {
    let (graph, plan) = layer(64);
    let program = plan.program(&graph).unwrap();
    let mut arena = plan.commit().unwrap();
    let mut memory = arena.step(&program, program.step(0).unwrap()).unwrap();
    let refusal = memory.split::<2, 1, 0>().unwrap_err().to_string();
    assert!(refusal.contains("there are 1 inputs, 1 outputs and 0 workspaces"), "{refusal}");
    assert!(memory.split::<1, 0, 0>().is_err());
    assert!(memory.split::<1, 1, 1>().is_err());
    assert!(memory.lend(&mut [], &mut [Output::Absent], &mut []).is_err());
    assert!(memory.lend(&mut [Input::Absent], &mut [], &mut []).is_err());
    assert!(memory.elementwise(|[a, b]: [u8; 2]| a + b).is_err());
    assert!(memory.split::<1, 1, 0>().is_ok());
}

// -- typed operands --------------------------------------------------------------------------

#[test]
fn a_size_or_address_that_is_no_elements_is_refused_by_name() {
    let mut sketch = Sketch::new();
    let first = sketch.input("first", 1);
    let odd = sketch.input("odd value", 6);
    let out = sketch.node("out", &[first, odd], 8);
    let graph = sketch.build(&[out]);
    let planner = ideal_planner().alignment(1).optimize(Techniques::NONE);
    let plan = planner.plan(&graph).unwrap();
    let program = plan.program(&graph).unwrap();
    let mut bytes = vec![0; 128];
    let start = bytes.as_ptr().align_offset(64);
    let mut arena = plan.bind(&mut bytes[start + 1..]).unwrap();
    let refusal = arena.value_as::<[u8; 4]>(&plan, odd).unwrap_err();
    assert_eq!(refusal.kind(), "InvalidCast");
    let text = "value 'odd value' cannot be read as elements: 6 bytes must be a whole number of [u8; 4], each with 4 bytes";
    assert_eq!(refusal.to_string(), text);
    // The arena begins at an odd address.
    let at = |value| plan.placement(value).unwrap().offset;
    let (position, value) = [(1, odd), (2, out)].into_iter().find(|it| at(it.1) % 2 == 0).unwrap();
    let refusal = arena.value_as_mut::<u16>(&plan, value).unwrap_err().to_string();
    assert!(
        refusal.contains("the address must be a multiple of 2, the alignment of u16"),
        "{refusal}"
    );
    let mut memory = arena.step(&program, program.step(0).unwrap()).unwrap();
    let refusal = match position {
        1 => memory.input_as::<u16>(1).unwrap_err(),
        _ => memory.output_as::<u16>(0).unwrap_err(),
    };
    let refusal = refusal.to_string();
    assert!(refusal.contains("a multiple of 2") && refusal.contains("value 'o"), "{refusal}");
    let refusal = memory.split_as::<f32, 2, 1, 0>().unwrap_err().to_string();
    assert!(
        refusal.contains("input 0 (value 'first'): 1 bytes must be a whole number"),
        "{refusal}"
    );
    assert!(
        memory.elementwise(|[a, _]: [u8; 2]| a).unwrap_err().to_string().contains("it has 1 bytes")
    );
    assert_eq!(memory.input_as::<[u8; 3]>(1).unwrap(), [[0; 3]; 2]);
    assert!(memory.split_as::<u8, 2, 1, 0>().is_ok());
}

#[test]
fn typed_operands_count_in_elements() {
    // An output that overlaps its input: the offset is in elements.
    let mut sketch = Sketch::new();
    let c = sketch.input("c", 4);
    let x = sketch.node("x", &[c], 64);
    let overlaps = vec![Overlap { input: 0, output: 0, distance: 8 }];
    let y = sketch.effectful("y", &[x], 64, Effects { overlaps, ..Effects::default() });
    let graph = sketch.build(&[y]);
    let plan = ideal_planner().alignment(4).optimize(Techniques::ALL).plan(&graph).unwrap();
    let program = plan.program(&graph).unwrap();
    let mut arena = plan.commit().unwrap();
    arena.value_as_mut::<u32>(&plan, x).unwrap().fill(9);
    let mut memory = arena.step(&program, program.step(1).unwrap()).unwrap();
    let Operands { inputs: [x], outputs: [y], workspaces: [] } =
        memory.split_as::<u32, 1, 1, 0>().unwrap();
    let (Input::Within { output: 0, offset }, Output::Exclusive(y)) = (x, y) else {
        panic!("an overlap");
    };
    assert_eq!((offset, y.len()), (2, 18));
    assert_eq!(y[offset..], [9; 16]);
}
