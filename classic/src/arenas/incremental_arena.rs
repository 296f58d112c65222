//! Today's incremental arena: allocations have live ranges.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::{boxed::Box, vec::Vec};

use crate::arenas::backing::Backing;
use crate::arenas::gaps::{GapRule, Gaps};
use crate::arenas::overlaps::Overlaps;
use crate::arenas::simple::{Span, check_alignment, checked_span, resolve, resolve_mut};
use crate::error::{Error, Result};
use arenaplan::Error as Core;
use arenaplan::arena::{ArenaAllocator, SystemAllocator};
use arenaplan::base::{Alignment, LiveRange, Step};

/// Bytes in an [`IncrementalArena`] with a live range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Allocation {
    /// The allocation's bytes.
    pub span: Span,
    /// The allocation's live range.
    pub live: LiveRange,
    id: u32,
}

/// An arena whose allocations have live ranges and avoid only allocations that are live together.
///
/// TensorFlow Lite's planner works with such an arena today. An allocation sees only *active*
/// allocations: made and not dropped since. If all active allocations meet the new allocation a
/// search takes `O(log n)`; otherwise the search sorts the allocations that meet the new
/// allocation.
///
/// ```
/// use arenaplan::base::{Alignment, LiveRange};
/// use arenaplan_classic::arenas::IncrementalArena;
///
/// let mut arena = IncrementalArena::new(Alignment::new(64)?);
/// let alignment = Alignment::new(32)?;
/// let first = arena.allocate(alignment, 2047, LiveRange::new(1, 4)?)?;
/// let second = arena.allocate(alignment, 2047, LiveRange::new(2, 6)?)?;
/// let third = arena.allocate(alignment, 2047, LiveRange::new(5, 7)?)?; // after the first
/// assert_eq!([first, second, third].map(|it| it.span.offset), [0, 2048, 0]);
/// arena.commit()?;
/// assert_eq!(arena.resolve(second.span)?.map(<[u8]>::len), Some(2047));
/// # Ok::<(), arenaplan_classic::Error>(())
/// ```
#[derive(Debug)]
pub struct IncrementalArena {
    alignment: Alignment,
    rule: GapRule,
    backing: Backing,
    committed: bool,
    amortized: bool,
    high_water: u64,
    next_id: u32,
    active: BTreeMap<u32, Allocation>,
    by_start: BTreeSet<(Step, u32)>,
    by_end: BTreeSet<(Step, u32)>,
    overlaps: Overlaps,
    gaps: GapsState,
}

/// State of the gaps between all active allocations.
#[derive(Clone, Debug)]
enum GapsState {
    Known(Gaps),
    /// Not added up.
    Unknown,
    /// Active allocations share bytes at different steps.
    Shared,
}

