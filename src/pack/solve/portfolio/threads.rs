//! Several threads search the same core and exchange their best packings.

use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering};
use std::sync::Mutex;

use super::incumbent::Incumbent;
use crate::base::Result;
use crate::pack::solve::budget::Stage;
use crate::pack::solve::model::Model;
use crate::pack::solve::model::clock::Clock;

/// The best that any thread has found.
#[derive(Debug, Default)]
struct Found {
    offsets: Option<Vec<u64>>,
    peak: u64,
    bound: u64,
}

/// The best packing and the largest bound of all threads.
#[derive(Debug)]
pub(crate) struct Exchange {
    found: Mutex<Found>,
    /// Set when the first thread is done.
    stop: AtomicBool,
}

impl Exchange {
    /// Exchanges packing and bound with the other threads.
    pub(crate) fn exchange(&self, best: &mut Incumbent<'_>) {
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

/// Runs `improve` on as many threads as the budget allows, each with its own packing of `core`.
///
/// `improve` gets the number of its thread, the best packing so far, the clock of its thread, and
/// the exchange with the other threads, if there are any. The order in which threads finish depends
/// on the machine, so several threads run only if a deadline ends the search.
pub(crate) fn improve_together(
    core: &Model,
    best: &mut Incumbent<'_>,
    clock: &Clock<'_>,
    mut first: impl FnMut(&mut Incumbent<'_>, &Clock<'_>, Option<&Exchange>) -> Result<()>,
    other: impl Fn(usize, &mut Incumbent<'_>, &Clock<'_>, &Exchange) -> Result<()> + Sync,
) -> Result<()> {
    let threads = clock.threads();
    if threads == 1 || best.is_proven() {
        return first(best, clock, None);
    }
    let offsets = best.offsets().map(<[u64]>::to_vec);
    let found = Found { offsets, peak: best.peak(), bound: best.bound() };
    let exchange = Exchange { found: Mutex::new(found), stop: AtomicBool::new(false) };
    let space = best.space();
    std::thread::scope(|scope| {
        for worker in 1..threads {
            let (exchange, other) = (&exchange, &other);
            let budget = clock.budget_of(worker, &exchange.stop);
            let work = move || {
                let clock = Clock::new(&budget);
                let mut best = Incumbent::new(core, space, &clock);
                // A thread without memory for its tables leaves the work to the others.
                let _ = other(worker, &mut best, &clock, exchange);
            };
            // Where the system starts no more threads, those that run do the work.
            if std::thread::Builder::new().spawn_scoped(scope, work).is_err() {
                break;
            }
        }
        let result = first(best, clock, Some(&exchange));
        exchange.stop.store(true, Ordering::Relaxed);
        result
    })?;
    exchange.exchange(best);
    Ok(())
}
