//! Nodes that run as one, and orders: what is found is legal, checked and as good as claimed.

use arenaplan::choose::{Fusion, OrderLimits, find_order, fuse};
use arenaplan::graph::{InPlace, View, Whole};
use arenaplan::liveness::LivenessOptions;
use arenaplan::pack::max_load;
use arenaplan::{
    Effects, Graph, Liveness, Node, NodeId, SpaceId, Technique, Techniques, ValueKind,
};
use proptest::prelude::*;

use crate::check::forge;
use crate::graphs::Sketch;
use crate::planners::ideal_planner;

const ACTIVATION: ValueKind = ValueKind::Activation;

/// Elementwise over all inputs, which have the output's size.
fn elementwise(count: usize, bytes: u64) -> Effects {
    let pair = |input| InPlace { input, output: 0, identity: false };
    let flow = arenaplan::graph::Flow { output: 0, pieces: bytes, follows: (0..count).collect() };
    Effects { in_place: (0..count).map(pair).collect(), flows: vec![flow], ..Effects::default() }
}

/// Any piece of the output, from all of the input.
fn anchor(bytes: u64) -> Effects {
    let flow = arenaplan::graph::Flow { output: 0, pieces: bytes, follows: Vec::new() };
    Effects { flows: vec![flow], loads: vec![0], ..Effects::default() }
}

/// Rows of the output from the same rows of input 0, and all of the others.
fn row_wise(rows: u64) -> Effects {
    let flow = arenaplan::graph::Flow { output: 0, pieces: rows, follows: vec![0] };
    Effects { flows: vec![flow], loads: vec![0], ..Effects::default() }
}

/// Rows of the output from the same rows of input 0, all of which it loads tile by tile.
fn product(rows: u64, count: usize) -> Effects {
    Effects { loads: (0..count).collect(), ..row_wise(rows) }
}

/// Channels of the output from the same channels of input 0.
fn channel_wise(channels: u64) -> Effects {
    let flow = arenaplan::graph::Flow { output: 0, pieces: channels, follows: vec![0] };
    Effects { flows: vec![flow], ..Effects::default() }
}

/// Any channel of the output, from all of the input.
fn shuffle(channels: u64) -> Effects {
    let flow = arenaplan::graph::Flow { output: 0, pieces: channels, follows: Vec::new() };
    Effects { flows: vec![flow], ..Effects::default() }
}

#[derive(Clone, Debug)]
struct Layer {
    kind: u8,
    inputs: Vec<prop::sample::Index>,
    large: bool,
    is_output: bool,
}

/// Random networks of convolutions, products, elementwise nodes, reductions, reshapes,
/// concatenations and slices, all sizes multiples of 8.
pub fn networks(layers: usize) -> impl Strategy<Value = Graph> {
    networks_with(layers, false)
}

/// The same, in which some elementwise nodes may run again.
fn networks_with(layers: usize, repeats: bool) -> impl Strategy<Value = Graph> {
    let layer = (
        0_u8..12,
        prop::collection::vec(any::<prop::sample::Index>(), 1..4),
        any::<bool>(),
        prop::bool::weighted(0.1),
    )
        .prop_map(|(kind, inputs, large, is_output)| Layer { kind, inputs, large, is_output });
    prop::collection::vec(layer, 1..layers).prop_map(move |layers| {
        let mut sketch = Sketch::new();
        sketch.value("x", ValueKind::Input, 64);
        sketch.value("w", ValueKind::Constant, 64);
        for (index, layer) in layers.iter().enumerate() {
            add(&mut sketch, index, layer, repeats);
        }
        sketch.builder.build().unwrap()
    })
}

