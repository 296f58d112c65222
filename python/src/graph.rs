//! The graph from Python: tuple tables.

use std::collections::HashMap;
use std::sync::Arc;

use arenaplan::base::{Alignment, Execution, quoted};
use arenaplan::choose::declared;
use arenaplan::graph::{Choice, Flow, InPlace, InnerSize, Overlap, View, Whole, Window, Workspace};
use arenaplan::pack::Space;
use arenaplan::{Effects, GraphBuilder, Node, NodeId, SpaceId, Value, ValueId};
use pyo3::exceptions::{PyOverflowError, PyTypeError, PyUnicodeEncodeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBool;

use crate::arguments::{Text, object_of};
use crate::attributes;
use crate::call::{self, admit};
use crate::costs::costed;
use crate::error::{OrRaise, raise, raise_named};
use crate::files;
use crate::getters::getters;
use crate::results::{Covers, Strips};
use crate::schedule::{Entry, Paging};

/// A value, as a tuple.
#[derive(FromPyObject)]
struct ValueRow<'py> {
    #[pyo3(item(0))]
    name: Bound<'py, PyAny>,
    #[pyo3(item(1))]
    kind: String,
    #[pyo3(item(2))]
    dtype: String,
    #[pyo3(item(3))]
    shape: Vec<u64>,
    #[pyo3(item(4))]
    alignment: Option<Bound<'py, PyAny>>,
    #[pyo3(item(5))]
    space: Option<Bound<'py, PyAny>>,
}

/// A node, as a tuple.
#[derive(FromPyObject)]
struct NodeRow<'py> {
    #[pyo3(item(0))]
    name: Bound<'py, PyAny>,
    #[pyo3(item(1))]
    op: Bound<'py, PyAny>,
    #[pyo3(item(2))]
    inputs: Bound<'py, PyAny>,
    #[pyo3(item(3))]
    outputs: Bound<'py, PyAny>,
    #[pyo3(item(4))]
    effects: Bound<'py, PyAny>,
    #[pyo3(item(5))]
    after: Bound<'py, PyAny>,
    #[pyo3(item(6))]
    domain: Bound<'py, PyAny>,
    #[pyo3(item(7))]
    version: i64,
    #[pyo3(item(8))]
    attributes: Bound<'py, PyAny>,
    #[pyo3(item(9))]
    cost: Bound<'py, PyAny>,
}

/// `(bytes, cost)` for every choice, per workspace.
type WorkspaceRows = Vec<Vec<(u64, f64)>>;

/// An `arenaplan.graph.Window`.
type WindowRow = (usize, usize, usize, u64, u64, i64, u64);

/// Memory for reading one value or node, in bytes.
const ROW_BYTES: usize = 1 << 10;

/// Return the JSON Schema for graph files.
#[pyfunction]
pub(crate) fn graph_schema() -> &'static str {
    arenaplan::format::graph_schema()
}

/// A validated, immutable graph.
#[pyclass(frozen, module = "arenaplan._core")]
#[derive(Debug)]
pub(crate) struct Graph {
    pub(crate) inner: Arc<arenaplan::Graph>,
}

impl Graph {
    /// Returns the number of values and nodes: the size of a call about the graph.
    pub(crate) fn items(&self) -> usize {
        self.inner.values().len() + self.inner.nodes().len()
    }

    /// Runs `work` on the graph, as [`call::run`].
    pub(crate) fn run<T: Send + 'static>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&arenaplan::Graph) -> T + Send + 'static,
    ) -> PyResult<T> {
        let graph = Arc::clone(&self.inner);
        call::run(py, self.items(), move |_, _| work(&graph))
    }
}

getters! { Graph
    /// The part of the model in the graph.
    covers: Covers = |it| Covers::of(it.inner.covers());

    /// Bytes by value.
    sizes: Vec<u64> = |it| it.inner.values().iter().map(Value::bytes).collect();

    /// Indices of the nodes in execution order.
    order: Vec<u32> = |it| it.inner.order().iter().map(|&node| node.into()).collect();

    /// Whether the nodes were not in a topological order and had to be sorted.
    was_sorted: bool = |it| it.inner.was_sorted();
}

