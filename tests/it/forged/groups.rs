//! Rules of `check/unit.rs`: which nodes may run as one, and what their result may overwrite.
//!
//! The plan of single nodes becomes one in which some run as one: steps, operands, places and live
//! ranges are those of the group, so that only the rules on groups can refuse.

use arenaplan::graph::{Flow, InPlace, View, Whole};
use arenaplan::{DType, Effects, Graph, Node, Plan, Techniques, Value, ValueKind};
use serde_json::{Value as Json, json};

use super::{accept, refuse, row, share, step, value};
use crate::graphs::{Sketch, in_place, reshape};
use crate::planners::ideal_planner;

type Case = (Graph, Plan);

const KIND: &str = "PlanMismatch";

fn planned(graph: Graph) -> Case {
    let plan = ideal_planner().optimize(Techniques::NONE).alignment(1).plan(&graph).unwrap();
    (graph, plan)
}

/// Runs the first of two steps as part of the second.
fn fuse(json: &mut Json, first: &str, last: &str) {
    let steps = json["steps"].as_array_mut().unwrap();
    let position = steps.iter().position(|step| step["name"] == first).unwrap();
    let inner = steps.remove(position);
    let outer = step(json, last);
    let made = inner["outputs"].as_array().unwrap();
    let read = inner["inputs"].as_array().unwrap().iter();
    let read = read.chain(outer["inputs"].as_array().unwrap());
    let mut inputs: Vec<Json> = Vec::new();
    for operand in read.filter(|operand| !operand.is_null() && !made.contains(operand)) {
        if !inputs.contains(operand) {
            inputs.push(operand.clone());
        }
    }
    let mut fused = inner.get("fused").map_or(Vec::new(), |it| it.as_array().unwrap().clone());
    fused.push(inner["node"].clone());
    outer["fused"] = fused.into();
    outer["inputs"] = inputs.into();
    let made = made.clone();
    json["values"].as_array_mut().unwrap().retain(|row| !made.contains(&row["value"]));
    // What the group reads lives longer than before.
    value(json, last)["offset"] = 8192.into();
    // Of the order, and of what steps need, nothing is known.
    json.as_object_mut().unwrap().remove("search");
    json["spaces"][0]["lower_bound"] = 0.into();
}

/// Elementwise over inputs of the output's size.
fn elementwise(inputs: usize, bytes: u64) -> Effects {
    let pair = |input| InPlace { input, output: 0, identity: false };
    let in_place = (0..inputs).map(pair).collect();
    Effects { in_place, ..rows(bytes, 0..inputs) }
}

/// In pieces, each from the same piece of the inputs in `follows`.
fn rows(pieces: u64, follows: impl IntoIterator<Item = usize>) -> Effects {
    let follows = follows.into_iter().collect();
    Effects { flows: vec![Flow { output: 0, pieces, follows }], ..Effects::default() }
}

/// A convolution: any piece, from all of the input.
fn anchor(bytes: u64) -> Effects {
    rows(bytes, [])
}

/// x -> a -> y, which run as one.
fn pair(first: Effects, last: Effects) -> Case {
    let mut sketch = Sketch::new();
    let x = sketch.input("x", 64);
    let i = sketch.node("i", &[x], 64);
    let a = sketch.effectful("a", &[i], 64, first);
    let y = sketch.effectful("y", &[a], 64, last);
    planned(sketch.build(&[y]))
}

fn as_one(json: &mut Json) {
    fuse(json, "a", "y");
}

/// Runs a and y as one, and writes the result over what they read.
fn onto(
    rule: &'static str,
    input: u32,
    operand: &'static str,
    distance: u64,
) -> impl Fn(&mut Json) {
    move |json: &mut Json| {
        as_one(json);
        step(json, "y")["shares"] = share(input, rule);
        value(json, operand)["offset"] = (4096 + distance).into();
        value(json, "y")["offset"] = 4096.into();
    }
}

