//! Plans in several memories.

use arenaplan::base::Alignment;
use arenaplan::format::plan_schema;
use arenaplan::graph::Flow;
use arenaplan::liveness::LivenessOptions;
use arenaplan::pack::Space;
use arenaplan::plan::{ShareRule, WorkspacePolicy};
use arenaplan::{
    Budget, Effects, Error, Graph, Liveness, Memories, NodeId, Plan, Planner, Problem, SpaceId,
    Status, Technique, Techniques, ValueId, ValueKind, solve,
};
use proptest::prelude::*;

use crate::graphs::{Sketch, graphs, in_place, reshape};
use crate::overlap;
use crate::planners::ideal_planner;

fn memories(rows: &[(&str, u64, u64)]) -> Memories {
    let space = |&(name, capacity, cost): &(&str, u64, u64)| {
        Space::new(name).with_capacity(capacity).with_cost(cost)
    };
    Memories::new(rows.iter().map(space).collect()).unwrap()
}

fn space_of(plan: &Plan, graph: &Graph, name: &str) -> String {
    let value = graph.values().iter().position(|value| value.name() == name).unwrap();
    let place = plan.placement(ValueId::new(value)).unwrap();
    plan.spaces()[SpaceId::from(place.space).index()].name.clone()
}

proptest! {
    /// Plans in several memories pass the checker, survive their file, repeat themselves, and
    /// cost no more than everything in the slowest memory.
    #[test]
    fn plans_in_several_memories_are_valid(
        graph in graphs(16),
        first in 64..600_u64,
        second in 64..2000_u64,
        workspace in any::<bool>(),
        in_place in any::<bool>(),
    ) {
        let policy = if workspace { WorkspacePolicy::Auto } else { WorkspacePolicy::None };
        let memories = memories(&[("a", first, 0), ("b", second, 2), ("c", 1 << 40, 5)]);
        let planner = ideal_planner().alignment(8).in_place(in_place).workspace(policy);
        let planner = planner.memories(&memories);
        let plan = planner.plan(&graph).unwrap();
        prop_assert!(plan.check(&graph).is_ok());
        prop_assert!(plan.fits().is_ok());
        prop_assert_eq!(&planner.plan(&graph).unwrap(), &plan);
        prop_assert_eq!(&Plan::from_json(plan.to_json().as_bytes()).unwrap(), &plan);
        let moved = plan.move_cost().unwrap();
        prop_assert!(moved.lower_bound <= moved.cost);
        let bytes = plan.bytes_moved().iter().sum::<u64>()
            + plan.workspaces().iter().map(|work| 2 * work.bytes).sum::<u64>();
        prop_assert!(moved.cost <= 5 * bytes);
    }

    /// With room for everything in the cheapest memory, the plan is as good as the one without
    /// memories. It may be better: a result in place of a piece that is not aligned can take more
    /// bytes than one of its own, and only values that have a choice of memory are taken apart.
    #[test]
    fn one_memory_that_is_large_enough_costs_nothing(graph in graphs(16)) {
        let memories = memories(&[("arena", 1 << 40, 0), ("other", 1 << 40, 1)]);
        let alone = ideal_planner().plan(&graph).unwrap();
        let plan = ideal_planner().memories(&memories).plan(&graph).unwrap();
        prop_assert!(plan.arena_bytes() <= alone.arena_bytes());
        prop_assert_eq!(plan.move_cost().map(|moved| moved.cost), Some(0));
    }
}

