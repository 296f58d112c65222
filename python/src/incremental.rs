//! The incremental planner: tables of values and nodes in, arena views out.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use arenaplan::Error;
use arenaplan::base::Alignment;
use arenaplan_classic as classic;
use arenaplan_classic::incremental::{
    self, IncrementalGraph, IncrementalNode, IncrementalOptions, IncrementalValue, SharePair,
};
use pyo3::exceptions::{PyOverflowError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyMemoryView};

use crate::arena::{Holder, Lease, ViewableMemory, or_in_use};
use crate::arguments::{Arg, refused};
use crate::call::{self, admit};
use crate::error::{OrRaise, raise, raise_named};
use crate::graph::Graph;
use crate::results::{ArenaBytes, IncrementalPlacement};

/// `(inputs, outputs, temporaries, shares)`, shares as `(input, output, unmodified)`.
type IncrementalRow = (Vec<Option<u32>>, Vec<Option<u32>>, Vec<u32>, Vec<(usize, usize, bool)>);

/// Bytes per value or node in the planner's tables.
const ROW_BYTES: usize = 1 << 10;

/// Places the values in a graph whose sizes become known during a run.
#[pyclass(frozen, module = "arenaplan._core")]
#[derive(Debug)]
pub(crate) struct IncrementalPlanner {
    inner: Mutex<incremental::IncrementalPlanner>,
    /// Number of values and nodes, for the memory that a call may need.
    items: AtomicUsize,
    temporary: ViewableMemory,
    persistent: ViewableMemory,
    holder: Holder,
}

/// Reads a table of numbers, or raises an exception that names the permitted content.
fn read_table<'py, T: for<'a> FromPyObject<'a, 'py, Error = PyErr>>(
    table: &Bound<'py, PyAny>,
    name: &'static str,
) -> PyResult<T> {
    admit(table.py(), table.len().unwrap_or(0).saturating_mul(ROW_BYTES))?;
    table.extract().map_err(|error: PyErr| {
        if !error.is_instance_of::<PyOverflowError>(table.py()) {
            let wrong = error.is_instance_of::<PyTypeError>(table.py());
            return if wrong { refused(table, &T::INPUT_TYPE.to_string()) } else { error };
        }
        let reason = "a number is negative or too large; an operand left out is None".into();
        raise(table.py(), &Error::InvalidOption { option: name, reason })
    })
}

/// Returns the options that these keywords stand for.
fn read_options(
    py: Python<'_>,
    mode: &str,
    alignment: u64,
    preserve_inputs: bool,
    preserve_all: bool,
) -> PyResult<IncrementalOptions> {
    let alignment = Alignment::new(alignment).or_raise(py)?;
    let default = IncrementalOptions::default();
    Ok(IncrementalOptions {
        mode: mode.parse().or_raise(py)?,
        alignment,
        arena_alignment: default.arena_alignment.max(alignment),
        preserve_inputs,
        preserve_all,
    })
}

/// Reads a graph's tables.
fn read_graph(
    values: &Bound<'_, PyAny>,
    nodes: &Bound<'_, PyAny>,
    inputs: &Bound<'_, PyAny>,
    outputs: &Bound<'_, PyAny>,
    variables: Option<&Bound<'_, PyAny>>,
) -> PyResult<IncrementalGraph> {
    let py = values.py();
    let values: Vec<(u64, String)> = read_table(values, "values")?;
    let nodes: Vec<IncrementalRow> = read_table(nodes, "nodes")?;
    let variables = variables.map(|variables| read_table(variables, "variables"));
    let value = |(bytes, kind): (u64, String)| {
        Ok(IncrementalValue { bytes, kind: kind.parse().or_raise(py)? })
    };
    let share = |(input, output, unmodified)| SharePair { input, output, unmodified };
    let node = |(inputs, outputs, temporaries, shares): IncrementalRow| IncrementalNode {
        inputs,
        outputs,
        temporaries,
        shares: shares.into_iter().map(share).collect(),
    };
    Ok(IncrementalGraph {
        values: values.into_iter().map(value).collect::<PyResult<_>>()?,
        nodes: nodes.into_iter().map(node).collect(),
        inputs: read_table(inputs, "inputs")?,
        outputs: read_table(outputs, "outputs")?,
        variables: variables.transpose()?.unwrap_or_default(),
    })
}

