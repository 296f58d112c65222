//! Rules of `check/claims.rs`: figures, and what no plan can do.

use arenaplan::base::MAX_BYTES;
use arenaplan::check::Proof;
use arenaplan::graph::{Choice, Workspace};
use arenaplan::plan::{OrderSearch, WorkspacePolicy};
use arenaplan::{Effects, Graph, Plan, Technique, Techniques};
use serde_json::Value as Json;

use super::{accept, raw, refuse, value};
use crate::check::forge;
use crate::graphs::Sketch;
use crate::planners::ideal_planner;

type Case = (Graph, Plan);

/// x -> a -> y, of which a step needs 192 bytes.
fn chain() -> Graph {
    let mut sketch = Sketch::new();
    let x = sketch.input("x", 64);
    let a = sketch.node("a", &[x], 128);
    let y = sketch.node("y", &[a], 64);
    sketch.build(&[y])
}

fn plan() -> Case {
    let graph = chain();
    let plan = ideal_planner().plan(&graph).unwrap();
    (graph, plan)
}

fn limited(capacity: u64) -> Case {
    let graph = chain();
    let plan = ideal_planner().capacity(capacity).plan(&graph).unwrap();
    (graph, plan)
}

/// A valid plan that needs more than it must.
fn loose() -> Case {
    let moved = accept("a higher output", plan(), |json| value(json, "y")["offset"] = 256.into());
    (chain(), moved)
}

fn claim(bound: u64, status: &'static str) -> impl Fn(&mut Json) {
    move |json: &mut Json| {
        json["spaces"][0]["lower_bound"] = bound.into();
        json["spaces"][0]["status"] = status.into();
    }
}

#[test]
fn values_without_bytes_do_not_make_an_arena_larger() {
    let mut sketch = Sketch::new();
    let x = sketch.input("x", 64);
    let empty = sketch.node("empty", &[x], 0);
    let y = sketch.node("y", &[x, empty], 64);
    let graph = sketch.build(&[y]);
    let plan = ideal_planner().plan(&graph).unwrap();
    assert_eq!(plan.arena_bytes(), 128);
    let says = "has 192 bytes, and values end at 128";
    refuse(vec![raw("nothing at the end", (graph, plan), "PlanCorrupt", says, |json| {
        value(json, "empty")["offset"] = 192.into();
        json["spaces"][0]["arena_bytes"] = 192.into();
        claim(128, "feasible")(json);
    })]);
}

/// The end of a value is in a memory, and the end of its line is not.
#[test]
fn no_arena_is_larger_than_any_memory() {
    let mut sketch = Sketch::new();
    let x = sketch.input("x", 64);
    let y = sketch.node("y", &[x], 32);
    let graph = sketch.build(&[y]);
    let plan = ideal_planner().plan(&graph).unwrap();
    refuse(vec![raw("the last line", (graph, plan), "PlanCorrupt", "than any memory", |json| {
        value(json, "y")["offset"] = (MAX_BYTES - 63).into();
        json["spaces"][0]["arena_bytes"] = (MAX_BYTES + 1).into();
        claim(128, "feasible")(json);
    })]);
}

#[test]
fn figures_do_not_contradict_each_other() {
    const KIND: &str = "PlanCorrupt";
    let not = "space 'arena' is not";
    refuse(vec![
        raw("optimal is the bound", plan(), KIND, not, claim(128, "optimal")),
        raw("feasible is above the bound", plan(), KIND, not, claim(192, "feasible")),
        raw("infeasible is too large", plan(), KIND, not, claim(192, "infeasible")),
        raw("unknown is too large", plan(), KIND, not, claim(192, "unknown")),
        raw("a bound above the arena", loose(), KIND, not, claim(384, "feasible")),
        raw("infeasible is a bound", limited(128), KIND, not, claim(64, "infeasible")),
        raw("unknown is no bound", limited(128), KIND, not, claim(192, "unknown")),
        raw("optimal fits", limited(128), KIND, not, claim(192, "optimal")),
        raw("feasible fits", limited(128), KIND, not, claim(128, "feasible")),
        raw("the end of the arena", plan(), KIND, "has 256 bytes, and values end at 192", |json| {
            json["spaces"][0]["arena_bytes"] = 256.into();
            claim(256, "optimal")(json);
        }),
        raw("all values together", plan(), KIND, "all values together have 256 bytes", |json| {
            json["naive_bytes"] = 1024.into();
        }),
        raw("no number of bytes", plan(), KIND, "all values together have 256 bytes", |json| {
            json["naive_bytes"] = Json::Null;
        }),
        raw("more than any memory", plan(), KIND, "of space 0 are in no memory", |json| {
            value(json, "y")["offset"] = (MAX_BYTES + 1).into();
            json["spaces"][0]["arena_bytes"] = (MAX_BYTES + 1 + 64).into();
            claim(192, "feasible")(json);
        }),
        raw("no alignment", plan(), KIND, "alignment 0 is not a power of two", |json| {
            json["options"]["alignment"] = 0.into();
        }),
        raw(
            "the general alignment",
            aligned(),
            KIND,
            "alignment 96 is not a power of two",
            |json| {
                json["options"]["alignment"] = 96.into();
            },
        ),
    ]);
}

