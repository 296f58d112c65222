//! The incremental planner: what both generations of TensorFlow Lite's tests expect, and
//! where ours has to do better.

use arenaplan::{
    Alignment, AllocationType, Error, IncrementalGraph, IncrementalMode, IncrementalNode,
    IncrementalOptions, IncrementalPlanner, IncrementalValue, Place, SharePair,
};

use proptest::prelude::*;

use IncrementalMode::{Default as Ours, LiteRt, TfLite2019};

/// The originals' convention: value `i` has `3 (i + 1)` bytes.
fn sketch(
    values: u32,
    inputs: &[i64],
    outputs: &[i64],
    nodes: Vec<IncrementalNode>,
) -> IncrementalGraph {
    let value =
        |index| IncrementalValue { bytes: 3 * (u64::from(index) + 1), kind: AllocationType::Arena };
    IncrementalGraph {
        values: (0..values).map(value).collect(),
        nodes,
        inputs: optional(inputs),
        outputs: optional(outputs),
        variables: vec![],
    }
}

fn optional(ids: &[i64]) -> Vec<Option<u32>> {
    ids.iter().map(|&id| u32::try_from(id).ok()).collect()
}

/// A node that may write its output over input 0.
fn node(inputs: &[i64], outputs: &[i64], temporaries: &[u32]) -> IncrementalNode {
    sharing(inputs, outputs, temporaries, &[0], false)
}

/// A reshape: its output may be input 0.
fn reshape(inputs: &[i64], outputs: &[i64]) -> IncrementalNode {
    sharing(inputs, outputs, &[], &[0], true)
}

fn sharing(
    inputs: &[i64],
    outputs: &[i64],
    temporaries: &[u32],
    shareable: &[usize],
    unmodified: bool,
) -> IncrementalNode {
    let within = shareable.iter().filter(|&&input| input < inputs.len() && !outputs.is_empty());
    IncrementalNode {
        inputs: optional(inputs),
        outputs: optional(outputs),
        temporaries: temporaries.to_vec(),
        shares: within.map(|&input| SharePair { input, output: 0, unmodified }).collect(),
    }
}

fn options(mode: IncrementalMode) -> IncrementalOptions {
    let alignment = Alignment::new(4).unwrap();
    let preserve_inputs = mode != TfLite2019;
    IncrementalOptions { mode, alignment, preserve_inputs, ..IncrementalOptions::default() }
}

fn planner(graph: IncrementalGraph, mode: IncrementalMode) -> IncrementalPlanner {
    IncrementalPlanner::new(graph, options(mode)).unwrap()
}

fn planned(graph: IncrementalGraph, mode: IncrementalMode) -> IncrementalPlanner {
    let nodes = graph.nodes.len();
    let mut planner = planner(graph, mode);
    planner.execute(0..nodes).unwrap();
    planner
}

/// Returns offsets by value: -1 for none.
fn offsets<const N: usize>(planner: &IncrementalPlanner, values: [u32; N]) -> [i64; N] {
    values.map(|value| planner.place(value).map_or(-1, |place| place.span.offset.cast_signed()))
}

fn check<const N: usize>(planner: &IncrementalPlanner, rows: [(u32, i64); N], arena: u64) {
    for (value, expected) in rows {
        assert_eq!(offsets(planner, [value]), [expected], "value {value}");
    }
    assert_eq!(planner.arena_bytes().0, arena);
}

fn with_bytes(mut graph: IncrementalGraph, sizes: &[(usize, u64)]) -> IncrementalGraph {
    sizes.iter().for_each(|&(value, bytes)| graph.values[value].bytes = bytes);
    graph
}

fn simple_graph() -> IncrementalGraph {
    let nodes =
        vec![node(&[0, 1], &[2], &[]), node(&[2, 0], &[4, 5], &[]), node(&[4, 5], &[3], &[])];
    sketch(6, &[0, 1], &[3], nodes)
}

fn with_temporary() -> IncrementalGraph {
    let nodes = vec![node(&[0, 1], &[2], &[]), node(&[2, 0], &[4], &[5]), node(&[4], &[3], &[])];
    sketch(6, &[0, 1], &[3], nodes)
}

/// Nodes of the tests with a large, persistent or dynamic value.
fn with_optional() -> IncrementalGraph {
    let nodes =
        vec![node(&[0, 1], &[2], &[]), node(&[2, 0], &[4], &[5]), node(&[4, -1], &[3], &[])];
    sketch(6, &[0, -1, 1], &[3], nodes)
}

fn larger() -> IncrementalGraph {
    let nodes = vec![
        node(&[0, 1], &[2, 3], &[]),
        node(&[2, 0], &[4, 5], &[6]),
        node(&[1, -1], &[7], &[]),
        node(&[7, 3], &[8], &[9]),
        node(&[4, 5, 8], &[10], &[]),
    ];
    sketch(11, &[0, 1], &[10], nodes)
}

