//! The golden cases that are small enough to follow, by number.

use arenaplan::graph::InPlace;
use arenaplan::pack::Space;
use arenaplan::{DType, Effects, Error, Node, SpaceId, Value, ValueId, ValueKind};
use arenaplan_classic::Error as Classic;
use arenaplan_classic::coloring::color_nodes;
use arenaplan_classic::sharing::{
    SharingMode, SharingOptions, SizeRule, Storage, TakenFrom, share_storage,
};

use crate::sharing::{I0, I01, ID, Net, P, branches, codes, ids, ignoring, nnvm};

#[test]
fn g_n1_upstream_test_plan_memory() {
    let mut net = Net::new();
    let x = net.value("x", ValueKind::Input, DType::FLOAT32, &[4, 2]);
    let shape: &[&[u64]] = &[&[4, 2]];
    let grown = net.sized("addk", I01, &[x, x], shape)[0];
    let reshapek = net.sized("reshapek", P, &[grown], shape)[0];
    let sum = net.sized("add2", I01, &[reshapek, grown], shape)[0];
    let double = net.sized("add3", I01, &[sum, sum], shape)[0];
    let graph = net.build(&[double]);
    let plan = nnvm(&graph);
    assert_eq!(codes(&graph, &plan), [(0, -1), (1, -1), (1, 0), (0, -1)]);
    assert_eq!(plan.allocated_bytes(), 64);
    // Ours counts one reader that reads twice as one.
    let ours = share_storage(&graph, &SharingOptions::default()).unwrap();
    assert_eq!(ours.taken_from()[double.index()], TakenFrom::Input(0));
}

#[test]
fn row_12_g_n2_a_chain_is_in_place() {
    let mut net = Net::new();
    let x = net.input("x");
    let mut last = net.op("a", P, &[x]);
    for name in ["b", "c", "d"] {
        last = net.op(name, I0, &[last]);
    }
    let graph = net.build(&[last]);
    let plan = nnvm(&graph);
    assert_eq!(codes(&graph, &plan), [(0, -1), (0, 0), (0, 0), (0, 0)]);
    assert_eq!(plan.allocated_bytes(), 40);
}

#[test]
fn row_12_g_n3_what_is_read_later_is_not_taken_over() {
    let mut net = Net::new();
    let x = net.input("x");
    let b = net.op("b", P, &[x]);
    let c = net.op("c", I0, &[b]);
    let e = net.op("e", I0, &[c]);
    let f = net.op("f", I01, &[e, b]);
    let graph = net.build(&[f]);
    let plan = nnvm(&graph);
    assert_eq!(codes(&graph, &plan), [(0, -1), (1, -1), (1, 0), (1, 0)]);
    assert_eq!(plan.allocated_bytes(), 80);
}

#[test]
fn row_12_g_n4_the_last_reader_takes_over() {
    let mut net = Net::new();
    let x = net.input("x");
    let b = net.op("b", P, &[x]);
    let c = net.op("c", P, &[b]);
    let f = net.op("f", I01, &[b, c]);
    let graph = net.build(&[f]);
    let plan = nnvm(&graph);
    assert_eq!(codes(&graph, &plan), [(0, -1), (1, -1), (0, 0)]);
    assert_eq!(plan.allocated_bytes(), 80);
}

#[test]
fn row_12_g_n5_squares_are_in_place_in_ours_only() {
    let mut net = Net::new();
    let mut last = net.input("x");
    for name in ["a", "b", "c", "d"] {
        last = net.op(name, I01, &[last, last]);
    }
    let graph = net.build(&[last]);
    let plan = nnvm(&graph);
    assert_eq!(codes(&graph, &plan), [(0, -1), (1, -1), (0, -1), (1, -1)]);
    assert_eq!(plan.allocated_bytes(), 80);
    let ours = share_storage(&graph, &SharingOptions::default()).unwrap();
    assert_eq!(codes(&graph, &ours), [(0, -1), (0, 0), (0, 0), (0, 0)]);
}

