//! Tight cuts: sets of dying and born items with equal sums, without equal-sum subsets.

use alloc::{vec, vec::Vec};
use core::cmp::Ordering;
use core::ops::RangeInclusive;

use crate::solve::tuning;

/// Size and number of an item that dies or is born at the cut.
pub(crate) type CutSide = (u64, usize);

/// A tight cut: the born items occupy exactly the dying items' room.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TightCut {
    pub(crate) dying: Vec<usize>,
    pub(crate) born: Vec<usize>,
}

impl TightCut {
    fn items(&self) -> impl Iterator<Item = usize> {
        self.dying.iter().chain(&self.born).copied()
    }
}

/// Returns the cut of all items, if both sides have equal sums and no proper subsets do.
///
/// If the dying items leave no other room, their room is one piece. In several pieces, some born
/// items would fill each piece, and there would be equal-sum subsets.
pub(crate) fn whole(dying: &[CutSide], born: &[CutSide]) -> Option<TightCut> {
    let sum = |sides: &[CutSide]| sides.iter().map(|&(size, _)| size).sum::<u64>();
    if sum(dying) != sum(born) || dying.is_empty() {
        return None;
    }
    let cut = TightCut { dying: numbers(dying), born: numbers(born) };
    if dying.len() == 1 || born.len() == 1 {
        return Some(cut);
    }
    if dying.len() + born.len() > tuning::assume::CUT_ITEMS {
        return None;
    }
    let [before, after] = [dying, born].map(all_sums);
    let (mut left, mut right) = (&before[..before.len() - 1], &after[..after.len() - 1]);
    while let ([a, ..], [b, ..]) = (left, right) {
        match a.cmp(b) {
            Ordering::Less => left = &left[1..],
            Ordering::Greater => right = &right[1..],
            Ordering::Equal => return None,
        }
    }
    Some(cut)
}

/// Returns the subset sums of `sides`, in ascending order; the last is the total.
fn all_sums(sides: &[CutSide]) -> Vec<u64> {
    let mut sums = vec![0];
    for &(size, _) in sides {
        sums.extend_from_within(..);
        let half = sums.len() / 2;
        sums[half..].iter_mut().for_each(|sum| *sum += size);
    }
    sums.sort_unstable();
    sums.remove(0);
    sums
}

/// Returns the cuts at a moment that share no item with another candidate.
///
/// A candidate is one item on one side, and a few items with the same sum on the other. Sums of
/// unrelated sizes are rarely equal, so a unique candidate is most likely tight. The remaining
/// items may form a cut as well.
pub(crate) fn parts(mut dying: Vec<CutSide>, mut born: Vec<CutSide>) -> Vec<TightCut> {
    for side in [&mut dying, &mut born] {
        side.sort_unstable_by(|a, b| b.cmp(a));
    }
    let mut cuts = Vec::new();
    loop {
        let more = unique(&dying, &born);
        if more.is_empty() {
            break;
        }
        let mut gone: Vec<usize> = more.iter().flat_map(TightCut::items).collect();
        gone.sort_unstable();
        for side in [&mut dying, &mut born] {
            side.retain(|(_, number)| gone.binary_search(number).is_err());
        }
        cuts.extend(more);
    }
    cuts.extend(whole(&dying, &born));
    cuts
}

/// Returns the parts with one item on one side that share no item with other parts.
fn unique(dying: &[CutSide], born: &[CutSide]) -> Vec<TightCut> {
    let mut steps = tuning::assume::PART_STEPS;
    let mut found = Vec::new();
    for &(size, one) in dying {
        sums(born, size, 1..=tuning::assume::PART_ITEMS, &mut steps, &mut |many| {
            found.push(TightCut { dying: vec![one], born: numbers(many) });
        });
    }
    for &(size, one) in born {
        // Single items that take a single item's room were found above.
        sums(dying, size, 2..=tuning::assume::PART_ITEMS, &mut steps, &mut |many| {
            found.push(TightCut { dying: numbers(many), born: vec![one] });
        });
    }
    if steps == 0 {
        return Vec::new(); // very many do
    }
    let mut taken: Vec<usize> = found.iter().flat_map(TightCut::items).collect();
    taken.sort_unstable();
    let is_single = |item: usize| {
        let first = taken.partition_point(|&other| other < item);
        taken.get(first + 1) != Some(&item)
    };
    found.retain(|cut| cut.items().all(is_single));
    found
}

fn numbers(sides: &[CutSide]) -> Vec<usize> {
    sides.iter().map(|&(_, number)| number).collect()
}

/// Calls `found` with all choices of `counts` of `parts`, in descending order, with total `size`,
/// unless this takes more than `steps`.
fn sums(
    parts: &[CutSide],
    size: u64,
    counts: RangeInclusive<usize>,
    steps: &mut usize,
    found: &mut impl FnMut(&[CutSide]),
) {
    let mut chosen = Vec::new();
    // Where to look for the next part, for each chosen part and for one more.
    let mut from = vec![0];
    let mut left = size;
    while let Some(next) = from.last_mut() {
        let more = u64::try_from(counts.end() - chosen.len()).unwrap_or(0);
        let part = parts.get(*next).filter(|part| more > 0 && part.0.saturating_mul(more) >= left);
        let Some(&part) = part.filter(|_| *steps > 0) else {
            from.pop();
            left += chosen.pop().map_or(0, |(size, _): CutSide| size);
            continue;
        };
        *next += 1;
        *steps -= 1;
        if part.0 > left {
            continue;
        }
        let behind = *next;
        chosen.push(part);
        left -= part.0;
        if left == 0 {
            if chosen.len() >= *counts.start() {
                found(&chosen);
            }
            left += part.0;
            chosen.pop();
        } else {
            from.push(behind);
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    /// Returns sides with these sizes, numbered from `first` on.
    fn sides(sizes: &[u64], first: usize) -> Vec<CutSide> {
        sizes.iter().enumerate().map(|(at, &size)| (size, first + at)).collect()
    }

    fn cut(dying: &[usize], born: &[usize]) -> TightCut {
        TightCut { dying: dying.to_vec(), born: born.to_vec() }
    }

    #[test]
    fn a_whole_cannot_be_two() {
        let takes = |dying: &[u64], born: &[u64]| whole(&sides(dying, 0), &sides(born, 10));
        assert_eq!(takes(&[7], &[3, 4]), Some(cut(&[0], &[10, 11])));
        assert_eq!(takes(&[5, 7], &[3, 9]), Some(cut(&[0, 1], &[10, 11])));
        assert_eq!(takes(&[5, 7], &[7, 2, 3]), None, "7 may take the room of 7");
        assert_eq!(takes(&[5, 7], &[3, 10]), None, "they are not of one size");
        assert_eq!(takes(&[], &[]), None);
    }

    #[test]
    fn parts_are_those_that_share_no_item() {
        let takes = |dying: &[u64], born: &[u64]| parts(sides(dying, 0), sides(born, 10));
        // 20 occupies the room of 9 and 11; 50 and 60 are in no cut.
        assert_eq!(takes(&[9, 11, 50], &[20, 60]), [cut(&[1, 0], &[10])]);
        // 5 equals 2 and 3, and 5: two candidates share 5.
        assert_eq!(takes(&[5], &[2, 3, 5]), []);
        // Without the cut of 30 and 30, the remaining sides have equal sums.
        let both = [cut(&[1], &[11]), cut(&[2, 0], &[12, 10])];
        assert_eq!(takes(&[5, 30, 7], &[3, 30, 9]), both);
        // Among very many equal items, each may take each other's room.
        assert_eq!(takes(&[4; 60], &[4; 60]), []);
    }
}
