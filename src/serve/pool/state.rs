//! The books of a pool: free blocks, held bytes, and waiting requests.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::task::Waker;
use std::thread::Thread;

use crate::base::{Alignment, Error, Result};
use crate::plan::Plan;
use crate::run::arena::{Measured, Region};
use crate::serve::pool::{PoolStatistics, Rounding};

/// A free block serves a request if at most this part of the block would be unused.
const MOST_UNUSED: u64 = 4;

/// A waiting request's wake-up.
#[derive(Debug)]
pub(super) enum Signal {
    Thread(Thread),
    Task(Waker),
}

impl Signal {
    /// Makes the waiting thread or task look again.
    pub(super) fn send(self) {
        match self {
            Self::Thread(thread) => thread.unpark(),
            Self::Task(waker) => waker.wake(),
        }
    }

    fn again(&self) -> Self {
        match self {
            Self::Thread(thread) => Self::Thread(thread.clone()),
            Self::Task(waker) => Self::Task(waker.clone()),
        }
    }
}

/// A place in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ticket(u64);

/// Blocks for a plan's spaces.
#[derive(Debug)]
pub(super) struct Grant {
    /// By space. A space whose block is still to be allocated has a region without bytes.
    pub(super) regions: Vec<Region<'static>>,
    /// Blocks that the pool no longer holds.
    pub(super) evicted: Vec<Measured>,
}

#[derive(Debug)]
pub(super) struct PoolState {
    cap: u64,
    keep: u64,
    rounding: Rounding,
    /// Bytes in all blocks, leased, free, and in allocation.
    held: u64,
    /// Bytes in the free blocks.
    free_bytes: u64,
    /// Free blocks; the last returned blocks are at the end.
    free: Vec<Measured>,
    /// Vectors without elements, kept for their capacity.
    empty: Vec<Vec<Region<'static>>>,
    queue: VecDeque<(Ticket, Signal)>,
    tickets: u64,
    pub(super) statistics: PoolStatistics,
}

impl PoolState {
    pub(super) fn new(cap: u64, keep: u64, rounding: Rounding) -> Self {
        Self {
            cap,
            keep,
            rounding,
            held: 0,
            free_bytes: 0,
            free: Vec::new(),
            empty: Vec::new(),
            queue: VecDeque::new(),
            tickets: 0,
            statistics: PoolStatistics::default(),
        }
    }

    /// Returns the current statistics.
    pub(super) fn statistics(&self) -> PoolStatistics {
        PoolStatistics {
            leased_bytes: self.held - self.free_bytes,
            free_bytes: self.free_bytes,
            waiting: self.queue.len(),
            ..self.statistics
        }
    }

    /// Returns the bytes of the blocks for a plan, or an error if the bytes exceed the cap.
    ///
    /// A plan that passes here makes no error in [`grant`](Self::grant), which would lose blocks.
    pub(super) fn demand(&self, plan: &Plan) -> Result<u64> {
        let mut bytes = 0_u64;
        for space in plan.spaces() {
            Alignment::new(space.alignment)?;
            bytes = bytes.saturating_add(self.rounding.round(space.arena_bytes)?);
        }
        if bytes > self.cap {
            return Err(Error::LeaseTooLarge { bytes, cap: self.cap });
        }
        Ok(bytes)
    }

    /// Returns whether a ticket, or a newcomer without a ticket, is next.
    pub(super) fn is_next(&self, ticket: Option<Ticket>) -> bool {
        self.queue.front().map(|(first, _)| *first) == ticket
    }

