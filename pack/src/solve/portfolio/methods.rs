//! The methods that improve a packing, and the rule that shares effort among the methods.
//!
//! A new method is a type with `impl Method` and one line in [`methods`].

use alloc::{boxed::Box, vec::Vec};
use core::fmt;

use super::blocked::BlockSearches;
use super::critical::Critical;
use super::disjunctions::Disjunctions;
use super::grown::{GrownSizes, Whole};
use super::incumbent::Incumbent;
use super::searches::Searches;
use crate::base::Result;
use crate::solve::budget::Stage;
use crate::solve::greedy::first_fit::{self, Fit, ORDERS};
use crate::solve::greedy::occupancy::Occupancy;
use crate::solve::greedy::skyline::SkylineHeuristic;
use crate::solve::greedy::sweep::{self, StackOrder};
use crate::solve::model::Model;
use crate::solve::model::clock::Clock;
use crate::solve::options::Methods;
use crate::solve::repair::chains::EjectionChains;
use crate::solve::tuning::{self, layout::EFFORT_PER_SWEPT};

/// The situation in which a method takes a turn.
struct MethodTask<'t, 'a> {
    core: &'t Model,
    /// Peak in bytes at which the search may stop.
    goal: u64,
    best: &'t mut Incumbent<'a>,
    clock: &'t Clock<'t>,
    /// Ejection chains, which two methods use.
    chains: &'t mut Option<EjectionChains>,
}

/// The part that a method plays in the portfolio.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// Places all items at once. The first passes come before all turns.
    Greedy,
    /// Takes turns with the other methods on large cores.
    Large,
    /// Takes turns on large cores, and gets a fraction of the effort on small cores.
    LargeAndSmall,
    /// Searches a small core as a whole, or a core that is not solid.
    Exact,
    /// Takes turns with exact search on small cores that are not decided soon.
    Grown,
    /// Searches a core with windows, alignments or pins as a whole, as long as exact search does.
    Disjunctive,
}

/// A method that improves a core's packing.
trait Method: fmt::Debug {
    /// Returns the part that the method plays in the portfolio.
    fn role(&self) -> Role;

    /// Returns whether the method works on the core, and has something left to try.
    fn can(&self, core: &Model) -> bool;

    /// Makes the method's tables; false if the core is too large.
    fn prepare(&mut self, _core: &Model, _clock: &Clock<'_>) -> Result<bool> {
        Ok(true)
    }

    /// Works until the method is done or the turn is over.
    fn step(&mut self, task: MethodTask<'_, '_>) -> Result<()>;
}

