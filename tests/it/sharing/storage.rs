//! Memory at run time from storage ids.

use arenaplan::arena::{Input, Output};
use arenaplan::graph::InPlace;
use arenaplan::{DType, Effects, Error, Node, NodeId, SpaceId, ValueKind};
use arenaplan_classic::Error as Classic;
use arenaplan_classic::sharing::{AssignKind, SharingOptions, find_assigns, share_storage};
use arenaplan_classic::storage::{
    StorageEntry, StorageLayout, StorageNode, StorageOperand, StoragePool, Tensor, load_params,
    save_params,
};
use proptest::prelude::*;

use crate::sharing::{Net, branches};

fn entry(name: &str, dtype: DType, shape: &[u64], block: u32) -> StorageEntry {
    let (name, shape, space) = (name.into(), shape.to_vec(), SpaceId::new(0));
    StorageEntry { name, dtype, shape, block, space }
}

/// Inputs `x` and `w`, output `y`, and `a` and `b` in one block.
fn small<'a>() -> StoragePool<'a> {
    let entries = vec![
        entry("x", DType::FLOAT32, &[2, 3], 2),
        entry("w", DType::FLOAT32, &[3], 3),
        entry("a", DType::FLOAT32, &[2, 3], 0),
        entry("b", DType::INT8, &[10], 0),
        entry("y", DType::FLOAT64, &[2], 1),
    ];
    StoragePool::new(entries, vec![0, 1], vec![4]).unwrap()
}

fn w(bytes: &[u8]) -> Tensor<'_> {
    Tensor { name: "w", dtype: DType::FLOAT32, shape: vec![3], bytes }
}

#[test]
fn row_23_a_block_is_as_large_as_its_largest_value_and_in_one_space() {
    let graph = branches();
    let plan = share_storage(&graph, &SharingOptions::default()).unwrap();
    let pool = StoragePool::from_plan(&graph, &plan).unwrap();
    // `x` has a block of its own.
    assert_eq!(pool.allocated_bytes(), plan.allocated_bytes() + 40);
    for position in 0..graph.values().len() {
        assert_eq!(pool.value(position).unwrap().as_ptr() as usize % 64, 0);
    }
    assert_eq!(pool.value(99).unwrap_err().kind(), "UndefinedValue");
    let mut entries = pool.entries().to_vec();
    let shared = entries.iter().position(|it| it.block == entries[1].block).unwrap();
    entries.iter_mut().skip(shared + 1).for_each(|entry| entry.space = SpaceId::new(1));
    assert_eq!(StoragePool::new(entries, vec![], vec![]).unwrap_err().kind(), "StorageError");
}

#[test]
fn row_23_json_without_sizes_gives_the_same_pool() {
    let pool = small();
    let text = pool.to_json();
    let again = StoragePool::from_json(&text).unwrap();
    assert_eq!(again.entries(), pool.entries());
    assert_eq!((again.inputs(), again.outputs()), (pool.inputs(), pool.outputs()));
    assert_eq!(again.allocated_bytes(), 24 + 16 + 24 + 12);
    assert_eq!(again.to_json(), text);
}

