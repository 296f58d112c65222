//! Arena pools, whose blocks may be the program's.

use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::{ptr, slice};

use arenaplan::Error;
use arenaplan::arena::{ArenaAllocator, ArenaBlock};
use arenaplan::base::Alignment;

use super::raw::{make, optional, output};
use crate::arena::Arena;
use crate::error::{Code, Failure, guarded, required};
use crate::plan::Plan;
use crate::pool::Pool;
use crate::types::{PoolNumbers, PoolOptions};

/// Makes a pool without blocks.
///
/// `options` may be null. Blocks of `ap_pool_options::allocate` can be any memory that the processor
/// reads and writes: pinned memory for copies to a device, for example. On failure `*pool` is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ap_pool_make(
    options: *const PoolOptions,
    pool: Option<&mut MaybeUninit<Option<Box<Pool>>>>,
) -> Code {
    make(pool, || {
        // SAFETY: the C contract.
        let options = unsafe { optional(options, "options") }?;
        let context = options.context;
        let backing = match (options.allocate, options.deallocate) {
            (Some(allocate), Some(deallocate)) => {
                Some(BlockSource { allocate, deallocate, context })
            }
            (None, None) => None,
            _ => return Err(Failure::argument("a source of blocks needs both of its functions")),
        };
        Pool::new(options, backing)
    })
}

/// Frees a pool; free blocks go back to their source. Does nothing if the pool is null.
///
/// Leased arenas stay valid; the source is used until the last arena is freed.
#[unsafe(no_mangle)]
pub extern "C" fn ap_pool_free(pool: Option<Box<Pool>>) {
    drop(pool);
}

/// Leases the memory for a plan: `ap_arena_free` gives the memory back. The content is that of an
/// earlier lease, unless the pool has `AP_POOL_CLEAR`.
///
/// The thread waits for at most `timeout_ms` milliseconds, `AP_FOREVER` for an unlimited wait, and
/// then fails with `AP_CODE_POOL_BUSY`. Requests are served in order of arrival. Fails with
/// `AP_CODE_LEASE_TOO_LARGE` at once if the plan needs more bytes than the cap. A lease for a plan
/// that had the same memory before finds settled addresses. On failure `*arena` is null.
#[unsafe(no_mangle)]
pub extern "C" fn ap_pool_lease(
    pool: Option<&Pool>,
    plan: Option<&Plan>,
    timeout_ms: u64,
    arena: Option<&mut MaybeUninit<Option<Box<Arena>>>>,
) -> Code {
    make(arena, || required(pool, "pool")?.lease(required(plan, "plan")?, timeout_ms))
}

/// Frees free blocks, the longest free first, until at most `keep` bytes are left; returns the
/// freed bytes. 0 if `pool` is null.
#[unsafe(no_mangle)]
pub extern "C" fn ap_pool_trim(pool: Option<&Pool>, keep: u64) -> u64 {
    pool.map_or(0, |pool| pool.trim(keep))
}

/// Describes a pool at this moment.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ap_pool_describe(pool: Option<&Pool>, numbers: *mut PoolNumbers) -> Code {
    let value = || Ok(required(pool, "pool")?.numbers());
    // SAFETY: the C contract.
    guarded(|| unsafe { output(numbers, "numbers", value) })
}

/// Blocks from the program's functions.
#[derive(Clone, Copy, Debug)]
struct BlockSource {
    allocate: unsafe extern "C" fn(*mut c_void, u64, u64) -> *mut c_void,
    deallocate: unsafe extern "C" fn(*mut c_void, *mut c_void, u64),
    context: *mut c_void,
}

// SAFETY: the context is passed on and not used here; the functions may be called on any thread (as
// documented, rule 6).
unsafe impl Send for BlockSource {}
// SAFETY: as above; a shared `BlockSource` is only copied.
unsafe impl Sync for BlockSource {}

impl ArenaAllocator for BlockSource {
    fn allocate(&mut self, bytes: u64, alignment: Alignment) -> Result<Box<dyn ArenaBlock>, Error> {
        let refused = || Error::ArenaCommit { bytes };
        let size = usize::try_from(bytes).ok().filter(|&size| isize::try_from(size).is_ok());
        let size = size.ok_or_else(refused)?;
        // SAFETY: the program passed both for such calls (rule 6).
        let memory = unsafe { (self.allocate)(self.context, bytes, alignment.bytes()) };
        let start = NonNull::new(memory.cast::<u8>()).ok_or_else(refused)?;
        // SAFETY: the function returned `bytes` bytes that nobody else uses (as documented).
        unsafe { ptr::write_bytes(start.as_ptr(), 0, size) };
        Ok(Box::new(Block { source: *self, start, size }))
    }
}

/// Bytes from a [`BlockSource`], all initialized.
#[derive(Debug)]
struct Block {
    source: BlockSource,
    start: NonNull<u8>,
    size: usize,
}

// SAFETY: the bytes are the block's own, and may be used and freed on any thread (documentation of
// the functions).
unsafe impl Send for Block {}
// SAFETY: as above; a shared block is only read.
unsafe impl Sync for Block {}

impl AsRef<[u8]> for Block {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: `size` bytes from `start` on are the block's own until the block is dropped, were
        // initialized, and take at most `isize::MAX` bytes; the result borrows the block.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.size) }
    }
}

impl AsMut<[u8]> for Block {
    fn as_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `as_ref`, and the borrow is exclusive.
        unsafe { slice::from_raw_parts_mut(self.start.as_ptr(), self.size) }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        let bytes = u64::try_from(self.size).unwrap_or(u64::MAX);
        let BlockSource { deallocate, context, .. } = self.source;
        // SAFETY: the block is from the source, and is freed once (rule 6).
        unsafe { deallocate(context, self.start.as_ptr().cast(), bytes) };
    }
}
