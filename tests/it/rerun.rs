//! Plans in which nodes run again as steps of their own.

use arenaplan::base::Execution;
use arenaplan::liveness::LivenessOptions;
use arenaplan::pack::Space;
use arenaplan::plan::{InputMemory, OutputMemory};
use arenaplan::planner::Goal;
use arenaplan::recompute::{Recompute, Strategy};
use arenaplan::{
    Budget, DType, Graph, GraphBuilder, Node, NodeId, Plan, Planner, Value, ValueId, ValueKind,
};
use proptest::prelude::*;

const UNIT: u64 = 64;

fn add(builder: &mut GraphBuilder, name: &str, kind: ValueKind, units: u64) -> ValueId {
    builder.add_value(Value::new(name, kind, DType::UINT8, [units * UNIT]).unwrap())
}

/// A chain of `layers` nodes, and one node behind for each that reads them in reverse.
fn chain(layers: usize) -> Graph {
    let mut builder = Graph::builder("chain");
    let mut values = vec![add(&mut builder, "x", ValueKind::Input, 1)];
    for layer in 0..layers {
        let next = add(&mut builder, &format!("a{layer}"), ValueKind::Activation, 1);
        let node = Node::new(format!("f{layer}"), "F").reads([values[layer]]).writes([next]);
        builder.add_node(node.pure().with_cost(1));
        values.push(next);
    }
    let mut last = values[layers];
    for layer in (0..layers).rev() {
        let next = add(&mut builder, &format!("g{layer}"), ValueKind::Activation, 1);
        let node = Node::new(format!("b{layer}"), "B").reads([last, values[layer]]).writes([next]);
        builder.add_node(node.pure().with_cost(1).in_place(0, 0));
        last = next;
    }
    builder.add_output(last);
    builder.build().unwrap()
}

fn options() -> LivenessOptions {
    LivenessOptions::default()
}

#[test]
fn a_chain_needs_two_roots_of_its_length_at_one_more_forward() {
    for layers in [16, 64, 144] {
        let graph = chain(layers);
        let root = layers.isqrt();
        let bytes = (2 * u64::try_from(root).unwrap() + 2) * UNIT;
        let limits = Budget::default();
        let mut search = Recompute::new(&graph, options(), &[], &limits);
        let found = search.within(bytes).unwrap();
        assert!(found.bytes <= bytes);
        assert!(found.extra_cost <= u64::try_from(layers).unwrap(), "{layers}: {found:?}");
    }
}

/// A step of training: the gradient of each layer is as large as its weights, and each update also
/// waits for a number that the graph makes last, from a counter that it replaces.
fn training(layers: usize) -> Graph {
    let mut builder = Graph::builder("training");
    let counter = add(&mut builder, "t", ValueKind::Input, 1);
    let weights: Vec<ValueId> =
        (0..layers).map(|it| add(&mut builder, &format!("w{it}"), ValueKind::Input, 32)).collect();
    let mut values = vec![add(&mut builder, "x", ValueKind::Input, 1)];
    let make = |builder: &mut GraphBuilder, name: String, units: u64, reads: &[ValueId]| {
        let made = add(builder, &name, ValueKind::Activation, units);
        let node = Node::new(name, "Op").reads(reads.iter().copied()).writes([made]);
        builder.add_node(node.pure().with_cost(units));
        made
    };
    for layer in 0..layers {
        let reads = [values[layer], weights[layer]];
        values.push(make(&mut builder, format!("a{layer}"), 1, &reads));
    }
    let loss = values[layers];
    let (mut error, mut gradients) = (loss, Vec::new());
    for layer in (0..layers).rev() {
        gradients.push(make(&mut builder, format!("g{layer}"), 32, &[error, values[layer]]));
        error = make(&mut builder, format!("e{layer}"), 1, &[error, weights[layer]]);
    }
    let next = add(&mut builder, "next", ValueKind::Activation, 1);
    let count = Node::new("next", "Op").reads([counter]).writes([next]).in_place(0, 0);
    builder.add_node(count.pure().with_cost(1));
    let rate = make(&mut builder, "rate".into(), 1, &[next]);
    builder.add_write_back(next, counter);
    for (layer, &gradient) in (0..layers).rev().zip(&gradients) {
        let name = format!("u{layer}");
        let made = add(&mut builder, &name, ValueKind::Activation, 32);
        let node = Node::new(name, "Update").reads([weights[layer], gradient, rate]);
        builder.add_node(node.writes([made]).in_place(0, 0));
        builder.add_write_back(made, weights[layer]);
    }
    builder.add_output(loss);
    builder.build().unwrap()
}

