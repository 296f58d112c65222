//! Leases: arenas from a pool.

use alloc::sync::Arc;
use alloc::{format, vec::Vec};
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll};

use bytemuck::Pod;

use crate::base::{Error, Result, ValueId};
use crate::plan::Plan;
use crate::run::arena::{Arena, Region};
use crate::run::program::{Program, ProgramStep, StepMemory};
use crate::serve::pool::ArenaPool;
use crate::serve::pool::state::{Signal, Ticket};

/// The memory for one plan, until dropped: a [`Lease`] without a program, for runners that find the
/// operands of steps by themselves.
///
/// ```
/// use arenaplan::{ArenaPool, DType, Graph, Planner, SpaceId, Value, ValueKind};
///
/// let mut builder = Graph::builder("nothing to do");
/// let x = builder.add_value(Value::new("x", ValueKind::Input, DType::UINT8, [100])?);
/// builder.add_output(x);
/// let plan = Planner::new().plan(&builder.build()?)?;
///
/// let pool = ArenaPool::builder().cap(4096).build()?;
/// let mut leased = pool.wait_arena(&plan, None)?;
/// assert!(leased.arena_mut().bytes_mut(SpaceId::new(0)).is_some_and(|it| it.len() >= 100));
/// assert_eq!(pool.statistics().leased_bytes, 4096);
/// # Ok::<(), arenaplan::Error>(())
/// ```
#[derive(Debug)]
pub struct LeasedArena {
    pool: ArenaPool,
    arena: Arena<'static>,
}

impl LeasedArena {
    pub(super) fn new(pool: ArenaPool, plan: &Plan, regions: Vec<Region<'static>>) -> Self {
        Self { pool, arena: Arena::of(plan, regions) }
    }

    /// Returns the arena.
    pub const fn arena(&self) -> &Arena<'static> {
        &self.arena
    }

    /// Returns the arena to write.
    pub const fn arena_mut(&mut self) -> &mut Arena<'static> {
        &mut self.arena
    }
}

impl Drop for LeasedArena {
    fn drop(&mut self) {
        self.pool.shared.give_back(core::mem::take(&mut self.arena.regions));
    }
}

/// The arena for one program, until dropped.
///
/// A lease borrows nothing: a lease can move to another thread or task, and be kept with the state
/// of a session. The content is that of an earlier lease, unless the pool
/// [clears](crate::serve::pool::PoolBuilder::clear_returned) returned blocks.
#[derive(Debug)]
pub struct Lease {
    program: Arc<Program>,
    leased: LeasedArena,
}

impl Lease {
    pub(super) fn new(
        pool: ArenaPool,
        program: Arc<Program>,
        regions: Vec<Region<'static>>,
    ) -> Self {
        let leased = LeasedArena::new(pool, program.plan(), regions);
        Self { program, leased }
    }

    /// Returns the program.
    pub const fn program(&self) -> &Arc<Program> {
        &self.program
    }

    /// Returns the program's plan.
    pub fn plan(&self) -> &Plan {
        self.program.plan()
    }

    /// Returns the arena.
    pub const fn arena(&self) -> &Arena<'static> {
        &self.leased.arena
    }

    /// Runs the program: calls `kernel` with every step and the step's memory, in order.
    ///
    /// # Errors
    ///
    /// The first error from `kernel`.
    pub fn run<E: From<Error>>(
        &mut self,
        kernel: impl FnMut(ProgramStep<'_>, &mut StepMemory<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        self.leased.arena.run(&self.program, kernel)
    }

    /// Lends the memory for the step at a position.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidOption`] if the program has fewer steps.
    pub fn step(&mut self, index: usize) -> Result<StepMemory<'_>> {
        let count = self.program.len();
        let step = self.program.step(index).ok_or_else(|| Error::InvalidOption {
            option: "step",
            reason: format!("there is no step {index}; the program has {count}"),
        })?;
        self.leased.arena.step(&self.program, step)
    }

    /// Returns `value`'s bytes.
    ///
    /// # Errors
    ///
    /// [`Error::UndefinedValue`] if the plan does not place the value.
    pub fn value(&self, value: ValueId) -> Result<&[u8]> {
        self.leased.arena.value(self.program.plan(), value)
    }

    /// Returns `value`'s bytes to write.
    ///
    /// # Errors
    ///
    /// As [`value`](Self::value).
    pub fn value_mut(&mut self, value: ValueId) -> Result<&mut [u8]> {
        self.leased.arena.value_mut(self.program.plan(), value)
    }

    /// Returns `value` as elements of type `T`.
    ///
    /// # Errors
    ///
    /// As [`value`](Self::value), and [`Error::InvalidCast`] if size or address of the value does
    /// not fit the element type.
    pub fn value_as<T: Pod>(&self, value: ValueId) -> Result<&[T]> {
        self.leased.arena.value_as(self.program.plan(), value)
    }

    /// Returns `value` as elements of type `T` to write.
    ///
    /// # Errors
    ///
    /// As [`value_as`](Self::value_as).
    pub fn value_as_mut<T: Pod>(&mut self, value: ValueId) -> Result<&mut [T]> {
        self.leased.arena.value_as_mut(self.program.plan(), value)
    }
}

/// The future of a [`Lease`]: see [`ArenaPool::lease`].
#[derive(Debug)]
#[must_use = "a future does nothing unless it is awaited"]
pub struct Leasing {
    pool: ArenaPool,
    program: Arc<Program>,
    ticket: Option<Ticket>,
}

impl Leasing {
    pub(super) const fn new(pool: ArenaPool, program: Arc<Program>) -> Self {
        Self { pool, program, ticket: None }
    }
}

impl Future for Leasing {
    type Output = Result<Lease>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let signal = || Signal::Task(context.waker().clone());
        match this.pool.shared.poll(this.program.plan(), &mut this.ticket, Some(&signal)) {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(regions)) => {
                Poll::Ready(Ok(Lease::new(this.pool.clone(), Arc::clone(&this.program), regions)))
            }
            Err(error) => Poll::Ready(Err(error)),
        }
    }
}

impl Drop for Leasing {
    fn drop(&mut self) {
        self.pool.shared.leave(&mut self.ticket);
    }
}
