//! Outputs of steps in strips that overlap inputs: rows are written over input rows that no later
//! strip needs.

use alloc::collections::BTreeMap;
use alloc::{vec, vec::Vec};
use core::ops::Range;

use crate::base::{NodeId, ValueId};
use crate::graph::{Graph, Overlap};
use crate::plan::Strips;

/// Rows that a node makes for a strip.
struct StripCall {
    value: ValueId,
    made: Range<u64>,
    /// Inputs of the step that the node reads, each with the first row.
    reads: Vec<(ValueId, u64)>,
}

/// Returns the inputs that the output of a step in strips may overlap, each with the least distance.
///
/// `nodes` run in the strips, and `inputs` are the step's inputs by position. A row is read when
/// some output rows are written, or may be; the bytes from the row on must lie behind those.
pub(super) fn strip_overlaps(
    graph: &Graph,
    nodes: &[NodeId],
    strips: &Strips,
    inputs: &[Option<ValueId>],
) -> Vec<Overlap> {
    let sink = nodes.last().map(|&id| graph.node(id));
    let output = sink.and_then(|sink| sink.produces().next());
    let axis = sink.and_then(|sink| sink.effects().windows.first()).map(|window| window.axis);
    let (Some((_, output)), Some(axis)) = (output, axis) else { return Vec::new() };
    let Some((height, made)) = rows_of(graph, output, axis) else { return Vec::new() };
    let mut in_output = vec![output];
    for pair in strips.in_place.iter().rev() {
        if in_output.contains(&ValueId::from(pair.of)) {
            in_output.push(ValueId::from(pair.value));
        }
    }
    let mut done: BTreeMap<ValueId, u64> = BTreeMap::new();
    for (_, value) in nodes.iter().filter_map(|&id| graph.node(id).produces().next()) {
        done.insert(value, 0);
    }
    let mut distances: BTreeMap<ValueId, u64> = BTreeMap::new();
    let (mut start, mut written) = (0, 0);
    while start < height {
        let end = height.min(start.saturating_add(strips.rows.max(1)));
        for call in strip_calls(graph, nodes, &done, (output, start..end)) {
            if in_output.contains(&call.value) {
                written = call.made.end.max(written);
            }
            for (value, row) in call.reads {
                let Some((_, used)) = rows_of(graph, value, axis) else { continue };
                let ahead = written.saturating_mul(made).saturating_sub(row.saturating_mul(used));
                let known = distances.entry(value).or_default();
                *known = ahead.max(*known);
            }
            done.entry(call.value).and_modify(|done| *done = call.made.end.max(*done));
        }
        start = end;
    }
    let overlap = |(input, value): (usize, &Option<ValueId>)| {
        let value = value.filter(|&value| graph.value(value).is_planned())?;
        Some(Overlap { input, output: 0, distance: *distances.get(&value)? })
    };
    inputs.iter().enumerate().filter_map(overlap).collect()
}

/// Returns the calls that make some output rows, in order; `done` rows of values are there.
fn strip_calls(
    graph: &Graph,
    nodes: &[NodeId],
    done: &BTreeMap<ValueId, u64>,
    (output, rows): (ValueId, Range<u64>),
) -> Vec<StripCall> {
    let mut needs = BTreeMap::from([(output, rows)]);
    let mut calls = Vec::new();
    for &id in nodes.iter().rev() {
        let node = graph.node(id);
        let Some((_, value)) = node.produces().next() else { continue };
        let Some(need) = needs.get(&value).cloned() else { continue };
        let made = need.start.max(done[&value])..need.end;
        if made.is_empty() {
            continue;
        }
        let mut reads = Vec::new();
        for (at, read) in node.reads_bytes_of() {
            let window = node.effects().windows.iter().find(|window| window.input == at);
            let seen = window.map_or(0..u64::MAX, |window| {
                let rows = graph.value(read).shape().get(window.axis).copied();
                window.needs(made.clone(), rows.unwrap_or(0))
            });
            if done.contains_key(&read) {
                let known = needs.entry(read).or_insert_with(|| seen.clone());
                *known = known.start.min(seen.start)..known.end.max(seen.end);
            } else {
                reads.push((read, seen.start));
            }
        }
        calls.push(StripCall { value, made, reads });
    }
    calls.reverse();
    calls
}

/// Returns a value's rows and the bytes per row, if the rows lie one behind the other.
fn rows_of(graph: &Graph, value: ValueId, axis: usize) -> Option<(u64, u64)> {
    let value = graph.value(value);
    let rows = value.shape().get(axis).copied().filter(|&rows| rows > 0)?;
    let is_plain = value.shape()[..axis].iter().all(|&planes| planes == 1);
    (is_plain && value.bytes().is_multiple_of(rows)).then(|| (rows, value.bytes() / rows))
}
