//! The protocol by which steps of a shared arena are lent, under a model checker: `loom` tries every
//! interleaving of small runs, and every value that a thread may see.
//!
//! The protocol is the file of the core itself, with the atomics of `loom`.

#![allow(clippy::unwrap_used, dead_code, unreachable_pub, reason = "a test of a private file")]

extern crate alloc;

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::thread;

mod sync {
    pub(super) use loom::sync::atomic::{AtomicU8, Ordering};
}

#[path = "../../src/run/arena/turns.rs"]
mod turns;

use turns::{Refusal, Turns};

/// A step of a small program: the steps that it waits for, and the cells that it reads and writes.
struct Step {
    before: &'static [usize],
    reads: &'static [usize],
    writes: &'static [usize],
}

const fn step(before: &'static [usize], reads: &'static [usize], writes: &'static [usize]) -> Step {
    Step { before, reads, writes }
}

/// Turns, and the memory that they protect. The cells are atomic without any order: a thread that
/// is not ordered behind a write may read the cell's older content, and one that is not ordered
/// before a write the newer one. `loom` tries all of that.
struct Memory {
    turns: Turns,
    cells: Vec<AtomicU32>,
}

impl Memory {
    /// Uses the cells of a step as a kernel does.
    fn run(&self, step: &Step) {
        let sum = |cell: &usize| self.cells[*cell].load(Ordering::Relaxed);
        let sum = 1 + step.reads.iter().map(sum).sum::<u32>();
        for &cell in step.writes {
            let old = self.cells[cell].load(Ordering::Relaxed);
            self.cells[cell].store(old + sum, Ordering::Relaxed);
        }
    }

    /// Tries every step once, in order. A step that is refused is left to the other thread, or to
    /// the end.
    fn work(&self, steps: &[Step]) {
        for (index, step) in steps.iter().enumerate() {
            if self.turns.take(index, step.before.iter().copied()).is_ok() {
                self.run(step);
                self.turns.give_back(index);
            }
        }
    }
}

/// Runs each step on the first of two threads that gets it, in every interleaving; `expected` are
/// the cells of a serial run.
fn check(steps: &'static [Step], expected: &'static [u32]) {
    loom::model(move || {
        let memory = Arc::new(Memory {
            turns: Turns::new(steps.len()),
            cells: expected.iter().map(|_| AtomicU32::new(0)).collect(),
        });
        let other = Arc::clone(&memory);
        let thread = thread::spawn(move || other.work(steps));
        memory.work(steps);
        thread.join().unwrap();
        (0..steps.len()).for_each(|_| memory.work(steps));
        assert!(memory.turns.are_over());
        assert_eq!(memory.turns.take(0, []), Err(Refusal::Lent));
        assert_eq!(memory.turns.take(steps.len(), []), Err(Refusal::Missing));
        let cells = memory.cells.iter().map(|cell| cell.load(Ordering::Relaxed));
        assert_eq!(cells.collect::<Vec<_>>(), expected, "of a serial run");
    });
}

#[test]
fn a_chain_is_ordered() {
    static STEPS: [Step; 3] =
        [step(&[], &[], &[0]), step(&[0], &[0], &[1]), step(&[1], &[1], &[0])];
    check(&STEPS, &[4, 2]);
}

#[test]
fn branches_share_what_they_read_and_join() {
    static STEPS: [Step; 4] = [
        step(&[], &[], &[0]),
        step(&[0], &[0], &[1]),
        step(&[0], &[0], &[2]),
        // It writes the bytes that both branches have read.
        step(&[1, 2], &[1, 2], &[0]),
    ];
    check(&STEPS, &[6, 2, 2]);
}

/// The model sees a missing dependency: without it the run is refused.
#[test]
#[should_panic(expected = "of a serial run")]
fn a_missing_dependency_is_a_race() {
    static STEPS: [Step; 2] = [step(&[], &[], &[0]), step(&[], &[0], &[1])];
    check(&STEPS, &[1, 2]);
}