/// Returns the methods that are switched on. At equal cost, the first method is next.
fn methods<'m>(whole: Whole<'m>, clock: &Clock<'_>) -> Vec<Box<dyn Method + 'm>> {
    let on = clock.methods();
    let all: [(bool, Box<dyn Method + 'm>); 9] = [
        (on.from_peak, Box::new(FromPeak { count: 0 })),
        (on.ejection_chains, Box::new(Chains)),
        (on.critical_part, Box::new(CriticalPart { series: None })),
        (on.first_fit || on.best_fit, Box::new(GreedyPasses::new(on))),
        (on.skyline, Box::new(SkylinePasses { series: None })),
        (on.exact, Box::new(ExactSearch { searches: None, too_large: false })),
        (on.disjunctive, Box::new(Disjunctions::new())),
        (on.blocks, Box::new(BlockSearches::new(whole))),
        (on.grown_sizes && on.exact, Box::new(GrownSizes::new(whole))),
    ];
    all.into_iter().filter_map(|(is_on, method)| is_on.then_some(method)).collect()
}

/// Best fit away from the fullest section, with another stack in that section each time.
#[derive(Debug)]
struct FromPeak {
    /// Passes made so far.
    count: u32,
}

impl Method for FromPeak {
    fn role(&self) -> Role {
        Role::Large
    }

    fn can(&self, core: &Model) -> bool {
        self.count < tuning::greedy::PASSES_FROM_PEAK && core.all_solid() && !core.has_pins()
    }

    fn step(&mut self, task: MethodTask<'_, '_>) -> Result<()> {
        let MethodTask { core, best, clock, .. } = task;
        let stack =
            StackOrder { by_death: self.count.is_multiple_of(2), classes: 1 << (self.count / 2) };
        self.count += 1;
        best.offer(sweep::from_peak(core, stack, best.limit(), clock)?, Stage::FromPeak);
        clock.spend(core.items.len() * EFFORT_PER_SWEPT);
        Ok(())
    }
}

/// Ejection chains from the best packing.
#[derive(Debug)]
struct Chains;

impl Method for Chains {
    fn role(&self) -> Role {
        Role::LargeAndSmall
    }

    fn can(&self, _core: &Model) -> bool {
        true
    }

    fn step(&mut self, task: MethodTask<'_, '_>) -> Result<()> {
        let MethodTask { core, goal, best, clock, chains } = task;
        let Some(start) = best.offsets() else {
            clock.tick(tuning::portfolio::SHORTEST_TURN);
            return Ok(());
        };
        let chains = made(chains, || EjectionChains::new(core, clock))?;
        let better = chains.improve(core, start, goal.max(best.bound()), clock);
        best.offer(better, Stage::Repair);
        Ok(())
    }
}

/// Exact search of the critical part, first fit and ejection chains for the other items.
#[derive(Debug)]
struct CriticalPart {
    series: Option<Critical>,
}

impl Method for CriticalPart {
    fn role(&self) -> Role {
        Role::Large
    }

    fn can(&self, core: &Model) -> bool {
        core.all_solid()
    }

    fn step(&mut self, task: MethodTask<'_, '_>) -> Result<()> {
        let MethodTask { core, goal, best, clock, chains } = task;
        let chains = made(chains, || EjectionChains::new(core, clock))?;
        let series = made(&mut self.series, || Critical::new(core))?;
        series.step(core, goal, best, chains, clock)
    }
}

/// First fit and best fit of all items, each time in another order.
#[derive(Debug)]
struct GreedyPasses {
    fits: Vec<(Fit, Stage)>,
    /// Passes made so far.
    count: usize,
    space: Option<Occupancy>,
}

impl GreedyPasses {
    fn new(on: &Methods) -> Self {
        let all = [
            (on.first_fit, (Fit::First, Stage::FirstFit)),
            (on.best_fit, (Fit::Best, Stage::BestFit)),
        ];
        let fits: Vec<_> = all.into_iter().filter_map(|(on, fit)| on.then_some(fit)).collect();
        Self { fits, count: 0, space: None }
    }
}

impl Method for GreedyPasses {
    fn role(&self) -> Role {
        Role::Greedy
    }

    fn can(&self, _core: &Model) -> bool {
        self.count < self.fits.len() * ORDERS.len()
    }

    fn step(&mut self, task: MethodTask<'_, '_>) -> Result<()> {
        let MethodTask { core, best, clock, .. } = task;
        let Some(&(fit, stage)) = self.fits.get(self.count / ORDERS.len()) else { return Ok(()) };
        let order = ORDERS[self.count % ORDERS.len()];
        self.count += 1;
        let Some(order) = first_fit::sorted(core, order, clock)? else { return Ok(()) };
        let space = made(&mut self.space, || Occupancy::new(core.loads.len()))?;
        let stop = |count, space: &_| first_fit::is_up_at(count, space, clock);
        let offsets = first_fit::place(core, &order, fit, best.limit(), space, stop)?;
        best.offer(offsets, stage);
        clock.spend(space.take_work());
        Ok(())
    }
}

/// Skyline heuristic, with other weights each time.
#[derive(Debug)]
struct SkylinePasses {
    series: Option<SkylineHeuristic>,
}

impl Method for SkylinePasses {
    fn role(&self) -> Role {
        Role::LargeAndSmall
    }

    fn can(&self, core: &Model) -> bool {
        core.all_solid() && !core.has_pins()
    }

    fn step(&mut self, task: MethodTask<'_, '_>) -> Result<()> {
        let MethodTask { core, best, clock, .. } = task;
        let series = made(&mut self.series, || SkylineHeuristic::new(core, clock))?;
        best.offer(series.run(core, best.limit(), clock)?, Stage::Skyline);
        Ok(())
    }
}

/// Exact searches of the whole core.
#[derive(Debug)]
struct ExactSearch {
    searches: Option<Searches>,
    too_large: bool,
}

impl Method for ExactSearch {
    fn role(&self) -> Role {
        Role::Exact
    }

    fn can(&self, _core: &Model) -> bool {
        !self.too_large
    }

    fn prepare(&mut self, core: &Model, clock: &Clock<'_>) -> Result<bool> {
        if self.searches.is_none() && !self.too_large {
            self.searches = Searches::new(core, clock)?;
            self.too_large = self.searches.is_none();
        }
        Ok(!self.too_large)
    }

    fn step(&mut self, task: MethodTask<'_, '_>) -> Result<()> {
        let MethodTask { core, goal, best, clock, .. } = task;
        self.prepare(core, clock)?;
        let Some(searches) = &mut self.searches else { return Ok(()) };
        searches.step(core, goal, best, clock)?;
        if searches.are_closed() {
            self.searches = None;
            self.too_large = true;
        }
        Ok(())
    }
}

impl Method for Disjunctions {
    fn role(&self) -> Role {
        Role::Disjunctive
    }

    fn can(&self, core: &Model) -> bool {
        self.can(core)
    }

    fn step(&mut self, task: MethodTask<'_, '_>) -> Result<()> {
        let MethodTask { core, goal, best, clock, .. } = task;
        self.step(core, goal, best, clock)
    }
}

impl Method for BlockSearches<'_> {
    fn role(&self) -> Role {
        Role::Grown
    }

    fn can(&self, _core: &Model) -> bool {
        self.can()
    }

    fn step(&mut self, task: MethodTask<'_, '_>) -> Result<()> {
        let MethodTask { goal, best, clock, .. } = task;
        self.step(goal, best, clock)
    }
}

