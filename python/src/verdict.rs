//! Verdicts: check results about the claims of a valid plan.

use arenaplan::check::Proof;
use pyo3::prelude::*;

use crate::getters::getters;

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

getters! { Verdict
    /// Whether the plan's ``lower_bound`` was ``"verified"`` or only ``"claimed"``.
    lower_bound: &'static str = |it| it.inner.lower_bound().name();

    /// Whether the plan's ``status`` was ``"verified"`` or only ``"claimed"``.
    status: &'static str = |it| it.inner.status().name();

    /// Whether a complete search for an order was ``"verified"`` or only ``"claimed"``; None if
    /// the plan claims none.
    order: Option<&'static str> = |it| it.inner.order().map(Proof::name);

    /// Whether ``floor`` of the plan was ``"verified"`` or only ``"claimed"``; None if the plan
    /// claims none.
    floor: Option<&'static str> = |it| it.inner.floor().map(Proof::name);

    /// Whether the lower bound of ``move_cost`` was ``"verified"`` or only ``"claimed"``; None if
    /// the plan claims none.
    move_cost: Option<&'static str> = |it| it.inner.move_cost().map(Proof::name);

    /// Whether floor and bound of a plan in which nodes run again were ``"verified"`` or only
    /// ``"claimed"``; None for other plans.
    repetitions: Option<&'static str> = |it| it.inner.repetitions().map(Proof::name);

    /// Whether the checker derived every claim in the plan.
    is_verified: bool = |it| it.inner.is_verified();

    /// Whether capacities, alignments and costs of the spaces come from the plan, and not from the
    /// graph.
    chose_spaces: bool = |it| it.inner.chose_spaces();

    /// For each space the bytes that are live at once at the highest step, as counted by the
    /// checker: no offsets need fewer. Workspaces count with their smallest sizes.
    max_live: Vec<u64> = |it| it.inner.spaces().iter().map(|space| space.max_live).collect();
}

#[pymethods]
impl Verdict {
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

getters! { SharedVerdict
    /// Whether the shared plan's ``lower_bound`` was ``"verified"`` or only ``"claimed"``.
    lower_bound: &'static str = |it| it.inner.lower_bound().name();

    /// Whether the shared plan's ``status`` was ``"verified"`` or only ``"claimed"``.
    status: &'static str = |it| it.inner.status().name();

    /// The bytes that are live at once, as counted by the checker: no offsets need fewer.
    max_live: u64 = |it| it.inner.max_live();
}

#[pymethods]
impl SharedVerdict {
    /// Each plan's own verdict.
    #[getter]
    fn members(&self) -> Vec<Verdict> {
        let members = self.inner.members().iter();
        members.map(|member| Verdict { inner: member.clone() }).collect()
    }

    fn __repr__(&self) -> String {
        format!("SharedVerdict(lower_bound='{}', status='{}')", self.lower_bound(), self.status())
    }
}
