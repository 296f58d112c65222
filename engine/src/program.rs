//! Program runs on several threads.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use arenaplan::program::{ProgramStep, SharedArena, StepMemory};
use arenaplan::{Arena, Program};

use crate::error::{Cause, RunError, StepError};
use crate::policy::Policy;

/// Runs programs by a [`Policy`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Engine {
    policy: Policy,
}

/// A program with tables that several runs share.
#[derive(Debug)]
pub struct Runner<'p> {
    program: &'p Program,
    policy: Policy,
    /// For each step: the number of steps that must end before.
    waits: Vec<u32>,
    /// For each step, and once more behind the last step: the index of the first dependent.
    starts: Vec<usize>,
    dependents: Vec<u32>,
    /// For each step: the queue that takes the step.
    queues: Vec<usize>,
}

impl Engine {
    /// Returns an engine.
    #[must_use]
    pub const fn new(policy: Policy) -> Self {
        Self { policy }
    }

    /// Returns the policy.
    #[must_use]
    pub const fn policy(&self) -> Policy {
        self.policy
    }

    /// Makes a program ready for runs by this engine.
    #[must_use]
    pub fn prepare<'p>(&self, program: &'p Program) -> Runner<'p> {
        Runner::new(program, self.policy)
    }

    /// Runs a program once: `kernel` is called with each step and the step's memory.
    ///
    /// Threads live as long as the run; the caller's thread is among them.
    /// [`prepare`](Self::prepare) saves the tables of a program that runs often.
    ///
    /// # Errors
    ///
    /// - [`RunError::Arena`] if the arena was not made for the program.
    /// - [`RunError::Step`] if a kernel returns an error or panics. Later steps in the plan are not
    ///   started any more. If several steps would fail, the first step in plan order is reported,
    ///   whatever the timing.
    pub fn run<E: Send>(
        &self,
        arena: &mut Arena<'_>,
        program: &Program,
        kernel: impl Fn(ProgramStep<'_>, StepMemory<'_>) -> Result<(), E> + Sync,
    ) -> Result<(), RunError<E>> {
        self.prepare(program).run(arena, kernel)
    }
}

impl<'p> Runner<'p> {
    fn new(program: &'p Program, policy: Policy) -> Self {
        let queues = policy.queues();
        let mut runner = Self {
            program,
            policy,
            waits: Vec::new(),
            starts: Vec::new(),
            dependents: Vec::new(),
            queues: program.steps().map(|step| space_of(step).min(queues - 1)).collect(),
        };
        if policy == Policy::Serial {
            return runner;
        }
        let hazards = program.hazards();
        let count = |step| u32::try_from(hazards.of(step).len()).unwrap_or(u32::MAX);
        runner.waits = (0..program.len()).map(count).collect();
        let mut at = vec![0; program.len() + 1];
        for edge in hazards.edges() {
            at[index(edge.before) + 1] += 1;
        }
        for step in 0..program.len() {
            at[step + 1] += at[step];
        }
        runner.starts.clone_from(&at);
        runner.dependents = vec![0; hazards.edges().len()];
        for edge in hazards.edges() {
            let next = &mut at[index(edge.before)];
            runner.dependents[*next] = edge.after;
            *next += 1;
        }
        runner
    }

