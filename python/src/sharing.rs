//! Storage sharing and coloring.

use std::collections::{HashMap, HashSet};

use arenaplan::NodeId;
use arenaplan::base::quoted;
use arenaplan::choose::Fusion;
use arenaplan_classic::sharing::{self, AssignKind, SharingOptions, Storage};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::call::admit;
use crate::error::OrRaise;
use crate::getters::getters;
use crate::graph::{Graph, core_of};
use crate::plan::Plan;
use crate::results::{Assign, Block};

/// Bytes per result row.
const ROW_BYTES: usize = 128;

/// Storage sharing: the blocks of memory that values share.
#[pyclass(frozen, module = "arenaplan._core")]
#[derive(Debug)]
pub(crate) struct StoragePlan {
    pub(crate) inner: sharing::StoragePlan,
    spaces: Vec<String>,
}

/// Return the values in ``graph`` that can share blocks.
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
            .ok_or_else(|| PyValueError::new_err(format!("{code} is not a storage id")))
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
    let work = move |graph: &_| sharing::share_storage(graph, &options);
    let inner = graph.run(py, work)?.or_raise(py)?;
    let spaces = graph.inner.spaces().iter().map(|space| space.name().to_owned()).collect();
    Ok(StoragePlan { inner, spaces })
}

/// Return every node's color, at most ``num_temp`` colors, and the color count.
#[pyfunction]
pub(crate) fn color_nodes(
    py: Python<'_>,
    graph: &Graph,
    num_temp: u32,
) -> PyResult<(Vec<u32>, u32)> {
    let work = move |graph: &_| arenaplan_classic::coloring::color_nodes(graph, num_temp);
    let coloring = graph.run(py, work)?.or_raise(py)?;
    admit_rows(py, coloring.colors().len())?;
    Ok((coloring.colors().to_vec(), coloring.count()))
}

/// Return groups of nodes that can run as one, for given kinds of fusion.
#[pyfunction]
pub(crate) fn fuse(py: Python<'_>, graph: &Graph, kinds: Vec<String>) -> PyResult<Vec<Vec<u32>>> {
    let mut fusion = Fusion::default();
    for kind in kinds {
        let Some(switch) = fusion.switch(&kind) else {
            let names = Fusion::NAMES.join(", ");
            let reason = format!("{} is not one of {names}", quoted(&kind));
            let error = arenaplan::Error::InvalidOption { option: "kinds", reason };
            return Err(crate::error::raise(py, &error));
        };
        *switch = true;
    }
    let groups = graph.run(py, move |graph| arenaplan::choose::fuse(graph, fusion))?;
    admit_rows(py, graph.items())?;
    Ok(groups.into_iter().map(|group| group.into_iter().map(u32::from).collect()).collect())
}

/// Returns the assignment of every node, where the nodes in `elementwise` may write for others, or
/// nodes whose effects permit writing.
fn assigns(
    graph: &arenaplan::Graph,
    elementwise: Option<Vec<u32>>,
) -> Vec<Option<sharing::Assign>> {
    let Some(elementwise) = elementwise else {
        let by_effects = |node| sharing::is_elementwise(graph, node);
        return sharing::find_assigns(graph, by_effects);
    };
    let elementwise: HashSet<u32> = elementwise.into_iter().collect();
    sharing::find_assigns(graph, |node| elementwise.contains(&u32::from(node)))
}

/// Raises unless result rows can be allocated now.
fn admit_rows(py: Python<'_>, rows: usize) -> PyResult<()> {
    admit(py, rows.saturating_mul(ROW_BYTES))
}

/// Returns the assignments in a mapping from nodes to rows, or the assignments that are found.
fn given_assigns(
    py: Python<'_>,
    graph: &Graph,
    elementwise: Option<Vec<u32>>,
    given: Option<HashMap<u32, Py<Assign>>>,
) -> PyResult<Vec<Option<sharing::Assign>>> {
    let refuse = |reason: String| {
        let error = arenaplan::Error::InvalidOption { option: "assigns", reason };
        Err(crate::error::raise(py, &error))
    };
    let Some(given) = given else {
        return graph.run(py, move |graph| assigns(graph, elementwise));
    };
    if elementwise.is_some() {
        return refuse("elementwise nodes are not asked for where assignments are given".into());
    }
    admit_rows(py, graph.items())?;
    let mut found = vec![None; graph.inner.nodes().len()];
    for (node, assign) in given {
        let &Assign { direct, state, source, result } = assign.get();
        let id = NodeId::from(node);
        let place = found.get_mut(id.index());
        let known = place.is_some().then(|| graph.inner.assignment(id)).flatten();
        let (Some(place), Some(known)) = (place, known) else {
            return refuse(format!("node {node} is not an assignment"));
        };
        let row = [known.state, known.source, known.result].map(u32::from);
        if row != [state, source, result] {
            return refuse(format!("node {node} assigns other values"));
        }
        if direct && graph.inner.producer(known.source).is_none() {
            return refuse(format!("no node makes what node {node} assigns"));
        }
        let kind = if direct { AssignKind::Direct } else { AssignKind::Copy };
        let arenaplan::graph::Assignment { state, source, result } = known;
        *place = Some(sharing::Assign { kind, state, source, result });
    }
    Ok(found)
}

