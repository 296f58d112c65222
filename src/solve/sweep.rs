//! Best fit in the order of birth, the cheapest valid answer there is.

use std::collections::{BTreeMap, BTreeSet};

use super::arith::{align_up, index, number};
use super::memory::{filled, with_capacity};
use super::model::Model;
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
/// Returns nothing if an item would end above grain `limit`.
pub(super) fn best_fit(model: &Model, limit: u64) -> Result<Option<Vec<u64>>> {
    let items = &model.items;
    let mut births = with_capacity(items.len(), "buffers")?;
    births.extend(0..number(items.len()));
    let mut deaths = births.clone();
    births.sort_unstable_by_key(|&item| {
        let it = &items[index(item)];
        (it.span.start, std::cmp::Reverse((it.size, it.span.end)), item)
    });
    deaths.sort_unstable_by_key(|&item| (items[index(item)].span.end, item));
    let mut offsets = filled(0, items.len(), "offsets")?;
    let mut free = FreeList::default();
    let mut dying = deaths.into_iter().peekable();
    for item in births {
        let item = index(item);
        let now = items[item].span.start;
        while let Some(dead) = dying.next_if(|&dead| items[index(dead)].span.end <= now) {
            let dead = index(dead);
            free.give(offsets[dead], offsets[dead] + items[dead].size);
        }
        let offset = free.take(items[item].size, items[item].mask);
        if offset + items[item].size > limit {
            return Ok(None);
        }
        offsets[item] = offset;
    }
    Ok(Some(offsets))
}
