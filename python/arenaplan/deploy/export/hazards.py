"""Hazards as a C table: the steps that each plan step must wait for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from arenaplan import _core
from arenaplan._core import Plan
from arenaplan.deploy.export.placed import guarded, prefix_of
from arenaplan.graph import Graph

_KINDS: Final = ("data", "write-after-read", "write-after-write", "control")
_PER_LINE: Final = 12


def hazards_header_of(graph: Graph, plan: Plan, *, name: str = "") -> str:
    """
    Return a plan's hazards as a C header, without warnings in C11 and C++11.

    Step *k* waits for the steps from ``WAITS[STARTS[k]]`` up to, but excluding, ``WAITS[STARTS[k +
    1]]``. Likewise, ``DEPENDENTS`` has the steps that wait for step *k*; ``NODES`` has the number
    of each step's last node.

    Parameters
    ----------
    graph : Graph
        The planned graph.
    plan : Plan
        The plan.
    name : str, optional
        Prefix for every identifier; by default the model's name.

    Examples
    --------
    >>> import arenaplan as ap
    >>> from arenaplan.deploy.export import hazards_header_of
    >>> graph = ap.Graph("m")
    >>> x = graph.input("x", (64,))
    >>> (y,) = graph.node("Conv", [x], [("y", (64,), "float32")])
    >>> (z,) = graph.node("Conv", [y], [("z", (64,), "float32")])
    >>> graph.output(z)
    >>> header = hazards_header_of(graph, ap.plan(graph))
    >>> "static const uint32_t M_WAITS[1] = {" in header
    True
    """
    hazards = plan.hazards(graph)
    prefix = prefix_of(name or plan.model or "model")
    before = [hazards.of(step) for step in range(hazards.steps)]
    edges = hazards.edges
    dependents = hazards.dependents()
    head = [
        "/* The steps of a plan that each step must wait for: the rest may run in any order.",
        f"   Written by arenaplan {_core.__version__}; do not edit. */",
    ]
    lines = [
        "#include <stdint.h>",
        "",
        f"#define {prefix}_STEPS {hazards.steps}u",
        f"#define {prefix}_EDGES {len(edges)}u",
        "",
        "/* Why a step waits. */",
        *(
            f"#define {prefix}_{kind.upper().replace('-', '_')} {number}"
            for number, kind in enumerate(_KINDS)
        ),
        "",
        "/* By step: the last node that it runs. */",
        *_table(f"{prefix}_NODES", "uint32_t", [nodes[-1] for nodes in plan.steps]),
        "",
        "/* By step, and once more behind the last: its first entry in the next two tables. */",
        *_table(f"{prefix}_STARTS", "uint32_t", _starts(before)),
        *_table(f"{prefix}_WAITS", "uint32_t", [edge.before for edge in edges]),
        *_table(f"{prefix}_KINDS", "uint8_t", [_KINDS.index(edge.kind) for edge in edges]),
        "",
        "/* By step, and once more behind the last: its first entry in the next table. */",
        *_table(f"{prefix}_DEPENDENT_STARTS", "uint32_t", _starts(dependents)),
        *_table(f"{prefix}_DEPENDENTS", "uint32_t", [it for row in dependents for it in row]),
    ]
    return guarded(prefix, "HAZARDS", head, lines)


def _starts(rows: Iterable[Sequence[object]]) -> list[int]:
    """Return where each row begins in a flat table, and where the last row ends."""
    starts = [0]
    for row in rows:
        starts.append(starts[-1] + len(row))
    return starts


def _table(name: str, kind: str, numbers: Sequence[int]) -> list[str]:
    """Return an array's definition; an empty array gets a 0, because C has no empty arrays."""
    numbers = numbers or [0]
    lines = [f"static const {kind} {name}[{len(numbers)}] = {{"]
    for at in range(0, len(numbers), _PER_LINE):
        lines.append(f"    {', '.join(f'{it}u' for it in numbers[at : at + _PER_LINE])},")
    return [*lines, "};"]