fn add(sketch: &mut Sketch, index: usize, layer: &Layer, repeats: bool) {
    // Nearby values are likelier, as in networks.
    let known = &sketch.values;
    let near = known.len().saturating_sub(6);
    let mut inputs: Vec<_> =
        layer.inputs.iter().map(|choice| *choice.get(&known[near..])).collect();
    let (_, first) = inputs[0];
    let (bytes, effects) = match layer.kind {
        0..=2 => {
            inputs.retain(|&(_, bytes)| bytes == first);
            let repeats = repeats && layer.kind == 2;
            (first, Effects { repeats, ..elementwise(inputs.len(), first) })
        }
        3 => {
            let bytes = if layer.large { 128 } else { 64 };
            (bytes, anchor(bytes))
        }
        4 => (if layer.large { 128 } else { 64 }, row_wise(8)),
        5 => (8, row_wise(8)),
        6 => {
            let view = View { input: 0, output: 0, offset: 0, whole: Whole::Input };
            inputs.truncate(1);
            (first, Effects { views: vec![view], ..Effects::default() })
        }
        7 => {
            let mut offset = 0;
            let piece = |(input, &(_, bytes)): (usize, &(_, u64))| {
                offset += bytes;
                View { input, output: 0, offset: offset - bytes, whole: Whole::Output }
            };
            let views = inputs.iter().enumerate().map(piece).collect();
            (offset, Effects { views, ..Effects::default() })
        }
        8 => (if layer.large { 128 } else { 64 }, channel_wise(4)),
        9 => (if layer.large { 128 } else { 64 }, shuffle(8)),
        10 => {
            // A value times itself.
            inputs = vec![inputs[0]; 2];
            (if layer.large { 128 } else { 64 }, product(8, 2))
        }
        _ => {
            let view = View { input: 0, output: 0, offset: 0, whole: Whole::Input };
            (8, Effects { views: vec![view], ..Effects::default() })
        }
    };
    // In rows of two elements, channels are more than rows.
    let shape: &[u64] = if layer.large { &[bytes / 2, 2] } else { &[bytes] };
    let output = sketch.array(&format!("v{index}"), ValueKind::Activation, shape);
    if layer.is_output {
        sketch.builder.add_output(output);
    }
    let reads = inputs.iter().map(|&(value, _)| value);
    let node = Node::new(format!("n{index}"), "Op").reads(reads).writes([output]);
    sketch.builder.add_node(node.with_effects(effects));
}

pub fn fusions() -> impl Strategy<Value = Fusion> {
    any::<[bool; 6]>().prop_map(
        |[elementwise, anchors, prologue, attention, perceptrons, channels]| Fusion {
            elementwise,
            anchors,
            prologue,
            attention,
            perceptrons,
            channels,
        },
    )
}

/// Returns the bytes live at once in an order, by the rules of the planner.
fn load(graph: &Graph, order: &[NodeId], options: LivenessOptions) -> u64 {
    let liveness = Liveness::new(graph, order, options, &[], Vec::new()).unwrap();
    max_load(&liveness.problem, SpaceId::new(0)).unwrap().0
}

/// Calls `visit` with every topological order.
pub fn each_order(graph: &Graph, order: &mut Vec<NodeId>, visit: &mut impl FnMut(&[NodeId])) {
    if order.len() == graph.nodes().len() {
        visit(order);
        return;
    }
    for index in 0..graph.nodes().len() {
        let id = NodeId::new(index);
        let ready =
            !order.contains(&id) && graph.dependencies(id).all(|node| order.contains(&node));
        if ready {
            order.push(id);
            each_order(graph, order, visit);
            order.pop();
        }
    }
}

