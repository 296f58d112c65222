//! Rules of `check/shared_arena.rs`: the beginnings of plans in one arena, and claims about all together.

use arenaplan::base::{Alignment, MAX_BYTES};
use arenaplan::check::Proof;
use arenaplan::graph::{Choice, Workspace};
use arenaplan::plan::{SharedPlan, Together, WorkspacePolicy};
use arenaplan::{DType, Effects, Graph, Node, Plan, Techniques, Value, ValueId, ValueKind};
use serde_json::{Value as Json, json};

use crate::graphs::Sketch;
use crate::planners::ideal_planner;

/// Returns a shared plan with members that begin elsewhere, another bound and another capacity.
fn forged(
    shared: &SharedPlan,
    bases: &[u64],
    bound: u64,
    capacity: Option<u64>,
) -> Result<SharedPlan, arenaplan::Error> {
    let mut json: Json = serde_json::from_str(&shared.to_json()).unwrap();
    let mut bytes = 0;
    for (member, &base) in json["plans"].as_array_mut().unwrap().iter_mut().zip(bases) {
        member["base"] = base.into();
        bytes = bytes.max(base + member["plan"]["arena_bytes"].as_u64().unwrap());
    }
    json["arena_bytes"] = bytes.into();
    json["lower_bound"] = bound.into();
    json["capacity"] = json!(capacity);
    json["status"] = match capacity {
        Some(capacity) if bound > capacity => "infeasible",
        Some(capacity) if bytes > capacity => "unknown",
        _ if bytes == bound => "optimal",
        _ => "feasible",
    }
    .into();
    SharedPlan::from_json(json.to_string().as_bytes())
}

fn refusal(found: Result<SharedPlan, arenaplan::Error>, graphs: &[&Graph]) -> String {
    let error = found.and_then(|shared| shared.check(graphs)).unwrap_err();
    format!("{}: {error}", error.kind())
}

/// An input of 40 bytes, and an output of 40 bytes with an alignment.
fn aligned(name: &str, alignment: u64) -> Graph {
    let mut builder = Graph::builder(name);
    let value = |name, kind| Value::new(name, kind, DType::UINT8, [40]).unwrap();
    let x = builder.add_value(value("x", ValueKind::Input));
    let y = value("y", ValueKind::Activation).with_alignment(Alignment::new(alignment).unwrap());
    let y = builder.add_value(y);
    builder.add_node(Node::new("n", "Op").reads([x]).writes([y]));
    builder.add_output(y);
    builder.build().unwrap()
}

/// A bound between the bytes that are live at once and the end of a compaction is only claimed.
#[test]
fn a_bound_above_what_a_compaction_reaches_is_false() {
    let (low, high) = (aligned("low", 16), aligned("high", 256));
    let planner = ideal_planner().alignment(16);
    // Rows of 48 bytes; the second arena begins at a multiple of its alignment: 96 -> 256.
    let (graphs, far, reached) = ([&low, &high], 512, 352);
    let shared = planner.plan_together(&graphs, Together::Concurrent).unwrap();
    assert_eq!(shared.arena_bytes(), reached);
    let verdict = |bound, capacity| {
        let shared = forged(&shared, &[0, far], bound, capacity)?;
        shared.check(&graphs)
    };
    for (bound, proof) in [
        (0, Proof::Verified),
        (192, Proof::Verified),
        (193, Proof::Claimed),
        (reached, Proof::Claimed),
    ] {
        let found = verdict(bound, None).unwrap();
        assert_eq!((found.max_live(), found.lower_bound()), (192, proof), "{bound}");
        assert_eq!(found.status(), Proof::Verified, "feasible, whatever the bound");
    }
    let error = verdict(reached + 1, None).unwrap_err().to_string();
    let bound = reached + 1;
    assert!(
        error.contains(&format!("does with {reached} bytes, fewer than its lower bound {bound}")),
        "{error}"
    );
    // A capacity below what is live at once is verified, and one below the bound claimed.
    for (bound, capacity, proof) in [
        (192, 191, Proof::Verified),
        (200, 192, Proof::Claimed),
        (200, 191, Proof::Verified),
        (192, 192, Proof::Verified),
    ] {
        assert_eq!(verdict(bound, Some(capacity)).unwrap().status(), proof, "{capacity}");
    }
    // An arena that is as small as the bound is optimal as far as the bound is true.
    let optimal = forged(&shared, &[0, shared.members()[1].base], reached, None).unwrap();
    assert_eq!(optimal.check(&graphs).unwrap().status(), Proof::Claimed);
}

#[test]
fn an_arena_ends_where_numbers_of_bytes_end() {
    let graph = aligned("low", 1);
    let graphs = [&graph, &graph];
    let planner = ideal_planner().alignment(1);
    let shared = planner.plan_together(&graphs, Together::Concurrent).unwrap();
    let last = MAX_BYTES - shared.members()[1].plan.arena_bytes();
    forged(&shared, &[0, last], 0, None).unwrap().check(&graphs).unwrap();
    let behind = refusal(forged(&shared, &[0, last + 1], 0, None), &graphs);
    assert!(behind.starts_with("PlanOutOfBounds: the arena of 'low'"), "{behind}");
}

