//! Arena bytes as Python buffers, and the extension's allocator. The only `unsafe` in the bindings:
//! the buffer protocol is a C interface, and an allocator hands out memory.

#![allow(unsafe_code, reason = "the buffer protocol is a C interface, and so is an allocator")]

use std::alloc::{GlobalAlloc, Layout, System};

use std::ffi::{c_int, c_void};
use std::ptr;
use std::slice;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use arenaplan::arena::{ArenaAllocator, ArenaBlock, SystemAllocator};
use arenaplan::base::{Alignment, quoted};
use arenaplan::{Error, SpaceId};
use arenaplan_kernels::{Elements, Kind, Planes, PlanesMut};
use pyo3::buffer::{Element, PyBuffer};
use pyo3::exceptions::{PyBufferError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyMemoryView, PyTuple};
use pyo3::{PyTraverseError, PyVisit, ffi};

use crate::error::{Named, OrRaise, raise_named};
use crate::getters::getters;
use crate::headroom;
use crate::planes::PlaneLayout;

/// The system allocator, which asks [`headroom`] before failing.
struct Allocator;

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

impl Allocator {
    /// Calls `allocate` until the call succeeds or nothing is left that could help.
    fn insist(bytes: usize, allocate: impl Fn() -> *mut u8) -> *mut u8 {
        loop {
            let memory = allocate();
            if !memory.is_null() {
                return memory;
            }
            if !headroom::relieve(bytes) {
                // SAFETY: the function may be called at any time on any thread, and reads a thread
                // variable.
                let known = unsafe { ffi::PyGILState_GetThisThreadState() };
                headroom::strand(known.is_null());
                return memory;
            }
        }
    }
}

// SAFETY: every method passes its arguments on to the system allocator, whose contract is that of
// the trait, and returns the last result of the system allocator. Nothing else is allocated on the
// way, and nothing unwinds: `headroom` takes a lock without waiting, stores flags, and frees its
// own memory.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller promises a layout with bytes.
        Self::insist(layout.size(), || unsafe { System.alloc(layout) })
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller promises a layout with bytes.
        Self::insist(layout.size(), || unsafe { System.alloc_zeroed(layout) })
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        // SAFETY: the caller promises memory from this allocator, with this layout, and a valid new
        // size; the memory is from the system allocator, and stays unchanged on failure.
        Self::insist(bytes, || unsafe { System.realloc(memory, layout, bytes) })
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller promises memory from this allocator, which the system allocator made.
        unsafe { System.dealloc(memory, layout) }
    }
}

/// Memory that plans run in: from :meth:`Plan.commit`, or the caller's.
///
/// ``Arena(memory)`` takes any writable buffer without gaps, such as a NumPy array, a
/// ``bytearray``, an ``mmap`` or the ``buf`` of a ``SharedMemory``, uses the buffer in place, and
/// holds the buffer until the arena is closed. An executor asks for the plan's bytes and alignment.
///
/// An arena is a writable byte buffer: ``memoryview(arena)``, ``numpy.frombuffer(arena, "u1")`` and
/// ``numpy.from_dlpack(arena)`` share the memory and keep the memory alive. Only one run at a time
/// may use an arena: see :meth:`lease`.
///
/// Parameters
/// ----------
/// memory : buffer
///     The bytes.
///
/// Raises
/// ------
/// InvalidBuffer
///     If the memory is not a buffer in main memory, is read-only, or has gaps.
///
/// Examples
/// --------
/// >>> import mmap
/// >>> import arenaplan as ap
/// >>> memory = mmap.mmap(-1, 1 << 16)
/// >>> with ap.Arena(memory) as arena:
/// ...     arena.nbytes, arena.address % 4096
/// (65536, 0)
#[pyclass(frozen, module = "arenaplan._core")]
#[derive(Debug)]
pub(crate) struct Arena {
    /// `None` once closed. The lock is held for moments only, never while bytes are used.
    memory: Mutex<Option<Owned>>,
    /// Address and size of the bytes, valid while `memory` is present.
    address: usize,
    bytes: usize,
    /// Buffers that the interpreter holds.
    views: AtomicUsize,
    holder: Holder,
    process: u32,
}

