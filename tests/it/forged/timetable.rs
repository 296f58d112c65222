//! Rules of `check/worker_times.rs`: the times at which steps start and end, and the bytes that are
//! needed at once then.

use arenaplan::graph::{Choice, Workspace};
use arenaplan::plan::{Effort, WorkspacePolicy};
use arenaplan::{Effects, Graph, Plan, Techniques, ValueId, ValueKind};
use serde_json::{Value as Json, json};

use super::{raw, refuse};
use crate::check::forge;
use crate::graphs::Sketch;
use crate::planners::ideal_planner;

type Case = (Graph, Plan);

const KIND: &str = "PlanMismatch";

/// a and b read x; y reads both. Each value has bytes of its own.
fn fork() -> Case {
    let mut sketch = Sketch::new();
    let x = sketch.input("x", 64);
    let ends = ["a", "b"].map(|name| sketch.node(name, &[x], 64));
    let y = sketch.node("y", &ends, 64);
    let graph = sketch.build(&[y]);
    let planner = ideal_planner().optimize(Techniques::NONE).preserve_inputs(true);
    let plan = planner.effort(Effort::Fast).node_times(&[5, 3, 2]).workers(2).plan(&graph).unwrap();
    let names: Vec<_> = plan.steps().iter().map(|step| step.name.as_str()).collect();
    assert_eq!(names, ["a", "b", "y"]);
    let plan = apart(&plan, &graph, &[0, 0, 5], &[5, 3, 2]);
    (graph, plan)
}

/// Returns the plan with no two spans in one place, and no claims.
fn apart(plan: &Plan, graph: &Graph, starts: &[u64], costs: &[u64]) -> Plan {
    let forged = forge(plan, |json| {
        let mut at = 0;
        for list in ["values", "workspaces"] {
            for row in json[list].as_array_mut().unwrap() {
                row["offset"] = at.into();
                at += row["bytes"].as_u64().unwrap();
            }
        }
        for place in ["/spaces/0", ""] {
            let row = json.pointer_mut(place).unwrap();
            row["arena_bytes"] = at.into();
            row["lower_bound"] = 0.into();
            row["status"] = "feasible".into();
        }
        json["search"]["floor"] = 0.into();
        json["timetable"]["starts"] = json!(starts);
        json["timetable"]["costs"] = json!(costs);
    });
    let forged = forged.unwrap();
    forged.check(graph).unwrap_or_else(|error| panic!("{starts:?}: {error}"));
    forged
}

fn times(json: &mut Json, starts: [u64; 3]) {
    json["timetable"]["starts"] = json!(starts);
}

#[test]
fn steps_start_when_those_before_them_have_ended() {
    let at = |starts: [u64; 3]| move |json: &mut Json| times(json, starts);
    let starts_early =
        |name: &str| format!("in its timetable 'y' starts before '{name}' has ended");
    let of = |rule, says: String, starts| raw(rule, fork(), KIND, says.leak(), at(starts));
    refuse(vec![
        of("a tick before the longest has ended", starts_early("a"), [0, 0, 4]),
        of("a tick before the one that starts late has ended", starts_early("b"), [0, 3, 5]),
        of("together with what is waited for", starts_early("a"), [5, 0, 5]),
        of("before all", starts_early("a"), [7, 7, 0]),
        raw("ends after all time", fork(), KIND, "ends after all time, at step 2", |json| {
            times(json, [0, 0, u64::MAX - 1]);
        }),
        raw("a third step at once", fork(), KIND, "more than 2 steps run at time 4", at([0, 4, 4])),
        raw("no worker", fork(), KIND, "no worker runs it", |json| {
            json["options"]["workers"] = 0.into();
            json.as_object_mut().unwrap().remove("timetable");
        }),
        raw("a time too few", fork(), KIND, "of other steps", |json| {
            json["timetable"]["starts"] = json!([0, 0]);
        }),
        raw("a cost too many", fork(), KIND, "of other steps", |json| {
            json["timetable"]["costs"] = json!([5, 3, 2, 1]);
        }),
        raw("one worker", fork(), KIND, "is of 1 workers, and it is for 1", |json| {
            json["options"].as_object_mut().unwrap().remove("workers");
            json["timetable"]["workers"] = 1.into();
        }),
        raw(
            "a worker more than its timetable has",
            fork(),
            KIND,
            "is of 2 workers, and it is for 3",
            |json| {
                json["options"]["workers"] = 3.into();
            },
        ),
    ]);
    // Whenever the steps may start, they may end as late as there is time.
    for starts in [[0, 2, 5], [1, 0, 6], [0, 5, 8], [9, 6, 14], [0, 0, u64::MAX - 2]] {
        let (graph, plan) = fork();
        let forged = forge(&plan, |json| times(json, starts)).unwrap();
        assert!(forged.check(&graph).is_ok(), "{starts:?}");
    }
}

