//! Nodes that run again in each fused group that reads their output.

use arenaplan::graph::{Flow, Workspace};
use arenaplan::plan::WorkspacePolicy;
use arenaplan::{
    DType, Effects, Graph, Node, NodeId, Plan, Planner, Target, Technique, Techniques, Value,
    ValueId, ValueKind,
};
use serde_json::json;

use crate::check::forge;
use crate::planners::ideal_planner;

const COUNT: u64 = 1024;

/// Elementwise from the inputs in `follows`.
fn elementwise(follows: &[usize]) -> Effects {
    let flow = Flow { output: 0, pieces: COUNT, follows: follows.to_vec() };
    Effects { flows: vec![flow], ..Effects::default() }
}

/// Small integers that become wide numbers, which `branches` convolutions read. Each result becomes
/// small again; the last node adds them all.
struct Case {
    graph: Graph,
    widen: NodeId,
    wide: ValueId,
}

fn case(branches: usize, repeats: bool, keeps_wide: bool) -> Case {
    let mut builder = Graph::builder("quantized");
    let value = |name: &str, kind, dtype| Value::new(name, kind, dtype, [COUNT]).unwrap();
    let x = builder.add_value(value("x", ValueKind::Input, DType::INT8));
    let small = builder.add_value(value("small", ValueKind::Activation, DType::INT8));
    let wide = builder.add_value(value("wide", ValueKind::Activation, DType::FLOAT32));
    builder.add_node(Node::new("first", "Relu").reads([x]).writes([small]));
    let effects = Effects { repeats, ..elementwise(&[0]) };
    let widen = Node::new("widen", "Dequantize").reads([small]).writes([wide]);
    let widen = builder.add_node(widen.with_effects(effects));
    let mut ends = Vec::new();
    for branch in 0..branches {
        let mut add =
            |name: String, dtype| builder.add_value(value(&name, ValueKind::Activation, dtype));
        let sums = add(format!("sums{branch}"), DType::FLOAT32);
        let end = add(format!("end{branch}"), DType::INT8);
        let conv = Effects { loads: vec![0], ..elementwise(&[]) };
        let conv = Node::new(format!("conv{branch}"), "Conv").with_effects(conv);
        builder.add_node(conv.reads([wide]).writes([sums]));
        let narrow = Node::new(format!("narrow{branch}"), "Quantize").reads([sums]).writes([end]);
        builder.add_node(narrow.with_effects(elementwise(&[0])));
        ends.push(end);
    }
    let y = builder.add_value(value("y", ValueKind::Activation, DType::INT8));
    builder.add_node(Node::new("sum", "Sum").reads(ends).writes([y]));
    builder.add_output(y);
    if keeps_wide {
        builder.add_output(wide);
    }
    Case { graph: builder.build().unwrap(), widen, wide }
}

fn without() -> Techniques {
    Techniques::ALL.without(Technique::Duplicate)
}

#[test]
fn the_input_of_a_widening_node_is_kept_and_not_its_output() {
    let Case { graph, widen, wide } = case(3, true, false);
    let planned = |techniques| ideal_planner().optimize(techniques).plan(&graph).unwrap();
    let (all, fewer) = (planned(Techniques::ALL), planned(without()));
    assert!(all.placement(wide).is_none(), "the wide value has no place");
    assert_eq!(all.repeated(), [(widen, 3)]);
    assert!(fewer.repeated().is_empty());
    // Three small results and the small operand, against the wide value beside some of them.
    assert_eq!(all.arena_bytes(), 4 * COUNT);
    assert!(fewer.arena_bytes() >= 5 * COUNT, "{}", fewer.arena_bytes());
    let again = Plan::from_json(all.to_json().as_bytes()).unwrap();
    assert_eq!(again, all);
    again.check(&graph).unwrap();
    // Every step names the node that it runs, and the order names it once.
    assert_eq!(all.order().filter(|&node| node == widen).count(), 1);
    assert_eq!(all.resized(&graph).unwrap().arena_bytes(), all.arena_bytes());
    all.hazards(&graph).unwrap();
}

