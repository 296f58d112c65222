//! TensorFlow Lite's incremental arenas, of 2019 and today, with views of the memory.

use std::sync::{Mutex, MutexGuard};

use arenaplan::base::{Alignment, LiveRange, Step};
use arenaplan_classic::arenas::{self, GapRule, Span};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyMemoryView};

use crate::arena::{Holder, Lease, ViewableMemory};
use crate::arguments::Arg;
use crate::error::{OrRaise, raise_named};
use crate::results::Live;

/// An arena that is filled during planning, as TensorFlow Lite's arena was in 2019.
///
/// Spans are handed out before there is memory; :meth:`commit` gets the memory, and keeps the
/// content if the memory has to grow. An empty span is at offset 0.
#[pyclass(frozen, module = "arenaplan._core")]
#[derive(Debug)]
pub(crate) struct SimpleArena {
    inner: Mutex<arenas::SimpleArena>,
    memory: ViewableMemory,
    holder: Holder,
}

/// An arena whose allocations have live ranges and avoid only allocations that are live together,
/// as in today's TensorFlow Lite.
///
/// ``rule`` is ``"shortest"``, or ``"litert"`` for the original's way to compare gaps.
#[pyclass(frozen, module = "arenaplan._core")]
#[derive(Debug)]
pub(crate) struct IncrementalArena {
    inner: Mutex<arenas::IncrementalArena>,
    memory: ViewableMemory,
    holder: Holder,
}

/// Bytes in an incremental arena with a live range.
#[pyclass(frozen, eq, hash, module = "arenaplan._core")]
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct Allocation {
    inner: arenas::Allocation,
}

#[pymethods]
impl Allocation {
    /// First byte.
    #[getter]
    fn offset(&self) -> u64 {
        self.inner.span.offset
    }

    /// Size in bytes.
    #[getter]
    fn nbytes(&self) -> u64 {
        self.inner.span.bytes
    }

    /// Steps in which the bytes are needed.
    #[getter]
    fn live(&self) -> Live {
        let live = self.inner.live;
        Live { start: live.start().get(), end: live.end().get() }
    }

    fn __repr__(&self) -> String {
        let (Live { start, end }, span) = (self.live(), self.inner.span);
        format!(
            "Allocation(offset={}, nbytes={}, live=Live(start={start}, end={end}))",
            span.offset, span.bytes
        )
    }
}

/// Locks an arena for one call.
fn locked<'a, T>(py: Python<'_>, arena: &'a Mutex<T>) -> PyResult<MutexGuard<'a, T>> {
    arena
        .lock()
        .map_err(|_| raise_named(py, "InternalError", "the arena's lock is poisoned".into()))
}

/// Overwrites the first bytes of `target`.
fn overwrite(py: Python<'_>, target: Option<&mut [u8]>, data: &[u8]) -> PyResult<()> {
    let start = target.unwrap_or_default().get_mut(..data.len()).ok_or_else(|| {
        let message = format!("{} bytes are more than were allocated", data.len());
        raise_named(py, "ArenaState", message)
    })?;
    start.copy_from_slice(data);
    Ok(())
}

#[pymethods]
impl SimpleArena {
    /// Make an empty arena whose first byte will be at a multiple of ``alignment``.
    #[new]
    #[pyo3(signature = (alignment=Arg(64)))]
    fn new(py: Python<'_>, alignment: Arg<u64>) -> PyResult<Self> {
        let alignment = Alignment::new(*alignment).or_raise(py)?;
        let memory = ViewableMemory::default();
        let arena = arenas::SimpleArena::with_allocator(alignment, Box::new(memory.clone()));
        Ok(Self { inner: Mutex::new(arena), memory, holder: Holder::default() })
    }

    /// Return the offset of ``nbytes`` bytes: in the shortest free stretch that holds the bytes, or
    /// at the end of the arena.
    ///
    /// Raises
    /// ------
    /// InvalidAlignment
    ///     If ``alignment`` is stricter than the arena's.
    /// SizeOverflow
    ///     If no machine can address the arena then.
    fn allocate(&self, py: Python<'_>, alignment: Arg<u64>, nbytes: Arg<u64>) -> PyResult<u64> {
        let alignment = Alignment::new(*alignment).or_raise(py)?;
        let span = locked(py, &self.inner)?.allocate(alignment, *nbytes).or_raise(py)?;
        Ok(span.offset)
    }

    /// Take back a result of :meth:`allocate`; empty spans repeatedly.
    ///
    /// Raises
    /// ------
    /// ArenaState
    ///     If the span is not handed out.
    fn deallocate(&self, py: Python<'_>, offset: Arg<u64>, nbytes: Arg<u64>) -> PyResult<()> {
        locked(py, &self.inner)?.deallocate(Span { offset: *offset, bytes: *nbytes }).or_raise(py)
    }

