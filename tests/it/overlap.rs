//! Outputs that overlap dying inputs at a distance: legal in bytes, checked, and never worse.

use std::collections::BTreeMap;

use arenaplan::arena::{Input, Output};
use arenaplan::graph::{Choice, Flow, Overlap, Workspace};
use arenaplan::plan::{OrderSearch, Provider, ShareRule, WorkspacePolicy};
use arenaplan::{
    DType, Effects, Graph, Node, NodeId, Plan, Planner, Target, Technique, Techniques, Value,
    ValueId, ValueKind,
};
use proptest::prelude::*;

use crate::check::forge;
use crate::graphs::Sketch;
use crate::planners::ideal_planner;

/// Made in pieces, each from the same piece of input 0 and all of the others.
fn pieces(pieces: u64) -> Effects {
    let flow = Flow { output: 0, pieces, follows: vec![0] };
    Effects { flows: vec![flow], ..Effects::default() }
}

/// Made in order, with writing ahead of input 0 by `distance` bytes.
fn in_order(distance: u64) -> Effects {
    Effects { overlaps: vec![Overlap { input: 0, output: 0, distance }], ..Effects::default() }
}

fn planner() -> Planner<'static> {
    ideal_planner().alignment(1)
}

fn without() -> Planner<'static> {
    planner().optimize(Techniques::ALL.without(Technique::Overlap))
}

fn overlaps(plan: &Plan) -> Vec<u32> {
    let is_overlap = |share: &arenaplan::plan::Share| share.rule == ShareRule::Overlap;
    let steps = plan.steps().iter();
    steps.filter(|step| step.shares.iter().any(is_overlap)).map(|step| step.node).collect()
}

/// `c -> x -> y -> z`, where y is made of x with some effects and needs most bytes with it.
fn layer(x: u64, y: u64, effects: Effects) -> Graph {
    let mut sketch = Sketch::new();
    let c = sketch.input("c", 1);
    let x = sketch.node("x", &[c], x);
    let y = sketch.effectful("y", &[x], y, effects);
    let z = sketch.node("z", &[y], 1);
    sketch.build(&[z])
}

// -- what is planned --------------------------------------------------------------------

#[test]
fn an_output_made_in_pieces_needs_no_more_bytes_than_the_larger_of_the_two() {
    for (x, y) in [(100, 60), (60, 100), (100, 100)] {
        let graph = layer(x, y, pieces(10));
        let plan = planner().plan(&graph).unwrap();
        assert_eq!(without().plan(&graph).unwrap().arena_bytes(), x + y);
        // The steps before and after have one byte more.
        assert_eq!((plan.arena_bytes(), overlaps(&plan)), (x.max(y) + 1, vec![1]), "{x} -> {y}");
    }
}

#[test]
fn only_the_outputs_of_named_nodes_overlap_inputs() {
    let graph = layer(100, 60, pieces(10));
    let (none, other, all) = ([], [NodeId::new(0), NodeId::new(2)], [NodeId::new(1)]);
    for (nodes, bytes) in [(&none[..], 160), (&other[..], 160), (&all[..], 101)] {
        let plan = planner().overlapping(nodes).plan(&graph).unwrap();
        assert_eq!(plan.arena_bytes(), bytes, "{nodes:?}");
        plan.check(&graph).unwrap();
    }
}

