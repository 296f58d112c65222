//! Search progress, and an early end on request.

use std::ffi::CString;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arenaplan::{Budget, pack};

use crate::cancel::Cancel;
use crate::types::{Progress, c_string};

/// Receives progress, and returns whether the search continues.
pub(crate) type Hear<'a> = dyn Fn(&Progress) -> bool + Send + 'a;

/// The progress listener and the end of a search.
pub(crate) struct Watch<'a> {
    listener: Option<Mutex<Box<Hear<'a>>>>,
    cancel: Option<&'a Cancel>,
    /// Ends the search.
    ended: Arc<AtomicBool>,
}

impl fmt::Debug for Watch<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").field("cancel", &self.cancel).finish_non_exhaustive()
    }
}

impl<'a> Watch<'a> {
    pub(crate) fn new(listener: Option<Box<Hear<'a>>>, cancel: Option<&'a Cancel>) -> Self {
        let ended = Arc::new(AtomicBool::new(false));
        if let Some(cancel) = cancel {
            cancel.add(&ended);
        }
        Self { listener: listener.map(Mutex::new), cancel, ended }
    }

    /// Calls `search` with a budget that tells the listener, and that ends on request.
    pub(crate) fn during<T>(&self, search: impl FnOnce(Budget<'_>) -> T) -> T {
        let tell = |progress: pack::Progress| self.tell(progress);
        let mut budget = Budget::default();
        budget.cancel = Some(&self.ended);
        if self.listener.is_some() {
            budget.progress = Some(&tell);
        }
        search(budget)
    }

    fn tell(&self, progress: pack::Progress) {
        let Some(listener) = &self.listener else { return };
        let hear = listener.lock().unwrap_or_else(PoisonError::into_inner);
        if self.ended.load(Ordering::Relaxed) {
            return;
        }
        let stage: CString = c_string(progress.stage.name());
        let told = Progress {
            size: u32::try_from(size_of::<Progress>()).unwrap_or_default(),
            space: progress.space.into(),
            stage: stage.as_ptr(),
            peak: progress.peak,
            lower_bound: progress.lower_bound,
            nodes: progress.nodes,
        };
        if !hear(&told) {
            self.ended.store(true, Ordering::Relaxed);
        }
    }
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        if let Some(cancel) = self.cancel {
            cancel.remove(&self.ended);
        }
    }
}
