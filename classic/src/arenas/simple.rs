//! The incremental arena of 2019: allocate and deallocate in execution order.

use alloc::collections::BTreeMap;
use alloc::{boxed::Box, format};

use crate::arenas::backing::Backing;
use crate::arenas::gaps::{GapRule, Gaps};
use crate::error::{Error, Result};
use arenaplan::Error as Core;
use arenaplan::arena::{ArenaAllocator, SystemAllocator};
use arenaplan::base::{Alignment, MAX_BYTES};

/// Bytes in a [`SimpleArena`] or an [`IncrementalArena`](crate::arenas::IncrementalArena).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Span {
    /// First byte.
    pub offset: u64,
    /// Size in bytes; nothing is behind a span without bytes.
    pub bytes: u64,
}

impl Span {
    /// Returns the byte after the last.
    pub const fn end(self) -> u64 {
        self.offset + self.bytes
    }
}

/// An arena that is filled during planning, as TensorFlow Lite's arena was in 2019.
///
/// Spans are handed out before there is memory; [`commit`](Self::commit) gets the memory,
/// and [`resolve`](Self::resolve) turns spans into bytes.
///
/// ```
/// use arenaplan::base::Alignment;
/// use arenaplan_classic::arenas::SimpleArena;
///
/// let mut arena = SimpleArena::new(Alignment::new(64)?);
/// let alignment = Alignment::new(32)?;
/// let first = arena.allocate(alignment, 2047)?;
/// let second = arena.allocate(alignment, 2047)?;
/// assert_eq!([first.offset, second.offset], [0, 2048]); // offsets are aligned, sizes are not
/// arena.deallocate(first)?;
/// assert_eq!(arena.allocate(alignment, 1023)?.offset, 0);
/// arena.commit()?;
/// assert_eq!(arena.resolve(second)?.map(<[u8]>::len), Some(2047));
/// # Ok::<(), arenaplan_classic::Error>(())
/// ```
#[derive(Debug)]
pub struct SimpleArena {
    alignment: Alignment,
    backing: Backing,
    committed: bool,
    high_water: u64,
    /// Size by offset of every span that is handed out.
    taken: BTreeMap<u64, u64>,
    gaps: Gaps,
}

impl SimpleArena {
    /// Returns an empty arena whose first byte will be at a multiple of `alignment`.
    #[must_use]
    pub fn new(alignment: Alignment) -> Self {
        Self::with_allocator(alignment, Box::new(SystemAllocator))
    }

    /// Returns an empty arena whose bytes come from `allocator`.
    #[must_use]
    pub fn with_allocator(alignment: Alignment, allocator: Box<dyn ArenaAllocator>) -> Self {
        Self {
            alignment,
            backing: Backing::new(allocator, alignment),
            committed: false,
            high_water: 0,
            taken: BTreeMap::new(),
            gaps: Gaps::default(),
        }
    }

    /// Returns the lowest of the shortest free stretches that hold `bytes` bytes, or the end of the
    /// arena.
    ///
    /// An empty request returns a span at offset 0 that overlaps nothing.
    ///
    /// # Errors
    ///
    /// - [`Error::InvalidAlignment`](arenaplan::Error::InvalidAlignment) if `alignment` is stricter than the arena's.
    /// - [`Error::SizeOverflow`](arenaplan::Error::SizeOverflow) if the arena would exceed [`MAX_BYTES`].
    pub fn allocate(&mut self, alignment: Alignment, bytes: u64) -> Result<Span> {
        check_alignment(alignment, self.alignment)?;
        if bytes == 0 {
            return Ok(Span::default());
        }
        let offset = self.gaps.find(bytes, alignment, GapRule::Shortest);
        let span = checked_span(offset, bytes)?;
        self.gaps.take(span.offset, span.end());
        self.taken.insert(span.offset, bytes);
        self.high_water = self.high_water.max(span.end());
        Ok(span)
    }

    /// Takes a span back; an empty span may be returned repeatedly.
    ///
    /// # Errors
    ///
    /// [`Error::ArenaState`](arenaplan::Error::ArenaState) if the span is not handed out.
    pub fn deallocate(&mut self, span: Span) -> Result<()> {
        if span.bytes == 0 {
            return Ok(());
        }
        if self.taken.get(&span.offset) != Some(&span.bytes) {
            let (offset, bytes) = (span.offset, span.bytes);
            let reason = format!("no {bytes} bytes are allocated at offset {offset}");
            return Err(Error::Core(Core::ArenaState { reason }));
        }
        self.taken.remove(&span.offset);
        self.gaps.free(span.offset, span.end());
        Ok(())
    }

