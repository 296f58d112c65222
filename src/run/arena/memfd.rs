//! Memory that several processes map, on Linux.

use alloc::format;
use core::ops::{Deref, DerefMut};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;
use rustix::fs::{FlockOperation, MemfdFlags, SealFlags, flock};

use crate::base::{Error, Result};
use crate::run::arena::raw::SharedMap;

/// Most attachments to a memory at a time.
const MOST_ATTACHED: i64 = 1024;

/// The position in the file, far behind its end, at which attachments hold their locks.
const SLOTS: i64 = 1 << 62;

/// Bytes that several processes map: arenas that one process fills and another process reads.
///
/// The memory has no name. A process passes the memory on as a file descriptor, by inheritance,
/// over a socket, or as `/proc/PID/fd/NUMBER`. The memory is freed when the last process releases
/// the memory, in any way.
///
/// Readers and writers hold the [lock](Self::lock). The kernel counts attachments and holds the
/// lock by locks on open file descriptions (`fcntl(2)`, `flock(2)`), which end with the process:
/// after `kill -9` the count is right and no lock stays. The content is then as far as the process
/// has written.
///
/// With the feature `shared`, on Linux.
///
/// ```
/// use arenaplan::arena::SharedMemory;
/// use arenaplan::{DType, Graph, Planner, Value, ValueKind};
///
/// let mut builder = Graph::builder("nothing to do");
/// let x = builder.add_value(Value::new("x", ValueKind::Input, DType::UINT8, [100])?);
/// builder.add_output(x);
/// let plan = Planner::new().plan(&builder.build()?)?;
///
/// // SAFETY: the descriptor is used here only, and by `SharedMemory::open`.
/// let mut here = unsafe { SharedMemory::create(plan.arena_bytes()) }?;
/// // Another process would do this.
/// // SAFETY: as above.
/// let mut there = unsafe { SharedMemory::open(&here) }?;
/// assert_eq!(here.attached()?, 2);
/// plan.bind(&mut here.lock()?)?.value_mut(&plan, x)?.fill(7);
/// assert_eq!(plan.bind(&mut there.lock()?)?.value(&plan, x)?, [7; 100]);
/// # Ok::<(), arenaplan::Error>(())
/// ```
#[derive(Debug)]
pub struct SharedMemory {
    file: File,
    map: SharedMap,
}

/// The bytes of a [`SharedMemory`], until the lock is released.
#[derive(Debug)]
pub struct SharedGuard<'a> {
    memory: &'a mut SharedMemory,
}

impl SharedMemory {
    /// Returns the byte count.
    #[expect(clippy::len_without_is_empty, reason = "there is at least one byte")]
    pub fn len(&self) -> usize {
        self.map.len()
    }

    /// Waits for the lock, and returns the bytes.
    ///
    /// # Errors
    ///
    /// [`Error::ArenaState`] if the system refuses.
    pub fn lock(&mut self) -> Result<SharedGuard<'_>> {
        loop {
            match flock(&self.file, FlockOperation::LockExclusive) {
                Ok(()) => return Ok(SharedGuard { memory: self }),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(refused("cannot be locked", error)),
            }
        }
    }

    /// Returns the bytes if the lock is free.
    ///
    /// # Errors
    ///
    /// [`Error::ArenaState`] if the system refuses.
    pub fn try_lock(&mut self) -> Result<Option<SharedGuard<'_>>> {
        match flock(&self.file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(SharedGuard { memory: self })),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(refused("cannot be locked", error)),
        }
    }

    /// Returns the current number of attachments in all processes, including this attachment.
    ///
    /// An attachment that is dropped while this process starts another process counts until the new
    /// process runs its program: between `fork` and `exec`, the new process has all open files of
    /// this process.
    ///
    /// # Errors
    ///
    /// [`Error::ArenaState`] if the system refuses.
    pub fn attached(&self) -> Result<usize> {
        let mut count = 1;
        for slot in 0..MOST_ATTACHED {
            let mut found = slot_lock(slot);
            let asked = fcntl(&self.file, FcntlArg::F_OFD_GETLK(&mut found));
            asked.map_err(|error| refused("cannot be counted", error))?;
            // This attachment's own lock does not conflict here.
            count += usize::from(i32::from(found.l_type) != libc::F_UNLCK);
        }
        Ok(count)
    }

    /// Returns a new file with the given size, without a name.
    pub(super) fn create_file(bytes: u64) -> Result<File> {
        if bytes == 0 || usize::try_from(bytes).is_err() {
            return Err(Error::ArenaCommit { bytes });
        }
        let made = || {
            let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
            let file = File::from(rustix::fs::memfd_create("arenaplan", flags)?);
            file.set_len(bytes)?;
            // A file that shrinks would end the process that reads behind its end.
            let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
            rustix::fs::fcntl_add_seals(&file, seals)?;
            Ok(file)
        };
        made().map_err(|_: io::Error| Error::ArenaCommit { bytes })
    }

    /// Returns the descriptor's file, reopened, because locks belong to the open file description.
    pub(super) fn open_file(descriptor: BorrowedFd<'_>) -> Result<File> {
        let unusable = |error: io::Error| refused("cannot be opened", &error);
        let seals = rustix::fs::fcntl_get_seals(descriptor).map_err(|e| unusable(e.into()))?;
        if !seals.contains(SealFlags::SHRINK) {
            let reason = "the descriptor is not that of a shared memory".into();
            return Err(Error::ArenaState { reason });
        }
        let number = std::os::fd::AsRawFd::as_raw_fd(&descriptor);
        let path = format!("/proc/self/fd/{number}");
        File::options().read(true).write(true).open(path).map_err(unusable)
    }

    /// Attaches to a file that is mapped.
    pub(super) fn attach(file: File, map: SharedMap) -> Result<Self> {
        for slot in 0..MOST_ATTACHED {
            match fcntl(&file, FcntlArg::F_OFD_SETLK(&slot_lock(slot))) {
                Ok(_) => return Ok(Self { file, map }),
                Err(Errno::EAGAIN | Errno::EACCES) => {}
                Err(error) => return Err(refused("cannot be attached to", error)),
            }
        }
        let reason = format!("a shared memory has at most {MOST_ATTACHED} attachments");
        Err(Error::ArenaState { reason })
    }
}

impl AsFd for SharedMemory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Deref for SharedGuard<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.memory.map.as_slice()
    }
}

impl DerefMut for SharedGuard<'_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.memory.map.as_mut_slice()
    }
}

impl Drop for SharedGuard<'_> {
    fn drop(&mut self) {
        // Unlocking fails for no lock that is held.
        let _ = flock(&self.memory.file, FlockOperation::Unlock);
    }
}

/// Returns the lock description for an attachment.
fn slot_lock(slot: i64) -> libc::flock {
    let [kind, whence] = [libc::F_WRLCK, libc::SEEK_SET].map(|it| i16::try_from(it).unwrap_or(0));
    libc::flock { l_type: kind, l_whence: whence, l_start: SLOTS + slot, l_len: 1, l_pid: 0 }
}

fn refused(what: &str, error: impl core::fmt::Display) -> Error {
    Error::ArenaState { reason: format!("the shared memory {what}: {error}") }
}