    /// Get memory for all spans ever handed out; return whether the bytes moved.
    ///
    /// Raises
    /// ------
    /// ArenaCommitError
    ///     If there is not enough memory; the arena is then unchanged.
    /// ArenaInUse
    ///     If the memory would move while views are alive.
    fn commit(&self, py: Python<'_>) -> PyResult<bool> {
        let committed = locked(py, &self.inner)?.commit();
        self.memory.or_raise(py, committed)
    }

    /// Reserve the arena for one run, until the returned lease is released.
    ///
    /// Raises
    /// ------
    /// ArenaBusy
    ///     If another run has the arena.
    fn lease(slf: Py<Self>, py: Python<'_>) -> PyResult<Lease> {
        let holder = slf.get().holder.clone();
        holder.lease(py, slf.into_any())
    }

    /// Return a copy of some bytes, or None for no bytes.
    fn resolve<'py>(
        &self,
        py: Python<'py>,
        offset: Arg<u64>,
        nbytes: Arg<u64>,
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let arena = locked(py, &self.inner)?;
        let bytes = arena.resolve(Span { offset: *offset, bytes: *nbytes }).or_raise(py)?;
        Ok(bytes.map(|bytes| PyBytes::new(py, bytes)))
    }

    /// Return a writable view of some bytes, or None for no bytes.
    ///
    /// While the view is alive, :meth:`commit` does not move the memory.
    fn view<'py>(
        &self,
        py: Python<'py>,
        offset: Arg<u64>,
        nbytes: Arg<u64>,
    ) -> PyResult<Option<Bound<'py, PyMemoryView>>> {
        let found = {
            let arena = locked(py, &self.inner)?;
            let bytes = arena.resolve(Span { offset: *offset, bytes: *nbytes });
            bytes.map(|bytes| bytes.map(|bytes| (bytes.as_ptr().addr(), bytes.len())))
        };
        let found = found.or_raise(py)?;
        found.map(|(address, bytes)| self.memory.view(py, address, bytes)).transpose()
    }

    /// Overwrite the bytes from ``offset`` on.
    fn write(&self, py: Python<'_>, offset: Arg<u64>, data: Arg<&[u8]>) -> PyResult<()> {
        let bytes = u64::try_from(data.len()).unwrap_or(u64::MAX);
        let mut arena = locked(py, &self.inner)?;
        let target = arena.resolve_mut(Span { offset: *offset, bytes }).or_raise(py)?;
        overwrite(py, target, &data)
    }

    /// Take everything back, and keep the memory.
    fn clear(&self, py: Python<'_>) -> PyResult<()> {
        locked(py, &self.inner)?.clear();
        Ok(())
    }

    /// End of the highest bytes that were handed out since the arena was empty.
    #[getter]
    fn high_water(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(locked(py, &self.inner)?.high_water())
    }

    /// Memory size in bytes.
    #[getter]
    fn buffer_bytes(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(locked(py, &self.inner)?.buffer_bytes())
    }
}

#[pymethods]
impl IncrementalArena {
    /// Make an empty arena whose first byte will be at a multiple of ``alignment``.
    #[new]
    #[pyo3(signature = (alignment=Arg(64), *, rule=Arg("shortest")))]
    fn new(py: Python<'_>, alignment: Arg<u64>, rule: Arg<&str>) -> PyResult<Self> {
        let rule: GapRule = rule.parse().or_raise(py)?;
        let alignment = Alignment::new(*alignment).or_raise(py)?;
        let memory = ViewableMemory::default();
        let arena = arenas::IncrementalArena::with_allocator(alignment, Box::new(memory.clone()));
        let inner = Mutex::new(arena.with_rule(rule));
        Ok(Self { inner, memory, holder: Holder::default() })
    }

    /// Return ``nbytes`` bytes that no active allocation has from step ``start`` up to, and
    /// without, ``stop``.
    ///
    /// Raises
    /// ------
    /// InvalidAlignment
    ///     If ``alignment`` is stricter than the arena's.
    /// InvalidLiveRange
    ///     If there is no step in the range.
    /// SizeOverflow
    ///     If no machine can address the arena then.
    fn allocate(
        &self,
        py: Python<'_>,
        alignment: Arg<u64>,
        nbytes: Arg<u64>,
        start: Arg<u32>,
        stop: Arg<u32>,
    ) -> PyResult<Allocation> {
        let alignment = Alignment::new(*alignment).or_raise(py)?;
        let live = LiveRange::new(*start, *stop).or_raise(py)?;
        let inner = locked(py, &self.inner)?.allocate(alignment, *nbytes, live).or_raise(py)?;
        Ok(Allocation { inner })
    }

