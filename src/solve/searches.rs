//! Exact searches of a core for one target after the other.

use super::Stage;
use super::clock::Clock;
use super::exact::{Outcome, Restarts, Turns};
use super::incumbent::Incumbent;
use super::join::{Joined, Joining, join};
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
    count: usize,
}

/// How a core is searched.
#[derive(Debug)]
enum Method {
    /// Solid items, in several views that take turns. What the last one proves is certain.
    Solid { views: Vec<View>, seed: u64 },
    /// Items with windows and gaps.
    Rigid(Box<Rigid>),
}

/// Searches of a core, some of whose items may be joined.
#[derive(Debug)]
struct View {
    joining: Option<Joining>,
    joined: Option<Joined>,
    search: Restarts,
    lowest: Turns,
    halfway: Turns,
    /// The highest target that is impossible in this view.
    impossible: Option<u64>,
}

/// Searches for the lowest peak after which it has proven to be hard to reach.
const STUCK: usize = 32;

impl Searches {
    /// Returns searches of a core for `target` first, or nothing if it is too large.
    pub(super) fn new(
        core: &Model,
        target: u64,
        seed: u64,
        worker: usize,
    ) -> Result<Option<Self>> {
        let method = if core.all_solid() {
            let mut views = Vec::new();
            for v in std::env::var("VIEWS").unwrap_or("Pl,W,Wl,F".into()).split(',') {
                let links = v.ends_with('l');
                let joining = match &v[..1] { "P" => Joining::Parts, "W" => Joining::Whole, _ => continue };
                views.extend(View::new(core, Some(joining), seed, worker, links)?);
            }
            View::certain(core, target, seed, worker)?.map(|view| {
                views.push(view);
                Method::Solid { views, seed }
            })
        } else {
            Rigid::new(core, seed)?.map(|search| Method::Rigid(Box::new(search)))
        };
        Ok(method.map(|method| Self { method, count: worker }))
    }

    /// Returns whether the lowest peak has proven to be hard to reach.
    pub(super) fn is_stuck(&self) -> bool {
        self.count >= STUCK
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
        let target = if to_middle && low < middle && middle < best.peak() { middle } else { low };
        let is_lowest = target == low;
        let (outcome, offsets) = match &mut self.method {
            Method::Solid { views, seed } => {
                let last = views.len() - 1;
                if !views[last].proves(low)
                    && let Some(view) = View::certain(core, low, *seed, 0)?
                {
                    views[last] = view;
                }
                let turn = if to_middle { self.count / 2 } else { self.count };
                let view = &mut views[if std::env::var("ONLY").is_ok() { 0 } else { turn % (last + 1) }];
                if view.impossible >= Some(target) {
                    return Ok(());
                }
                view.run(core, target, is_lowest, clock)?
            }
            Method::Rigid(search) => match search.step(core, target, clock) {
                Outcome::Found => (Outcome::Found, search.offsets()),
                outcome => (outcome, Vec::new()),
            },
        };
        match outcome {
            Outcome::Found => {
                best.offer(Some(offsets), Stage::Exact);
                self.start_over(core, |view| &mut view.halfway);
            }
            Outcome::Impossible => {
                best.raise_bound(core.peak_from(target + 1), Stage::Exact);
                self.start_over(core, |view| &mut view.lowest);
            }
            Outcome::Undecided => {}
        }
        Ok(())
    }

    fn start_over(&mut self, core: &Model, turns: impl Fn(&mut View) -> &mut Turns) {
        if let Method::Solid { views, .. } = &mut self.method {
            for view in views {
                *turns(view) = Turns::new(view.joined.as_ref().map_or(core, Joined::model));
            }
        }
    }
}

impl View {
    /// Returns the view in which items are joined, or nothing if none can be.
    fn new(
        core: &Model,
        joining: Option<Joining>,
        seed: u64,
        worker: usize,
        use_links: bool,
    ) -> Result<Option<Self>> {
        let joined = match joining {
            None => None,
            Some(joining) => match join(core, joining)? {
                None => return Ok(None),
                joined => joined,
            },
        };
        let model = joined.as_ref().map_or(core, Joined::model);
        let (lowest, halfway) = (Turns::from(model, worker), Turns::new(model));
        let links = if use_links {joined.as_ref().map_or(&[][..], Joined::links)} else {&[][..]};
        let Some(search) = Restarts::new(model, links, seed)? else { return Ok(None) };
        Ok(Some(Self { joining, joined, search, lowest, halfway, impossible: None }))
    }

    /// Returns a view in which everything is certain that holds below byte `target`.
    fn certain(core: &Model, target: u64, seed: u64, worker: usize) -> Result<Option<Self>> {
        match Self::new(core, Some(Joining::Forced(target)), seed, worker, std::env::var("FL").is_ok())? {
            None => Self::new(core, None, seed, worker, false),
            view => Ok(view),
        }
    }

    /// Returns whether what is impossible below byte `target` in this view is so in every view.
    fn proves(&self, target: u64) -> bool {
        match self.joining {
            None => true,
            Some(Joining::Forced(most)) => target <= most,
            Some(Joining::Whole | Joining::Parts) => false,
        }
    }

    /// Searches once for a packing below byte `target`, and returns its offsets if it is found.
    fn run(
        &mut self,
        core: &Model,
        target: u64,
        is_lowest: bool,
        clock: &Clock<'_>,
    ) -> Result<(Outcome, Vec<u64>)> {
        let model = self.joined.as_ref().map_or(core, Joined::model);
        let turns = if is_lowest { &mut self.lowest } else { &mut self.halfway };
        let outcome = self.search.step(model, target, turns, clock)?;
        match outcome {
            Outcome::Found => {
                let offsets = self.search.offsets(model)?;
                let all = self.joined.as_ref().map(|joined| joined.offsets(&offsets)).transpose()?;
                Ok((outcome, all.unwrap_or(offsets)))
            }
            Outcome::Impossible if !self.proves(target) => {
                self.impossible = self.impossible.max(Some(target));
                Ok((Outcome::Undecided, Vec::new()))
            }
            _ => Ok((outcome, Vec::new())),
        }
    }
}