#[test]
fn row_23_hand_written_runtime_json_across_two_devices() {
    let text = |ids: &str, rows: &str| {
        format!(
            r#"{{"nodes": [{{"op": "null", "name": "a", "inputs": []}},
                {{"op": "null", "name": "b", "inputs": []}},
                {{"op": "tvm_op", "name": "add", "inputs": [[0, 0, 0], [1, 0, 0]]}},
                {{"op": "tvm_op", "name": "split", "inputs": [[2, 0, 0]]}}],
              "arg_nodes": [0, 1], "node_row_ptr": {rows}, "heads": [[3, 1, 0], [2, 0]],
              "attrs": {{"storage_id": ["list_int", {ids}],
                "shape": ["list_shape", [[4], [4], [4], [2], [2]]],
                "device_index": ["list_int", [2, 2, 2, 1, 1]],
                "dltype": ["list_str", ["float32", "float32", "float32", "int8", "int8"]]}}}}"#
        )
    };
    let pool = StoragePool::from_json(&text("[3, 4, 0, 1, 5]", "[0, 1, 2, 3, 5]")).unwrap();
    assert_eq!(pool.entries()[4].name, "split:1");
    assert_eq!((pool.inputs(), pool.outputs()), (&[0, 1][..], &[4, 2][..]));
    assert_eq!(pool.allocated_bytes(), 3 * 16 + 2 * 2);
    for (ids, rows) in [
        ("[3, 4, 0, 0, 5]", "[0, 1, 2, 3, 5]"), // one id on two devices
        ("[3, -1, 0, 1, 5]", "[0, 1, 2, 3, 5]"), // no storage
        ("[3, 4, 0, 1]", "[0, 1, 2, 3, 5]"),
        ("[3, 4, 0, 1, 5]", "[0, 1, 2, 5]"),
        ("[3, 4, 0, 1, 5]", "[0, 1, 3, 2, 5]"),
        ("[3, 4, 0, 1, 5]", "[0, 1, 2, 4, 5]"), // then there is no output 1 of node 3
    ] {
        let refused = StoragePool::from_json(&text(ids, rows)).unwrap_err();
        assert_eq!(refused.kind(), "StorageError", "{ids} {rows}");
    }
    for text in ["", "[]", "{}", &"[".repeat(100_000)] {
        assert_eq!(StoragePool::from_json(text).unwrap_err().kind(), "StorageError");
    }
}

#[test]
fn row_24_inputs_are_copied_and_outputs_read() {
    let mut pool = small();
    pool.set_input(&w(&[1; 12])).unwrap();
    assert_eq!(pool.input("w"), Ok(&[1_u8; 12][..]));
    pool.value_mut(4).unwrap().fill(7);
    assert_eq!(pool.output(0), Ok(&[7_u8; 16][..]));
    assert_eq!(pool.output(1).unwrap_err().kind(), "UndefinedValue");
    let other = Tensor { name: "a", ..w(&[0; 12]) };
    assert_eq!(pool.set_input(&other).unwrap_err().kind(), "UndefinedValue");
    for wrong in [
        Tensor { dtype: DType::INT32, ..w(&[0; 12]) },
        Tensor { shape: vec![3, 1], ..w(&[0; 12]) },
        w(&[0; 11]),
    ] {
        assert_eq!(pool.set_input(&wrong).unwrap_err().kind(), "StorageError");
    }
}

#[test]
fn row_24_zero_copy_rewires_what_nodes_read_only() {
    let room = [5_u8; 128];
    let start = room.as_ptr().align_offset(64);
    let array = &room[start..start + 12];
    let mut pool = small();
    pool.set_input(&w(&[1; 12])).unwrap();
    pool.set_input_zero_copy(&w(array)).unwrap();
    assert_eq!(pool.value(1).unwrap().as_ptr(), array.as_ptr());
    assert_eq!(pool.input("w"), Ok(&[1_u8; 12][..]));
    assert_eq!(pool.value_mut(1).unwrap_err().kind(), "StorageError");
    let memory = pool.lend(&[1], &[4]).unwrap();
    assert!(matches!(memory.inputs[0], Input::Shared(bytes) if bytes == array));
    let shifted = w(&room[start + 4..start + 16]);
    assert!(matches!(
        pool.set_input_zero_copy(&shifted),
        Err(Classic::Core(Error::MisalignedBuffer { .. }))
    ));
    assert_eq!(pool.set_input_zero_copy(&w(&array[..8])).unwrap_err().kind(), "StorageError");
    pool.set_input(&w(&[2; 12])).unwrap();
    assert_eq!(pool.value(1), Ok(&[2_u8; 12][..]), "a copy takes its place again");
}

