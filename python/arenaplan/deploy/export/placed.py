"""A plan as rows: offset, size, live range and name for each value and workspace."""

from __future__ import annotations

import hashlib
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from arenaplan._core import PlacedWorkspace, Placement, Plan
from arenaplan.base.errors import fault
from arenaplan.graph import Graph

_LONGEST: Final = 56
"""Longest identifier; C compilers need not look at more than 63 characters, prefix included."""


class PlacedRow(NamedTuple):
    """A value or workspace in an arena."""

    name: str
    space: int
    offset: int
    size: int
    """Bytes, not rounded."""
    start: int
    end: int
    value: int | None
    """The value's index in the graph; ``None`` for a workspace."""


def rows_of(graph: Graph, plan: Plan) -> list[PlacedRow]:
    """Return everything that has a place in a plan: values, then workspaces."""
    rows = []
    for value, place in zip(graph.values, plan.placements, strict=True):
        if place is not None:
            rows.append(_row(value.name, place, value.index))
    for work in plan.workspaces:
        name = f"{graph.nodes[work.node].name} workspace {work.slot}"
        rows.append(_row(name, work, None))
    return rows


def _row(name: str, place: Placement | PlacedWorkspace, value: int | None) -> PlacedRow:
    live = place.live
    return PlacedRow(name, place.space, place.offset, place.bytes, live.start, live.end, value)


def labels_of(rows: Sequence[PlacedRow]) -> list[str]:
    """
    Return a distinct C identifier for every row.

    Converters join the names of fused operators. A name that is too long for an identifier becomes
    ``T12`` by the value's index in the graph, or ``W3`` by the workspace's position, so that names
    do not depend on truncation.
    """
    works = itertools.count()
    aliases = [f"W{next(works)}" if r.value is None else f"T{r.value}" for r in rows]
    is_long = [has_alias(row) for row in rows]
    # The model's names come first, so aliases never replace a model's name.
    short = identifiers(row.name for row, long in zip(rows, is_long, strict=True) if not long)
    labels = [None if long else next(short) for long in is_long]
    used = [label for label in labels if label is not None]
    rest = identifiers(itertools.compress(aliases, is_long), used)
    return [next(rest) if label is None else label for label in labels]


def has_alias(row: PlacedRow) -> bool:
    """Return whether a row's name is too long for an identifier."""
    return len(_plain(row.name)) > _LONGEST


def _plain(name: str) -> str:
    """Return a name in upper case with only identifier characters."""
    return "".join(c if c.isascii() and c.isalnum() else "_" for c in name).upper().strip("_")


def identifiers(names: Iterable[str], reserved: Iterable[str] = ()) -> Iterator[str]:
    """Yield a distinct upper-case C identifier of limited length for every name."""
    used = set(reserved)
    for name in names:
        plain = _plain(name)[:_LONGEST] or "X"
        unique, count = plain, 1
        while unique in used:
            count += 1
            unique = f"{plain}_{count}"
        used.add(unique)
        yield unique


def prefix_of(name: str) -> str:
    """Return the identifier prefix for a header, from a name."""
    prefix = next(identifiers([name]))
    return f"MODEL_{prefix}" if prefix[0].isdigit() else prefix


def checked_sections(sections: Mapping[str, str] | None, plan: Plan) -> Mapping[str, str]:
    """
    Return linker sections by space name.

    Raises
    ------
    GraphError
        If the plan has no such space, or a name could end the enclosing string.
    """
    known = [space.name for space in plan.spaces]
    for space, section in (sections or {}).items():
        if space not in known:
            raise fault(
                "InvalidName", f"the plan has no space {space!r}; it has {', '.join(known)}"
            )
        if not re.fullmatch(r"[A-Za-z0-9._$,-]+", section):
            raise fault("InvalidName", f"{section!r} is not a linker section name")
    return sections or {}


def guarded(prefix: str, kind: str, head: Sequence[str], body: Sequence[str]) -> str:
    """
    Return a header that can be included several times, beside other plans' headers.

    The guard contains the content's digest, because model names are seldom unique. Two headers with
    equal kind and prefix but different content give a compiler error.
    """
    digest = hashlib.sha256("\n".join([prefix, *head, *body]).encode()).hexdigest()[:16].upper()
    guard, taken = f"{prefix}_{kind}_{digest}", f"{prefix}_{kind}_H"
    lines = [
        *head,
        f"#ifndef {guard}",
        f"#define {guard}",
        f"#ifdef {taken}",
        f'#error "two headers have the prefix {prefix}: export one of them with another --name"',
        "#endif",
        f"#define {taken}",
        "",
        *body,
        "",
        f"#endif /* {guard} */",
        "",
    ]
    return "\n".join(lines)
