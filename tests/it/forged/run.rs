//! More rules of `check/replay.rs`: plans in which only the run itself finds the flaw, since the
//! values in question share bytes as the plan says.

use arenaplan::graph::{InPlace, View, Whole};
use arenaplan::{Effects, Graph, Node, Plan, Techniques, ValueId, ValueKind};
use serde_json::{Value as Json, json};

use super::{accept, put, refuse, row, share, step, value};
use crate::graphs::{Sketch, in_place};
use crate::planners::ideal_planner;

type Case = (Graph, Plan);

const KIND: &str = "PlanOverlap";

fn planned(sketch: Sketch, outputs: &[ValueId]) -> Case {
    let graph = sketch.build(outputs);
    let plan = ideal_planner().optimize(Techniques::NONE).plan(&graph).unwrap();
    (graph, plan)
}

fn pair(input: usize, output: usize, identity: bool) -> InPlace {
    InPlace { input, output, identity }
}

fn pairs(in_place: Vec<InPlace>) -> Effects {
    Effects { in_place, ..Effects::default() }
}

/// y may be written over x, which the caller wants to keep.
fn kept() -> Case {
    let mut sketch = Sketch::new();
    let x = sketch.input("x", 64);
    let y = sketch.effectful("y", &[x], 64, in_place(0));
    let graph = sketch.build(&[y]);
    let planner = ideal_planner().optimize(Techniques::NONE).preserve_inputs(true);
    let plan = planner.plan(&graph).unwrap();
    (graph, plan)
}

/// The state s becomes w, without being read before.
fn assigned() -> Case {
    let mut sketch = Sketch::new();
    let s = sketch.value("s", ValueKind::State, 64);
    let w = sketch.input("w", 64);
    let effects = Effects { mutates: vec![0], ignores: vec![0], ..pairs(vec![pair(1, 0, true)]) };
    let m = sketch.effectful("m", &[s, w], 64, effects);
    planned(sketch, &[m])
}

/// Both outputs of a node may be written over its inputs; y reads the second.
fn two_outputs(inputs: &[&str], in_place: Vec<InPlace>) -> Case {
    let mut sketch = Sketch::new();
    let inputs: Vec<_> = inputs.iter().map(|name| sketch.input(name, 64)).collect();
    let [a, b] = ["a", "b"].map(|name| sketch.value(name, ValueKind::Activation, 64));
    let node = Node::new("n", "Op").reads(inputs).writes([a, b]).with_effects(pairs(in_place));
    sketch.builder.add_node(node);
    let y = sketch.node("y", &[b], 64);
    planned(sketch, &[y])
}

/// r equals a or b. Both are read after it.
fn either() -> Case {
    let mut sketch = Sketch::new();
    let x = sketch.input("x", 64);
    let [a, b] = ["a", "b"].map(|name| sketch.node(name, &[x], 64));
    let r = sketch.effectful("r", &[a, b], 64, pairs(vec![pair(0, 0, true), pair(1, 0, true)]));
    let y = sketch.node("y", &[a, b, r], 64);
    planned(sketch, &[y])
}

/// c consists of r and one half of a, in the order of that half.
fn spliced(half: usize) -> Case {
    let mut sketch = Sketch::new();
    let x = sketch.input("x", 64);
    let a = sketch.node("a", &[x], 128);
    let r = sketch.node("r", &[x], 64);
    let offset = 64 * half as u64;
    let slice = View { input: 0, output: 0, offset, whole: Whole::Input };
    let s = sketch.effectful("s", &[a], 64, Effects { views: vec![slice], ..Effects::default() });
    let view = View { input: 0, output: 0, offset, whole: Whole::Output };
    let c =
        sketch.effectful("c", &[s, r], 128, Effects { views: vec![view], ..Effects::default() });
    let y = sketch.node("y", &[c, a], 64);
    planned(sketch, &[y])
}

/// Puts s at its half of a, and c at an address.
fn splice(half: u64, at: u64) -> impl Fn(&mut Json) {
    move |json| {
        value(json, "a")["offset"] = 4096.into();
        value(json, "r")["offset"] = 8192.into();
        value(json, "y")["offset"] = 12288.into();
        put(json, "s", "a", 64 * half);
        value(json, "c")["offset"] = at.into();
        step(json, "s")["shares"] = share(0, "view");
        step(json, "c")["shares"] = share(0, "view");
        json["spaces"][0]["lower_bound"] = 0.into();
    }
}

/// Puts values where another one is, which a step says with its shares.
fn onto(
    names: &'static [&'static str],
    other: &'static str,
    node: &'static str,
    shares: Json,
) -> impl Fn(&mut Json) {
    move |json| {
        names.iter().for_each(|name| put(json, name, other, 0));
        step(json, node)["shares"] = shares.clone();
        json["spaces"][0]["lower_bound"] = 0.into();
    }
}

