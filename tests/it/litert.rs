//! TensorFlow Lite's planner: what the original answered on random graphs, and that ours
//! needs no more.

use arenaplan::base::Alignment;
use arenaplan::graph::{Choice, InPlace, Workspace};
use arenaplan::pack::Space;
use arenaplan::plan::WorkspacePolicy;
use arenaplan::{DType, Effects, Graph, Node, Value, ValueId, ValueKind};
use arenaplan_classic::incremental::{
    AllocationType, IncrementalGraph, IncrementalMode, IncrementalNode, IncrementalOptions,
    IncrementalPlanner, IncrementalValue, SharePair,
};
use proptest::prelude::*;
use serde_json::Value as Json;

use crate::incremental::{random_graphs, replay};
use crate::planners::ideal_planner;
use crate::shared::shared_json;

/// Reads indices, of which -1 is none.
fn ids(json: &Json) -> Vec<Option<u32>> {
    let list = json.as_array().unwrap().iter();
    list.map(|id| u32::try_from(id.as_i64().unwrap()).ok()).collect()
}

/// Reads a graph of the golden file.
pub fn golden_graph(case: &Json) -> IncrementalGraph {
    let value = |json: &Json| IncrementalValue {
        bytes: json["bytes"].as_u64().unwrap(),
        kind: match json["type"].as_str().unwrap() {
            "arena_rw" => AllocationType::Arena,
            "arena_rw_persistent" => AllocationType::PersistentArena,
            "mmap_ro" => AllocationType::ReadOnly,
            "dynamic" => AllocationType::Dynamic,
            other => panic!("{other}"),
        },
    };
    let node = |json: &Json| {
        let has = |flag: &str| json["inplace"].as_array().unwrap().iter().any(|it| it == flag);
        let pair = SharePair { input: 0, output: 0, unmodified: has("data_unmodified") };
        IncrementalNode {
            inputs: ids(&json["inputs"]),
            outputs: ids(&json["outputs"]),
            temporaries: ids(&json["temporaries"]).into_iter().flatten().collect(),
            shares: if has("input0_shared") { vec![pair] } else { vec![] },
        }
    };
    IncrementalGraph {
        values: case["tensors"].as_array().unwrap().iter().map(value).collect(),
        nodes: case["nodes"].as_array().unwrap().iter().map(node).collect(),
        inputs: ids(&case["inputs"]),
        outputs: ids(&case["outputs"]),
        variables: ids(&case["variables"]).into_iter().flatten().collect(),
    }
}

#[test]
fn golden_litert_offsets_and_arenas_are_reproduced() {
    let Some(golden) = shared_json("golden/litert_arena_planner.json") else { return };
    let cases = golden["cases"].as_array().unwrap();
    for (index, case) in cases.iter().enumerate() {
        let graph = golden_graph(case);
        let options = golden_options(case, IncrementalMode::LiteRt);
        let nodes = graph.nodes.len();
        let mut planner = IncrementalPlanner::new(graph, options).unwrap();
        planner.execute(0..nodes).unwrap();
        let expect = &case["expect"];
        for (value, offset) in (0_u32..).zip(expect["offsets"].as_array().unwrap()) {
            let place = planner.place(value).map(|place| place.span.offset);
            assert_eq!(place, offset.as_u64(), "case {index}, value {value}");
        }
        let expected = ["arena_bytes", "persistent_bytes"].map(|key| expect[key].as_u64().unwrap());
        assert_eq!(planner.arena_bytes(), expected.into(), "case {index}");
    }
    assert_eq!(cases.len(), 200);
}

/// Returns the options of a golden case.
fn golden_options(case: &Json, mode: IncrementalMode) -> IncrementalOptions {
    IncrementalOptions {
        mode,
        alignment: Alignment::new(case["alignment"].as_u64().unwrap()).unwrap(),
        preserve_all: case["preserve_all"].as_bool().unwrap(),
        ..IncrementalOptions::default()
    }
}

