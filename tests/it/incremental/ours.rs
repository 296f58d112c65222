//! Where the originals are wrong, and what ours does beyond them.

use arenaplan::Error;
use arenaplan_classic::Error as Classic;
use arenaplan_classic::incremental::{
    AllocationType, IncrementalOptions, IncrementalPlanner, Place, SharePair,
};

use crate::incremental::{
    LiteRt, Ours, TfLite2019, larger, node, offsets, optional, options, planned, planner, reshape,
    simple_graph, sketch, with_bytes,
};

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
    assert!(matches!(planner.execute(0..1), Err(Classic::Core(Error::ArenaState { .. }))));
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