/// The owner of an arena's bytes, which stay in place while the owner lives.
#[derive(Debug)]
enum Owned {
    /// The arena's own memory.
    Arena { _memory: arenaplan::Arena<'static> },
    /// Another Python object's memory.
    Caller { _memory: PyBuffer<u8> },
}

/// The process with a run that leases the arena; 0 without a lease. A forked child has a copy of
/// the memory, and does not own the parent's lease.
#[derive(Clone, Debug, Default)]
pub(crate) struct Holder(Arc<AtomicU32>);

impl Holder {
    /// Returns whether a run in this process has the arena.
    fn is_busy(&self) -> bool {
        self.0.load(Ordering::Acquire) == std::process::id()
    }

    /// Reserves `arena`, which is the object that the lease keeps alive.
    pub(crate) fn lease(&self, py: Python<'_>, arena: Py<PyAny>) -> PyResult<Lease> {
        let process = std::process::id();
        if self.0.swap(process, Ordering::AcqRel) == process {
            return Err(raise_named(py, "ArenaBusy", "another run has the arena".into()));
        }
        Ok(Lease { arena, holder: self.clone(), process, held: AtomicBool::new(true) })
    }
}

impl Arena {
    /// Allocates the arena for one space of a plan, or for all spaces, side by side.
    pub(crate) fn commit(
        py: Python<'_>,
        plan: &arenaplan::Plan,
        name: Option<&str>,
    ) -> PyResult<Self> {
        let spaces = plan.arenas();
        let Some(name) = name else {
            let (_, bytes) = plan.side_by_side().or_raise(py)?;
            let alignment = spaces.iter().map(|space| space.alignment).max().unwrap_or(1);
            return Self::zeroed(py, bytes, alignment);
        };
        let Some(found) = spaces.iter().find(|space| space.name == name) else {
            let names: Vec<_> = spaces.iter().map(|space| quoted(&space.name)).collect();
            let (name, names) = (quoted(name), names.join(", "));
            let message = format!("the plan has no space {name}, only {names}");
            return Err(raise_named(py, "ArenaState", message));
        };
        Self::zeroed(py, found.arena_bytes, found.alignment)
    }

    /// Allocates bytes for any content.
    pub(crate) fn zeroed(py: Python<'_>, bytes: u64, alignment: u64) -> PyResult<Self> {
        let alignment = Alignment::new(alignment).or_raise(py)?;
        let memory = py.detach(|| arenaplan::Arena::zeroed(bytes, alignment)).or_raise(py)?;
        let space = SpaceId::new(0);
        let address = memory.address(space).map_or(0, |pointer| pointer.addr().get());
        let bytes = memory.bytes(space).map_or(0, <[u8]>::len);
        Ok(Self::of(Owned::Arena { _memory: memory }, address, bytes))
    }

    /// Returns an arena over bytes that the owner keeps in place.
    fn of(memory: Owned, address: usize, bytes: usize) -> Self {
        Self {
            memory: Mutex::new(Some(memory)),
            address,
            bytes,
            views: AtomicUsize::new(0),
            holder: Holder::default(),
            process: std::process::id(),
        }
    }

    /// Returns the memory, unless in use; dropping the memory frees it.
    fn free(&self) -> Result<Option<Owned>, Refusal> {
        let mut memory = self.memory.lock().map_err(|_| Refusal::Poisoned)?;
        // Views are counted under the same lock, so none can begin in between.
        match self.views.load(Ordering::Acquire) {
            0 if self.holder.is_busy() => Err(Refusal::Busy),
            0 => Ok(memory.take()),
            views => Err(Refusal::Views(views)),
        }
    }

