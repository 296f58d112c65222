//! Variables: assignments, the order of reads and writes, and their storage.

use arenaplan::arena::{Input, Output};
use arenaplan::graph::InPlace;
use arenaplan::{DType, Effects, Error, Graph, Node, NodeId, Plan, ValueId, ValueKind};
use arenaplan_classic::Error as Classic;
use arenaplan_classic::sharing::{
    Assign, AssignKind, SharingOptions, find_assigns, is_elementwise, order_mutations,
    share_storage,
};
use proptest::prelude::*;

use crate::sharing::{I0, I01, Net, P, ids};

/// Adds an assignment of `source` to `state`.
fn assign(net: &mut Net, name: &str, state: ValueId, source: ValueId) -> ValueId {
    let result = net.value(name, ValueKind::Activation, DType::FLOAT32, &[10]);
    let effects = Effects {
        in_place: vec![InPlace { input: 1, output: 0, identity: true }],
        mutates: vec![0],
        ignores: vec![0],
        ..Effects::default()
    };
    net.builder.add_node(
        Node::new(name, "Assign").reads([state, source]).writes([result]).with_effects(effects),
    );
    result
}

fn state(net: &mut Net, name: &str) -> ValueId {
    net.value(name, ValueKind::State, DType::FLOAT32, &[10])
}

fn kinds(graph: &Graph, elementwise: bool) -> Vec<Option<AssignKind>> {
    let assigns = find_assigns(graph, |_| elementwise);
    assigns.into_iter().map(|found| found.map(|assign| assign.kind)).collect()
}

/// The update of two variables: `w += 1; w2 = w + 1`.
fn update() -> Graph {
    let mut net = Net::new();
    let (w2, w) = (state(&mut net, "w2"), state(&mut net, "w"));
    let add0 = net.op("add0", P, &[w]);
    let assign0 = assign(&mut net, "assign0", w, add0);
    let add1 = net.op("add1", P, &[assign0]);
    let assign1 = assign(&mut net, "assign1", w2, add1);
    net.build(&[assign1])
}

#[test]
fn row_21_assignments_are_direct_when_their_producer_can_write_for_them() {
    let graph = update();
    assert_eq!(
        kinds(&graph, true),
        [None, Some(AssignKind::Direct), None, Some(AssignKind::Direct)]
    );
    assert_eq!(
        kinds(&graph, false),
        [None, Some(AssignKind::Copy), None, Some(AssignKind::Copy)],
        "opaque producers"
    );
    let mut net = Net::new();
    let (w, x) = (state(&mut net, "w"), net.input("x"));
    let y = net.op("y", P, &[x]);
    let twice = assign(&mut net, "twice", w, y);
    let plain = assign(&mut net, "plain", w, x);
    let z = net.op("z", P, &[y]);
    let graph = net.build(&[twice, plain, z]);
    let copy = Some(AssignKind::Copy);
    assert_eq!(kinds(&graph, true), [None, copy, copy, None], "read twice, and no producer");
}

#[test]
fn row_22_g_n16_variables_get_fresh_blocks_and_assignments_their_variable() {
    let graph = update();
    let mut options = SharingOptions::nnvm();
    options.match_range = 16;
    // In the original the compiled graph has no in-place pairs.
    let plan = {
        let mut net = Net::new();
        let (w2, w) = (state(&mut net, "w2"), state(&mut net, "w"));
        let add0 = net.op("add0", P, &[w]);
        let assign0 = net.op("assign0", P, &[w, add0]);
        let add1 = net.op("add1", P, &[assign0]);
        let assign1 = net.op("assign1", P, &[w2, add1]);
        let plain = net.build(&[assign1]);
        share_storage(&plain, &options).unwrap()
    };
    assert_eq!(ids(&graph, &plan), [0, 1, 0, 1]);
    let assigns = find_assigns(&graph, |_| true);
    let plan = plan.decorate(&graph, &assigns).unwrap();
    let codes: Vec<_> = plan.storages().iter().map(|storage| storage.code()).collect();
    assert_eq!(codes, [2, 3, 3, 3, 2, 2], "w2, w, add0, assign0, add1, assign1");
    assert_eq!(plan.blocks()[0].bytes + plan.blocks()[1].bytes, 0, "holes");

    // What it means: run it on the blocks.
    let mut blocks = [0, 0, 0, 100];
    for run in 1..=2 {
        let block = |value: usize| plan.storages()[value].block().unwrap() as usize;
        for (node, assign) in graph.order().iter().zip(&assigns) {
            if assign.is_none() {
                let node = graph.node(*node);
                let read = blocks[block(node.input(0).unwrap().index())];
                blocks[block(node.output(0).unwrap().index())] = read + 1;
            }
        }
        assert_eq!((blocks[3], blocks[2]), (100 + run, 101 + run), "w, w2");
    }
}