#[test]
fn row_24_a_blob_with_an_unknown_name_changes_nothing() {
    let mut pool = small();
    let other = Tensor { name: "other", ..w(&[1; 12]) };
    let blob = save_params(&[w(&[1; 12]), other]).unwrap();
    assert_eq!(pool.load_params(&blob).unwrap_err().kind(), "UndefinedValue");
    assert_eq!(pool.input("w"), Ok(&[0_u8; 12][..]));
    pool.load_params(&save_params(&[w(&[1; 12])]).unwrap()).unwrap();
    assert_eq!(pool.input("w"), Ok(&[1_u8; 12][..]));
}

#[test]
fn row_24_two_instances_share_parameters() {
    let (mut first, mut second) = (small(), small());
    first.set_input(&w(&[5; 12])).unwrap();
    let before = second.allocated_bytes();
    second.share_params(&first, &["w"]).unwrap();
    assert_eq!(second.value(1).unwrap().as_ptr(), first.value(1).unwrap().as_ptr());
    assert_eq!(second.value(1), Ok(&[5_u8; 12][..]));
    assert_eq!((first.allocated_bytes(), second.allocated_bytes()), (before, before - 12));
    // Nobody writes what two read.
    assert_eq!(first.set_input(&w(&[6; 12])).unwrap_err().kind(), "StorageError");
    assert_eq!(second.lend(&[], &[1]).unwrap_err().kind(), "StorageError");
    drop(second);
    first.set_input(&w(&[6; 12])).unwrap();

    let other = vec![entry("w", DType::FLOAT32, &[4], 0), entry("x", DType::FLOAT32, &[2, 3], 0)];
    let other = StoragePool::new(other, vec![0, 1], vec![]).unwrap();
    for (name, kind) in [("w", "StorageError"), ("x", "StorageError"), ("a", "UndefinedValue")] {
        assert_eq!(first.share_params(&other, &[name]).unwrap_err().kind(), kind);
    }
}

#[test]
fn row_23_a_node_is_lent_what_it_reads_and_writes() {
    let mut pool = small();
    pool.value_mut(0).unwrap().fill(3);
    let mut memory = pool.lend(&[0, 1, 0], &[2, 4]).unwrap();
    let (Input::Shared(x), [Output::Exclusive(a), _]) =
        (&memory.inputs[2], memory.outputs.as_mut_slice())
    else {
        panic!("{memory:?}")
    };
    a.copy_from_slice(x);
    assert_eq!(pool.value(3), Ok(&[3_u8; 10][..]), "the same block");
    // In place: `b` is in the bytes of `a`, which are lent whole.
    let memory = pool.lend(&[2], &[3]).unwrap();
    assert!(matches!(memory.inputs[0], Input::Within { output: 0, offset: 0 }));
    assert!(matches!(&memory.outputs[0], Output::Exclusive(bytes) if bytes.len() == 24));
    assert_eq!(pool.lend(&[], &[2, 3]).unwrap_err().kind(), "StorageError");
    assert_eq!(pool.lend(&[9], &[]).unwrap_err().kind(), "UndefinedValue");
}

#[test]
fn row_47_rebinding_a_smaller_graph_does_not_grow_the_pool() {
    let entries = |sizes: &[u64]| -> Vec<StorageEntry> {
        let named = |(index, &size): (usize, &u64)| {
            entry(&format!("v{index}"), DType::UINT8, &[size], index as u32)
        };
        sizes.iter().enumerate().map(named).collect()
    };
    let large = StoragePool::new(entries(&[100, 50, 80]), vec![], vec![]).unwrap();
    let addresses = [0, 1, 2].map(|value| large.value(value).unwrap().as_ptr());
    let small = large.rebind(entries(&[40, 90]), vec![], vec![]).unwrap();
    assert_eq!(small.allocated_bytes(), 150);
    let found = [0, 1].map(|value| small.value(value).unwrap().as_ptr());
    assert_eq!(found, [addresses[1], addresses[0]], "the smallest that is large enough");
    let grown = small.rebind(entries(&[40, 90, 60]), vec![], vec![]).unwrap();
    assert_eq!(grown.allocated_bytes(), 210);
}

