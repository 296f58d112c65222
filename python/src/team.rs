//! Threads that divide compiled kernels.

use std::cell::RefCell;
use std::sync::{Arc, LazyLock};

use arenaplan_kernels::Team;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::error::raise_named;

/// Threads that divide compiled kernels.
///
/// Kernels that are made in a block (``with team:``) by the thread that entered the block are
/// divided, if long enough; the kernels keep the threads alive. Results are the same, bit for bit.
///
/// Parameters
/// ----------
/// threads : int
///     Thread count, the caller included.
#[pyclass(frozen, module = "arenaplan._core")]
pub(crate) struct ThreadTeam {
    team: Arc<Team>,
}

#[pymethods]
impl ThreadTeam {
    #[new]
    fn new(py: Python<'_>, threads: usize) -> PyResult<Self> {
        let team = Team::new(threads).map_err(|error| {
            raise_named(
                py,
                "InvalidOption",
                format!("option threads: no {threads} threads: {error}"),
            )
        })?;
        Ok(Self { team: Arc::new(team) })
    }

    /// Thread count, the caller included.
    #[getter]
    fn threads(&self) -> usize {
        self.team.threads()
    }

    /// Scratch bytes of all threads except the caller's.
    #[getter]
    fn scratch_bytes(&self) -> usize {
        self.team.scratch_bytes()
    }

    fn __enter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        CURRENT.with_borrow_mut(|all| all.push(Arc::clone(&slf.team)));
        slf
    }

    #[pyo3(signature = (*_exception: "object"))]
    fn __exit__(&self, _exception: &Bound<'_, PyTuple>) {
        CURRENT.with_borrow_mut(Vec::pop);
    }

    fn __repr__(&self) -> String {
        format!("ThreadTeam({})", self.team.threads())
    }
}

thread_local! {
    /// The teams whose blocks this thread is in.
    static CURRENT: RefCell<Vec<Arc<Team>>> = const { RefCell::new(Vec::new()) };
}

/// A team with only the calling thread.
static ALONE: LazyLock<Arc<Team>> = LazyLock::new(|| Arc::new(Team::alone()));

/// Returns the team that divides the kernels which this thread makes.
pub(crate) fn current() -> Arc<Team> {
    CURRENT.with_borrow(|all| all.last().map_or_else(|| Arc::clone(&ALONE), Arc::clone))
}
