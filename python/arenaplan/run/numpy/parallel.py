"""
Steps on several threads, each after those that it must wait for.

The interpreter's lock is released inside of NumPy's kernels, so kernels of large arrays run at the
same time. Every step computes what it computes alone: results are those of a serial run of the same
plan, bit for bit.
"""

from __future__ import annotations

import heapq
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import AbstractContextManager
from threading import Condition
from typing import TYPE_CHECKING

from arenaplan.base.errors import PlannerError, fault
from arenaplan.graph import Graph
from arenaplan.run.numpy.groups import Unit
from arenaplan.run.numpy.steps import Program

if TYPE_CHECKING:
    from arenaplan._core import Plan


class Workers:
    """
    Threads that run the steps of one plan.

    Parameters
    ----------
    graph : Graph
        The graph that was planned.
    plan : Plan
        Its plan.
    units : sequence of Unit
        The units of the runs. A chain of steps runs as one at the place of its first step, so that
        step waits for all that its other steps wait for.
    program : Program
        The prepared runs.
    count : int
        Number of threads, the caller's among them.
    quiet : callable
        Returns the context in which each thread runs kernels.
    """

    def __init__(
        self,
        graph: Graph,
        plan: Plan,
        units: Sequence[Unit],
        program: Program,
        count: int,
        quiet: Callable[[], AbstractContextManager[None]],
    ) -> None:
        hazards = plan.hazards(graph)
        step_of = {nodes[-1]: step for step, nodes in enumerate(plan.steps)}
        self._program = program
        self._quiet = quiet
        self._runs: list[int | None] = [None] * len(plan.steps)
        for position, node in enumerate(program.nodes):
            self._runs[step_of[node.index]] = position
        before = [{edge.before for edge in hazards.of(step)} for step in range(hazards.steps)]
        for unit in units:
            if unit.home == unit.nodes[-1]:
                continue  # One step of the plan.
            chain = [step_of[node] for node in unit.nodes]
            for step in chain[1:]:
                others = before[step].difference(chain)
                assert all(other < chain[0] for other in others), "its operands are made before it"
                before[chain[0]] |= others
        self._waits = [len(steps) for steps in before]
        self._dependents: list[list[int]] = [[] for _ in before]
        for step, steps in enumerate(before):
            for other in steps:
                self._dependents[other].append(step)
        self._count = count
        self._pool: ThreadPoolExecutor | None = None
        self._process = os.getpid()

    def run(self) -> None:
        """
        Do every step.

        Raises
        ------
        PlannerError
            For the first step in the order of the plan that fails. Later steps are not started.
        """
        run = _Run(self._waits)
        others = []
        if self._count > 1:
            pool = self._threads()
            others = [pool.submit(self._work, run) for _ in range(self._count - 1)]
        try:
            self._work(run)
        except BaseException:
            run.stop()
            raise
        finally:
            wait(others)
        for other in others:
            other.result()
        if run.failed is not None:
            raise run.failed[1]

    def close(self) -> None:
        """End the threads."""
        if self._pool is not None and self._process == os.getpid():
            self._pool.shutdown()

    def _threads(self) -> ThreadPoolExecutor:
        """Return the threads of this process: a fork has none of its parent's."""
        if self._pool is None or self._process != os.getpid():
            self._pool = ThreadPoolExecutor(self._count - 1, "arenaplan")
            self._process = os.getpid()
        return self._pool

    def _work(self, run: _Run) -> None:
        with self._quiet():
            step = run.take()
            while step is not None:
                error = self._do(step)
                step = run.take((step, error, () if error else self._dependents[step]))

    def _do(self, step: int) -> PlannerError | None:
        """Do one step, and return its error."""
        position = self._runs[step]
        if position is None:
            return None
        try:
            self._program.runs[position]()
        except Exception as error:
            node = self._program.nodes[position]
            failed = fault("KernelError", f"node {node.name!r} ({node.op}) failed: {error}")
            failed.__cause__ = error
            return failed
        return None


class _Run:
    """The state of one run, which its threads share."""

    def __init__(self, waits: Sequence[int]) -> None:
        self._changed = Condition()
        self._waits = list(waits)
        self._ready = [step for step, count in enumerate(waits) if count == 0]
        self._running = 0
        self._stopped = False
        self.failed: tuple[int, PlannerError] | None = None

    def stop(self) -> None:
        """Start no step any more."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def take(
        self, ended: tuple[int, PlannerError | None, Sequence[int]] | None = None
    ) -> int | None:
        """Note the end of a step, and return the first one that may run; None if none is left."""
        with self._changed:
            if ended is not None:
                self._end(*ended)
            while True:
                if self._is_wanted():
                    self._running += 1
                    return heapq.heappop(self._ready)
                if self._running == 0 or self._stopped:
                    self._changed.notify_all()
                    return None
                self._changed.wait()

    def _is_wanted(self) -> bool:
        """Whether a step may run, and comes before all that failed."""
        if not self._ready or self._stopped:
            return False
        return self.failed is None or self._ready[0] < self.failed[0]

    def _end(self, step: int, error: PlannerError | None, dependents: Sequence[int]) -> None:
        self._running -= 1
        if error is not None and (self.failed is None or step < self.failed[0]):
            self.failed = (step, error)
        freed = 0
        for after in dependents:
            self._waits[after] -= 1
            if self._waits[after] == 0:
                heapq.heappush(self._ready, after)
                freed += 1
        # This thread takes one of them itself.
        if freed > 1:
            self._changed.notify(freed - 1)
