//! Plans are for targets: what each honors, and what the checker refuses.

use arenaplan::base::Alignment;
use arenaplan::graph::{View, Whole};
use arenaplan::pack::Space;
use arenaplan::plan::{InputMemory, OutputMemory, Provider, WorkspacePolicy};
use arenaplan::{
    Effects, Error, Graph, Memories, Node, NodeId, Plan, Planner, Target, Technique, Techniques,
    Value, ValueKind,
};
use proptest::prelude::*;
use sha2::{Digest, Sha256};

use crate::graphs::{Sketch, graphs};
use crate::planners::ideal_planner;

/// Returns r = x + 1, a = r + 1, c = 3 a, y = c + r, elementwise, of 64 bytes each.
fn residual() -> Graph {
    let mut builder = Graph::builder("residual");
    let mut value = |name: &str, kind| {
        builder.add_value(Value::new(name, kind, arenaplan::DType::UINT8, [64]).unwrap())
    };
    let x = value("x", ValueKind::Input);
    let [r, a, c, y] = ["r", "a", "c", "y"].map(|name| value(name, ValueKind::Activation));
    for (name, reads, writes) in
        [("r", vec![x], r), ("a", vec![r], a), ("c", vec![a], c), ("y", vec![c, r], y)]
    {
        let follows = 0..reads.len();
        let node = Node::new(name, "Op").reads(reads).writes([writes]);
        builder.add_node(node.in_place(0, 0).flow(0, 64, follows));
    }
    builder.add_output(y);
    builder.build().unwrap()
}

/// Returns a plan file whose content was changed, with the checksum made right again.
fn with_checksum(text: &str) -> String {
    let (body, _) = text.split_once(",\"checksum\"").unwrap();
    let sum = Sha256::digest(format!("{body}}}"));
    let sum: String = sum.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{body},\"checksum\":\"{sum}\"}}")
}

/// Returns the kind and text of the error that `result` holds.
fn refused(result: Result<impl Sized, Error>) -> (&'static str, String) {
    let error = result.err().expect("it is refused");
    (error.kind(), error.to_string())
}

#[test]
fn the_default_target_runs_each_node_by_itself() {
    let plan = Planner::new().plan(&residual()).unwrap();
    assert_eq!(plan.target(), &Target::NODES);
    assert!(plan.steps().iter().all(|step| step.fused.is_empty()));
    assert_eq!(plan.options().optimize, Target::NODES.techniques());
    let fused = Techniques::NONE.with(Technique::Fusion);
    let ideal = ideal_planner().optimize(fused).plan(&residual()).unwrap();
    assert!(ideal.steps().iter().any(|step| !step.fused.is_empty()), "fusion pays here");
    let (kind, text) = refused(ideal.check_target(&Target::NODES));
    assert_eq!(kind, "TargetMismatch");
    assert!(text.contains("runs several nodes as one"), "{text}");
}

#[test]
fn options_that_the_target_does_not_honor_are_refused() {
    let graph = residual();
    let all = Planner::new().optimize(Techniques::ALL);
    let (kind, text) = refused(all.plan(&graph));
    assert_eq!(kind, "InvalidOption");
    assert!(text.contains("does not honor fusion,streaming,overlap,duplicate"), "{text}");
    let tflm = Target::TFLM;
    let tflm = Planner::new().target(&tflm);
    let text = refused(tflm.alignment(8).plan(&graph)).1;
    assert!(text.contains("counts in 16 bytes"), "{text}");
    let text = refused(tflm.inputs(InputMemory::Caller).plan(&graph)).1;
    assert!(text.contains("in its arena"), "{text}");
    let text = refused(tflm.workspace(WorkspacePolicy::Auto).plan(&graph)).1;
    assert!(text.contains("scratch memory by itself"), "{text}");
    let memories = Memories::new(vec![Space::new("a"), Space::new("b")]).unwrap();
    let text = refused(tflm.memories(&memories).plan(&graph)).1;
    assert!(text.contains("one arena"), "{text}");
    let one = Memories::new(vec![Space::new("a")]).unwrap();
    assert!(tflm.memories(&one).plan(&graph).is_ok(), "one memory is one arena");
    let pair = vec![vec![NodeId::new(0)], vec![NodeId::new(1)], (2..4).map(NodeId::new).collect()];
    let text = refused(Planner::new().plan_steps(&graph, &pair)).1;
    assert!(text.contains("one node at a time"), "{text}");
}

