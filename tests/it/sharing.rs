//! Storage sharing: what NNVM answers on graphs small enough to follow, and where ours has
//! to do better.

use arenaplan::{
    AssignKind, DType, Effects, Error, Graph, InPlace, Node, NodeId, SharingMode, SharingOptions,
    SizeRule, Space, SpaceId, Storage, StoragePlan, TakenFrom, Value, ValueId, ValueKind,
    color_nodes, find_assigns, order_mutations, share_storage,
};
use proptest::prelude::*;

use crate::graphs::{Sketch, graphs};

/// Builds graphs of named `float32` arrays, ten elements each unless said otherwise.
struct Net {
    builder: arenaplan::GraphBuilder,
    names: Vec<String>,
}

const I0: &[(usize, usize, bool)] = &[(0, 0, false)];
const I01: &[(usize, usize, bool)] = &[(0, 0, false), (1, 0, false)];
const ID: &[(usize, usize, bool)] = &[(0, 0, true)];
const P: &[(usize, usize, bool)] = &[];

impl Net {
    fn new() -> Self {
        Self { builder: Graph::builder("net"), names: Vec::new() }
    }

    fn value(&mut self, name: &str, kind: ValueKind, dtype: DType, shape: &[u64]) -> ValueId {
        self.names.push(name.into());
        self.builder.add_value(Value::new(name, kind, dtype, shape).unwrap())
    }

    fn input(&mut self, name: &str) -> ValueId {
        self.value(name, ValueKind::Input, DType::FLOAT32, &[10])
    }

    /// Adds a node with one output of ten elements.
    fn op(&mut self, name: &str, pairs: &[(usize, usize, bool)], inputs: &[ValueId]) -> ValueId {
        self.sized(name, pairs, inputs, &[&[10]])[0]
    }

    fn sized(
        &mut self,
        name: &str,
        pairs: &[(usize, usize, bool)],
        inputs: &[ValueId],
        shapes: &[&[u64]],
    ) -> Vec<ValueId> {
        let outputs: Vec<ValueId> = shapes
            .iter()
            .enumerate()
            .map(|(slot, shape)| {
                let name = if slot == 0 { name.to_owned() } else { format!("{name}{slot}") };
                self.value(&name, ValueKind::Activation, DType::FLOAT32, shape)
            })
            .collect();
        let pair =
            |&(input, output, identity): &(usize, usize, bool)| InPlace { input, output, identity };
        let effects = Effects { in_place: pairs.iter().map(pair).collect(), ..Effects::default() };
        let node = Node::new(name, "Op").reads(inputs.iter().copied());
        self.builder.add_node(node.writes(outputs.clone()).with_effects(effects));
        outputs
    }

    fn build(mut self, outputs: &[ValueId]) -> Graph {
        outputs.iter().for_each(|&output| self.builder.add_output(output));
        self.builder.build().unwrap()
    }
}

fn nnvm(graph: &Graph) -> StoragePlan {
    share_storage(graph, &SharingOptions::nnvm()).unwrap()
}

/// Returns `id (in-place index)` of the values that nodes produce.
fn codes(graph: &Graph, plan: &StoragePlan) -> Vec<(i64, i64)> {
    (0..graph.values().len())
        .map(ValueId::new)
        .filter(|&value| graph.producer(value).is_some())
        .map(|value| (plan.storage(value).code(), plan.taken_from()[value.index()].code()))
        .collect()
}

fn ids(graph: &Graph, plan: &StoragePlan) -> Vec<i64> {
    codes(graph, plan).into_iter().map(|(id, _)| id).collect()
}

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