impl Method for GrownSizes<'_> {
    fn role(&self) -> Role {
        Role::Grown
    }

    fn can(&self, _core: &Model) -> bool {
        self.can()
    }

    fn step(&mut self, task: MethodTask<'_, '_>) -> Result<()> {
        let MethodTask { goal, best, clock, .. } = task;
        self.step(goal, best, clock)
    }
}

/// A thread's methods for a core, with each method's effort so far.
#[derive(Debug)]
pub(crate) struct Portfolio<'m> {
    chains: Option<EjectionChains>,
    methods: Vec<Entry<'m>>,
}

/// A method, and the effort of its turns so far in memory accesses.
#[derive(Debug)]
struct Entry<'m> {
    method: Box<dyn Method + 'm>,
    spent: usize,
}

impl<'m> Portfolio<'m> {
    /// Returns the methods that are switched on, for a model's core.
    pub(crate) fn new(whole: Whole<'m>, clock: &Clock<'_>) -> Self {
        let list = methods(whole, clock);
        let methods = list.into_iter().map(|method| Entry { method, spent: 0 }).collect();
        Self { chains: None, methods }
    }

    /// Makes a greedy pass over all items.
    pub(crate) fn pass(
        &mut self,
        core: &Model,
        best: &mut Incumbent<'_>,
        clock: &Clock<'_>,
    ) -> Result<()> {
        match self.methods.iter().position(|it| it.method.role() == Role::Greedy) {
            Some(place) => self.run(place, core, 0, best, clock),
            None => Ok(()),
        }
    }

