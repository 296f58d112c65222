//! Storage layouts and parameter blobs, on which the Python package builds its pool.

use std::collections::BTreeMap;

use arenaplan::base::quoted;
use arenaplan::{DType, Error};
use arenaplan_classic::sharing::Block;
use arenaplan_classic::storage::{self, StorageEntry, Tensor};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;

use crate::arena::Arena;
use crate::error::{OrRaise, raise_named};
use crate::graph::Graph;
use crate::sharing::StoragePlan;

/// Divisor for every block's address in bytes.
const ALIGNMENT: u64 = 64;

/// `(name, shape, dtype, storage id, device number)` of a value.
type EntryRow = (String, Vec<i64>, String, i64, u32);

/// `(op, name, inputs, attributes, after)` of a node; inputs are `(node, output, version)`.
type StorageRow = (String, String, Vec<(usize, usize, u64)>, BTreeMap<String, String>, Vec<usize>);

/// Names, blocks and nodes of a planned graph, without memory.
#[pyclass(frozen, module = "arenaplan._core")]
#[derive(Debug)]
pub(crate) struct StorageLayout {
    inner: storage::StorageLayout,
}

/// Returns the type called `dtype`, or an exception that names the value.
fn read_dtype(py: Python<'_>, dtype: &str, what: impl Fn() -> String) -> PyResult<DType> {
    dtype.parse().map_err(|_| {
        let message = format!("{} has type {}, which has no code", what(), quoted(dtype));
        raise_named(py, "StorageError", message)
    })
}

/// Reads a value.
fn read_entry(py: Python<'_>, row: EntryRow) -> PyResult<StorageEntry> {
    let (name, shape, dtype, block, space) = row;
    let refuse = |reason: String| {
        let message = format!("value {} {reason}", quoted(&name));
        raise_named(py, "StorageError", message)
    };
    let block = u32::try_from(block).map_err(|_| refuse(format!("has no storage: {block}")))?;
    let dims: Result<Vec<u64>, _> = shape.iter().map(|&dim| u64::try_from(dim)).collect();
    let dims = dims.map_err(|_| refuse(format!("has the shape {shape:?}")))?;
    let dtype = read_dtype(py, &dtype, || format!("value {}", quoted(&name)))?;
    Ok(StorageEntry { name, dtype, shape: dims, block, space: space.into() })
}

#[pymethods]
impl StorageLayout {
    /// Check values that no node makes; inputs and outputs by name.
    #[new]
    fn new(
        py: Python<'_>,
        entries: Vec<EntryRow>,
        inputs: Vec<String>,
        outputs: Vec<String>,
    ) -> PyResult<Self> {
        let entries: PyResult<Vec<_>> =
            entries.into_iter().map(|row| read_entry(py, row)).collect();
        let entries = entries?;
        let positions: std::collections::HashMap<&str, usize> =
            entries.iter().enumerate().map(|(at, entry)| (entry.name.as_str(), at)).collect();
        let position = |name: String| {
            positions.get(name.as_str()).copied().ok_or_else(|| {
                let value = quoted(&name);
                let error = Error::UndefinedValue { user: "the caller".into(), value };
                crate::error::raise(py, &error)
            })
        };
        let inputs = inputs.into_iter().map(position).collect::<PyResult<_>>()?;
        let outputs = outputs.into_iter().map(position).collect::<PyResult<_>>()?;
        let inner = storage::StorageLayout::new(entries, inputs, outputs).or_raise(py)?;
        Ok(Self { inner })
    }

    /// Return the layout of ``graph`` under ``plan``.
    #[staticmethod]
    fn from_plan(py: Python<'_>, graph: &Graph, plan: &StoragePlan) -> PyResult<Self> {
        let make = || storage::StorageLayout::from_plan(&graph.inner, &plan.inner);
        Ok(Self { inner: py.detach(make).or_raise(py)? })
    }

    /// Return the layout of a graph in a graph runtime's JSON form.
    #[staticmethod]
    fn from_json(py: Python<'_>, text: &str) -> PyResult<Self> {
        let inner = py.detach(|| storage::StorageLayout::from_json(text)).or_raise(py)?;
        Ok(Self { inner })
    }

    /// Return the graph that the layout was made for; values named in ``parameters`` are constants.
    fn to_graph(&self, py: Python<'_>, name: &str, parameters: Vec<String>) -> PyResult<Graph> {
        let parameters: Vec<&str> = parameters.iter().map(String::as_str).collect();
        let graph = py.detach(|| self.inner.to_graph(name, &parameters)).or_raise(py)?;
        Ok(Graph { inner: std::sync::Arc::new(graph) })
    }

