//! Pools: a shared cap in bytes for the arenas of many programs and threads.
//!
//! An [`ArenaPool`] leases arenas. A [`Lease`] has exclusive memory for one [`Program`], and gives
//! the memory back when dropped. All blocks of a pool together, leased and free, never exceed the
//! cap, so programs that fit side by side run side by side, and other programs wait.
//!
//! Requests are served in order of arrival: a small request does not overtake a large request,
//! which so cannot starve. A thread waits with [`ArenaPool::wait`]; a task waits with
//! [`ArenaPool::lease`], a future that needs no particular executor and may be dropped at any time.
//! A lease that is dropped in a panic is given back like any other lease.
//!
//! The size rules are those of `MXNet`'s pooled storage managers, see [`Rounding`]. Those pools
//! reuse a block for its own size only, and free all blocks or none (apache/mxnet issues 3055,
//! 12460, 18982, 19585). Here a free block also serves requests that use at least three quarters of
//! the block, and the blocks that have been free for the longest time are freed first.
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Duration;
//!
//! use arenaplan::{ArenaPool, DType, Graph, Node, Planner, Value, ValueKind};
//!
//! let mut builder = Graph::builder("increment");
//! let x = builder.add_value(Value::new("x", ValueKind::Input, DType::FLOAT32, [4])?);
//! let y = builder.add_value(Value::new("y", ValueKind::Activation, DType::FLOAT32, [4])?);
//! builder.add_node(Node::new("increment", "AddOne").reads([x]).writes([y]));
//! builder.add_output(y);
//! let graph = builder.build()?;
//! let program = Arc::new(Planner::new().plan(&graph)?.program(&graph)?);
//!
//! let pool = ArenaPool::builder().cap(64 << 20).build()?;
//! let mut lease = pool.wait(&program, Some(Duration::from_millis(20)))?;
//! lease.value_as_mut::<f32>(x)?.fill(1.0);
//! lease.run(|_, memory| memory.elementwise(|[x]: [f32; 1]| x + 1.0))?;
//! assert_eq!(lease.value_as::<f32>(y)?, [2.0; 4]);
//! drop(lease);
//! assert_eq!(pool.statistics().leased_bytes, 0);
//! # Ok::<(), arenaplan::Error>(())
//! ```

mod lease;
#[cfg(feature = "mmap")]
mod pages;
mod rounding;
mod state;

use alloc::{boxed::Box, format, vec::Vec};
use core::future::{Future, poll_fn};
use core::pin::pin;
use core::task::Poll;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

pub use lease::{Lease, LeasedArena, Leasing};
#[cfg(feature = "mmap")]
pub use pages::Pages;
pub use rounding::Rounding;

use crate::base::{Alignment, Error, MAX_BYTES, Result};
use crate::plan::Plan;
use crate::run::arena::{ArenaAllocator, Measured, Region, SystemAllocator};
use crate::run::program::Program;
use state::{PoolState, Signal, Ticket};

/// Alignment of blocks, in bytes, at least: a cache line, and a vector register.
const ALIGNMENT: u64 = 64;

/// Statistics of an [`ArenaPool`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolStatistics {
    /// Bytes in the blocks that are leased now.
    pub leased_bytes: u64,
    /// Bytes of the blocks that are free now, and kept.
    pub free_bytes: u64,
    /// Most bytes, leased and free, at any time.
    pub peak_bytes: u64,
    /// Leases that were given.
    pub leases: u64,
    /// Blocks that were leased again.
    pub reused: u64,
    /// Blocks that were allocated.
    pub allocated: u64,
    /// Free blocks that were freed.
    pub evicted: u64,
    /// Requests that had to wait.
    pub waits: u64,
    /// Requests that were refused because their wait was over.
    pub refused: u64,
    /// Requests that wait now.
    pub waiting: usize,
}

/// The options of an [`ArenaPool`].
#[derive(Debug)]
#[must_use]
pub struct PoolBuilder {
    cap: u64,
    keep: u64,
    rounding: Rounding,
    clears: bool,
    backing: Box<dyn ArenaAllocator>,
}

impl PoolBuilder {
    /// Sets the most bytes that the blocks of the pool may have together. Default: no limit.
    pub fn cap(mut self, bytes: u64) -> Self {
        self.cap = bytes;
        self
    }

    /// Sets the most bytes of free blocks that the pool keeps for later leases. Default: all.
    pub fn keep(mut self, bytes: u64) -> Self {
        self.keep = bytes;
        self
    }

