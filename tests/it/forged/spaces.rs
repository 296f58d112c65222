//! Rules of `check/space_costs.rs`, `check/caller_memory.rs` and `check/shared_arena.rs`: spaces, what moving bytes
//! costs, memory of the caller, and several plans in one arena.

use arenaplan::base::Alignment;
use arenaplan::check::Proof;
use arenaplan::graph::{Choice, Workspace};
use arenaplan::pack::Space;
use arenaplan::plan::{InputMemory, OutputMemory, SharedPlan, Together, WorkspacePolicy};
use arenaplan::{DType, Effects, Graph, Memories, Node, Plan, Value, ValueKind};
use serde_json::{Value as Json, json};

use super::{accept, raw, refuse, row, value};
use crate::check::forge;
use crate::graphs::Sketch;
use crate::planners::ideal_planner;

type Case = (Graph, Plan);

/// x in the default space, y and z in another one.
fn two_spaces(fast: &Space, slow: &Space) -> Graph {
    let mut builder = Graph::builder("two");
    builder.set_default_space(fast.clone());
    let slow = builder.add_space(slow.clone());
    let array = |name, kind| Value::new(name, kind, DType::UINT8, [64]).unwrap();
    let x = builder.add_value(array("x", ValueKind::Input));
    let y = builder.add_value(array("y", ValueKind::Activation).with_space(slow));
    let z = builder.add_value(array("z", ValueKind::Activation).with_space(slow));
    builder.add_node(Node::new("y", "Op").reads([x]).writes([y]));
    builder.add_node(Node::new("z", "Op").reads([x, y]).writes([z]));
    builder.add_output(z);
    builder.build().unwrap()
}

fn spaces() -> [Space; 2] {
    ["sram", "psram"].map(|name| Space::new(name).with_capacity(4096))
}

fn fixed() -> Case {
    let [fast, slow] = spaces();
    let graph = two_spaces(&fast, &slow);
    let plan = ideal_planner().plan(&graph).unwrap();
    (graph, plan)
}

/// A plan that chose spaces, which both cost as much.
fn chosen() -> Case {
    let [fast, slow] = spaces();
    let graph = two_spaces(&fast, &slow);
    let memories = spaces().map(|space| space.with_cost(1)).to_vec();
    let memories = Memories::new(memories).unwrap();
    let plan = ideal_planner().memories(&memories).plan(&graph).unwrap();
    assert_eq!(plan.move_cost().unwrap().cost, 64 + 64 + 64 + 64 + 64);
    (graph, plan)
}

/// A plan that chose spaces, of which the graph aligns the first.
fn aligned() -> Case {
    let [fast, slow] = spaces();
    let fast = fast.with_alignment(Alignment::new(256).unwrap());
    let graph = two_spaces(&fast, &slow);
    let memories = Memories::new(vec![fast, slow]).unwrap();
    let plan = ideal_planner().memories(&memories).plan(&graph).unwrap();
    (graph, plan)
}

#[test]
fn memories_are_no_larger_than_the_graph_says() {
    let [fast, slow] = spaces();
    let graph = two_spaces(&fast, &slow);
    for wider in [fast.clone().with_capacity(8192), Space::new("sram")] {
        let memories = Memories::new(vec![wider, slow.clone()]).unwrap();
        let refused = ideal_planner().memories(&memories).plan(&graph).unwrap_err();
        assert!(
            refused.to_string().contains("memory 'sram' that it holds 4096 bytes"),
            "{refused}"
        );
    }
}

