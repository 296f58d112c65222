//! Several graphs in one arena.

use arenaplan::base::Alignment;
use arenaplan::pack::Space;
use arenaplan::plan::{SharedPlan, Together, WorkspacePolicy};
use arenaplan::{DType, Effects, Error, Graph, Memories, Node, Plan, Status, Value, ValueKind};
use proptest::prelude::*;

use crate::graphs::{Sketch, graphs};
use crate::planners::ideal_planner;

/// Returns a graph that keeps `state` bytes between runs.
fn stateful(name: &str, input: u64, state: u64, output: u64) -> Graph {
    let mut sketch = Sketch::new();
    let x = sketch.input(&format!("{name}.x"), input);
    let s = sketch.value(&format!("{name}.s"), ValueKind::State, state);
    let effects = Effects { mutates: vec![1], ..Effects::default() };
    let y = sketch.effectful(&format!("{name}.y"), &[x, s], output, effects);
    sketch.build(&[y])
}

/// Returns the bytes of every value of a plan in the shared arena.
fn bytes_of(shared: &SharedPlan, index: usize) -> Vec<(u32, u64, u64)> {
    let member = &shared.members()[index];
    let places = member.plan.placements().iter();
    let spans = places.map(|place| {
        let start = member.base + place.offset;
        (place.value, start, start + place.bytes)
    });
    spans.filter(|span| span.1 < span.2).collect()
}

proptest! {
    /// Graphs that never run together need as much as the largest, unless there are states;
    /// graphs that do, exactly the sum.
    #[test]
    fn shared_arenas_are_as_small_as_they_can_be(
        a in graphs(12), b in graphs(12), c in graphs(12), workspace in any::<bool>(),
    ) {
        let policy = if workspace { WorkspacePolicy::Auto } else { WorkspacePolicy::None };
        let planner = ideal_planner().alignment(16).workspace(policy);
        let all = [&a, &b, &c];
        let alone: Vec<_> = all.iter().map(|graph| planner.plan(graph).unwrap()).collect();

        let shared = planner.plan_together(&all, Together::Concurrent).unwrap();
        prop_assert!(shared.check(&all).is_ok());
        let sum: u64 = alone.iter().map(Plan::arena_bytes).sum();
        prop_assert_eq!(shared.arena_bytes(), sum);
        prop_assert_eq!(&SharedPlan::from_json(shared.to_json().as_bytes()).unwrap(), &shared);

        let shared = planner.plan_together(&all, Together::Never).unwrap();
        prop_assert!(shared.check(&all).is_ok());
        let most = alone.iter().map(Plan::arena_bytes).max().unwrap();
        let mut values = all.iter().flat_map(|graph| graph.values());
        let has_states = values.any(|value| value.kind() == ValueKind::State);
        prop_assert!(shared.lower_bound() <= shared.arena_bytes());
        let limit = if has_states { sum } else { most };
        prop_assert!(shared.arena_bytes() <= limit);
        prop_assert!(shared.arena_bytes() >= alone.iter().map(Plan::lower_bound).max().unwrap());
        prop_assert_eq!(&SharedPlan::from_json(shared.to_json().as_bytes()).unwrap(), &shared);
        prop_assert_eq!(&planner.plan_together(&all, Together::Never).unwrap(), &shared);
    }
}

#[test]
fn states_survive_the_runs_of_other_graphs() {
    let (a, b) = (stateful("a", 64, 128, 64), stateful("b", 256, 64, 64));
    let shared = ideal_planner().plan_together(&[&a, &b], Together::Never).unwrap();
    // b needs 384 bytes, of which 64 are its state; 128 more are the state of a.
    assert_eq!((shared.arena_bytes(), shared.lower_bound()), (512, 512));
    assert_eq!(shared.status(), Status::Optimal);
    for (own, other) in [(0, 1), (1, 0)] {
        let state = bytes_of(&shared, own).into_iter().find(|span| span.0 == 1).unwrap();
        for (_, start, end) in bytes_of(&shared, other) {
            assert!(end <= state.1 || state.2 <= start, "{state:?} {start}..{end}");
        }
    }
}

#[test]
fn plans_that_share_what_they_must_not_are_refused() {
    let (a, b) = (stateful("a", 64, 128, 64), stateful("b", 256, 64, 64));
    let both = [&a, &b];
    let change = |shared: &SharedPlan, from: &str, to: &str| {
        let text = shared.to_json();
        assert!(text.contains(from), "{from} is in {text}");
        SharedPlan::from_json(text.replacen(from, to, 1).as_bytes())
    };
    let concurrent = ideal_planner().plan_together(&both, Together::Concurrent).unwrap();
    let (second, end) = (concurrent.members()[1].base, concurrent.arena_bytes());
    assert_eq!((second, end), (256, 640));
    // The second one begins inside of the first.
    let text = concurrent.to_json().replace("\"base\":256", "\"base\":192");
    let text = text.replacen("\"arena_bytes\":640", "\"arena_bytes\":576", 1);
    let text = text.replacen("\"lower_bound\":640", "\"lower_bound\":576", 1);
    let moved = SharedPlan::from_json(text.as_bytes()).unwrap();
    assert!(matches!(moved.check(&both), Err(Error::PlanOverlap { byte: 192, .. })));
    // Each by itself is valid, but b runs over the state of a.
    let alone: Vec<_> = both.iter().map(|graph| ideal_planner().plan(graph).unwrap()).collect();
    assert!(alone.iter().all(|plan| plan.spaces().len() == 1));
    let together = concurrent.to_json().replace("\"base\":256", "\"base\":0");
    let together =
        together.replace("\"together\":\"concurrent\"", "\"together\":\"never-together\"");
    let together = together.replacen("\"arena_bytes\":640", "\"arena_bytes\":384", 1);
    let together = together.replacen("\"lower_bound\":640", "\"lower_bound\":384", 1);
    let naive = SharedPlan::from_json(together.as_bytes()).unwrap();
    assert!(matches!(naive.check(&both), Err(Error::PlanOverlap { .. })));

    assert!(matches!(concurrent.check(&[&a]), Err(Error::PlanMismatch { .. })));
    assert!(matches!(concurrent.check(&[&b, &a]), Err(Error::PlanMismatch { .. })));
    for (from, to) in [
        ("\"arena_bytes\":640", "\"arena_bytes\":639"),
        ("\"status\":\"optimal\"", "\"status\":\"feasible\""),
        ("arenaplan-shared", "arenaplan"),
        ("\"base\":256", "\"base\":257"),
        ("\"capacity\":null", "\"capacity\":100"),
        ("\"together\":\"concurrent\"", "\"together\":\"maybe\""),
        ("\"lower_bound\":640", "\"bound\":640"),
    ] {
        assert!(
            matches!(change(&concurrent, from, to), Err(Error::PlanCorrupt { .. })),
            "{from} -> {to}"
        );
    }
    assert!(matches!(
        change(&concurrent, "\"version\":1,\"together", "\"version\":2,\"together"),
        Err(Error::PlanVersion { .. })
    ));
}

