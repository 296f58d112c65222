//! Room inside placed items, while the items do not need the room.

use alloc::collections::{BTreeSet, BinaryHeap};
use alloc::vec::Vec;
use core::cmp::Reverse;

use crate::solve::model::arith::align_up;
use crate::solve::model::{Item, Model};

/// Free grains inside placed items.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Nest {
    grains: u64,
    start: u64,
    /// The section in which the grains are needed again.
    until: u32,
}

/// The free grains inside items with windows and gaps, in a pass in time order.
///
/// An item that dies before its host needs the grains again takes no other room.
#[derive(Debug, Default)]
pub(super) struct Nests {
    /// By size; some entries are out of date.
    open: BTreeSet<Nest>,
    /// Nests that open later, by section.
    later: BinaryHeap<Reverse<(u32, Nest)>>,
    outdated: Vec<Nest>,
}

impl Nests {
    /// Opens the nests that are free from section `now` on, or earlier.
    pub(super) fn advance(&mut self, now: u32) {
        while let Some(&Reverse((from, nest))) = self.later.peek()
            && from <= now
        {
            self.later.pop();
            self.open(nest);
        }
    }

    fn open(&mut self, nest: Nest) {
        if nest.grains > 0 {
            self.open.insert(nest);
        }
    }

    /// Takes the grains for an item born in section `now` from one of the smallest nests that can
    /// hold the item until its death, and returns the start.
    pub(super) fn take(&mut self, item: &Item, now: u32, tries: usize) -> Option<u64> {
        let least = Nest { grains: item.size, start: 0, until: 0 };
        let mut found = None;
        for nest in self.open.range(least..).take(tries) {
            let start = align_up(nest.start, item.mask());
            if nest.until <= now {
                self.outdated.push(*nest);
            } else if nest.until >= item.span.end && start + item.size <= nest.start + nest.grains {
                found = Some((*nest, start));
                break;
            }
        }
        for nest in self.outdated.drain(..) {
            self.open.remove(&nest);
        }
        let (nest, start) = found?;
        self.open.remove(&nest);
        let end = start + item.size;
        self.open(Nest { grains: start - nest.start, ..nest });
        self.open(Nest { grains: nest.start + nest.grains - end, start: end, ..nest });
        if item.span.end < nest.until {
            let again = Nest { grains: item.size, start, until: nest.until };
            self.later.push(Reverse((item.span.end, again)));
        }
        Some(start)
    }

    /// Adds the nests inside an item at an offset.
    pub(super) fn host(&mut self, model: &Model, item: &Item, offset: u64) {
        let parts = model.boxes(item);
        let mut cuts: Vec<u64> =
            parts.iter().flat_map(|part| [part.grains.start, part.grains.end]).collect();
        cuts.extend([0, item.size]);
        cuts.sort_unstable();
        cuts.dedup();
        let mut spans = Vec::new();
        for cut in cuts.windows(2) {
            spans.clear();
            let inside =
                |grains: &core::ops::Range<u64>| grains.start <= cut[0] && cut[1] <= grains.end;
            let here = parts.iter().filter(|part| inside(&part.grains));
            spans.extend(here.map(|part| (part.span.start, part.span.end)));
            spans.sort_unstable();
            let mut from = item.span.start;
            for &(start, end) in spans.iter().chain([&(item.span.end, item.span.end)]) {
                if from < start {
                    let (grains, start_at) = (cut[1] - cut[0], offset + cut[0]);
                    let nest = Nest { grains, start: start_at, until: start };
                    self.later.push(Reverse((from, nest)));
                }
                from = from.max(end);
            }
        }
    }
}
