//! Values that leave for a slow memory and come back, and every way to get a schedule wrong.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};

use arenaplan::base::Execution;
use arenaplan::pack::Space;
use arenaplan::planner::Goal;
use arenaplan::{
    DType, Graph, GraphBuilder, Node, NodeId, Plan, Planner, Value, ValueId, ValueKind,
};
use proptest::prelude::*;
use serde_json::json;

use crate::check::forge;

const UNIT: u64 = 64;

fn add(builder: &mut GraphBuilder, name: &str, kind: ValueKind, units: u64) -> ValueId {
    builder.add_value(Value::new(name, kind, DType::UINT8, [units * UNIT]).unwrap())
}

/// One layer of a training step.
#[derive(Clone, Copy, Debug)]
struct Layer {
    units: u64,
    cost: u64,
    is_pure: bool,
    /// Layers back that it reads, too, if it is not 0.
    skip: usize,
}

/// A training step: layers with parameters, gradients that read the activations, updates in place.
fn step(layers: &[Layer]) -> Graph {
    let mut builder = Graph::builder("step");
    let mut values = vec![add(&mut builder, "x", ValueKind::Input, 2)];
    let mut parameters = Vec::new();
    for (index, layer) in layers.iter().enumerate() {
        let p = add(&mut builder, &format!("p{index}"), ValueKind::State, 1);
        let next = add(&mut builder, &format!("a{index}"), ValueKind::Activation, layer.units);
        let mut reads = vec![values[index], p];
        if layer.skip > 0 && layer.skip <= index {
            reads.push(values[index - layer.skip]);
        }
        let node = Node::new(format!("f{index}"), "F").reads(reads).writes([next]);
        let node = node.with_cost(layer.cost);
        builder.add_node(if layer.is_pure { node.pure() } else { node });
        values.push(next);
        parameters.push(p);
    }
    let mut gradient = values[layers.len()];
    for (index, layer) in layers.iter().enumerate().rev() {
        let dp = add(&mut builder, &format!("dp{index}"), ValueKind::Activation, 1);
        let node = Node::new(format!("w{index}"), "W").reads([gradient, values[index]]);
        builder.add_node(node.writes([dp]).pure().with_cost(layer.cost));
        let units = if index == 0 { 2 } else { layers[index - 1].units };
        let next = add(&mut builder, &format!("g{index}"), ValueKind::Activation, units);
        let reads = [gradient, parameters[index], values[index + 1]];
        let node = Node::new(format!("b{index}"), "B").reads(reads).writes([next]);
        let node = node.pure().with_cost(layer.cost);
        builder.add_node(if units <= layer.units { node.in_place(0, 0) } else { node });
        let new = add(&mut builder, &format!("n{index}"), ValueKind::Activation, 1);
        let node = Node::new(format!("u{index}"), "U").reads([parameters[index], dp]);
        builder.add_node(node.writes([new]).pure().with_cost(1).in_place(0, 0));
        builder.add_write_back(new, parameters[index]);
        gradient = next;
    }
    builder.add_output(gradient);
    builder.build().unwrap()
}

fn even(count: usize, cost: u64, is_pure: bool) -> Graph {
    step(&vec![Layer { units: 4, cost, is_pure, skip: 0 }; count])
}

fn host(cost: u64) -> Space {
    Space::new("host").with_cost(cost)
}

fn most(graph: &Graph) -> u64 {
    Planner::new().keep_order(true).plan(graph).unwrap().arena_bytes()
}

fn schedule(plan: &Plan) -> &[Execution] {
    &plan.recomputed().unwrap().schedule
}

fn copies(plan: &Plan) -> usize {
    schedule(plan).iter().filter(|it| !matches!(it, Execution::Run(_))).count()
}

fn paged(graph: &Graph, percent: u64, slow: &Space) -> Plan {
    let bytes = most(graph) * percent / 100;
    let plan = Planner::new().paging_to(slow).recompute(graph, Goal::Bytes(bytes)).unwrap();
    assert!(plan.spaces()[0].arena_bytes <= bytes);
    plan
}

