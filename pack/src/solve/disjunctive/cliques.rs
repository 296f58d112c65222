//! Propagation over cliques: pairwise disjoint parts need the sum of their sizes.
//!
//! # References
//!
//! The overload rule and edge finding in disjunctive scheduling (Carlier and Pinson, Management
//! Science 35, 1989). Offsets are times, sizes are durations.

use alloc::vec::Vec;

use super::conflicts::{Clique, Task};
use super::trail::{ClauseConflict, Need, Trail};

/// A task in one direction: upwards, or downwards with all offsets negated.
#[derive(Clone, Copy, Debug)]
struct DirectedTask {
    task: Task,
    /// The least begin and the largest end.
    begin: i64,
    end: i64,
    /// The size, rounded up to the clique's step.
    size: i64,
}

/// A derived bound, and the bounds from which it follows.
#[derive(Clone, Debug)]
pub(super) struct Implied {
    pub(super) need: Need,
    pub(super) from: Vec<Need>,
}

/// The propagator, with its tables.
#[derive(Debug, Default)]
pub(super) struct Overload {
    placed: Vec<DirectedTask>,
    ends: Vec<i64>,
    /// Bounds that the last call has found.
    pub(super) implied: Vec<Implied>,
    pub(super) effort: usize,
}

impl Overload {
    /// Finds bounds that follow from the task sizes in a clique, or a conflict.
    pub(super) fn check(&mut self, clique: &Clique, trail: &Trail) -> Result<(), ClauseConflict> {
        self.implied.clear();
        for upwards in [true, false] {
            self.place(clique, trail, upwards);
            for at in 0..self.ends.len() {
                self.check_end(self.ends[at], clique.step, upwards)?;
            }
        }
        Ok(())
    }

    /// Fills the tables for a direction: tasks by descending begin, and all ends.
    fn place(&mut self, clique: &Clique, trail: &Trail, upwards: bool) {
        self.placed.clear();
        self.placed.extend(clique.tasks.iter().map(|&task| {
            let (low, high) = (trail.low(task.item), trail.high(task.item));
            let pad = pad(task, clique.step);
            let (begin, end) = if upwards {
                (low + task.start, high + task.end + pad)
            } else {
                (-high - task.end - pad, -low - task.start)
            };
            DirectedTask { task, begin, end, size: task.end - task.start + pad }
        }));
        self.placed.sort_unstable_by_key(|it| (-it.begin, it.task.item));
        self.ends.clear();
        self.ends.extend(self.placed.iter().map(|it| it.end));
        self.ends.sort_unstable();
        self.ends.dedup();
    }

    /// Examines the tasks that end at `end` or before, from some begin on.
    fn check_end(&mut self, end: i64, step: i64, upwards: bool) -> Result<(), ClauseConflict> {
        self.effort += self.placed.len();
        let (mut sum, mut other): (i64, Option<DirectedTask>) = (0, None);
        for count in 0..self.placed.len() {
            let it = self.placed[count];
            if it.end > end {
                if other.is_none_or(|other| it.size > other.size) {
                    other = Some(it);
                }
                continue;
            }
            sum += it.size;
            let excess = it.begin + sum - end;
            if excess > 0 {
                let needs = self.inside(count, end, it.begin - (excess - 1), step, upwards);
                return Err(ClauseConflict::Set(needs));
            }
            // The other task begins no lower than all these, and there is not enough room for all
            // of them and the task: the task is behind them.
            let Some(behind) = other else { continue };
            let excess = it.begin + sum + behind.size - end;
            let value = it.begin + sum;
            if excess > 0 && value > behind.begin {
                let mut from = self.inside(count, end, it.begin, step, upwards);
                from.push(begins(behind.task, it.begin - (excess - 1), step, upwards));
                let need = begins(behind.task, value, step, upwards);
                self.implied.push(Implied { need, from });
            }
        }
        Ok(())
    }

    /// Returns the needs that the tasks up to place `last` begin at `begin` or later, and end at
    /// `end` or before, for tasks that do.
    fn inside(&self, last: usize, end: i64, begin: i64, step: i64, upwards: bool) -> Vec<Need> {
        let inside = self.placed[..=last].iter().filter(|it| it.end <= end);
        let needs = |it: &DirectedTask| {
            let first = begins(it.task, begin, step, upwards);
            [first, ends(it.task, end, step, upwards)]
        };
        inside.flat_map(needs).collect()
    }
}

/// Returns the units after a task that no other task can use.
fn pad(task: Task, step: i64) -> i64 {
    let size = task.end - task.start;
    (step - size.rem_euclid(step)).rem_euclid(step)
}

/// Returns the need that a task begins at `begin` or later, in its direction.
fn begins(task: Task, begin: i64, step: i64, upwards: bool) -> Need {
    if upwards {
        Need { bound: 2 * task.item, value: begin - task.start }
    } else {
        Need { bound: 2 * task.item + 1, value: begin + task.end + pad(task, step) }
    }
}

/// Returns the need that a task ends at `end` or before, in its direction.
fn ends(task: Task, end: i64, step: i64, upwards: bool) -> Need {
    if upwards {
        Need { bound: 2 * task.item + 1, value: task.end + pad(task, step) - end }
    } else {
        Need { bound: 2 * task.item, value: -end - task.start }
    }
}