#[test]
fn a_forged_target_is_refused() {
    let graph = residual();
    let ideal = ideal_planner().plan(&graph).unwrap();
    // The ideal target is not written down; a plan for NumPy is the same but for its name.
    let target = Target::NUMPY;
    let numpy = Planner::new().target(&target).plan(&graph).unwrap();
    assert_eq!(numpy.steps(), ideal.steps());
    let text = numpy.to_json();
    for (from, to, expected) in [
        ("\"name\":\"numpy\"", "\"name\":\"nodes\"", "describes the target"),
        ("\"name\":\"numpy\"", "\"name\":\"own\"", ""),
        (
            "\"fusion\",\"order\",\"streaming\",\"overlap\",\"duplicate\"],\"alignment\"",
            "\"order\"],\"alignment\"",
            "describes",
        ),
    ] {
        assert!(text.contains(from), "{text}");
        let forged = with_checksum(&text.replacen(from, to, 1));
        let result = Plan::from_json(forged.as_bytes()).unwrap().check(&graph);
        if expected.is_empty() {
            assert!(result.is_ok(), "a target of one's own may do the same");
        } else {
            let (kind, text) = refused(result);
            assert_eq!(kind, "TargetMismatch");
            assert!(text.contains(expected), "{text}");
        }
    }
    // A runner of one's own that honors less than the plan does.
    let less = text.replacen("\"name\":\"numpy\"", "\"name\":\"own\"", 1).replacen(
        "\"fusion\",\"order\",\"streaming\",\"overlap\",\"duplicate\"],\"alignment\"",
        "\"order\"],\"alignment\"",
        1,
    );
    let less = with_checksum(&less);
    let (kind, text) = refused(Plan::from_json(less.as_bytes()).unwrap().check(&graph));
    assert_eq!(kind, "TargetMismatch");
    assert!(text.contains("options of the plan"), "{text}");
}

#[test]
fn old_files_are_for_the_ideal_target() {
    let graph = residual();
    let plan = ideal_planner().plan(&graph).unwrap();
    let text = plan.to_json();
    assert!(!text.contains("\"target\""), "as files were before there were targets");
    let loaded = Plan::from_json(text.as_bytes()).unwrap();
    assert_eq!(loaded.target(), &Target::IDEAL);
    loaded.check(&graph).unwrap();
}

#[test]
fn each_way_of_sharing_needs_its_technique() {
    let mut builder = Graph::builder("shares");
    let mut value = |name: &str, kind, bytes: u64| {
        builder.add_value(Value::new(name, kind, arenaplan::DType::UINT8, [bytes]).unwrap())
    };
    let x = value("x", ValueKind::Input, 128);
    let a = value("a", ValueKind::Activation, 128);
    let shown = value("shown", ValueKind::Activation, 128);
    let piece = value("piece", ValueKind::Activation, 64);
    let y = value("y", ValueKind::Activation, 64);
    builder.add_node(Node::new("a", "Op").reads([x]).writes([a]));
    builder.add_node(Node::new("shown", "Reshape").reads([a]).writes([shown]).view(0, 0));
    let slice = View { input: 0, output: 0, offset: 64, whole: Whole::Input };
    let slice = Effects { views: vec![slice], ..Effects::default() };
    let slice = Node::new("piece", "Slice").reads([shown]).writes([piece]).with_effects(slice);
    builder.add_node(slice);
    builder.add_node(Node::new("y", "Relu").reads([piece]).writes([y]).in_place(0, 0));
    builder.add_output(y);
    let graph = builder.build().unwrap();
    let plan = Planner::new().plan(&graph).unwrap();
    let honoring = |techniques: &[Technique]| {
        Target::custom("own", techniques.iter().copied().collect()).unwrap()
    };
    let views = honoring(&[Technique::Views]);
    let text = refused(plan.check_target(&views)).1;
    assert!(text.contains("as a piece of") && text.contains("(elision)"), "{text}");
    let text = refused(plan.check_target(&honoring(&[Technique::Elision]))).1;
    assert!(text.contains("in the bytes of") && text.contains("(views)"), "{text}");
    let text = refused(plan.check_target(&honoring(&[Technique::Views, Technique::Elision]))).1;
    assert!(text.contains("in place of") && text.contains("(in-place)"), "{text}");
    for target in [Target::NODES, Target::NUMPY, Target::IDEAL] {
        assert!(plan.check_target(&target).is_ok());
    }
}

