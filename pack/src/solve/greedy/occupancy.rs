//! The taken grains in each section; finds free offsets in nearly logarithmic time.

use alloc::{vec, vec::Vec};
use core::ops::Range;

use super::spans::{Pool, Spans};
use crate::base::Result;
use crate::solve::model::arith::{align_up, index, number};
use crate::solve::model::memory::filled;
use crate::solve::model::{Item, Model};
use crate::solve::tuning::layout::{INTERVALS_PER_ACCESS, OCCUPANCY_FAN as FAN};

/// A tree over sections with each node's taken grains.
///
/// A segment tree. Every node has two unions of intervals: `any` has the grains taken in some
/// section of the node, `full` the grains of items that cover all sections of the node at once. The
/// grains taken in some section of a range are `any` of the range's nodes, and `full` of their
/// ancestors. Packings are tight, so the unions collapse to few intervals.
#[derive(Debug)]
pub(crate) struct Occupancy {
    /// First node of each height; height 0, the leaves, are sections.
    heights: Vec<usize>,
    leaves: usize,
    /// How many heights are searched, and so must know `any`.
    searched: usize,
    any: Vec<Spans>,
    /// How many heights have something in `full`.
    filled: usize,
    /// Leaves do not need `full`: node *k*'s entry is at *k* minus the number of leaves.
    full: Vec<Spans>,
    pool: Pool,
    cursors: Vec<Cursor>,
    /// Lists read since the last call of [`Occupancy::take_work`].
    work: usize,
}

/// A search's position in a list, and the item's grains in question.
#[derive(Clone, Copy, Debug)]
struct Cursor {
    list: u32,
    next: u32,
    low: u64,
    high: u64,
}

impl Occupancy {
    /// Returns a tree with `sections` sections without taken grains.
    pub(crate) fn new(sections: usize) -> Result<Self> {
        let (mut heights, mut nodes, mut width) = (vec![0], sections, sections);
        while width > 1 {
            heights.push(nodes);
            width = width.div_ceil(1 << FAN);
            nodes += width;
        }
        Ok(Self {
            searched: heights.len(),
            filled: 1,
            heights,
            leaves: sections,
            any: filled(Spans::NONE, nodes, "occupied intervals")?,
            full: filled(Spans::NONE, nodes - sections, "occupied intervals")?,
            pool: Pool::default(),
            cursors: Vec::new(),
            work: 0,
        })
    }

    /// Forgets all that is taken.
    pub(crate) fn clear(&mut self) {
        self.clear_for(u32::MAX);
    }

    /// Forgets all taken grains; from now on, only items with at most so many sections look for
    /// room, which makes taking grains faster.
    pub(crate) fn clear_for(&mut self, longest: u32) {
        self.searched = self.heights.len().min(heights_of(longest));
        self.filled = 1;
        self.any.fill(Spans::NONE);
        self.full.fill(Spans::NONE);
        self.pool.clear();
    }

    /// Returns the lists read since the last call of [`Occupancy::take_work`].
    pub(crate) const fn work(&self) -> usize {
        self.work
    }

    /// Returns about how many memory accesses the searches since the last call took.
    pub(crate) fn take_work(&mut self) -> usize {
        2 * core::mem::take(&mut self.work)
    }

    /// Takes the grains of `item` at `offset`.
    pub(crate) fn insert(&mut self, model: &Model, item: usize, offset: u64) -> Result<()> {
        let mut done = Ok(());
        model.each_box(item, |span, grains| {
            if done.is_ok() {
                done = self.take(span, (offset + grains.start, offset + grains.end));
            }
        });
        done
    }

