"""Models of which a test holds the kernels: they wait, fail, and count."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

import arenaplan as ap
from arenaplan.run.numpy import kernel
from arenaplan.run.numpy.registry import Run, Step

F32 = "float32"
_CALLS: dict[str, Callable[[], object]] = {}


class Gate:
    """A place in a kernel where runs wait until the test lets them go on."""

    def __init__(self) -> None:
        self.inside = threading.Semaphore(0)
        """Released once by each run that arrives."""
        self.leave = threading.Semaphore(0)
        """Acquired once by each run that goes on."""

    def __call__(self) -> None:
        self.inside.release()
        assert self.leave.acquire(timeout=60)

    def arrived(self) -> None:
        """Wait until a run is inside."""
        assert self.inside.acquire(timeout=60)

    def open(self, runs: int = 1) -> None:
        self.leave.release(runs)


@kernel("Call", domain="tests")
def call(step: Step) -> Run:
    """Call a function of the test, then double the input."""
    x, y = step.inputs[0], step.outputs[0]

    def run() -> None:
        _CALLS[step.attributes["call"]]()
        np.add(x, x, y)

    return run


@kernel("Accumulate", domain="tests")
def accumulate(step: Step) -> Run:
    """Add the input to a state, and return the state."""
    state, x = step.inputs
    y = step.outputs[0]
    assert state is not None

    def run() -> None:
        np.add(state, x, state)
        np.copyto(y, state)  # type: ignore[arg-type]

    return run


def calling(
    function: Callable[[], object] = lambda: None, *, size: int = 1024, name: str = "calling"
) -> ap.Graph:
    """Return a graph whose node calls a function: ``y = 2 x``, of some floats."""
    key = f"{name} {id(function)} {size}"
    _CALLS[key] = function
    graph = ap.Graph(name)
    x = graph.input("x", (size,))
    (y,) = graph.node(
        "Call", [x], [("y", (size,), F32)], attributes={"call": key}, domain="tests", name="gate"
    )
    assert y is not None
    graph.output(y)
    return graph


def summing(size: int = 8, then: Callable[[], object] = lambda: None) -> ap.Graph:
    """Return a graph that adds its input to a state and calls a function: ``y = 2 total``."""
    key = f"summing {id(then)} {size}"
    _CALLS[key] = then
    graph = ap.Graph("summing")
    x, state = graph.input("x", (size,)), graph.state("total", (size,))
    (now,) = graph.node(
        "Accumulate", [state, x], [("now", (size,), F32)], mutates=[0], domain="tests"
    )
    (y,) = graph.node(
        "Call", [now], [("y", (size,), F32)], attributes={"call": key}, domain="tests"
    )
    assert y is not None
    graph.output(y)
    return graph


def full(size: int, value: float = 1.0) -> Mapping[str, np.ndarray]:
    return {"x": np.full(size, value, np.float32)}


def started(function: Callable[..., Any], *arguments: Any, **options: Any) -> threading.Thread:
    thread = threading.Thread(target=partial(function, *arguments, **options), daemon=True)
    thread.start()
    return thread