    /// Gets memory for all spans ever handed out, and returns whether the bytes moved.
    ///
    /// The content is kept. The memory has two alignments of bytes more than needed, so that small
    /// growth later finds room.
    ///
    /// # Errors
    ///
    /// [`Error::ArenaCommit`](arenaplan::Error::ArenaCommit) if there is not enough memory; the arena is then unchanged.
    pub fn commit(&mut self) -> Result<bool> {
        self.committed = false;
        let padding = self.alignment.bytes().saturating_mul(2);
        let moved = self.backing.grow(self.high_water.saturating_add(padding))?;
        self.committed = true;
        Ok(moved)
    }

    /// Returns a span's bytes, or `None` if the span is empty.
    ///
    /// # Errors
    ///
    /// - [`Error::ArenaState`](arenaplan::Error::ArenaState) before the first commit.
    /// - [`Error::PlanOutOfBounds`](arenaplan::Error::PlanOutOfBounds) if the span is not inside the memory.
    pub fn resolve(&self, span: Span) -> Result<Option<&[u8]>> {
        resolve(self.committed, &self.backing, span)
    }

    /// Returns the bytes of a span to write, or `None` if the span is empty.
    ///
    /// # Errors
    ///
    /// As [`resolve`](Self::resolve).
    pub fn resolve_mut(&mut self, span: Span) -> Result<Option<&mut [u8]>> {
        resolve_mut(self.committed, &mut self.backing, span)
    }

    /// Takes all spans back, and keeps the memory.
    pub fn clear(&mut self) {
        self.committed = false;
        self.high_water = 0;
        self.taken.clear();
        self.gaps = Gaps::default();
    }

    /// Returns the end of the highest span that was handed out since the arena was empty.
    pub const fn high_water(&self) -> u64 {
        self.high_water
    }

    /// Returns the memory size in bytes.
    pub fn buffer_bytes(&self) -> u64 {
        u64::try_from(self.backing.bytes().len()).unwrap_or(u64::MAX)
    }

    /// Returns the address of the first byte, or `None` if there is no memory.
    pub fn address(&self) -> Option<usize> {
        self.backing.address()
    }
}

/// Refuses an alignment that the arena's first byte does not have.
pub(super) fn check_alignment(alignment: Alignment, arena: Alignment) -> Result<()> {
    if alignment > arena {
        let what = format!("an allocation in an arena aligned to {arena}");
        return Err(Error::Core(Core::InvalidAlignment { what, bytes: alignment.bytes() }));
    }
    Ok(())
}

/// Returns the span at `offset`, if valid.
pub(super) fn checked_span(offset: Option<u64>, bytes: u64) -> Result<Span> {
    offset
        .filter(|offset| offset.checked_add(bytes).is_some_and(|end| end <= MAX_BYTES))
        .map(|offset| Span { offset, bytes })
        .ok_or_else(|| Error::Core(Core::SizeOverflow { what: "an incremental arena".into() }))
}

/// Returns the place of a span in memory, or `None` if the span is empty.
fn locate(
    committed: bool,
    backing: &Backing,
    span: Span,
) -> Result<Option<core::ops::Range<usize>>> {
    if !committed {
        return Err(Error::Core(Core::ArenaState { reason: "the arena is not committed".into() }));
    }
    if span.bytes == 0 {
        return Ok(None);
    }
    let arena = backing.bytes().len();
    let out_of_bounds = || {
        Error::Core(Core::PlanOutOfBounds {
            what: "a span".into(),
            start: span.offset,
            end: u128::from(span.offset) + u128::from(span.bytes),
            arena: u64::try_from(arena).unwrap_or(u64::MAX),
        })
    };
    arenaplan::arena::span(span.offset, span.bytes)
        .filter(|range| range.end <= arena)
        .map(Some)
        .ok_or_else(out_of_bounds)
}

/// Returns a span's bytes.
pub(super) fn resolve(committed: bool, backing: &Backing, span: Span) -> Result<Option<&[u8]>> {
    Ok(locate(committed, backing, span)?.map(|range| &backing.bytes()[range]))
}

/// Returns the bytes of a span to write.
pub(super) fn resolve_mut(
    committed: bool,
    backing: &mut Backing,
    span: Span,
) -> Result<Option<&mut [u8]>> {
    Ok(locate(committed, backing, span)?.map(|range| &mut backing.bytes_mut()[range]))
}
