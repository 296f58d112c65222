//! Behavior when the system has no more memory.
//!
//! The standard library ends the process when an allocation fails that cannot report the failure;
//! most planner allocations are of this kind. So the extension's [allocator](crate::arena) asks
//! here first:
//!
//! 1. Every [`Call`] sets memory aside before the work begins. When an allocation fails, that
//!    memory is freed, the call is cancelled, and the allocation is tried again. The work ends when
//!    it next reads the flag, and the call raises `OutOfMemory`.
//! 2. If even that was not enough, the thread that works for the call sleeps for ever and the
//!    call raises `OutOfMemory`. The memory that the thread had is lost to the process, which
//!    lives.

use std::cell::Cell;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// Calls that may work at the same time.
const MOST_CALLS: usize = 64;

static CALLS: [Slot; MOST_CALLS] = [const { Slot::new() }; MOST_CALLS];

thread_local! {
    /// The call that this thread works for, as a position in [`CALLS`].
    static WORKS_FOR: Cell<Option<usize>> = const { Cell::new(None) };
}

/// The allocator's state for one call.
#[derive(Debug)]
struct Slot {
    taken: AtomicBool,
    /// Asks the work to end.
    cancel: AtomicBool,
    /// Whether the memory that was set aside was needed.
    is_short: AtomicBool,
    /// Whether a thread that works for the call will never come back.
    is_lost: AtomicBool,
    /// Memory set aside: capacity without content, which costs addresses only.
    aside: Mutex<Option<Vec<u8>>>,
}

impl Slot {
    const fn new() -> Self {
        Self {
            taken: AtomicBool::new(false),
            cancel: AtomicBool::new(false),
            is_short: AtomicBool::new(false),
            is_lost: AtomicBool::new(false),
            aside: Mutex::new(None),
        }
    }

    /// Frees the memory that was set aside if there are at least `bytes`, and returns whether there
    /// were.
    ///
    /// Called by the allocator: allocates nothing, waits for nothing.
    fn give_up(&self, bytes: usize) -> bool {
        let Ok(mut aside) = self.aside.try_lock() else { return false };
        if aside.as_ref().is_none_or(|aside| aside.capacity() < bytes) {
            return false;
        }
        self.is_short.store(true, Ordering::Relaxed);
        self.cancel.store(true, Ordering::Relaxed);
        drop(aside.take());
        true
    }
}

/// Frees memory with at least `bytes` that a call has set aside, if any, and returns whether to try
/// again. The memory of this thread's call comes first.
pub(crate) fn relieve(bytes: usize) -> bool {
    let own = WORKS_FOR.get().map(|index| &CALLS[index]);
    own.is_some_and(|own| own.give_up(bytes)) || CALLS.iter().any(|call| call.give_up(bytes))
}

/// Ends the work of a thread without memory to go on, if the thread works for a call; returns for
/// interpreter threads. `is_helper` tells whether the interpreter does not know the thread.
pub(crate) fn strand(is_helper: bool) {
    let lost: &[Slot] = match WORKS_FOR.get() {
        Some(index) => &CALLS[index..=index],
        // A thread that a solver has started: any call may wait for the thread.
        None if is_helper => &CALLS,
        None => return,
    };
    for call in lost {
        call.cancel.store(true, Ordering::Relaxed);
        call.is_lost.store(true, Ordering::Release);
    }
    loop {
        std::thread::park();
    }
}

/// A call from Python for which much may be allocated.
#[derive(Debug)]
pub(crate) struct Call(usize);

impl Call {
    /// Begins a call with `bytes` set aside; returns `None` if there is not enough memory.
    pub(crate) fn begin(bytes: usize) -> Option<Self> {
        let mut aside = Vec::new();
        aside.try_reserve_exact(bytes).ok()?;
        let free = |slot: &Slot| {
            slot.taken.compare_exchange(false, true, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        };
        let index = CALLS.iter().position(free)?;
        let call = Self(index);
        let slot = call.slot();
        slot.cancel.store(false, Ordering::Relaxed);
        slot.is_short.store(false, Ordering::Relaxed);
        slot.is_lost.store(false, Ordering::Relaxed);
        *slot.aside.lock().ok()? = Some(aside);
        Some(call)
    }

    fn slot(&self) -> &'static Slot {
        &CALLS[self.0]
    }

    /// Returns the flag that asks the work to end.
    pub(crate) fn cancel(&self) -> &'static AtomicBool {
        &self.slot().cancel
    }

    /// Returns whether an allocation has failed since the call began.
    pub(crate) fn is_short(&self) -> bool {
        self.slot().is_short.load(Ordering::Relaxed) || self.is_lost()
    }

    /// Returns whether a thread that works for the call will never come back.
    pub(crate) fn is_lost(&self) -> bool {
        self.slot().is_lost.load(Ordering::Acquire)
    }

    /// Returns the guard that makes a thread work for this call.
    pub(crate) fn worker(&self) -> Worker {
        Worker(self.0)
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        // Data of a lost thread is never freed.
        if !self.is_lost() {
            let aside = self.slot().aside.lock().ok().and_then(|mut aside| aside.take());
            drop(aside);
            self.slot().taken.store(false, Ordering::Release);
        }
    }
}

/// Makes a thread work for a call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Worker(usize);

impl Worker {
    /// Lets this thread work for the call until it ends.
    pub(crate) fn enter(self) {
        WORKS_FOR.set(Some(self.0));
    }

    /// Lets this thread work for no call.
    pub(crate) fn leave() {
        WORKS_FOR.set(None);
    }
}
