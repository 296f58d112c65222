//! Packing buffers without a graph.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use arenaplan::base::{BufferId, LiveRange};
use arenaplan::format::CsvProblem;
use arenaplan::pack::{
    Apart, Buffer, Error as PackError, Forbidden, Gap, Repacking, Result as PackResult, Rules,
    Space, Tries, compact, infeasible_subset, repack,
};
use arenaplan::{Problem, SpaceId, solve};
use pyo3::Borrowed;
use pyo3::exceptions::{PyKeyboardInterrupt, PyValueError};
use pyo3::prelude::*;

use crate::call::{self, Ended, Moment, admit};
use crate::error::OrRaise;
use crate::getters::getters;
use crate::views;

/// A buffer, the space, the first byte, the end of the bytes, the first step, and the end of the
/// steps.
type Rectangle = (usize, usize, u64, u64, u32, u32);

/// Offsets of buffers, with a proof of the peak.
#[pyclass(frozen, module = "arenaplan._core")]
#[derive(Debug)]
pub(crate) struct Packing {
    inner: Arc<arenaplan::Packing>,
    seconds: f64,
    stages: Vec<Moment>,
    interrupted: bool,
    source: Arc<Source>,
}

/// Search limits.
#[derive(Debug)]
struct Limits {
    time_limit: Option<f64>,
    node_limit: Option<u64>,
    seed: u64,
    /// Whether buffers are moved to lower offsets at last.
    compact: bool,
}

/// Bytes per problem row, while rows are columns of numbers.
const ROW_BYTES: usize = 64;
/// Least bytes per CSV line.
const LINE_BYTES: usize = 8;

/// The search's share of a time limit, if the search is followed by moving buffers to lower
/// offsets.
const SEARCH_SHARE: f64 = 0.9;

/// A space: name, capacity, alignment and reserved bytes.
type Described = (String, Option<u64>, u64, Vec<(u64, u64)>);

/// Properties that few buffers have, and rules for pairs.
#[derive(Debug, Default, FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Details {
    /// By buffer: first and last step, and the first and last byte that stay needed.
    gaps: BTreeMap<usize, Vec<(u32, u32, u64, u64)>>,
    ranges: BTreeMap<usize, (u64, u64)>,
    groups: BTreeMap<usize, u32>,
    /// For each buffer: the permitted spaces.
    spaces: BTreeMap<usize, Vec<usize>>,
    may_overlap: Vec<(usize, usize)>,
    apart: Vec<(usize, usize)>,
    separate: Vec<(usize, usize)>,
}

/// A problem: buffers as columns of numbers, and spaces.
#[derive(Debug)]
pub(crate) struct Columns {
    sizes: Vec<u64>,
    live: Vec<(u32, u32)>,
    alignments: Vec<u64>,
    pins: Vec<Option<u64>>,
    hints: Vec<Option<u64>>,
    details: Details,
    spaces: Vec<Described>,
}

/// A derived implementation would raise `TypeError` for columns that are too long.
impl<'py> FromPyObject<'_, 'py> for Columns {
    type Error = PyErr;

    fn extract(problem: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        Ok(Self {
            sizes: admitted(&problem.get_item("sizes")?)?,
            live: admitted(&problem.get_item("live")?)?,
            alignments: admitted(&problem.get_item("alignments")?)?,
            pins: admitted(&problem.get_item("pins")?)?,
            hints: admitted(&problem.get_item("hints")?)?,
            details: problem.get_item("details")?.extract()?,
            spaces: problem.get_item("spaces")?.extract()?,
        })
    }
}