// -- 2019 ------------------------------------------------------------------------

#[test]
fn row_27_empty_graph_and_inputs_nobody_reads_2019() {
    let mut empty = planner(sketch(0, &[], &[], vec![]), TfLite2019);
    empty.execute(0..11).unwrap();
    assert_eq!(empty.arena_bytes(), (0, 0));
    let mut optional = planner(sketch(2, &[-1], &[1], vec![]), TfLite2019);
    optional.execute(0..11).unwrap();
    let mut no_ops = planner(sketch(12, &[0, 10], &[5, 11], vec![]), TfLite2019);
    no_ops.execute(0..11).unwrap();
    check(&no_ops, [(0, 0), (10, 4), (5, -1), (11, -1)], 37);
}

#[test]
fn row_27_graph_with_one_op_and_zero_sized_values_2019() {
    let graph = sketch(3, &[1], &[2], vec![node(&[1], &[2], &[])]);
    check(&planned(graph.clone(), TfLite2019), [(1, 0), (2, 8)], 17);
    check(&planned(with_bytes(graph, &[(1, 0)]), TfLite2019), [(1, -1), (2, 0)], 9);
}

#[test]
fn row_27_simple_graph_2019() {
    let rows = [(0, 0), (1, 4), (2, 12), (4, 24), (5, 40), (3, 0)];
    check(&planned(simple_graph(), TfLite2019), rows, 58);
    let mut optional_inputs = simple_graph();
    optional_inputs.inputs = optional(&[0, -1, 1]);
    optional_inputs.nodes[2].inputs = optional(&[4, -1, 5]);
    check(&planned(optional_inputs, TfLite2019), rows, 58);
}

#[test]
fn row_30_simple_graph_inputs_preserved_2019() {
    let options = IncrementalOptions { preserve_inputs: true, ..options(TfLite2019) };
    let mut planner = IncrementalPlanner::new(simple_graph(), options).unwrap();
    planner.execute(0..3).unwrap();
    check(&planner, [(0, 0), (1, 4), (2, 12), (4, 24), (5, 40), (3, 12)], 58);
}

#[test]
fn row_33_simple_graph_with_temporary_2019() {
    let rows = [(0, 0), (1, 4), (2, 12), (5, 24), (4, 44), (3, 0)];
    check(&planned(with_temporary(), TfLite2019), rows, 59);
}

#[test]
fn row_27_large_persistent_and_dynamic_values_2019() {
    let large = planned(with_bytes(with_optional(), &[(1, 40)]), TfLite2019);
    check(&large, [(0, 0), (1, 4), (2, 44), (5, 4), (4, 24), (3, 0)], 53);

    let mut graph = with_optional();
    graph.values[1].kind = AllocationType::PersistentArena;
    graph.variables = vec![1];
    let persistent = planned(graph, TfLite2019);
    check(&persistent, [(0, 0), (1, 0), (2, 4), (5, 16), (4, 36), (3, 0)], 51);
    assert_eq!(persistent.arena_bytes().1, 6);
    assert!(persistent.place(1).unwrap().persistent);

    let mut graph = with_optional();
    graph.values[1].kind = AllocationType::Dynamic;
    let dynamic = planned(graph, TfLite2019);
    check(&dynamic, [(1, -1), (0, 0), (2, 4), (5, 16), (4, 36), (3, 0)], 51);
}

#[test]
fn row_32_larger_graph_and_stepwise_allocation_2019() {
    let mut planner = planner(larger(), TfLite2019);
    let steps: [(&[(u32, i64)], u64); 5] = [
        (&[(0, 0), (1, 4), (2, 12), (3, 24)], 36),
        (&[(6, 36), (4, 60), (5, 76)], 94),
        (&[(7, 36)], 94),
        (&[(9, 96), (8, 128)], 155),
        (&[(10, 0)], 155),
    ];
    let mut expected = [-1; 11];
    for (step, (rows, high_water)) in steps.into_iter().enumerate() {
        planner.execute(step..step + 1).unwrap();
        rows.iter().for_each(|&(value, offset)| expected[value as usize] = offset);
        assert_eq!(offsets(&planner, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10]), expected);
        assert_eq!(planner.arena_bytes().0, high_water);
    }
}

#[test]
fn row_27_modified_graph_2019() {
    let options = IncrementalOptions { preserve_inputs: true, ..options(TfLite2019) };
    let mut planner = IncrementalPlanner::new(simple_graph(), options).unwrap();
    planner.execute(0..3).unwrap();
    planner.replace_graph(sketch(6, &[0, 1], &[3], vec![node(&[0, 1], &[3], &[])])).unwrap();
    planner.execute(0..1).unwrap();
    check(&planner, [(0, 0), (1, 4), (3, 12)], 24);
}

