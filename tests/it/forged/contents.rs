//! Rules of `check/contents.rs`: plans in which nodes run again and values are copied compute what
//! their graph computes.
//!
//! The schedule is written by hand. Each row changes the plan's record of it, the graph in which
//! each execution is a node, or the graph without repetitions, and says which rule must notice.

use arenaplan::base::Execution;
use arenaplan::pack::Space;
use arenaplan::{DType, Effects, Graph, Node, NodeId, Plan, Planner, Value, ValueId, ValueKind};
use serde_json::{Value as Json, json};

use crate::check::forge;
use crate::graphs::Sketch;

/// A plan, its graph without repetitions, and the graph in which each execution is a node.
struct Case {
    graph: Graph,
    executions: Graph,
    plan: Plan,
}

// The nodes of the graph.
const F: usize = 0;
const G: usize = 1;
const M: usize = 2;
const Y: usize = 3;
// The nodes behind them that only the graph of executions has.
const OUT: usize = 4;
const AGAIN: usize = 5;
const BACK: usize = 6;

/// Each value has the name of its node. g reads f, m reads g, changes the state s and replaces the
/// state t, and y reads f, g and m.
fn graph(is_pure: bool) -> Graph {
    let mut sketch = Sketch::new();
    let x = sketch.input("x", 64);
    let [s, t] = ["s", "t"].map(|name| sketch.value(name, ValueKind::State, 64));
    sketch.value("u", ValueKind::State, 64);
    let mut node = |name: &str, reads: &[ValueId], cost, effects| {
        let value = Value::new(name, ValueKind::Activation, DType::UINT8, [64]).unwrap();
        let made = sketch.builder.add_value(value);
        let node = Node::new(name, "Op").reads(reads.iter().copied()).writes([made]);
        sketch.builder.add_node(node.with_cost(cost).with_effects(effects));
        made
    };
    let pure = |pure| Effects { pure, ..Effects::default() };
    let a = node("f", &[x], 3, pure(is_pure));
    let b = node("g", &[a], 2, pure(true));
    let r = node("m", &[b, s], 1, Effects { mutates: vec![1], ..Effects::default() });
    let y = node("y", &[a, b, r], 1, pure(true));
    sketch.builder.add_write_back(r, t);
    sketch.build(&[y])
}

/// f runs again for y, and g is copied to the memory `host` and back for it.
fn case() -> Case {
    let (graph, host) = (graph(true), Space::new("host").with_cost(5));
    let run = |node| Execution::Run(NodeId::new(node));
    let b = graph.node(NodeId::new(G)).outputs()[0].unwrap();
    let copies = [Execution::PageOut { value: b }, Execution::PageIn { value: b }];
    let schedule = [run(F), run(G), copies[0], run(M), run(F), copies[1], run(Y)];
    let scheduled = graph.scheduled_with(&schedule, Some(&host)).unwrap();
    let steps: Vec<_> = scheduled.order.iter().map(|&node| vec![node]).collect();
    let plan = Planner::new().plan_steps(&scheduled.graph, &steps).unwrap();
    let plan = forge(&plan, |json| {
        let floor = json["spaces"][0]["arena_bytes"].clone();
        json["recomputed"] = json!({
            "schedule": [0, 1, {"out": b.index()}, 2, 0, {"in": b.index()}, 3],
            "cost": 7, "extra_cost": 3 + 2 * 64 * 5, "extra_bound": 643, "floor": floor,
            "paging": {"space": "host", "capacity": null, "cost": 5},
        });
    });
    Case { executions: scheduled.graph, plan: plan.unwrap(), graph }
}

/// Returns a graph with a changed field.
fn changed(graph: &Graph, change: impl FnOnce(&mut Json)) -> Graph {
    let mut json: Json = serde_json::from_str(&graph.to_json()).unwrap();
    change(&mut json);
    json.as_object_mut().unwrap().remove("checksum");
    json.as_object_mut().unwrap().remove("digest");
    Graph::from_json(json.to_string().as_bytes()).unwrap()
}

fn verify(rule: &str, case: &Case, says: &str) -> Option<String> {
    match case.plan.check_repetitions(&case.graph, &case.executions) {
        Ok(()) => Some(format!("{rule}: accepted")),
        Err(error) if error.kind() != "PlanMismatch" || !error.to_string().contains(says) => {
            Some(format!("{rule}: {}: {error}", error.kind()))
        }
        Err(_) => None,
    }
}

type Change = Box<dyn Fn(&mut Json)>;