#[test]
fn row_22_a_plan_with_a_value_without_a_block_is_not_decorated() {
    let graph = update();
    let options = SharingOptions { nodes: Some(0..2), ..SharingOptions::default() };
    let refused = share_storage(&graph, &options).unwrap().decorate(&graph, &[]);
    assert_eq!(refused.unwrap_err().kind(), "InvalidOption");
}

#[test]
fn row_09_reads_and_writes_of_a_variable_happen_in_the_order_they_were_added() {
    // conv(x, w); add1(conv, x); assign(x, add1); add2(add1, x).
    let mut net = Net::new();
    let (x, w) = (state(&mut net, "x"), net.input("w"));
    let conv = net.op("conv", P, &[x, w]);
    let add1 = net.op("add1", P, &[conv, x]);
    let written = assign(&mut net, "assign", x, add1);
    let add2 = net.op("add2", P, &[add1, x]);
    let graph = net.build(&[add2, written]);
    let after = |graph: &Graph, node: usize| -> Vec<usize> {
        let node = graph.node(NodeId::new(node));
        node.control_dependencies().iter().map(|id| id.index()).collect()
    };
    let ordered = order_mutations(&graph, &[]).unwrap();
    assert_eq!(after(&ordered, 2), [0, 1]);
    assert_eq!(after(&ordered, 3), [2]);
}

#[test]
fn k07_the_producer_of_a_direct_assignment_waits_for_readers_of_the_old_bytes() {
    // reader(w) is added before the assignment, and must see the old bytes.
    let mut net = Net::new();
    let (w, x) = (state(&mut net, "w"), net.input("x"));
    let source = net.op("source", P, &[x]); // node 0: what writes
    let reader = net.op("reader", P, &[w]); // node 1
    let written = assign(&mut net, "assign", w, source); // node 2
    let graph = net.build(&[written, reader]);
    let assigns = find_assigns(&graph, |_| true);
    assert_eq!(assigns[2].unwrap().kind, AssignKind::Direct);
    let ordered = order_mutations(&graph, &assigns).unwrap();
    let place = |node| ordered.order().iter().position(|&id| id == NodeId::new(node)).unwrap();
    assert!(place(1) < place(0), "the reader runs before what writes");
    // And two writes happen one after the other.
    let mut net = Net::new();
    let (w, x) = (state(&mut net, "w"), net.input("x"));
    let first = assign(&mut net, "first", w, x);
    let second = assign(&mut net, "second", w, x);
    let graph = order_mutations(&net.build(&[first, second]), &[]).unwrap();
    assert_eq!(graph.node(NodeId::new(1)).control_dependencies(), [NodeId::new(0)]);
}

// -- decorated plans are checked, and run ----------------------------------------------

/// Returns the arena plan of a decorated storage plan, and the graph that it is for.
fn decorated(
    graph: &Graph,
    assigns: &[Option<Assign>],
) -> arenaplan_classic::Result<(Plan, Graph)> {
    let graph = order_mutations(graph, assigns)?;
    let plan = share_storage(&graph, &SharingOptions::default())?;
    Ok((plan.decorate(&graph, assigns)?.to_plan(&graph, 1)?, graph))
}

fn offset(plan: &Plan, value: ValueId) -> u64 {
    plan.placement(value).unwrap().offset
}