/// Returns the count of values and nodes.
fn items_of(graph: &IncrementalGraph) -> usize {
    graph.values.len().saturating_add(graph.nodes.len())
}

impl IncrementalPlanner {
    /// Returns a planner for `graph` whose arenas can be viewed.
    fn make(
        py: Python<'_>,
        graph: IncrementalGraph,
        options: IncrementalOptions,
    ) -> PyResult<Self> {
        let (temporary, persistent) = (ViewableMemory::default(), ViewableMemory::default());
        let allocators = (Box::new(temporary.clone()), Box::new(persistent.clone()));
        let items = items_of(&graph);
        let inner = call::run(py, items, move |_, _| {
            let (first, second) = allocators;
            incremental::IncrementalPlanner::with_allocators(graph, options, first, second)
        })?;
        let (inner, items) = (Mutex::new(inner.or_raise(py)?), AtomicUsize::new(items));
        Ok(Self { inner, items, temporary, persistent, holder: Holder::default() })
    }

    /// Calls `work` with the planner, which may have to move the arenas' memory.
    fn grow(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut incremental::IncrementalPlanner) -> classic::Result<()>,
    ) -> PyResult<()> {
        self.admit_tables(py)?;
        let result = self.with(py, |planner| Ok(work(planner)))?;
        let refused = [&self.temporary, &self.persistent].map(ViewableMemory::was_refused);
        or_in_use(py, refused.contains(&true), result)
    }

    /// Raises unless tables for all values and nodes can be allocated now.
    fn admit_tables(&self, py: Python<'_>) -> PyResult<()> {
        admit(py, self.items.load(Ordering::Relaxed).saturating_mul(ROW_BYTES))
    }

    /// Calls `work` with the planner.
    fn with<T>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut incremental::IncrementalPlanner) -> classic::Result<T>,
    ) -> PyResult<T> {
        let mut planner = self.inner.lock().map_err(|_| {
            raise_named(py, "InternalError", "the planner's lock is poisoned".into())
        })?;
        work(&mut planner).or_raise(py)
    }
}

#[pymethods]
impl IncrementalPlanner {
    /// Plan lifetimes; nothing is placed yet.
    #[new]
    #[pyo3(signature = (values: "Sequence[tuple[int, str]]", nodes: "Sequence[tuple[Sequence[int | None], Sequence[int | None], Sequence[int], Sequence[tuple[int, int, bool]]]]", inputs: "Sequence[int | None]", outputs: "Sequence[int | None]", variables: "Sequence[int] | None"=None, *, mode=Arg("default"), alignment=Arg(64), preserve_inputs=Arg(true), preserve_all=Arg(false)))]
    #[allow(clippy::too_many_arguments, reason = "one per keyword of the Python class")]
    fn new(
        py: Python<'_>,
        values: &Bound<'_, PyAny>,
        nodes: &Bound<'_, PyAny>,
        inputs: &Bound<'_, PyAny>,
        outputs: &Bound<'_, PyAny>,
        variables: Option<&Bound<'_, PyAny>>,
        mode: Arg<&str>,
        alignment: Arg<u64>,
        preserve_inputs: Arg<bool>,
        preserve_all: Arg<bool>,
    ) -> PyResult<Self> {
        let graph = read_graph(values, nodes, inputs, outputs, variables)?;
        let options = read_options(py, &mode, *alignment, *preserve_inputs, *preserve_all)?;
        Self::make(py, graph, options)
    }

