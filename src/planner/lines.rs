//! Declares line buffers as scratch memory, for steps that run strip by strip.

use alloc::{vec, vec::Vec};

use crate::base::{Alignment, NodeId, Result, ValueId};
use crate::graph::{Choice, Graph, Workspace};
use crate::plan::Strips;

/// Returns a graph whose only scratch memory is line buffers.
pub(super) fn with_line_buffers(graph: &Graph, strips: &[(NodeId, Strips)]) -> Result<Graph> {
    let without = || (0..graph.nodes().len()).map(|node| (NodeId::new(node), Vec::new()));
    let lines = strips.iter().map(|(node, strips)| (*node, line_buffers(graph, strips)));
    // If a node has two entries, the later entry counts.
    graph.with_workspaces(without().chain(lines))?.with_staging(without())
}

/// Returns the memory for all line buffers of a step.
fn line_buffers(graph: &Graph, strips: &Strips) -> Vec<Workspace> {
    let (mut bytes, mut element) = (0_u64, 1);
    for line in &strips.buffers {
        let value = ValueId::from(line.value);
        let Some(known) = graph.values().get(value.index()) else { continue };
        let windows = graph.producer(value).map(|node| &graph.node(node).effects().windows);
        let axis = windows.and_then(|windows| windows.first()).map(|window| window.axis);
        let rows = axis.and_then(|axis| known.shape().get(axis)).copied().unwrap_or(0).max(1);
        let own = (known.bytes() / rows).saturating_mul(line.rows);
        bytes = bytes.max(line.offset.saturating_add(own));
        element = element.max(known.dtype().bits() / 8);
    }
    let alignment = Alignment::new(element.next_power_of_two()).unwrap_or_default();
    let choices = vec![Choice { bytes, cost: 0.0 }];
    if bytes == 0 { Vec::new() } else { vec![Workspace { choices, alignment }] }
}
