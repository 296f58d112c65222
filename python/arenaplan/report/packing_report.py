"""Packings as plan reports, so that maps and drawings also show buffers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any, Final

from arenaplan._core import Packing
from arenaplan.base.errors import InvalidOption
from arenaplan.graph.graph import WHOLE
from arenaplan.report.curves import Rectangle, tops
from arenaplan.report.report_document import FORMAT, VERSION, covers_document
from arenaplan.report.svg import map_svg

_MOST_STEPS: Final = 1 << 20
"""Most steps in a drawing."""
_MOST_DRAWN: Final = 2000
"""Most rectangles in a notebook, whose file stores every drawing."""
_NO_NODE: Final[Mapping[str, Any]] = {
    "node": "",
    **dict.fromkeys(("op", "layer", "source", "strip_rows")),
}
_NO_NAMES: Final = ("fused", "ops", "inputs", "outputs", "may_share")
"""The fields of a step without a node, and those that are lists."""


def report_of_packing(
    packing: Packing, name: str = "", spaces: Sequence[str] = ()
) -> dict[str, Any]:
    """
    Return a packing's report, in the form of plan reports.

    A buffer with live-range gaps has a row per rectangle of bytes and steps.

    Parameters
    ----------
    packing : Packing
        The packing.
    name : str, optional
        Report title.
    spaces : sequence of str, optional
        Space names.

    Raises
    ------
    InvalidOption
        If there are too many steps for a drawing.

    Examples
    --------
    >>> import arenaplan as ap
    >>> from arenaplan.report.packing_report import report_of_packing
    >>> packing = ap.pack([100, 60], [(0, 2), (1, 3)])
    >>> report = report_of_packing(packing)
    >>> [(row["name"], row["bytes"]) for row in report["values"]], report["peak_bytes"]
    ([('0', 100), ('1', 60)], 160)
    """
    rectangles = packing.rectangles
    steps = max((end for *_, end in rectangles), default=0)
    if steps > _MOST_STEPS:
        raise InvalidOption(f"{steps:,} steps are more than a drawing has: {_MOST_STEPS:,}")
    names = packing.names
    titles = [*spaces, *(f"space {at}" for at in range(len(spaces), len(packing.spaces)))]
    if len(packing.spaces) == 1 and not spaces:
        titles = ["arena"]
    parts: dict[int, int] = {}
    values = []
    live = [[0] * (steps + 1) for _ in titles]
    spans: list[list[Rectangle]] = [[] for _ in titles]
    for buffer, space, first, last, start, end in rectangles:
        parts[buffer] = parts.get(buffer, 0) + 1
        label = str(buffer) if names is None else names[buffer]
        if parts[buffer] > 1:
            label += f" ({parts[buffer]})"
        values.append(
            {
                "name": label,
                "kind": "activation",
                "bytes": last - first,
                "space": titles[space],
                "offset": first,
                "live": [start, end],
                **dict.fromkeys(("dtype", "shape", "result", "held")),
            }
        )
        live[space][start] += last - first
        live[space][end] -= last - first
        spans[space].append(Rectangle(first, last, start, end))
    for curve in live:
        for step in range(1, len(curve)):
            curve[step] += curve[step - 1]
    totals = [sum(curve[step] for curve in live) for step in range(steps)]
    peak = max(range(steps), key=totals.__getitem__, default=None)
    held = [
        {"name": row["name"], "bytes": row["bytes"], "counted": row["bytes"]}
        for row, (*_, start, end) in zip(values, rectangles, strict=True)
        if peak is not None and start <= peak < end and row["bytes"]
    ]
    return {
        "format": FORMAT,
        "version": VERSION,
        "model": name,
        "target": "buffers",
        "digest": sha256(repr((packing.offsets, rectangles)).encode()).hexdigest(),
        "covers": covers_document(WHOLE),
        "arena_bytes": packing.peak,
        "lower_bound": packing.lower_bound,
        "status": packing.status,
        "naive_bytes": sum(row["bytes"] for row in values),
        "alignment": 1,
        "options": {},
        **dict.fromkeys(
            ("floor", "seconds", "total_bytes", "timetable", "techniques", "recompute")
        ),
        "peak_step": peak,
        "peak_bytes": 0 if peak is None else totals[peak],
        "peak_values": [row["name"] for row in held],
        "peak_held": held,
        "spaces": [
            {
                "name": title,
                "arena_bytes": bytes_,
                "lower_bound": bound,
                "status": status,
                "alignment": 1,
                "capacity": None,
                "cost": 0,
                "caller": False,
            }
            for title, (bytes_, bound, status) in zip(titles, packing.spaces, strict=True)
        ],
        "values": values,
        "workspaces": [],
        "steps": [
            {
                "step": step,
                **_NO_NODE,
                **{name: [] for name in _NO_NAMES},
                "live_bytes": total,
            }
            for step, total in enumerate(totals)
        ],
        "why": [],
        "curves": [
            {
                "space": title,
                "live": curve[:steps],
                "top": tops(spans[space], steps),
                "own": [0] * steps,
            }
            for space, (title, curve) in enumerate(zip(titles, live, strict=True))
        ],
    }


def html_of(packing: Packing) -> str:
    """Return the drawing that a notebook shows for a packing."""
    return map_svg(report_of_packing(packing, "buffers"), most=_MOST_DRAWN)