#[test]
fn gradients_do_not_wait_for_a_number_that_is_made_last() {
    for layers in [4, 8, 24] {
        let graph = training(layers);
        let units = u64::try_from(layers).unwrap();
        // The weights, two gradients, and the small values.
        let bytes = (32 * (units + 2) + 2 * units + 8) * UNIT;
        let limits = Budget::default();
        let mut search = Recompute::new(&graph, options(), &[], &limits);
        assert_eq!(search.within(bytes).map(|found| found.extra_cost), Some(0), "{layers} layers");
        let plan = Planner::new().recompute(&graph, Goal::Bytes(bytes)).unwrap();
        plan.check(&graph).unwrap();
        assert!(plan.arena_bytes() <= bytes);
        assert_eq!(plan.recomputed().map_or(0, |it| it.extra_cost), 0, "{layers} layers");
    }
}

/// The least number of repeated forward steps with `slots` checkpoints beside the input (Griewank).
fn binomial_optimum(layers: u64, slots: u64) -> u64 {
    let beta = |s: u64, r: u64| -> u64 {
        (1..=s).fold(1_u128, |product, k| product * u128::from(r + k) / u128::from(k)) as u64
    };
    let mut runs = 0;
    while beta(slots, runs) < layers {
        runs += 1;
    }
    // All forward steps, less the first ones that run in any case.
    runs * layers - beta(slots + 1, runs - 1)
}

#[test]
fn chains_are_reversed_at_the_binomial_optimum() {
    for (layers, slots) in [(20, 3), (50, 5), (100, 8), (1000, 10)] {
        let graph = chain(layers);
        let limits = Budget::default();
        let mut search = Recompute::new(&graph, options(), &[], &limits);
        // The input, the checkpoints, and the operand and result of one layer.
        let bytes = (slots + 3) * UNIT;
        let found = search.within(bytes).unwrap();
        let layers = u64::try_from(layers).unwrap();
        // The last layer's forward runs once in any case; its checkpoint saves one run per layer.
        let optimum = binomial_optimum(layers, slots).saturating_sub(layers - 1);
        assert!(found.extra_cost <= optimum + layers, "{layers} {slots}: {found:?} {optimum}");
        assert!(search.bound(found.bytes) <= found.extra_cost);
    }
}

#[test]
fn strategies_known_by_name_make_plans() {
    let graph = chain(36);
    let most = Planner::new().plan(&graph).unwrap().arena_bytes();
    let sqrt = Planner::new().recompute(&graph, Goal::Strategy(Strategy::SqrtN)).unwrap();
    assert!(sqrt.arena_bytes() * 2 < most);
    Planner::new().recompute(&graph, Goal::Strategy(Strategy::MxnetMirror)).unwrap();
}