const TYPES: [DType; 6] =
    [DType::FLOAT32, DType::FLOAT16, DType::INT8, DType::UINT8, DType::INT64, DType::FLOAT64];

proptest! {
    #[test]
    fn row_24_parameter_blobs_round_trip_and_cut_short_ones_are_refused(
        arrays in prop::collection::btree_map(
            ".{0,6}", (prop::sample::select(&TYPES[..]), prop::collection::vec(0_u64..4, 0..4)), 0..4,
        ),
        cut in any::<prop::sample::Index>(),
    ) {
        let room: Vec<u8> = (0..=255).cycle().take(8 * 64).collect();
        let params: Vec<Tensor<'_>> = arrays
            .iter()
            .map(|(name, (dtype, shape))| {
                let bytes = dtype.array_bytes(shape).unwrap() as usize;
                Tensor { name, dtype: *dtype, shape: shape.clone(), bytes: &room[..bytes] }
            })
            .collect();
        let blob = save_params(&params).unwrap();
        prop_assert_eq!(load_params(&blob).unwrap(), params);
        let cut = load_params(&blob[..cut.index(blob.len())]);
        prop_assert_eq!(cut.unwrap_err().kind(), "StorageError");
    }

    #[test]
    fn row_24_no_blob_is_read_past_its_end(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        prop_assert!(load_params(&bytes).is_err());
        // With the right magic numbers too.
        let w = Tensor { name: "w", dtype: DType::FLOAT32, shape: vec![3], bytes: &[0; 12] };
        let mut blob = save_params(&[w]).unwrap();
        for (at, byte) in bytes.chunks_exact(2).map(|pair| (usize::from(pair[0]), pair[1])) {
            if let Some(target) = blob.get_mut(at) {
                *target = byte;
            }
        }
        if let Err(error) = load_params(&blob) {
            prop_assert_eq!(error.kind(), "StorageError");
        }
    }
}

#[test]
fn row_24_blobs_are_those_of_the_original() {
    // Magic, reserved, one name, "w", one array: magic, reserved, device 1 and 0, one
    // dimension, float (2) of 32 bits, one lane, 3 elements, 12 bytes.
    let blob = save_params(&[w(&[9; 12])]).unwrap();
    let words = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let expected = "b79c04054f8de5f7 0000000000000000 0100000000000000 0100000000000000 77 \
        0100000000000000 3fa1b496f0405edd 0000000000000000 01000000 00000000 01000000 02 20 0100 \
        0300000000000000 0c00000000000000 090909090909090909090909";
    assert_eq!(words(&blob), expected.replace(' ', ""));
    let complex = Tensor { dtype: DType::COMPLEX64, shape: vec![1], ..w(&[0; 8]) };
    assert_eq!(save_params(&[complex]).unwrap_err().kind(), "StorageError");
    assert_eq!(save_params(&[w(&[0; 11])]).unwrap_err().kind(), "StorageError");
}

/// `w` is a state that is read, overwritten and read again; `split` has two results.
fn with_nodes() -> (arenaplan::Graph, arenaplan_classic::sharing::StoragePlan) {
    let mut net = Net::new();
    let value = |net: &mut Net, name: &str, kind| net.value(name, kind, DType::FLOAT32, &[10]);
    let x = net.input("x");
    let w = value(&mut net, "w", ValueKind::State);
    let [a, b, new, y] =
        ["a", "b", "new", "y"].map(|name| value(&mut net, name, ValueKind::Activation));
    net.builder.add_node(Node::new("split", "Split").reads([x]).writes([a, b]));
    let effects = Effects {
        in_place: vec![InPlace { input: 1, output: 0, identity: true }],
        mutates: vec![0],
        ignores: vec![0],
        ..Effects::default()
    };
    let assign = Node::new("store", "Assign").reads([w, b]).writes([new]).with_effects(effects);
    net.builder.add_node(assign);
    let add = Node::new("add", "Add").reads([a, w]).writes([y]).after([NodeId::new(1)]);
    net.builder.add_node(add);
    let graph = net.build(&[y, new]);
    let plan = share_storage(&graph, &SharingOptions::default()).unwrap();
    (graph, plan)
}

