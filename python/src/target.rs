//! Targets: descriptions of programs that run plans.

use arenaplan::plan::Provider;
use arenaplan::{Technique, Techniques};
use pyo3::prelude::*;

use crate::arguments::Arg;
use crate::error::{OrRaise, raise_named};
use crate::getters::getters;

/// A description of a program that runs plans.
///
/// ``Target(name, techniques)`` describes another runner, which honors the listed techniques.
/// :func:`arenaplan.targets` lists the known targets.
///
/// Parameters
/// ----------
/// name : str
///     A name that no known target has.
/// techniques : list of str
///     The techniques that the runner honors, by name.
/// alignment : int, default 64
///     Default offset alignment in bytes.
/// scratch : {"graph", "runner", "nobody"}
///     The origin of kernel scratch memory: nodes declare the memory before planning, the runner
///     adds the memory by itself, or there is none.
/// caller_memory : bool
///     Whether inputs and outputs may be in the caller's memory.
/// several_spaces : bool
///     Whether values may be in several spaces.
#[pyclass(frozen, eq, hash, skip_from_py_object, module = "arenaplan._core")]
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Target {
    pub(crate) inner: arenaplan::Target,
}

getters! { Target
    /// Target name, with the kernels if named: ``"tflm:reference"``.
    name: &str = |it| it.inner.name();

    /// Name without the kernels: ``"tflm"``.
    runtime: &str = |it| it.inner.runtime();

    /// One line about the runner; empty for a custom target.
    summary: &'static str = |it| it.inner.summary();

    /// The techniques that the runner honors, by name.
    techniques: Vec<&'static str> =
        |it| it.inner.techniques().iter().map(Technique::name).collect();

    /// The unit that the runner executes at a time: ``"node"``, ``"group"`` or ``"tile"``.
    granularity: &'static str = |it| it.inner.granularity().name();

    /// Default offset alignment in bytes.
    alignment: u64 = |it| it.inner.alignment();

    /// Unit of offsets in bytes: every alignment must be a multiple.
    offset_unit: u64 = |it| it.inner.offset_unit();

    /// Whether inputs and outputs may be in the caller's memory.
    caller_memory: bool = |it| it.inner.caller_memory();

    /// Whether values may be in several spaces.
    several_spaces: bool = |it| it.inner.several_spaces();

    /// Whether a kernel writes elements of a piece before it has read all of the piece's inputs.
    early_writes: bool = |it| it.inner.early_writes();

    /// Dimension of the rows that are all that the runner streams, strip by strip; ``None`` if the
    /// runner streams any pieces.
    strip_axis: Option<usize> = |it| it.inner.strip_axis();

    /// Origin of kernel scratch memory: ``"graph"``, ``"runner"`` or ``"nobody"``.
    scratch: &'static str = |it| it.inner.scratch().name();

    /// Origin of the runner's own structures: ``"runner"``, or ``"nobody"`` without such
    /// structures.
    fixed: &'static str = |it| it.inner.fixed().name();
}

#[pymethods]
impl Target {
    #[new]
    #[pyo3(signature = (name, techniques, *, alignment=Arg(64), scratch=Arg("graph"), caller_memory=Arg(true), several_spaces=Arg(true)))]
    fn new(
        py: Python<'_>,
        name: Arg<String>,
        techniques: Arg<Vec<String>>,
        alignment: Arg<u64>,
        scratch: Arg<&str>,
        caller_memory: Arg<bool>,
        several_spaces: Arg<bool>,
    ) -> PyResult<Self> {
        let known = [Provider::Graph, Provider::Runner, Provider::Nobody];
        let Some(scratch) = known.into_iter().find(|provider| provider.name() == *scratch) else {
            let reason = "scratch is one of 'graph', 'runner' and 'nobody'".into();
            return Err(raise_named(py, "InvalidOption", reason));
        };
        let techniques: arenaplan::Result<Techniques> =
            techniques.iter().map(|name| name.parse::<Technique>()).collect();
        let target = techniques
            .and_then(|techniques| arenaplan::Target::custom(name.0, techniques))
            .and_then(|target| target.with_alignment(*alignment))
            .or_raise(py)?;
        let inner = target
            .with_scratch(scratch)
            .with_caller_memory(*caller_memory)
            .with_several_spaces(*several_spaces);
        Ok(Self { inner })
    }

    /// Return the known target with this name.
    ///
    /// Raises
    /// ------
    /// InvalidOption
    ///     If the name is unknown; the message lists the known names.
    #[staticmethod]
    fn known(py: Python<'_>, name: Arg<&str>) -> PyResult<Self> {
        Ok(Self { inner: name.parse().or_raise(py)? })
    }

    fn __repr__(&self) -> String {
        format!("Target({})", arenaplan::base::quoted(self.inner.name()))
    }
}

/// Return the known targets, the most able first.
#[pyfunction]
pub(crate) fn targets() -> Vec<Target> {
    arenaplan::Target::KNOWN.into_iter().map(|inner| Target { inner }).collect()
}
