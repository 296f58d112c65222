//! Coloring, and plans that are safe in every order: proven by running all of them.

use arenaplan::graph::Whole;
use arenaplan::{DType, Graph, Node, NodeId, Plan, Value, ValueId, ValueKind};
use arenaplan_classic::coloring::color_nodes;
use arenaplan_classic::sharing::{SharingOptions, share_storage};
use proptest::prelude::*;

use crate::check::forge;
use crate::graphs::graphs;
use crate::planners::ideal_planner;

/// Builds a graph of single bytes from `(node, what it reads)`.
fn net(nodes: &[(&str, &[&str])]) -> Graph {
    let mut builder = Graph::builder("net");
    let mut values = std::collections::HashMap::new();
    let x = Value::new("x", ValueKind::Input, DType::UINT8, [1]).unwrap();
    values.insert("x", builder.add_value(x));
    for &(name, inputs) in nodes {
        let value = Value::new(name, ValueKind::Activation, DType::UINT8, [1]).unwrap();
        let value = builder.add_value(value);
        let reads: Vec<_> = inputs.iter().map(|input| values[input]).collect();
        builder.add_node(Node::new(name, "Op").reads(reads).writes([value]));
        values.insert(name, value);
    }
    builder.build().unwrap()
}

#[test]
fn row_19_g_n15_four_colors() {
    let graph = net(&[
        ("a1", &["x"]),
        ("a2", &["a1"]),
        ("a3", &["a2"]),
        ("b1", &["x"]),
        ("b2", &["b1"]),
        ("c1", &["x"]),
        ("j", &["a3", "b2", "c1"]),
    ]);
    let coloring = color_nodes(&graph, 4).unwrap();
    assert_eq!(coloring.colors(), [0, 0, 0, 1, 1, 2, 0]);
    assert_eq!((coloring.rest(), coloring.count()), (3, 4));
}

#[test]
fn one_color_is_for_all_and_none_is_refused() {
    let graph = net(&[("a", &["x"]), ("b", &["a"])]);
    assert_eq!(color_nodes(&graph, 1).unwrap().colors(), [0, 0]);
    assert_eq!(color_nodes(&graph, 0).unwrap_err().kind(), "InvalidOption");
}

#[test]
fn a_chain_of_100_000_nodes_is_colored_and_shared() {
    let names: Vec<String> = (0..100_000).map(|index| format!("n{index}")).collect();
    let mut builder = Graph::builder("chain");
    let x = Value::new("x", ValueKind::Input, DType::UINT8, [8]).unwrap();
    let mut last = builder.add_value(x);
    for name in &names {
        let value = Value::new(&**name, ValueKind::Activation, DType::UINT8, [8]).unwrap();
        let value = builder.add_value(value);
        builder.add_node(Node::new(&**name, "Op").reads([last]).writes([value]));
        last = value;
    }
    builder.add_output(last);
    let graph = builder.build().unwrap();
    assert!(color_nodes(&graph, 8).unwrap().colors().iter().all(|&color| color == 0));
    for parallel_safe in [false, true] {
        let options = SharingOptions { parallel_safe, ..SharingOptions::default() };
        assert_eq!(share_storage(&graph, &options).unwrap().blocks().len(), 2);
    }
}

#[test]
fn k22_colors_are_no_argument_for_safety_and_reachability_is() {
    // G-N14: with two colors `r2` still gets the block of `a` while `l1` may be reading it.
    let graph = net(&[
        ("a", &["x"]),
        ("l1", &["a"]),
        ("l2", &["l1"]),
        ("l3", &["l2"]),
        ("r1", &["a"]),
        ("r2", &["r1"]),
        ("j", &["l3", "r2"]),
    ]);
    let colored = SharingOptions { num_temp: 2, ..SharingOptions::nnvm() };
    let colored = share_storage(&graph, &colored).unwrap();
    assert_eq!(colored.storage(ValueId::new(6)), colored.storage(ValueId::new(1)));
    let safe = SharingOptions { parallel_safe: true, ..SharingOptions::default() };
    let safe = share_storage(&graph, &safe).unwrap();
    assert_ne!(safe.storage(ValueId::new(6)), safe.storage(ValueId::new(1)));
    check_all_orders(&graph, &safe.to_plan(&graph, 1).unwrap());
}

// -- all orders --------------------------------------------------------------------

/// Returns every order in which the nodes can run.
fn orders(graph: &Graph) -> Vec<Vec<NodeId>> {
    let mut found = Vec::new();
    let mut open = vec![Vec::new()];
    while let Some(order) = open.pop() {
        if order.len() == graph.nodes().len() {
            found.push(order);
            continue;
        }
        for id in (0..graph.nodes().len()).map(NodeId::new) {
            let ready = graph.dependencies(id).all(|before| order.contains(&before));
            if ready && !order.contains(&id) {
                let mut longer = order.clone();
                longer.push(id);
                open.push(longer);
            }
        }
    }
    found
}

