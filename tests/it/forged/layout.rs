//! Rules of `check/layout.rs` and of the techniques: values share bytes as the steps say, each line
//! belongs to one body, and the plan uses what its options have.

use arenaplan::base::Alignment;
use arenaplan::check::Proof;
use arenaplan::graph::{Choice, InPlace, Overlap, View, Whole, Workspace};
use arenaplan::pack::Space;
use arenaplan::plan::WorkspacePolicy;
use arenaplan::{Effects, Graph, Plan, ValueKind};
use serde_json::{Value as Json, json};

use super::{accept, put, raw, refuse, row, share, step, value};
use crate::graphs::{Sketch, in_place};
use crate::planners::ideal_planner;

type Case = (Graph, Plan);

const NOT_THERE: &str = "output 0 of node";

fn slice(offset: u64) -> Effects {
    let view = View { input: 0, output: 0, offset, whole: Whole::Input };
    Effects { views: vec![view], ..Effects::default() }
}

fn planned(sketch: Sketch, output: arenaplan::ValueId) -> Case {
    let graph = sketch.build(&[output]);
    let plan = ideal_planner().plan(&graph).unwrap();
    (graph, plan)
}

/// `s` is the second half of `a`.
fn sliced() -> Case {
    let mut sketch = Sketch::new();
    let x = sketch.input("x", 64);
    let a = sketch.node("a", &[x], 128);
    let s = sketch.effectful("s", &[a], 64, slice(64));
    let y = sketch.node("y", &[a, s], 64);
    planned(sketch, y)
}

/// `b` is written over `a`.
fn taken_over() -> Case {
    let mut sketch = Sketch::new();
    let x = sketch.input("x", 64);
    let a = sketch.node("a", &[x], 128);
    let b = sketch.effectful("b", &[a], 128, in_place(0));
    let y = sketch.node("y", &[b], 64);
    planned(sketch, y)
}

/// `b` begins 64 bytes ahead of `a`.
fn overlapped() -> Case {
    let mut sketch = Sketch::new();
    let x = sketch.input("x", 64);
    let a = sketch.node("a", &[x], 640);
    let overlap = Overlap { input: 0, output: 0, distance: 64 };
    let effects = Effects { overlaps: vec![overlap], ..Effects::default() };
    let b = sketch.effectful("b", &[a], 640, effects);
    let y = sketch.node("y", &[b], 64);
    let case = planned(sketch, y);
    assert_eq!(case.1.arena_bytes(), 704);
    case
}

/// `p` is 16 bytes in the middle of a line of `w`, and outlives it; `a` is made then.
fn piece() -> Case {
    let mut sketch = Sketch::new();
    let x = sketch.input("x", 64);
    let w = sketch.node("w", &[x], 64);
    let p = sketch.effectful("p", &[w], 16, slice(32));
    let a = sketch.node("a", &[x], 16);
    let y = sketch.node("y", &[p, a], 64);
    planned(sketch, y)
}

/// `p` and `q` are the two halves of `c`.
fn concatenated(space: u64) -> Case {
    let mut sketch = Sketch::new();
    let space = Space::new("arena").with_alignment(Alignment::new(space).unwrap());
    sketch.builder.set_default_space(space);
    let x = sketch.value("x", ValueKind::Input, 64);
    let [p, q] = ["p", "q"].map(|name| sketch.node(name, &[x], 20));
    let views = [0, 20].into_iter().enumerate();
    let views =
        views.map(|(input, offset)| View { input, output: 0, offset, whole: Whole::Output });
    let effects = Effects { views: views.collect(), ..Effects::default() };
    let c = sketch.effectful("c", &[p, q], 40, effects);
    let y = sketch.node("y", &[c], 64);
    planned(sketch, y)
}

/// `q` and `p` are the two halves of `c`, and `p` is made first.
fn swapped() -> Case {
    let mut sketch = Sketch::new();
    let x = sketch.input("x", 64);
    let [p, q] = ["p", "q"].map(|name| sketch.node(name, &[x], 20));
    let views = [0, 20].into_iter().enumerate();
    let views =
        views.map(|(input, offset)| View { input, output: 0, offset, whole: Whole::Output });
    let effects = Effects { views: views.collect(), ..Effects::default() };
    let c = sketch.effectful("c", &[q, p], 40, effects);
    let y = sketch.node("y", &[c], 64);
    planned(sketch, y)
}

/// `p` is 16 bytes in the middle of a line of `w`, and outlives it; `y` has scratch memory.
fn piece_and_scratch() -> Case {
    let mut sketch = Sketch::new();
    let x = sketch.input("x", 64);
    let w = sketch.node("w", &[x], 64);
    let p = sketch.effectful("p", &[w], 16, slice(32));
    let choices = vec![Choice { bytes: 16, cost: 1.0 }];
    let workspaces = vec![Workspace { choices, alignment: Alignment::BYTE }];
    let y = sketch.effectful("y", &[p], 64, Effects { workspaces, ..Effects::default() });
    let graph = sketch.build(&[y]);
    let plan = ideal_planner().workspace(WorkspacePolicy::Auto).plan(&graph).unwrap();
    (graph, plan)
}

/// `e` is an empty slice in the middle of `a`, and outlives it; `b` is made then.
fn empty_piece() -> Case {
    let mut sketch = Sketch::new();
    let x = sketch.input("x", 64);
    let a = sketch.node("a", &[x], 64);
    let e = sketch.effectful("e", &[a], 0, slice(20));
    let b = sketch.node("b", &[x], 64);
    let y = sketch.node("y", &[b, e], 64);
    planned(sketch, y)
}