/// A step with parameters that are replaced: the forward reads them, too.
fn update(layers: usize) -> Graph {
    let mut builder = Graph::builder("update");
    let mut last = add(&mut builder, "x", ValueKind::Input, 4);
    let mut forward = Vec::new();
    for layer in 0..layers {
        let p = add(&mut builder, &format!("p{layer}"), ValueKind::State, 1);
        let next = add(&mut builder, &format!("a{layer}"), ValueKind::Activation, 4);
        let node = Node::new(format!("f{layer}"), "F").reads([last, p]).writes([next]);
        builder.add_node(node.pure().with_cost(10));
        forward.push((last, p));
        last = next;
    }
    let mut gradient = last;
    for (layer, &(read, p)) in forward.iter().enumerate().rev() {
        let dp = add(&mut builder, &format!("dp{layer}"), ValueKind::Activation, 1);
        let node = Node::new(format!("dp{layer}"), "W").reads([gradient, read]).writes([dp]);
        builder.add_node(node.pure().with_cost(10));
        let next = add(&mut builder, &format!("g{layer}"), ValueKind::Activation, 4);
        let node = Node::new(format!("b{layer}"), "B").reads([gradient, p, read]).writes([next]);
        builder.add_node(node.pure().with_cost(10));
        let new = add(&mut builder, &format!("new{layer}"), ValueKind::Activation, 1);
        let node = Node::new(format!("u{layer}"), "U").reads([p, dp]).writes([new]);
        builder.add_node(node.pure().with_cost(1).in_place(0, 0));
        builder.add_write_back(new, p);
        gradient = next;
    }
    builder.add_output(gradient);
    builder.build().unwrap()
}

#[test]
fn repetitions_read_parameters_before_they_are_replaced() {
    let graph = update(12);
    let most = Planner::new().plan(&graph).unwrap();
    for percent in [80, 65, 50] {
        let bytes = most.arena_bytes() * percent / 100;
        let plan = Planner::new().recompute(&graph, Goal::Bytes(bytes)).unwrap();
        assert!(plan.arena_bytes() <= bytes);
        plan.check(&graph).unwrap();
        let recomputed = plan.recomputed().unwrap();
        assert!(recomputed.extra_cost > 0 && recomputed.extra_bound <= recomputed.extra_cost);
        let again = Plan::from_json(plan.to_json().as_bytes()).unwrap();
        assert_eq!(again, plan);
    }
    let error = Planner::new().recompute(&graph, Goal::Bytes(UNIT)).unwrap_err();
    assert_eq!(error.kind(), "RecomputeExceeded");
}

#[test]
fn a_budget_that_is_met_without_repetitions_repeats_nothing() {
    let graph = update(6);
    let plan = Planner::new().keep_order(true).plan(&graph).unwrap();
    let same = Planner::new().recompute(&graph, Goal::Bytes(plan.arena_bytes())).unwrap();
    assert_eq!(same, plan);
}

#[test]
fn a_graph_without_bytes_in_the_arena_has_a_curve_of_one_point() {
    let mut builder = Graph::builder("copy");
    let x = add(&mut builder, "x", ValueKind::Input, 1);
    let y = add(&mut builder, "y", ValueKind::Activation, 1);
    builder.add_node(Node::new("f", "F").reads([x]).writes([y]).pure().with_cost(1));
    builder.add_output(y);
    let graph = builder.build().unwrap();
    let planner = Planner::new().inputs(InputMemory::Caller).outputs(OutputMemory::Caller);
    let curve = planner.recompute_curve(&graph).unwrap();
    assert_eq!(curve.points.iter().map(|it| it.arena_bytes).collect::<Vec<_>>(), [0]);
}

/// The results of a chain of nodes in place lie in the output that the caller brings.
#[test]
fn calls_find_the_points_of_a_curve_in_memory_of_the_caller() {
    for layers in [16, 25, 36] {
        let graph = chain(layers);
        let planner = Planner::new().inputs(InputMemory::Caller).outputs(OutputMemory::Caller);
        let points = planner.recompute_curve(&graph).unwrap().points;
        assert!(points.len() > 1);
        for point in points {
            let plan = planner.recompute(&graph, Goal::Bytes(point.arena_bytes)).unwrap();
            let extra = plan.recomputed().map_or(0, |it| it.extra_cost);
            assert!(extra <= point.extra_cost, "{layers}: {point:?}, and a call has {extra}");
        }
    }
}

