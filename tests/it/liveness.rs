//! Live ranges and alias classes, on graphs small enough to check by hand.

use arenaplan::graph::{InPlace, View, Whole};
use arenaplan::liveness::LivenessOptions;
use arenaplan::plan::ShareRule;
use arenaplan::{
    Effects, Graph, Liveness, Node, NodeId, Planner, SpaceId, Status, ValueId, ValueKind,
};

use crate::graphs::{Sketch, in_place, reshape};
use crate::planners::ideal_planner;

fn liveness(graph: &Graph) -> Liveness {
    Liveness::new(graph, graph.order(), LivenessOptions::default(), &[], Vec::new()).unwrap()
}

/// Returns the live range of every value.
fn live(graph: &Graph, options: LivenessOptions) -> Vec<Option<(u32, u32)>> {
    let liveness = Liveness::new(graph, graph.order(), options, &[], Vec::new()).unwrap();
    (0..graph.values().len())
        .map(|index| liveness.lifetimes.of(ValueId::new(index)))
        .map(|live| live.map(|live| (live.start().get(), live.end().get())))
        .collect()
}

/// Returns the values that each buffer holds.
fn classes(graph: &Graph) -> Vec<Vec<usize>> {
    let members = |class: &arenaplan::liveness::AliasClass| {
        class.members.iter().map(|member| member.value.index()).collect()
    };
    liveness(graph).classes.classes().iter().map(members).collect()
}

#[test]
fn values_live_from_their_producer_to_their_last_reader() {
    let mut sketch = Sketch::new();
    let x = sketch.input("x", 64); // 0
    let unused = sketch.input("unused", 64); // 1
    let constant = sketch.value("c", ValueKind::Constant, 64); // 2
    let state = sketch.value("s", ValueKind::State, 64); // 3
    let a = sketch.node("a", &[x, constant], 64); // 4, step 0
    let b = sketch.node("b", &[a, state], 64); // 5, step 1
    let c = sketch.node("c1", &[a, x], 64); // 6, step 2
    let _ = unused;
    let graph = sketch.build(&[b, c]);
    let mut options = LivenessOptions::default();
    let end = 3;
    let common = [
        Some((0, 3)),
        Some((0, 1)),
        None,
        Some((0, end)),
        Some((0, 3)),
        Some((1, end)),
        Some((2, end)),
    ];
    assert_eq!(live(&graph, options), common);
    options.preserve_inputs = true;
    let mut preserved = common;
    preserved[1] = Some((0, end));
    assert_eq!(live(&graph, options), preserved);
}

#[test]
fn an_ignored_input_is_not_kept_alive() {
    let mut sketch = Sketch::new();
    let x = sketch.input("x", 64);
    let a = sketch.node("a", &[x], 64);
    let b = sketch.node("b", &[a], 64);
    let shape = Effects { ignores: vec![0], ..Effects::default() };
    let c = sketch.effectful("c", &[a, b], 64, shape);
    let graph = sketch.build(&[c]);
    assert_eq!(live(&graph, LivenessOptions::default())[1], Some((0, 2)));
}

#[test]
fn a_dying_operand_is_taken_over() {
    let mut sketch = Sketch::new();
    let x = sketch.input("x", 64);
    let a = sketch.node("a", &[x], 64);
    let b = sketch.effectful("b", &[a], 64, in_place(0));
    let graph = sketch.build(&[b]);
    assert_eq!(classes(&graph), [vec![0], vec![1, 2]]);
    let shares: Vec<_> =
        liveness(&graph).classes.merges().iter().map(|merge| merge.share.rule).collect();
    assert_eq!(shares, [ShareRule::InPlace]);
}

#[test]
fn of_outputs_that_may_take_over_one_input_the_larger_does() {
    let mut sketch = Sketch::new();
    let x = sketch.input("x", 64);
    let a = sketch.node("a", &[x], 320); // 1
    let small = sketch.value("small", ValueKind::Activation, 128);
    let large = sketch.value("large", ValueKind::Activation, 320);
    let node = Node::new("halves", "Op").reads([a]).writes([small, large]);
    sketch.builder.add_node(node.in_place(0, 0).in_place(0, 1));
    let graph = sketch.build(&[small, large]);
    assert_eq!(classes(&graph), [vec![0], vec![1, 3], vec![2]]);
    let plan = Planner::new().plan(&graph).unwrap();
    assert_eq!((plan.arena_bytes(), plan.status()), (448, Status::Optimal));
}