/// Returns a graph of a space with an alignment.
fn aligned(alignment: u64) -> Graph {
    let mut sketch = Sketch::new();
    let alignment = Alignment::new(alignment).unwrap();
    let space = Space::new("arena").with_alignment(alignment);
    sketch.builder.set_default_space(space);
    let s = sketch.value("s", ValueKind::State, 64);
    let y = sketch.node("y", &[s], 64);
    sketch.build(&[y])
}

#[test]
fn each_limit_of_a_target_refuses_by_itself() {
    let planner = || ideal_planner().optimize(Techniques::NONE);
    let small = planner().alignment(8);
    let inputs = planner().inputs(InputMemory::Caller);
    let outputs = planner().outputs(OutputMemory::Caller);
    let callers = "inputs or outputs are in memory of the caller";
    for (planner, graph, says) in [
        (&small, aligned(1), "space 'arena' is aligned to 8, not to 16 bytes"),
        (&small, aligned(16), "offsets are aligned to 8, not to 16 bytes"),
        (&outputs, aligned(1), callers),
        // Even if there is no input.
        (&inputs, aligned(1), callers),
    ] {
        let text = refused(planner.plan(&graph).unwrap().check_target(&Target::TFLM)).1;
        assert!(text.contains(says), "{text}");
    }
    let scratch = [arenaplan::graph::Choice { bytes: 16, cost: 1.0 }];
    let mut builder = Graph::builder("scratch");
    let array = |name, kind| Value::new(name, kind, arenaplan::DType::UINT8, [64]).unwrap();
    let x = builder.add_value(array("x", ValueKind::Input));
    let y = builder.add_value(array("y", ValueKind::Activation));
    builder.add_node(Node::new("y", "Op").reads([x]).writes([y]).workspace(scratch));
    let auto = planner().workspace(WorkspacePolicy::Auto);
    let plan = auto.plan(&builder.build().unwrap()).unwrap();
    let text = refused(plan.check_target(&Target::TFLM)).1;
    assert!(text.contains("the target places its own"), "{text}");
    let mut sketch = Sketch::new();
    let slow = sketch.builder.add_space(Space::new("slow"));
    let array = |name| Value::new(name, ValueKind::State, arenaplan::DType::UINT8, [64]).unwrap();
    sketch.builder.add_value(array("s").with_space(slow));
    let plan = planner().plan(&sketch.build(&[])).unwrap();
    let text = refused(plan.check_target(&Target::TFLM)).1;
    assert!(text.contains("values are in 2 spaces, not in one"), "{text}");
}

/// A search may not reorder nodes for a target that keeps the order, and a caller may.
#[test]
fn steps_in_another_order_are_the_callers() {
    let mut sketch = Sketch::new();
    let x = sketch.input("x", 64);
    let [a, b] = ["a", "b"].map(|name| sketch.node(name, &[x], 64));
    let graph = sketch.build(&[a, b]);
    let keeps = Techniques::ALL.without(Technique::Order);
    let target = Target::custom("own", keeps).unwrap();
    let planner = Planner::new().target(&target);
    let searched = planner.plan(&graph).unwrap();
    assert!(searched.search().is_some());
    let plan = planner.plan_steps(&graph, &[1, 0].map(|node| vec![NodeId::new(node)])).unwrap();
    plan.check(&graph).unwrap();
    let forged = crate::check::forge(&plan, |json| {
        let text: serde_json::Value = serde_json::from_str(&searched.to_json()).unwrap();
        json["search"] = text["search"].clone();
    });
    let text = refused(forged.unwrap().check(&graph)).1;
    assert!(text.contains("in another order than the graph's"), "{text}");
}

#[test]
fn a_target_with_one_arena_is_asked_before_a_graph_of_several_is_planned() {
    let mut sketch = Sketch::new();
    sketch.input("x", 64);
    sketch.builder.add_space(Space::new("slow"));
    let error = Planner::new().target(&Target::TFLM).plan(&sketch.build(&[])).unwrap_err();
    let says = "option spaces: target 'tflm' has one arena, and the graph has several";
    assert_eq!((error.kind(), error.to_string().as_str()), ("InvalidOption", says));
}

#[test]
fn a_target_that_keeps_the_order_has_one_worker() {
    let mut sketch = Sketch::new();
    let x = sketch.input("x", 64);
    let [a, b] = ["a", "b"].map(|name| sketch.node(name, &[x], 64));
    let y = sketch.node("y", &[a, b], 64);
    let graph = sketch.build(&[y]);
    let says = "target 'litert' runs nodes one at a time, in the graph's order";
    let planner = Planner::new().target(&Target::LITERT);
    let error = planner.workers(2).plan(&graph).unwrap_err();
    assert_eq!(error.kind(), "InvalidOption");
    assert!(error.to_string().contains(says), "{error}");
    planner.workers(1).plan(&graph).unwrap();
}