#[test]
fn row_21_a_direct_assignment_is_a_nop_that_the_checker_understands() {
    // w += 1, in place.
    let mut net = Net::new();
    let w = state(&mut net, "w");
    let sum = net.op("sum", I0, &[w]);
    let written = assign(&mut net, "assign", w, sum);
    let last = net.op("last", P, &[w]);
    let graph = net.build(&[last]);
    let assigns = find_assigns(&graph, |_| true);
    let (plan, graph) = decorated(&graph, &assigns).unwrap();
    assert_eq!([sum, written].map(|value| offset(&plan, value)), [offset(&plan, w); 2]);
    assert_eq!((plan.arena_bytes(), plan.lower_bound()), (80, 80));
    let mut arena = plan.commit().unwrap();
    let add = arena.node(&plan, NodeId::new(0)).unwrap();
    assert!(matches!(add.inputs[0], Input::Within { output: 0, offset: 0 }));
    let nop = arena.node(&plan, NodeId::new(1)).unwrap();
    assert!(matches!(nop.outputs[0], Output::Within { input: 1, offset: 0 }), "nothing to write");

    // A copy writes the state as its result.
    let copies = find_assigns(&graph, |_| false);
    let (plan, _) = decorated(&graph, &copies).unwrap();
    assert_ne!(offset(&plan, sum), offset(&plan, w));
    assert_eq!(offset(&plan, written), offset(&plan, w));
    let mut arena = plan.commit().unwrap();
    let copy = arena.node(&plan, NodeId::new(1)).unwrap();
    assert!(matches!(copy.inputs[1], Input::Shared(_)));
    assert!(matches!(copy.outputs[0], Output::Exclusive(_)));
}

#[test]
fn row_49_a_direct_assignment_that_does_not_wait_or_is_not_in_place_is_refused() {
    // K-07: `source` writes `w` before `reader` has read it.
    let mut net = Net::new();
    let (w, x) = (state(&mut net, "w"), net.input("x"));
    let source = net.op("source", P, &[x]);
    let reader = net.op("reader", P, &[w]);
    let written = assign(&mut net, "assign", w, source);
    let graph = net.build(&[written, reader]);
    let assigns = find_assigns(&graph, |_| true);
    let plan = share_storage(&graph, &SharingOptions::default()).unwrap();
    let unordered = plan.decorate(&graph, &assigns).unwrap().to_plan(&graph, 1);
    assert_eq!(unordered.unwrap_err().kind(), "PlanOverlap");
    decorated(&graph, &assigns).unwrap();

    // `sum` reads `w` and nothing says that it may write over it.
    let mut net = Net::new();
    let w = state(&mut net, "w");
    let sum = net.op("sum", P, &[w]);
    let written = assign(&mut net, "assign", w, sum);
    let graph = net.build(&[written]);
    let assigns = find_assigns(&graph, |_| true);
    assert_eq!(decorated(&graph, &assigns).unwrap_err().kind(), "PlanOverlap");
}

/// A program over two variables and an input: `(operands, what it does)`.
type Program = Vec<(prop::sample::Index, prop::sample::Index, u8)>;

/// Returns the graph of a program: sums of two operands, and assignments. A variable is
/// read by its name, or as the result of its last assignment.
fn program_graph(program: &Program) -> Graph {
    let mut net = Net::new();
    let states = [state(&mut net, "v"), state(&mut net, "w")];
    let x = net.input("x");
    let mut readable = vec![states[0], states[1], x];
    let mut results: [Option<ValueId>; 2] = [None; 2];
    for (index, (first, second, kind)) in program.iter().enumerate() {
        let name = format!("n{index}");
        let (first, second) = (*first.get(&readable), *second.get(&readable));
        match kind {
            0 | 1 => {
                let target = usize::from(*kind);
                let result = assign(&mut net, &name, states[target], first);
                readable.retain(|&value| Some(value) != results[target]);
                readable.push(result);
                results[target] = Some(result);
            }
            _ => readable.push(net.op(&name, I01, &[first, second])),
        }
    }
    let kept: Vec<_> =
        readable.into_iter().skip(3).filter(|value| value.index() % 3 == 0).collect();
    net.build(&kept)
}