impl Columns {
    /// Returns the problem to pack the buffers.
    fn problem(self) -> arenaplan::Result<Problem> {
        let Self { sizes, live, alignments, pins, hints, details, spaces } = self;
        let spaces = described(spaces)?;
        let count = sizes.len();
        let rows = sizes.into_iter().zip(live).zip(alignments).zip(pins).zip(hints).enumerate();
        let buffers = rows.map(|(index, ((((size, (start, end)), alignment), pin), hint))| {
            let named = |error: PackError| match error {
                PackError::InvalidLiveRange { start, end, .. } => {
                    let what = format!("buffer {index}");
                    PackError::InvalidLiveRange { what, start, end }
                }
                PackError::InvalidAlignment { bytes, .. } => {
                    let what = format!("buffer {index}");
                    PackError::InvalidAlignment { what, bytes }
                }
                PackError::InvalidBuffer { reason, .. } => {
                    PackError::InvalidBuffer { buffer: index, reason }
                }
                other => other,
            };
            let live = LiveRange::new(start, end).map_err(named)?;
            let mut buffer = match details.gaps.get(&index) {
                Some(gaps) => {
                    let gaps = gaps.iter().map(|&(start, end, low, high)| {
                        Ok(Gap { steps: LiveRange::new(start, end)?, bytes: low..high })
                    });
                    let gaps = gaps.collect::<PackResult<Vec<_>>>().map_err(named)?;
                    Buffer::with_gaps(size, live, &gaps).map_err(named)?
                }
                None => Buffer::new(size, live),
            };
            buffer = buffer.with_multiple_of(alignment).map_err(named)?;
            if let Some(offset) = pin {
                buffer = buffer.with_pin(offset);
            }
            if let Some(offset) = hint {
                buffer = buffer.with_hint(offset);
            }
            if let Some(&(low, high)) = details.ranges.get(&index) {
                buffer = buffer.with_range(low..high);
            }
            if let Some(&group) = details.groups.get(&index) {
                buffer = buffer.with_group(group);
            }
            if let Some(spaces) = details.spaces.get(&index) {
                let spaces = spaces.iter().map(|&space| SpaceId::new(space));
                buffer = buffer.with_spaces(spaces).map_err(named)?;
            }
            Ok(buffer)
        });
        let buffers = buffers.collect::<PackResult<Vec<_>>>()?;
        let mut rules = Rules::default();
        for (pairs, column) in [
            (&mut rules.may_overlap, details.may_overlap),
            (&mut rules.apart, details.apart),
            (&mut rules.separate, details.separate),
        ] {
            for (one, other) in column {
                let known = one.max(other) < count;
                if !known {
                    let reason =
                        format!("a rule names buffer {}, which is not there", one.max(other));
                    return Err(arenaplan::Error::InvalidBuffer { buffer: one.min(other), reason });
                }
                pairs.push((BufferId::new(one), BufferId::new(other)));
            }
        }
        Ok(Problem::with_rules(buffers, spaces, rules)?)
    }
}

/// Returns the spaces that Python describes.
fn described(spaces: Vec<Described>) -> arenaplan::Result<Vec<Space>> {
    let spaces = spaces.into_iter().map(|(name, capacity, alignment, reserved)| {
        let mut space = Space::new(name).with_multiple_of(alignment)?;
        if let Some(bytes) = capacity {
            space = space.with_capacity(bytes);
        }
        for (low, high) in reserved {
            space = space.with_reserved(low..high);
        }
        Ok(space)
    });
    spaces.collect()
}

/// The problem.
#[derive(Debug)]
enum Source {
    Buffers(Problem),
    Csv(CsvProblem),
}

impl Source {
    const fn problem(&self) -> &Problem {
        match self {
            Self::Buffers(problem) | Self::Csv(CsvProblem { problem, .. }) => problem,
        }
    }
}

/// Pack the buffers in ``problem``.
#[pyfunction]
#[pyo3(signature = (
    problem: "dict[str, Any]",
    time_limit,
    node_limit,
    seed,
    compact,
    on_progress,
))]
#[allow(clippy::too_many_arguments, reason = "one per option")]
pub(crate) fn pack(
    py: Python<'_>,
    problem: Columns,
    time_limit: Option<f64>,
    node_limit: Option<u64>,
    seed: u64,
    compact: bool,
    on_progress: Option<Bound<'_, PyAny>>,
) -> PyResult<Packing> {
    let limits = Limits { time_limit, node_limit, seed, compact };
    let items = problem.sizes.len();
    let source = move || Ok(Source::Buffers(problem.problem()?));
    run(py, items, source, limits, on_progress.as_ref())
}