#[test]
fn what_may_run_as_one_does() {
    accept("elementwise", pair(elementwise(1, 64), elementwise(1, 64)), as_one);
    accept("in place", pair(elementwise(1, 64), elementwise(1, 64)), onto("in-place", 0, "i", 0));
    accept("an anchor", pair(anchor(64), elementwise(1, 64)), as_one);
    accept("two pieces", pair(rows(2, [0]), rows(2, [0])), as_one);
    accept("a reshape", pair(elementwise(1, 64), reshape()), as_one);
    accept("row by row", pair(rows(8, [0]), rows(8, [0])), onto("overlap", 0, "i", 0));
    accept("loads", pair(elementwise(1, 64), Effects { loads: vec![0], ..anchor(64) }), as_one);
}

/// Nobody reads d, so that what it makes is needed nowhere.
#[test]
fn a_node_that_may_not_run_again_is_in_one_step() {
    let twice = || {
        let mut sketch = Sketch::new();
        let x = sketch.input("x", 64);
        sketch.effectful("d", &[x], 64, elementwise(1, 64));
        let a = sketch.effectful("a", &[x], 64, elementwise(1, 64));
        let y = sketch.effectful("y", &[a], 64, elementwise(1, 64));
        planned(sketch.build(&[y]))
    };
    let of = |json: &Json, name: &str| {
        let steps = json["steps"].as_array().unwrap();
        steps.iter().find(|step| step["name"] == name).unwrap().clone()
    };
    accept("in one step", twice(), |json| fuse(json, "d", "a"));
    refuse(vec![row(
        "in two steps",
        twice(),
        KIND,
        "node 'd' runs in several steps, and may not",
        move |json| {
            let [d, x] = [of(json, "d")["node"].clone(), of(json, "d")["inputs"][0].clone()];
            fuse(json, "d", "a");
            let y = step(json, "y");
            let a = y["inputs"][0].clone();
            y["fused"] = json!([d]);
            y["inputs"] = json!([x, a]);
        },
    )]);
}

#[test]
fn what_others_need_is_not_inside_of_a_group() {
    let needed = "node 'a' cannot run as one with 'y': what it makes is needed elsewhere";
    let read_elsewhere = || {
        let mut sketch = Sketch::new();
        let x = sketch.input("x", 64);
        let a = sketch.effectful("a", &[x], 64, elementwise(1, 64));
        let y = sketch.effectful("y", &[a], 64, elementwise(1, 64));
        let z = sketch.node("z", &[a, y], 64);
        planned(sketch.build(&[z]))
    };
    let returned = || {
        let mut sketch = Sketch::new();
        let x = sketch.input("x", 64);
        let a = sketch.effectful("a", &[x], 64, elementwise(1, 64));
        let y = sketch.effectful("y", &[a], 64, elementwise(1, 64));
        planned(sketch.build(&[a, y]))
    };
    refuse(vec![
        row("read elsewhere", read_elsewhere(), KIND, needed, as_one),
        row("an output", returned(), KIND, needed, as_one),
    ]);
}

