//! Rules of `check/mod.rs`: identity of the graph, steps, places, alignments, workspaces.

use arenaplan::base::Alignment;
use arenaplan::graph::{Choice, View, Whole, Workspace};
use arenaplan::pack::Space;
use arenaplan::plan::WorkspacePolicy;
use arenaplan::{DType, Effects, Graph, Node, NodeId, Plan, Techniques, Value, ValueKind};
use serde_json::json;

use super::{accept, put, raw, refuse, row, share, step, value};
use crate::graphs::{Sketch, in_place, reshape};
use crate::planners::ideal_planner;

type Case = (Graph, Plan);

fn planned(graph: Graph) -> Case {
    let plan = ideal_planner().plan(&graph).unwrap();
    (graph, plan)
}

/// x -> a -> c, and d from a, which c reads too; one constant behind all.
fn plain() -> Case {
    let mut sketch = Sketch::new();
    let x = sketch.input("x", 128);
    let a = sketch.node("a", &[x], 256);
    let d = sketch.node("d", &[a], 64);
    let c = sketch.node("c", &[a, d], 64);
    sketch.value("k", ValueKind::Constant, 64);
    planned(sketch.build(&[c]))
}

/// Two nodes of which the second waits for the first, though it reads nothing of it.
fn waiting() -> Case {
    let mut sketch = Sketch::new();
    let x = sketch.input("x", 64);
    let a = sketch.node("a", &[x], 64);
    let b = sketch.value("b", ValueKind::Activation, 64);
    let node = Node::new("b", "Op").reads([x]).writes([b]).after([NodeId::new(0)]);
    sketch.builder.add_node(node);
    planned(sketch.build(&[a, b]))
}

/// A node that reads a state, and one that writes it afterwards.
fn stateful() -> Case {
    let mut sketch = Sketch::new();
    let s = sketch.value("s", ValueKind::State, 64);
    let r = sketch.node("r", &[s], 64);
    let m = sketch.effectful("m", &[s], 64, Effects { mutates: vec![0], ..Effects::default() });
    planned(sketch.build(&[r, m]))
}

/// a may be overwritten by b, which is something else.
fn overwriting() -> Case {
    let mut sketch = Sketch::new();
    let x = sketch.input("x", 64);
    let a = sketch.node("a", &[x], 64);
    let b = sketch.effectful("b", &[a], 64, in_place(0));
    planned(sketch.build(&[b]))
}

/// r shows all of a.
fn showing() -> Case {
    let mut sketch = Sketch::new();
    let x = sketch.input("x", 64);
    let a = sketch.node("a", &[x], 64);
    let r = sketch.effectful("r", &[a], 64, reshape());
    let c = sketch.node("c", &[r], 64);
    planned(sketch.build(&[c]))
}

fn pinned(alignment: u64) -> Case {
    let mut builder = Graph::builder("pinned");
    let array = |name, kind| Value::new(name, kind, DType::UINT8, [64]).unwrap();
    let x = builder.add_value(array("x", ValueKind::Input).with_pin(128));
    let y = array("y", ValueKind::Activation).with_alignment(Alignment::new(alignment).unwrap());
    let y = builder.add_value(y);
    builder.add_node(Node::new("n", "Op").reads([x]).writes([y]));
    builder.add_output(y);
    planned(builder.build().unwrap())
}

/// Four floats at a distance in an array of bytes that shows them.
fn piece_of(offset: u64) -> Case {
    let mut builder = Graph::builder("piece");
    let array = |name, kind, bytes| Value::new(name, kind, DType::UINT8, [bytes]).unwrap();
    let x = builder.add_value(array("x", ValueKind::Input, 64));
    let a = builder.add_value(array("a", ValueKind::Activation, 64));
    let f = Value::new("f", ValueKind::Activation, DType::FLOAT32, [4]).unwrap();
    let f = builder.add_value(f);
    let y = builder.add_value(array("y", ValueKind::Activation, 64));
    builder.add_node(Node::new("a", "Op").reads([x]).writes([a]));
    let view = View { input: 0, output: 0, offset, whole: Whole::Input };
    let effects = Effects { views: vec![view], ..Effects::default() };
    builder.add_node(Node::new("f", "Op").reads([a]).writes([f]).with_effects(effects));
    builder.add_node(Node::new("y", "Op").reads([a, f]).writes([y]));
    builder.add_output(y);
    let graph = builder.build().unwrap();
    let plan = ideal_planner().optimize(Techniques::NONE).plan(&graph).unwrap();
    (graph, plan)
}