#[test]
fn steps_that_were_taken_apart_have_no_proof_of_their_order() {
    let mut sketch = Sketch::new();
    let c = sketch.input("c", 10);
    let wide = sketch.effectful("wide", &[c], 100, pieces(10));
    let narrow = sketch.effectful("narrow", &[wide], 10, pieces(10));
    let z = sketch.node("z", &[narrow], 1);
    let graph = sketch.build(&[z]);
    let nodes = |step: &arenaplan::plan::PlanStep| -> Vec<NodeId> {
        step.fused.iter().chain([&step.node]).map(|&node| node.into()).collect()
    };
    let together = [vec![NodeId::new(0), NodeId::new(1)], vec![NodeId::new(2)]];
    let apart: Vec<_> = graph.order().iter().map(|&node| vec![node]).collect();
    let draft = without().plan(&graph).unwrap();
    let steps: Vec<_> = draft.steps().iter().map(nodes).collect();
    assert_eq!(draft.search().unwrap().order, OrderSearch::Complete);
    let same = without().plan_steps_after(&graph, &steps, &draft).unwrap();
    assert_eq!(same.search().unwrap().order, OrderSearch::Complete);
    let other = if steps == apart { &together[..] } else { &apart[..] };
    let split = without().plan_steps_after(&graph, other, &draft).unwrap();
    assert_eq!(split.search().unwrap().order, OrderSearch::Beam);
    assert_eq!(split.search().unwrap().floor, draft.search().unwrap().floor);
}

#[test]
fn the_distance_is_that_before_the_last_piece() {
    let graph = layer(60, 100, pieces(10));
    assert_eq!(
        graph.overlaps(NodeId::new(1), false),
        [Overlap { input: 0, output: 0, distance: 9 * (10 - 6) }]
    );
    let plan = planner().plan(&graph).unwrap();
    let offset = |value: usize| plan.placements()[value].offset;
    assert_eq!(offset(1) - offset(2), 36);
}

#[test]
fn a_halo_is_a_distance_that_the_node_declares() {
    // Rows of 10 bytes, each from the row and its neighbors: 10 bytes ahead.
    let plan = planner().plan(&layer(100, 100, in_order(10))).unwrap();
    assert_eq!((plan.arena_bytes(), overlaps(&plan)), (110, vec![1]));
    // What is known twice is true twice.
    let both = Effects { flows: pieces(10).flows, ..in_order(10) };
    assert_eq!(planner().plan(&layer(100, 100, both)).unwrap().arena_bytes(), 101);
}

#[test]
fn nothing_overlaps_where_that_saves_nothing() {
    // The distance is as large as the output; or there is one piece; or another step needs more.
    for effects in [in_order(100), pieces(1)] {
        let graph = layer(100, 100, effects);
        assert_eq!(planner().plan(&graph).unwrap().arena_bytes(), 200);
    }
    let mut sketch = Sketch::new();
    let c = sketch.input("c", 1);
    let x = sketch.node("x", &[c], 100);
    let y = sketch.effectful("y", &[x], 100, pieces(10));
    let z = sketch.node("z", &[y], 200);
    let graph = sketch.build(&[z]);
    let plan = planner().plan(&graph).unwrap();
    assert_eq!((plan.arena_bytes(), overlaps(&plan)), (300, vec![]));
}

#[test]
fn the_highest_steps_come_first_and_then_those_below() {
    let mut sketch = Sketch::new();
    let c = sketch.input("c", 1);
    let a = sketch.node("a", &[c], 100);
    let b = sketch.effectful("b", &[a], 90, pieces(10));
    let d = sketch.effectful("d", &[b], 80, pieces(10));
    let e = sketch.effectful("e", &[d], 30, pieces(10));
    let graph = sketch.build(&[e]);
    // 190, 170, 110: at 101 bytes there is nothing left that could be lower.
    let alone = Techniques::NONE.with(Technique::Overlap);
    let plan = planner().optimize(alone).plan(&graph).unwrap();
    assert_eq!((plan.arena_bytes(), overlaps(&plan)), (101, vec![1, 2, 3]));
    assert_eq!(plan.lower_bound(), 101);
}

// -- pitfalls ----------------------------------------------------------------------------

#[test]
fn p10_an_overlap_that_does_not_pack_is_left_out_again() {
    // Whatever is chosen is checked, and never larger than without: many random chains.
    let mut config = ProptestConfig::with_cases(64);
    config.failure_persistence = None;
    proptest!(config, |(graph in networks(14))| {
        let plan = planner().plan(&graph).unwrap();
        prop_assert!(plan.arena_bytes() <= without().plan(&graph).unwrap().arena_bytes());
        simulate(&graph, &plan).unwrap();
    });
}

