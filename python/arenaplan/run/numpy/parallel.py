"""
Steps on several threads, each after the required steps.

The interpreter's lock is released inside NumPy's kernels, so kernels on large arrays run at the
same time. Every step computes the same as alone: results equal a serial run of the plan, bit for
bit.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING

from arenaplan._core import Queue, Variable
from arenaplan.base.errors import fault
from arenaplan.graph import Graph
from arenaplan.run.numpy.groups import Unit
from arenaplan.run.numpy.steps import Program

if TYPE_CHECKING:
    from arenaplan._core import Plan


class Workers:
    """
    Threads that run one plan's steps.

    Parameters
    ----------
    graph : Graph
        The planned graph.
    plan : Plan
        The graph's plan.
    units : sequence of Unit
        The units of the runs. A chain of steps runs as one at the place of the first step, so that
        the first step waits for everything that the other steps wait for.
    program : Program
        The prepared runs.
    count : int
        Number of threads.
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
                continue  # The unit is a single plan step.
            chain = [step_of[node] for node in unit.nodes]
            for step in chain[1:]:
                others = before[step].difference(chain)
                assert all(other < chain[0] for other in others), "its operands are made before it"
                before[chain[0]] |= others
        self._before = [sorted(steps) for steps in before]
        self._count = count
        self._queue: Queue | None = None
        self._process = os.getpid()
        self._ended: list[Variable] = []
        self._failed = len(before)

    def run(self) -> None:
        """
        Do every step.

        Raises
        ------
        PlannerError
            For the first step in the order of the plan that fails. Later steps are not started.
        """
        queue = self._opened()
        for step, before in enumerate(self._before):
            reads = [self._ended[other] for other in before]
            queue.push(partial(self._do, step), reads, [self._ended[step]], "")
        try:
            queue.wait()
        except BaseException:
            self._failed = -1
            queue.close()
            self._queue = None
            raise

    def close(self) -> None:
        """End the threads."""
        if self._queue is not None:
            self._queue.close()

    def _opened(self) -> Queue:
        """Return this process's queue: a forked process has no threads of the parent."""
        if self._queue is None or self._process != os.getpid():
            self._queue = Queue(self._count)
            self._process = os.getpid()
            self._ended = [self._queue.variable() for _ in self._before]
            self._failed = len(self._before)
        return self._queue

    def _do(self, step: int, *_: object) -> None:
        """Do one step, unless an earlier step has failed."""
        position = self._runs[step]
        if position is None or step > self._failed:
            return
        try:
            with self._quiet():
                self._program.runs[position]()
        except Exception as error:
            self._failed = min(self._failed, step)
            node = self._program.nodes[position]
            message = f"node {node.name!r} ({node.op}) failed: {error}"
            raise fault("KernelError", message) from error
