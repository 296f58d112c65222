//! Rules of `check/continued_steps.rs`: the steps that a runner performs with the step before.

use arenaplan::graph::Flow;
use arenaplan::{Effects, Graph, Node, Plan, Target, Techniques, ValueId, ValueKind};
use serde_json::{Value as Json, json};

use super::{accept, put, refuse, row, share, step, value};
use crate::graphs::{Sketch, in_place, reshape};
use crate::planners::ideal_planner;

type Case = (Graph, Plan);

const REFUSED: &str = "node 'y' cannot continue the step before";

fn planned(sketch: Sketch, outputs: &[ValueId]) -> Case {
    let graph = sketch.build(outputs);
    let plan = ideal_planner().optimize(Techniques::NONE).alignment(1).plan(&graph).unwrap();
    (graph, plan)
}

/// i -> a -> y, of which i and a are made in pieces, and y has some effects.
fn chain(effects: Effects) -> Case {
    let mut sketch = Sketch::new();
    let x = sketch.input("x", 64);
    let pieces = || Effects {
        flows: vec![Flow { output: 0, pieces: 64, follows: vec![0] }],
        ..Effects::default()
    };
    let i = sketch.effectful("i", &[x], 64, pieces());
    let a = sketch.effectful("a", &[i], 64, pieces());
    let y = sketch.effectful("y", &[a], 64, effects);
    planned(sketch, &[y])
}

/// Node a writes the values a and b, of which node y reads the first.
fn two_results() -> Case {
    let mut sketch = Sketch::new();
    let x = sketch.input("x", 64);
    let made = ["a", "b"].map(|name| sketch.value(name, ValueKind::Activation, 64));
    sketch.builder.add_node(Node::new("a", "Op").reads([x]).writes(made));
    let y = sketch.effectful("y", &made[..1], 64, in_place(0));
    planned(sketch, &[y, made[1]])
}

/// Node a also updates a state.
fn updates() -> Case {
    let mut sketch = Sketch::new();
    let x = sketch.input("x", 64);
    let s = sketch.value("s", ValueKind::State, 64);
    let effects = Effects { mutates: vec![1], ..Effects::default() };
    let a = sketch.effectful("a", &[x, s], 64, effects);
    let y = sketch.effectful("y", &[a], 64, in_place(0));
    planned(sketch, &[y])
}

/// Node y reads x, and nothing reads a.
fn unread() -> Case {
    let mut sketch = Sketch::new();
    let x = sketch.input("x", 64);
    sketch.node("a", &[x], 64);
    let y = sketch.node("y", &[x], 64);
    planned(sketch, &[y])
}

fn continued(json: &mut Json) {
    step(json, "y")["continues"] = true.into();
}

/// Puts y over a, and lets y continue the step of a.
fn over(rule: &'static str) -> impl Fn(&mut Json) {
    move |json: &mut Json| {
        step(json, "y")["shares"] = share(0, rule);
        put(json, "y", "a", 0);
        continued(json);
    }
}

#[test]
fn a_step_that_replaces_the_result_before_continues_that_step() {
    let plan = accept("in place", chain(in_place(0)), over("in-place"));
    assert_eq!(plan.continued(), [plan.steps()[2].nodes().next().unwrap()]);
    let refused = plan.check_target(&Target::NODES).unwrap_err();
    assert!(refused.to_string().contains("step 'y' runs several nodes as one"), "{refused}");
}

#[test]
fn no_other_step_continues_the_step_before() {
    let kind = "PlanMismatch";
    refuse(vec![
        row("elsewhere", chain(in_place(0)), kind, REFUSED, continued),
        row("the same content", chain(reshape()), kind, REFUSED, over("view")),
        row("one of two results", two_results(), kind, REFUSED, over("in-place")),
        row("an update", updates(), kind, REFUSED, over("in-place")),
        row("another operand", unread(), kind, REFUSED, |json| {
            put(json, "y", "a", 0);
            continued(json);
        }),
        row("a group", chain(in_place(0)), kind, REFUSED, |json| {
            value(json, "a")["offset"] = 4096.into();
            over("in-place")(json);
            let steps = json["steps"].as_array_mut().unwrap();
            let first = steps.remove(0);
            steps[0]["fused"] = json!([first["node"]]);
            steps[0]["inputs"] = first["inputs"].clone();
            let made = first["outputs"][0].clone();
            json["values"].as_array_mut().unwrap().retain(|row| row["value"] != made);
            json.as_object_mut().unwrap().remove("search");
            json["spaces"][0]["lower_bound"] = 0.into();
        }),
        row("no step before", chain(in_place(0)), kind, "node 'i' cannot continue", |json| {
            step(json, "i")["continues"] = true.into();
        }),
    ]);
}
