"""What a plan put into slower memory than the fastest one, why, and what that costs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from arenaplan._core import Plan
from arenaplan.graph import Graph


@dataclass(frozen=True, slots=True)
class Spilled:
    """
    A value in a slower memory than the fastest one.

    Attributes
    ----------
    name : str
        Name of the value.
    space : str
        Where it is.
    size : int
        Its bytes.
    moved : int
        Bytes of it that nodes read and write in one run.
    cost : int
        What that costs more than in the fastest memory.
    reason : str
        Why it is not there.
    """

    name: str
    space: str
    size: int
    moved: int
    cost: int
    reason: str


def spilled(graph: Graph, plan: Plan) -> list[Spilled]:
    """
    Return the values that are in a slower memory than the fastest, the dearest first.

    Parameters
    ----------
    graph : Graph
        What was planned.
    plan : Plan
        A plan with several spaces.

    Returns
    -------
    list of Spilled
        One entry per value; values that share bytes share a reason.

    Examples
    --------
    >>> import arenaplan as ap
    >>> graph = ap.Graph()
    >>> x = graph.input("x", (8,), "uint8")
    >>> (y,) = graph.node("Op", [x], [("y", (16,), "uint8")])
    >>> graph.output(y)
    >>> plan = ap.plan(graph, spaces="sram=20,psram=1M", alignment=1)
    >>> [(value.name, value.cost, value.reason) for value in ap.spilled(graph, plan)]
    [('x', 8, "step 0 has 16 bytes in 'sram' already, which holds 20")]
    """
    costs = [space[6] for space in plan.spaces]
    fastest = costs.index(min(costs, default=0)) if costs else 0
    placements, moved = plan.placements, plan.bytes_moved
    rows = []
    for members in _buffers(plan):
        place = placements[members[0]]
        if place is None or costs[place[0]] <= costs[fastest]:
            continue
        reason = _reason(plan, members, fastest)
        for index in members:
            bytes_moved = moved[index] or 0
            size = (placements[index] or (0, 0, 0))[2]
            extra = bytes_moved * (costs[place[0]] - costs[fastest])
            name, space = graph.values[index].name, plan.spaces[place[0]][0]
            rows.append(Spilled(name, space, size, bytes_moved, extra, reason))
    return sorted(rows, key=lambda row: (-row.cost, row.name))


def _reason(plan: Plan, members: list[int], fastest: int) -> str:
    """Say why values that share bytes are not in the fastest space."""
    name, _, _, _, _, capacity, _ = plan.spaces[fastest]
    placements, live = plan.placements, plan.live
    size = max(place[2] for place in map(placements.__getitem__, members) if place is not None)
    if capacity is not None and size > capacity:
        return f"{name!r} holds {capacity:,}"
    spans = [span for span in map(live.__getitem__, members) if span is not None]
    first, last = min(span[0] for span in spans), max(span[1] for span in spans)
    taken = plan.live_bytes_in(fastest)
    step = max(range(first, last), key=lambda step: (taken[step], -step))
    if capacity is not None and taken[step] + size > capacity:
        return (
            f"step {step} has {taken[step]:,} bytes in {name!r} already, which holds {capacity:,}"
        )
    extent = _extent(plan, members)
    if not _has_room(plan, fastest, extent, first, last):
        return f"{name!r} has no {extent:,} bytes in one piece in steps {first}..{last}"
    if plan.move_cost is not None and plan.move_cost[0] > plan.move_cost[1]:
        return f"it is pinned, or a longer search would find its place in {name!r}"
    # Moving it to the room that is there would cost less than the proven least cost.
    return "it is pinned"


def _extent(plan: Plan, members: list[int]) -> int:
    """Return the bytes from the first to the last of values that share bytes."""
    places = [place for place in map(plan.placements.__getitem__, members) if place is not None]
    return max(p[1] + p[2] for p in places) - min(p[1] for p in places)


def _has_room(plan: Plan, space: int, size: int, first: int, last: int) -> bool:
    """Return whether a space has ``size`` bytes in one piece that are free in some steps."""
    step_of = {node: step for step, nodes in enumerate(plan.steps) for node in nodes}
    taken = [
        (place[1], place[1] + place[2])
        for place, live in zip(plan.placements, plan.live, strict=True)
        if place and live and place[0] == space and live[0] < last and first < live[1]
    ]
    taken += [
        (work[4], work[4] + work[5])
        for work in plan.workspaces
        if work[3] == space and first <= step_of[work[0]] < last
    ]
    alignment, capacity, free = plan.spaces[space][4], plan.spaces[space][5], 0
    for start, end in sorted(taken):
        if free + size <= start:
            return True
        free = max(free, -(-end // alignment) * alignment)
    return capacity is None or free + size <= capacity


def _buffers(plan: Plan) -> Iterator[list[int]]:
    """Yield the values of a plan, those together that share bytes on purpose."""
    leader = {index: index for index, place in enumerate(plan.placements) if place is not None}

    def find(index: int) -> int:
        while leader[index] != index:
            leader[index] = leader[leader[index]]
            index = leader[index]
        return index

    for first, second in plan.shared_values:
        if first in leader and second in leader:
            leader[find(second)] = find(first)
    groups = defaultdict(list)
    for index in leader:
        groups[find(index)].append(index)
    yield from groups.values()
