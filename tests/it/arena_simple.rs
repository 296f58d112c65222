//! Incremental arenas: what both generations of TensorFlow Lite's tests expect.

use std::sync::{Arc, Mutex};

use arenaplan::Error;
use arenaplan::arena::{ArenaAllocator, ArenaBlock};
use arenaplan::base::{Alignment, LiveRange, MAX_BYTES, Step};
use arenaplan_classic::Error as Classic;
use arenaplan_classic::arenas::{Allocation, GapRule, IncrementalArena, SimpleArena, Span};
use proptest::prelude::*;

fn aligned(bytes: u64) -> Alignment {
    Alignment::new(bytes).unwrap()
}

fn simple() -> SimpleArena {
    SimpleArena::new(aligned(64))
}

/// Makes a live range of the first and last node, which is how the originals count.
fn nodes(first: u32, last: u32) -> LiveRange {
    LiveRange::new(first, last + 1).unwrap()
}

fn allocate(arena: &mut IncrementalArena, (bytes, first, last): (u64, u32, u32)) -> Allocation {
    arena.allocate(aligned(32), bytes, nodes(first, last)).unwrap()
}

fn offsets<const N: usize>(arena: &mut IncrementalArena, rows: [(u64, u32, u32); N]) -> [u64; N] {
    rows.map(|row| allocate(arena, row).span.offset)
}

#[test]
fn row_25_basic_arena_operations_2019() {
    let mut arena = simple();
    let add = |arena: &mut SimpleArena, bytes| arena.allocate(aligned(32), bytes).unwrap();
    let [a0, a1, a2] = [2047; 3].map(|bytes| add(&mut arena, bytes));
    arena.deallocate(a0).unwrap();
    let [a3, a4] = [1023, 2047].map(|bytes| add(&mut arena, bytes));
    arena.deallocate(a1).unwrap();
    let a5 = add(&mut arena, 1023);
    assert_eq!([a0, a1, a2, a3, a4, a5].map(|a| a.offset), [0, 2048, 4096, 0, 6144, 1024]);
    arena.commit().unwrap();
    assert_eq!((arena.high_water(), arena.buffer_bytes()), (8191, 8319));
}

#[test]
fn row_26_basic_zero_alloc_2019() {
    let mut arena = simple();
    let nothing = arena.allocate(aligned(32), 0).unwrap();
    assert_eq!(nothing, Span { offset: 0, bytes: 0 });
    arena.deallocate(nothing).unwrap();
    arena.deallocate(nothing).unwrap();
    arena.commit().unwrap();
    assert_eq!(arena.resolve(nothing), Ok(None));
}

#[test]
fn row_26_interleaved_zero_alloc_2019() {
    let mut arena = simple();
    let [a0, a1, a2] = [2047, 0, 1023].map(|bytes| arena.allocate(aligned(32), bytes).unwrap());
    arena.deallocate(a1).unwrap();
    arena.deallocate(a2).unwrap();
    let a3 = arena.allocate(aligned(32), 2047).unwrap();
    assert_eq!([a0, a1, a2, a3].map(|a| a.offset), [0, 0, 2048, 2048]);
}

#[test]
fn row_25_after_clear_2019() {
    let mut arena = simple();
    for (bytes, expected) in
        [(2047, [0, 2048, 4096]), (1023, [0, 1024, 2048]), (4095, [0, 4096, 8192])]
    {
        let found = [bytes; 3].map(|bytes| arena.allocate(aligned(32), bytes).unwrap().offset);
        assert_eq!(found, expected);
        arena.commit().unwrap();
        arena.clear();
    }
}

#[test]
fn row_25_what_is_not_allocated_cannot_be_taken_back_and_nothing_resolves_before_a_commit() {
    let mut arena = simple();
    let span = arena.allocate(aligned(32), 10).unwrap();
    assert!(matches!(arena.resolve(span), Err(Classic::Core(Error::ArenaState { .. }))));
    let other = Span { bytes: 11, ..span };
    assert!(matches!(arena.deallocate(other), Err(Classic::Core(Error::ArenaState { .. }))));
    arena.commit().unwrap();
    let outside = Span { offset: 1 << 40, bytes: 1 };
    assert!(matches!(arena.resolve(outside), Err(Classic::Core(Error::PlanOutOfBounds { .. }))));
}

