//! The disjunctive search's state: offset bounds, decided disjunctions, and the trail of changes
//! with reasons.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::conflicts::Conflicts;
use crate::base::Result;
use crate::solve::model::memory::{filled, with_capacity};

/// No event, and no clause.
pub(super) const NONE: usize = usize::MAX;

/// A bound's number: twice the item's number for the least offset; plus one for the largest offset,
/// which is stored negated. So every bound only rises.
pub(super) type Bound = usize;

/// A literal's number: twice the disjunction's number if the upper item is above; plus one if
/// below. The two literals of a disjunction are negations of each other.
pub(super) type Literal = usize;

/// The distance that a literal demands: `to ≥ from + distance`.
#[derive(Clone, Copy, Debug)]
pub(super) struct DistanceEdge {
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) distance: i64,
}

/// A bound that has at least some value.
#[derive(Clone, Copy, Debug)]
pub(super) struct Need {
    pub(super) bound: Bound,
    pub(super) value: i64,
}

/// The reason for a change.
#[derive(Clone, Copy, Debug)]
pub(super) enum Reason {
    /// A literal that the search has chosen.
    Decision,
    /// The clause's other literals are false.
    Clause(usize),
    /// For a literal: bounds exclude the negation.
    Bounds,
    /// For a bound: implied by another bound through a literal's distance.
    Edge(Literal),
    /// For a bound: implied by the bounds in this set.
    Set(usize),
}

/// A change.
#[derive(Clone, Copy, Debug)]
pub(super) enum Event {
    /// A literal has become true.
    True { literal: Literal, reason: Reason },
    /// A bound rose to `value`; `previous` is the bound's previous event.
    Raised { bound: Bound, value: i64, previous: usize, reason: Reason },
}

/// Proof that no packing follows from this state.
#[derive(Clone, Debug)]
pub(super) enum ClauseConflict {
    /// An item's least offset is above its largest offset.
    Empty(usize),
    /// All literals of the clause are false.
    Clause(usize),
    /// These bounds contradict each other.
    Set(Vec<Need>),
}

/// Bounds, literals and the trail.
#[derive(Debug)]
pub(super) struct Trail {
    pub(super) edges: Vec<DistanceEdge>,
    bounds: Vec<i64>,
    /// The bounds before the first event.
    base: Vec<i64>,
    /// Each bound's last event.
    latest: Vec<usize>,
    pub(super) events: Vec<Event>,
    sets: Vec<Vec<Need>>,
    /// Per disjunction: the event of the literal, or [`NONE`], and the level.
    place: Vec<usize>,
    level: Vec<usize>,
    /// Whether the disjunction's first literal is true.
    first: Vec<bool>,
    /// The numbers of events and sets at the start of each level.
    levels: Vec<(usize, usize)>,
    /// Events that were propagated.
    pub(super) done: usize,
}

impl Trail {
    pub(super) fn new(conflicts: &Conflicts) -> Result<Self> {
        let (items, pairs) = (conflicts.domains.len(), conflicts.disjunctions.len());
        let mut edges = with_capacity(2 * pairs, "edges")?;
        for it in &conflicts.disjunctions {
            edges.push(DistanceEdge { from: it.lower, to: it.upper, distance: it.above });
            edges.push(DistanceEdge { from: it.upper, to: it.lower, distance: it.below });
        }
        Ok(Self {
            edges,
            bounds: filled(0, 2 * items, "bounds")?,
            base: filled(0, 2 * items, "bounds")?,
            latest: filled(NONE, 2 * items, "bounds")?,
            events: Vec::new(),
            sets: Vec::new(),
            place: filled(NONE, pairs, "literals")?,
            level: filled(0, pairs, "literals")?,
            first: filled(false, pairs, "literals")?,
            levels: Vec::new(),
            done: 0,
        })
    }

    /// Begins anew with the offsets that end at byte `target` or before; false if an item has none.
    pub(super) fn begin(&mut self, conflicts: &Conflicts, target: u64) -> bool {
        self.back_to(0);
        self.undo_to(0);
        self.sets.clear();
        for (item, domain) in conflicts.domains.iter().enumerate() {
            self.base[2 * item] = domain.least();
            self.base[2 * item + 1] = -conflicts.ceiling(item, target);
        }
        self.bounds.clone_from(&self.base);
        self.base.chunks_exact(2).all(|pair| pair[0] + pair[1] <= 0)
    }