/// A chain of values with a state that its first node reads, and scratch memory in its last.
fn chain(name: &str, sizes: &[u64], state: u64, scratch: u64) -> Graph {
    let mut sketch = Sketch::new();
    let x = sketch.input(&format!("{name}.x"), sizes[0]);
    let s = sketch.value(&format!("{name}.s"), ValueKind::State, state);
    let mut last = sketch.node(&format!("{name}.0"), &[x, s], sizes[1]);
    for (at, &bytes) in sizes[2..].iter().enumerate() {
        let choices = vec![Choice { bytes: scratch, cost: 1.0 }];
        let workspaces = vec![Workspace { choices, alignment: Alignment::BYTE }];
        let effects = if at + 3 == sizes.len() {
            Effects { workspaces, ..Effects::default() }
        } else {
            Effects::default()
        };
        last = sketch.effectful(&format!("{name}.{}", at + 1), &[last], bytes, effects);
    }
    sketch.build(&[last])
}

/// Returns by step the bytes of a plan that are live, without states, and the bytes of states.
fn counted(graph: &Graph, plan: &Plan) -> (Vec<u64>, u64) {
    let lines = |bytes: u64| bytes.next_multiple_of(plan.options().alignment);
    let is_state = |value: u32| graph.value(ValueId::from(value)).kind() == ValueKind::State;
    let steps = (0..plan.steps().len()).map(|step| {
        let at = u32::try_from(step).unwrap();
        let values = plan
            .placements()
            .iter()
            .filter(|it| !is_state(it.value) && (it.live[0]..it.live[1]).contains(&at));
        let scratch = plan.workspaces().iter().filter(|work| work.node == plan.steps()[step].node);
        values.map(|it| lines(it.bytes)).sum::<u64>()
            + scratch.map(|work| lines(work.bytes)).sum::<u64>()
    });
    let states = plan.placements().iter().filter(|it| is_state(it.value));
    (steps.collect(), states.map(|it| lines(it.bytes)).sum())
}

/// Against the definition: models that run in turn keep their states; models at once need all.
#[test]
fn the_bytes_of_several_models_are_those_of_the_definition() {
    let graphs = [
        chain("a", &[100, 200, 50, 300], 30, 70),
        chain("b", &[500, 10, 10], 90, 400),
        chain("c", &[1, 2, 700, 3, 5], 160, 1),
        chain("d", &[64, 64], 0, 0),
    ];
    let planner = ideal_planner().optimize(Techniques::NONE).workspace(WorkspacePolicy::Auto);
    for alignment in [1, 16, 64] {
        for chosen in
            [vec![0, 1], vec![1, 0], vec![2, 0, 1], vec![0, 2, 3], vec![3, 1, 2], vec![2], vec![]]
        {
            let chosen: Vec<&Graph> = chosen.iter().map(|&at: &usize| &graphs[at]).collect();
            let planner = planner.alignment(alignment);
            for together in [Together::Concurrent, Together::Never] {
                let shared = planner.plan_together(&chosen, together).unwrap();
                let members = shared.members().iter().zip(&chosen);
                let counts: Vec<_> =
                    members.map(|(member, graph)| counted(graph, &member.plan)).collect();
                let most = |(steps, _): &(Vec<u64>, u64)| steps.iter().copied().max().unwrap();
                let states: u64 = counts.iter().map(|count| count.1).sum();
                let peaks = counts.iter().map(most);
                let steps: u64 = if together == Together::Never {
                    peaks.max().unwrap_or(0)
                } else {
                    peaks.sum()
                };
                let verdict = shared.check(&chosen).unwrap();
                assert_eq!(verdict.max_live(), steps + states, "{alignment} {together:?}");
                assert_eq!(verdict.members().len(), chosen.len());
                assert_eq!(verdict.lower_bound(), Proof::Verified);
            }
        }
    }
}

/// The highest member falls onto the others: the arena has a gap, and its bound may not count it.
#[test]
fn models_in_turn_are_compacted_together() {
    let graphs = [chain("a", &[128, 64, 64], 64, 0), chain("b", &[64, 256, 64], 128, 64)];
    let both = [&graphs[0], &graphs[1]];
    let planner = ideal_planner().optimize(Techniques::NONE).workspace(WorkspacePolicy::Auto);
    let shared = planner.plan_together(&both, Together::Never).unwrap();
    let (bytes, bases) = (shared.arena_bytes(), [0, 1].map(|at| shared.members()[at].base));
    let verdict = shared.check(&both).unwrap();
    assert_eq!((verdict.max_live(), verdict.status()), (bytes, Proof::Verified));
    let apart = [bases[0] + 4096, bases[1] + 4096];
    forged(&shared, &apart, bytes, None).unwrap().check(&both).unwrap();
    let said = refusal(forged(&shared, &apart, bytes + 1, None), &both);
    assert!(
        said.contains(&format!(
            "does with {bytes} bytes, fewer than its lower bound {}",
            bytes + 1
        )),
        "{said}"
    );
}
