//! Operations in the background, on versioned variables.

use std::error::Error;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use arenaplan_engine::{Cause, Operation, Policy, Task, WaitError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyCFunction, PyDict, PyTuple};

use crate::arguments::{Arg, refused};
use crate::error::raise_named;

/// Interval at which a call that waits looks for Ctrl-C.
const SIGNAL_PERIOD: Duration = Duration::from_millis(50);
/// Most threads in a queue.
const MOST_WORKERS: usize = 256;

type Held = arenaplan_engine::Variable<Py<PyAny>>;
type Failure = Box<dyn Error + Send + Sync>;

/// A value that operations in a queue read and write, from :meth:`Queue.variable`.
#[pyclass(frozen, module = "arenaplan._core")]
#[derive(Debug)]
pub(crate) struct Variable {
    inner: Held,
}

#[pymethods]
impl Variable {
    fn __repr__(&self) -> String {
        format!("Variable({})", self.inner.id())
    }
}

/// Functions that run in the background, each after its dependencies.
///
/// Functions are pushed in an order, the serial order, with the variables that each function reads
/// and writes. A function waits for earlier functions that write a variable named by the function,
/// and for earlier functions that read a variable that the function writes; all others may run
/// before or at the same time. So every function sees the same values as in a serial run. Ready
/// functions start in push order.
///
/// A function that raises leaves the exception in the variables that the function writes. Functions
/// that read or write such a variable are skipped, and hand the exception on; :meth:`wait` and
/// :meth:`get` raise the exception, until :meth:`restore` gives the variable another value.
///
/// A variable of which no handle and no operation is left takes no memory.
///
/// Parameters
/// ----------
/// workers : int, default 4
///     Thread count; with 0, functions run in :meth:`push`.
///
/// Raises
/// ------
/// InvalidOption
///     If there are more than 256 workers.
///
/// Examples
/// --------
/// >>> import arenaplan as ap
/// >>> with ap.run.Queue(workers=2) as queue:
/// ...     a, b = queue.variable(1), queue.variable(0)
/// ...     queue.push(lambda a, b: a + 1, reads=[a], writes=[b])
/// ...     queue.push(lambda a: 10 * a, writes=[a])
/// ...     queue.get(a), queue.get(b)
/// (10, 2)
#[pyclass(frozen, module = "arenaplan._core")]
#[derive(Debug)]
pub(crate) struct Queue {
    /// None once the queue is closed.
    inner: Mutex<Option<Arc<arenaplan_engine::Queue>>>,
    workers: usize,
    /// A forked child has no threads of the parent.
    process: u32,
}

#[pymethods]
impl Queue {
    #[new]
    #[pyo3(signature = (workers = Arg(4)))]
    fn new(py: Python<'_>, workers: Arg<usize>) -> PyResult<Self> {
        let workers = *workers;
        if workers > MOST_WORKERS {
            let message = format!("{workers} workers; a queue has at most {MOST_WORKERS}");
            return Err(raise_named(py, "InvalidOption", message));
        }
        let policy = if workers == 0 { Policy::Serial } else { Policy::workers(workers) };
        // Each thread keeps an interpreter state from call to call, since making a state takes
        // long.
        let attached = |work: &mut (dyn FnMut() + Send)| Python::attach(|py| py.detach(work));
        let queue = Arc::new(arenaplan_engine::Queue::on_threads(policy, attached));
        end_before_the_interpreter(py, &queue)?;
        Ok(Self { inner: Mutex::new(Some(queue)), workers, process: std::process::id() })
    }

    /// Return a new variable, at version 0.
    #[pyo3(signature = (value = None))]
    fn variable(&self, py: Python<'_>, value: Option<Py<PyAny>>) -> PyResult<Variable> {
        let value = value.unwrap_or_else(|| py.None());
        Ok(Variable { inner: self.open(py)?.variable(value) })
    }

    /// Push a function, and do not wait for the function.
    ///
    /// Parameters
    /// ----------
    /// function : callable
    ///     Called with the values of ``reads``, then those of ``writes``. A result other than None
    ///     is the new value of the variable in ``writes``; if there are several, the result is a
    ///     tuple with a value for each. A result that is a ``concurrent.futures.Future`` completes
    ///     the function
    ///     later: no thread of the queue waits for the future, and the future's result is the
    ///         result.
    /// reads, writes : iterable of Variable
    ///     Each variable is named once; a variable that is read and written is in ``writes``.
    /// name : str, optional
    ///     For a note of exceptions; default: the name of the function, if it has one.
    ///
    /// Raises
    /// ------
    /// QueueState
    ///     If a variable is named twice or belongs to another queue, or the queue is closed.
    #[pyo3(signature = (function, reads = Arg(Vec::new()), writes = Arg(Vec::new()), name = None))]
    fn push(
        &self,
        py: Python<'_>,
        function: Bound<'_, PyAny>,
        reads: Arg<Vec<PyRef<'_, Variable>>>,
        writes: Arg<Vec<PyRef<'_, Variable>>>,
        name: Option<Arg<String>>,
    ) -> PyResult<()> {
        if !function.is_callable() {
            return Err(refused(&function, "a function"));
        }
        let queue = self.open(py)?;
        let name = match name {
            Some(name) => name.0,
            None => function.getattr("__name__").and_then(|it| it.extract()).unwrap_or_default(),
        };
        let mut operation = Operation::new(&name);
        let held = |variables: &[PyRef<'_, Variable>]| -> Vec<Held> {
            variables.iter().map(|it| it.inner.clone()).collect()
        };
        let (reads, writes) = (held(&reads), held(&writes));
        for variable in &reads {
            operation = operation.reads(variable);
        }
        for variable in &writes {
            operation = operation.writes(variable);
        }
        let function = function.unbind();
        let body = move |task: &Task| {
            Python::attach(|py| {
                let called = call(py, task, &function, &reads, writes);
                called.map_err(|failure| noted(py, failure, &name))
            })
        };
        let pushed = queue.push(operation, body).map(|_| ());
        pushed.map_err(|error| raise_named(py, "QueueState", error.to_string()))
    }

