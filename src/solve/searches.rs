//! Exact searches of a core for one target after the other.

use super::Stage;
use super::clock::Clock;
use super::exact::{Outcome, Restarts, Turns};
use super::incumbent::Incumbent;
use super::join::{Joined, join};
use super::model::Model;
use super::rigid::Rigid;
use crate::error::Result;

/// Exact searches of a core.
///
/// They go for the lowest peak that is not excluded, and when that proves to be hard
/// also for peaks halfway between it and the best one.
#[derive(Debug)]
pub(super) struct Searches {
    method: Method,
    /// The lowest target at which the core was joined, and the search if anything was.
    joined: Option<(u64, Option<(Joined, Restarts)>)>,
    lowest: Turns,
    halfway: Turns,
    seed: u64,
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

impl Searches {
    /// Returns searches of a core, or nothing if it is too large.
    pub(super) fn new(core: &Model, seed: u64, worker: usize) -> Result<Option<Self>> {
        let (lowest, halfway) = (Turns::from(core, worker), Turns::new(core));
        let method = if core.all_solid() {
            Restarts::new(core, seed)?.map(|search| Method::Solid(Box::new(search)))
        } else {
            Rigid::new(core, seed)?.map(|search| Method::Rigid(Box::new(search)))
        };
        let searches = |method| Self { method, joined: None, lowest, halfway, seed, count: 0 };
        Ok(method.map(searches))
    }

    /// Returns whether the lowest peak has proven to be hard to reach.
    pub(super) fn is_stuck(&self) -> bool {
        self.lowest.all_tried_often()
    }

    /// Searches once, for a peak of at least `goal`.
    pub(super) fn step(
        &mut self,
        core: &Model,
        goal: u64,
        best: &mut Incumbent<'_>,
        clock: &Clock<'_>,
    ) -> Result<()> {
        let low = best.bound().max(goal);
        let middle = core.peak_from(low + (best.peak() - low) / 2);
        self.count += 1;
        let to_middle = self.is_stuck() && self.count.is_multiple_of(if goal == 0 { 2 } else { 4 });
        let (target, outcome) = if to_middle && low < middle && middle < best.peak() {
            (middle, run(&mut self.method, core, middle, &mut self.halfway, clock)?)
        } else {
            (low, self.run_lowest(core, low, clock)?)
        };
        match outcome {
            (Outcome::Found, offsets) => {
                best.offer(Some(offsets), Stage::Exact);
                self.halfway = Turns::new(core);
            }
            (Outcome::Impossible, _) => {
                best.raise_bound(core.peak_from(target + 1), Stage::Exact);
                self.lowest = Turns::new(core);
            }
            (Outcome::Undecided, _) => {}
        }
        Ok(())
    }

    /// Searches for the lowest target, at which items can be joined.
    fn run_lowest(
        &mut self,
        core: &Model,
        target: u64,
        clock: &Clock<'_>,
    ) -> Result<(Outcome, Vec<u64>)> {
        if !self.lowest.all_tried() {
            // Most problems are solved before joining pays.
            return run(&mut self.method, core, target, &mut self.lowest, clock);
        }
        if self.joined.as_ref().is_none_or(|&(at, _)| at != target) {
            let search = match join(core, target)? {
                Some(joined) => {
                    let search = Restarts::new(&joined.model, self.seed)?;
                    search.map(|search| (joined, search))
                }
                None => None,
            };
            self.joined = Some((target, search));
        }
        let Some((_, Some((joined, search)))) = &mut self.joined else {
            return run(&mut self.method, core, target, &mut self.lowest, clock);
        };
        let outcome = search.step(&joined.model, target, &mut self.lowest, clock)?;
        let offsets = match outcome {
            Outcome::Found => joined.offsets(&search.offsets(&joined.model)?)?,
            _ => Vec::new(),
        };
        Ok((outcome, offsets))
    }
}

/// Searches once for a packing below byte `target`, and returns its offsets if it is found.
fn run(
    method: &mut Method,
    core: &Model,
    target: u64,
    turns: &mut Turns,
    clock: &Clock<'_>,
) -> Result<(Outcome, Vec<u64>)> {
    let outcome = match method {
        Method::Solid(search) => search.step(core, target, turns, clock)?,
        Method::Rigid(search) => {
            turns.count();
            search.step(core, target, clock)
        }
    };
    let offsets = match (outcome, method) {
        (Outcome::Found, Method::Solid(search)) => search.offsets(core)?,
        (Outcome::Found, Method::Rigid(search)) => search.offsets(),
        _ => Vec::new(),
    };
    Ok((outcome, offsets))
}
