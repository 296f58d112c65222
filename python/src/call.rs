//! Long calls: a thread that works, while the interpreter's thread looks for Ctrl-C.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use arenaplan::Budget;
use arenaplan::pack::Progress;
use pyo3::prelude::*;
use pyo3::types::PyBool;

use crate::error::{raise, raise_named};
use crate::headroom::{Call, Worker};

/// Progress with a time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    pub(crate) seconds: f64,
    /// Nothing before the work has told something.
    pub(crate) progress: Option<Progress>,
    /// Whether the work has just reported the progress; otherwise the progress is repeated, so that
    /// the listener can end work that reports nothing for long.
    pub(crate) is_news: bool,
}

impl Moment {
    /// Returns the progress as a dictionary; the peak is None until there is a peak.
    pub(crate) fn into_python(
        self,
        py: Python<'_>,
    ) -> PyResult<BTreeMap<&'static str, Bound<'_, PyAny>>> {
        let (stage, peak, lower_bound, nodes) = match self.progress {
            Some(Progress { stage, peak, lower_bound, nodes, .. }) => {
                (stage.name(), (peak < u64::MAX).then_some(peak), lower_bound, nodes)
            }
            None => ("start", None, 0, 0),
        };
        Ok(BTreeMap::from([
            ("stage", stage.into_pyobject(py)?.into_any()),
            ("seconds", self.seconds.into_pyobject(py)?.into_any()),
            ("peak", peak.into_pyobject(py)?.into_any()),
            ("lower_bound", lower_bound.into_pyobject(py)?.into_any()),
            ("nodes", nodes.into_pyobject(py)?.into_any()),
        ]))
    }
}

/// Interval at which a call looks for Ctrl-C.
const SIGNAL_PERIOD: Duration = Duration::from_millis(50);
/// Memory that every call sets aside, in bytes.
const LEAST_ASIDE: usize = 1 << 20;
/// Memory set aside for each value, node or buffer of a call, in bytes: enough for the passes
/// after the last look at the flag.
const ASIDE_PER_ITEM: usize = 1 << 10;

/// Tells how far the work is.
pub(crate) type Tell<'t> = &'t (dyn Fn(Progress) + Sync);

/// Called with progress, and again in each [`SIGNAL_PERIOD`] without any.
pub(crate) type Hear<'h> = &'h mut dyn FnMut(Moment) -> PyResult<ControlFlow<()>>;

/// A call's result.
#[derive(Debug)]
pub(crate) struct Ended<T> {
    pub(crate) value: T,
    /// Ctrl-C, or the exception of `hear`: the work was asked to end then.
    pub(crate) stopped: Option<PyErr>,
    pub(crate) seconds: f64,
}

impl<T> Ended<T> {
    /// Returns the result of work whose answer is useless if the work was asked to end.
    ///
    /// # Errors
    ///
    /// The exception that ended the work.
    pub(crate) fn finished(self) -> PyResult<T> {
        self.stopped.map_or(Ok(self.value), Err)
    }
}

/// The work of a call, which keeps the result by itself.
type CallWork = Box<dyn FnOnce(&'static AtomicBool, Tell<'_>) + Send>;

/// Messages from the working thread.
enum News {
    Moment(Moment),
    Done,
}

/// How a call ended.
struct End {
    stopped: Option<PyErr>,
    seconds: f64,
}

/// Returns a budget that ends when `cancel` is set or `time_limit` is over, in seconds from now,
/// and reports progress.
pub(crate) fn budget<'b>(
    cancel: &'b AtomicBool,
    tell: Tell<'b>,
    time_limit: Option<f64>,
) -> Budget<'b> {
    let mut budget = Budget::default();
    budget.deadline = time_limit
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .and_then(|duration| Instant::now().checked_add(duration));
    budget.cancel = Some(cancel);
    budget.progress = Some(tell);
    budget
}

/// Runs `work` detached from the interpreter, and asks the work to stop on Ctrl-C, which is raised.
///
/// `items` is the number of values, nodes or buffers, for the memory that the work may need.
pub(crate) fn run<T: Send + 'static>(
    py: Python<'_>,
    items: usize,
    work: impl FnOnce(&'static AtomicBool, Tell<'_>) -> T + Send + 'static,
) -> PyResult<T> {
    let ended = watch(py, items, &mut |_| Ok(ControlFlow::Continue(())), work)?;
    ended.finished()
}

/// As [`run`], and calls `hear` with each progress that `work` tells; `work` is asked to end if
/// `hear` breaks off.
pub(crate) fn watch<T: Send + 'static>(
    py: Python<'_>,
    items: usize,
    hear: Hear<'_>,
    work: impl FnOnce(&'static AtomicBool, Tell<'_>) -> T + Send + 'static,
) -> PyResult<Ended<T>> {
    let result = Arc::new(Mutex::new(None));
    let kept = Arc::clone(&result);
    let work = Box::new(move |cancel: &'static AtomicBool, tell: Tell<'_>| {
        let value = work(cancel, tell);
        if let Ok(mut result) = kept.lock() {
            *result = Some(value);
        }
    });
    let End { stopped, seconds } = attend(py, items, hear, work)?;
    let value = result.lock().ok().and_then(|mut result| result.take());
    value.map(|value| Ended { value, stopped, seconds }).ok_or_else(|| panicked(py))
}

