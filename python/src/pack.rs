//! Packing buffers without a graph.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use arenaplan::{
    Alignment, Budget, Buffer, CsvProblem, LiveRange, Problem, Progress, Space, solve,
};
use pyo3::exceptions::{PyKeyboardInterrupt, PyValueError};
use pyo3::prelude::*;

use crate::error::{OrRaise, raise_named};

/// How often a long search looks for Ctrl-C and reports its progress.
const PERIOD: Duration = Duration::from_millis(50);

/// Offsets of buffers, and what is proven of their peak.
#[pyclass(frozen, module = "arenaplan._core")]
#[derive(Debug)]
pub(crate) struct Packing {
    inner: arenaplan::Packing,
    seconds: f64,
    stages: Vec<Moment>,
    interrupted: bool,
    /// The problem, if it came as CSV.
    csv: Option<CsvProblem>,
}

/// Progress, and when it was made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    pub(crate) seconds: f64,
    pub(crate) progress: Progress,
}

impl Moment {
    /// Returns it as a dictionary, a peak being None until there is one.
    pub(crate) fn into_python(
        self,
        py: Python<'_>,
    ) -> PyResult<BTreeMap<&'static str, Bound<'_, PyAny>>> {
        let Progress { stage, peak, lower_bound, nodes, .. } = self.progress;
        let peak = (peak < u64::MAX).then_some(peak);
        Ok(BTreeMap::from([
            ("stage", stage.name().into_pyobject(py)?.into_any()),
            ("seconds", self.seconds.into_pyobject(py)?.into_any()),
            ("peak", peak.into_pyobject(py)?.into_any()),
            ("lower_bound", lower_bound.into_pyobject(py)?.into_any()),
            ("nodes", nodes.into_pyobject(py)?.into_any()),
        ]))
    }
}

/// How much a search may do.
#[derive(Debug)]
struct Limits {
    time_limit: Option<f64>,
    node_limit: Option<u64>,
    seed: u64,
    threads: usize,
}

/// Pack buffers of ``sizes`` bytes that are live during ``live``.
#[pyfunction]
#[pyo3(signature = (sizes, live, alignments, pins, hints, capacity, time_limit, node_limit, seed, threads, on_progress))]
#[allow(clippy::too_many_arguments, reason = "one per column and option")]
pub(crate) fn pack(
    py: Python<'_>,
    sizes: Vec<u64>,
    live: Vec<(u32, u32)>,
    alignments: Vec<u64>,
    pins: Vec<Option<u64>>,
    hints: Vec<Option<u64>>,
    capacity: Option<u64>,
    time_limit: Option<f64>,
    node_limit: Option<u64>,
    seed: u64,
    threads: usize,
    on_progress: Option<Bound<'_, PyAny>>,
) -> PyResult<Packing> {
    let rows = sizes.into_iter().zip(live).zip(alignments).zip(pins).zip(hints).enumerate();
    let buffers = rows.map(|(index, ((((size, (start, end)), alignment), pin), hint))| {
        let named = |error| match error {
            arenaplan::Error::InvalidLiveRange { start, end, .. } => {
                let what = format!("buffer {index}");
                arenaplan::Error::InvalidLiveRange { what, start, end }
            }
            arenaplan::Error::InvalidAlignment { bytes, .. } => {
                let what = format!("buffer {index}");
                arenaplan::Error::InvalidAlignment { what, bytes }
            }
            other => other,
        };
        let live = LiveRange::new(start, end).map_err(named)?;
        let alignment = Alignment::new(alignment).map_err(named)?;
        let mut buffer = Buffer::new(size, live).with_alignment(alignment);
        if let Some(offset) = pin {
            buffer = buffer.with_pin(offset);
        }
        if let Some(offset) = hint {
            buffer = buffer.with_hint(offset);
        }
        Ok(buffer)
    });
    let buffers = buffers.collect::<arenaplan::Result<Vec<_>>>().or_raise(py)?;
    let problem = Problem::new(buffers, vec![space(capacity)]).or_raise(py)?;
    let limits = Limits { time_limit, node_limit, seed, threads };
    run(py, &problem, &limits, on_progress.as_ref())
}

/// Pack the buffers of a CSV document.
#[pyfunction]
#[pyo3(signature = (text, alignment, capacity, time_limit, node_limit, seed, threads, on_progress))]
#[allow(clippy::too_many_arguments, reason = "one per option")]
pub(crate) fn pack_csv(
    py: Python<'_>,
    text: &str,
    alignment: u64,
    capacity: Option<u64>,
    time_limit: Option<f64>,
    node_limit: Option<u64>,
    seed: u64,
    threads: usize,
    on_progress: Option<Bound<'_, PyAny>>,
) -> PyResult<Packing> {
    let alignment = Alignment::new(alignment).or_raise(py)?;
    let space = space(capacity).with_alignment(alignment);
    let csv = py.detach(|| CsvProblem::parse(text, space)).or_raise(py)?;
    let limits = Limits { time_limit, node_limit, seed, threads };
    let packing = run(py, &csv.problem, &limits, on_progress.as_ref())?;
    Ok(Packing { csv: Some(csv), ..packing })
}