#[test]
fn nodes_that_may_not_run_again_are_paged_around() {
    let graph = even(8, 100, false);
    let bytes = most(&graph) * 6 / 10;
    assert!(Planner::new().recompute(&graph, Goal::Bytes(bytes)).is_err());
    let plan = paged(&graph, 60, &host(3));
    let recomputed = plan.recomputed().unwrap();
    let copied = schedule(&plan).iter().map(|it| match *it {
        Execution::PageOut { value } | Execution::PageIn { value } => graph.value(value).bytes(),
        Execution::Run(_) => 0,
    });
    assert_eq!(recomputed.extra_cost, copied.sum::<u64>() * 3);
    assert!(recomputed.extra_bound <= recomputed.extra_cost && recomputed.extra_bound > 0);
    assert_eq!(plan.spaces().len(), 2);
    assert_eq!(plan.spaces()[1].name, "host");
    let again = Plan::from_json(plan.to_json().as_bytes()).unwrap();
    assert_eq!(again, plan);
    again.check(&graph).unwrap();
}

/// Of the two ways to have a value again, the cheaper one is taken, for each value.
#[test]
fn each_value_takes_the_cheaper_way() {
    // A copy out and in costs 2 * 4 * 64 = 512 at a cost of 1 per byte.
    for (cost, copied) in [(10, false), (10_000, true)] {
        let plan = paged(&even(8, cost, true), 60, &host(1));
        assert_eq!(copies(&plan) > 0, copied, "cost {cost}");
    }
    let mixed: Vec<Layer> = (0..12)
        .map(|it| Layer { units: 4, cost: [10, 10_000][it % 2], is_pure: true, skip: 0 })
        .collect();
    let graph = step(&mixed);
    let plan = paged(&graph, 55, &host(1));
    let mut runs = vec![0; graph.nodes().len()];
    for execution in schedule(&plan) {
        if let Execution::Run(node) = execution {
            runs[node.index()] += 1;
        }
    }
    let again: Vec<u64> = (0..runs.len())
        .filter(|&it| runs[it] > 1)
        .map(|it| graph.node(NodeId::new(it)).cost())
        .collect();
    assert!(copies(&plan) > 0 && !again.is_empty(), "{again:?}");
    assert!(again.iter().all(|&cost| cost <= 10), "{again:?}");
}

#[test]
fn paging_is_never_dearer_than_without() {
    for cost in [10, 400, 2_000] {
        let graph = even(10, cost, true);
        let bytes = most(&graph) * 6 / 10;
        let without = Planner::new().recompute(&graph, Goal::Bytes(bytes)).unwrap();
        let slow = host(1);
        let with = Planner::new().paging_to(&slow).recompute(&graph, Goal::Bytes(bytes)).unwrap();
        let extra = |plan: &Plan| plan.recomputed().unwrap().extra_cost;
        assert!(extra(&with) <= extra(&without), "{cost}");
        let curve = Planner::new().paging_to(&slow).recompute_curve(&graph).unwrap();
        let plain = Planner::new().recompute_curve(&graph).unwrap();
        for point in &plain.points {
            let better = |it: &arenaplan::planner::CurvePoint| {
                it.arena_bytes <= point.arena_bytes && it.extra_cost <= point.extra_cost
            };
            assert!(curve.points.iter().any(better), "{point:?}");
        }
    }
}

#[test]
fn the_slow_memory_holds_what_it_can() {
    let graph = even(10, 10_000, false);
    let free = paged(&graph, 70, &host(1));
    let most_slow = free.spaces()[1].arena_bytes;
    assert!(most_slow >= 2 * 4 * UNIT);
    let small = host(1).with_capacity(most_slow - 1);
    let bytes = most(&graph) * 7 / 10;
    match Planner::new().paging_to(&small).recompute(&graph, Goal::Bytes(bytes)) {
        Ok(plan) => assert!(plan.spaces()[1].arena_bytes < most_slow),
        Err(error) => assert_eq!(error.kind(), "RecomputeExceeded"),
    }
    let none = host(1).with_capacity(UNIT);
    assert!(Planner::new().paging_to(&none).recompute(&graph, Goal::Bytes(bytes)).is_err());
}

/// A value comes back before its reader by as many nodes as cost as much as the copy, where there
/// is room.
#[test]
fn values_come_back_early_where_there_is_room() {
    let layers: Vec<Layer> = (0..12)
        .map(|it| Layer { units: if it < 8 { 6 } else { 1 }, cost: 100, is_pure: false, skip: 0 })
        .collect();
    let plan = paged(&step(&layers), 80, &host(1));
    let schedule = schedule(&plan);
    let graph = step(&layers);
    let ahead = schedule.iter().enumerate().filter_map(|(position, execution)| {
        let Execution::PageIn { value } = *execution else { return None };
        let reads = |it: &Execution| {
            matches!(*it, Execution::Run(node) if graph.node(node).inputs().contains(&Some(value)))
        };
        schedule[position..].iter().position(reads)
    });
    assert!(ahead.clone().any(|distance| distance > 1), "{:?}", ahead.collect::<Vec<_>>());
}