#[test]
fn row_12_types_of_one_width_share_in_place_and_others_do_not() {
    for (dtype, expected) in [(DType::UINT16, (0, 0)), (DType::INT8, (1, -1))] {
        let mut net = Net::new();
        let x = net.input("x");
        let a = net.value("a", ValueKind::Activation, DType::INT16, &[10]);
        let b = net.value("b", ValueKind::Activation, dtype, &[10]);
        net.builder.add_node(Node::new("a", "Op").reads([x]).writes([a]));
        net.builder.add_node(Node::new("b", "Op").reads([a]).writes([b]).in_place(0, 0));
        let graph = net.build(&[b]);
        assert_eq!(codes(&graph, &nnvm(&graph)), [(0, -1), expected]);
    }
}

#[test]
fn row_13_g_n6_identity_shares_with_two_readers_unless_types_differ() {
    for (dtype, expected) in [
        (DType::FLOAT32, [(0, -1), (0, 0), (1, -1), (1, 0)]),
        (DType::INT32, [(0, -1), (1, -1), (1, 0), (1, 0)]),
    ] {
        let mut net = Net::new();
        let x = net.input("x");
        let a = net.op("a", P, &[x]);
        let r = net.value("r", ValueKind::Activation, dtype, &[10]);
        let pair = InPlace { input: 0, output: 0, identity: true };
        let effects = Effects { in_place: vec![pair], ..Effects::default() };
        net.builder.add_node(Node::new("r", "Op").reads([a]).writes([r]).with_effects(effects));
        let c = if dtype == DType::FLOAT32 { net.op("c", I0, &[a]) } else { net.op("c", I0, &[r]) };
        let f = net.op("f", I01, &[c, a]);
        let graph = net.build(&[f]);
        let plan = nnvm(&graph);
        if dtype == DType::FLOAT32 {
            // `r` has no reader here: it must have one to share.
            assert_eq!(codes(&graph, &plan)[1], (1, -2));
        } else {
            assert_eq!(codes(&graph, &plan), expected);
        }
    }
    let mut net = Net::new();
    let x = net.input("x");
    let a = net.op("a", P, &[x]);
    let r = net.op("r", ID, &[a]);
    let c = net.op("c", I0, &[r]);
    let f = net.op("f", I01, &[c, a]);
    let graph = net.build(&[f]);
    let plan = nnvm(&graph);
    assert_eq!(codes(&graph, &plan), [(0, -1), (0, 0), (1, -1), (1, 0)]);
    assert_eq!(plan.allocated_bytes(), 80);
}

#[test]
fn row_11_g_n7_a_value_that_is_only_ignored_is_free_at_once() {
    let mut net = Net::new();
    let x = net.input("x");
    let a = net.op("a", P, &[x]);
    let z = ignoring(&mut net, "z", a);
    let b = net.op("b", P, &[x]);
    let o = net.op("o", P, &[z, b]);
    let graph = net.build(&[o]);
    let plan = nnvm(&graph);
    assert_eq!(codes(&graph, &plan), [(0, -2), (0, -1), (1, -1), (2, -1)]);
    assert_eq!(plan.allocated_bytes(), 120);
}

#[test]
fn row_16_g_n8_outputs_are_requested_largest_first_and_unread_ones_freed() {
    let mut net = Net::new();
    let x = net.input("x");
    let s = net.sized("s", P, &[x], &[&[10], &[40], &[20]]);
    let o = net.sized("o", P, &[s[0], s[2]], &[&[5]])[0];
    let graph = net.build(&[o]);
    let plan = nnvm(&graph);
    assert_eq!(codes(&graph, &plan), [(2, -1), (0, -2), (1, -1), (0, -1)]);
    assert_eq!(plan.allocated_bytes(), 280);
}

