//! Random flaws in random plans: each is refused, or does no harm on real memory and claims nothing
//! false.

use arenaplan::check::Proof;
use arenaplan::plan::{InputMemory, OutputMemory, WorkspacePolicy};
use arenaplan::{Graph, Plan};
use proptest::prelude::*;
use serde_json::{Value as Json, json};

use super::{settle, total};
use crate::check::forge;
use crate::graphs::{graphs, same};
use crate::planners::ideal_planner;

/// What must become of a plan with a flaw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Must {
    /// It is false whatever else is true.
    BeRefused,
    /// It may be a valid plan of another kind.
    BeHarmless,
    /// The change was none.
    BeAccepted,
}

/// Plants one flaw, and says what must become of it.
fn plant(json: &mut Json, flaw: u8, which: &prop::sample::Index, number: u64) -> Must {
    let before = json.clone();
    let must = change(json, flaw, which, number);
    if *json == before { Must::BeAccepted } else { must }
}

fn change(json: &mut Json, flaw: u8, which: &prop::sample::Index, number: u64) -> Must {
    let set = |json: &mut Json, field: &str, to: Json| {
        json[field] = to;
        Must::BeRefused
    };
    let count = |json: &Json, list: &str| json[list].as_array().unwrap().len();
    let (values, steps) = (count(json, "values"), count(json, "steps"));
    let arena = json["spaces"][0]["arena_bytes"].as_u64().unwrap();
    match flaw {
        // All offsets further up, with a bound that makes that optimal.
        0 => {
            let by = (1 + number % 4096) * 64;
            for list in ["values", "workspaces"] {
                for row in json[list].as_array_mut().unwrap() {
                    if row["space"] == 0 {
                        row["offset"] = (row["offset"].as_u64().unwrap() + by).into();
                    }
                }
            }
            if arena == 0 {
                return Must::BeHarmless;
            }
            json["spaces"][0]["arena_bytes"] = (arena + by).into();
            json["spaces"][0]["lower_bound"] = (arena + by).into();
            json["spaces"][0]["status"] = "optimal".into();
            total(json);
            Must::BeRefused
        }
        1 => set(&mut json["spaces"][0], "capacity", number.into()),
        2 => {
            let alignment = json["spaces"][0]["alignment"].as_u64().unwrap();
            set(&mut json["spaces"][0], "alignment", (alignment << (1 + number % 8)).into())
        }
        3 => set(&mut json["spaces"][0], "cost", (1 + number).into()),
        4 => {
            let above = json["lower_bound"].as_u64().unwrap().saturating_add(1 + number);
            set(&mut json["search"], "floor", above.into())
        }
        5 => set(&mut json["search"], "floor", u64::MAX.into()),
        6 => {
            let status = ["optimal", "feasible", "unknown", "infeasible"][number as usize % 4];
            set(&mut json["spaces"][0], "status", status.into());
            total(json);
            Must::BeRefused
        }
        7 => {
            json["spaces"][0]["lower_bound"] = (arena + 1 + number).into();
            total(json);
            Must::BeRefused
        }
        8 => {
            json["spaces"][0]["arena_bytes"] = (arena + 1 + number).into();
            total(json);
            Must::BeRefused
        }
        9 => set(json, "naive_bytes", number.into()),
        10 => set(json, "value_count", (number % 1000 + values as u64 + 1000).into()),
        11 if values > 0 => set(&mut json["values"][which.index(values)], "bytes", number.into()),
        12 if values > 0 => set(&mut json["values"][which.index(values)], "name", "?".into()),
        13 if values > 0 => {
            let live = json!([number % 40, number % 40 + 1 + number / 40 % 9]);
            set(&mut json["values"][which.index(values)], "live", live)
        }
        14 if values > 0 => set(&mut json["values"][which.index(values)], "space", 77.into()),
        15 if values > 0 => {
            json["values"].as_array_mut().unwrap().remove(which.index(values));
            settle(json);
            Must::BeRefused
        }
        16 if steps > 0 => set(&mut json["steps"][which.index(steps)], "name", "?".into()),
        17 if steps > 1 => {
            let (first, second) = (which.index(steps - 1), which.index(steps - 1) + 1);
            json["steps"].as_array_mut().unwrap().swap(first, second);
            // Live ranges stay: only steps that use nothing can change places.
            Must::BeHarmless
        }
        18 if steps > 0 => {
            set(&mut json["steps"][which.index(steps)], "shares", json!([]));
            Must::BeHarmless
        }
        19 if steps > 0 => {
            let rule = ["view", "in-place", "overlap"][number as usize % 3];
            let share = json!([{"input": number / 3 % 4, "output": number / 12 % 2, "rule": rule}]);
            set(&mut json["steps"][which.index(steps)], "shares", share);
            Must::BeHarmless
        }
        20 => {
            let works = count(json, "workspaces");
            if works > 0 {
                set(&mut json["workspaces"][which.index(works)], "offset", (number % 1200).into());
                settle(json);
            }
            Must::BeHarmless
        }
        21 => {
            // A bound that is higher than it was, of a plan that is as large as that.
            let bound = json["spaces"][0]["lower_bound"].as_u64().unwrap();
            json["spaces"][0]["lower_bound"] = (bound + (arena - bound).min(1 + number)).into();
            if bound + (arena - bound).min(1 + number) == arena {
                json["spaces"][0]["status"] = "optimal".into();
            }
            total(json);
            Must::BeHarmless
        }
        _ if values > 0 => {
            json["values"][which.index(values)]["offset"] = (number % 1200).into();
            settle(json);
            // Whatever moved, claim that it could not be smaller.
            let bytes = json["spaces"][0]["arena_bytes"].clone();
            json["spaces"][0]["lower_bound"] = bytes;
            json["spaces"][0]["status"] = "optimal".into();
            total(json);
            Must::BeHarmless
        }
        _ => Must::BeHarmless,
    }
}