    /// Drop the allocations that are over before ``step``.
    fn purge_before(&self, py: Python<'_>, step: Arg<u32>) -> PyResult<()> {
        locked(py, &self.inner)?.purge_before(Step::new(*step));
        Ok(())
    }

    /// Drop the allocations that begin after ``step``.
    fn purge_after(&self, py: Python<'_>, step: Arg<u32>) -> PyResult<()> {
        locked(py, &self.inner)?.purge_after(Step::new(*step));
        Ok(())
    }

    /// Drop an allocation, if active.
    fn deallocate(&self, py: Python<'_>, allocation: Arg<PyRef<'_, Allocation>>) -> PyResult<()> {
        locked(py, &self.inner)?.forget(allocation.inner);
        Ok(())
    }

    /// Make exactly ``allocations``, which this arena made, active.
    fn restore(
        &self,
        py: Python<'_>,
        allocations: Arg<Vec<Bound<'_, Allocation>>>,
    ) -> PyResult<()> {
        let allocations = allocations.iter().map(|allocation| allocation.get().inner);
        locked(py, &self.inner)?.restore(allocations);
        Ok(())
    }

    /// Drop all allocations, and keep the high-water mark.
    fn reset(&self, py: Python<'_>) -> PyResult<()> {
        locked(py, &self.inner)?.reset();
        Ok(())
    }

    /// Drop all allocations and the high-water mark, and keep the memory.
    fn clear(&self, py: Python<'_>) -> PyResult<()> {
        locked(py, &self.inner)?.clear();
        Ok(())
    }

    /// Free the memory, and keep the allocations; a commit is needed again.
    ///
    /// Raises
    /// ------
    /// ArenaInUse
    ///     If views of the memory are alive.
    fn release(&self, py: Python<'_>) -> PyResult<()> {
        self.memory.check_unused(py)?;
        locked(py, &self.inner)?.release();
        Ok(())
    }

    /// Get memory for all allocations; return whether the bytes moved.
    ///
    /// Raises
    /// ------
    /// ArenaCommitError
    ///     If there is not enough memory; the arena is then unchanged.
    /// ArenaInUse
    ///     If the memory would move while views are alive.
    fn commit(&self, py: Python<'_>) -> PyResult<bool> {
        let committed = locked(py, &self.inner)?.commit();
        self.memory.or_raise(py, committed)
    }

    /// Reserve the arena for one run, until the returned lease is released.
    ///
    /// Raises
    /// ------
    /// ArenaBusy
    ///     If another run has the arena.
    fn lease(slf: Py<Self>, py: Python<'_>) -> PyResult<Lease> {
        let holder = slf.get().holder.clone();
        holder.lease(py, slf.into_any())
    }

    /// Return a copy of an allocation's bytes, or None if empty.
    fn resolve<'py>(
        &self,
        py: Python<'py>,
        allocation: Arg<PyRef<'_, Allocation>>,
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let arena = locked(py, &self.inner)?;
        let bytes = arena.resolve(allocation.inner.span).or_raise(py)?;
        Ok(bytes.map(|bytes| PyBytes::new(py, bytes)))
    }

    /// Return a writable view of an allocation's bytes, or None if empty.
    ///
    /// While the view is alive, :meth:`commit` does not move the memory, nor does :meth:`release`
    /// free the memory.
    fn view<'py>(
        &self,
        py: Python<'py>,
        allocation: Arg<PyRef<'_, Allocation>>,
    ) -> PyResult<Option<Bound<'py, PyMemoryView>>> {
        let found = {
            let arena = locked(py, &self.inner)?;
            let bytes = arena.resolve(allocation.inner.span);
            bytes.map(|bytes| bytes.map(|bytes| (bytes.as_ptr().addr(), bytes.len())))
        };
        let found = found.or_raise(py)?;
        found.map(|(address, bytes)| self.memory.view(py, address, bytes)).transpose()
    }

    /// Overwrite the first bytes of an allocation.
    fn write(
        &self,
        py: Python<'_>,
        allocation: Arg<PyRef<'_, Allocation>>,
        data: Arg<&[u8]>,
    ) -> PyResult<()> {
        let mut arena = locked(py, &self.inner)?;
        let target = arena.resolve_mut(allocation.inner.span).or_raise(py)?;
        overwrite(py, target, &data)
    }

    /// End of the highest allocation since the arena was cleared.
    #[getter]
    fn high_water(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(locked(py, &self.inner)?.high_water())
    }

    /// Memory size in bytes.
    #[getter]
    fn buffer_bytes(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(locked(py, &self.inner)?.buffer_bytes())
    }

    /// Number of active allocations.
    #[getter]
    fn active(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(locked(py, &self.inner)?.active())
    }
}
