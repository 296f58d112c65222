//! Laws of techniques and memories, on random graphs.

use std::collections::BTreeSet;

use arenaplan::pack::Space;
use arenaplan::plan::{OrderSearch, ShareRule, WorkspacePolicy};
use arenaplan::{Error, Graph, Memories, Plan, Planner, Technique, Techniques};
use proptest::prelude::*;

use crate::planners::ideal_planner;
use crate::{fusion, graphs, overlap};

/// Graphs of every kind: views, pieces and states; layers that fuse; layers that overlap.
fn any_graph() -> impl Strategy<Value = Graph> {
    prop_oneof![graphs::graphs(12), fusion::networks(5), overlap::networks(8)]
}

fn techniques() -> impl Strategy<Value = Techniques> {
    prop_oneof![
        2 => Just(Techniques::ALL),
        1 => (0_u8..128).prop_map(|bits| {
            let all = Technique::ALL.into_iter().enumerate();
            all.filter(|(index, _)| bits >> index & 1 == 1).map(|(_, one)| one).collect()
        }),
    ]
}

fn planner(techniques: Techniques, workspace: bool) -> Planner<'static> {
    let policy = if workspace { WorkspacePolicy::Auto } else { WorkspacePolicy::None };
    ideal_planner().alignment(8).optimize(techniques).workspace(policy)
}

fn memories(spaces: &[(&str, u64)]) -> Memories {
    let priced = spaces.iter().zip(0..);
    let space = |(&(name, capacity), cost): (&(&str, u64), u64)| {
        Space::new(name).with_capacity(capacity).with_cost(cost)
    };
    Memories::new(priced.map(space).collect()).unwrap()
}

fn uses(plan: &Plan) -> BTreeSet<Technique> {
    let mut used = BTreeSet::new();
    for step in plan.steps() {
        if !step.fused.is_empty() {
            used.insert(Technique::Fusion);
        }
        if step.shares.iter().any(|share| share.rule == ShareRule::Overlap) {
            used.insert(Technique::Overlap);
        }
    }
    if plan.search().is_some_and(|search| search.order != OrderSearch::Given) {
        used.insert(Technique::Order);
    }
    used
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// A single memory holds what the plan without memories needs, and is not used for more.
    #[test]
    fn a_memory_of_the_planned_size_is_large_enough(
        graph in any_graph(),
        techniques in techniques(),
        workspace in any::<bool>(),
        spare in 0..3_u64,
        cost in 0..2_u64,
    ) {
        let planner = planner(techniques, workspace);
        let bytes = planner.plan(&graph).unwrap().arena_bytes();
        for capacity in [bytes + spare, 1 << 40] {
            let only = Space::new("only").with_capacity(capacity).with_cost(cost);
            let only = Memories::new(vec![only]).unwrap();
            let plan = planner.memories(&only).plan(&graph).unwrap();
            prop_assert_eq!(plan.arena_bytes(), bytes);
            prop_assert!(plan.fits().is_ok());
        }
        // So does one of two, and then nothing has to be moved in the other.
        let two = memories(&[("fast", bytes), ("slow", 1 << 40)]);
        let plan = planner.memories(&two).plan(&graph).unwrap();
        prop_assert_eq!(plan.move_cost().map(|moved| moved.cost), Some(0));
        prop_assert!(plan.arena_bytes() <= bytes);
        let slow = memories(&[("fast", bytes / 3), ("slow", bytes)]);
        let plan = planner.memories(&slow).plan(&graph).unwrap();
        prop_assert!(plan.check(&graph).is_ok());
    }

    /// More techniques never cost bytes.
    #[test]
    fn a_superset_of_techniques_needs_no_more_bytes(
        graph in any_graph(),
        more in techniques(),
        fewer in techniques(),
        workspace in any::<bool>(),
    ) {
        let fewer: Techniques = fewer.iter().filter(|&one| more.contains(one)).collect();
        let bytes = |techniques| planner(techniques, workspace).plan(&graph).unwrap().arena_bytes();
        prop_assert!(bytes(more) <= bytes(fewer), "{} of {}: {} > {}", fewer, more, bytes(more), bytes(fewer));
    }

    /// No technique that was skipped is used, and none that was not asked for is skipped.
    #[test]
    fn a_skipped_technique_is_not_used(
        graph in any_graph(),
        techniques in techniques(),
        workspace in any::<bool>(),
        parallel_safe in any::<bool>(),
        split in any::<bool>(),
    ) {
        let planner = planner(techniques, workspace).parallel_safe(parallel_safe);
        let memories = memories(&[("fast", 300), ("slow", 1 << 40)]);
        let planner = if split { planner.memories(&memories) } else { planner };
        let plan = planner.plan(&graph).unwrap();
        let skipped = plan.search().unwrap().skipped;
        for technique in Technique::ALL {
            let is_skipped = skipped.contains(technique);
            prop_assert!(!is_skipped || techniques.contains(technique), "{technique}");
            prop_assert!(!is_skipped || !uses(&plan).contains(&technique), "{technique}");
            let needs_an_order = matches!(
                technique,
                Technique::Fusion | Technique::Order | Technique::Streaming | Technique::Overlap
            );
            if parallel_safe && needs_an_order {
                prop_assert_eq!(is_skipped, techniques.contains(technique), "{}", technique);
            }
        }
    }

    /// Where it is proven that no plan fits, none does, with whatever techniques.
    #[test]
    fn what_is_proven_not_to_fit_fits_with_no_techniques(
        graph in any_graph(),
        techniques in techniques(),
        fewer in techniques(),
        share in 20..100_u64,
    ) {
        let planner = planner(techniques, false);
        let bytes = planner.plan(&graph).unwrap().arena_bytes();
        let one = memories(&[("only", bytes * share / 100)]);
        match planner.memories(&one).plan(&graph) {
            Ok(plan) => prop_assert!(plan.fits().is_ok() && plan.arena_bytes() < bytes.max(1)),
            Err(Error::SpacesExceeded { proven, reason, .. }) => {
                prop_assert_eq!(proven, !reason.contains("none is excluded"));
                if proven {
                    let fewer = fewer.iter().filter(|&one| techniques.contains(one)).collect();
                    let other = planner.optimize(fewer).plan(&graph).unwrap();
                    prop_assert!(other.arena_bytes() > bytes * share / 100);
                    prop_assert!(planner.plan(&graph).unwrap().search().unwrap().floor <= bytes);
                }
            }
            Err(error) => return Err(TestCaseError::fail(error.to_string())),
        }
    }
}
