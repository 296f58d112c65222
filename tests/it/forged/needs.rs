//! Rules of `check/needs.rs`: the bytes that each step needs by itself, which prove floors and
//! orders.

use arenaplan::check::Proof;
use arenaplan::graph::{View, Whole};
use arenaplan::plan::{InputMemory, OutputMemory};
use arenaplan::{Effects, Graph, Plan, Technique, Techniques, ValueKind};

use super::{raw, refuse};
use crate::check::forge;
use crate::graphs::{Sketch, in_place, reshape};
use crate::planners::ideal_planner;

type Case = (Graph, Plan);

fn planned(graph: Graph) -> Case {
    let plan = ideal_planner().optimize(Techniques::NONE).plan(&graph).unwrap();
    (graph, plan)
}

fn floor_of((graph, plan): &Case, floor: u64) -> Option<Proof> {
    let forged = forge(plan, |json| json["search"]["floor"] = floor.into());
    forged.unwrap().check(graph).unwrap().floor()
}

/// b may be written over a.
fn taken() -> Case {
    let mut sketch = Sketch::new();
    let x = sketch.input("x", 64);
    let a = sketch.node("a", &[x], 128);
    let b = sketch.effectful("b", &[a], 128, in_place(0));
    let y = sketch.node("y", &[b], 64);
    planned(sketch.build(&[y]))
}

/// y reads a value and a view of all of it.
fn seen_twice() -> Case {
    let mut sketch = Sketch::new();
    let x = sketch.input("x", 64);
    let a = sketch.node("a", &[x], 64);
    let r = sketch.effectful("r", &[a], 64, reshape());
    let y = sketch.node("y", &[a, r], 64);
    planned(sketch.build(&[y]))
}

/// y may be written over the state that it mutates.
fn mutated() -> Case {
    let mut sketch = Sketch::new();
    let s = sketch.value("s", ValueKind::State, 128);
    let effects = Effects { mutates: vec![0], ..Effects::default() };
    let y = sketch.effectful("y", &[s], 128, effects);
    planned(sketch.build(&[y]))
}

/// p and q are 20 bytes each, and may be two pieces of c.
fn pieces() -> Case {
    let mut sketch = Sketch::new();
    let x = sketch.input("x", 64);
    let [p, q] = ["p", "q"].map(|name| sketch.node(name, &[x], 20));
    let view = |(input, offset)| View { input, output: 0, offset, whole: Whole::Output };
    let views = [(0, 0), (1, 20)].map(view).to_vec();
    let c = sketch.effectful("c", &[p, q], 40, Effects { views, ..Effects::default() });
    let y = sketch.node("y", &[c], 64);
    planned(sketch.build(&[y]))
}

#[test]
fn a_floor_is_verified_up_to_what_a_step_needs() {
    for (name, case, least) in [
        ("an input that is taken over", taken(), 192),
        ("two views of the same bytes", seen_twice(), 128),
        ("a state that is written", mutated(), 128),
        ("pieces need no line of their own", pieces(), 104),
    ] {
        assert!(case.1.lower_bound() > least, "{name}");
        assert_eq!(floor_of(&case, least), Some(Proof::Verified), "{name}");
        assert_eq!(floor_of(&case, least + 1), Some(Proof::Claimed), "{name}");
    }
}

#[test]
fn memory_of_the_caller_and_steps_of_several_nodes_leave_a_floor_claimed() {
    let graph = || taken().0;
    let planner = || ideal_planner().optimize(Techniques::NONE);
    let (inputs, outputs) = (InputMemory::Caller, OutputMemory::Caller);
    for planner in [planner().inputs(inputs), planner().outputs(outputs)] {
        let case = (graph(), planner.plan(&graph()).unwrap());
        assert_eq!(floor_of(&case, 0), Some(Proof::Verified));
        assert_eq!(floor_of(&case, 64), Some(Proof::Claimed));
    }
    for technique in [Technique::Fusion, Technique::Streaming] {
        let planner = ideal_planner().optimize(Techniques::NONE.with(technique));
        let case = (graph(), planner.plan(&graph()).unwrap());
        assert_eq!(floor_of(&case, 64), Some(Proof::Verified));
        assert_eq!(floor_of(&case, 65), Some(Proof::Claimed));
    }
}

/// Outputs that no step reads, and b, which shows a from some byte on. Step c reads both.
fn crowded(offset: u64) -> Case {
    let mut sketch = Sketch::new();
    let x = sketch.input("x", 64);
    let mut outputs: Vec<_> =
        (0..12).map(|index| sketch.node(&format!("o{index}"), &[x], 64)).collect();
    let a = sketch.node("a", &[x], 256);
    let view = View { input: 0, output: 0, offset, whole: Whole::Input };
    let effects = Effects { views: vec![view], ..Effects::default() };
    let b = sketch.effectful("b", &[a], 256 - offset, effects);
    outputs.push(sketch.node("c", &[a, b], 256));
    planned(sketch.build(&outputs))
}

#[test]
fn a_floor_above_what_any_step_uses_is_refused() {
    // Pieces may begin and end in the middle of lines: each value may touch one more.
    for (offset, most) in [(0, 3 * 256), (64, 3 * 256 - 64 + 3 * 64)] {
        let case = crowded(offset);
        assert_eq!(floor_of(&case, most), Some(Proof::Claimed));
        refuse(vec![raw("a byte more", case, "PlanCorrupt", "no step of it needs", move |json| {
            json["search"]["floor"] = (most + 1).into();
        })]);
    }
}