#[test]
fn arenas_side_by_side_keep_the_alignment_of_every_value() {
    let graph = |name: &str, alignment| {
        let mut builder = Graph::builder(name);
        let value = |name, kind| Value::new(name, kind, DType::UINT8, [40]).unwrap();
        let x = builder.add_value(value("x", ValueKind::Input));
        let aligned = Alignment::new(alignment).unwrap();
        let y = value("y", ValueKind::Activation).with_alignment(aligned);
        let y = builder.add_value(y);
        builder.add_node(Node::new("n", "Op").reads([x]).writes([y]));
        builder.add_output(y);
        builder.build().unwrap()
    };
    let (low, high) = (graph("low", 16), graph("high", 256));
    let planner = ideal_planner().alignment(16);
    for (graphs, base) in [([&low, &high], 256), ([&high, &low], 96)] {
        let shared = planner.plan_together(&graphs, Together::Concurrent).unwrap();
        shared.check(&graphs).unwrap();
        assert_eq!(shared.members()[1].base, base);
    }
}

#[test]
fn graphs_in_turn_keep_the_alignment_of_their_spaces() {
    let graph = |name: &str, alignment, kind| {
        let space = Space::new("arena").with_alignment(Alignment::new(alignment).unwrap());
        let mut builder = Graph::builder(name);
        builder.set_default_space(space);
        let value = |name, kind| Value::new(name, kind, DType::UINT8, [40]).unwrap();
        let values = [("x", kind), ("y", ValueKind::Activation), ("z", ValueKind::Activation)];
        let [x, y, z] = values.map(|(name, kind)| builder.add_value(value(name, kind)));
        builder.add_node(Node::new("n", "Op").reads([x]).writes([y]));
        builder.add_node(Node::new("m", "Op").reads([x, y]).writes([z]));
        builder.add_output(z);
        builder.build().unwrap()
    };
    // A state lasts through the runs of both, so that they are packed together.
    let (low, high) = (graph("a", 1, ValueKind::State), graph("b", 256, ValueKind::Input));
    for graphs in [[&low, &high], [&high, &low]] {
        let shared = ideal_planner().alignment(1).plan_together(&graphs, Together::Never).unwrap();
        shared.check(&graphs).unwrap();
        assert_eq!(shared.arena_bytes(), 2 * 256 + 40);
    }
}

#[test]
fn a_capacity_is_one_of_the_shared_arena() {
    let (a, b) = (stateful("a", 64, 128, 64), stateful("b", 256, 64, 64));
    let planner = ideal_planner().capacity(600);
    let at_once = planner.plan_together(&[&a, &b], Together::Concurrent).unwrap();
    assert_eq!(at_once.status(), Status::Infeasible);
    assert!(matches!(
        at_once.fits(),
        Err(Error::CapacityExceeded { needed: 640, lower_bound: 640, capacity: 600, .. })
    ));
    let in_turn = planner.plan_together(&[&a, &b], Together::Never).unwrap();
    assert_eq!((in_turn.status(), in_turn.fits()), (Status::Optimal, Ok(())));
}

#[test]
fn an_arena_may_be_shared_by_one_graph_or_none_but_not_over_several_spaces() {
    let graph = stateful("a", 64, 128, 64);
    for together in [Together::Never, Together::Concurrent] {
        let one = ideal_planner().plan_together(&[&graph], together).unwrap();
        assert_eq!(one.arena_bytes(), ideal_planner().plan(&graph).unwrap().arena_bytes());
        let none = ideal_planner().plan_together(&[], together).unwrap();
        assert_eq!((none.arena_bytes(), none.alignment()), (0, 1));
        assert_eq!(together.name().parse(), Ok(together));
    }
    let memories = Memories::new(vec![Space::new("a")]).unwrap();
    let refused = ideal_planner().memories(&memories).plan_together(&[&graph], Together::Never);
    assert!(matches!(refused, Err(Error::InvalidOption { .. })));
    assert!("both".parse::<Together>().is_err());
    let refused = ideal_planner().workers(2).plan_together(&[&graph], Together::Never);
    assert!(matches!(refused, Err(Error::InvalidOption { option: "workers", .. })));
}
