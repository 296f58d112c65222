//! What holds for every graph.

use arenaplan::graph::InPlace;
use arenaplan::{DType, Effects, Node, ValueId, ValueKind};
use arenaplan_classic::sharing::{SharingOptions, SizeRule, Storage, share_storage};
use proptest::prelude::*;

use crate::graphs::{Sketch, graphs};
use crate::planners::ideal_planner;
use crate::sharing::{Net, P, nnvm};

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

    /// Offsets never need more bytes than blocks do, and the bound says how many less.
    #[test]
    fn row_50_the_default_planner_is_never_worse_than_blocks(
        graph in graphs(24), match_range in 0_u64..40, num_temp in 1_u32..4,
    ) {
        let plan = ideal_planner().alignment(1).plan(&graph).unwrap();
        prop_assert!(plan.lower_bound() <= plan.arena_bytes());
        for options in [SharingOptions::default(), SharingOptions::nnvm()] {
            let options = SharingOptions { match_range, num_temp, ..options };
            // NNVM's may be wrong: then it is no plan.
            if let Ok(blocks) = share_storage(&graph, &options).unwrap().to_plan(&graph, 1) {
                prop_assert!(plan.arena_bytes() <= blocks.arena_bytes());
            }
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
        let live = arenaplan::liveness::Lifetimes::new(&graph, graph.order(), false);
        let together = live.of(first).unwrap().overlaps(live.of(second).unwrap());
        prop_assert_eq!(plan.to_plan(&graph, 1).is_err(), together);
    }
}

#[test]
fn sizes_past_any_memory_are_refused() {
    let mut sketch = Sketch::new();
    let x = sketch.input("x", 1);
    let large = arenaplan::base::MAX_BYTES;
    let a = sketch.node("a", &[x], large);
    let b = sketch.node("b", &[a, x], large);
    let graph = sketch.build(&[a, b]);
    let refused = share_storage(&graph, &SharingOptions::default());
    assert_eq!(refused.unwrap_err().kind(), "SizeOverflow");
    let refused = share_storage(&graph, &SharingOptions::nnvm());
    assert_eq!(refused.unwrap_err().kind(), "SizeOverflow");
}
