//! Plans for several workers: valid, checked by their timetable, and right in every run.

use arenaplan::base::Error;
use arenaplan::plan::{Effort, InputMemory, OutputMemory, WorkspacePolicy};
use arenaplan::{Graph, Plan, Planner, Status, Techniques, ValueKind};
use proptest::prelude::*;

use crate::check::forge;
use crate::graphs::Sketch;
use crate::hazards::{check, check_mutants, check_runs};
use crate::planners::ideal_planner;
use crate::randwire::{Edges, Wiring, randwire};

/// Plans of small random graphs need no long search.
fn fast<'a>() -> Planner<'a> {
    ideal_planner().effort(Effort::Fast)
}

/// Checks all laws of one plan for several workers.
fn check_plan(graph: &Graph, plan: &Plan, workers: u32, seed: u64) {
    plan.check(graph).unwrap();
    assert_eq!(plan.options().workers, workers);
    let table = plan.timetable().unwrap();
    assert_eq!(table.workers, workers);
    assert_eq!(Plan::from_json(plan.to_json().as_bytes()).unwrap(), *plan);
    let hazards = plan.hazards(graph).unwrap();
    // The definition of the certificate.
    let ends: Vec<u64> =
        table.starts.iter().zip(&table.costs).map(|(start, cost)| start + cost).collect();
    for edge in hazards.edges() {
        assert!(ends[edge.before as usize] <= table.starts[edge.after as usize]);
    }
    for &start in &table.starts {
        let running = (0..ends.len()).filter(|&it| table.starts[it] <= start && start < ends[it]);
        assert!(running.count() <= workers as usize);
    }
    assert!(table.span() <= table.work());
    check_runs(graph, plan, seed);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    /// Views, concatenations, in-place chains, states, workspaces, control dependencies.
    #[test]
    fn plans_for_workers_are_right(graph in crate::graphs::graphs(12), seed in any::<u64>()) {
        for workers in [2, 4] {
            for techniques in [Techniques::NONE, Techniques::ALL] {
                let planner = fast().workspace(WorkspacePolicy::Auto).workers(workers);
                let plan = planner.alignment(1).optimize(techniques).plan(&graph).unwrap();
                check_plan(&graph, &plan, workers, seed);
                check(&graph, &plan);
            }
        }
    }

    /// Nodes that run as one; buffers of the caller; outputs that overlap inputs.
    #[test]
    fn techniques_work_for_workers(
        fused in crate::fusion::networks(12),
        overlaps in crate::overlap::networks(8),
        seed in any::<u64>(),
    ) {
        let planner = fast().alignment(1).workers(3);
        for graph in [&fused, &overlaps] {
            let callers = planner.inputs(InputMemory::Caller).outputs(OutputMemory::Caller);
            for planner in [planner, callers] {
                let plan = planner.plan(graph).unwrap();
                check_plan(graph, &plan, 3, seed);
                check(graph, &plan);
            }
        }
    }

    /// A worker more never makes the checker doubt the bound: it is that of the timetable.
    #[test]
    fn given_steps_and_costs_are_planned(graph in crate::graphs::graphs(16), seed in any::<u64>()) {
        let costs: Vec<u64> = (0..graph.nodes().len()).map(|it| (it as u64 * 7 + seed % 5) % 11).collect();
        let planner = fast().node_times(&costs).workers(2);
        let plan = planner.plan(&graph).unwrap();
        check_plan(&graph, &plan, 2, seed);
        let steps: Vec<Vec<_>> = plan
            .steps()
            .iter()
            .map(|step| step.fused.iter().chain([&step.node]).map(|&node| node.into()).collect())
            .collect();
        check_plan(&graph, &planner.plan_steps(&graph, &steps).unwrap(), 2, seed);
        check_plan(&graph, &planner.plan_steps_of(&graph, &plan).unwrap(), 2, seed);
    }
}

#[test]
fn a_short_schedule_is_not_mistaken_for_one_that_waits_for_bytes() {
    // Both have one order of starts; the one with fewer bytes takes 576 in place of 448.
    let mut sketch = Sketch::new();
    let x = sketch.input("x", 64);
    let ends = ["a", "b"].map(|branch| {
        let inner = sketch.node(&format!("{branch}0"), &[x], 64);
        sketch.node(&format!("{branch}1"), &[inner], 64)
    });
    let sum = sketch.node("sum", &ends, 64);
    let graph = sketch.build(&[sum]);
    let two = Planner::new().workers(2).plan(&graph).unwrap();
    assert_eq!((two.arena_bytes(), two.timetable().unwrap().span()), (256, 448));
    check(&graph, &two);
}

/// Two chains of three nodes that join: one worker needs 3 values at once, two need 4.
fn chains() -> Graph {
    let mut sketch = Sketch::new();
    let x = sketch.input("x", 64);
    let mut ends = Vec::new();
    for branch in ["a", "b"] {
        let mut last = x;
        for at in 0..3 {
            last = sketch.node(&format!("{branch}{at}"), &[last], 64);
        }
        ends.push(last);
    }
    let sum = sketch.node("sum", &ends, 64);
    sketch.build(&[sum])
}