/// Returns the least cost over all sets of overlapping nodes and all assignments of buffers to
/// two memories, of which the second costs 1 per byte, in the graph's own order.
fn brute_force(graph: &Graph, memories: &Memories) -> Option<u64> {
    let mut options = LivenessOptions::default();
    options.alignment = Alignment::BYTE;
    (options.views, options.elision, options.in_place) = (false, false, false);
    let nodes = graph.order().iter().copied();
    let able: Vec<NodeId> = nodes.filter(|&node| !graph.overlaps(node, false).is_empty()).collect();
    // Nodes read and write each of their operands once.
    let mut moved = vec![0; graph.values().len()];
    for node in graph.nodes() {
        for value in node.inputs().iter().chain(node.outputs()).flatten() {
            moved[value.index()] += graph.value(*value).bytes();
        }
    }
    let mut best: Option<u64> = None;
    for set in 0_usize..1 << able.len() {
        let bits = able.iter().enumerate().filter(|(index, _)| set >> index & 1 == 1);
        let chosen: Vec<NodeId> = bits.map(|(_, &node)| node).collect();
        let liveness = Liveness::with_overlaps(graph, graph.order(), options, &chosen).unwrap();
        let classes = liveness.classes.classes();
        for slow in 0_usize..1 << classes.len() {
            let is_slow = |class: usize| slow >> class & 1 == 1;
            let classes = classes.iter().enumerate().filter(|&(class, _)| is_slow(class));
            let members = classes.flat_map(|(_, class)| &class.members);
            let cost = members.map(|member| moved[member.value.index()]).sum();
            if best.is_some_and(|best| best <= cost) {
                continue;
            }
            let buffers = liveness.problem.buffers().iter().enumerate().map(|(class, buffer)| {
                buffer.clone().with_space(SpaceId::new(usize::from(is_slow(class))))
            });
            let problem = Problem::new(buffers.collect(), memories.spaces().to_vec()).unwrap();
            let status = solve(&problem, &Budget::default()).unwrap().status();
            if matches!(status, Status::Optimal | Status::Feasible) {
                best = Some(cost);
            }
        }
    }
    best
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// On small networks, the plan costs no more than the best of all sets of overlaps and all
    /// assignments.
    #[test]
    fn overlaps_in_two_memories_are_as_good_as_brute_force(
        graph in overlap::networks(5),
        fast in 16..90_u64,
        slow in 40..150_u64,
    ) {
        let memories = memories(&[("fast", fast, 0), ("slow", slow, 1)]);
        let least = brute_force(&graph, &memories);
        let techniques = Techniques::NONE.with(Technique::Overlap);
        let planner = ideal_planner().alignment(1).optimize(techniques).memories(&memories);
        match planner.plan(&graph) {
            Ok(plan) => prop_assert_eq!(plan.move_cost().map(|moved| moved.cost), least),
            Err(Error::SpacesExceeded { .. }) => prop_assert_eq!(least, None),
            Err(error) => return Err(TestCaseError::fail(error.to_string())),
        }
    }
}

/// A network whose second layer is made in pieces and needs most bytes.
fn in_pieces() -> Graph {
    let pieces = |follows: Vec<usize>| Effects {
        flows: vec![Flow { output: 0, pieces: 10, follows }],
        ..Effects::default()
    };
    let mut sketch = Sketch::new();
    let c = sketch.input("c", 1);
    let x = sketch.node("x", &[c], 100);
    let y = sketch.effectful("y", &[x], 100, pieces(vec![0]));
    let z = sketch.node("z", &[y], 1);
    sketch.build(&[z])
}

#[test]
fn an_output_overlaps_an_input_in_a_memory_that_does_not_hold_both() {
    let graph = in_pieces();
    let one = memories(&[("sram", 101, 0)]);
    let plan = ideal_planner().alignment(1).memories(&one).plan(&graph).unwrap();
    assert_eq!((plan.arena_bytes(), plan.move_cost().unwrap().cost), (101, 0));
    // The input stays in the slow memory, so that only the overlap is worth anything.
    let two =
        memories(&[("sram", 100, 0), ("psram", 1000, 1)]).pin(ValueId::new(0), SpaceId::new(1));
    let plan = ideal_planner().alignment(1).memories(&two).plan(&graph).unwrap();
    let shares = plan.steps().iter().flat_map(|step| &step.shares);
    assert_eq!(shares.filter(|share| share.rule == ShareRule::Overlap).count(), 1);
    // Besides the input, the last value is read and written in the slow memory.
    assert_eq!(plan.move_cost().map(|moved| moved.cost), Some(2));
    let without = Techniques::ALL.without(Technique::Overlap);
    let plan = ideal_planner().alignment(1).optimize(without).memories(&two).plan(&graph).unwrap();
    assert_eq!(plan.move_cost().map(|moved| moved.cost), Some(201));
}