    /// Wait for the functions that were pushed before and write ``variable``, or for all functions.
    ///
    /// Raises
    /// ------
    /// Exception
    ///     The exception of the failed function; without a variable, of the first function that
    ///     failed since the last such call.
    /// QueueState
    ///     In a function in the queue, which would wait for itself, or if the queue is closed.
    #[pyo3(signature = (variable = None))]
    fn wait(&self, py: Python<'_>, variable: Option<Arg<PyRef<'_, Variable>>>) -> PyResult<()> {
        if let Some(variable) = variable {
            return self.get(py, variable).map(|_| ());
        }
        let queue = self.open(py)?;
        while !py
            .detach(|| queue.wait_all_within(SIGNAL_PERIOD))
            .map_err(|error| raised(py, error))?
        {
            py.check_signals()?;
        }
        Ok(())
    }

    /// Wait for a variable, and return the value that the functions pushed before leave.
    ///
    /// Raises
    /// ------
    /// Exception, QueueState
    ///     As :meth:`wait`.
    fn get(&self, py: Python<'_>, variable: Arg<PyRef<'_, Variable>>) -> PyResult<Py<PyAny>> {
        let queue = self.open(py)?;
        if queue.is_inside() {
            return Err(raised(py, WaitError::Inside));
        }
        // A read, so that no later write comes first.
        let (sender, mut receiver) = mpsc::channel();
        let variable = variable.inner.clone();
        let from = variable.clone();
        let body = move |task: &Task| {
            let value = Python::attach(|py| task.read(&from).map(|value| value.clone_ref(py)))?;
            // Nobody waits any more after Ctrl-C.
            let _ = sender.send(value);
            Ok(())
        };
        let pushed = queue.push(Operation::new("get").reads(&variable), body);
        pushed.map_err(|error| raise_named(py, "QueueState", error.to_string()))?;
        loop {
            let next;
            (next, receiver) = py.detach(move || (receiver.recv_timeout(SIGNAL_PERIOD), receiver));
            match next {
                Ok(value) => return Ok(value),
                Err(RecvTimeoutError::Timeout) => py.check_signals()?,
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        // The operation was skipped.
        let restored = WaitError::Restored(variable.id());
        let error = py.detach(|| queue.wait_for(&variable)).err().unwrap_or(restored);
        Err(raised(py, error))
    }

    /// Push an operation that gives a variable another value, and clears the exception.
    fn restore(
        &self,
        py: Python<'_>,
        variable: Arg<PyRef<'_, Variable>>,
        value: Py<PyAny>,
    ) -> PyResult<()> {
        let pushed = self.open(py)?.restore(&variable.inner, value).map(|_| ());
        pushed.map_err(|error| raise_named(py, "QueueState", error.to_string()))
    }

    /// Return how many functions that write a variable have ended.
    fn version(&self, py: Python<'_>, variable: Arg<PyRef<'_, Variable>>) -> PyResult<u64> {
        self.open(py)?.version(&variable.inner).map_err(|error| raised(py, error))
    }

    /// Number of variables that a handle or a function names.
    #[getter]
    fn variables(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.open(py)?.variables())
    }

    /// Wait for all functions, and end the threads.
    fn close(&self, py: Python<'_>) {
        self.end(py);
    }

    fn __enter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_exception: "object"))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyTuple>) {
        self.end(py);
    }

    fn __repr__(&self) -> String {
        format!("Queue(workers={})", self.workers)
    }
}

impl Queue {
    fn open(&self, py: Python<'_>) -> PyResult<Arc<arenaplan_engine::Queue>> {
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let refused = |message: &str| raise_named(py, "QueueState", message.into());
        if self.process != std::process::id() {
            return Err(refused("the queue was made before the process forked"));
        }
        inner.ok_or_else(|| refused("the queue is closed"))
    }