    /// Returns whether the memory was freed.
    fn is_closed(&self) -> bool {
        self.memory.lock().is_ok_and(|memory| memory.is_none())
    }
}

/// The reason why an arena's memory cannot be freed.
enum Refusal {
    Views(usize),
    Busy,
    Poisoned,
}

/// Returns the exception for a lock whose holder panicked.
fn poisoned(py: Python<'_>) -> PyErr {
    raise_named(py, "InternalError", "the arena's lock is poisoned".into())
}

getters! { Arena
    /// Size in bytes.
    nbytes: usize = |it| it.bytes;

    /// Whether the memory was freed.
    closed: bool = |it| it.is_closed();

    /// Number of buffers that share the memory now.
    views: usize = |it| it.views.load(Ordering::Acquire);

    /// Process that the arena was made in.
    process: u32 = |it| it.process;
}

#[pymethods]
impl Arena {
    #[new]
    #[pyo3(signature = (memory: "object"))]
    fn new(memory: &Bound<'_, PyAny>) -> PyResult<Self> {
        let py = memory.py();
        let refuse = |why: &str| raise_named(py, "InvalidBuffer", format!("the memory {why}"));
        let Ok(view) = PyMemoryView::from(memory) else {
            return Err(refuse("is not a buffer in main memory"));
        };
        // References to objects can be cast, too, and must not be overwritten.
        if view.getattr("format")?.extract::<String>()?.contains('O') {
            return Err(refuse("has elements that are objects"));
        }
        // Elements of every other type are bytes; without gaps, since other buffers cannot be cast.
        let cast = view.call_method1("cast", ("B",)).and_then(|bytes| PyBuffer::<u8>::get(&bytes));
        let Ok(bytes) = cast else {
            return Err(refuse("has gaps between its elements"));
        };
        if bytes.readonly() {
            return Err(refuse("is read-only"));
        }
        let address = bytes.buf_ptr().expose_provenance();
        let count = bytes.len_bytes();
        Ok(Self::of(Owned::Caller { _memory: bytes }, address, count))
    }

    /// Address: the first byte.
    #[getter]
    fn address(&self, py: Python<'_>) -> PyResult<usize> {
        self.check_open(py)?;
        Ok(self.address)
    }

    /// Reserve the arena for one run, until the returned lease is released.
    ///
    /// Raises
    /// ------
    /// ArenaBusy
    ///     If another run has the arena.
    /// ArenaState
    ///     If the arena is closed.
    fn lease(slf: Py<Self>, py: Python<'_>) -> PyResult<Lease> {
        let arena = slf.get();
        arena.check_open(py)?;
        let holder = arena.holder.clone();
        holder.lease(py, slf.into_any())
    }

    /// Free the memory; the caller's memory is let go, and stays unchanged.
    ///
    /// Raises
    /// ------
    /// ArenaInUse
    ///     If buffers share the memory.
    /// ArenaBusy
    ///     If a run has the arena.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        // Making an exception can run any Python code, through the collector, and so can letting go
        // of the caller's memory. That code may use the arena: so nothing is raised and dropped
        // under the lock.
        match self.free() {
            Ok(_memory) => Ok(()),
            Err(Refusal::Poisoned) => Err(poisoned(py)),
            Err(Refusal::Views(views)) => {
                let message = format!("{views} views of the arena are alive");
                Err(raise_named(py, "ArenaInUse", message))
            }
            Err(Refusal::Busy) => Err(raise_named(py, "ArenaBusy", "a run has the arena".into())),
        }
    }

    fn __len__(&self) -> usize {
        self.bytes
    }

    fn __enter__(slf: Py<Self>, py: Python<'_>) -> PyResult<Py<Self>> {
        slf.get().check_open(py)?;
        Ok(slf)
    }