/// In a space that is aligned more than the options ask.
fn aligned() -> Case {
    let mut builder = Graph::builder("aligned");
    let alignment = arenaplan::base::Alignment::new(128).unwrap();
    builder.set_default_space(arenaplan::pack::Space::new("arena").with_alignment(alignment));
    let kind = arenaplan::ValueKind::Input;
    let x = arenaplan::Value::new("x", kind, arenaplan::DType::UINT8, [128]).unwrap();
    let x = builder.add_value(x);
    builder.add_output(x);
    let graph = builder.build().unwrap();
    let plan = ideal_planner().plan(&graph).unwrap();
    (graph, plan)
}

#[test]
fn claims_that_are_provably_false_are_refused() {
    const KIND: &str = "PlanCorrupt";
    let shift = |by: u64| {
        move |json: &mut Json| {
            for row in json["values"].as_array_mut().unwrap() {
                row["offset"] = (row["offset"].as_u64().unwrap() + by).into();
            }
            let bytes = 192 + by;
            json["spaces"][0]["arena_bytes"] = bytes.into();
            claim(bytes, "optimal")(json);
        }
    };
    let floor = |bytes: u64| move |json: &mut Json| json["search"]["floor"] = bytes.into();
    let does = "space 'arena' does with 192 bytes, fewer than its lower bound";
    refuse(vec![
        raw("offsets one alignment up", plan(), KIND, does, shift(64)),
        raw("offsets 1 MiB up", plan(), KIND, does, shift(1 << 20)),
        raw("what could fall", loose(), KIND, does, claim(320, "optimal")),
        raw("what could fall a little", loose(), KIND, does, claim(193, "feasible")),
        raw("a floor above the bound", plan(), KIND, "its floor of 193 bytes is above", floor(193)),
        raw("a floor without limit", plan(), KIND, "is above its lower bound 192", floor(u64::MAX)),
        raw("a floor that no step needs", crossing(), KIND, "no step of it needs", floor(320)),
    ]);
}

/// Each node needs 256 bytes by itself, and 320 are live.
fn crossing() -> Case {
    let mut sketch = Sketch::new();
    let x = sketch.input("x", 64);
    let a = sketch.node("a", &[x], 128);
    let b = sketch.node("b", &[a], 128);
    let y = sketch.node("y", &[b, x], 64);
    let graph = sketch.build(&[y]);
    let plan = ideal_planner().plan(&graph).unwrap();
    assert_eq!(plan.lower_bound(), 320);
    (graph, plan)
}

#[test]
fn a_verdict_says_what_was_verified() {
    let (graph, plan) = plan();
    let verdict = plan.check(&graph).unwrap();
    assert_eq!(verdict.spaces()[0].max_live, 192);
    assert_eq!((verdict.lower_bound(), verdict.status()), (Proof::Verified, Proof::Verified));
    // The first step needs what is live at most, in any order.
    assert_eq!(plan.search().unwrap().order, OrderSearch::Complete);
    assert_eq!(verdict.order(), Some(Proof::Verified));
    assert_eq!((verdict.move_cost(), verdict.chose_spaces()), (None, false));
    // Whether steps of several nodes need less is not known to a check ...
    assert_eq!(verdict.floor(), Some(Proof::Claimed));
    // ... unless there can be none.
    let single = Techniques::ALL.without(Technique::Fusion).without(Technique::Streaming);
    let plan = ideal_planner().optimize(single).plan(&graph).unwrap();
    assert!(plan.check(&graph).unwrap().is_verified());
}

#[test]
fn an_order_that_only_a_search_proves_is_claimed() {
    let (graph, plan) = crossing();
    assert_eq!(plan.search().unwrap().order, OrderSearch::Complete);
    assert_eq!(plan.check(&graph).unwrap().order(), Some(Proof::Claimed));
    // Then not all is verified, whatever else is.
    let forged = forge(&plan, |json| json["search"]["floor"] = 0.into()).unwrap();
    let verdict = forged.check(&graph).unwrap();
    assert_eq!((verdict.lower_bound(), verdict.floor()), (Proof::Verified, Some(Proof::Verified)));
    assert!(!verdict.is_verified());
}