proptest! {
    /// Whatever is fused can be grouped, and the plan passes the checker, which works out by
    /// itself whether nodes can run as one.
    #[test]
    fn groups_are_legal(graph in networks(14), fusion in fusions()) {
        let groups = fuse(&graph, fusion);
        let mut steps: Vec<Vec<NodeId>> = Vec::new();
        for &id in graph.order() {
            match groups.iter().find(|group| group.contains(&id)) {
                Some(group) if group.last() == Some(&id) => steps.push(group.clone()),
                Some(_) => {}
                None => steps.push(vec![id]),
            }
        }
        let plan = ideal_planner().alignment(1).plan_steps(&graph, &steps).unwrap();
        prop_assert_eq!(plan.steps().len(), steps.len());
    }

    /// Any grouping that the graph accepts, the checker accepts; what one refuses as a group,
    /// so does the other.
    #[test]
    fn the_graph_and_the_checker_agree_on_groups(
        graph in networks(8),
        start in any::<prop::sample::Index>(),
        members in prop::collection::vec(any::<bool>(), 8),
    ) {
        let last = start.index(graph.nodes().len());
        let mut group: Vec<NodeId> =
            (0..last).filter(|&index| members[index]).map(NodeId::new).collect();
        group.push(NodeId::new(last));
        let mut steps: Vec<Vec<NodeId>> =
            (0..graph.nodes().len()).map(NodeId::new).filter(|id| !group.contains(id)).map(|id| vec![id]).collect();
        let at = steps.iter().take_while(|step| step[0] < NodeId::new(last)).count();
        steps.insert(at, group.clone());
        if let Ok(plan) = ideal_planner().alignment(1).plan_steps(&graph, &steps) {
            prop_assert!(group.len() == 1 || !plan.step_of(NodeId::new(last)).unwrap().fused.is_empty());
        } else {
            // The same steps in a plan of single nodes must not pass either.
            let plan = ideal_planner().optimize(Techniques::NONE).alignment(1).plan(&graph).unwrap();
            let ids: Vec<u32> = group.iter().map(|&id| u32::from(id)).collect();
            let forged = forge(&plan, |json| {
                let rows = json["steps"].as_array_mut().unwrap();
                rows.retain(|row| !ids[..ids.len() - 1].iter().any(|&id| row["node"] == id));
                for row in rows {
                    if row["node"] == u32::from(NodeId::new(last)) && ids.len() > 1 {
                        row["fused"] = ids[..ids.len() - 1].to_vec().into();
                    }
                }
            });
            prop_assert!(forged.is_err() || forged.unwrap().check(&graph).is_err());
        }
    }

    /// Views, taking over and pieces never cost bytes; nor do groups and orders, for the given
    /// steps are always tried.
    #[test]
    fn techniques_never_cost_bytes(graph in any::<bool>().prop_flat_map(|repeats| networks_with(12, repeats))) {
        let bytes = |techniques: Techniques| {
            let plan = ideal_planner().alignment(1).optimize(techniques).plan(&graph).unwrap();
            assert!(plan.search().unwrap().floor <= plan.lower_bound());
            plan.arena_bytes()
        };
        let views = Techniques::NONE.with(Technique::Views);
        let levels = [Techniques::NONE, views, Techniques::BASIC, Techniques::BASIC.with(Technique::Elision)];
        let levels = levels.map(bytes);
        prop_assert!(levels.is_sorted_by(|before, after| after <= before), "{:?}", levels);
        let fused = Techniques::ALL.without(Technique::Order).without(Technique::Streaming);
        for techniques in [fused, Techniques::ALL.without(Technique::Streaming), Techniques::ALL] {
            prop_assert!(bytes(techniques) <= levels[3], "{}", techniques);
        }
    }

    /// Where an order is said to be the best, brute force over all orders finds none better.
    #[test]
    fn no_order_beats_a_complete_search(graph in networks(8), in_place in any::<bool>()) {
        let mut options = LivenessOptions::default();
        options.alignment = arenaplan::base::Alignment::BYTE;
        options.in_place = in_place;
        options.elision = false;
        let limits = OrderLimits { states: 100_000, width: 0, work: usize::MAX };
        let found = find_order(&graph, options, limits, &|| false).unwrap();
        prop_assert!(found.is_optimal && graph.is_topological(&found.order));
        let mut least = u64::MAX;
        each_order(&graph, &mut Vec::new(), &mut |order| {
            least = least.min(load(&graph, order, options));
        });
        prop_assert!(found.floor <= least);
        prop_assert_eq!(load(&graph, &found.order, options), least);
    }
}

