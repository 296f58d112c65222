//! Handovers: at each moment, the born items take over the room of the dying items.
//!
//! If this room is always in one piece, the vertical orders of items follow from births and deaths
//! alone, whatever the sizes. The orders are found without a search, and the least offsets in an
//! order are longest paths. If the sizes of both sides add up, exactly or nearly, the packing is at
//! or near the bound. The assumption is wrong if no order permits all handovers.

use alloc::vec::Vec;

use super::orders::{Orders, Replaced};
use crate::base::Result;
use crate::solve::model::Model;
use crate::solve::model::arith::{index, number};
use crate::solve::model::clock::Clock;
use crate::solve::model::memory::{filled, with_capacity};

/// The items that die and the items born at a moment, the start of a section.
#[derive(Clone, Debug, Default)]
struct Handover {
    dying: Vec<u32>,
    born: Vec<u32>,
}

/// Returns the offsets of solid items, in grains, if at each moment the born items can take over
/// the room of the dying items; nothing if impossible, or if time is up.
///
/// The method takes no effort from later searches, which are unchanged if nothing is found.
pub(crate) fn packed(model: &Model, clock: &Clock<'_>) -> Result<Option<Vec<u64>>> {
    let handovers = handovers(model)?;
    let [first, later @ .., _] = &handovers[..] else { return Ok(None) };
    if first.born.is_empty() || later.iter().any(|it| it.dying.is_empty() || it.born.is_empty()) {
        return Ok(None);
    }
    let mut orders = Orders::new(&first.born, model.items.len())?;
    let mut replaced = with_capacity(later.len(), "handovers")?;
    for handover in later {
        let found = orders.replace(&handover.dying, &handover.born);
        let Some(found) = found.filter(|_| !clock.is_up()) else {
            return Ok(None);
        };
        replaced.push(found);
    }
    let Some(above) = neighbors(orders.first(), later, &replaced, model.items.len(), clock)? else {
        return Ok(None);
    };
    offsets(model, &above)
}

/// Returns the items that die and are born at each moment.
fn handovers(model: &Model) -> Result<Vec<Handover>> {
    let mut handovers = filled(Handover::default(), model.loads.len() + 1, "handovers")?;
    for (item, it) in model.items.iter().enumerate() {
        handovers[index(it.span.start)].born.push(number(item));
        handovers[index(it.span.end)].dying.push(number(item));
    }
    Ok(handovers)
}

/// Returns the items that are directly above each item at some moment, from the last item order
/// back to the first; nothing if time is up.
fn neighbors(
    mut order: Vec<u32>,
    handovers: &[Handover],
    replaced: &[Replaced],
    items: usize,
    clock: &Clock<'_>,
) -> Result<Option<Vec<Vec<u32>>>> {
    let mut above = filled(Vec::new(), items, "neighbors")?;
    let mut add = |order: &[u32]| {
        for pair in order.windows(2) {
            above[index(pair[0])].push(pair[1]);
        }
    };
    add(&order);
    for (handover, replaced) in handovers.iter().zip(replaced).rev() {
        if clock.is_up() {
            return Ok(None);
        }
        let is_born = |item: &u32| handover.born.contains(item);
        let Some(first) = order.iter().position(is_born) else { return Ok(None) };
        let behind = first + handover.born.len();
        let mut run = replaced.order.clone();
        if let Some(beside) = replaced.beside {
            let is_below = order[..first].contains(&beside.item);
            if is_below != beside.is_below {
                run.reverse();
            }
        }
        // Elsewhere, the order is the same as after the handover.
        let end = (first + run.len() + 1).min(order.len() - handover.born.len() + run.len());
        order.splice(first..behind, run);
        add(&order[first.saturating_sub(1)..end]);
    }
    Ok(Some(above))
}