#[test]
fn p14_the_scratch_memory_of_a_piece_counts() {
    let staged = |bytes: Option<u64>| {
        let graph = layer(100, 100, pieces(10));
        let staging = bytes.map(|bytes| {
            let choices = vec![Choice { bytes, cost: 1.0 }];
            let workspace = Workspace { choices, alignment: arenaplan::base::Alignment::BYTE };
            (NodeId::new(1), vec![workspace])
        });
        let graph = graph.with_staging(staging).unwrap();
        let plan = planner().workspace(WorkspacePolicy::Auto).plan(&graph).unwrap();
        assert_eq!(overlaps(&plan).len(), plan.workspaces().len());
        (plan.arena_bytes(), plan.workspaces().len())
    };
    assert_eq!(staged(Some(10)), (110, 1));
    assert_eq!(staged(Some(99)), (199, 1));
    // A piece as large as the output saves nothing, and unknown pieces cannot be counted.
    assert_eq!(staged(Some(100)), (200, 0));
    assert_eq!(staged(None), (200, 0));
}

#[test]
fn what_is_still_needed_is_not_overlapped() {
    let build = |change: &dyn Fn(&mut Sketch, [ValueId; 3]) -> Vec<ValueId>| {
        let mut sketch = Sketch::new();
        let c = sketch.input("c", 1);
        let x = sketch.node("x", &[c], 100);
        let y = sketch.effectful("y", &[x], 100, pieces(10));
        let outputs = change(&mut sketch, [c, x, y]);
        let graph = sketch.build(&outputs);
        let plan = planner().optimize(Techniques::NONE.with(Technique::Overlap)).plan(&graph);
        overlaps(&plan.unwrap()).len()
    };
    // x dies in y, so y overlaps it.
    assert_eq!(build(&|sketch, [_, _, y]| vec![sketch.node("z", &[y], 1)]), 1);
    // The caller wants x; somebody else reads x later.
    assert_eq!(build(&|_, [_, x, y]| vec![x, y]), 0);
    assert_eq!(build(&|sketch, [_, x, y]| vec![sketch.node("z", &[x, y], 1)]), 0);
}

#[test]
fn callers_bytes_and_states_are_not_overlapped() {
    for kind in [ValueKind::Input, ValueKind::State] {
        let mut sketch = Sketch::new();
        let x = sketch.value("x", kind, 100);
        let y = sketch.effectful("y", &[x], 100, pieces(10));
        let graph = sketch.build(&[y]);
        assert_eq!(planner().plan(&graph).unwrap().arena_bytes(), 200);
    }
}

#[test]
fn an_input_that_is_also_needed_whole_is_not_overlapped() {
    let mut sketch = Sketch::new();
    let c = sketch.input("c", 1);
    let x = sketch.node("x", &[c], 100);
    let y = sketch.effectful("y", &[x, x], 100, pieces(10));
    let graph = sketch.build(&[y]);
    assert_eq!(planner().plan(&graph).unwrap().arena_bytes(), 200);
    // Read twice piece by piece, it may be.
    let flow = Flow { output: 0, pieces: 10, follows: vec![0, 1] };
    let mut sketch = Sketch::new();
    let c = sketch.input("c", 1);
    let x = sketch.node("x", &[c], 100);
    let effects = Effects { flows: vec![flow], ..Effects::default() };
    let y = sketch.effectful("y", &[x, x], 100, effects);
    let plan = planner().plan(&sketch.build(&[y])).unwrap();
    assert_eq!((plan.arena_bytes(), overlaps(&plan)), (101, vec![1]));
}

