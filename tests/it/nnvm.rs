//! NNVM's planner: what the original answered on random graphs.

use std::collections::HashMap;

use arenaplan::graph::InPlace;
use arenaplan::pack::Space;
use arenaplan::{DType, Effects, Graph, Node, SpaceId, Value, ValueId, ValueKind};
use arenaplan_classic::coloring::color_nodes;
use arenaplan_classic::sharing::{SharingOptions, Storage, share_storage};
use arenaplan_classic::storage::StorageLayout;
use serde_json::Value as Json;

use crate::planners::ideal_planner;
use crate::shared::shared_json;

fn positions(json: &Json) -> Vec<usize> {
    let list = json.as_array().into_iter().flatten();
    list.map(|position| position.as_u64().unwrap() as usize).collect()
}

/// Returns the effects of a node, without permissions for larger results: NNVM never uses these.
fn effects(attributes: &Json, fits: impl Fn(usize, usize) -> bool) -> Effects {
    let pairs = attributes["inplace"].as_array().into_iter().flatten();
    let in_place = pairs
        .enumerate()
        .map(|(index, pair)| {
            let pair = positions(pair);
            let identity = attributes["identity"][index].as_bool().unwrap_or(false);
            InPlace { input: pair[0], output: pair[1], identity }
        })
        .filter(|pair| fits(pair.input, pair.output))
        .collect();
    Effects { in_place, ignores: positions(&attributes["ignore"]), ..Effects::default() }
}

/// A graph of the golden file, its values by `node:output`, and what the caller supplies.
struct Case {
    graph: Graph,
    values: HashMap<String, ValueId>,
    assigned: Vec<Storage>,
    nodes: Vec<String>,
}

