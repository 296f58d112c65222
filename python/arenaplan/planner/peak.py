"""Values that a plan holds at one step: a list whose bytes sum to the step's live bytes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from arenaplan._core import PlacedWorkspace, Placement, Plan
from arenaplan.graph.graph import Graph


def union(ranges: Iterable[tuple[int, int]]) -> int:
    """
    Return the number of bytes in some address ranges; bytes in several ranges count once.

    Examples
    --------
    >>> union([(0, 10), (4, 12), (20, 30)])
    22
    """
    total, covered = 0, 0
    for start, end in sorted(ranges):
        total += max(0, end - max(start, covered))
        covered = max(covered, end)
    return total


class Held(NamedTuple):
    """A value or a scratch buffer that is live at a step."""

    name: str
    is_scratch: bool
    space: int
    offset: int
    bytes: int
    counted: int
    """Bytes that the value adds to the values before, rounded up as in the plan. Values that share
    bytes count once: these numbers sum to the step's live bytes.
    """


def held_at(plan: Plan, step: int, graph: Graph | None = None, step_name: str = "") -> list[Held]:
    """
    Return the live values in the arenas at a step, by space and offset.

    Parameters
    ----------
    plan : Plan
        The plan.
    step : int
        Index of the step.
    graph : Graph, optional
        The graph in the view of the plan's target.
    step_name : str, optional
        Name of the step, for scratch buffers; by default the last node's name, if known.

    Examples
    --------
    >>> import arenaplan as ap
    >>> from arenaplan.planner.peak import held_at
    >>> graph = ap.Graph()
    >>> x = graph.input("x", (20,), "uint8")
    >>> (y,) = graph.node("Conv", [x], [("y", (80,), "uint8")])
    >>> graph.output(y)
    >>> plan = ap.plan(graph)
    >>> [(held.name, held.bytes, held.counted) for held in held_at(plan, plan.peak_step)]
    [('y', 80, 128), ('x', 20, 64)]
    >>> plan.live_bytes[plan.peak_step]
    192
    """
    found: list[tuple[str, bool, Placement | PlacedWorkspace]] = []
    places = plan.placements
    if graph is None:
        placed = (index for index, place in enumerate(places) if place is not None)
        names = dict(zip(placed, plan, strict=True))
    for index in plan.live_at(step):
        place = places[index]
        if place is not None and place.bytes:
            name = names[index] if graph is None else graph.values[index].name
            found.append((name, False, place))
    if graph is not None and plan.steps:
        step_name = step_name or graph.nodes[plan.steps[step][-1]].name
    for work in plan.workspaces:
        if work.bytes and work.live.start <= step < work.live.end:
            found.append((f"{step_name or f'step {step}'} workspace {work.slot}", True, work))
    found.sort(key=lambda row: (row[2].space, row[2].offset, -row[2].bytes))
    unit = plan.alignment
    rows, space, covered = [], -1, 0
    for name, is_scratch, it in found:
        if it.space != space:
            space, covered = it.space, 0
        start = it.offset - it.offset % unit
        end = -(-(it.offset + it.bytes) // unit) * unit
        counted = max(0, end - max(start, covered))
        covered = max(covered, end)
        rows.append(Held(name, is_scratch, it.space, it.offset, it.bytes, counted))
    return rows