/// Return a packing with few buffers away from ``old``, those buffers, and the peak of staying.
#[pyfunction]
#[pyo3(signature = (
    problem: "dict[str, Any]",
    old: "Sequence[int | None]",
    seed,
) -> "tuple[Packing, list[int], int]")]
pub(crate) fn pack_again(
    py: Python<'_>,
    problem: Columns,
    #[pyo3(from_py_with = admitted)] old: Vec<Option<u64>>,
    seed: u64,
) -> PyResult<(Packing, Vec<usize>, u64)> {
    let items = problem.sizes.len();
    let source = move || Ok((Source::Buffers(problem.problem()?), old));
    let (packing, moved, peak) = again(py, items, source, seed)?;
    Ok((packing, moved.into_iter().map(BufferId::index).collect(), peak))
}

/// Return the buffers that prove that space number ``space`` is too small, or None.
#[pyfunction]
#[pyo3(signature = (
    problem: "dict[str, Any]",
    space,
) -> "list[int] | None")]
pub(crate) fn pack_blame(
    py: Python<'_>,
    problem: Columns,
    space: usize,
) -> PyResult<Option<Vec<usize>>> {
    let items = problem.sizes.len();
    let found = call::run(py, items, move |cancel, tell| -> arenaplan::Result<_> {
        let problem = problem.problem()?;
        let budget = call::budget(cancel, tell, None);
        Ok(infeasible_subset(&problem, SpaceId::new(space), &budget)?)
    })?;
    let found = OrRaise::or_raise(found, py)?;
    Ok(found.map(|ids| ids.into_iter().map(BufferId::index).collect()))
}

/// Return a packing for a CSV document close to the ``old`` document's packing, the identifiers of
/// moved buffers, and the peak of staying.
#[pyfunction]
#[pyo3(signature = (
    text,
    old,
    spaces: "list[tuple[str, int | None, int, list[tuple[int, int]]]]",
    seed,
) -> "tuple[Packing, list[str], int]")]
pub(crate) fn pack_csv_again(
    py: Python<'_>,
    text: &str,
    old: &str,
    spaces: Vec<Described>,
    seed: u64,
) -> PyResult<(Packing, Vec<String>, u64)> {
    let items = (text.len() + old.len()) / LINE_BYTES;
    let (text, old) = (call::copied(py, text)?, call::copied(py, old)?);
    let source = move || {
        let csv = csv_in(&text, spaces)?;
        let old = CsvProblem::parse(&old, Space::default())?;
        let mut offsets: BTreeMap<&str, Option<u64>> = BTreeMap::new();
        for (name, buffer) in old.names.iter().zip(old.problem.buffers()) {
            // Buffers with the same identifier have no old offset.
            offsets.entry(name).and_modify(|it| *it = None).or_insert(buffer.pin());
        }
        let old = csv.names.iter().map(|name| offsets.get(&**name).copied().flatten()).collect();
        Ok((Source::Csv(csv), old))
    };
    let (packing, moved, peak) = again(py, items, source, seed)?;
    let names = packing.names(py)?.unwrap_or_default();
    let name = |id: BufferId| names.get(id.index()).cloned().unwrap_or_default();
    Ok((packing, moved.into_iter().map(name).collect(), peak))
}

