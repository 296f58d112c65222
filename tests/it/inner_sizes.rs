//! Nodes that run graphs of their own, in less memory inside and with more work.

use arenaplan::graph::{ChosenInner, InnerSize};
use arenaplan::planner::Goal;
use arenaplan::{DType, Graph, Node, NodeId, Plan, Planner, Value, ValueId, ValueKind};
use proptest::prelude::*;
use serde_json::json;

use crate::forge::forge;

const UNIT: u64 = 64;

/// Memory inside of a node: units, and smaller sizes as units and work.
type Inside = (u64, Vec<(u64, u64)>);

/// A chain of nodes with memory inside, whose values are read again in reverse order.
fn chain(insides: &[Inside], is_pure: bool) -> Graph {
    let mut builder = Graph::builder("loops");
    let mut add = |name: String, kind, units: u64| {
        builder.add_value(Value::new(name, kind, DType::UINT8, [units * UNIT]).unwrap())
    };
    let mut values = vec![add("x".into(), ValueKind::Input, 1)];
    let (mut nodes, mut sizes) = (Vec::new(), Vec::new());
    for (index, (units, smaller)) in insides.iter().enumerate() {
        let made = add(format!("v{index}"), ValueKind::Activation, 1);
        let inner = add(format!("v{index}.inner"), ValueKind::Activation, *units);
        let node = Node::new(format!("f{index}"), "Loop").reads([values[index]]);
        let node = node.writes([made, inner]).with_cost(1_000);
        nodes.push(if is_pure { node.pure() } else { node });
        let size = |&(units, extra_cost)| InnerSize { bytes: units * UNIT, extra_cost };
        sizes.push((
            NodeId::from(u32::try_from(index).unwrap()),
            smaller.iter().map(size).collect(),
        ));
        values.push(made);
    }
    let mut last = values[insides.len()];
    for (index, &value) in values.iter().enumerate().skip(1).rev().skip(1) {
        let made = add(format!("r{index}"), ValueKind::Activation, 1);
        nodes.push(Node::new(format!("b{index}"), "Op").reads([last, value]).writes([made]));
        last = made;
    }
    for node in nodes {
        builder.add_node(node.with_cost(1_000));
    }
    builder.add_output(last);
    builder.build().unwrap().with_inner_sizes(sizes).unwrap()
}

/// Sizes that fall, at work that rises.
fn inside() -> impl Strategy<Value = Inside> {
    (6..20_u64, prop::collection::vec((1..5_u64, 1..300_u64), 0..4)).prop_map(|(most, steps)| {
        let (mut units, mut cost) = (most, 0);
        let mut smaller = Vec::new();
        for (less, more) in steps {
            if units > less {
                (units, cost) = (units - less, cost + more);
                smaller.push((units, cost));
            }
        }
        (most, smaller)
    })
}

/// The least work in which a chain that runs once fits: beside the memory inside of node `i`, the
/// results of all nodes so far are live, and the input of the first node.
fn least_work(insides: &[Inside], units: u64) -> Option<u64> {
    let count = u64::try_from(insides.len()).unwrap();
    let behind = if count > 1 { count + 1 } else { 0 };
    let work = |(place, (most, smaller)): (u64, &Inside)| {
        let mut sizes = std::iter::once((*most, 0)).chain(smaller.iter().copied());
        sizes.find(|size| (place + 1).max(2) + size.0 <= units).map(|size| size.1)
    };
    (0..).zip(insides).map(work).sum::<Option<u64>>().filter(|_| behind <= units)
}