#[test]
fn an_addend_that_the_anchor_reads_too_is_not_overwritten() {
    let mut sketch = Sketch::new();
    let x = sketch.input("x", 64);
    let a = sketch.effectful("a", &[x], 64, anchor(64));
    let b = sketch.effectful("b", &[a], 64, anchor(64));
    let sum = sketch.effectful("sum", &[b, a], 64, elementwise(2, 64));
    let graph = sketch.build(&[sum]);
    let steps = [vec![NodeId::new(0)], vec![NodeId::new(1), NodeId::new(2)]];
    let plan = ideal_planner().plan_steps(&graph, &steps).unwrap();
    assert_eq!(plan.arena_bytes(), 128); // a and the sum; in place it would be 64
}

#[test]
fn what_a_product_reads_twice_is_made_before_it() {
    let mut sketch = Sketch::new();
    let x = sketch.input("x", 64);
    let a = sketch.effectful("a", &[x], 64, elementwise(1, 64));
    let y = sketch.effectful("y", &[a, a], 64, product(8, 2));
    let graph = sketch.build(&[y]);
    let prologue = Fusion { prologue: true, ..Fusion::default() };
    assert!(fuse(&graph, prologue).is_empty());
    assert_eq!(ideal_planner().plan(&graph).unwrap().steps().len(), 2);
}

#[test]
fn a_repeated_node_is_read_in_one_way_inside_of_a_group() {
    let mut sketch = Sketch::new();
    let x = sketch.input("x", 64);
    let repeated = Effects { repeats: true, ..elementwise(1, 64) };
    let a = sketch.effectful("a", &[x], 64, repeated.clone());
    // The product loads `b`, and so `a`, at any time; the sum needs the piece of `a` that is made.
    let b = sketch.effectful("b", &[a], 64, repeated);
    let product = sketch.effectful("product", &[b], 64, anchor(64));
    let sum = sketch.effectful("sum", &[product, a], 64, elementwise(2, 64));
    let graph = sketch.build(&[sum]);
    assert!(ideal_planner().plan(&graph).is_ok());
}

#[test]
fn of_two_anchors_one_is_fused() {
    let mut sketch = Sketch::new();
    let x = sketch.input("x", 64);
    let a = sketch.effectful("a", &[x], 64, anchor(64));
    let b = sketch.effectful("b", &[x], 64, anchor(64));
    let sum = sketch.effectful("sum", &[a, b], 64, elementwise(2, 64));
    let graph = sketch.build(&[sum]);
    let fusion = Fusion { elementwise: true, anchors: true, ..Fusion::default() };
    assert_eq!(fuse(&graph, fusion), [[1, 2].map(NodeId::new)]);
}

/// A convolution, an activation, and what works on each of 4 channels by itself.
fn pooled() -> (Sketch, arenaplan::ValueId) {
    let mut sketch = Sketch::new();
    let x = sketch.array("x", ValueKind::Input, &[4, 2, 8]);
    let mut node = |name: &str, input, shape: &[u64], effects| {
        let output = sketch.array(name, ValueKind::Activation, shape);
        let node = Node::new(name, "Op").reads([input]).writes([output]);
        sketch.builder.add_node(node.with_effects(effects));
        output
    };
    let a = node("conv", x, &[4, 8, 8], anchor(256));
    let b = node("relu", a, &[4, 8, 8], elementwise(1, 256));
    let c = node("pool", b, &[4, 2, 4], channel_wise(4));
    (sketch, c)
}

#[test]
fn by_channels_an_anchor_passes_on_what_never_exists_as_a_whole() {
    let (mut sketch, pool) = pooled();
    let out = sketch.node("out", &[pool], 8);
    let graph = sketch.build(&[out]);
    let simple = Fusion { elementwise: true, anchors: true, ..Fusion::default() };
    assert_eq!(fuse(&graph, simple), [[0, 1].map(NodeId::new)]);
    let channels = Fusion { channels: true, ..simple };
    assert_eq!(fuse(&graph, channels), [[0, 1, 2].map(NodeId::new)]);
    let bytes = |techniques: &str| {
        let techniques = techniques.parse().unwrap();
        ideal_planner().alignment(1).optimize(techniques).plan(&graph).unwrap().arena_bytes()
    };
    assert_eq!((bytes("views,in-place,fusion"), bytes("all")), (64 + 256, 64 + 32));
}