#[test]
fn nodes_that_may_not_run_again_do_not() {
    let graph = case(3, false, false).graph;
    let plan = ideal_planner().plan(&graph).unwrap();
    assert!(plan.repeated().is_empty());
    assert!(!graph.to_json().contains("repeats"));
    let repeating = case(3, true, false).graph;
    assert_ne!(graph.digest(), repeating.digest());
    assert_eq!(Graph::from_json(repeating.to_json().as_bytes()).unwrap(), repeating);
}

#[test]
fn an_output_that_is_needed_as_a_whole_is_made_once_besides() {
    let Case { graph, widen, wide } = case(2, true, true);
    let steps = |nodes: &[&[usize]]| -> Vec<Vec<NodeId>> {
        nodes.iter().map(|step| step.iter().copied().map(NodeId::new).collect()).collect()
    };
    // first 0, widen 1, conv0 2, narrow0 3, conv1 4, narrow1 5, sum 6
    let planned = |nodes: &[&[usize]]| {
        Planner::new().target(&Target::IDEAL).plan_steps(&graph, &steps(nodes))
    };
    let plan = planned(&[&[0], &[1], &[1, 2, 3], &[1, 4, 5], &[6]]).unwrap();
    assert_eq!(plan.repeated(), [(widen, 3)]);
    assert!(plan.placement(wide).is_some());
    assert_eq!(plan.step_of(widen).unwrap().name, "widen");
    // Nothing puts the output into memory; and a reader finds it there before it is made.
    assert!(planned(&[&[0], &[1, 2, 3], &[1, 4, 5], &[6]]).is_err());
    assert!(planned(&[&[0], &[2, 3], &[1], &[1, 4, 5], &[6]]).is_err());
    // The wide value lives as long as a reader without the node runs.
    let mixed = planned(&[&[0], &[1], &[2, 3], &[1, 4, 5], &[6]]).unwrap();
    assert_eq!(mixed.repeated(), [(widen, 2)]);
}

#[test]
fn nodes_of_which_a_second_run_might_differ_are_refused() {
    let mut builder = Graph::builder("state");
    let value = |name: &str, kind| Value::new(name, kind, DType::INT8, [COUNT]).unwrap();
    let state = builder.add_value(value("state", ValueKind::State));
    let y = builder.add_value(value("y", ValueKind::Activation));
    let effects = Effects { repeats: true, ..elementwise(&[0]) };
    builder.add_node(Node::new("read", "Cast").reads([state]).writes([y]).with_effects(effects));
    builder.add_output(y);
    let error = builder.build().unwrap_err();
    assert!(error.to_string().contains("a state that it reads may change"), "{error}");

    let mut builder = Graph::builder("order");
    let x = builder.add_value(value("x", ValueKind::Input));
    let [y, z] = ["y", "z"].map(|name| builder.add_value(value(name, ValueKind::Activation)));
    let first = builder.add_node(Node::new("a", "Cast").reads([x]).writes([y]).repeats());
    builder.add_node(Node::new("b", "Op").reads([x]).writes([z]).after([first]));
    let error = builder.build().unwrap_err();
    assert!(error.to_string().contains("another node waits for it"), "{error}");
}