#[test]
fn d2_json_holds_the_nodes_with_their_operands() {
    let (graph, plan) = with_nodes();
    let text = StoragePool::from_plan(&graph, &plan).unwrap().to_json();
    let document: serde_json::Value = serde_json::from_str(&text).unwrap();
    let call = |function: &str, inputs: &str, outputs: &str| {
        serde_json::json!({"func_name": function, "num_inputs": inputs, "num_outputs": outputs,
            "flatten_data": "0"})
    };
    let mut split = call("Split", "1", "2");
    split["output_names"] = r#"["a","b"]"#.into();
    let expected = serde_json::json!([
        {"op": "null", "name": "x", "inputs": []},
        {"op": "null", "name": "w", "inputs": []},
        {"op": "tvm_op", "name": "a", "inputs": [[0, 0, 0]], "attrs": split},
        {"op": "tvm_op", "name": "new", "inputs": [[1, 0, 1], [2, 1, 0]],
         "attrs": call("Assign", "2", "1")},
        {"op": "tvm_op", "name": "y", "inputs": [[2, 0, 0], [1, 0, 1]], "control_deps": [3],
         "attrs": call("Add", "2", "1")},
    ]);
    assert_eq!(document["nodes"], expected);
    assert_eq!(document["arg_nodes"], serde_json::json!([0, 1]));
    assert_eq!(document["node_row_ptr"], serde_json::json!([0, 1, 2, 4, 5, 6]));
    assert_eq!(document["heads"], serde_json::json!([[4, 0, 0], [3, 0, 0]]));
    let again = StoragePool::from_json(&text).unwrap();
    assert_eq!(again.to_json(), text);
    let names: Vec<_> = again.entries().iter().map(|entry| entry.name.as_str()).collect();
    assert_eq!(names, ["x", "w", "a", "b", "new", "y"]);
    assert_eq!(again.layout().nodes()[4].after, [3]);
}

#[test]
fn d2_the_node_of_a_direct_assignment_does_nothing() {
    let (graph, plan) = with_nodes();
    let mut assigns = find_assigns(&graph, |_| false);
    assigns[1].as_mut().unwrap().kind = AssignKind::Direct;
    let plan = plan.decorate(&graph, &assigns).unwrap();
    let layout = StorageLayout::from_plan(&graph, &plan).unwrap();
    assert_eq!(layout.nodes()[3].attributes["func_name"], "__nop");
}

#[test]
fn d2_nodes_that_do_not_fit_are_refused() {
    let layout = small().layout().clone();
    let with = |change: fn(&mut Vec<StorageNode>)| {
        let mut nodes = layout.nodes().to_vec();
        change(&mut nodes);
        StorageLayout::with_nodes(layout.entries().to_vec(), nodes, vec![], vec![])
    };
    assert!(with(|_| ()).is_ok());
    let changes: [fn(&mut Vec<StorageNode>); 6] = [
        |nodes| nodes[1].inputs.push(StorageOperand { node: 1, output: 0, version: 0 }),
        |nodes| nodes[1].inputs.push(StorageOperand { node: 0, output: 1, version: 0 }),
        |nodes| nodes[1].after.push(1),
        |nodes| nodes[1].outputs.push(0),
        |nodes| nodes[1].outputs.push(99),
        |nodes| nodes[1].outputs.clear(),
    ];
    for change in changes {
        assert_eq!(with(change).unwrap_err().kind(), "StorageError");
    }
}

