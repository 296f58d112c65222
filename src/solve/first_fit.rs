//! Greedy passes: every item in turn at the lowest, or tightest, offset that is free.

use super::arith::{index, number, real};
use super::clock::Clock;
use super::memory::{filled, with_capacity};
use super::model::Model;
use super::occupancy::Occupancy;
use crate::error::Result;

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
}

/// All orders, the most useful ones first.
pub(super) const ORDERS: [Order; 6] =
    [Order::Load, Order::Size, Order::SizeRootLength, Order::Length, Order::Area, Order::Birth];

/// Which of the free offsets an item gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fit {
    /// The lowest.
    First,
    /// The one with the smallest gap; items that are not solid get the lowest.
    Best,
}

/// Returns the items in `order`, those with pins before all others.
pub(super) fn sorted(model: &Model, order: Order) -> Result<Vec<u32>> {
    let items = &model.items;
    let mut keyed = with_capacity(items.len(), "an order")?;
    let loads = if order == Order::Load { Some(most_loaded(model)?) } else { None };
    for (position, item) in items.iter().enumerate() {
        let length = u64::from(item.length());
        let area = u128::from(item.size) * u128::from(length);
        let size = u128::from(item.size);
        let key = match order {
            Order::Load => {
                let load = loads.as_ref().map_or(0, |loads| loads[position]);
                (u128::from(load), u128::from(length), area)
            }
            Order::Size => (size, u128::from(length), 0),
            // Comparing squares compares the products with the root.
            Order::SizeRootLength => {
                ((real(item.size) * real(length).sqrt()).to_bits().into(), size, 0)
            }
            Order::Length => (u128::from(length), size, 0),
            Order::Area => (area, size, 0),
            Order::Birth => (u128::from(u32::MAX - item.span.start), size, 0),
        };
        let (from, to) = (item.span.start, item.span.end);
        keyed.push((item.pin.is_none(), std::cmp::Reverse(key), from, to, number(position)));
    }
    keyed.sort_unstable();
    let mut order = with_capacity(items.len(), "an order")?;
    order.extend(keyed.into_iter().map(|(.., item)| item));
    Ok(order)
}

/// Returns the largest load of a section of each item.
pub(super) fn most_loaded(model: &Model) -> Result<Vec<u64>> {
    // A sparse table: row k holds the maxima of 2^k sections each.
    let mut rows: Vec<Vec<u64>> = Vec::new();
    let mut first = with_capacity(model.loads.len(), "loads")?;
    first.extend(model.loads.iter().map(|load| load.grains));
    rows.push(first);
    let longest = model.items.iter().map(super::model::Item::length).max().unwrap_or(1);
    while longest >> rows.len() > 0 {
        let reach = 1 << (rows.len() - 1);
        let last = &rows[rows.len() - 1];
        let mut row = with_capacity(last.len() - reach, "loads")?;
        row.extend(last.iter().zip(&last[reach..]).map(|(a, b)| *a.max(b)));
        rows.push(row);
    }
    let mut most = with_capacity(model.items.len(), "loads")?;
    most.extend(model.items.iter().map(|item| {
        let row = index(item.length().ilog2());
        let (from, to) = (index(item.span.start), index(item.span.end) - (1 << row));
        rows[row][from].max(rows[row][to])
    }));
    Ok(most)
}

/// Places the items in `order` and returns their offsets.
///
/// Returns nothing if an item would end above grain `limit`, or if time is up.
pub(super) fn place(
    model: &Model,
    order: &[u32],
    fit: Fit,
    limit: u64,
    space: &mut Occupancy,
    clock: Option<&Clock<'_>>,
) -> Result<Option<Vec<u64>>> {
    let mut offsets = filled(0, model.items.len(), "offsets")?;
    space.clear();
    for (count, &item) in order.iter().enumerate() {
        if count % 64 == 63 && clock.is_some_and(Clock::is_up) {
            return Ok(None);
        }
        let it = &model.items[index(item)];
        let offset = match (it.pin, fit) {
            (Some(pin), _) => pin,
            (None, Fit::Best) if it.solid() => space.best_fit(model, it),
            (None, _) => space.first_fit(model, it, 0),
        };
        if offset + it.size > limit {
            return Ok(None);
        }
        space.insert(model, index(item), offset);
        offsets[index(item)] = offset;
    }
    Ok(Some(offsets))
}

/// Places the items with hints at their hints where those are free, from the lowest
/// hint up, and all others at the lowest offset that is free.
///
/// Returns nothing if an item would end above grain `limit`.
pub(super) fn place_hinted(
    model: &Model,
    hints: &[Option<u64>],
    limit: u64,
    space: &mut Occupancy,
) -> Result<Option<Vec<u64>>> {
    let mut offsets = filled(0, model.items.len(), "offsets")?;
    let mut order = sorted(model, Order::Birth)?;
    order.sort_by_key(|&item| {
        let hint = hints[index(item)];
        (model.items[index(item)].pin.is_none(), hint.is_none(), hint)
    });
    space.clear();
    for item in order.into_iter().map(index) {
        let it = &model.items[item];
        let hint = hints[item]
            .filter(|&hint| hint <= limit && hint & it.mask == 0 && space.is_free(model, it, hint));
        let offset = it.pin.or(hint).unwrap_or_else(|| space.first_fit(model, it, 0));
        if offset + it.size > limit {
            return Ok(None);
        }
        space.insert(model, item, offset);
        offsets[item] = offset;
    }
    Ok(Some(offsets))
}
