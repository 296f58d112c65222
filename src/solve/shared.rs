//! Several threads that search the same core, and tell each other what they find.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use super::Stage;
use super::clock::Clock;
use super::incumbent::Incumbent;
use super::model::Model;
use super::portfolio::improve;
use super::tools::Tools;
use crate::error::Result;

/// The best that any thread has found.
#[derive(Debug, Default)]
struct Found {
    offsets: Option<Vec<u64>>,
    peak: u64,
    bound: u64,
}

/// What the threads know together.
#[derive(Debug)]
pub(super) struct Shared {
    found: Mutex<Found>,
    /// Set when the first thread is done.
    stop: AtomicBool,
}

impl Shared {
    /// Gives what this thread knows, and takes what others do.
    pub(super) fn exchange(&self, best: &mut Incumbent<'_>) {
        // A thread that panicked while it held the lock has ended the search anyway.
        let Ok(mut found) = self.found.lock() else { return };
        if best.peak() < found.peak {
            found.peak = best.peak();
            found.offsets = best.offsets().map(<[u64]>::to_vec);
        } else if found.peak < best.peak() {
            best.offer(found.offsets.clone(), Stage::Threads);
        }
        found.bound = found.bound.max(best.bound());
        best.raise_bound(found.bound, Stage::Threads);
    }
}

/// Improves the packing of a core with as many threads as the budget allows.
///
/// Each has its own tables and random choices. Which one is first depends on the
/// machine, so this is only for searches that a deadline ends.
pub(super) fn improve_together(
    core: &Model,
    capacity: Option<u64>,
    tools: &mut Tools,
    best: &mut Incumbent<'_>,
    clock: &Clock<'_>,
) -> Result<()> {
    let threads = clock.threads();
    if threads == 1 || best.is_proven() {
        return improve(core, capacity, tools, best, clock, None);
    }
    let offsets = best.offsets().map(<[u64]>::to_vec);
    let found = Found { offsets, peak: best.peak(), bound: best.bound() };
    let shared = Shared { found: Mutex::new(found), stop: AtomicBool::new(false) };
    let space = best.space();
    std::thread::scope(|scope| {
        for worker in 1..threads {
            let (shared, budget) = (&shared, clock.budget_of(worker, &shared.stop));
            let work = move || {
                let clock = Clock::new(&budget);
                let mut best = Incumbent::new(core, space, &clock);
                // A thread without memory for its tables leaves the work to the others.
                let (tools, share) = (&mut Tools::of_worker(worker), Some(shared));
                let _ = improve(core, capacity, tools, &mut best, &clock, share);
            };
            // Where the system starts no more threads, those that run do the work.
            if std::thread::Builder::new().spawn_scoped(scope, work).is_err() {
                break;
            }
        }
        let result = improve(core, capacity, tools, best, clock, Some(&shared));
        shared.stop.store(true, Ordering::Relaxed);
        result
    })?;
    shared.exchange(best);
    Ok(())
}