#[test]
fn row_17_g_n9_scalars_have_no_block_in_nnvm() {
    let mut net = Net::new();
    let x = net.input("x");
    let a = net.sized("a", P, &[x], &[&[]])[0];
    let b = net.op("b", P, &[a]);
    let graph = net.build(&[b]);
    let plan = nnvm(&graph);
    assert_eq!(ids(&graph, &plan), [-1, 0]);
    assert_eq!((plan.not_allocated(), plan.allocated_bytes()), (1, 40));
    let ours = share_storage(&graph, &SharingOptions::default()).unwrap();
    assert_eq!((ours.not_allocated(), ours.allocated_bytes()), (0, 44));
}

#[test]
fn k04_g_n10_sizes_are_true_unless_asked_for_elements() {
    let mut net = Net::new();
    let x = net.input("x");
    let a = net.value("a", ValueKind::Activation, DType::INT8, &[100]);
    net.builder.add_node(Node::new("a", "Op").reads([x]).writes([a]));
    let graph = net.build(&[a]);
    assert_eq!(nnvm(&graph).allocated_bytes(), 400);
    let mut options = SharingOptions::default();
    assert_eq!(share_storage(&graph, &options).unwrap().allocated_bytes(), 100);
    options.size_rule = SizeRule::ElementsTimes4;
    assert_eq!(share_storage(&graph, &options).unwrap().allocated_bytes(), 400);
}

#[test]
fn row_17_g_n11_external_storage_is_left_alone() {
    let mut net = Net::new();
    let x = net.input("x");
    let a = net.op("a", P, &[x]);
    let b = net.op("b", I0, &[a]);
    let c = net.op("c", I0, &[b]);
    let graph = net.build(&[c]);
    for storage in [Storage::External, Storage::Dynamic] {
        let mut assigned = vec![Storage::Unassigned; 4];
        (assigned[a.index()], assigned[c.index()]) = (storage, storage);
        let options = SharingOptions { assigned: Some(assigned), ..SharingOptions::nnvm() };
        let plan = share_storage(&graph, &options).unwrap();
        assert_eq!(codes(&graph, &plan), [(storage.code(), -1), (0, -1), (storage.code(), -1)]);
        assert_eq!(plan.allocated_bytes(), 40);
    }
}

#[test]
fn row_20_g_n12_no_block_is_on_two_devices() {
    for mode in [SharingMode::Nnvm, SharingMode::Default] {
        let mut net = Net::new();
        let device = net.builder.add_space(Space::new("device 1"));
        let mut last = net.input("x");
        for (name, second) in [("a", false), ("b", true), ("c", true), ("d", false)] {
            let space = if second { device } else { SpaceId::new(0) };
            let value = Value::new(name, ValueKind::Activation, DType::FLOAT32, [10]).unwrap();
            let value = net.builder.add_value(value.with_space(space));
            net.builder.add_node(Node::new(name, "Op").reads([last]).writes([value]));
            last = value;
        }
        let graph = net.build(&[last]);
        let plan =
            share_storage(&graph, &SharingOptions { mode, ..SharingOptions::nnvm() }).unwrap();
        assert_eq!(ids(&graph, &plan), [0, 1, 2, 0]);
        assert_eq!(plan.allocated_bytes(), 120);
        for (storage, value) in plan.storages().iter().zip(graph.values()) {
            let block = storage.block().map(|block| plan.blocks()[block as usize]);
            assert!(block.is_none_or(|block| block.space == value.space()));
        }
    }
}

#[test]
fn row_11_g_n13_outputs_are_kept() {
    let two = |outputs: fn(ValueId, ValueId) -> [ValueId; 2]| {
        let mut net = Net::new();
        let x = net.input("x");
        let a = net.op("a", P, &[x]);
        let b = net.op("b", I0, &[a]);
        let graph = net.build(&outputs(a, b));
        let plan = nnvm(&graph);
        (codes(&graph, &plan), plan.allocated_bytes())
    };
    assert_eq!(two(|a, b| [a, b]), (vec![(0, -1), (1, -1)], 80));
    assert_eq!(two(|_, b| [b, b]), (vec![(0, -1), (0, 0)], 40));
}

