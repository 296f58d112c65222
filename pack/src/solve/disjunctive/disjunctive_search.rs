//! Conflict-driven search over disjunctions.

use alloc::vec::Vec;

use super::clauses::{Clauses, Demand};
use super::cliques::Overload;
use super::conflicts::Conflicts;
use super::trail::{Bound, ClauseConflict, DistanceEdge, Event, Literal, Need, Reason, Trail};
use crate::base::Result;
use crate::solve::exact::outcome::Outcome;
use crate::solve::model::clock::Clock;
use crate::solve::model::memory::filled;
use crate::solve::model::waiting::Waiting;
use crate::solve::tuning;

/// A search for packings of a set of conflicts, for one target after the other.
///
/// Clauses learned for a target hold for all lower targets, and are forgotten when the target
/// rises.
#[derive(Debug)]
pub(crate) struct Disjunctive {
    trail: Trail,
    clauses: Clauses,
    /// Per item: the literals that raise other items above the item, and the item above others.
    outgoing: Vec<Vec<Literal>>,
    incoming: Vec<Vec<Literal>>,
    /// Per item: the cliques.
    cliques: Vec<Vec<usize>>,
    /// Bounds, and cliques, that are to be looked at again.
    bounds: Waiting,
    waiting: Waiting,
    overload: Overload,
    /// Per disjunction: the number of recent conflicts with the disjunction.
    activity: Vec<f64>,
    increment: f64,
    /// Per disjunction: whether the first literal was true at the last decision.
    phase: Vec<Option<bool>>,
    target: u64,
    limit: u64,
    work: usize,
}

impl Disjunctive {
    /// Returns a search without learned clauses.
    pub(crate) fn new(conflicts: &Conflicts) -> Result<Self> {
        let (items, pairs) = (conflicts.domains.len(), conflicts.disjunctions.len());
        let trail = Trail::new(conflicts)?;
        let mut outgoing = filled(Vec::new(), items, "literals")?;
        let mut incoming = filled(Vec::new(), items, "literals")?;
        for (literal, edge) in trail.edges.iter().enumerate() {
            let (from, to): (&mut Vec<_>, &mut Vec<_>) =
                (&mut outgoing[edge.from], &mut incoming[edge.to]);
            from.push(literal);
            to.push(literal);
        }
        let mut cliques = filled(Vec::new(), items, "cliques")?;
        for (number, clique) in conflicts.cliques.iter().enumerate() {
            for task in &clique.tasks {
                let of_item: &mut Vec<usize> = &mut cliques[task.item];
                of_item.push(number);
            }
        }
        Ok(Self {
            trail,
            clauses: Clauses::new(2 * pairs)?,
            outgoing,
            incoming,
            cliques,
            bounds: Waiting::new(2 * items, "bounds")?,
            waiting: Waiting::new(conflicts.cliques.len(), "bounds")?,
            overload: Overload::default(),
            activity: filled(0.0, pairs, "literals")?,
            increment: 1.0,
            phase: filled(None, pairs, "literals")?,
            target: 0,
            limit: tuning::disjunctive::FIRST_CONFLICTS,
            work: 0,
        })
    }

    /// Searches for a packing below byte `target`, longer each time.
    pub(crate) fn step(
        &mut self,
        conflicts: &Conflicts,
        target: u64,
        clock: &Clock<'_>,
    ) -> Outcome {
        if !self.begin(conflicts, target) {
            return Outcome::Impossible;
        }
        let (mut left, mut until_restart) = (self.limit, tuning::disjunctive::RESTART_AFTER);
        self.limit = self.limit.saturating_add(self.limit / tuning::disjunctive::GROWTH_DIVISOR);
        loop {
            let Err(conflict) = self.propagate(conflicts) else {
                let Some(literal) = self.choose() else { return Outcome::Found };
                if clock.tick(core::mem::take(&mut self.work)) {
                    return Outcome::Undecided;
                }
                self.trail.push_level();
                self.trail.assign(literal, Reason::Decision);
                continue;
            };
            self.bounds.clear();
            self.waiting.clear();
            if !self.learn(conflicts, &conflict) {
                return Outcome::Impossible;
            }
            left = left.saturating_sub(1);
            until_restart = until_restart.saturating_sub(1);
            if left == 0 || clock.tick(core::mem::take(&mut self.work)) {
                return Outcome::Undecided;
            }
            if until_restart == 0 {
                until_restart = tuning::disjunctive::RESTART_AFTER;
                self.begin(conflicts, target);
            }
        }
    }

    /// Returns each item's offset after a packing was found.
    pub(crate) fn offsets(&self) -> Vec<u64> {
        let items = 0..self.cliques.len();
        items.map(|item| self.trail.low(item).unsigned_abs()).collect()
    }

