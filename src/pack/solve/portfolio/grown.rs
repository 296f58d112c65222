//! Searches of a core whose items have grown a little, so that their sizes add up.

use super::incumbent::Incumbent;
use super::searches::Searches;
use crate::base::Result;
use crate::pack::solve::assume::grow::grown;
use crate::pack::solve::budget::Stage;
use crate::pack::solve::model::Model;
use crate::pack::solve::model::arith::index;
use crate::pack::solve::model::clock::Clock;

/// All items of a space, and those of them that are the core.
///
/// Sums add up over all items. Without those that kernelization took out, they would not.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Whole<'m> {
    pub(crate) model: &'m Model,
    /// The items of the core, ascending.
    pub(crate) core: &'m [u32],
}

/// Exact searches of grown items, for one tolerance after the other.
///
/// Growth raises the load, so the searches of a tolerance end where the best packing of the items
/// themselves needs no more bytes than the grown items can do with.
#[derive(Debug)]
pub(crate) struct GrownSizes<'m> {
    whole: Whole<'m>,
    worker: usize,
    /// Tolerances that were used.
    used: usize,
    current: Option<Grown>,
}

/// Grown items, and what is known of them.
#[derive(Debug)]
struct Grown {
    model: Model,
    searches: Searches,
    peak: u64,
    bound: u64,
}

impl<'m> GrownSizes<'m> {
    pub(crate) const fn new(whole: Whole<'m>, worker: usize) -> Self {
        Self { whole, worker, used: 0, current: None }
    }

    /// Returns whether there is something left to try.
    pub(crate) fn can(&self, clock: &Clock<'_>) -> bool {
        self.current.is_some() || self.used < clock.tuning().assume.growth_tolerances.len()
    }

    /// Runs one search, for a peak of at least `goal` bytes.
    pub(crate) fn step(
        &mut self,
        goal: u64,
        best: &mut Incumbent<'_>,
        clock: &Clock<'_>,
    ) -> Result<()> {
        if self.current.is_none() {
            let tolerance = clock.tuning().assume.growth_tolerances.get(self.used);
            self.used += 1;
            if let Some(&tolerance) = tolerance {
                self.current = Grown::new(self.whole.model, tolerance, self.worker, clock)?;
            }
        }
        let Some(current) = &mut self.current else { return Ok(()) };
        if current.bound < best.peak() && current.peak > current.bound {
            let mut of_grown = best.of_grown(&current.model, current.peak, current.bound, clock);
            current.searches.step(&current.model, goal, &mut of_grown, clock)?;
            (current.peak, current.bound) = (of_grown.peak(), of_grown.bound());
            let core = self.whole.core;
            let of_core = |all: &[u64]| core.iter().map(|&item| all[index(item)]).collect();
            let offsets = of_grown.offsets().map(of_core);
            best.offer(offsets, Stage::Grown);
        } else {
            self.current = None;
        }
        Ok(())
    }
}

impl Grown {
    fn new(
        items: &Model,
        tolerance: u64,
        worker: usize,
        clock: &Clock<'_>,
    ) -> Result<Option<Self>> {
        let is_small = items.items.len() <= clock.tuning().portfolio.small_core;
        if !is_small || !items.is_plain() {
            return Ok(None);
        }
        let Some(model) = grown(items, tolerance, clock)? else { return Ok(None) };
        let searches = Searches::new(&model, worker, clock)?;
        let bound = model.bound;
        Ok(searches.map(|searches| Self { model, searches, peak: u64::MAX, bound }))
    }
}