    /// Sets the block sizes. Default: multiples of 4,096 bytes.
    pub fn rounding(mut self, rounding: Rounding) -> Self {
        self.rounding = rounding;
        self
    }

    /// Makes the pool fill returned blocks with zeros, so that no lease sees earlier content.
    /// Default: content stays until overwritten.
    pub fn clear_returned(mut self) -> Self {
        self.clears = true;
        self
    }

    /// Sets the source of blocks. Default: the global allocator.
    ///
    /// A block must have exactly the requested bytes, since the pool counts requested bytes.
    /// Freeing a block must not use the pool.
    pub fn backing(mut self, backing: impl ArenaAllocator + 'static) -> Self {
        self.backing = Box::new(backing);
        self
    }

    /// Returns the pool, which has no blocks yet.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidOption`] if the cap is zero, or larger than any machine can address.
    pub fn build(self) -> Result<ArenaPool> {
        if self.cap == 0 || self.cap > MAX_BYTES {
            let reason = format!("{} bytes are not between 1 and {MAX_BYTES}", self.cap);
            return Err(Error::InvalidOption { option: "cap", reason });
        }
        let shared = Shared {
            state: Mutex::new(PoolState::new(self.cap, self.keep, self.rounding)),
            backing: Mutex::new(self.backing),
            cap: self.cap,
            rounding: self.rounding,
            clears: self.clears,
        };
        Ok(ArenaPool { shared: Arc::new(shared) })
    }
}

/// A source of arenas for many programs and threads, below one cap in bytes.
///
/// Clones are handles to the same pool. See the [module](self).
#[derive(Clone, Debug)]
pub struct ArenaPool {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<PoolState>,
    /// Never locked before the state. Allocating does not lock the state.
    backing: Mutex<Box<dyn ArenaAllocator>>,
    cap: u64,
    rounding: Rounding,
    clears: bool,
}

impl ArenaPool {
    /// Returns the options for a new pool.
    pub fn builder() -> PoolBuilder {
        PoolBuilder {
            cap: MAX_BYTES,
            keep: u64::MAX,
            rounding: Rounding::DEFAULT,
            clears: false,
            backing: Box::new(SystemAllocator),
        }
    }

    /// Returns the cap, in bytes.
    pub fn cap(&self) -> u64 {
        self.shared.cap
    }

    /// Returns the current statistics.
    pub fn statistics(&self) -> PoolStatistics {
        self.shared.state().statistics()
    }

    /// Returns a lease if the memory is there and no other request waits.
    ///
    /// # Errors
    ///
    /// - [`Error::PoolBusy`] if too many bytes are leased, or other requests wait.
    /// - [`Error::LeaseTooLarge`] if the program needs more bytes than the cap.
    /// - [`Error::ArenaCommit`] if there is not enough memory.
    /// - [`Error::BufferTooSmall`], [`Error::MisalignedBuffer`], [`Error::ArenaState`] if the
    ///   backing is faulty.
    pub fn try_lease(&self, program: &Arc<Program>) -> Result<Lease> {
        match self.shared.poll(program.plan(), &mut None, None)? {
            Poll::Ready(regions) => Ok(self.leased(program, regions)),
            Poll::Pending => Err(self.shared.refuse(program.plan())),
        }
    }

    /// Returns a lease; the thread waits for the memory, at most for `timeout` if given.
    ///
    /// # Errors
    ///
    /// As [`try_lease`](Self::try_lease); [`Error::PoolBusy`] when the time is over.
    pub fn wait(&self, program: &Arc<Program>, timeout: Option<Duration>) -> Result<Lease> {
        Ok(self.leased(program, self.shared.wait(program.plan(), timeout)?))
    }

    /// Returns a plan's memory, for runners that need no program; otherwise as
    /// [`wait`](Self::wait).
    ///
    /// # Errors
    ///
    /// As [`wait`](Self::wait).
    pub fn wait_arena(&self, plan: &Plan, timeout: Option<Duration>) -> Result<LeasedArena> {
        Ok(LeasedArena::new(self.clone(), plan, self.shared.wait(plan, timeout)?))
    }

    /// Returns a lease as a future.
    ///
    /// The future works with every executor, and leaves the queue when dropped. There is no time
    /// limit: see [`lease_until`](Self::lease_until).
    pub fn lease(&self, program: &Arc<Program>) -> Leasing {
        Leasing::new(self.clone(), Arc::clone(program))
    }