    /// Goes back to the undecided state; false if no packing is possible.
    fn begin(&mut self, conflicts: &Conflicts, target: u64) -> bool {
        self.bounds.clear();
        self.waiting.clear();
        let possible = self.trail.begin(conflicts, target);
        self.clauses.forget(target, tuning::disjunctive::MOST_CLAUSES);
        self.target = target;
        for (clause, literal) in self.clauses.units() {
            match self.trail.truth(literal) {
                Some(true) => {}
                Some(false) => return false,
                None => self.trail.assign(literal, Reason::Clause(clause)),
            }
        }
        (0..2 * self.cliques.len()).for_each(|bound| self.bounds.add(bound));
        possible
    }

    /// Propagates to a fixed point.
    fn propagate(&mut self, conflicts: &Conflicts) -> Result<(), ClauseConflict> {
        loop {
            if let Some(&event) = self.trail.events.get(self.trail.done) {
                self.trail.done += 1;
                match event {
                    Event::True { literal, .. } => self.literal_is_true(conflicts, literal)?,
                    Event::Raised { bound, .. } => self.bounds.add(bound),
                }
            } else if let Some(bound) = self.bounds.take() {
                self.bound_rose(conflicts, bound)?;
            } else if let Some(clique) = self.waiting.take() {
                self.check_clique(conflicts, clique)?;
            } else {
                return Ok(());
            }
        }
    }

    /// Propagates a literal through clauses and to its items' bounds.
    fn literal_is_true(
        &mut self,
        conflicts: &Conflicts,
        literal: Literal,
    ) -> Result<(), ClauseConflict> {
        let (mut implied, mut conflict) = (Vec::new(), None);
        let trail = &self.trail;
        let effort = self.clauses.visit(
            literal ^ 1,
            |it| trail.truth(it),
            |demand| match demand {
                Demand::Literal(literal, clause) => implied.push((literal, clause)),
                Demand::Conflict(clause) => conflict = Some(clause),
            },
        );
        self.work += effort;
        for (literal, clause) in implied {
            match self.trail.truth(literal) {
                None => self.trail.assign(literal, Reason::Clause(clause)),
                Some(true) => {}
                Some(false) => return Err(ClauseConflict::Clause(clause)),
            }
        }
        if let Some(clause) = conflict {
            return Err(ClauseConflict::Clause(clause));
        }
        self.raise_above(conflicts, literal)?;
        self.lower_below(conflicts, literal)
    }

    /// Raises the item that a true literal puts above another item.
    fn raise_above(
        &mut self,
        conflicts: &Conflicts,
        literal: Literal,
    ) -> Result<(), ClauseConflict> {
        let DistanceEdge { from, to, distance } = self.trail.edges[literal];
        let value = self.trail.bound(2 * from) + distance;
        self.trail.raise(conflicts, 2 * to, value, |_| Reason::Edge(literal))
    }

    /// Lowers the largest offset of the item that a true literal puts below another item.
    fn lower_below(
        &mut self,
        conflicts: &Conflicts,
        literal: Literal,
    ) -> Result<(), ClauseConflict> {
        let DistanceEdge { from, to, distance } = self.trail.edges[literal];
        let value = self.trail.bound(2 * to + 1) + distance;
        self.trail.raise(conflicts, 2 * from + 1, value, |_| Reason::Edge(literal))
    }

    /// Propagates a bound to its item's neighbors, and excludes literals.
    fn bound_rose(&mut self, conflicts: &Conflicts, bound: Bound) -> Result<(), ClauseConflict> {
        let (item, is_low) = (bound / 2, bound.is_multiple_of(2));
        let literals = if is_low { &self.outgoing[item] } else { &self.incoming[item] };
        self.work += literals.len();
        for at in 0..literals.len() {
            let literal = if is_low { self.outgoing[item][at] } else { self.incoming[item][at] };
            match self.trail.truth(literal) {
                Some(true) if is_low => self.raise_above(conflicts, literal)?,
                Some(true) => self.lower_below(conflicts, literal)?,
                Some(false) => {}
                None => {
                    let DistanceEdge { from, to, distance } = self.trail.edges[literal];
                    if self.trail.low(from) + distance > self.trail.high(to) {
                        self.trail.assign(literal ^ 1, Reason::Bounds);
                    }
                }
            }
        }
        for at in 0..self.cliques[item].len() {
            self.waiting.add(self.cliques[item][at]);
        }
        Ok(())
    }

    fn check_clique(&mut self, conflicts: &Conflicts, clique: usize) -> Result<(), ClauseConflict> {
        self.overload.check(&conflicts.cliques[clique], &self.trail)?;
        self.work += core::mem::take(&mut self.overload.effort);
        for implied in core::mem::take(&mut self.overload.implied) {
            let Need { bound, value } = implied.need;
            self.trail.raise(conflicts, bound, value, |sets| {
                sets.push(implied.from);
                Reason::Set(sets.len() - 1)
            })?;
        }
        Ok(())
    }