/// Bytes as numbers: each node makes numbers that depend on itself and all that it reads.
struct Simulation<'a> {
    plan: &'a Plan,
    /// By space and line of bytes.
    memory: Vec<Vec<u64>>,
}

fn lines(bytes: u64) -> usize {
    usize::try_from(bytes / UNIT).unwrap()
}

fn hash(what: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    what.hash(&mut hasher);
    hasher.finish()
}

/// Returns what an execution makes.
fn made(node: NodeId, output: usize, operands: &[Vec<u64>], bytes: u64) -> Vec<u64> {
    (0..lines(bytes)).map(|line| hash((u32::from(node), output, operands, line))).collect()
}

fn supplied(value: ValueId, bytes: u64) -> Vec<u64> {
    (0..lines(bytes)).map(|line| hash((u32::from(value), "supplied", line))).collect()
}

impl Simulation<'_> {
    fn at(&mut self, value: ValueId) -> &mut [u64] {
        let place = self.plan.placement(value).unwrap();
        let start = lines(place.offset);
        let space = usize::try_from(place.space).unwrap();
        &mut self.memory[space][start..start + lines(place.bytes)]
    }
}

/// Runs a plan in its memory, and returns what is left of the outputs and of the parameters.
fn simulated(graph: &Graph, plan: &Plan) -> Vec<Vec<u64>> {
    let (scheduled, origin) = match plan.recomputed() {
        Some(recomputed) => {
            let slow = recomputed.paging.as_ref().map(arenaplan::plan::Paging::to_space);
            let found = graph.scheduled_with(&recomputed.schedule, slow.as_ref()).unwrap();
            (found.graph, found.origin)
        }
        None => {
            let nodes = (0..graph.nodes().len()).map(|it| Execution::Run(NodeId::new(it)));
            (graph.clone(), nodes.collect())
        }
    };
    let memory = plan.spaces().iter().map(|it| vec![0; lines(it.arena_bytes + UNIT)]).collect();
    let mut run = Simulation { plan, memory };
    for (index, value) in graph.values().iter().enumerate() {
        if matches!(value.kind(), ValueKind::Input | ValueKind::State) {
            let id = ValueId::new(index);
            run.at(id).copy_from_slice(&supplied(id, value.bytes()));
        }
    }
    for step in plan.steps() {
        let ids = |operands: &[Option<u32>]| -> Vec<ValueId> {
            operands.iter().flatten().map(|&id| ValueId::from(id)).collect()
        };
        let operands: Vec<Vec<u64>> =
            ids(&step.inputs).into_iter().map(|id| run.at(id).to_vec()).collect();
        for (position, output) in ids(&step.outputs).into_iter().enumerate() {
            let content = match origin[NodeId::from(step.node).index()] {
                Execution::Run(node) => {
                    made(node, position, &operands, scheduled.value(output).bytes())
                }
                _ => operands[0].clone(),
            };
            run.at(output).copy_from_slice(&content);
        }
    }
    let ends = scheduled.outputs().iter().copied();
    let ends = ends.chain(scheduled.write_backs().iter().map(|pair| pair.into));
    ends.map(|value| run.at(value).to_vec()).collect()
}

/// Returns what the graph computes, with memory of its own for each value.
fn expected(graph: &Graph) -> Vec<Vec<u64>> {
    let mut contents: Vec<Vec<u64>> = (0..graph.values().len())
        .map(|it| supplied(ValueId::new(it), graph.values()[it].bytes()))
        .collect();
    for &id in graph.order() {
        let node = graph.node(id);
        let operands: Vec<Vec<u64>> =
            node.inputs().iter().flatten().map(|it| contents[it.index()].clone()).collect();
        for (position, output) in node.produces() {
            contents[output.index()] = made(id, position, &operands, graph.value(output).bytes());
        }
    }
    let ends = graph.outputs().iter().copied();
    let ends = ends.chain(graph.write_backs().iter().map(|pair| pair.value));
    ends.map(|value| contents[value.index()].clone()).collect()
}

/// Numbers that look random.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        usize::try_from((self.0 >> 33) % u64::try_from(end.max(1)).unwrap()).unwrap()
    }
}