    /// Takes `grains` in every section of `span`.
    fn take(&mut self, span: &Range<u32>, grains: (u64, u64)) -> Result<()> {
        self.filled = self.filled.max(heights_of(span.end - span.start));
        let Self { heights, leaves, any, full, pool, .. } = self;
        let searched = heights.get(self.searched).copied().unwrap_or(any.len());
        let mut done = Ok(());
        let mut merge = |spans: &mut Spans| match pool.merge(spans, grains) {
            Ok(new) => new,
            Err(error) => {
                done = Err(error);
                false
            }
        };
        each_cover(heights, span, |node| {
            if node < searched {
                merge(&mut any[node]);
            }
            if let Some(inner) = node.checked_sub(*leaves) {
                merge(&mut full[inner]);
            }
        });
        each_ancestor(&heights[..self.searched], span, |node| merge(&mut any[node]));
        done
    }

    /// Returns the intervals that a cursor goes through.
    fn list(&self, cursor: &Cursor) -> &[(u64, u64)] {
        let list = index(cursor.list);
        let spans = self.any.get(list).unwrap_or_else(|| &self.full[list - self.any.len()]);
        self.pool.list(spans)
    }

    /// Returns the lowest offset from `from` on at which `item` meets no taken grains.
    pub(crate) fn first_fit(&mut self, model: &Model, item: &Item, from: u64) -> u64 {
        self.open(model, item);
        let mut offset = align_up(from, item.mask());
        // The number of consecutive lists that agreed with `offset`; when all agree, the offset is
        // free.
        let mut agreed = 0;
        let mut turn = 0;
        while agreed < self.cursors.len() {
            let cursor = self.cursors[turn];
            let list = self.list(&cursor);
            let before = offset;
            let mut passed = 0;
            let mut next = skip(list, index(cursor.next), offset + cursor.low);
            while let Some(&(start, end)) = list.get(next)
                && start < offset + cursor.high
            {
                offset = align_up(end - cursor.low, item.mask());
                next = skip(list, next, offset + cursor.low);
                passed += 1;
            }
            self.work += 1 + passed / INTERVALS_PER_ACCESS;
            self.cursors[turn].next = number(next);
            agreed = if offset == before { agreed + 1 } else { 1 };
            turn = if turn + 1 == self.cursors.len() { 0 } else { turn + 1 };
        }
        offset
    }

    /// Returns the offset at which a solid `item` leaves the smallest gap above, the lowest such
    /// offset; free space at the top counts as a gap of any size.
    pub(crate) fn best_fit(&mut self, model: &Model, item: &Item) -> u64 {
        let mut best: Option<(u64, u64)> = None;
        let mut from = 0;
        loop {
            let offset = self.first_fit(model, item, from);
            let above = offset + item.size;
            let next = |cursor: &Cursor| {
                self.list(cursor).get(index(cursor.next)).map(|&(start, _)| start)
            };
            let Some(roof) = self.cursors.iter().filter_map(next).min() else {
                return best.map_or(offset, |(_, offset)| offset);
            };
            if best.is_none_or(|(gap, _)| roof - above < gap) {
                best = Some((roof - above, offset));
            }
            if roof == above {
                return offset;
            }
            from = roof;
        }
    }

    /// Returns whether `item` meets no taken grains at `offset`.
    pub(crate) fn is_free(&mut self, model: &Model, item: &Item, offset: u64) -> bool {
        self.first_fit(model, item, offset) == offset
    }

    /// Sets a cursor to the start of every list that `item` may meet.
    fn open(&mut self, model: &Model, item: &Item) {
        self.cursors.clear();
        let mut visit = |span: &Range<u32>, low, high| {
            let Self { heights, leaves, any, filled, full, pool, cursors, .. } = &mut *self;
            let mut add = |list: usize, spans: &Spans| {
                if !pool.list(spans).is_empty() {
                    cursors.push(Cursor { list: number(list), next: 0, low, high });
                }
            };
            each_cover(heights, span, |node| add(node, &any[node]));
            each_ancestor(&heights[..(*filled).min(heights.len())], span, |node| {
                let inner = node - *leaves;
                add(any.len() + inner, &full[inner]);
                true
            });
        };
        if item.solid() {
            visit(&item.span, 0, item.size);
        }
        for part in model.boxes(item) {
            visit(&part.span, part.grains.start, part.grains.end);
        }
    }
}