/// Adds an operator that ignores input 0 and offers to take it over.
fn ignoring(net: &mut Net, name: &str, input: ValueId) -> ValueId {
    let output = net.value(name, ValueKind::Activation, DType::FLOAT32, &[10]);
    let pair = InPlace { input: 0, output: 0, identity: false };
    let effects = Effects { in_place: vec![pair], ignores: vec![0], ..Effects::default() };
    net.builder
        .add_node(Node::new(name, "Op").reads([input]).writes([output]).with_effects(effects));
    output
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

/// Two branches from `a` that meet in `j`.
fn branches() -> Graph {
    let mut net = Net::new();
    let x = net.input("x");
    let a = net.op("a", P, &[x]);
    let l1 = net.op("l1", P, &[a]);
    let l2 = net.op("l2", P, &[l1]);
    let l3 = net.op("l3", P, &[l2]);
    let r1 = net.op("r1", P, &[a]);
    let r2 = net.op("r2", P, &[r1]);
    let j = net.op("j", P, &[l3, r2]);
    net.build(&[j])
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
    let mut counts = arenaplan::reference_counts(&graph);
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
        matches!(bytes(0, true), Err(Error::InvalidOption { option: "auto_search", .. })),
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

// -- variables ---------------------------------------------------------------------

/// Adds an assignment of `source` to `state`.
fn assign(net: &mut Net, name: &str, state: ValueId, source: ValueId) -> ValueId {
    let result = net.value(name, ValueKind::Activation, DType::FLOAT32, &[10]);
    let effects = Effects {
        in_place: vec![InPlace { input: 1, output: 0, identity: true }],
        mutates: vec![0],
        ignores: vec![0],
        ..Effects::default()
    };
    net.builder.add_node(
        Node::new(name, "Assign").reads([state, source]).writes([result]).with_effects(effects),
    );
    result
}

fn state(net: &mut Net, name: &str) -> ValueId {
    net.value(name, ValueKind::State, DType::FLOAT32, &[10])
}

fn kinds(graph: &Graph, elementwise: bool) -> Vec<Option<AssignKind>> {
    let assigns = find_assigns(graph, |_| elementwise);
    assigns.into_iter().map(|found| found.map(|assign| assign.kind)).collect()
}

/// The update of two variables: `w += 1; w2 = w + 1`.
fn update() -> Graph {
    let mut net = Net::new();
    let (w2, w) = (state(&mut net, "w2"), state(&mut net, "w"));
    let add0 = net.op("add0", P, &[w]);
    let assign0 = assign(&mut net, "assign0", w, add0);
    let add1 = net.op("add1", P, &[assign0]);
    let assign1 = assign(&mut net, "assign1", w2, add1);
    net.build(&[assign1])
}

#[test]
fn row_21_assignments_are_direct_when_their_producer_can_write_for_them() {
    let graph = update();
    assert_eq!(
        kinds(&graph, true),
        [None, Some(AssignKind::Direct), None, Some(AssignKind::Direct)]
    );
    assert_eq!(
        kinds(&graph, false),
        [None, Some(AssignKind::Copy), None, Some(AssignKind::Copy)],
        "opaque producers"
    );
    let mut net = Net::new();
    let (w, x) = (state(&mut net, "w"), net.input("x"));
    let y = net.op("y", P, &[x]);
    let twice = assign(&mut net, "twice", w, y);
    let plain = assign(&mut net, "plain", w, x);
    let z = net.op("z", P, &[y]);
    let graph = net.build(&[twice, plain, z]);
    let copy = Some(AssignKind::Copy);
    assert_eq!(kinds(&graph, true), [None, copy, copy, None], "read twice, and no producer");
}

#[test]
fn row_22_g_n16_variables_get_fresh_blocks_and_assignments_their_variable() {
    let graph = update();
    let mut options = SharingOptions::nnvm();
    options.match_range = 16;
    // In the original the compiled graph has no in-place pairs.
    let plan = {
        let mut net = Net::new();
        let (w2, w) = (state(&mut net, "w2"), state(&mut net, "w"));
        let add0 = net.op("add0", P, &[w]);
        let assign0 = net.op("assign0", P, &[w, add0]);
        let add1 = net.op("add1", P, &[assign0]);
        let assign1 = net.op("assign1", P, &[w2, add1]);
        let plain = net.build(&[assign1]);
        share_storage(&plain, &options).unwrap()
    };
    assert_eq!(ids(&graph, &plan), [0, 1, 0, 1]);
    let assigns = find_assigns(&graph, |_| true);
    let plan = plan.decorate(&graph, &assigns).unwrap();
    let codes: Vec<_> = plan.storages().iter().map(|storage| storage.code()).collect();
    assert_eq!(codes, [2, 3, 3, 3, 2, 2], "w2, w, add0, assign0, add1, assign1");
    assert_eq!(plan.blocks()[0].bytes + plan.blocks()[1].bytes, 0, "holes");

    // What it means: run it on the blocks.
    let mut blocks = [0, 0, 0, 100];
    for run in 1..=2 {
        let block = |value: usize| plan.storages()[value].block().unwrap() as usize;
        for (node, assign) in graph.order().iter().zip(&assigns) {
            if assign.is_none() {
                let node = graph.node(*node);
                let read = blocks[block(node.input(0).unwrap().index())];
                blocks[block(node.output(0).unwrap().index())] = read + 1;
            }
        }
        assert_eq!((blocks[3], blocks[2]), (100 + run, 101 + run), "w, w2");
    }
}

#[test]
fn row_22_a_plan_with_a_value_without_a_block_is_not_decorated() {
    let graph = update();
    let options = SharingOptions { nodes: Some(0..2), ..SharingOptions::default() };
    let refused = share_storage(&graph, &options).unwrap().decorate(&graph, &[]);
    assert_eq!(refused.unwrap_err().kind(), "InvalidOption");
}

#[test]
fn row_09_reads_and_writes_of_a_variable_happen_in_the_order_they_were_added() {
    // conv(x, w); add1(conv, x); assign(x, add1); add2(add1, x).
    let mut net = Net::new();
    let (x, w) = (state(&mut net, "x"), net.input("w"));
    let conv = net.op("conv", P, &[x, w]);
    let add1 = net.op("add1", P, &[conv, x]);
    let written = assign(&mut net, "assign", x, add1);
    let add2 = net.op("add2", P, &[add1, x]);
    let graph = net.build(&[add2, written]);
    let after = |graph: &Graph, node: usize| -> Vec<usize> {
        let node = graph.node(NodeId::new(node));
        node.control_dependencies().iter().map(|id| id.index()).collect()
    };
    let ordered = order_mutations(&graph, &[]).unwrap();
    assert_eq!(after(&ordered, 2), [0, 1]);
    assert_eq!(after(&ordered, 3), [2]);
}

#[test]
fn k07_the_producer_of_a_direct_assignment_waits_for_readers_of_the_old_bytes() {
    // reader(w) is added before the assignment, and must see the old bytes.
    let mut net = Net::new();
    let (w, x) = (state(&mut net, "w"), net.input("x"));
    let source = net.op("source", P, &[x]); // node 0: what writes
    let reader = net.op("reader", P, &[w]); // node 1
    let written = assign(&mut net, "assign", w, source); // node 2
    let graph = net.build(&[written, reader]);
    let assigns = find_assigns(&graph, |_| true);
    assert_eq!(assigns[2].unwrap().kind, AssignKind::Direct);
    let ordered = order_mutations(&graph, &assigns).unwrap();
    let place = |node| ordered.order().iter().position(|&id| id == NodeId::new(node)).unwrap();
    assert!(place(1) < place(0), "the reader runs before what writes");
    // And two writes happen one after the other.
    let mut net = Net::new();
    let (w, x) = (state(&mut net, "w"), net.input("x"));
    let first = assign(&mut net, "first", w, x);
    let second = assign(&mut net, "second", w, x);
    let graph = order_mutations(&net.build(&[first, second]), &[]).unwrap();
    assert_eq!(graph.node(NodeId::new(1)).control_dependencies(), [NodeId::new(0)]);
}

// -- properties --------------------------------------------------------------------

#[test]
fn an_ignored_operand_is_never_taken_over() {
    // NNVM takes `a` over because one read of it is left, which is another node's.
    let mut net = Net::new();
    let x = net.input("x");
    let a = net.op("a", P, &[x]);
    let out = net.value("z", ValueKind::Activation, DType::FLOAT32, &[10]);
    let pair = InPlace { input: 0, output: 0, identity: false };
    let effects = Effects { in_place: vec![pair], ignores: vec![0], ..Effects::default() };
    net.builder.add_node(Node::new("z", "Op").reads([a, x]).writes([out]).with_effects(effects));
    let last = net.op("last", P, &[a, out]);
    let graph = net.build(&[last]);
    let original = nnvm(&graph);
    assert_eq!(original.storage(a), original.storage(out), "the original's defect");
    assert_eq!(original.to_plan(&graph, 1).unwrap_err().kind(), "PlanOverlap", "and it is found");
    let ours = share_storage(&graph, &SharingOptions::default()).unwrap();
    assert_ne!(ours.storage(a), ours.storage(out));
    ours.to_plan(&graph, 1).unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Every plan of ours is valid: the checker replays it as an arena plan.
    #[test]
    fn row_49_plans_of_random_graphs_pass_the_checker(
        graph in graphs(24),
        match_range in 0_u64..20,
        num_temp in 1_u32..5,
        parallel_safe in any::<bool>(),
        elements in any::<bool>(),
    ) {
        let size_rule = if elements { SizeRule::ElementsTimes4 } else { SizeRule::Bytes };
        let options = SharingOptions {
            match_range, num_temp, parallel_safe, size_rule, ..SharingOptions::default()
        };
        let plan = share_storage(&graph, &options).unwrap();
        let arena = plan.to_plan(&graph, 1).unwrap();
        prop_assert!(arena.lower_bound() <= arena.arena_bytes());
        let searched = SharingOptions { auto_search: true, match_range: 16, ..options.clone() };
        let searched = share_storage(&graph, &searched).unwrap();
        for match_range in [1, 2, 4, 8, 16] {
            let single = SharingOptions { match_range, ..options.clone() };
            let single = share_storage(&graph, &single).unwrap();
            prop_assert!(searched.allocated_bytes() <= single.allocated_bytes());
        }
    }

    /// A corrupted plan is refused, unless what it says is still right.
    #[test]
    fn row_49_two_values_that_live_together_in_one_block_are_refused(
        graph in graphs(16), pick in any::<(prop::sample::Index, prop::sample::Index)>(),
    ) {
        let produced: Vec<ValueId> = (0..graph.values().len())
            .map(ValueId::new)
            .filter(|&value| graph.producer(value).is_some() && graph.value(value).bytes() > 0)
            .collect();
        prop_assume!(produced.len() > 1);
        let (first, second) = (*pick.0.get(&produced), *pick.1.get(&produced));
        prop_assume!(first != second);
        let mut assigned: Vec<_> = graph.values().iter().map(|_| Storage::Unassigned).collect();
        (assigned[first.index()], assigned[second.index()]) = (Storage::Block(0), Storage::Block(0));
        let options = SharingOptions { assigned: Some(assigned), ..SharingOptions::default() };
        let plan = share_storage(&graph, &options).unwrap();
        let live = arenaplan::Lifetimes::new(&graph, graph.order(), false);
        let together = live.of(first).unwrap().overlaps(live.of(second).unwrap());
        prop_assert_eq!(plan.to_plan(&graph, 1).is_err(), together);
    }
}

#[test]
fn sizes_past_any_memory_are_refused() {
    let mut sketch = Sketch::new();
    let x = sketch.input("x", 1);
    let large = arenaplan::MAX_BYTES;
    let a = sketch.node("a", &[x], large);
    let b = sketch.node("b", &[a, x], large);
    let graph = sketch.build(&[a, b]);
    let refused = share_storage(&graph, &SharingOptions::default());
    assert_eq!(refused.unwrap_err().kind(), "SizeOverflow");
    let refused = share_storage(&graph, &SharingOptions::nnvm());
    assert_eq!(refused.unwrap_err().kind(), "SizeOverflow");
}

#[test]
fn row_23_a_block_at_run_time_is_as_large_as_its_largest_value_and_in_one_space() {
    use arenaplan::{Alignment, StorageBlocks, StorageEntry};
    let graph = branches();
    let plan = share_storage(&graph, &SharingOptions::default()).unwrap();
    let entries = |spaces: fn(usize) -> usize| -> Vec<StorageEntry> {
        let values = graph.values().iter().zip(plan.storages()).enumerate();
        values
            .filter_map(|(index, (value, storage))| {
                let space = SpaceId::new(spaces(index));
                Some(StorageEntry { block: storage.block()?, bytes: value.bytes(), space })
            })
            .collect()
    };
    let alignment = Alignment::new(64).unwrap();
    let blocks = StorageBlocks::new(entries(|_| 0), alignment).unwrap();
    assert_eq!(blocks.allocated_bytes(), plan.allocated_bytes());
    assert_eq!(blocks.value(0).unwrap().as_ptr() as usize % 64, 0);
    assert!(blocks.value(99).is_none());
    let refused = StorageBlocks::new(entries(|index| index % 2), alignment);
    assert_eq!(refused.unwrap_err().kind(), "InvalidBuffer");
}
