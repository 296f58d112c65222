//! Hazards: the reduced dependencies between steps, against their definition; the checker of
//! hazards; arenas that several threads use at once.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Mutex;
use std::thread;

use arenaplan::arena::{Input, Output};
use arenaplan::graph::{Flow, Overlap, View, Whole};
use arenaplan::pack::Space;
use arenaplan::plan::{Hazard, HazardKind, Hazards, InputMemory, OutputMemory, WorkspacePolicy};
use arenaplan::program::{Operands, SharedArena};
use arenaplan::{
    Effects, Graph, Memories, Node, NodeId, Plan, Planner, Program, SpaceId, Techniques, ValueKind,
};
use proptest::prelude::*;

use crate::check::forge;
use crate::graphs::{Sketch, in_place, same};
use crate::planners::ideal_planner;
use crate::program::interpreter::{reference, run_lent, supply};

/// The bytes that a step is lent: addresses, and whether to write.
type Lent = Vec<(Range<usize>, bool)>;

/// Returns the bytes that each step is lent.
fn lent(graph: &Graph, plan: &Plan) -> Vec<Lent> {
    let program = plan.program(graph).unwrap();
    let mut arena = plan.commit().unwrap();
    let addresses = |bytes: &[u8]| bytes.as_ptr().addr()..bytes.as_ptr().addr() + bytes.len();
    let mut steps = Vec::new();
    for step in program.steps() {
        let mut memory = arena.step(&program, step).unwrap();
        let mut inputs: Vec<Input<'_>> = step.inputs().map(|_| Input::Absent).collect();
        let mut outputs: Vec<Output<'_>> = step.outputs().map(|_| Output::Absent).collect();
        let mut workspaces: Vec<&mut [u8]> = step.workspaces().map(|_| &mut [][..]).collect();
        memory.lend(&mut inputs, &mut outputs, &mut workspaces).unwrap();
        let mut found = Vec::new();
        for input in &inputs {
            match input {
                Input::Shared(bytes) => found.push((addresses(bytes), false)),
                Input::State(bytes) => found.push((addresses(bytes), true)),
                _ => {}
            }
        }
        for output in &outputs {
            if let Output::Exclusive(bytes) = output {
                found.push((addresses(bytes), true));
            }
        }
        found.extend(workspaces.iter().map(|bytes| (addresses(bytes), true)));
        steps.push(found);
    }
    steps
}

/// Returns the reduced edges by the definition: all pairs of steps that are lent a common byte, one
/// of them to write, and all dependencies of the graph; less those that follow from others.
fn defined(graph: &Graph, plan: &Plan) -> BTreeSet<(usize, usize)> {
    let lent = lent(graph, plan);
    let steps = lent.len();
    let step_of = |id: NodeId| {
        plan.steps()
            .iter()
            .position(|it| u32::from(id) == it.node || it.fused.contains(&u32::from(id)))
    };
    let mut direct = vec![vec![false; steps]; steps];
    for after in 0..steps {
        for before in 0..after {
            direct[before][after] = lent[before].iter().any(|(a, a_writes)| {
                lent[after].iter().any(|(b, b_writes)| {
                    (*a_writes || *b_writes) && a.start < b.end && b.start < a.end
                })
            });
        }
    }
    for index in 0..graph.nodes().len() {
        let after = step_of(NodeId::new(index)).unwrap();
        for before in graph.dependencies(NodeId::new(index)) {
            let before = step_of(before).unwrap();
            if before != after {
                direct[before][after] = true;
            }
        }
    }
    let mut paths = direct.clone();
    for middle in 0..steps {
        for before in 0..middle {
            for after in middle + 1..steps {
                if paths[before][middle] && paths[middle][after] {
                    paths[before][after] = true;
                }
            }
        }
    }
    let mut reduced = BTreeSet::new();
    for after in 0..steps {
        for before in 0..after {
            let around = |middle: usize| paths[before][middle] && paths[middle][after];
            if paths[before][after] && !(before + 1..after).any(around) {
                assert!(direct[before][after]);
                reduced.insert((before, after));
            }
        }
    }
    reduced
}

fn pairs(hazards: &Hazards) -> BTreeSet<(usize, usize)> {
    hazards.edges().iter().map(|edge| (edge.before as usize, edge.after as usize)).collect()
}

