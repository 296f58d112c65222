//! What holds for every graph.

use arenaplan_classic::incremental::{
    AllocationType, IncrementalGraph, IncrementalNode, IncrementalOptions, IncrementalPlanner,
    IncrementalValue, SharePair,
};
use proptest::prelude::*;

use crate::incremental::{Ours, options, sketch};

/// One node of a random graph, as choices that are made to fit when it is built.
type RandomNode = (Vec<prop::sample::Index>, Vec<u64>, u8, Option<u64>);

pub fn random_graphs() -> impl Strategy<Value = IncrementalGraph> {
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
pub fn replay(
    graph: &IncrementalGraph,
    planner: &mut IncrementalPlanner,
    ranges: &[usize],
) -> Result<(), String> {
    let mut memory: Vec<u32> = Vec::new();
    let mut contents: Vec<u32> = (0..u32::try_from(graph.values.len()).unwrap()).collect();
    // Persistent values are in an arena of their own, where nothing is shared.
    let span = |planner: &IncrementalPlanner, value: u32| {
        let place = planner.place(value).filter(|place| !place.persistent)?;
        Some(place.span.offset as usize..place.span.end() as usize)
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
    let inputs = planner.options().preserve_inputs.then_some(&graph.inputs);
    for &value in graph.outputs.iter().chain(inputs.into_iter().flatten()).flatten() {
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
