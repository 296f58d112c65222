"""Spilled values: values in slower memory than the fastest, with reasons and cost."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from arenaplan._core import PlacedWorkspace, Placement, Plan
from arenaplan.base.arguments import typed
from arenaplan.graph import Graph
from arenaplan.graph.given import graph_of
from arenaplan.graph.sizes import Source
from arenaplan.planner.spaces import Space, homes_of


@dataclass(frozen=True, slots=True)
class Spilled:
    """
    A value in a slower memory than the fastest.

    Attributes
    ----------
    name : str
        Value name.
    space : str
        Name of the slower memory.
    size : int
        The value's bytes.
    moved : int
        Bytes that nodes read and write per run.
    cost : int
        Extra cost compared with the fastest memory.
    reason : str
        Reason why the value is not in the fastest memory.
    """

    name: str
    space: str
    size: int
    moved: int
    cost: int
    reason: str


@typed
def spilled(
    graph: Graph | Source, plan: Plan, pins: Mapping[str, str] | None = None
) -> list[Spilled]:
    """
    Return the values that are in a slower memory than the fastest, the dearest first.

    Parameters
    ----------
    graph : Graph, path or bytes
        The planned graph, or its model as for :func:`load`.
    plan : Plan
        A plan with several spaces.
    pins : mapping of str to str, optional
        The pins that the plan was made with: a plan does not store them.

    Returns
    -------
    list of Spilled
        One entry per value; values that share bytes share a reason.

    Raises
    ------
    PlanError
        If the plan was made for another graph.

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
    graph = graph_of(graph)
    costs = [space.cost for space in plan.spaces]
    fastest = costs.index(min(costs, default=0)) if costs else 0
    spaces, placements, moved = plan.spaces, plan.placements, plan.bytes_moved
    homes = dict(homes_of(graph, [Space(space.name) for space in plan.spaces], pins or {}))
    rows = []
    for members in _buffers(plan):
        place = placements[members[0]]
        # The caller's buffers are behind the spaces, and have no cost.
        is_inside = place is not None and place.space < len(costs)
        if place is None or not is_inside or costs[place.space] <= costs[fastest]:
            continue
        is_pinned = any(homes.get(index, fastest) != fastest for index in members)
        is_declared = any(graph.values[index].space is not None for index in members)
        if is_pinned or is_declared:
            reason = f"it is pinned to {spaces[place.space].name!r}"
        else:
            reason = _reason(plan, members, fastest, known=pins is not None)
        for index in members:
            bytes_moved = moved[index] or 0
            own = placements[index]
            size = 0 if own is None else own.bytes
            extra = bytes_moved * (costs[place.space] - costs[fastest])
            name, space = graph.values[index].name, spaces[place.space].name
            rows.append(Spilled(name, space, size, bytes_moved, extra, reason))
    return sorted(rows, key=lambda row: (-row.cost, row.name))


def _reason(plan: Plan, members: list[int], fastest: int, *, known: bool) -> str:
    """Say why values that share bytes are not in the fastest space."""
    name, capacity = plan.spaces[fastest].name, plan.spaces[fastest].capacity
    places = [place for place in map(plan.placements.__getitem__, members) if place is not None]
    size = max(place.bytes for place in places)
    if capacity is not None and size > capacity:
        return f"{name!r} holds {capacity:,}"
    first = min(place.live.start for place in places)
    last = max(place.live.end for place in places)
    taken = plan.live_bytes_in(fastest)
    step = max(range(first, last), key=lambda step: (taken[step], -step))
    if capacity is not None and taken[step] + size > capacity:
        return (
            f"step {step} has {taken[step]:,} bytes in {name!r} already, which holds {capacity:,}"
        )
    if capacity is not None and _largest_gap(plan, fastest, capacity, first, last) < size:
        return f"{name!r} has no {size:,} bytes in one piece from step {first} to {last - 1}"
    if not any(plan.bytes_moved[index] for index in members):
        return "no node reads or writes its bytes"
    moved = plan.move_cost
    if (moved is None or moved.cost == moved.lower_bound) and not known:
        # Otherwise the plan would cost less with the value in the gap.
        return f"it is pinned: {name!r} has room for it"
    return f"the search found no better place, though {name!r} has room for it"


def _largest_gap(plan: Plan, space: int, capacity: int, first: int, last: int) -> int:
    """Return the most bytes of a space that are free from ``first`` to ``last`` in one piece."""
    alignment = plan.spaces[space].alignment
    places: list[Placement | PlacedWorkspace] = [*plan.workspaces]
    places += [place for place in plan.placements if place is not None]
    largest, end = 0, 0
    for place in sorted(places, key=lambda place: place.offset):
        if place.space == space and place.live.start < last and first < place.live.end:
            largest = max(largest, place.offset - end)
            end = max(end, -(-(place.offset + place.bytes) // alignment) * alignment)
    return max(largest, capacity - end)


def _buffers(plan: Plan) -> Iterator[list[int]]:
    """Yield a plan's values, grouped by bytes that are shared on purpose."""
    leader = {index: index for index, place in enumerate(plan.placements) if place is not None}

    def find(index: int) -> int:
        while leader[index] != index:
            leader[index] = leader[leader[index]]
            index = leader[index]
        return index

    for share in plan.shares:
        if share.source in leader and share.result in leader:
            leader[find(share.result)] = find(share.source)
    groups = defaultdict(list)
    for index in leader:
        groups[find(index)].append(index)
    yield from groups.values()