fn sum(node: usize, operands: &[Vec<u8>]) -> Vec<u8> {
    let bytes = operands[0].iter().zip(&operands[1]);
    bytes.map(|(a, b)| a.wrapping_mul(3).wrapping_add(*b).wrapping_add(node as u8)).collect()
}

/// Runs the nodes in the order in which they were added, each value with bytes of its own;
/// returns the outputs.
fn run_apart(graph: &Graph, states: &mut [Vec<u8>], x: &[u8]) -> Vec<Vec<u8>> {
    let mut values: Vec<Vec<u8>> = vec![Vec::new(); graph.values().len()];
    values[2] = x.to_vec();
    values[..2].clone_from_slice(states);
    for (index, node) in graph.nodes().iter().enumerate() {
        let output = node.output(0).unwrap().index();
        if let Some(it) = graph.assignment(NodeId::new(index)) {
            let bytes = values[it.source.index()].clone();
            values[it.state.index()].clone_from(&bytes);
            values[output] = bytes;
        } else {
            let operands: Vec<_> =
                node.inputs().iter().flatten().map(|it| values[it.index()].clone()).collect();
            values[output] = sum(index, &operands);
        }
    }
    states.clone_from_slice(&values[..2]);
    graph.outputs().iter().map(|it| values[it.index()].clone()).collect()
}

