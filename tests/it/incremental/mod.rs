//! The incremental planner: what both generations of TensorFlow Lite's tests expect, and
//! where ours has to do better.

mod cases_2019;
mod cases_today;
mod laws;
mod ours;

use arenaplan::base::Alignment;
use arenaplan_classic::incremental::{
    AllocationType, IncrementalGraph, IncrementalMode, IncrementalNode, IncrementalOptions,
    IncrementalPlanner, IncrementalValue, SharePair,
};

pub use laws::{random_graphs, replay};

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
