//! Which solver runs when: cheap ones first, until one meets the bound.

use super::clock::Clock;
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