    /// Returns a lease; the task waits for the memory, at most until `timer` is done.
    ///
    /// A timer is any future, so that the function works with every executor: for example
    /// `tokio::time::sleep(Duration::from_millis(20))`, or the end of a connection. If the memory
    /// is there at once, the timer is not polled. Nothing is allocated, and a dropped future leaves
    /// the queue.
    ///
    /// ```
    /// # use std::future;
    /// # use std::pin::pin;
    /// # use std::sync::Arc;
    /// # use std::task::{Context, Poll, Waker};
    /// # use arenaplan::{ArenaPool, DType, Graph, Planner, Value, ValueKind};
    /// # let mut builder = Graph::builder("one value");
    /// # let x = builder.add_value(Value::new("x", ValueKind::Input, DType::FLOAT32, [1024])?);
    /// # builder.add_output(x);
    /// # let graph = builder.build()?;
    /// # let program = Arc::new(Planner::new().plan(&graph)?.program(&graph)?);
    /// let pool = ArenaPool::builder().cap(4096).build()?;
    /// let held = pool.try_lease(&program)?;
    /// // A timer that is done at once: the pool does not make the task wait.
    /// let mut refused = pin!(pool.lease_until(&program, future::ready(())));
    /// # let mut context = Context::from_waker(Waker::noop());
    /// let Poll::Ready(Err(error)) = refused.as_mut().poll(&mut context) else { panic!() };
    /// assert_eq!(error.kind(), "PoolBusy");
    /// # Ok::<(), arenaplan::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`try_lease`](Self::try_lease); [`Error::PoolBusy`] when the timer is done.
    pub async fn lease_until(
        &self,
        program: &Arc<Program>,
        timer: impl Future<Output = ()>,
    ) -> Result<Lease> {
        let mut leasing = pin!(self.lease(program));
        let mut timer = pin!(timer);
        poll_fn(|context| {
            if let Poll::Ready(found) = leasing.as_mut().poll(context) {
                return Poll::Ready(found);
            }
            let refuse = |()| Err(self.shared.refuse(program.plan()));
            timer.as_mut().poll(context).map(refuse)
        })
        .await
    }

    /// Frees the free blocks, the longest free first, until at most `keep` bytes are left; returns
    /// the freed bytes.
    pub fn trim(&self, keep: u64) -> u64 {
        let mut state = self.shared.state();
        let freed = state.trim(keep);
        let bytes = freed.iter().map(Measured::bytes).sum();
        self.shared.free(freed);
        bytes
    }

    fn leased(&self, program: &Arc<Program>, regions: Vec<Region<'static>>) -> Lease {
        Lease::new(self.clone(), Arc::clone(program), regions)
    }
}

/// A place in the queue, which is left on every way out.
struct Waiting<'a> {
    shared: &'a Shared,
    ticket: Option<Ticket>,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.shared.leave(&mut self.ticket);
    }
}

