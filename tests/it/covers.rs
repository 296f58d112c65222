//! What a graph covers: files carry it, the digest tells it, and nothing answers for the whole of a part.

use arenaplan::base::Alignment;
use arenaplan::graph::{Choice, Covers, Workspace};
use arenaplan::plan::{OrderSearch, Together, WorkspacePolicy};
use arenaplan::{
    DType, Effects, Error, Graph, Model, Node, Plan, Planner, Status, Target, Value, ValueKind,
};

use crate::check::forge;

fn graph_of(covers: Covers) -> Graph {
    let mut builder = Graph::builder("net");
    let array = |name: &str, kind| Value::new(name, kind, DType::UINT8, [64]).unwrap();
    let x = builder.add_value(array("x", ValueKind::Input));
    let y = builder.add_value(array("y", ValueKind::Activation));
    builder.add_node(Node::new("n", "Op").reads([x]).writes([y]));
    builder.add_output(y);
    builder.set_covers(covers);
    builder.build().unwrap()
}

fn parts() -> Vec<Covers> {
    let names = |names: &[&str]| names.iter().map(|&name| name.into()).collect::<Vec<String>>();
    vec![
        Covers { waiting: names(&["gather"]), ..Covers::default() },
        Covers {
            waiting: names(&["a", "b", "c", "d"]),
            deciders: names(&["'a' decides"]),
            ..Covers::default()
        },
        Covers { signature: "encode".into(), others: names(&["decode"]), ..Covers::default() },
    ]
}

fn is_part<T>(result: Result<T, Error>) -> bool {
    result.is_err_and(|error| error.kind() == "PartOfModel")
}

#[test]
fn files_carry_what_a_graph_covers() {
    let whole = graph_of(Covers::default());
    assert!(!whole.to_json().contains("covers"));
    for covers in parts() {
        let graph = graph_of(covers.clone());
        assert_ne!(graph.digest(), whole.digest());
        assert_eq!(*Graph::from_json(graph.to_json().as_bytes()).unwrap().covers(), covers);
        let plan = Planner::new().plan(&graph).unwrap();
        assert_eq!((plan.covers(), plan.status()), (&covers, Status::Unknown));
        let read = Plan::from_json(plan.to_json().as_bytes()).unwrap();
        read.check(&graph).unwrap();
        assert_eq!(read, plan);
        assert_eq!(plan.check(&whole).unwrap_err().kind(), "PlanMismatch");
        let again = graph.scheduled(graph.order()).unwrap().graph;
        assert_eq!(*again.covers(), covers);
    }
    let named = Covers { signature: "main".into(), ..Covers::default() };
    assert!(named.is_whole());
    assert_eq!(Planner::new().plan(&graph_of(named)).unwrap().status(), Status::Optimal);
}

#[test]
fn a_plan_does_not_say_that_a_part_is_the_whole() {
    for covers in parts() {
        let graph = graph_of(covers);
        let plan = Planner::new().plan(&graph).unwrap();
        let forged = forge(&plan, |json| {
            json.as_object_mut().unwrap().remove("covers");
            json["status"] = json["spaces"][0]["status"].clone();
        });
        let error = forged.unwrap().check(&graph).unwrap_err();
        assert!(error.to_string().contains(", the plan the whole"), "{error}");
    }
}

#[test]
fn nothing_that_answers_for_a_model_accepts_a_part() {
    for covers in parts() {
        let graph = graph_of(covers);
        let plan = Planner::new().capacity(1 << 20).plan(&graph).unwrap();
        assert!(is_part(plan.fits()));
        assert!(Planner::new().plan(&graph).unwrap().fits().is_ok());
        let small = Planner::new().capacity(64).plan(&graph).unwrap();
        assert_eq!(small.fits().unwrap_err().kind(), "CapacityExceeded");
        assert!(is_part(Model::builder("net", [""; 0]).add(&[], &graph, &plan)));
        assert!(is_part(Planner::new().plan_together(&[&graph, &graph], Together::Concurrent)));
        assert!(is_part(plan.check_target(&Target::C)));
    }
}

/// Two nodes read *x*; the first one in the given order has its scratch memory beside a large value.
fn with_scratch(bytes: u64) -> Graph {
    let mut builder = Graph::builder("scratch");
    let array = |name: &str, kind, bytes| Value::new(name, kind, DType::UINT8, [bytes]).unwrap();
    let x = builder.add_value(array("x", ValueKind::Input, 8));
    let a = builder.add_value(array("a", ValueKind::Activation, 2));
    let b = builder.add_value(array("b", ValueKind::Activation, 6));
    builder.add_node(Node::new("A", "Op").reads([x]).writes([a]));
    let choices = vec![Choice { bytes, cost: 1.0 }];
    let workspaces = vec![Workspace { choices, alignment: Alignment::BYTE }];
    let effects = Effects { workspaces, ..Effects::default() };
    builder.add_node(Node::new("B", "Op").reads([x]).writes([b]).with_effects(effects));
    builder.add_output(a);
    builder.add_output(b);
    builder.build().unwrap()
}

#[test]
fn orders_that_scratch_memory_decides_are_not_proven() {
    let planner = Planner::new().alignment(1).workspace(WorkspacePolicy::Auto);
    let graph = with_scratch(4);
    let plan = planner.plan(&graph).unwrap();
    assert_eq!(plan.arena_bytes(), 20);
    assert_eq!(plan.search().unwrap().order, OrderSearch::Beam);
    // Another order needs 18 bytes, so none of 18 is proven to be too few.
    assert_eq!(planner.capacity(18).plan(&graph).unwrap().status(), Status::Unknown);
    assert_eq!(planner.capacity(13).plan(&graph).unwrap().status(), Status::Infeasible);
}
