//! The checker rejects every corrupted plan. A plan is corrupted through its JSON, with the
//! checksum made right again, so that only the checker stands between it and the user.

use arenaplan::plan::{InputMemory, OutputMemory, WorkspacePolicy};
use arenaplan::{Error, Graph, Plan};
use proptest::prelude::*;
use serde_json::Value as Json;

pub use crate::forge::forge;
use crate::graphs::{Sketch, graphs, in_place, reshape, same};
use crate::planners::ideal_planner;

/// x -> a -> b (in place) -> r (view) -> c, and d from a.
fn sample() -> (Graph, Plan) {
    let mut sketch = Sketch::new();
    let x = sketch.input("x", 100);
    let a = sketch.node("a", &[x], 200);
    let d = sketch.node("d", &[a], 50);
    let b = sketch.effectful("b", &[a], 200, in_place(0));
    let r = sketch.effectful("r", &[b], 200, reshape());
    let c = sketch.node("c", &[r, d], 60);
    let graph = sketch.build(&[c]);
    let plan = ideal_planner().plan(&graph).unwrap();
    (graph, plan)
}

fn kind(plan: &Plan, graph: &Graph, change: impl FnOnce(&mut Json)) -> &'static str {
    match forge(plan, change).and_then(|forged| forged.check(graph)) {
        Ok(_) => "accepted",
        Err(error) => error.kind(),
    }
}

#[test]
fn an_unchanged_plan_is_accepted() {
    let (graph, plan) = sample();
    assert_eq!(forge(&plan, |_| {}).unwrap(), plan);
    assert_eq!(kind(&plan, &graph, |_| {}), "accepted");
}

#[test]
fn c03_c04_offsets_past_the_arena_are_refused() {
    let (graph, plan) = sample();
    let rows =
        [(1 << 20, "PlanOutOfBounds"), (u64::MAX - 63, "PlanCorrupt"), (1 << 63, "PlanCorrupt")];
    for (offset, expected) in rows {
        let found = kind(&plan, &graph, |json| json["values"][1]["offset"] = u64::into(offset));
        assert_eq!(found, expected, "{offset}");
    }
}

#[test]
fn c05_two_live_values_may_not_share_a_byte() {
    let (graph, plan) = sample();
    // d lives beside a: move it onto a.
    let offset = plan.placements()[1].offset;
    let forged = forge(&plan, |json| json["values"][2]["offset"] = offset.into()).unwrap();
    let Err(Error::PlanOverlap { first, second, .. }) = forged.check(&graph) else {
        panic!("an overlap")
    };
    assert_eq!([first, second].map(|name| name.contains('a') || name.contains('d')), [true; 2]);
}

#[test]
fn c06_a_forged_share_is_refused() {
    let (graph, plan) = sample();
    let share = serde_json::json!({"input": 0, "output": 0, "rule": "in-place"});
    let found = kind(&plan, &graph, |json| json["steps"][0]["shares"] = Json::Array(vec![share]));
    assert_eq!(found, "PlanMismatch");
}

#[test]
fn c07_misaligned_offsets_are_refused() {
    let (graph, plan) = sample();
    assert_eq!(
        kind(&plan, &graph, |json| json["values"][2]["offset"] = 1.into()),
        "PlanMisaligned"
    );
}

#[test]
fn c08_shortened_live_ranges_are_refused() {
    let (graph, plan) = sample();
    let found = kind(&plan, &graph, |json| json["values"][1]["live"] = serde_json::json!([0, 1]));
    assert_eq!(found, "PlanMismatch");
}

#[test]
fn c09_a_plan_of_another_graph_is_refused() {
    let (_, plan) = sample();
    let mut sketch = Sketch::new();
    let x = sketch.input("x", 100);
    assert_eq!(plan.check(&sketch.build(&[x])).unwrap_err().kind(), "PlanMismatch");
}