#[test]
fn a_node_with_two_outputs_overlaps_nothing() {
    let mut sketch = Sketch::new();
    let c = sketch.input("c", 1);
    let x = sketch.node("x", &[c], 100);
    let [y, z] = ["y", "z"].map(|name| sketch.value(name, ValueKind::Activation, 100));
    let node = Node::new("two", "Op").reads([x]).writes([y, z]).flow(0, 10, [0]).flow(1, 10, [0]);
    sketch.builder.add_node(node);
    let graph = sketch.build(&[y, z]);
    assert_eq!(graph.overlaps(NodeId::new(1), false), []);
    assert_eq!(planner().plan(&graph).unwrap().arena_bytes(), 300);
}

#[test]
fn pieces_of_half_a_byte_are_no_pieces_of_memory() {
    let mut builder = Graph::builder("nibbles");
    let mut value =
        |name, kind| builder.add_value(Value::new(name, kind, DType::INT4, [9, 3]).unwrap());
    let [c, x, y] =
        [("c", ValueKind::Input), ("x", ValueKind::Activation), ("y", ValueKind::Activation)]
            .map(|(name, kind)| value(name, kind));
    builder.add_node(Node::new("x", "Op").reads([c]).writes([x]));
    let rows = builder.add_node(Node::new("y", "Op").reads([x]).writes([y]).flow(0, 9, [0]));
    builder.add_output(y);
    assert_eq!(builder.build().unwrap().overlaps(rows, false), []);
}

#[test]
fn plans_that_are_safe_in_every_order_have_no_overlaps() {
    let graph = layer(100, 100, pieces(10));
    let plan = planner().parallel_safe(true).plan(&graph).unwrap();
    assert_eq!((plan.arena_bytes(), overlaps(&plan)), (200, vec![]));
}

#[test]
fn a_group_overlaps_what_all_of_its_nodes_need_piece_by_piece() {
    let mut sketch = Sketch::new();
    let c = sketch.input("c", 1);
    let x = sketch.node("x", &[c], 100);
    let a = sketch.effectful("a", &[x], 200, pieces(10));
    let b = sketch.effectful("b", &[a], 110, pieces(10));
    let graph = sketch.build(&[b]);
    let steps = [0, 1].map(|node| vec![NodeId::new(node)]);
    let group = vec![NodeId::new(1), NodeId::new(2)];
    let plan = planner().plan_steps(&graph, &[steps[0].clone(), group.clone()]).unwrap();
    assert_eq!((plan.arena_bytes(), overlaps(&plan)), (110, vec![2]));
    let grouped = graph.grouped(&[group]).unwrap().graph;
    assert_eq!(
        grouped.overlaps(NodeId::new(1), false),
        [Overlap { input: 0, output: 0, distance: 9 }]
    );
}

#[test]
fn a_plan_with_overlaps_claims_no_best_order() {
    let plan = planner().plan(&layer(100, 100, pieces(10))).unwrap();
    assert_eq!(plan.search().unwrap().order, OrderSearch::Beam);
    assert!(plan.search().unwrap().floor <= plan.arena_bytes());
    let plan = without().plan(&layer(100, 100, pieces(10))).unwrap();
    assert_eq!(plan.search().unwrap().order, OrderSearch::Complete);
}

#[test]
fn plans_of_large_graphs_say_what_was_left_out() {
    let chain = |nodes: usize| {
        let mut sketch = Sketch::new();
        let mut last = sketch.input("x", 8);
        for index in 0..nodes {
            last = sketch.effectful(&format!("v{index}"), &[last], 8, pieces(4));
        }
        sketch.build(&[last])
    };
    let skipped = |nodes| planner().plan(&chain(nodes)).unwrap().search().unwrap().skipped;
    assert_eq!(skipped(5_000), Techniques::NONE);
    assert_eq!(skipped(20_001).to_string(), "streaming,overlap");
    assert_eq!(skipped(50_001).to_string(), "order,streaming,overlap");
}

// -- the checker --------------------------------------------------------------------------