    /// Return the layout with more attributes, for nodes by the name of the first result.
    fn with_attributes(&self, attributes: Vec<(String, BTreeMap<String, String>)>) -> Self {
        Self { inner: self.inner.clone().with_attributes(attributes) }
    }

    /// Return the JSON form for graph runtimes.
    fn to_json(&self, py: Python<'_>) -> String {
        py.detach(|| self.inner.to_json())
    }

    /// ``(name, shape, dtype, storage id, device number)`` by value.
    #[getter]
    fn entries(&self) -> Vec<(String, Vec<u64>, &'static str, u32, u32)> {
        let row = |entry: &StorageEntry| {
            let space = u32::from(entry.space);
            (entry.name.clone(), entry.shape.clone(), entry.dtype.name(), entry.block, space)
        };
        self.inner.entries().iter().map(row).collect()
    }

    /// ``(op, name, inputs, attributes, after)`` by node, with inputs as ``(node, output,
    /// version)``.
    #[getter]
    fn nodes(&self) -> Vec<StorageRow> {
        let row = |node: &storage::StorageNode| {
            let inputs = node.inputs.iter().map(|it| (it.node, it.output, it.version)).collect();
            let (op, name) = (node.op.clone(), node.name.clone());
            (op, name, inputs, node.attributes.clone(), node.after.clone())
        };
        self.inner.nodes().iter().map(row).collect()
    }

    /// Value names that the caller supplies.
    #[getter]
    fn inputs(&self) -> Vec<String> {
        self.names(self.inner.inputs())
    }

    /// Value names that the caller receives.
    #[getter]
    fn outputs(&self) -> Vec<String> {
        self.names(self.inner.outputs())
    }

    /// Raise unless an input with this name, type and shape exists.
    fn check_input(
        &self,
        py: Python<'_>,
        name: &str,
        dtype: &str,
        shape: Vec<u64>,
    ) -> PyResult<()> {
        self.inner.input(name).or_raise(py)?;
        let dtype = read_dtype(py, dtype, || format!("the array for input {}", quoted(name)))?;
        self.inner.fitting_input(name, dtype, &shape).or_raise(py).map(drop)
    }

    /// Return ``(storage id, device number, memory)`` for every block, the largest first; memory is
    /// a position in ``free``, which has ``(bytes, device number)`` for reusable blocks, or a new
    /// arena.
    fn allocate(&self, py: Python<'_>, free: Vec<(u64, u32)>) -> PyResult<Vec<(u32, u32, Memory)>> {
        let block = |(bytes, space): (u64, u32)| Block { bytes, space: space.into() };
        let free: Vec<Block> = free.into_iter().map(block).collect();
        let mut rows = Vec::new();
        for (number, found) in self.inner.reuse(&free) {
            let Block { bytes, space } = self.inner.blocks()[&number];
            let memory = match found {
                Some(position) => Memory::Free(position),
                None => Memory::New(Arena::zeroed(py, bytes, ALIGNMENT)?),
            };
            rows.push((number, space.into(), memory));
        }
        Ok(rows)
    }
}

impl StorageLayout {
    fn names(&self, positions: &[usize]) -> Vec<String> {
        let entries = self.inner.entries();
        positions.iter().map(|&position| entries[position].name.clone()).collect()
    }
}

/// A block's memory.
#[derive(IntoPyObject)]
pub(crate) enum Memory {
    Free(usize),
    New(Arena),
}

/// Return a parameter blob with ``(name, dtype, shape, bytes)`` rows.
#[pyfunction]
pub(crate) fn save_params(
    py: Python<'_>,
    params: Vec<(String, String, Vec<u64>, PyBackedBytes)>,
) -> PyResult<Bound<'_, PyBytes>> {
    let mut tensors = Vec::with_capacity(params.len());
    for (name, dtype, shape, bytes) in &params {
        let dtype = read_dtype(py, dtype, || format!("parameter {}", quoted(name)))?;
        tensors.push(Tensor { name, dtype, shape: shape.clone(), bytes });
    }
    Ok(PyBytes::new(py, &storage::save_params(&tensors).or_raise(py)?))
}

/// `(name, dtype, shape, bytes)` of a parameter.
type ParamRow<'py> = (String, &'static str, Vec<u64>, Bound<'py, PyBytes>);

/// Return ``(name, dtype, shape, bytes)`` for every array in a parameter blob.
#[pyfunction]
pub(crate) fn load_params<'py>(py: Python<'py>, blob: &[u8]) -> PyResult<Vec<ParamRow<'py>>> {
    let params = storage::load_params(blob).or_raise(py)?;
    let row = |it: Tensor<'_>| {
        (it.name.to_owned(), it.dtype.name(), it.shape, PyBytes::new(py, it.bytes))
    };
    Ok(params.into_iter().map(row).collect())
}
