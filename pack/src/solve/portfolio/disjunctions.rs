//! Disjunctive searches in a core for one target after the other.

use super::incumbent::Incumbent;
use crate::base::Result;
use crate::solve::budget::Stage;
use crate::solve::disjunctive::conflicts::Conflicts;
use crate::solve::disjunctive::disjunctive_search::Disjunctive;
use crate::solve::disjunctive::stacks::least_stack;
use crate::solve::exact::outcome::Outcome;
use crate::solve::model::Model;
use crate::solve::model::clock::Clock;
use crate::solve::tuning;

/// Two searches in a core: a search for packings below the best packing, and a search for bounds.
///
/// The first search keeps its clauses, because its targets only fall. The second search bisects:
/// its target is halfway between the bound and the best peak, and closer to the bound after each
/// undecided search.
#[derive(Debug)]
pub(crate) struct Disjunctions {
    tables: Option<Tables>,
    too_large: bool,
}

#[derive(Debug)]
struct Tables {
    conflicts: Conflicts,
    down: DisjunctiveTurn,
    up: DisjunctiveTurn,
    /// The target of the bound search is above the bound by the fraction 1 / 2^closer of the gap.
    closer: u32,
}

/// A search, and its effort so far.
#[derive(Debug)]
struct DisjunctiveTurn {
    search: Disjunctive,
    spent: usize,
}

/// Most halvings of the gap.
const MOST_CLOSER: u32 = 6;

impl Disjunctions {
    /// Returns searches that have not begun.
    pub(crate) const fn new() -> Self {
        Self { tables: None, too_large: false }
    }

    /// Returns whether the core has rules that make these searches worthwhile.
    pub(crate) fn can(&self, core: &Model) -> bool {
        !self.too_large && core.is_rigid()
    }

    /// Runs a search, for a peak of at least `goal` bytes.
    pub(crate) fn step(
        &mut self,
        core: &Model,
        goal: u64,
        best: &mut Incumbent<'_>,
        clock: &Clock<'_>,
    ) -> Result<()> {
        if self.tables.is_none() && !self.too_large {
            self.tables = begin(core, best, clock)?;
            self.too_large = self.tables.is_none();
        }
        let Some(Tables { conflicts, down, up, closer }) = &mut self.tables else { return Ok(()) };
        if best.is_proven() {
            return Ok(());
        }
        let low = best.bound().max(goal);
        let highest = if goal == 0 { best.peak() - 1 } else { low };
        let bisects = goal == 0 && up.spent < down.spent;
        let (search, target) = if bisects {
            (up, core.peak_from(low + ((best.peak() - low) >> (*closer + 1).min(63))))
        } else {
            (down, highest)
        };
        let before = clock.effort();
        let target = target.min(highest);
        let outcome = search.search.step(conflicts, target, clock);
        search.spent += clock.effort() - before;
        match outcome {
            Outcome::Found => best.offer(Some(search.search.offsets()), Stage::Disjunctive),
            Outcome::Impossible => {
                best.raise_bound(core.peak_from(target + 1), Stage::Disjunctive);
            }
            Outcome::Undecided if bisects => *closer = (*closer + 1) % MOST_CLOSER,
            Outcome::Undecided => {}
        }
        Ok(())
    }
}

/// Returns a core's tables, unless the core is too large, and raises the bound to the
/// single-section bound.
fn begin(core: &Model, best: &mut Incumbent<'_>, clock: &Clock<'_>) -> Result<Option<Tables>> {
    let Some(conflicts) = Conflicts::of_model(core, tuning::disjunctive::MOST_PAIRS)? else {
        return Ok(None);
    };
    let stack = least_stack(&conflicts, tuning::disjunctive::STACK_TASKS, clock)?;
    best.raise_bound(core.peak_from(stack), Stage::Disjunctive);
    let search = || Ok(DisjunctiveTurn { search: Disjunctive::new(&conflicts)?, spent: 0 });
    let (down, up) = (search()?, search()?);
    Ok(Some(Tables { conflicts, down, up, closer: 0 }))
}
