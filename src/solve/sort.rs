//! Sorting that can be interrupted.

use super::clock::Clock;

/// Items that are sorted in no time.
const FEW: usize = 1 << 15;

/// Sorts `items`, and returns whether it came to the end before the caller wanted an answer.
pub(super) fn sort<T: Ord + Copy>(items: &mut [T], clock: &Clock<'_>) -> bool {
    sort_by_key(items, |&item| item, clock)
}

/// As [`sort`], by what `key` returns.
///
/// Large slices are halved around their median until what is left is sorted in no time.
pub(super) fn sort_by_key<T, K: Ord>(
    items: &mut [T],
    key: impl Fn(&T) -> K + Copy,
    clock: &Clock<'_>,
) -> bool {
    if items.len() <= FEW {
        items.sort_unstable_by_key(key);
        return true;
    }
    let middle = items.len() / 2;
    let (below, _, above) = items.select_nth_unstable_by_key(middle, key);
    // The slices halve, so this is at most 64 calls deep.
    !clock.is_over() && sort_by_key(below, key, clock) && sort_by_key(above, key, clock)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::super::Budget;
    use super::super::random::Random;
    use super::*;

    #[test]
    fn large_slices_are_sorted_unless_the_caller_cancels() {
        let mut random = Random::new(1);
        let mut numbers: Vec<_> = (0..100_000).map(|_| random.next() % 1000).collect();
        let mut sorted = numbers.clone();
        sorted.sort_unstable();
        let cancel = AtomicBool::new(true);
        let budget = Budget { cancel: Some(&cancel), ..Budget::default() };
        assert!(!sort(&mut numbers, &Clock::new(&budget)));
        assert!(sort(&mut numbers, &Clock::new(&Budget::default())));
        assert_eq!(numbers, sorted);
    }
}
