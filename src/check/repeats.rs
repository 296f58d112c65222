//! Nodes that run in several steps.

use alloc::{format, vec, vec::Vec};

use crate::base::{NodeId, Result, quoted};
use crate::check::mismatch;
use crate::check::unit::Unit;
use crate::graph::{Graph, ValueKind};

/// Checks the nodes that run in several steps, and that a step reads from memory only values stored
/// by an earlier step.
///
/// Every run of such a node must make equal bytes. A graph never declares repetition for a node
/// that touches a state or has explicit dependencies. Other nodes read values whose bytes never
/// change; the replay shows that each run finds these bytes. No two steps of a plan end with the
/// same node, so the node's output has at most one place.
pub(super) fn check(graph: &Graph, units: &[Unit<'_>]) -> Result<()> {
    let refuse = |id: NodeId, reason: &str| {
        mismatch(format!("node {} {reason}", quoted(graph.node(id).name())))
    };
    let mut runs = vec![false; graph.nodes().len()];
    for unit in units {
        for (position, &id) in unit.nodes.iter().enumerate() {
            if unit.nodes[..position].contains(&id) {
                return refuse(id, "is twice in one step");
            }
            let is_again = core::mem::replace(&mut runs[id.index()], true);
            if is_again && !graph.node(id).effects().repeats {
                return refuse(id, "runs in several steps, and may not");
            }
        }
    }
    let mut stored = vec![false; graph.values().len()];
    for unit in units {
        for (_, value) in unit.reads() {
            let is_made = graph.value(value).kind() == ValueKind::Activation;
            if is_made && !stored[value.index()] {
                let (name, read) = (quoted(unit.name), quoted(graph.value(value).name()));
                return mismatch(format!("node {name} reads {read}, which is not in memory"));
            }
        }
        for (_, value) in unit.writes() {
            stored[value.index()] = true;
        }
    }
    Ok(())
}

/// Returns, by node, whether the node runs in several steps and ends none of them. The last nodes
/// of the steps then have the scratch memory.
pub(super) fn without_scratch(graph: &Graph, units: &[Unit<'_>]) -> Vec<bool> {
    let mut runs = vec![0_usize; graph.nodes().len()];
    for unit in units {
        unit.nodes.iter().for_each(|id| runs[id.index()] += 1);
    }
    for unit in units {
        runs[unit.last().index()] = 0;
    }
    runs.into_iter().map(|runs| runs > 1).collect()
}