    /// Runs an exact search in a small core, or another method for a fraction of the effort.
    ///
    /// Exact search decides most small cores. The other methods get a fixed fraction of the exact
    /// search's effort, and so cost little without a result. Returns whether any method could work.
    pub(crate) fn search(
        &mut self,
        core: &Model,
        goal: u64,
        best: &mut Incumbent<'_>,
        clock: &Clock<'_>,
    ) -> Result<bool> {
        let exact = self.methods.iter().position(|it| it.method.role() == Role::Exact);
        let Some(exact) = exact else { return self.take_turn(core, goal, usize::MAX, best, clock) };
        if !self.methods[exact].method.prepare(core, clock)? {
            return self.take_turn(core, goal, usize::MAX, best, clock);
        }
        let divisor = if goal == 0 {
            tuning::portfolio::OTHERS_DIVISOR
        } else {
            tuning::portfolio::OTHERS_DIVISOR_GOAL
        };
        let part = self.methods[exact].spent / divisor;
        let is_due = |it: &Entry<'_>| {
            it.method.role() == Role::LargeAndSmall && it.method.can(core) && it.spent < part
        };
        let due = self.least_spent(is_due).filter(|_| part >= tuning::portfolio::SHORTEST_TURN);
        // Grown items are searched as long as the original items.
        let most = self.methods[exact].spent;
        let is_grown = |it: &Entry<'_>| {
            it.method.role() == Role::Grown && it.method.can(core) && it.spent < most
        };
        let due = due.or_else(|| {
            self.least_spent(is_grown).filter(|_| most >= tuning::portfolio::GROWN_AFTER)
        });
        let few = core.items.len() <= tuning::disjunctive::FEW_ITEMS;
        let share = if few { most } else { most / tuning::disjunctive::OTHERS_DIVISOR };
        let is_disjunctive = |it: &Entry<'_>| {
            it.method.role() == Role::Disjunctive && it.method.can(core) && it.spent < share
        };
        let due = due.or_else(|| self.least_spent(is_disjunctive));
        let place = due.unwrap_or(exact);
        let before = clock.effort();
        let role = self.methods[place].method.role();
        if matches!(role, Role::Large | Role::LargeAndSmall) {
            clock.begin_turn(part);
        }
        self.run(place, core, goal, best, clock)?;
        clock.end_turn();
        clock.tick(core.items.len());
        self.methods[place].spent += clock.effort() - before;
        Ok(true)
    }

    /// Gives a turn to the method with the least cost so far; `goal` is a peak in bytes.
    ///
    /// A turn's effort is at most `most`, and at most the effort of all earlier turns together. So
    /// with *n* methods, each method is at most *n* times later than alone. A turn that closes a
    /// large part of the gap to the bound is free, so that the method has another turn. Returns
    /// whether any method could work.
    pub(crate) fn take_turn(
        &mut self,
        core: &Model,
        goal: u64,
        most: usize,
        best: &mut Incumbent<'_>,
        clock: &Clock<'_>,
    ) -> Result<bool> {
        // Many solid items are searched in part, by the method for the critical part.
        // Up to some size, joined items may be few enough; not where `most` asks for a quick end.
        let may_join = (tuning::portfolio::SMALL_CORE + 1..=tuning::portfolio::LARGE_CORE)
            .contains(&core.items.len());
        let too_large = core.all_solid() && !(may_join && most == usize::MAX);
        let is_due = |it: &Entry<'_>| {
            it.method.can(core)
                && !(too_large && matches!(it.method.role(), Role::Exact | Role::Grown))
        };
        let Some(place) = self.least_spent(is_due) else { return Ok(false) };
        let (before, peak) = (clock.effort(), best.peak());
        let all: usize = self.methods.iter().map(|it| it.spent).sum();
        // Exact search of solid items has a separate node limit: a shortened search would be
        // useless.
        let role = self.methods[place].method.role();
        if !(core.all_solid() && matches!(role, Role::Exact | Role::Grown)) {
            clock.begin_turn(all.max(tuning::portfolio::SHORTEST_TURN).min(most));
        }
        self.run(place, core, goal, best, clock)?;
        clock.end_turn();
        // Some turns count no effort themselves.
        clock.tick(core.items.len());
        let gained = tuning::portfolio::FREE_TURN_DIVISOR.saturating_mul(peak - best.peak());
        if gained < peak.saturating_sub(best.bound()) {
            self.methods[place].spent += clock.effort() - before;
        }
        Ok(true)
    }

    /// Returns the place of the method with the least cost for which `is_due` holds.
    fn least_spent(&self, is_due: impl Fn(&Entry<'m>) -> bool) -> Option<usize> {
        let due = self.methods.iter().enumerate().filter(|(_, it)| is_due(it));
        due.min_by_key(|(_, it)| it.spent).map(|(place, _)| place)
    }

    /// Gives a turn to the method at a place.
    fn run(
        &mut self,
        place: usize,
        core: &Model,
        goal: u64,
        best: &mut Incumbent<'_>,
        clock: &Clock<'_>,
    ) -> Result<()> {
        let task = MethodTask { core, goal, best, clock, chains: &mut self.chains };
        self.methods[place].method.step(task)
    }
}

/// Returns a tool, made on first use.
fn made<T>(tool: &mut Option<T>, make: impl FnOnce() -> Result<T>) -> Result<&mut T> {
    match tool {
        Some(tool) => Ok(tool),
        none => Ok(none.insert(make()?)),
    }
}
