//! Exact searches of a core for one target after the other.

use super::Stage;
use super::clock::Clock;
use super::exact::Outcome;
use super::incumbent::Incumbent;
use super::model::Model;
use super::rigid::Rigid;
use super::views::Views;
use crate::error::Result;

/// Exact searches of a core.
///
/// They go for the lowest peak that is not excluded, and when that proves to be hard
/// also for peaks halfway between it and the best one.
#[derive(Debug)]
pub(super) struct Searches {
    method: Method,
    count: usize,
}

/// How a core is searched.
#[derive(Debug)]
enum Method {
    /// Solid items: views for the lowest target, and for one halfway.
    Solid(Box<[Views; 2]>),
    /// Items with windows and gaps.
    Rigid(Box<Rigid>),
}

/// Searches after which the lowest peak has proven to be hard to reach.
const HARD: usize = 32;

impl Searches {
    /// Returns searches of a core, or nothing if it is too large.
    pub(super) fn new(core: &Model, seed: u64, worker: usize) -> Result<Option<Self>> {
        let method = if core.all_solid() {
            let views = || Views::new(core.bound, seed, worker);
            Some(Method::Solid(Box::new([views(), views()])))
        } else {
            Rigid::new(core, seed)?.map(|search| Method::Rigid(Box::new(search)))
        };
        Ok(method.map(|method| Self { method, count: 0 }))
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
        let to_middle =
            self.count >= HARD && self.count.is_multiple_of(if goal == 0 { 3 } else { 16 });
        let to_middle = to_middle && low < middle && middle < best.peak();
        let target = if to_middle { middle } else { low };
        let (outcome, offsets) = match &mut self.method {
            Method::Solid(views) => {
                let views = &mut views[usize::from(to_middle)];
                views.aim_at(target);
                views.step(core, clock)?
            }
            Method::Rigid(search) => match search.step(core, target, clock) {
                Outcome::Found => (Outcome::Found, search.offsets()),
                outcome => (outcome, Vec::new()),
            },
        };
        match outcome {
            Outcome::Found => best.offer(Some(offsets), Stage::Exact),
            Outcome::Impossible => {
                best.raise_bound(core.peak_from(target + 1), Stage::Exact);
            }
            Outcome::Undecided => {}
        }
        Ok(())
    }
}