fn workspace(bytes: &[u64], alignment: u64) -> Workspace {
    let choices =
        bytes.iter().map(|&bytes| Choice { bytes, cost: 1.0 / (1.0 + bytes as f64) }).collect();
    Workspace { choices, alignment: Alignment::new(alignment).unwrap() }
}

/// A node with two workspaces, one of them with a choice.
fn working(policy: WorkspacePolicy, alignment: u64) -> Case {
    let mut sketch = Sketch::new();
    let x = sketch.input("x", 64);
    let workspaces = vec![workspace(&[128], alignment), workspace(&[64], 1)];
    let y = sketch.effectful("y", &[x], 64, Effects { workspaces, ..Effects::default() });
    let graph = sketch.build(&[y]);
    let plan = ideal_planner().workspace(policy).plan(&graph).unwrap();
    (graph, plan)
}

fn swap_steps(json: &mut serde_json::Value) {
    json["steps"].as_array_mut().unwrap().swap(0, 1);
}

#[test]
fn the_graph_and_its_steps_are_those_of_the_plan() {
    const KIND: &str = "PlanMismatch";
    refuse(vec![
        row("digest", plain(), KIND, "it was made for 'sketch', whose digest", |json| {
            json["digest"] = "0".repeat(64).into();
        }),
        row("number of values", plain(), KIND, "the graph has 5 values", |json| {
            json["value_count"] = 6.into();
        }),
        row("control dependencies", waiting(), KIND, "does not run every node after", swap_steps),
        row("states", stateful(), KIND, "node 'm' runs before 'r', and they share", swap_steps),
        row("names of steps", plain(), KIND, "node 'd' has other operands", |json| {
            step(json, "d")["name"] = "e".into();
        }),
        row("operands read", plain(), KIND, "node 'd' has other operands", |json| {
            step(json, "d")["inputs"] = json!([0]);
        }),
        row("operands written", plain(), KIND, "node 'c' has other operands", |json| {
            step(json, "c")["outputs"] = json!([3, null]);
        }),
        row(
            "undeclared share",
            plain(),
            KIND,
            "node 'a' cannot put output 0 into input 0",
            |json| {
                step(json, "a")["shares"] = share(0, "in-place");
            },
        ),
        row("identities are views", overwriting(), KIND, "node 'b' cannot put output 0", |json| {
            assert_eq!(step(json, "b")["shares"], share(0, "in-place"));
            step(json, "b")["shares"] = share(0, "view");
        }),
        row("undeclared overlap", overwriting(), KIND, "node 'b' cannot put output 0", |json| {
            step(json, "b")["shares"] = share(0, "overlap");
        }),
    ]);
}

#[test]
fn exactly_the_values_of_the_arena_have_places() {
    const KIND: &str = "PlanMismatch";
    refuse(vec![
        row("a value without a place", plain(), KIND, "value 'c' has no place", |json| {
            json["values"].as_array_mut().unwrap().pop();
        }),
        row("rows of other values", plain(), KIND, "where value 'd' should be placed", |json| {
            json["values"].as_array_mut().unwrap().remove(2);
        }),
        row(
            "names of values",
            plain(),
            KIND,
            "where value 'd' should be placed it places 'e'",
            |json| {
                value(json, "d")["name"] = "e".into();
            },
        ),
        row("constants have no place", plain(), KIND, "it places 'k' too", |json| {
            let place = json!({"value": 4, "name": "k", "space": 0, "offset": 0, "bytes": 64,
                               "live": [0, 1]});
            json["values"].as_array_mut().unwrap().push(place);
        }),
        row("planned bytes", plain(), KIND, "value 'a' has 256 bytes, planned were 64", |json| {
            value(json, "a")["bytes"] = 64.into();
        }),
        raw("live ranges", plain(), KIND, "value 'a' is live in steps 0..3", |json| {
            value(json, "a")["live"] = json!([0, 2]);
        }),
        row("pins", pinned(1), KIND, "value 'x' is not where it is pinned", |json| {
            value(json, "x")["offset"] = 256.into();
        }),
    ]);
}

