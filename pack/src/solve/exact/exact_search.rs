//! Exact search by depth-first branching: finds a packing below a target, or proves that none
//! exists.
//!
//! # References
//!
//! Branching on the items at a skyline point is the bottom-left principle of strip packing
//! (Martello, Monaci and Vigo, "An exact approach to the strip-packing problem", INFORMS Journal on
//! Computing 15, 2003) and of `MiniMalloc` (ASPLOS 2023). Jumping back over independent components
//! is backjumping (Gaschnig, 1979; Prosser 1993). Weights of failures are those of dom/wdeg
//! (Boussemart, Hemery, Lecoutre and Sais, ECAI 2004), on sections rather than on constraints. New,
//! as far as known: the branch at a local minimum, and the proof that it is complete
//! (`docs/design/exact_search.md`).

use alloc::vec::Vec;

use super::branch::{BranchWeights, Child, Chooser, Guide, SectionRule};
use super::nogoods::Nogoods;
use super::outcome::Outcome;
use super::phases::SavedPhases;
use super::state::{Conflict, Mark, SkylineState};
use crate::base::Result;
use crate::solve::model::Model;
use crate::solve::model::arith::index;
use crate::solve::model::clock::Clock;
use crate::solve::model::memory::with_capacity;
use crate::solve::model::random::mix;
use crate::solve::options::Methods;
use crate::solve::tuning;

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

/// A decision in a component: the alternatives, and the next alternative to try.
#[derive(Debug)]
struct Decision {
    component: Component,
    hash: u64,
    mark: Mark,
    components: usize,
    first_child: usize,
    next_child: usize,
}

/// A search's rules, weights and node limit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Strategy {
    pub(super) rule: SectionRule,
    pub(super) preferences: BranchWeights,
    /// Whether subset-sum pruning is on.
    pub(super) sums: bool,
    /// Most decisions.
    pub(super) nodes: u64,
}

/// Stands for no component, or no decision.
const NONE: usize = usize::MAX;

/// A depth-first search, without recursion.
#[derive(Debug)]
pub(super) struct DepthSearch {
    pub(super) state: SkylineState,
    failed: Nogoods,
    /// Part of all hashes.
    salt: u64,
    pub(super) weights: Vec<f64>,
    pub(super) ranks: Vec<f64>,
    chooser: Chooser,
    decisions: Vec<Decision>,
    components: Vec<Component>,
    /// The component to pack next.
    next: usize,
    children: Vec<Child>,
    pieces: Vec<(u64, usize, usize)>,
    /// The least area, grains × sections, that any search has left open.
    pub(super) least_left: u128,
    methods: Methods,
}

impl DepthSearch {
    /// Returns a search that has not begun.
    pub(super) fn new(
        state: SkylineState,
        ranks: Vec<f64>,
        weights: Vec<f64>,
        clock: &Clock<'_>,
    ) -> Result<Self> {
        let methods = *clock.methods();
        Ok(Self {
            state,
            failed: Nogoods::new(tuning::exact::NOGOODS)?,
            salt: 0,
            weights,
            ranks,
            chooser: Chooser::new(&methods),
            decisions: Vec::new(),
            components: Vec::new(),
            next: NONE,
            children: Vec::new(),
            pieces: with_capacity(16, "components")?,
            least_left: u128::MAX,
            methods,
        })
    }

    /// Searches for a packing whose items end at byte `target` or before.
    ///
    /// Saves the phases if less area is open than in earlier searches.
    pub(super) fn run(
        &mut self,
        model: &Model,
        target: u64,
        strategy: Strategy,
        phases: &mut SavedPhases,
        clock: &Clock<'_>,
    ) -> Result<Outcome> {
        self.state.sums.wanted = strategy.sums;
        self.chooser.preferences = strategy.preferences;
        self.decisions.clear();
        self.components.clear();
        self.children.clear();
        self.next = NONE;
        // A nogood holds for all targets with equal distance between floor and roof, unless
        // alignments, pins or pads make absolute heights matter.
        self.salt = if self.state.plain { 0 } else { mix(usize::MAX, target) };
        let ready = self.state.restart(model, target);
        if ready.and_then(|()| self.split(0, model.loads.len(), NONE)).is_err() {
            return Ok(Outcome::Impossible);
        }
        let mut left = strategy.nodes;
        loop {
            if self.next == NONE {
                return Ok(Outcome::Found);
            }
            phases.update(&self.state)?;
            self.least_left = self.least_left.min(self.state.left);
            let component = self.components[self.next];
            let hash = self.salt ^ self.state.component_hash(component.start..component.end);
            if self.methods.nogoods && self.failed.contains(hash) {
                if !self.back_to(component.parent) {
                    return Ok(Outcome::Impossible);
                }
            } else {
                let work = core::mem::take(&mut self.state.work);
                if left == 0
                    || clock.tick(
                        tuning::exact::EFFORT_PER_NODE + component.end - component.start + work,
                    )
                {
                    return Ok(Outcome::Undecided);
                }
                left -= 1;
                self.decide(component, hash, strategy.rule, phases);
            }
            if !self.advance() {
                return Ok(Outcome::Impossible);
            }
        }
    }

    /// Starts a decision in the next component.
    fn decide(&mut self, component: Component, hash: u64, rule: SectionRule, phases: &SavedPhases) {
        self.next = component.next;
        let first_child = self.children.len();
        self.chooser.choose(
            &mut self.state,
            component.start..component.end,
            rule,
            &mut self.weights,
            Guide { ranks: &self.ranks, offsets: phases.offsets() },
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

    /// Takes the next child of the last decision with a remaining child; false if there is none.
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
                Err(Conflict { section }) => {
                    self.weights[index(section)] += self.chooser.failure;
                    self.restore();
                }
            }
        }
    }

    /// Goes back to decision number `decision`, whose present child has failed.
    ///
    /// Later decisions, even in packed components, are unrelated to the failure: their other
    /// children would fail in the same way.
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

    /// Divides sections into components that are packed one after the other, and applies the
    /// dominance rule.
    fn split(&mut self, start: usize, end: usize, parent: usize) -> Result<(), Conflict> {
        self.pieces.clear();
        let mut from = start;
        while from < end {
            let mut to = from + 1;
            while to < end && self.state.crossing[to - 1] > 0 {
                to += 1;
            }
            if !self.state.is_open(from) {
                from = to;
            } else if let Some(kind) = self.dominant_kind(from, to) {
                self.state.lid(kind)?; // and look again: it may have held pieces together
            } else {
                let sections = from..to;
                let slack = sections.map(|section| self.state.slack(section)).min().unwrap_or(0);
                self.pieces.push((slack, from, to));
                from = to;
            }
        }
        // The tightest component first, as the most likely to fail.
        self.pieces.sort_unstable();
        for &(_, start, end) in self.pieces.iter().rev() {
            self.components.push(Component { start, end, parent, next: self.next });
            self.next = self.components.len() - 1;
        }
        Ok(())
    }

    /// Returns a kind that is live in all sections of a component.
    fn dominant_kind(&self, start: usize, end: usize) -> Option<u32> {
        let kinds = if self.state.plain && self.methods.dominance {
            self.state.open_in(start)
        } else {
            &[]
        };
        let spans = |&&kind: &&u32| self.state.kinds[index(kind)].sections() == (start..end);
        kinds.iter().find(spans).copied()
    }
}