/// Returns the least offsets of stacked items; nothing if an item is above itself.
fn offsets(model: &Model, above: &[Vec<u32>]) -> Result<Option<Vec<u64>>> {
    let items = model.items.len();
    let mut offsets: Vec<u64> = filled(0, items, "offsets")?;
    let mut below = filled(0_usize, items, "neighbors")?;
    for &item in above.iter().flatten() {
        below[index(item)] += 1;
    }
    let mut open: Vec<usize> = (0..items).filter(|&item| below[item] == 0).collect();
    let mut placed = 0;
    while let Some(item) = open.pop() {
        placed += 1;
        let Some(end) = offsets[item].checked_add(model.items[item].size) else { return Ok(None) };
        for &next in &above[item] {
            let next = index(next);
            offsets[next] = offsets[next].max(end);
            below[next] -= 1;
            if below[next] == 0 {
                open.push(next);
            }
        }
    }
    Ok((placed == items).then_some(offsets))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use alloc::vec;

    use super::*;
    use crate::base::LiveRange;
    use crate::problem::Buffer;
    use crate::solve::budget::Budget;
    use crate::solve::model::random::Random;
    use crate::solve::testing::{assert_packed, model_of};

    fn buffer(start: usize, end: usize, size: u64) -> Buffer {
        Buffer::new(size, LiveRange::new(number(start), number(end)).unwrap())
    }

    /// Returns the peak of the handover packing, in grains, after a check of the offsets.
    fn peak(buffers: Vec<Buffer>) -> Option<u64> {
        let (budget, model) = (Budget::default(), model_of(buffers));
        let offsets = packed(&model, &Clock::new(&budget)).unwrap()?;
        let ends = offsets.iter().zip(&model.items).map(|(low, it)| low + it.size);
        let peak = ends.max().unwrap();
        assert_packed(&model, &offsets, peak * model.grain);
        Some(peak)
    }

    fn peak_of(rows: &[(usize, usize, u64)]) -> Option<u64> {
        peak(rows.iter().map(|&(start, end, size)| buffer(start, end, size)).collect())
    }

    #[test]
    fn orders_follow_from_handovers() {
        // 5 and 6 give way to 11, so 4 is above or below both; 4 and 11 give way to 15.
        assert_eq!(peak_of(&[(0, 1, 5), (0, 2, 4), (0, 1, 6), (1, 2, 11), (2, 3, 15)]), Some(15));
        // Sizes that do not add up cost room: 5 and 6 give way to 12.
        assert_eq!(peak_of(&[(0, 1, 5), (0, 2, 4), (0, 1, 6), (1, 2, 12), (2, 3, 14)]), Some(16));
    }

    #[test]
    fn items_without_a_common_order_are_not_packed() {
        // At 3, the items of size 3, 4, 5 and 6 are stacked in this order, or its reverse, and 6
        // with 7 gives way to 13. So 5 is in the middle at 4, while 8 is above or below all of
        // them.
        let rows = [(0, 1, 1), (0, 1, 2), (0, 2, 9), (0, 3, 7), (0, 4, 8)];
        let later = [(1, 2, 1), (1, 5, 2), (2, 3, 6), (2, 4, 4), (3, 5, 13), (4, 5, 12)];
        assert_eq!(peak_of(&[&rows[..], &later[..]].concat()), None);
        // If 2 ended at 4 instead of 4, there would be an order.
        let later = [(1, 2, 1), (1, 4, 2), (2, 3, 6), (2, 5, 4), (3, 5, 13), (4, 5, 10)];
        assert_eq!(peak_of(&[&rows[..], &later[..]].concat()), Some(27));
    }

    #[test]
    fn planted_packings_are_found() {
        let mut random = Random::new(8);
        for round in 0..200 {
            // A column of pieces; at each step the room of some neighbors is divided anew.
            let mut column = vec![(0, 1000)];
            let mut buffers = Vec::new();
            for step in 0..40 {
                let taken = 1 + random.below(column.len().min(4));
                let first = random.below(column.len() - taken + 1);
                let ended: Vec<(usize, usize)> = column.splice(first..first + taken, []).collect();
                let mut room: usize = ended.iter().map(|it| it.1).sum();
                for (start, size) in ended.into_iter().filter(|it| it.0 < step) {
                    buffers.push(buffer(start, step, size.try_into().unwrap()));
                }
                while room > 0 {
                    let size = if random.below(3) == 0 { room } else { 1 + random.below(room) };
                    column.insert(first, (step, size));
                    room -= size;
                }
            }
            for (start, size) in column.into_iter().filter(|it| it.0 < 40) {
                buffers.push(buffer(start, 40, size.try_into().unwrap()));
            }
            let model = model_of(buffers.clone());
            assert_eq!(peak(buffers), Some(1000 / model.grain), "round {round}");
        }
    }
}
