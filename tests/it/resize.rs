//! The offsets of one plan for values of other sizes.

use arenaplan::base::Alignment;
use arenaplan::graph::{Choice, View, Whole, Workspace};
use arenaplan::plan::WorkspacePolicy;
use arenaplan::{
    Effects, Error, Graph, Node, NodeId, Planner, Status, Technique, Techniques, Value, ValueKind,
};
use proptest::prelude::*;

use crate::check::forge;
use crate::graphs::{Sketch, graphs, in_place};
use crate::planners::ideal_planner;

/// Returns `graph` with every size multiplied.
fn enlarged(graph: &Graph, factor: u64) -> Graph {
    let mut builder = Graph::builder(graph.name());
    for value in graph.values() {
        let bytes = value.bytes() * factor;
        builder.add_value(Value::new(value.name(), value.kind(), value.dtype(), [bytes]).unwrap());
    }
    for node in graph.nodes() {
        let effects = node.effects();
        let views = effects.views.iter().map(|&view| View { offset: view.offset * factor, ..view });
        let larger = |choice: &Choice| Choice { bytes: choice.bytes * factor, ..*choice };
        let workspaces = effects.workspaces.iter().map(|workspace| Workspace {
            choices: workspace.choices.iter().map(larger).collect(),
            ..workspace.clone()
        });
        let effects =
            Effects { views: views.collect(), workspaces: workspaces.collect(), ..effects.clone() };
        let copy = Node::new(node.name(), node.op())
            .reads(node.inputs().iter().copied())
            .writes(node.outputs().iter().copied())
            .with_effects(effects)
            .after(node.control_dependencies().iter().copied());
        builder.add_node(copy);
    }
    graph.outputs().iter().for_each(|&output| builder.add_output(output));
    builder.build().unwrap()
}

fn planner() -> Planner<'static> {
    ideal_planner().alignment(1)
}

/// Plans x -> y -> z with the given sizes.
fn chain(sizes: [u64; 3], effects: Effects) -> Graph {
    let mut sketch = Sketch::new();
    let x = sketch.input("x", sizes[0]);
    let y = sketch.node("y", &[x], sizes[1]);
    let z = sketch.effectful("z", &[y], sizes[2], effects);
    sketch.build(&[z])
}

proptest! {
    /// A plan serves its own graph as it is.
    #[test]
    fn a_plan_resized_to_its_own_graph_stays_where_it_is(graph in graphs(24)) {
        for workspace in [WorkspacePolicy::None, WorkspacePolicy::Auto] {
            let plan = planner().workspace(workspace).plan(&graph).unwrap();
            let same = plan.resized(&graph).unwrap();
            prop_assert_eq!(same.placements(), plan.placements());
            prop_assert!(same.arena_bytes() <= plan.arena_bytes());
        }
    }

    /// The offsets of the largest sizes serve all sizes in proportion, and need no more; where
    /// pieces of larger values move with those, they may be refused.
    #[test]
    fn a_plan_serves_smaller_values_of_the_same_graph(graph in graphs(24), factor in 2_u64..9) {
        for workspace in [WorkspacePolicy::None, WorkspacePolicy::Auto] {
            let largest = planner().workspace(workspace).plan(&enlarged(&graph, factor)).unwrap();
            let whole = planner().optimize(Techniques::ALL.without(Technique::Elision));
            let whole = whole.workspace(workspace).plan(&enlarged(&graph, factor)).unwrap();
            for (largest, smaller) in
                (1..factor).flat_map(|smaller| [(&largest, smaller), (&whole, smaller)])
            {
                let graph = enlarged(&graph, smaller);
                let has_pieces = largest.options().optimize.contains(Technique::Elision);
                let plan = match largest.resized(&graph) {
                    Err(Error::PlanOverlap { .. }) if has_pieces => continue,
                    plan => plan.unwrap(),
                };
                prop_assert!(plan.check(&graph).is_ok());
                prop_assert!(plan.arena_bytes() <= largest.arena_bytes());
                prop_assert!(plan.lower_bound() <= plan.arena_bytes());
            }
        }
    }
}

#[test]
fn a_value_may_grow_where_there_is_room_but_not_into_another() {
    let plan = planner().plan(&chain([30, 10, 20], Effects::default())).unwrap();
    assert_eq!(plan.arena_bytes(), 40);
    let traded = plan.resized(&chain([20, 10, 30], Effects::default())).unwrap();
    assert_eq!(traded.arena_bytes(), 40);
    let grown = plan.resized(&chain([50, 50, 50], Effects::default()));
    assert!(matches!(grown, Err(Error::PlanOverlap { .. })));
}

