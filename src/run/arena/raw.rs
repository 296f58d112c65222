//! The crate's only `unsafe`: bytes with an alignment chosen at run time, and lending disjoint
//! arena bytes to several threads.

#![allow(
    unsafe_code,
    reason = "std has no safe allocation with an alignment of its own, and no slices that are cut at run time by several threads"
)]

use alloc::alloc::{Layout, alloc_zeroed, dealloc};
use alloc::boxed::Box;
use core::marker::PhantomData;
use core::ptr::{NonNull, without_provenance_mut};
use core::slice;
#[cfg(all(debug_assertions, feature = "std"))]
use std::sync::Mutex;

use crate::base::{Alignment, Error, Result};
use crate::plan::Hazards;
use crate::run::arena::Region;
use crate::run::arena::lend::{Cut, Memory, Slots, fill};
use crate::run::arena::spans::{Holder, StepSpans, Stretch};
use crate::run::arena::turns::{Refusal, Turns};

/// Zeroed bytes whose address is a multiple of an alignment.
///
/// Invariants, which every block below refers to:
///
/// 1. If `layout.size() > 0`, `pointer` is what `alloc_zeroed(layout)` returned, and
///    nothing has freed it; otherwise it is aligned to `layout.align()` and dangling.
/// 2. All `layout.size()` bytes are initialized: they were zeroed, and are only ever
///    written through slices of `u8`.
/// 3. `self` owns the bytes: no other pointer to the bytes exists, except pointers derived from
///    borrows of `self`, and pointers that [`AlignedBytes::as_ptr`] gave out, whose users answer
///    for themselves.
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

    /// Returns the byte count.
    pub(super) const fn len(&self) -> usize {
        self.layout.size()
    }

    /// Returns the first byte's address.
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
            // - The block is allocated by this allocator: invariant 1, and this is the only place
            //   that frees the block.
            // - The layout is that of the allocation: invariant 1.
            unsafe { dealloc(self.pointer.as_ptr(), self.layout) }
        }
    }
}

// SAFETY: the bytes are owned (invariant 3) and `u8` may move between threads.
unsafe impl Send for AlignedBytes {}

// SAFETY: a shared `AlignedBytes` only gives out shared slices, and the address, whose users answer
// for all accesses (invariant 3).
unsafe impl Sync for AlignedBytes {}

/// A region in a shared arena.
#[derive(Debug)]
struct RawRegion {
    start: NonNull<u8>,
    bytes: usize,
}

/// The regions of an arena, whose bytes several threads use at once: each step of one run is lent
/// separate bytes.
///
/// Invariants, which the blocks below refer to:
///
/// 1. Each region is that many initialized bytes, which this value borrows mutably for `'a`: no
///    other pointer to the bytes is used meanwhile, except pointers derived from this value.
/// 2. The pieces of a step are disjoint and ascend by region and first byte (`settle`).
/// 3. If two steps have pieces with a common byte, and the piece of one of them is for writing,
///    then a path of `hazards` leads from one to the other. This is the definition of hazards:
///    [`hazards_of`](crate::run::dependencies::hazards_of) computes them from the same pieces for the one
///    caller, [`Program`](crate::Program).
/// 4. Of such two steps the later step is lent only after the earlier step was given back, with all
///    writes visible: each step on the path was given back (`turns.rs`). A step is lent once in a
///    run.
///
/// So the pieces of all steps that are lent at a moment overlap only where all pieces are for
/// reading. Builds with assertions test this rule at each lending.
#[derive(Debug)]
pub(crate) struct SharedRegions<'a> {
    regions: Box<[RawRegion]>,
    spans: &'a [StepSpans],
    hazards: &'a Hazards,
    turns: Turns,
    /// The steps that are lent.
    #[cfg(all(debug_assertions, feature = "std"))]
    lent: Mutex<alloc::vec::Vec<usize>>,
    borrowed: PhantomData<&'a mut [u8]>,
}