impl IncrementalArena {
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
            rule: GapRule::default(),
            backing: Backing::new(allocator, alignment),
            committed: false,
            amortized: false,
            high_water: 0,
            next_id: 0,
            active: BTreeMap::new(),
            by_start: BTreeSet::new(),
            by_end: BTreeSet::new(),
            overlaps: Overlaps::default(),
            gaps: GapsState::Known(Gaps::default()),
        }
    }

    /// Sets how the gap for an allocation is chosen.
    #[must_use]
    pub fn with_rule(mut self, rule: GapRule) -> Self {
        self.rule = rule;
        self
    }

    /// Makes memory that has to grow grow by half at least, so that growing in many small
    /// steps does not copy everything each time.
    #[must_use]
    pub fn with_amortized_growth(mut self) -> Self {
        self.amortized = true;
        self
    }

    /// Returns `bytes` bytes that no active allocation has during `live`.
    ///
    /// No bytes are a span at offset 0 that overlaps nothing, and are not active.
    ///
    /// # Errors
    ///
    /// - [`Error::InvalidAlignment`](arenaplan::Error::InvalidAlignment) if `alignment` is stricter than the arena's.
    /// - [`Error::SizeOverflow`](arenaplan::Error::SizeOverflow) if the arena would exceed [`MAX_BYTES`](arenaplan::base::MAX_BYTES).
    /// - [`Error::OutOfMemory`](arenaplan::Error::OutOfMemory) after 2^32 allocations without a [`clear`](Self::clear).
    pub fn allocate(
        &mut self,
        alignment: Alignment,
        bytes: u64,
        live: LiveRange,
    ) -> Result<Allocation> {
        check_alignment(alignment, self.alignment)?;
        let id = self.next_id;
        if bytes == 0 {
            return Ok(Allocation { span: Span::default(), live, id: u32::MAX });
        }
        self.next_id = id
            .checked_add(1)
            .ok_or(Error::Core(Core::OutOfMemory { what: "names of allocations" }))?;
        let rule = self.rule;
        let gaps = if self.all_meet(live) { self.known_gaps() } else { None };
        let (offset, indexed) = match gaps {
            Some(gaps) => (gaps.find(bytes, alignment, rule), true),
            None => (self.search(bytes, alignment, live), false),
        };
        let span = checked_span(offset, bytes)?;
        match &mut self.gaps {
            GapsState::Known(gaps) if indexed => gaps.take(span.offset, span.end()),
            state => *state = GapsState::Unknown,
        }
        self.high_water = self.high_water.max(span.end());
        let allocation = Allocation { span, live, id };
        self.activate(allocation);
        Ok(allocation)
    }

    /// Drops the allocations that are over before `step`: no later allocation meets them.
    pub fn purge_before(&mut self, step: Step) {
        while let Some(&(end, id)) = self.by_end.first()
            && end <= step
        {
            self.deactivate(id);
        }
    }

    /// Drops the allocations that begin after `step`.
    pub fn purge_after(&mut self, step: Step) {
        while let Some(&(start, id)) = self.by_start.last()
            && start > step
        {
            self.deactivate(id);
        }
    }

    /// Drops an allocation, if active.
    pub fn forget(&mut self, allocation: Allocation) {
        if self.active.get(&allocation.id) == Some(&allocation) {
            self.deactivate(allocation.id);
        }
    }

    /// Makes exactly `allocations`, which were made by this arena, active.
    pub fn restore(&mut self, allocations: impl IntoIterator<Item = Allocation>) {
        self.reset();
        for allocation in allocations {
            if allocation.span.bytes > 0 && allocation.id < self.next_id {
                self.gaps = GapsState::Unknown;
                self.activate(allocation);
            }
        }
    }

    /// Drops all allocations, and keeps the high-water mark.
    pub fn reset(&mut self) {
        self.active.clear();
        self.by_start.clear();
        self.by_end.clear();
        self.overlaps = Overlaps::default();
        self.gaps = GapsState::Known(Gaps::default());
    }

    /// Drops all allocations and the high-water mark, and keeps the memory.
    pub fn clear(&mut self) {
        self.reset();
        self.committed = false;
        self.high_water = 0;
        self.next_id = 0;
    }

    /// Frees the memory, and keeps the allocations; a commit is needed again.
    pub fn release(&mut self) {
        self.backing.release();
        self.committed = false;
    }

    /// Gets memory for all allocations, and returns whether the bytes moved.
    ///
    /// The content is kept.
    ///
    /// # Errors
    ///
    /// [`Error::ArenaCommit`](arenaplan::Error::ArenaCommit) if there is not enough memory; the arena is then unchanged and not
    /// committed.
    pub fn commit(&mut self) -> Result<bool> {
        self.committed = false;
        let present = self.buffer_bytes();
        let ample = present.saturating_add(present / 2);
        let grows =
            self.amortized && present > 0 && (present + 1..ample).contains(&self.high_water);
        let moved = match self.backing.grow(if grows { ample } else { self.high_water }) {
            // Where there is no room for more than is needed, that has to do.
            Err(_) if grows => self.backing.grow(self.high_water)?,
            result => result?,
        };
        self.committed = true;
        Ok(moved)
    }

    /// Returns a span's bytes, or `None` if the span is empty.
    ///
    /// # Errors
    ///
    /// - [`Error::ArenaState`](arenaplan::Error::ArenaState) if the arena is not committed.
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

    /// Returns whether spans can be resolved.
    pub const fn is_committed(&self) -> bool {
        self.committed
    }

    /// Returns the end of the highest allocation since the arena was cleared.
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

    /// Returns the number of active allocations.
    pub fn active(&self) -> usize {
        self.active.len()
    }

    /// Returns whether all active allocations have a step in common with `live`.
    fn all_meet(&self, live: LiveRange) -> bool {
        self.by_start.last().is_none_or(|&(start, _)| start < live.end())
            && self.by_end.first().is_none_or(|&(end, _)| end > live.start())
    }

    /// Returns the gaps between the active allocations, unless allocations share bytes.
    fn known_gaps(&mut self) -> Option<&Gaps> {
        if matches!(self.gaps, GapsState::Unknown) {
            let taken = self.active.values().map(|it| (it.span.offset, it.span.end()));
            self.gaps = Gaps::between(taken).map_or(GapsState::Shared, GapsState::Known);
        }
        match &self.gaps {
            GapsState::Known(gaps) => Some(gaps),
            GapsState::Unknown | GapsState::Shared => None,
        }
    }

    /// Finds an offset among the allocations that meet `live`.
    fn search(&self, bytes: u64, alignment: Alignment, live: LiveRange) -> Option<u64> {
        let mut taken = Vec::new();
        self.overlaps.each(live, |id| {
            let span = self.active[&id].span;
            taken.push((span.offset, span.end()));
        });
        taken.sort_unstable();
        let mut best: Option<(u64, u64)> = None;
        let mut at = 0_u64;
        for (start, end) in taken {
            let aligned = alignment.round_up(at)?;
            if aligned.checked_add(bytes)? <= start {
                let measure = match self.rule {
                    GapRule::Shortest => start - at,
                    GapRule::LiteRt => start - aligned,
                };
                if best.is_none_or(|(_, length)| measure < length) {
                    best = Some((aligned, start - at));
                }
            }
            at = at.max(end);
        }
        best.map_or_else(|| alignment.round_up(at), |(offset, _)| Some(offset))
    }

    fn activate(&mut self, allocation: Allocation) {
        let Allocation { live, id, .. } = allocation;
        self.active.insert(id, allocation);
        self.by_start.insert((live.start(), id));
        self.by_end.insert((live.end(), id));
        self.overlaps.insert(id, live);
    }

    fn deactivate(&mut self, id: u32) {
        let Some(Allocation { span, live, .. }) = self.active.remove(&id) else { return };
        self.by_start.remove(&(live.start(), id));
        self.by_end.remove(&(live.end(), id));
        self.overlaps.remove(id, live);
        match &mut self.gaps {
            GapsState::Known(gaps) => gaps.free(span.offset, span.end()),
            state => *state = GapsState::Unknown,
        }
    }
}
