"""Sessions: the states of a model, such as a cache of keys and values, for one client."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol, Self

import numpy as np
from numpy.typing import ArrayLike

from arenaplan.base.arguments import typed
from arenaplan.base.errors import fault
from arenaplan.base.quoting import listed, quoted
from arenaplan.run.numpy.signatures import byte_size
from arenaplan.run.numpy.steps import array_at
from arenaplan.run.server.book import Book, MemoryRequest

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

    from arenaplan.run.server.served_model import ReadyRun, ServedModel, ServedShape, States

_ALIGNMENT = 64


class Host(Protocol):
    """A server, as far as its sessions and tasks know it."""

    def _run(
        self,
        model: ServedModel,
        inputs: Mapping[str, ArrayLike],
        timeout: float | None,
        session: Session | None,
    ) -> dict[str, np.ndarray]: ...

    async def _run_async(
        self,
        model: ServedModel,
        inputs: Mapping[str, ArrayLike],
        timeout: float | None,
        session: Session | None,
    ) -> dict[str, np.ndarray]: ...

    def _refusal(self, model: ServedModel, request: MemoryRequest) -> Exception: ...

    def _perform(
        self, model: ServedModel, work: ReadyRun, request: MemoryRequest, session: Session | None
    ) -> dict[str, np.ndarray]: ...

    def _finish(
        self,
        model: ServedModel,
        entry: ServedShape,
        request: MemoryRequest,
        session: Session | None,
    ) -> None: ...

    def _pool(self) -> ThreadPoolExecutor: ...


def state_bytes(entry: ServedShape) -> int:
    """Return the bytes of the states of one session."""
    return sum(-(-byte_size(v) // _ALIGNMENT) * _ALIGNMENT for v in entry.states.values())


class Session:
    """
    The states of one model for one client, made by :meth:`Server.session`.

    States are zeros at first, and keep their content from one run to the next; no run outside of
    the session reads or writes them. A run that fails leaves them as they were. They are part of
    the server's memory until the session is closed.

    A run needs memory besides, which it leases as others do: the session has none between runs.
    """

    @typed
    def __init__(
        self,
        server: Host,
        model: ServedModel,
        book: Book,
        request: MemoryRequest,
        memory: np.ndarray,
    ) -> None:
        self._server, self._model, self._book, self._request = server, model, book, request
        self._process = os.getpid()
        self._busy = threading.Lock()
        self._closing = False
        self._states: States = {}
        entry, start = model.largest, 0
        memory[:] = 0
        for name, value in entry.states.items():
            size = byte_size(value)
            self._states[name] = array_at(entry.graph, value.index, memory[start : start + size])
            start += -(-size // _ALIGNMENT) * _ALIGNMENT

    def __repr__(self) -> str:
        state = ", closed" if self._closing else ""
        return f"Session({quoted(self._model.name)}, {len(self._states)} states{state})"

    @property
    def states(self) -> States:
        """
        Copies of the states, by name.

        Raises
        ------
        ArenaError
            If the session is closed.
        ArenaError
            If a run has the states.
        """
        self._begin()
        try:
            return {name: array.copy() for name, array in self._states.items()}
        finally:
            self._end()

    def run(
        self, inputs: Mapping[str, ArrayLike], *, timeout: float | None = None
    ) -> dict[str, np.ndarray]:
        """
        Compute the model's outputs, and new states: :meth:`Server.run`, with these states.

        Raises
        ------
        ArenaError
            If the session or the server is closed.
        ArenaError
            If another run of the session has not ended.
        PlannerError
            As :meth:`Server.run`.
        """
        return self._server._run(self._model, inputs, timeout, self)

    async def run_async(
        self, inputs: Mapping[str, ArrayLike], *, timeout: float | None = None
    ) -> dict[str, np.ndarray]:
        """Compute as :meth:`run`, for asyncio: see :meth:`Server.run_async`."""
        return await self._server._run_async(self._model, inputs, timeout, self)

    def close(self) -> None:
        """Give the memory back, after the run that is going on, if any; twice does no harm."""
        self._closing = True
        if self._busy.acquire(blocking=False):
            self._end()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        # One that was not made, or is of another process, has nothing to give back.
        if getattr(self, "_process", None) == os.getpid():
            self._book.leave(self._request)

    # -- for the server ----------------------------------------------------------------

    def _begin(self) -> None:
        """Reserve the states for one run."""
        if self._process != os.getpid():
            raise fault("ArenaState", f"the session is one of process {self._process}")
        if not self._busy.acquire(blocking=False):
            raise fault("ArenaBusy", "another run of the session has its states")
        if self._closing:
            self._end()
            raise fault("ArenaState", "the session is closed")

    def _end(self) -> None:
        """Let others use the states, or nobody any more."""
        if self._closing:
            self._states = {}
            self._book.leave(self._request)
        self._busy.release()
        if self._closing and self._states and self._busy.acquire(blocking=False):
            self._end()  # It was closed in between.

    def _states_for(self, entry: ServedShape) -> States:
        """Return the states for a run at one shape, which must have the same ones."""
        for name, value in entry.states.items():
            known = self._states.get(name)
            if known is None or known.shape != value.shape:
                have = listed(f"{n} {a.shape}" for n, a in self._states.items())
                raise fault(
                    "InputMismatch",
                    f"at the shape of these inputs, state {quoted(name)} has the shape "
                    f"{value.shape}; the session has {have}",
                )
        return self._states