#[test]
fn outputs_exchange_inputs_so_that_each_has_one() {
    let mut sketch = Sketch::new();
    let x = sketch.input("x", 64);
    let a = sketch.node("a", &[x], 128); // 1
    let b = sketch.node("b", &[x], 192); // 2
    let first = sketch.value("first", ValueKind::Activation, 128);
    let second = sketch.value("second", ValueKind::Activation, 64);
    // `first` would take `a`, which is closer in size, and which is all that `second` may take.
    let node = Node::new("both", "Op").reads([a, b]).writes([first, second]);
    sketch.builder.add_node(node.in_place(0, 0).in_place(1, 0).in_place(0, 1));
    let graph = sketch.build(&[first, second]);
    assert_eq!(classes(&graph), [vec![0], vec![1, 4], vec![2, 3]]);
}

#[test]
fn graph_inputs_and_outputs_are_never_overwritten() {
    let mut sketch = Sketch::new();
    let x = sketch.input("x", 64);
    let a = sketch.effectful("a", &[x], 64, in_place(0)); // over an input
    let b = sketch.effectful("b", &[a], 64, in_place(0)); // over an output
    assert_eq!(classes(&sketch.build(&[a, b])), [vec![0], vec![1], vec![2]]);
}

#[test]
fn b17_an_operand_that_is_read_later_is_not_overwritten() {
    let mut sketch = Sketch::new();
    let x = sketch.input("x", 64);
    let a = sketch.node("a", &[x], 64);
    let b = sketch.effectful("b", &[a], 64, in_place(0));
    let c = sketch.node("c", &[a, b], 64);
    assert_eq!(classes(&sketch.build(&[c])), [vec![0], vec![1], vec![2], vec![3]]);
}

#[test]
fn pitfall_2_k08_a_view_that_is_read_later_protects_its_bytes() {
    let mut sketch = Sketch::new();
    let x = sketch.input("x", 64);
    let a = sketch.node("a", &[x], 64);
    let r1 = sketch.effectful("r1", &[a], 64, reshape());
    let r2 = sketch.effectful("r2", &[r1], 64, reshape());
    let sum = sketch.effectful("sum", &[r2, x], 64, in_place(0));
    let out = sketch.node("out", &[r1, sum], 64);
    assert_eq!(classes(&sketch.build(&[out])), [vec![0], vec![1, 2, 3], vec![4], vec![5]]);
}

#[test]
fn pitfall_1_a_view_of_a_graph_output_is_not_overwritten() {
    let mut sketch = Sketch::new();
    let x = sketch.input("x", 64);
    let a = sketch.node("a", &[x], 64);
    let r = sketch.effectful("r", &[a], 64, reshape());
    let b = sketch.effectful("b", &[r], 64, in_place(0));
    assert_eq!(classes(&sketch.build(&[a, b])), [vec![0], vec![1, 2], vec![3]]);
}

#[test]
fn pitfall_6_squares_are_in_place_when_both_reads_are_elementwise() {
    let pair = |input| InPlace { input, output: 0, identity: false };
    for (pairs, merged) in [(vec![pair(0), pair(1)], true), (vec![pair(0)], false)] {
        let mut sketch = Sketch::new();
        let x = sketch.input("x", 64);
        let a = sketch.node("a", &[x], 64);
        let effects = Effects { in_place: pairs, ..Effects::default() };
        let square = sketch.effectful("square", &[a, a], 64, effects);
        assert_eq!(classes(&sketch.build(&[square])).len() == 2, merged);
    }
}

#[test]
fn b18_one_output_takes_over_an_input_and_the_same_one_always() {
    let mut sketch = Sketch::new();
    let x = sketch.input("x", 64);
    let a = sketch.node("a", &[x], 64);
    let first = sketch.value("first", ValueKind::Activation, 64);
    let second = sketch.value("second", ValueKind::Activation, 64);
    let effects = Effects {
        in_place: [0, 1].map(|output| InPlace { input: 0, output, identity: false }).into(),
        ..Effects::default()
    };
    sketch.builder.add_node(
        Node::new("split", "Op").reads([a]).writes([first, second]).with_effects(effects),
    );
    let out = sketch.node("out", &[first, second], 64);
    let graph = sketch.build(&[out]);
    assert_eq!(classes(&graph), [vec![0], vec![1, 2], vec![3], vec![4]]);
    ideal_planner().plan(&graph).unwrap();
}

