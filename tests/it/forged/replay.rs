//! Rules of `check/replay.rs` and `check/races.rs`: what the run finds in memory.

use arenaplan::graph::{Choice, Flow, InPlace, View, Whole, Workspace};
use arenaplan::plan::WorkspacePolicy;
use arenaplan::{Effects, Graph, Node, Plan, Technique, Techniques, ValueKind};

use super::{accept, put, refuse, row, share, step, value};
use crate::graphs::{Sketch, in_place, reshape};
use crate::planners::ideal_planner;

type Case = (Graph, Plan);

const KIND: &str = "PlanOverlap";

fn planned(graph: Graph) -> Case {
    let plan = ideal_planner().optimize(Techniques::NONE).plan(&graph).unwrap();
    (graph, plan)
}

fn mutating(position: usize) -> Effects {
    Effects { mutates: vec![position], ..Effects::default() }
}

/// r reads a state; a and y are made when it has been read.
fn state() -> Case {
    let mut sketch = Sketch::new();
    let s = sketch.value("s", ValueKind::State, 64);
    let r = sketch.node("r", &[s], 64);
    let a = sketch.node("a", &[r], 64);
    let y = sketch.node("y", &[a], 64);
    planned(sketch.build(&[y]))
}

/// x is read once; a and y are made when it has been read.
fn kept_input() -> Case {
    let mut sketch = Sketch::new();
    let x = sketch.input("x", 64);
    let r = sketch.node("r", &[x], 64);
    let a = sketch.node("a", &[r], 64);
    let y = sketch.node("y", &[a], 64);
    let graph = sketch.build(&[y]);
    let planner = ideal_planner().optimize(Techniques::NONE).preserve_inputs(true);
    let plan = planner.plan(&graph).unwrap();
    (graph, plan)
}

/// r shows a state that is written before r is read.
fn shown_state() -> Case {
    let mut sketch = Sketch::new();
    let s = sketch.value("s", ValueKind::State, 64);
    let r = sketch.effectful("r", &[s], 64, reshape());
    let m = sketch.effectful("m", &[s], 64, mutating(0));
    let y = sketch.node("y", &[r, m], 64);
    planned(sketch.build(&[y]))
}

/// m reads a and writes a state that it does not read.
fn written_state() -> Case {
    let mut sketch = Sketch::new();
    let s = sketch.value("s", ValueKind::State, 64);
    let c = sketch.input("c", 64);
    let a = sketch.node("a", &[c], 64);
    let effects = Effects { mutates: vec![0], ignores: vec![0], ..Effects::default() };
    let m = sketch.effectful("m", &[s, a], 64, effects);
    planned(sketch.build(&[m]))
}

/// y may take over the first operand, not the second.
fn difference() -> Case {
    let mut sketch = Sketch::new();
    let x = sketch.input("x", 64);
    let a = sketch.node("a", &[x], 128);
    let b = sketch.node("b", &[x], 128);
    let y = sketch.effectful("y", &[a, b], 128, in_place(0));
    planned(sketch.build(&[y]))
}

/// y goes through the first operand piece by piece, and needs the second whole.
fn product() -> Case {
    let mut sketch = Sketch::new();
    let x = sketch.input("x", 64);
    let a = sketch.node("a", &[x], 128);
    let b = sketch.node("b", &[x], 128);
    let flow = Flow { output: 0, pieces: 8, follows: vec![0] };
    let y =
        sketch.effectful("y", &[a, b], 128, Effects { flows: vec![flow], ..Effects::default() });
    planned(sketch.build(&[y]))
}

/// n makes a concatenation of a and b, and something in place of a that nobody reads.
fn shown_and_overwritten() -> Case {
    let mut sketch = Sketch::new();
    let x = sketch.input("x", 64);
    let a = sketch.node("a", &[x], 64);
    let b = sketch.node("b", &[x], 64);
    let c = sketch.value("c", ValueKind::Activation, 128);
    let d = sketch.value("d", ValueKind::Activation, 64);
    let view = |input, offset| View { input, output: 0, offset, whole: Whole::Output };
    let effects = Effects {
        views: vec![view(0, 0), view(1, 64)],
        in_place: vec![InPlace { input: 0, output: 1, identity: false }],
        ..Effects::default()
    };
    let node = Node::new("n", "Op").reads([a, b]).writes([c, d]);
    sketch.builder.add_node(node.with_effects(effects));
    let y = sketch.node("y", &[c], 64);
    planned(sketch.build(&[y]))
}