    /// Returns the next literal to decide, for a pair that overlaps at the least offsets; nothing
    /// if no pair overlaps, because the least offsets are then a packing.
    fn choose(&mut self) -> Option<Literal> {
        self.work += self.activity.len();
        let mut best: Option<(f64, i64, usize)> = None;
        for at in 0..self.activity.len() {
            if self.trail.truth(2 * at).is_some() {
                continue;
            }
            let [above, below] = [2 * at, 2 * at + 1].map(|literal| {
                let DistanceEdge { from, to, distance } = self.trail.edges[literal];
                self.trail.low(to) - self.trail.low(from) - distance
            });
            if above >= 0 || below >= 0 {
                continue;
            }
            let slack = self.slack(2 * at).min(self.slack(2 * at + 1));
            let activity = self.activity[at];
            if best
                .is_none_or(|(most, least, _)| activity > most || activity >= most && slack < least)
            {
                best = Some((activity, slack, at));
            }
        }
        let (_, _, at) = best?;
        let first = self.phase[at].unwrap_or_else(|| self.slack(2 * at) >= self.slack(2 * at + 1));
        Some(if first { 2 * at } else { 2 * at + 1 })
    }

    /// Returns the room that a literal would leave between its items.
    fn slack(&self, literal: Literal) -> i64 {
        let DistanceEdge { from, to, distance } = self.trail.edges[literal];
        self.trail.high(to) - self.trail.low(from) - distance
    }

    /// Learns the clause at a conflict's first unique implication point, and goes back to the level
    /// at which the clause demands a literal; false if there is no packing.
    ///
    /// # References
    ///
    /// Marques-Silva and Sakallah, "GRASP", IEEE Transactions on Computers 48, 1999; Moskewicz et
    /// al., "Chaff", DAC 2001.
    fn learn(&mut self, conflicts: &Conflicts, conflict: &ClauseConflict) -> bool {
        if let ClauseConflict::Clause(clause) = conflict {
            self.clauses.bump(*clause);
        }
        let of_clause = |clauses: &Clauses, clause| clauses.literals(clause).to_vec();
        let literals =
            self.trail.literals_of(conflicts, conflict, |clause| of_clause(&self.clauses, clause));
        self.work += literals.len();
        let level = literals.iter().map(|&literal| self.trail.level_of(literal)).max();
        let Some(level) = level.filter(|&level| level > 0) else { return false };
        self.remember_phases(level);
        self.trail.back_to(level);
        // Literals of the level that are not yet replaced by their reasons, and other literals.
        let (mut open, mut learned): (Vec<Literal>, Vec<Literal>) = (Vec::new(), Vec::new());
        let mut seen = alloc::collections::BTreeSet::new();
        let mut fresh = literals;
        loop {
            for literal in fresh.drain(..) {
                let at = self.trail.level_of(literal);
                if at > 0 && seen.insert(literal) {
                    self.bump(literal);
                    if at == level { open.push(literal) } else { learned.push(literal) }
                }
            }
            let latest = (0..open.len()).max_by_key(|&at| self.trail.place_of(open[at]));
            let Some(latest) = latest else { return false };
            let literal = open.swap_remove(latest);
            if open.is_empty() {
                learned.insert(0, literal);
                break;
            }
            if let Some(clause) = self.trail.clause_of(literal) {
                self.clauses.bump(clause);
            }
            let reason = |clause| of_clause(&self.clauses, clause);
            fresh = self.trail.reason_of(conflicts, literal, reason);
            self.work += fresh.len() + open.len();
        }
        self.increment *= tuning::disjunctive::ACTIVITY_GROWTH;
        if self.increment > 1e100 {
            self.activity.iter_mut().for_each(|activity| *activity *= 1e-100);
            self.increment *= 1e-100;
        }
        self.clauses.decay();
        self.add_clause(&learned);
        true
    }

    /// Adds a clause that demands the negation of one of `true_literals`, the first of which is to
    /// be negated now.
    fn add_clause(&mut self, true_literals: &[Literal]) {
        let mut clause: Vec<Literal> = true_literals.iter().map(|&literal| literal ^ 1).collect();
        let mut back = 0;
        if clause.len() > 1 {
            let others = 1..clause.len();
            let latest = others.max_by_key(|&at| self.trail.level_of(clause[at])).unwrap_or(1);
            clause.swap(1, latest);
            back = self.trail.level_of(clause[1]);
        }
        self.remember_phases(back + 1);
        self.trail.back_to(back);
        let literal = clause[0];
        let number = self.clauses.add(clause, self.target);
        self.trail.assign(literal, Reason::Clause(number));
    }

    /// Counts a literal in a conflict.
    fn bump(&mut self, literal: Literal) {
        self.activity[literal / 2] += self.increment;
    }

    /// Remembers the literals of the undone levels, from `level` on.
    fn remember_phases(&mut self, level: usize) {
        for event in self.trail.events_from(level) {
            if let Event::True { literal, .. } = event {
                self.phase[literal / 2] = Some(literal.is_multiple_of(2));
            }
        }
    }
}
