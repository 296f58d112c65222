//! What a builder accepts and refuses; rows B of the list of bad inputs.

use arenaplan::base::Alignment;
use arenaplan::graph::{Flow, InPlace, Overlap, View, Whole};
use arenaplan::pack::Space;
use arenaplan::{DType, Effects, Error, Graph, Node, NodeId, Result, Value, ValueId, ValueKind};

use crate::graphs::{Sketch, in_place};
use crate::planners::ideal_planner;

fn value(name: &str, kind: ValueKind) -> Value {
    Value::new(name, kind, DType::FLOAT32, [4]).unwrap()
}

/// Builds a graph of activations `0..count` and the given nodes.
fn build(count: usize, nodes: impl IntoIterator<Item = Node>) -> Result<Graph> {
    let mut builder = Graph::builder("g");
    for index in 0..count {
        builder.add_value(value(&format!("v{index}"), ValueKind::Activation));
    }
    nodes.into_iter().for_each(|node| {
        builder.add_node(node);
    });
    builder.build()
}

fn id(index: usize) -> ValueId {
    ValueId::new(index)
}

#[test]
fn a01_a02_a03_sizes_past_any_machine_are_refused() {
    for shape in [[1 << 40, 1 << 40], [1 << 62, 1], [1 << 61, 1], [u64::MAX, u64::MAX]] {
        let refused = Value::new("big", ValueKind::Input, DType::FLOAT32, shape);
        assert!(matches!(refused, Err(Error::SizeOverflow { .. })), "{shape:?}");
    }
}

#[test]
fn a04_a10_a11_empty_arrays_and_scalars_have_sizes() {
    let bytes =
        |shape: &[u64]| Value::new("v", ValueKind::Input, DType::FLOAT32, shape).unwrap().bytes();
    assert_eq!(bytes(&[0, 1 << 63, 1 << 63]), 0);
    assert_eq!(bytes(&[3, 0]), 0);
    assert_eq!(bytes(&[]), 4);
}

#[test]
fn a15_alignments_must_be_powers_of_two() {
    for bytes in [0, 3, 48, 1 << 63, u64::MAX] {
        assert_eq!(Alignment::new(bytes).unwrap_err().kind(), "InvalidAlignment", "{bytes}");
    }
}

#[test]
fn a18_elements_below_a_byte_are_packed() {
    assert_eq!(DType::INT4.array_bytes(&[7]), Some(4));
    assert_eq!(DType::INT2.array_bytes(&[9]), Some(3));
}

#[test]
fn b01_a_cycle_is_named() {
    let nodes = [
        Node::new("a", "Op").reads([id(1)]).writes([id(0)]),
        Node::new("b", "Op").reads([id(0)]).writes([id(1)]),
    ];
    let Err(Error::GraphCycle { mut nodes }) = build(2, nodes) else { panic!("a cycle") };
    nodes.sort();
    assert_eq!(nodes, ["'a'", "'b'"]);
}

#[test]
fn b01_a_long_cycle_is_listed_in_part() {
    let count = 100_000;
    let nodes = (0..count).map(|index| {
        Node::new(format!("n{index}"), "Op").reads([id((index + 1) % count)]).writes([id(index)])
    });
    let Err(Error::GraphCycle { nodes }) = build(count, nodes) else { panic!("a cycle") };
    assert_eq!(nodes.len(), 11);
}

#[test]
fn b02_a_node_that_reads_its_own_output_is_a_cycle() {
    let node = Node::new("a", "Op").reads([id(0)]).writes([id(0)]);
    assert_eq!(build(1, [node]), Err(Error::GraphCycle { nodes: vec!["'a'".into()] }));
}

#[test]
fn control_dependencies_can_close_a_cycle() {
    let nodes = [
        Node::new("a", "Op").writes([id(0)]).after([NodeId::new(1)]),
        Node::new("b", "Op").reads([id(0)]).writes([id(1)]),
    ];
    assert!(matches!(build(2, nodes), Err(Error::GraphCycle { .. })));
}

#[test]
fn b03_unsorted_nodes_are_sorted_stably() {
    let nodes = [
        Node::new("last", "Op").reads([id(0), id(1)]).writes([id(2)]),
        Node::new("second", "Op").writes([id(1)]),
        Node::new("third", "Op").writes([id(0)]),
    ];
    let graph = build(3, nodes).unwrap();
    assert!(graph.was_sorted());
    assert_eq!(graph.order(), [1, 2, 0].map(NodeId::new));
}

#[test]
fn b04_b05_b06_a_value_has_one_producer() {
    let twice = [Node::new("a", "Op").writes([id(0)]), Node::new("b", "Op").writes([id(0)])];
    let same_node = [Node::new("a", "Op").writes([id(0), id(0)])];
    for nodes in [twice.to_vec(), same_node.to_vec()] {
        assert_eq!(build(1, nodes).unwrap_err().kind(), "DuplicateProducer");
    }
    for kind in [ValueKind::Input, ValueKind::Constant, ValueKind::State] {
        let mut builder = Graph::builder("g");
        let x = builder.add_value(value("x", kind));
        builder.add_node(Node::new("a", "Op").writes([x]));
        assert_eq!(builder.build().unwrap_err().kind(), "DuplicateProducer", "{kind:?}");
    }
}

