//! Exact search: packs below a target, or proves that nothing can.

mod branch;
mod cracks;
mod hash;
mod links;
mod restarts;
mod state;
mod turns;

use super::arith::index;
use super::clock::Clock;
use super::memory::with_capacity;
use super::model::Model;
use super::random::mix;
use crate::error::Result;
use branch::{Child, Chooser, Guide, SectionRule, Taste};
use hash::FailedStates;
use state::{Mark, State, Stuck};
use turns::Farthest;

pub(super) use links::Link;
pub(super) use restarts::Restarts;
pub(super) use turns::Turns;

/// How a search ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// All items are placed.
    Found,
    /// No packing below the target exists: every possibility was tried.
    Impossible,
    /// The limit was reached.
    Undecided,
}

/// Sections that no open item connects with others, waiting to be packed.
#[derive(Clone, Copy, Debug)]
struct Component {
    start: usize,
    end: usize,
    /// Decision that fails if the component cannot be packed.
    parent: usize,
    /// The component to pack after this one.
    next: usize,
}

/// A decision in a component: the ways to go on, and the one to try next.
#[derive(Debug)]
struct Decision {
    component: Component,
    hash: u64,
    mark: Mark,
    components: usize,
    first_child: usize,
    next_child: usize,
}

/// What a decision costs besides looking at its sections.
const EFFORT: usize = 200;

/// How one search goes about it.
#[derive(Clone, Copy, Debug)]
struct Manner {
    rule: SectionRule,
    taste: Taste,
    /// Whether it looks for cracks.
    cracks: bool,
    /// Decisions after which it ends.
    nodes: u64,
}

/// What is tried and preferred unless a search wants something else.
const TASTE: Taste = Taste { tried: 8, rank: 0.5, fit: 0.0, habit: 0.0 };

/// Stands for no component, or no decision.
const NONE: usize = usize::MAX;

/// A depth-first search, without recursion.
#[derive(Debug)]
struct Search {
    state: State,
    failed: FailedStates,
    /// Part of all hashes.
    salt: u64,
    weights: Vec<f64>,
    ranks: Vec<f64>,
    chooser: Chooser,
    decisions: Vec<Decision>,
    components: Vec<Component>,
    /// The component to pack next.
    next: usize,
    children: Vec<Child>,
    pieces: Vec<(u64, usize, usize)>,
    /// The least area, grains × sections, that any search has left open.
    least_left: u128,
}

impl Search {
    /// Returns a search that has not begun.
    fn new(state: State, ranks: Vec<f64>, weights: Vec<f64>) -> Result<Self> {
        Ok(Self {
            state,
            failed: FailedStates::new(20)?,
            salt: 0,
            weights,
            ranks,
            chooser: Chooser::new(TASTE),
            decisions: Vec::new(),
            components: Vec::new(),
            next: NONE,
            children: Vec::new(),
            pieces: with_capacity(16, "components")?,
            least_left: u128::MAX,
        })
    }

    /// Searches for a packing whose items end at byte `target` or before.
    ///
    /// Writes down how far it came, if that is farther than searches before it.
    fn run(
        &mut self,
        model: &Model,
        target: u64,
        manner: Manner,
        farthest: &mut Farthest,
        clock: &Clock<'_>,
    ) -> Result<Outcome> {
        self.state.cracks.wanted = manner.cracks;
        self.chooser.taste = manner.taste;
        self.decisions.clear();
        self.components.clear();
        self.children.clear();
        self.next = NONE;
        // What fails under a roof fails under each of that height, unless the ends of
        // items do not only depend on their offsets.
        self.salt = if self.state.plain { 0 } else { mix(usize::MAX, target) };
        let ready = self.state.restart(model, target);
        if ready.and_then(|()| self.split(0, model.loads.len(), NONE)).is_err() {
            return Ok(Outcome::Impossible);
        }
        let mut left = manner.nodes;
        loop {
            if self.next == NONE {
                return Ok(Outcome::Found);
            }
            farthest.update(&self.state)?;
            self.least_left = self.least_left.min(self.state.left);
            let component = self.components[self.next];
            let hash = self.salt ^ self.state.component_hash(component.start..component.end);
            if self.failed.contains(hash) {
                if !self.back_to(component.parent) {
                    return Ok(Outcome::Impossible);
                }
            } else {
                let work = std::mem::take(&mut self.state.work);
                if left == 0 || clock.tick(EFFORT + component.end - component.start + work) {
                    return Ok(Outcome::Undecided);
                }
                left -= 1;
                self.decide(component, hash, manner.rule, farthest);
            }
            if !self.advance() {
                return Ok(Outcome::Impossible);
            }
        }
    }

