"""A plan as rows: what is where, when, under which name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from arenaplan._core import Plan
from arenaplan.graph import Graph

_LONGEST: Final = 56
"""Longest identifier; C compilers need not look at more than 63 characters, prefix included."""


class Row(NamedTuple):
    """One value or workspace in an arena."""

    name: str
    space: int
    offset: int
    size: int
    """Bytes, not rounded."""
    start: int
    end: int
    value: int | None
    """Index of the value in the graph; ``None`` for a workspace."""


def rows_of(graph: Graph, plan: Plan) -> list[Row]:
    """Return everything that has a place in a plan: values, then workspaces."""
    rows = []
    for value, place, live in zip(graph.values, plan.placements, plan.live, strict=True):
        if place is not None and live is not None:
            rows.append(Row(value.name, *place, *live, value.index))
    step_of = {node: step for step, nodes in enumerate(plan.steps) for node in nodes}
    for node, slot, _, space, offset, size in plan.workspaces:
        step = step_of[node]
        name = f"{graph.nodes[node].name} workspace {slot}"
        rows.append(Row(name, space, offset, size, step, step + 1, None))
    return rows


def identifiers(names: Iterable[str], reserved: Iterable[str] = ()) -> Iterator[str]:
    """Yield a distinct C identifier for every name, in upper case and of bearable length."""
    used = set(reserved)
    for name in names:
        plain = "".join(c if c.isascii() and c.isalnum() else "_" for c in name).upper()
        plain = plain.strip("_")[:_LONGEST] or "X"
        unique, count = plain, 1
        while unique in used:
            count += 1
            unique = f"{plain}_{count}"
        used.add(unique)
        yield unique
