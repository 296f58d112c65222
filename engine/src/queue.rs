//! Operations on versioned variables.

use std::cell::Cell;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};
use std::error::Error;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{
    Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, Weak,
};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::error::{AccessError, Cause, OperationError, PushError, WaitError};
use crate::ids::{OperationId, VariableId};
use crate::policy::Policy;

/// A value that operations in a queue read and write.
///
/// Copies are handles to the same variable. An operation that names the variable accesses the
/// content by [`Task::read`] and [`Task::write`]; other code uses [`Queue::get`]. The queue forgets
/// a variable when the last handle is dropped and the last operation that names the variable has
/// ended.
#[derive(Debug)]
pub struct Variable<T> {
    entry: Arc<Entry>,
    value: Arc<RwLock<T>>,
}

impl<T> Clone for Variable<T> {
    fn clone(&self) -> Self {
        Self { entry: Arc::clone(&self.entry), value: Arc::clone(&self.value) }
    }
}

impl<T> Variable<T> {
    /// Returns the variable's number in the queue.
    #[must_use]
    pub fn id(&self) -> VariableId {
        self.entry.id
    }
}

/// Shared by the handles of a variable and the operations that name the variable. Dropping the entry
/// removes the history.
#[derive(Debug)]
struct Entry {
    id: VariableId,
    shared: Weak<Shared>,
}

impl Drop for Entry {
    fn drop(&mut self) {
        if let Some(shared) = self.shared.upgrade() {
            let history = shared.lock().histories.remove(&self.id.index);
            drop(history); // The lock is released first: an error's destructor is foreign code.
        }
    }
}

/// An operation before the push: a name, and the variables to read and to write.
#[derive(Clone, Debug)]
pub struct Operation {
    name: Arc<str>,
    reads: Vec<Arc<Entry>>,
    writes: Vec<Arc<Entry>>,
    space: usize,
    /// True if the operation runs even on variables with an error, and clears the error.
    restores: bool,
}

impl Operation {
    /// Returns an operation without variables.
    #[must_use]
    pub fn new(name: &str) -> Self {
        let (reads, writes) = (Vec::new(), Vec::new());
        Self { name: name.into(), reads, writes, space: 0, restores: false }
    }

    /// Adds a variable to read.
    #[must_use]
    pub fn reads<T>(mut self, variable: &Variable<T>) -> Self {
        self.reads.push(Arc::clone(&variable.entry));
        self
    }

    /// Adds a variable to write, which the operation may read, too.
    #[must_use]
    pub fn writes<T>(mut self, variable: &Variable<T>) -> Self {
        self.writes.push(Arc::clone(&variable.entry));
        self
    }

    /// Sets the space whose thread runs the operation under [`Policy::PerSpace`]. Other policies
    /// ignore the space.
    #[must_use]
    pub const fn on(mut self, space: usize) -> Self {
        self.space = space;
        self
    }

    /// Returns the variables to read and to write.
    fn variables(&self) -> impl Iterator<Item = VariableId> {
        self.reads.iter().chain(&self.writes).map(|entry| entry.id)
    }

    /// Returns the first variable that is named twice.
    fn duplicate(&self) -> Option<VariableId> {
        let mut all: Vec<VariableId> = self.variables().collect();
        all.sort_unstable();
        all.windows(2).find(|pair| pair[0] == pair[1]).map(|pair| pair[0])
    }
}

/// A running operation's access to the named variables.
///
/// The operation ends when the closure has returned and the last copy of the task is dropped. So an
/// operation may complete later on another thread, and meanwhile no thread of the queue waits.
///
/// ```
/// use std::thread;
///
/// use arenaplan_engine::{Operation, Policy, Queue};
///
/// let queue = Queue::new(Policy::workers(1));
/// let record = queue.variable(0);
/// let to = record.clone();
/// queue.push(Operation::new("receive").writes(&record), move |task| {
///     let task = task.clone();
///     thread::spawn(move || match task.write(&to) {
///         Ok(mut record) => *record = 7,
///         Err(error) => task.fail(error),
///     });
///     Ok(())
/// })?;
/// assert_eq!(queue.get(&record)?, 7);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Task {
    running: Arc<Running>,
}