#[pymethods]
impl Graph {
    /// Validate value and node tables.
    #[new]
    #[pyo3(signature = (name: "str", values: "Sequence[tuple[str, str, str, Sequence[int], int | None, str | None]]", nodes: "Sequence[tuple[str, str, Sequence[int | None], Sequence[int | None], object, Sequence[int], str, int, Mapping[str, object], int]]", outputs: "Sequence[int]", write_backs: "Sequence[tuple[int, int]]" = Vec::new(), memory: "str" = "arena", covers: "Covers | None" = None))]
    #[allow(clippy::too_many_arguments, reason = "one per table")]
    fn new(
        py: Python<'_>,
        name: &Bound<'_, PyAny>,
        values: &Bound<'_, PyAny>,
        nodes: &Bound<'_, PyAny>,
        outputs: &Bound<'_, PyAny>,
        write_backs: Vec<(u32, u32)>,
        memory: &str,
        covers: Option<Covers>,
    ) -> PyResult<Self> {
        let items = values.len()?.saturating_add(nodes.len()?);
        admit(py, items.saturating_mul(ROW_BYTES))?;
        let mut builder = arenaplan::Graph::builder(read_name(name, "the graph")?);
        builder.set_default_space(Space::new(memory));
        builder.set_covers(covers.map(|covers| covers.read()).unwrap_or_default());
        let mut spaces = HashMap::from([(memory.to_owned(), SpaceId::from(0))]);
        for row in values.try_iter()? {
            let ValueRow { name, kind, dtype, shape, alignment, space } = row?.extract()?;
            let name = read_name(&name, "a value")?;
            let dtype = named(dtype.parse(), &name).or_raise(py)?;
            let what = || format!("value {}", quoted(&name));
            let alignment = alignment.map(|bytes| read_alignment(&bytes, what)).transpose()?;
            let mut value =
                Value::new(name, kind.parse().or_raise(py)?, dtype, shape).or_raise(py)?;
            if let Some(alignment) = alignment {
                value = value.with_alignment(alignment);
            }
            if let Some(space) = space {
                let space = read_name(&space, "a space")?;
                value = value.with_space(space_called(space, &mut builder, &mut spaces));
            }
            builder.add_value(value);
        }
        for row in nodes.try_iter()? {
            let row: NodeRow<'_> = row?.extract()?;
            let name = read_name(&row.name, "a node")?;
            let op = read_name(&row.op, "an operator")?;
            let domain = read_name(&row.domain, "an operator set")?;
            let who = format!("node {}", quoted(&name));
            let node = Node::new(name, op)
                .with_operator_set(domain, u32::try_from(row.version).unwrap_or(u32::MAX))
                .with_attributes(attributes::read(&row.attributes)?)
                .reads(read_operands(&row.inputs, &who)?)
                .writes(read_operands(&row.outputs, &who)?)
                .with_effects(read_effects(&row.effects, &who)?)
                .with_cost(read_cost(&row.cost, &who)?)
                .after(read_indices(&row.after, &who, "node")?.into_iter().map(NodeId::from));
            builder.add_node(node);
        }
        for output in read_indices(outputs, "the list of outputs", "value")? {
            builder.add_output(ValueId::from(output));
        }
        for (value, into) in write_backs {
            builder.add_write_back(ValueId::from(value), ValueId::from(into));
        }
        let inner = call::run(py, items, move |_, _| builder.build())?.or_raise(py)?;
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Return a copy whose steps have the scratch memory that the costs of a backend declare: the
    /// graph that a plan with these steps is checked against.
    ///
    /// ``steps`` name the nodes that run as one, ``staged`` the last nodes of steps whose output is
    /// over an input at a distance, and ``strips`` says how steps run strip by strip.
    fn declared(
        &self,
        py: Python<'_>,
        costs: Py<PyAny>,
        steps: Vec<Vec<u32>>,
        staged: Vec<u32>,
        strips: Vec<Strips>,
    ) -> PyResult<Self> {
        let graph = Arc::clone(&self.inner);
        let nodes =
            |nodes: Vec<u32>| -> Vec<NodeId> { nodes.into_iter().map(NodeId::from).collect() };
        let steps: Vec<Vec<NodeId>> = steps.into_iter().map(nodes).collect();
        let staged = nodes(staged);
        let strips: Vec<_> = strips.iter().map(Strips::read).collect();
        let inner =
            costed(py, self.items(), Some(costs), None, None, move |_, costs| match costs {
                Some(costs) => declared(&graph, costs, &steps, &staged, &strips),
                None => Ok(arenaplan::Graph::clone(&graph)),
            })?;
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Return a copy in which some values, by index, lie at fixed offsets in bytes.
    fn with_pins(&self, py: Python<'_>, pins: Vec<(u32, u64)>) -> PyResult<Self> {
        let inner = self.run(py, move |graph| {
            graph.with_pins(pins.into_iter().map(|(value, at)| (ValueId::from(value), at)))
        })?;
        Ok(Self { inner: Arc::new(inner.or_raise(py)?) })
    }

    /// Return a copy in which nodes, by index, may have less inner memory: pairs of bytes and
    /// additional work, by falling bytes.
    fn with_inner_sizes(
        &self,
        py: Python<'_>,
        sizes: Vec<(u32, Vec<(u64, u64)>)>,
    ) -> PyResult<Self> {
        let size = |(bytes, extra_cost)| InnerSize { bytes, extra_cost };
        let rows = sizes
            .into_iter()
            .map(move |(node, sizes)| (NodeId::from(node), sizes.into_iter().map(size).collect()));
        let inner = self.run(py, move |graph| graph.with_inner_sizes(rows))?.or_raise(py)?;
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Return the graph in which each group of nodes, by index in execution order, is one node.
    /// Values keep their indices. Groups that end with a node in ``strips`` run strip by strip.
    ///
    /// Raises
    /// ------
    /// InvalidGroup
    ///     If nodes cannot run as one.
    #[pyo3(signature = (groups, strips=Vec::new()))]
    fn grouped(&self, py: Python<'_>, groups: Vec<Vec<u32>>, strips: Vec<u32>) -> PyResult<Self> {
        let read = |group: Vec<u32>| group.into_iter().map(NodeId::from).collect();
        let groups: Vec<Vec<NodeId>> = groups.into_iter().map(read).collect();
        let strips: Vec<NodeId> = strips.into_iter().map(NodeId::from).collect();
        let grouped = py.detach(|| self.inner.grouped_in_strips(&groups, &strips)).or_raise(py)?;
        Ok(Self { inner: Arc::new(grouped.graph) })
    }

    /// Return the graph in which each execution in a schedule is a node. The schedule lists nodes
    /// by index, and copied values.
    #[pyo3(signature = (schedule, paging=None))]
    fn scheduled(
        &self,
        py: Python<'_>,
        schedule: Vec<Entry>,
        paging: Option<Paging>,
    ) -> PyResult<Self> {
        let inner = self.run(py, move |graph| {
            let schedule: Vec<Execution> = schedule.into_iter().map(Execution::from).collect();
            let slow = paging.map(|paging| paging.to_space());
            graph.scheduled_with(&schedule, slow.as_ref())
        })?;
        Ok(Self { inner: Arc::new(inner.or_raise(py)?.graph) })
    }

    /// Return the graph as JSON text.
    fn to_json(&self, py: Python<'_>) -> PyResult<String> {
        let text = self.run(py, arenaplan::Graph::to_json)?;
        admit(py, text.len())?;
        Ok(text)
    }

    /// Return the graph that JSON text holds.
    #[staticmethod]
    fn from_json(py: Python<'_>, text: Text<'_>) -> PyResult<Self> {
        let graph = files::parse(py, text, arenaplan::Graph::from_json)?;
        Ok(Self { inner: Arc::new(graph) })
    }

    /// SHA-256, in hexadecimal, of everything that a plan depends on.
    #[getter]
    fn digest(&self, py: Python<'_>) -> String {
        py.detach(|| self.inner.digest())
    }
}

/// Returns the core's graph: for an `arenaplan.Graph`, its core graph.
pub(crate) fn core_of<'py>(graph: &Bound<'py, PyAny>) -> PyResult<Bound<'py, Graph>> {
    match graph.cast::<Graph>() {
        Ok(core) => Ok(core.clone()),
        Err(_) => Ok(object_of(graph)?.getattr("core")?.cast_into::<Graph>()?),
    }
}

/// Makes an error about an element type name the value.
fn named<T>(result: arenaplan::Result<T>, name: &str) -> arenaplan::Result<T> {
    result.map_err(|error| match error {
        arenaplan::Error::UnsupportedDtype { dtype, .. } => arenaplan::Error::UnsupportedDtype {
            what: format!("value {}", arenaplan::base::quoted(name)),
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
    *spaces.entry(name).or_insert_with_key(|name| builder.add_space(Space::new(name.as_str())))
}

/// Reads a name from the caller.
fn read_name(name: &Bound<'_, PyAny>, what: &str) -> PyResult<String> {
    name.extract().map_err(|error: PyErr| {
        if error.is_instance_of::<PyUnicodeEncodeError>(name.py()) {
            let shown = name.repr().map_or_else(|_| "?".into(), |name| name.to_string());
            let message = format!("{shown} cannot name {what}: a name must be encodable as UTF-8");
            return raise_named(name.py(), "InvalidName", message);
        }
        error
    })
}

/// Reads the alignment for `what`.
fn read_alignment(bytes: &Bound<'_, PyAny>, what: impl Fn() -> String) -> PyResult<Alignment> {
    let py = bytes.py();
    if bytes.is_instance_of::<PyBool>() {
        let message = format!("the alignment of {} is {bytes}, not a whole number", what());
        return Err(PyTypeError::new_err(message));
    }
    let out_of_range = |error: PyErr| {
        let message = format!("alignment {bytes} of {} is not a power of two up to 2^62", what());
        overflow_as(error, py, "InvalidAlignment", message)
    };
    Alignment::new(bytes.extract().map_err(out_of_range)?).map_err(|error| match error {
        arenaplan::pack::Error::InvalidAlignment { bytes, .. } => {
            raise(py, &arenaplan::Error::InvalidAlignment { what: what(), bytes })
        }
        other => raise(py, &other),
    })
}

/// Reads operands for `who`.
fn read_operands(rows: &Bound<'_, PyAny>, who: &str) -> PyResult<Vec<Option<ValueId>>> {
    let read = |operand: PyResult<Bound<'_, PyAny>>| {
        let operand = operand?;
        let present = (!operand.is_none()).then(|| read_index(&operand, who, "value"));
        Ok(present.transpose()?.map(ValueId::from))
    };
    rows.try_iter()?.map(read).collect()
}

/// Reads value or node indices.
fn read_indices(rows: &Bound<'_, PyAny>, who: &str, of: &str) -> PyResult<Vec<u32>> {
    rows.try_iter()?.map(|index| read_index(&index?, who, of)).collect()
}

/// Reads the index of a value or node that `who` names.
fn read_index(index: &Bound<'_, PyAny>, who: &str, of: &str) -> PyResult<u32> {
    let py = index.py();
    if index.is_instance_of::<PyBool>() {
        return Err(PyTypeError::new_err(format!("{who}: {index} is not the index of a {of}")));
    }
    index.extract().map_err(|error: PyErr| {
        if error.is_instance_of::<PyOverflowError>(py) {
            let message = format!("{who} names {of} {index}, which does not exist");
            return raise_named(py, "UndefinedValue", message);
        }
        PyTypeError::new_err(format!("{who}: {index} is not the index of a {of}"))
    })
}

/// Returns a typed error in place of an error about a number out of range.
fn overflow_as(error: PyErr, py: Python<'_>, name: &str, message: String) -> PyErr {
    if error.is_instance_of::<PyOverflowError>(py) {
        return raise_named(py, name, message);
    }
    error
}

/// Reads the cost for `who`.
fn read_cost(cost: &Bound<'_, PyAny>, who: &str) -> PyResult<u64> {
    let message = || format!("{who}: its cost {cost} is not a number of 64 bits");
    cost.extract().map_err(|error| overflow_as(error, cost.py(), "InvalidEffect", message()))
}

/// Reads one effect kind for `who`.
fn read_effect<'py, T: for<'a> FromPyObject<'a, 'py, Error = PyErr>>(
    effects: &Bound<'py, PyAny>,
    kind: &str,
    who: &str,
) -> PyResult<T> {
    let rows = effects.getattr(kind)?;
    rows.extract().map_err(|error: PyErr| {
        let shown = quoted(&rows.to_string());
        let message = format!("{who}: {kind} {shown} has a number that is negative or too large");
        overflow_as(error, effects.py(), "InvalidEffect", message)
    })
}

/// Reads an `arenaplan.graph.Effects`.
fn read_effects(effects: &Bound<'_, PyAny>, who: &str) -> PyResult<Effects> {
    let in_place: Vec<(usize, usize, bool)> = read_effect(effects, "in_place", who)?;
    let views: Vec<(usize, usize, u64, String)> = read_effect(effects, "views", who)?;
    let flows: Vec<(usize, u64, Vec<usize>)> = read_effect(effects, "flows", who)?;
    let overlaps: Vec<(usize, usize, u64)> = read_effect(effects, "overlaps", who)?;
    let windows: Vec<WindowRow> = read_effect(effects, "windows", who)?;
    let workspaces: WorkspaceRows = read_effect(effects, "workspaces", who)?;
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
        loads: read_effect(effects, "loads", who)?,
        overlaps: overlaps
            .into_iter()
            .map(|(input, output, distance)| Overlap { input, output, distance })
            .collect(),
        windows: windows
            .into_iter()
            .map(|(input, output, axis, extent, stride, before, scale)| Window {
                input,
                output,
                axis,
                extent,
                stride,
                before,
                scale,
            })
            .collect(),
        ignores: read_effect(effects, "ignores", who)?,
        mutates: read_effect(effects, "mutates", who)?,
        repeats: read_effect(effects, "repeats", who)?,
        pure: read_effect(effects, "pure", who)?,
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