#[test]
fn places_are_aligned_and_inside_of_their_arena() {
    const KIND: &str = "PlanMisaligned";
    let aligned_space = || {
        let mut builder = Graph::builder("aligned");
        let space = Space::new("arena").with_alignment(Alignment::new(128).unwrap());
        builder.set_default_space(space);
        let array = |name, kind| Value::new(name, kind, DType::UINT8, [64]).unwrap();
        let x = builder.add_value(array("x", ValueKind::Input));
        let y = builder.add_value(array("y", ValueKind::Activation));
        builder.add_node(Node::new("n", "Op").reads([x]).writes([y]));
        builder.add_output(y);
        planned(builder.build().unwrap())
    };
    accept("a piece", piece_of(4), |json| {
        put(json, "f", "a", 4);
        step(json, "f")["shares"] = share(0, "view");
        json["spaces"][0]["lower_bound"] = 0.into();
    });
    refuse(vec![
        row("general alignment", plain(), KIND, "multiple of its alignment 64", |json| {
            value(json, "d")["offset"] = (1024 + 32).into();
        }),
        row(
            "a view at distance 0",
            showing(),
            KIND,
            "value 'a' is at offset 1056, which",
            |json| {
                for name in ["a", "r"] {
                    value(json, name)["offset"] = 1056.into();
                }
            },
        ),
        row(
            "alignment of the value",
            pinned(128),
            KIND,
            "'y' is at offset 64, which is not a multiple of its alignment 128",
            |json| {
                value(json, "y")["offset"] = 64.into();
            },
        ),
        row("alignment of elements", piece_of(2), KIND, "multiple of its alignment 4", |json| {
            put(json, "f", "a", 2);
            step(json, "f")["shares"] = share(0, "view");
        }),
        row(
            "alignment of the space",
            aligned_space(),
            KIND,
            "multiple of its alignment 128",
            |json| {
                value(json, "y")["offset"] = (1024 + 64).into();
            },
        ),
        row(
            "alignment of workspaces",
            working(WorkspacePolicy::Auto, 128),
            KIND,
            "workspace 0 of node 'y' is at offset 1088, which is not a multiple of its alignment 128",
            |json| {
                json["workspaces"][0]["offset"] = (1024 + 64).into();
            },
        ),
        raw(
            "the end of the arena",
            plain(),
            "PlanOutOfBounds",
            "value 'd' occupies bytes 1024..1088",
            |json| {
                value(json, "d")["offset"] = 1024.into();
            },
        ),
    ]);
}

#[test]
fn workspaces_are_those_of_the_nodes() {
    const KIND: &str = "PlanMismatch";
    let auto = || working(WorkspacePolicy::Auto, 1);
    let outside = || {
        let (graph, _) = auto();
        let planner = ideal_planner().workspace(WorkspacePolicy::Auto);
        let plan = planner.outputs(arenaplan::plan::OutputMemory::Caller).plan(&graph).unwrap();
        (graph, plan)
    };
    refuse(vec![
        row("a workspace left out", auto(), KIND, "workspace 1 of node 'y' has no place", |json| {
            json["workspaces"].as_array_mut().unwrap().pop();
        }),
        row(
            "the slot",
            auto(),
            KIND,
            "workspace 1 of node 'y' is not where it should be",
            |json| {
                json["workspaces"][1]["slot"] = 2.into();
            },
        ),
        row("the size", auto(), KIND, "workspace 0 of node 'y' has no such size", |json| {
            json["workspaces"][0]["bytes"] = 64.into();
        }),
        row("the choice", auto(), KIND, "workspace 0 of node 'y' has no such size", |json| {
            json["workspaces"][0]["choice"] = 1.into();
        }),
        row(
            "one too many",
            working(WorkspacePolicy::None, 1),
            KIND,
            "node 0 has no such workspace",
            |json| {
                json["workspaces"] = json!([{"node": 0, "slot": 0, "choice": 0, "space": 0,
                                         "offset": 1024, "bytes": 128}]);
            },
        ),
        row(
            "memory of the caller",
            outside(),
            "PlanCorrupt",
            "a workspace of node 0 is in no arena",
            |json| {
                json["workspaces"][1]["space"] = 1.into();
                json["workspaces"][1]["offset"] = 0.into();
            },
        ),
        row(
            "staging memory",
            overwriting_in_pieces(),
            KIND,
            "node 'b' has no scratch memory to overlap with",
            |json| {
                step(json, "b")["shares"] = share(0, "overlap");
            },
        ),
    ]);
}

/// b may overlap a at a distance, but nobody knows with which scratch memory.
fn overwriting_in_pieces() -> Case {
    let mut sketch = Sketch::new();
    let x = sketch.input("x", 64);
    let a = sketch.node("a", &[x], 64);
    let flow = arenaplan::graph::Flow { output: 0, pieces: 8, follows: vec![0] };
    let b = sketch.effectful("b", &[a], 64, Effects { flows: vec![flow], ..Effects::default() });
    let graph = sketch.build(&[b]);
    let plan = ideal_planner().workspace(WorkspacePolicy::Auto).plan(&graph).unwrap();
    (graph, plan)
}