/// Returns the same graph for our planner: persistent values in a space of their own,
/// temporaries as workspaces, nothing for what is in no arena.
fn as_graph(graph: &IncrementalGraph, options: IncrementalOptions) -> Graph {
    let mut builder = Graph::builder("incremental");
    let persistent = builder.add_space(Space::new("persistent"));
    for (index, value) in graph.values.iter().enumerate() {
        let id = index as u32;
        let kind = if graph.variables.contains(&id) {
            ValueKind::State
        } else if graph.inputs.contains(&Some(id)) {
            ValueKind::Input
        } else if graph.nodes.iter().any(|node| node.outputs.contains(&Some(id))) {
            ValueKind::Activation
        } else {
            ValueKind::Constant
        };
        let added = Value::new(format!("v{index}"), kind, DType::UINT8, [value.bytes]).unwrap();
        let added = added.with_alignment(options.alignment);
        let is_persistent = value.kind == AllocationType::PersistentArena;
        builder.add_value(if is_persistent { added.with_space(persistent) } else { added });
    }
    let in_arena = |id: &Option<u32>| {
        let kind = graph.values[(*id)? as usize].kind;
        let known =
            [AllocationType::Arena, AllocationType::PersistentArena, AllocationType::ReadOnly];
        id.filter(|_| known.contains(&kind)).map(ValueId::from)
    };
    for (index, node) in graph.nodes.iter().enumerate() {
        let workspace = |&id: &u32| {
            let choice = Choice { bytes: graph.values[id as usize].bytes, cost: 0.0 };
            Workspace { choices: vec![choice], alignment: options.alignment }
        };
        let pair = |pair: &SharePair| InPlace {
            input: pair.input,
            output: pair.output,
            identity: pair.unmodified,
        };
        // A graph has no permission for a larger output, and such pairs share no bytes in LiteRT.
        let bytes = |id: Option<u32>| id.map(|id| graph.values[id as usize].bytes);
        let fits =
            |pair: &&SharePair| bytes(node.outputs[pair.output]) <= bytes(node.inputs[pair.input]);
        let effects = Effects {
            in_place: node.shares.iter().filter(fits).map(pair).collect(),
            workspaces: node.temporaries.iter().map(workspace).collect(),
            ..Effects::default()
        };
        let added = Node::new(format!("n{index}"), "Op")
            .reads(node.inputs.iter().map(in_arena))
            .writes(node.outputs.iter().map(in_arena));
        builder.add_node(added.with_effects(effects));
        if options.preserve_all {
            node.outputs.iter().filter_map(in_arena).for_each(|id| builder.add_output(id));
        }
    }
    graph.outputs.iter().filter_map(in_arena).for_each(|id| builder.add_output(id));
    builder.build().unwrap()
}

/// Returns the bytes of both arenas under the rules of `options`, if what comes out is a
/// plan: everything has a place, and every read finds its own bytes.
fn arena_bytes(graph: &IncrementalGraph, options: IncrementalOptions) -> Option<u64> {
    let count = graph.nodes.len();
    let mut planner = IncrementalPlanner::new(graph.clone(), options).unwrap();
    let valid = replay(graph, &mut planner, &[count]).is_ok();
    let used = graph.nodes.iter().flat_map(|node| {
        let operands = node.inputs.iter().chain(&node.outputs).flatten();
        operands.chain(&node.temporaries).copied()
    });
    let placed = |id: u32| {
        let value = graph.values[id as usize];
        value.kind != AllocationType::Arena || value.bytes == 0 || planner.place(id).is_some()
    };
    let (temporary, persistent) = planner.arena_bytes();
    (valid && used.into_iter().all(placed)).then_some(temporary + persistent)
}

/// Plans `graph` with our planner and asserts that no generation of TensorFlow Lite's needs
/// less; returns how many of four made a plan at all.
fn assert_never_worse(graph: &IncrementalGraph, options: IncrementalOptions) -> usize {
    let ours = as_graph(graph, options);
    let mut valid = 0;
    for preserve_inputs in [true, false] {
        let planner = ideal_planner().alignment(1).workspace(WorkspacePolicy::Auto);
        let plan = planner.preserve_inputs(preserve_inputs).plan(&ours).unwrap();
        plan.check(&ours).unwrap();
        assert!(plan.lower_bound() <= plan.arena_bytes());
        for mode in [IncrementalMode::TfLite2019, IncrementalMode::LiteRt] {
            let options = IncrementalOptions { mode, preserve_inputs, ..options };
            if let Some(theirs) = arena_bytes(graph, options) {
                valid += 1;
                let ours = plan.arena_bytes();
                assert!(ours <= theirs, "{mode}, inputs {preserve_inputs}: {ours} > {theirs}");
            }
        }
    }
    valid
}

#[test]
fn row_50_the_default_planner_is_never_worse_on_golden_graphs_of_litert() {
    let Some(golden) = shared_json("golden/litert_arena_planner.json") else { return };
    let cases = golden["cases"].as_array().unwrap();
    let mut valid = 0;
    for case in cases {
        let options = golden_options(case, IncrementalMode::Default);
        valid += assert_never_worse(&golden_graph(case), options);
    }
    // None of these graphs meets a defect of the originals.
    assert_eq!(valid, cases.len() * 4);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn row_50_the_default_planner_is_never_worse_than_an_incremental_one(
        graph in random_graphs(), log2 in 0_u32..7, preserve_all in any::<bool>(),
    ) {
        let alignment = Alignment::new(1 << log2).unwrap();
        let options = IncrementalOptions { alignment, preserve_all, ..IncrementalOptions::default() };
        assert_never_worse(&graph, options);
    }
}
