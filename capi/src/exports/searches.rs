//! Search progress, and an early end on request.

use std::ffi::c_void;
use std::ptr;

use crate::cancel::Cancel;
use crate::costs::{Ask, ProgramCosts};
use crate::types::{CostFunction, MOST_WAYS, Progress, ProgressFunction, Way};
use crate::watch::{Hear, Watch};

/// Returns a request to end searches, which has not been made yet, for the caller to free with
/// `ap_cancel_free`.
#[unsafe(no_mangle)]
pub extern "C" fn ap_cancel_new() -> Box<Cancel> {
    Box::default()
}

/// Ends all searches whose options name this request, and all later searches: each returns the best
/// result so far. Any thread may make this call at any time. Does nothing if `cancel` is null.
#[unsafe(no_mangle)]
pub extern "C" fn ap_cancel_request(cancel: Option<&Cancel>) {
    if let Some(cancel) = cancel {
        cancel.request();
    }
}

/// Frees a request that no search uses; does nothing if `cancel` is null.
#[unsafe(no_mangle)]
pub extern "C" fn ap_cancel_free(cancel: Option<Box<Cancel>>) {
    drop(cancel);
}

/// Returns the progress listener and the end of a search.
///
/// # Safety
///
/// `cancel` follows rules 1 and 3 during `'a`, and the function rule 6.
pub(super) unsafe fn watch<'a>(
    progress: ProgressFunction,
    context: *mut c_void,
    cancel: *const Cancel,
) -> Watch<'a> {
    let listener = progress.map(|function| {
        let listener = Listener { function, context };
        let hear: Box<Hear<'a>> = Box::new(move |progress: &Progress| listener.hear(progress));
        hear
    });
    // SAFETY: null, or a request that lives during `'a` (rules 1 and 3), which locks its state.
    Watch::new(listener, unsafe { cancel.as_ref() })
}

/// Returns the costs that a program states, if any.
///
/// # Safety
///
/// The function follows rule 6 during `'a`.
pub(super) unsafe fn costs<'a>(
    function: CostFunction,
    context: *mut c_void,
) -> Option<ProgramCosts<'a>> {
    let function = function?;
    let ask: Box<Ask<'a>> = Box::new(move |nodes: &[u32], ways: &mut [Way; MOST_WAYS]| {
        // SAFETY: the program passed both for this call (rule 6); the arrays live during the call,
        // and have the stated numbers of elements.
        unsafe { function(context, nodes.as_ptr(), nodes.len(), ways.as_mut_ptr()) }
    });
    Some(ProgramCosts(ask))
}

/// The program's function.
struct Listener {
    function: unsafe extern "C" fn(*mut c_void, *const Progress) -> i32,
    context: *mut c_void,
}

// SAFETY: the context is passed on and not used here; the program knows that the function may be
// called on other threads, one call at a time (rule 6).
unsafe impl Send for Listener {}

impl Listener {
    /// Returns whether the search is to go on.
    fn hear(&self, progress: &Progress) -> bool {
        // SAFETY: the program passed both for this call (rule 6); the struct lives during the call.
        unsafe { (self.function)(self.context, ptr::from_ref(progress)) == 0 }
    }
}