    /// Returns the program.
    #[must_use]
    pub const fn program(&self) -> &'p Program {
        self.program
    }

    /// Runs the program once: see [`Engine::run`].
    ///
    /// # Errors
    ///
    /// As [`Engine::run`].
    pub fn run<E: Send>(
        &self,
        arena: &mut Arena<'_>,
        kernel: impl Fn(ProgramStep<'_>, StepMemory<'_>) -> Result<(), E> + Sync,
    ) -> Result<(), RunError<E>> {
        let threads = self.policy.threads_per_queue();
        if threads == 0 {
            return self.run_serial(arena, kernel);
        }
        let shared = arena.share(self.program).map_err(RunError::Arena)?;
        let run = Run::new(self, &shared, &kernel);
        // More threads than steps have nothing to do.
        let threads = threads.min(self.program.len().max(1));
        thread::scope(|scope| {
            for thread in 1..threads * self.policy.queues() {
                let run = &run;
                scope.spawn(move || run.work(thread / threads));
            }
            run.work(0);
        });
        run.into_result()
    }

    /// Runs the program once on the threads of an existing pool.
    ///
    /// The pool decides the number of threads, not the policy. A ready step is a task in the pool;
    /// no task waits for another, so the pool may run other tasks, too.
    ///
    /// # Errors
    ///
    /// As [`Engine::run`].
    #[cfg(feature = "rayon")]
    pub fn run_in<E: Send>(
        &self,
        pool: &rayon::ThreadPool,
        arena: &mut Arena<'_>,
        kernel: impl Fn(ProgramStep<'_>, StepMemory<'_>) -> Result<(), E> + Sync,
    ) -> Result<(), RunError<E>> {
        if self.waits.len() != self.program.len() {
            let runner = Runner::new(self.program, Policy::workers(1));
            return runner.run_in(pool, arena, kernel);
        }
        let shared = arena.share(self.program).map_err(RunError::Arena)?;
        let run = Run::new(self, &shared, &kernel);
        pool.scope(|scope| {
            for _ in 0..run.ready() {
                scope.spawn(|scope| run.task(scope));
            }
        });
        run.into_result()
    }

    fn run_serial<E>(
        &self,
        arena: &mut Arena<'_>,
        kernel: impl Fn(ProgramStep<'_>, StepMemory<'_>) -> Result<(), E>,
    ) -> Result<(), RunError<E>> {
        for step in self.program.steps() {
            let memory = arena.step(self.program, step).map_err(RunError::Arena)?;
            called(|| kernel(step, memory)).map_err(|error| failed(step, error))?;
        }
        Ok(())
    }

    fn dependents(&self, step: usize) -> &[u32] {
        &self.dependents[self.starts[step]..self.starts[step + 1]]
    }
}

/// Returns the space that a step writes to: the space of the first output in an arena, or of
/// another used operand.
fn space_of(step: ProgramStep<'_>) -> usize {
    let outputs = step.outputs().filter_map(|output| output.span);
    let scratch = step.workspaces().map(|work| work.span);
    let inputs = step.inputs().filter_map(|input| input.span);
    outputs.chain(scratch).chain(inputs).next().map_or(0, |span| span.space.index())
}

fn index(step: u32) -> usize {
    usize::try_from(step).unwrap_or(usize::MAX)
}

/// Calls a kernel; a panic is an error.
fn called<E>(kernel: impl FnOnce() -> Result<(), E>) -> Result<(), StepError<E>> {
    // A panicking kernel leaves the output half written. No step that reads the output is started.
    match catch_unwind(AssertUnwindSafe(kernel)) {
        Ok(result) => result.map_err(StepError::Kernel),
        Err(payload) => match Cause::of_panic(&*payload) {
            Cause::Panicked(text) => Err(StepError::Panicked(text)),
            Cause::Failed(error) => Err(StepError::Panicked(error.to_string())),
        },
    }
}

fn failed<E>(step: ProgramStep<'_>, error: StepError<E>) -> RunError<E> {
    RunError::Step { index: step.index(), name: step.name().to_owned(), error }
}

/// One run on several threads.
struct Run<'r, E, K> {
    runner: &'r Runner<'r>,
    shared: &'r SharedArena<'r>,
    kernel: &'r K,
    /// For each step: the number of steps that must still end before.
    waits: Vec<AtomicU32>,
    state: Mutex<RunState<E>>,
    /// For each queue: the condition on which the threads sleep.
    wake: Vec<Condvar>,
}

struct RunState<E> {
    /// For each queue: the ready steps, the first step in plan order on top.
    ready: Vec<BinaryHeap<Reverse<u32>>>,
    /// Number of running steps.
    running: usize,
    /// The first step that failed; from there on no step is started.
    failed: Option<(u32, RunError<E>)>,
}

impl<E> RunState<E> {
    /// Returns whether a step is before all steps that failed.
    fn is_wanted(&self, step: u32) -> bool {
        self.failed.as_ref().is_none_or(|&(first, _)| step < first)
    }

    /// Takes the first ready step from a queue.
    fn take(&mut self, queue: usize) -> Option<usize> {
        let Reverse(step) = self.ready[queue].pop()?;
        if !self.is_wanted(step) {
            // Nor is any later step.
            self.ready[queue].clear();
            return None;
        }
        self.running += 1;
        Some(index(step))
    }

    /// Returns whether no step runs or is going to.
    fn is_over(&self) -> bool {
        let wanted = |ready: &BinaryHeap<Reverse<u32>>| {
            ready.peek().is_some_and(|&Reverse(step)| self.is_wanted(step))
        };
        self.running == 0 && !self.ready.iter().any(wanted)
    }
}