#[test]
fn row_25_basic_arena_operations() {
    let mut arena = IncrementalArena::new(aligned(64));
    let rows = [(2047, 1, 3), (2047, 2, 5), (2047, 3, 6), (2047, 5, 6), (1023, 4, 6), (1023, 6, 6)];
    assert_eq!(offsets(&mut arena, rows), [0, 2048, 4096, 0, 6144, 2048]);
}

#[test]
fn row_26_basic_zero_alloc() {
    let mut arena = IncrementalArena::new(aligned(64));
    let nothing = allocate(&mut arena, (0, 1, 2));
    assert_eq!(nothing.span, Span { offset: 0, bytes: 0 });
    assert_eq!(arena.commit(), Ok(false));
    assert_eq!(arena.resolve(nothing.span), Ok(None));
}

#[test]
fn row_26_interleaved_zero_alloc() {
    let mut arena = IncrementalArena::new(aligned(64));
    let rows = [(2047, 0, 4), (0, 1, 2), (1023, 1, 2), (2047, 3, 4)];
    assert_eq!(offsets(&mut arena, rows), [0, 0, 2048, 2048]);
}

#[test]
fn row_25_clear_plan() {
    let mut arena = IncrementalArena::new(aligned(64));
    for (bytes, expected, moved) in [
        (2047, [0, 2048, 4096], true),
        (1023, [0, 1024, 2048], false),
        (4095, [0, 4096, 8192], true),
    ] {
        let rows = [(bytes, 0, 2), (bytes, 1, 2), (bytes, 1, 2)];
        assert_eq!(offsets(&mut arena, rows), expected);
        assert_eq!(arena.commit(), Ok(moved));
        arena.clear();
    }
}

#[test]
fn row_25_purge_allocs() {
    let mut arena = IncrementalArena::new(aligned(64));
    let rows = [(2047, 0, 2), (2047, 1, 2), (2047, 2, 3)];
    assert_eq!(offsets(&mut arena, rows), [0, 2048, 4096]);
    arena.commit().unwrap();
    arena.purge_before(Step::new(4));
    assert_eq!(arena.active(), 0);
    assert_eq!(offsets(&mut arena, [(13, 4, 5), (2047, 0, 2)]), [0, 0]);
}

#[test]
fn row_25_reset_allocs() {
    let mut arena = IncrementalArena::new(aligned(64));
    let rows = [(2047, 0, 2), (2047, 1, 2), (2047, 2, 3)];
    assert_eq!(offsets(&mut arena, rows), [0, 2048, 4096]);
    assert_eq!(arena.commit(), Ok(true));
    assert_eq!(offsets(&mut arena, [(13, 0, 3)]), [6144]);
    assert_eq!(arena.commit(), Ok(true));
    arena.reset();
    assert_eq!(offsets(&mut arena, [(13, 0, 2)]), [0]);
}

#[test]
fn row_25_clear_buffer() {
    let mut arena = IncrementalArena::new(aligned(64));
    let a0 = allocate(&mut arena, (2047, 0, 2));
    allocate(&mut arena, (2047, 1, 2));
    arena.release();
    arena.commit().unwrap();
    assert!(arena.address().is_some());
    arena.release();
    assert!(arena.address().is_none());
    assert!(matches!(arena.resolve(a0.span), Err(Classic::Core(Error::ArenaState { .. }))));
    arena.commit().unwrap();
    assert_eq!(arena.resolve(a0.span).unwrap().map(<[u8]>::len), Some(2047));
}