    fn end(&self, py: Python<'_>) {
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(inner) = inner else { return };
        if self.process == std::process::id() {
            // The functions need the interpreter.
            py.detach(|| inner.close());
        } else {
            std::mem::forget(inner);
        }
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        Python::attach(|py| self.end(py));
    }
}

/// Makes the interpreter wait for a queue before it ends, since functions need the interpreter.
fn end_before_the_interpreter(
    py: Python<'_>,
    queue: &Arc<arenaplan_engine::Queue>,
) -> PyResult<()> {
    static QUEUES: Mutex<Vec<(u32, Weak<arenaplan_engine::Queue>)>> = Mutex::new(Vec::new());
    static HOOK: PyOnceLock<()> = PyOnceLock::new();
    HOOK.get_or_try_init(py, || {
        let wait = |arguments: &Bound<'_, PyTuple>, _: Option<&Bound<'_, PyDict>>| {
            let queues =
                std::mem::take(&mut *QUEUES.lock().unwrap_or_else(PoisonError::into_inner));
            for (process, queue) in queues {
                let Some(queue) = queue.upgrade() else { continue };
                if process == std::process::id() {
                    arguments.py().detach(|| queue.close());
                }
            }
        };
        let hook = PyCFunction::new_closure(py, None, None, wait)?;
        py.import("atexit")?.call_method1("register", (hook,)).map(|_| ())
    })?;
    let mut queues = QUEUES.lock().unwrap_or_else(PoisonError::into_inner);
    queues.retain(|(_, queue)| queue.strong_count() > 0);
    queues.push((std::process::id(), Arc::downgrade(queue)));
    Ok(())
}

/// Sets a function's results when the future is done.
#[pyclass(frozen, module = "arenaplan._core")]
struct Completion {
    open: Mutex<Option<(Task, Vec<Held>)>>,
}

#[pymethods]
impl Completion {
    fn __call__(&self, py: Python<'_>, future: &Bound<'_, PyAny>) {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some((task, writes)) = open {
            let set = future.call_method0("result").map_err(Failure::from);
            if let Err(failure) = set.and_then(|result| set_values(&task, &writes, &result)) {
                task.fail(failure);
            }
            // Waiting functions may need the interpreter.
            py.detach(|| drop(task));
        }
    }
}

impl Drop for Completion {
    fn drop(&mut self) {
        let open = self.open.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let Some((task, _)) = open {
            task.fail("the future of the function was dropped before it was done");
        }
    }
}

/// Calls a function, and keeps the result.
fn call(
    py: Python<'_>,
    task: &Task,
    function: &Py<PyAny>,
    reads: &[Held],
    writes: Vec<Held>,
) -> Result<(), Failure> {
    let mut values = Vec::with_capacity(reads.len() + writes.len());
    for variable in reads.iter().chain(&writes) {
        values.push(task.read(variable)?.clone_ref(py));
    }
    let result = function.bind(py).call1(PyTuple::new(py, values)?)?;
    if result.hasattr("add_done_callback")? {
        let open = Mutex::new(Some((task.clone(), writes)));
        result.call_method1("add_done_callback", (Completion { open },))?;
        return Ok(());
    }
    set_values(task, &writes, &result)
}

/// Gives the variables that a function writes the values that the function returned.
fn set_values(task: &Task, writes: &[Held], result: &Bound<'_, PyAny>) -> Result<(), Failure> {
    let values = match writes {
        _ if result.is_none() => Vec::new(),
        [_] => vec![result.clone().unbind()],
        _ => {
            let count = writes.len();
            let wrong = || {
                let found = result.get_type();
                format!(
                    "a function that writes {count} variables returns None or a tuple of {count}, not {found}"
                )
            };
            let values = result.cast::<PyTuple>().map_err(|_| wrong())?;
            if values.len() != count {
                return Err(wrong().into());
            }
            values.iter().map(Bound::unbind).collect()
        }
    };
    for (variable, value) in writes.iter().zip(values) {
        let mut place = task.write(variable)?;
        let before = std::mem::replace(&mut *place, value);
        drop(place);
        // The lock is released first: the value may be the last reference to foreign code.
        drop(before);
    }
    Ok(())
}

/// Returns a failure; if the failure is an exception, with a note that names the function.
fn noted(py: Python<'_>, failure: Failure, name: &str) -> Failure {
    if let Some(error) = failure.downcast_ref::<PyErr>().filter(|_| !name.is_empty()) {
        let note = format!("raised by the function {} of a queue", arenaplan::base::quoted(name));
        // An exception whose class has no notes is reported without a note.
        let _ = error.value(py).call_method1("add_note", (note,));
    }
    failure
}

/// Returns the exception of a failed function, or the exception for a refused wait.
fn raised(py: Python<'_>, error: WaitError) -> PyErr {
    if let WaitError::Operation(failed) = &error {
        if let Cause::Failed(cause) = &failed.cause
            && let Some(exception) = cause.downcast_ref::<PyErr>()
        {
            return exception.clone_ref(py);
        }
        return raise_named(py, "KernelError", error.to_string());
    }
    raise_named(py, "QueueState", error.to_string())
}