impl Task {
    /// Returns a variable to read.
    ///
    /// # Errors
    ///
    /// [`AccessError`] if the operation did not name the variable.
    pub fn read<'v, T>(
        &self,
        variable: &'v Variable<T>,
    ) -> Result<RwLockReadGuard<'v, T>, AccessError> {
        if !self.running.operation.variables().any(|named| named == variable.id()) {
            return Err(AccessError { variable: variable.id(), writes: false });
        }
        // No other operation writes the variable now, so only this operation can hold the lock.
        Ok(variable.value.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns a variable to write.
    ///
    /// # Errors
    ///
    /// [`AccessError`] if the operation did not name the variable for writing.
    pub fn write<'v, T>(
        &self,
        variable: &'v Variable<T>,
    ) -> Result<RwLockWriteGuard<'v, T>, AccessError> {
        let writes = &self.running.operation.writes;
        if !writes.iter().any(|named| named.id == variable.id()) {
            return Err(AccessError { variable: variable.id(), writes: true });
        }
        Ok(variable.value.write().unwrap_or_else(PoisonError::into_inner))
    }

    /// Makes the operation fail at the end. The first failure counts.
    pub fn fail(&self, error: impl Into<Box<dyn Error + Send + Sync>>) {
        self.running.fail(Cause::Failed(error.into().into()));
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        if thread::panicking() {
            // If the closure itself panicked, the panic message replaces this cause.
            self.running.fail(Cause::Panicked("a thread that held its task".into()));
        }
    }
}

/// An operation from start to end. Dropping the value ends the operation.
struct Running {
    shared: Arc<Shared>,
    id: u64,
    operation: Arc<Operation>,
    cause: Mutex<Option<Cause>>,
}

impl fmt::Debug for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Running").field(&self.operation).finish()
    }
}

impl Running {
    /// Notes why the operation failed. The first cause counts; any cause replaces a panic.
    fn fail(&self, cause: Cause) {
        let mut noted = self.cause.lock().unwrap_or_else(PoisonError::into_inner);
        let is_first = matches!(*noted, None | Some(Cause::Panicked(_)));
        let unused = if is_first { noted.replace(cause) } else { Some(cause) };
        drop(noted);
        drop(unused); // The lock is released first: an error's destructor is foreign code.
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let cause = self.cause.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        let error = cause.map(|cause| {
            let (operation, name) = (OperationId(self.id), Arc::clone(&self.operation.name));
            OperationError { operation, name, cause }
        });
        self.shared.end(self.id, &self.operation, error, true);
        self.shared.drain_if_serial(self.shared.lock());
    }
}

type Body = Box<dyn FnOnce(&Task) -> Result<(), Box<dyn Error + Send + Sync>> + Send>;

/// An operation that has not ended.
struct Pending {
    operation: Arc<Operation>,
    /// `None` once the operation runs.
    body: Option<Body>,
    /// Number of operations that must end before.
    waits: usize,
    /// The operations that wait for this operation.
    dependents: Vec<u64>,
}

/// The operations on one variable.
#[derive(Debug, Default)]
struct History {
    /// The last operation that writes the variable.
    writer: Option<u64>,
    /// The operations that read the variable after the last write.
    readers: Vec<u64>,
    /// Number of ended operations that write the variable.
    version: u64,
    /// The error of the operation that wrote the present version.
    error: Option<OperationError>,
}

#[derive(Default)]
struct QueueState {
    /// By the index of the variable, as long as a handle or an operation names the variable.
    histories: HashMap<usize, History>,
    /// Number of variables ever made.
    variables: usize,
    pending: HashMap<u64, Pending>,
    /// For each space: the ready operations, the first pushed operation on top.
    ready: Vec<BinaryHeap<Reverse<u64>>>,
    /// Number of pushed operations.
    pushed: u64,
    /// Operations that failed by themselves, and that `wait_all` has not reported.
    failed: BTreeMap<u64, OperationError>,
    /// Whether a thread runs operations by [`Policy::Serial`].
    is_draining: bool,
    is_closed: bool,
}