#[test]
fn curves_are_monotone_and_above_their_bound() {
    let graph = update(16);
    let curve = Planner::new().recompute_curve(&graph).unwrap();
    assert!(curve.points.len() > 3);
    for pair in curve.points.windows(2) {
        assert!(pair[0].arena_bytes > pair[1].arena_bytes);
        assert!(pair[0].extra_cost < pair[1].extra_cost);
    }
    assert!(curve.points.iter().all(|it| it.extra_bound <= it.extra_cost));
    assert!(curve.points.iter().all(|it| it.arena_bytes >= curve.floor));
}

#[test]
fn more_work_never_takes_more_bytes() {
    let graph = update(12);
    let bytes = |extra| {
        Planner::new().recompute(&graph, Goal::Extra(extra)).map(|plan| {
            let recomputed =
                plan.recomputed().map_or(0, arenaplan::plan::Recomputed::extra_millionths);
            assert!(recomputed <= extra);
            plan.arena_bytes()
        })
    };
    let found: Vec<u64> = [0, 50_000, 200_000].into_iter().map(|it| bytes(it).unwrap()).collect();
    assert!(found.is_sorted_by(|a, b| a >= b), "{found:?}");
}

/// Every change of a schedule by one execution: dropped, exchanged with the next, or moved to the
/// front. The plan of the changed graph is valid by itself; only the contents tell.
#[test]
fn corrupted_schedules_are_refused() {
    let graph = update(5);
    let most = Planner::new().plan(&graph).unwrap().arena_bytes();
    let plan = Planner::new().recompute(&graph, Goal::Bytes(most * 7 / 10)).unwrap();
    let executions = |plan: &Plan| -> Vec<NodeId> {
        let node = |it: &Execution| match *it {
            Execution::Run(node) => node,
            other => panic!("{other:?}"),
        };
        plan.recomputed().unwrap().schedule.iter().map(node).collect()
    };
    let schedule = executions(&plan);
    let true_graph = graph.scheduled(&schedule).unwrap().graph;
    plan.check_repetitions(&graph, &true_graph).unwrap();
    let (mut tried, mut refused) = (0, 0);
    for at in 0..schedule.len() {
        let mut changes = Vec::new();
        let mut dropped = schedule.clone();
        dropped.remove(at);
        changes.push(dropped);
        let mut swapped = schedule.clone();
        swapped.swap(at, (at + 1) % schedule.len());
        changes.push(swapped);
        let mut early = schedule.clone();
        let moved = early.remove(at);
        early.insert(0, moved);
        changes.push(early);
        for changed in changes.into_iter().filter(|changed| *changed != schedule) {
            // Invalid as a sequence, or of another graph than that of the plan.
            let Ok(scheduled) = graph.scheduled(&changed) else { continue };
            if scheduled.graph == true_graph {
                continue;
            }
            tried += 1;
            // A reader that reads another instance finds the same content, and another graph.
            let other_content = plan.check_repetitions(&graph, &scheduled.graph).is_err();
            assert!(other_content || plan.check(&scheduled.graph).is_err());
            refused += usize::from(other_content);
        }
    }
    assert!(tried > 0 && refused > 0, "{tried} {refused}");
    // An operand that is another value of the same form, in a graph that is valid by itself.
    let text = true_graph.to_json();
    let mut json: serde_json::Value = serde_json::from_str(&text).unwrap();
    let nodes = json["nodes"].as_array().unwrap().len();
    let mut exchanged = 0;
    for node in 0..nodes {
        for other in 0..graph.values().len() {
            let mut forged = json.clone();
            let operand = &mut forged["nodes"][node]["inputs"][0];
            if *operand == serde_json::json!(other) {
                continue;
            }
            *operand = serde_json::json!(other);
            forged.as_object_mut().unwrap().remove("checksum");
            forged.as_object_mut().unwrap().remove("digest");
            let Ok(forged) = Graph::from_json(forged.to_string().as_bytes()) else { continue };
            if !forged.is_topological(&plan.order().collect::<Vec<_>>()) {
                continue;
            }
            let same = plan.check_repetitions(&graph, &forged).is_ok();
            // The first and the second instance of a value are the same content.
            let name = |graph: &Graph, value: usize| {
                graph.values()[value].name().split('#').next().unwrap().to_owned()
            };
            let was = json["nodes"][node]["inputs"][0].as_u64().unwrap();
            let was = name(&true_graph, usize::try_from(was).unwrap());
            assert!(!same || was == name(&true_graph, other), "{node} reads {other}");
            exchanged += 1;
        }
    }
    assert!(exchanged > 100);
    json["name"] = "other".into();
}