#[test]
fn spaces_are_those_of_the_graph() {
    const KIND: &str = "PlanMismatch";
    let set = |field: &'static str, to: Json| {
        move |json: &mut Json| json["spaces"][1][field] = to.clone()
    };
    refuse(vec![
        row(
            "names",
            fixed(),
            KIND,
            "its spaces are not those of the graph",
            set("name", "dram".into()),
        ),
        row(
            "capacity",
            fixed(),
            KIND,
            "the capacity of space 'psram' is 4096 bytes, not 8192 bytes",
            set("capacity", 8192.into()),
        ),
        row(
            "no capacity",
            fixed(),
            KIND,
            "the capacity of space 'psram' is 4096 bytes, not no limit",
            set("capacity", Json::Null),
        ),
        row(
            "alignment",
            fixed(),
            KIND,
            "the alignment of space 'psram' is 64, not 128",
            set("alignment", 128.into()),
        ),
        row("cost", fixed(), KIND, "the cost of space 'psram' is 0, not 5", set("cost", 5.into())),
        row("the space of a value", fixed(), KIND, "value 'y' is in another space", |json| {
            value(json, "y")["space"] = 0.into();
            value(json, "y")["offset"] = 1024.into();
        }),
        row(
            "the option is for the default space",
            fixed(),
            KIND,
            "the capacity of space 'sram' is 512 bytes, not 4096 bytes",
            |json| {
                json["options"]["capacity"] = 512.into();
            },
        ),
        row(
            "a limit that nobody set",
            fixed(),
            KIND,
            "the capacity of space 'sram' is 4096 bytes, not 512 bytes",
            |json| {
                json["spaces"][0]["capacity"] = 512.into();
            },
        ),
    ]);
}

/// What the digest does not cover, the check does.
#[test]
fn a_plan_for_other_limits_and_alignments_is_refused() {
    let [fast, slow] = spaces();
    let plan = ideal_planner().plan(&two_spaces(&fast, &slow)).unwrap();
    let tight = two_spaces(&fast, &Space::new("psram").with_capacity(100));
    let wide = slow.with_alignment(Alignment::new(256).unwrap());
    for (other, says) in [
        (tight, "the capacity of space 'psram' is 100 bytes, not 4096 bytes"),
        (two_spaces(&fast, &wide), "the alignment of space 'psram' is 256, not 64"),
    ] {
        assert_eq!(plan.digest(), other.digest());
        let error = plan.check(&other).unwrap_err();
        assert!(error.to_string().contains(says), "{error}");
    }
}

#[test]
fn a_capacity_of_the_options_is_in_the_plan() {
    let [fast, slow] = spaces();
    let graph = two_spaces(&fast, &slow);
    let plan = ideal_planner().capacity(100).plan(&graph).unwrap();
    assert_eq!((plan.options().capacity, plan.spaces()[0].capacity), (Some(100), Some(100)));
    let read = Plan::from_json(plan.to_json().as_bytes()).unwrap();
    assert_eq!(read, plan);
    assert!(read.check(&graph).is_ok());
}

#[test]
fn spaces_that_a_plan_chose_and_their_costs_are_true() {
    let corrupt = "PlanCorrupt";
    let cost = |cost: u64, bound: u64| {
        move |json: &mut Json| json["move_cost"] = json!({"cost": cost, "lower_bound": bound})
    };
    refuse(vec![
        row("two of a name", chosen(), corrupt, "two of its spaces are called 'sram'", |json| {
            json["spaces"][1]["name"] = "sram".into();
        }),
        row("alignment", chosen(), corrupt, "alignment 96 is not a power of two", |json| {
            json["spaces"][1]["alignment"] = 96.into();
        }),
        row(
            "the space of a value",
            chosen(),
            "PlanMismatch",
            "value 'y' is in another space",
            |json| {
                value(json, "y")["space"] = 0.into();
                value(json, "y")["offset"] = 1024.into();
            },
        ),
        row(
            "a space that is not there",
            chosen(),
            corrupt,
            "of space 2 are in no memory",
            |json| {
                value(json, "x")["space"] = 2.into();
            },
        ),
        row(
            "a limit of the graph that is left out",
            chosen(),
            "PlanMismatch",
            "the graph limits space 'psram' to 4096 bytes",
            |json| json["spaces"][1]["capacity"] = Json::Null,
        ),
        row(
            "a wider limit than that of the graph",
            chosen(),
            "PlanMismatch",
            "the graph limits space 'sram' to 4096 bytes",
            |json| json["spaces"][0]["capacity"] = 4097.into(),
        ),
        row(
            "an alignment below that of the graph",
            aligned(),
            "PlanMismatch",
            "the graph aligns space 'sram' to 256 bytes",
            |json| json["spaces"][0]["alignment"] = 64.into(),
        ),
        row("the cost", chosen(), corrupt, "moving its bytes costs 320, not 319", cost(319, 319)),
        row(
            "the bound",
            chosen(),
            corrupt,
            "moving its bytes costs less than the bound 321",
            cost(320, 321),
        ),
    ]);
    let (graph, plan) = chosen();
    let verdict = plan.check(&graph).unwrap();
    // Both cost as much: wherever values are, moving them costs that.
    assert_eq!((verdict.move_cost(), verdict.chose_spaces()), (Some(Proof::Verified), true));
}

