"""Exchange between processes: gradients in few calls and few bytes, and a store of arrays."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from math import prod
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from arenaplan._core import Placement, Plan
from arenaplan.base.amounts import whole_number
from arenaplan.base.errors import InvalidOption, ShapeMismatch, UndefinedValue
from arenaplan.graph import Effects, InPlace
from arenaplan.planner.plan_options import PlanOptions
from arenaplan.planner.planning import plan as make_plan
from arenaplan.run.numpy.registry import Run, Step
from arenaplan.train.declared_operators import operator
from arenaplan.train.gradients import TrainingGraph, sgd
from arenaplan.train.symbols import operators
from arenaplan.train.training import EXACT

Reduce: TypeAlias = "Callable[[np.ndarray, int], ArrayLike | None]"
"""Changes a flat array in place, or returns the new content; gets the number of earlier steps."""
Key: TypeAlias = "int | str"
Updater: TypeAlias = "Callable[[Key, np.ndarray, np.ndarray], object]"

_REDUCERS: Final[list[Reduce]] = []
"""The functions that nodes call, by the attribute ``reducer``."""


def exchange(train: TrainingGraph, reduce: Reduce, *, calls: int | None = None) -> TrainingGraph:
    """
    Pass gradients through a function, such as a sum over processes, and return ``train``.

    A call gets several gradients as one flat array in the arena. A call keeps its gradients alive
    until the last gradient is ready, so few calls need more bytes. Gradients are grouped for the
    smallest arena of a gradient descent step: by live bytes, or in buckets with equal counts or
    equal bytes, whichever plan is smallest. The order of calls is fixed, with any number of
    workers, and equal for equal graphs.

    Parameters
    ----------
    train : TrainingGraph
        A graph with gradients of parameters that are states, and without updates.
    reduce : callable
        Gets a flat array and the number of earlier steps; changes the array in place, or returns
        the new content.
    calls : int, optional
        The largest number of calls per step; by default a call per gradient.

    Raises
    ------
    InvalidOption
        If the graph has updates already, a parameter is not a state, or gradients have more element
        types than there are calls.

    Examples
    --------
    >>> import numpy as np
    >>> import arenaplan as ap
    >>> graph = ap.Graph()
    >>> w = graph.parameter("w", np.full(2, 3, np.float32))
    >>> loss = ap.train.operators(graph).ReduceSumSquare(w, keepdims=0)
    >>> train = ap.train.gradient(graph, of=loss, wrt=[w])
    >>> train = ap.train.exchange(train, lambda flat, step: flat / 2, calls=1)
    >>> with ap.train.Trainer(ap.train.sgd(train, lr=1)) as trainer:
    ...     losses = trainer.step({})
    ...     trainer.states()["w"]
    array([0., 0.], dtype=float32)
    """
    if not callable(reduce):
        raise InvalidOption(f"option reduce: {reduce!r} is not a function")
    if not isinstance(train, TrainingGraph):
        sgd(train)  # Raises the error.
    graph, values = train.graph, train.graph.values
    types = sorted({values[at].dtype for at in train.gradients})
    most = len(train.gradients) if calls is None else whole_number(calls, "option calls")
    if most < len(types):
        raise InvalidOption(
            f"option calls: {calls} for gradients of {' and '.join(types)}: each type needs a call"
        )
    if reduce not in _REDUCERS:
        _REDUCERS.append(reduce)
    # Gradients in the order in which the backward pass makes them.
    steps = {at: k for k, node in enumerate(graph.core.order) for at in graph.nodes[node].outputs}
    ready = sorted(train.gradients, key=lambda at: steps[at])
    best = [[at] for at in ready]
    if most < len(ready):
        plan = _planned(train, best)
        ready.sort(key=lambda at: values[at].dtype)
        places = [plan[values[at].name] for at in ready]
        least: int | None = None
        for cuts in _cuts([values[at].dtype for at in ready], places, plan.live_bytes, most):
            groups = [ready[a:b] for a, b in pairwise(cuts)]
            groups.sort(key=lambda group: steps[group[-1]])
            size = _planned(train, groups).arena_bytes
            if least is None or size < least:
                best, least = groups, size
            if size <= plan.arena_bytes:
                break  # No more than with a call per gradient.
    return _exchanged(train, best, _REDUCERS.index(reduce))


def _cuts(
    types: Sequence[str], places: Sequence[Placement], live: Sequence[int], most: int
) -> list[Sequence[int]]:
    """
    Return ways to cut gradients, sorted by type and birth, into groups.

    First come cuts into 1, 2, … groups with the fewest live bytes; the last are buckets with equal
    counts and equal bytes.
    """
    count, base = len(places), np.array(live, float)
    filled = np.cumsum([0.0, *(place.bytes for place in places)])
    # By first gradient and end: live bytes at the worst step, and the group's share of all bytes.
    cost = np.full((count, count + 1), np.inf)
    for first in range(count):
        load, end = base.copy(), 0
        for last in range(first, count):
            if types[last] != types[first]:
                break
            end = max(end, places[last].live.end)
            peak = max(base.max(), load[places[first].live.start : end].max())
            cost[first, last + 1] = peak + (filled[last + 1] - filled[first]) / (filled[-1] + 1)
            load[places[last].live.end :] += places[last].bytes
    limits = np.unique(cost[np.isfinite(cost)])

    def within(limit: float) -> list[int]:
        """Return the fewest groups below a cost."""
        ends = [0]
        while ends[-1] < count:
            ends.append(ends[-1] + max(int((cost[ends[-1]] <= limit).sum()), 1))
        return ends

    def least(calls: int) -> float:
        """Return the least cost of so many groups."""
        at = bisect_left(limits, True, key=lambda limit: len(within(limit)) <= calls + 1)
        return float(limits[min(at, len(limits) - 1)])

    found = [within(np.ceil(least(calls))) for calls in range(1, most + 1)]
    found += [
        within(least(most)),
        np.linspace(0, count, most + 1).round().tolist(),
        np.searchsorted(filled, np.linspace(0, filled[-1], most + 1)).tolist(),
    ]
    unique = dict.fromkeys(tuple(sorted(map(int, {*cuts, count}))) for cuts in found)
    return [cuts for cuts in unique if all(np.isfinite(cost[a, b]) for a, b in pairwise(cuts))]


def _planned(train: TrainingGraph, groups: Sequence[Sequence[int]]) -> Plan:
    """Return the plan of a step with gradient descent."""
    copy = replace(train, graph=train.graph.copy(), statistics={}, updated={})
    graph = sgd(_exchanged(copy, groups, 0)).graph
    return make_plan(graph, PlanOptions(target="numpy", optimize=EXACT))


def _exchanged(
    train: TrainingGraph, groups: Sequence[Sequence[int]], reducer: int
) -> TrainingGraph:
    """Let each group's gradients go through a call, one call after the other."""
    graph, op = train.graph, operators(train.graph)
    call, before, found = getattr(op, "exchange::Exchange"), None, {}
    for group in groups:
        shapes = [np.array(graph.values[at].shape, np.int64) for at in group]
        own = [graph.own(at) for at in group]
        if len(own) > 1:
            own = [op.Concat(*(op.Reshape(at, np.array([-1])) for at in own), axis=0)]
        made = call(own[0], before, reducer=reducer, outputs=1 + (group is not groups[-1]))
        if group is not groups[-1]:
            made, before = made
        if len(group) == 1:
            found[group[0]] = made
            continue
        sizes = np.array([prod(shape.tolist()) for shape in shapes])
        parts = op.Split(made, sizes, outputs=len(group))
        found.update(
            (at, op.Reshape(part, shape))
            for at, part, shape in zip(group, parts, shapes, strict=True)
        )
    return train.replace(found)