#[test]
fn what_is_not_made_piece_by_piece_is_not_inside_of_a_group() {
    let e = || elementwise(1, 64);
    let mutating = || {
        let mut sketch = Sketch::new();
        let x = sketch.input("x", 64);
        let s = sketch.value("s", ValueKind::State, 64);
        let a = sketch.effectful("a", &[x, s], 64, Effects { mutates: vec![1], ..rows(64, [0]) });
        let y = sketch.effectful("y", &[a], 64, elementwise(1, 64));
        planned(sketch.build(&[y]))
    };
    let ignoring = || {
        let mut sketch = Sketch::new();
        let x = sketch.input("x", 64);
        let w = sketch.input("w", 64);
        let a = sketch.effectful("a", &[x, w], 64, Effects { ignores: vec![1], ..rows(64, [0]) });
        let y = sketch.effectful("y", &[a], 64, elementwise(1, 64));
        planned(sketch.build(&[y]))
    };
    let two_results = || {
        let mut sketch = Sketch::new();
        let x = sketch.input("x", 64);
        let a = sketch.effectful("a", &[x], 64, elementwise(1, 64));
        let y = sketch.value("y", ValueKind::Activation, 64);
        let z = sketch.value("z", ValueKind::Activation, 64);
        let node = Node::new("y", "Op").reads([a]).writes([y, z]);
        sketch.builder.add_node(node.with_effects(elementwise(1, 64)));
        planned(sketch.build(&[y, z]))
    };
    let slice = |offset: u64, bytes: u64| {
        let mut sketch = Sketch::new();
        let x = sketch.input("x", 64);
        let a = sketch.effectful("a", &[x], 64, elementwise(1, 64));
        let view = View { input: 0, output: 0, offset, whole: Whole::Input };
        let y =
            sketch.effectful("y", &[a], bytes, Effects { views: vec![view], ..Effects::default() });
        planned(sketch.build(&[y]))
    };
    let concatenation = || {
        let mut sketch = Sketch::new();
        let x = sketch.input("x", 64);
        let a = sketch.effectful("a", &[x], 64, elementwise(1, 64));
        let view = View { input: 0, output: 0, offset: 0, whole: Whole::Output };
        let y =
            sketch.effectful("y", &[a], 64, Effects { views: vec![view], ..Effects::default() });
        planned(sketch.build(&[y]))
    };
    let not_in_pieces = "node 'y' cannot run as one with 'y': it is not made in pieces";
    let whole = "node 'y' cannot run as one with 'y': it needs whole what another of them makes";
    refuse(vec![
        row(
            "mutations",
            mutating(),
            KIND,
            "node 'a' cannot run as one with 'y': it mutates or",
            as_one,
        ),
        row(
            "ignored operands",
            ignoring(),
            KIND,
            "node 'a' cannot run as one with 'y': it mutates or",
            as_one,
        ),
        row(
            "two results",
            two_results(),
            KIND,
            "node 'y' cannot run as one with 'y': it does not have one output",
            as_one,
        ),
        row("no pieces", pair(e(), Effects::default()), KIND, not_in_pieces, as_one),
        row("a slice", slice(0, 32), KIND, not_in_pieces, as_one),
        row("a piece of a larger one", concatenation(), KIND, not_in_pieces, as_one),
        row(
            "one piece",
            pair(e(), rows(1, [0])),
            KIND,
            "node 'y' cannot run as one with 'y': it is made in one piece",
            as_one,
        ),
        row(
            "pieces that never meet",
            pair(rows(16, [0]), rows(1, [0])),
            KIND,
            "it is made in one piece",
            as_one,
        ),
        row("needed whole", pair(e(), anchor(64)), KIND, whole, as_one),
        row(
            "loads of rows",
            pair(rows(8, [0]), Effects { loads: vec![0], ..anchor(64) }),
            KIND,
            "node 'y' cannot run as one with 'y': it loads what is not made element by element",
            as_one,
        ),
    ]);
}

/// y = a(i) + w, elementwise, where a needs all of i.
fn residual(last: Effects) -> Case {
    let mut sketch = Sketch::new();
    let x = sketch.input("x", 64);
    let i = sketch.node("i", &[x], 64);
    let w = sketch.node("w", &[x], 64);
    let a = sketch.effectful("a", &[i], 64, anchor(64));
    let y = sketch.effectful("y", &[a, w], 64, last);
    planned(sketch.build(&[y]))
}