struct Shared {
    id: u64,
    policy: Policy,
    state: Mutex<QueueState>,
    /// By space: threads that wait for work.
    work: Vec<Condvar>,
    /// Threads that wait for operations to end.
    ended: Condvar,
}

thread_local! {
    /// The queue whose operation this thread runs; 0 if none.
    static INSIDE: Cell<u64> = const { Cell::new(0) };
}

/// Runs operations in the background, each after its dependencies.
///
/// The order of pushes is the serial order. A read of a variable waits for the last write before. A
/// write waits for the last write before and for all reads since. All other operations may run in
/// any order or at the same time. So each variable goes through the same versions as in a serial
/// run, and every operation sees the versions of the serial run. Ready operations start in push
/// order.
///
/// An operation that fails or panics leaves an error in the written variables. Operations that read
/// or write a variable with an error are skipped, and hand the error on to the variables they would
/// write; if there are several errors, the error from the earliest push. An error stays until the
/// variable is [restored](Self::restore), and every [wait](Self::wait_for) for the variable reports
/// the error.
///
/// Dropping the queue waits for all operations.
///
/// ```
/// use arenaplan_engine::{Operation, Policy, Queue};
///
/// let queue = Queue::new(Policy::workers(2));
/// let a = queue.variable(1);
/// let b = queue.variable(0);
/// let (from, to) = (a.clone(), b.clone());
/// queue.push(Operation::new("b = a + 1").reads(&a).writes(&b), move |task| {
///     *task.write(&to)? = *task.read(&from)? + 1;
///     Ok(())
/// })?;
/// let double = a.clone();
/// queue.push(Operation::new("a *= 10").writes(&a), move |task| {
///     *task.write(&double)? *= 10; // waits for the reader of a
///     Ok(())
/// })?;
/// assert_eq!((queue.get(&a)?, queue.get(&b)?), (10, 2));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Queue {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").field("policy", &self.shared.policy).finish_non_exhaustive()
    }
}

impl Queue {
    /// Starts the threads of a policy. [`Policy::Serial`] starts none: a push runs the operation.
    #[must_use]
    pub fn new(policy: Policy) -> Self {
        Self::on_threads(policy, |work| work())
    }

    /// As [`new`](Self::new). Each thread calls `around` once, which sets up the thread and calls
    /// the given closure; the closure runs the operations.
    #[must_use]
    pub fn on_threads(
        policy: Policy,
        around: impl Fn(&mut (dyn FnMut() + Send)) + Send + Sync + 'static,
    ) -> Self {
        static QUEUES: AtomicU64 = AtomicU64::new(1);
        let queues = policy.queues();
        let mut state = QueueState::default();
        state.ready.resize_with(queues, BinaryHeap::new);
        let shared = Arc::new(Shared {
            id: QUEUES.fetch_add(1, Ordering::Relaxed),
            policy,
            state: Mutex::new(state),
            work: (0..queues).map(|_| Condvar::new()).collect(),
            ended: Condvar::new(),
        });
        let around = Arc::new(around);
        let threads = (0..queues * policy.threads_per_queue()).map(|thread| {
            let (shared, around) = (Arc::clone(&shared), Arc::clone(&around));
            thread::spawn(move || around(&mut || shared.work(thread / policy.threads_per_queue())))
        });
        Self { threads: Mutex::new(threads.collect()), shared }
    }