    /// Starts a decision in the next component.
    fn decide(&mut self, component: Component, hash: u64, rule: SectionRule, farthest: &Farthest) {
        self.next = component.next;
        let first_child = self.children.len();
        self.chooser.choose(
            &mut self.state,
            component.start..component.end,
            rule,
            &mut self.weights,
            Guide { ranks: &self.ranks, offsets: farthest.offsets() },
            &mut self.children,
        );
        self.decisions.push(Decision {
            component,
            hash,
            mark: self.state.mark(),
            components: self.components.len(),
            first_child,
            next_child: first_child,
        });
    }

    /// Takes the next child of the last decision that has one; false if none has.
    fn advance(&mut self) -> bool {
        loop {
            let Some(decision) = self.decisions.last_mut() else { return false };
            let Some(&child) = self.children.get(decision.next_child) else {
                let (hash, parent) = (decision.hash, decision.component.parent);
                self.failed.insert(hash);
                if !self.back_to(parent) {
                    return false;
                }
                continue;
            };
            decision.next_child += 1;
            let Component { start, end, .. } = decision.component;
            let done = match child {
                Child::Cover(kind) => self.state.place(kind),
                Child::GiveUp { section, floor } => self.state.give_up(section, floor),
            };
            let decision = self.decisions.len() - 1;
            match done.and_then(|_| self.split(start, end, decision)) {
                Ok(()) => return true,
                Err(Stuck { section }) => {
                    self.weights[index(section)] += 1.0;
                    self.restore();
                }
            }
        }
    }

    /// Goes back to decision number `decision`, whose present child has failed.
    ///
    /// Decisions after it, even in components that were packed, have nothing to do
    /// with the failure: other children of theirs would fail just so.
    fn back_to(&mut self, decision: usize) -> bool {
        if decision == NONE {
            return false;
        }
        if let Some(later) = self.decisions.get(decision + 1) {
            self.children.truncate(later.first_child);
        }
        self.decisions.truncate(decision + 1);
        self.restore();
        true
    }

    /// Undoes the present child of the last decision.
    fn restore(&mut self) {
        if let Some(decision) = self.decisions.last() {
            self.state.undo(decision.mark);
            self.components.truncate(decision.components);
            self.next = decision.component.next;
        }
    }

    /// Divides sections into components, to be packed one after the other, and puts
    /// lids on them.
    fn split(&mut self, start: usize, end: usize, parent: usize) -> Result<(), Stuck> {
        self.pieces.clear();
        let mut from = start;
        while from < end {
            let mut to = from + 1;
            while to < end && self.state.crossing[to - 1] > 0 {
                to += 1;
            }
            if !self.state.is_open(from) {
                from = to;
            } else if let Some(kind) = self.lid_of(from, to) {
                self.state.lid(kind)?; // and look again: it may have held pieces together
            } else {
                let sections = from..to;
                let slack = sections.map(|section| self.state.slack(section)).min().unwrap_or(0);
                self.pieces.push((slack, from, to));
                from = to;
            }
        }
        // The tightest one first: it is the likeliest to fail.
        self.pieces.sort_unstable();
        for &(_, start, end) in self.pieces.iter().rev() {
            self.components.push(Component { start, end, parent, next: self.next });
            self.next = self.components.len() - 1;
        }
        Ok(())
    }

    /// Returns a kind that is live in all sections of a component.
    fn lid_of(&self, start: usize, end: usize) -> Option<u32> {
        let kinds = if self.state.plain { self.state.open_in(start) } else { &[] };
        let spans = |&&kind: &&u32| self.state.kinds[index(kind)].sections() == (start..end);
        kinds.iter().find(spans).copied()
    }
}
