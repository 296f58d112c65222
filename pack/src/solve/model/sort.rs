//! Sorting that can be interrupted, or takes no time.

use alloc::vec::Vec;

use super::arith::{index, number};
use super::clock::Clock;
use super::memory::filled;
use crate::base::Result;
use crate::solve::tuning::layout::SORTED_AT_ONCE;

/// Sorts `items`, and returns whether the sort ended before the caller wanted an answer.
pub(crate) fn sort<T: Ord + Copy>(items: &mut [T], clock: &Clock<'_>) -> bool {
    sort_by_key(items, |&item| item, clock)
}

/// Sorts `items` by a key, and returns whether the sort ended before the caller wanted an answer.
///
/// Slices above [`SORTED_AT_ONCE`] are halved around their median, and the clock is read between
/// the halves.
pub(crate) fn sort_by_key<T, K: Ord>(
    items: &mut [T],
    key: impl Fn(&T) -> K + Copy,
    clock: &Clock<'_>,
) -> bool {
    if items.len() <= SORTED_AT_ONCE {
        items.sort_unstable_by_key(key);
        return true;
    }
    let middle = items.len() / 2;
    let (below, _, above) = items.select_nth_unstable_by_key(middle, key);
    // The slices halve, so this is at most 64 calls deep.
    !clock.is_over() && sort_by_key(below, key, clock) && sort_by_key(above, key, clock)
}

/// Returns the positions of `numbers`, all below `limit`, ordered by number and then by position;
/// and the start of each number's positions, including the start for `limit`.
pub(crate) fn order_by_number(numbers: &[u32], limit: usize) -> Result<(Vec<u32>, Vec<u32>)> {
    let mut first = filled(0_u32, limit + 1, "an order")?;
    for &it in numbers {
        first[index(it)] += 1;
    }
    let mut total = 0;
    for first in &mut first {
        total += *first;
        *first = total;
    }
    let mut order = filled(0, numbers.len(), "an order")?;
    for (position, &it) in numbers.iter().enumerate().rev() {
        let place = &mut first[index(it)];
        *place -= 1;
        order[index(*place)] = number(position);
    }
    Ok((order, first))
}

/// Sorts numbers digit by digit, the last digit first.
pub(crate) fn sort_numbers(numbers: &mut Vec<u32>) -> Result<()> {
    let mut sorted = filled(0, numbers.len(), "an order")?;
    for shift in [0, 8, 16, 24] {
        let digit = |number: u32| index(number >> shift & 0xff);
        let mut place = [0_usize; 257];
        for &number in &*numbers {
            place[digit(number) + 1] += 1;
        }
        for digit in 1..place.len() {
            place[digit] += place[digit - 1];
        }
        for &number in &*numbers {
            let place = &mut place[digit(number)];
            sorted[*place] = number;
            *place += 1;
        }
        core::mem::swap(numbers, &mut sorted);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use core::sync::atomic::AtomicBool;

    use super::*;
    use crate::solve::budget::Budget;
    use crate::solve::model::random::Random;

    #[test]
    #[allow(clippy::unwrap_used, reason = "a test may panic")]
    fn equal_numbers_stay_in_order() {
        let (order, first) = order_by_number(&[2, 0, 2, 3, 0], 4).unwrap();
        assert_eq!(order, [1, 4, 0, 2, 3]);
        assert_eq!(first, [0, 2, 2, 4, 5]);
    }

    #[test]
    #[allow(clippy::unwrap_used, reason = "a test may panic")]
    fn numbers_are_sorted_by_all_their_digits() {
        let mut random = Random::new(2);
        let mut numbers: Vec<_> =
            (0..1000).map(|place| u32::MAX >> (place % 32) & low_half(random.next())).collect();
        let mut sorted = numbers.clone();
        sorted.sort_unstable();
        sort_numbers(&mut numbers).unwrap();
        assert_eq!(numbers, sorted);
    }

    fn low_half(number: u64) -> u32 {
        u32::try_from(number & u64::from(u32::MAX)).unwrap_or(0)
    }

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