/// A step writes and reads its scratch memory.
#[test]
fn scratch_memory_moves_twice_its_bytes() {
    let graph = working("m", 64);
    let memories = Memories::new(spaces().map(|space| space.with_cost(1)).to_vec()).unwrap();
    let planner = ideal_planner().workspace(WorkspacePolicy::Auto);
    let plan = planner.memories(&memories).plan(&graph).unwrap();
    assert_eq!(plan.workspaces().iter().map(|work| work.bytes).collect::<Vec<_>>(), [128]);
    let moved = plan.move_cost().unwrap();
    // x and s are operands, y is a result.
    assert_eq!((moved.cost, moved.lower_bound), (3 * 64 + 2 * 128, 3 * 64 + 2 * 128));
    assert_eq!(plan.check(&graph).unwrap().move_cost(), Some(Proof::Verified));
}

#[test]
fn a_plan_without_spaces_is_none() {
    let mut sketch = Sketch::new();
    sketch.value("k", ValueKind::Constant, 64);
    let graph = sketch.build(&[]);
    let plan = ideal_planner().plan(&graph).unwrap();
    refuse(vec![row("no space", (graph, plan), "PlanCorrupt", "it has no space", |json| {
        json["spaces"] = json!([]);
    })]);
}

#[test]
fn bounds_of_costs_that_only_a_search_proves_are_claimed() {
    let mut sketch = Sketch::new();
    let x = sketch.input("x", 640);
    let y = sketch.node("y", &[x], 1280);
    let graph = sketch.build(&[y]);
    let memories = vec![
        Space::new("sram").with_capacity(1300),
        Space::new("psram").with_capacity(4096).with_cost(3),
    ];
    let memories = Memories::new(memories).unwrap();
    let plan = ideal_planner().memories(&memories).plan(&graph).unwrap();
    assert_eq!(plan.move_cost().map(|moved| moved.lower_bound), Some(1920));
    assert_eq!(plan.check(&graph).unwrap().move_cost(), Some(Proof::Claimed));
}

/// A value that the cheap space cannot hold costs as much as in the other one.
#[test]
fn bounds_of_costs_count_only_spaces_that_can_hold_a_value() {
    for (capacity, proof) in [(1279, Proof::Verified), (1280, Proof::Claimed)] {
        let mut sketch = Sketch::new();
        let x = sketch.input("x", 64);
        let y = sketch.node("y", &[x], 1280);
        let graph = sketch.build(&[y]);
        let small = Space::new("sram").with_capacity(capacity);
        let memories = vec![small, Space::new("psram").with_capacity(4096).with_cost(3)];
        let memories = Memories::new(memories).unwrap();
        let plan = ideal_planner().memories(&memories).plan(&graph).unwrap();
        let forged = forge(&plan, |json| {
            let cost = json["move_cost"]["cost"].clone();
            json["move_cost"]["lower_bound"] = cost;
        });
        let cost = plan.move_cost().unwrap().cost;
        let expected = if cost == 0 { Proof::Verified } else { proof };
        assert_eq!(forged.unwrap().check(&graph).unwrap().move_cost(), Some(expected));
        assert!(capacity != 1279 || cost == 3 * 1280);
    }
}