#[test]
fn row_25_clear_buffer_and_plan_in_both_orders() {
    for buffer_first in [true, false] {
        let mut arena = IncrementalArena::new(aligned(64));
        let a0 = allocate(&mut arena, (2047, 0, 2));
        arena.commit().unwrap();
        if buffer_first {
            arena.release();
            arena.clear();
        } else {
            arena.clear();
            arena.release();
        }
        arena.commit().unwrap();
        assert_eq!(arena.buffer_bytes(), 0);
        assert!(matches!(
            arena.resolve(a0.span),
            Err(Classic::Core(Error::PlanOutOfBounds { .. }))
        ));
        let a0 = allocate(&mut arena, (2047, 0, 2));
        arena.commit().unwrap();
        assert!(arena.resolve(a0.span).unwrap().is_some());
    }
}

#[test]
fn row_26_a_failed_commit_leaves_the_arena_uncommitted_and_its_bytes_alone() {
    let mut arena = IncrementalArena::new(aligned(64));
    let small = allocate(&mut arena, (16, 0, 9));
    arena.commit().unwrap();
    arena.resolve_mut(small.span).unwrap().unwrap().fill(7);
    let address = arena.address();
    let huge = arena.allocate(aligned(1), MAX_BYTES - 16, nodes(0, 9)).unwrap();
    assert!(matches!(arena.commit(), Err(Classic::Core(Error::ArenaCommit { .. }))));
    assert!(matches!(arena.resolve(huge.span), Err(Classic::Core(Error::ArenaState { .. }))));
    assert_eq!((arena.address(), arena.buffer_bytes()), (address, 16));
    let over = arena.allocate(aligned(1), 1, nodes(0, 9));
    assert!(matches!(over, Err(Classic::Core(Error::SizeOverflow { .. }))));
}

#[test]
fn row_26_an_alignment_above_the_arenas_is_refused() {
    let refused = IncrementalArena::new(aligned(64)).allocate(aligned(128), 1, nodes(0, 0));
    assert!(matches!(refused, Err(Classic::Core(Error::InvalidAlignment { .. }))));
    assert!(matches!(
        simple().allocate(aligned(128), 1),
        Err(Classic::Core(Error::InvalidAlignment { .. }))
    ));
}

#[test]
fn row_26_sizes_past_any_memory_are_errors() {
    let mut arena = simple();
    arena.allocate(aligned(1), 16).unwrap();
    for bytes in [MAX_BYTES, u64::MAX, u64::MAX - 15] {
        assert!(matches!(
            arena.allocate(aligned(1), bytes),
            Err(Classic::Core(Error::SizeOverflow { .. }))
        ));
    }
}