def _reduced(step: Step) -> Run:
    """Pass an operand through a function that processes share; `before` orders the calls."""
    own, made = step.inputs[0], step.outputs[0]
    assert own is not None
    assert made is not None
    number, clock, flat = step.attributes["reducer"], step.clock, made.reshape(-1)
    if not 0 <= number < len(_REDUCERS):
        raise UndefinedValue("no function for this exchange: call arenaplan.train.exchange first")
    reduce = _REDUCERS[number]
    turn = step.output(1)

    def run() -> None:
        if turn is not None:
            turn.fill(False)
        np.copyto(made, own)
        found = reduce(flat, clock.run - 1)
        if found is not None:
            flat[...] = found

    return run


operator(
    "exchange::Exchange(own, before: bool=None, *, reducer) -> made, after: bool=None",
    shapes=lambda op: [(op.input(0).shape, op.input(0).dtype), ((), "bool")][: len(op.outputs)],
    effects=Effects(in_place=(InPlace(0, 0), InPlace(1, 1))),
    kernel=_reduced,
)


class KVStore:
    """
    Arrays by key, to which processes push changes: the key-value store of MXNet.

    Parameters
    ----------
    reduce : callable, optional
        Combines a flat array over processes, as in :func:`exchange`; gets the number of earlier
        pushes. By default there is one process.

    Examples
    --------
    >>> import numpy as np
    >>> import arenaplan as ap
    >>> store = ap.train.KVStore()
    >>> store.init("w", np.ones(2))
    >>> store.push("w", [np.ones(2), np.ones(2)])
    >>> store.pull("w")
    array([2., 2.])
    >>> store.set_updater(lambda key, pushed, stored: stored.__iadd__(pushed))
    >>> store.push("w", np.ones(2))
    >>> store.pull("w")
    array([3., 3.])
    """

    def __init__(self, reduce: Reduce | None = None) -> None:
        self._reduce = reduce
        self._pushes = 0
        self._stored: dict[Key, np.ndarray] = {}
        self._updater: Updater | None = None

    def init(self, key: Key, value: ArrayLike) -> None:
        """
        Store a copy of an array under a new key.

        Raises
        ------
        InvalidOption
            If the key is known.
        """
        if key in self._stored:
            raise InvalidOption(f"key {key!r} has a value: init is for new keys, push changes one")
        self._stored[key] = np.array(value, order="C")

    def push(self, key: Key, values: ArrayLike | Sequence[ArrayLike]) -> None:
        """
        Add arrays, in order, reduce the sum over processes, and update the stored array.

        Without an updater, the sum replaces the stored array.

        Raises
        ------
        UndefinedValue
            If the key is unknown.
        ShapeMismatch, InvalidOption
            If the stored array has another shape, or a type that cannot hold the array's.
        """
        stored = self._of(key)
        given = values if isinstance(values, (list, tuple)) else [values]
        total = np.zeros_like(stored)
        for value in map(np.asarray, given):
            if not np.can_cast(value.dtype, stored.dtype):
                raise InvalidOption(
                    f"key {key!r} holds {stored.dtype}, and an array pushed {value.dtype}"
                )
            if value.shape != stored.shape:
                raise ShapeMismatch(
                    f"key {key!r} has shape {stored.shape}, and an array pushed {value.shape}"
                )
            total += value
        self._shared(total.reshape(-1))
        if self._updater is None:
            stored[...] = total
        else:
            self._updater(key, total, stored)

    def pull(self, key: Key) -> np.ndarray:
        """Return a copy of the stored array; an unknown key raises ``UndefinedValue``."""
        return self._of(key).copy()

    def set_updater(self, updater: Updater) -> None:
        """Let pushes call ``updater(key, pushed, stored)``, which changes ``stored`` in place."""
        self._updater = updater

    def barrier(self) -> None:
        """Wait until all processes are here: an exchange of one number."""
        self._shared(np.zeros(1, np.float32))

    def _shared(self, flat: np.ndarray) -> None:
        if self._reduce is not None:
            found = self._reduce(flat, self._pushes)
            if found is not None:
                flat[...] = found
        self._pushes += 1

    def _of(self, key: Key) -> np.ndarray:
        if key not in self._stored:
            raise UndefinedValue(f"no key {key!r}: init it first")
        return self._stored[key]
