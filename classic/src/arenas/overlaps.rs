//! Finds allocations that are live together with a new allocation, without visiting all
//! allocations.

use alloc::collections::{BTreeMap, BTreeSet};

use arenaplan::base::{LiveRange, Step};

/// Live ranges that contain a common step.
#[derive(Clone, Debug, Default)]
struct Shared {
    by_start: BTreeSet<(Step, u32)>,
    by_end: BTreeSet<(Step, u32)>,
}

/// An interval tree over live ranges, with nodes kept by address.
///
/// A range belongs to the smallest aligned block of 2^k steps that contains the range; all ranges
/// in a block contain the block's middle. A query visits the blocks that the query range touches,
/// and in each block only ranges that meet the query range.
#[derive(Clone, Debug, Default)]
pub(super) struct Overlaps {
    /// By exponent and position.
    blocks: BTreeMap<(u32, u64), Shared>,
}

/// Returns exponent and position of a live range's block.
fn block_of(live: LiveRange) -> (u32, u64) {
    let (first, last) = ends(live);
    let exponent = u64::BITS - (first ^ last).leading_zeros();
    (exponent, first >> exponent)
}

/// Returns the first and the last step in a live range.
fn ends(live: LiveRange) -> (u64, u64) {
    (u64::from(live.start().get()), u64::from(live.end().get()) - 1)
}

impl Overlaps {
    /// Adds a live range under the name `id`.
    pub(super) fn insert(&mut self, id: u32, live: LiveRange) {
        let shared = self.blocks.entry(block_of(live)).or_default();
        shared.by_start.insert((live.start(), id));
        shared.by_end.insert((live.end(), id));
    }

    /// Removes a live range.
    pub(super) fn remove(&mut self, id: u32, live: LiveRange) {
        let block = block_of(live);
        if let Some(shared) = self.blocks.get_mut(&block) {
            shared.by_start.remove(&(live.start(), id));
            shared.by_end.remove(&(live.end(), id));
            if shared.by_start.is_empty() {
                self.blocks.remove(&block);
            }
        }
    }

    /// Calls `visit` with the name of every range that has a step in common with `live`.
    pub(super) fn each(&self, live: LiveRange, mut visit: impl FnMut(u32)) {
        let (first, last) = ends(live);
        let mut exponent = 0;
        while let Some((&(found, _), _)) = self.blocks.range((exponent, 0)..).next() {
            exponent = found + 1;
            let touched = (found, first >> found)..=(found, last >> found);
            for (&(_, position), shared) in self.blocks.range(touched) {
                let middle = (position << found) + (1_u64 << found) / 2;
                if last < middle {
                    // Ranges that begin early enough, since all ranges reach the middle.
                    let early = shared.by_start.range(..(live.end(), 0));
                    early.for_each(|&(_, id)| visit(id));
                } else if first > middle {
                    let late = shared.by_end.range((live.start().next(), 0)..);
                    late.for_each(|&(_, id)| visit(id));
                } else {
                    shared.by_start.iter().for_each(|&(_, id)| visit(id));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    #[test]
    fn a_query_visits_what_it_meets_and_nothing_else() {
        let mut seed = 7_u64;
        let mut random = |limit: u32| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            u32::try_from(seed >> 33).expect("31 bits") % limit
        };
        for _ in 0..200 {
            let mut tree = Overlaps::default();
            let mut known: Vec<(u32, LiveRange)> = Vec::new();
            for id in 0..60 {
                let start = random(40);
                let end = if random(10) == 0 { u32::MAX } else { start + 1 + random(12) };
                let live = LiveRange::new(start, end).expect("not empty");
                tree.insert(id, live);
                known.push((id, live));
                if random(3) == 0 {
                    let (gone, live) = known.swap_remove(
                        usize::try_from(random(u32::try_from(known.len()).expect("few")))
                            .expect("few"),
                    );
                    tree.remove(gone, live);
                }
                let (start, length) = (random(50), 1 + random(20));
                let query = LiveRange::new(start, start + length).expect("not empty");
                let mut found = Vec::new();
                tree.each(query, |id| found.push(id));
                found.sort_unstable();
                let mut expected: Vec<u32> = known
                    .iter()
                    .filter(|(_, live)| live.overlaps(query))
                    .map(|&(id, _)| id)
                    .collect();
                expected.sort_unstable();
                assert_eq!(found, expected);
            }
        }
    }
}