/// What an allocator of the caller was asked for.
#[derive(Clone, Debug, Default)]
struct Log(Arc<Mutex<Vec<(&'static str, u64)>>>);

#[derive(Debug, Default)]
struct Custom {
    log: Log,
    fails: bool,
}

impl Custom {
    fn note(&self, what: &'static str, bytes: u64) {
        self.log.0.lock().unwrap().push((what, bytes));
    }
}

impl ArenaAllocator for Custom {
    fn allocate(&mut self, bytes: u64, _: Alignment) -> arenaplan::Result<Box<dyn ArenaBlock>> {
        self.note("allocate", bytes);
        Ok(Box::new(vec![0_u8; bytes as usize]))
    }

    fn reallocate(
        &mut self,
        block: Box<dyn ArenaBlock>,
        bytes: u64,
        _: Alignment,
    ) -> arenaplan::Result<Box<dyn ArenaBlock>, (Box<dyn ArenaBlock>, Error)> {
        self.note("reallocate", bytes);
        if self.fails {
            return Err((block, Error::ArenaCommit { bytes }));
        }
        let mut grown = (*block).as_ref().to_vec();
        grown.resize(bytes as usize, 0);
        Ok(Box::new(grown))
    }

    fn deallocate(&mut self, block: Box<dyn ArenaBlock>) {
        self.note("deallocate", (*block).as_ref().len() as u64);
    }
}

#[test]
fn row_25_a_custom_allocator_is_asked_to_grow_what_it_gave() {
    for fails in [false, true] {
        let log = Log::default();
        let custom = Custom { log: log.clone(), fails };
        let mut arena = IncrementalArena::with_allocator(aligned(1), Box::new(custom));
        let one = aligned(1);
        let first = arena.allocate(one, 128, nodes(0, 9)).unwrap();
        arena.commit().unwrap();
        arena.resolve_mut(first.span).unwrap().unwrap().fill(42);
        let address = arena.address();
        arena.allocate(one, 128, nodes(0, 9)).unwrap();
        assert_eq!(arena.commit().is_err(), fails);
        if fails {
            assert_eq!((arena.address(), arena.buffer_bytes()), (address, 128));
        } else {
            assert_eq!(arena.buffer_bytes(), 256);
            assert_eq!(arena.resolve(first.span), Ok(Some(&[42; 128][..])));
        }
        let last = arena.buffer_bytes();
        drop(arena);
        let expected = [("allocate", 128), ("reallocate", 256), ("deallocate", last)];
        assert_eq!(*log.0.lock().unwrap(), expected);
    }
}

/// Gives one byte less than asked for, or bytes at an odd address.
#[derive(Debug)]
struct Wrong {
    short: bool,
}

#[derive(Debug)]
struct Odd(Vec<u8>);

impl AsRef<[u8]> for Odd {
    fn as_ref(&self) -> &[u8] {
        let odd = 1 - self.0.as_ptr() as usize % 2;
        &self.0[odd..]
    }
}

impl AsMut<[u8]> for Odd {
    fn as_mut(&mut self) -> &mut [u8] {
        let odd = 1 - self.0.as_ptr() as usize % 2;
        &mut self.0[odd..]
    }
}

impl ArenaAllocator for Wrong {
    fn allocate(&mut self, bytes: u64, _: Alignment) -> arenaplan::Result<Box<dyn ArenaBlock>> {
        let bytes = bytes as usize;
        Ok(if self.short {
            Box::new(vec![0; bytes - 1])
        } else {
            Box::new(Odd(vec![0; bytes + 2]))
        })
    }
}

#[test]
fn row_25_blocks_of_a_custom_allocator_are_measured() {
    for (short, kind) in [(true, "CapacityExceeded"), (false, "MisalignedBuffer")] {
        let mut arena = IncrementalArena::with_allocator(aligned(64), Box::new(Wrong { short }));
        let span = allocate(&mut arena, (100, 0, 0)).span;
        assert_eq!(arena.commit().unwrap_err().kind(), kind);
        assert!(arena.resolve(span).is_err());
    }
}

#[test]
fn k11_litert_measures_gaps_from_two_places() {
    let rows = [(28, 2, 2), (22, 3, 6), (21, 5, 5), (8, 2, 4), (7, 4, 6), (6, 4, 4)];
    let rule = GapRule::LiteRt;
    let mut arena = IncrementalArena::new(aligned(64)).with_rule(rule);
    let found = rows.map(|(bytes, first, last)| {
        arena.allocate(aligned(8), bytes, nodes(first, last)).unwrap().span.offset
    });
    assert_eq!(found, [0, 0, 24, 32, 48, 40]);
    assert_eq!(arena.high_water(), 55);
}

#[test]
fn k11_by_default_the_shortest_gap_wins() {
    for (rule, expected) in [(GapRule::LiteRt, 24), (GapRule::Shortest, 8)] {
        let mut arena = IncrementalArena::new(aligned(64)).with_rule(rule);
        // Gaps 8..17 and 20..32: the second has 8 bytes behind its aligned start.
        let made =
            [8, 9, 3, 12, 8].map(|bytes| arena.allocate(aligned(1), bytes, nodes(0, 9)).unwrap());
        arena.forget(made[1]);
        arena.forget(made[3]);
        let found = arena.allocate(aligned(8), 6, nodes(0, 9)).unwrap();
        assert_eq!(found.span.offset, expected);
    }
}

/// The rule as it is defined: look at every allocation.
fn by_scanning(
    taken: &[(Allocation, LiveRange)],
    bytes: u64,
    alignment: u64,
    live: LiveRange,
    rule: GapRule,
) -> u64 {
    let mut meeting: Vec<(u64, u64)> = taken
        .iter()
        .filter(|(_, other)| other.overlaps(live))
        .map(|(it, _)| (it.span.offset, it.span.end()))
        .collect();
    meeting.sort_unstable();
    let (mut best, mut best_length, mut at) = (None, u64::MAX, 0_u64);
    for (start, end) in meeting {
        let aligned = at.next_multiple_of(alignment);
        let measure = if rule == GapRule::Shortest {
            start.saturating_sub(at)
        } else {
            start.saturating_sub(aligned)
        };
        if aligned + bytes <= start && measure < best_length {
            (best, best_length) = (Some(aligned), start - at);
        }
        at = at.max(end);
    }
    best.unwrap_or(at.next_multiple_of(alignment))
}

proptest! {
    /// Whatever is allocated, forgotten, purged and reset: the indexes answer as a scan does.
    #[test]
    fn k20_the_gap_index_and_the_interval_tree_answer_as_a_scan_does(
        actions in prop::collection::vec((0_u8..12, 1_u64..200, 0_u32..30, 1_u32..30, 0_u32..4), 1..120),
        litert in any::<bool>(),
    ) {
        let rule = if litert { GapRule::LiteRt } else { GapRule::Shortest };
        let mut arena = IncrementalArena::new(aligned(64)).with_rule(rule);
        let mut taken: Vec<(Allocation, LiveRange)> = Vec::new();
        for (action, bytes, start, length, log2) in actions {
            let end = if length == 29 { u32::MAX } else { start + length };
            let live = LiveRange::new(start, end).unwrap();
            match action {
                0 if !taken.is_empty() => {
                    let (gone, _) = taken.swap_remove(bytes as usize % taken.len());
                    arena.forget(gone);
                }
                1 => {
                    arena.purge_before(Step::new(start));
                    taken.retain(|(_, live)| live.end() > Step::new(start));
                }
                2 => {
                    arena.purge_after(Step::new(start));
                    taken.retain(|(_, live)| live.start() <= Step::new(start));
                }
                3 if bytes < 20 => {
                    arena.reset();
                    taken.clear();
                }
                4 => arena.restore(taken.iter().map(|&(it, _)| it).collect::<Vec<_>>()),
                _ => {
                    let expected = by_scanning(&taken, bytes, 1 << log2, live, rule);
                    let found = arena.allocate(aligned(1 << log2), bytes, live).unwrap();
                    prop_assert_eq!(found.span.offset, expected);
                    taken.push((found, live));
                }
            }
            prop_assert_eq!(arena.active(), taken.len());
        }
    }

    /// Allocating and taking back in any order: no two spans share a byte, and each is where
    /// a scan puts it.
    #[test]
    fn row_25_spans_that_are_handed_out_share_no_byte(
        actions in prop::collection::vec((any::<bool>(), 0_u64..200, 0_u32..6), 1..150),
    ) {
        let mut arena = simple();
        let mut taken: Vec<Span> = Vec::new();
        for (take, bytes, log2) in actions {
            if take || taken.is_empty() {
                let span = arena.allocate(aligned(1 << log2), bytes).unwrap();
                prop_assert_eq!(span.offset % (1 << log2), 0);
                for other in taken.iter().filter(|other| other.bytes > 0 && bytes > 0) {
                    prop_assert!(span.end() <= other.offset || other.end() <= span.offset);
                }
                prop_assert!(span.end() <= arena.high_water());
                taken.push(span);
            } else {
                let gone = taken.swap_remove(bytes as usize % taken.len());
                prop_assert_eq!(arena.deallocate(gone), Ok(()));
            }
        }
    }
}
