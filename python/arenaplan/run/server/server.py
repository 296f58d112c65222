"""
Many models, many threads, one memory: a server leases a range of it to each run.

The memory is a single mapping with at most ``cap`` bytes, so all arenas together cannot exceed the
cap. Runs that fit side by side run side by side, and models that exclude each other share bytes.
See :mod:`arenaplan.run.server.book` for the places and the queue.
"""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Self

import numpy as np
from numpy.typing import ArrayLike

from arenaplan.base.amounts import size_of, whole_number
from arenaplan.base.arguments import typed
from arenaplan.base.errors import InvalidOption, PlannerError, fault
from arenaplan.base.quoting import listed, quoted
from arenaplan.run.dynamic.shapes import RangeBind
from arenaplan.run.server.book import Book, MemoryRequest, Signal, closed
from arenaplan.run.server.pages import Pages
from arenaplan.run.server.saved import Saved
from arenaplan.run.server.served_model import ReadyRun, Served, ServedModel, ServedShape
from arenaplan.run.server.session import Session, state_bytes
from arenaplan.run.server.statistics import ServerStatistics
from arenaplan.run.server.tasks import TaskRun, wake

_ALIGNMENT = 64
"""Alignment of every lease, at least: a cache line."""
_SHAPES = 16
"""Shapes of a model that can stay prepared for each worker, unless the caller says otherwise."""


