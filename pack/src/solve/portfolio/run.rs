//! The order of methods: cheap methods first, until the peak meets the bound.

use alloc::vec::Vec;
use core::time::Duration;

use super::grown::Whole;
use super::incumbent::Incumbent;
use super::methods::Portfolio;
use crate::base::{Instant, Result};
use crate::solve::assume::handovers;
use crate::solve::budget::Stage;
use crate::solve::greedy::first_fit::{Fit, Order};
use crate::solve::greedy::kernelize::{self, Kernel};
use crate::solve::greedy::occupancy::Occupancy;
use crate::solve::greedy::{first_fit, sweep};
use crate::solve::model::Model;
use crate::solve::model::arith::index;
use crate::solve::model::clock::Clock;
use crate::solve::tuning;

/// Packs a space into `best`, as well as the clock allows.
///
/// The order is: first answer, kernelization, greedy passes over the core, then turns of methods.
/// Greedy methods aim at the lower bound. Methods that take turns stop at a peak of at most
/// `capacity`, if given.
///
/// # References
///
/// An algorithm portfolio (Huberman, Lukose and Hogg, "An economics approach to hard computational
/// problems", Science 275, 1997). Turns by least cost so far are dovetailing.
pub(crate) fn run(
    model: &Model,
    hints: &[Option<u64>],
    capacity: Option<u64>,
    best: &mut Incumbent<'_>,
    clock: &Clock<'_>,
) -> Result<()> {
    let started = Instant::now();
    let is_fitted = first_answer(model, hints, best, clock)?;
    clock.reserve(started.elapsed() * tuning::portfolio::PUT_BACK_TIME);
    if best.is_proven() || clock.is_up() {
        return Ok(());
    }
    if !model.all_solid() && !is_fitted {
        // The first answer had to be early; here there is time for a better answer.
        fit_by_birth(model, best, clock)?;
    }
    let kernel = if clock.methods().kernelization {
        kernelize::kernelize(model, model.bound, clock)?
    } else {
        Some(Kernel::everything(model)?)
    };
    let Some(kernel) = kernel else { return Ok(()) };
    if kernel.core.len() == model.items.len() {
        clock.reserve(Duration::ZERO); // nothing will have to be put back
    }
    let core = model.restricted_to(&kernel.core)?;
    let mut core_best = best.for_core(&core, &kernel.core);
    clock.allow_for(core.items.len().saturating_sub(tuning::portfolio::SMALL_CORE));
    if core.is_rigid() {
        clock.allow_for_rigid(core.items.len());
    }
    let whole = Whole { model, core: &kernel.core };
    let mut portfolio = Portfolio::new(whole, clock);
    hand_over(whole, &mut core_best, clock)?;
    greedy(&core, &mut portfolio, &mut core_best, clock)?;
    let mut space = Occupancy::new(model.loads.len())?;
    let mut complete = |core_best: &Incumbent<'_>, best: &mut Incumbent<'_>| {
        let Some(offsets) = core_best.offsets() else { return Ok(()) };
        let started = Instant::now();
        let peak = core_best.peak();
        let offsets = kernelize::put_back(model, &kernel, offsets, peak, &mut space, clock)?;
        best.offer(offsets, Stage::PutBack);
        clock.reserve(started.elapsed() * tuning::portfolio::PUT_BACK_TIME_AGAIN);
        Ok(())
    };
    if model.items.len() >= tuning::portfolio::EARLY_PUT_BACK {
        // Past the deadline, so many items may not be placed in time. This call makes a complete
        // packing, and measures the time that another call takes.
        complete(&core_best, best)?;
    }
    improve(&core, capacity, &mut portfolio, &mut core_best, clock)?;
    best.raise_bound(core_best.bound(), Stage::Exact);
    if core_best.peak() < best.peak() { complete(&core_best, best) } else { Ok(()) }
}

/// Returns whether a space's search is over: the packing is optimal, the peak is at most
/// `capacity`, or no packing fits `capacity`.
fn is_decided(best: &Incumbent<'_>, capacity: Option<u64>) -> bool {
    best.is_proven() || capacity.is_some_and(|bytes| best.peak() <= bytes || best.bound() > bytes)
}