/// Live bytes of a sequence by definition: an instance lives from its execution to its last reader.
fn peak(graph: &Graph, sequence: &[NodeId]) -> Option<u64> {
    let scheduled = graph.scheduled(sequence).ok()?;
    let steps: Vec<Vec<NodeId>> = scheduled.order.iter().map(|&node| vec![node]).collect();
    let plan = Planner::new().plan_steps(&scheduled.graph, &steps).ok()?;
    Some(plan.lower_bound())
}

/// The least extra cost within `bytes` over all sequences with at most `most` executions.
fn brute_force(graph: &Graph, bytes: u64, most: usize) -> Option<u64> {
    let nodes = graph.nodes().len();
    let once: u64 = graph.nodes().iter().map(Node::cost).sum();
    let mut best = None;
    let mut pending: Vec<Vec<NodeId>> = vec![Vec::new()];
    while let Some(sequence) = pending.pop() {
        let ran = |id: NodeId| sequence.contains(&id);
        if (0..nodes).all(|id| ran(NodeId::new(id))) {
            if peak(graph, &sequence).is_some_and(|peak| peak <= bytes) {
                let all: u64 = sequence.iter().map(|&id| graph.node(id).cost()).sum();
                best = Some(best.map_or(all - once, |it: u64| it.min(all - once)));
            }
            continue;
        }
        let missing = (0..nodes).filter(|&id| !ran(NodeId::new(id))).count();
        if sequence.len() + missing > most {
            continue;
        }
        for id in (0..nodes).map(NodeId::new) {
            let is_ready = graph.dependencies(id).all(ran);
            if is_ready
                && (!ran(id) || sequence.len() + missing < most)
                && sequence.last() != Some(&id)
            {
                let mut longer = sequence.clone();
                longer.push(id);
                pending.push(longer);
            }
        }
    }
    best
}

#[test]
fn small_chains_are_as_cheap_as_any_sequence() {
    for layers in [2, 3] {
        let graph = chain(layers);
        let limits = Budget::default();
        let mut search = Recompute::new(&graph, options(), &[], &limits);
        for units in 2..=u64::try_from(layers).unwrap() + 2 {
            let bytes = units * UNIT;
            let found = search.within(bytes).map(|found| found.extra_cost);
            let known = brute_force(&graph, bytes, 2 * layers + 2);
            // A longer sequence than those that were tried may be found.
            if let Some(known) = known {
                assert_eq!(found, Some(known), "{layers} layers in {units}");
                assert!(search.bound(bytes) <= known);
            }
        }
    }
}