/// Drops, exchanges, moves or replaces one entry of a list.
fn corrupt<T: Clone>(list: &mut Vec<T>, random: &mut Random) -> &'static str {
    let (at, other) = (random.below(list.len()), random.below(list.len()));
    match random.below(6) {
        0 => {
            list.remove(at);
            "drop"
        }
        1 => {
            list.swap(at, other);
            "exchange"
        }
        2 => {
            let moved = list.remove(at);
            list.insert(at.saturating_sub(1 + random.below(4)), moved);
            "early"
        }
        3 => {
            let moved = list.remove(at);
            list.insert((at + 1 + random.below(4)).min(list.len()), moved);
            "late"
        }
        4 => {
            list[at] = list[other].clone();
            "replace"
        }
        _ => {
            let again = list[at].clone();
            list.insert(other, again);
            "repeat"
        }
    }
}

/// The law of corrupted schedules: a plan file with one changed entry is refused, or its run leaves
/// the outputs and parameters that the graph computes. Entries are those of the schedule, of the
/// steps, and of the operands of a step.
fn corrupted(graph: &Graph, plan: &Plan, seed: u64, count: usize) -> (usize, usize) {
    let wanted = expected(graph);
    assert_eq!(simulated(graph, plan), wanted, "the plan itself");
    let mut random = Random(seed);
    let (mut changed, mut accepted) = (0, 0);
    for _ in 0..count {
        let mut how = "";
        let forged = forge(plan, |json| match random.below(4) {
            0 | 1 => {
                let schedule = json["recomputed"]["schedule"].as_array_mut().unwrap();
                how = corrupt(schedule, &mut random);
            }
            2 => how = corrupt(json["steps"].as_array_mut().unwrap(), &mut random),
            _ => {
                let steps = json["steps"].as_array_mut().unwrap();
                let at = random.below(steps.len());
                let inputs = steps[at]["inputs"].as_array_mut().unwrap();
                let position = random.below(inputs.len());
                inputs[position] = json!(random.below(plan.value_count()));
                how = "operand";
            }
        });
        // A list that is the same after the change, or no list of steps.
        let Ok(forged) = forged else {
            changed += 1;
            continue;
        };
        if forged == *plan {
            continue;
        }
        changed += 1;
        if forged.check(graph).is_ok() {
            accepted += 1;
            assert_eq!(simulated(graph, &forged), wanted, "{how}");
        }
    }
    (changed, accepted)
}

fn layers() -> impl Strategy<Value = Vec<Layer>> {
    let layer = (1_u64..7, 1_u64..2_000, prop::bool::weighted(0.8), 0_usize..4);
    let layer = layer.prop_map(|(units, cost, is_pure, skip)| Layer { units, cost, is_pure, skip });
    prop::collection::vec(layer, 4..12)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn corrupted_plans_are_refused_or_compute_the_same(
        layers in layers(),
        percent in 55_u64..95,
        link in 0_u64..4,
        seed in any::<u64>(),
    ) {
        let graph = step(&layers);
        let bytes = most(&graph) * percent / 100;
        let slow = host(link);
        let found = Planner::new().paging_to(&slow).recompute(&graph, Goal::Bytes(bytes));
        if let Ok(plan) = found && plan.recomputed().is_some() {
            plan.check(&graph).unwrap();
            let (changed, accepted) = corrupted(&graph, &plan, seed, 40);
            prop_assert!(accepted < changed, "{} of {}", accepted, changed);
        }
    }
}

/// Each copy of a plan, late, early, dropped, or of another value, in a graph that is valid by
/// itself: only the contents tell.
#[test]
fn copies_of_other_contents_are_refused() {
    let graph = even(8, 10_000, false);
    let plan = paged(&graph, 60, &host(1));
    let slow = host(1);
    let right = graph.scheduled_with(schedule(&plan), Some(&slow)).unwrap().graph;
    plan.check_repetitions(&graph, &right).unwrap();
    let json: serde_json::Value = serde_json::from_str(&right.to_json()).unwrap();
    let nodes = json["nodes"].as_array().unwrap().len();
    let (mut tried, mut refused) = (0, 0);
    for node in graph.nodes().len()..nodes {
        for other in 0..right.values().len() {
            let mut forged = json.clone();
            if forged["nodes"][node]["inputs"][0] == json!(other) {
                continue;
            }
            forged["nodes"][node]["inputs"][0] = json!(other);
            forged.as_object_mut().unwrap().remove("checksum");
            forged.as_object_mut().unwrap().remove("digest");
            let Ok(forged) = Graph::from_json(forged.to_string().as_bytes()) else { continue };
            if !forged.is_topological(&plan.order().collect::<Vec<_>>()) {
                continue;
            }
            tried += 1;
            refused += usize::from(plan.check_repetitions(&graph, &forged).is_err());
        }
    }
    assert!(tried > 50);
    assert_eq!(tried, refused);
}