/// Runs the plan in its arena.
fn run_planned(graph: &Graph, plan: &Plan, arena: &mut [u8], x: &[u8]) -> Vec<Vec<u8>> {
    let span = |value: ValueId| {
        let place = plan.placement(value).unwrap();
        place.offset as usize..(place.offset + place.bytes) as usize
    };
    arena[span(ValueId::new(2))].copy_from_slice(x);
    for &id in graph.order() {
        let node = graph.node(id);
        if let Some(it) = graph.assignment(id) {
            assert_eq!(span(it.result), span(it.state));
            arena.copy_within(span(it.source), span(it.state).start);
        } else {
            let operands: Vec<_> =
                node.inputs().iter().flatten().map(|&it| arena[span(it)].to_vec()).collect();
            arena[span(node.output(0).unwrap())].copy_from_slice(&sum(id.index(), &operands));
        }
    }
    graph.outputs().iter().map(|&it| arena[span(it)].to_vec()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// Whether assignments are copies or direct, two runs give what they give when every
    /// value has memory of its own and nodes run as they were added.
    #[test]
    fn row_22_decorated_plans_pass_the_checker_and_compute_what_was_written(
        program in prop::collection::vec(
            (any::<prop::sample::Index>(), any::<prop::sample::Index>(), 0_u8..5), 1..14,
        ),
    ) {
        let graph = program_graph(&program);
        for direct in [false, true] {
            let assigns = find_assigns(&graph, |_| direct);
            let (plan, ordered) = match decorated(&graph, &assigns) {
                // Who writes for an assignment may have to run before and after a reader.
                Err(Classic::Core(Error::GraphCycle { .. })) if direct => continue,
                made => made.unwrap(),
            };
            prop_assert_eq!(find_assigns(&ordered, |_| direct), assigns);
            let mut states = vec![vec![5; 40], vec![9; 40]];
            let mut arena = vec![0; plan.arena_bytes() as usize];
            let place = |state: usize| offset(&plan, ValueId::new(state)) as usize;
            (0..2).for_each(|it| arena[place(it)..place(it) + 40].copy_from_slice(&states[it]));
            for run in 0..2 {
                let x = [run + 1; 40];
                let expected = run_apart(&graph, &mut states, &x);
                prop_assert_eq!(run_planned(&ordered, &plan, &mut arena, &x), expected);
                for (it, state) in states.iter().enumerate() {
                    prop_assert_eq!(&arena[place(it)..place(it) + 40], state);
                }
            }
        }
    }
}

// -- which assignments are direct ------------------------------------------------------

#[test]
fn d1_the_order_of_mutations_does_not_change_which_assignments_are_direct() {
    // G-N16: two direct assignments, in order: the nodes that follow wait for their producers.
    let graph = update();
    let assigns = find_assigns(&graph, |_| true);
    let ordered = order_mutations(&graph, &assigns).unwrap();
    assert_eq!(find_assigns(&ordered, |_| true), assigns);
    let plan = share_storage(&ordered, &SharingOptions::nnvm()).unwrap();
    let plan = plan.decorate(&ordered, &find_assigns(&ordered, |_| true)).unwrap();
    assert_eq!(plan.allocated_bytes(), 80);

    // A swap: the producer for one state reads the other, and the second producer waits for it.
    let mut net = Net::new();
    let (v, w, x) = (state(&mut net, "v"), state(&mut net, "w"), net.input("x"));
    let r = net.op("r", P, &[v]);
    let first = assign(&mut net, "w = r", w, r);
    let p = net.op("p", P, &[x]);
    let second = assign(&mut net, "v = p", v, p);
    let graph = net.build(&[first, second]);
    let assigns = find_assigns(&graph, |_| true);
    let ordered = order_mutations(&graph, &assigns).unwrap();
    assert!(!ordered.node(NodeId::new(2)).control_dependencies().is_empty());
    assert_eq!(find_assigns(&ordered, |_| true), assigns);
    assert!(assigns.iter().flatten().all(|assign| assign.kind == AssignKind::Direct));
}

#[test]
fn d1_a_producer_that_a_reader_of_the_old_bytes_waits_for_does_not_write_directly() {
    let mut net = Net::new();
    let (w, x) = (state(&mut net, "w"), net.input("x"));
    let source = net.op("source", P, &[x]);
    let between = net.op("between", P, &[x]);
    let reader = net.value("reader", ValueKind::Activation, DType::FLOAT32, &[10]);
    net.builder.add_node(Node::new("between too", "Op").reads([between]).after([NodeId::new(0)]));
    net.builder
        .add_node(Node::new("reader", "Op").reads([w]).writes([reader]).after([NodeId::new(2)]));
    let written = assign(&mut net, "assign", w, source);
    let graph = net.build(&[reader, written]);
    let copy = find_assigns(&graph, |_| true)[4].unwrap();
    assert_eq!(copy.kind, AssignKind::Copy, "the reader runs after what would write");
}

#[test]
fn d8_effects_tell_which_nodes_may_write_into_a_state() {
    let mut net = Net::new();
    let (v, w, x) = (state(&mut net, "v"), state(&mut net, "w"), net.input("x"));
    let value = |net: &mut Net, name| net.value(name, ValueKind::Activation, DType::FLOAT32, &[10]);
    let [flows, rows, reads, pair] =
        ["flows", "rows", "reads", "pair"].map(|it| value(&mut net, it));
    let unary = |name, input, output| Node::new(name, "Op").reads([input]).writes([output]);
    net.builder.add_node(unary("flows", x, flows).flow(0, 10, [0]));
    net.builder.add_node(unary("rows", x, rows).flow(0, 5, [0]));
    net.builder.add_node(unary("reads", w, reads).flow(0, 10, [0]));
    net.builder.add_node(unary("pair", w, pair).in_place(0, 0));
    let opaque = net.op("opaque", P, &[x]);
    let results = [flows, rows, reads, pair, opaque]
        .map(|it| assign(&mut net, &format!("to v {}", it.index()), v, it));
    let last = value(&mut net, "last");
    net.builder.add_node(unary("last", results[4], last).flow(0, 10, [0]));
    let graph = net.build(&[last]);
    let found = [0, 1, 2, 3, 4, 10].map(|node| is_elementwise(&graph, NodeId::new(node)));
    // A node that reads a state, or the result of an assignment, needs a pair to write over it.
    assert_eq!(found, [true, false, false, true, false, false]);
    let kinds = find_assigns(&graph, |node| is_elementwise(&graph, node));
    let direct = kinds.iter().flatten().map(|assign| assign.kind == AssignKind::Direct);
    assert_eq!(direct.collect::<Vec<_>>(), [true, false, false, true, false]);
}