#[test]
fn values_pinned_to_a_memory_that_is_too_small_for_them_are_named() {
    let mut sketch = Sketch::new();
    let [a, b, c] = ["a", "b", "c"].map(|name| sketch.input(name, 1024));
    let d = sketch.node("d", &[a, b, c], 4096);
    let graph = sketch.build(&[d]);
    let mut banks = memories(&[("fast", 2048, 0), ("slow", 65536, 1)]);
    for value in [a, b, c] {
        banks = banks.pin(value, SpaceId::new(0));
    }
    let planner = ideal_planner().optimize(Techniques::NONE);
    let error = planner.memories(&banks).plan(&graph).unwrap_err();
    assert_eq!(
        error.to_string(),
        "space 'fast' holds 2,048 bytes, and 3,072 bytes that may be in no other space are \
         needed at once at step 0, node 'd': pinned to it are 'a' (1,024 bytes), 'b' (1,024 \
         bytes), 'c' (1,024 bytes); no order of the steps that were tried fits"
    );
    let one = memories(&[("fast", 512, 0), ("slow", 65536, 1)]).pin(a, SpaceId::new(0));
    let error = ideal_planner().memories(&one).plan(&graph).unwrap_err();
    assert_eq!(
        error.to_string(),
        "'a' (1,024 bytes) is pinned to a space that is too small for it: 'fast' holds 512 bytes; \
         it is needed at step 0, node 'd'; no order of the steps that were tried fits"
    );
}

#[test]
fn a_pinned_value_goes_home_and_shares_no_bytes_with_others() {
    let mut sketch = Sketch::new();
    let x = sketch.input("x", 100);
    let y = sketch.effectful("y", &[x], 100, in_place(0));
    let z = sketch.effectful("z", &[y], 100, reshape());
    let graph = sketch.build(&[z]);
    let memories = memories(&[("sram", 1000, 0), ("psram", 1000, 1)]);
    let free = ideal_planner().memories(&memories).plan(&graph).unwrap();
    assert_eq!(free.spaces()[1].arena_bytes, 0);
    let pinned = memories.clone().pin(z, SpaceId::new(1));
    let plan = ideal_planner().memories(&pinned).plan(&graph).unwrap();
    assert_eq!(space_of(&plan, &graph, "y"), "sram");
    assert_eq!(space_of(&plan, &graph, "z"), "psram");
    // The node that reshapes has to write its output: 100 bytes at cost 1.
    assert_eq!(plan.move_cost().map(|moved| (moved.cost, moved.lower_bound)), Some((100, 100)));
}

#[test]
fn a_value_stays_in_the_memory_that_the_graph_names() {
    let mut sketch = Sketch::new();
    let slow = sketch.builder.add_space(Space::new("psram"));
    let x = sketch.input("x", 100);
    let value = arenaplan::Value::new("y", ValueKind::Activation, arenaplan::DType::UINT8, [50]);
    let y = sketch.builder.add_value(value.unwrap().with_space(slow));
    sketch.builder.add_node(arenaplan::Node::new("n", "Op").reads([x]).writes([y]));
    let graph = sketch.build(&[y]);
    let known = memories(&[("sram", 1000, 0), ("psram", 1000, 1)]);
    let plan = ideal_planner().memories(&known).plan(&graph).unwrap();
    assert_eq!(space_of(&plan, &graph, "y"), "psram");
    let unknown = memories(&[("sram", 1000, 0)]);
    let error = ideal_planner().memories(&unknown).plan(&graph).unwrap_err();
    assert_eq!(error.to_string(), "option spaces: there is no space 'psram', only 'sram'");
}

#[test]
fn values_that_share_bytes_in_a_slow_memory_are_taken_apart_where_that_is_cheaper() {
    // `long` is still needed while `big` fills the fast memory; `late` takes its bytes over,
    // and would be slow with it, though there is room by then.
    let mut sketch = Sketch::new();
    let long = sketch.input("long", 64);
    let big = sketch.node("big", &[], 128);
    let used = sketch.node("used", &[big], 64);
    let late = sketch.effectful("late", &[long, used], 64, in_place(0));
    let last = sketch.node("last", &[late, late, late], 64);
    let graph = sketch.build(&[last]);
    let memories = memories(&[("fast", 192, 0), ("slow", 1000, 1)]);
    let plan = ideal_planner().memories(&memories).plan(&graph).unwrap();
    assert_eq!(space_of(&plan, &graph, "late"), "fast");
    assert_eq!(space_of(&plan, &graph, "long"), "slow");
    assert_eq!(plan.move_cost().map(|moved| moved.cost), Some(64));
}

