//! Lists the items that are live at the same time as another, without storing pairs.

use std::ops::Range;

use super::arith::{index, number};
use super::memory::{filled, with_capacity};
use super::model::Model;
use crate::error::Result;

/// Items in the order of birth, under a tree of their latest deaths.
#[derive(Debug)]
pub(super) struct Neighbors {
    births: Vec<u32>,
    by_birth: Vec<u32>,
    /// Node *k* has the latest death of the items below it; the leaves are the last half.
    latest: Vec<u32>,
    leaves: usize,
    pending: Vec<usize>,
}

impl Neighbors {
    /// Returns the tree of all items of a model.
    pub(super) fn new(model: &Model) -> Result<Self> {
        let count = model.items.len();
        let mut by_birth = with_capacity(count, "neighbors")?;
        by_birth.extend(0..number(count));
        by_birth.sort_unstable_by_key(|&item| (model.items[index(item)].span.start, item));
        let leaves = count.max(1).next_power_of_two();
        let mut latest = filled(0, 2 * leaves, "neighbors")?;
        for (place, &item) in by_birth.iter().enumerate() {
            latest[leaves + place] = model.items[index(item)].span.end;
        }
        for node in (1..leaves).rev() {
            latest[node] = latest[2 * node].max(latest[2 * node + 1]);
        }
        let mut births = with_capacity(count, "neighbors")?;
        births.extend(by_birth.iter().map(|&item| model.items[index(item)].span.start));
        Ok(Self { births, by_birth, latest, leaves, pending: Vec::new() })
    }

    /// Calls `visit` with every item that is live in one of the sections `span`.
    ///
    /// Takes `O(log n)` for each.
    pub(super) fn each(&mut self, span: &Range<u32>, mut visit: impl FnMut(usize)) {
        let behind = self.births.partition_point(|&birth| birth < span.end);
        self.pending.clear();
        self.pending.push(1);
        while let Some(node) = self.pending.pop() {
            if self.latest[node] <= span.start {
                continue;
            }
            if node >= self.leaves {
                if node - self.leaves < behind {
                    visit(index(self.by_birth[node - self.leaves]));
                }
                continue;
            }
            // The first leaf below a node: born too late, all of them are.
            let right = 2 * node + 1;
            let first = right << (self.leaves.ilog2() - right.ilog2());
            if first - self.leaves < behind {
                self.pending.push(right);
            }
            self.pending.push(2 * node);
        }
    }
}
