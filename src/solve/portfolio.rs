//! Which solver runs when: cheap ones first, until one meets the bound.

use std::time::Instant;

use super::clock::Clock;
use super::first_fit::{self, Fit, Order};
use super::incumbent::Incumbent;
use super::model::Model;
use super::occupancy::Occupancy;
use super::shared::{Shared, improve_together};
use super::tools::Tools;
use super::{Stage, peel, sweep};
use crate::error::Result;

/// Putting back takes no more than so many times what the first answer takes.
const PUT_BACK_TIME: u32 = 4;
/// Buffers that take a while to be put back.
const MANY: usize = 1 << 13;

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
    clock.reserve(started.elapsed() * PUT_BACK_TIME);
    if best.is_proven() || clock.is_up() {
        return Ok(());
    }
    let Some(peeled) = peel::peel(model, model.bound, clock)? else { return Ok(()) };
    let core = model.restricted_to(&peeled.core)?;
    let mut core_best = best.for_core(&core, &peeled.core);
    clock.allow_for(core.items.len().saturating_sub(SMALL));
    let mut tools = Tools::of_worker(0);
    greedy(&core, &mut tools, &mut core_best, clock)?;
    let mut space = Occupancy::new(model.loads.len())?;
    let mut complete = |core_best: &Incumbent<'_>, best: &mut Incumbent<'_>| {
        let Some(offsets) = core_best.offsets() else { return Ok(()) };
        let started = Instant::now();
        let peak = core_best.peak();
        let offsets = peel::put_back(model, &peeled, offsets, peak, &mut space, clock)?;
        best.offer(offsets, Stage::PutBack);
        clock.reserve(2 * started.elapsed());
        Ok(())
    };
    if model.items.len() >= MANY {
        // After the deadline, this many may not be put back in time: some answer is safe, and
        // it is known how long that takes.
        complete(&core_best, best)?;
    }
    improve_together(&core, capacity, &mut tools, &mut core_best, clock)?;
    best.raise_bound(core_best.bound(), Stage::Exact);
    if core_best.peak() < best.peak() { complete(&core_best, best) } else { Ok(()) }
}

/// Returns whether a packing is proven to be the best one, or its peak is at most
/// `capacity`, or that is proven to be impossible.
fn is_decided(best: &Incumbent<'_>, capacity: Option<u64>) -> bool {
    best.is_proven() || capacity.is_some_and(|bytes| best.peak() <= bytes || best.bound() > bytes)
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
    if model.all_solid() && !model.has_pins() {
        best.offer(sweep::best_fit(model, best.limit(), clock)?, Stage::Sweep);
    }
    if best.offsets().is_none() {
        let Some(order) = first_fit::sorted(model, Order::Birth, clock)? else { return Ok(()) };
        let mut space = Occupancy::new(model.loads.len())?;
        let stop = |count, _: &_| clock.is_over_at(count);
        let limit = best.limit();
        let offsets = first_fit::place(model, &order, Fit::First, limit, &mut space, stop)?;
        best.offer(offsets, Stage::FirstFit);
    }
    Ok(())
}

/// Places the core greedily in a few orders.
fn greedy(
    core: &Model,
    tools: &mut Tools,
    best: &mut Incumbent<'_>,
    clock: &Clock<'_>,
) -> Result<()> {
    for _ in 0..if core.items.len() <= SMALL { PASSES } else { FEWER_PASSES } {
        if best.is_proven() || clock.is_up() {
            break;
        }
        tools.pass(core, best, clock)?;
    }
    Ok(())
}

/// Solid items up to which a core is searched as a whole.
const SMALL: usize = 2_000;
/// Greedy passes over such a core: exact search does better than more of them.
const PASSES: usize = 3;
/// Greedy passes over a larger core, before they take turns with what may do better.
const FEWER_PASSES: usize = 2;

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
    let goal = capacity.unwrap_or(0);
    while !is_decided(best, capacity) && !clock.is_up() {
        if let Some(shared) = shared {
            shared.exchange(best);
            if is_decided(best, capacity) {
                break;
            }
        }
        if core.items.len() > SMALL || !core.all_solid() {
            tools.take_turn(core, goal, best, clock)?;
        } else {
            tools.search(core, goal, best, clock)?;
        }
    }
    Ok(())
}
