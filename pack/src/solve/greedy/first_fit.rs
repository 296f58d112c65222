//! Greedy passes: each item in turn at the lowest free offset, or in the tightest gap.
//!
//! # References
//!
//! First fit and best fit for dynamic storage allocation: Robson, "Worst case fragmentation of
//! first fit and best fit storage allocation strategies", The Computer Journal 20, 1977. The order
//! by size comes from TensorFlow Lite (Pisarchyk and Lee, "Efficient memory management for deep
//! neural net inference", 2020). The order by length class resembles the boxing of Buchsbaum et
//! al., STOC 2003.

use alloc::vec::Vec;
use core::cmp::Reverse;

use super::occupancy::Occupancy;
use crate::base::{MAX_BYTES, Result};
use crate::solve::model::Model;
use crate::solve::model::arith::{align_up, index, log_scale, number, real};
use crate::solve::model::clock::Clock;
use crate::solve::model::loads::most_loaded;
use crate::solve::model::memory::{filled, with_capacity};
use crate::solve::model::sort::sort;
use crate::solve::tuning::{self, layout::PLACED_PER_LOOK};

/// In which order a pass places items. No order is best on all problems.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// Largest load met, then longest, then most bytes × sections.
    Load,
    /// Largest, then longest.
    Size,
    /// Largest size × √length.
    SizeRootLength,
    /// Longest, then largest.
    Length,
    /// Largest area, bytes × sections.
    Area,
    /// In birth order.
    Birth,
    /// Longest within a factor of two, then in birth order. Adjacent items with similar lengths die
    /// one after the other, and so leave room in one piece.
    Class,
}

/// All orders, most useful first.
pub(crate) const ORDERS: [Order; 7] = [
    Order::Load,
    Order::Class,
    Order::Size,
    Order::SizeRootLength,
    Order::Length,
    Order::Area,
    Order::Birth,
];

/// The choice among an item's free offsets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fit {
    /// The lowest.
    First,
    /// The smallest gap; items that are not solid get the lowest offset.
    Best,
}

/// Returns the items in `order`, items with pins first; nothing if the caller wants an answer
/// before the end.
pub(crate) fn sorted(model: &Model, order: Order, clock: &Clock<'_>) -> Result<Option<Vec<u32>>> {
    let loads = if order == Order::Load { most_loaded(model)? } else { Vec::new() };
    let mut keyed = with_capacity(model.items.len(), "an order")?;
    for (position, item) in model.items.iter().enumerate() {
        if clock.is_over_at(position) {
            return Ok(None);
        }
        let length = u64::from(item.length());
        let (first, second) = match order {
            Order::Load => (loads[position], length << 32 | log_scale(item.size)),
            Order::Size => (item.size, length),
            Order::SizeRootLength => {
                ((real(item.size) * libm::sqrt(real(length))).to_bits(), item.size)
            }
            Order::Length => (length, item.size),
            Order::Area => ((real(item.size) * real(length)).to_bits(), item.size),
            Order::Birth => (u64::from(u32::MAX - item.span.start), item.size),
            Order::Class => {
                let class = u64::from(u32::BITS - item.length().leading_zeros());
                (class << 32 | u64::from(u32::MAX - item.span.start), item.size)
            }
        };
        let (first, second) =
            if model.pin(item).is_some() { (u64::MAX, u64::MAX) } else { (first, second) };
        keyed.push((Reverse((first, second)), number(position)));
    }
    if !sort(&mut keyed, clock) {
        return Ok(None);
    }
    let mut order = with_capacity(keyed.len(), "an order")?;
    order.extend(keyed.into_iter().map(|(_, item)| item));
    Ok(Some(order))
}

/// Returns from time to time, as `count` grows, whether a pass must stop, because time is up or the
/// pass is not worth its time.
pub(crate) fn is_up_at(count: usize, space: &Occupancy, clock: &Clock<'_>) -> bool {
    count % PLACED_PER_LOOK == PLACED_PER_LOOK - 1
        && (clock.is_up() || space.work() > tuning::greedy::PASS_WORK)
}

/// Places the items in `order`, each at the offset returned by `choose`, and returns all offsets.
///
/// `choose` gets the number of placed items, the next item, and the taken grains. Returns nothing
/// if `choose` does, or if an item would end above grain `limit`.
fn place_each(
    model: &Model,
    order: &[u32],
    limit: u64,
    space: &mut Occupancy,
    mut choose: impl FnMut(usize, u32, &mut Occupancy) -> Option<u64>,
) -> Result<Option<Vec<u64>>> {
    let mut offsets = filled(0, model.items.len(), "offsets")?;
    space.clear();
    for (count, &item) in order.iter().enumerate() {
        let Some(offset) = choose(count, item, space) else { return Ok(None) };
        if offset + model.items[index(item)].size > limit {
            return Ok(None);
        }
        space.insert(model, index(item), offset)?;
        offsets[index(item)] = offset;
    }
    Ok(Some(offsets))
}