    /// Return a planner for the nodes of ``graph`` in execution order; values have the same
    /// indices, and each workspace, in the smallest size, is one more value.
    #[staticmethod]
    #[pyo3(signature = (graph, *, mode=Arg("default"), alignment=Arg(64), preserve_inputs=Arg(true), preserve_all=Arg(false)))]
    fn from_graph(
        py: Python<'_>,
        graph: Arg<PyRef<'_, Graph>>,
        mode: Arg<&str>,
        alignment: Arg<u64>,
        preserve_inputs: Arg<bool>,
        preserve_all: Arg<bool>,
    ) -> PyResult<Self> {
        let options = read_options(py, &mode, *alignment, *preserve_inputs, *preserve_all)?;
        Self::make(py, graph.inner.as_ref().into(), options)
    }

    /// Place the values that begin with nodes ``start`` up to, and without, ``stop``.
    ///
    /// Raises
    /// ------
    /// ArenaInUse
    ///     If an arena would move while views are alive; the same call does the rest once the views
    ///     are gone.
    fn execute(&self, py: Python<'_>, start: Arg<usize>, stop: Arg<usize>) -> PyResult<()> {
        self.grow(py, |planner| planner.execute(*start..*stop))
    }

    /// Plan another graph in the same memory; nothing is placed yet. The tables are as for the
    /// constructor.
    #[pyo3(signature = (values: "Sequence[tuple[int, str]]", nodes: "Sequence[tuple[Sequence[int | None], Sequence[int | None], Sequence[int], Sequence[tuple[int, int, bool]]]]", inputs: "Sequence[int | None]", outputs: "Sequence[int | None]", variables: "Sequence[int] | None"=None))]
    fn replace_graph(
        &self,
        py: Python<'_>,
        values: &Bound<'_, PyAny>,
        nodes: &Bound<'_, PyAny>,
        inputs: &Bound<'_, PyAny>,
        outputs: &Bound<'_, PyAny>,
        variables: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let graph = read_graph(values, nodes, inputs, outputs, variables)?;
        let items = items_of(&graph);
        self.items.fetch_max(items, Ordering::Relaxed);
        self.admit_tables(py)?;
        self.with(py, |planner| planner.replace_graph(graph))?;
        self.items.store(items, Ordering::Relaxed);
        Ok(())
    }

    /// Reserve the arenas for one run, until the returned lease is released.
    ///
    /// Raises
    /// ------
    /// ArenaBusy
    ///     If another run has the arenas.
    fn lease(slf: Py<Self>, py: Python<'_>) -> PyResult<Lease> {
        let holder = slf.get().holder.clone();
        holder.lease(py, slf.into_any())
    }

    /// Work lifetimes out again, after sizes or types have changed.
    fn plan(&self, py: Python<'_>) -> PyResult<()> {
        self.admit_tables(py)?;
        self.with(py, incremental::IncrementalPlanner::plan)
    }