#[test]
fn a_group_overwrites_only_what_each_piece_needs_at_its_place() {
    let e = || elementwise(2, 64);
    let into = |input: u32| match input {
        0 => "node 'y' cannot put output 0 into input 0",
        _ => "node 'y' cannot put output 0 into input 1",
    };
    let in_place_of = |operand: &'static str, input| onto("in-place", input, operand, 0);
    accept("an addend", residual(e()), in_place_of("w", 1));
    accept("an addend at a distance", residual(rows(64, [0, 1])), onto("overlap", 1, "w", 0));
    // What the first node needs whole, and what the last one reads otherwise.
    let image = pair(anchor(64), elementwise(1, 64));
    let not_last = residual(Effects { in_place: in_place(0).in_place, ..rows(64, [0, 1]) });
    let smaller = {
        let mut sketch = Sketch::new();
        let x = sketch.input("x", 64);
        let i = sketch.node("i", &[x], 128);
        let a = sketch.effectful("a", &[i], 64, rows(8, [0]));
        let y = sketch.effectful("y", &[a], 64, elementwise(1, 64));
        planned(sketch.build(&[y]))
    };
    // The anchor reads the addend, too.
    let both = || {
        let mut sketch = Sketch::new();
        let x = sketch.input("x", 64);
        let i = sketch.node("i", &[x], 64);
        let a = sketch.effectful("a", &[i], 64, anchor(64));
        let y = sketch.effectful("y", &[a, i], 64, elementwise(2, 64));
        planned(sketch.build(&[y]))
    };
    // The first node needs a piece of i, and the last one all of it.
    let whole_last = {
        let mut sketch = Sketch::new();
        let x = sketch.input("x", 64);
        let i = sketch.node("i", &[x], 64);
        let a = sketch.effectful("a", &[i], 64, elementwise(1, 64));
        let y = sketch.effectful("y", &[a, i], 64, rows(64, [0]));
        planned(sketch.build(&[y]))
    };
    let loaded = {
        let mut sketch = Sketch::new();
        let x = sketch.input("x", 64);
        let i = sketch.node("i", &[x], 64);
        let a = sketch.effectful("a", &[i], 64, elementwise(1, 64));
        let y = sketch.effectful("y", &[a], 64, Effects { loads: vec![0], ..anchor(64) });
        planned(sketch.build(&[y]))
    };
    let weights = || {
        let mut sketch = Sketch::new();
        let x = sketch.input("x", 64);
        let i = sketch.node("i", &[x], 64);
        let w = sketch.node("w", &[x], 64);
        let a = sketch.effectful("a", &[i], 64, rows(8, [0]));
        let y = sketch.effectful("y", &[a, w], 64, rows(8, [0]));
        planned(sketch.build(&[y]))
    };
    refuse(vec![
        row("an image", image, KIND, into(0), in_place_of("i", 0)),
        row("not elementwise in the last", not_last, KIND, into(1), in_place_of("w", 1)),
        row("of another size", smaller, KIND, into(0), in_place_of("i", 0)),
        row("of two needs the larger", both(), KIND, into(0), in_place_of("i", 0)),
        row("what is loaded", loaded, KIND, into(0), in_place_of("i", 0)),
        row(
            "overlap of an image",
            pair(anchor(64), elementwise(1, 64)),
            KIND,
            into(0),
            onto("overlap", 0, "i", 0),
        ),
        row("overlap of weights", weights(), KIND, into(1), onto("overlap", 1, "w", 0)),
        row("a piece and then all", whole_last, KIND, into(0), onto("overlap", 0, "i", 0)),
        row("overlap of two needs", both(), KIND, into(0), onto("overlap", 0, "i", 0)),
    ]);
}

/// i -> y, where y may be put at a distance from i.
fn single(i: u64, y: u64, effects: Effects) -> Case {
    let mut sketch = Sketch::new();
    let x = sketch.input("x", 64);
    let s = sketch.value("s", ValueKind::State, 64);
    let i = sketch.node("i", &[x], i);
    let y = sketch.effectful("y", &[i, s], y, effects);
    planned(sketch.build(&[y]))
}

/// Pieces of half a byte.
fn halves() -> Case {
    let mut builder = Graph::builder("halves");
    let array = |name, kind| Value::new(name, kind, DType::INT4, [16]).unwrap();
    let x = builder.add_value(array("x", ValueKind::Input));
    let i = builder.add_value(array("i", ValueKind::Activation));
    let y = builder.add_value(array("y", ValueKind::Activation));
    builder.add_node(Node::new("i", "Op").reads([x]).writes([i]));
    builder.add_node(Node::new("y", "Op").reads([i]).writes([y]).flow(0, 16, [0]));
    builder.add_output(y);
    planned(builder.build().unwrap())
}