#[test]
fn forged_distances_are_refused() {
    let graph = layer(60, 100, pieces(10));
    let plan = planner().plan(&graph).unwrap();
    let base = plan.placements()[2].offset;
    for distance in 0..=40_u64 {
        let moved = forge(&plan, |json| {
            json["values"][1]["offset"] = (base + distance).into();
        })
        .unwrap();
        assert_eq!(moved.check(&graph).is_ok(), distance >= 36, "{distance}");
        // And rightly so: real bytes say the same.
        assert_eq!(simulate(&graph, &moved).is_ok(), distance >= 36, "{distance}");
    }
}

#[test]
fn kernels_that_write_early_stay_behind_the_piece_that_they_read() {
    let early = Target::custom("early", Techniques::ALL).unwrap().with_scratch(Provider::Nobody);
    let early = early.with_early_writes(true);
    let planned = |graph: &Graph| Planner::new().target(&early).alignment(1).plan(graph).unwrap();
    for (x, y, least) in [(100, 60, 6), (100, 100, 10), (60, 100, 9 * 4 + 10)] {
        let graph = layer(x, y, pieces(10));
        let plan = planned(&graph);
        let base = plan.placements()[2].offset;
        assert_eq!(plan.placements()[1].offset - base, least, "{x} -> {y}");
        for distance in 0..=least {
            let moved = forge(&plan, |json| {
                json["values"][1]["offset"] = (base + distance).into();
            })
            .unwrap();
            assert_eq!(moved.check(&graph).is_ok(), distance >= least, "{x} -> {y}, {distance}");
        }
    }
    // Plans for kernels that make a piece first are not for kernels that write early.
    let ideal = planner().plan(&layer(100, 100, pieces(10))).unwrap();
    assert_eq!(ideal.check_target(&early).unwrap_err().kind(), "TargetMismatch");
    // An element that is a piece of its own is written after all that it needs was read.
    assert_eq!(planned(&layer(100, 100, pieces(100))).arena_bytes(), 101);
    assert!(Target::C_CODE.early_writes() && !Target::NUMPY.early_writes());
}