    /// Returns a bound's value.
    pub(super) fn bound(&self, bound: Bound) -> i64 {
        self.bounds[bound]
    }

    /// Returns an item's least offset.
    pub(super) fn low(&self, item: usize) -> i64 {
        self.bounds[2 * item]
    }

    /// Returns an item's largest offset.
    pub(super) fn high(&self, item: usize) -> i64 {
        -self.bounds[2 * item + 1]
    }

    /// Returns a literal's truth, if decided.
    pub(super) fn truth(&self, literal: Literal) -> Option<bool> {
        let at = literal / 2;
        (self.place[at] != NONE).then(|| self.first[at] == literal.is_multiple_of(2))
    }

    /// Returns the level at which a decided literal was decided.
    pub(super) fn level_of(&self, literal: Literal) -> usize {
        self.level[literal / 2]
    }

    /// Returns the event that decided a literal.
    pub(super) fn place_of(&self, literal: Literal) -> usize {
        self.place[literal / 2]
    }

    /// Returns the clause that made a literal true, if any.
    pub(super) fn clause_of(&self, literal: Literal) -> Option<usize> {
        match self.events[self.place[literal / 2]] {
            Event::True { reason: Reason::Clause(clause), .. } => Some(clause),
            _ => None,
        }
    }

    /// Returns the events of the levels from `level` on, which is not 0.
    pub(super) fn events_from(&self, level: usize) -> &[Event] {
        let start = self.levels.get(level - 1).map_or(self.events.len(), |&(events, _)| events);
        &self.events[start..]
    }

    /// Begins another level.
    pub(super) fn push_level(&mut self) {
        self.levels.push((self.events.len(), self.sets.len()));
    }

    /// Makes a literal true that is not decided.
    pub(super) fn assign(&mut self, literal: Literal, reason: Reason) {
        let at = literal / 2;
        self.place[at] = self.events.len();
        self.level[at] = self.levels.len();
        self.first[at] = literal.is_multiple_of(2);
        self.events.push(Event::True { literal, reason });
    }

    /// Raises a bound to its item's next offset from `value` on.
    pub(super) fn raise(
        &mut self,
        conflicts: &Conflicts,
        bound: Bound,
        value: i64,
        reason: impl FnOnce(&mut Vec<Vec<Need>>) -> Reason,
    ) -> Result<(), ClauseConflict> {
        if value <= self.bounds[bound] {
            return Ok(());
        }
        let domain = &conflicts.domains[bound / 2];
        let value =
            if bound.is_multiple_of(2) { domain.raise(value) } else { -domain.lower(-value) };
        let reason = reason(&mut self.sets);
        self.events.push(Event::Raised { bound, value, previous: self.latest[bound], reason });
        self.latest[bound] = self.events.len() - 1;
        self.bounds[bound] = value;
        if value + self.bounds[bound ^ 1] > 0 {
            Err(ClauseConflict::Empty(bound / 2))
        } else {
            Ok(())
        }
    }

    /// Undoes all changes after level `level`.
    pub(super) fn back_to(&mut self, level: usize) {
        if level < self.levels.len() {
            let (events, sets) = self.levels[level];
            self.undo_to(events);
            self.sets.truncate(sets);
            self.levels.truncate(level);
        }
    }

    /// Undoes all but the first `count` events.
    fn undo_to(&mut self, count: usize) {
        while self.events.len() > count {
            match self.events.pop() {
                Some(Event::True { literal, .. }) => self.place[literal / 2] = NONE,
                Some(Event::Raised { bound, previous, .. }) => {
                    self.latest[bound] = previous;
                    self.bounds[bound] = self.value_of(bound, previous);
                }
                None => {}
            }
        }
        self.done = self.done.min(count);
    }

    /// Returns the value that an event gave to a bound.
    fn value_of(&self, bound: Bound, event: usize) -> i64 {
        match self.events.get(event) {
            Some(Event::Raised { value, .. }) => *value,
            _ => self.base[bound],
        }
    }