fn build(case: &Json) -> Case {
    let mut builder = Graph::builder("golden");
    let second = builder.add_space(Space::new("device 1"));
    let by_name: HashMap<&str, &Json> = case["nodes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|n| (n["name"].as_str().unwrap(), n))
        .collect();
    let mut values = HashMap::new();
    let mut sizes: Vec<u64> = Vec::new();
    let mut assigned = Vec::new();
    let mut nodes = Vec::new();
    for name in case["expect"]["node_order"].as_array().unwrap() {
        let name = name.as_str().unwrap();
        let node = by_name[name];
        let is_variable = node["op"].is_null();
        let kind = if is_variable { ValueKind::Input } else { ValueKind::Activation };
        let space = if node["device"] == 1 { second } else { SpaceId::new(0) };
        let dtype: DType = node["dtype"].as_str().unwrap().parse().unwrap();
        let mut outputs = Vec::new();
        for (slot, shape) in node["output_shapes"].as_array().unwrap().iter().enumerate() {
            let shape: Vec<u64> = positions(shape).into_iter().map(|dim| dim as u64).collect();
            let key = format!("{name}:{slot}");
            let value = Value::new(&*key, kind, dtype, shape).unwrap().with_space(space);
            sizes.push(value.bytes());
            let id = builder.add_value(value);
            let external = node["external"] == true;
            assigned.push(if external { Storage::External } else { Storage::Unassigned });
            values.insert(key, id);
            outputs.push(id);
        }
        if !is_variable {
            let read = |input: &Json| {
                values[&format!("{}:{}", input[0].as_str().unwrap(), input[1].as_u64().unwrap())]
            };
            let inputs: Vec<_> = node["inputs"].as_array().unwrap().iter().map(read).collect();
            let bytes = |id: ValueId| sizes[id.index()];
            let fits = |input: usize, output: usize| bytes(outputs[output]) <= bytes(inputs[input]);
            let effects = effects(&by_name[name]["attrs"], fits);
            let node = Node::new(name, "Op").reads(inputs).writes(outputs);
            builder.add_node(node.with_effects(effects));
            nodes.push(name.to_owned());
        }
    }
    for output in case["outputs"].as_array().unwrap() {
        let key = format!("{}:{}", output[0].as_str().unwrap(), output[1].as_u64().unwrap());
        builder.add_output(values[&key]);
    }
    let graph = builder.build().unwrap();
    assert!(!graph.was_sorted(), "the order is the original's");
    Case { graph, values, assigned, nodes }
}

#[test]
fn golden_nnvm_plans_and_colors_are_reproduced() {
    let Some(golden) = shared_json("golden/nnvm_plan_memory.json") else { return };
    let cases = golden["cases"].as_array().unwrap();
    for (index, json) in cases.iter().enumerate() {
        let case = build(json);
        let mut options = SharingOptions::nnvm();
        options.match_range = json["match_range"].as_u64().unwrap();
        options.auto_search = json["auto_search"].as_bool().unwrap();
        options.num_temp = json["num_temp"].as_u64().unwrap() as u32;
        options.assigned = Some(case.assigned);
        let plan = share_storage(&case.graph, &options).unwrap();
        let expect = &json["expect"];
        for (key, &value) in &case.values {
            let storage = plan.storage(value).code();
            assert_eq!(Some(storage), expect["storage_id"][key].as_i64(), "case {index}, {key}");
            let taken = plan.taken_from()[value.index()].code();
            assert_eq!(Some(taken), expect["inplace_index"][key].as_i64(), "case {index}, {key}");
        }
        assert_eq!(Some(plan.allocated_bytes()), expect["allocated_bytes"].as_u64(), "{index}");
        let not_allocated = expect["num_not_allocated"].as_u64().unwrap() as usize;
        assert_eq!(plan.not_allocated(), not_allocated, "case {index}");

        let coloring = color_nodes(&case.graph, options.num_temp).unwrap();
        assert_eq!(Some(u64::from(coloring.count())), expect["num_colors"].as_u64(), "{index}");
        for (name, &color) in case.nodes.iter().zip(coloring.colors()) {
            assert_eq!(Some(u64::from(color)), expect["colors"][name].as_u64(), "{index}, {name}");
        }
        for (name, color) in expect["colors"].as_object().unwrap() {
            if !case.nodes.contains(name) {
                assert_eq!(Some(u64::from(coloring.rest())), color.as_u64(), "{index}, {name}");
            }
        }
    }
    assert_eq!(cases.len(), 300);
}

#[test]
fn row_50_the_default_planner_is_never_worse_on_golden_graphs() {
    let Some(golden) = shared_json("golden/nnvm_plan_memory.json") else { return };
    for (index, json) in golden["cases"].as_array().unwrap().iter().enumerate() {
        let case = build(json);
        let plan = ideal_planner().alignment(1).plan(&case.graph).unwrap();
        plan.check(&case.graph).unwrap();
        assert!(plan.lower_bound() <= plan.arena_bytes());
        let mut least = u64::MAX;
        for match_range in [1, 2, 4, 8, 16, 64] {
            let options = SharingOptions { match_range, ..SharingOptions::default() };
            let shared = share_storage(&case.graph, &options).unwrap();
            least = least.min(shared.to_plan(&case.graph, 1).unwrap().arena_bytes());
            let options = SharingOptions { match_range, ..SharingOptions::nnvm() };
            // The original lets devices share, which no arena plan can be made of.
            if let Ok(plan) = share_storage(&case.graph, &options).unwrap().to_plan(&case.graph, 1)
            {
                least = least.min(plan.arena_bytes());
            }
        }
        assert!(plan.arena_bytes() <= least, "case {index}: {} > {least}", plan.arena_bytes());
    }
}

#[test]
fn row_05_runtime_files_of_golden_graphs_are_byte_stable_and_become_graphs() {
    let Some(golden) = shared_json("golden/nnvm_plan_memory.json") else { return };
    let (mut count, mut in_place) = (0, 0);
    for (index, json) in golden["cases"].as_array().unwrap().iter().enumerate() {
        let case = build(json);
        let plan = share_storage(&case.graph, &SharingOptions::nnvm()).unwrap();
        // The original lets devices share, which no memory can do.
        let Ok(layout) = StorageLayout::from_plan(&case.graph, &plan) else { continue };
        let text = layout.to_json();
        let read = StorageLayout::from_json(&text).unwrap();
        assert_eq!(read.to_json(), text, "case {index}");
        let graph = read.to_graph("golden", &[]).unwrap();
        let named = |graph: &Graph, value: ValueId| {
            let value = graph.value(value);
            (value.name().to_owned(), value.kind(), value.dtype(), value.shape().to_vec())
        };
        let rows = |graph: &Graph| -> Vec<_> {
            let operands = |operands: &[Option<ValueId>]| -> Vec<_> {
                operands.iter().flatten().map(|&value| named(graph, value)).collect()
            };
            let nodes = graph.nodes().iter();
            nodes
                .map(|it| (it.op().to_owned(), operands(it.inputs()), operands(it.outputs())))
                .collect()
        };
        assert_eq!(rows(&graph), rows(&case.graph), "case {index}");
        let outputs = |graph: &Graph| -> Vec<_> {
            graph.outputs().iter().map(|&output| named(graph, output)).collect()
        };
        assert_eq!(outputs(&graph), outputs(&case.graph), "case {index}");
        // A result in the block of an operand: the original permits the pair, or one with an operand
        // that has the same bytes, or the operand is read for its shape alone.
        let block = |value: ValueId| layout.entries()[value.index()].block;
        for own in case.graph.nodes() {
            let output = own.output(0).unwrap();
            let position = read.position(case.graph.value(output).name()).unwrap();
            let again = graph.node(graph.producer(ValueId::new(position)).unwrap());
            for pair in &again.effects().in_place {
                let taken = own.input(pair.input).map(block);
                let declared = own.effects().in_place.iter();
                let is_declared = declared
                    .filter(|known| known.output == pair.output)
                    .any(|known| own.input(known.input).map(block) == taken);
                let is_ignored = own.effects().ignores.contains(&pair.input);
                assert!(is_declared || is_ignored, "case {index}, node {}", own.name());
                in_place += 1;
            }
        }
        let plan = ideal_planner().alignment(1).plan(&graph).unwrap();
        plan.check(&graph).unwrap();
        count += 1;
    }
    assert!(count > 100 && in_place > 100, "{count} graphs, {in_place} pairs");
}