#[test]
fn an_overlap_must_be_declared_by_plan_and_node() {
    let graph = layer(100, 100, pieces(10));
    let plan = planner().plan(&graph).unwrap();
    let silent = forge(&plan, |json| json["steps"][1]["shares"] = serde_json::json!([])).unwrap();
    assert_eq!(silent.check(&graph).unwrap_err().kind(), "PlanOverlap");
    let renamed = |rule: &str| {
        forge(&plan, |json| json["steps"][1]["shares"][0]["rule"] = rule.into()).unwrap()
    };
    assert_eq!(renamed("in-place").check(&graph).unwrap_err().kind(), "PlanMismatch");
    assert_eq!(renamed("view").check(&graph).unwrap_err().kind(), "PlanMismatch");
    // The node before cannot: it is not known in which order it reads.
    let share = plan.to_json().contains(r#"{"input":0,"output":0,"rule":"overlap"}"#);
    assert!(share);
    let other = forge(&plan, |json| {
        json["steps"][0]["shares"] = json["steps"][1]["shares"].clone();
    });
    assert_eq!(other.unwrap().check(&graph).unwrap_err().kind(), "PlanMismatch");
}

#[test]
fn scratch_memory_of_overlaps_cannot_be_left_out_of_a_plan() {
    let choices = vec![Choice { bytes: 10, cost: 1.0 }];
    let workspace = Workspace { choices, alignment: arenaplan::base::Alignment::BYTE };
    let bare = layer(100, 100, pieces(10));
    let graph = bare.with_staging([(NodeId::new(1), vec![workspace])]).unwrap();
    let plan = planner().workspace(WorkspacePolicy::Auto).plan(&graph).unwrap();
    assert_eq!(overlaps(&plan), [1]);
    let forged = forge(&plan, |json| json["workspaces"] = serde_json::json!([])).unwrap();
    assert_eq!(forged.check(&graph).unwrap_err().kind(), "PlanMismatch");
    // Workspaces are no part of the digest: a graph that knows of none is the same graph.
    assert_eq!(plan.check(&bare).unwrap_err().kind(), "PlanMismatch");
}

// -- lending ------------------------------------------------------------------------------

#[test]
fn an_overlap_is_lent_as_one_slice() {
    for (x, y, distance) in [(60, 100, 36), (100, 60, 0)] {
        let graph = layer(x, y, pieces(10));
        let plan = planner().plan(&graph).unwrap();
        let mut arena = plan.commit().unwrap();
        let mut memory = arena.node(&plan, NodeId::new(1)).unwrap();
        let Input::Within { output: 0, offset } = memory.inputs[0] else { panic!("an overlap") };
        let Output::Exclusive(bytes) = &mut memory.outputs[0] else { panic!("bytes") };
        assert_eq!(offset, distance);
        assert_eq!(bytes.len(), 100);
        // Each piece is read before it is written over: the kernel sums what it is made of.
        let (a, b) = (usize::try_from(y / 10).unwrap(), usize::try_from(x / 10).unwrap());
        let read: Vec<u8> = (0..10 * b).map(|at| u8::try_from(at).unwrap()).collect();
        bytes[offset..offset + 10 * b].copy_from_slice(&read);
        for piece in 0..10 {
            let from = offset + piece * b;
            let sum: usize = bytes[from..from + b].iter().map(|&byte| usize::from(byte)).sum();
            let wanted: usize = (piece * b..(piece + 1) * b).sum();
            assert_eq!(sum, wanted);
            bytes[piece * a..(piece + 1) * a].fill(0xFF);
        }
    }
}

// -- laws over random graphs ----------------------------------------------------------------

#[derive(Clone, Debug)]
struct Layer {
    kind: u8,
    inputs: Vec<prop::sample::Index>,
    rows: u64,
    out: u64,
    halo: u64,
    is_output: bool,
}

/// Random networks of nodes that work piece by piece, with halos, elementwise, or as a whole.
pub fn networks(layers: usize) -> impl Strategy<Value = Graph> {
    let layer = (
        0_u8..7,
        prop::collection::vec(any::<prop::sample::Index>(), 1..3),
        2_u64..7,
        1_u64..9,
        0_u64..20,
        prop::bool::weighted(0.1),
    )
        .prop_map(|(kind, inputs, rows, out, halo, is_output)| Layer {
            kind,
            inputs,
            rows,
            out,
            halo,
            is_output,
        });
    (prop::collection::vec(layer, 1..layers)).prop_map(|layers| {
        let mut sketch = Sketch::new();
        let x = sketch.input("x", 24);
        sketch.node("first", &[x], 60);
        for (index, layer) in layers.iter().enumerate() {
            add(&mut sketch, index, layer);
        }
        let (last, _) = *sketch.values.last().unwrap();
        sketch.build(&[last])
    })
}

fn add(sketch: &mut Sketch, index: usize, layer: &Layer) {
    let near = sketch.values.len().saturating_sub(3);
    let known = &sketch.values[near..];
    let mut inputs: Vec<_> = layer.inputs.iter().map(|choice| *choice.get(known)).collect();
    let (_, first) = inputs[0];
    let rows = if first % layer.rows == 0 { layer.rows } else { 1 };
    let bytes = rows * layer.out;
    let (bytes, effects) = match layer.kind {
        0..=2 => {
            let follows = (0..inputs.len()).filter(|&at| inputs[at].1 % rows == 0);
            let flow = Flow { output: 0, pieces: rows, follows: follows.collect() };
            (bytes, Effects { flows: vec![flow], ..Effects::default() })
        }
        3 => {
            inputs.retain(|&(_, bytes)| bytes == first);
            let follows = (0..inputs.len()).collect::<Vec<_>>();
            let in_place = follows.iter().map(|&input| arenaplan::graph::InPlace {
                input,
                output: 0,
                identity: false,
            });
            let in_place = in_place.collect();
            let flow = Flow { output: 0, pieces: first.max(1), follows };
            (first, Effects { in_place, flows: vec![flow], ..Effects::default() })
        }
        4 => (first, in_order(layer.halo)),
        5 => (first, crate::graphs::reshape()),
        _ => (bytes, Effects::default()),
    };
    let reads: Vec<ValueId> = inputs.iter().map(|&(value, _)| value).collect();
    let output = sketch.effectful(&format!("v{index}"), &reads, bytes, effects);
    if layer.is_output {
        sketch.builder.add_output(output);
    }
}

/// Runs a plan on real bytes, one byte or one piece at a time, exactly as effects permit, and
/// compares what every node reads with what was written.
///
/// Knows nothing of distances: a node that overlaps an input looks at the input's bytes as late
/// as it may, and must still find them.
fn simulate(graph: &Graph, plan: &Plan) -> Result<(), String> {
    let mut arena = vec![0_u8; usize::try_from(plan.arena_bytes()).unwrap()];
    let mut contents: BTreeMap<ValueId, Vec<u8>> = BTreeMap::new();
    let place = |value: ValueId| {
        let found = plan.placement(value)?;
        let start = usize::try_from(found.offset).unwrap();
        Some(start..start + usize::try_from(found.bytes).unwrap())
    };
    let content = |value: ValueId| -> Vec<u8> {
        let bytes = usize::try_from(graph.value(value).bytes()).unwrap();
        let mixed = |at: usize| (value.index() * 1_000_003 + at).wrapping_mul(2_654_435_761);
        (0..bytes).map(|at| mixed(at).to_le_bytes()[2]).collect()
    };
    for input in graph.inputs() {
        let bytes = content(input);
        arena[place(input).unwrap()].copy_from_slice(&bytes);
        contents.insert(input, bytes);
    }
    for step in plan.steps() {
        let nodes: Vec<NodeId> =
            step.fused.iter().chain([&step.node]).map(|&node| NodeId::from(node)).collect();
        let made = step.outputs.iter().flatten().map(|&id| ValueId::from(id)).next().unwrap();
        let reads: Vec<(usize, ValueId)> = step
            .inputs
            .iter()
            .enumerate()
            .filter_map(|(at, id)| Some((at, ValueId::from((*id)?))))
            .filter(|&(_, value)| place(value).is_some())
            .collect();
        let rule = |wanted| step.shares.iter().find(|share| share.rule == wanted);
        if let Some(view) = rule(ShareRule::View) {
            let shown = reads.iter().find(|read| read.0 == view.input as usize).unwrap().1;
            let bytes = contents[&shown].clone();
            if arena[place(made).unwrap()] != bytes[..] {
                return Err(format!("{} shows other bytes", step.name));
            }
            contents.insert(made, bytes);
            continue;
        }
        let bytes = content(made);
        let output = place(made).unwrap();
        for scratch in nodes.iter().flat_map(|&id| plan.workspaces_of(id)) {
            let start = usize::try_from(scratch.offset).unwrap();
            arena[start..start + usize::try_from(scratch.bytes).unwrap()].fill(0xFF);
        }
        // After how many bytes of the output which byte of an input is still needed.
        let needed =
            |at: usize, written: usize| needed_from(graph, &nodes, reads[at], bytes.len(), written);
        let pieces: Vec<usize> = if rule(ShareRule::Overlap).is_some() {
            boundaries(graph, &nodes, bytes.len())
        } else {
            vec![0, bytes.len()]
        };
        for window in pieces.windows(2) {
            for (at, &(_, value)) in reads.iter().enumerate() {
                let from = needed(at, window[0]).min(contents[&value].len());
                let found = &arena[place(value).unwrap()][from..];
                if found != &contents[&value][from..] {
                    return Err(format!("{} reads other bytes than those of {value}", step.name));
                }
            }
            arena[output.start + window[0]..output.start + window[1]]
                .copy_from_slice(&bytes[window[0]..window[1]]);
        }
        contents.insert(made, bytes);
    }
    for &output in graph.outputs() {
        if arena[place(output).unwrap()] != contents[&output][..] {
            return Err(format!("output {output} is overwritten"));
        }
    }
    Ok(())
}

/// Returns where one piece of what some nodes make ends and the next begins, the smallest that
/// their effects speak of.
fn boundaries(graph: &Graph, nodes: &[NodeId], bytes: usize) -> Vec<usize> {
    let count = |&id: &NodeId| {
        let effects = graph.node(id).effects();
        let flow = effects.flows.first().map_or(0, |flow| usize::try_from(flow.pieces).unwrap());
        // Byte by byte where the node says what it needs after any byte.
        if effects.overlaps.is_empty() { flow } else { bytes }
    };
    let pieces = nodes.iter().map(count).fold(0, gcd).max(1);
    (0..=pieces).map(|piece| piece * (bytes / pieces)).collect()
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// Returns the first byte of an operand that is still needed when `written` of `bytes` bytes of
/// the result are: by the definition of effects.
fn needed_from(
    graph: &Graph,
    nodes: &[NodeId],
    (position, value): (usize, ValueId),
    bytes: usize,
    written: usize,
) -> usize {
    let size = usize::try_from(graph.value(value).bytes()).unwrap();
    if let &[node] = nodes {
        let mut declared = graph.node(node).effects().overlaps.iter();
        if let Some(known) = declared.find(|known| known.input == position) {
            let read = written.saturating_sub(usize::try_from(known.distance).unwrap());
            return if written == bytes { size } else { read.min(size) };
        }
    }
    let follows = nodes.iter().all(|&id| {
        let node = graph.node(id);
        let mut reads = node.reads_bytes_of().filter(|&(_, read)| read == value);
        let flow = node.effects().flows.first();
        reads.all(|(at, _)| flow.is_some_and(|flow| flow.follows.contains(&at)))
    });
    // Of every piece, the share of the operand that is behind.
    if follows && bytes > 0 { size * written / bytes } else { 0 }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn no_byte_is_overwritten_that_is_needed(graph in networks(10)) {
        for techniques in [
            Techniques::NONE.with(Technique::Overlap),
            Techniques::BASIC.with(Technique::Overlap),
            Techniques::ALL,
        ] {
            let plan = planner().optimize(techniques).plan(&graph).unwrap();
            simulate(&graph, &plan).unwrap();
            let without = planner().optimize(techniques.without(Technique::Overlap));
            prop_assert!(plan.arena_bytes() <= without.plan(&graph).unwrap().arena_bytes());
        }
    }

    #[test]
    fn scratch_memory_of_pieces_is_apart_and_counted(
        graph in networks(10),
        sizes in prop::collection::vec(prop::option::of(0_u64..30), 10),
    ) {
        let workspace = |bytes| {
            let choices = vec![Choice { bytes, cost: 1.0 }, Choice { bytes: bytes + 9, cost: 0.5 }];
            vec![Workspace { choices, alignment: arenaplan::base::Alignment::BYTE }]
        };
        let nodes = (0..graph.nodes().len()).map(NodeId::new);
        let sized = nodes.zip(sizes).filter_map(|(id, size)| Some((id, workspace(size?))));
        let graph = graph.with_staging(sized).unwrap();
        let auto = planner().workspace(WorkspacePolicy::Auto);
        let plan = auto.plan(&graph).unwrap();
        simulate(&graph, &plan).unwrap();
        prop_assert_eq!(plan.workspaces().len(), overlaps(&plan).len());
        let without = auto.optimize(Techniques::ALL.without(Technique::Overlap));
        prop_assert!(plan.arena_bytes() <= without.plan(&graph).unwrap().arena_bytes());
    }
}
