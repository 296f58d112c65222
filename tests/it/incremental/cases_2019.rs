//! What the tests of TensorFlow Lite's planner of 2019 expect.

use arenaplan_classic::incremental::{AllocationType, IncrementalOptions, IncrementalPlanner};

use crate::incremental::{
    TfLite2019, check, larger, node, offsets, optional, options, planned, planner, simple_graph,
    sketch, with_bytes, with_optional, with_temporary,
};

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