/// Places the items in `order` by first fit or best fit, and returns their offsets.
///
/// Returns nothing if an item would end above grain `limit`, or if `stop`, called before each item,
/// returns true.
pub(crate) fn place(
    model: &Model,
    order: &[u32],
    fit: Fit,
    limit: u64,
    space: &mut Occupancy,
    stop: impl Fn(usize, &Occupancy) -> bool,
) -> Result<Option<Vec<u64>>> {
    place_each(model, order, limit, space, |count, item, space| {
        if stop(count, space) {
            return None;
        }
        let it = &model.items[index(item)];
        Some(match (model.pin(it), fit) {
            (Some(pin), _) => pin,
            (None, Fit::Best) if it.solid() => space.best_fit(model, it),
            (None, _) => space.first_fit(model, it, 0),
        })
    })
}

/// Places the items in `order` by first fit until `is_over`, and stacks the other items above.
///
/// Returns nothing if an item would end above grain `limit`. `is_over` is called before each item.
pub(crate) fn place_or_stack(
    model: &Model,
    order: &[u32],
    limit: u64,
    space: &mut Occupancy,
    is_over: impl Fn(usize) -> bool,
) -> Result<Option<Vec<u64>>> {
    let (mut top, mut stacks) = (0, false);
    place_each(model, order, limit, space, |count, item, space| {
        stacks = stacks || is_over(count);
        let it = &model.items[index(item)];
        let offset = match model.pin(it) {
            Some(pin) => pin,
            None if stacks => align_up(top, it.mask()),
            None => space.first_fit(model, it, 0),
        };
        top = top.max(offset + it.size);
        Some(offset)
    })
}

/// The packing that [`place_around`] completes.
#[derive(Debug)]
pub(crate) struct Fixed<'a> {
    /// The offset of each fixed item.
    pub(crate) offsets: &'a [Option<u64>],
    /// Byte at which all items are to end, or before.
    pub(crate) target: u64,
    /// Items above the target after which the pass is given up.
    pub(crate) most_crowded: usize,
}

/// Places the `fixed` items at their offsets, and the other items by first fit, all in `order`.
///
/// Items that end above the target are appended to `crowded`. Returns nothing if there are too many
/// crowded items, or an item ends past any memory, or `stop`, called before each item, returns
/// true.
pub(crate) fn place_around(
    model: &Model,
    order: &[u32],
    fixed: &Fixed<'_>,
    crowded: &mut Vec<u32>,
    space: &mut Occupancy,
    stop: impl Fn(usize, &Occupancy) -> bool,
) -> Result<Option<Vec<u64>>> {
    let limit = MAX_BYTES / model.grain;
    place_each(model, order, limit, space, |count, item, space| {
        if stop(count, space) || crowded.len() > fixed.most_crowded {
            return None;
        }
        let it = &model.items[index(item)];
        let known = model.pin(it).or(fixed.offsets[index(item)]);
        let offset = known.unwrap_or_else(|| space.first_fit(model, it, 0));
        let fits = offset + it.size <= limit;
        if fits && model.end_in_bytes(index(item), offset) > fixed.target {
            crowded.push(item);
        }
        Some(offset)
    })
}

/// Places items with a free hint at the hint, from the lowest hint up, and all other items by first
/// fit.
///
/// Returns nothing if an item would end above grain `limit`, or if the caller wants an answer
/// before the end.
pub(crate) fn place_hinted(
    model: &Model,
    hints: &[Option<u64>],
    limit: u64,
    space: &mut Occupancy,
    clock: &Clock<'_>,
) -> Result<Option<Vec<u64>>> {
    let Some(mut order) = sorted(model, Order::Birth, clock)? else { return Ok(None) };
    order.sort_by_key(|&item| {
        let hint = hints[index(item)];
        (model.pin(&model.items[index(item)]).is_none(), hint.is_none(), hint)
    });
    place_each(model, &order, limit, space, |count, item, space| {
        if clock.is_over_at(count) {
            return None;
        }
        let it = &model.items[index(item)];
        let hint = hints[index(item)].filter(|&hint| {
            hint <= limit && hint & it.mask() == 0 && space.is_free(model, it, hint)
        });
        Some(model.pin(it).or(hint).unwrap_or_else(|| space.first_fit(model, it, 0)))
    })
}
