//! A request to end searches.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A request to end searches. Any number of threads may use the request at the same time.
#[derive(Debug, Default)]
pub struct Cancel {
    state: Mutex<Requested>,
}

#[derive(Debug, Default)]
struct Requested {
    is_requested: bool,
    /// Searches that run now: the flag that ends each.
    running: Vec<Arc<AtomicBool>>,
}

impl Cancel {
    /// Nothing can panic while the state is locked.
    fn state(&self) -> MutexGuard<'_, Requested> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds the flag of a search that begins. The flag is set at once if the end was requested before.
    pub(crate) fn add(&self, ended: &Arc<AtomicBool>) {
        let mut state = self.state();
        ended.store(state.is_requested, Ordering::Relaxed);
        state.running.push(Arc::clone(ended));
    }

    /// Removes an ended search's flag.
    pub(crate) fn remove(&self, ended: &Arc<AtomicBool>) {
        self.state().running.retain(|flag| !Arc::ptr_eq(flag, ended));
    }

    pub(crate) fn request(&self) {
        let mut state = self.state();
        state.is_requested = true;
        state.running.iter().for_each(|flag| flag.store(true, Ordering::Relaxed));
    }
}
