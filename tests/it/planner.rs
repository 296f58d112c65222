//! Laws of plans, over random graphs.

use arenaplan::format::plan_schema;
use arenaplan::plan::WorkspacePolicy;
use arenaplan::{DType, Graph, Node, Planner, Status, Technique, Techniques, Value, ValueKind};
use proptest::prelude::*;

use crate::graphs::{Sketch, graphs};
use crate::planners::ideal_planner;

fn planners() -> Vec<Planner<'static>> {
    let mut all = Vec::new();
    for in_place in [false, true] {
        for preserve in [false, true] {
            for workspace in [WorkspacePolicy::None, WorkspacePolicy::Auto] {
                for alignment in [1, 64] {
                    all.push(
                        ideal_planner()
                            .in_place(in_place)
                            .preserve_inputs(preserve)
                            .workspace(workspace)
                            .alignment(alignment),
                    );
                }
            }
        }
    }
    all
}

/// Returns the bytes of the best plan of a chain, found without a solver: what is live at
/// each step when every value is on its own.
fn bytes_live_at_once(graph: &Graph) -> u64 {
    let plan = ideal_planner().optimize(Techniques::NONE).alignment(1).plan(graph).unwrap();
    let steps = u32::try_from(graph.order().len().max(1)).unwrap();
    (0..steps)
        .map(|step| {
            let live = plan.placements().iter();
            live.filter(|value| (value.live[0]..value.live[1]).contains(&step))
                .map(|value| value.bytes)
                .sum()
        })
        .max()
        .unwrap_or(0)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Every plan of every graph passes the checker, and its claims are ordered.
    #[test]
    fn every_plan_is_valid(graph in graphs(24)) {
        for planner in planners() {
            let plan = planner.plan(&graph).unwrap();
            prop_assert!(plan.check(&graph).is_ok());
            prop_assert!(plan.lower_bound() <= plan.arena_bytes());
            prop_assert_eq!(plan.status() == Status::Optimal, plan.lower_bound() == plan.arena_bytes());
            if planner.options().workspace == WorkspacePolicy::None {
                prop_assert!(plan.arena_bytes() <= plan.naive_bytes().unwrap());
            }
        }
    }

    /// Techniques never need more than their absence, and views alone no more than what is
    /// live at once.
    #[test]
    fn sharing_bytes_never_needs_more(graph in graphs(24)) {
        let bytes = |techniques| {
            ideal_planner().optimize(techniques).alignment(1).plan(&graph).unwrap().arena_bytes()
        };
        let views = Techniques::NONE.with(Technique::Views);
        prop_assert!(bytes(Techniques::ALL) <= bytes(Techniques::BASIC));
        prop_assert!(bytes(Techniques::BASIC) <= bytes(views));
        prop_assert!(bytes(views) <= bytes(Techniques::NONE));
        prop_assert_eq!(bytes(Techniques::NONE), bytes_live_at_once(&graph));
    }

    /// Workspaces never make the arena larger than their smallest sizes do.
    #[test]
    fn larger_workspaces_do_not_raise_the_peak(graph in graphs(24)) {
        let smallest = graph.nodes().iter().enumerate().map(|(index, node)| {
            let mut workspaces = node.effects().workspaces.clone();
            for workspace in &mut workspaces {
                workspace.choices.sort_by_key(|choice| choice.bytes);
                workspace.choices.truncate(1);
            }
            (arenaplan::NodeId::new(index), workspaces)
        });
        let smallest = graph.with_workspaces(smallest).unwrap();
        // Other techniques may choose other steps for other workspaces.
        let planner =
            ideal_planner().optimize(Techniques::BASIC).workspace(WorkspacePolicy::Auto);
        let (free, least) = (planner.plan(&graph).unwrap(), planner.plan(&smallest).unwrap());
        prop_assert!(free.arena_bytes() <= least.arena_bytes());
        prop_assert_eq!(free.lower_bound(), least.lower_bound());
    }

    /// A capacity that is large enough changes nothing but the capacity itself.
    #[test]
    fn a_generous_capacity_is_no_excuse(graph in graphs(24), spare in 0_u64..1000) {
        let free = ideal_planner().plan(&graph).unwrap();
        let limited = ideal_planner().capacity(free.arena_bytes() + spare).plan(&graph).unwrap();
        prop_assert_eq!(limited.arena_bytes(), free.arena_bytes());
        prop_assert_eq!(limited.status(), free.status());
        prop_assert_eq!(limited.fits(), Ok(()));
    }

    /// Equal graphs and options give equal plans, to the byte.
    #[test]
    fn plans_are_deterministic(graph in graphs(24)) {
        let text = || ideal_planner().plan(&graph).unwrap().to_json();
        prop_assert_eq!(text(), text());
    }
}

#[test]
fn e01_e02_a_capacity_that_is_too_small_is_told_with_the_best_plan() {
    let mut sketch = Sketch::new();
    let x = sketch.input("x", 64);
    let y = sketch.node("y", &[x], 64);
    let graph = sketch.build(&[y]);
    let plan = ideal_planner().capacity(127).plan(&graph).unwrap();
    assert_eq!((plan.arena_bytes(), plan.status()), (128, Status::Infeasible));
    let error = plan.fits().unwrap_err();
    assert_eq!(error.kind(), "CapacityExceeded");
    assert!(error.to_string().contains("128"), "{error}");
    assert_eq!(ideal_planner().capacity(128).plan(&graph).unwrap().fits(), Ok(()));
}