#[test]
fn workers_get_bytes_of_their_own() {
    let graph = chains();
    let one = Planner::new().plan(&graph).unwrap();
    let two = Planner::new().workers(2).plan(&graph).unwrap();
    assert_eq!((one.arena_bytes(), two.arena_bytes()), (192, 256));
    assert_eq!((two.lower_bound(), two.status()), (256, Status::Optimal));
    let table = two.timetable().unwrap();
    assert_eq!((table.work(), table.span()), (960, 576));
    assert!(one.timetable().is_none());
    check(&graph, &two);
    check_mutants(&graph, &two);
    // More workers than branches change nothing.
    let eight = Planner::new().workers(8).plan(&graph).unwrap();
    assert_eq!(eight.arena_bytes(), 256);
    // The hazards of the plan for one worker tie the branches together.
    let hazards = one.hazards(&graph).unwrap();
    assert_eq!(hazards.timetable(&[128; 7], 2).parallelism().to_bits(), 1.0_f64.to_bits());
}

/// In one worker's bytes, only the first nodes of the chains run side by side.
#[test]
fn a_capacity_gives_the_shortest_timetable_that_fits() {
    let graph = chains();
    let planner = Planner::new().workers(2);
    let spans = [192, 255, 256, 1024].map(|capacity| {
        let plan = planner.capacity(capacity).plan(&graph).unwrap();
        check(&graph, &plan);
        assert!(plan.arena_bytes() <= capacity);
        plan.timetable().unwrap().span()
    });
    assert_eq!(spans, [832, 832, 576, 576]);
    let plan = planner.capacity(191).plan(&graph).unwrap();
    assert_eq!((plan.arena_bytes(), plan.status()), (256, Status::Infeasible));
}

#[test]
fn a_slowdown_is_a_limit_of_the_timetable() {
    let graph = chains();
    let planned = |thousandths| {
        let plan = Planner::new().workers(2).max_slowdown(Some(thousandths)).plan(&graph).unwrap();
        check(&graph, &plan);
        (plan.arena_bytes(), plan.timetable().unwrap().span())
    };
    assert_eq!(planned(1000), (256, 576));
    assert_eq!(planned(1444), (256, 576)); // 831.7
    assert_eq!(planned(1445), (192, 832));
    assert_eq!(planned(u64::MAX).0, 192);
}

/// In the bytes that one worker needs, several workers run as many steps at once as fit.
#[test]
fn networks_run_in_parallel_in_the_bytes_of_one_worker() {
    let edges = Edges::SmallWorld { neighbors: 4, rewired: 75 };
    let graph = randwire(Wiring { nodes: 12, edges, channels: 16 }, 9);
    let one = Planner::new().plan(&graph).unwrap();
    let planner = Planner::new().workers(4).effort(Effort::Fast);
    let mut last = 1.2;
    for eighths in [8, 10, 16] {
        let capacity = one.arena_bytes() / 8 * eighths;
        let plan = planner.capacity(capacity).plan(&graph).unwrap();
        check(&graph, &plan);
        assert!(plan.arena_bytes() <= capacity);
        let parallelism = plan.timetable().unwrap().parallelism();
        assert!(parallelism >= last, "{eighths}: {parallelism} and {last}");
        last = parallelism;
    }
}

/// Nodes that cost nothing take a moment, so that no two of them are the same one.
#[test]
fn costs_decide_the_timetable() {
    let graph = chains();
    let costs = [1, 1, 1, 5, 5, 5, 1];
    let plan = Planner::new().workers(2).node_times(&costs).plan(&graph).unwrap();
    let table = plan.timetable().unwrap();
    assert_eq!((table.work(), table.span()), (19, 16));
    let plan = Planner::new().workers(2).node_times(&[0; 7]).plan(&graph).unwrap();
    assert_eq!(plan.timetable().unwrap().span(), 4);
    let refused = Planner::new().workers(2).node_times(&[1]).plan(&graph).unwrap_err();
    assert_eq!(refused.to_string(), "option node_times: the graph has 7 nodes");
    // The largest numbers do not wrap.
    let plan = Planner::new().workers(2).node_times(&[u64::MAX; 7]).plan(&graph).unwrap();
    plan.check(&graph).unwrap();
}

#[test]
fn workers_and_every_order_exclude_each_other() {
    let graph = chains();
    let refused = |planner: Planner<'_>| planner.plan(&graph).unwrap_err();
    let error = refused(Planner::new().workers(0));
    assert!(matches!(error, Error::InvalidOption { option: "workers", .. }), "{error}");
    let error = refused(Planner::new().workers(2).parallel_safe(true));
    assert!(matches!(error, Error::InvalidOption { option: "workers", .. }), "{error}");
}

