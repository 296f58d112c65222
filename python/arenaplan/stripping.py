"""
Which steps of a plan run strip by strip.

A *region* is a run of steps of which the last one's result is made some rows at a time, through all
of them. The bytes between its steps shrink to line buffers; its operands and its result stay
whole. A choice of regions is a path through the steps in their order, each edge of which is a step
as it is or a region (the graph of fusion choices of msf-CNN, Huang and Baccelli 2025). For arenas
of a given size the path of the least time is found, and the smallest size with a path within the
limit by bisection.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from math import inf
from typing import NamedTuple

import numpy as np

from arenaplan._core import Plan
from arenaplan.backend import Regions
from arenaplan.graph import Graph

_LONGEST = 64
"""Most steps of a region."""
_COLD = 0.9
"""Regions are tried where a step needs more than this part of what the caller's values need."""
_MOST_ENDINGS = 160
"""Steps that are tried as the ends of regions, at most."""


class Region(NamedTuple):
    """A run of steps, and what it needs."""

    first: int
    last: int
    rows: int
    """Rows of the result that are made at once."""
    bytes: int
    """Bytes that are live while it runs."""
    seconds: float


class Way(NamedTuple):
    """A way to run one step."""

    bytes: int
    """Bytes that are live while it runs."""
    seconds: float


def regions_of(
    graph: Graph,
    plan: Plan,
    regions: Regions,
    sizes: Sequence[int],
    below: float = inf,
    limit: float = inf,
) -> list[Region]:
    """
    Return regions of a plan's steps that might lower its peak.

    Parameters
    ----------
    sizes : sequence of int
        Bytes of each value.
    below : float, optional
        Regions with as many bytes are left out.
    limit : float, optional
        Regions that take more seconds are left out.
    """
    around = _Around(graph, plan, sizes)
    steps = plan.steps
    live = plan.live_bytes[: len(steps)]
    most = min(max(live, default=0), below - 1)
    least = int(_COLD * around.boundary())
    hot = [at for at, held in enumerate(live) if held > least]
    found: list[Region] = []
    if not hot:
        return found
    ends = [at for at in range(hot[0], len(live)) if _is_near(at, hot)]
    for last in ends[:_MOST_ENDINGS]:
        room = most - around.held_in_all(last)
        if room < 0:
            continue
        for first, costs in regions.ending(steps, last, _LONGEST, int(room)):
            if first == last:
                continue  # Steps by themselves run tile by tile anyway.
            warmest = max(live[first : last + 1])
            if warmest <= least:
                continue
            held = around.held(first, last)
            best = limit
            for cost in sorted(costs, key=lambda cost: (cost.bytes, cost.seconds)):
                bytes_ = held + cost.bytes
                if bytes_ < min(warmest, below) and cost.seconds < best:
                    best = cost.seconds
                    found.append(Region(first, last, cost.rows, bytes_, cost.seconds))
    return found


def _is_near(at: int, hot: Sequence[int]) -> bool:
    """Whether a region that ends with a step can hold one that needs many bytes."""
    before = bisect_right(hot, at)
    return before > 0 and at - hot[before - 1] < _LONGEST


