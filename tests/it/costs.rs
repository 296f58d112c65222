//! Plans that weigh bytes and time by the costs of a runner.

use std::cell::Cell;

use arenaplan::base::Alignment;
use arenaplan::choose::{Costs, StepCost, StepForm, Way, declared, step_times};
use arenaplan::graph::{Choice, Workspace};
use arenaplan::plan::WorkspacePolicy;
use arenaplan::planner::Goal;
use arenaplan::{
    DType, Graph, Node, NodeId, Plan, Planner, Target, Technique, Techniques, Value, ValueKind,
};

/// Rows of every value.
const ROWS: u64 = 64;

/// Products with a wide value between them, which streaming never makes as a whole.
fn perceptron(layers: usize) -> Graph {
    let mut builder = Graph::builder("perceptron");
    let mut value = |name: String, kind, width| {
        builder.add_value(Value::new(name, kind, DType::FLOAT32, [ROWS, width]).unwrap())
    };
    let mut values = vec![value("x".into(), ValueKind::Input, 64)];
    for layer in 0..layers {
        for (name, width) in [("p", 512), ("r", 512), ("y", 64)] {
            values.push(value(format!("{name}{layer}"), ValueKind::Activation, width));
        }
    }
    for (at, pair) in values.windows(2).enumerate() {
        let (read, written) = (pair[0], pair[1]);
        let (op, pieces) = if at % 3 == 1 { ("Relu", ROWS * 512) } else { ("MatMul", ROWS) };
        let node = Node::new(format!("n{at}"), op).reads([read]).writes([written]);
        let node = node.flow(0, pieces, [0]);
        let node = if op == "Relu" { node.in_place(0, 0) } else { node };
        builder.add_node(node.with_cost(1).pure());
    }
    builder.add_output(*values.last().unwrap());
    builder.build().unwrap()
}

/// A runner whose products read their weights again for each tile: the more scratch memory, the
/// fewer tiles.
#[derive(Debug, Default)]
struct Tiles {
    asked: Cell<usize>,
}

impl Costs for Tiles {
    fn step(&self, nodes: &[NodeId], form: StepForm<'_>) -> Option<StepCost> {
        self.asked.set(self.asked.get() + 1);
        let StepForm::Whole = form else { return None };
        let count = u64::try_from(nodes.len()).unwrap();
        if count == 1 {
            return Some(StepCost::of_time(1000));
        }
        let ways: Vec<Way> = [(4096, 8), (16384, 4), (65536, 2)]
            .map(|(bytes, tiles)| Way { bytes, time: 500 * count * tiles })
            .to_vec();
        let cost = [8.0, 4.0, 2.0];
        let choices = ways.iter().zip(cost).map(|(way, cost)| Choice { bytes: way.bytes, cost });
        let workspace = Workspace { choices: choices.collect(), alignment: Alignment::BYTE };
        Some(StepCost { workspaces: vec![workspace], ways })
    }
}

fn planner(costs: &Tiles) -> Planner<'_> {
    Planner::new().target(&Target::NUMPY).costs(costs)
}

fn nanoseconds(plan: &Plan) -> u64 {
    plan.search().and_then(|search| search.estimate).unwrap().nanoseconds
}

#[test]
fn a_limit_of_the_time_costs_bytes_and_is_kept() {
    let (graph, costs) = (perceptron(2), Tiles::default());
    let least = planner(&costs).plan(&graph).unwrap();
    assert!(least.steps().iter().any(|step| !step.fused.is_empty()));
    let mut before = u64::MAX;
    for thousandths in [1000, 1100, 1500, 2000, 4000, 8000] {
        let plan = planner(&costs).max_slowdown(Some(thousandths)).plan(&graph).unwrap();
        let estimate = plan.search().and_then(|search| search.estimate).unwrap();
        assert!(estimate.nanoseconds * 1000 <= estimate.fastest_nanoseconds * thousandths);
        assert!(plan.arena_bytes() <= before, "at {thousandths}");
        assert!(plan.arena_bytes() >= least.arena_bytes());
        before = plan.arena_bytes();
        let steps: u64 = step_times(&graph, &plan, &costs).unwrap().into_iter().sum();
        assert_eq!(steps, estimate.nanoseconds);
    }
    assert_eq!(before, least.arena_bytes());
    let error = step_times(&perceptron(1), &least, &costs).unwrap_err();
    assert_eq!(error.kind(), "PlanMismatch");
}

#[test]
fn points_are_a_front_that_holds_the_plan() {
    let (graph, costs) = (perceptron(2), Tiles::default());
    let chosen = planner(&costs).max_slowdown(Some(1500)).choose(&graph).unwrap();
    let falls = |pair: &[arenaplan::planner::Point]| {
        pair[0].bytes < pair[1].bytes && pair[0].nanoseconds > pair[1].nanoseconds
    };
    assert!(chosen.points.len() > 1 && chosen.points.windows(2).all(falls), "{chosen:?}");
    let own = (chosen.plan.arena_bytes(), nanoseconds(&chosen.plan));
    assert!(chosen.points.iter().any(|point| (point.bytes, point.nanoseconds) == own));
    assert_eq!(chosen.plan, planner(&costs).max_slowdown(Some(1500)).plan(&graph).unwrap());
}

