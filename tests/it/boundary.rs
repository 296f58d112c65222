//! Inputs and outputs in memory that the caller brings.

use arenaplan::graph::{View, Whole};
use arenaplan::plan::{InputMemory, OrderSearch, OutputMemory, Placement, WorkspacePolicy};
use arenaplan::{
    Effects, Error, Graph, Plan, Planner, Result, SpaceId, Technique, Techniques, ValueId,
    ValueKind,
};
use proptest::prelude::*;

use crate::check::forge;
use crate::fusion::{each_order, networks};
use crate::graphs::{Sketch, graphs, in_place, reshape};
use crate::planners::ideal_planner;

fn outside() -> Planner<'static> {
    ideal_planner().alignment(1).inputs(InputMemory::Caller).outputs(OutputMemory::Caller)
}

/// Returns the name of the value whose buffer each value is in, `None` for the arena's.
fn owners(plan: &Plan) -> Vec<(&str, Option<&str>)> {
    let owner = |place: &Placement| {
        let space = &plan.spaces()[SpaceId::from(place.space).index()];
        space.caller.map(|_| space.name.as_str())
    };
    plan.placements().iter().map(|place| (place.name.as_str(), owner(place))).collect()
}

fn concatenation(pieces: &[u64]) -> Effects {
    let mut offset = 0;
    let mut views = Vec::new();
    for (input, bytes) in pieces.iter().enumerate() {
        views.push(View { input, output: 0, offset, whole: Whole::Output });
        offset += bytes;
    }
    Effects { views, ..Effects::default() }
}

#[test]
fn a_chain_in_place_is_in_the_buffer_of_its_output() {
    let mut sketch = Sketch::new();
    let x = sketch.input("x", 100);
    let a = sketch.node("a", &[x], 80);
    let b = sketch.effectful("b", &[a], 80, in_place(0));
    let c = sketch.effectful("c", &[b], 80, in_place(0));
    let plan = outside().plan(&sketch.build(&[c])).unwrap();
    assert_eq!(plan.arena_bytes(), 0);
    assert_eq!(
        owners(&plan),
        [("x", Some("x")), ("a", Some("c")), ("b", Some("c")), ("c", Some("c"))]
    );
    let sizes: Vec<_> =
        plan.caller_buffers().iter().map(|it| (it.caller, it.arena_bytes)).collect();
    assert_eq!(sizes, [(Some(0), 100), (Some(3), 80)]);
}

#[test]
fn operands_are_written_into_a_concatenation_that_is_the_callers() {
    let mut sketch = Sketch::new();
    let x = sketch.input("x", 10);
    let a = sketch.node("a", &[x], 30);
    let b = sketch.node("b", &[x], 50);
    let both = sketch.effectful("both", &[a, b], 80, concatenation(&[30, 50]));
    let plan = outside().plan(&sketch.build(&[both])).unwrap();
    assert_eq!(plan.arena_bytes(), 0);
    assert_eq!(
        owners(&plan)[1..],
        [("a", Some("both")), ("b", Some("both")), ("both", Some("both"))]
    );
    assert_eq!(plan.placements()[2].offset, 30);
}

#[test]
fn what_is_larger_than_the_output_stays_in_the_arena() {
    // The output could take over a larger input, whose bytes are more than the caller brings.
    let mut sketch = Sketch::new();
    let x = sketch.input("x", 10);
    let large = sketch.node("large", &[x], 90);
    let y = sketch.effectful("y", &[large], 60, in_place(0));
    let plan = outside().plan(&sketch.build(&[y])).unwrap();
    assert_eq!(owners(&plan)[1..], [("large", None), ("y", Some("y"))]);
    assert_eq!(plan.arena_bytes(), 90);
}

#[test]
fn an_output_that_shows_an_input_is_a_copy() {
    let mut sketch = Sketch::new();
    let x = sketch.input("x", 40);
    let y = sketch.effectful("y", &[x], 40, reshape());
    let graph = sketch.build(&[y]);
    assert_eq!(owners(&outside().plan(&graph).unwrap()), [("x", Some("x")), ("y", Some("y"))]);
    // In the arena they share their bytes.
    assert_eq!(ideal_planner().alignment(1).plan(&graph).unwrap().arena_bytes(), 40);
}

#[test]
fn two_outputs_are_in_two_buffers() {
    let mut sketch = Sketch::new();
    let x = sketch.input("x", 10);
    let y = sketch.node("y", &[x], 40);
    let z = sketch.effectful("z", &[y], 40, reshape());
    let plan = outside().plan(&sketch.build(&[y, z, y])).unwrap();
    assert_eq!(owners(&plan)[1..], [("y", Some("y")), ("z", Some("z"))]);
    assert_eq!(plan.caller_buffers().len(), 3);
}