fn show_pieces(json: &mut serde_json::Value) {
    value(json, "c")["offset"] = 1024.into();
    put(json, "a", "c", 0);
    put(json, "b", "c", 64);
    let view = |input: u32| serde_json::json!({"input": input, "output": 0, "rule": "view"});
    step(json, "n")["shares"] = serde_json::json!([view(0), view(1)]);
}

#[test]
fn what_a_step_shows_it_does_not_overwrite() {
    accept("pieces of a concatenation", shown_and_overwritten(), |json| {
        show_pieces(json);
        json["spaces"][0]["lower_bound"] = 0.into();
    });
    refuse(vec![row(
        "an output in place of a piece that is shown",
        shown_and_overwritten(),
        KIND,
        "value 'd'",
        |json| {
            show_pieces(json);
            put(json, "d", "a", 0);
            let in_place = serde_json::json!({"input": 0, "output": 1, "rule": "in-place"});
            step(json, "n")["shares"].as_array_mut().unwrap().push(in_place);
            json["spaces"][0]["lower_bound"] = 0.into();
        },
    )]);
}

/// One node with two results.
fn twins() -> Case {
    let mut sketch = Sketch::new();
    let x = sketch.input("x", 64);
    let a = sketch.value("a", ValueKind::Activation, 64);
    let b = sketch.value("b", ValueKind::Activation, 64);
    sketch.builder.add_node(Node::new("twins", "Split").reads([x]).writes([a, b]));
    let y = sketch.node("y", &[a], 64);
    planned(sketch.build(&[y]))
}

fn working() -> Case {
    let mut sketch = Sketch::new();
    let choices = vec![Choice { bytes: 64, cost: 1.0 }];
    let workspaces = vec![Workspace { choices, alignment: arenaplan::base::Alignment::BYTE }; 2];
    let x = sketch.input("x", 64);
    let y = sketch.effectful("y", &[x], 64, Effects { workspaces, ..Effects::default() });
    let graph = sketch.build(&[y]);
    let planner = ideal_planner().optimize(Techniques::NONE).workspace(WorkspacePolicy::Auto);
    let plan = planner.plan(&graph).unwrap();
    (graph, plan)
}

/// a is an output, and another node runs behind it.
fn early() -> Case {
    let mut sketch = Sketch::new();
    let x = sketch.input("x", 64);
    let a = sketch.node("a", &[x], 64);
    let b = sketch.node("b", &[x], 64);
    let y = sketch.node("y", &[b], 64);
    planned(sketch.build(&[a, y]))
}

/// An output that shows another value with a copy of its own.
fn copies() -> Case {
    let mut sketch = Sketch::new();
    let x = sketch.input("x", 64);
    let a = sketch.node("a", &[x], 64);
    let r = sketch.effectful("r", &[a], 64, reshape());
    let y = sketch.node("y", &[a, r], 64);
    planned(sketch.build(&[y]))
}

/// Two nodes of which either may run first.
fn branches() -> Case {
    let mut sketch = Sketch::new();
    let x = sketch.input("x", 64);
    let a = sketch.node("a", &[x], 64);
    let b = sketch.node("b", &[a], 64);
    let c = sketch.node("c", &[x], 64);
    let d = sketch.node("d", &[c], 64);
    let y = sketch.node("y", &[b, d], 64);
    planned(sketch.build(&[y]))
}

