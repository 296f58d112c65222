//! Storage sharing and coloring.

use std::collections::HashSet;

use arenaplan::{Assign, AssignKind, SharingOptions, Storage};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::error::OrRaise;
use crate::graph::Graph;
use crate::plan::Plan;

/// Storage sharing: the blocks of memory that values share.
#[pyclass(frozen, module = "arenaplan._core")]
#[derive(Debug)]
pub(crate) struct StoragePlan {
    inner: arenaplan::StoragePlan,
    spaces: Vec<String>,
}

/// Return which values of ``graph`` can share blocks.
#[pyfunction]
#[pyo3(signature = (graph, *, match_range, auto_search, num_temp, size_rule, mode, parallel_safe, nodes, counts, assigned))]
#[allow(clippy::too_many_arguments, reason = "one per keyword of the Python function")]
pub(crate) fn share_storage(
    py: Python<'_>,
    graph: &Graph,
    match_range: u64,
    auto_search: bool,
    num_temp: u32,
    size_rule: &str,
    mode: &str,
    parallel_safe: bool,
    nodes: Option<(usize, usize)>,
    counts: Option<Vec<u32>>,
    assigned: Option<Vec<i64>>,
) -> PyResult<StoragePlan> {
    let storage = |code| {
        Storage::from_code(code)
            .ok_or_else(|| PyValueError::new_err(format!("{code} is no storage id")))
    };
    let options = SharingOptions {
        match_range,
        auto_search,
        num_temp,
        size_rule: size_rule.parse().or_raise(py)?,
        mode: mode.parse().or_raise(py)?,
        parallel_safe,
        nodes: nodes.map(|(start, stop)| start..stop),
        counts,
        assigned: assigned
            .map(|codes| codes.into_iter().map(storage).collect::<PyResult<Vec<_>>>())
            .transpose()?,
    };
    let inner = py.detach(|| arenaplan::share_storage(&graph.inner, &options)).or_raise(py)?;
    let spaces = graph.inner.spaces().iter().map(|space| space.name().to_owned()).collect();
    Ok(StoragePlan { inner, spaces })
}

/// Return the color of every node, at most ``num_temp`` colors.
#[pyfunction]
pub(crate) fn color_nodes(py: Python<'_>, graph: &Graph, num_temp: u32) -> PyResult<Vec<u32>> {
    let coloring = py.detach(|| arenaplan::color_nodes(&graph.inner, num_temp)).or_raise(py)?;
    Ok(coloring.colors().to_vec())
}

/// `(direct, state, source, result)` of an assignment.
type AssignRow = (bool, u32, u32, u32);

/// Returns the assignment of every node, where the nodes in `elementwise` may write for others.
fn assigns(graph: &Graph, elementwise: Vec<u32>) -> Vec<Option<Assign>> {
    let elementwise: HashSet<u32> = elementwise.into_iter().collect();
    arenaplan::find_assigns(&graph.inner, |node| elementwise.contains(&u32::from(node)))
}

/// Return ``(direct, state, source, result)`` of every node that is an assignment.
#[pyfunction]
pub(crate) fn find_assigns(
    py: Python<'_>,
    graph: &Graph,
    elementwise: Vec<u32>,
) -> Vec<Option<AssignRow>> {
    let row = |it: Assign| {
        let direct = it.kind == AssignKind::Direct;
        (direct, it.state.into(), it.source.into(), it.result.into())
    };
    let assigns = py.detach(|| assigns(graph, elementwise));
    assigns.into_iter().map(|found| found.map(row)).collect()
}

/// Return the nodes that every node must run after, so that states change in the order in which
/// the nodes were added.
#[pyfunction]
pub(crate) fn order_mutations(
    py: Python<'_>,
    graph: &Graph,
    elementwise: Vec<u32>,
) -> PyResult<Vec<Vec<u32>>> {
    let ordered = py
        .detach(|| arenaplan::order_mutations(&graph.inner, &assigns(graph, elementwise)))
        .or_raise(py)?;
    let after = ordered.nodes().iter().map(arenaplan::Node::control_dependencies);
    Ok(after.map(|nodes| nodes.iter().map(|&node| node.into()).collect()).collect())
}

#[pymethods]
impl StoragePlan {
    /// Block of every value, by index; -1 unassigned, -2 external, -3 dynamic.
    #[getter]
    fn storage_ids(&self) -> Vec<i64> {
        self.inner.storages().iter().map(|storage| storage.code()).collect()
    }

    /// Input whose block each value took over, by position; -1 none, -2 without readers.
    #[getter]
    fn in_place_index(&self) -> Vec<i64> {
        self.inner.taken_from().iter().map(|taken| taken.code()).collect()
    }

    /// Size of every block in bytes, and the name of its space.
    #[getter]
    fn blocks(&self) -> Vec<(u64, String)> {
        let space = |index: usize| self.spaces.get(index).cloned().unwrap_or_default();
        let blocks = self.inner.blocks().iter();
        blocks.map(|block| (block.bytes, space(block.space.index()))).collect()
    }

    /// Bytes of all blocks that are not the caller's.
    #[getter]
    fn allocated_bytes(&self) -> u64 {
        self.inner.allocated_bytes()
    }

    /// Number of results that got no storage.
    #[getter]
    fn not_allocated(&self) -> usize {
        self.inner.not_allocated()
    }

    /// Match range of the pass that was kept.
    #[getter]
    fn match_range(&self) -> u64 {
        self.inner.match_range()
    }

    /// Color of every node, by index; None with one color.
    #[getter]
    fn colors(&self) -> Option<Vec<u32>> {
        self.inner.coloring().map(|coloring| coloring.colors().to_vec())
    }

    /// Return the arena plan that has the blocks one behind the other, checked.
    #[pyo3(signature = (graph, *, alignment))]
    fn to_plan(&self, py: Python<'_>, graph: &Graph, alignment: u64) -> PyResult<Plan> {
        let inner = py.detach(|| self.inner.to_plan(&graph.inner, alignment)).or_raise(py)?;
        Ok(inner.into())
    }

    /// Return the plan with blocks for inputs, constants and states, assignments tied to
    /// their states; nodes in ``elementwise`` may write an assignment's state themselves.
    fn decorate(&self, py: Python<'_>, graph: &Graph, elementwise: Vec<u32>) -> PyResult<Self> {
        let assigns = assigns(graph, elementwise);
        let inner = self.inner.clone().decorate(&graph.inner, &assigns).or_raise(py)?;
        Ok(Self { inner, spaces: self.spaces.clone() })
    }

    fn __repr__(&self) -> String {
        let (blocks, bytes) = (self.inner.blocks().len(), self.inner.allocated_bytes());
        format!("StoragePlan({blocks} blocks, {bytes} bytes)")
    }
}