impl<'r, E: Send, K> Run<'r, E, K>
where
    K: Fn(ProgramStep<'_>, StepMemory<'_>) -> Result<(), E> + Sync,
{
    fn new(runner: &'r Runner<'r>, shared: &'r SharedArena<'r>, kernel: &'r K) -> Self {
        let queues = runner.policy.queues();
        let mut ready: Vec<BinaryHeap<Reverse<u32>>> = Vec::new();
        ready.resize_with(queues, BinaryHeap::new);
        for (step, (&waits, &queue)) in (0..).zip(runner.waits.iter().zip(&runner.queues)) {
            if waits == 0 {
                ready[queue].push(Reverse(step));
            }
        }
        Self {
            runner,
            shared,
            kernel,
            waits: runner.waits.iter().map(|&waits| AtomicU32::new(waits)).collect(),
            state: Mutex::new(RunState { ready, running: 0, failed: None }),
            wake: (0..queues).map(|_| Condvar::new()).collect(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, RunState<E>> {
        // Nothing panics while the lock is held.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs steps from a queue until no step is left.
    fn work(&self, queue: usize) {
        let mut state = self.lock();
        loop {
            if let Some(step) = state.take(queue) {
                drop(state);
                let result = self.step(step);
                state = self.end(step, result, Some(queue)).0;
            } else if state.is_over() {
                self.wake.iter().for_each(Condvar::notify_all);
                return;
            } else {
                state = self.wake[queue].wait(state).unwrap_or_else(PoisonError::into_inner);
            }
        }
    }

    /// Runs one step.
    fn step(&self, index: usize) -> Result<(), RunError<E>> {
        let mut lent = self.shared.step(index).map_err(RunError::Arena)?;
        let step = lent.step();
        called(|| (self.kernel)(step, lent.memory())).map_err(|error| failed(step, error))
    }

    /// Records the end of a step, and wakes threads for steps that became ready; the thread takes
    /// one step from its own `queue` itself. Returns the number of steps that became ready.
    fn end(
        &self,
        step: usize,
        result: Result<(), RunError<E>>,
        queue: Option<usize>,
    ) -> (MutexGuard<'_, RunState<E>>, usize) {
        // The step was given back: steps whose last wait this was may be lent.
        let mut fresh = 0;
        let mut own = usize::from(queue.is_some());
        let is_freed = |next: &&u32| self.waits[index(**next)].fetch_sub(1, Ordering::AcqRel) == 1;
        let freed: Freed = match result {
            Ok(()) => self.runner.dependents(step).iter().filter(is_freed).copied().collect(),
            Err(_) => Freed::default(),
        };
        let mut state = self.lock();
        state.running -= 1;
        if let Err(error) = result {
            let step = u32::try_from(step).unwrap_or(u32::MAX);
            if state.is_wanted(step) {
                state.failed = Some((step, error));
            }
        }
        for next in freed {
            let to = self.runner.queues[index(next)];
            state.ready[to].push(Reverse(next));
            fresh += 1;
            if Some(to) == queue && own > 0 {
                own = 0;
            } else {
                self.wake[to].notify_one();
            }
        }
        (state, fresh)
    }

    fn into_result(self) -> Result<(), RunError<E>> {
        let state = self.state.into_inner().unwrap_or_else(PoisonError::into_inner);
        match state.failed {
            None => Ok(()),
            Some((_, error)) => Err(error),
        }
    }
}

/// Steps that became ready when a step ended: mostly one or two.
type Freed = Vec<u32>;

#[cfg(feature = "rayon")]
impl<E: Send, K> Run<'_, E, K>
where
    K: Fn(ProgramStep<'_>, StepMemory<'_>) -> Result<(), E> + Sync,
{
    /// Returns how many steps may run now.
    fn ready(&self) -> usize {
        self.lock().ready.iter().map(BinaryHeap::len).sum()
    }

    /// Runs a ready step, and then one of the steps that became ready; the others become tasks.
    fn task<'s>(&'s self, scope: &rayon::Scope<'s>) {
        let take =
            |state: &mut RunState<E>| (0..self.wake.len()).find_map(|queue| state.take(queue));
        let mut next = take(&mut self.lock());
        while let Some(step) = next {
            let result = self.step(step);
            let (mut state, fresh) = self.end(step, result, None);
            next = if fresh > 0 { take(&mut state) } else { None };
            drop(state);
            for _ in 1..fresh {
                scope.spawn(|scope| self.task(scope));
            }
        }
    }
}