#[test]
fn an_input_that_is_an_output_is_in_one_buffer() {
    for inputs in [InputMemory::Inside, InputMemory::Caller] {
        for outputs in [OutputMemory::Inside, OutputMemory::Caller] {
            let mut sketch = Sketch::new();
            let x = sketch.input("x", 40);
            let graph = sketch.build(&[x]);
            let plan = ideal_planner().inputs(inputs).outputs(outputs).plan(&graph).unwrap();
            let is_caller = inputs == InputMemory::Caller || outputs == OutputMemory::Caller;
            assert_eq!(plan.caller_buffers().len(), usize::from(is_caller));
            assert_eq!(plan.arena_bytes() == 0, is_caller);
        }
    }
}

#[test]
fn a_state_stays_in_the_arena_though_it_is_an_output() {
    let mut sketch = Sketch::new();
    let state = sketch.value("state", ValueKind::State, 40);
    let plan = outside().plan(&sketch.build(&[state])).unwrap();
    assert_eq!((plan.arena_bytes(), plan.caller_buffers().len()), (40, 0));
}

#[test]
fn inputs_are_overwritten_only_if_that_is_asked() {
    let mut sketch = Sketch::new();
    let x = sketch.input("x", 100);
    let a = sketch.effectful("a", &[x], 100, in_place(0));
    let y = sketch.node("y", &[a], 10);
    let graph = sketch.build(&[y]);
    let bytes = |inputs| {
        let planner = ideal_planner().alignment(1).inputs(inputs);
        planner.plan(&graph).unwrap().arena_bytes()
    };
    let [inside, caller, reuse] =
        [InputMemory::Inside, InputMemory::Caller, InputMemory::Reuse].map(bytes);
    assert_eq!((inside, caller, reuse), (200, 110, 110));
}

#[test]
fn a_reused_input_may_be_a_piece() {
    let mut sketch = Sketch::new();
    let x = sketch.input("x", 100);
    let a = sketch.node("a", &[x], 20);
    let both = sketch.effectful("both", &[x, a], 120, concatenation(&[100, 20]));
    let graph = sketch.build(&[both]);
    let bytes = |inputs| {
        let planner = ideal_planner().alignment(1).inputs(inputs);
        planner.plan(&graph).unwrap().arena_bytes()
    };
    assert_eq!((bytes(InputMemory::Inside), bytes(InputMemory::Reuse)), (220, 120));
}

#[test]
fn contradictory_options_are_refused() {
    let refused = |plan: Result<Plan>| matches!(plan, Err(Error::InvalidOption { .. }));
    let mut sketch = Sketch::new();
    let x = sketch.input("x", 10);
    let y = sketch.node("y", &[x], 10);
    let graph = sketch.build(&[y]);
    let planner = ideal_planner().inputs(InputMemory::Reuse).preserve_inputs(true);
    assert!(refused(planner.plan(&graph)));
    assert!(refused(planner.plan_steps(&graph, &[vec![graph.order()[0]]])));
    let memories = arenaplan::Memories::new(vec![arenaplan::pack::Space::new("sram")]).unwrap();
    assert!(refused(outside().memories(&memories).plan(&graph)));
    let together = outside().plan_together(&[&graph], arenaplan::plan::Together::Never);
    assert!(matches!(together, Err(Error::InvalidOption { .. })));
    let mut builder = Graph::builder("pinned");
    let x = arenaplan::Value::new("x", ValueKind::Input, arenaplan::DType::UINT8, [10]).unwrap();
    builder.add_value(x.with_pin(64));
    let pinned = builder.build().unwrap();
    assert!(refused(outside().plan(&pinned)));
    assert!(ideal_planner().outputs(OutputMemory::Caller).plan(&pinned).is_ok());
}

#[test]
fn a_pinned_value_is_in_the_arena() {
    let mut sketch = Sketch::new();
    let x = sketch.input("x", 64);
    let a = sketch.node("a", &[x], 64);
    let y = sketch.effectful("y", &[a], 64, in_place(0));
    let graph = sketch.build(&[y]);
    let place = |graph: &Graph| {
        let plan = outside().alignment(64).plan(graph).unwrap();
        plan.placement(a).map(|it| (it.space, it.offset))
    };
    // Without a pin, `a` is made where the caller has `y`.
    assert_eq!(
        (place(&graph), place(&graph.with_pins([(a, 128)]).unwrap())),
        (Some((2, 0)), Some((0, 128)))
    );
}

/// x -> a -> y (in place), and b from x, which y reads too.
fn sample() -> (Graph, Plan) {
    let mut sketch = Sketch::new();
    let x = sketch.input("x", 64);
    let a = sketch.node("a", &[x], 64);
    let b = sketch.node("b", &[x, a], 64);
    let y = sketch.effectful("y", &[a, b], 64, in_place(0));
    let graph = sketch.build(&[y]);
    let plan = outside().alignment(64).plan(&graph).unwrap();
    (graph, plan)
}

