"""Branches and loops: bodies that are planned and prepared once, and run as data decides."""

from __future__ import annotations

from functools import partial

import numpy as np

from arenaplan.graph import Node
from arenaplan.planner.bodies import TAKE, Emitted
from arenaplan.run.numpy.flow import BoundBody, body_scratch
from arenaplan.run.numpy.kernels.pieces import operand
from arenaplan.run.numpy.registry import Run, Step, kernel


@kernel("If", workspace=body_scratch)
def if_(step: Step) -> Run:
    """Run the branch that the condition chooses."""
    results = step.outputs[: step.attributes["results"]]
    taken, other = (BoundBody(step, body, results).run for body in step.attributes["bodies"])
    condition = operand(step, 0)
    return lambda: taken() if condition.item() else other()


class _Loop:
    """
    A body that is run round by round.

    Parameters
    ----------
    step : Step
        The node.
    first : int
        Position of the first initial value among the operands.
    """

    def __init__(self, step: Step, first: int) -> None:
        attributes = step.attributes
        (body,) = attributes["bodies"]
        self._step = step
        self._results = step.outputs[: attributes["results"]]
        self._carried: int = attributes["carried"]
        self.goes_on = True
        """The condition that the body made in the last round."""
        self.round = 0
        """The round's number."""
        self._initial = [
            (self._results[at], operand(step, first + at)) for at in range(self._carried)
        ]
        self.body = BoundBody(step, body, self._results, self._move)

    def begin(self) -> None:
        """Copy the initial values of carried values to the body's places."""
        for target, source in self._initial:
            if target is not None:
                np.copyto(target, source)
        self.goes_on = True

    def run_round(self, number: int) -> None:
        """Run the body once."""
        self.round = number
        self.body.counter[...] = number
        self.body.run()

    def _move(self, node: Node, array: np.ndarray) -> Run:
        if node.op == TAKE:
            return self._taken(node, array)
        target: Emitted = node.attributes["target"]
        if target.kind == "condition":
            return partial(self._decide, array)
        if target.kind == "carried":
            carried = self._results[target.position]
            assert carried is not None
            return partial(np.copyto, carried, array)
        joined = self._results[self._carried + target.position]
        assert joined is not None
        axes = self._step.attributes.get("axes")
        if axes is not None:
            joined = np.moveaxis(joined, axes[target.position], 0)
        backward = self._step.attributes.get("backward", ())
        if target.position < len(backward) and backward[target.position]:
            joined = joined[::-1]
        return partial(self._write, joined, array)

    def _taken(self, node: Node, array: np.ndarray) -> Run:
        at = node.attributes["operand"]
        source = np.moveaxis(operand(self._step, at), node.attributes["axis"], 0)
        if self._step.attributes["backward_inputs"][at - self._carried]:
            source = source[::-1]
        return partial(self._read, array, source)

    def _decide(self, condition: np.ndarray) -> None:
        self.goes_on = bool(condition.item())

    def _write(self, joined: np.ndarray, array: np.ndarray) -> None:
        np.copyto(joined[self.round, ...], array)

    def _read(self, array: np.ndarray, source: np.ndarray) -> None:
        np.copyto(array, source[self.round, ...])


@kernel("Loop", workspace=body_scratch)
def loop(step: Step) -> Run:
    """Run the body until the number of rounds is reached, or the body's condition is false."""
    bound = _Loop(step, 2)
    limit, start = step.input(0), step.input(1)

    def run() -> None:
        bound.goes_on = start is None or bool(start.item())
        goes_on = bound.goes_on
        trips = None if limit is None else int(limit.item())
        bound.begin()
        number = 0
        while goes_on and (trips is None or number < trips):
            bound.run_round(number)
            goes_on = bound.goes_on
            number += 1

    return run


@kernel("Scan", since=9, workspace=body_scratch)
def scan(step: Step) -> Run:
    """Run the body on operand slices, and join the results."""
    bound = _Loop(step, 0)
    trips = step.attributes["trips"]

    def run() -> None:
        bound.begin()
        for number in range(trips):
            bound.run_round(number)

    return run