/// The checker refuses timetables that the plan does not keep.
#[test]
fn forged_timetables_are_refused() {
    let graph = chains();
    let plan = ideal_planner().workers(2).plan(&graph).unwrap();
    let refused = |change: &dyn Fn(&mut serde_json::Value)| {
        forge(&plan, change).unwrap().check(&graph).unwrap_err().to_string()
    };
    let steps = plan.steps().len();
    // A step that starts before one that it waits for has ended.
    let text = refused(&|json| json["timetable"]["starts"][steps - 1] = 0.into());
    assert!(text.contains("starts before") || text.contains("more than 2 steps run"), "{text}");
    // Everything at once.
    let text = refused(&|json| json["timetable"]["starts"] = vec![0; steps].into());
    assert!(text.contains("more than 2 steps run at time 0"), "{text}");
    // A third worker is not one that was promised.
    let text = refused(&|json| json["timetable"]["workers"] = 3.into());
    assert!(text.contains("its timetable is of 3 workers"), "{text}");
    let text = refused(&|json| json["options"]["workers"] = 3.into());
    assert!(text.contains("its timetable is of 2 workers"), "{text}");
    let text = refused(&|json| {
        // One worker is not written down.
        json["options"].as_object_mut().unwrap().remove("workers");
        json["timetable"]["workers"] = 1.into();
    });
    assert!(text.contains("its timetable is of 1 workers"), "{text}");
    let text = refused(&|json| drop(json.as_object_mut().unwrap().remove("timetable")));
    assert!(text.contains("it has no timetable of its 2 workers"), "{text}");
    let text = refused(&|json| json["timetable"]["costs"] = vec![1; steps - 1].into());
    assert!(text.contains("of other steps"), "{text}");
    let text = refused(&|json| {
        json["timetable"]["starts"][0] = u64::MAX.into();
        json["timetable"]["costs"][0] = 2.into();
    });
    assert!(text.contains("after all time"), "{text}");
    // A plan for one worker whose bytes two workers would share.
    let one = ideal_planner().plan(&graph).unwrap();
    let mixed = forge(&one, |json| {
        json["options"]["workers"] = 2.into();
        let table = plan.to_json();
        let table: serde_json::Value = serde_json::from_str(&table).unwrap();
        json["timetable"] = table["timetable"].clone();
    });
    assert_eq!(mixed.unwrap().check(&graph).unwrap_err().kind(), "PlanMismatch");
    // A bound that no timetable has to keep, but that of more bytes than are there.
    let text = refused(&|json| {
        json["spaces"][0]["lower_bound"] = 512.into();
        json["lower_bound"] = 512.into();
    });
    assert!(text.contains("lower bound"), "{text}");
}

/// Networks of random wiring, several seeds: nearly the parallelism of the graph, few more bytes.
#[test]
fn randomly_wired_networks_keep_their_parallelism() {
    let wiring =
        Wiring { nodes: 16, edges: Edges::SmallWorld { neighbors: 4, rewired: 75 }, channels: 16 };
    for seed in 1..4 {
        let graph = randwire(wiring, seed);
        let one = Planner::new().plan(&graph).unwrap();
        let four = Planner::new().workers(4).effort(Effort::Fast).plan(&graph).unwrap();
        let safe = Planner::new().parallel_safe(true).plan(&graph).unwrap();
        check(&graph, &four);
        let table = four.timetable().unwrap();
        let steps = four.hazards(&graph).unwrap();
        // The hazards of the plan for one worker, with the same costs.
        let cost = |node: u32| {
            let at = four.steps().iter().position(|step| step.node == node).unwrap();
            table.costs[at]
        };
        let costs: Vec<u64> = one.steps().iter().map(|step| cost(step.node)).collect();
        let serial = one.hazards(&graph).unwrap().timetable(&costs, 4).parallelism();
        let kept = steps.timetable(&table.costs, 4).parallelism();
        assert!(kept > 1.15 * serial, "seed {seed}: {kept} and {serial}");
        let bytes = [&one, &four, &safe].map(Plan::arena_bytes);
        assert!(bytes[1] * 10 <= bytes[0] * 14, "seed {seed}: {bytes:?}");
        assert!(bytes[1] < bytes[2], "seed {seed}: {bytes:?}");
    }
}

/// A state is used by one step at a time, in the graph's order.
#[test]
fn states_keep_their_order_in_a_timetable() {
    let mut sketch = Sketch::new();
    let x = sketch.input("x", 64);
    let state = sketch.value("state", ValueKind::State, 64);
    let old = sketch.node("old", &[state, x], 64);
    let made = sketch.value("made", ValueKind::Activation, 64);
    let effects = arenaplan::Effects { mutates: vec![0], ..arenaplan::Effects::default() };
    let node = arenaplan::Node::new("set", "Op").reads([state, x]).writes([made]);
    sketch.builder.add_node(node.with_effects(effects));
    let new = sketch.node("new", &[state], 64);
    let graph = sketch.build(&[old, made, new]);
    let plan = Planner::new().workers(4).plan(&graph).unwrap();
    assert_eq!(plan.timetable().unwrap().parallelism().to_bits(), 1.0_f64.to_bits());
    check_mutants(&graph, &plan);
}

#[test]
fn workers_without_steps_have_an_empty_timetable() {
    let mut sketch = Sketch::new();
    let x = sketch.input("x", 64);
    let graph = sketch.build(&[x]);
    let plan = Planner::new().workers(4).plan(&graph).unwrap();
    assert_eq!(plan.timetable().unwrap().span(), 0);
    check(&graph, &plan);
}
