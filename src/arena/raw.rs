//! The only `unsafe` of the crate: bytes with an alignment chosen at run time.

#![allow(unsafe_code, reason = "std has no safe allocation with an alignment of its own")]

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::{NonNull, without_provenance_mut};
use std::slice;

use crate::base::{Alignment, Error, Result};

/// Zeroed bytes whose address is a multiple of an alignment.
///
/// Invariants, which every block below refers to:
///
/// 1. If `layout.size() > 0`, `pointer` is what `alloc_zeroed(layout)` returned, and
///    nothing has freed it; otherwise it is aligned to `layout.align()` and dangling.
/// 2. All `layout.size()` bytes are initialized: they were zeroed, and are only ever
///    written through slices of `u8`.
/// 3. `self` owns the bytes: no other pointer to them exists, except those derived from
///    borrows of `self`, and those that [`AlignedBytes::as_ptr`] gave out, whose users
///    answer for themselves.
#[derive(Debug)]
pub(crate) struct AlignedBytes {
    pointer: NonNull<u8>,
    layout: Layout,
}

impl AlignedBytes {
    /// Returns `bytes` zeroed bytes at a multiple of `alignment`.
    pub(super) fn zeroed(bytes: u64, alignment: Alignment) -> Result<Self> {
        let layout = match (usize::try_from(bytes), usize::try_from(alignment.bytes())) {
            (Ok(size), Ok(align)) => Layout::from_size_align(size, align).ok(),
            _ => None,
        };
        let refused = || Error::ArenaCommit { bytes };
        let layout = layout.ok_or_else(refused)?;
        if layout.size() == 0 {
            let pointer = NonNull::new(without_provenance_mut(layout.align()));
            let pointer = pointer.expect("alignments are not zero");
            return Ok(Self { pointer, layout });
        }
        // SAFETY: `alloc_zeroed` asks for a layout of non-zero size, which was just tested.
        let pointer = unsafe { alloc_zeroed(layout) };
        let pointer = NonNull::new(pointer).ok_or_else(refused)?;
        Ok(Self { pointer, layout })
    }

    /// Returns the number of bytes.
    pub(super) const fn len(&self) -> usize {
        self.layout.size()
    }

    /// Returns the address of the first byte.
    pub(super) const fn as_ptr(&self) -> NonNull<u8> {
        self.pointer
    }

    /// Returns the bytes.
    pub(super) fn as_slice(&self) -> &[u8] {
        // SAFETY: `slice::from_raw_parts` asks for four things.
        // - Valid for reads: `pointer` owns one allocation of `len()` bytes, which is at
        //   most `isize::MAX` as every `Layout` is, or `len()` is 0 (invariant 1).
        // - Aligned and non-null: `u8` has alignment 1, and `pointer` is a `NonNull`.
        // - Initialized: invariant 2.
        // - Not mutated meanwhile: the result borrows `self` (invariant 3).
        unsafe { slice::from_raw_parts(self.pointer.as_ptr(), self.len()) }
    }

    /// Returns the bytes, to write.
    pub(super) fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: `slice::from_raw_parts_mut` asks for four things.
        // - Valid for reads and writes: as in `as_slice`.
        // - Aligned and non-null: as in `as_slice`.
        // - Initialized: invariant 2.
        // - Not accessed otherwise meanwhile: the result borrows `self` mutably (invariant 3).
        unsafe { slice::from_raw_parts_mut(self.pointer.as_ptr(), self.len()) }
    }
}

impl AsRef<[u8]> for AlignedBytes {
    fn as_ref(&self) -> &[u8] {
        self.as_slice()
    }
}

impl AsMut<[u8]> for AlignedBytes {
    fn as_mut(&mut self) -> &mut [u8] {
        self.as_mut_slice()
    }
}

impl Drop for AlignedBytes {
    fn drop(&mut self) {
        if self.layout.size() > 0 {
            // SAFETY: `dealloc` asks for two things.
            // - The block is allocated by this allocator: invariant 1, and this is the only
            //   place that frees it.
            // - The layout is the one it was allocated with: invariant 1.
            unsafe { dealloc(self.pointer.as_ptr(), self.layout) }
        }
    }
}

// SAFETY: the bytes are owned (invariant 3) and `u8` may move between threads.
unsafe impl Send for AlignedBytes {}

// SAFETY: a shared `AlignedBytes` only gives out shared slices, and the address, whose
// users answer for what they do with it (invariant 3).
unsafe impl Sync for AlignedBytes {}