impl<'a> SharedRegions<'a> {
    /// Borrows regions for one run after the other of the steps with these pieces, which `hazards`
    /// order.
    pub(crate) fn new(
        regions: &'a mut [Region<'_>],
        spans: &'a [StepSpans],
        hazards: &'a Hazards,
    ) -> Self {
        debug_assert_eq!(spans.len(), hazards.steps());
        let raw = |region: &'a mut Region<'_>| {
            let bytes = region.bytes_mut();
            RawRegion { bytes: bytes.len(), start: NonNull::from(bytes).cast() }
        };
        Self {
            regions: regions.iter_mut().map(raw).collect(),
            spans,
            hazards,
            turns: Turns::new(spans.len()),
            #[cfg(all(debug_assertions, feature = "std"))]
            lent: Mutex::default(),
            borrowed: PhantomData,
        }
    }

    /// Lends a step, if all required steps were given back, and the step was not lent before.
    pub(crate) fn lend(&self, step: usize) -> Result<LentStep<'_>, Refusal> {
        let spans = self.spans.get(step).ok_or(Refusal::Missing)?;
        let before = self.hazards.of(step).iter().map(|edge| edge.before);
        self.turns.take(step, before.map(|step| usize::try_from(step).unwrap_or(usize::MAX)))?;
        #[cfg(all(debug_assertions, feature = "std"))]
        self.note(step);
        Ok(LentStep { shared: self, spans, step })
    }

    /// Returns whether every step was lent and given back.
    pub(crate) fn is_over(&self) -> bool {
        self.turns.are_over()
    }

    /// Begins another run.
    pub(crate) fn restart(&mut self) {
        // A leaked step is not lent any more: the borrow of `self` has ended.
        #[cfg(all(debug_assertions, feature = "std"))]
        self.lent.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner).clear();
        self.turns.restart();
    }

    /// Asserts that a step shares no byte with the lent steps, unless both only read the byte.
    #[cfg(all(debug_assertions, feature = "std"))]
    fn note(&self, step: usize) {
        let mut lent = self.lent.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let writes = |holder: &Holder| !matches!(holder, Holder::Readers(_));
        for &other in &*lent {
            for theirs in &self.spans[other].pieces {
                for mine in &self.spans[step].pieces {
                    let apart = theirs.place.region != mine.place.region
                        || theirs.place.end <= mine.place.start
                        || mine.place.end <= theirs.place.start;
                    assert!(
                        apart || !(writes(&mine.holder) || writes(&theirs.holder)),
                        "steps {other} and {step} are lent the same bytes at once"
                    );
                }
            }
        }
        lent.push(step);
    }

    /// Returns the address of bytes in a region, or `None` if there are no such bytes.
    fn address(&self, place: Stretch) -> Option<NonNull<u8>> {
        let region = self.regions.get(place.region)?;
        if place.start > place.end || place.end > region.bytes {
            return None;
        }
        // SAFETY: `start + place.start` is in the region or one byte behind the end, as was just
        // tested, and the region is one allocation of at most `isize::MAX` bytes (invariant 1).
        Some(unsafe { region.start.add(place.start) })
    }
}

// SAFETY: the pointers send only the mutable borrow of bytes (invariant 1), and `&mut [u8]` may
// move between threads.
unsafe impl Send for SharedRegions<'_> {}

// SAFETY: a shared `SharedRegions` lends each byte for writing to at most one step at a time, and
// to no other step meanwhile (invariants 3 and 4). Steps that are lent may move between threads
// since `u8` may.
unsafe impl Sync for SharedRegions<'_> {}

/// The bytes of a step, until this value is dropped.
#[derive(Debug)]
pub(crate) struct LentStep<'r> {
    shared: &'r SharedRegions<'r>,
    spans: &'r StepSpans,
    step: usize,
}

impl Drop for LentStep<'_> {
    fn drop(&mut self) {
        #[cfg(all(debug_assertions, feature = "std"))]
        self.shared
            .lent
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .retain(|&step| step != self.step);
        self.shared.turns.give_back(self.step);
    }
}