/// x of the caller, a in the arena, y of the caller.
fn outside() -> Case {
    let mut sketch = Sketch::new();
    let x = sketch.input("x", 64);
    let a = sketch.node("a", &[x], 64);
    let y = sketch.node("y", &[x, a], 64);
    let graph = sketch.build(&[y]);
    let planner = ideal_planner().inputs(InputMemory::Caller).outputs(OutputMemory::Caller);
    let plan = planner.plan(&graph).unwrap();
    assert_eq!(plan.spaces().len(), 3);
    (graph, plan)
}

#[test]
fn buffers_of_the_caller_are_what_the_options_ask_for() {
    const KIND: &str = "PlanMismatch";
    let own = "value 'y' is not in a buffer of the caller's own";
    let set = |field: &'static str, to: Json| {
        move |json: &mut Json| json["spaces"][2][field] = to.clone()
    };
    let inside = || {
        let (graph, _) = outside();
        let plan = ideal_planner().plan(&graph).unwrap();
        (graph, plan)
    };
    refuse(vec![
        raw("whose", outside(), KIND, own, set("caller", 1.into())),
        raw("name", outside(), KIND, own, set("name", "z".into())),
        raw("bytes", outside(), KIND, own, set("arena_bytes", 128.into())),
        raw("status", outside(), KIND, own, set("status", "feasible".into())),
        raw("capacity", outside(), KIND, own, set("capacity", 64.into())),
        raw("cost", outside(), KIND, own, set("cost", 1.into())),
        raw(
            "bound",
            outside(),
            "PlanCorrupt",
            "space 'y' is not optimal with",
            set("lower_bound", 0.into()),
        ),
        raw("one missing", outside(), "PlanCorrupt", "are in no memory", |json| {
            json["spaces"].as_array_mut().unwrap().pop();
        }),
        raw("not the first byte", outside(), KIND, own, |json| {
            value(json, "y")["offset"] = 64.into();
        }),
        raw("of another value", outside(), KIND, "value 'a' is in another space", |json| {
            value(json, "a")["space"] = 2.into();
        }),
        raw(
            "nobody asked for it",
            inside(),
            KIND,
            "the caller brings no memory for value 'y'",
            |json| {
                let buffer = json!({"name": "y", "arena_bytes": 0, "lower_bound": 0, "alignment": 64,
                                "status": "optimal", "capacity": null, "caller": 2});
                json["spaces"].as_array_mut().unwrap().push(buffer);
            },
        ),
    ]);
}

/// Returns a graph that works in scratch memory, and keeps a state between runs.
fn working(name: &str, state: u64) -> Graph {
    let mut sketch = Sketch::new();
    let choices = vec![Choice { bytes: 128, cost: 1.0 }];
    let workspaces = vec![Workspace { choices, alignment: Alignment::BYTE }];
    let x = sketch.input(&format!("{name}.x"), 64);
    let s = sketch.value(&format!("{name}.s"), ValueKind::State, state);
    let effects = Effects { workspaces, mutates: vec![1], ..Effects::default() };
    let y = sketch.effectful(&format!("{name}.y"), &[x, s], 64, effects);
    sketch.build(&[y])
}