impl Shared {
    /// Returns the books. Books are whole after every panic, since nothing that can panic runs
    /// between two changes that belong together.
    fn state(&self) -> MutexGuard<'_, PoolState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns memory for a plan if the memory is there, and no other request is next.
    ///
    /// Otherwise a request with a `signal` joins the queue, and is signaled when polling again may
    /// succeed.
    fn poll(
        &self,
        plan: &Plan,
        ticket: &mut Option<Ticket>,
        signal: Option<&dyn Fn() -> Signal>,
    ) -> Result<Poll<Vec<Region<'static>>>> {
        // Declared first, so that a panic of the backing unlocks the books before the drop needs
        // the books.
        let mut unfinished;
        let mut state = self.state();
        // A plan above the cap is refused before waiting, and only once.
        state.demand(plan)?;
        let grant = if state.is_next(*ticket) { state.grant(plan)? } else { None };
        let Some(grant) = grant else {
            let old = match (signal, *ticket) {
                (Some(signal), Some(ticket)) => state.renew(ticket, signal()),
                (Some(signal), None) => {
                    *ticket = Some(state.enqueue(signal()));
                    None
                }
                (None, _) => None,
            };
            drop(state);
            // The end of a waker can be the end of a task with a lease, which needs the books.
            drop(old);
            return Ok(Poll::Pending);
        };
        unfinished = Unfinished::new(self, plan, grant.regions);
        self.free(grant.evicted);
        drop(state);
        // The memory may be enough for the next request, too.
        self.leave(ticket);
        unfinished.allocate(plan)?;
        Ok(Poll::Ready(core::mem::take(&mut unfinished.regions)))
    }

    /// Returns memory for a plan; the thread waits for the memory, at most for `timeout` if given.
    fn wait(&self, plan: &Plan, timeout: Option<Duration>) -> Result<Vec<Region<'static>>> {
        if timeout.is_some_and(|timeout| timeout.is_zero()) {
            let found = self.poll(plan, &mut None, None)?;
            return if let Poll::Ready(regions) = found {
                Ok(regions)
            } else {
                Err(self.refuse(plan))
            };
        }
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let mut waiting = Waiting { shared: self, ticket: None };
        loop {
            let signal = || Signal::Thread(thread::current());
            if let Poll::Ready(regions) = self.poll(plan, &mut waiting.ticket, Some(&signal))? {
                return Ok(regions);
            }
            match deadline.map(|deadline| deadline.saturating_duration_since(Instant::now())) {
                None => thread::park(),
                Some(Duration::ZERO) => return Err(self.refuse(plan)),
                Some(left) => thread::park_timeout(left),
            }
        }
    }

    /// Leaves the queue, and signals the next request.
    fn leave(&self, ticket: &mut Option<Ticket>) {
        let Some(ticket) = ticket.take() else { return };
        let mut state = self.state();
        let own = state.leave(ticket);
        let next = state.next();
        drop(state);
        if let Some(next) = next {
            next.send();
        }
        drop(own);
    }

    /// Takes memory back.
    fn give_back(&self, mut regions: Vec<Region<'static>>) {
        if self.clears {
            for region in &mut regions {
                region.bytes_mut().fill(0);
            }
        }
        let mut state = self.state();
        self.free(state.give_back(regions));
        let next = state.next();
        drop(state);
        if let Some(next) = next {
            next.send();
        }
    }

    /// Gives blocks to the backing. The books stay locked meanwhile, so that nobody allocates bytes
    /// that are counted as free and are not free yet.
    fn free(&self, blocks: Vec<Measured>) {
        if !blocks.is_empty() {
            let mut backing = self.backing.lock().unwrap_or_else(PoisonError::into_inner);
            for block in blocks {
                backing.deallocate(block.into_inner());
            }
        }
    }

    /// Counts a refusal, and returns the error.
    fn refuse(&self, plan: &Plan) -> Error {
        let mut state = self.state();
        state.statistics.refused += 1;
        let leased = state.statistics().leased_bytes;
        let bytes = state.demand(plan).unwrap_or(u64::MAX);
        Error::PoolBusy { bytes, leased, cap: self.cap }
    }

    /// Returns a new block.
    fn allocate(&self, bytes: u64, alignment: Alignment) -> Result<Measured> {
        let mut backing = self.backing.lock().unwrap_or_else(PoisonError::into_inner);
        let block = backing.allocate(bytes, alignment)?;
        let block = match Measured::new(block, bytes, alignment) {
            Ok(block) if block.bytes() == bytes => return Ok(block),
            Ok(block) => {
                let reason = format!(
                    "the backing of the pool gave {} bytes in place of {bytes}",
                    block.bytes()
                );
                (block.into_inner(), Error::ArenaState { reason })
            }
            Err(refused) => refused,
        };
        backing.deallocate(block.0);
        Err(block.1)
    }
}

/// Memory of which some blocks are still to be allocated; given back if that fails.
struct Unfinished<'a> {
    shared: &'a Shared,
    regions: Vec<Region<'static>>,
    /// Bytes that are counted as held, and not allocated.
    missing: u64,
}

impl<'a> Unfinished<'a> {
    fn new(shared: &'a Shared, plan: &Plan, regions: Vec<Region<'static>>) -> Self {
        let spaces = plan.spaces().iter().zip(&regions);
        let missing = spaces.filter(|(_, region)| !matches!(region, Region::Block(_)));
        let round = |bytes| shared.rounding.round(bytes).unwrap_or(0);
        let missing = missing.map(|(space, _)| round(space.arena_bytes)).sum();
        Self { shared, regions, missing }
    }

    /// Allocates the missing blocks.
    fn allocate(&mut self, plan: &Plan) -> Result<()> {
        for (space, region) in plan.spaces().iter().zip(&mut self.regions) {
            let bytes = self.shared.rounding.round(space.arena_bytes)?;
            if bytes > 0 && !matches!(region, Region::Block(_)) {
                let alignment = Alignment::new(space.alignment.max(ALIGNMENT))?;
                *region = Region::Block(self.shared.allocate(bytes, alignment)?);
                self.missing -= bytes;
                self.shared.state().statistics.allocated += 1;
            }
        }
        Ok(())
    }
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        if !self.regions.is_empty() {
            self.shared.state().forget(self.missing);
            self.shared.give_back(core::mem::take(&mut self.regions));
        }
    }
}