/// Does the work on a separate thread, since signals are only delivered to the main thread. If no
/// thread can be started, this thread does the work, and looks for Ctrl-C whenever the work reports
/// progress.
///
/// The result type is unknown here: one copy of the code serves every call.
fn attend(py: Python<'_>, items: usize, hear: Hear<'_>, work: CallWork) -> PyResult<End> {
    let aside = items.saturating_mul(ASIDE_PER_ITEM).saturating_add(LEAST_ASIDE);
    let Some(call) = Call::begin(aside) else { return Err(out_of_memory(py)) };
    let (cancel, worker) = (call.cancel(), call.worker());
    let (sender, news) = mpsc::channel();
    let started = Instant::now();
    // A thread that cannot be started does not give the work back.
    let work = Arc::new(Mutex::new(Some(work)));
    let spawned = {
        let (work, sender) = (Arc::clone(&work), sender.clone());
        std::thread::Builder::new().name("arenaplan".into()).spawn(move || {
            worker.enter();
            let Some(work) = work.lock().ok().and_then(|mut work| work.take()) else { return };
            work(cancel, &|progress| tell(&sender, started, progress));
            // There is no listener any more if the call was given up.
            let _ = sender.send(News::Done);
            Worker::leave();
        })
    };
    let mut stopped = None;
    if spawned.is_err() {
        let work = work.lock().ok().and_then(|mut work| work.take());
        stopped = work.and_then(|work| work_here(py, cancel, &sender, started, work));
    }
    drop(sender);
    listen(py, &call, news, hear, started, &mut stopped)?;
    if call.is_short() {
        return Err(stopped.unwrap_or_else(|| out_of_memory(py)));
    }
    Ok(End { stopped, seconds: started.elapsed().as_secs_f64() })
}

/// Calls `on_progress` with progress; `False` breaks off.
pub(crate) fn told(
    py: Python<'_>,
    on_progress: Option<&Bound<'_, PyAny>>,
    moment: Moment,
) -> PyResult<ControlFlow<()>> {
    let Some(call) = on_progress else { return Ok(ControlFlow::Continue(())) };
    let answer = call.call1((moment.into_python(py)?,))?;
    let ends = answer.cast::<PyBool>().is_ok_and(|answer| !answer.is_true());
    Ok(if ends { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
}

/// Sends progress to the thread that listens.
fn tell(sender: &Sender<News>, started: Instant, progress: Progress) {
    let seconds = started.elapsed().as_secs_f64();
    // There is no listener any more if the call was given up.
    let moment = Moment { seconds, progress: Some(progress), is_news: true };
    let _ = sender.send(News::Moment(moment));
}

/// Does the work on this thread, and returns the exception that Ctrl-C raised.
fn work_here(
    py: Python<'_>,
    cancel: &'static AtomicBool,
    sender: &Sender<News>,
    started: Instant,
    work: CallWork,
) -> Option<PyErr> {
    let stopped = Mutex::new(None);
    let sender = sender.clone();
    py.detach(|| {
        work(cancel, &|progress| {
            tell(&sender, started, progress);
            #[allow(
                clippy::redundant_closure_for_method_calls,
                reason = "its lifetime is too narrow"
            )]
            let signals = Python::attach(|py| py.check_signals());
            if let Err(error) = signals {
                cancel.store(true, Ordering::Relaxed);
                if let Ok(mut stopped) = stopped.lock() {
                    stopped.get_or_insert(error);
                }
            }
        });
        let _ = sender.send(News::Done);
    });
    stopped.into_inner().ok().flatten()
}

/// Waits until the work ends.
fn listen(
    py: Python<'_>,
    call: &Call,
    mut news: Receiver<News>,
    hear: Hear<'_>,
    started: Instant,
    stopped: &mut Option<PyErr>,
) -> PyResult<()> {
    let mut last = None;
    loop {
        let next;
        (next, news) = py.detach(move || (news.recv_timeout(SIGNAL_PERIOD), news));
        let mut found = py.check_signals();
        let next = match next {
            Err(RecvTimeoutError::Timeout) => {
                let seconds = started.elapsed().as_secs_f64();
                News::Moment(Moment { seconds, progress: last, is_news: false })
            }
            Err(RecvTimeoutError::Disconnected) => return Err(panicked(py)),
            Ok(next) => next,
        };
        match next {
            News::Done => {
                if let (Err(error), None) = (found, &stopped) {
                    *stopped = Some(error);
                }
                return Ok(());
            }
            // A caller that asked for the end gets no more news.
            News::Moment(_) if call.cancel().load(Ordering::Relaxed) => {}
            News::Moment(moment) => {
                last = moment.progress;
                match hear(moment) {
                    Ok(ControlFlow::Continue(())) => {}
                    Ok(ControlFlow::Break(())) => call.cancel().store(true, Ordering::Relaxed),
                    Err(error) => found = found.and(Err(error)),
                }
            }
        }
        if let (Err(error), None) = (found, &stopped) {
            call.cancel().store(true, Ordering::Relaxed);
            *stopped = Some(error);
        }
        if call.is_lost() {
            return Err(stopped.take().unwrap_or_else(|| out_of_memory(py)));
        }
    }
}

/// Returns the exception for a call that had too little memory.
fn out_of_memory(py: Python<'_>) -> PyErr {
    raise(py, &arenaplan::Error::OutOfMemory { what: "this call" })
}

/// Returns the exception for work that ended without a result.
fn panicked(py: Python<'_>) -> PyErr {
    raise_named(py, "InternalError", "the planner panicked; please report it".into())
}

/// Returns a copy of interpreter text, for another thread.
pub(crate) fn copied(py: Python<'_>, text: &str) -> PyResult<String> {
    admit(py, text.len())?;
    Ok(text.to_owned())
}

/// Raises unless `bytes` can be allocated now: for memory of the interpreter's thread, where a
/// failure could not be raised.
pub(crate) fn admit(py: Python<'_>, bytes: usize) -> PyResult<()> {
    let mut room = Vec::<u8>::new();
    room.try_reserve_exact(bytes.saturating_add(LEAST_ASIDE)).map_err(|_| out_of_memory(py))
}