    /// Returns the event that gave a bound its value before event `before`.
    fn last_before(&self, bound: Bound, before: usize) -> usize {
        let mut at = self.latest[bound];
        while at != NONE && at >= before {
            at = self.previous(at);
        }
        at
    }

    fn previous(&self, event: usize) -> usize {
        match self.events[event] {
            Event::Raised { previous, .. } => previous,
            Event::True { .. } => NONE,
        }
    }

    /// Returns the literals that make a conflict: all true, and never so in any packing.
    pub(super) fn literals_of(
        &self,
        conflicts: &Conflicts,
        conflict: &ClauseConflict,
        clause: impl Fn(usize) -> Vec<Literal>,
    ) -> Vec<Literal> {
        let now = self.events.len();
        match conflict {
            ClauseConflict::Empty(item) => {
                let high = self.bounds[2 * item + 1];
                let needs = [
                    Need { bound: 2 * item, value: 1 - high },
                    Need { bound: 2 * item + 1, value: high },
                ];
                self.explain(conflicts, &needs, now)
            }
            ClauseConflict::Clause(at) => {
                clause(*at).into_iter().map(|literal| literal ^ 1).collect()
            }
            ClauseConflict::Set(needs) => self.explain(conflicts, needs, now),
        }
    }

    /// Returns the literals that made a literal true.
    pub(super) fn reason_of(
        &self,
        conflicts: &Conflicts,
        literal: Literal,
        clause: impl Fn(usize) -> Vec<Literal>,
    ) -> Vec<Literal> {
        let at = self.place[literal / 2];
        match self.events[at] {
            Event::True { reason: Reason::Clause(number), .. } => {
                let others = clause(number).into_iter().filter(|&other| other != literal);
                others.map(|literal| literal ^ 1).collect()
            }
            Event::True { reason: Reason::Bounds, .. } => {
                let DistanceEdge { from, to, distance } = self.edges[literal ^ 1];
                let top = 2 * to + 1;
                let high = self.value_of(top, self.last_before(top, at));
                let needs = [
                    Need { bound: 2 * from, value: 1 - distance - high },
                    Need { bound: top, value: high },
                ];
                self.explain(conflicts, &needs, at)
            }
            _ => Vec::new(),
        }
    }

    /// Returns literals that imply the given bound values before an event.
    ///
    /// Only the needed value of each bound is explained, which takes fewer literals than the
    /// bound's actual value.
    fn explain(&self, conflicts: &Conflicts, needs: &[Need], before: usize) -> Vec<Literal> {
        let mut literals = Vec::new();
        // Values already explained per event: paths through sets meet again.
        let mut explained: BTreeMap<usize, i64> = BTreeMap::new();
        let mut open: Vec<(Need, usize)> = needs.iter().map(|&need| (need, before)).collect();
        while let Some((Need { bound, value }, before)) = open.pop() {
            if self.base[bound] >= value {
                continue;
            }
            let mut at = self.last_before(bound, before);
            debug_assert!(at != NONE && self.value_of(bound, at) >= value, "a need is met");
            loop {
                let previous = self.previous(at);
                if previous == NONE || self.value_of(bound, previous) < value {
                    break;
                }
                at = previous;
            }
            let Event::Raised { reason, .. } = self.events[at] else { continue };
            if explained.get(&at).is_some_and(|&known| known >= value) {
                continue;
            }
            explained.insert(at, value);
            match reason {
                Reason::Edge(literal) => {
                    literals.push(literal);
                    let DistanceEdge { from, to, distance } = self.edges[literal];
                    let domain = &conflicts.domains[bound / 2];
                    let (source, below) = if bound.is_multiple_of(2) {
                        (2 * from, domain.lower(value - 1))
                    } else {
                        (2 * to + 1, -domain.raise(1 - value))
                    };
                    open.push((Need { bound: source, value: below + 1 - distance }, at));
                }
                Reason::Set(set) => open.extend(self.sets[set].iter().map(|&need| (need, at))),
                Reason::Decision | Reason::Clause(_) | Reason::Bounds => {}
            }
        }
        literals.sort_unstable();
        literals.dedup();
        literals
    }
}
