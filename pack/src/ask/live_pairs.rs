//! Buffers that are live together, for questions that move buffers one by one.

use alloc::vec::Vec;

use crate::Problem;
use crate::base::{Step, gcd};

/// Returns the least common multiple, if the number fits 64 bits.
pub(super) fn least_common_multiple(one: u64, other: u64) -> Option<u64> {
    (one / gcd(one, other)).checked_mul(other)
}

/// Buffers by birth.
pub(super) struct Births {
    order: Vec<usize>,
    /// By position in the order, the last step at which a buffer up to there is live.
    ends: Vec<Step>,
}

impl Births {
    pub(super) fn new(problem: &Problem) -> Self {
        let live = |it: usize| problem.buffers()[it].live();
        let mut order: Vec<usize> = (0..problem.buffers().len()).collect();
        order.sort_unstable_by_key(|&it| (live(it).start(), it));
        let mut ends: Vec<Step> = Vec::with_capacity(order.len());
        for &it in &order {
            let end = live(it).end();
            ends.push(ends.last().map_or(end, |&last| end.max(last)));
        }
        Self { order, ends }
    }

    /// Returns the buffers in the same space that are live together with a given buffer, and counts
    /// pairs.
    pub(super) fn live_with<'a>(
        &'a self,
        problem: &'a Problem,
        one: usize,
        pairs: &mut usize,
    ) -> impl Iterator<Item = usize> + 'a {
        let (live, space) = (problem.buffers()[one].live(), problem.buffers()[one].space());
        let start = |it: &usize| problem.buffers()[*it].live().start();
        let first = self.ends.partition_point(|&end| end <= live.start());
        let last = self.order.partition_point(|it| start(it) < live.end());
        let others = self.order.get(first..last).unwrap_or_default();
        *pairs = pairs.saturating_add(others.len());
        others.iter().copied().filter(move |&it| {
            let other = &problem.buffers()[it];
            it != one && other.space() == space && other.live().overlaps(live)
        })
    }
}