/// Returns the space to pack into.
fn space(capacity: Option<u64>) -> Space {
    let space = Space::default();
    match capacity {
        Some(bytes) => space.with_capacity(bytes),
        None => space,
    }
}

/// Packs on a worker thread, while this one reports progress and looks for Ctrl-C,
/// which ends the search with the best answer so far.
fn run(
    py: Python<'_>,
    problem: &Problem,
    limits: &Limits,
    on_progress: Option<&Bound<'_, PyAny>>,
) -> PyResult<Packing> {
    let started = Instant::now();
    let cancel = AtomicBool::new(false);
    let (sender, news) = mpsc::channel();
    let tell = move |progress: Progress| {
        let seconds = started.elapsed().as_secs_f64();
        // Nobody listens any more if the caller's callback has failed.
        let _ = sender.send(Moment { seconds, progress });
    };
    let mut budget = Budget::default();
    budget.deadline = limits
        .time_limit
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .and_then(|duration| started.checked_add(duration));
    budget.nodes = limits.node_limit;
    budget.seed = limits.seed;
    budget.threads = limits.threads;
    budget.cancel = Some(&cancel);
    budget.progress = Some(&tell);
    let mut stages = Vec::new();
    let mut stopped = None;
    let result = std::thread::scope(|scope| {
        let worker = scope.spawn(|| {
            let packing = solve(problem, &budget)?;
            packing.check(problem)?;
            Ok(packing)
        });
        let mut patience = Duration::from_micros(50);
        loop {
            let finished = worker.is_finished();
            for moment in news.try_iter() {
                stages.push(moment);
                if stopped.is_none()
                    && let Some(call) = on_progress
                {
                    let told = moment.into_python(py).and_then(|moment| call.call1((moment,)));
                    stopped = told.err();
                }
            }
            if finished {
                return worker.join();
            }
            if stopped.is_none() {
                stopped = py.check_signals().err();
            }
            if stopped.is_some() {
                cancel.store(true, Ordering::Relaxed);
            }
            py.detach(|| std::thread::sleep(patience));
            patience = (patience * 2).min(PERIOD);
        }
    });
    let interrupted = match stopped {
        Some(error) if !error.is_instance_of::<PyKeyboardInterrupt>(py) => return Err(error),
        stopped => stopped.is_some(),
    };
    match result {
        Ok(result) => {
            let inner = result.or_raise(py)?;
            let seconds = started.elapsed().as_secs_f64();
            Ok(Packing { inner, seconds, stages, interrupted, csv: None })
        }
        Err(_) => {
            Err(raise_named(py, "InternalError", "the solver panicked; please report it".into()))
        }
    }
}

#[pymethods]
impl Packing {
    /// First byte of every buffer.
    #[getter]
    fn offsets(&self) -> Vec<u64> {
        self.inner.offsets().to_vec()
    }

    /// Bytes that the buffers need together at these offsets.
    #[getter]
    fn peak(&self) -> u64 {
        self.inner.peak()
    }

    /// Bytes that they need at any offsets: proven.
    #[getter]
    fn lower_bound(&self) -> u64 {
        self.inner.lower_bound()
    }

    /// What is proven of ``peak``: ``"optimal"``, ``"feasible"``, ``"infeasible"`` or ``"unknown"``.
    #[getter]
    fn status(&self) -> String {
        self.inner.status().to_string()
    }

    /// How long the search took.
    #[getter]
    fn seconds(&self) -> f64 {
        self.seconds
    }

    /// Whether the search was ended by Ctrl-C.
    #[getter]
    fn interrupted(&self) -> bool {
        self.interrupted
    }

    /// Every improvement: ``stage``, ``seconds``, ``peak``, ``lower_bound`` and ``nodes``.
    #[getter]
    fn stages<'py>(
        &self,
        py: Python<'py>,
    ) -> PyResult<Vec<BTreeMap<&'static str, Bound<'py, PyAny>>>> {
        self.stages.iter().map(|moment| moment.into_python(py)).collect()
    }

    /// Return the buffers and their offsets as CSV.
    ///
    /// Raises
    /// ------
    /// ValueError
    ///     If the buffers did not come from CSV, and have no names.
    fn to_csv(&self, py: Python<'_>) -> PyResult<String> {
        let Some(csv) = &self.csv else {
            let message = "only what was read from CSV can be written as CSV";
            return Err(PyValueError::new_err(message));
        };
        py.detach(|| csv.to_csv(Some(&self.inner))).or_raise(py)
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
