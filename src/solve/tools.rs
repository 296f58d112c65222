//! What improves a packing, and whose turn it is.

use super::Stage;
use super::clock::Clock;
use super::critical::Critical;
use super::descent::Descent;
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

/// What others may cost when a core is searched as a whole, as a part of what that costs.
const PART: usize = 12;
/// The same if it is to fit a capacity, which is all or nothing.
const SMALL_PART: usize = 48;
/// A turn that leaves out one in so many of the bytes above the bound counts for nothing.
const WORTH_ANOTHER: u64 = 10;

/// A way to improve a packing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Method {
    /// Searching for a packing of the critical part.
    Critical,
    /// Repairing the best packing.
    Repair,
    /// Another greedy pass.
    Pass,
    /// Filling the lowest place first.
    Descent,
    /// Searching for a packing of everything.
    Exact,
}

/// All methods; of those that have cost as little, the first one is next.
const METHODS: [Method; 5] =
    [Method::Repair, Method::Critical, Method::Pass, Method::Descent, Method::Exact];

impl Method {
    /// Returns its position among all methods.
    fn place(self) -> usize {
        METHODS.iter().position(|&method| method == self).unwrap_or(0)
    }
}

/// What improves packings of one core, made when it is needed.
#[derive(Debug, Default)]
pub(super) struct Tools {
    /// The number of the thread.
    worker: usize,
    space: Option<Occupancy>,
    repair: Option<Repair>,
    critical: Option<Critical>,
    descent: Option<Descent>,
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
        let space = made(&mut self.space, || Occupancy::new(core.loads.len()))?;
        let stop = |count, space: &_| first_fit::is_up_at(count, space, clock);
        let offsets = first_fit::place(core, &order, fit, best.limit(), space, stop)?;
        best.offer(offsets, stage);
        clock.spend(space.take_work());
        Ok(())
    }

    /// Fills the lowest place first, with another taste each time; the items are solid, without pins.
    fn descend(&mut self, core: &Model, best: &mut Incumbent<'_>, clock: &Clock<'_>) -> Result<()> {
        let descent = made(&mut self.descent, || Descent::new(core, clock.seed()))?;
        best.offer(descent.run(core, best.limit(), clock)?, Stage::Descent);
        Ok(())
    }

    /// Tries to repair the best packing, for a peak of at least `goal`.
    fn repair(
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
        let repair = made(&mut self.repair, || Repair::new(core, clock.seed()))?;
        best.offer(repair.improve(core, start, goal.max(best.bound()), clock), Stage::Repair);
        Ok(())
    }

    /// Returns the exact searches of the core, unless it is too large for them.
    fn exact(&mut self, core: &Model, clock: &Clock<'_>) -> Result<Option<&mut Searches>> {
        if self.exact.is_none() && !self.too_large {
            self.exact = Searches::new(core, clock.seed(), self.worker)?;
            self.too_large = self.exact.is_none();
        }
        Ok(self.exact.as_mut())
    }

    /// Searches a core that is small enough for it, and now and then tries something else.
    ///
    /// Searches find what nothing else does, or find nothing: what costs a fraction of their
    /// effort is not worth less because of that.
    pub(super) fn search(
        &mut self,
        core: &Model,
        goal: u64,
        best: &mut Incumbent<'_>,
        clock: &Clock<'_>,
    ) -> Result<()> {
        if self.exact(core, clock)?.is_none() {
            return self.take_turn(core, goal, best, clock);
        }
        let part = self.spent(Method::Exact) / if goal == 0 { PART } else { SMALL_PART };
        let others = [Method::Repair, Method::Descent].into_iter();
        let due = others.filter(|&it| self.can(it, core) && self.spent(it) < part);
        let method = due.min_by_key(|&it| self.spent(it)).filter(|_| part >= SHORT_TURN);
        let method = method.unwrap_or(Method::Exact);
        let before = clock.effort();
        if method != Method::Exact {
            clock.begin_turn(part);
        }
        self.run(method, core, goal, best, clock)?;
        clock.end_turn();
        clock.tick(core.items.len());
        self.spent[method.place()] += clock.effort() - before;
        Ok(())
    }

    /// Takes a turn with the method that has cost the least so far, for a peak of at least
    /// `goal`.
    ///
    /// A turn takes about as long as all turns before it together at most: nobody knows which
    /// method is the right one, and so all of them get their share, soon. One that lowers the
    /// peak by much counts for nothing, so that it is followed by another one.
    pub(super) fn take_turn(
        &mut self,
        core: &Model,
        goal: u64,
        best: &mut Incumbent<'_>,
        clock: &Clock<'_>,
    ) -> Result<()> {
        // Solid items that are too many for searches of their own are searched in part.
        let of_use = |&method: &Method| {
            self.can(method, core) && !(method == Method::Exact && core.all_solid())
        };
        let methods = METHODS.into_iter().filter(of_use);
        let Some(method) = methods.min_by_key(|&method| self.spent(method)) else { return Ok(()) };
        let (before, peak) = (clock.effort(), best.peak());
        clock.begin_turn(self.spent.iter().sum::<usize>().max(SHORT_TURN));
        self.run(method, core, goal, best, clock)?;
        clock.end_turn();
        // Not every turn counts something by itself.
        clock.tick(core.items.len());
        if WORTH_ANOTHER.saturating_mul(peak - best.peak()) < peak.saturating_sub(best.bound()) {
            self.spent[method.place()] += clock.effort() - before;
        }
        Ok(())
    }

    /// Returns what the turns of a method have cost so far.
    fn spent(&self, method: Method) -> usize {
        self.spent[method.place()]
    }

    /// Returns whether a method is of use for a core, and has not done all that it can.
    fn can(&self, method: Method, core: &Model) -> bool {
        match method {
            Method::Critical => core.all_solid(),
            Method::Repair => true,
            Method::Pass => self.passes < PASSES,
            Method::Descent => core.all_solid() && !core.has_pins(),
            Method::Exact => !self.too_large,
        }
    }

    /// Lets a method work until it is done or the turn is over.
    fn run(
        &mut self,
        method: Method,
        core: &Model,
        goal: u64,
        best: &mut Incumbent<'_>,
        clock: &Clock<'_>,
    ) -> Result<()> {
        match method {
            Method::Critical => {
                let repair = made(&mut self.repair, || Repair::new(core, clock.seed()))?;
                let critical = made(&mut self.critical, || Critical::new(core, self.worker))?;
                critical.step(core, goal, best, repair, clock)
            }
            Method::Repair => self.repair(core, goal, best, clock),
            Method::Pass => self.pass(core, best, clock),
            Method::Descent => self.descend(core, best, clock),
            Method::Exact => match self.exact(core, clock)? {
                Some(exact) => exact.step(core, goal, best, clock),
                None => Ok(()),
            },
        }
    }
}

/// Returns a tool, which is made when it is needed for the first time.
fn made<T>(tool: &mut Option<T>, make: impl FnOnce() -> Result<T>) -> Result<&mut T> {
    match tool {
        Some(tool) => Ok(tool),
        none => Ok(none.insert(make()?)),
    }
}