#[test]
fn plans_with_buffers_of_the_caller_survive_their_file() {
    let (graph, plan) = sample();
    assert_eq!(owners(&plan)[1..], [("a", Some("y")), ("b", None), ("y", Some("y"))]);
    let read = Plan::from_json(plan.to_json().as_bytes()).unwrap();
    assert_eq!(read, plan);
    assert!(read.check(&graph).is_ok());
    // A reader that does not know of them finds fields that it refuses.
    assert!(
        plan.to_json().contains(r#""caller":0"#)
            && plan.to_json().contains(r#""outputs":"caller""#)
    );
    let inside = ideal_planner().plan(&graph).unwrap().to_json();
    assert!(!inside.contains("caller") && !inside.contains(r#""outputs":"inside""#));
}

#[test]
fn the_checker_refuses_forged_buffers_of_the_caller() {
    let (graph, plan) = sample();
    let refusal = |change: &dyn Fn(&mut serde_json::Value)| match forge(&plan, change)
        .and_then(|forged| forged.check(&graph))
    {
        Ok(_) => "accepted",
        Err(error) => error.kind(),
    };
    assert_eq!(refusal(&|_| {}), "accepted");
    // What shares nothing with the output may not be in its buffer, though it would be free.
    assert_eq!(refusal(&|json| json["values"][2]["space"] = 1.into()), "PlanMismatch");
    // The caller brings as many bytes as the value has, and one buffer per value.
    assert_eq!(refusal(&|json| json["spaces"][2]["arena_bytes"] = 128.into()), "PlanMismatch");
    assert_eq!(refusal(&|json| json["spaces"][2]["caller"] = 2.into()), "PlanMismatch");
    assert_eq!(
        refusal(&|json| {
            json["spaces"].as_array_mut().unwrap().pop();
        }),
        "PlanCorrupt"
    );
    // Buffers come behind the arenas.
    let swap = |json: &mut serde_json::Value| json["spaces"].as_array_mut().unwrap().swap(0, 1);
    assert_eq!(refusal(&swap), "PlanCorrupt");
    // Where the caller brings inputs, nobody writes.
    let onto_input = |json: &mut serde_json::Value| {
        json["values"][1]["space"] = 1.into();
    };
    assert_eq!(refusal(&onto_input), "PlanMismatch");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whoever brings inputs and outputs: plans are valid, compute the same on real memory, and
    /// leave the caller's inputs alone.
    #[test]
    fn plans_with_buffers_of_the_caller_are_right(graph in graphs(24)) {
        for inputs in [InputMemory::Inside, InputMemory::Caller, InputMemory::Reuse] {
            for outputs in [OutputMemory::Inside, OutputMemory::Caller] {
                for workspace in [WorkspacePolicy::None, WorkspacePolicy::Auto] {
                    for alignment in [1, 64] {
                        let planner = ideal_planner().inputs(inputs).outputs(outputs);
                        let plan = planner.alignment(alignment).workspace(workspace).plan(&graph)?;
                        crate::arena::run_and_compare(&graph, &plan);
                        let resized = plan.resized(&graph)?;
                        prop_assert_eq!(resized.caller_buffers(), plan.caller_buffers());
                    }
                }
            }
        }
    }

    /// In the given order, what the caller brings never costs bytes.
    #[test]
    fn the_callers_memory_saves_bytes(graph in graphs(24)) {
        let planner = ideal_planner().alignment(1).optimize(Techniques::BASIC);
        let inside = planner.plan(&graph)?.lower_bound();
        let outputs = planner.outputs(OutputMemory::Caller).plan(&graph)?.lower_bound();
        let both = planner.outputs(OutputMemory::Caller).inputs(InputMemory::Caller);
        prop_assert!(outputs <= inside);
        prop_assert!(both.plan(&graph)?.lower_bound() <= outputs);
    }

    /// Whatever may run at the same time, a plan with buffers of the caller is safe.
    #[test]
    fn buffers_of_the_caller_are_safe_in_every_order(graph in graphs(16)) {
        outside().parallel_safe(true).plan(&graph)?;
    }

    /// An order that is called complete is not beaten by any other order of the same steps.
    #[test]
    fn orders_with_buffers_of_the_caller_are_not_beaten(graph in networks(8)) {
        let planner = outside().optimize(Techniques::BASIC.with(Technique::Order));
        let plan = planner.plan(&graph)?;
        let search = plan.search().unwrap();
        let mut least = u64::MAX;
        each_order(&graph, &mut Vec::new(), &mut |order| {
            let steps: Vec<_> = order.iter().map(|&node| vec![node]).collect();
            least = least.min(planner.plan_steps(&graph, &steps).unwrap().lower_bound());
        });
        prop_assert!(search.floor <= least);
        if search.order == OrderSearch::Complete {
            prop_assert!(plan.lower_bound() <= least);
        }
    }
}

#[test]
fn ids_of_values_say_whose_buffer_it_is() {
    let (graph, plan) = sample();
    for buffer in plan.caller_buffers() {
        let value = graph.value(ValueId::from(buffer.caller.unwrap()));
        assert_eq!((value.name(), value.bytes()), (buffer.name.as_str(), buffer.arena_bytes));
    }
}