    /// Returns blocks for a plan, or `None` if too many bytes are leased.
    ///
    /// Bytes that are still to be allocated are counted as held.
    pub(super) fn grant(&mut self, plan: &Plan) -> Result<Option<Grant>> {
        let demand = self.demand(plan)?;
        let mut regions = self.empty.pop().unwrap_or_default();
        let mut missing = 0_u64;
        for space in plan.spaces() {
            let alignment = Alignment::new(space.alignment)?;
            regions.push(match self.take(space.arena_bytes, alignment)? {
                Some(block) => Region::Block(block),
                None => Region::none(),
            });
            if matches!(regions.last(), Some(Region::Bound(_))) {
                missing += self.rounding.round(space.arena_bytes)?;
            }
        }
        let leased = self.held - self.free_bytes;
        if leased + missing > self.cap {
            // Blocks that are larger than asked for can be in the way of others.
            free(self, &mut regions);
            if self.held - self.free_bytes + demand > self.cap {
                self.empty.push(regions);
                return Ok(None);
            }
            regions.extend(plan.spaces().iter().map(|_| Region::none()));
            missing = demand;
        }
        let mut evicted = Vec::new();
        while self.held + missing > self.cap && !self.free.is_empty() {
            evicted.push(self.evict());
        }
        self.held += missing;
        self.statistics.leases += 1;
        let reused = regions.iter().filter(|region| matches!(region, Region::Block(_))).count();
        self.statistics.reused += u64::try_from(reused).unwrap_or(u64::MAX);
        self.statistics.peak_bytes = self.statistics.peak_bytes.max(self.held);
        Ok(Some(Grant { regions, evicted }))
    }

    /// Takes the smallest free block that serves a request.
    fn take(&mut self, bytes: u64, alignment: Alignment) -> Result<Option<Measured>> {
        let rounded = self.rounding.round(bytes)?;
        if rounded == 0 {
            return Ok(None);
        }
        let most = rounded.saturating_add(rounded / (MOST_UNUSED - 1));
        let mut best: Option<(usize, u64)> = None;
        for (at, block) in self.free.iter().enumerate() {
            let size = block.bytes();
            let is_better = best.is_none_or(|(_, least)| size <= least);
            if is_better && (bytes..=most).contains(&size) && alignment.divides(block.address()) {
                best = Some((at, size));
            }
        }
        Ok(best.map(|(at, size)| {
            self.free_bytes -= size;
            self.free.remove(at)
        }))
    }

    /// Takes the block that has been free for the longest time out of the books.
    fn evict(&mut self) -> Measured {
        let block = self.free.remove(0);
        self.free_bytes -= block.bytes();
        self.held -= block.bytes();
        self.statistics.evicted += 1;
        block
    }

    /// Counts bytes that were to be allocated, and were not.
    pub(super) fn forget(&mut self, bytes: u64) {
        self.held -= bytes;
    }

    /// Takes blocks back; returns the blocks that the pool does not keep.
    pub(super) fn give_back(&mut self, mut regions: Vec<Region<'static>>) -> Vec<Measured> {
        free(self, &mut regions);
        self.empty.push(regions);
        self.trim(self.keep)
    }

    /// Evicts free blocks until at most `keep` bytes are left.
    pub(super) fn trim(&mut self, keep: u64) -> Vec<Measured> {
        let mut evicted = Vec::new();
        while self.free_bytes > keep {
            evicted.push(self.evict());
        }
        evicted
    }

    /// Puts a newcomer at the end of the queue.
    pub(super) fn enqueue(&mut self, signal: Signal) -> Ticket {
        let ticket = Ticket(self.tickets);
        self.tickets += 1;
        self.queue.push_back((ticket, signal));
        self.statistics.waits += 1;
        ticket
    }

    /// Replaces a ticket's signal, and returns the old signal.
    pub(super) fn renew(&mut self, ticket: Ticket, signal: Signal) -> Option<Signal> {
        let place = self.queue.iter_mut().find(|(each, _)| *each == ticket)?;
        Some(core::mem::replace(&mut place.1, signal))
    }

    /// Takes a ticket out of the queue, and returns the ticket's signal.
    pub(super) fn leave(&mut self, ticket: Ticket) -> Option<Signal> {
        let at = self.queue.iter().position(|(each, _)| *each == ticket)?;
        self.queue.remove(at).map(|(_, signal)| signal)
    }

    /// Returns the next request's signal.
    pub(super) fn next(&self) -> Option<Signal> {
        self.queue.front().map(|(_, signal)| signal.again())
    }
}

/// Puts the blocks of regions among the free blocks, and leaves the vector empty.
fn free(state: &mut PoolState, regions: &mut Vec<Region<'static>>) {
    for region in regions.drain(..) {
        if let Region::Block(block) = region {
            state.free_bytes += block.bytes();
            state.free.push(block);
        }
    }
}