#[test]
fn an_output_larger_than_the_input_it_took_over_is_refused() {
    let plan = planner().plan(&chain([10, 30, 30], in_place(0))).unwrap();
    assert_eq!(plan.arena_bytes(), 40);
    let graph = chain([10, 20, 30], Effects::default());
    assert!(matches!(plan.resized(&graph), Err(Error::PlanMismatch { .. })));
}

#[test]
fn a_graph_with_other_nodes_or_names_is_refused() {
    let plan = planner().plan(&chain([10, 10, 10], Effects::default())).unwrap();
    let mut sketch = Sketch::new();
    let x = sketch.input("x", 10);
    let y = sketch.node("y", &[x], 10);
    let shorter = sketch.build(&[y]);
    assert!(matches!(plan.resized(&shorter), Err(Error::PlanMismatch { .. })));
    let mut sketch = Sketch::new();
    let x = sketch.input("x", 10);
    let y = sketch.node("y", &[x], 10);
    let w = sketch.node("w", &[y], 10);
    let renamed = sketch.build(&[w]);
    assert!(matches!(plan.resized(&renamed), Err(Error::PlanMismatch { .. })));
}

#[test]
fn a_node_may_need_a_workspace_at_some_sizes_only() {
    let graph = chain([10, 10, 10], Effects::default());
    let sized = |bytes: &[u64]| {
        let workspaces = bytes.iter().map(|&bytes| Workspace {
            choices: vec![Choice { bytes, cost: 0.0 }],
            alignment: Alignment::new(16).unwrap(),
        });
        graph.with_workspaces([(NodeId::new(0), workspaces.collect())]).unwrap()
    };
    for before in [&[][..], &[5], &[100, 3]] {
        let plan = planner().workspace(WorkspacePolicy::Auto).plan(&sized(before)).unwrap();
        for after in [&[][..], &[9], &[4, 90, 2], &[7, 7]] {
            let resized = plan.resized(&sized(after)).unwrap();
            let bytes: Vec<u64> = resized.workspaces().iter().map(|work| work.bytes).collect();
            assert_eq!(bytes, after);
        }
    }
}

#[test]
fn a_workspace_gets_the_cheapest_size_that_fits_or_moves() {
    let graph = chain([10, 10, 10], Effects::default());
    let with = |sizes: &[(u64, f64)]| {
        let choices = sizes.iter().map(|&(bytes, cost)| Choice { bytes, cost }).collect();
        let workspace = Workspace { choices, alignment: Alignment::BYTE };
        graph.with_workspaces([(NodeId::new(0), vec![workspace])]).unwrap()
    };
    let plan = planner().workspace(WorkspacePolicy::Auto).plan(&with(&[(40, 1.0)])).unwrap();
    let smaller = plan.resized(&with(&[(10, 9.0), (30, 2.0), (50, 1.0)])).unwrap();
    assert_eq!((smaller.workspaces()[0].choice, smaller.workspaces()[0].bytes), (1, 30));
    // What outgrows its place goes on top: the checker has seen that it overlaps nobody.
    let larger = plan.resized(&with(&[(45, 0.0), (41, 1.0)])).unwrap();
    assert_eq!((larger.workspaces()[0].choice, larger.workspaces()[0].bytes), (1, 41));
    assert_eq!(larger.workspaces()[0].offset + 41, larger.arena_bytes());
}

/// Concatenates two values that are made of x.
fn concatenation(sizes: [u64; 2]) -> Graph {
    let mut sketch = Sketch::new();
    let x = sketch.input("x", 10);
    let parts = [sketch.node("a", &[x], sizes[0]), sketch.node("b", &[x], sizes[1])];
    let piece = |input, offset| View { input, output: 0, offset, whole: Whole::Output };
    let effects = Effects { views: vec![piece(0, 0), piece(1, sizes[0])], ..Effects::default() };
    let all = sketch.effectful("all", &parts, sizes[0] + sizes[1], effects);
    sketch.build(&[all])
}