#[test]
fn outputs_overlap_only_what_is_used_up_piece_by_piece() {
    let overlap = |distance: u64| {
        move |json: &mut Json| {
            step(json, "y")["shares"] = share(0, "overlap");
            json["spaces"][0]["lower_bound"] = 0.into();
            value(json, "i")["offset"] = (4096 + distance).into();
            value(json, "y")["offset"] = 4096.into();
        }
    };
    let into = "node 'y' cannot put output 0 into input 0";
    accept("in rows", single(60, 100, rows(10, [0])), overlap(36));
    accept("in two pieces", single(64, 64, rows(2, [0])), overlap(0));
    refuse(vec![
        row("one piece", single(64, 64, rows(1, [0])), KIND, into, overlap(0)),
        row("pieces of no whole bytes", halves(), KIND, into, overlap(0)),
        row(
            "a mutation",
            single(64, 64, Effects { mutates: vec![1], ..rows(8, [0]) }),
            KIND,
            into,
            overlap(0),
        ),
        row("what is not followed", single(64, 64, rows(8, [1])), KIND, into, overlap(0)),
        row("nothing declared", single(64, 64, Effects::default()), KIND, into, overlap(0)),
        row(
            "one byte too near",
            single(60, 100, rows(10, [0])),
            "PlanOverlap",
            "value 'i' and value 'y'",
            overlap(35),
        ),
    ]);
    let two = {
        let mut sketch = Sketch::new();
        let x = sketch.input("x", 64);
        let i = sketch.node("i", &[x], 64);
        let y = sketch.value("y", ValueKind::Activation, 64);
        let z = sketch.value("z", ValueKind::Activation, 64);
        let node = Node::new("y", "Op").reads([i]).writes([y, z]);
        sketch.builder.add_node(node.with_effects(rows(8, [0])));
        planned(sketch.build(&[y, z]))
    };
    refuse(vec![row("one of two results", two, KIND, into, overlap(0))]);
}

/// Runs a and y as one in a plan whose search skipped techniques.
fn skipping(skipped: &'static [&'static str]) -> impl Fn(&mut Json) {
    move |json| {
        let search = json["search"].clone();
        as_one(json);
        json["search"] = search;
        json["search"]["floor"] = 0.into();
        json["search"]["skipped"] = json!(skipped);
    }
}

#[test]
fn a_group_comes_from_a_technique_that_was_tried() {
    let case = || pair(elementwise(1, 64), elementwise(1, 64));
    accept("streaming was not tried", case(), skipping(&["streaming"]));
    accept("fusion was not tried", case(), skipping(&["fusion"]));
    let says = "technique fusion was skipped, and the plan uses it";
    refuse(vec![row("neither", case(), KIND, says, skipping(&["fusion", "streaming"]))]);
}

/// The group could be written over what it reads, so the step of i needs the most.
#[test]
fn a_group_needs_no_bytes_for_what_it_may_overwrite() {
    let mut sketch = Sketch::new();
    let x = sketch.input("x", 64);
    let i = sketch.node("i", &[x], 128);
    let a = sketch.effectful("a", &[i], 128, elementwise(1, 128));
    let y = sketch.effectful("y", &[a], 128, elementwise(1, 128));
    let case = planned(sketch.build(&[y]));
    let graph = case.0.clone();
    let fused = accept("apart", case, |json| {
        skipping(&["streaming"])(json);
        json["search"]["order"] = "complete".into();
    });
    let order = fused.check(&graph).unwrap().order();
    assert_eq!(order, Some(arenaplan::check::Proof::Claimed));
}

#[test]
fn the_steps_of_a_group_are_its_own() {
    let e = || elementwise(1, 64);
    refuse(vec![
        row("operands of a group", pair(e(), e()), KIND, "node 'y' has other operands", |json| {
            as_one(json);
            step(json, "y")["inputs"] = json!([0]);
        }),
        row("inner values have no place", pair(e(), e()), KIND, "it places", |json| {
            let inner = value(json, "a").clone();
            as_one(json);
            // Behind what is expected before it.
            json["values"].as_array_mut().unwrap().insert(2, inner);
            json["values"].as_array_mut().unwrap().sort_by_key(|row| row["value"].as_u64());
        }),
    ]);
}
