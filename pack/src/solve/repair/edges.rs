//! Cost changes along the offsets, in ascending order.

use alloc::vec::Vec;

use crate::solve::model::arith::low_bits;
use crate::solve::tuning::layout::COMPARED_EDGES;

/// By how much a cost changes at an offset.
pub(crate) type Edge = (u64, f64);

/// Cost changes, and memory to sort them.
///
/// Offsets are spread about evenly, so bucketing them into buckets of one or two takes half the
/// time of a comparison sort.
#[derive(Debug, Default)]
pub(crate) struct Edges {
    list: Vec<Edge>,
    dealt: Vec<Edge>,
    /// Where each bucket ends.
    ends: Vec<usize>,
}

impl Edges {
    /// Forgets all edges.
    pub(crate) fn clear(&mut self) {
        self.list.clear();
    }

    /// Adds `cost` to all offsets from `start` up to, and without, `end`.
    pub(crate) fn add(&mut self, start: u64, end: u64, cost: f64) {
        self.list.extend([(start, cost), (end, -cost)]);
    }

    /// Returns all edges in ascending offset order.
    pub(crate) fn sorted(&mut self) -> &[Edge] {
        if self.list.len() <= COMPARED_EDGES {
            self.list.sort_unstable_by_key(|&(at, _)| at);
            return &self.list;
        }
        let highest = self.list.iter().map(|&(at, _)| at).max().unwrap_or(0);
        let buckets = (self.list.len() / 2).next_power_of_two();
        let bits = u64::BITS - highest.leading_zeros();
        let shift = bits.saturating_sub(buckets.trailing_zeros());
        let bucket = |at: u64| low_bits(at >> shift);
        self.ends.clear();
        self.ends.resize(buckets + 1, 0);
        for &(at, _) in &self.list {
            self.ends[bucket(at) + 1] += 1;
        }
        for bucket in 0..buckets {
            self.ends[bucket + 1] += self.ends[bucket];
        }
        self.dealt.clear();
        self.dealt.resize(self.list.len(), (0, 0.0));
        for &edge in &self.list {
            let place = &mut self.ends[bucket(edge.0)];
            self.dealt[*place] = edge;
            *place += 1;
        }
        let mut start = 0;
        for &end in &self.ends[..buckets] {
            self.dealt[start..end].sort_unstable_by_key(|&(at, _)| at);
            start = end;
        }
        &self.dealt
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::solve::model::random::Random;

    #[test]
    fn few_and_many_edges_wherever_they_are_come_in_order() {
        let mut random = Random::new(3);
        let mut edges = Edges::default();
        for (count, highest) in [(1, 1), (100, 5), (1000, 3), (1000, 1 << 20), (5000, 1 << 62)] {
            edges.clear();
            for _ in 0..count {
                let start = random.next() % highest;
                edges.add(start, start + 1 + random.next() % highest, 1.0);
            }
            let sorted = edges.sorted();
            assert_eq!(sorted.len(), 2 * count);
            assert!(sorted.is_sorted_by_key(|&(at, _)| at));
            let ends = sorted.iter().filter(|&&(_, change)| change < 0.0);
            assert_eq!(ends.count(), count);
        }
    }
}
