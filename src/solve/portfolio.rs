//! Which solver runs when: cheap ones first, until one meets the bound.

use std::time::Instant;

use super::arith::index;
use super::clock::{Clock, ITEMS_PER_LOOK};
use super::critical::Critical;
use super::first_fit::{self, Fit, ORDERS, Order};
use super::incumbent::Incumbent;
use super::model::Model;
use super::occupancy::Occupancy;
use super::repair::Repair;
use super::searches::Searches;
use super::shared::{Shared, improve_together};
use super::sort::sort_by_key;
use super::{Stage, peel, sweep};
use crate::error::Result;

/// Putting back takes no more than so many times what the first answer takes.
const PUT_BACK_TIME: u32 = 8;

/// Packs one space as well as the clock allows, into `best`.
///
/// Cheap solvers go for the lower bound; what costs more stops as soon as the peak
/// is at most `capacity`, if there is one.
pub(super) fn run(
    model: &Model,
    hints: &[Option<u64>],
    capacity: Option<u64>,
    best: &mut Incumbent<'_>,
    clock: &Clock<'_>,
) -> Result<()> {
    let started = Instant::now();
    first_answer(model, hints, best, clock)?;
    if best.is_proven() || clock.is_over() {
        return Ok(());
    }
    clock.reserve(started.elapsed() * PUT_BACK_TIME);
    let Some(mut peeled) = peel::peel(model, model.bound, clock)? else { return Ok(()) };
    // From here on nothing depends on the order in which the caller named the buffers.
    let key = |&item: &u32| {
        let it = &model.items[index(item)];
        (it.span.start, it.span.end, it.size, it.mask, it.pad, it.pin, item)
    };
    if !sort_by_key(&mut peeled.core, key, clock) {
        return Ok(());
    }
    let core = model.restricted_to(&peeled.core)?;
    let mut core_best = best.for_core(&core);
    let mut tools = Tools::default();
    greedy(&core, capacity, &mut tools, &mut core_best, clock)?;
    let complete = |core_best: &Incumbent<'_>, best: &mut Incumbent<'_>| {
        best.raise_bound(core_best.bound(), Stage::Exact);
        let Some(offsets) = core_best.offsets().filter(|_| core_best.peak() < best.peak()) else {
            return Ok(());
        };
        let mut space = Occupancy::new(model.loads.len())?;
        let started = Instant::now();
        let peak = core_best.peak();
        let offsets = peel::put_back(model, &peeled, offsets, peak, &mut space, clock)?;
        best.offer(offsets, Stage::PutBack);
        clock.reserve(2 * started.elapsed());
        Ok(())
    };
    if model.items.len() >= ITEMS_PER_LOOK {
        // After the deadline, this many may not be put back in time: some answer is safe.
        complete(&core_best, best)?;
    }
    improve_together(&core, capacity, &mut tools, &mut core_best, clock)?;
    complete(&core_best, best)
}

/// Returns whether a packing is proven to be the best one, or its peak is at most
/// `capacity`, or that is proven to be impossible.
fn is_decided(best: &Incumbent<'_>, capacity: Option<u64>) -> bool {
    best.is_proven() || capacity.is_some_and(|bytes| best.peak() <= bytes || best.bound() > bytes)
}

/// What improves packings of one model, made when it is needed.
#[derive(Debug, Default)]
pub(super) struct Tools {
    /// The number of the thread.
    worker: usize,
    repair: Option<Repair>,
    critical: Option<Critical>,
}

impl Tools {
    /// Returns the tools of a thread.
    pub(super) fn of_worker(worker: usize) -> Self {
        Self { worker, ..Self::default() }
    }

    /// Returns what repairs packings of `core`.
    fn repair(&mut self, core: &Model, clock: &Clock<'_>) -> Result<&mut Repair> {
        if self.repair.is_none() {
            self.repair = Some(Repair::new(core, clock.seed())?);
        }
        Ok(self.repair.as_mut().expect("it was made above"))
    }

    /// Returns what packs the critical part of `core`, unless it is small enough to be
    /// searched as a whole, or no search can deal with it.
    fn critical(&mut self, core: &Model) -> Result<Option<&mut Critical>> {
        if core.items.len() <= SMALL || !core.all_solid() {
            return Ok(None);
        }
        if self.critical.is_none() {
            self.critical = Some(Critical::new(core, self.worker)?);
        }
        Ok(self.critical.as_mut())
    }
}

/// Finds a valid answer as fast as possible.
///
/// What limits the search does not limit this, unless the caller wants an answer now.
fn first_answer(
    model: &Model,
    hints: &[Option<u64>],
    best: &mut Incumbent<'_>,
    clock: &Clock<'_>,
) -> Result<()> {
    if !hints.is_empty() {
        let mut space = Occupancy::new(model.loads.len())?;
        let offsets = first_fit::place_hinted(model, hints, best.limit(), &mut space, clock)?;
        best.offer(offsets, Stage::Hints);
    }
    if model.all_solid() && model.items.iter().all(|item| item.pin.is_none()) {
        best.offer(sweep::best_fit(model, best.limit(), clock)?, Stage::Sweep);
    }
    if best.offsets().is_none() {
        let Some(order) = first_fit::sorted(model, Order::Birth, clock)? else { return Ok(()) };
        let mut space = Occupancy::new(model.loads.len())?;
        let stop = |count| clock.is_over_at(count);
        let limit = best.limit();
        let offsets = first_fit::place(model, &order, &[], Fit::First, limit, &mut space, stop)?;
        best.offer(offsets, Stage::FirstFit);
    }
    Ok(())
}