/// Return the name of each space in a CSV document that is proven too small, with the identifiers
/// of buffers that prove it.
#[pyfunction]
#[pyo3(signature = (
    text,
    spaces: "list[tuple[str, int | None, int, list[tuple[int, int]]]]",
) -> "list[tuple[str, list[str]]]")]
pub(crate) fn pack_csv_blame(
    py: Python<'_>,
    text: &str,
    spaces: Vec<Described>,
) -> PyResult<Vec<(String, Vec<String>)>> {
    let items = text.len() / LINE_BYTES;
    let text = call::copied(py, text)?;
    let found = call::run(py, items, move |cancel, tell| -> arenaplan::Result<_> {
        let CsvProblem { names, problem, .. } = csv_in(&text, spaces)?;
        let mut proofs = Vec::new();
        for (number, space) in problem.spaces().iter().enumerate() {
            let budget = call::budget(cancel, tell, None);
            let subset = infeasible_subset(&problem, SpaceId::new(number), &budget)?;
            let name = |id: BufferId| names.get(id.index()).cloned().unwrap_or_default();
            let named = |ids: Vec<BufferId>| ids.into_iter().map(name).collect();
            proofs.extend(subset.map(|ids| (space.name().to_owned(), named(ids))));
        }
        Ok(proofs)
    })?;
    OrRaise::or_raise(found, py)
}

/// Pack the buffers in a CSV document. The first of ``spaces`` describes every space that no other
/// entry names.
#[pyfunction]
#[pyo3(signature = (
    text,
    spaces: "list[tuple[str, int | None, int, list[tuple[int, int]]]]",
    time_limit,
    node_limit,
    seed,
    compact,
    on_progress,
))]
#[allow(clippy::too_many_arguments, reason = "one per option")]
pub(crate) fn pack_csv(
    py: Python<'_>,
    text: &str,
    spaces: Vec<Described>,
    time_limit: Option<f64>,
    node_limit: Option<u64>,
    seed: u64,
    compact: bool,
    on_progress: Option<Bound<'_, PyAny>>,
) -> PyResult<Packing> {
    let limits = Limits { time_limit, node_limit, seed, compact };
    let items = text.len() / LINE_BYTES;
    let text = call::copied(py, text)?;
    let source = move || Ok(Source::Csv(csv_in(&text, spaces)?));
    run(py, items, source, limits, on_progress.as_ref())
}

/// Return offsets for items with ``sizes`` bytes that obey rules ``(item, other, low, high)``.
///
/// No item begins more than ``low`` and less than ``high`` bytes after the other. The items in each
/// of ``orders`` are searched; the items in ``last`` are placed afterwards.
#[pyfunction]
#[pyo3(signature = (
    sizes: "Sequence[int]",
    rules: "Sequence[tuple[int, int, int, int]]",
    orders: "Sequence[Sequence[int]]",
    last: "Sequence[int]",
    tries,
    seed,
    goal,
) -> "list[int]")]
#[allow(clippy::too_many_arguments, reason = "one per column and option")]
pub(crate) fn pack_apart(
    py: Python<'_>,
    #[pyo3(from_py_with = admitted)] sizes: Vec<u64>,
    #[pyo3(from_py_with = admitted)] rules: Vec<(usize, usize, i64, i64)>,
    #[pyo3(from_py_with = admitted)] orders: Vec<Vec<usize>>,
    #[pyo3(from_py_with = admitted)] last: Vec<usize>,
    tries: usize,
    seed: u64,
    goal: u64,
) -> PyResult<Vec<u64>> {
    let rules: Vec<_> = rules
        .into_iter()
        .map(|(item, from, low, high)| Forbidden { item, from, low, high })
        .collect();
    let tries = Tries { orders: tries, seed, goal };
    for order in &orders {
        let mut all: Vec<usize> = order.iter().chain(&last).copied().collect();
        all.sort_unstable();
        if !all.into_iter().eq(0..sizes.len()) {
            return Err(PyValueError::new_err("an order does not have each item once"));
        }
    }
    let items = sizes.len().saturating_add(rules.len());
    let found = call::run(py, items, move |cancel, _| {
        let is_over = || cancel.load(Ordering::Relaxed);
        Apart::new(&sizes, &rules).map(|apart| apart.pack(&orders, &last, tries, &is_over))
    })?;
    OrRaise::or_raise(found, py)
}

/// Reads a column, if there is memory for the column.
fn admitted<'py, T: for<'a> FromPyObject<'a, 'py, Error = PyErr>>(
    column: &Bound<'py, PyAny>,
) -> PyResult<Vec<T>> {
    admit(column.py(), column.len()?.saturating_mul(ROW_BYTES))?;
    column.extract()
}