#[test]
fn every_read_finds_its_own_value() {
    let onto = |name: &'static str, other: &'static str, distance| {
        move |json: &mut serde_json::Value| put(json, name, other, distance)
    };
    let with = |name: &'static str, other: &'static str, rule: &'static str| {
        move |json: &mut serde_json::Value| {
            put(json, name, other, 0);
            step(json, name)["shares"] = share(0, rule);
        }
    };
    refuse(vec![
        row(
            "states at the end",
            state(),
            KIND,
            "value 's' and value 'y' share byte",
            onto("y", "s", 0),
        ),
        row(
            "kept inputs at the end",
            kept_input(),
            KIND,
            "value 'x' and value 'y' share byte",
            onto("y", "x", 0),
        ),
        row(
            "outputs at the end",
            early(),
            KIND,
            "value 'a' and value 'y' share byte",
            onto("y", "a", 0),
        ),
        row(
            "operands",
            difference(),
            KIND,
            "value 'a' and value 'b' share byte",
            onto("b", "a", 0),
        ),
        row(
            "supplied values",
            state_and_input(),
            KIND,
            "value 's' and value 'x' share byte",
            onto("x", "s", 0),
        ),
        row(
            "a state is not shown",
            shown_state(),
            KIND,
            "value 's' and value 'r' share byte",
            with("r", "s", "view"),
        ),
        row(
            "states onto operands",
            written_state(),
            KIND,
            "value 'a' and value 's' share byte",
            onto("a", "s", 0),
        ),
        row(
            "the declared pair",
            difference(),
            KIND,
            "value 'b' and value 'y' share byte",
            with("y", "b", "in-place"),
        ),
        row(
            "the plan's share",
            difference(),
            KIND,
            "value 'a' and value 'y' share byte",
            onto("y", "a", 0),
        ),
        row(
            "in place from the start",
            difference(),
            KIND,
            "value 'a' and value 'y' share byte",
            |json| {
                value(json, "a")["offset"] = 1024.into();
                value(json, "b")["offset"] = 2048.into();
                value(json, "y")["offset"] = (1024 + 64).into();
                step(json, "y")["shares"] = share(0, "in-place");
            },
        ),
        row(
            "the followed input",
            product(),
            KIND,
            "value 'b' and value 'y' share byte",
            with("y", "b", "overlap"),
        ),
        row("the distance", product(), KIND, "value 'a' and value 'y' share byte", |json| {
            value(json, "a")["offset"] = 1024.into();
            value(json, "b")["offset"] = 4096.into();
            value(json, "y")["offset"] = (1024 + 64).into();
            step(json, "y")["shares"] = share(0, "overlap");
        }),
        row("two outputs", twins(), KIND, "value 'a' and value 'b' share byte", onto("b", "a", 0)),
        row("a workspace and an output", working(), KIND, "share byte", |json| {
            json["workspaces"][0]["offset"] = value(json, "y")["offset"].clone();
        }),
        row("two workspaces", working(), KIND, "share byte", |json| {
            json["workspaces"][0]["offset"] = json["workspaces"][1]["offset"].clone();
        }),
        row(
            "a workspace and an operand",
            working(),
            KIND,
            "value 'x' and workspace 0 of node 'y'",
            |json| {
                json["workspaces"][0]["offset"] = value(json, "x")["offset"].clone();
            },
        ),
        row(
            "copies onto their source",
            copies(),
            KIND,
            "value 'a' and value 'r' share byte",
            onto("r", "a", 0),
        ),
        row("every order", branches(), KIND, "what node", |json| {
            json["options"]["parallel_safe"] = true.into();
        }),
    ]);
}

fn state_and_input() -> Case {
    let mut sketch = Sketch::new();
    let s = sketch.value("s", ValueKind::State, 64);
    let x = sketch.input("x", 64);
    let y = sketch.node("y", &[s, x], 64);
    planned(sketch.build(&[y]))
}

/// The in-place pair is one of identity: what is written equals what was there.
#[test]
fn an_identity_is_a_view_only_of_a_value_of_its_size() {
    let mut sketch = Sketch::new();
    let x = sketch.input("x", 128);
    let a = sketch.node("a", &[x], 128);
    let pair = InPlace { input: 0, output: 0, identity: true };
    let effects = Effects { in_place: vec![pair], ..Effects::default() };
    let r = sketch.effectful("r", &[a], 64, effects);
    let y = sketch.node("y", &[a, r], 64);
    let case = planned(sketch.build(&[y]));
    refuse(vec![row(
        "size of an identity",
        case,
        KIND,
        "value 'a' and value 'r' share byte",
        |json| {
            put(json, "r", "a", 0);
            step(json, "r")["shares"] = share(0, "view");
        },
    )]);
    assert!(Techniques::NONE.iter().all(|technique| technique != Technique::Views));
}