/// Returns the number of heights whose nodes may be inside an item with so many sections.
fn heights_of(sections: u32) -> usize {
    index(sections.max(1).ilog2() / FAN + 1)
}

/// Visits the fewest nodes that together are exactly the sections in `span`.
fn each_cover(heights: &[usize], span: &Range<u32>, mut visit: impl FnMut(usize)) {
    let inside = |node: usize| node & ((1 << FAN) - 1) != 0;
    let (mut left, mut right) = (index(span.start), index(span.end));
    for first in heights {
        while left < right && inside(left) {
            visit(first + left);
            left += 1;
        }
        while left < right && inside(right) {
            right -= 1;
            visit(first + right);
        }
        if left == right {
            return;
        }
        (left, right) = (left >> FAN, right >> FAN);
    }
}

/// Visits the nodes that meet `span` and are not inside `span`, from the leaves up, and none above
/// a node for which `visit` returns false.
fn each_ancestor(heights: &[usize], span: &Range<u32>, mut visit: impl FnMut(usize) -> bool) {
    let (left, right) = (index(span.start), index(span.end));
    let (mut left_done, mut right_done) = (false, false);
    let mut shift = 0;
    for first in heights.iter().skip(1) {
        shift += FAN;
        let (low, high) = (left >> shift, (right - 1) >> shift);
        let starts_inside = (low << shift) != left;
        let ends_inside = ((right >> shift) << shift) != right;
        if starts_inside && ends_inside && low == high {
            // Both ends have the same ancestors from here on.
            if left_done || right_done || !visit(first + low) {
                return;
            }
            continue;
        }
        left_done = left_done || starts_inside && !visit(first + low);
        right_done = right_done || ends_inside && !visit(first + high);
    }
}

/// Returns the position, from `next` on, of the first interval that ends above `grain`.
fn skip(list: &[(u64, u64)], next: usize, grain: u64) -> usize {
    let mut next = next;
    let mut stride = 1;
    // Most steps are short; a long way is galloped.
    while let Some(&(_, end)) = list.get(next + stride - 1)
        && end <= grain
    {
        next += stride;
        stride *= 2;
    }
    let until = list.len().min(next + stride - 1);
    next + list[next.min(until)..until].partition_point(|&(_, end)| end <= grain)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;
    use crate::base::LiveRange;
    use crate::problem::Buffer;
    use crate::solve::model::random::Random;
    use crate::solve::testing::model_of;

    #[test]
    fn first_fit_is_the_lowest_offset_that_meets_nothing() {
        let mut random = Random::new(4);
        for round in 0..20 {
            // From few sections, a single node, to three heights; some items are long.
            let sections = [1, 7, 9, 64, 300][round % 5];
            let buffer = |_| {
                let longest = if random.below(4) == 0 { sections } else { 3 };
                let start = random.below(sections);
                let end = (start + 1 + random.below(longest)).min(sections);
                let live = LiveRange::new(number(start), number(end)).unwrap();
                Buffer::new(1 + random.next() % 9, live)
            };
            let model = model_of((0..400).map(buffer).collect());
            // Only short items are searched for in the second half of the rounds.
            let short = |item: &Item| round < 10 || item.length() <= 3;
            let mut space = Occupancy::new(model.loads.len()).unwrap();
            space.clear_for(if round < 10 { u32::MAX } else { 3 });
            let mut placed: Vec<(&Item, u64)> = Vec::new();
            for (number, item) in model.items.iter().enumerate() {
                let meets = |at: u64, (other, low): &(&Item, u64)| {
                    other.span.start < item.span.end
                        && item.span.start < other.span.end
                        && *low < at + item.size
                        && at < low + other.size
                };
                let lowest = (0..4_000).find(|&at| !placed.iter().any(|other| meets(at, other)));
                if short(item) {
                    assert_eq!(Some(space.first_fit(&model, item, 0)), lowest);
                }
                placed.push((item, lowest.unwrap()));
                space.insert(&model, number, lowest.unwrap()).unwrap();
            }
        }
    }
}