#[test]
fn a06_a_naive_total_past_any_machine_is_no_obstacle() {
    let mut sketch = Sketch::new();
    let mut last = sketch.input("x", 1 << 60);
    for index in 0..20 {
        last = sketch.node(&format!("v{index}"), &[last], 1 << 60);
    }
    let plan = ideal_planner().plan(&sketch.build(&[last])).unwrap();
    assert_eq!((plan.naive_bytes(), plan.arena_bytes()), (None, 1 << 61));
}

#[test]
fn a_value_that_nobody_makes_or_uses_has_no_place() {
    let mut sketch = Sketch::new();
    let x = sketch.input("x", 8);
    let orphan = sketch.value("orphan", ValueKind::Activation, 100);
    let y = sketch.node("y", &[x], 8);
    let graph = sketch.build(&[y]);
    let plan = ideal_planner().alignment(1).plan(&graph).unwrap();
    assert_eq!((plan.placement(orphan), plan.arena_bytes()), (None, 16));
}

#[test]
fn a05_a_size_that_overflows_when_it_is_rounded_up_is_refused() {
    let mut sketch = Sketch::new();
    let x = sketch.input("x", arenaplan::base::MAX_BYTES - 1);
    let refused = ideal_planner().plan(&sketch.build(&[x]));
    assert_eq!(refused.unwrap_err().kind(), "SizeOverflow");
}

#[test]
fn the_published_schema_is_json() {
    assert!(plan_schema().starts_with('{'));
}

/// Returns a chain of concatenations whose new operands can be made in any order.
fn nested_concatenations(count: u64) -> arenaplan::Graph {
    let mut builder = arenaplan::Graph::builder("nested");
    let value = |name: String, kind, bytes| {
        arenaplan::Value::new(name, kind, arenaplan::DType::UINT8, [bytes]).unwrap()
    };
    let source = builder.add_value(value("x".into(), arenaplan::ValueKind::Input, 16));
    let mut last = source;
    for index in 0..count {
        let activation = arenaplan::ValueKind::Activation;
        let new = builder.add_value(value(format!("n{index}"), activation, 16));
        let whole = builder.add_value(value(format!("c{index}"), activation, 16 * (index + 2)));
        let make = arenaplan::Node::new(format!("make{index}"), "Op");
        builder.add_node(make.reads([source]).writes([new]));
        let view = |input, offset| arenaplan::graph::View {
            input,
            output: 0,
            offset,
            whole: arenaplan::graph::Whole::Output,
        };
        let effects = arenaplan::Effects {
            views: vec![view(0, 0), view(1, 16 * (index + 1))],
            ..arenaplan::Effects::default()
        };
        let join = arenaplan::Node::new(format!("join{index}"), "Concat");
        builder.add_node(join.reads([last, new]).writes([whole]).with_effects(effects));
        last = whole;
    }
    builder.add_output(last);
    builder.build().unwrap()
}

#[test]
fn the_search_for_an_order_counts_the_pieces_of_operands() {
    let graph = nested_concatenations(60);
    let limits = arenaplan::choose::OrderLimits { states: usize::MAX, width: 100, work: 100_000 };
    let options = arenaplan::liveness::LivenessOptions::default();
    let found = arenaplan::choose::find_order(&graph, options, limits, &|| false).unwrap();
    assert!(!found.is_optimal);
    // Between two looks at the count, one node and one copy of the tables.
    assert!((100_000 / 2..200_000).contains(&found.work), "{}", found.work);
}

#[test]
fn a_deep_nest_of_concatenations_needs_no_more_bytes_than_its_output() {
    let graph = nested_concatenations(6_000);
    let plan = Planner::new().plan(&graph).unwrap();
    // The input, which all operands are made of, is as large as one of them.
    assert_eq!(plan.arena_bytes(), 16 * 6_001_u64.next_multiple_of(4) + 64);
    plan.check(&graph).unwrap();
}

/// Returns a sum of `1 << levels` values of 1,024 bytes that are all made first.
fn wide_sum(levels: u32) -> Graph {
    let mut builder = Graph::builder("wide");
    let array = |name: String, kind| Value::new(name, kind, DType::UINT8, [1024]).unwrap();
    let x = builder.add_value(array("x".into(), ValueKind::Input));
    let mut values = Vec::new();
    for leaf in 0..1 << levels {
        let made = builder.add_value(array(format!("leaf{leaf}"), ValueKind::Activation));
        builder.add_node(Node::new(format!("make{leaf}"), "Make").reads([x]).writes([made]));
        values.push(made);
    }
    for level in 0..levels {
        let pairs = values.chunks_exact(2).zip(0..);
        let added = pairs.map(|(pair, at)| {
            let sum = builder.add_value(array(format!("sum{level}.{at}"), ValueKind::Activation));
            let name = format!("add{level}.{at}");
            builder.add_node(Node::new(name, "Add").reads([pair[0], pair[1]]).writes([sum]));
            sum
        });
        values = added.collect();
    }
    builder.add_output(values[0]);
    builder.build().unwrap()
}

#[test]
fn a_wide_sum_is_added_up_subtree_by_subtree() {
    // The second graph is too large for a search.
    for levels in [9, 12] {
        let graph = wide_sum(levels);
        let plan = Planner::new().plan(&graph).unwrap();
        // The input, a value for each level, and both operands of the last sum.
        assert!(plan.arena_bytes() <= 1024 * u64::from(levels + 3), "{}", plan.arena_bytes());
        plan.check(&graph).unwrap();
    }
}