// -- today -----------------------------------------------------------------------

#[test]
fn row_28_empty_graph_and_graphs_with_one_op() {
    for mode in [LiteRt, Ours] {
        let empty = planned(sketch(0, &[], &[], vec![]), mode);
        assert_eq!(empty.arena_bytes(), (0, 0));
        let nodes = vec![node(&[0], &[], &[]), node(&[10], &[], &[])];
        check(
            &planned(sketch(12, &[0, 10], &[5, 11], nodes), mode),
            [(0, 0), (10, 4), (5, -1), (11, -1)],
            37,
        );
        let graph = sketch(3, &[1], &[2], vec![node(&[1], &[2], &[])]);
        check(&planned(graph.clone(), mode), [(1, 0), (2, 8)], 17);
        check(&planned(with_bytes(graph, &[(1, 0)]), mode), [(1, -1), (2, 0)], 9);
    }
}

#[test]
fn row_31_simple_graph_with_and_without_optional_operands() {
    let rows = [(0, 0), (1, 4), (5, 12), (4, 32), (2, 48), (3, 48)];
    for mode in [LiteRt, Ours] {
        check(&planned(simple_graph(), mode), rows, 60);
        let mut graph = simple_graph();
        graph.inputs = optional(&[0, -1, 1]);
        graph.nodes[2].inputs = optional(&[4, -1, 5]);
        check(&planned(graph.clone(), mode), rows, 60);
        graph.outputs = optional(&[-1, 3]);
        graph.nodes[2].outputs = optional(&[3, -1]);
        check(&planned(graph, mode), rows, 60);
    }
}

#[test]
fn row_28_allocations_are_reset() {
    for mode in [LiteRt, Ours] {
        let rows = [(0, 0), (1, 4), (5, 12), (4, 32), (2, 48), (3, 48)];
        let mut planner = planned(simple_graph(), mode);
        planner.reset();
        assert_eq!(planner.place(2), None);
        for value in 0..6 {
            planner.set_bytes(value, 3 * (u64::from(value) + 1) + 1).unwrap();
        }
        planner.execute(0..3).unwrap();
        check(&planner, rows, 61);
    }
}

#[test]
fn row_33_simple_graph_with_temporary() {
    let rows = [(0, 0), (1, 4), (5, 12), (3, 12), (4, 32), (2, 48)];
    check(&planned(with_temporary(), LiteRt), rows, 57);
    check(&planned(with_temporary(), Ours), rows, 57);
}

#[test]
fn row_34_in_place_reshape_and_chains_of_it() {
    let nodes = vec![
        node(&[0], &[2], &[]),
        node(&[1], &[3], &[]),
        reshape(&[2, 3], &[4]),
        node(&[4], &[5], &[]),
    ];
    let graph = with_bytes(sketch(6, &[0, 1], &[5], nodes), &[(2, 24), (4, 24)]);
    check(&planned(graph, LiteRt), [(0, 0), (1, 4), (2, 12), (4, 12), (3, 36), (5, 36)], 54);

    let nodes = vec![
        node(&[0], &[2], &[]),
        reshape(&[2, 3], &[4]),
        reshape(&[4, 3], &[5]),
        reshape(&[5, 3], &[6]),
        reshape(&[6, 3], &[7]),
        node(&[7], &[8], &[]),
    ];
    let sizes = [2, 4, 5, 6, 7].map(|value| (value, 24));
    let graph = with_bytes(sketch(9, &[0, 1], &[8], nodes), &sizes);
    let rows = [(2, 40), (4, 40), (5, 40), (6, 40), (7, 40), (8, 12), (3, -1)];
    check(&planned(graph, LiteRt), rows, 64);

    let nodes = vec![node(&[0], &[2], &[]), reshape(&[2, 1], &[3]), node(&[3], &[4], &[])];
    let graph = with_bytes(sketch(5, &[0, 1], &[4], nodes), &[(2, 24), (3, 24)]);
    check(&planned(graph, LiteRt), [(2, 12), (3, 12), (4, 36)], 51);
}