/// A file of memory that several processes map.
///
/// Invariants:
///
/// 1. `map` maps `len` initialized bytes for reading and writing: of a file that cannot shrink, or
///    zeros.
/// 2. Who made the map promised that nobody writes the bytes through another map or descriptor,
///    or reads them while they are written here, without the lock that
///    [`SharedMemory`](crate::arena::SharedMemory) holds for every slice.
#[cfg(all(feature = "shared", target_os = "linux"))]
#[derive(Debug)]
pub(super) struct SharedMap {
    map: memmap2::MmapRaw,
}

#[cfg(all(feature = "shared", target_os = "linux"))]
impl SharedMap {
    /// Maps a file; the second invariant is the caller's promise.
    fn new(file: &std::fs::File) -> Result<Self> {
        let mapped = memmap2::MmapOptions::new().map_raw(file);
        let map = mapped.map_err(|error| Error::ArenaState {
            reason: format!("the shared memory cannot be mapped: {error}"),
        })?;
        Ok(Self { map })
    }

    /// Returns the number of bytes.
    pub(super) fn len(&self) -> usize {
        self.map.len()
    }

    /// Returns the bytes, for the holder of the lock.
    pub(super) fn as_slice(&self) -> &[u8] {
        // SAFETY: `slice::from_raw_parts` asks for four things.
        // - Valid for reads: one map of `len()` bytes, at most `isize::MAX` (invariant 1).
        // - Aligned and non-null: `u8` has alignment 1, and maps are at no null address.
        // - Initialized: invariant 1.
        // - Not mutated meanwhile: in this process the result borrows `self`; elsewhere
        //   invariant 2.
        unsafe { slice::from_raw_parts(self.map.as_ptr(), self.map.len()) }
    }

    /// Returns the bytes to write, for the holder of the lock.
    pub(super) fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: `slice::from_raw_parts_mut` asks for four things.
        // - Valid for reads and writes, aligned and initialized: as in `as_slice`.
        // - Not accessed otherwise meanwhile: in this process the result borrows `self` mutably;
        //   elsewhere invariant 2.
        unsafe { slice::from_raw_parts_mut(self.map.as_mut_ptr(), self.map.len()) }
    }
}

#[cfg(all(feature = "shared", target_os = "linux"))]
impl crate::arena::SharedMemory {
    /// Returns new memory of zeros.
    ///
    /// # Safety
    ///
    /// Every use of the [descriptor](std::os::fd::AsFd::as_fd), in this process and others, must
    /// be by [`open`](Self::open), or must touch the bytes only while it holds an exclusive
    /// `flock(2)` of its own.
    ///
    /// # Errors
    ///
    /// [`Error::ArenaCommit`] if there is not enough memory, or no bytes are asked for.
    pub unsafe fn create(bytes: u64) -> Result<Self> {
        let file = Self::create_file(bytes)?;
        let map = SharedMap::new(&file)?;
        Self::attach(file, map)
    }

    /// Attaches to the memory behind a descriptor.
    ///
    /// # Safety
    ///
    /// As for [`create`](Self::create).
    ///
    /// # Errors
    ///
    /// [`Error::ArenaState`] if the descriptor is not that of such a memory, or there are 1,024
    /// attachments.
    pub unsafe fn open(descriptor: impl std::os::fd::AsFd) -> Result<Self> {
        let file = Self::open_file(descriptor.as_fd())?;
        let map = SharedMap::new(&file)?;
        Self::attach(file, map)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_zeroed_and_aligned_at_every_power_of_two() {
        for log2 in 0..=16 {
            let alignment = Alignment::new(1 << log2).expect("a power of two");
            let mut bytes = AlignedBytes::zeroed(100, alignment).expect("100 bytes");
            assert_eq!(bytes.as_ptr().addr().get() % (1 << log2), 0);
            assert_eq!(bytes.as_slice(), [0; 100]);
            bytes.as_mut_slice().fill(7);
            assert_eq!(bytes.as_slice(), [7; 100]);
        }
    }

    #[test]
    fn no_bytes_are_an_empty_slice_at_an_aligned_address() {
        let mut bytes = AlignedBytes::zeroed(0, Alignment::new(4096).expect("a power of two"))
            .expect("no bytes");
        assert_eq!(bytes.as_ptr().addr().get() % 4096, 0);
        assert!(bytes.as_slice().is_empty());
        assert!(bytes.as_mut_slice().is_empty());
    }

    #[test]
    fn more_than_any_machine_has_is_an_error_and_no_abort() {
        for bytes in [u64::MAX, crate::base::MAX_BYTES, 1 << 62] {
            let refused = AlignedBytes::zeroed(bytes, Alignment::BYTE);
            assert_eq!(refused.map(|_| ()), Err(Error::ArenaCommit { bytes }));
        }
    }
}