    /// Close the arena, unless views are still alive: views keep the memory.
    #[pyo3(signature = (*_exception: "object"))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyTuple>) -> PyResult<()> {
        if self.views.load(Ordering::Acquire) > 0 {
            return Ok(());
        }
        self.close(py)
    }

    fn __reduce__(&self) -> PyResult<(String,)> {
        Err(PyTypeError::new_err("an arena is memory of this process; pickle its plan instead"))
    }

    /// Share the memory as DLPack, through NumPy.
    #[pyo3(signature = (**options: "object"))]
    fn __dlpack__<'py>(
        slf: &Bound<'py, Self>,
        options: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let array = slf.py().import("numpy")?.call_method1("frombuffer", (slf, "u1"))?;
        array.call_method("__dlpack__", (), options)
    }

    /// DLPack's device name: main memory.
    fn __dlpack_device__(&self) -> (i32, i32) {
        (1, 0)
    }

    fn __repr__(&self) -> String {
        let state = if self.is_closed() { ", closed" } else { "" };
        format!("Arena({} bytes{state})", self.bytes)
    }

    /// Fills in a buffer over all bytes.
    // SAFETY: the caller, the interpreter, passes either null or a valid `Py_buffer` to fill
    // in, and calls `__releasebuffer__` once for each success.
    unsafe fn __getbuffer__(
        slf: Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        if view.is_null() {
            return Err(PyBufferError::new_err("no buffer to fill in"));
        }
        let py = slf.py();
        let arena = slf.get();
        let length = ffi::Py_ssize_t::try_from(arena.bytes)
            .map_err(|_| PyBufferError::new_err("the arena is too large"))?;
        let pointer: *mut c_void = ptr::with_exposed_provenance_mut(arena.address);
        // Counted before the buffer is there: from here on the memory stays. The lock is released
        // before any Python function is called, which may run any Python code.
        match arena.memory.lock().map(|memory| {
            arena.views.fetch_add(usize::from(memory.is_some()), Ordering::AcqRel);
            memory.is_some()
        }) {
            Ok(true) => {}
            Ok(false) => return Err(raise_named(py, "ArenaState", "the arena is closed".into())),
            Err(_) => return Err(poisoned(py)),
        }
        // SAFETY: `PyBuffer_FillInfo` asks for a valid `view`, which the interpreter passed and
        // which is not null; for an exporter, to which the call takes a new reference, so that the
        // arena outlives the buffer; and for `length` bytes at `pointer`, which the arena keeps
        // while alive and `views` is not zero, since `close` refuses.
        let status =
            unsafe { ffi::PyBuffer_FillInfo(view, slf.as_ptr(), pointer, length, 0, flags) };
        if status != 0 {
            arena.views.fetch_sub(1, Ordering::AcqRel);
            return Err(PyErr::fetch(py));
        }
        Ok(())
    }

    /// Notes that a buffer is gone.
    // SAFETY: the caller, the interpreter, passes a buffer that `__getbuffer__` filled in.
    unsafe fn __releasebuffer__(&self, _view: *mut ffi::Py_buffer) {
        self.views.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Arena {
    /// Raises unless the memory is there.
    fn check_open(&self, py: Python<'_>) -> PyResult<()> {
        if self.is_closed() {
            return Err(raise_named(py, "ArenaState", "the arena is closed".into()));
        }
        Ok(())
    }
}

/// The right of one run to use an arena; a context manager.
#[pyclass(frozen, module = "arenaplan._core")]
#[derive(Debug)]
pub(crate) struct Lease {
    arena: Py<PyAny>,
    holder: Holder,
    /// The process that took the lease.
    process: u32,
    held: AtomicBool,
}

impl Lease {
    fn end(&self) {
        // In a forked child, the copy of the lease ends nothing.
        if self.held.swap(false, Ordering::AcqRel) && self.process == std::process::id() {
            self.holder.0.store(0, Ordering::Release);
        }
    }
}

#[pymethods]
impl Lease {
    /// Let others use the arena; more than once does no harm.
    fn release(&self) {
        self.end();
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_exception: "object"))]
    fn __exit__(&self, _exception: &Bound<'_, PyTuple>) {
        self.release();
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.arena)
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.end();
    }
}

/// An incremental arena's memory, which views keep alive.
///
/// Invariants, which the blocks below refer to:
///
/// 1. `address` is that of `bytes` initialized bytes in `owner`, exposed when the memory was made.
///    From then on, `owner` only frees the bytes when dropped.
/// 2. One [`IncrementalBlock`] has the memory, and makes the only Rust references to the bytes.
#[derive(Debug)]
struct IncrementalMemory {
    _owner: Box<dyn ArenaBlock>,
    address: usize,
    bytes: usize,
}

/// A block for an incremental arena.
#[derive(Debug)]
struct IncrementalBlock {
    memory: Arc<IncrementalMemory>,
}

impl AsRef<[u8]> for IncrementalBlock {
    fn as_ref(&self) -> &[u8] {
        let IncrementalMemory { address, bytes, .. } = *self.memory;
        // SAFETY: the bytes are there and initialized (invariant 1) while `memory` is, which the
        // result borrows. No Rust code writes the bytes meanwhile (invariant 2, and this borrows
        // `self`). A Python thread that writes through a view races with this call, as with any
        // writable Python buffer.
        unsafe { slice::from_raw_parts(ptr::with_exposed_provenance(address), bytes) }
    }
}

impl AsMut<[u8]> for IncrementalBlock {
    fn as_mut(&mut self) -> &mut [u8] {
        let IncrementalMemory { address, bytes, .. } = *self.memory;
        // SAFETY: as in `as_ref`; nothing of Rust reads or writes the bytes meanwhile
        // (invariant 2, and this borrows `self` mutably).
        unsafe { slice::from_raw_parts_mut(ptr::with_exposed_provenance_mut(address), bytes) }
    }
}