#[test]
fn row_34_graph_inputs_and_outputs_are_not_shared() {
    let nodes = vec![reshape(&[0, 1], &[2]), node(&[4], &[3], &[])];
    let graph = with_bytes(sketch(5, &[0, 1], &[3], nodes), &[]);
    for mode in [LiteRt, Ours] {
        let mut planner = planner(graph.clone(), mode);
        planner.set_kind(0, AllocationType::Dynamic).unwrap();
        planner.execute(0..2).unwrap();
        assert_eq!(planner.place(0), None);
        assert_ne!(planner.root(2), Ok(0));
    }
    let mut litert = planner(graph, LiteRt);
    litert.set_kind(0, AllocationType::Dynamic).unwrap();
    litert.execute(0..2).unwrap();
    check(&litert, [(0, -1), (1, 0), (2, 8), (3, 20)], 32);

    let nodes = vec![node(&[0], &[2], &[]), reshape(&[2, 1], &[3])];
    let mut planner = planner(sketch(4, &[0, 1], &[3], nodes), LiteRt);
    planner.set_kind(0, AllocationType::Dynamic).unwrap();
    planner.execute(0..2).unwrap();
    check(&planner, [(1, 0), (3, 8), (2, 20)], 29);

    let nodes = vec![sharing(&[0, 1], &[2], &[], &[], true)];
    let mut planner = self::planner(sketch(3, &[0, 1], &[2], nodes), LiteRt);
    planner.set_kind(0, AllocationType::Dynamic).unwrap();
    planner.execute(0..1).unwrap();
    check(&planner, [(1, 0), (2, 8)], 17);
}

#[test]
fn row_34_broadcasting_adds_share_the_full_side_only() {
    let graph = |shareable: &[usize], sizes| {
        let nodes = vec![
            sharing(&[0, 1], &[3], &[], shareable, false),
            sharing(&[1, 2], &[4], &[], shareable, false),
            sharing(&[3, 4], &[5], &[], shareable, false),
            sharing(&[5], &[6], &[], shareable, false),
        ];
        with_bytes(sketch(7, &[0, 1], &[6], nodes), sizes)
    };
    let in_place = graph(&[0, 1], &[(3, 8), (4, 16), (5, 16)]);
    check(&planned(in_place.clone(), LiteRt), [(3, 12), (4, 36), (5, 36), (6, 12)], 52);
    assert_eq!(planned(in_place, Ours).root(5), Ok(4));
    let apart = graph(&[0], &[(3, 8), (4, 8), (5, 64)]);
    check(&planned(apart, LiteRt), [(3, 76), (4, 84), (5, 12), (6, 76)], 97);
}

#[test]
fn row_32_reset_allocations_after_a_node() {
    for mode in [LiteRt, Ours] {
        let mut planner = planned(with_temporary(), mode);
        planner.reset_after(0).unwrap();
        assert_eq!(offsets(&planner, [3, 4, 5]), [-1, -1, -1]);
        let before = offsets(&planner, [0, 1, 2]);
        let bytes = planner.graph().values[4].bytes;
        planner.set_bytes(4, bytes + 64).unwrap();
        planner.execute(1..3).unwrap();
        check(&planner, [(3, 12), (5, 12), (2, 48), (4, 60)], 139);
        assert_eq!(offsets(&planner, [0, 1, 2]), before, "live values stay");
    }
}

#[test]
fn row_29_persistent_values_survive_reset_after() {
    let mut graph = with_temporary();
    graph.values[5].kind = AllocationType::PersistentArena;
    let mut planner = planned(graph, LiteRt);
    check(&planner, [(5, 0), (4, 12), (2, 28), (3, 28)], 40);
    assert_eq!(planner.arena_bytes(), (40, 18));
    let address = planner.bytes(5).unwrap().unwrap().as_ptr();
    planner.reset_after(0).unwrap();
    assert_eq!(offsets(&planner, [3, 4, 5]), [-1, -1, 0]);
    planner.execute(1..3).unwrap();
    assert_eq!(planner.bytes(5).unwrap().unwrap().as_ptr(), address);
}

#[test]
fn row_28_large_persistent_and_dynamic_values() {
    let nodes = vec![
        node(&[0], &[1], &[]),
        node(&[1], &[2], &[]),
        node(&[2, 0], &[4], &[5]),
        node(&[4, -1], &[3], &[]),
    ];
    let graph = with_bytes(sketch(6, &[0, -1], &[3], nodes), &[(1, 40)]);
    check(&planned(graph, LiteRt), [(0, 0), (1, 4), (2, 44), (3, 4), (5, 4), (4, 24)], 53);

    let mut graph = with_optional();
    graph.values[1].kind = AllocationType::PersistentArena;
    graph.variables = vec![1];
    let persistent = planned(graph, LiteRt);
    check(&persistent, [(0, 0), (1, 0), (5, 4), (3, 4), (4, 24), (2, 40)], 49);
    assert_eq!(persistent.arena_bytes().1, 6);

    let mut graph = with_optional();
    graph.values[1].kind = AllocationType::Dynamic;
    check(&planned(graph, LiteRt), [(1, -1), (0, 0), (5, 4), (3, 4), (4, 24), (2, 40)], 49);
}

