"""
A server's leases: the leased bytes by holder, and the waiting requests.

A single memory holds all runs and sessions, so the sum cannot exceed the memory. Runs have ranges
near the bottom, session states have ranges at the top. Runs are served in arrival order, and so are
sessions. A session that waits for other sessions keeps no run waiting. A session that waits for
runs reserves a place, so that no later run takes bytes there.

Runs use few places, since an executor is prepared for a single place. The memory is divided into
*lanes*, each large enough for every model; a smaller model has places at multiples of the model's
size in each lane. As many lanes as workers serve any mix of models at once: each other run lies in
a single lane, so a lane is free. With fewer lanes, a model takes any gap.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from arenaplan.base.errors import PlannerError, fault
from arenaplan.run.server.pages import PageRange, Pages
from arenaplan.run.server.statistics import ServerStatistics


class Signal:
    """A signal that a single thread waits for, faster than :class:`threading.Event`."""

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    def set(self) -> None:
        """Let the thread go on; repeated calls do no harm."""
        with suppress(RuntimeError):  # The lock is released by now.
            self._lock.release()

    def wait(self, timeout: float | None) -> None:
        """Wait for the signal, or until the timeout."""
        if timeout is None:
            self._lock.acquire()
        else:
            self._lock.acquire(timeout=min(max(timeout, 0), threading.TIMEOUT_MAX))


@dataclass(eq=False, slots=True)
class MemoryRequest:
    """A request for memory: by a run, or for a session's states."""

    size: int
    """Bytes."""
    signal: Callable[[], object]
    """Called from any thread, once the request has a lease, or will have none because it was
    refused or withdrawn.
    """
    prepared: Collection[int] = ()
    """First bytes of the places where the run's executor is prepared."""
    is_session: bool = False
    lease: PageRange | None = None
    is_refused: bool = False
    has_left: bool = False