class _Around:
    """The bytes that a region needs beside its line buffers."""

    def __init__(self, graph: Graph, plan: Plan, sizes: Sequence[int]) -> None:
        self._sizes = sizes
        self._graph = graph
        root = list(range(len(sizes)))

        def find(value: int) -> int:
            while root[value] != value:
                root[value] = root[root[value]]
                value = root[value]
            return value

        for share in plan.shares:
            if share.rule == "view":
                root[find(share.source)] = find(share.result)
        made = np.full(len(sizes), -1)
        steps = plan.steps
        for at, nodes in enumerate(steps):
            # Values inside of a group have no place.
            made[[v for v in graph.nodes[nodes[-1]].outputs if v is not None]] = at
        self._exits = [nodes[-1] for nodes in steps]
        placed = [(v, place) for v, place in enumerate(plan.placements) if place is not None]
        self._position = {value: at for at, (value, _) in enumerate(placed)}
        self._starts = np.array([place.live.start for _, place in placed], np.int64)
        self._ends = np.array([place.live.end for _, place in placed], np.int64)
        self._offsets = np.array([place.offset for _, place in placed], np.int64)
        self._bytes = np.array([-(-sizes[v] // plan.alignment) for v, _ in placed], np.int64)
        self._bytes *= plan.alignment
        self._made = made[list(self._position)]
        roots = np.array([find(value) for value, _ in placed], np.int64)
        _, self._roots, counts = np.unique(roots, return_inverse=True, return_counts=True)
        self._share = counts[self._roots] > 1
        """Whether other values show bytes of the value, or it shows those of others."""

    def boundary(self) -> int:
        """Return the bytes of the largest of inputs and outputs."""
        ends = (self._graph.inputs, self._graph.outputs)
        return max(sum(self._sizes[value] for value in values) for values in ends)

    def _exits_of(self, step: int) -> list[int]:
        """Return the positions of the results of a step that have a place."""
        outputs = self._graph.nodes[self._exits[step]].outputs
        return [self._position[v] for v in outputs if v is not None and v in self._position]

    def held_in_all(self, last: int) -> int:
        """Return bytes that every region holds that ends with a step."""
        is_outside = self._made <= last - _LONGEST
        is_outside[self._exits_of(last)] = True
        held = (self._starts <= last) & (self._ends > last) & is_outside & ~self._share
        return int(self._bytes[held].sum())

    def held(self, first: int, last: int) -> int:
        """Return the bytes of the values that a region of steps reads, makes, or leaves alone."""
        inside = (first <= self._made) & (self._made <= last)
        inside[self._exits_of(last)] = False
        held = (self._starts <= last) & (self._ends > first) & ~inside
        spans: dict[int, list[tuple[int, int]]] = {}
        for at in np.flatnonzero(held & self._share).tolist():
            start = int(self._offsets[at])
            span = (start, start + int(self._bytes[at]))
            spans.setdefault(int(self._roots[at]), []).append(span)
        alone = int(self._bytes[held & ~self._share].sum())
        return alone + sum(_covered(found) for found in spans.values())


def _covered(spans: list[tuple[int, int]]) -> int:
    """Return how many bytes some spans cover together."""
    total = end = 0
    for start, stop in sorted(spans):
        total += max(stop - max(start, end), 0)
        end = max(end, stop)
    return total


class Path(NamedTuple):
    """Steps of a plan, some of them in regions."""

    seconds: float
    bytes: int
    regions: tuple[Region, ...]


def least_path(
    steps: Sequence[Sequence[Way]], regions: Iterable[Region], limit: float, above: int = 0
) -> Path | None:
    """
    Return the path with the fewest bytes that takes no longer than a limit.

    Parameters
    ----------
    steps : sequence of sequence of Way
        The ways to run each step: ascending bytes, descending seconds.
    limit : float
        Seconds.
    above : int, default 0
        Paths with no more bytes than this are not looked for.
    """
    by_first: dict[int, list[Region]] = {}
    for region in regions:
        by_first.setdefault(region.first, []).append(region)
    sizes = {way.bytes for ways in steps for way in ways}
    sizes |= {region.bytes for found in by_first.values() for region in found}
    sizes = {size for size in sizes if size > above}
    levels = sorted(sizes)
    low, high = 0, len(levels)
    best = None
    while low < high:
        middle = (low + high) // 2
        path = _fastest(steps, by_first, levels[middle])
        if path is not None and path.seconds <= limit:
            best, high = path, middle
        else:
            low = middle + 1
    return best


def _fastest(
    steps: Sequence[Sequence[Way]], by_first: Mapping[int, Sequence[Region]], room: int
) -> Path | None:
    """Return the path of the least time in an arena of some bytes."""
    count = len(steps)
    seconds = [inf] * (count + 1)
    before: list[Region | None] = [None] * (count + 1)
    seconds[0] = 0.0
    for at in range(count):
        if seconds[at] == inf:
            continue
        fitting = [way.seconds for way in steps[at] if way.bytes <= room]
        if fitting and seconds[at] + min(fitting) < seconds[at + 1]:
            seconds[at + 1], before[at + 1] = seconds[at] + min(fitting), None
        for region in by_first.get(at, ()):
            total = seconds[at] + region.seconds
            if region.bytes <= room and total < seconds[region.last + 1]:
                seconds[region.last + 1], before[region.last + 1] = total, region
    if seconds[count] == inf:
        return None
    chosen: list[Region] = []
    at = count
    while at > 0:
        taken = before[at]
        if taken is not None:
            chosen.append(taken)
        at = at - 1 if taken is None else taken.first
    return Path(seconds[count], room, tuple(reversed(chosen)))
