//! Fillers: empty items in the slack, a guess at the room that a packing leaves empty.

use alloc::vec::Vec;
use core::ops::Range;

use crate::solve::model::arith::number;

/// Returns the sections and sizes of empty items, given the slack of each section in grains.
///
/// Where the slack grows by some number of grains, and later shrinks by the same number, an empty
/// item of that size is assumed. Shorter ones are taken first.
pub(crate) fn fillers(mut slack: Vec<u64>) -> Vec<(Range<u32>, u64)> {
    let mut fillers = Vec::new();
    loop {
        let mut pairs: Vec<(usize, usize)> = (0..slack.len())
            .filter_map(|start| Some((start, end_of(&slack, start, grows(&slack, start)?)?)))
            .collect();
        pairs.sort_unstable_by_key(|&(start, end)| (end - start, start));
        let before = fillers.len();
        for (start, end) in pairs {
            // An earlier filler of this round may have used the slack.
            let Some(size) = grows(&slack, start) else { continue };
            if end_of(&slack, start, size) == Some(end) {
                slack[start..end].iter_mut().for_each(|slack| *slack -= size);
                fillers.push((number(start)..number(end), size));
            }
        }
        if fillers.len() == before {
            return fillers;
        }
    }
}

/// Returns by how much there is more room in a section than in the one before.
fn grows(slack: &[u64], section: usize) -> Option<u64> {
    let before = section.checked_sub(1).map_or(0, |before| slack[before]);
    slack[section].checked_sub(before).filter(|&more| more > 0)
}

/// Returns the first section from `start` on before which the room shrinks by `size`, if there is
/// at least that until then.
fn end_of(slack: &[u64], start: usize, size: u64) -> Option<usize> {
    for section in start..slack.len() {
        let after = slack.get(section + 1).copied().unwrap_or(0);
        if slack[section] < size {
            return None;
        }
        if slack[section].checked_sub(after) == Some(size) {
            return Some(section + 1);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use alloc::{vec, vec::Vec};

    use super::*;

    #[test]
    fn room_that_comes_and_goes_is_one_piece() {
        // 5 for a long time, and in it 3 for a shorter one.
        assert_eq!(fillers(vec![0, 5, 8, 8, 5, 0]), [(2..4, 3), (1..5, 5)]);
        // One gives way to another: neither comes and goes by itself.
        assert_eq!(fillers(vec![0, 5, 3, 0]), []);
        // There is not enough room for it all the time.
        assert_eq!(fillers(vec![5, 2, 7, 2]), [(2..3, 5)]);
        assert_eq!(fillers(vec![4, 4]), [(0..2, 4)], "from the first to the last section");
        assert_eq!(fillers(Vec::new()), []);
    }
}
