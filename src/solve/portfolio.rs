//! Which solver runs when: cheap ones first, until one meets the bound.

use super::clock::Clock;
use super::exact::{Outcome, Restarts, Turns};
use super::first_fit::{self, Fit, ORDERS, Order};
use super::incumbent::Incumbent;
use super::model::Model;
use super::occupancy::Occupancy;
use super::{Stage, peel, sweep};
use crate::error::Result;

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
    first_answer(model, hints, best)?;
    if best.is_proven() {
        return Ok(());
    }
    let peeled = peel::peel(model, model.bound)?;
    let core = model.restricted_to(&peeled.core)?;
    let mut core_best = best.for_core(&core);
    greedy(&core, &mut core_best, clock)?;
    if core.all_solid() {
        search(&core, capacity, &mut core_best, clock)?;
    }
    best.raise_bound(core_best.bound(), Stage::Exact);
    if let Some(core_offsets) = core_best.offsets() {
        let mut space = Occupancy::new(model.loads.len())?;
        let offsets = peel::put_back(model, &peeled, core_offsets, &mut space)?;
        best.offer(Some(offsets), Stage::PutBack);
    }
    Ok(())
}

/// Finds a valid answer as fast as possible.
fn first_answer(model: &Model, hints: &[Option<u64>], best: &mut Incumbent<'_>) -> Result<()> {
    // Whatever the deadline, there is to be an answer: these passes have no clock.
    if hints.iter().any(Option::is_some) {
        let mut space = Occupancy::new(model.loads.len())?;
        let offsets = first_fit::place_hinted(model, hints, best.limit(), &mut space)?;
        best.offer(offsets, Stage::Hints);
    }
    if model.all_solid() && model.items.iter().all(|item| item.pin.is_none()) {
        best.offer(sweep::best_fit(model, best.limit())?, Stage::Sweep);
    }
    if best.offsets().is_none() {
        let order = first_fit::sorted(model, Order::Birth)?;
        let mut space = Occupancy::new(model.loads.len())?;
        let offsets = first_fit::place(model, &order, Fit::First, best.limit(), &mut space, None)?;
        best.offer(offsets, Stage::FirstFit);
    }
    Ok(())
}

/// Places the core greedily in several orders.
fn greedy(core: &Model, best: &mut Incumbent<'_>, clock: &Clock<'_>) -> Result<()> {
    let mut space = Occupancy::new(core.loads.len())?;
    for (fit, stage) in [(Fit::First, Stage::FirstFit), (Fit::Best, Stage::BestFit)] {
        for order in ORDERS {
            if best.is_proven() || clock.is_up() {
                return Ok(());
            }
            let order = first_fit::sorted(core, order)?;
            let limit = best.limit();
            let offsets = first_fit::place(core, &order, fit, limit, &mut space, Some(clock))?;
            best.offer(offsets, stage);
        }
    }
    Ok(())
}

/// Searches the core until its peak is at most `capacity`, or proven to be the least
/// one, or until that is proven to be impossible.
///
/// Goes for the lowest peak that is not excluded, and when that proves to be hard also
/// for peaks halfway between it and the best one.
fn search(
    core: &Model,
    capacity: Option<u64>,
    best: &mut Incumbent<'_>,
    clock: &Clock<'_>,
) -> Result<()> {
    let Some(mut restarts) = Restarts::new(core, clock.seed())? else { return Ok(()) };
    let mut lowest = Turns::new(core);
    let mut halfway = Turns::new(core);
    let mut step = 0_u64;
    let decided = |best: &Incumbent<'_>| {
        best.is_proven()
            || capacity.is_some_and(|bytes| best.peak() <= bytes || best.bound() > bytes)
    };
    while !decided(best) && !clock.is_up() {
        let low = best.bound().max(capacity.unwrap_or(0));
        let middle = core.peak_from(low + (best.peak() - low) / 2);
        step += 1;
        let to_middle = lowest.all_tried() && step.is_multiple_of(2);
        let (target, turns) = if to_middle && low < middle && middle < best.peak() {
            (middle, &mut halfway)
        } else {
            (low, &mut lowest)
        };
        match restarts.step(core, target, turns, clock) {
            Outcome::Found => {
                best.offer(Some(restarts.offsets(core)?), Stage::Exact);
                halfway = Turns::new(core);
            }
            Outcome::Impossible => {
                best.raise_bound(core.peak_from(target + 1), Stage::Exact);
                lowest = Turns::new(core);
            }
            Outcome::Undecided => {}
        }
    }
    Ok(())
}