/// Changes the JSON of a shared plan, and makes its totals right.
fn reshared(
    shared: &SharedPlan,
    change: impl FnOnce(&mut Json),
) -> Result<SharedPlan, arenaplan::Error> {
    let mut json: Json = serde_json::from_str(&shared.to_json()).unwrap();
    change(&mut json);
    let ends = json["plans"].as_array().unwrap().iter().map(|one| {
        one["base"].as_u64().unwrap().saturating_add(one["plan"]["arena_bytes"].as_u64().unwrap())
    });
    let bytes = ends.max().unwrap();
    json["arena_bytes"] = bytes.into();
    let bound = json["lower_bound"].as_u64().unwrap();
    json["status"] = if bound == bytes { "optimal" } else { "feasible" }.into();
    SharedPlan::from_json(json.to_string().as_bytes())
}

#[test]
fn plans_in_one_arena_are_apart_and_claim_what_is_true() {
    let (a, b) = (working("a", 64), working("b", 64));
    let both = [&a, &b];
    let planner = ideal_planner().workspace(WorkspacePolicy::Auto);
    let shared = planner.plan_together(&both, Together::Concurrent).unwrap();
    let verdict = shared.check(&both).unwrap();
    assert_eq!((shared.arena_bytes(), verdict.max_live()), (640, 640));
    assert_eq!((verdict.lower_bound(), verdict.status()), (Proof::Verified, Proof::Verified));
    assert!(verdict.members().iter().all(|member| member.lower_bound().is_verified()));
    let turns = planner.plan_together(&both, Together::Never).unwrap();
    let verdict = turns.check(&both).unwrap();
    assert_eq!((turns.arena_bytes(), verdict.max_live()), (384, 384));
    assert_eq!(verdict.lower_bound(), Proof::Verified);

    let said = |found: Result<SharedPlan, arenaplan::Error>| {
        let error = found.and_then(|shared| shared.check(&both)).unwrap_err();
        format!("{}: {error}", error.kind())
    };
    let refused = |change: &dyn Fn(&mut Json)| said(reshared(&shared, change));
    let base = |base: u64| move |json: &mut Json| json["plans"][1]["base"] = base.into();
    assert!(
        refused(&base(352)).contains("at offset 352, which is not a multiple of its alignment 64")
    );
    assert!(refused(&base(1 << 63)).contains("PlanOutOfBounds: the arena of 'sketch' occupies"));
    // The last workspace of the first reaches into the second.
    let scratch = |json: &mut Json| {
        let works = &shared.members()[0].plan.workspaces()[0];
        assert!(works.bytes == 128);
        let bytes = 320 - 128 + works.offset;
        json["plans"][1]["base"] = bytes.next_multiple_of(64).min(256).into();
    };
    assert!(refused(&scratch).starts_with("PlanOverlap"));
    // A lower bound above the arena, above what is reached, and one that nobody refutes.
    let bound = |bytes: u64| move |json: &mut Json| json["lower_bound"] = bytes.into();
    assert!(refused(&bound(704)).contains("has 640 bytes, below its bound 704"));
    let apart = |json: &mut Json| {
        base(512)(json);
        bound(832)(json);
    };
    assert!(refused(&apart).contains("does with 640 bytes, fewer than its lower bound 832"));
    let higher = said(reshared(&turns, |json| {
        base(512)(json);
        bound(800)(json);
    }));
    assert!(higher.contains("fewer than its lower bound 800"), "{higher}");
}

/// The highest step is the last one of each.
#[test]
fn plans_that_run_in_turn_have_one_step_after_the_other() {
    let chain = |name: &str| {
        let mut sketch = Sketch::new();
        let x = sketch.input(&format!("{name}.x"), 64);
        let a = sketch.node(&format!("{name}.a"), &[x], 64);
        let y = sketch.node(&format!("{name}.y"), &[a], 512);
        sketch.build(&[y])
    };
    let (a, b) = (chain("a"), chain("b"));
    let shared = ideal_planner().plan_together(&[&a, &b], Together::Never).unwrap();
    let verdict = shared.check(&[&a, &b]).unwrap();
    assert_eq!((shared.arena_bytes(), verdict.max_live()), (576, 576));
    assert_eq!(verdict.lower_bound(), Proof::Verified);
}

