//! Values that replace an input or a state at its address.

use arenaplan::graph::InPlace;
use arenaplan::pack::Space;
use arenaplan::plan::{InputMemory, OutputMemory};
use arenaplan::{DType, Effects, Error, Graph, Node, Plan, Techniques, Value, ValueId, ValueKind};
use serde_json::json;

use crate::check::forge;
use crate::graphs::{Sketch, in_place, reshape};
use crate::planners::ideal_planner;

const BYTES: u64 = 4096;

/// The node that makes the new content of `p` from `p`, `g` and what nodes between make of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Update {
    /// `p - g`
    Direct,
    /// `f(p) - g`, where `f` writes in place.
    Chain,
    /// `p - g`, and another node reads `p`.
    Shared,
    /// `p - g`, and another node reads a view of `p`.
    Viewed,
    /// `f(g)`
    Unread,
}

struct Case {
    graph: Graph,
    p: ValueId,
    new: ValueId,
}

fn case(kind: ValueKind, update: Update) -> Case {
    let mut sketch = Sketch::new();
    let p = sketch.value("p", kind, BYTES);
    let g = sketch.input("g", BYTES);
    let either = || Effects {
        in_place: [0, 1].map(|input| InPlace { input, output: 0, identity: false }).to_vec(),
        ..Effects::default()
    };
    let read = match update {
        Update::Direct | Update::Shared | Update::Viewed => vec![p, g],
        Update::Chain => vec![sketch.effectful("half", &[p], BYTES, in_place(0)), g],
        Update::Unread => vec![g],
    };
    let effects = if read.len() == 2 { either() } else { in_place(0) };
    let new = sketch.effectful("new", &read, BYTES, effects);
    if update == Update::Shared {
        let other = sketch.node("other", &[p], 64);
        sketch.builder.add_output(other);
    }
    if update == Update::Viewed {
        let view = sketch.effectful("view", &[p], BYTES, reshape());
        let other = sketch.node("other", &[view], 64);
        sketch.builder.add_output(other);
    }
    sketch.builder.add_output(new);
    sketch.builder.add_write_back(new, p);
    Case { graph: sketch.builder.build().unwrap(), p, new }
}

const UPDATES: [Update; 5] =
    [Update::Direct, Update::Chain, Update::Shared, Update::Viewed, Update::Unread];

fn offset(plan: &Plan, value: ValueId) -> (u32, u64) {
    plan.placement(value).map(|place| (place.space, place.offset)).unwrap()
}

#[test]
fn the_new_content_is_at_the_address_of_the_previous_one() {
    for kind in [ValueKind::Input, ValueKind::State] {
        for update in UPDATES {
            let Case { graph, p, new } = case(kind, update);
            for techniques in [Techniques::ALL, Techniques::NONE] {
                let plan = ideal_planner().optimize(techniques).plan(&graph).unwrap();
                assert_eq!(offset(&plan, new), offset(&plan, p), "{kind:?} {update:?}");
                plan.check_hazards(&graph, &plan.hazards(&graph).unwrap()).unwrap();
                let small = if update == Update::Shared { 64 } else { 0 };
                if techniques == Techniques::ALL && update != Update::Viewed {
                    assert_eq!(plan.arena_bytes(), 2 * BYTES + small, "{kind:?} {update:?}");
                }
            }
        }
    }
}

#[test]
fn the_memory_of_the_caller_holds_both() {
    for update in UPDATES {
        let Case { graph, p, new } = case(ValueKind::Input, update);
        for outputs in [OutputMemory::Inside, OutputMemory::Caller] {
            let planner = ideal_planner().inputs(InputMemory::Caller).outputs(outputs);
            let plan = planner.plan(&graph).unwrap();
            assert_eq!(offset(&plan, new), offset(&plan, p), "{update:?}");
            let small = update == Update::Shared || update == Update::Viewed;
            let inside = if small && outputs == OutputMemory::Inside { 64 } else { 0 };
            assert_eq!(plan.arena_bytes(), inside, "{update:?} {outputs:?}");
        }
    }
}

#[test]
fn readers_of_the_previous_content_come_first_also_in_a_file() {
    let Case { graph, new, .. } = case(ValueKind::State, Update::Shared);
    let update = graph.producer(new).unwrap();
    let reader = graph.nodes().iter().position(|node| node.name() == "other").unwrap();
    let order: Vec<usize> = graph.order().iter().map(|node| node.index()).collect();
    let at = |node: usize| order.iter().position(|&it| it == node).unwrap();
    assert!(at(reader) < at(update.index()));
    assert_eq!(graph.node(update).control_dependencies().len(), 1);
    let again = Graph::from_json(graph.to_json().as_bytes()).unwrap();
    assert_eq!(again, graph);
    assert_eq!(again.digest(), graph.digest());
}

#[test]
fn a_reader_of_a_view_that_needs_the_new_content_gets_a_copy() {
    let mut sketch = Sketch::new();
    let p = sketch.value("p", ValueKind::State, BYTES);
    let view = sketch.effectful("view", &[p], BYTES, reshape());
    let new = sketch.effectful("new", &[p], BYTES, in_place(0));
    let change = sketch.node("change", &[view, new], 64);
    sketch.builder.add_output(change);
    sketch.builder.add_write_back(new, p);
    let graph = sketch.builder.build().unwrap();
    let plan = ideal_planner().plan(&graph).unwrap();
    assert_eq!(offset(&plan, new), offset(&plan, p));
    assert_ne!(offset(&plan, view), offset(&plan, p));
}