/// Returns bytes that depend on every byte of `inputs`.
fn mix(seed: usize, inputs: &[Vec<u8>], bytes: usize) -> Vec<u8> {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64 ^ seed as u64;
    for byte in inputs.iter().flatten() {
        state = (state ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3);
    }
    (0..bytes)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(99);
            (state >> 56) as u8
        })
        .collect()
}

/// Computes the outputs of a node: what its views show, and something of its own elsewhere.
fn compute(
    graph: &Graph,
    id: NodeId,
    read: &dyn Fn(ValueId) -> Vec<u8>,
) -> Vec<(ValueId, Vec<u8>)> {
    let node = graph.node(id);
    let inputs: Vec<Vec<u8>> = node.reads_bytes_of().map(|(_, value)| read(value)).collect();
    let mut outputs = Vec::new();
    for (slot, value) in node.produces() {
        let bytes = graph.value(value).bytes() as usize;
        let mut content = mix(id.index() * 16 + slot, &inputs, bytes);
        for view in node.effects().views.iter().filter(|view| view.output == slot) {
            let shown = read(node.input(view.input).unwrap());
            let offset = view.offset as usize;
            match view.whole {
                Whole::Input => content.copy_from_slice(&shown[offset..offset + bytes]),
                Whole::Output => content[offset..offset + shown.len()].copy_from_slice(&shown),
            }
        }
        outputs.push((value, content));
    }
    outputs
}

/// Runs the graph in every order inside the plan's arena, and compares every operand with
/// a run in which each value has memory of its own.
fn check_all_orders(graph: &Graph, plan: &Plan) -> usize {
    let sources = |value: usize| {
        let known = &graph.values()[value];
        let own = graph.producer(ValueId::new(value)).is_none();
        own.then(|| mix(1000 + value, &[], known.bytes() as usize))
    };
    let mut truth: Vec<Vec<u8>> =
        (0..graph.values().len()).map(|value| sources(value).unwrap_or_default()).collect();
    for &id in graph.order() {
        for (value, content) in compute(graph, id, &|value| truth[value.index()].clone()) {
            truth[value.index()] = content;
        }
    }
    let orders = orders(graph);
    for order in &orders {
        let mut arena = vec![0_u8; plan.arena_bytes() as usize];
        let span = |value: ValueId| {
            let place = plan.placement(value)?;
            Some(place.offset as usize..(place.offset + place.bytes) as usize)
        };
        for value in 0..graph.values().len() {
            if let (Some(content), Some(span)) = (sources(value), span(ValueId::new(value))) {
                arena[span].copy_from_slice(&content);
            }
        }
        for &id in order {
            let read = |value: ValueId| match span(value) {
                Some(span) => arena[span].to_vec(),
                None => truth[value.index()].clone(),
            };
            for (_, value) in graph.node(id).reads_bytes_of() {
                assert_eq!(read(value), truth[value.index()], "{order:?}, node {id}");
            }
            let outputs = compute(graph, id, &read);
            for (value, content) in outputs {
                arena[span(value).unwrap()].copy_from_slice(&content);
            }
        }
        for &output in graph.outputs() {
            if let Some(span) = span(output) {
                assert_eq!(arena[span], truth[output.index()], "{order:?}");
            }
        }
    }
    orders.len()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    /// Plans that claim to be safe in every order are.
    #[test]
    fn row_19_parallel_safe_plans_are_right_in_every_order(
        graph in graphs(7), in_place in any::<bool>(), match_range in 0_u64..20,
    ) {
        let planner = ideal_planner().alignment(1).parallel_safe(true).in_place(in_place);
        let plan = planner.plan(&graph).unwrap();
        check_all_orders(&graph, &plan);
        let options = SharingOptions {
            parallel_safe: true, match_range, ..SharingOptions::default()
        };
        let shared = share_storage(&graph, &options).unwrap();
        check_all_orders(&graph, &shared.to_plan(&graph, 1).unwrap());
    }

    /// The checker finds races: what it accepts as safe in every order is.
    #[test]
    fn row_49_the_checker_accepts_no_plan_that_is_wrong_in_some_order(graph in graphs(7)) {
        let plan = ideal_planner().alignment(1).plan(&graph).unwrap();
        let claim = |json: &mut serde_json::Value| json["options"]["parallel_safe"] = true.into();
        let claimed = forge(&plan, claim).unwrap();
        prop_assert!(claimed.options().parallel_safe);
        if claimed.check(&graph).is_ok() {
            check_all_orders(&graph, &claimed);
        }
    }
}

#[test]
fn a_plan_for_one_order_is_refused_as_safe_in_every_order() {
    let graph =
        net(&[("a", &["x"]), ("b", &["a"]), ("c", &["x"]), ("d", &["c"]), ("e", &["b", "d"])]);
    let given = ideal_planner().alignment(1).plan(&graph).unwrap();
    let safe = ideal_planner().alignment(1).parallel_safe(true).plan(&graph).unwrap();
    assert!(given.arena_bytes() < safe.arena_bytes());
    check_all_orders(&graph, &safe);
    let claim = |json: &mut serde_json::Value| json["options"]["parallel_safe"] = true.into();
    assert_eq!(forge(&given, claim).unwrap().check(&graph).unwrap_err().kind(), "PlanOverlap");
}