/// `r` assigns `a` to a state; `y` reads what was assigned.
fn assigned() -> Case {
    let mut sketch = Sketch::new();
    let state = sketch.value("state", ValueKind::State, 64);
    let x = sketch.input("x", 64);
    let a = sketch.node("a", &[x], 64);
    let effects = Effects {
        mutates: vec![0],
        ignores: vec![0],
        in_place: vec![InPlace { input: 1, output: 0, identity: true }],
        ..Effects::default()
    };
    let r = sketch.effectful("r", &[state, a], 64, effects);
    let y = sketch.node("y", &[r], 64);
    planned(sketch, y)
}

fn moved(names: &'static [&'static str], by: u64) -> impl Fn(&mut Json) {
    move |json| {
        for name in names {
            let offset = value(json, name)["offset"].as_u64().unwrap();
            value(json, name)["offset"] = (offset + by).into();
        }
    }
}

#[test]
fn shares_that_the_offsets_do_not_show_are_refused() {
    let kind = "PlanMismatch";
    refuse(vec![
        row("a view is where its bytes are", sliced(), kind, NOT_THERE, moved(&["s"], 1024)),
        row("a view is at its distance", sliced(), kind, NOT_THERE, |json| {
            put(json, "s", "a", 1024);
        }),
        row("in place is at one address", taken_over(), kind, NOT_THERE, moved(&["b"], 1024)),
        row("an overlap is ahead", overlapped(), kind, NOT_THERE, moved(&["b", "y"], 2048)),
    ]);
}

#[test]
fn a_line_belongs_to_one_body() {
    refuse(vec![
        row("beside a piece", piece(), "PlanOverlap", "p", |json| {
            put(json, "a", "p", 0);
            let offset = value(json, "a")["offset"].as_u64().unwrap();
            value(json, "a")["offset"] = (offset / 64 * 64).into();
        }),
        row(
            "shared bytes begin at a line",
            concatenated(64),
            "PlanMisaligned",
            "value 'p', the first of shared bytes",
            moved(&["p", "q", "c"], 1028),
        ),
        row(
            "the lowest of shared bytes begins at a line",
            swapped(),
            "PlanMisaligned",
            "value 'q', the first of shared bytes",
            moved(&["p", "q", "c"], 1024 + 44),
        ),
        row(
            "shared bytes are aligned as their space",
            concatenated(128),
            "PlanMisaligned",
            "the first of shared bytes",
            moved(&["p", "q", "c"], 1024 + 64),
        ),
    ]);
    accept("a line further", concatenated(64), moved(&["p", "q", "c"], 1024 + 64));
}

#[test]
fn scratch_memory_has_lines_of_its_own() {
    let says = "value 'p' and workspace 0 of node 'y'";
    refuse(vec![row("beside a piece", piece_and_scratch(), "PlanOverlap", says, |json| {
        let offset = value(json, "p")["offset"].as_u64().unwrap();
        json["workspaces"][0]["offset"] = (offset / 64 * 64).into();
        json["spaces"][0]["lower_bound"] = 0.into();
    })]);
}

#[test]
fn what_is_empty_has_no_line() {
    accept("in the place of a dead value", empty_piece(), |json| {
        put(json, "b", "a", 0);
        put(json, "e", "a", 20);
        step(json, "e")["shares"] = share(0, "view");
        json["spaces"][0]["lower_bound"] = 0.into();
    });
}

#[test]
fn the_result_of_an_assignment_may_be_where_the_state_is() {
    let stored = accept("in the state", assigned(), |json| {
        put(json, "r", "state", 0);
        step(json, "r")["shares"] = json!([]);
        json["spaces"][0]["lower_bound"] = 128.into();
    });
    // The state, with x and then a beside it.
    assert_eq!(stored.check(&assigned().0).unwrap().lower_bound(), Proof::Verified);
    refuse(vec![row("another value", assigned(), "PlanOverlap", "value 'state'", |json| {
        put(json, "y", "state", 0);
        json["spaces"][0]["lower_bound"] = 0.into();
    })]);
}

#[test]
fn an_overlap_farther_than_it_must_be_proves_nothing() {
    let (graph, plan) = overlapped();
    assert_eq!(plan.check(&graph).unwrap().lower_bound(), Proof::Verified);
    let case = overlapped();
    let farther = accept("a line farther", case, moved(&["a", "x"], 64));
    assert_eq!(farther.check(&graph).unwrap().lower_bound(), Proof::Claimed);
}

#[test]
fn techniques_that_are_used_are_in_the_options_and_were_not_skipped() {
    let kind = "PlanMismatch";
    let without = |name: &'static str| {
        move |json: &mut Json| {
            let all = json["options"]["optimize"].as_array_mut().unwrap();
            all.retain(|one| one != name);
        }
    };
    let skipped =
        |name: &'static str| move |json: &mut Json| json["search"]["skipped"] = json!([name]);
    let used = "is used, and the options do not have it";
    let late = "was skipped, and the plan uses it";
    refuse(vec![
        raw("in place", taken_over(), kind, used, without("in-place")),
        raw("pieces", sliced(), kind, used, without("elision")),
        raw("overlaps", overlapped(), kind, used, without("overlap")),
        raw("a skipped overlap", overlapped(), kind, late, skipped("overlap")),
        raw("skipped in place", taken_over(), kind, late, skipped("in-place")),
        raw("skipped pieces", sliced(), kind, late, skipped("elision")),
        raw("skipped and not asked for", sliced(), kind, "and the options do not", |json| {
            json["options"]["optimize"] = json!(["elision"]);
            json["search"]["skipped"] = json!(["overlap"]);
        }),
    ]);
}