/// Returns hazards with other edges.
fn with_edges(hazards: &Hazards, edges: &[Hazard]) -> Hazards {
    let mut json: serde_json::Value = serde_json::from_str(&hazards.to_json()).unwrap();
    json["edges"] = serde_json::to_value(edges).unwrap();
    Hazards::from_json(json.to_string().as_bytes()).unwrap()
}

/// Checks all laws of the hazards of one plan.
pub fn check(graph: &Graph, plan: &Plan) {
    let hazards = plan.hazards(graph).unwrap();
    assert_eq!(pairs(&hazards), defined(graph, plan), "{}", plan.to_json());
    assert_eq!(&hazards, plan.program(graph).unwrap().hazards());
    plan.check_hazards(graph, &hazards).unwrap();
    let written = hazards.to_json();
    assert_eq!(Hazards::from_json(written.as_bytes()).unwrap(), hazards);
}

/// Leaving out any edge is found, and so is adding one, and each other kind of an edge.
pub fn check_mutants(graph: &Graph, plan: &Plan) {
    let hazards = plan.hazards(graph).unwrap();
    let refused = |edges: &[Hazard]| {
        let mutant = with_edges(&hazards, edges);
        plan.check_hazards(graph, &mutant).unwrap_err().kind()
    };
    for index in 0..hazards.edges().len() {
        let mut fewer = hazards.edges().to_vec();
        fewer.remove(index);
        assert_eq!(refused(&fewer), "HazardMismatch");
        for kind in HazardKind::ALL.into_iter().filter(|&kind| kind != hazards.edges()[index].kind)
        {
            let mut other = hazards.edges().to_vec();
            other[index].kind = kind;
            assert_eq!(refused(&other), "HazardMismatch");
        }
    }
    let steps = u32::try_from(hazards.steps()).unwrap();
    let known = pairs(&hazards);
    for after in 1..steps {
        for before in (0..after).filter(|&it| !known.contains(&(it as usize, after as usize))) {
            let mut more = hazards.edges().to_vec();
            more.push(Hazard { after, before, kind: HazardKind::Data });
            more.sort();
            assert_eq!(refused(&more), "HazardMismatch", "{before} before {after}");
        }
    }
}

/// Numbers that look random.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        (self.0 >> 33) as usize % limit
    }
}

/// Runs every step once on several threads. Each thread takes any step that may run, and yields now
/// and then.
fn run_shared(graph: &Graph, shared: &SharedArena<'_>, threads: usize, seed: u64) {
    let hazards = shared.hazards();
    let dependents = hazards.dependents();
    let waits: Vec<usize> = (0..hazards.steps()).map(|step| hazards.of(step).len()).collect();
    let ready: Vec<usize> = (0..waits.len()).filter(|&step| waits[step] == 0).collect();
    let state = Mutex::new((waits, ready, hazards.steps()));
    thread::scope(|scope| {
        for thread in 0..threads {
            let (state, dependents) = (&state, &dependents);
            scope.spawn(move || {
                let mut numbers = Numbers(seed ^ (thread as u64) << 40);
                loop {
                    let mut locked = state.lock().unwrap();
                    if locked.2 == 0 {
                        return;
                    }
                    let count = locked.1.len();
                    if count == 0 {
                        drop(locked);
                        thread::yield_now();
                        continue;
                    }
                    let step = locked.1.swap_remove(numbers.below(count));
                    drop(locked);
                    let mut lent = shared.step(step).unwrap();
                    if numbers.below(4) == 0 {
                        thread::yield_now();
                    }
                    run_lent(graph, lent.memory()).unwrap();
                    drop(lent);
                    let mut locked = state.lock().unwrap();
                    locked.2 -= 1;
                    for &next in &dependents[step] {
                        locked.0[next as usize] -= 1;
                        if locked.0[next as usize] == 0 {
                            locked.1.push(next as usize);
                        }
                    }
                }
            });
        }
    });
    assert!(shared.is_over());
}