#[test]
fn row_12_g_n13c_one_input_is_taken_once() {
    let mut net = Net::new();
    let x = net.input("x");
    let a = net.op("a", P, &[x]);
    let s = net.sized("s", &[(0, 0, true), (0, 1, true)], &[a], &[&[10], &[10]]);
    let o = net.op("o", P, &s);
    let graph = net.build(&[o]);
    let plan = nnvm(&graph);
    assert_eq!(codes(&graph, &plan), [(0, -1), (0, 0), (1, -1), (2, -1)]);
    assert_eq!(plan.allocated_bytes(), 120);
}

#[test]
fn row_19_g_n14_blocks_stay_with_the_color_that_freed_them() {
    let graph = branches();
    for (num_temp, expected, bytes) in [
        (1, [0, 1, 2, 1, 2, 0, 2], 120),
        (2, [0, 1, 2, 1, 3, 0, 2], 160),
        (3, [0, 1, 2, 1, 3, 0, 2], 160),
    ] {
        let plan =
            share_storage(&graph, &SharingOptions { num_temp, ..SharingOptions::nnvm() }).unwrap();
        assert_eq!(ids(&graph, &plan), expected, "{num_temp} colors");
        assert_eq!(plan.allocated_bytes(), bytes);
    }
    for (most, rest) in [(2, 1), (3, 2)] {
        let coloring = color_nodes(&graph, most).unwrap();
        assert_eq!(coloring.colors(), [0, 0, 0, 0, 1, 1, 0]);
        assert_eq!(coloring.rest(), rest);
    }
}

#[test]
fn row_14_g_n17_the_nearest_block_that_is_not_smaller_is_taken() {
    let mut net = Net::new();
    let x = net.input("x");
    let [a, b, c] = [("a", 90), ("b", 200), ("c", 110)]
        .map(|(name, size)| net.sized(name, P, &[x], &[&[size]])[0]);
    let k = net.sized("k", P, &[a, b, c], &[&[1000]])[0];
    let q = net.sized("q", P, &[k], &[&[100]])[0];
    let r = net.sized("r", P, &[q], &[&[100]])[0];
    let graph = net.build(&[q, r, k]);
    let plan = nnvm(&graph);
    assert_eq!(plan.storage(q), plan.storage(c));
    assert_eq!(plan.storage(r), plan.storage(b));
    assert_eq!(plan.allocated_bytes(), 5600);
}

#[test]
fn row_14_g_n18_blocks_grow() {
    let mut net = Net::new();
    let mut last = net.input("x");
    for (name, size) in [("a", 50), ("b", 70), ("c", 100), ("d", 1)] {
        last = net.sized(name, P, &[last], &[&[size]])[0];
    }
    let graph = net.build(&[last]);
    let plan = nnvm(&graph);
    assert_eq!(ids(&graph, &plan), [0, 1, 0, 2]);
    assert_eq!(plan.allocated_bytes(), 684);
}

#[test]
fn row_11_g_n19_zero_propagation_forward_only() {
    let mut net = Net::new();
    let shape: &[u64] = &[10, 3, 256, 256];
    let mut last = net.value("x", ValueKind::Input, DType::FLOAT32, shape);
    for index in 0..10 {
        last = net.sized(&format!("square{index}"), I01, &[last, last], &[shape])[0];
    }
    let graph = net.build(&[last]);
    let plan = nnvm(&graph);
    assert_eq!(ids(&graph, &plan), [0, 1, 0, 1, 0, 1, 0, 1, 0, 1]);
    assert_eq!(plan.allocated_bytes(), 2 * 7_864_320);
}