/// Reads a problem in spaces; the first space describes every space that no other entry names.
fn csv_in(text: &str, spaces: Vec<Described>) -> arenaplan::Result<CsvProblem> {
    let mut spaces = described(spaces)?;
    let template = if spaces.is_empty() { Space::default() } else { spaces.remove(0) };
    CsvProblem::parse_in(text, template, spaces)
}

/// Packs close to the old offsets that come with a problem; returns the packing, the moved buffers,
/// and the peak of staying.
fn again(
    py: Python<'_>,
    items: usize,
    source: impl FnOnce() -> arenaplan::Result<(Source, Vec<Option<u64>>)> + Send + 'static,
    seed: u64,
) -> PyResult<(Packing, Vec<BufferId>, u64)> {
    let started = Instant::now();
    let found = call::run(py, items, move |cancel, tell| -> arenaplan::Result<_> {
        let (source, old) = source()?;
        let mut budget = call::budget(cancel, tell, None);
        budget.seed = seed;
        let again = repack(source.problem(), &old, &budget)?;
        again.packing.check(source.problem())?;
        Ok((source, again))
    })?;
    let (source, again): (Source, Repacking) = OrRaise::or_raise(found, py)?;
    let seconds = started.elapsed().as_secs_f64();
    let (inner, source) = (Arc::new(again.packing), Arc::new(source));
    let packing = Packing { inner, seconds, stages: Vec::new(), interrupted: false, source };
    Ok((packing, again.moved, again.peak_of_staying))
}

/// Packs until the search ends by itself, or until Ctrl-C with the best answer so far.
fn run(
    py: Python<'_>,
    items: usize,
    source: impl FnOnce() -> arenaplan::Result<Source> + Send + 'static,
    limits: Limits,
    on_progress: Option<&Bound<'_, PyAny>>,
) -> PyResult<Packing> {
    let started = Instant::now();
    let mut stages = Vec::new();
    let mut hear = |moment: Moment| {
        if moment.is_news {
            stages.push(moment);
        }
        call::told(py, on_progress, moment)
    };
    let Ended { value, stopped, seconds } =
        call::watch(py, items, &mut hear, move |cancel, tell| -> arenaplan::Result<_> {
            let left =
                limits.time_limit.map(|limit| (limit - started.elapsed().as_secs_f64()).max(0.0));
            let share = if limits.compact { SEARCH_SHARE } else { 1.0 };
            let mut budget = call::budget(cancel, tell, left.map(|left| share * left));
            budget.nodes = limits.node_limit;
            budget.seed = limits.seed;
            let source = source()?;
            let mut packing = solve(source.problem(), &budget)?;
            if limits.compact {
                let left = left.map(|left| (1.0 - share) * left);
                packing = compact(source.problem(), &packing, &call::budget(cancel, tell, left))?;
            }
            packing.check(source.problem())?;
            Ok((packing, source))
        })?;
    let interrupted = match stopped {
        Some(error) if !error.is_instance_of::<PyKeyboardInterrupt>(py) => return Err(error),
        stopped => stopped.is_some(),
    };
    let (inner, source): (arenaplan::Packing, Source) = OrRaise::or_raise(value, py)?;
    Ok(Packing { inner: Arc::new(inner), seconds, stages, interrupted, source: Arc::new(source) })
}

getters! { Packing
    /// Bytes that the buffers need together at these offsets.
    peak: u64 = |it| it.inner.peak();

    /// Bytes that the buffers need at any offsets: proven.
    lower_bound: u64 = |it| it.inner.lower_bound();

    /// Status of ``peak``: ``"optimal"``, ``"feasible"``, ``"infeasible"`` or ``"unknown"``.
    status: String = |it| it.inner.status().to_string();

    /// Visited search nodes: the unit of ``node_limit``.
    nodes: u64 = |it| it.inner.nodes();

    /// Search time in seconds.
    seconds: f64 = |it| it.seconds;

    /// Whether the search was ended by Ctrl-C.
    interrupted: bool = |it| it.interrupted;
}