    /// Forget where everything is.
    fn reset(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, |planner| {
            planner.reset();
            Ok(())
        })
    }

    /// Forget where values are that begin after ``node``.
    fn reset_after(&self, py: Python<'_>, node: Arg<usize>) -> PyResult<()> {
        self.with(py, |planner| planner.reset_after(*node))
    }

    /// Free the temporary arena's memory, and keep the offsets.
    ///
    /// Raises
    /// ------
    /// ArenaInUse
    ///     If views are alive.
    fn release_temporary(&self, py: Python<'_>) -> PyResult<()> {
        self.temporary.check_unused(py)?;
        self.with(py, incremental::IncrementalPlanner::release_temporary)
    }

    /// Get the temporary arena's memory back.
    fn acquire_temporary(&self, py: Python<'_>) -> PyResult<()> {
        self.grow(py, incremental::IncrementalPlanner::acquire_temporary)
    }

    /// Change a value's size.
    fn set_bytes(&self, py: Python<'_>, value: Arg<u32>, nbytes: Arg<u64>) -> PyResult<()> {
        self.with(py, |planner| planner.set_bytes(*value, *nbytes))
    }

    /// Change a value's owner.
    fn set_kind(&self, py: Python<'_>, value: Arg<u32>, kind: Arg<&str>) -> PyResult<()> {
        let kind = kind.parse().or_raise(py)?;
        self.with(py, |planner| planner.set_kind(*value, kind))
    }

    /// Return the place of a value, or None if the value has no bytes in an arena, or the producer
    /// was not reached yet.
    fn place(&self, py: Python<'_>, value: Arg<u32>) -> PyResult<Option<IncrementalPlacement>> {
        let place = self.with(py, |planner| Ok(planner.place(*value)))?;
        Ok(place.map(|place| IncrementalPlacement {
            persistent: place.persistent,
            offset: place.span.offset,
            bytes: place.span.bytes,
        }))
    }

    /// Return the value whose bytes ``value`` has: itself, unless ``value`` shares.
    fn root(&self, py: Python<'_>, value: Arg<u32>) -> PyResult<u32> {
        self.with(py, |planner| planner.root(*value))
    }

    /// Return a copy of a value's bytes, or None where :meth:`place` does.
    fn read<'py>(&self, py: Python<'py>, value: Arg<u32>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let bytes = self.with(py, |planner| Ok(planner.bytes(*value)?.map_or(0, <[u8]>::len)))?;
        admit(py, bytes)?;
        self.with(py, |planner| Ok(planner.bytes(*value)?.map(|bytes| PyBytes::new(py, bytes))))
    }

    /// Return a writable view of a value's bytes, or None where :meth:`place` does.
    ///
    /// ``numpy.frombuffer(view, dtype)`` shares the memory. While a view is alive the arena neither
    /// moves nor is freed: calls that would have to do so raise ``ArenaInUse``. The bytes belong to
    /// the value while the value is live; planning gives the bytes to other values afterwards.
    fn view<'py>(
        &self,
        py: Python<'py>,
        value: Arg<u32>,
    ) -> PyResult<Option<Bound<'py, PyMemoryView>>> {
        let found = self.with(py, |planner| {
            let persistent = planner.place(*value).is_some_and(|place| place.persistent);
            let bytes = planner.bytes(*value)?;
            Ok(bytes.map(|bytes| (persistent, bytes.as_ptr().addr(), bytes.len())))
        })?;
        let view = |(persistent, address, bytes)| {
            let memory: &ViewableMemory =
                if persistent { &self.persistent } else { &self.temporary };
            memory.view(py, address, bytes)
        };
        found.map(view).transpose()
    }

    /// Overwrite the first bytes of a value.
    fn write(&self, py: Python<'_>, value: Arg<u32>, data: Arg<&[u8]>) -> PyResult<()> {
        let fits = self.with(py, |planner| {
            let bytes = planner.bytes_mut(*value)?.and_then(|bytes| bytes.get_mut(..data.len()));
            Ok(bytes.map(|bytes| bytes.copy_from_slice(&data)).is_some())
        })?;
        if fits {
            return Ok(());
        }
        let message = format!("value {} has no {} bytes in an arena", *value, data.len());
        Err(raise_named(py, "ArenaState", message))
    }

    /// High-water marks: temporary and persistent arena.
    #[getter]
    fn arena_bytes(&self, py: Python<'_>) -> PyResult<ArenaBytes> {
        let (temporary, persistent) = self.with(py, |planner| Ok(planner.arena_bytes()))?;
        Ok(ArenaBytes { temporary, persistent })
    }

    /// Memory of the temporary and the persistent arena.
    #[getter]
    fn buffer_bytes(&self, py: Python<'_>) -> PyResult<ArenaBytes> {
        let (temporary, persistent) = self.with(py, |planner| Ok(planner.buffer_bytes()))?;
        Ok(ArenaBytes { temporary, persistent })
    }
}
