//! What improves a packing, and whose turn it is.

use super::Stage;
use super::clock::Clock;
use super::critical::Critical;
use super::first_fit::{self, Fit, ORDERS};
use super::incumbent::Incumbent;
use super::model::Model;
use super::occupancy::Occupancy;
use super::repair::Repair;
use super::searches::Searches;
use crate::error::Result;

/// Greedy passes: each order with either fit.
const PASSES: usize = 2 * ORDERS.len();
/// Effort that a turn may always take.
const SHORT_TURN: usize = 1 << 22;

/// A way to improve a packing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Method {
    /// Searching for a packing of the critical part.
    Critical,
    /// Repairing the best packing.
    Repair,
    /// Another greedy pass.
    Pass,
    /// Searching for a packing of everything.
    Exact,
}

/// All methods, the cheapest first.
const METHODS: [Method; 4] = [Method::Repair, Method::Critical, Method::Pass, Method::Exact];

/// What improves packings of one core, made when it is needed.
#[derive(Debug, Default)]
pub(super) struct Tools {
    /// The number of the thread.
    worker: usize,
    space: Option<Occupancy>,
    repair: Option<Repair>,
    critical: Option<Critical>,
    exact: Option<Searches>,
    /// Whether exact search cannot deal with the core.
    too_large: bool,
    /// Greedy passes made so far.
    passes: usize,
    /// What the turns of each method have cost so far.
    spent: [usize; METHODS.len()],
}

impl Tools {
    /// Returns the tools of a thread.
    pub(super) fn of_worker(worker: usize) -> Self {
        // The first thread makes the passes.
        let passes = if worker == 0 { 0 } else { PASSES };
        Self { worker, passes, ..Self::default() }
    }

    /// Places everything greedily, in another order each time.
    pub(super) fn pass(
        &mut self,
        core: &Model,
        best: &mut Incumbent<'_>,
        clock: &Clock<'_>,
    ) -> Result<()> {
        let (fit, stage) = match self.passes / ORDERS.len() {
            0 => (Fit::First, Stage::FirstFit),
            _ => (Fit::Best, Stage::BestFit),
        };
        let order = ORDERS[self.passes % ORDERS.len()];
        self.passes += 1;
        let Some(order) = first_fit::sorted(core, order, clock)? else { return Ok(()) };
        let space = match &mut self.space {
            Some(space) => space,
            none => none.insert(Occupancy::new(core.loads.len())?),
        };
        let stop = |count, space: &_| first_fit::is_up_at(count, space, clock);
        let offsets = first_fit::place(core, &order, fit, best.limit(), space, stop)?;
        best.offer(offsets, stage);
        clock.spend(space.take_work());
        Ok(())
    }

    /// Tries to repair the best packing, for a peak of at least `goal`.
    pub(super) fn repair(
        &mut self,
        core: &Model,
        goal: u64,
        best: &mut Incumbent<'_>,
        clock: &Clock<'_>,
    ) -> Result<()> {
        let Some(start) = best.offsets() else {
            clock.tick(SHORT_TURN);
            return Ok(());
        };
        let repair = match &mut self.repair {
            Some(repair) => repair,
            none => none.insert(Repair::new(core, clock.seed())?),
        };
        best.offer(repair.improve(core, start, goal.max(best.bound()), clock), Stage::Repair);
        Ok(())
    }

    /// Returns the exact searches of the core, unless it is too large for them.
    pub(super) fn exact(
        &mut self,
        core: &Model,
        clock: &Clock<'_>,
    ) -> Result<Option<&mut Searches>> {
        if self.exact.is_none() && !self.too_large {
            self.exact = Searches::new(core, clock.seed(), self.worker)?;
            self.too_large = self.exact.is_none();
        }
        Ok(self.exact.as_mut())
    }

    /// Takes a turn with the method that has cost the least so far, for a peak of at least
    /// `goal`.
    ///
    /// A turn takes about as long as all turns before it together at most: nobody knows which
    /// method is the right one, and so all of them get their share, soon. One that lowers the
    /// peak counts for nothing, so that it is followed by another one.
    pub(super) fn take_turn(
        &mut self,
        core: &Model,
        goal: u64,
        best: &mut Incumbent<'_>,
        clock: &Clock<'_>,
    ) -> Result<()> {
        let can = |method: &usize| match METHODS[*method] {
            Method::Critical => core.all_solid(),
            Method::Repair => true,
            Method::Pass => self.passes < PASSES,
            Method::Exact => !core.all_solid() && !self.too_large,
        };
        let methods = (0..METHODS.len()).filter(can);
        let Some(method) = methods.min_by_key(|&method| self.spent[method]) else { return Ok(()) };
        let (before, peak) = (clock.effort(), best.peak());
        clock.begin_turn(self.spent.iter().sum::<usize>().max(SHORT_TURN));
        match METHODS[method] {
            Method::Critical => {
                let critical = match &mut self.critical {
                    Some(critical) => critical,
                    none => none.insert(Critical::new(core, self.worker)?),
                };
                critical.step(core, goal, best, clock)?;
            }
            Method::Repair => self.repair(core, goal, best, clock)?,
            Method::Pass => self.pass(core, best, clock)?,
            Method::Exact => {
                if let Some(exact) = self.exact(core, clock)? {
                    exact.step(core, goal, best, clock)?;
                }
            }
        }
        clock.end_turn();
        // Not every turn counts something by itself.
        clock.tick(core.items.len());
        if best.peak() == peak {
            self.spent[method] += clock.effort() - before;
        }
        Ok(())
    }
}
