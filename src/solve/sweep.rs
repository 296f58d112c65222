//! Best fit in the order of birth, the cheapest valid answer there is.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use super::arith::{align_up, index, number};
use super::clock::Clock;
use super::memory::filled;
use super::model::{Item, Model};
use super::sort::sort;
use crate::error::Result;

/// Free grains below the top of an arena, found by size and by place.
#[derive(Debug, Default)]
struct FreeList {
    by_start: BTreeMap<u64, u64>,
    by_size: BTreeSet<(u64, u64)>,
    /// Above it, everything is free.
    top: u64,
}

impl FreeList {
    /// Takes `size` grains from the smallest gap that holds them, or from the top.
    fn take(&mut self, size: u64, mask: u64) -> u64 {
        let fits = |&&(gap, start): &&(u64, u64)| align_up(start, mask) - start + size <= gap;
        let gap = self.by_size.range((size, 0)..).find(fits).copied();
        let (start, end) = match gap {
            Some((gap, start)) => (start, start + gap),
            // The topmost gap grows into the free space above it.
            None => match self.by_start.last_key_value() {
                Some((&start, &end)) if end == self.top => (start, u64::MAX),
                _ => (self.top, u64::MAX),
            },
        };
        if start < self.top {
            self.remove(start);
        }
        let offset = align_up(start, mask);
        self.add(start, offset);
        if end == u64::MAX {
            self.top = offset + size;
        } else {
            self.add(offset + size, end);
        }
        offset
    }

    /// Gives grains back, joining them with the gaps beside them.
    fn give(&mut self, mut start: u64, mut end: u64) {
        if let Some((&before, &until)) = self.by_start.range(..start).next_back()
            && until == start
        {
            self.remove(before);
            start = before;
        }
        if let Some(&until) = self.by_start.get(&end) {
            self.remove(end);
            end = until;
        }
        self.add(start, end);
    }

    fn add(&mut self, start: u64, end: u64) {
        if start < end {
            self.by_start.insert(start, end);
            self.by_size.insert((end - start, start));
        }
    }

    fn remove(&mut self, start: u64) {
        if let Some(end) = self.by_start.remove(&start) {
            self.by_size.remove(&(end - start, start));
        }
    }
}

/// Places solid items without pins in the order in which they are born, each into the
/// smallest gap that holds it, and returns their offsets.
///
/// Returns nothing if an item would end above grain `limit`, or if the caller wants an
/// answer before the end.
pub(super) fn best_fit(model: &Model, limit: u64, clock: &Clock<'_>) -> Result<Option<Vec<u64>>> {
    let items = &model.items;
    let sections = model.loads.len();
    let (births, born) = by_section(items, sections, |item| item.span.start)?;
    let (deaths, dead) = by_section(items, sections + 1, |item| item.span.end)?;
    let mut offsets = filled(0, items.len(), "offsets")?;
    let mut free = FreeList::default();
    let mut keyed = Vec::new();
    let mut count = 0;
    for now in 0..sections {
        let dying = &deaths[index(dead[now])..index(dead[now + 1])];
        for &item in dying {
            let offset = offsets[index(item)];
            free.give(offset, offset + items[index(item)].size);
        }
        // Largest first, then longest.
        keyed.clear();
        keyed.extend(births[index(born[now])..index(born[now + 1])].iter().map(|&item| {
            let it = &items[index(item)];
            (Reverse((it.size, it.span.end)), item)
        }));
        if !sort(&mut keyed, clock) {
            return Ok(None);
        }
        for &(_, item) in &keyed {
            let item = index(item);
            let offset = free.take(items[item].size, items[item].mask);
            if offset + items[item].size > limit || clock.is_over_at(count) {
                return Ok(None);
            }
            offsets[item] = offset;
            count += 1;
        }
    }
    Ok(Some(offsets))
}

/// Returns the items ordered by a section, and for each section where its items start.
fn by_section(
    items: &[Item],
    sections: usize,
    section: impl Fn(&Item) -> u32,
) -> Result<(Vec<u32>, Vec<u32>)> {
    let mut first = filled(0_u32, sections + 1, "sections")?;
    for item in items {
        first[index(section(item))] += 1;
    }
    let mut total = 0;
    for first in &mut first {
        total += *first;
        *first = total;
    }
    let mut order = filled(0, items.len(), "buffers")?;
    for (position, item) in items.iter().enumerate().rev() {
        let place = &mut first[index(section(item))];
        *place -= 1;
        order[index(*place)] = number(position);
    }
    Ok((order, first))
}