#[test]
fn what_a_channel_needs_all_of_stays_outside_of_its_group() {
    let (mut sketch, pool) = pooled();
    let gate = sketch.effectful("gate", &[pool], 32, anchor(32));
    let out = sketch.effectful("out", &[pool, gate], 32, elementwise(2, 32));
    let graph = sketch.build(&[out]);
    let fusion = Fusion { elementwise: true, anchors: true, channels: true, ..Fusion::default() };
    assert_eq!(
        fuse(&graph, fusion),
        [vec![0, 1, 2], vec![3, 4]]
            .map(|group| group.into_iter().map(NodeId::new).collect::<Vec<_>>())
    );
}

#[test]
fn a_shuffle_is_absorbed_by_channels_only() {
    let mut sketch = Sketch::new();
    let x = sketch.node("x", &[], 64);
    let a = sketch.effectful("a", &[x], 64, shuffle(8));
    let b = sketch.effectful("b", &[a], 64, elementwise(1, 64));
    let graph = sketch.build(&[b]);
    let simple = Fusion { elementwise: true, anchors: true, ..Fusion::default() };
    assert!(fuse(&graph, simple).is_empty());
    assert_eq!(fuse(&graph, Fusion { channels: true, ..simple }), [[1, 2].map(NodeId::new)]);
}

#[test]
fn groups_that_stream_without_need_are_taken_apart() {
    let (mut sketch, pool) = pooled();
    let small = sketch.effectful("small", &[pool], 32, anchor(32));
    let next = sketch.effectful("next", &[small], 32, elementwise(1, 32));
    let last = sketch.effectful("last", &[next], 8, channel_wise(4));
    let out = sketch.node("out", &[last], 8);
    let graph = sketch.build(&[out]);
    let fusion = Fusion { elementwise: true, anchors: true, channels: true, ..Fusion::default() };
    assert_eq!(fuse(&graph, fusion).len(), 2);
    let plan = ideal_planner().alignment(1).plan(&graph).unwrap();
    let fused: Vec<usize> = plan.steps().iter().map(|step| step.fused.len()).collect();
    assert_eq!((fused, plan.arena_bytes()), (vec![2, 0, 1, 0], 96));
}

#[test]
fn steps_that_cannot_be_are_refused() {
    let mut sketch = Sketch::new();
    let x = sketch.input("x", 64);
    let a = sketch.effectful("a", &[x], 64, elementwise(1, 64));
    let b = sketch.effectful("b", &[a], 64, elementwise(1, 64));
    let graph = sketch.build(&[a, b]);
    let [first, second] = [0, 1].map(NodeId::new);
    let kind =
        |steps: &[Vec<NodeId>]| ideal_planner().plan_steps(&graph, steps).unwrap_err().kind();
    assert_eq!(kind(&[vec![first, second]]), "InvalidGroup"); // a leaves
    assert_eq!(kind(&[vec![first]]), "InvalidOption");
    assert_eq!(kind(&[vec![second], vec![first]]), "InvalidOption");
    assert_eq!(kind(&[vec![first], vec![first, second]]), "InvalidGroup");
    assert_eq!(kind(&[vec![], vec![first], vec![second]]), "InvalidOption");
}

