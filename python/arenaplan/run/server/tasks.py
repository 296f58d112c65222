"""Requests from asyncio tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING

import numpy as np

from arenaplan.run.server.book import MemoryRequest

if TYPE_CHECKING:
    from arenaplan.run.server.served_model import ReadyRun, ServedModel
    from arenaplan.run.server.session import Host, Session


def wake(
    loop: asyncio.AbstractEventLoop, woken: asyncio.Future[None], leave: Callable[[], None]
) -> None:
    """Wake a request's task, from any thread."""
    try:
        loop.call_soon_threadsafe(lambda: None if woken.done() else woken.set_result(None))
    except RuntimeError:
        leave()  # The loop is closed: nobody is there to use the lease.


class TaskRun:
    """
    A run for a task. The run begins as soon as it has a lease, however busy the task's loop is.

    The request is signaled once: with a lease, or without a lease if refused or withdrawn.
    """

    def __init__(
        self,
        server: Host,
        model: ServedModel,
        work: ReadyRun,
        session: Session | None,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._server, self._model, self._work = server, model, work
        self._session, self._loop = session, loop
        self.outcome: Future[dict[str, np.ndarray]] = Future()
        self.request = MemoryRequest(work.entry.size, self._begin, work.entry.residents)

    def _begin(self) -> None:
        """Start the work in a server thread; called from any thread."""
        if self.request.lease is None or self._loop.is_closed():
            self._end(self._server._refusal(self._model, self.request))
            return
        try:
            self._server._pool().submit(self._perform)
        except RuntimeError as error:  # No thread can be started, or the interpreter ends.
            self._end(error)

    def _perform(self) -> None:
        if not self.outcome.set_running_or_notify_cancel():
            self._finish()
            return
        try:
            result = self._server._perform(self._model, self._work, self.request, self._session)
        except BaseException as error:
            self._finish()
            self.outcome.set_exception(error)
        else:
            self._finish()
            self.outcome.set_result(result)

    def _end(self, error: Exception) -> None:
        """End without a run."""
        self._finish()
        if self.outcome.set_running_or_notify_cancel():
            self.outcome.set_exception(error)

    def _finish(self) -> None:
        self._server._finish(self._model, self._work.entry, self.request, self._session)