    /// Returns a new variable with a value, at version 0.
    pub fn variable<T: Send + Sync + 'static>(&self, value: T) -> Variable<T> {
        let mut state = self.shared.lock();
        let id = VariableId { queue: self.shared.id, index: state.variables };
        state.variables += 1;
        state.histories.insert(id.index, History::default());
        drop(state);
        let entry = Arc::new(Entry { id, shared: Arc::downgrade(&self.shared) });
        Variable { entry, value: Arc::new(RwLock::new(value)) }
    }

    /// Returns how many variables a handle or an operation names.
    #[must_use]
    pub fn variables(&self) -> usize {
        self.shared.lock().histories.len()
    }

    /// Pushes an operation without waiting for the end.
    ///
    /// # Errors
    ///
    /// [`PushError`] if the queue is closed, or the operation names a variable twice, a variable of another
    /// queue, or a space without a thread.
    pub fn push(
        &self,
        operation: Operation,
        body: impl FnOnce(&Task) -> Result<(), Box<dyn Error + Send + Sync>> + Send + 'static,
    ) -> Result<OperationId, PushError> {
        let shared = &self.shared;
        if let Some(variable) = operation.duplicate() {
            return Err(PushError::Duplicate(variable));
        }
        if let Some(variable) = operation.variables().find(|variable| variable.queue != shared.id) {
            return Err(PushError::Foreign(variable));
        }
        if matches!(shared.policy, Policy::PerSpace(spaces) if operation.space >= spaces.get()) {
            return Err(PushError::Space(operation.space));
        }
        let mut state = shared.lock();
        if state.is_closed {
            drop(state); // Before the closure, which is foreign code.
            return Err(PushError::Closed);
        }
        let id = state.add(operation, Box::new(body), shared.policy.queues());
        if shared.policy != Policy::Serial && state.pending[&id].waits == 0 {
            let space = shared.space(&state.pending[&id].operation);
            shared.work[space].notify_one();
        }
        shared.drain_if_serial(state);
        Ok(OperationId(id))
    }

    /// Waits for all writes to a variable that were pushed before.
    ///
    /// # Errors
    ///
    /// [`WaitError::Operation`] if the variable has an operation's error; every later call fails,
    /// too, until the variable is [restored](Self::restore). [`WaitError::Inside`] in an operation
    /// in the queue, which would wait for itself.
    pub fn wait_for<T>(&self, variable: &Variable<T>) -> Result<(), WaitError> {
        let index = self.check_outside(variable.id())?;
        let mut state = self.shared.lock();
        let writer = state.histories.get(&index).and_then(|history| history.writer);
        while writer.is_some_and(|writer| state.pending.contains_key(&writer)) {
            state = self.shared.ended.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.error(index).map_or(Ok(()), |error| Err(WaitError::Operation(error)))
    }

    /// Waits for all operations that were pushed.
    ///
    /// # Errors
    ///
    /// [`WaitError::Operation`] for the operation that was pushed first among the failures since
    /// the last call: each failure is reported once, and also stays in the variables.
    /// [`WaitError::Inside`] in an operation in the queue.
    pub fn wait_all(&self) -> Result<(), WaitError> {
        while !self.wait_all_within(Duration::MAX)? {}
        Ok(())
    }

    /// As [`wait_all`](Self::wait_all), but for `limit` at most, and returns whether all operations have
    /// ended. A program that has more to look after than the queue waits in turns.
    ///
    /// # Errors
    ///
    /// As [`wait_all`](Self::wait_all).
    pub fn wait_all_within(&self, limit: Duration) -> Result<bool, WaitError> {
        if self.is_inside() {
            return Err(WaitError::Inside);
        }
        let is_busy = |state: &mut QueueState| !state.pending.is_empty();
        let waited = self.shared.ended.wait_timeout_while(self.shared.lock(), limit, is_busy);
        let (mut state, waited) = waited.unwrap_or_else(PoisonError::into_inner);
        if waited.timed_out() && is_busy(&mut state) {
            return Ok(false);
        }
        let mut failed = std::mem::take(&mut state.failed);
        drop(state);
        failed.pop_first().map_or(Ok(true), |(_, error)| Err(WaitError::Operation(error)))
    }

    /// Returns whether this thread runs an operation of the queue, which cannot wait in the queue.
    #[must_use]
    pub fn is_inside(&self) -> bool {
        INSIDE.get() == self.shared.id
    }

    /// Waits for a variable, and returns a copy of the version that the operations pushed before
    /// leave.
    ///
    /// # Errors
    ///
    /// As [`wait_for`](Self::wait_for).
    pub fn get<T: Clone + Send + Sync + 'static>(
        &self,
        variable: &Variable<T>,
    ) -> Result<T, WaitError> {
        let index = self.check_outside(variable.id())?;
        // A read, so that no later write comes first.
        let copy = Arc::new(Mutex::new(None));
        let (from, to) = (variable.clone(), Arc::clone(&copy));
        let operation = Operation::new("get").reads(variable);
        let id = self.push(operation, move |task| {
            let value = task.read(&from)?.clone();
            *to.lock().unwrap_or_else(PoisonError::into_inner) = Some(value);
            Ok(())
        });
        let id = id.map_err(|_| WaitError::Foreign(variable.id()))?;
        let mut state = self.shared.lock();
        while state.pending.contains_key(&id.0) {
            state = self.shared.ended.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let error = state.error(index);
        drop(state);
        let value = copy.lock().unwrap_or_else(PoisonError::into_inner).take();
        match (value, error) {
            (Some(value), _) => Ok(value),
            (None, Some(error)) => Err(WaitError::Operation(error)),
            (None, None) => Err(WaitError::Restored(variable.id())),
        }
    }

    /// Pushes an operation that gives a variable another value and clears the error.
    ///
    /// # Errors
    ///
    /// [`PushError::Foreign`] for a variable of another queue.
    pub fn restore<T: Send + Sync + 'static>(
        &self,
        variable: &Variable<T>,
        value: T,
    ) -> Result<OperationId, PushError> {
        let to = variable.clone();
        let operation = Operation { restores: true, ..Operation::new("restore").writes(variable) };
        self.push(operation, move |task| {
            *task.write(&to)? = value;
            Ok(())
        })
    }

    /// Returns how many operations that write a variable have ended.
    ///
    /// # Errors
    ///
    /// [`WaitError::Foreign`] for a variable of another queue.
    pub fn version<T>(&self, variable: &Variable<T>) -> Result<u64, WaitError> {
        let id = variable.id();
        let known = (id.queue == self.shared.id).then(|| self.shared.lock());
        let history = known.as_ref().and_then(|state| state.histories.get(&id.index));
        history.map(|history| history.version).ok_or(WaitError::Foreign(id))
    }

    /// Waits for all operations, and ends the threads. Later operations are refused.
    ///
    /// In an operation in the queue, which cannot wait for itself, the threads end by themselves.
    pub fn close(&self) {
        let is_inside = self.is_inside();
        let mut state = if is_inside { self.shared.lock() } else { self.shared.until_idle() };
        state.is_closed = true;
        drop(state);
        self.shared.work.iter().for_each(Condvar::notify_all);
        let threads =
            std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        for thread in threads.into_iter().filter(|_| !is_inside) {
            // Operations do not unwind out of a thread.
            let _ = thread.join();
        }
    }

    /// Returns the index of a variable that the caller may wait for.
    fn check_outside(&self, variable: VariableId) -> Result<usize, WaitError> {
        if variable.queue != self.shared.id {
            return Err(WaitError::Foreign(variable));
        }
        if self.is_inside() { Err(WaitError::Inside) } else { Ok(variable.index) }
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        self.close();
    }
}