/// Finds a valid answer as fast as possible, and returns whether first fit was needed.
///
/// Node limits do not apply; a passed deadline or a cancellation does.
fn first_answer(
    model: &Model,
    hints: &[Option<u64>],
    best: &mut Incumbent<'_>,
    clock: &Clock<'_>,
) -> Result<bool> {
    if !hints.is_empty() && clock.methods().hints {
        let mut space = Occupancy::new(model.loads.len())?;
        let offsets = first_fit::place_hinted(model, hints, best.limit(), &mut space, clock)?;
        best.offer(offsets, Stage::Hints);
    }
    // Items with windows count as solid here: the packing wastes the windows, and is found soon.
    if clock.methods().sweep && !model.has_pins() {
        best.offer(sweep::best_fit(model, best.limit(), clock)?, Stage::Sweep);
    }
    let most = model.bound.saturating_mul(tuning::greedy::SWEPT_PERCENT) / 100;
    let is_poor = best.offsets().is_none() || !model.all_solid() && best.peak() > most;
    if is_poor {
        fit_by_birth(model, best, clock)?;
    }
    Ok(is_poor)
}

/// Places all items by first fit in birth order.
fn fit_by_birth(model: &Model, best: &mut Incumbent<'_>, clock: &Clock<'_>) -> Result<()> {
    let Some(order) = first_fit::sorted(model, Order::Birth, clock)? else { return Ok(()) };
    let mut space = Occupancy::new(model.loads.len())?;
    let is_over = |count| clock.is_over_at(count);
    let offsets = if best.offsets().is_none() {
        first_fit::place_or_stack(model, &order, best.limit(), &mut space, is_over)?
    } else {
        let stop = |count, _: &_| is_over(count);
        first_fit::place(model, &order, Fit::First, best.limit(), &mut space, stop)?
    };
    best.offer(offsets, Stage::FirstFit);
    Ok(())
}

/// Packs all items by handovers, if sizes and times are all that is given, and keeps the core.
fn hand_over(whole: Whole<'_>, best: &mut Incumbent<'_>, clock: &Clock<'_>) -> Result<()> {
    let Whole { model, core } = whole;
    let is_small = model.items.len() <= tuning::portfolio::LARGE_CORE;
    if is_small && model.is_plain() && clock.methods().handovers {
        let offsets = handovers::packed(model, clock)?;
        let of_core = |all: Vec<u64>| core.iter().map(|&item| all[index(item)]).collect();
        best.offer(offsets.map(of_core), Stage::Handovers);
    }
    Ok(())
}

/// Places the core greedily in a few orders.
fn greedy(
    core: &Model,
    portfolio: &mut Portfolio<'_>,
    best: &mut Incumbent<'_>,
    clock: &Clock<'_>,
) -> Result<()> {
    let is_small = core.items.len() <= tuning::portfolio::SMALL_CORE;
    // Sweeps from the peak are better at large solid cores, and a hundred times as fast.
    let is_swept = core.all_solid() && !core.has_pins() && clock.methods().from_peak;
    let passes = match (is_small, is_swept) {
        (true, _) => tuning::portfolio::PASSES_SMALL,
        (false, true) => 0,
        (false, false) => tuning::portfolio::PASSES_LARGE,
    };
    for _ in 0..passes {
        if best.is_proven() || clock.is_up() {
            break;
        }
        portfolio.pass(core, best, clock)?;
    }
    Ok(())
}

/// Improves a core's packing until the peak is at most `capacity`, or proven optimal, or until
/// `capacity` is proven impossible.
///
/// Large and long cores are searched by all methods in turn, small cores as a whole. A long core
/// belongs to a deep network: items meet few other items, and exact search would have to decide all
/// items at once, although only the few sections with large loads matter.
pub(crate) fn improve(
    core: &Model,
    capacity: Option<u64>,
    portfolio: &mut Portfolio<'_>,
    best: &mut Incumbent<'_>,
    clock: &Clock<'_>,
) -> Result<()> {
    let goal = capacity.unwrap_or(0);
    let is_large = core.items.len() > tuning::portfolio::SMALL_CORE;
    let is_long = core.items.len() >= tuning::portfolio::LONG_ITEMS
        && core.all_solid()
        && core.is_long(tuning::portfolio::LONG_RATIO);
    let mut end = usize::MAX;
    if is_long && clock.is_unlimited() {
        let effort = core.items.len().saturating_mul(tuning::limits::LONG_EFFORT_PER_ITEM);
        end = clock.effort().saturating_add(effort);
    }
    while !is_decided(best, capacity) && !clock.is_up() && clock.effort() < end {
        let can_go_on = if is_large || is_long || !core.all_solid() {
            let most = if end == usize::MAX { end } else { end - clock.effort() };
            portfolio.take_turn(core, goal, most, best, clock)?
        } else {
            portfolio.search(core, goal, best, clock)?
        };
        if !can_go_on {
            break;
        }
    }
    Ok(())
}
