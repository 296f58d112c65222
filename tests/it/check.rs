//! The checker rejects every corrupted plan. A plan is corrupted through its JSON, with the
//! checksum made right again, so that only the checker stands between it and the user.

use arenaplan::plan::WorkspacePolicy;
use arenaplan::{Error, Graph, Plan, Result};
use proptest::prelude::*;
use serde_json::Value as Json;
use sha2::{Digest, Sha256};

use crate::graphs::{Sketch, graphs, in_place, reshape};
use crate::planners::ideal_planner;

/// The fields of plan files, in an order that all kinds of objects in them keep.
const FIELDS: &[&str] = &[
    "format",
    "version",
    "model",
    "digest",
    "target",
    "options",
    "search",
    "order",
    "floor",
    "skipped",
    "node",
    "value",
    "name",
    "techniques",
    "arena_bytes",
    "lower_bound",
    "status",
    "naive_bytes",
    "value_count",
    "spaces",
    "move_cost",
    "timetable",
    "recomputed",
    "steps",
    "values",
    "workspaces",
    "alignment",
    "optimize",
    "effort",
    "preserve_inputs",
    "fused",
    "inputs",
    "outputs",
    "parallel_safe",
    "workers",
    "costs",
    "starts",
    "workspace",
    "caller_memory",
    "several_spaces",
    "scratch",
    "fixed",
    "shares",
    "strips",
    "input",
    "output",
    "rule",
    "slot",
    "choice",
    "space",
    "offset",
    "rows",
    "buffers",
    "in_place",
    "of",
    "bytes",
    "live",
    "capacity",
    "cost",
    "caller",
    "out",
    "in",
];

/// The fields of what is said of repetitions: two of them are elsewhere in another order.
const RECOMPUTED: &[&str] = &["schedule", "cost", "extra_cost", "extra_bound", "floor", "paging"];

/// Returns the plan with a field changed and the checksum made to fit.
pub fn forge(plan: &Plan, change: impl FnOnce(&mut Json)) -> Result<Plan> {
    let mut json: Json = serde_json::from_str(&plan.to_json()).unwrap();
    change(&mut json);
    json.as_object_mut().unwrap().remove("checksum");
    // The checksum is over the fields in the order of the file, without itself.
    let body = ordered(&json);
    let sum: String = Sha256::digest(&body).iter().map(|byte| format!("{byte:02x}")).collect();
    let whole = format!("{},\"checksum\":\"{sum}\"}}", &body[..body.len() - 1]);
    Plan::from_json(whole.as_bytes())
}

/// Writes an object with its fields in the order in which the program writes them.
fn ordered(json: &Json) -> String {
    match json {
        Json::Object(fields) => {
            let is_recomputed = fields.contains_key("extra_bound");
            let known = if is_recomputed { RECOMPUTED } else { FIELDS };
            let place = |key: &str| {
                let place = known.iter().position(|field| *field == key);
                place.unwrap_or_else(|| panic!("FIELDS has no {key}"))
            };
            let mut keys: Vec<&String> = fields.keys().collect();
            keys.sort_by_key(|key| place(key));
            // Only what is said of costs has these two in the other order.
            if fields.len() == 2 && fields.contains_key("cost") {
                keys.reverse();
            }
            let fields = keys.iter().map(|key| format!("\"{key}\":{}", ordered(&fields[*key])));
            format!("{{{}}}", fields.collect::<Vec<_>>().join(","))
        }
        Json::Array(items) => {
            let items: Vec<_> = items.iter().map(ordered).collect();
            format!("[{}]", items.join(","))
        }
        other => other.to_string(),
    }
}

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
    for offset in [1_u64 << 20, u64::MAX - 63, 1 << 63] {
        let found = kind(&plan, &graph, |json| json["values"][1]["offset"] = offset.into());
        assert_eq!(found, "PlanOutOfBounds", "{offset}");
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

proptest! {
    /// A plan with one offset changed either still never mixes up bytes, as running it on
    /// real memory shows, or is refused.
    #[test]
    fn a_moved_value_is_harmless_or_refused(
        graph in graphs(16),
        which in any::<prop::sample::Index>(),
        offset in 0_u64..1200,
    ) {
        let plan = ideal_planner().alignment(1).workspace(WorkspacePolicy::Auto).plan(&graph).unwrap();
        prop_assume!(!plan.placements().is_empty());
        let index = which.index(plan.placements().len());
        let forged = forge(&plan, |json| json["values"][index]["offset"] = offset.into()).unwrap();
        if forged.check(&graph).is_ok() {
            crate::arena::run_and_compare(&graph, &forged);
        }
    }
}