#[test]
fn a_bound_above_what_is_live_is_claimed_if_nothing_contradicts_it() {
    // Three buffers of which each pair is live together in turn, and pins that keep room free.
    let mut builder = Graph::builder("pinned");
    let array = |name, kind, bytes| {
        arenaplan::Value::new(name, kind, arenaplan::DType::UINT8, [bytes]).unwrap()
    };
    let x = array("x", arenaplan::ValueKind::Input, 64_u64).with_pin(128);
    let x = builder.add_value(x);
    let y = builder.add_value(array("y", arenaplan::ValueKind::Activation, 192));
    builder.add_node(arenaplan::Node::new("n", "Op").reads([x]).writes([y]));
    builder.add_output(y);
    let graph = builder.build().unwrap();
    let plan = ideal_planner().plan(&graph).unwrap();
    assert_eq!(plan.arena_bytes(), 384);
    let claimed = forge(&plan, |json| {
        claim(384, "optimal")(json);
        super::total(json);
    });
    let verdict = claimed.unwrap().check(&graph).unwrap();
    assert_eq!(verdict.spaces()[0].max_live, 256);
    assert_eq!((verdict.lower_bound(), verdict.status()), (Proof::Claimed, Proof::Claimed));
}

#[test]
fn a_capacity_of_what_is_live_proves_nothing_infeasible() {
    let unknown = accept("above its capacity", limited(192), |json| {
        value(json, "y")["offset"] = 256.into();
    });
    assert_eq!(unknown.status(), arenaplan::Status::Unknown);
    assert_eq!(unknown.lower_bound(), 192);
}

#[test]
fn the_last_byte_of_any_memory_may_be_used() {
    let mut sketch = Sketch::new();
    let x = sketch.input("x", 1);
    let y = sketch.node("y", &[x], 1);
    let graph = sketch.build(&[y]);
    let plan = ideal_planner().alignment(1).plan(&graph).unwrap();
    let last = accept("the last byte", (graph, plan), |json| {
        value(json, "y")["offset"] = (MAX_BYTES - 1).into();
        json["spaces"][0]["lower_bound"] = 0.into();
    });
    assert_eq!(last.arena_bytes(), MAX_BYTES);
}

#[test]
fn infeasible_is_verified_where_too_much_is_live() {
    let (graph, plan) = limited(128);
    assert_eq!(plan.status(), arenaplan::Status::Infeasible);
    assert_eq!(plan.check(&graph).unwrap().status(), Proof::Verified);
}

#[test]
fn workspaces_count_with_their_smallest_sizes() {
    let choices =
        [64, 128].map(|bytes| Choice { bytes, cost: 1.0 / (1.0 + bytes as f64) }).to_vec();
    let workspaces = vec![Workspace { choices, alignment: arenaplan::base::Alignment::BYTE }];
    let mut sketch = Sketch::new();
    let x = sketch.input("x", 64);
    let a = sketch.effectful("a", &[x], 64, Effects { workspaces, ..Effects::default() });
    let y = sketch.node("y", &[a], 192);
    let graph = sketch.build(&[y]);
    let plan = ideal_planner().workspace(WorkspacePolicy::Auto).plan(&graph).unwrap();
    // The larger one fits below the peak of the step behind it.
    assert_eq!((plan.workspaces()[0].bytes, plan.arena_bytes()), (128, 256));
    assert_eq!(plan.check(&graph).unwrap().lower_bound(), Proof::Verified);
    let small = {
        let mut sketch = Sketch::new();
        let x = sketch.input("x", 64);
        let choices =
            [64, 128].map(|bytes| Choice { bytes, cost: 1.0 / (1.0 + bytes as f64) }).to_vec();
        let workspaces = vec![Workspace { choices, alignment: arenaplan::base::Alignment::BYTE }];
        let y = sketch.effectful("y", &[x], 64, Effects { workspaces, ..Effects::default() });
        sketch.build(&[y])
    };
    let plan = ideal_planner().workspace(WorkspacePolicy::Auto).plan(&small).unwrap();
    assert_eq!((plan.workspaces()[0].bytes, plan.lower_bound()), (64, 192));
    let larger = (small, plan);
    refuse(vec![raw(
        "the larger size is no bound",
        larger,
        "PlanCorrupt",
        "space 'arena' does with 192 bytes, fewer than its lower bound 256",
        |json| {
            json["workspaces"][0]["bytes"] = 128.into();
            json["workspaces"][0]["choice"] = 1.into();
            json["workspaces"][0]["offset"] = 128.into();
            value(json, "x")["offset"] = 0.into();
            value(json, "y")["offset"] = 64.into();
            json["spaces"][0]["arena_bytes"] = 256.into();
            claim(256, "optimal")(json);
        },
    )]);
}