impl QueueState {
    /// Adds an operation, and returns the operation's number.
    fn add(&mut self, operation: Operation, body: Body, queues: usize) -> u64 {
        let id = self.pushed;
        self.pushed += 1;
        let mut before: Vec<u64> = Vec::new();
        for entry in &operation.reads {
            let history = self.histories.entry(entry.id.index).or_default();
            before.extend(history.writer);
            if history.readers.len() > 16 {
                // A read-only variable must not remember all readers.
                history.readers.retain(|reader| self.pending.contains_key(reader));
            }
            history.readers.push(id);
        }
        for entry in &operation.writes {
            let history = self.histories.entry(entry.id.index).or_default();
            before.extend(history.writer.replace(id));
            before.append(&mut history.readers);
        }
        before.sort_unstable();
        before.dedup();
        let mut waits = 0;
        for other in before {
            if let Some(other) = self.pending.get_mut(&other) {
                other.dependents.push(id);
                waits += 1;
            }
        }
        if waits == 0 {
            self.ready[operation.space.min(queues - 1)].push(Reverse(id));
        }
        let operation = Arc::new(operation);
        let pending = Pending { operation, body: Some(body), waits, dependents: Vec::new() };
        self.pending.insert(id, pending);
        id
    }

    /// Returns the error of a variable's present version.
    fn error(&self, variable: usize) -> Option<OperationError> {
        self.histories.get(&variable)?.error.clone()
    }