/// Only scratch memory of the first lies where the second is.
#[test]
fn scratch_memory_counts_when_models_run_at_the_same_time() {
    let plain = |name: &str| {
        let mut sketch = Sketch::new();
        let choices = vec![Choice { bytes: 128, cost: 1.0 }];
        let workspaces = vec![Workspace { choices, alignment: Alignment::BYTE }];
        let x = sketch.input(&format!("{name}.x"), 64);
        let effects = Effects { workspaces, ..Effects::default() };
        let y = sketch.effectful(&format!("{name}.y"), &[x], 64, effects);
        sketch.build(&[y])
    };
    let (a, b) = (plain("a"), plain("b"));
    let planner = ideal_planner().workspace(WorkspacePolicy::Auto);
    let alone = planner.plan(&a).unwrap();
    // The workspace at the end.
    let last = accept("the workspace at the end", (a.clone(), alone), |json| {
        value(json, "a.x")["offset"] = 0.into();
        value(json, "a.y")["offset"] = 64.into();
        json["workspaces"][0]["offset"] = 128.into();
    });
    let shared = planner.plan_together(&[&a, &b], Together::Concurrent).unwrap();
    let forged = reshared(&shared, |json| {
        json["plans"][0]["plan"] = serde_json::from_str(&last.to_json()).unwrap();
        json["plans"][1]["base"] = 128.into();
        json["lower_bound"] = 256.into();
    });
    let error = forged.unwrap().check(&[&a, &b]).unwrap_err();
    assert!(matches!(error, arenaplan::Error::PlanOverlap { byte: 128, .. }), "{error}");
}

/// A plan that would need another space is refused even if its cost is left out.
#[test]
fn a_plan_cannot_say_that_it_chose_its_spaces_to_hide_theirs() {
    let (graph, plan) = fixed();
    let forged = forge(&plan, |json| {
        json["move_cost"] = json!({"cost": 0, "lower_bound": 0});
        json["spaces"][1]["capacity"] = Json::Null;
    });
    let refused = forged.unwrap().check(&graph).unwrap_err();
    assert!(refused.to_string().contains("limits space 'psram' to 4096 bytes"), "{refused}");
}

/// A state falls from where its plan has it in the shared arena: onto the values of the plan below.
#[test]
fn states_of_models_in_turn_fall_from_where_they_are() {
    let graphs = ["a", "b"].map(|name| {
        let mut sketch = Sketch::new();
        let s = sketch.value(&format!("{name}.s"), ValueKind::State, 64);
        let x = sketch.input(&format!("{name}.x"), 128);
        let y = sketch.node(&format!("{name}.y"), &[x, s], 128);
        sketch.build(&[y])
    });
    let both = [&graphs[0], &graphs[1]];
    let shared = ideal_planner().plan_together(&both, Together::Never).unwrap();
    let stacked = ["a", "b"].map(|name| {
        let graph = &graphs[usize::from(name == "b")];
        let plan = ideal_planner().plan(graph).unwrap();
        accept("the state below", (graph.clone(), plan), |json| {
            for (what, offset) in [("s", 0), ("x", 64), ("y", 192)] {
                value(json, &format!("{name}.{what}"))["offset"] = offset.into();
            }
        })
    });
    let forged = reshared(&shared, |json| {
        for (row, plan) in json["plans"].as_array_mut().unwrap().iter_mut().zip(&stacked) {
            row["plan"] = serde_json::from_str(&plan.to_json()).unwrap();
        }
        json["plans"][0]["base"] = 320.into();
        json["plans"][1]["base"] = 0.into();
        json["lower_bound"] = 640.into();
    });
    let verdict = forged.unwrap().check(&both).unwrap();
    assert_eq!((verdict.max_live(), verdict.lower_bound()), (64 + 64 + 256, Proof::Claimed));
}
