//! Arenas that several threads use at once.

use alloc::format;

use crate::base::{Error, Result, quoted};
use crate::plan::{Hazards, Plan};
use crate::run::arena::{Arena, LentStep, Refusal, SharedRegions, mismatch};
use crate::run::program::{Program, ProgramStep, StepMemory};

impl Arena<'_> {
    /// Borrows the arena for runs in which several threads run a program's steps concurrently.
    ///
    /// ```
    /// use std::thread;
    ///
    /// use arenaplan::{DType, Graph, Node, Planner, Value, ValueKind};
    ///
    /// // Two nodes that do not wait for each other.
    /// let mut builder = Graph::builder("halves");
    /// let array = |name, kind| Value::new(name, kind, DType::UINT8, [4]);
    /// let x = builder.add_value(array("x", ValueKind::Input)?);
    /// let left = builder.add_value(array("left", ValueKind::Activation)?);
    /// let right = builder.add_value(array("right", ValueKind::Activation)?);
    /// builder.add_node(Node::new("left", "Raise").reads([x]).writes([left]));
    /// builder.add_node(Node::new("right", "Raise").reads([x]).writes([right]));
    /// builder.add_output(left);
    /// builder.add_output(right);
    /// let graph = builder.build()?;
    /// let plan = Planner::new().plan(&graph)?;
    /// let program = plan.program(&graph)?;
    ///
    /// let mut arena = plan.commit()?;
    /// let shared = arena.share(&program)?;
    /// thread::scope(|scope| {
    ///     let runs = [0, 1].map(|index| {
    ///         let shared = &shared;
    ///         scope.spawn(move || {
    ///             let mut lent = shared.step(index)?;
    ///             lent.memory().elementwise(|[x]: [u8; 1]| x + 1)
    ///         })
    ///     });
    ///     runs.into_iter().try_for_each(|run| run.join().expect("no panic"))
    /// })?;
    /// assert!(shared.is_over());
    /// assert_eq!(arena.value(&plan, right)?, [1; 4]);
    /// # Ok::<(), arenaplan::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::ArenaMismatch`] if the arena and the program have different plans.
    pub fn share<'a>(&'a mut self, program: &'a Program) -> Result<SharedArena<'a>> {
        if !self.belongs_to(program.layout) {
            return Err(mismatch(&program.plan));
        }
        let memory = SharedRegions::new(&mut self.regions, &program.spans, program.hazards());
        Ok(SharedArena { memory, program })
    }
}

/// An arena in which several threads run a program's steps concurrently.
///
/// A step is [lent](Self::step) once, and only after all [required steps](Program::hazards) were
/// given back; then no byte that the step writes is lent to another step. Steps may move to other
/// threads.
#[derive(Debug)]
pub struct SharedArena<'a> {
    memory: SharedRegions<'a>,
    program: &'a Program,
}

impl SharedArena<'_> {
    /// Returns the program.
    pub const fn program(&self) -> &Program {
        self.program
    }

    /// Returns the steps that each step waits for.
    pub fn hazards(&self) -> &Hazards {
        self.program.hazards()
    }

    /// Lends the step at a position until the result is dropped, without allocating.
    ///
    /// # Errors
    ///
    /// - [`Error::ArenaState`] if the step was already lent in this run, or a required step was not
    ///   given back.
    /// - [`Error::UndefinedValue`] if there is no such step.
    pub fn step(&self, index: usize) -> Result<SharedStep<'_>> {
        let lent = self.memory.lend(index).map_err(|reason| self.refused(index, reason))?;
        let step = self.program.step(index).ok_or_else(|| self.refused(index, Refusal::Missing))?;
        Ok(SharedStep { lent, step })
    }

    /// Returns whether every step was lent and given back.
    pub fn is_over(&self) -> bool {
        self.memory.is_over()
    }

    /// Begins another run: every step may be lent again.
    pub fn restart(&mut self) {
        self.memory.restart();
    }

    #[cold]
    fn refused(&self, index: usize, reason: Refusal) -> Error {
        let plan: &Plan = self.program.plan();
        let name = |step: usize| plan.steps().get(step).map_or("", |step| &step.name);
        let step = quoted(name(index));
        match reason {
            Refusal::Missing => Error::UndefinedValue {
                user: "the caller".into(),
                value: format!("step {index} of {}", quoted(plan.model())),
            },
            Refusal::Lent => {
                Error::ArenaState { reason: format!("step {step} was lent before in this run") }
            }
            Refusal::Waits(other) => {
                let other = quoted(name(other));
                Error::ArenaState { reason: format!("step {step} waits for step {other}") }
            }
        }
    }
}

/// A step that is lent to a thread.
#[derive(Debug)]
pub struct SharedStep<'r> {
    lent: LentStep<'r>,
    step: ProgramStep<'r>,
}

impl<'r> SharedStep<'r> {
    /// Returns the step.
    pub const fn step(&self) -> ProgramStep<'r> {
        self.step
    }

    /// Returns the step's memory.
    pub fn memory(&mut self) -> StepMemory<'_> {
        StepMemory { memory: &mut self.lent, step: self.step }
    }
}