fn verdict_is_true(graph: &Graph, original: &Plan, forged: &Plan) {
    let verdict = forged.check(graph).unwrap();
    let same = original.steps() == forged.steps()
        && original.placements().len() == forged.placements().len();
    if same && verdict.lower_bound() == Proof::Verified {
        // The original is a plan with the same order and sharing.
        assert!(forged.lower_bound() <= original.arena_bytes(), "a false bound is verified");
    }
}

/// A flaw in the plan of a random graph.
#[derive(Clone, Debug)]
struct Flaw {
    graph: Graph,
    kind: u8,
    which: prop::sample::Index,
    number: u64,
    caller: bool,
    workspace: bool,
    fine: bool,
}

fn flaws() -> impl Strategy<Value = Flaw> {
    let number = prop_oneof![0_u64..2000, any::<u64>().prop_map(|number| number >> 8)];
    let options = any::<[bool; 3]>();
    (graphs(16), 0_u8..26, any::<prop::sample::Index>(), number, options).prop_map(
        |(graph, kind, which, number, [caller, workspace, fine])| Flaw {
            graph,
            kind,
            which,
            number,
            caller,
            workspace,
            fine,
        },
    )
}

fn check(flaw: &Flaw) {
    let Flaw { graph, kind, which, number, .. } = flaw;
    let mut planner = ideal_planner().alignment(if flaw.fine { 1 } else { 64 });
    if flaw.caller {
        planner = planner.inputs(InputMemory::Caller).outputs(OutputMemory::Caller);
    }
    if flaw.workspace {
        planner = planner.workspace(WorkspacePolicy::Auto);
    }
    let plan = planner.plan(graph).unwrap();
    let mut must = Must::BeAccepted;
    let forged = forge(&plan, |json| must = plant(json, *kind, which, *number));
    match forged.and_then(|forged| forged.check(graph).map(|_| forged)) {
        Err(error) => assert_ne!(must, Must::BeAccepted, "{error}"),
        Ok(forged) => {
            assert_ne!(must, Must::BeRefused, "flaw {kind} is accepted");
            crate::arena::run_and_compare(graph, &forged);
            verdict_is_true(graph, &plan, &forged);
        }
    }
}

#[test]
fn the_same_flaws_are_refused_or_do_no_harm() {
    same(flaws(), 200).iter().for_each(check);
}

proptest! {
    #[test]
    fn planted_flaws_are_refused_or_do_no_harm(flaw in flaws()) {
        check(&flaw);
    }
}
