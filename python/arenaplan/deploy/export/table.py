"""Plans as CSV, in the columns that minimalloc reads and writes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from arenaplan._core import Plan
from arenaplan.base.errors import InvalidOption
from arenaplan.deploy.export.placed import PlacedRow, identifiers, rows_of
from arenaplan.graph import Graph


def csv_of(graph: Graph, plan: Plan, *, space: str | None = None) -> str:
    """
    Return a plan's space as CSV, a line per buffer.

    Values that share bytes form a buffer. Live ranges are half-open. Where a buffer is needed only
    in part, the column ``gaps`` says which bytes: ``3-5@0:64``.

    Parameters
    ----------
    graph : Graph
        The planned graph.
    plan : Plan
        The plan.
    space : str, optional
        The space's name; optional if there is only one space.

    Raises
    ------
    InvalidOption
        If the plan has no such space, or has several spaces and no name is given.
    """
    names = [row.name for row in plan.spaces]
    if space is None and len(names) > 1:
        raise InvalidOption(f"CSV files describe one space; name one of {', '.join(names)}")
    if space is not None and space not in names:
        raise InvalidOption(f"the plan has no space {space!r}, only {', '.join(names)}")
    index = 0 if space is None else names.index(space)
    alignment = max(plan.alignment, plan.spaces[index].alignment)
    buffers = [rows for rows in _buffers(graph, plan) if rows[0].space == index]
    ids = identifiers(rows[0].name for rows in buffers)
    table = []
    for name, rows in zip(ids, buffers, strict=True):
        low = min(row.offset for row in rows)
        high = max(row.offset + row.size for row in rows)
        start, end = min(row.start for row in rows), max(row.end for row in rows)
        gaps = _gaps(rows, low, high)
        line = (name.lower(), start, end, high - low, alignment, gaps, low)
        table.append(",".join(map(str, line)))
    return "\n".join(["id,lower,upper,size,alignment,gaps,offset", *table, ""])


def _buffers(graph: Graph, plan: Plan) -> list[list[PlacedRow]]:
    """Return a plan's rows, grouped by intentionally shared bytes."""
    rows = rows_of(graph, plan)
    position = {row.value: index for index, row in enumerate(rows) if row.value is not None}
    leader = list(range(len(rows)))

    def find(index: int) -> int:
        while leader[index] != index:
            leader[index] = leader[leader[index]]
            index = leader[index]
        return index

    for share in plan.shares:
        first, second = position.get(share.source), position.get(share.result)
        if first is not None and second is not None:
            leader[find(second)] = find(first)
    buffers: dict[int, list[PlacedRow]] = {}
    for index, row in enumerate(rows):
        buffers.setdefault(find(index), []).append(row)
    return list(buffers.values())


def _gaps(rows: Sequence[PlacedRow], low: int, high: int) -> str:
    """Return the steps in which only part of a buffer is needed, with the needed bytes."""
    edges = sorted({edge for row in rows for edge in (row.start, row.end)})
    gaps = []
    for start, end in pairwise(edges):
        needed = [row for row in rows if row.start <= start and end <= row.end]
        if not needed:
            gaps.append(f"{start}-{end}")
            continue
        first = min(row.offset for row in needed) - low
        last = max(row.offset + row.size for row in needed) - low
        if (first, last) != (0, high - low):
            gaps.append(f"{start}-{end}@{first}:{last}")
    return " ".join(gaps)