#[test]
fn c11_missing_extra_and_repeated_values_are_refused() {
    let (graph, plan) = sample();
    let values = |json: &mut Json| json["values"].as_array_mut().unwrap().clone();
    let missing = kind(&plan, &graph, |json| {
        let mut rows = values(json);
        rows.pop();
        json["values"] = rows.into();
    });
    let repeated = kind(&plan, &graph, |json| {
        let mut rows = values(json);
        rows.push(rows[0].clone());
        json["values"] = rows.into();
    });
    let extra = kind(&plan, &graph, |json| {
        let mut rows = values(json);
        let mut row = rows[0].clone();
        row["value"] = 99.into();
        rows.push(row);
        json["values"] = rows.into();
    });
    assert_eq!([missing, repeated, extra], ["PlanMismatch", "PlanCorrupt", "PlanCorrupt"]);
}

#[test]
fn c12_the_arena_must_end_where_the_last_value_does() {
    let (graph, plan) = sample();
    for bytes in [plan.arena_bytes() + 64, plan.arena_bytes() + 1] {
        let found = kind(&plan, &graph, |json| {
            json["arena_bytes"] = bytes.into();
            json["lower_bound"] = bytes.into();
            json["spaces"][0]["arena_bytes"] = bytes.into();
            json["spaces"][0]["lower_bound"] = bytes.into();
        });
        assert_eq!(found, "PlanCorrupt");
    }
}

#[test]
fn a_false_proof_is_refused() {
    let (graph, plan) = sample();
    let found = kind(&plan, &graph, |json| {
        json["lower_bound"] = 1.into();
        json["spaces"][0]["lower_bound"] = 1.into();
    });
    assert_eq!(found, "PlanCorrupt");
}

/// A plan with one offset changed either still never mixes up bytes, as running it on real memory
/// shows, or is refused.
fn check_moved(graph: &Graph, which: &prop::sample::Index, offset: u64) {
    let plan = ideal_planner().alignment(1).workspace(WorkspacePolicy::Auto).plan(graph).unwrap();
    if plan.placements().is_empty() {
        return;
    }
    let index = which.index(plan.placements().len());
    let forged = forge(&plan, |json| json["values"][index]["offset"] = offset.into()).unwrap();
    if forged.check(graph).is_ok() {
        crate::arena::run_and_compare(graph, &forged);
    }
}

fn moved() -> impl Strategy<Value = (Graph, prop::sample::Index, u64)> {
    (graphs(16), any::<prop::sample::Index>(), 0_u64..1200)
}

/// Plans of graphs that never change are accepted.
#[test]
fn plans_of_the_same_graphs_are_valid() {
    let planner = ideal_planner().workspace(WorkspacePolicy::Auto);
    let callers = planner.inputs(InputMemory::Caller).outputs(OutputMemory::Caller);
    let planners =
        [planner, callers.alignment(1), planner.parallel_safe(true), planner.alignment(16)];
    let checked = |graph: &Graph, planner: &arenaplan::Planner| {
        let plan = planner.plan(graph).unwrap();
        let verdict = plan.check(graph).unwrap();
        assert!(verdict.spaces().iter().all(|space| space.max_live <= plan.arena_bytes()));
        crate::arena::run_and_compare(graph, &plan);
    };
    for graph in same(graphs(24), 20).iter().chain(&same(crate::fusion::networks(14), 20)) {
        planners.iter().for_each(|planner| checked(graph, planner));
    }
    for graph in &same(crate::overlap::networks(10), 20) {
        planners[..2].iter().for_each(|planner| checked(graph, planner));
    }
}

#[test]
fn the_same_moved_values_are_harmless_or_refused() {
    for (graph, which, offset) in same(moved(), 150) {
        check_moved(&graph, &which, offset);
    }
}

proptest! {
    #[test]
    fn a_moved_value_is_harmless_or_refused((graph, which, offset) in moved()) {
        check_moved(&graph, &which, offset);
    }
}
