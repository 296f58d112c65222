//! Schedules: node executions, and copies of values to a slow memory and back.

use arenaplan::base::Execution;
use arenaplan::pack::Space;
use arenaplan::{Error, NodeId, ValueId};
use pyo3::prelude::*;

use crate::arguments::Arg;
use crate::error::raise;

/// A value that is copied to a slow memory, or back, as an entry in a schedule.
///
/// Examples
/// --------
/// >>> import arenaplan as ap
/// >>> ap.Transfer(3, "out")
/// Transfer(value=3, way='out')
#[pyclass(frozen, eq, hash, from_py_object, module = "arenaplan._core")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Transfer {
    /// Value index.
    #[pyo3(get)]
    value: u32,
    is_out: bool,
}

#[pymethods]
#[allow(clippy::trivially_copy_pass_by_ref, reason = "PyO3 gives methods a reference")]
impl Transfer {
    #[new]
    fn new(py: Python<'_>, value: Arg<u32>, way: Arg<&str>) -> PyResult<Self> {
        let is_out = match *way {
            "out" => true,
            "in" => false,
            _ => {
                let reason = format!("it is 'out' or 'in', not {}", arenaplan::base::quoted(&way));
                return Err(raise(py, &Error::InvalidOption { option: "way", reason }));
            }
        };
        Ok(Self { value: *value, is_out })
    }

    /// ``"out"`` to the slow memory, or ``"in"``.
    #[getter]
    const fn way(&self) -> &'static str {
        if self.is_out { "out" } else { "in" }
    }

    fn __repr__(&self) -> String {
        format!("Transfer(value={}, way='{}')", self.value, self.way())
    }
}

/// One entry of a schedule: a node by index, or a value that is copied.
#[derive(Debug, FromPyObject, IntoPyObject)]
pub(crate) enum Entry {
    /// A node runs.
    Run(u32),
    /// A value is copied.
    Copy(Transfer),
}

impl Entry {
    /// Returns a schedule's entries.
    pub(crate) fn of(schedule: &[Execution]) -> Vec<Self> {
        let entry = |execution: &Execution| match *execution {
            Execution::Run(node) => Self::Run(node.into()),
            Execution::PageOut { value } => {
                Self::Copy(Transfer { value: value.into(), is_out: true })
            }
            Execution::PageIn { value } => {
                Self::Copy(Transfer { value: value.into(), is_out: false })
            }
        };
        schedule.iter().map(entry).collect()
    }
}

impl From<Entry> for Execution {
    fn from(entry: Entry) -> Self {
        match entry {
            Entry::Run(node) => Self::Run(NodeId::from(node)),
            Entry::Copy(Transfer { value, is_out: true }) => {
                Self::PageOut { value: ValueId::from(value) }
            }
            Entry::Copy(Transfer { value, is_out: false }) => {
                Self::PageIn { value: ValueId::from(value) }
            }
        }
    }
}

/// A slow memory that values are copied to and back from.
///
/// Examples
/// --------
/// >>> import arenaplan as ap
/// >>> ap.Paging("host", cost=480).capacity is None
/// True
#[pyclass(frozen, get_all, from_py_object, module = "arenaplan._core")]
#[derive(Clone, Debug)]
pub(crate) struct Paging {
    /// Memory name.
    space: String,
    /// Cost to copy one byte in one direction, in the unit of node costs.
    cost: u64,
    /// Capacity in bytes; None if unlimited.
    capacity: Option<u64>,
}

#[pymethods]
impl Paging {
    #[new]
    #[pyo3(signature = (space, cost, capacity=None))]
    fn new(space: Arg<String>, cost: Arg<u64>, capacity: Option<Arg<u64>>) -> Self {
        Self { space: space.0, cost: *cost, capacity: capacity.map(|bytes| *bytes) }
    }

    fn __repr__(&self) -> String {
        let capacity = self.capacity.map_or_else(|| "None".into(), |bytes| bytes.to_string());
        format!("Paging(space={:?}, cost={}, capacity={capacity})", self.space, self.cost)
    }
}

impl Paging {
    /// Returns the record for a plan.
    pub(crate) fn of(paging: &arenaplan::plan::Paging) -> Self {
        Self { space: paging.space.clone(), cost: paging.cost, capacity: paging.capacity }
    }

    /// Returns the memory.
    pub(crate) fn to_space(&self) -> Space {
        let space = Space::new(self.space.clone()).with_cost(self.cost);
        match self.capacity {
            Some(bytes) => space.with_capacity(bytes),
            None => space,
        }
    }
}