class Book:
    """
    The leases, and the queue.

    Changes are posted, and the thread that has the lock applies all changes in posting order. So a
    change never waits: finalizers may post, in a thread that has the lock.

    Parameters
    ----------
    pages : Pages
        The memory.
    lane : int
        Bytes that the largest run needs.
    unit : int
        Alignment for every range.
    workers : int
        Most runs at a time.
    keep : int
        Most free bytes that stay resident.
    """

    def __init__(self, pages: Pages, lane: int, unit: int, workers: int, keep: int) -> None:
        self._pages, self._unit, self._workers, self._keep = pages, unit, workers, keep
        self._lane = max(self._up(lane), unit)
        self._lock = threading.Lock()
        self._owner = 0
        self._posted: deque[tuple[Callable[[MemoryRequest], None], MemoryRequest]] = deque()
        self._signals: deque[MemoryRequest] = deque()
        # Dictionaries are ordered sets, and repeated changes do no harm.
        self._queue: dict[MemoryRequest, None] = {}
        self._waiting_sessions: dict[MemoryRequest, None] = {}
        self._runs: dict[MemoryRequest, PageRange] = {}
        self._sessions: dict[MemoryRequest, PageRange] = {}
        self._top = pages.size
        """End of the memory that runs may use."""
        self._counts = dict.fromkeys(("leases", "reused", "waits", "refused", "peak_bytes"), 0)
        self._is_closed = False
        self._idle = threading.Event()

    # -- changes -----------------------------------------------------------------------

    def enter(self, request: MemoryRequest) -> None:
        """Put a request at the end of the queue; the request may get a lease at once."""
        self._post(self._enqueue, request)

    def leave(self, request: MemoryRequest) -> None:
        """Take a request out of the queue, or the lease back; repeated calls do no harm."""
        self._post(self._remove, request)

    def withdraw(self, request: MemoryRequest) -> None:
        """Take a request out of the queue, unless the request has a lease by now."""
        self._post(self._forget, request)

    def refuse(self, request: MemoryRequest) -> None:
        """Take a request that waited too long out of the queue, unless a lease came by now."""
        with self._held():
            if request.lease is None and not request.is_refused and not request.has_left:
                self._counts["refused"] += 1
                self._forget(request)

    def trim(self, keep: int) -> int:
        """Give free memory back to the system, and return the number of bytes."""
        with self._held():
            return self._pages.give_back(self._taken(), keep)

    def close(self) -> None:
        """Refuse waiting and new requests, and wait until all runs end."""
        with self._held():
            self._is_closed = True
            for request in [*self._queue, *self._waiting_sessions]:
                self._turn_down(request)
        self._idle.wait()

    def statistics(self, **executors: int) -> ServerStatistics:
        """Return the current statistics, with those of executors."""
        with self._held():
            leased = sum(each.bytes for each in self._taken())
            return ServerStatistics(
                leased_bytes=leased,
                free_bytes=max(self._pages.used_bytes - leased, 0),
                running=len(self._runs),
                sessions=len(self._sessions),
                waiting=len(self._queue) + len(self._waiting_sessions),
                **self._counts,
                **executors,
            )

    @property
    def room_for_sessions(self) -> int:
        """Most bytes for all sessions together, with room left for every model."""
        return max(0, self._pages.size - self._lane)

    # -- the lock ----------------------------------------------------------------------

    def _post(self, change: Callable[[MemoryRequest], None], request: MemoryRequest) -> None:
        self._posted.append((change, request))
        while self._posted:
            # After release, the thread that had the lock looks for posts, so none is forgotten.
            if not self._lock.acquire(blocking=False):
                return
            self._work()

    @contextmanager
    def _held(self) -> Iterator[None]:
        """Hold the lock, after all posted changes are applied."""
        if self._owner == threading.get_ident():
            yield  # A finalizer, which ran in the middle of a change.
            return
        self._lock.acquire()
        self._work(release=False)
        try:
            yield
        finally:
            self._work()
        while self._posted and self._lock.acquire(blocking=False):
            self._work()

    def _work(self, *, release: bool = True) -> None:
        """Apply posted changes with the lock held, and release the lock."""
        try:
            self._owner = threading.get_ident()
            entered = []
            while self._posted:
                # An interrupt may come anywhere: an unfinished change is done again.
                change, request = self._posted[0]
                change(request)
                entered.append(request)
                self._posted.popleft()
            self._grant()
            if self._queue or self._waiting_sessions:
                waiting = self._queue.keys() | self._waiting_sessions.keys()
                self._counts["waits"] += sum(request in waiting for request in entered)
            if self._is_closed and not self._runs:
                self._idle.set()
        except BaseException:
            release = True
            raise
        finally:
            if release:
                self._owner = 0
                self._lock.release()
        while release and self._signals:
            try:
                request = self._signals.popleft()
            except IndexError:
                break
            request.signal()

    # -- with the lock -----------------------------------------------------------------

    def _enqueue(self, request: MemoryRequest) -> None:
        if self._is_closed:
            self._turn_down(request)
        elif not request.has_left and request.lease is None:
            (self._waiting_sessions if request.is_session else self._queue)[request] = None

    def _turn_down(self, request: MemoryRequest) -> None:
        self._queue.pop(request, None)
        self._waiting_sessions.pop(request, None)
        request.is_refused = True
        self._signals.append(request)

    def _forget(self, request: MemoryRequest) -> None:
        if request.lease is None and not request.is_refused and not request.has_left:
            request.has_left = True
            self._queue.pop(request, None)
            self._waiting_sessions.pop(request, None)
            self._signals.append(request)

    def _remove(self, request: MemoryRequest) -> None:
        request.has_left = True
        self._queue.pop(request, None)
        self._waiting_sessions.pop(request, None)
        self._sessions.pop(request, None)
        self._runs.pop(request, None)
        request.lease = None
        if self._pages.used_bytes > self._keep:
            self._pages.give_back(self._taken(), self._keep)

    def _grant(self) -> None:
        """Give leases to the next requests."""
        if not self._queue and not self._waiting_sessions:
            return
        self._top = min((e.start for e in self._sessions.values()), default=self._pages.size)
        for request in list(self._waiting_sessions):
            place = self._session_place(request)
            if place is None:
                break  # Until a session ends.
            if any(map(place.overlaps, self._runs.values())):
                self._top = place.start  # These runs are the last runs there.
                break
            self._lend(request, place)
            self._waiting_sessions.pop(request, None)
            self._top = min(self._top, place.start)
        granted = []
        for request in self._queue:
            place = self._place(request)
            if place is None:
                break
            self._lend(request, place)
            granted.append(request)
        for request in granted:
            self._queue.pop(request, None)

    def _lend(self, request: MemoryRequest, place: PageRange) -> None:
        self._pages.use(place)
        (self._sessions if request.is_session else self._runs)[request] = place
        self._counts["leases"] += 1
        self._counts["reused"] += place.start in request.prepared
        self._counts["peak_bytes"] = max(self._counts["peak_bytes"], self._pages.used_bytes)
        request.lease = place
        self._signals.append(request)

    # -- places ------------------------------------------------------------------------

    def _up(self, number: int) -> int:
        """Return the next multiple of the unit."""
        return -(-number // self._unit) * self._unit

    def _taken(self) -> list[PageRange]:
        return sorted([*self._runs.values(), *self._sessions.values()])

    def _place(self, request: MemoryRequest) -> PageRange | None:
        """Return where a run may be now, if anywhere: first at prepared places."""
        if len(self._runs) >= self._workers:
            return None
        size, top = request.size, self._top
        for start in sorted(request.prepared):
            place = PageRange(start, start + size)
            if place.stop <= top and not any(map(place.overlaps, self._runs.values())):
                return place
        taken = sorted(self._runs.values())
        stride = self._up(max(size, 1))
        for lane in range(0, top, self._lane):
            found = _first_fit(size, stride, PageRange(lane, min(lane + self._lane, top)), taken)
            if found is not None:
                return found
        return _first_fit(size, self._unit, PageRange(0, top), taken)

    def _session_place(self, request: MemoryRequest) -> PageRange | None:
        """Return where a session's states may be: as high as possible, above the first lane."""
        top = self._pages.size
        for each in reversed([PageRange(0, self._lane), *sorted(self._sessions.values())]):
            start = (top - request.size) // self._unit * self._unit
            if start >= each.stop:
                return PageRange(start, start + request.size)
            top = min(top, each.start)
        return None


def _first_fit(
    size: int, stride: int, within: PageRange, taken: Sequence[PageRange]
) -> PageRange | None:
    """Return the lowest place at a multiple of a stride that no range overlaps."""
    start = within.start
    for each in taken:
        if start + size <= each.start:
            break
        if each.stop > start:
            start += -(-(each.stop - start) // stride) * stride
    place = PageRange(start, start + size)
    return place if place.stop <= within.stop else None


def closed() -> PlannerError:
    """Return the error for a closed server."""
    return fault("ArenaState", "the server is closed")