#[test]
fn a_runtime_file_becomes_a_graph_with_its_operands_devices_and_states() {
    let text = |version: u64| {
        format!(
            r#"{{"nodes": [{{"op": "null", "name": "x", "inputs": []}},
                {{"op": "null", "name": "w", "inputs": []}},
                {{"op": "null", "name": "s", "inputs": []}},
                {{"op": "tvm_op", "name": "a", "inputs": [[0, 0, 0], [1, 0, 0]],
                  "attrs": {{"func_name": "dense", "num_inputs": "2"}}}},
                {{"op": "tvm_op", "name": "b", "inputs": [[3, 0, 0], [2, 0, 1]],
                  "attrs": {{"func_name": "update"}}, "control_deps": [3]}},
                {{"op": "split", "name": "c", "inputs": [[4, 0], [2, 0, {version}]]}}],
              "arg_nodes": [0, 1, 2], "node_row_ptr": [0, 1, 2, 3, 4, 5, 7], "heads": [[5, 1, 0]],
              "attrs": {{"storage_id": ["list_int", [0, 1, 2, 3, 3, 4, 5]],
                "shape": ["list_shape", [[4], [4, 4], [4], [4], [4], [2], [2]]],
                "device_index": ["list_int", [2, 2, 2, 2, 2, 1, 1]],
                "dltype": ["list_str", ["float32", "float32", "float32", "float32", "float32",
                                        "int8", "int8"]]}}}}"#
        )
    };
    let layout = StorageLayout::from_json(&text(1)).unwrap();
    let graph = layout.to_graph("runtime", &["w"]).unwrap();
    let kinds: Vec<_> = graph.values().iter().map(|value| value.kind().name()).collect();
    let activations = ["activation"; 4];
    assert_eq!(kinds, [&["input", "constant", "state"][..], &activations].concat());
    let ops: Vec<_> = graph.nodes().iter().map(Node::op).collect();
    assert_eq!(ops, ["dense", "update", "split"]);
    let names: Vec<_> = graph.spaces().iter().map(|space| space.name().to_owned()).collect();
    assert_eq!(names, ["1", "2"]);
    assert_eq!(graph.value(graph.outputs()[0]).name(), "c:1");
    let update = &graph.nodes()[1];
    assert_eq!(update.effects().mutates, [1]);
    assert_eq!(update.control_dependencies(), [NodeId::new(0)]);
    let pair = InPlace { input: 0, output: 0, identity: false };
    assert_eq!(update.effects().in_place, [pair]);
    // Node `c` reads the state as it was before `b` overwrote it.
    let late = StorageLayout::from_json(&text(0)).unwrap().to_graph("runtime", &[]);
    let late = late.unwrap_err();
    assert_eq!(late.kind(), "StorageError");
    assert!(late.to_string().contains("'c' reads 's'"), "{late}");
}

#[test]
fn a_direct_assignment_is_an_assignment_in_the_graph() {
    let text = r#"{"nodes": [{"op": "null", "name": "x", "inputs": []},
            {"op": "null", "name": "s", "inputs": []},
            {"op": "tvm_op", "name": "y", "inputs": [[0, 0, 0]], "attrs": {"func_name": "exp"}},
            {"op": "tvm_op", "name": "z", "inputs": [[1, 0, 1], [2, 0, 0]],
              "attrs": {"func_name": "__nop"}}],
          "arg_nodes": [0, 1], "node_row_ptr": [0, 1, 2, 3, 4], "heads": [[3, 0, 0]],
          "attrs": {"storage_id": ["list_int", [0, 1, 1, 1]],
            "shape": ["list_shape", [[4], [4], [4], [4]]],
            "dltype": ["list_str", ["float32", "float32", "float32", "float32"]]}}"#;
    let graph = StorageLayout::from_json(text).unwrap().to_graph("net", &[]).unwrap();
    let assignment = graph.assignment(NodeId::new(1)).unwrap();
    let name = |value| graph.value(value).name();
    let names = [assignment.state, assignment.source, assignment.result].map(name);
    assert_eq!(names, ["s", "y", "z"]);
}