#[test]
fn a_pin_of_either_is_the_place_of_both() {
    for (kind, update) in [ValueKind::Input, ValueKind::State]
        .into_iter()
        .flat_map(|kind| UPDATES.map(|update| (kind, update)))
    {
        let Case { graph, p, new } = case(kind, update);
        let planned = |pins: &[(ValueId, u64)]| {
            ideal_planner().plan(&graph.with_pins(pins.iter().copied()).unwrap())
        };
        for pins in [&[(p, 8192)][..], &[(new, 8192)], &[(p, 8192), (new, 8192)]] {
            let plan = planned(pins).unwrap();
            assert_eq!((offset(&plan, p).1, offset(&plan, new).1), (8192, 8192), "{update:?}");
        }
        for pins in [&[(p, 0), (new, 8192)][..], &[(new, 8191)]] {
            let refused = planned(pins).unwrap_err();
            assert_eq!(refused.kind(), "PinConflict", "{update:?}: {refused}");
        }
    }
}

#[test]
fn values_that_cannot_be_at_the_address_are_refused() {
    let refused = |make: &dyn Fn(&mut Sketch, ValueId, ValueId)| {
        let mut sketch = Sketch::new();
        let p = sketch.value("p", ValueKind::State, BYTES);
        let new = sketch.effectful("new", &[p], BYTES, in_place(0));
        make(&mut sketch, p, new);
        sketch.builder.build().unwrap_err().to_string()
    };
    let reason = refused(&|sketch, p, new| {
        let change = sketch.node("change", &[p, new], 64);
        sketch.builder.add_output(change);
        sketch.builder.add_write_back(new, p);
    });
    assert_eq!(
        reason,
        "value 'new' cannot replace 'p' at its address: node 'change' reads the previous content, \
         and needs the value"
    );
    let cases: [(&str, &dyn Fn(&mut Sketch, ValueId, ValueId)); 9] = [
        ("no node makes the value", &|sketch, p, _| sketch.builder.add_write_back(p, p)),
        ("only inputs and states", &|sketch, _, new| sketch.builder.add_write_back(new, new)),
        ("different sizes", &|sketch, p, _| {
            let small = sketch.node("small", &[p], 64);
            sketch.builder.add_write_back(small, p);
        }),
        ("different spaces", &|sketch, p, _| {
            let slow = sketch.builder.add_space(Space::new("slow"));
            let value = Value::new("far", ValueKind::Activation, DType::UINT8, [BYTES]).unwrap();
            let far = sketch.builder.add_value(value.with_space(slow));
            sketch.builder.add_node(Node::new("far", "Op").reads([p]).writes([far]).in_place(0, 0));
            sketch.builder.add_write_back(far, p);
        }),
        ("cannot write in place", &|sketch, p, _| {
            let other = sketch.node("other", &[p], BYTES);
            sketch.builder.add_write_back(other, p);
        }),
        ("changes the previous content", &|sketch, p, _| {
            let effects = Effects { mutates: vec![0], ..in_place(0) };
            let other = sketch.effectful("other", &[p], BYTES, effects);
            sketch.builder.add_write_back(other, p);
        }),
        ("another value replaces it", &|sketch, p, new| {
            let other = sketch.effectful("other", &[new], BYTES, in_place(0));
            sketch.builder.add_write_back(new, p);
            sketch.builder.add_write_back(other, p);
        }),
        ("replaces another one", &|sketch, p, new| {
            let q = sketch.value("q", ValueKind::State, BYTES);
            sketch.builder.add_write_back(new, p);
            sketch.builder.add_write_back(new, q);
        }),
        ("nothing produces", &|sketch, _, new| {
            sketch.builder.add_write_back(new, ValueId::new(99));
        }),
    ];
    for (expected, make) in cases {
        let reason = refused(make);
        assert!(reason.contains(expected), "{reason:?} does not say {expected:?}");
    }
}

#[test]
fn a_pure_node_mutates_nothing() {
    let mut sketch = Sketch::new();
    let p = sketch.value("p", ValueKind::State, BYTES);
    let effects = Effects { mutates: vec![0], pure: true, ..Effects::default() };
    sketch.effectful("node", &[p], 64, effects);
    assert!(matches!(sketch.builder.build(), Err(Error::InvalidEffect { .. })));
}

#[test]
fn a_plan_with_the_new_content_elsewhere_is_refused() {
    for update in UPDATES {
        let Case { graph, p, new } = case(ValueKind::State, update);
        let plan = ideal_planner().plan(&graph).unwrap();
        let moved = forge(&plan, |plan| {
            let values = plan["values"].as_array_mut().unwrap();
            let value = values.iter_mut().find(|it| it["value"] == json!(u32::from(new)));
            value.unwrap()["offset"] = json!(16 * BYTES);
            plan["spaces"][0]["arena_bytes"] = json!(17 * BYTES);
            plan["spaces"][0]["lower_bound"] = json!(17 * BYTES);
            plan["arena_bytes"] = json!(17 * BYTES);
            plan["lower_bound"] = json!(17 * BYTES);
        });
        assert!(moved.and_then(|plan| plan.check(&graph)).is_err(), "{update:?}");
        let kept = forge(&plan, |plan| {
            let values = plan["values"].as_array_mut().unwrap();
            let value = values.iter_mut().find(|it| it["value"] == json!(u32::from(p)));
            value.unwrap()["live"] = json!([0, graph.nodes().len()]);
        });
        let refused = kept.and_then(|plan| plan.check(&graph)).is_err();
        let ends_last =
            usize::try_from(plan.placement(p).unwrap().live[1]).unwrap() == graph.nodes().len();
        assert!(refused || ends_last, "{update:?}");
    }
}