/// Places the core greedily in several orders.
///
/// After a few, of a large core the critical part is searched, and repair has a short turn:
/// they improve most packings faster than the next order does.
fn greedy(
    core: &Model,
    capacity: Option<u64>,
    tools: &mut Tools,
    best: &mut Incumbent<'_>,
    clock: &Clock<'_>,
) -> Result<()> {
    let mut space = Occupancy::new(core.loads.len())?;
    let small = core.items.len() <= SMALL;
    let fits = [(Fit::First, Stage::FirstFit), (Fit::Best, Stage::BestFit)];
    for (count, ((fit, stage), order)) in
        fits.into_iter().flat_map(|fit| ORDERS.map(|order| (fit, order))).enumerate()
    {
        if best.is_proven() || clock.is_up() {
            break;
        }
        let Some(order) = first_fit::sorted(core, order, clock)? else { break };
        let limit = best.limit();
        let stop = |count| count % 64 == 63 && clock.is_up();
        let offsets = first_fit::place(core, &order, &[], fit, limit, &mut space, stop)?;
        best.offer(offsets, stage);
        if small && fit == Fit::Best {
            break; // exact search does better than the rest
        }
        if !small && count % 3 == 2 {
            while let Some(critical) = tools.critical(core)?
                && critical.is_hopeful()
                && !is_decided(best, capacity)
                && !clock.is_up()
            {
                critical.step(core, best, clock)?;
            }
            for _ in 0..REPAIRS {
                if best.is_proven() || clock.is_up() {
                    break;
                }
                let Some(start) = best.offsets() else { break };
                let repair = tools.repair(core, clock)?;
                let better = repair.improve(core, start, best.bound(), clock);
                best.offer(better, Stage::Repair);
            }
        }
    }
    Ok(())
}

/// Attempts in a short turn of repair.
const REPAIRS: u32 = 6;
/// Items up to which exact search comes first; above, repair does.
const SMALL: usize = 2_000;

/// Improves the packing of a core until its peak is at most `capacity`, or proven to be
/// the least one, or until that is proven to be impossible.
///
/// What other threads know is `shared`.
pub(super) fn improve(
    core: &Model,
    capacity: Option<u64>,
    tools: &mut Tools,
    best: &mut Incumbent<'_>,
    clock: &Clock<'_>,
    shared: Option<&Shared>,
) -> Result<()> {
    if is_decided(best, capacity) {
        return Ok(());
    }
    let small = core.items.len() <= SMALL;
    // What is larger has its critical part searched.
    let solid = core.all_solid();
    let mut exact =
        if small || !solid { Searches::new(core, clock.seed(), tools.worker)? } else { None };
    let mut round = 0_u32;
    while !is_decided(best, capacity) && !clock.is_up() {
        round += 1;
        if let Some(shared) = shared {
            shared.exchange(best);
            if is_decided(best, capacity) {
                break;
            }
        }
        if let Some(exact) = &mut exact
            && (if small {
                !exact.is_stuck() || !round.is_multiple_of(if capacity.is_none() { 4 } else { 16 })
            } else {
                tools.repair(core, clock)?.is_stuck()
            })
        {
            exact.step(core, capacity.unwrap_or(0), best, clock)?;
            tools.repair(core, clock)?.encourage();
            continue;
        }
        if tools.repair(core, clock)?.is_stuck()
            && let Some(critical) = tools.critical(core)?
            && best.peak() < u64::MAX
        {
            critical.step(core, best, clock)?;
            tools.repair(core, clock)?.encourage();
            continue;
        }
        let goal = best.bound().max(capacity.unwrap_or(0));
        // Without an answer of its own, the core starts with one above the incumbent.
        let start = match best.offsets() {
            Some(offsets) => offsets.to_vec(),
            None => match any_packing(core, clock)? {
                Some(offsets) => offsets,
                None => break,
            },
        };
        let better = tools.repair(core, clock)?.improve(core, &start, goal, clock);
        best.offer(better, Stage::Repair);
    }
    Ok(())
}

/// Returns some packing of the core, for want of a good one.
fn any_packing(core: &Model, clock: &Clock<'_>) -> Result<Option<Vec<u64>>> {
    let Some(order) = first_fit::sorted(core, Order::SizeRootLength, clock)? else {
        return Ok(None);
    };
    let mut space = Occupancy::new(core.loads.len())?;
    let stop = |count| count % 64 == 63 && clock.is_up();
    first_fit::place(core, &order, &[], Fit::First, u64::MAX, &mut space, stop)
}