#[test]
fn the_operand_closest_in_size_then_born_last_is_taken() {
    let mut sketch = Sketch::new();
    let x = sketch.input("x", 64);
    let large = sketch.node("large", &[x], 256);
    let old = sketch.node("old", &[x], 128);
    let young = sketch.node("young", &[x], 128);
    let effects = Effects {
        in_place: [0, 1, 2].map(|input| InPlace { input, output: 0, identity: false }).into(),
        ..Effects::default()
    };
    let out = sketch.effectful("out", &[large, old, young], 128, effects);
    assert_eq!(classes(&sketch.build(&[out])), [vec![0], vec![1], vec![2], vec![3, 4]]);
}

#[test]
fn a_view_of_bytes_that_the_same_node_overwrites_is_a_copy() {
    let mut sketch = Sketch::new();
    let x = sketch.input("x", 64);
    let a = sketch.node("a", &[x], 64);
    let over = sketch.value("over", ValueKind::Activation, 64);
    let shown = sketch.value("shown", ValueKind::Activation, 64);
    let mut effects = in_place(0);
    effects.views = vec![arenaplan::graph::View {
        input: 0,
        output: 1,
        offset: 0,
        whole: arenaplan::graph::Whole::Input,
    }];
    sketch
        .builder
        .add_node(Node::new("n", "Op").reads([a]).writes([over, shown]).with_effects(effects));
    let out = sketch.node("out", &[over, shown], 64);
    let graph = sketch.build(&[out]);
    // Either may have the bytes, and a view costs no time.
    assert_eq!(classes(&graph), [vec![0], vec![1, 3], vec![2], vec![4]]);
    ideal_planner().plan(&graph).unwrap();
}

#[test]
fn b19_a_chain_of_views_is_one_buffer() {
    let mut sketch = Sketch::new();
    let x = sketch.input("x", 64);
    let mut last = sketch.node("a", &[x], 64);
    for index in 0..100_000 {
        last = sketch.effectful(&format!("r{index}"), &[last], 64, reshape());
    }
    let graph = sketch.build(&[last]);
    assert_eq!(classes(&graph).len(), 2);
    assert_eq!(ideal_planner().plan(&graph).unwrap().arena_bytes(), 128);
}

#[test]
fn states_live_through_the_run_and_are_not_viewed() {
    let mut sketch = Sketch::new();
    let x = sketch.input("x", 64);
    let state = sketch.value("state", ValueKind::State, 64);
    let shown = sketch.effectful("shown", &[state], 64, reshape());
    let update = Effects { mutates: vec![0], ..Effects::default() };
    let written = sketch.effectful("written", &[state, x], 64, update);
    let out = sketch.node("out", &[shown, written], 64);
    let graph = sketch.build(&[out]);
    assert_eq!(classes(&graph), [vec![0], vec![1], vec![2], vec![3], vec![4]]);
    let plan = ideal_planner().plan(&graph).unwrap();
    assert_eq!(plan.placement(ValueId::new(1)).unwrap().live, [0, 3]);
}

#[test]
fn an_output_may_be_smaller_than_what_it_takes_over() {
    let mut sketch = Sketch::new();
    let x = sketch.input("x", 64);
    let wide = sketch.node("wide", &[x], 256);
    let narrow = sketch.effectful("narrow", &[wide], 64, in_place(0));
    let graph = sketch.build(&[narrow]);
    assert_eq!(classes(&graph), [vec![0], vec![1, 2]]);
    let plan = ideal_planner().plan(&graph).unwrap();
    let offset = |index| plan.placement(ValueId::new(index)).unwrap().offset;
    assert_eq!(offset(1), offset(2));
    assert_eq!(plan.steps()[1].node, u32::from(NodeId::new(1)));
}

#[test]
fn a_value_without_bytes_holds_no_line() {
    let mut sketch = Sketch::new();
    let x = sketch.input("x", 64);
    let w = sketch.node("w", &[x], 20);
    let view = View { input: 0, output: 0, offset: 10, whole: Whole::Input };
    let effects = Effects { views: vec![view], ..Effects::default() };
    let empty = sketch.effectful("empty", &[w], 0, effects);
    let u = sketch.node("u", &[w], 64);
    let v = sketch.node("v", &[u, empty], 64);
    let graph = sketch.build(&[v]);
    let liveness = ideal_planner().liveness(&graph).unwrap();
    assert_eq!(liveness.profile(SpaceId::new(0)), [128, 64, 128, 128]);
}
