"""The map as a self-contained HTML file: no server, no network, no build."""

from __future__ import annotations

import base64
import gzip
import html
import json
import re
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any, Final

from arenaplan.base.arguments import typed
from arenaplan.planner.changes import Change, Diff
from arenaplan.report.report_document import checked_report
from arenaplan.report.svg import recompute_svg

MODULES: Final = (
    "data.js",
    "geometry.js",
    "why.js",
    "details.js",
    "draw.js",
    "table.js",
    "main.js",
)
"""The page's modules, each after the modules it imports."""

_OF_STEPS: Final = ("node", "op", "fused", "ops", "layer", "source", "strip_rows")
"""Step fields that the page shows unchanged."""

_IMPORT: Final = re.compile(r"^import \{[^}]*\} from \"\./[a-z]+\.js\";\n", re.MULTILINE)
_EXPORT: Final = re.compile(r"^export (?=(?:async )?(?:function|class|const) )", re.MULTILINE)

Report = Mapping[str, Any]


@typed
def map_page(
    reports: Sequence[Report],
    *,
    labels: Sequence[str] | None = None,
    bases: Sequence[int] | None = None,
    changes: Diff | None = None,
) -> str:
    """
    Return the interactive map for one or several plans as HTML text.

    Parameters
    ----------
    reports : sequence of report
        Reports from :func:`report_of`, shown side by side.
    labels : sequence of str, optional
        Plan headings, if there are several plans.
    bases : sequence of int, optional
        Where each plan's arena begins in a shared arena.
    changes : Diff, optional
        The changes from the second (older) report to the first.

    Examples
    --------
    >>> import arenaplan as ap
    >>> graph = ap.Graph("one")
    >>> graph.output(graph.input("x", (64,)))
    >>> page = ap.report.map_page([ap.report.report_of(ap.plan(graph), graph)])
    >>> page.startswith("<!doctype html>"), "</script><script>" in page
    (True, False)
    """
    content = {
        "reports": [_packed(checked_report(report)) for report in reports],
        "labels": list(labels or [""] * len(reports)),
        "bases": list(bases or [0] * len(reports)),
        "changes": None if changes is None else _words(changes),
    }
    text = json.dumps(content, separators=(",", ":")).encode()
    # Base64 cannot end the script element, whatever markup value names contain.
    packed = base64.b64encode(gzip.compress(text, 9, mtime=0)).decode()
    page = _part("map.html")
    titles = dict.fromkeys(str(report["model"]) or "model" for report in reports)
    title = html.escape(f"{', '.join(titles)}: memory map")
    for mark, part in (
        ("/*STYLE*/", _part("map.css")),
        ("/*SCRIPT*/", _script()),
        ("/*RECOMPUTE*/", _recompute(reports)),
        ("/*CONTENT*/", packed),
        ("<title>memory map", f"<title>{title}"),  # The last: a name may look like a mark.
    ):
        head, tail = page.split(mark, 1)
        page = head + part + tail
    return page


def _recompute(reports: Sequence[Report]) -> str:
    """Return the recomputation curves as SVG, for reports that have a curve."""
    curves = [report["recompute"] for report in reports if report["recompute"] is not None]
    return "\n".join(f"<figure>{recompute_svg(curve)}</figure>" for curve in curves)


def _part(name: str) -> str:
    """Return a file that is part of the page."""
    return files(__package__).joinpath("map", name).read_text("utf-8")


def _script() -> str:
    """Join the modules, because a page from disk may not import files."""
    return "\n".join(_EXPORT.sub("", _IMPORT.sub("", _part(name))).strip() for name in MODULES)


def _packed(report: Report) -> dict[str, Any]:
    """Return a report whose long tables are columns, without values that have no place."""
    values = report["values"]
    kept = [row for row, value in enumerate(values) if value["live"] is not None]
    number = {row: at for at, row in enumerate(kept)}

    def rows(operands: Sequence[int]) -> list[int]:
        return [number[row] for row in dict.fromkeys(operands) if row in number]

    steps = []
    for step in report["steps"]:
        shared = (rows(pair) for pair in step["may_share"])
        steps.append(
            {
                **{name: step[name] for name in _OF_STEPS},
                "inputs": rows(step["inputs"]),
                "outputs": rows(step["outputs"]),
                "may_share": [row for pair in shared if len(pair) == 2 for row in pair],
            }
        )
    tables = {
        "values": columns([values[row] for row in kept]),
        "workspaces": columns(report["workspaces"]),
        "steps": columns(steps),
        "why": columns(report["why"]),
    }
    for name in ("values", "workspaces"):
        _code(tables[name], "live")
    for name in ("inputs", "outputs", "may_share"):
        _code(tables["steps"], name)
    return {**report, **tables}


def _code(table: dict[str, Any], name: str) -> None:
    """Replace a column of number lists by list lengths and a row of differences."""
    lists = table["columns"].get(name, [])
    table["columns"][name] = {
        "lengths": [len(row) for row in lists],
        "steps": differences([number for row in lists for number in row]),
    }


def differences(numbers: Sequence[int]) -> list[int]:
    """
    Return the first number, then the difference to each next number, mostly small.

    Examples
    --------
    >>> differences([5, 6, 8])
    [5, 1, 2]
    """
    return [number - before for before, number in zip([0, *numbers], numbers, strict=False)]


def columns(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """
    Return rows with equal keys as columns, which compress to half the size.

    Examples
    --------
    >>> columns([{"a": 1, "b": "x"}, {"a": 2, "b": "y"}])
    {'length': 2, 'columns': {'a': [1, 2], 'b': ['x', 'y']}}
    """
    names = list(rows[0]) if rows else []
    return {"length": len(rows), "columns": {name: [row[name] for row in rows] for name in names}}


def _words(changes: Diff) -> list[dict[str, str]]:
    """Return, for the newer and the older plan, the word for each value that has changed."""
    newer = {change.name: _word(change) for change in changes.changes if change.after}
    older = {change.name: _word(change) for change in changes.changes if change.before}
    return [newer, older]


def _word(change: Change) -> str:
    """Return the word for a change that the page knows."""
    if change.before is None:
        return "new"
    if change.after is None:
        return "gone"
    if change.kind == "resized":
        return "grown" if change.after.size > change.before.size else "shrunk"
    return change.kind
