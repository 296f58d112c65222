"""Plans in notebooks: a drawing, a data frame, a figure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from arenaplan._core import Plan
from arenaplan.graph import Graph
from arenaplan.graph.sizes import Source
from arenaplan.report.report_document import report_of
from arenaplan.report.svg import COLORS, kind_of, map_svg

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame

_MOST_DRAWN = 2000
"""Most rectangles in a notebook, whose file stores every drawing."""


def html_of(plan: Plan) -> str:
    """Return the drawing that a notebook shows for a plan."""
    return map_svg(report_of(plan), most=_MOST_DRAWN)


def frame_of(plan: Plan) -> DataFrame:
    """Return the places of values and workspaces as a pandas data frame."""
    import pandas as pd

    report = report_of(plan)
    uses: dict[str, list[list[int]]] = {"inputs": [], "outputs": []}
    for name, steps in uses.items():
        steps += [[] for _ in report["values"]]
        for step in report["steps"]:
            for row in dict.fromkeys(step[name]):
                steps[row].append(step["step"])
    rows = [*report["values"], *report["workspaces"]]
    works = [[work["step"]] for work in report["workspaces"]]
    return pd.DataFrame(
        {
            "name": [row["name"] for row in rows],
            "kind": [row.get("kind", "workspace") for row in rows],
            "space": [row["space"] for row in rows],
            "offset": [row["offset"] for row in rows],
            "bytes": [row["bytes"] for row in rows],
            "start": [row["live"][0] for row in rows],
            "stop": [row["live"][1] for row in rows],
            "written_by": [*uses["outputs"], *works],
            "read_by": [*uses["inputs"], *([] for _ in works)],
        }
    )


def plot(plan: Plan, graph: Graph | Source | None = None, *, ax: Axes | None = None) -> Axes:
    """
    Draw a plan with matplotlib: addresses over steps, a rectangle per value.

    Parameters
    ----------
    plan : Plan
        The plan. Its first space is drawn.
    graph : Graph, path or bytes, optional
        The planned graph or its model, which tells states and outputs apart.
    ax : matplotlib.axes.Axes, optional
        Where to draw; a new figure if left out.

    Returns
    -------
    matplotlib.axes.Axes
        The axes, to be changed further.

    Raises
    ------
    ImportError
        If matplotlib is not installed.

    Examples
    --------
    >>> import arenaplan as ap
    >>> ap.report.plot(ap.plan(ap.load("model.onnx"))).figure.savefig("map.pdf")  # doctest: +SKIP
    """
    from matplotlib import pyplot
    from matplotlib.collections import PatchCollection
    from matplotlib.patches import Patch, Rectangle

    report = report_of(plan, graph)
    if ax is None:
        _, ax = pyplot.subplots(figsize=(9, 4.5), layout="constrained")
    space = report["spaces"][0]
    rows = [row for row in (*report["values"], *report["workspaces"]) if _is_in(row, space)]
    rows.sort(key=lambda row: -row["bytes"])
    kinds = [kind_of(row) for row in rows]
    boxes = [
        Rectangle((row["live"][0], row["offset"]), row["live"][1] - row["live"][0], row["bytes"])
        for row in rows
    ]
    colors = [COLORS[kind] for kind in kinds]
    ax.add_collection(
        PatchCollection(boxes, facecolors=colors, edgecolors="#00000055", linewidths=0.5)
    )
    bound = ax.axhline(space["lower_bound"], color="#b3261e", linestyle="--", linewidth=1)
    bound.set_label("lower bound")
    curve = report["curves"][0]["live"]
    (live,) = ax.step(range(len(curve) + 1), [*curve, *curve[-1:]] or [0], where="post")
    live.set(color="#3d7fc4", linewidth=1, label="live bytes")
    keys = [Patch(facecolor=COLORS[kind], label=kind) for kind in dict.fromkeys(kinds)]
    ax.legend(handles=[*keys, live, bound], fontsize="small")
    ax.set(xlim=(0, max(1, len(curve))), ylim=(0, max(1, space["arena_bytes"]) * 1.03))
    ax.set(xlabel="step", ylabel=f"address in {space['name']!r}, bytes")
    ax.set_title(f"{report['model'] or 'model'}: {plan.arena_bytes:,} bytes, {plan.status}")
    return ax


def _is_in(row: Mapping[str, Any], space: Mapping[str, Any]) -> bool:
    """Whether a value or workspace has a place in a space."""
    return row["live"] is not None and row["space"] == space["name"]