/// The allocator for an incremental arena: zeroed blocks that do not move while views are alive.
#[derive(Clone, Debug, Default)]
pub(crate) struct ViewableMemory {
    /// The last block's memory.
    last: Arc<Mutex<Weak<IncrementalMemory>>>,
    /// Views that are alive.
    views: Arc<AtomicUsize>,
    /// Whether a block was not moved because of views since that was last asked.
    refused: Arc<AtomicBool>,
}

impl ViewableMemory {
    /// Raises `ArenaInUse` if a view is alive.
    pub(crate) fn check_unused(&self, py: Python<'_>) -> PyResult<()> {
        match self.views.load(Ordering::Acquire) {
            0 => Ok(()),
            views => Err(raise_named(py, "ArenaInUse", views_alive(views))),
        }
    }

    /// Returns whether views kept a block from moving since the last call.
    pub(crate) fn was_refused(&self) -> bool {
        self.refused.swap(false, Ordering::AcqRel)
    }

    /// Returns a result, with `ArenaInUse` in place of an error that views caused.
    pub(crate) fn or_raise<T>(&self, py: Python<'_>, result: Result<T, impl Named>) -> PyResult<T> {
        or_in_use(py, self.was_refused(), result)
    }

    /// Returns a view of bytes in the last block, which the arena has just lent.
    pub(crate) fn view<'py>(
        &self,
        py: Python<'py>,
        address: usize,
        bytes: usize,
    ) -> PyResult<Bound<'py, PyMemoryView>> {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner).upgrade();
        let inside = last.filter(|memory| {
            let start = address.checked_sub(memory.address);
            start.is_some_and(|start| bytes <= memory.bytes.saturating_sub(start))
        });
        let Some(memory) = inside else {
            return Err(raise_named(py, "InternalError", "bytes outside of their arena".into()));
        };
        self.views.fetch_add(1, Ordering::AcqRel);
        let view = ArenaView { _memory: memory, address, bytes, views: Arc::clone(&self.views) };
        PyMemoryView::from(Bound::new(py, view)?.as_any())
    }
}

impl ArenaAllocator for ViewableMemory {
    fn allocate(
        &mut self,
        bytes: u64,
        alignment: Alignment,
    ) -> arenaplan::Result<Box<dyn ArenaBlock>> {
        let mut owner = SystemAllocator.allocate(bytes, alignment)?;
        let bytes = (*owner).as_mut();
        let (address, bytes) = (bytes.as_mut_ptr().expose_provenance(), bytes.len());
        let memory = Arc::new(IncrementalMemory { _owner: owner, address, bytes });
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(&memory);
        Ok(Box::new(IncrementalBlock { memory }))
    }

    fn reallocate(
        &mut self,
        block: Box<dyn ArenaBlock>,
        bytes: u64,
        alignment: Alignment,
    ) -> Result<Box<dyn ArenaBlock>, (Box<dyn ArenaBlock>, Error)> {
        let views = self.views.load(Ordering::Acquire);
        if views > 0 {
            self.refused.store(true, Ordering::Release);
            return Err((block, Error::ArenaState { reason: views_alive(views) }));
        }
        match self.allocate(bytes, alignment) {
            Ok(mut larger) => {
                let old = (*block).as_ref();
                if let Some(start) = (*larger).as_mut().get_mut(..old.len()) {
                    start.copy_from_slice(old);
                }
                Ok(larger)
            }
            Err(error) => Err((block, error)),
        }
    }
}

/// Returns a result, with `ArenaInUse` in place of an error if views were the reason.
pub(crate) fn or_in_use<T>(
    py: Python<'_>,
    refused: bool,
    result: Result<T, impl Named>,
) -> PyResult<T> {
    match result {
        Err(error) if refused && error.kind() == "ArenaState" => {
            Err(raise_named(py, "ArenaInUse", error.to_string()))
        }
        result => result.or_raise(py),
    }
}

/// Returns the message that an arena's memory cannot move.
fn views_alive(views: usize) -> String {
    let which = if views == 1 {
        "1 view of the arena is".into()
    } else {
        format!("{views} views of the arena are")
    };
    format!("{which} alive: its memory can neither move nor be freed")
}

/// The exporter of bytes in an incremental arena; Python sees a `memoryview` of the exporter.
#[pyclass(frozen, module = "arenaplan._core")]
#[derive(Debug)]
pub(crate) struct ArenaView {
    _memory: Arc<IncrementalMemory>,
    address: usize,
    bytes: usize,
    views: Arc<AtomicUsize>,
}