#[test]
fn shared_bytes_that_are_needed_are_not_overwritten() {
    let twice = || {
        let (first, second) = (pair(0, 0, false), pair(0, 1, false));
        two_outputs(&["x"], vec![first, second])
    };
    let both = json!([{"input": 0, "output": 0, "rule": "in-place"},
                      {"input": 0, "output": 1, "rule": "in-place"}]);
    refuse(vec![
        row(
            "in place of an input that is kept",
            kept(),
            KIND,
            "value 'x' and value 'y' share byte",
            onto(&["y"], "x", "y", share(0, "in-place")),
        ),
        row(
            "an input in the bytes of a state",
            assigned(),
            KIND,
            "value 's' and value 'w' share byte",
            onto(&["w", "m"], "s", "m", share(1, "view")),
        ),
        row(
            "two outputs in place of one input",
            twice(),
            KIND,
            "value 'a' and value 'b' share byte",
            onto(&["a", "b"], "x", "n", both),
        ),
        row(
            "an identity that is written",
            either(),
            KIND,
            "value 'a' and value 'r' share byte",
            onto(&["r"], "a", "r", share(0, "in-place")),
        ),
        row(
            "an identity that shows another operand",
            either(),
            KIND,
            "value 'a' and value 'r' share byte",
            onto(&["r"], "a", "r", share(1, "view")),
        ),
        row(
            "written ahead of what is shown",
            spliced(1),
            KIND,
            "value 'a' and value 'c' share byte",
            splice(1, 4096),
        ),
        row(
            "written behind what is shown",
            spliced(0),
            KIND,
            "value 'a' and value 'c' share byte",
            splice(0, 4096),
        ),
    ]);
    accept("the second of two identities", either(), onto(&["r"], "b", "r", share(1, "view")));
    let two = json!([{"input": 0, "output": 0, "rule": "in-place"},
                     {"input": 1, "output": 1, "rule": "in-place"}]);
    let each = two_outputs(&["x", "w"], vec![pair(0, 0, false), pair(1, 1, false)]);
    accept("each output in place of an input", each, move |json| {
        onto(&["a"], "x", "n", two.clone())(json);
        put(json, "b", "w", 0);
    });
}

/// c begins with the second half of a, and goes on behind a.
#[test]
fn what_is_shown_in_part_has_two_owners() {
    let mut sketch = Sketch::new();
    let x = sketch.input("x", 64);
    let a = sketch.node("a", &[x], 128);
    let r = sketch.node("r", &[x], 64);
    let slice = View { input: 0, output: 0, offset: 64, whole: Whole::Input };
    let s = sketch.effectful("s", &[a], 64, Effects { views: vec![slice], ..Effects::default() });
    let view = View { input: 0, output: 0, offset: 0, whole: Whole::Output };
    let c =
        sketch.effectful("c", &[s, r], 128, Effects { views: vec![view], ..Effects::default() });
    let y = sketch.node("y", &[c, a], 64);
    accept("half of it shown", planned(sketch, &[y]), splice(1, 4096 + 64));
}

/// c is a state and b one after the other, and s the second half of b within c.
#[test]
fn a_slice_of_a_concatenation_is_where_its_piece_is() {
    let mut sketch = Sketch::new();
    let t = sketch.value("t", ValueKind::State, 64);
    let x = sketch.input("x", 64);
    let b = sketch.node("b", &[x], 64);
    let view = |input, offset, whole| View { input, output: 0, offset, whole };
    let shows = |views| Effects { views, ..Effects::default() };
    let both = shows(vec![view(0, 0, Whole::Output), view(1, 64, Whole::Output)]);
    let c = sketch.effectful("c", &[t, b], 128, both);
    let s = sketch.effectful("s", &[c], 32, shows(vec![view(0, 96, Whole::Input)]));
    let y = sketch.node("y", &[s, c], 64);
    accept("a slice of the second piece", planned(sketch, &[y]), |json| {
        value(json, "x")["offset"] = 4096.into();
        value(json, "t")["offset"] = 0.into();
        put(json, "b", "t", 64);
        put(json, "c", "t", 0);
        put(json, "s", "t", 96);
        value(json, "y")["offset"] = 8192.into();
        step(json, "c")["shares"] = json!([{"input": 0, "output": 0, "rule": "view"},
                                           {"input": 1, "output": 0, "rule": "view"}]);
        step(json, "s")["shares"] = share(0, "view");
        json["spaces"][0]["lower_bound"] = 0.into();
    });
}

/// Nothing is in no bytes, wherever it is.
#[test]
fn empty_values_are_in_nobodys_way() {
    let mut sketch = Sketch::new();
    let x = sketch.input("x", 64);
    let e = sketch.node("e", &[x], 0);
    let [a, b] = [("a", 128), ("b", 0)]
        .map(|(name, bytes)| sketch.value(name, ValueKind::Activation, bytes));
    sketch.builder.add_node(Node::new("n", "Op").reads([x, e]).writes([a, b]));
    let y = sketch.node("y", &[a, b, e], 64);
    accept("inside of an output", planned(sketch, &[y]), |json| {
        put(json, "e", "a", 64);
        put(json, "b", "a", 64);
    });
}

/// c is written where x is, which a reads, and neither waits for the other.
#[test]
fn bytes_that_are_read_are_written_afterwards_in_every_order() {
    // The node that writes waits for no other node, or for one that is not in question.
    for waits in [false, true] {
        let mut sketch = Sketch::new();
        let [x, w] = ["x", "w"].map(|name| sketch.input(name, 64));
        let b = if waits { sketch.node("b", &[w], 64) } else { w };
        let a = sketch.node("a", &[x], 64);
        let c = sketch.node("c", &[b], 64);
        let y = sketch.node("y", &[a, c], 64);
        let case = planned(sketch, &[y]);
        let reused = move |json: &mut Json| {
            for (name, at) in [("w", 4096), ("a", 8192), ("y", 12288)] {
                value(json, name)["offset"] = at.into();
            }
            if waits {
                value(json, "b")["offset"] = 16384.into();
            }
            put(json, "c", "x", 0);
            json["spaces"][0]["lower_bound"] = 0.into();
        };
        accept("in one order", case.clone(), reused);
        let says = "what node 'a' uses and what node 'c' uses share byte";
        refuse(vec![row("in every order", case, KIND, says, move |json| {
            reused(json);
            json["options"]["parallel_safe"] = true.into();
        })]);
    }
}
