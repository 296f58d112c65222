//! TensorFlow Lite's planner: what the original answered on random graphs.

use arenaplan::{
    Alignment, AllocationType, IncrementalGraph, IncrementalMode, IncrementalNode,
    IncrementalOptions, IncrementalPlanner, IncrementalValue, SharePair,
};
use serde_json::Value as Json;

use crate::shared::shared_json;

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
        let options = IncrementalOptions {
            mode: IncrementalMode::LiteRt,
            alignment: Alignment::new(case["alignment"].as_u64().unwrap()).unwrap(),
            preserve_all: case["preserve_all"].as_bool().unwrap(),
            ..IncrementalOptions::default()
        };
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
