//! Which solver runs when: cheap ones first, until one meets the bound.

use std::time::Duration;

use super::arith::{index, number};
use super::clock::Clock;
use super::exact::{Outcome, Restarts, Turns};
use super::first_fit::{self, Fit, ORDERS, Order};
use super::incumbent::Incumbent;
use super::model::Model;
use super::occupancy::Occupancy;
use super::repair::Repair;
use super::rigid::Rigid;
use super::shared::{Shared, improve_together};
use super::{Stage, peel, sweep};
use crate::error::Result;

/// What putting back takes for each item, generously.
const PUT_BACK_TIME: Duration = Duration::from_nanos(1_200);

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
    let mut peeled = peel::peel(model, model.bound)?;
    // From here on nothing depends on the order in which the caller named the buffers.
    peeled.core.sort_unstable_by_key(|&item| {
        let it = &model.items[index(item)];
        (it.span.start, it.span.end, it.size, it.mask, it.pad, it.pin, item)
    });
    clock.reserve(PUT_BACK_TIME.saturating_mul(number(model.items.len())));
    let core = model.restricted_to(&peeled.core)?;
    let mut core_best = best.for_core(&core);
    let mut repair = Repair::new(&core, clock.seed())?;
    greedy(&core, &mut repair, &mut core_best, clock)?;
    improve_together(&core, capacity, &mut repair, &mut core_best, clock)?;
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
///
/// After a few, repair has a short turn: it improves most packings faster than the
/// next order does.
fn greedy(
    core: &Model,
    repair: &mut Repair,
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
        let order = first_fit::sorted(core, order)?;
        let limit = best.limit();
        let offsets = first_fit::place(core, &order, fit, limit, &mut space, Some(clock))?;
        best.offer(offsets, stage);
        if small && fit == Fit::Best {
            break; // exact search does better than the rest
        }
        if !small && count % 3 == 1 {
            for _ in 0..REPAIRS {
                if best.is_proven() || clock.is_up() {
                    break;
                }
                let Some(start) = best.offsets() else { break };
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
/// `worker` is the number of the thread; what others know is `shared`.
pub(super) fn improve(
    core: &Model,
    capacity: Option<u64>,
    repair: &mut Repair,
    best: &mut Incumbent<'_>,
    clock: &Clock<'_>,
    worker: usize,
    shared: Option<&Shared>,
) -> Result<()> {
    let decided = |best: &Incumbent<'_>| {
        best.is_proven()
            || capacity.is_some_and(|bytes| best.peak() <= bytes || best.bound() > bytes)
    };
    if decided(best) {
        return Ok(());
    }
    let small = core.items.len() <= SMALL;
    let mut exact = Exact::new(core, clock.seed(), worker)?;
    let mut round = 0_u32;
    while !decided(best) && !clock.is_up() {
        round += 1;
        if let Some(shared) = shared {
            shared.exchange(best);
            if decided(best) {
                break;
            }
        }
        if let Some(exact) = &mut exact
            && (if small {
                !exact.is_stuck(capacity.unwrap_or(0))
                    || !round.is_multiple_of(if capacity.is_none() { 4 } else { 16 })
            } else {
                repair.is_stuck()
            })
        {
            exact.step(core, capacity.unwrap_or(0), best, clock)?;
            repair.encourage();
            continue;
        }
        let goal = best.bound().max(capacity.unwrap_or(0));
        // Without an answer of its own, the core starts with one above the incumbent.
        let start = match best.offsets() {
            Some(offsets) => offsets.to_vec(),
            None => any_packing(core)?,
        };
        let better = repair.improve(core, &start, goal, clock);
        best.offer(better, Stage::Repair);
    }
    Ok(())
}

/// Returns some packing of the core, for want of a good one.
fn any_packing(core: &Model) -> Result<Vec<u64>> {
    let order = first_fit::sorted(core, Order::SizeRootLength)?;
    let mut space = Occupancy::new(core.loads.len())?;
    let offsets = first_fit::place(core, &order, Fit::First, u64::MAX, &mut space, None)?;
    Ok(offsets.unwrap_or_default())
}

/// Exact searches of a core for one target after the other.
///
/// They go for the lowest peak that is not excluded, and when that proves to be hard
/// also for peaks halfway between it and the best one.
#[derive(Debug)]
struct Exact {
    method: Method,
    lowest: Turns,
    halfway: Turns,
    count: u64,
}

/// How a core is searched.
#[derive(Debug)]
enum Method {
    /// Solid items, with all that is known of them.
    Solid(Box<Restarts>),
    /// Items with windows and gaps.
    Rigid(Box<Rigid>),
}

impl Exact {
    /// Returns searches of a core, or nothing if it is too large.
    fn new(core: &Model, seed: u64, worker: usize) -> Result<Option<Self>> {
        let (lowest, halfway) = (Turns::from(core, worker), Turns::new(core));
        let method = if core.all_solid() {
            Restarts::new(core, seed)?.map(|search| Method::Solid(Box::new(search)))
        } else {
            Rigid::new(core, seed)?.map(|search| Method::Rigid(Box::new(search)))
        };
        Ok(method.map(|method| Self { method, lowest, halfway, count: 0 }))
    }

    /// Returns whether the lowest peak has proven to be hard to reach.
    ///
    /// With a capacity to reach, lower peaks than the best one are worth less.
    fn is_stuck(&self, goal: u64) -> bool {
        if goal == 0 { self.lowest.all_tried() } else { self.lowest.all_tried_often() }
    }

    /// Searches once, for a peak of at least `goal`.
    fn step(
        &mut self,
        core: &Model,
        goal: u64,
        best: &mut Incumbent<'_>,
        clock: &Clock<'_>,
    ) -> Result<()> {
        let low = best.bound().max(goal);
        let middle = core.peak_from(low + (best.peak() - low) / 2);
        self.count += 1;
        let to_middle =
            self.is_stuck(goal) && self.count.is_multiple_of(if goal == 0 { 2 } else { 4 });
        let (target, turns) = if to_middle && low < middle && middle < best.peak() {
            (middle, &mut self.halfway)
        } else {
            (low, &mut self.lowest)
        };
        let outcome = match &mut self.method {
            Method::Solid(search) => search.step(core, target, turns, clock),
            Method::Rigid(search) => {
                turns.count();
                search.step(core, target, clock)
            }
        };
        match outcome {
            Outcome::Found => {
                let offsets = match &self.method {
                    Method::Solid(search) => search.offsets(core)?,
                    Method::Rigid(search) => search.offsets(),
                };
                best.offer(Some(offsets), Stage::Exact);
                self.halfway = Turns::new(core);
            }
            Outcome::Impossible => {
                best.raise_bound(core.peak_from(target + 1), Stage::Exact);
                self.lowest = Turns::new(core);
            }
            Outcome::Undecided => {}
        }
        Ok(())
    }
}