/// Values, a state, an unread input and scratch memory.
fn network() -> Graph {
    let mut sketch = Sketch::new();
    let [x, w] = [("x", 64), ("w", 128)].map(|(name, bytes)| sketch.input(name, bytes));
    sketch.input("unread", 512);
    let s = sketch.value("s", ValueKind::State, 192);
    let a = sketch.node("a", &[x], 256);
    let b = sketch.node("b", &[w, s], 320);
    let workspace = Workspace {
        choices: vec![Choice { bytes: 448, cost: 1.0 }],
        alignment: arenaplan::base::Alignment::BYTE,
    };
    let effects = Effects { workspaces: vec![workspace], ..Effects::default() };
    let c = sketch.effectful("c", &[a], 64, effects);
    let d = sketch.node("d", &[a, b], 128);
    let early = sketch.node("early", &[c], 64);
    let y = sketch.node("y", &[c, d], 64);
    sketch.node("ignored", &[w], 576);
    sketch.build(&[early, y])
}

/// Returns the most bytes that are live at a time at which a step starts, by definition: a value is
/// live from the start of its step until all its readers have ended, and what is kept until all
/// have.
fn counted(graph: &Graph, plan: &Plan, keeps_inputs: bool) -> u64 {
    let table = plan.timetable().unwrap();
    let first = *table.starts.iter().min().unwrap();
    // A step without cost takes the moment at which it starts.
    let runs = |step: usize, time: u64| {
        time <= table.starts[step] || time < table.starts[step] + table.costs[step]
    };
    let live = |value: u32, time: u64| {
        let known = &graph.values()[value as usize];
        let makes = |step: &usize| plan.steps()[*step].outputs.contains(&Some(value));
        let uses = |step: &usize| makes(step) || plan.steps()[*step].inputs.contains(&Some(value));
        let steps = || 0..plan.steps().len();
        let is_kept = match known.kind() {
            ValueKind::State => true,
            ValueKind::Input => keeps_inputs,
            _ => graph.outputs().contains(&ValueId::from(value)),
        };
        let begun = steps().find(makes).is_none_or(|step| table.starts[step] <= time);
        let unread = steps().find(uses).is_none() && time == first;
        begun && (is_kept || unread || steps().filter(uses).any(|step| runs(step, time)))
    };
    let at = |&time: &u64| {
        let values = plan.placements().iter().filter(|place| live(place.value, time));
        let scratch = plan.workspaces().iter().filter(|work| {
            let step = plan.steps().iter().position(|step| step.node == work.node).unwrap();
            table.starts[step] <= time && runs(step, time)
        });
        values.map(|place| place.bytes).sum::<u64>() + scratch.map(|work| work.bytes).sum::<u64>()
    };
    table.starts.iter().map(at).max().unwrap()
}

/// Against the definition, for steps that start as soon as they may or some time after that.
#[test]
fn bytes_are_needed_as_long_as_steps_run() {
    let graph = network();
    let mut seen = Vec::new();
    for round in 0_u64..160 {
        let keeps = round % 2 == 0;
        // A small generator of numbers, the same in every run.
        let mut number = round;
        let mut below = |most: u64| {
            number = number
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (number >> 33) % most
        };
        let costs: Vec<u64> = graph.nodes().iter().map(|_| below(4)).collect();
        let planner = ideal_planner().optimize(Techniques::NONE).preserve_inputs(keeps);
        let planner =
            planner.effort(Effort::Fast).workspace(WorkspacePolicy::Auto).node_times(&costs);
        let plan = planner.workers(8).plan(&graph).unwrap();
        // The planner gives every step some time; the checker knows steps without.
        let costs: Vec<u64> = plan.steps().iter().map(|it| costs[it.node as usize]).collect();
        let mut starts: Vec<u64> = Vec::new();
        for step in plan.steps() {
            let ends = step.inputs.iter().flatten().filter_map(|input| {
                let maker =
                    plan.steps().iter().position(|it| it.outputs.contains(&Some(*input)))?;
                Some(starts[maker] + costs[maker])
            });
            let ready = ends.max().unwrap_or(0);
            starts.push(ready + if below(2) == 0 { 0 } else { below(5) });
        }
        let plan = apart(&plan, &graph, &starts, &costs);
        let most = counted(&graph, &plan, keeps);
        let verdict = plan.check(&graph).unwrap();
        assert_eq!(verdict.spaces()[0].max_live, most, "round {round}: {starts:?} {costs:?}");
        seen.push(most);
    }
    seen.sort_unstable();
    seen.dedup();
    assert!(seen.len() > 10, "{seen:?}");
}