class Server:
    """
    Runs several models for any number of threads and tasks, in a single memory below a cap.

    Each run leases as many bytes as the model needs at the given input shapes. Requests wait in
    arrival order if no memory is free or ``workers`` runs are active. Results are bit for bit the
    same as without other runs.

    Parameters
    ----------
    models : mapping of str to Graph, PlanFamily, path, bytes or callable
        Models by name. Graphs and model files are planned for the target ``"numpy"``.
    bind : mapping of str to mapping, optional
        For model files with symbolic dimensions, by model name: the sizes, as for
        :func:`plan_family`.
    plans : mapping of str to Model, Plan or path, optional
        Ready plans by model name, which save the search. ``arenaplan
        plan model.onnx --target numpy -o model.plan.json`` writes such a file, with ``--bind
        batch=1..32`` for several shapes. Each plan is checked against the model's graph.
    cap : int or str
        Most bytes for all arenas together, such as ``"256MiB"``. Weights, inputs and outputs do
        not count.
    workers : int, optional
        Most runs at a time; by default the number of cores that the process may use.
    keep : int or str, optional
        Most bytes of free memory that stay resident. Further bytes are given back to the system
        after each run. All stay if left out.
    prepared : int, optional
        Most executors that stay prepared; beyond, the least recently used executor is forgotten.
        By default, two for each worker and each model shape, with up to 16 shapes. Each executor
        has kernels with some hundred bytes per node and tile; weights are shared.

    Raises
    ------
    ArenaError
        If a model needs more bytes than the cap.
    OutOfMemory
        If the system has no such memory.
    UnsupportedOp, UnsupportedDtype, SizeError
        If a node cannot be run. Every model is prepared once, at the largest shape.
    PlannerError
        As :func:`load`, :func:`plan` and :func:`plan_family`; the message names the model.

    Examples
    --------
    >>> import numpy as np
    >>> import arenaplan as ap
    >>> graph = ap.Graph()
    >>> x = graph.input("x", (3,))
    >>> (y,) = graph.node("Neg", [x], [("y", (3,), "float32")])
    >>> graph.output(y)
    >>> with ap.Server({"negate": graph}, cap="1MiB", workers=4) as server:
    ...     server.run("negate", {"x": np.array([1, 2, 3], np.float32)}, timeout=0.5)
    {'y': array([-1., -2., -3.], dtype=float32)}
    """

    @typed
    def __init__(
        self,
        models: Mapping[str, Served],
        *,
        cap: int | str,
        bind: Mapping[str, RangeBind] | None = None,
        plans: Mapping[str, Saved] | None = None,
        workers: int | None = None,
        keep: int | str | None = None,
        prepared: int | None = None,
    ) -> None:
        self.cap = _bytes(cap, "cap", least=1)
        """Most bytes of all arenas together."""
        self.workers = _cores() if workers is None else whole_number(workers, "workers")
        """Most runs at a time."""
        if self.workers < 1:
            raise InvalidOption(f"option workers: at least one run at a time, not {workers}")
        named: dict[str, Mapping[str, object]] = {"bind": bind or {}, "plans": plans or {}}
        for option, given in named.items():
            unknown = sorted(set(given).difference(models))
            if unknown:
                raise InvalidOption(
                    f"option {option}: there is no model {quoted(unknown[0])}, "
                    f"only {listed(models)}"
                )
        if prepared is not None and whole_number(prepared, "prepared") < 1:
            raise InvalidOption(f"option prepared: at least one executor, not {prepared}")
        self._models = {
            name: ServedModel(name, model, (bind or {}).get(name), (plans or {}).get(name))
            for name, model in models.items()
        }
        for name, model in self._models.items():
            if model.size > self.cap:
                raise fault(
                    "LeaseTooLarge",
                    f"model {quoted(name)} needs {model.size:,} bytes, "
                    f"more than the cap of {self.cap:,} bytes",
                )
        shapes = sum(min(model.shapes, _SHAPES) for model in self._models.values())
        self._most = 2 * self.workers * max(shapes, 1) if prepared is None else prepared
        self._keep = self.cap if keep is None else _bytes(keep, "keep", least=0)
        self._unit = max([_ALIGNMENT, *(model.alignment for model in self._models.values())])
        self._lane = max([1, *(model.size for model in self._models.values())])
        lane = -(-self._lane // self._unit) * self._unit
        has_states = any(model.largest.states for model in self._models.values())
        self._pages = Pages(self.cap if has_states else min(self.cap, lane * self.workers))
        self._order: OrderedDict[tuple[ServedShape, int], ServedModel] = OrderedDict()
        self._preparations = self._evicted = 0
        self._sessions: weakref.WeakSet[Session] = weakref.WeakSet()
        self._is_closed = False
        self._begin()
        for model in self._models.values():
            with model.naming():
                model.largest.resident(0, self._pages.bytes)
            self._used(model, model.largest, 0)
        self._preparations = len(self._models)
        _SERVERS.add(self)

    def _begin(self) -> None:
        """Begin with no leases: at first, and in a fork, which has none of the parent's leases."""
        self._process = os.getpid()
        self._book = Book(self._pages, self._lane, self._unit, self.workers, self._keep)
        self._preparing = threading.RLock()
        self._ordering = threading.RLock()
        self._threads: ThreadPoolExecutor | None = None
        for model in self._models.values():
            model.renew()

    def __repr__(self) -> str:
        state = ", closed" if self._is_closed else ""
        return f"Server({listed(self._models)}; cap {self.cap} bytes{state})"

    @property
    def models(self) -> list[str]:
        """The model names."""
        return list(self._models)

    # -- runs --------------------------------------------------------------------------

    @typed
    def run(
        self, name: str, inputs: Mapping[str, ArrayLike], *, timeout: float | None = None
    ) -> dict[str, np.ndarray]:
        """
        Compute a model's outputs; any thread may call this at any time.

        The calling thread does the work. Inputs are checked before the run waits for memory.
        Model states, if any, are zeros: see :meth:`session`.

        Parameters
        ----------
        name : str
            Model name.
        inputs : mapping of str to array_like
            An array per input, with any planned shape.
        timeout : float, optional
            Most seconds to wait for the lease; no limit if left out.

        Returns
        -------
        dict of str to array
            An array per output.

        Raises
        ------
        ExecutionError
            If an input is missing, unknown, or has another shape or type.
        ArenaError
            If other runs keep the memory or the workers for longer than ``timeout``.
        ArenaError
            If the server is closed.
        InvalidOption
            If no model has this name.
        ExecutionError
            If a step failed, with the original exception as cause. No other run is affected.
        """
        return self._run(self._model(name), inputs, timeout, None)

    async def run_async(
        self, name: str, inputs: Mapping[str, ArrayLike], *, timeout: float | None = None
    ) -> dict[str, np.ndarray]:
        """
        Compute a model's outputs, for asyncio.

        No thread waits for the lease; a thread from the server's pool does the work. A
        cancelled task leaves the queue. A run that has begun still finishes, and then gives the
        lease back. Parameters, results and errors are the same as for :meth:`run`.
        """
        return await self._run_async(self._model(name), inputs, timeout, None)

    @typed
    def session(self, name: str, *, timeout: float | None = None) -> Session:
        """
        Return a session: model states for a single client, which survive between runs.

        The states lie in the server's memory, and count against the cap, until the session is
        closed. Sessions never take the room that the largest model needs.

        Parameters
        ----------
        name : str
            Model name.
        timeout : float, optional
            Most seconds to wait for memory; no limit if left out.

        Raises
        ------
        ArenaError
            If the states do not fit the cap beside the largest model.
        ArenaError
            If other requests keep the memory for longer than ``timeout``.
        ArenaError
            If the server is closed.
        InvalidOption
            If no model has this name.
        """
        event = Signal()
        model, request = self._wanted_session(name, event.set)
        try:
            self._wait(model, request, event, timeout)
            return self._opened(model, request)
        except BaseException:
            self._book.leave(request)
            raise

    async def session_async(self, name: str, *, timeout: float | None = None) -> Session:
        """
        Return a session, for asyncio.

        As :meth:`session`, but no thread waits: a task that blocks the event loop could wait
        forever for other tasks' runs.
        """
        model, request = self._wanted_session(name, lambda: None)
        try:
            await self._wait_async(model, request, timeout)
            return self._opened(model, request)
        except BaseException:
            self._book.leave(request)
            raise

    # -- the rest ----------------------------------------------------------------------

    def statistics(self) -> ServerStatistics:
        """Return the current statistics."""
        return self._book.statistics(
            prepared=len(self._order), preparations=self._preparations, evicted=self._evicted
        )

    def trim(self, keep: int | str = 0) -> int:
        """
        Give free memory back to the system until at most ``keep`` free bytes are resident.

        Returns
        -------
        int
            Bytes given back, in whole pages; 0 where the system cannot take memory back.
        """
        return self._book.trim(_bytes(keep, "keep", least=0))

    def close(self) -> None:
        """
        Refuse waiting and new requests, wait for the runs that have begun, and free the memory.

        Sessions end with the server. Closing the server twice does no harm.
        """
        self._is_closed = True
        self._book.close()
        if self._threads is not None:
            self._threads.shutdown()
        for session in list(self._sessions):
            session.close()
        with self._ordering:
            self._order.clear()
        for model in self._models.values():
            model.close()
        # An error's traceback may have views: the last view then frees the memory.
        self._pages.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self.close)

    # -- one request -------------------------------------------------------------------

    def _model(self, name: str) -> ServedModel:
        if self._is_closed:
            raise closed()
        try:
            return self._models[name]
        except (KeyError, TypeError):
            known = listed(self._models) or "none"
            raise InvalidOption(
                f"the server has no model {quoted(str(name))}, only {known}"
            ) from None

    def _wanted_session(
        self, name: str, signal: Callable[[], object]
    ) -> tuple[ServedModel, MemoryRequest]:
        """Return a model, and a request for the model's states."""
        model = self._model(name)
        size, room = state_bytes(model.largest), self._book.room_for_sessions
        if size > room:
            raise fault(
                "LeaseTooLarge",
                f"the states of model {quoted(name)} need {size:,} bytes; beside the largest "
                f"model, the cap of {self.cap:,} bytes leaves {room:,}",
            )
        return model, MemoryRequest(size, signal, is_session=True)

    def _opened(self, model: ServedModel, request: MemoryRequest) -> Session:
        """Return the session for a request that has a lease."""
        assert request.lease is not None
        memory = self._pages.bytes[request.lease.start : request.lease.stop]
        session = Session(self, model, self._book, request, memory)
        self._sessions.add(session)
        return session

    def _run(
        self,
        model: ServedModel,
        inputs: Mapping[str, ArrayLike],
        timeout: float | None,
        session: Session | None,
    ) -> dict[str, np.ndarray]:
        work = model.work(model.entry(inputs), inputs)
        if session is not None:
            session._begin()
        event = Signal()
        request = MemoryRequest(work.entry.size, event.set, work.entry.residents)
        try:
            self._wait(model, request, event, timeout)
            return self._perform(model, work, request, session)
        finally:
            self._finish(model, work.entry, request, session)

    async def _run_async(
        self,
        model: ServedModel,
        inputs: Mapping[str, ArrayLike],
        timeout: float | None,
        session: Session | None,
    ) -> dict[str, np.ndarray]:
        # For a new shape, the graph is imported, which takes some milliseconds.
        known = model.find(inputs)
        entry = await asyncio.to_thread(model.entry, inputs) if known is None else known
        work = model.work(entry, inputs)
        if session is not None:
            session._begin()
        run = TaskRun(self, model, work, session, asyncio.get_running_loop())
        request = run.request
        future = asyncio.wrap_future(run.outcome)
        try:
            self._book.enter(request)
            if timeout is not None:
                await asyncio.wait([future], timeout=max(timeout, 0))
                self._book.refuse(request)  # The request has a lease by now, or gets none.
            return await future
        except GeneratorExit:  # The loop is gone.
            self._book.withdraw(request)
            raise
        except BaseException:
            self._book.withdraw(request)
            if not future.cancel() and not future.cancelled():
                future.exception()  # Nobody else will ask for it.
            raise

    def _wait(
        self, model: ServedModel, request: MemoryRequest, event: Signal, timeout: float | None
    ) -> None:
        """Enter a request, wait for the lease, and raise if there is none in time."""
        self._book.enter(request)
        if request.lease is None and not request.is_refused:
            event.wait(timeout)
        self._check(model, request)

    async def _wait_async(
        self, model: ServedModel, request: MemoryRequest, timeout: float | None
    ) -> None:
        """Enter a request, wait for the lease, and raise if there is none in time."""
        loop = asyncio.get_running_loop()
        woken = loop.create_future()
        request.signal = partial(wake, loop, woken, partial(self._book.leave, request))
        self._book.enter(request)
        if request.lease is None and not request.is_refused:
            await asyncio.wait([woken], timeout=None if timeout is None else max(timeout, 0))
        self._check(model, request)

    def _check(self, model: ServedModel, request: MemoryRequest) -> None:
        """Raise unless a request has a lease by now."""
        if request.lease is None:
            self._book.refuse(request)
        if request.lease is not None:
            return
        raise self._refusal(model, request)

    def _refusal(self, model: ServedModel, request: MemoryRequest) -> PlannerError:
        """Return the error for a request that got no lease."""
        if request.is_refused:
            return closed()
        leased = self._book.statistics().leased_bytes
        kind = "a session" if request.is_session else "a run"
        return fault(
            "PoolBusy",
            f"{kind} of model {quoted(model.name)} needs {request.size:,} bytes and is refused: "
            f"{leased:,} of {self.cap:,} bytes are leased, and nobody gave enough back in time",
        )

    def _perform(
        self, model: ServedModel, work: ReadyRun, request: MemoryRequest, session: Session | None
    ) -> dict[str, np.ndarray]:
        """Run a model in the leased memory."""
        assert request.lease is not None
        start = request.lease.start
        resident = work.entry.residents.get(start)
        if resident is None:
            # One at a time: preparing is mostly Python, and graphs have caches.
            with self._preparing:
                resident = work.entry.resident(start, self._pages.bytes)
                self._preparations += 1
        self._used(model, work.entry, start)
        states = None if session is None else session._states_for(work.entry)
        return resident.run(work.inputs, states)

    def _used(self, model: ServedModel, entry: ServedShape, start: int) -> None:
        """Note the use of a prepared executor, and forget the least recently used executors."""
        with self._ordering:
            self._order[entry, start] = model
            self._order.move_to_end((entry, start))
            while len(self._order) > self._most:
                (oldest, place), its = self._order.popitem(last=False)
                oldest.residents.pop(place, None)
                self._evicted += 1
                if not oldest.residents:
                    its.forget(oldest)

    def _finish(
        self,
        model: ServedModel,
        entry: ServedShape,
        request: MemoryRequest,
        session: Session | None,
    ) -> None:
        """Take a request back, whatever the outcome."""
        if session is not None:
            session._end()
        self._book.leave(request)
        if not entry.residents:
            model.forget(entry)

    def _pool(self) -> ThreadPoolExecutor:
        """Return the thread pool for asyncio runs."""
        with self._ordering:
            if self._threads is None:
                self._threads = ThreadPoolExecutor(self.workers, "arenaplan")
            return self._threads


def _bytes(number: int | str, what: str, *, least: int) -> int:
    """Return a byte count that was given as a number or as text."""
    size = size_of(number, what)
    if not least <= size < 1 << 63:
        raise InvalidOption(f"option {what}: {number} is no number of bytes from {least}")
    return size


def _cores() -> int:
    """Return the number of cores that the process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


_SERVERS: weakref.WeakSet[Server] = weakref.WeakSet()


def _begin_anew() -> None:
    """Let servers in a fork begin without the parent's leases, threads and locks."""
    for server in list(_SERVERS):
        server._begin()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)