/// Checks that each change of the plan is refused as it says.
fn refuse_plans(rows: Vec<(&str, &str, Change)>) {
    let wrong = rows.into_iter().filter_map(|(rule, says, change)| {
        let case = case();
        let plan = forge(&case.plan, change).unwrap();
        let is_accepted = plan.check(&case.graph).is_ok();
        let accepted = is_accepted.then(|| format!("{rule}: accepted with the graph alone"));
        accepted.or_else(|| verify(rule, &Case { plan, ..case }, says))
    });
    let wrong: Vec<_> = wrong.collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Checks that each change of the graph in which executions are nodes is refused as it says.
fn refuse_graphs(rows: Vec<(&str, &str, Change)>) {
    let wrong = rows.into_iter().filter_map(|(rule, says, change)| {
        let mut case = case();
        case.executions = changed(&case.executions, change);
        verify(rule, &case, says)
    });
    let wrong: Vec<_> = wrong.collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A row of these tables.
fn row(
    rule: &'static str,
    says: &'static str,
    change: impl Fn(&mut Json) + 'static,
) -> (&'static str, &'static str, Change) {
    (rule, says, Box::new(change))
}

#[test]
fn a_right_schedule_is_accepted() {
    let Case { graph, executions, plan } = case();
    plan.check_repetitions(&graph, &executions).unwrap();
    plan.check(&graph).unwrap();
    let names: Vec<_> = executions.nodes().iter().map(Node::name).collect();
    assert_eq!(names, ["f", "g", "m", "y", "g.out", "f#2", "g.in"]);
    assert_eq!((names[OUT], names[AGAIN], names[BACK]), ("g.out", "f#2", "g.in"));
}

#[test]
fn a_schedule_runs_every_node_and_no_other() {
    let all = "its schedule does not run every node";
    refuse_plans(vec![
        row("a node of the graph", "its schedule names node 9, which is not there", |json| {
            json["recomputed"]["schedule"][0] = 9.into();
        }),
        row("as many executions", all, |json| {
            json["recomputed"]["schedule"].as_array_mut().unwrap().remove(4);
        }),
        row("each node once", all, |json| {
            json["recomputed"]["schedule"].as_array_mut().unwrap().pop();
        }),
        row(
            "operands before readers",
            "its steps do not run every execution after what it depends on",
            |json| json["steps"].as_array_mut().unwrap().swap(5, 6),
        ),
    ]);
}

#[test]
fn an_execution_is_one_of_its_node() {
    let no = "'f#2' does not execute the node that it should repeat";
    let first = "'f' does not execute the node that it should repeat";
    let node = |at: usize, field: &'static str, set: Json| {
        move |json: &mut Json| json["nodes"][at][field] = set.clone()
    };
    refuse_graphs(vec![
        row("operator", no, node(AGAIN, "op", "Other".into())),
        row("operator of the first", first, node(F, "op", "Other".into())),
        row("domain", no, node(AGAIN, "domain", "other".into())),
        row("version", no, node(AGAIN, "version", 7.into())),
        row("operands", no, node(AGAIN, "inputs", json!([0, 0]))),
        row("results", no, |json| {
            let made = json["nodes"][AGAIN]["outputs"][0].clone();
            json["nodes"][AGAIN]["outputs"] = json!([made, null]);
        }),
        row("states that change", "'m' does not execute", node(M, "mutates", json!([]))),
    ]);
    let case = case();
    let case = Case { graph: graph(false), ..case };
    let wrong = verify("purity", &case, "'f#2' runs again, and is not pure");
    assert_eq!(wrong, None);
}

#[test]
fn an_execution_reads_and_makes_what_its_node_does() {
    let other = "'y' reads other contents than in the graph";
    refuse_graphs(vec![
        row("another operand", other, |json| {
            json["nodes"][Y]["inputs"][0] = json["nodes"][Y]["inputs"][2].clone();
        }),
        row("operands in another order", other, |json| {
            json["nodes"][Y]["inputs"].as_array_mut().unwrap().swap(0, 2);
        }),
        row("an input", "'f#2' reads other contents", |json| {
            json["nodes"][AGAIN]["inputs"][0] = 3.into();
        }),
        row("another shape", "'f#2' makes a value of another form", |json| {
            let made = json["nodes"][AGAIN]["outputs"][0].as_u64().unwrap();
            json["values"][usize::try_from(made).unwrap()]["shape"] = json!([32, 2]);
        }),
        row("another type", "'f#2' makes a value of another form", |json| {
            let made = json["nodes"][AGAIN]["outputs"][0].as_u64().unwrap();
            json["values"][usize::try_from(made).unwrap()]["dtype"] = "int8".into();
        }),
        row("outputs", "its results are other ones", |json| {
            json["outputs"] = json!([json["nodes"][M]["outputs"][0]]);
        }),
        row("what replaces a state", "its results are other ones", |json| {
            json["write_backs"][0]["value"] = json["nodes"][Y]["outputs"][0].clone();
        }),
        row("which state is replaced", "its results are other ones", |json| {
            json["write_backs"][0]["into"] = 3.into();
        }),
    ]);
}

/// f reads a state, m changes it, and f runs again for y.
#[test]
fn an_execution_reads_the_version_of_a_state_that_its_node_reads() {
    let mut sketch = Sketch::new();
    let s = sketch.value("s", ValueKind::State, 64);
    let pure = Effects { pure: true, ..Effects::default() };
    let f = sketch.effectful("f", &[s], 64, pure.clone());
    let g = sketch.effectful("g", &[f], 64, pure.clone());
    let changes = Effects { mutates: vec![0], ..Effects::default() };
    let m = sketch.effectful("m", &[s], 64, changes);
    let y = sketch.effectful("y", &[f, g], 64, pure);
    let graph = sketch.build(&[y, m]);
    let schedule = [F, G, M, F, Y].map(NodeId::new);
    let scheduled = graph.scheduled(&schedule).unwrap();
    let steps: Vec<_> = scheduled.order.iter().map(|&node| vec![node]).collect();
    let plan = Planner::new().plan_steps(&scheduled.graph, &steps).unwrap();
    let plan = forge(&plan, |json| {
        json["recomputed"] = json!({
            "schedule": [F, G, M, F, Y], "cost": 0, "extra_cost": 0, "extra_bound": 0, "floor": 0,
        });
    });
    let case = Case { executions: scheduled.graph, plan: plan.unwrap(), graph };
    assert_eq!(verify("a later version", &case, "'f#2' reads other contents"), None);
}

#[test]
fn a_copy_has_the_content_and_the_form_of_its_value() {
    let content = "copies another content than that of its value";
    let node = |at: usize, field: &'static str, set: Json| {
        move |json: &mut Json| json["nodes"][at][field] = set.clone()
    };
    let no = "does not copy its value to the slow memory or back";
    refuse_graphs(vec![
        row("of another value", content, |json| {
            json["nodes"][OUT]["inputs"][0] = json["nodes"][F]["outputs"][0].clone();
        }),
        row("back before it is there", no, |json| {
            json["nodes"][BACK]["inputs"][0] = json["nodes"][G]["outputs"][0].clone();
        }),
        row("one operand", "copies more than one value", node(OUT, "inputs", json!([5, 0]))),
        row("operator", no, node(OUT, "op", "Other".into())),
        row("domain", no, node(OUT, "domain", "other".into())),
        row("cost", no, node(BACK, "cost", 319.into())),
        row("purity", no, node(OUT, "pure", false.into())),
        row("effects", no, node(OUT, "in_place", json!([{"input": 0, "output": 0}]))),
        row("form of the copy", no, |json| {
            let made = json["nodes"][OUT]["outputs"][0].as_u64().unwrap();
            json["values"][usize::try_from(made).unwrap()]["shape"] = json!([32, 2]);
        }),
        row("form of what comes back", no, |json| {
            let made = json["nodes"][BACK]["outputs"][0].as_u64().unwrap();
            json["values"][usize::try_from(made).unwrap()]["dtype"] = "int8".into();
        }),
        row("memory of the copy", no, |json| {
            let made = json["nodes"][OUT]["outputs"][0].as_u64().unwrap();
            json["values"][usize::try_from(made).unwrap()]["space"] = 0.into();
        }),
        row("memory of what comes back", no, |json| {
            let made = json["nodes"][BACK]["outputs"][0].as_u64().unwrap();
            json["values"][usize::try_from(made).unwrap()]["space"] = 1.into();
        }),
    ]);
    refuse_plans(vec![
        row("a value that is there", "copies a value that is not there", |json| {
            json["recomputed"]["schedule"][2] = json!({"out": 99});
        }),
        row("a slow memory", "copies a value, and the plan has no slow memory", |json| {
            json["recomputed"].as_object_mut().unwrap().remove("paging");
        }),
        row("its value", content, |json| {
            json["recomputed"]["schedule"][2] = json!({"out": 4});
            json["recomputed"]["schedule"][5] = json!({"in": 4});
        }),
        row("a value that a node makes", content, |json| {
            json["recomputed"]["schedule"][2] = json!({"out": 0});
            json["recomputed"]["schedule"][5] = json!({"in": 0});
        }),
        row("the direction", no, |json| {
            let schedule = json["recomputed"]["schedule"].as_array_mut().unwrap();
            schedule.swap(2, 5);
        }),
    ]);
}

