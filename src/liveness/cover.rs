//! The steps that several live ranges cover.

use alloc::{vec, vec::Vec};

use crate::base::{LiveRange, Step};

/// A changing live range collection, as a segment tree over range ends.
///
/// With `n` ends, adding or removing a live range takes `O(log² n)` time, and each range in the
/// [`union`](Self::union) `O(log n)`, however many live ranges the union range joins.
#[derive(Debug)]
pub(super) struct Cover {
    /// All ends, ascending.
    ends: Vec<Step>,
    /// For each tree node: the ranges that cover the whole node, but not the whole parent.
    whole: Vec<u32>,
    /// For each tree node: the part of its steps that ranges within the node cover.
    share: Vec<Coverage>,
}

/// A tree node's covered steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Coverage {
    None,
    Some,
    All,
}

impl Cover {
    /// Returns an empty collection; only ranges in `known` can be added.
    pub(super) fn new(known: impl Iterator<Item = LiveRange>) -> Self {
        let mut ends: Vec<Step> = known.flat_map(|live| [live.start(), live.end()]).collect();
        ends.sort_unstable();
        ends.dedup();
        let leaves = ends.len().saturating_sub(1).next_power_of_two();
        Self { ends, whole: vec![0; 2 * leaves], share: vec![Coverage::None; 2 * leaves] }
    }

    /// Adds a range.
    pub(super) fn add(&mut self, live: LiveRange) {
        self.change(live, |whole| whole + 1);
    }

    /// Removes a range that was added.
    pub(super) fn remove(&mut self, live: LiveRange) {
        self.change(live, |whole| whole - 1);
    }

    fn change(&mut self, live: LiveRange, change: impl Fn(u32) -> u32) {
        let leaves = self.whole.len() / 2;
        let [from, to] =
            [live.start(), live.end()].map(|end| self.ends.partition_point(|&at| at < end));
        let (mut low, mut high) = (from + leaves, to + leaves);
        let mut changed = Vec::with_capacity(2);
        while low < high {
            if low % 2 == 1 {
                changed.push(low);
                low += 1;
            }
            if high % 2 == 1 {
                high -= 1;
                changed.push(high);
            }
            low /= 2;
            high /= 2;
        }
        for node in changed {
            self.whole[node] = change(self.whole[node]);
            let mut node = node;
            while node > 0 {
                self.share[node] = self.share_of(node);
                node /= 2;
            }
        }
    }

    fn share_of(&self, node: usize) -> Coverage {
        if self.whole[node] > 0 {
            return Coverage::All;
        }
        match self.share.get(2 * node..2 * node + 2) {
            Some([Coverage::All, Coverage::All]) => Coverage::All,
            None | Some([Coverage::None, Coverage::None]) => Coverage::None,
            Some(_) => Coverage::Some,
        }
    }

    /// Returns ranges that cover the same steps, in order and apart from each other.
    pub(super) fn union(&self) -> Vec<LiveRange> {
        let leaves = self.whole.len() / 2;
        let mut result: Vec<LiveRange> = Vec::new();
        // Tree nodes to visit, with the first leaf and the number of leaves.
        let mut pending = vec![(1, 0, leaves)];
        while let Some((node, first, count)) = pending.pop() {
            match self.share[node] {
                Coverage::None => continue,
                Coverage::Some => {
                    let half = count / 2;
                    pending.push((2 * node + 1, first + half, half));
                    pending.push((2 * node, first, half));
                    continue;
                }
                Coverage::All => {}
            }
            let last = (first + count).min(self.ends.len() - 1);
            let found = LiveRange::new(self.ends[first].get(), self.ends[last].get());
            let found = found.expect("ends ascend");
            match result.last_mut() {
                Some(before) if before.end() == found.start() => *before = before.hull(found),
                _ => result.push(found),
            }
        }
        result
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ranges_side_by_side_are_one_node() {
        let live = |start| LiveRange::new(start, start + 2).unwrap();
        let mut cover = Cover::new((0..63).map(live));
        (0..63).for_each(|start| cover.add(live(start)));
        // The union of nested concatenations visits the root alone, not each step.
        assert_eq!((cover.share[1], cover.whole[1]), (Coverage::All, 0));
        cover.remove(live(0));
        assert_eq!(cover.share[1], Coverage::Some);
        assert_eq!(cover.union(), [LiveRange::new(1, 64).unwrap()]);
    }

    proptest! {
        #[test]
        fn a_cover_holds_the_steps_of_its_ranges(
            ranges in proptest::collection::vec((0_u32..30, 1_u32..10, any::<bool>()), 1..20),
        ) {
            let live = |start, length| LiveRange::new(start, start + length).unwrap();
            let all = ranges.iter().map(|&(start, length, _)| live(start, length));
            let mut cover = Cover::new(all.clone());
            all.clone().for_each(|range| cover.add(range));
            for &(start, length, kept) in &ranges {
                if !kept {
                    cover.remove(live(start, length));
                }
            }
            let kept: Vec<_> = ranges.iter().filter(|range| range.2).collect();
            let union = cover.union();
            for step in (0..50).map(Step::new) {
                let is_live = |range: &LiveRange| range.start() <= step && step < range.end();
                let expected = kept.iter().any(|&&(start, length, _)| is_live(&live(start, length)));
                prop_assert_eq!(union.iter().filter(|range| is_live(range)).count(), usize::from(expected));
            }
            prop_assert!(union.windows(2).all(|pair| pair[0].end() < pair[1].start()));
        }
    }
}
