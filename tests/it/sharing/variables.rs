//! Variables: assignments, the order of reads and writes, and their storage.

use arenaplan::{
    AssignKind, DType, Effects, Graph, InPlace, Node, NodeId, SharingOptions, ValueId, ValueKind,
    find_assigns, order_mutations, share_storage,
};

use crate::sharing::{Net, P, ids};

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