#[test]
fn b07_names_are_unique() {
    let mut builder = Graph::builder("g");
    builder.add_value(value("x", ValueKind::Input));
    builder.add_value(value("x", ValueKind::Constant));
    assert_eq!(builder.build().unwrap_err().kind(), "DuplicateName");
    let mut builder = Graph::builder("g");
    for name in ["slow", "slow"] {
        builder.add_space(Space::new(name));
    }
    assert_eq!(builder.build().unwrap_err().kind(), "DuplicateName");
}

#[test]
fn b08_b09_everything_read_is_produced() {
    let dangling = build(2, [Node::new("a", "Op").reads([id(0)]).writes([id(1)])]);
    let missing = build(1, [Node::new("a", "Op").reads([id(7)]).writes([id(0)])]);
    let after = Node::new("a", "Op").writes([id(0)]).after([NodeId::new(1)]);
    for refused in [dangling, missing, build(1, [after])] {
        assert_eq!(refused.unwrap_err().kind(), "UndefinedValue");
    }
    let mut builder = Graph::builder("g");
    let never = builder.add_value(value("never", ValueKind::Activation));
    builder.add_output(never);
    assert_eq!(builder.build().unwrap_err().kind(), "UndefinedValue");
}

#[test]
fn b10_an_output_may_be_an_input() {
    let mut sketch = Sketch::new();
    let x = sketch.input("x", 100);
    let plan = ideal_planner().plan(&sketch.build(&[x, x])).unwrap();
    assert_eq!(plan.arena_bytes(), 128);
}

#[test]
fn b11_an_unread_value_lives_one_step() {
    let mut sketch = Sketch::new();
    let x = sketch.input("x", 64);
    sketch.node("unread", &[x], 640);
    let y = sketch.node("y", &[x], 64);
    let graph = sketch.build(&[y]);
    let plan = ideal_planner().plan(&graph).unwrap();
    assert_eq!(plan.placement(id(1)).unwrap().live, [0, 1]);
    assert_eq!(plan.arena_bytes(), 704);
}

#[test]
fn b12_values_have_names_and_operands_may_be_left_out() {
    let refused = Value::new("", ValueKind::Input, DType::INT8, [1]);
    assert_eq!(refused.unwrap_err().kind(), "InvalidName");
    let node = Node::new("a", "Op").reads([None]).writes([None, Some(id(0))]);
    assert!(build(1, [node]).is_ok());
}

#[test]
fn b15_b16_views_stay_inside() {
    let view = |offset, whole| Effects {
        views: vec![View { input: 0, output: 0, offset, whole }],
        ..Effects::default()
    };
    let build = |effects| {
        let mut sketch = Sketch::new();
        let x = sketch.input("x", 10);
        sketch.effectful("y", &[x], 6, effects);
        sketch.builder.build()
    };
    assert!(build(view(4, Whole::Input)).is_ok());
    for effects in [view(5, Whole::Input), view(u64::MAX, Whole::Input), view(0, Whole::Output)] {
        assert_eq!(build(effects).unwrap_err().kind(), "AliasOutOfBounds");
    }
}

#[test]
fn effects_name_operands_that_are_there() {
    let view = |input, output| View { input, output, offset: 0, whole: Whole::Input };
    let views = |views: &[View]| Effects { views: views.to_vec(), ..Effects::default() };
    let over = |input, output| Effects {
        overlaps: vec![Overlap { input, output, distance: 0 }],
        ..Effects::default()
    };
    let flow = || Flow { output: 0, pieces: 1, follows: vec![] };
    let cases = [
        Effects { ignores: vec![1], ..Effects::default() },
        Effects { mutates: vec![1], ..Effects::default() },
        Effects { mutates: vec![0], ..Effects::default() }, // no state
        over(1, 0),
        over(0, 1),
        views(&[view(1, 0)]),
        views(&[view(0, 1)]),
        views(&[view(0, 0), view(0, 0)]),
        Effects { ignores: vec![0], ..views(&[view(0, 0)]) },
        Effects { flows: vec![flow(), flow()], ..Effects::default() },
        in_place(1),
        Effects {
            in_place: vec![InPlace { input: 0, output: 1, identity: false }],
            ..Effects::default()
        },
        Effects {
            workspaces: vec![arenaplan::graph::Workspace {
                choices: vec![],
                alignment: Alignment::BYTE,
            }],
            ..Effects::default()
        },
    ];
    for effects in cases {
        let mut sketch = Sketch::new();
        let x = sketch.input("x", 10);
        sketch.effectful("y", &[x], 10, effects.clone());
        assert_eq!(sketch.builder.build().unwrap_err().kind(), "InvalidEffect", "{effects:?}");
    }
}

#[test]
fn an_output_that_is_larger_than_its_input_is_not_in_place_of_it() {
    let build = |bytes| {
        let mut sketch = Sketch::new();
        let x = sketch.input("x", 10);
        sketch.effectful("y", &[x], bytes, in_place(0));
        sketch.builder.build()
    };
    let kept = |bytes| build(bytes).unwrap().nodes()[0].effects().in_place.len();
    assert_eq!([9, 10, 11].map(kept), [1, 1, 0]);
}

