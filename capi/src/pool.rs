//! Pools: a shared cap in bytes for the arenas of many plans and threads.

use std::sync::Arc;
use std::time::Duration;

use arenaplan::ArenaPool;
use arenaplan::arena::ArenaAllocator;

use crate::arena::Arena;
use crate::error::{Failure, Result};
use crate::plan::Plan;
use crate::problem::no_flags;
use crate::table::Tables;
use crate::types::{FOREVER, POOL_CLEAR, POOL_KEEP_NOTHING, PoolNumbers, PoolOptions};

/// A source of arenas below one cap in bytes.
///
/// Any number of threads may use a pool at the same time.
#[derive(Debug)]
pub struct Pool {
    inner: ArenaPool,
    tables: Arc<Tables>,
}

impl Pool {
    pub(crate) fn new(
        options: PoolOptions,
        backing: Option<impl ArenaAllocator + 'static>,
    ) -> Result<Self> {
        no_flags("pool", options.flags, POOL_CLEAR | POOL_KEEP_NOTHING)?;
        let mut builder = ArenaPool::builder();
        if options.cap > 0 {
            builder = builder.cap(options.cap);
        }
        if options.flags & POOL_KEEP_NOTHING != 0 {
            if options.keep > 0 {
                return Err(Failure::argument("a pool that keeps nothing keeps no bytes"));
            }
            builder = builder.keep(0);
        } else if options.keep > 0 {
            builder = builder.keep(options.keep);
        }
        if options.flags & POOL_CLEAR != 0 {
            builder = builder.clear_returned();
        }
        if let Some(backing) = backing {
            builder = builder.backing(backing);
        }
        Ok(Self { inner: builder.build()?, tables: Arc::default() })
    }

    /// Returns an arena; the thread waits for the memory.
    pub(crate) fn lease(&self, plan: &Plan, timeout_ms: u64) -> Result<Arena> {
        let timeout = (timeout_ms != FOREVER).then(|| Duration::from_millis(timeout_ms));
        let leased = self.inner.wait_arena(&plan.inner.plan, timeout)?;
        Arena::leased(plan, leased, &self.tables)
    }

    pub(crate) fn trim(&self, keep: u64) -> u64 {
        self.inner.trim(keep)
    }

    pub(crate) fn numbers(&self) -> PoolNumbers {
        let now = self.inner.statistics();
        PoolNumbers {
            size: 0,
            waiting: u32::try_from(now.waiting).unwrap_or(u32::MAX),
            leased_bytes: now.leased_bytes,
            free_bytes: now.free_bytes,
            peak_bytes: now.peak_bytes,
            leases: now.leases,
            reused: now.reused,
            allocated: now.allocated,
            evicted: now.evicted,
            waits: now.waits,
            refused: now.refused,
        }
    }
}
