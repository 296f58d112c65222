//! Nodes that run in several steps.

use alloc::{format, vec, vec::Vec};

use crate::base::{NodeId, Result, ValueId, quoted};
use crate::check::mismatch;
use crate::check::unit::Unit;
use crate::graph::{Graph, ValueKind};

/// Checks the nodes that run in several steps, and that a step reads from memory only what an
/// earlier step put there.
///
/// Every run of such a node must make equal bytes. It reads values, whose bytes never change once
/// they were made, and no state; the replay shows that each of its runs finds those bytes. At most
/// one step ends with it, so that its output has one place or none.
pub(super) fn check(graph: &Graph, units: &[Unit<'_>]) -> Result<()> {
    let refuse = |id: NodeId, reason: &str| {
        mismatch(format!("node {} {reason}", quoted(graph.node(id).name())))
    };
    let mut runs = vec![0_usize; graph.nodes().len()];
    let mut ends = vec![false; graph.nodes().len()];
    for unit in units {
        for (position, &id) in unit.nodes.iter().enumerate() {
            if unit.nodes[..position].contains(&id) {
                return refuse(id, "is twice in one step");
            }
            runs[id.index()] += 1;
        }
        if core::mem::replace(&mut ends[unit.last().index()], true) {
            return refuse(unit.last(), "ends two steps");
        }
    }
    let is_state = |value: &ValueId| graph.value(*value).kind() == ValueKind::State;
    for id in (0..runs.len()).map(NodeId::new).filter(|id| runs[id.index()] > 1) {
        let node = graph.node(id);
        let effects = node.effects();
        let waits = graph.nodes().iter().any(|other| other.control_dependencies().contains(&id));
        if !effects.repeats {
            return refuse(id, "runs in several steps, and may not");
        }
        if node.inputs().iter().flatten().any(is_state) || !effects.mutates.is_empty() {
            return refuse(id, "runs in several steps, and touches a state");
        }
        if waits || !node.control_dependencies().is_empty() {
            return refuse(id, "runs in several steps, and must run before or after another one");
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

/// Returns, by node, whether it runs in several steps and ends none of them. The scratch memory of
/// the steps is then that of the nodes that end them.
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
