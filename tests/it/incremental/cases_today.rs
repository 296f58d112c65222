//! What the tests of TensorFlow Lite's planner of today expect.

use std::sync::{Arc, Mutex};

use arenaplan::Error;
use arenaplan::arena::{ArenaAllocator, ArenaBlock, SystemAllocator};
use arenaplan::base::Alignment;
use arenaplan_classic::Error as Classic;
use arenaplan_classic::incremental::{AllocationType, IncrementalOptions, IncrementalPlanner};

use crate::incremental::{
    LiteRt, Ours, TfLite2019, check, larger, node, offsets, optional, options, planned, planner,
    reshape, sharing, simple_graph, sketch, with_bytes, with_optional, with_temporary,
};

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
            assert!(matches!(planner.bytes(0), Err(Classic::Core(Error::ArenaState { .. }))));
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

/// Counts what it is asked for.
#[derive(Clone, Debug, Default)]
struct Counting(Arc<Mutex<[usize; 2]>>);

impl ArenaAllocator for Counting {
    fn allocate(
        &mut self,
        bytes: u64,
        alignment: Alignment,
    ) -> arenaplan::Result<Box<dyn ArenaBlock>> {
        self.0.lock().unwrap()[0] += 1;
        SystemAllocator.allocate(bytes, alignment)
    }

    fn deallocate(&mut self, block: Box<dyn ArenaBlock>) {
        self.0.lock().unwrap()[1] += 1;
        drop(block);
    }
}

#[test]
fn row_28_memory_is_got_once_and_given_back_once() {
    for mode in [LiteRt, Ours, TfLite2019] {
        let graph = sketch(3, &[1], &[2], vec![node(&[1], &[2], &[])]);
        let (temporary, persistent) = (Counting::default(), Counting::default());
        let allocators = [temporary.clone(), persistent.clone()];
        let [first, second] = allocators.map(|it| Box::new(it) as Box<dyn ArenaAllocator>);
        let mut planner =
            IncrementalPlanner::with_allocators(graph, options(mode), first, second).unwrap();
        planner.execute(0..1).unwrap();
        assert_eq!(planner.arena_bytes().0, 17);
        assert_eq!(*temporary.0.lock().unwrap(), [1, 0]);
        drop(planner);
        assert_eq!(*temporary.0.lock().unwrap(), [1, 1]);
    }
}

/// A row for every operand that can be left out: the values around it are placed as if it
/// had never been there.
#[test]
fn row_31_operands_can_be_left_out_anywhere() {
    for mode in [LiteRt, Ours] {
        let expected = planned(with_temporary(), mode);
        let values = [0, 1, 2, 3, 4, 5];
        let mut graph = with_temporary();
        graph.inputs.push(None);
        graph.outputs.insert(0, None);
        graph.nodes[0].inputs.push(None);
        graph.nodes[1].inputs.insert(1, None);
        graph.nodes[1].outputs.push(None);
        graph.nodes[2].outputs.insert(1, None);
        let found = planned(graph, mode);
        assert_eq!(offsets(&found, values), offsets(&expected, values));
        assert_eq!(found.arena_bytes(), expected.arena_bytes());
    }
    let mut graph = with_temporary();
    graph.nodes[1].outputs.push(None);
    let refused = IncrementalPlanner::new(graph, options(TfLite2019)).unwrap_err();
    assert_eq!(refused.kind(), "InvalidEffect", "2019 had no optional outputs");
}
