//! Sharing: outputs that have an input's bytes.

use alloc::{vec, vec::Vec};

use crate::incremental::incremental_graph::{AllocationType, IncrementalGraph, at};

/// Operands beyond the third are never shared in TensorFlow Lite.
const LITERT_SHAREABLE_INPUTS: usize = 3;

/// TensorFlow Lite never overwrites values of up to four bytes: such a size often means that the
/// true size is not known yet.
const LITERT_SCALAR_BYTES: u64 = 4;

/// Returns for each value the value whose bytes it has in TensorFlow Lite.
///
/// `references` counts the uses of each value: reads, and all other uses.
pub(super) fn as_litert(graph: &IncrementalGraph, references: &[u32]) -> Vec<u32> {
    let mut roots = own_roots(graph);
    let is_input = flags(graph, graph.inputs.iter().flatten());
    let is_output = flags(graph, graph.outputs.iter().flatten());
    for node in &graph.nodes {
        let Some(output) = node.outputs.first().copied().flatten() else { continue };
        let qualifying = |pair: &&crate::incremental::SharePair| {
            if pair.output != 0 || pair.input >= LITERT_SHAREABLE_INPUTS {
                return false;
            }
            let Some(input) = node.inputs[pair.input] else { return false };
            let (from, to) = (graph.values[at(input)], graph.values[at(output)]);
            let intact = pair.unmodified
                || (from.bytes == to.bytes
                    && from.bytes > LITERT_SCALAR_BYTES
                    && references[at(input)] <= 1);
            let types = from.kind == to.kind || from.kind == AllocationType::Arena;
            intact && types && !is_input[at(input)] && !is_output[at(output)]
        };
        let mut pairs: Vec<_> = node.shares.iter().collect();
        pairs.sort_by_key(|pair| pair.input);
        let Some(pair) = pairs.into_iter().find(qualifying) else { continue };
        let Some(input) = node.inputs[pair.input] else { continue };
        let root = roots[at(input)];
        if pair.unmodified || references[at(root)] <= 1 {
            roots[at(output)] = root;
        }
    }
    roots
}

/// Returns for each value the value whose bytes it has. No bytes are overwritten that are read
/// later, under any name.
///
/// `ends` gives for each value the node until which the value itself is needed.
pub(super) fn safely(graph: &IncrementalGraph, births: &[Option<u32>], ends: &[u32]) -> Vec<u32> {
    let mut roots = own_roots(graph);
    let kept = graph.inputs.iter().flatten().chain(&graph.variables);
    let kept = flags(graph, kept);
    // For each root: the node until which any alias is needed, and the last node that added an
    // alias.
    let mut class_ends = ends.to_vec();
    let mut joined: Vec<Option<u32>> = vec![None; graph.values.len()];
    for (step, node) in (0_u32..).zip(&graph.nodes) {
        for pair in &node.shares {
            let (Some(input), Some(output)) = (node.inputs[pair.input], node.outputs[pair.output])
            else {
                continue;
            };
            let (from, to) = (graph.values[at(input)], graph.values[at(output)]);
            let root = roots[at(input)];
            let in_arena = from.kind == AllocationType::Arena && to.kind == AllocationType::Arena;
            let possible = in_arena
                && from.bytes == to.bytes
                && from.bytes > 0
                && !kept[at(root)]
                && !kept[at(output)]
                && births[at(root)].is_some_and(|birth| birth < step)
                && births[at(output)] == Some(step)
                && roots[at(output)] == output
                && joined[at(output)].is_none();
            // No value in these bytes may be read later, and now only in the elementwise way that
            // the node permits for this output.
            let elementwise = |position: usize| {
                let mut pairs = node.shares.iter();
                pairs.any(|other| other.output == pair.output && other.input == position)
            };
            let overwritable = || {
                class_ends[at(root)] <= step + 1
                    && node.inputs.iter().enumerate().all(|(position, operand)| {
                        operand.is_none_or(|operand| roots[at(operand)] != root)
                            || elementwise(position)
                    })
            };
            if possible && joined[at(root)] != Some(step) && (pair.unmodified || overwritable()) {
                roots[at(output)] = root;
                joined[at(root)] = Some(step);
                class_ends[at(root)] = class_ends[at(root)].max(ends[at(output)]);
            }
        }
    }
    roots
}

/// Returns every value as its own root.
fn own_roots(graph: &IncrementalGraph) -> Vec<u32> {
    (0_u32..).take(graph.values.len()).collect()
}

/// Returns for each value whether the value is in `members`.
fn flags<'a>(graph: &IncrementalGraph, members: impl Iterator<Item = &'a u32>) -> Vec<bool> {
    let mut flags = vec![false; graph.values.len()];
    members.for_each(|&member| flags[at(member)] = true);
    flags
}
