//! The graph, as Python hands it over: tables of tuples.

use std::collections::HashMap;

use arenaplan::{
    Alignment, Choice, Effects, Flow, GraphBuilder, InPlace, Node, NodeId, Overlap, Space, SpaceId,
    Value, ValueId, View, Whole, Workspace,
};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::error::OrRaise;

/// `(name, kind, dtype, shape, alignment, space)`
type ValueRow<'py> = (String, String, String, Vec<u64>, Option<u64>, Option<String>);
/// `(name, op, inputs, outputs, effects, after)`
type NodeRow<'py> =
    (String, String, Vec<Option<u32>>, Vec<Option<u32>>, Bound<'py, PyAny>, Vec<u32>);
/// `(bytes, cost)` of every choice, per workspace.
type WorkspaceRows = Vec<Vec<(u64, f64)>>;

/// A validated, immutable graph.
#[pyclass(frozen, module = "arenaplan._core")]
#[derive(Debug)]
pub(crate) struct Graph {
    pub(crate) inner: arenaplan::Graph,
}

#[pymethods]
impl Graph {
    /// Validate tables of values and nodes.
    #[new]
    fn new(
        py: Python<'_>,
        name: &str,
        values: Vec<ValueRow<'_>>,
        nodes: Vec<NodeRow<'_>>,
        outputs: Vec<u32>,
    ) -> PyResult<Self> {
        let mut builder = arenaplan::Graph::builder(name);
        let mut spaces = HashMap::new();
        for (name, kind, dtype, shape, alignment, space) in values {
            let dtype = named(dtype.parse(), &name).or_raise(py)?;
            let mut value =
                Value::new(name, kind.parse().or_raise(py)?, dtype, shape).or_raise(py)?;
            if let Some(bytes) = alignment {
                value = value.with_alignment(Alignment::new(bytes).or_raise(py)?);
            }
            if let Some(space) = space {
                value = value.with_space(space_called(space, &mut builder, &mut spaces));
            }
            builder.add_value(value);
        }
        for (name, op, inputs, outputs, effects, after) in nodes {
            let node = Node::new(name, op)
                .reads(inputs.into_iter().map(|id| id.map(ValueId::from)))
                .writes(outputs.into_iter().map(|id| id.map(ValueId::from)))
                .with_effects(read_effects(&effects)?)
                .after(after.into_iter().map(NodeId::from));
            builder.add_node(node);
        }
        for output in outputs {
            builder.add_output(ValueId::from(output));
        }
        let inner = py.detach(|| builder.build()).or_raise(py)?;
        Ok(Self { inner })
    }

    /// Return a copy in which some nodes, by index, have other workspaces, or others in place
    /// of them if their output overlaps an input: ``staging``.
    #[pyo3(signature = (workspaces, staging=Vec::new()))]
    fn with_workspaces(
        &self,
        py: Python<'_>,
        workspaces: Vec<(u32, WorkspaceRows)>,
        staging: Vec<(u32, WorkspaceRows)>,
    ) -> PyResult<Self> {
        let read = |(node, rows)| (NodeId::from(node), read_workspaces(rows));
        let inner = self.inner.with_workspaces(workspaces.into_iter().map(read)).or_raise(py)?;
        let inner = inner.with_staging(staging.into_iter().map(read)).or_raise(py)?;
        Ok(Self { inner })
    }

    /// SHA-256, in hexadecimal, of all that a plan depends on.
    #[getter]
    fn digest(&self, py: Python<'_>) -> String {
        py.detach(|| self.inner.digest())
    }

    /// Bytes of every value.
    #[getter]
    fn sizes(&self) -> Vec<u64> {
        self.inner.values().iter().map(Value::bytes).collect()
    }

    /// Indices of the nodes in execution order.
    #[getter]
    fn order(&self) -> Vec<u32> {
        self.inner.order().iter().map(|&node| node.into()).collect()
    }

    /// Whether the nodes were not in a topological order and had to be sorted.
    #[getter]
    fn was_sorted(&self) -> bool {
        self.inner.was_sorted()
    }
}

/// Makes an error about an element type name the value.
fn named<T>(result: arenaplan::Result<T>, name: &str) -> arenaplan::Result<T> {
    result.map_err(|error| match error {
        arenaplan::Error::UnsupportedDtype { dtype, .. } => arenaplan::Error::UnsupportedDtype {
            what: format!("value {}", arenaplan::quoted(name)),
            dtype,
        },
        other => other,
    })
}

/// Returns the space called `name`, new if there is none yet.
fn space_called(
    name: String,
    builder: &mut GraphBuilder,
    spaces: &mut HashMap<String, SpaceId>,
) -> SpaceId {
    if name == Space::default().name() {
        return SpaceId::from(0);
    }
    *spaces.entry(name).or_insert_with_key(|name| builder.add_space(Space::new(name.as_str())))
}

/// Reads an `arenaplan.graph.Effects`.
fn read_effects(effects: &Bound<'_, PyAny>) -> PyResult<Effects> {
    let py = effects.py();
    let in_place: Vec<(usize, usize, bool)> =
        effects.getattr(pyo3::intern!(py, "in_place"))?.extract()?;
    let views: Vec<(usize, usize, u64, String)> =
        effects.getattr(pyo3::intern!(py, "views"))?.extract()?;
    let flows: Vec<(usize, u64, Vec<usize>)> =
        effects.getattr(pyo3::intern!(py, "flows"))?.extract()?;
    let overlaps: Vec<(usize, usize, u64)> =
        effects.getattr(pyo3::intern!(py, "overlaps"))?.extract()?;
    let workspaces: WorkspaceRows = effects.getattr(pyo3::intern!(py, "workspaces"))?.extract()?;
    let views = views.into_iter().map(|(input, output, offset, of)| {
        let whole = match of.as_str() {
            "input" => Whole::Input,
            "output" => Whole::Output,
            _ => return Err(PyValueError::new_err("a view is of 'input' or of 'output'")),
        };
        Ok(View { input, output, offset, whole })
    });
    Ok(Effects {
        in_place: in_place
            .into_iter()
            .map(|(input, output, identity)| InPlace { input, output, identity })
            .collect(),
        views: views.collect::<PyResult<_>>()?,
        flows: flows
            .into_iter()
            .map(|(output, pieces, follows)| Flow { output, pieces, follows })
            .collect(),
        loads: effects.getattr(pyo3::intern!(py, "loads"))?.extract()?,
        overlaps: overlaps
            .into_iter()
            .map(|(input, output, distance)| Overlap { input, output, distance })
            .collect(),
        ignores: effects.getattr(pyo3::intern!(py, "ignores"))?.extract()?,
        mutates: effects.getattr(pyo3::intern!(py, "mutates"))?.extract()?,
        workspaces: read_workspaces(workspaces),
        staging: None,
    })
}

fn read_workspaces(rows: WorkspaceRows) -> Vec<Workspace> {
    rows.into_iter()
        .map(|choices| Workspace {
            choices: choices.into_iter().map(|(bytes, cost)| Choice { bytes, cost }).collect(),
            alignment: Alignment::BYTE,
        })
        .collect()
}