#[test]
fn row_11_g_n20_counts_of_ignored_inputs_are_the_callers_to_supply() {
    let mut net = Net::new();
    let x = net.input("x");
    let a = net.op("a", P, &[x]);
    let b = net.op("b", P, &[a]);
    let z = ignoring(&mut net, "z", a);
    let c = net.op("c", P, &[b]);
    let d = net.op("d", P, &[c, z]);
    let graph = net.build(&[d]);
    assert_eq!(nnvm(&graph).allocated_bytes(), 120);
    let mut counts = arenaplan_classic::sharing::reference_counts(&graph);
    counts[a.index()] += 1;
    let options = SharingOptions { counts: Some(counts.clone()), ..SharingOptions::nnvm() };
    assert_eq!(share_storage(&graph, &options).unwrap().allocated_bytes(), 160);
    counts[a.index()] = 0;
    let options = SharingOptions { counts: Some(counts), ..SharingOptions::default() };
    assert_eq!(share_storage(&graph, &options).unwrap_err().kind(), "InvalidOption");
}

#[test]
fn row_14_row_15_g_n21_match_ranges_and_the_search_for_one() {
    let mut net = Net::new();
    let mut last = net.input("x");
    for (index, size) in [100, 1000, 100, 1000, 10, 5000, 60].into_iter().enumerate() {
        last = net.sized(&format!("v{index}"), P, &[last], &[&[size]])[0];
    }
    let graph = net.build(&[last]);
    let bytes = |match_range, auto_search| {
        let options = SharingOptions { match_range, auto_search, ..SharingOptions::nnvm() };
        share_storage(&graph, &options).map(|plan| (plan.allocated_bytes(), plan.match_range()))
    };
    for (range, expected) in [
        (0, 29_080),
        (1, 24_680),
        (2, 24_440),
        (4, 24_440),
        (8, 20_440),
        (16, 20_400),
        (64, 20_400),
    ] {
        assert_eq!(bytes(range, false), Ok((expected, range)));
    }
    assert_eq!(bytes(16, true), Ok((20_400, 16)));
    assert_eq!(bytes(10, true), Ok((20_440, 8)), "1, 2, 4, 8: powers of two only");
    assert_eq!(bytes(4, true), Ok((24_440, 2)), "the earliest of the best wins");
    assert!(
        matches!(
            bytes(0, true),
            Err(Classic::Core(Error::InvalidOption { option: "auto_search", .. }))
        ),
        "K-05"
    );
}

#[test]
fn row_18_only_a_node_range_is_planned_and_given_blocks_are_respected() {
    let graph = branches();
    let a = ValueId::new(1);
    let options = SharingOptions { nodes: Some(1..4), ..SharingOptions::default() };
    let plan = share_storage(&graph, &options).unwrap();
    assert_eq!(ids(&graph, &plan), [-1, 0, 1, 0, -1, -1, -1]);
    assert_eq!(plan.not_allocated(), 0);

    let mut assigned = vec![Storage::Unassigned; 8];
    assigned[a.index()] = Storage::Block(2);
    let options = SharingOptions { assigned: Some(assigned.clone()), ..SharingOptions::default() };
    let plan = share_storage(&graph, &options).unwrap();
    assert_eq!(plan.given(), 3);
    assert!(plan.storages().iter().enumerate().all(|(value, storage)| {
        (value == a.index()) == (storage.block().is_some_and(|block| block < 3))
    }));
    plan.to_plan(&graph, 1).unwrap();

    assigned[a.index()] = Storage::Block(8);
    let refused = [
        SharingOptions { assigned: Some(assigned), ..SharingOptions::default() },
        SharingOptions { assigned: Some(vec![]), ..SharingOptions::default() },
        SharingOptions { nodes: Some(2..9), ..SharingOptions::default() },
        SharingOptions { counts: Some(vec![]), ..SharingOptions::default() },
        SharingOptions { num_temp: 0, ..SharingOptions::default() },
        SharingOptions { parallel_safe: true, ..SharingOptions::nnvm() },
    ];
    for options in refused {
        assert_eq!(share_storage(&graph, &options).unwrap_err().kind(), "InvalidOption");
    }
}
