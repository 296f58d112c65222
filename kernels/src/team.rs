//! Threads that divide a kernel's work.

use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};

use crate::raw::Board;

/// Least cycles per part: some microseconds; a thread takes notice in a third of that time.
pub(crate) const LEAST: usize = 6_000;

/// Threads that divide a kernel's work: the calling thread, and helpers.
///
/// A team works on one kernel at a time; another thread's kernel is not divided meanwhile. The
/// calling thread works in the kernel's scratch memory, and each helper in separate memory, which
/// is there before the first run. A forked process has no helpers, so kernels are not divided
/// there.
///
/// # Examples
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use arenaplan_kernels::{Planes, PlanesMut, Team, softmax};
///
/// let team = Team::new(2)?;
/// let rows = vec![0.0; 1000 * 64];
/// let mut made = vec![0.0; 1000 * 64];
/// let source = Planes::new(&rows, [1, 1000], 64)?;
/// softmax(Some(&source), &mut PlanesMut::new(&mut made, [1, 1000], 64)?, &team)?;
/// assert_eq!(made, vec![1.0 / 64.0; 1000 * 64]);
/// # Ok(())
/// # }
/// ```
pub struct Team {
    shared: Arc<Shared>,
    helpers: Vec<JoinHandle<()>>,
    /// Held by the thread that works with the team.
    turn: Mutex<()>,
    process: u32,
}

struct Shared {
    board: Board,
    /// The scratch memory by helper.
    scratch: Vec<Mutex<Vec<f32>>>,
}

impl Team {
    /// Returns a team with so many threads, the caller's among them.
    ///
    /// # Errors
    ///
    /// If the system starts no more threads.
    pub fn new(threads: usize) -> io::Result<Self> {
        let count = threads.saturating_sub(1);
        let scratch = (0..count).map(|_| Mutex::default()).collect();
        let shared = Arc::new(Shared { board: Board::new(), scratch });
        let turn = Mutex::new(());
        let mut team = Self { shared, helpers: Vec::new(), turn, process: std::process::id() };
        for number in 0..count {
            let shared = Arc::clone(&team.shared);
            let help = move || {
                let mut seen = 0;
                while let Some(round) = shared.board.attend(seen, number) {
                    seen = round;
                }
            };
            team.helpers.push(Builder::new().name("arenaplan-team".into()).spawn(help)?);
        }
        Ok(team)
    }

    /// Returns a team with only the calling thread.
    pub fn alone() -> Self {
        let shared = Arc::new(Shared { board: Board::new(), scratch: Vec::new() });
        Self { shared, helpers: Vec::new(), turn: Mutex::new(()), process: 0 }
    }

    /// Returns the thread count.
    pub fn threads(&self) -> usize {
        self.helpers.len() + 1
    }

    /// Gives each helper at least so many scratch elements.
    pub fn reserve(&self, elements: usize) {
        for scratch in &self.shared.scratch {
            let mut scratch = lock(scratch);
            if scratch.len() < elements {
                scratch.resize(elements, 0.0);
            }
        }
    }

    /// Returns all helpers' scratch bytes.
    pub fn scratch_bytes(&self) -> usize {
        let sizes = self.shared.scratch.iter().map(|scratch| lock(scratch).len());
        sizes.sum::<usize>() * size_of::<f32>()
    }

    /// Does all parts, each in one thread, in any order. Helpers have scratch memory of the same
    /// size, which is allocated here if not [reserved](Self::reserve).
    pub(crate) fn run<P: Send>(
        &self,
        parts: impl Iterator<Item = P> + Send,
        scratch: &mut [f32],
        work: impl Fn(P, &mut [f32]) + Sync,
    ) {
        let parts = Mutex::new(parts);
        let next = || lock(&parts).next();
        let all = |scratch: &mut [f32]| {
            while let Some(part) = next() {
                work(part, scratch);
            }
        };
        let is_own = !self.helpers.is_empty() && self.process == std::process::id();
        let turn = if is_own { self.turn.try_lock().ok() } else { None };
        if turn.is_some() {
            let elements = scratch.len();
            let help = |number: usize| {
                let mut own = lock(&self.shared.scratch[number]);
                if own.len() < elements {
                    own.resize(elements, 0.0);
                }
                all(&mut own);
            };
            self.shared.board.lend(&help, || all(scratch));
        } else {
            all(scratch);
        }
    }
}

/// Returns the protected data. A thread that panicked there left nothing that is read.
fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl fmt::Debug for Team {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Team").field("threads", &self.threads()).finish_non_exhaustive()
    }
}

impl Drop for Team {
    fn drop(&mut self) {
        if self.helpers.is_empty() || self.process != std::process::id() {
            return;
        }
        self.shared.board.close();
        for helper in self.helpers.drain(..) {
            // A helper's panic was passed on to the thread that the helper served.
            drop(helper.join());
        }
    }
}

/// Returns the length of even parts of some units, for so many cycles in all: as many parts as
/// threads, or a single part if parts were too short. A length that is at least `units` means a
/// single part.
pub(crate) fn even(team: &Team, units: usize, cycles: usize) -> usize {
    let parts = team.threads().min(cycles / LEAST).max(1);
    units.div_ceil(parts).max(1)
}

/// Returns successive ranges of a length; the last range may be shorter.
pub(crate) fn ranges(count: usize, length: usize) -> impl Iterator<Item = Range<usize>> + Send {
    (0..count).step_by(length).map(move |start| start..count.min(start + length))
}