#[test]
fn row_32_larger_graph_and_stepwise_allocation() {
    let mut planner = planner(larger(), LiteRt);
    let steps: [(&[(u32, i64)], u64); 5] = [
        (&[(0, 0), (1, 4), (3, 12), (2, 24)], 33),
        (&[(6, 36), (5, 60), (4, 80)], 95),
        (&[(7, 24)], 95),
        (&[(9, 96), (8, 128)], 155),
        (&[(10, 12)], 155),
    ];
    let mut expected = [-1; 11];
    for (step, (rows, high_water)) in steps.into_iter().enumerate() {
        planner.execute(step..step + 1).unwrap();
        rows.iter().for_each(|&(value, offset)| expected[value as usize] = offset);
        assert_eq!(offsets(&planner, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10]), expected);
        assert_eq!(planner.arena_bytes().0, high_water);
    }
}

#[test]
fn row_35_a_modified_graph_after_the_temporary_arena_was_released() {
    for (release, buffer) in [(false, 60), (true, 24)] {
        let mut planner = planned(simple_graph(), LiteRt);
        planner.acquire_temporary().unwrap();
        planner.acquire_temporary().unwrap();
        assert!(planner.has_temporary());
        if release {
            planner.release_temporary().unwrap();
            assert!(!planner.has_temporary());
            assert!(matches!(planner.bytes(0), Err(Error::ArenaState { .. })));
        }
        planner.replace_graph(sketch(6, &[0, 1], &[3], vec![node(&[0, 1], &[3], &[])])).unwrap();
        planner.execute(0..1).unwrap();
        check(&planner, [(0, 0), (1, 4), (3, 12)], 24);
        assert_eq!(planner.buffer_bytes().0, buffer);
        planner.release_temporary().unwrap();
        planner.acquire_temporary().unwrap();
        check(&planner, [(0, 0), (1, 4), (3, 12)], 24);
        assert!(planner.bytes(3).unwrap().is_some());
    }
}

#[test]
fn row_28_complex_graph() {
    let nodes = vec![
        node(&[0], &[1], &[]),
        node(&[1], &[2], &[]),
        node(&[1], &[3], &[]),
        node(&[1], &[4], &[]),
        node(&[2, 3, 4], &[5], &[]),
        node(&[5], &[6], &[]),
        node(&[5], &[7], &[]),
        node(&[6, 7], &[8], &[]),
    ];
    let sizes: Vec<_> = [32, 28, 36, 16, 8, 64, 10, 40, 27].into_iter().enumerate().collect();
    let graph = with_bytes(sketch(9, &[0], &[8], nodes), &sizes);
    let rows = [(0, 0), (1, 32), (2, 96), (3, 132), (4, 148), (5, 32), (6, 136), (7, 96), (8, 32)];
    check(&planned(graph, LiteRt), rows, 156);
}

#[test]
fn row_28_graph_with_intermediates() {
    let nodes = vec![
        node(&[0], &[2], &[3]),
        node(&[1, 2], &[4, 5], &[]),
        node(&[5], &[6, 7], &[8, 9, 10]),
        node(&[4, 6], &[11], &[12]),
        node(&[11], &[13], &[]),
        node(&[7, 13], &[14], &[15]),
    ];
    let graph = sketch(16, &[0, 1], &[11, 14], nodes);
    let expected = [0, 4, 152, 12, 212, 132, 108, 188, 80, 48, 12, 152, 12, 108, 60, 12];
    let planner = planned(graph, LiteRt);
    let found = offsets(&planner, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]);
    assert_eq!(found, expected);
    assert_eq!(planner.arena_bytes().0, 227);
}

