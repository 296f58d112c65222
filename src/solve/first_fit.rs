//! Greedy passes: every item in turn at the lowest, or tightest, offset that is free.

use std::cmp::Reverse;

use super::arith::{index, log_scale, number, real};
use super::clock::Clock;
use super::memory::{filled, with_capacity};
use super::model::Model;
use super::occupancy::Occupancy;
use super::sort::sort;
use crate::error::Result;
use crate::units::MAX_BYTES;

/// In which order a pass places items. No order is best on all problems.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
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
    /// In the order of birth.
    Birth,
    /// Longest within a factor of two, then in the order of birth: of items that live about as long,
    /// those side by side die one after the other, and leave room in one piece.
    Class,
}

/// All orders, the most useful ones first.
pub(super) const ORDERS: [Order; 7] = [
    Order::Load,
    Order::Class,
    Order::Size,
    Order::SizeRootLength,
    Order::Length,
    Order::Area,
    Order::Birth,
];

/// Which of the free offsets an item gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fit {
    /// The lowest.
    First,
    /// The one with the smallest gap; items that are not solid get the lowest.
    Best,
}

/// Returns the items in `order`, those with pins before all others; nothing if the caller
/// wants an answer before the end.
pub(super) fn sorted(model: &Model, order: Order, clock: &Clock<'_>) -> Result<Option<Vec<u32>>> {
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
            Order::SizeRootLength => ((real(item.size) * real(length).sqrt()).to_bits(), item.size),
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

/// Returns the largest load of a section of each item.
pub(super) fn most_loaded(model: &Model) -> Result<Vec<u64>> {
    // A tree of maxima: node k has that of nodes 2k and 2k + 1, and the sections are the leaves.
    let leaves = model.loads.len();
    let mut most = filled(0, 2 * leaves, "loads")?;
    for (section, load) in model.loads.iter().enumerate() {
        most[leaves + section] = load.grains;
    }
    for node in (1..leaves).rev() {
        most[node] = most[2 * node].max(most[2 * node + 1]);
    }
    let mut met = with_capacity(model.items.len(), "loads")?;
    met.extend(model.items.iter().map(|item| {
        let (mut left, mut right) =
            (index(item.span.start) + leaves, index(item.span.end) + leaves);
        let mut load = 0_u64;
        while left < right {
            if left % 2 == 1 {
                load = load.max(most[left]);
                left += 1;
            }
            if right % 2 == 1 {
                right -= 1;
                load = load.max(most[right]);
            }
            (left, right) = (left / 2, right / 2);
        }
        load
    }));
    Ok(met)
}

/// Lists that a pass looks at before it is given up. Where half of a million items are live at once,
/// an item goes past most of them, and a pass takes a minute.
const MOST_WORK: usize = 1 << 28;

/// Returns now and then as `count` grows whether a pass is to stop, because time is up or because
/// it is not worth its time.
pub(super) fn is_up_at(count: usize, space: &Occupancy, clock: &Clock<'_>) -> bool {
    count % 64 == 63 && (clock.is_up() || space.work() > MOST_WORK)
}

/// Places the items in `order` where they fit, and returns their offsets.
///
/// Returns nothing if an item would end above grain `limit`, or `stop` says so, which is
/// asked before each item.
pub(super) fn place(
    model: &Model,
    order: &[u32],
    fit: Fit,
    limit: u64,
    space: &mut Occupancy,
    stop: impl Fn(usize, &Occupancy) -> bool,
) -> Result<Option<Vec<u64>>> {
    let mut offsets = filled(0, model.items.len(), "offsets")?;
    space.clear();
    for (count, &item) in order.iter().enumerate() {
        if stop(count, space) {
            return Ok(None);
        }
        let it = &model.items[index(item)];
        let offset = match (model.pin(it), fit) {
            (Some(pin), _) => pin,
            (None, Fit::Best) if it.solid() => space.best_fit(model, it),
            (None, _) => space.first_fit(model, it, 0),
        };
        if offset + it.size > limit {
            return Ok(None);
        }
        space.insert(model, index(item), offset)?;
        offsets[index(item)] = offset;
    }
    Ok(Some(offsets))
}

/// Items above the target after which a pass is not worth its end.
const MOST_CROWDED: usize = 500;

/// Places those items in `order` that are `fixed` there, and the others where they first fit.
///
/// Those that end above byte `target` are noted as `crowded`. Returns nothing if they are too
/// many or too high, or `stop` says so, which is asked before each item.
pub(super) fn place_around(
    model: &Model,
    order: &[u32],
    fixed: &[Option<u64>],
    target: u64,
    crowded: &mut Vec<u32>,
    space: &mut Occupancy,
    stop: impl Fn(usize, &Occupancy) -> bool,
) -> Result<Option<Vec<u64>>> {
    let mut offsets = filled(0, model.items.len(), "offsets")?;
    space.clear();
    for (count, &item) in order.iter().enumerate() {
        if stop(count, space) || crowded.len() > MOST_CROWDED {
            return Ok(None);
        }
        let it = &model.items[index(item)];
        let known = model.pin(it).or(fixed[index(item)]);
        let offset = known.unwrap_or_else(|| space.first_fit(model, it, 0));
        if offset + it.size > MAX_BYTES / model.grain {
            return Ok(None);
        }
        if model.end_in_bytes(index(item), offset) > target {
            crowded.push(item);
        }
        space.insert(model, index(item), offset)?;
        offsets[index(item)] = offset;
    }
    Ok(Some(offsets))
}

/// Places the items with hints at their hints where those are free, from the lowest
/// hint up, and all others at the lowest offset that is free.
///
/// Returns nothing if an item would end above grain `limit`, or if the caller wants an
/// answer before the end.
pub(super) fn place_hinted(
    model: &Model,
    hints: &[Option<u64>],
    limit: u64,
    space: &mut Occupancy,
    clock: &Clock<'_>,
) -> Result<Option<Vec<u64>>> {
    let mut offsets = filled(0, model.items.len(), "offsets")?;
    let Some(mut order) = sorted(model, Order::Birth, clock)? else { return Ok(None) };
    order.sort_by_key(|&item| {
        let hint = hints[index(item)];
        (model.pin(&model.items[index(item)]).is_none(), hint.is_none(), hint)
    });
    space.clear();
    for (count, item) in order.into_iter().map(index).enumerate() {
        if clock.is_over_at(count) {
            return Ok(None);
        }
        let it = &model.items[item];
        let hint = hints[item].filter(|&hint| {
            hint <= limit && hint & it.mask() == 0 && space.is_free(model, it, hint)
        });
        let offset = model.pin(it).or(hint).unwrap_or_else(|| space.first_fit(model, it, 0));
        if offset + it.size > limit {
            return Ok(None);
        }
        space.insert(model, item, offset)?;
        offsets[item] = offset;
    }
    Ok(Some(offsets))
}