impl Drop for ArenaView {
    fn drop(&mut self) {
        self.views.fetch_sub(1, Ordering::AcqRel);
    }
}

#[pymethods]
impl ArenaView {
    /// Fills in a buffer over the bytes.
    // SAFETY: the caller, the interpreter, passes either null or a valid `Py_buffer`.
    unsafe fn __getbuffer__(
        slf: Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        if view.is_null() {
            return Err(PyBufferError::new_err("no buffer to fill in"));
        }
        let exporter = slf.get();
        let length = ffi::Py_ssize_t::try_from(exporter.bytes)
            .map_err(|_| PyBufferError::new_err("the arena is too large"))?;
        let pointer: *mut c_void = ptr::with_exposed_provenance_mut(exporter.address);
        // SAFETY: `PyBuffer_FillInfo` asks for a valid `view`, which the interpreter passed and
        // which is not null; for an exporter, to which the call takes a new reference; and for
        // `length` bytes at `pointer`, which were inside the exporter's memory when the view was
        // made, and which the memory keeps while the exporter lives.
        let status =
            unsafe { ffi::PyBuffer_FillInfo(view, slf.as_ptr(), pointer, length, 0, flags) };
        if status != 0 {
            return Err(PyErr::fetch(slf.py()));
        }
        Ok(())
    }
}

/// Returns the elements of a contiguous buffer; empty if not contiguous.
pub(crate) fn elements<T: Element>(buffer: &PyBuffer<T>) -> &[T] {
    let count = if buffer.is_c_contiguous() { buffer.item_count() } else { 0 };
    if count == 0 {
        return &[];
    }
    // SAFETY: `PyBuffer` has checked that these are `count` aligned elements of the type, which the
    // exporter keeps while the buffer lives; any bits are a number. A Python thread that writes
    // meanwhile races with the call that uses the elements, as with any Python buffer.
    unsafe { slice::from_raw_parts(buffer.buf_ptr().cast(), count) }
}

/// Returns the elements of a contiguous, writable buffer; empty otherwise.
pub(crate) fn elements_mut<T: Element>(buffer: &mut PyBuffer<T>) -> &mut [T] {
    let writable = buffer.is_c_contiguous() && !buffer.readonly();
    let count = if writable { buffer.item_count() } else { 0 };
    if count == 0 {
        return &mut [];
    }
    // SAFETY: as in `elements`; the buffer can be written, and `compiled::Memory` gives no other
    // operand in the same call any of these bytes.
    unsafe { slice::from_raw_parts_mut(buffer.buf_ptr().cast(), count) }
}

/// Returns the planes in a buffer.
pub(crate) fn planes<'b, T: Element>(
    buffer: &'b PyBuffer<T>,
    layout: &PlaneLayout,
) -> arenaplan_kernels::Result<Planes<'b, T>> {
    let PlaneLayout { counts, steps, size } = *layout;
    // SAFETY: as in `elements`, for the elements that the buffer's shape and strides reach, from
    // which `PlaneLayout` was made.
    unsafe { Planes::from_raw(buffer.buf_ptr().cast(), counts, steps, size) }
}

/// Returns the planes in a buffer, to write.
pub(crate) fn planes_mut<'b, T: Element>(
    buffer: &'b mut PyBuffer<T>,
    layout: &PlaneLayout,
) -> arenaplan_kernels::Result<PlanesMut<'b, T>> {
    let PlaneLayout { counts, steps, size } = *layout;
    // SAFETY: as in `planes` and `elements_mut`.
    unsafe { PlanesMut::from_raw(buffer.buf_ptr().cast(), counts, steps, size) }
}

/// Returns the elements of a buffer, to copy in and out.
pub(crate) fn cells<T: Element>(
    buffer: &PyBuffer<T>,
    kind: Kind,
    len: usize,
) -> arenaplan_kernels::Result<Elements<'_>> {
    debug_assert_eq!(kind.bytes(), size_of::<T>(), "the kind is that of the elements");
    // SAFETY: as in `elements`, for the `len` elements that shape and strides of the buffer reach;
    // `compiled::Elementwise` writes only buffers that can be written, and makes no reference.
    unsafe { Elements::from_raw(buffer.buf_ptr().cast(), kind, len) }
}