fn extra(plan: &Plan) -> u64 {
    plan.recomputed().map_or(0, |it| it.extra_cost)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn nodes_that_run_once_take_the_cheapest_sizes_that_fit(
        insides in prop::collection::vec(inside(), 1..6), part in 20..100_u64,
    ) {
        let graph = chain(&insides, false);
        let most = Planner::new().plan(&graph).unwrap().arena_bytes() / UNIT;
        let units = most * part / 100;
        match (Planner::new().recompute(&graph, Goal::Bytes(units * UNIT)), least_work(&insides, units)) {
            (Ok(plan), Some(least)) => {
                plan.check(&graph).unwrap();
                prop_assert!(plan.arena_bytes() <= units * UNIT);
                prop_assert_eq!(extra(&plan), least);
                let again = Plan::from_json(plan.to_json().as_bytes()).unwrap();
                prop_assert_eq!(again, plan);
            }
            (Err(error), None) => prop_assert_eq!(error.kind(), "RecomputeExceeded"),
            (found, least) => prop_assert!(false, "{found:?} and {least:?}"),
        }
    }

    #[test]
    fn a_curve_over_sizes_and_repetitions_agrees_with_its_calls(
        insides in prop::collection::vec(inside(), 2..7),
    ) {
        let graph = chain(&insides, true);
        let curve = Planner::new().recompute_curve(&graph).unwrap();
        for pair in curve.points.windows(2) {
            prop_assert!(pair[0].arena_bytes > pair[1].arena_bytes);
            prop_assert!(pair[0].extra_cost < pair[1].extra_cost);
        }
        for point in &curve.points {
            prop_assert!(curve.floor <= point.arena_bytes);
            point.plan.check(&graph).unwrap();
            prop_assert_eq!(point.plan.arena_bytes(), point.arena_bytes);
            prop_assert_eq!(extra(&point.plan), point.extra_cost);
            let plan = Planner::new().recompute(&graph, Goal::Bytes(point.arena_bytes)).unwrap();
            plan.check(&graph).unwrap();
            prop_assert!(plan.arena_bytes() <= point.arena_bytes);
            prop_assert!(extra(&plan) <= point.extra_cost);
            prop_assert!(point.extra_bound <= extra(&plan));
            prop_assert!(plan.recomputed().is_none_or(|it| it.extra_bound <= it.extra_cost));
        }
    }
}

#[test]
fn forged_memory_inside_is_refused() {
    let graph = chain(&[(9, vec![(5, 7), (2, 40)]), (12, vec![(3, 9)])], false);
    let plan = Planner::new().recompute(&graph, Goal::Bytes(7 * UNIT)).unwrap();
    let inner = json!([{"node": 0, "bytes": 5 * UNIT}, {"node": 1, "bytes": 3 * UNIT}]);
    let written: serde_json::Value = serde_json::from_str(&plan.to_json()).unwrap();
    assert_eq!(written["recomputed"]["inner"], inner);
    let rows = [
        json!([{"node": 0, "bytes": 4 * UNIT}, {"node": 1, "bytes": 3 * UNIT}]),
        json!([{"node": 0, "bytes": 2 * UNIT}, {"node": 1, "bytes": 3 * UNIT}]),
        json!([{"node": 0, "bytes": 9 * UNIT}, {"node": 1, "bytes": 3 * UNIT}]),
        json!([{"node": 1, "bytes": 3 * UNIT}]),
        json!([{"node": 0, "bytes": 5 * UNIT}, {"node": 2, "bytes": 3 * UNIT}]),
        json!([{"node": 0, "bytes": 5 * UNIT}, {"node": 99, "bytes": 3 * UNIT}]),
        json!([inner[0], inner[0], inner[1]]),
        json!([]),
    ];
    for row in rows {
        let forged = forge(&plan, |json| json["recomputed"]["inner"] = row.clone());
        let refused = forged.and_then(|plan| plan.check(&graph)).unwrap_err();
        assert!(["PlanMismatch", "PlanCorrupt"].contains(&refused.kind()), "{row}: {refused}");
    }
    for field in ["extra_cost", "cost"] {
        let forged = forge(&plan, |json| json["recomputed"][field] = 15.into()).unwrap();
        assert_eq!(forged.check(&graph).unwrap_err().kind(), "PlanMismatch");
    }
    let larger = graph.with_inner_sizes([(NodeId::from(0), vec![])]).unwrap();
    assert_eq!(plan.check(&larger).unwrap_err().kind(), "PlanMismatch");
}

#[test]
fn only_memory_that_nothing_reads_has_sizes() {
    let graph = chain(&[(9, vec![]), (12, vec![])], false);
    let sizes = |rows: &[(u64, u64)]| -> Vec<InnerSize> {
        rows.iter().map(|&(bytes, extra_cost)| InnerSize { bytes, extra_cost }).collect()
    };
    let refused = [
        (2, sizes(&[(1, 1)])),
        (99, sizes(&[(1, 1)])),
        (0, sizes(&[(9 * UNIT, 1)])),
        (0, sizes(&[(0, 1)])),
        (0, sizes(&[(64, 2), (64, 3)])),
        (0, sizes(&[(64, 2), (32, 1)])),
    ];
    for (node, sizes) in refused {
        let error = graph.with_inner_sizes([(NodeId::from(node), sizes)]).unwrap_err();
        assert_eq!(error.kind(), "InvalidEffect");
    }
    let some = graph.with_inner_sizes([(NodeId::from(0), sizes(&[(64, 2), (32, 2)]))]).unwrap();
    assert_eq!(some.digest(), graph.digest());
    let inner = some.with_inner(&[ChosenInner { node: NodeId::from(0), bytes: 32 }]).unwrap();
    assert_eq!((inner.value(ValueId::from(2)).bytes(), inner.nodes()[0].cost()), (32, 1_002));
}
