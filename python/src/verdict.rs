//! Verdicts: check results about the claims of a valid plan.

use arenaplan::check::Proof;
use pyo3::prelude::*;

/// Check result about the claims of a valid plan.
///
/// Offsets, live ranges, sharing and sizes in a valid plan are always verified. A claim about *all*
/// plans, such as a lower bound, is ``"verified"`` if the checker derived the claim from the graph,
/// and ``"claimed"`` if only the plan states the claim and nothing contradicts it.
#[pyclass(frozen, eq, module = "arenaplan._core")]
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub(crate) inner: arenaplan::Verdict,
}

#[pymethods]
impl Verdict {
    /// Whether the plan's ``lower_bound`` was ``"verified"`` or only ``"claimed"``.
    #[getter]
    fn lower_bound(&self) -> &'static str {
        self.inner.lower_bound().name()
    }

    /// Whether the plan's ``status`` was ``"verified"`` or only ``"claimed"``.
    #[getter]
    fn status(&self) -> &'static str {
        self.inner.status().name()
    }

    /// Whether a complete search for an order was ``"verified"`` or only ``"claimed"``; None if
    /// the plan claims none.
    #[getter]
    fn order(&self) -> Option<&'static str> {
        self.inner.order().map(Proof::name)
    }

    /// Whether ``floor`` of the plan was ``"verified"`` or only ``"claimed"``; None if the plan
    /// claims none.
    #[getter]
    fn floor(&self) -> Option<&'static str> {
        self.inner.floor().map(Proof::name)
    }

    /// Whether the lower bound of ``move_cost`` was ``"verified"`` or only ``"claimed"``; None if
    /// the plan claims none.
    #[getter]
    fn move_cost(&self) -> Option<&'static str> {
        self.inner.move_cost().map(Proof::name)
    }

    /// Whether floor and bound of a plan in which nodes run again were ``"verified"`` or only
    /// ``"claimed"``; None for other plans.
    #[getter]
    fn repetitions(&self) -> Option<&'static str> {
        self.inner.repetitions().map(Proof::name)
    }

    /// Whether the checker derived every claim in the plan.
    #[getter]
    fn is_verified(&self) -> bool {
        self.inner.is_verified()
    }

    /// Whether capacities, alignments and costs of the spaces come from the plan, and not from the
    /// graph.
    #[getter]
    fn chose_spaces(&self) -> bool {
        self.inner.chose_spaces()
    }

    /// For each space the bytes that are live at once at the highest step, as counted by the
    /// checker: no offsets need fewer. Workspaces count with their smallest sizes.
    #[getter]
    fn max_live(&self) -> Vec<u64> {
        self.inner.spaces().iter().map(|space| space.max_live).collect()
    }

    fn __repr__(&self) -> String {
        format!("Verdict(lower_bound='{}', status='{}')", self.lower_bound(), self.status())
    }
}

/// Check result about the claims of valid plans that share one arena.
#[pyclass(frozen, eq, module = "arenaplan._core")]
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SharedVerdict {
    pub(crate) inner: arenaplan::check::SharedVerdict,
}

#[pymethods]
impl SharedVerdict {
    /// Each plan's own verdict.
    #[getter]
    fn members(&self) -> Vec<Verdict> {
        let members = self.inner.members().iter();
        members.map(|member| Verdict { inner: member.clone() }).collect()
    }

    /// Whether the shared plan's ``lower_bound`` was ``"verified"`` or only ``"claimed"``.
    #[getter]
    fn lower_bound(&self) -> &'static str {
        self.inner.lower_bound().name()
    }

    /// Whether the shared plan's ``status`` was ``"verified"`` or only ``"claimed"``.
    #[getter]
    fn status(&self) -> &'static str {
        self.inner.status().name()
    }

    /// The bytes that are live at once, as counted by the checker: no offsets need fewer.
    #[getter]
    fn max_live(&self) -> u64 {
        self.inner.max_live()
    }

    fn __repr__(&self) -> String {
        format!("SharedVerdict(lower_bound='{}', status='{}')", self.lower_bound(), self.status())
    }
}