#[test]
fn forged_repetitions_are_refused() {
    let Case { graph, .. } = case(2, true, false);
    let plan = ideal_planner().plan(&graph).unwrap();
    assert_eq!(plan.repeated().len(), 1);
    let says = |change: &dyn Fn(&mut serde_json::Value)| match forge(&plan, change) {
        Err(error) => error.to_string(),
        Ok(forged) => forged.check(&graph).unwrap_err().to_string(),
    };
    let at = |name: &str| plan.steps().iter().position(|step| step.name == name).unwrap();
    let (first, second) = (at("narrow0"), at("narrow1"));
    // One of the groups reads the wide value, which no step puts into memory.
    let text = says(&|json| {
        let wide = 2;
        json["steps"][second]["fused"] = json!([4]);
        json["steps"][second]["inputs"] = json!([wide]);
    });
    assert!(text.contains("not in memory"), "{text}");
    let text = says(&|json| json["steps"][first]["fused"] = json!([1, 1, 2]));
    assert!(text.contains("twice in one step"), "{text}");
    let text = says(&|json| json["options"]["optimize"] = json!(["fusion", "streaming"]));
    assert!(text.contains("technique duplicate"), "{text}");
    let text = says(&|json| json["search"]["skipped"] = json!(["duplicate"]));
    assert!(text.contains("duplicate was skipped"), "{text}");
    let target = Target::custom("own", without()).unwrap();
    let text = plan.check_target(&target).unwrap_err().to_string();
    assert!(text.contains("runs in several steps"), "{text}");
    // The same steps for a graph whose node may run once only.
    let other = case(2, false, false).graph;
    let text = forge(&plan, |json| json["digest"] = json!(other.digest())).unwrap();
    let text = text.check(&other).unwrap_err().to_string();
    assert!(text.contains("needed elsewhere") || text.contains("several steps"), "{text}");
}

#[test]
fn scratch_memory_belongs_to_the_step_that_a_node_ends() {
    let Case { graph, widen, .. } = case(2, true, true);
    let scratch = |bytes| Workspace {
        choices: vec![arenaplan::graph::Choice { bytes, cost: 1.0 }],
        alignment: arenaplan::base::Alignment::BYTE,
    };
    let graph = graph.with_workspaces([(widen, vec![scratch(64)])]).unwrap();
    let steps: Vec<Vec<NodeId>> = [&[0][..], &[1], &[1, 2, 3], &[1, 4, 5], &[6]]
        .iter()
        .map(|step| step.iter().copied().map(NodeId::new).collect())
        .collect();
    let planner = Planner::new().target(&Target::IDEAL).workspace(WorkspacePolicy::Auto);
    let plan = planner.plan_steps(&graph, &steps).unwrap();
    assert_eq!(plan.workspaces().len(), 1);
    assert_eq!(plan.resized(&graph).unwrap().workspaces().len(), 1);
    // Without a step of its own, the node has none.
    let Case { graph, widen, .. } = case(2, true, false);
    let graph = graph.with_workspaces([(widen, vec![scratch(64)])]).unwrap();
    let steps: Vec<_> =
        steps.iter().filter(|step| step.len() != 1 || step[0] != widen).cloned().collect();
    assert!(planner.plan_steps(&graph, &steps).unwrap().workspaces().is_empty());
}

/// A transpose reads the wide value as a whole, and the group that it is in needs it piece by piece.
#[test]
fn a_group_does_not_read_from_memory_what_it_makes_itself() {
    let mut builder = Graph::builder("both");
    let value = |name: &str, kind, dtype| Value::new(name, kind, dtype, [COUNT]).unwrap();
    let x = builder.add_value(value("x", ValueKind::Input, DType::INT8));
    let mut add = |name: &str, dtype| builder.add_value(value(name, ValueKind::Activation, dtype));
    let [small, wide, turned, y] = [
        add("small", DType::INT8),
        add("wide", DType::FLOAT32),
        add("turned", DType::FLOAT32),
        add("y", DType::FLOAT32),
    ];
    builder.add_node(Node::new("first", "Relu").reads([x]).writes([small]));
    let effects = Effects { repeats: true, ..elementwise(&[0]) };
    let widen = Node::new("widen", "Cast").reads([small]).writes([wide]).with_effects(effects);
    builder.add_node(widen);
    let turn = Node::new("turn", "Transpose").reads([wide]).writes([turned]);
    builder.add_node(turn.flow(0, COUNT / 2, []));
    let product = Node::new("product", "Mul").reads([wide, turned]).writes([y]);
    builder.add_node(product.with_effects(elementwise(&[0, 1])));
    builder.add_output(y);
    let graph = builder.build().unwrap();
    let plan = ideal_planner().optimize(Techniques::ALL).plan(&graph).unwrap();
    plan.check(&graph).unwrap();
}