#[test]
fn groups_that_cannot_be_one_node_are_refused_by_name() {
    let repeats = |effects| Effects { repeats: true, ..effects };
    let ignores = Effects { ignores: vec![0], ..Effects::default() };
    let mut sketch = Sketch::new();
    let x = sketch.input("x", 64);
    let a = sketch.effectful("a", &[x], 64, elementwise(1, 64));
    let b = sketch.effectful("b", &[a], 64, elementwise(1, 64));
    let c = sketch.effectful("c", &[x], 64, ignores);
    let d = sketch.effectful("d", &[c], 64, elementwise(1, 64));
    let again = sketch.effectful("again", &[d], 64, repeats(elementwise(1, 64)));
    let far = Node::new("far", "Op").reads([x]).writes([sketch.value("far", ACTIVATION, 64)]);
    sketch.builder.add_node(far.after([NodeId::new(0)]));
    let end = sketch.value("end", ACTIVATION, 64);
    let last = Node::new("end", "Op").reads([b]).writes([end]).after([NodeId::new(5)]);
    sketch.builder.add_node(last.with_effects(elementwise(1, 64)));
    let graph = sketch.build(&[end, again]);
    for (groups, says) in [
        (vec![vec![0, 0, 1]], "a node is there twice"),
        (vec![vec![1, 0]], "they are not in execution order"),
        (vec![vec![2, 3]], "one of them mutates or ignores an operand"),
        (vec![vec![3, 4], vec![2, 4]], "two groups end with this node"),
        (vec![vec![0, 1, 6]], "they wait for a node that waits for them"),
        (vec![vec![9]], "there is no such node"),
    ] {
        let ids = |group: Vec<usize>| group.into_iter().map(NodeId::new).collect();
        let groups: Vec<Vec<NodeId>> = groups.into_iter().map(ids).collect();
        let error = graph.grouped(&groups).unwrap_err().to_string();
        assert!(error.contains(says), "{says}: {error}");
    }
}

#[test]
fn pieces_wait_in_their_window() {
    // Two operands of a concatenation, the second made late: its span is free until then.
    let mut sketch = Sketch::new();
    let x = sketch.input("x", 64);
    let a = sketch.node("a", &[x], 64);
    let big = sketch.node("big", &[x], 64);
    let b = sketch.node("b", &[big], 64);
    let views = vec![
        View { input: 0, output: 0, offset: 0, whole: Whole::Output },
        View { input: 1, output: 0, offset: 64, whole: Whole::Output },
    ];
    let both = sketch.effectful("both", &[a, b], 128, Effects { views, ..Effects::default() });
    let out = sketch.node("out", &[both], 64);
    let graph = sketch.build(&[out]);
    let bytes = |techniques: &str| {
        ideal_planner().optimize(techniques.parse().unwrap()).plan(&graph).unwrap().arena_bytes()
    };
    assert_eq!((bytes("views,in-place"), bytes("views,in-place,elision")), (256, 192));
}

#[test]
fn what_somebody_asks_the_shape_of_stays_outside_of_groups() {
    let mut sketch = Sketch::new();
    let x = sketch.input("x", 64);
    let a = sketch.effectful("a", &[x], 64, anchor(64));
    let b = sketch.effectful("b", &[a], 64, elementwise(1, 64));
    let shape =
        sketch.effectful("shape", &[a], 8, Effects { ignores: vec![0], ..Effects::default() });
    let graph = sketch.build(&[b, shape]);
    let fusion = Fusion { elementwise: true, anchors: true, ..Fusion::default() };
    assert!(fuse(&graph, fusion).is_empty());
    assert!(graph.grouped(&[[0, 1].map(NodeId::new).to_vec()]).is_err());
    ideal_planner().plan(&graph).unwrap();
}

#[test]
fn a_state_is_read_before_and_after_it_is_written_as_in_the_given_order() {
    // Reading the state last would need fewer bytes, and give other numbers.
    let mut sketch = Sketch::new();
    let state = sketch.value("state", ValueKind::State, 64);
    let old = sketch.node("old", &[state], 256);
    let wide = sketch.node("wide", &[state], 512);
    let narrow = sketch.node("narrow", &[wide], 64);
    let mutate = Effects { mutates: vec![0], ..Effects::default() };
    let done = sketch.effectful("write", &[state, narrow], 8, mutate);
    let out = sketch.node("out", &[old, done], 8);
    let graph = sketch.build(&[out]);
    let plan = ideal_planner().plan(&graph).unwrap();
    let order: Vec<NodeId> = plan.order().collect();
    let at = |node: usize| order.iter().position(|&id| id == NodeId::new(node)).unwrap();
    assert!(at(0) < at(3) && at(1) < at(3));
    assert!(at(1) < at(0), "reading it later is better, as long as it is early enough");
    let late = [1, 2, 3, 0, 4].map(|node| vec![NodeId::new(node)]);
    let error = ideal_planner().plan_steps(&graph, &late).unwrap_err();
    assert_eq!(error.kind(), "PlanMismatch");
}