#[test]
fn generated_code_fuses_no_nodes_and_needs_no_scratch_memory() {
    let graph = residual();
    let fused = Techniques::NONE.with(Technique::Fusion);
    let planner = Planner::new().target(&Target::C_CODE);
    let (kind, text) = refused(planner.optimize(fused).plan(&graph));
    assert_eq!(kind, "InvalidOption");
    assert!(text.contains("does not honor fusion"), "{text}");
    let plan = planner.plan(&graph).unwrap();
    assert!(plan.check_target(&Target::IDEAL).is_ok());
    assert_eq!(Target::C_CODE.scratch(), Provider::Nobody);
    let fused = ideal_planner().plan_steps(&graph, &[graph.order().to_vec()]).unwrap();
    assert_eq!(fused.check_target(&Target::C_CODE).unwrap_err().kind(), "TargetMismatch");
}

#[test]
fn a_target_that_keeps_the_order_gets_the_graphs_order() {
    let graph = residual();
    let target = Target::EXECUTORCH;
    let plan = Planner::new().target(&target).plan(&graph).unwrap();
    assert!(plan.order().eq(graph.order().iter().copied()));
}

#[test]
fn declared_scratch_memory_is_planned_where_the_graph_brings_it() {
    let mut builder = Graph::builder("scratch");
    let mut value = |name: &str, kind| {
        builder.add_value(Value::new(name, kind, arenaplan::DType::UINT8, [64]).unwrap())
    };
    let (x, y) = (value("x", ValueKind::Input), value("y", ValueKind::Activation));
    let scratch = [arenaplan::graph::Choice { bytes: 256, cost: 1.0 }];
    builder.add_node(Node::new("y", "Op").reads([x]).writes([y]).workspace(scratch));
    builder.add_output(y);
    let graph = builder.build().unwrap();
    assert_eq!(Planner::new().plan(&graph).unwrap().arena_bytes(), 384);
    for target in [Target::IDEAL, Target::C, Target::TFLM] {
        let plan = Planner::new().target(&target).plan(&graph).unwrap();
        assert_eq!(plan.arena_bytes(), 128, "{target}");
        assert_ne!(target.scratch(), Provider::Graph);
    }
}

#[test]
fn names_of_targets_are_read_and_unique() {
    for target in Target::KNOWN {
        assert_eq!(target.name().parse::<Target>().unwrap(), target);
        assert!(!target.summary().is_empty());
        assert!(Target::custom(target.name(), Techniques::NONE).is_err());
    }
    let (kind, text) = refused("tflite".parse::<Target>());
    assert_eq!(kind, "InvalidOption");
    assert!(
        text.contains("ideal, numpy, cupy, nodes, c-code, c, tflm, litert, executorch"),
        "{text}"
    );
}

proptest! {
    /// Every known target can run the plans that are made for it.
    #[test]
    fn plans_are_honored_by_their_target(graph in graphs(8)) {
        for target in Target::KNOWN {
            let planner = Planner::new().target(&target).workspace(WorkspacePolicy::None);
            let plan = planner.alignment(64).plan(&graph).unwrap();
            prop_assert!(plan.check(&graph).is_ok());
            prop_assert!(plan.check_target(&target).is_ok());
            if target.techniques() == Techniques::NONE.with(Technique::Views) {
                prop_assert!(plan.order().eq(graph.order().iter().copied()));
            }
        }
    }
}

#[test]
fn a_target_has_one_set_of_kernels_and_they_are_part_of_its_name() {
    let named = Target::TFLM.with_kernels("reference").unwrap();
    assert_eq!(Target::known("tflm:reference"), Some(named.clone()));
    assert_ne!(named, Target::TFLM);
    for (target, kernels) in [(&named, "cmsis-nn"), (&Target::TFLM, ""), (&Target::TFLM, "a:b")] {
        let error = target.clone().with_kernels(kernels).unwrap_err();
        assert!(matches!(error, Error::InvalidOption { option: "target", .. }), "{error}");
    }
    assert_eq!(Target::known("tflm:"), None);
    assert_eq!(Target::known("other:reference"), None);
    assert!(Target::custom("tflm:reference", Techniques::NONE).is_err());
}