impl LentStep<'_> {
    /// Returns whether bytes belong to a piece of the step; with `to_write`, to a piece for
    /// writing.
    fn has(&self, place: Stretch, to_write: bool) -> bool {
        let holds = |piece: &&crate::run::arena::spans::Piece| {
            piece.place.region == place.region
                && piece.place.start <= place.start
                && place.start <= place.end
                && place.end <= piece.place.end
        };
        let piece = self.spans.pieces.iter().find(holds);
        piece.is_some_and(|piece| !(to_write && matches!(piece.holder, Holder::Readers(_))))
    }

    /// Returns the step's bytes to read.
    fn read(&self, place: Stretch) -> Option<&[u8]> {
        if place.is_empty() {
            return Some(&[]);
        }
        let address = self.has(place, false).then(|| self.shared.address(place)).flatten()?;
        // SAFETY: `slice::from_raw_parts` asks for four things.
        // - Valid for reads: `address` found that many bytes of one region (invariant 1).
        // - Aligned and non-null: `u8` has alignment 1, and the pointer is a `NonNull`.
        // - Initialized: invariant 1.
        // - Not mutated meanwhile: the bytes are in a piece of this step, and no other step that is
        //   lent has a piece for writing there (invariants 3 and 4). The step itself stays lent
        //   while the result borrows `self`, and lends bytes for writing only with `&mut self`.
        Some(unsafe { slice::from_raw_parts(address.as_ptr(), place.len()) })
    }

    /// Returns the step's bytes to write.
    fn write(&mut self, place: Stretch) -> Option<&mut [u8]> {
        if place.is_empty() {
            return Some(&mut []);
        }
        let address = self.has(place, true).then(|| self.shared.address(place)).flatten()?;
        // SAFETY: `slice::from_raw_parts_mut` asks for four things.
        // - Valid for reads and writes, aligned, initialized: as in `read`.
        // - Not accessed otherwise meanwhile: the bytes are in a piece for writing of this step,
        //   and no other step that is lent has a piece there (invariants 3 and 4). The step
        //   itself lends nothing else while the result borrows `self` mutably.
        Some(unsafe { slice::from_raw_parts_mut(address.as_ptr(), place.len()) })
    }
}

impl Memory for LentStep<'_> {
    fn bytes(&self, place: Stretch) -> Option<&[u8]> {
        self.read(place)
    }

    fn bytes_mut(&mut self, place: Stretch) -> Option<&mut [u8]> {
        self.write(place)
    }

    fn lend<'m>(&'m mut self, spans: &StepSpans, slots: Slots<'_, 'm>) -> Option<()> {
        // Only this step's own pieces.
        if !core::ptr::eq(spans, self.spans) {
            return None;
        }
        let spans = self.spans;
        fill(spans, slots, &mut Pieces { step: self, region: 0, end: 0 })
    }
}

/// A step's pieces, requested in ascending order.
struct Pieces<'m> {
    step: &'m LentStep<'m>,
    /// Region and end of the last piece.
    region: usize,
    end: usize,
}

impl Pieces<'_> {
    /// Returns whether a piece comes after the last piece.
    fn comes_next(&mut self, place: Stretch) -> bool {
        let is_next = (self.region, self.end) <= (place.region, place.start);
        (self.region, self.end) = (place.region, place.end);
        is_next
    }
}

impl<'m> Cut<'m> for Pieces<'m> {
    fn to_write(&mut self, place: Stretch) -> Option<&'m mut [u8]> {
        let step: &'m LentStep<'m> = self.step;
        let found = self.comes_next(place) && !place.is_empty() && step.has(place, true);
        let address = found.then(|| step.shared.address(place)).flatten()?;
        // SAFETY: as in `LentStep::write`. This value is made with the step borrowed mutably for
        // `'m`, and no two slices overlap: each slice begins behind the previous slice.
        Some(unsafe { slice::from_raw_parts_mut(address.as_ptr(), place.len()) })
    }

    fn to_read(&mut self, place: Stretch) -> Option<&'m [u8]> {
        let is_next = self.comes_next(place);
        if is_next { self.step.read(place) } else { None }
    }
}

/// A memory file that several processes map.
///
/// Invariants:
///
/// 1. `map` maps `len` initialized bytes for reading and writing: of a file that cannot shrink, or
///    zeros.
/// 2. The creator of the map promised that nobody writes the bytes through another map or
///    descriptor, or reads the bytes while they are written here, without the lock that
///    [`SharedMemory`](crate::run::arena::SharedMemory) holds for every slice.
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
            reason: alloc::format!("the shared memory cannot be mapped: {error}"),
        })?;
        Ok(Self { map })
    }

    /// Returns the byte count.
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
impl crate::run::arena::SharedMemory {
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
    /// [`Error::ArenaCommit`] if there is not enough memory, or `bytes` is 0.
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
    /// [`Error::ArenaState`] if the descriptor does not belong to such a memory, or there are 1,024
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
            // A compiler may remove an unused allocation, which then cannot fail.
            let refused = std::hint::black_box(AlignedBytes::zeroed(bytes, Alignment::BYTE));
            assert_eq!(refused.map(|_| ()), Err(Error::ArenaCommit { bytes }));
        }
    }
}
