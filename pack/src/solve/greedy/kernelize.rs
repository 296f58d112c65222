//! Kernelization: removes items that fit wherever all other items are.
//!
//! # References
//!
//! Kernelization in the sense of parameterized complexity (Downey and Fellows, "Parameterized
//! Complexity", 1999): the kernel fits if and only if all items do. The rule itself is new, as far
//! as known.

use alloc::vec::Vec;
use core::ops::Range;

use super::occupancy::Occupancy;
use crate::base::Result;
use crate::solve::model::Model;
use crate::solve::model::arith::{index, number};
use crate::solve::model::clock::Clock;
use crate::solve::model::memory::{filled, with_capacity};
use crate::solve::model::sections::Sections;
use crate::solve::tuning;

/// Items divided into relevant items and items that can wait.
#[derive(Debug)]
pub(crate) struct Kernel {
    /// Items that must be packed first, in ascending order.
    pub(crate) core: Vec<u32>,
    /// The other items, in the order in which they can be put back.
    pub(crate) rest: Vec<u32>,
}

impl Kernel {
    /// Returns the kernel that leaves no item out.
    pub(crate) fn everything(model: &Model) -> Result<Self> {
        let mut core = with_capacity(model.items.len(), "buffers")?;
        core.extend(0..number(model.items.len()));
        Ok(Self { core, rest: Vec::new() })
    }
}

/// Repeatedly removes every item that fits below byte `target` for all placements of the other
/// items.
///
/// An item with size *b* may start at multiples of its alignment up to its ceiling. A neighbor with
/// size *s* blocks fewer than *s* + *b* starts. If all neighbors together leave a start, the item
/// can be placed last. A removed item blocks no other item, so the removal repeats in rounds; items
/// are put back in the opposite order. Hence the kernel fits below `target` if and only if all
/// items do.
///
/// The sum of the neighbors' sizes needs no list of pairs: the items live in `l..r` are the items
/// born before `r` minus the items dead at `l`. A round takes `O(n + sections)`.
///
/// Returns nothing if time is up before the end.
pub(crate) fn kernelize(model: &Model, target: u64, clock: &Clock<'_>) -> Result<Option<Kernel>> {
    let mut left = with_capacity(model.items.len(), "buffers")?;
    for (item, it) in model.items.iter().enumerate() {
        let free = model.pin(it).is_none();
        let ceiling = if free { model.ceiling(item, target) } else { None };
        left.push(Candidate {
            span: it.span.clone(),
            size: it.size,
            starts: ceiling.map_or(0, |ceiling| ceiling + it.mask() + 1),
            item: number(item),
        });
    }
    let mut rest = with_capacity(model.items.len(), "buffers")?;
    // Sizes are counted in units, rounded up, such that the sum does not overflow. Rounding up is
    // safe.
    let all = model.items.iter().fold(0, |sum, item| sum + u128::from(item.size) + 1);
    let shift = (u128::BITS - all.leading_zeros()).saturating_sub(u64::BITS - 1);
    let units = |grains: u64| grains.div_ceil(1 << shift);
    let last_round = tuning::greedy::LAST_ROUND_DIVISOR;
    let mut sections = model.loads.len();
    let mut born = filled(Sums::default(), sections + 1, "sections")?;
    let mut dead = filled(Sums::default(), sections + 1, "sections")?;
    loop {
        if clock.is_up() {
            return Ok(None);
        }
        if left.len() < sections {
            let spans = left.iter().map(|it| it.span.clone());
            let fewer = Sections::of(spans, left.len())?;
            for it in &mut left {
                it.span = fewer.span(&it.span);
            }
            sections = fewer.count();
        }
        let (born, dead) = (&mut born[..=sections], &mut dead[..=sections]);
        born.fill(Sums::default());
        dead.fill(Sums::default());
        for it in &left {
            let one = Sums { count: 1, total: units(it.size) };
            born[index(it.span.start) + 1].add(one);
            dead[index(it.span.end)].add(one);
        }
        for section in 0..sections {
            let (births, deaths) = (born[section], dead[section]);
            born[section + 1].add(births);
            dead[section + 1].add(deaths);
        }
        let before = left.len();
        left.retain(|it| {
            let (births, deaths) = (born[index(it.span.end)], dead[index(it.span.start)]);
            let neighbors = u128::from(births.count - deaths.count - 1);
            let total = u128::from(births.total - deaths.total - units(it.size)) << shift;
            // A neighbor with size s blocks the starts in an open interval of s + b - 1 grains,
            // with at most (s + b - 1 + mask) / (mask + 1) starts.
            let mask = model.items[index(it.item)].mask();
            let blocked = total + neighbors * (u128::from(it.size) + u128::from(mask) - 1);
            let waits = blocked < u128::from(it.starts);
            if waits {
                rest.push(it.item);
            }
            !waits
        });
        // Among very many items, the last few are not worth more rounds.
        if (before - left.len()).saturating_mul(last_round) <= left.len() {
            rest.reverse();
            let mut core = with_capacity(left.len(), "buffers")?;
            core.extend(left.into_iter().map(|it| it.item));
            return Ok(Some(Kernel { core, rest }));
        }
    }
}

/// An item that has not been set aside.
#[derive(Clone, Debug)]
struct Candidate {
    /// Sections in which the item meets others.
    span: Range<u32>,
    size: u64,
    /// The multiples of the alignment at which the item may start, in grains; none if the item has
    /// to stay.
    starts: u64,
    item: u32,
}

/// The number of items, and their total size.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    count: u64,
    total: u64,
}

impl Sums {
    fn add(&mut self, other: Self) {
        self.count += other.count;
        self.total += other.total;
    }
}

/// Returns all items' offsets: the packed core's items, and the rest around the core.
///
/// Any free offset suffices. Most sections are full at the bottom and empty at the top, so the
/// search starts where an item would be if all other items were packed perfectly.
///
/// Returns nothing if the deadline passes before the end.
pub(crate) fn put_back(
    model: &Model,
    kernel: &Kernel,
    core_offsets: &[u64],
    target: u64,
    space: &mut Occupancy,
    clock: &Clock<'_>,
) -> Result<Option<Vec<u64>>> {
    let mut offsets = filled(0, model.items.len(), "offsets")?;
    let lengths = kernel.rest.iter().map(|&item| model.items[index(item)].length());
    space.clear_for(lengths.max().unwrap_or(0));
    let core = kernel.core.iter().zip(core_offsets);
    for (count, (&item, &offset)) in core.enumerate() {
        if clock.is_late_at(count) {
            return Ok(None);
        }
        space.insert(model, index(item), offset)?;
        offsets[index(item)] = offset;
    }
    for (count, &item) in kernel.rest.iter().enumerate() {
        if clock.is_late_at(count) {
            return Ok(None);
        }
        let item = index(item);
        let it = &model.items[item];
        let ceiling = model.ceiling(item, target).unwrap_or(0);
        let load = model.loads[index(it.span.start)].grains;
        let mut offset = space.first_fit(model, it, load.saturating_sub(it.size));
        if offset > ceiling {
            offset = space.first_fit(model, it, 0);
        }
        space.insert(model, item, offset)?;
        offsets[item] = offset;
    }
    Ok(Some(offsets))
}