#[test]
fn b25_a_chain_of_a_million_nodes_builds_and_plans() {
    let count = 1_000_000;
    let mut builder = Graph::builder("chain");
    let mut last =
        builder.add_value(Value::new("x", ValueKind::Input, DType::UINT8, [64]).unwrap());
    for index in 0..count {
        let name = format!("v{index}");
        let next = builder
            .add_value(Value::new(&*name, ValueKind::Activation, DType::UINT8, [64]).unwrap());
        builder.add_node(Node::new(name, "Op").reads([last]).writes([next]));
        last = next;
    }
    builder.add_output(last);
    let plan = ideal_planner().plan(&builder.build().unwrap()).unwrap();
    assert_eq!(plan.arena_bytes(), 128);
}

#[test]
fn b26_b27_many_values_alive_at_once_stay_linear() {
    let mut sketch = Sketch::new();
    let all: Vec<_> = (0..100_000).map(|index| sketch.input(&format!("x{index}"), 1)).collect();
    let y = sketch.node("y", &all, 64);
    let plan = ideal_planner().plan(&sketch.build(&[y])).unwrap();
    assert_eq!(plan.arena_bytes(), 100_001 * 64);
}

#[test]
fn b28_an_empty_graph_needs_nothing() {
    let plan = ideal_planner().plan(&Graph::builder("empty").build().unwrap()).unwrap();
    assert_eq!((plan.arena_bytes(), plan.lower_bound()), (0, 0));
    assert!(plan.commit().unwrap().bytes(arenaplan::SpaceId::new(0)).unwrap().is_empty());
}

#[test]
fn the_digest_depends_on_names_sizes_effects_and_order_but_not_on_workspaces() {
    let build = |name: &str, bytes, effects: Effects| {
        let mut sketch = Sketch::new();
        let x = sketch.input("x", bytes);
        let y = sketch.effectful(name, &[x], bytes, effects);
        sketch.build(&[y])
    };
    let base = build("y", 8, Effects::default());
    assert_eq!(base.digest(), build("y", 8, Effects::default()).digest());
    for other in [
        build("z", 8, Effects::default()),
        build("y", 9, Effects::default()),
        build("y", 8, in_place(0)),
    ] {
        assert_ne!(base.digest(), other.digest());
    }
    let workspace = arenaplan::graph::Workspace {
        choices: vec![arenaplan::graph::Choice { bytes: 10, cost: 1.0 }],
        alignment: Alignment::BYTE,
    };
    let larger = base.with_workspaces([(NodeId::new(0), vec![workspace])]).unwrap();
    assert_eq!(base.digest(), larger.digest());
}

#[test]
fn values_that_are_pinned_later_stay_where_they_are_said_to_be() {
    let build = || {
        let mut builder = Graph::builder("g");
        let x = builder.add_value(value("x", ValueKind::Input));
        let y = builder.add_value(value("y", ValueKind::Activation));
        builder.add_node(Node::new("n", "Op").reads([x]).writes([y]));
        builder.add_output(y);
        (builder.build().unwrap(), x, y)
    };
    let (graph, x, y) = build();
    let pinned = graph.with_pins([(x, 128)]).unwrap();
    assert_ne!(graph.digest(), pinned.digest());
    let plan = ideal_planner().plan(&pinned).unwrap();
    assert_eq!(plan.placement(x).unwrap().offset, 128);
    assert!(plan.placement(y).unwrap().offset < 128);
    // Both are live at the node.
    let both = graph.with_pins([(x, 128), (y, 128)]).unwrap();
    assert!(matches!(ideal_planner().plan(&both), Err(Error::PinConflict { .. })));
    assert!(matches!(
        graph.with_pins([(id(9), 0)]),
        Err(Error::InvalidOption { option: "pins", .. })
    ));
}

/// The pin of a value without bytes has no effect, beside others or alone.
#[test]
fn a_pin_of_no_bytes_makes_no_arena_larger() {
    let empty = || {
        let value = Value::new("empty", ValueKind::Input, DType::FLOAT32, [0]).unwrap();
        value.with_pin(256)
    };
    let mut alone = Graph::builder("alone");
    let x = alone.add_value(empty());
    alone.add_output(x);
    let plan = ideal_planner().plan(&alone.build().unwrap()).unwrap();
    assert_eq!((plan.arena_bytes(), plan.lower_bound()), (0, 0));

    let mut builder = Graph::builder("beside");
    let x = builder.add_value(empty());
    let y = builder.add_value(value("y", ValueKind::Activation).with_pin(64));
    builder.add_node(Node::new("n", "Op").reads([x]).writes([y]));
    builder.add_output(y);
    let graph = builder.build().unwrap();
    let plan = ideal_planner().plan(&graph).unwrap();
    assert_eq!(plan.placement(y).unwrap().offset, 64);
    assert_eq!(plan.arena_bytes(), 128);
}