/// An output `o` of a value `a`, and behind it two steps while `a` is needed, the first of three units.
#[test]
fn the_bound_counts_outputs_and_the_results_of_a_step() {
    let mut builder = Graph::builder("wide");
    let w = add(&mut builder, "w", ValueKind::Constant, 1);
    let units = [("a", 1), ("o", 1), ("t", 3), ("c", 1), ("y", 1)];
    let [a, o, t, c, y] =
        units.map(|(it, units)| add(&mut builder, it, ValueKind::Activation, units));
    let nodes = [(vec![w], a), (vec![a], o), (vec![o], t), (vec![t], c), (vec![c, a], y)];
    for (reads, made) in nodes {
        let node = Node::new(format!("n{made:?}"), "Op").reads(reads).writes([made]);
        builder.add_node(node.pure().with_cost(1000));
    }
    builder.add_output(o);
    builder.add_output(y);
    let graph = builder.build().unwrap();
    let limits = Budget::default();
    let mut search = Recompute::new(&graph, options(), &[], &limits);
    assert_eq!(search.plain().bytes, 6 * UNIT);
    assert_eq!(brute_force(&graph, 5 * UNIT, 6), Some(1000));
    assert_eq!(search.within(5 * UNIT).unwrap().extra_cost, 1000);
    assert!((900..=1000).contains(&search.bound(5 * UNIT)), "{}", search.bound(5 * UNIT));
    assert_eq!(search.bound(6 * UNIT), 0);
}

/// A layered graph of pure nodes: each reads one or two earlier values.
fn layered(sizes: &[(u64, u64, usize, usize)]) -> Graph {
    let mut builder = Graph::builder("layered");
    let mut values = vec![add(&mut builder, "x", ValueKind::Input, 1)];
    for (index, &(units, cost, first, second)) in sizes.iter().enumerate() {
        let next = add(&mut builder, &format!("v{index}"), ValueKind::Activation, units);
        let reads = [values[first % values.len()], values[second % values.len()]];
        let node = Node::new(format!("n{index}"), "Op").reads(reads).writes([next]);
        builder.add_node(node.pure().with_cost(cost));
        values.push(next);
    }
    let sum = add(&mut builder, "sum", ValueKind::Activation, 1);
    let last = *values.last().unwrap();
    builder.add_node(Node::new("sum", "Sum").reads([last, values[1]]).writes([sum]).with_cost(1));
    builder.add_output(sum);
    builder.build().unwrap()
}

/// Asserts that a goal with more bytes, or with more work, is never met by a worse plan, over calls that
/// share nothing. Returns the number of pairs of goals.
fn compare_goals(graph: &Graph) -> usize {
    let extra = |plan: &Plan| plan.recomputed().map_or(0, |it| it.extra_cost);
    let found = |goal| Planner::new().recompute(graph, goal).ok();
    let most = Planner::new().keep_order(true).plan(graph).unwrap().arena_bytes();
    let mut others = Vec::new();
    let mut budgets: Vec<u64> = (6..=20).step_by(2).map(|step| most * step / 20).collect();
    for percent in [5, 40] {
        let plan = found(Goal::Extra(percent * 10_000)).unwrap();
        budgets.push(plan.arena_bytes());
        others.push(plan);
    }
    let goals: Vec<(u64, Option<Plan>)> =
        budgets.into_iter().map(|bytes| (bytes, found(Goal::Bytes(bytes)))).collect();
    others.extend(goals.iter().filter_map(|it| it.1.clone()));
    let mut pairs = 0;
    for (bytes, plan) in goals {
        assert!(plan.iter().all(|plan| plan.arena_bytes() <= bytes));
        for other in others.iter().filter(|it| it.arena_bytes() <= bytes) {
            let plan = plan.as_ref().expect("a schedule within these bytes is known");
            assert!(extra(plan) <= extra(other), "{bytes}: {} {}", extra(plan), extra(other));
            pairs += 1;
        }
    }
    pairs
}