#[test]
fn a_plan_is_checked_against_the_graph_with_the_scratch_memory_of_its_steps() {
    let (graph, costs) = (perceptron(1), Tiles::default());
    let plan = planner(&costs).plan(&graph).unwrap();
    assert!(!plan.workspaces().is_empty());
    let steps: Vec<Vec<NodeId>> = plan.steps().iter().map(|step| step.nodes().collect()).collect();
    let with = declared(&graph, &costs, &steps, &plan.overlapped(), &plan.strips()).unwrap();
    plan.check(&with).unwrap();
    assert!(plan.check(&graph).is_err());
}

#[test]
fn without_scratch_memory_no_plan_has_more_bytes() {
    for layers in 1..4 {
        let (graph, costs) = (perceptron(layers), Tiles::default());
        for limit in [None, Some(1000), Some(1500)] {
            let planner = planner(&costs).max_slowdown(limit);
            let with = planner.plan(&graph).unwrap();
            let without = planner.workspace(WorkspacePolicy::None).plan(&graph).unwrap();
            assert!(without.arena_bytes() <= with.arena_bytes());
            assert!(without.workspaces().is_empty());
        }
    }
}

#[test]
fn each_row_of_an_explanation_is_a_plan() {
    let (graph, costs) = (perceptron(2), Tiles::default());
    let planner = planner(&costs).max_slowdown(Some(1500));
    let found = planner.explain(&graph).unwrap();
    let mut techniques = Techniques::NONE;
    for ((level, point), (name, switched)) in found.levels.iter().zip(&found.switched) {
        techniques = techniques.with(*level);
        let plan = planner.optimize(techniques).plan(&graph).unwrap();
        assert_eq!((plan.arena_bytes(), nanoseconds(&plan)), (point.bytes, point.nanoseconds));
        let others = Techniques::ALL.without(*name);
        let plan = planner.optimize(others).plan(&graph).unwrap();
        assert_eq!(plan.arena_bytes(), switched.bytes, "{name}");
    }
    assert!(found.levels.iter().any(|(level, _)| *level == Technique::Streaming));
}

#[test]
fn given_steps_have_the_scratch_memory_of_their_kernels() {
    let (graph, costs) = (perceptron(1), Tiles::default());
    let nodes: Vec<NodeId> = (0..3).map(NodeId::new).collect();
    let plan = planner(&costs).plan_steps(&graph, &[nodes]).unwrap();
    assert_eq!(plan.workspaces().len(), 1);
}

#[test]
fn a_repeated_step_costs_as_much_as_its_node() {
    let (graph, costs) = (perceptron(2), Tiles::default());
    let free = planner(&costs).recompute(&graph, Goal::Extra(0)).unwrap();
    let plan = planner(&costs).recompute(&graph, Goal::Bytes(free.arena_bytes())).unwrap();
    assert!(plan.arena_bytes() <= free.arena_bytes());
}

#[test]
fn a_step_is_asked_for_once_in_a_plan() {
    #[derive(Debug, Default)]
    struct Once(std::cell::RefCell<std::collections::BTreeSet<Vec<NodeId>>>);
    impl Costs for Once {
        fn step(&self, nodes: &[NodeId], form: StepForm<'_>) -> Option<StepCost> {
            let StepForm::Whole = form else { return None };
            assert!(self.0.borrow_mut().insert(nodes.to_vec()), "asked twice for {nodes:?}");
            Some(StepCost::of_time(10))
        }
    }
    let (graph, costs) = (perceptron(3), Once::default());
    Planner::new().target(&Target::NUMPY).costs(&costs).plan(&graph).unwrap();
}

/// A runner whose calls for some nodes take so long, in so many bytes.
#[derive(Debug)]
struct Calls(Way);

impl Costs for Calls {
    fn step(&self, nodes: &[NodeId], form: StepForm<'_>) -> Option<StepCost> {
        match form {
            StepForm::Continued if nodes.len() == 3 => {
                Some(StepCost { workspaces: Vec::new(), ways: vec![self.0] })
            }
            StepForm::Whole if nodes.len() == 1 => Some(StepCost::of_time(10)),
            _ => None,
        }
    }
}

#[test]
fn a_step_continues_the_step_before_if_one_call_takes_no_longer() {
    let mut builder = Graph::builder("continued");
    let mut array =
        |name, kind| builder.add_value(Value::new(name, kind, DType::FLOAT32, [64, 64]).unwrap());
    let x = array("x", ValueKind::Input);
    let [a, b, y] = ["a", "b", "y"].map(|name| array(name, ValueKind::Activation));
    builder.add_node(Node::new("a", "Conv").reads([x]).writes([a]));
    builder.add_node(Node::new("b", "Scale").reads([a]).writes([b]).in_place(0, 0));
    builder.add_node(Node::new("y", "Relu").reads([b]).writes([y]).in_place(0, 0));
    builder.add_output(y);
    let graph = builder.build().unwrap();
    let plan = |bytes, time| {
        let costs = Calls(Way { bytes, time });
        Planner::new().target(&Target::NUMPY).costs(&costs).plan(&graph).unwrap()
    };
    let together = plan(0, 30);
    let names: Vec<_> = together.steps().iter().filter(|step| step.continues).collect();
    assert_eq!(names.iter().map(|step| &*step.name).collect::<Vec<_>>(), ["b", "y"]);
    let json = together.to_json();
    assert_eq!(Plan::from_json(json.as_bytes()).unwrap(), together);
    for (bytes, time) in [(0, 40), (64, 30)] {
        let apart = plan(bytes, time);
        assert_eq!(apart.continued(), []);
        assert_eq!(apart.placements(), together.placements());
        assert!(!apart.to_json().contains("continues"));
    }
}
