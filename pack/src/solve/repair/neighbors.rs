//! Lists the items that are live at the same time as another, without storing pairs.

use alloc::vec::Vec;
use core::ops::Range;

use crate::base::Result;
use crate::solve::model::Model;
use crate::solve::model::arith::{index, number};
use crate::solve::model::memory::filled;

/// The items that are born at each section, and the items that are live at every `stride`-th
/// section.
///
/// An item that is live in a section range is live at the last *mark* before the range, or is born
/// after that mark. The distance between marks is half the number of concurrently live items: so a
/// query reads few irrelevant items, and all lists together are about twice as long as the item
/// list.
#[derive(Debug)]
pub(crate) struct Neighbors {
    /// The number of items born before each section; a model's items are in birth order.
    born: Vec<u32>,
    /// Sections between two marks.
    stride: u32,
    /// The items live before and after each mark; mark *k*'s items start at `starts[k]`.
    marked: Vec<u32>,
    starts: Vec<usize>,
}

impl Neighbors {
    /// Returns the lists for all items in a model.
    pub(crate) fn new(model: &Model) -> Result<Self> {
        let count = model.items.len();
        let sections = model.loads.len();
        let mut born = filled(0, sections + 1, "neighbors")?;
        for item in &model.items {
            born[index(item.span.start) + 1] += 1;
        }
        for section in 0..sections {
            born[section + 1] += born[section];
        }
        let together: u64 = model.items.iter().map(|item| u64::from(item.length())).sum();
        let stride = together / (2 * u64::from(number(count.max(1)))) + 1;
        let stride = u32::try_from(stride).unwrap_or(u32::MAX);
        let marks =
            |span: &Range<u32>| index(span.start / stride) + 1..index((span.end - 1) / stride) + 1;
        let mut starts = filled(0, sections / index(stride) + 3, "neighbors")?;
        for item in &model.items {
            for mark in marks(&item.span) {
                starts[mark + 2] += 1;
            }
        }
        for mark in 2..starts.len() {
            starts[mark] += starts[mark - 1];
        }
        let mut marked = filled(0, starts[starts.len() - 1], "neighbors")?;
        for (item, it) in model.items.iter().enumerate() {
            for mark in marks(&it.span) {
                marked[starts[mark + 1]] = number(item);
                starts[mark + 1] += 1;
            }
        }
        Ok(Self { born, stride, marked, starts })
    }

    /// Calls `visit` with every item that is live in a section of `span`.
    pub(crate) fn each(&self, model: &Model, span: &Range<u32>, mut visit: impl FnMut(usize)) {
        let mark = index(span.start / self.stride);
        let before = &self.marked[self.starts[mark]..self.starts[mark + 1]];
        let born = |section: u32| index(self.born[index(section)]);
        let since = born(span.start / self.stride * self.stride)..born(span.end);
        for item in before.iter().map(|&item| index(item)).chain(since) {
            if model.items[item].span.end > span.start {
                visit(item);
            }
        }
    }
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
    fn neighbors_are_all_that_is_live_at_the_same_time_each_once() {
        let mut random = Random::new(5);
        let mut below = |limit: usize| number(random.below(limit));
        for longest in [1, 3, 20, 400] {
            let buffers = (0..300).map(|_| {
                let start = below(500);
                let length = if below(50) == 0 { 500 } else { 1 + below(longest) };
                Buffer::new(1, LiveRange::new(start, start + length).unwrap())
            });
            let model = model_of(buffers.collect());
            let neighbors = Neighbors::new(&model).unwrap();
            for item in &model.items {
                let mut found = Vec::new();
                neighbors.each(&model, &item.span, |other| found.push(other));
                found.sort_unstable();
                let meets = |&other: &usize| {
                    let span = &model.items[other].span;
                    span.start < item.span.end && item.span.start < span.end
                };
                assert_eq!(found, (0..300).filter(meets).collect::<Vec<_>>());
            }
        }
    }
}