#[test]
fn pieces_of_a_whole_move_to_where_its_new_size_puts_them() {
    let plan = planner().plan(&concatenation([30, 20])).unwrap();
    // Let the pieces be made where the whole is: a at 10, b at 40, all at 10.
    let plan = forge(&plan, |json| {
        for (value, offset) in [(0, 0), (1, 10), (2, 40), (3, 10)] {
            json["values"][value]["offset"] = offset.into();
        }
        let share = |input| serde_json::json!({"input": input, "output": 0, "rule": "view"});
        json["steps"][2]["shares"] = vec![share(0), share(1)].into();
        json["spaces"][0]["arena_bytes"] = 60.into();
        json["spaces"][0]["lower_bound"] = 60.into();
        json["spaces"][0]["status"] = "optimal".into();
        json["arena_bytes"] = 60.into();
        json["lower_bound"] = 60.into();
        json["status"] = "optimal".into();
    })
    .unwrap();
    plan.check(&concatenation([30, 20])).unwrap();
    for (sizes, pieces) in [([30, 20], [10, 40]), ([7, 5], [10, 17]), ([0, 50], [10, 10])] {
        let resized = plan.resized(&concatenation(sizes)).unwrap();
        let offsets: Vec<u64> = resized.placements().iter().map(|value| value.offset).collect();
        assert_eq!(offsets, [0, pieces[0], pieces[1], 10]);
        assert_eq!(resized.arena_bytes(), 10 + sizes[0] + sizes[1]);
        assert_eq!(resized.status(), Status::Optimal);
    }
}

type Change<'a> = &'a dyn Fn(&mut serde_json::Value);

#[test]
fn what_a_forged_plan_says_of_values_is_not_believed() {
    let graph = chain([10, 10, 10], in_place(0));
    let workspace =
        Workspace { choices: vec![Choice { bytes: 5, cost: 0.0 }], alignment: Alignment::BYTE };
    let graph = graph.with_workspaces([(NodeId::new(0), vec![workspace])]).unwrap();
    let plan = planner().workspace(WorkspacePolicy::Auto).plan(&graph).unwrap();
    let changes: [(&str, Change<'_>); 7] = [
        ("space", &|json| json["values"][0]["space"] = 7.into()),
        ("offset", &|json| json["values"][1]["offset"] = (u64::MAX - 3).into()),
        ("missing node", &|json| json["workspaces"][0]["node"] = 1.into()),
        ("missing slot", &|json| json["workspaces"][0]["slot"] = 9.into()),
        ("workspace's space", &|json| json["workspaces"][0]["space"] = 9.into()),
        ("share", &|json| json["steps"][1]["shares"][0]["input"] = 9.into()),
        ("operand", &|json| json["steps"][1]["inputs"][0] = 2_000_000_000.into()),
    ];
    for (what, change) in changes {
        // What contradicts itself is refused as it is read.
        let Ok(forged) = forge(&plan, |json| change(json)) else { continue };
        assert!(forged.check(&graph).is_err(), "{what}");
        // Workspaces that the plan does not have are placed; nothing else can be made right.
        let made_right = what.starts_with("missing");
        assert_eq!(forged.resized(&graph).is_ok(), made_right, "{what}");
    }
}

#[test]
fn nodes_that_run_as_one_do_so_at_other_sizes() {
    let gate = |bytes: u64| {
        let mut sketch = Sketch::new();
        let x = sketch.input("x", bytes);
        let mut value = |name| sketch.value(name, ValueKind::Activation, bytes);
        let [a, s, y] = [value("a"), value("s"), value("y")];
        sketch.builder.add_node(Node::new("a", "Conv").reads([x]).writes([a]));
        let sigmoid = Node::new("s", "Sigmoid").reads([a]).writes([s]).in_place(0, 0);
        sketch.builder.add_node(sigmoid.flow(0, bytes, [0]));
        let times = Node::new("y", "Mul").reads([a, s]).writes([y]).in_place(0, 0).in_place(1, 0);
        sketch.builder.add_node(times.flow(0, bytes, [0, 1]));
        sketch.build(&[y])
    };
    let [conv, sigmoid, times] = [0, 1, 2].map(NodeId::new);
    let plan = planner().plan_steps(&gate(80), &[vec![conv], vec![sigmoid, times]]).unwrap();
    assert_eq!(plan.arena_bytes(), 160);
    let top = plan.placements().iter().map(|value| value.offset).max().unwrap();
    for bytes in [80, 30, 2] {
        assert_eq!(plan.resized(&gate(bytes)).unwrap().arena_bytes(), top + bytes);
    }
    // What is made in one piece cannot be passed on piece by piece.
    assert!(matches!(plan.resized(&gate(1)), Err(Error::PlanMismatch { .. })));
}