#[test]
fn row_30_debug_tensors() {
    let nodes = vec![node(&[0, 1], &[2], &[5]), node(&[2, 0], &[4], &[6]), node(&[4], &[3], &[7])];
    let graph = sketch(8, &[0, 1], &[3], nodes);
    let rows = [(5, 12), (6, 12), (7, 12), (2, 52), (3, 52), (4, 36)];
    check(&planned(graph.clone(), LiteRt), rows, 64);
    for mode in [LiteRt, Ours] {
        let options = IncrementalOptions { preserve_all: true, ..options(mode) };
        let mut planner = IncrementalPlanner::new(graph.clone(), options).unwrap();
        planner.execute(0..3).unwrap();
        let found = offsets(&planner, [0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(found, [0, 4, 12, 108, 92, 24, 68, 44]);
        assert_eq!(planner.arena_bytes().0, 120);
    }

    let nodes = vec![
        node(&[0, 1], &[2, 3], &[]),
        node(&[2, 3], &[4], &[]),
        node(&[4, 2], &[5], &[]),
        node(&[5], &[6], &[]),
    ];
    let graph = with_bytes(sketch(7, &[0, 1], &[6], nodes), &[(4, 200), (5, 200)]);
    check(&planned(graph.clone(), LiteRt), [(4, 12), (5, 12), (2, 224), (3, 212), (6, 212)], 233);
    let options = IncrementalOptions { preserve_all: true, ..options(LiteRt) };
    let mut planner = IncrementalPlanner::new(graph, options).unwrap();
    planner.execute(0..4).unwrap();
    check(&planner, [(4, 36), (5, 236)], 457);
}

#[test]
fn row_28_values_of_a_device_get_no_place() {
    let mut graph = sketch(3, &[1], &[2], vec![node(&[1], &[2], &[])]);
    graph.values[1].kind = AllocationType::NonCpu;
    for mode in [LiteRt, Ours, TfLite2019] {
        assert_eq!(planned(graph.clone(), mode).place(1), None);
    }
}

#[test]
fn row_28_equal_outputs_of_one_node_are_placed_last_first_as_observed() {
    let nodes = vec![sharing(&[0], &[1, 2, 3, 4], &[], &[], false)];
    let mut graph = with_bytes(sketch(5, &[0], &[1, 2, 3, 4], nodes), &[(0, 4)]);
    (1..5).for_each(|value| graph.values[value].bytes = 64);
    // Outputs of node 0 live throughout, and are then placed by index; of a later node not.
    graph.nodes.insert(0, node(&[], &[], &[]));
    let planner = planned(graph, LiteRt);
    assert_eq!(offsets(&planner, [1, 2, 3, 4]), [196, 132, 68, 4]);
}

// -- where the originals are wrong -------------------------------------------------

#[test]
fn row_34_k08_bytes_that_an_alias_is_read_from_later_are_not_overwritten() {
    let nodes = vec![
        node(&[0], &[2], &[]),
        reshape(&[2], &[3]),
        reshape(&[3], &[4]),
        node(&[4, 1], &[5], &[]),
        node(&[3, 5], &[6], &[]),
    ];
    let sizes = [2, 3, 4, 5].map(|value| (value, 24));
    let graph = with_bytes(sketch(7, &[0, 1], &[6], nodes), &sizes);
    let litert = planned(graph.clone(), LiteRt);
    assert_eq!(offsets(&litert, [3, 5]), [12, 12], "the original's defect, to the byte");
    let ours = planned(graph, Ours);
    assert_ne!(ours.place(3), ours.place(5));
    assert_eq!(ours.place(2), ours.place(4));
}

#[test]
fn k09_a_persistent_output_has_memory_of_its_own() {
    let nodes = vec![node(&[0], &[1], &[]), node(&[1], &[2], &[]), node(&[2], &[3], &[])];
    let mut graph = with_bytes(sketch(4, &[0], &[3], nodes), &[(1, 24), (2, 24)]);
    graph.values[2].kind = AllocationType::PersistentArena;
    assert_eq!(planned(graph.clone(), LiteRt).place(2), None, "the original's defect");
    let ours = planned(graph, Ours);
    assert!(matches!(ours.place(2), Some(Place { persistent: true, .. })));
}

#[test]
fn k12_temporaries_of_later_nodes_are_placed_though_a_node_has_nothing_to_do() {
    let nodes = vec![node(&[0], &[1], &[]), node(&[], &[], &[2]), node(&[1], &[3], &[4])];
    let graph = sketch(5, &[0], &[3], nodes);
    let original = planned(graph.clone(), TfLite2019);
    assert_eq!(offsets(&original, [2, 4]), [-1, -1], "the original's defect");
    let ours = planned(graph, Ours);
    assert!(ours.place(2).is_some() && ours.place(4).is_some());
}

#[test]
fn k13_what_nobody_reads_lives_for_one_step() {
    let nodes = vec![node(&[0], &[1, 2], &[]), node(&[1], &[3], &[]), node(&[3], &[4], &[])];
    let graph = with_bytes(sketch(5, &[0], &[4], nodes), &[(2, 400), (3, 400)]);
    let (litert, ours) = (planned(graph.clone(), LiteRt), planned(graph, Ours));
    assert_ne!(litert.place(2), litert.place(3));
    assert!(ours.arena_bytes().0 + 300 < litert.arena_bytes().0);
}

#[test]
fn k14_a_value_that_grew_is_not_placed_over_live_ones() {
    let build = || {
        let nodes = vec![node(&[0], &[1], &[]), node(&[0, 1], &[2], &[]), node(&[1, 2], &[3], &[])];
        with_bytes(sketch(4, &[0], &[3], nodes), &[(0, 40), (1, 40), (2, 40)])
    };
    let overlap = |planner: &IncrementalPlanner| {
        let spans = [0, 1, 2].map(|value| planner.place(value).unwrap().span);
        spans.iter().enumerate().any(|(index, first)| {
            spans[..index].iter().any(|it| first.offset < it.end() && it.offset < first.end())
        })
    };
    for (mode, expected) in [(LiteRt, true), (Ours, false)] {
        let mut planner = planned(build(), mode);
        let before = offsets(&planner, [0, 1]);
        planner.set_bytes(2, 80).unwrap();
        planner.execute(0..3).unwrap();
        assert_eq!(overlap(&planner), expected, "{mode}");
        assert_eq!(offsets(&planner, [0, 1]), before, "live values stay");
    }
}

#[test]
fn row_32_content_survives_growth_of_the_arena() {
    let mut planner = planner(larger(), Ours);
    planner.execute(0..1).unwrap();
    planner.bytes_mut(3).unwrap().unwrap().fill(9);
    let before = planner.buffer_bytes();
    planner.set_bytes(4, 10_000).unwrap();
    planner.execute(1..2).unwrap();
    assert!(planner.buffer_bytes() > before);
    assert_eq!(planner.bytes(3), Ok(Some(&[9_u8; 12][..])));
}

#[test]
fn row_29_persistent_values_stay_where_they_are_when_planned_again() {
    let mut graph = simple_graph();
    graph.values[1].kind = AllocationType::PersistentArena;
    graph.variables = vec![1];
    graph.inputs = optional(&[0]);
    let mut planner = planned(graph, Ours);
    planner.bytes_mut(1).unwrap().unwrap().fill(5);
    let address = planner.bytes(1).unwrap().unwrap().as_ptr();
    planner.set_bytes(2, 500).unwrap();
    planner.plan().unwrap();
    planner.execute(0..3).unwrap();
    assert_eq!(planner.bytes(1), Ok(Some(&[5_u8; 6][..])));
    assert_eq!(planner.bytes(1).unwrap().unwrap().as_ptr(), address);
    planner.set_bytes(1, 7).unwrap();
    assert!(matches!(planner.execute(0..1), Err(Error::ArenaState { .. })));
}

#[test]
fn row_30_preserving_inputs_and_preserving_all_are_independent() {
    let sizes = [(0, 100), (1, 100), (2, 100), (3, 100), (4, 100), (5, 100)];
    let graph = with_bytes(simple_graph(), &sizes);
    let arena = |preserve_inputs, preserve_all| {
        let options = IncrementalOptions { preserve_inputs, preserve_all, ..options(Ours) };
        let mut planner = IncrementalPlanner::new(graph.clone(), options).unwrap();
        planner.execute(0..3).unwrap();
        planner.arena_bytes().0
    };
    assert_eq!(arena(false, false), 300);
    assert_eq!(arena(true, false), 400);
    assert_eq!(arena(false, true), 600);
    assert_eq!(arena(true, true), 600);
}

#[test]
fn malformed_graphs_are_refused_by_name() {
    let refused = |graph| IncrementalPlanner::new(graph, options(Ours)).unwrap_err().kind();
    assert_eq!(refused(sketch(1, &[1], &[], vec![])), "UndefinedValue");
    assert_eq!(refused(sketch(1, &[], &[], vec![node(&[0], &[7], &[])])), "UndefinedValue");
    let twice = vec![node(&[], &[0], &[]), node(&[], &[0], &[])];
    assert_eq!(refused(sketch(1, &[], &[], twice)), "DuplicateProducer");
    let mut pair = node(&[0], &[1], &[]);
    pair.shares = vec![SharePair { input: 1, output: 0, unmodified: false }];
    assert_eq!(refused(sketch(2, &[0], &[], vec![pair])), "InvalidEffect");
    let mut planner = planner(simple_graph(), Ours);
    assert_eq!(planner.execute(0..4).unwrap_err().kind(), "InvalidOption");
    assert_eq!(planner.set_bytes(9, 1).unwrap_err().kind(), "UndefinedValue");
}

// -- properties --------------------------------------------------------------------

/// One node of a random graph, as choices that are made to fit when it is built.
type RandomNode = (Vec<prop::sample::Index>, Vec<u64>, u8, Option<u64>);

fn random_graphs() -> impl Strategy<Value = IncrementalGraph> {
    let node = (
        prop::collection::vec(any::<prop::sample::Index>(), 0..4),
        prop::collection::vec(0_u64..4, 0..3),
        0_u8..4,
        prop::option::of(1_u64..200),
    );
    (prop::collection::vec(node, 1..25), prop::collection::vec(any::<bool>(), 80)).prop_map(
        |(nodes, kept): (Vec<RandomNode>, Vec<bool>)| {
            let mut graph = sketch(2, &[0, 1], &[], vec![]);
            // Nodes read what is no scratch.
            let mut readable = vec![0_u32, 1];
            for (inputs, sizes, kind, scratch) in nodes {
                let inputs: Vec<u32> = inputs.iter().map(|choice| *choice.get(&readable)).collect();
                let mut added = IncrementalNode {
                    inputs: inputs.iter().map(|&input| Some(input)).collect(),
                    ..IncrementalNode::default()
                };
                for (slot, size) in sizes.into_iter().enumerate() {
                    let id = u32::try_from(graph.values.len()).unwrap();
                    // Kinds 0 and 1 keep the size of an input, to share with it.
                    let like = inputs.first().filter(|_| slot == 0 && kind < 2);
                    let bytes = like.map_or(size * 24, |&input| graph.values[input as usize].bytes);
                    graph.values.push(IncrementalValue { bytes, kind: AllocationType::Arena });
                    added.outputs.push(Some(id));
                    readable.push(id);
                    if kept[id as usize % kept.len()] && id % 3 == 0 {
                        graph.outputs.push(Some(id));
                    }
                }
                if let Some(bytes) = scratch {
                    added.temporaries.push(u32::try_from(graph.values.len()).unwrap());
                    graph.values.push(IncrementalValue { bytes, kind: AllocationType::Arena });
                }
                if kind < 2 && !added.outputs.is_empty() {
                    let pairs = (0..inputs.len()).take(if kind == 0 { 1 } else { 4 });
                    added.shares = pairs
                        .map(|input| SharePair { input, output: 0, unmodified: kind == 0 })
                        .collect();
                }
                graph.nodes.push(added);
            }
            graph
        },
    )
}

/// Runs the graph step by step and sees whether every read finds its own bytes.
///
/// A byte remembers the value that was written there; an output that is its input unchanged
/// is the same value.
fn replay(
    graph: &IncrementalGraph,
    planner: &mut IncrementalPlanner,
    ranges: &[usize],
) -> Result<(), String> {
    let mut memory: Vec<u32> = Vec::new();
    let mut contents: Vec<u32> = (0..u32::try_from(graph.values.len()).unwrap()).collect();
    let span = |planner: &IncrementalPlanner, value: u32| {
        planner.place(value).map(|place| place.span.offset as usize..place.span.end() as usize)
    };
    let mut start = 0;
    for &end in ranges {
        planner.execute(start..end).map_err(|error| error.to_string())?;
        memory.resize(planner.arena_bytes().0 as usize, u32::MAX);
        if start == 0 {
            for &input in graph.inputs.iter().flatten() {
                span(planner, input).into_iter().for_each(|span| memory[span].fill(input));
            }
        }
        for index in start..end {
            let node = &graph.nodes[index];
            let check = |memory: &[u32], contents: &[u32], value: u32| {
                let Some(span) = span(planner, value) else { return Ok(()) };
                let own = memory[span].iter().all(|&byte| byte == contents[value as usize]);
                own.then_some(()).ok_or(format!("node {index} finds other bytes in value {value}"))
            };
            for &value in node.inputs.iter().flatten() {
                check(&memory, &contents, value)?;
            }
            for &value in node.outputs.iter().flatten().chain(&node.temporaries) {
                let root = planner.root(value).unwrap();
                let unmodified = node.shares.iter().find(|pair| {
                    pair.unmodified && node.outputs[pair.output] == Some(value) && root != value
                });
                if let Some(pair) = unmodified {
                    let input = node.inputs[pair.input].unwrap();
                    contents[value as usize] = contents[input as usize];
                }
                let tag = contents[value as usize];
                span(planner, value).into_iter().for_each(|span| memory[span].fill(tag));
            }
            // Nothing was written twice.
            for &value in node.outputs.iter().flatten().chain(&node.temporaries) {
                check(&memory, &contents, value)?;
            }
        }
        start = end;
    }
    for &value in graph.outputs.iter().chain(&graph.inputs).flatten() {
        let own = span(planner, value)
            .is_none_or(|span| memory[span].iter().all(|&byte| byte == contents[value as usize]));
        if !own {
            return Err(format!("value {value} is not what it was at the end"));
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    /// Whatever is planned at once or step by step, every read finds its own bytes.
    #[test]
    fn row_32_row_34_every_read_finds_its_own_bytes(
        graph in random_graphs(),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
        preserve_all in any::<bool>(),
    ) {
        let count = graph.nodes.len();
        let mut ranges: Vec<usize> = cuts.iter().map(|cut| cut.index(count)).collect();
        ranges.push(count);
        ranges.sort_unstable();
        let options = IncrementalOptions { preserve_all, ..options(Ours) };
        let mut planner = IncrementalPlanner::new(graph.clone(), options).unwrap();
        prop_assert_eq!(replay(&graph, &mut planner, &ranges), Ok(()));
    }
}
