//! Learned clauses, each with two watched literals.

use alloc::vec::Vec;

use super::trail::Literal;
use crate::base::Result;
use crate::solve::model::memory::filled;

/// A clause: at least one literal is true in each packing below the clause's target.
#[derive(Clone, Debug)]
struct Clause {
    /// The first two are watched.
    literals: Vec<Literal>,
    target: u64,
    activity: f64,
}

/// All clauses.
#[derive(Debug)]
pub(super) struct Clauses {
    all: Vec<Clause>,
    /// Per literal: the clauses that watch the literal.
    watches: Vec<Vec<usize>>,
    increment: f64,
}

/// A clause's demand after one of its literals became false.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Demand {
    /// The literal must be true; the clause's number.
    Literal(Literal, usize),
    /// All literals are false.
    Conflict(usize),
}

/// Growth factor for the weights of later conflicts.
const GROWTH: f64 = 1.0 / 0.999;

impl Clauses {
    pub(super) fn new(literals: usize) -> Result<Self> {
        let watches = filled(Vec::new(), literals, "clauses")?;
        Ok(Self { all: Vec::new(), watches, increment: 1.0 })
    }

    /// Returns a clause's literals.
    pub(super) fn literals(&self, clause: usize) -> &[Literal] {
        &self.all[clause].literals
    }

    /// Returns the single-literal clauses.
    pub(super) fn units(&self) -> impl Iterator<Item = (usize, Literal)> + '_ {
        let one = |(at, clause): (usize, &Clause)| match clause.literals[..] {
            [literal] => Some((at, literal)),
            _ => None,
        };
        self.all.iter().enumerate().filter_map(one)
    }

    /// Adds a clause, whose first two literals are watched, and returns the clause's number.
    pub(super) fn add(&mut self, literals: Vec<Literal>, target: u64) -> usize {
        let number = self.all.len();
        if literals.len() > 1 {
            for &literal in &literals[..2] {
                self.watches[literal].push(number);
            }
        }
        self.all.push(Clause { literals, target, activity: self.increment });
        number
    }

    /// Records that a clause was part of a conflict.
    pub(super) fn bump(&mut self, clause: usize) {
        self.all[clause].activity += self.increment;
    }

    /// Makes later conflicts count more.
    pub(super) fn decay(&mut self) {
        self.increment *= GROWTH;
        if self.increment > 1e100 {
            self.all.iter_mut().for_each(|clause| clause.activity *= 1e-100);
            self.increment *= 1e-100;
        }
    }

    /// Visits the clauses that watch `literal`, which became false, until all literals of a clause
    /// are false; returns the effort.
    pub(super) fn visit(
        &mut self,
        literal: Literal,
        truth: impl Fn(Literal) -> Option<bool>,
        mut tell: impl FnMut(Demand),
    ) -> usize {
        let mut watching = core::mem::take(&mut self.watches[literal]);
        let mut effort = watching.len();
        let mut kept = 0;
        for at in 0..watching.len() {
            let number = watching[at];
            let literals = &mut self.all[number].literals;
            if literals[0] == literal {
                literals.swap(0, 1);
            }
            let other = literals[0];
            if truth(other) != Some(true) {
                let free = literals[2..].iter().position(|&it| truth(it) != Some(false));
                effort += free.unwrap_or(literals.len());
                if let Some(free) = free {
                    literals.swap(1, free + 2);
                    let watched = literals[1];
                    self.watches[watched].push(number);
                    continue;
                }
                if truth(other) == Some(false) {
                    tell(Demand::Conflict(number));
                    watching.copy_within(at.., kept);
                    kept += watching.len() - at;
                    break;
                }
                tell(Demand::Literal(other, number));
            }
            watching[kept] = number;
            kept += 1;
        }
        watching.truncate(kept);
        self.watches[literal] = watching;
        effort
    }

    /// Forgets the clauses that do not hold for `target`, and if more than `most` remain, the less
    /// active half of these. No clause may be a literal's reason.
    pub(super) fn forget(&mut self, target: u64, most: usize) {
        self.all.retain(|clause| clause.target >= target);
        if self.all.len() > most {
            let mut order: Vec<f64> = self.all.iter().map(|clause| clause.activity).collect();
            order.sort_unstable_by(f64::total_cmp);
            let median = order[order.len() / 2];
            self.all.retain(|clause| clause.literals.len() <= 2 || clause.activity > median);
        }
        self.watches.iter_mut().for_each(Vec::clear);
        for (number, clause) in self.all.iter().enumerate() {
            if clause.literals.len() > 1 {
                for &literal in &clause.literals[..2] {
                    self.watches[literal].push(number);
                }
            }
        }
    }
}