#[test]
fn a_copy_of_an_input_is_refused() {
    // The content of an input is that of no node, and equal to none.
    let case = case();
    let executions = changed(&case.executions, |json| json["nodes"][OUT]["inputs"][0] = 0.into());
    let plan = forge(&case.plan, |json| {
        json["recomputed"]["schedule"][2] = json!({"out": 0});
    });
    let case = Case { plan: plan.unwrap(), executions, ..case };
    let wrong = verify("an input", &case, "'g.out' copies another content");
    assert_eq!(wrong, None);
}

#[test]
fn extra_work_is_what_the_schedule_costs() {
    let extra = "its extra work is 643 beside 7";
    let set =
        |field: &'static str, to: u64| move |json: &mut Json| json["recomputed"][field] = to.into();
    let floor = case().plan.spaces()[0].arena_bytes;
    refuse_plans(vec![
        row("cost of the nodes", extra, set("cost", 8)),
        row("cost of the rest", extra, set("extra_cost", 642)),
        row("its bound", "its extra work of 643 is below its bound", set("extra_bound", 644)),
        row("its floor", "its arena is below its floor", set("floor", floor + 1)),
        row("cost of a byte", "does not copy its value", |json| {
            json["recomputed"]["paging"]["cost"] = 6.into();
        }),
        row("name of the memory", "does not copy its value", |json| {
            json["recomputed"]["paging"]["space"] = "arena".into();
        }),
    ]);
}