#[test]
fn a_budget_that_is_too_small_names_the_step_the_node_and_the_values() {
    let mut sketch = Sketch::new();
    let x = sketch.input("x", 128);
    let y = sketch.node("y", &[x], 256);
    let z = sketch.node("z", &[y, x], 192);
    let graph = sketch.build(&[z]);
    let tight = memories(&[("sram", 256, 0), ("psram", 256, 1)]);
    let error = ideal_planner().memories(&tight).plan(&graph).unwrap_err();
    let Error::SpacesExceeded { step, node, values, proven, reason } = error else {
        panic!("576 bytes do not fit 512")
    };
    assert_eq!((step, node.as_deref(), proven), (1, Some("z"), true));
    assert_eq!(values, [("y".into(), 256), ("z".into(), 192), ("x".into(), 128)]);
    assert_eq!(
        reason,
        "576 bytes are needed at once at step 1, node 'z', and the spaces have no room for \
         them: 'sram' holds 256 bytes, 'psram' holds 256 bytes; needed are 'y' (256 bytes), 'z' (192 \
         bytes), 'x' (128 bytes); no order of the steps that were tried fits"
    );

    let tiny = memories(&[("sram", 200, 0), ("psram", 200, 1)]);
    let error = ideal_planner().memories(&tiny).plan(&graph).unwrap_err();
    assert_eq!(
        error.to_string(),
        "'y' (256 bytes) fits none of the spaces that it may be in; it is needed at step 0, \
         node 'y': 'sram' holds 200 bytes, 'psram' holds 200 bytes; no order of the steps that were tried \
         fits"
    );
}

#[test]
fn memories_have_names_of_their_own_and_capacities_of_their_own() {
    let space = |name: &str| Space::new(name);
    assert!(matches!(
        Memories::new(vec![space("a"), space("a")]),
        Err(Error::DuplicateName { .. })
    ));
    assert!(matches!(Memories::new(vec![space("")]), Err(Error::InvalidName { .. })));
    let mut sketch = Sketch::new();
    let x = sketch.input("x", 1);
    let graph = sketch.build(&[x]);
    let refused = |planner: Planner<'_>| planner.plan(&graph).unwrap_err().kind();
    let none = Memories::new(Vec::new()).unwrap();
    assert_eq!(refused(ideal_planner().memories(&none)), "InvalidOption");
    let one = Memories::new(vec![space("a")]).unwrap();
    assert_eq!(refused(ideal_planner().memories(&one).capacity(5)), "InvalidOption");
    let stray = one.pin(ValueId::new(7), SpaceId::new(0));
    assert_eq!(refused(ideal_planner().memories(&stray)), "InvalidOption");
}

/// Changes one thing in a valid plan's file, with a checksum that fits.
fn altered(plan: &Plan, from: &str, to: &str) -> Plan {
    use sha2::{Digest as _, Sha256};
    let text = plan.to_json();
    let changed = text.trim_end().replacen(from, to, 1);
    assert_ne!(changed, text.trim_end(), "{from} is in the plan");
    let (body, _) = changed.rsplit_once(",\"checksum\"").unwrap();
    let body = format!("{body}}}");
    let sum: String = Sha256::digest(&body).iter().map(|byte| format!("{byte:02x}")).collect();
    let whole = format!("{},\"checksum\":\"{sum}\"}}", body.strip_suffix('}').unwrap());
    Plan::from_json(whole.as_bytes()).unwrap()
}

#[test]
fn the_checker_believes_no_cost_and_no_space() {
    let mut sketch = Sketch::new();
    let x = sketch.input("x", 640);
    let y = sketch.node("y", &[x], 1280);
    let graph = sketch.build(&[y]);
    let memories = memories(&[("sram", 1300, 0), ("psram", 4096, 3)]);
    let plan = ideal_planner().memories(&memories).plan(&graph).unwrap();
    assert_eq!(plan.status(), Status::Optimal);
    let text = plan.to_json();
    assert!(text.contains("\"move_cost\":{\"cost\":1920,\"lower_bound\":1920}"), "{text}");
    let refused = |from: &str, to: &str| altered(&plan, from, to).check(&graph).unwrap_err().kind();
    assert_eq!(refused("\"cost\":1920,", "\"cost\":1919,"), "PlanCorrupt");
    assert_eq!(refused("\"lower_bound\":1920}", "\"lower_bound\":1921}"), "PlanCorrupt");
    assert_eq!(refused("\"name\":\"psram\"", "\"name\":\"sram\""), "PlanCorrupt");
    assert_eq!(refused("\"capacity\":1300", "\"capacity\":1200"), "PlanCorrupt");
    assert_eq!(refused("\"move_cost\":{\"cost\":1920,\"lower_bound\":1920},", ""), "PlanMismatch");
    // Then the slow memory is empty, and says that it is not.
    assert_eq!(refused("\"name\":\"x\",\"space\":1", "\"name\":\"x\",\"space\":0"), "PlanCorrupt");
}

#[test]
fn the_schema_knows_costs() {
    assert!(plan_schema().contains("\"move_cost\""));
}
