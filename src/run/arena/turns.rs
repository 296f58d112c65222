//! Turns: the protocol for lending a run's steps to several threads.
//!
//! A step is *waiting*, then *lent*, then *done*. A step is lent once, and only after all required
//! steps are done. So if a path of dependencies leads between two steps, the later step is lent
//! after the earlier step was given back, and sees the earlier step's writes: giving back releases,
//! and lending acquires.
//!
//! This file has no `unsafe`. `engine/tests/turns.rs` includes it with the atomics of `loom`, which
//! tries every interleaving of small runs.

use alloc::boxed::Box;

use super::sync::{AtomicU8, Ordering};

const WAITING: u8 = 0;
const LENT: u8 = 1;
const DONE: u8 = 2;

/// Why a step is not lent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// There is no such step.
    Missing,
    /// The step waits for the given step.
    Waits(usize),
    /// The step was lent before.
    Lent,
}

/// Each step's state in a run.
#[derive(Debug)]
pub(crate) struct Turns {
    states: Box<[AtomicU8]>,
}

impl Turns {
    /// Returns the turns of a run with all steps waiting.
    pub(crate) fn new(steps: usize) -> Self {
        Self { states: (0..steps).map(|_| AtomicU8::new(WAITING)).collect() }
    }

    /// Lends a step that waits for the steps `before`.
    pub(crate) fn take(
        &self,
        step: usize,
        before: impl IntoIterator<Item = usize>,
    ) -> Result<(), Refusal> {
        let state = self.states.get(step).ok_or(Refusal::Missing)?;
        for other in before {
            let other_state = self.states.get(other).ok_or(Refusal::Missing)?;
            // Acquire: all that was written before the step was given back happens before this.
            if other_state.load(Ordering::Acquire) != DONE {
                return Err(Refusal::Waits(other));
            }
        }
        let taken = state.compare_exchange(WAITING, LENT, Ordering::Relaxed, Ordering::Relaxed);
        taken.map(|_| ()).map_err(|_| Refusal::Lent)
    }

    /// Takes back a step that was lent.
    pub(crate) fn give_back(&self, step: usize) {
        if let Some(state) = self.states.get(step) {
            // Release: the step's borrows ended before.
            state.store(DONE, Ordering::Release);
        }
    }

    /// Returns whether every step was given back.
    pub(crate) fn are_over(&self) -> bool {
        self.states.iter().all(|state| state.load(Ordering::Acquire) == DONE)
    }

    /// Makes every step wait again. No step is lent, because the turns are borrowed mutably.
    pub(crate) fn restart(&mut self) {
        for state in &*self.states {
            state.store(WAITING, Ordering::Relaxed);
        }
    }
}