#[test]
fn more_bytes_never_cost_more_work() {
    for graph in [chain(24), training(6)] {
        assert!(compare_goals(&graph) > 20);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn plans_of_layered_graphs_are_valid_and_cost_no_less_than_the_bound(
        sizes in prop::collection::vec((1_u64..8, 1_u64..20, 0_usize..40, 0_usize..40), 4..40),
        percent in 50_u64..100,
    ) {
        let graph = layered(&sizes);
        let most = Planner::new().keep_order(true).plan(&graph).unwrap().arena_bytes();
        let bytes = most * percent / 100;
        if let Ok(plan) = Planner::new().recompute(&graph, Goal::Bytes(bytes)) {
            prop_assert!(plan.arena_bytes() <= bytes);
            plan.check(&graph).unwrap();
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn no_sequence_of_a_small_graph_costs_less_than_the_bound(
        sizes in prop::collection::vec((1_u64..5, 1_u64..2000, 0_usize..4, 0_usize..4), 3..4),
    ) {
        let graph = layered(&sizes);
        let limits = Budget::default();
        let search = Recompute::new(&graph, options(), &[], &limits);
        for bytes in (search.floor() / UNIT..=search.plain().bytes / UNIT).map(|it| it * UNIT) {
            let known = brute_force(&graph, bytes, 6);
            let bound = search.bound(bytes);
            prop_assert!(known.is_none_or(|known| bound <= known), "{bound} {known:?} at {bytes}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(6))]

    #[test]
    fn more_bytes_never_cost_more_work_in_layered_graphs(
        sizes in prop::collection::vec((1_u64..8, 1_u64..20, 0_usize..40, 0_usize..40), 4..24),
    ) {
        prop_assert!(compare_goals(&layered(&sizes)) > 0);
    }
}

#[test]
fn schedules_that_do_not_run_are_refused_by_name() {
    let mut builder = Graph::builder("schedule");
    let x = add(&mut builder, "x", ValueKind::Input, 1);
    let p = add(&mut builder, "p", ValueKind::State, 1);
    let [a, b, r, new, y] =
        ["a", "b", "r", "new", "y"].map(|name| add(&mut builder, name, ValueKind::Activation, 1));
    for (name, reads, made, is_pure) in [
        ("a", vec![x], a, true),
        ("b", vec![a], b, false),
        ("r", vec![p], r, true),
        ("new", vec![b], new, true),
        ("y", vec![r, a], y, true),
    ] {
        let node = Node::new(name, "Op").reads(reads).writes([made]);
        builder.add_node(if is_pure { node.pure() } else { node });
    }
    builder.add_write_back(new, p);
    builder.add_output(y);
    let graph = builder.build().unwrap();
    let run = |name: &str| {
        let is_named = |node: &Node| node.name() == name;
        Execution::Run(NodeId::new(graph.nodes().iter().position(is_named).unwrap()))
    };
    let sequence = |names: &str| names.split(' ').map(run).collect::<Vec<_>>();
    let (host, taken) = (Space::new("host"), Space::default());
    let refused = |schedule: &[Execution], slow: &Space| {
        graph.scheduled_with(schedule, Some(slow)).unwrap_err().to_string()
    };
    graph.scheduled_with(&sequence("a b r new y"), Some(&host)).unwrap();
    for (names, says) in [
        ("a b new r y", "node 'new' runs before a node that it waits for"),
        ("a b r new", "node 'y' does not run"),
        ("a b r new r y", "a node reads a content that was replaced before"),
        ("a b b r new y", "node 'b' runs again, and is not pure"),
        ("b a r new y", "node 'b' runs before a value that it reads is made"),
    ] {
        let error = refused(&sequence(names), &host);
        assert!(error.contains(says), "{says}: {error}");
    }
    let (out, back) = (|value| Execution::PageOut { value }, |value| Execution::PageIn { value });
    for (copies, says) in [
        (vec![out(x)], "value 'x' is copied, and is not between two nodes"),
        (vec![out(y)], "value 'y' is copied, and is not between two nodes"),
        (vec![out(b)], "value 'b' is copied before it is made"),
        (vec![out(a), out(a)], "value 'a' is copied twice"),
        (vec![back(a)], "comes back, and was not copied before"),
        (vec![out(ValueId::new(99))], "there is no such value"),
    ] {
        let schedule = [sequence("a"), copies, sequence("b r new y")].concat();
        let error = refused(&schedule, &host);
        assert!(error.contains(says), "{says}: {error}");
    }
    let error = refused(&sequence("a b r new y"), &taken);
    assert!(error.contains("the graph has a space 'arena' already"), "{error}");
}