/// Return for each node the assignment, or None if the node is not an assignment.
#[pyfunction]
#[pyo3(signature = (graph, elementwise=None))]
pub(crate) fn find_assigns(
    py: Python<'_>,
    graph: &Graph,
    elementwise: Option<Vec<u32>>,
) -> PyResult<Vec<Option<Assign>>> {
    let assigns = graph.run(py, move |graph| assigns(graph, elementwise))?;
    admit_rows(py, assigns.len())?;
    Ok(assigns.into_iter().map(|found| found.map(Assign::from)).collect())
}

/// Return the nodes that every node must run after, so that states change in the order in which
/// the nodes were added.
#[pyfunction]
#[pyo3(signature = (graph, elementwise=None))]
pub(crate) fn order_mutations(
    py: Python<'_>,
    graph: &Graph,
    elementwise: Option<Vec<u32>>,
) -> PyResult<Vec<Vec<u32>>> {
    let work = move |graph: &_| sharing::order_mutations(graph, &assigns(graph, elementwise));
    let ordered = graph.run(py, work)?.or_raise(py)?;
    admit_rows(py, graph.items())?;
    let after = ordered.nodes().iter().map(arenaplan::Node::control_dependencies);
    Ok(after.map(|nodes| nodes.iter().map(|&node| node.into()).collect()).collect())
}

getters! { StoragePlan
    /// Bytes of all blocks except the caller's.
    allocated_bytes: u64 = |it| it.inner.allocated_bytes();

    /// Count of results without storage.
    not_allocated: usize = |it| it.inner.not_allocated();

    /// Match range of the pass that was kept.
    match_range: u64 = |it| it.inner.match_range();
}

#[pymethods]
impl StoragePlan {
    /// Block by value; -1 unassigned, -2 external, -3 dynamic.
    #[getter]
    fn storage_ids(&self, py: Python<'_>) -> PyResult<Vec<i64>> {
        admit_rows(py, self.inner.storages().len())?;
        Ok(self.inner.storages().iter().map(|storage| storage.code()).collect())
    }

    /// Input whose block each value took over, by position; -1 none, -2 without readers.
    #[getter]
    fn in_place_index(&self, py: Python<'_>) -> PyResult<Vec<i64>> {
        admit_rows(py, self.inner.taken_from().len())?;
        Ok(self.inner.taken_from().iter().map(|taken| taken.code()).collect())
    }

    /// The blocks, by number.
    #[getter]
    fn blocks(&self, py: Python<'_>) -> PyResult<Vec<Block>> {
        admit_rows(py, self.inner.blocks().len())?;
        let space = |index: usize| self.spaces.get(index).cloned().unwrap_or_default();
        let blocks = self.inner.blocks().iter();
        let row = |block: &sharing::Block| Block {
            bytes: block.bytes,
            space: space(block.space.index()),
        };
        Ok(blocks.map(row).collect())
    }

    /// Color by node; None with one color.
    #[getter]
    fn colors(&self, py: Python<'_>) -> PyResult<Option<Vec<u32>>> {
        let Some(coloring) = self.inner.coloring() else { return Ok(None) };
        admit_rows(py, coloring.colors().len())?;
        Ok(Some(coloring.colors().to_vec()))
    }

    /// Return the arena plan that has the blocks one behind the other, checked.
    #[pyo3(signature = (graph: "object", *, alignment))]
    fn to_plan(&self, py: Python<'_>, graph: &Bound<'_, PyAny>, alignment: u64) -> PyResult<Plan> {
        let graph = core_of(graph)?;
        let graph = graph.get();
        admit_rows(py, graph.items())?;
        let plan = self.inner.clone();
        let inner = graph.run(py, move |graph| plan.to_plan(graph, alignment))?;
        Ok(inner.or_raise(py)?.into())
    }

    /// Return the plan with blocks for inputs, constants and states, and with assignments tied to
    /// states.
    ///
    /// ``assigns`` is a result of :func:`arenaplan.classic.find_assigns`, for this graph or for the
    /// graph from which :func:`arenaplan.classic.order_mutations` made this graph. Without
    /// ``assigns``, assignments are found, where nodes in ``elementwise`` may write an assignment's
    /// state themselves; if that is None, the effects of the nodes decide.
    ///
    /// Raises
    /// ------
    /// InvalidOption
    ///     If a value that a node makes has no block, or ``assigns`` is for another graph.
    #[pyo3(signature = (graph: "object", elementwise=None, *, assigns=None))]
    fn decorate(
        &self,
        py: Python<'_>,
        graph: &Bound<'_, PyAny>,
        elementwise: Option<Vec<u32>>,
        assigns: Option<HashMap<u32, Py<Assign>>>,
    ) -> PyResult<Self> {
        let graph = core_of(graph)?;
        let graph = graph.get();
        let assigns = given_assigns(py, graph, elementwise, assigns)?;
        admit_rows(py, graph.items())?;
        let plan = self.inner.clone();
        let inner = graph.run(py, move |graph| plan.decorate(graph, &assigns))?;
        Ok(Self { inner: inner.or_raise(py)?, spaces: self.spaces.clone() })
    }

    fn __repr__(&self) -> String {
        let (blocks, bytes) = (self.inner.blocks().len(), self.inner.allocated_bytes());
        format!("StoragePlan({blocks} blocks, {bytes} bytes)")
    }
}
