//! Loads of the spaces while buffers are assigned to them.

use alloc::vec::Vec;

use crate::base::{LiveRange, Result, Step};
use crate::solve::model::memory;

/// The live bytes in a space, by time section, with the maximum.
///
/// A segment tree of sums: adding a live range takes `O(log n)`, reading the maximum `O(1)`.
#[derive(Debug)]
pub(super) struct SpaceLoad {
    /// Bytes added to all sections under a node.
    added: Vec<u128>,
    /// Largest section load below a node, counting only additions at the node and below.
    most: Vec<u128>,
    /// Number of leaves, a power of two.
    leaves: usize,
}

impl SpaceLoad {
    pub(super) fn new(sections: usize) -> Result<Self> {
        let leaves = sections.max(1).next_power_of_two();
        let added = memory::filled(0, 2 * leaves, "loads")?;
        let most = memory::filled(0, 2 * leaves, "loads")?;
        Ok(Self { added, most, leaves })
    }

    /// Returns the largest load.
    pub(super) fn largest(&self) -> u128 {
        self.most[1]
    }

    /// Adds `bytes` to the sections from `start` up to, and without, `end`.
    pub(super) fn add(&mut self, start: usize, end: usize, bytes: u128) {
        self.change(start, end, |it| it + bytes);
    }

    /// Takes away `bytes` that were added.
    pub(super) fn remove(&mut self, start: usize, end: usize, bytes: u128) {
        self.change(start, end, |it| it - bytes);
    }

    fn change(&mut self, start: usize, end: usize, change: impl Fn(u128) -> u128) {
        if start >= end {
            return;
        }
        let (mut low, mut high) = (start + self.leaves, end + self.leaves);
        while low < high {
            for (is_in, node) in [(low % 2 == 1, low), (high % 2 == 1, high - 1)] {
                if is_in {
                    self.added[node] = change(self.added[node]);
                    self.most[node] = change(self.most[node]);
                }
            }
            (low, high) = (low.div_ceil(2), high / 2);
        }
        for mut node in [start + self.leaves, end - 1 + self.leaves] {
            while node > 1 {
                node /= 2;
                let below = self.most[2 * node].max(self.most[2 * node + 1]);
                self.most[node] = self.added[node] + below;
            }
        }
    }
}

/// The time sections between a problem's births and deaths.
#[derive(Debug)]
pub(super) struct SpaceSections {
    steps: Vec<Step>,
}

impl SpaceSections {
    pub(super) fn new(lives: impl Iterator<Item = LiveRange>) -> Self {
        let mut steps: Vec<Step> = lives.flat_map(|live| [live.start(), live.end()]).collect();
        steps.sort_unstable();
        steps.dedup();
        Self { steps }
    }

    pub(super) fn len(&self) -> usize {
        self.steps.len().saturating_sub(1)
    }

    /// Returns a live range's first section, and the section after the last.
    pub(super) fn of(&self, live: LiveRange) -> (usize, usize) {
        let place = |step| self.steps.partition_point(|&it| it < step);
        (place(live.start()), place(live.end()))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;
    use crate::solve::model::random::Random;

    #[test]
    fn loads_are_those_of_sums_by_section() {
        let mut random = Random::new(3);
        for sections in [1, 2, 5, 8, 13] {
            let (mut load, mut plain) =
                (SpaceLoad::new(sections).unwrap(), alloc::vec![0_u128; sections]);
            let mut open: Vec<(usize, usize, u128)> = Vec::new();
            for _ in 0..200 {
                if open.len() > 4 && random.below(2) == 0 {
                    let (start, end, bytes) = open.swap_remove(random.below(open.len()));
                    load.remove(start, end, bytes);
                    plain[start..end].iter_mut().for_each(|it| *it -= bytes);
                } else {
                    let start = random.below(sections);
                    let end = start + 1 + random.below(sections - start);
                    let bytes = u128::try_from(random.below(100)).unwrap();
                    load.add(start, end, bytes);
                    plain[start..end].iter_mut().for_each(|it| *it += bytes);
                    open.push((start, end, bytes));
                }
                assert_eq!(load.largest(), plain.iter().copied().max().unwrap());
            }
        }
    }
}