    /// Returns the first error that an operation inherits from the named variables.
    fn inherited(&self, operation: &Operation) -> Option<OperationError> {
        if operation.restores {
            return None;
        }
        let errors = operation.variables().filter_map(|variable| self.error(variable.index));
        errors.min_by_key(|error| error.operation)
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, QueueState> {
        // No foreign code runs while the lock is held.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn space(&self, operation: &Operation) -> usize {
        operation.space.min(self.work.len() - 1)
    }

    fn until_idle(&self) -> MutexGuard<'_, QueueState> {
        let mut state = self.lock();
        while !state.pending.is_empty() {
            state = self.ended.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state
    }

    /// Runs a space's operations until the queue is closed.
    fn work(self: &Arc<Self>, space: usize) {
        let mut state = self.lock();
        loop {
            if let Some(Reverse(id)) = state.ready[space].pop() {
                state = self.run(state, id);
            } else if state.is_closed && state.pending.is_empty() {
                return;
            } else {
                state = self.work[space].wait(state).unwrap_or_else(PoisonError::into_inner);
            }
        }
    }

    /// By [`Policy::Serial`], runs all operations that may run on this thread, unless a thread does so.
    fn drain_if_serial<'s>(self: &'s Arc<Self>, mut state: MutexGuard<'s, QueueState>) {
        if self.policy != Policy::Serial || std::mem::replace(&mut state.is_draining, true) {
            return;
        }
        while let Some(Reverse(id)) = state.ready[0].pop() {
            state = self.run(state, id);
        }
        state.is_draining = false;
    }

    /// Runs one operation, without the lock.
    fn run<'s>(
        self: &'s Arc<Self>,
        mut state: MutexGuard<'s, QueueState>,
        id: u64,
    ) -> MutexGuard<'s, QueueState> {
        let Some(pending) = state.pending.get_mut(&id) else { return state };
        let body = pending.body.take();
        let operation = Arc::clone(&pending.operation);
        let inherited = state.inherited(&operation);
        drop(state);
        match (inherited, body) {
            (Some(error), body) => {
                // A skipped closure is dropped as after a run.
                drop_quietly(body);
                self.end(id, &operation, Some(error), false);
                // Before the lock, since dropping an entry locks.
                drop(operation);
            }
            (None, body) => {
                let (shared, cause) = (Arc::clone(self), Mutex::default());
                let task = Task { running: Arc::new(Running { shared, id, operation, cause }) };
                let before = INSIDE.replace(self.id);
                let ended = catch_unwind(AssertUnwindSafe(|| body.map_or(Ok(()), |it| it(&task))));
                INSIDE.set(before);
                match ended {
                    Ok(Ok(())) => {}
                    Ok(Err(error)) => task.fail(error),
                    Err(payload) => task.running.fail(Cause::of_panic(&*payload)),
                }
            }
        }
        self.lock()
    }

    /// Records the end of an operation.
    fn end(&self, id: u64, operation: &Operation, error: Option<OperationError>, is_own: bool) {
        let mut state = self.lock();
        let mut replaced = Vec::new();
        for entry in &operation.writes {
            if let Some(history) = state.histories.get_mut(&entry.id.index) {
                history.version += 1;
                replaced.push(std::mem::replace(&mut history.error, error.clone()));
            }
        }
        if let Some(error) = error.filter(|_| is_own) {
            state.failed.insert(id, error);
        }
        let ended = state.pending.remove(&id);
        for &next in ended.iter().flat_map(|ended| &ended.dependents) {
            let Some(pending) = state.pending.get_mut(&next) else { continue };
            pending.waits -= 1;
            if pending.waits == 0 {
                let space = self.space(&pending.operation);
                state.ready[space].push(Reverse(next));
                self.work[space].notify_one();
            }
        }
        if state.is_closed && state.pending.is_empty() {
            self.work.iter().for_each(Condvar::notify_all);
        }
        self.ended.notify_all();
        // Without the lock: destructors of errors are foreign code, and dropping an entry locks.
        drop(state);
        drop((replaced, ended));
    }
}

/// Drops a closure, and catches a panic of the destructor.
fn drop_quietly(body: Option<Body>) {
    let _ = catch_unwind(AssertUnwindSafe(|| drop(body)));
}