#[pymethods]
impl Packing {
    /// Every buffer's first byte.
    #[getter]
    fn offsets(&self, py: Python<'_>) -> PyResult<Vec<u64>> {
        let offsets = self.inner.offsets();
        admit(py, offsets.len().saturating_mul(ROW_BYTES))?;
        Ok(offsets.to_vec())
    }

    /// For each buffer: index of the space.
    #[getter]
    fn buffer_spaces(&self, py: Python<'_>) -> PyResult<Vec<usize>> {
        let count = self.inner.offsets().len();
        admit(py, count.saturating_mul(ROW_BYTES))?;
        Ok((0..count).map(|it| self.inner.space_of(BufferId::new(it)).index()).collect())
    }

    /// Peak, lower bound and status of each space, in order.
    #[getter]
    fn spaces(&self) -> Vec<(u64, u64, String)> {
        let row =
            |it: &arenaplan::pack::SpacePacking| (it.peak, it.lower_bound, it.status.to_string());
        self.inner.spaces().iter().map(row).collect()
    }

    /// Every improvement: ``stage``, ``seconds``, ``peak``, ``lower_bound`` and ``nodes``.
    #[getter]
    fn stages<'py>(
        &self,
        py: Python<'py>,
    ) -> PyResult<Vec<BTreeMap<&'static str, Bound<'py, PyAny>>>> {
        self.stages.iter().map(|moment| moment.into_python(py)).collect()
    }

    /// Return the buffers and offsets as CSV.
    ///
    /// Raises
    /// ------
    /// ValueError
    ///     If the buffers did not come from CSV, and have no names.
    fn to_csv(&self, py: Python<'_>) -> PyResult<String> {
        let (source, packing) = (Arc::clone(&self.source), Arc::clone(&self.inner));
        let text = call::run(py, self.inner.offsets().len(), move |_, _| match &*source {
            Source::Buffers(_) => None,
            Source::Csv(csv) => Some(csv.to_csv(Some(&packing))),
        })?;
        let Some(text) = text else {
            let message = "only what was read from CSV can be written as CSV";
            return Err(PyValueError::new_err(message));
        };
        let text = text.or_raise(py)?;
        admit(py, text.len())?;
        Ok(text)
    }

    /// For each rectangle of bytes and steps that a buffer needs: the buffer, the space, the first
    /// byte and the byte behind the last, the first step and the step behind the last.
    #[getter]
    fn rectangles(&self, py: Python<'_>) -> PyResult<Vec<Rectangle>> {
        let buffers = self.source.problem().buffers();
        admit(py, buffers.len().saturating_mul(ROW_BYTES))?;
        let mut rows = Vec::new();
        for (index, (buffer, &offset)) in buffers.iter().zip(self.inner.offsets()).enumerate() {
            let space = self.inner.space_of(BufferId::new(index));
            for (bytes, live) in buffer.rectangles() {
                let [first, last] = [bytes.start, bytes.end].map(|at| offset.saturating_add(at));
                let steps = (live.start().get(), live.end().get());
                rows.push((index, space.index(), first, last, steps.0, steps.1));
            }
        }
        Ok(rows)
    }

    /// Buffer names, if read from CSV.
    #[getter]
    fn names(&self, py: Python<'_>) -> PyResult<Option<Vec<String>>> {
        let Source::Csv(csv) = &*self.source else { return Ok(None) };
        admit(py, self.inner.offsets().len().saturating_mul(ROW_BYTES))?;
        Ok(Some(csv.names.clone()))
    }

    /// Return a drawing of the packing as HTML, for notebooks.
    fn _repr_html_<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        views::view(slf.as_any(), "packing")
    }

    fn __len__(&self) -> usize {
        self.inner.offsets().len()
    }

    fn __repr__(&self) -> String {
        let (buffers, peak, status) =
            (self.inner.offsets().len(), self.inner.peak(), self.inner.status());
        format!("Packing({buffers} buffers, {peak} bytes, {status})")
    }
}