/// Checks that runs in other orders and on several threads make the bytes of a serial run.
pub fn check_runs(graph: &Graph, plan: &Plan, seed: u64) {
    let program: Program = plan.program(graph).unwrap();
    let expected = reference(graph);
    let mut arena = plan.commit().unwrap();
    for threads in [1, 3] {
        supply(graph, plan, &mut arena).unwrap();
        run_shared(graph, &arena.share(&program).unwrap(), threads, seed);
        for &output in graph.outputs().iter().filter(|it| graph.value(**it).is_planned()) {
            assert_eq!(arena.value(plan, output).unwrap(), expected[output.index()]);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Reshapes, slices, concatenations, in-place chains, workspaces, control dependencies.
    #[test]
    fn hazards_are_the_reduced_conflicts(graph in crate::graphs::graphs(24), seed in any::<u64>()) {
        for techniques in [Techniques::NONE, Techniques::ALL] {
            let planner = ideal_planner().workspace(WorkspacePolicy::Auto).optimize(techniques);
            for alignment in [1, 64] {
                let plan = planner.alignment(alignment).plan(&graph).unwrap();
                check(&graph, &plan);
                check_runs(&graph, &plan, seed);
            }
        }
        let plan = ideal_planner().parallel_safe(true).plan(&graph).unwrap();
        check(&graph, &plan);
        check_runs(&graph, &plan, seed);
    }

    /// Nodes that run as one; buffers of the caller; several memories.
    #[test]
    fn fused_steps_and_other_spaces_have_hazards(
        graph in crate::fusion::networks(14),
        small in 0_u64..400,
        seed in any::<u64>(),
    ) {
        let planner = ideal_planner().alignment(1);
        let callers = planner.inputs(InputMemory::Caller).outputs(OutputMemory::Caller);
        let memories = Memories::new(vec![
            Space::new("fast").with_capacity(small),
            Space::new("slow").with_cost(1),
        ]).unwrap();
        for planner in [planner, callers, planner.memories(&memories)] {
            let plan = planner.plan(&graph).unwrap();
            check(&graph, &plan);
            check_runs(&graph, &plan, seed);
        }
    }

    /// Outputs that overlap inputs at a distance.
    #[test]
    fn overlaps_have_hazards(graph in crate::overlap::networks(10), seed in any::<u64>()) {
        let plan = ideal_planner().alignment(1).plan(&graph).unwrap();
        check(&graph, &plan);
        check_runs(&graph, &plan, seed);
    }

    #[test]
    fn every_mutant_of_hazards_is_refused(graph in crate::graphs::graphs(12)) {
        check_mutants(&graph, &ideal_planner().alignment(1).plan(&graph).unwrap());
        check_mutants(&graph, &ideal_planner().parallel_safe(true).plan(&graph).unwrap());
    }
}

/// The checker derives the edges of the definition, on graphs that never change: a change of one of
/// its rules is noticed without random cases.
#[test]
fn hazards_of_the_same_graphs_are_the_reduced_conflicts() {
    let small =
        Memories::new(vec![Space::new("fast").with_capacity(200), Space::new("slow").with_cost(1)]);
    let small = small.unwrap();
    let planner = ideal_planner().alignment(1);
    let callers = planner.inputs(InputMemory::Caller).outputs(OutputMemory::Caller);
    for graph in same(crate::graphs::graphs(24), 30) {
        check(&graph, &planner.workspace(WorkspacePolicy::Auto).plan(&graph).unwrap());
        check(&graph, &callers.alignment(64).plan(&graph).unwrap());
    }
    for graph in same(crate::fusion::networks(14), 30) {
        check(&graph, &planner.plan(&graph).unwrap());
        check(&graph, &planner.memories(&small).plan(&graph).unwrap());
    }
    for graph in same(crate::overlap::networks(10), 30) {
        check(&graph, &planner.plan(&graph).unwrap());
    }
    for graph in same(crate::graphs::graphs(10), 20) {
        check_mutants(&graph, &planner.plan(&graph).unwrap());
    }
}

/// A state that is read, mutated twice, and read again; scratch memory of another branch.
fn stateful() -> Graph {
    let mut sketch = Sketch::new();
    let x = sketch.input("x", 64);
    let state = sketch.value("state", ValueKind::State, 64);
    let old = sketch.node("old", &[state], 64);
    let made = ["first", "second"].map(|name| {
        let made = sketch.value(name, ValueKind::Activation, 64);
        let effects = Effects { mutates: vec![0], ..Effects::default() };
        let node = Node::new(name, "Op").reads([state, x]).writes([made]);
        sketch.builder.add_node(node.with_effects(effects));
        made
    });
    let new = sketch.node("new", &[state], 64);
    let apart = sketch.effectful("apart", &[x], 64, in_place(0));
    sketch.build(&[old, made[0], made[1], new, apart])
}

#[test]
fn mutations_of_a_state_keep_their_order() {
    let graph = stateful();
    let plan = Planner::new().plan(&graph).unwrap();
    check(&graph, &plan);
    check_mutants(&graph, &plan);
    let hazards = plan.hazards(&graph).unwrap();
    let of = |name: &str| plan.steps().iter().position(|step| step.name == name).unwrap();
    let kind = |before: &str, after: &str| {
        let mut edges = hazards.of(of(after)).iter();
        edges.find(|edge| edge.before as usize == of(before)).map(|edge| edge.kind)
    };
    assert_eq!(kind("old", "first"), Some(HazardKind::WriteAfterRead));
    assert_eq!(kind("first", "second"), Some(HazardKind::Data));
    assert_eq!(kind("second", "new"), Some(HazardKind::Data));
    assert_eq!(kind("first", "new"), None);
}

/// An output that begins behind the end of the other one uses none of its bytes.
#[test]
fn an_overlap_farther_than_the_output_is_long_is_none() {
    let mut sketch = Sketch::new();
    let x = sketch.input("x", 64);
    let a = sketch.node("a", &[x], 128);
    let overlap = Overlap { input: 0, output: 0, distance: 64 };
    let overlaps = vec![overlap];
    let b = sketch.effectful("b", &[a], 128, Effects { overlaps, ..Effects::default() });
    let other = sketch.node("other", &[x], 64);
    let y = sketch.node("y", &[b, other], 64);
    let graph = sketch.build(&[y]);
    let plan = ideal_planner().plan(&graph).unwrap();
    check(&graph, &plan);
    let moved = crate::forged::accept("a far overlap", (graph.clone(), plan), |json| {
        let places = [("x", 0_u64), ("b", 64), ("other", 192), ("a", 256), ("y", 384)];
        for (name, offset) in places {
            crate::forged::value(json, name)["offset"] = offset.into();
        }
        json["spaces"][0]["lower_bound"] = 0.into();
    });
    check(&graph, &moved);
}

/// Two slices have a part in common. The output lies over the first one; the second one begins in
/// its bytes and ends behind them, and a step is lent all of it.
#[test]
fn an_input_that_begins_in_an_overlapped_one_is_lent_with_it() {
    for (bytes, offset) in [(128, 64), (64, 0)] {
        let mut sketch = Sketch::new();
        let x = sketch.input("x", 8);
        let whole = sketch.node("whole", &[x], offset + 128);
        let slice = |offset| {
            let view = View { input: 0, output: 0, offset, whole: Whole::Input };
            Effects { views: vec![view], ..Effects::default() }
        };
        let first = sketch.effectful("first", &[whole], bytes, slice(0));
        let second = sketch.effectful("second", &[whole], 128, slice(offset));
        let flows = vec![Flow { output: 0, pieces: 8, follows: vec![0, 1] }];
        let effects = Effects { flows, ..Effects::default() };
        let y = sketch.effectful("y", &[first, second], 64, effects);
        let z = sketch.node("z", &[y], 8);
        let graph = sketch.build(&[z]);
        let plan = ideal_planner().alignment(1).plan(&graph).unwrap();
        let places = [y, first, second].map(|value| plan.placement(value).unwrap().offset);
        assert_eq!(places, [0, 0, offset]);
        check(&graph, &plan);
        check_runs(&graph, &plan, 1);
    }
}

/// A chain of 3 values in 2 places: step 2 writes the bytes that step 1 has read.
#[test]
fn shared_bytes_are_write_after_read() {
    let mut sketch = Sketch::new();
    let x = sketch.input("x", 64);
    let dead = sketch.node("dead", &[x], 64);
    let other = sketch.node("other", &[x], 64);
    let sum = sketch.node("sum", &[other], 64);
    let graph = sketch.build(&[sum]);
    assert_eq!(graph.producer(dead), Some(NodeId::new(0)));
    let plan = Planner::new().keep_order(true).plan(&graph).unwrap();
    assert_eq!(plan.arena_bytes(), 128, "x, then sum, beside dead, then other");
    let edges: Vec<_> = plan.hazards(&graph).unwrap().edges().to_vec();
    let edge = |before, after, kind| Hazard { after, before, kind };
    assert_eq!(edges, [edge(0, 1, HazardKind::WriteAfterWrite), edge(1, 2, HazardKind::Data),]);
}

#[test]
fn refusals_of_hazards_name_steps_and_bytes() {
    let mut sketch = Sketch::new();
    let x = sketch.input("x", 64);
    sketch.node("dead", &[x], 64);
    let other = sketch.node("other", &[x], 64);
    let sum = sketch.node("sum", &[other], 64);
    let graph = sketch.build(&[sum]);
    let plan = Planner::new().keep_order(true).plan(&graph).unwrap();
    let hazards = plan.hazards(&graph).unwrap();
    let refused = |edges: &[Hazard]| {
        let error = plan.check_hazards(&graph, &with_edges(&hazards, edges)).unwrap_err();
        error.to_string()
    };
    let edges = hazards.edges();
    let without = refused(&edges[1..]);
    let says = "step 1 ('other') may run before step 0 ('dead'), and both use byte 64 of space 0";
    assert!(without.contains(says), "{without}");
    let kind = Hazard { kind: HazardKind::Data, ..edges[0] };
    let other = refused(&[kind, edges[1]]);
    assert!(other.contains("step 1 ('other') waits for step 0 ('dead'): that is"), "{other}");
    let more = Hazard { before: 0, after: 2, kind: HazardKind::WriteAfterRead };
    let more = refused(&[edges[0], more, edges[1]]);
    let says = "that step 2 ('sum') waits for step 0 ('dead') follows from other edges";
    assert!(more.contains(says), "{more}");
}

/// The order of steps says nothing about a plan whose values overlap.
#[test]
fn a_wrong_plan_has_no_hazards() {
    let graph = chain();
    let plan = Planner::new().plan(&graph).unwrap();
    let hazards = plan.hazards(&graph).unwrap();
    let wrong = forge(&plan, |json| {
        json.as_object_mut().unwrap().remove("search");
        for row in json["values"].as_array_mut().unwrap() {
            row["offset"] = 0.into();
        }
        for figure in ["arena_bytes", "lower_bound"] {
            json["spaces"][0][figure] = 64.into();
            json[figure] = 64.into();
        }
    });
    let wrong = wrong.unwrap();
    let kinds = [wrong.hazards(&graph).err(), wrong.check_hazards(&graph, &hazards).err()];
    assert_eq!(kinds.map(|error| error.unwrap().kind()), ["PlanOverlap"; 2]);
}

/// Returns a graph of two nodes, of which the second reads what the first makes.
fn chain() -> Graph {
    let mut sketch = Sketch::new();
    let x = sketch.input("x", 64);
    let a = sketch.node("a", &[x], 64);
    let b = sketch.node("b", &[a], 64);
    sketch.build(&[b])
}

/// The bytes of a shared arena are lent in turn, and a step at the wrong time is refused.
#[test]
fn steps_of_a_shared_arena_wait_for_their_hazards() {
    let graph = chain();
    let plan = Planner::new().plan(&graph).unwrap();
    let program = plan.program(&graph).unwrap();
    let mut arena = plan.commit().unwrap();
    let mut shared = arena.share(&program).unwrap();
    for _ in 0..2 {
        let early = shared.step(1).unwrap_err();
        assert_eq!(
            (early.kind(), early.to_string()),
            ("ArenaState", "step 'b' waits for step 'a'".into())
        );
        let first = shared.step(0).unwrap();
        assert_eq!(first.step().name(), "a");
        assert_eq!(shared.step(0).unwrap_err().to_string(), "step 'a' was lent before in this run");
        assert_eq!(shared.step(1).unwrap_err().kind(), "ArenaState");
        drop(first);
        assert!(!shared.is_over());
        shared.step(1).unwrap();
        assert_eq!(shared.step(2).unwrap_err().kind(), "UndefinedValue");
        assert!(shared.is_over());
        shared.restart();
    }
    let other = Planner::new().alignment(128).plan(&graph).unwrap();
    let mut arena = other.commit().unwrap();
    assert_eq!(arena.share(&program).unwrap_err().kind(), "ArenaMismatch");
}

/// A step that is leaked stays lent: those that wait for it are never lent.
#[test]
fn leaked_steps_stay_lent() {
    let graph = chain();
    let plan = Planner::new().plan(&graph).unwrap();
    let program = plan.program(&graph).unwrap();
    let mut arena = plan.commit().unwrap();
    let mut shared = arena.share(&program).unwrap();
    std::mem::forget(shared.step(0).unwrap());
    assert_eq!(shared.step(1).unwrap_err().kind(), "ArenaState");
    shared.restart();
    drop(shared.step(0).unwrap());
    shared.step(1).unwrap();
}

/// Every way to lend works on a shared arena, and lends the same bytes as an arena of one thread.
#[test]
fn shared_steps_are_lent_in_every_way() {
    let mut sketch = Sketch::new();
    let x = sketch.input("x", 64);
    let y = sketch.input("y", 64);
    let sum = sketch.effectful("sum", &[x, y], 64, in_place(0));
    let graph = sketch.build(&[sum]);
    let plan = Planner::new().inputs(InputMemory::Reuse).plan(&graph).unwrap();
    let program = plan.program(&graph).unwrap();
    let mut arena = plan.commit().unwrap();
    arena.value_mut(&plan, x).unwrap().fill(1);
    arena.value_mut(&plan, y).unwrap().fill(2);
    let mut shared = arena.share(&program).unwrap();
    {
        let mut lent = shared.step(0).unwrap();
        let mut memory = lent.memory();
        assert_eq!(memory.input(1).unwrap(), [2; 64]);
        let Operands { inputs, outputs: [output], .. } = memory.split::<2, 1, 0>().unwrap();
        assert!(matches!(inputs[0], Input::Within { output: 0, offset: 0 }));
        assert!(matches!(inputs[1], Input::Shared(bytes) if bytes == [2; 64]));
        let Output::Exclusive(output) = output else { panic!("{output:?}") };
        output.fill(7);
        let operands = memory.split::<2, 1, 0>().unwrap();
        assert!(matches!(&operands.outputs[0], Output::Exclusive(bytes) if **bytes == [7; 64]));
        memory.output(0).unwrap().fill(3);
        memory.elementwise(|[x, y]: [u8; 2]| x + y).unwrap();
    }
    shared.restart();
    shared.step(0).unwrap().memory().elementwise(|[x, y]: [u8; 2]| x + y).unwrap();
    assert_eq!(arena.value(&plan, sum).unwrap(), [7; 64]);
    assert_eq!(arena.bytes(SpaceId::new(0)).unwrap().len(), 128);
}

#[test]
fn bad_files_of_hazards_are_refused() {
    let graph = stateful();
    let plan = Planner::new().plan(&graph).unwrap();
    let hazards = plan.hazards(&graph).unwrap();
    let good: serde_json::Value = serde_json::from_str(&hazards.to_json()).unwrap();
    let refused = |change: &dyn Fn(&mut serde_json::Value)| {
        let mut json = good.clone();
        change(&mut json);
        Hazards::from_json(json.to_string().as_bytes()).map(|_| ()).unwrap_err().kind()
    };
    assert_eq!(refused(&|json| json["format"] = "plan".into()), "PlanCorrupt");
    assert_eq!(refused(&|json| json["version"] = 2.into()), "PlanVersion");
    assert_eq!(refused(&|json| json["steps"] = 1.into()), "PlanCorrupt");
    assert_eq!(refused(&|json| json["steps"] = u64::MAX.into()), "PlanCorrupt");
    assert_eq!(refused(&|json| json["edges"][0]["before"] = 99.into()), "PlanCorrupt");
    assert_eq!(refused(&|json| json["edges"][1] = json["edges"][0].clone()), "PlanCorrupt");
    assert_eq!(refused(&|json| json["edges"][0]["kind"] = "fear".into()), "PlanCorrupt");
    assert_eq!(refused(&|json| json["more"] = 1.into()), "PlanCorrupt");
    for end in 0..hazards.to_json().trim_end().len() {
        assert!(Hazards::from_json(&hazards.to_json().as_bytes()[..end]).is_err());
    }
    // Hazards of another plan or graph.
    let mut json = good.clone();
    json["digest"] = "0".repeat(64).into();
    let other = Hazards::from_json(json.to_string().as_bytes()).unwrap();
    assert_eq!(plan.check_hazards(&graph, &other).unwrap_err().kind(), "HazardMismatch");
}

/// No plan is right both before and after a change of a state, so a graph that permits both is
/// refused by name; an edge, or an operand that is not read, makes it plannable.
#[test]
fn a_state_that_is_changed_in_any_order_is_refused_by_name() {
    enum Uses {
        Reads,
        Changes,
        Ignores,
    }
    let planned = |uses: Uses, bytes: u64, is_ordered: bool| {
        let mut sketch = Sketch::new();
        let x = sketch.input("x", 64);
        let state = sketch.value("s", ValueKind::State, bytes);
        let effects = match uses {
            Uses::Reads => Effects::default(),
            Uses::Changes => Effects { mutates: vec![1], ..Effects::default() },
            Uses::Ignores => Effects { ignores: vec![1], ..Effects::default() },
        };
        let a = sketch.effectful("a", &[x, state], 64, effects);
        let b = sketch.value("b", ValueKind::Activation, 64);
        let node = Node::new("b", "Op").reads([state, x]).writes([b]);
        let node = if is_ordered { node.after([NodeId::new(0)]) } else { node };
        let effects = Effects { mutates: vec![0], ..Effects::default() };
        sketch.builder.add_node(node.with_effects(effects));
        let graph = sketch.build(&[a, b]);
        let plan = ideal_planner().parallel_safe(true).plan(&graph);
        plan.map(|plan| check(&graph, &plan)).map_err(|error| error.to_string())
    };
    let refused = |uses| planned(uses, 64, false).unwrap_err();
    assert_eq!(
        refused(Uses::Reads),
        "option parallel_safe: node 'a' reads state 's', node 'b' changes it, and the graph \
         permits either order"
    );
    assert_eq!(
        refused(Uses::Changes),
        "option parallel_safe: node 'a' changes state 's', node 'b' changes it, and the graph \
         permits either order"
    );
    for (uses, bytes, is_ordered) in [
        (Uses::Reads, 64, true),
        (Uses::Changes, 64, true),
        (Uses::Ignores, 64, false),
        (Uses::Reads, 0, false),
    ] {
        planned(uses, bytes, is_ordered).unwrap();
    }
}

/// A shared step lends an output with the inputs on both sides of it, and those in other spaces.
#[test]
fn a_shared_step_lends_inputs_around_its_output() {
    let mut sketch = Sketch::new();
    let [x, z] = ["x", "z"].map(|name| sketch.input(name, 64));
    let y = sketch.node("y", &[x, z], 64);
    let graph = sketch.build(&[y]);
    let plan = ideal_planner().optimize(Techniques::NONE).plan(&graph).unwrap();
    let plan = crate::forged::accept("an output between inputs", (graph.clone(), plan), |json| {
        for (name, offset) in [("x", 0), ("y", 64), ("z", 128)] {
            crate::forged::value(json, name)["offset"] = offset.into();
        }
    });
    let program = plan.program(&graph).unwrap();
    let mut arena = plan.commit().unwrap();
    for (value, byte) in [(x, 3), (z, 5)] {
        arena.value_mut(&plan, value).unwrap().fill(byte);
    }
    let shared = arena.share(&program).unwrap();
    let mut lent = shared.step(0).unwrap();
    let mut memory = lent.memory();
    let Operands { inputs, outputs: [output], .. } = memory.split::<2, 1, 0>().unwrap();
    assert!(matches!(output, Output::Exclusive(bytes) if bytes.len() == 64));
    for (input, byte) in inputs.into_iter().zip([3, 5]) {
        assert!(matches!(input, Input::Shared(bytes) if bytes == [byte; 64]), "{byte}");
    }
}
