"""The map as a still picture: SVG without scripts, for pages, papers and notebooks."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final
from xml.sax.saxutils import escape

from arenaplan.base.arguments import typed
from arenaplan.base.quoting import printable
from arenaplan.report.recompute_report import HEIGHT, curve_lines, unit
from arenaplan.report.report_document import checked_report

WIDTH: Final = 760
_LEFT, _RIGHT, _TOP = 70, 10, 26
_MAP, _AXIS, _CURVES, _GAP = 250, 18, 60, 16

COLORS: Final = {
    "input": "#7fb3e6",
    "output": "#86c98d",
    "state": "#c3a2e0",
    "activation": "#f2b872",
    "workspace": "#b9bec6",
}
_INK, _MUTED, _LINE, _PLOT = "#1b2430", "#66707d", "#c4cad2", "#f3f5f8"
_LIVE, _TOP_LINE, _BOUND = "#3d7fc4", "#8b94a0", "#b3261e"
_LETTER = 6.4
"""Approximate letter width, in pixels."""


@typed
def map_svg(report: Mapping[str, Any], most: int | None = None) -> str:
    """
    Draw a plan: address over time, and each memory's curves.

    Parameters
    ----------
    report : report
        A report from :func:`report_of`.
    most : int, optional
        Most values to draw, largest bytes times steps first; the drawing counts the others. By
        default all values are drawn.

    Examples
    --------
    >>> import arenaplan as ap
    >>> graph = ap.Graph("one")
    >>> graph.output(graph.input("x <1>", (64,)))
    >>> drawing = ap.report.map_svg(ap.report.report_of(ap.plan(graph), graph))
    >>> drawing.startswith("<svg "), "x &lt;1&gt;" in drawing
    (True, True)
    """
    report = checked_report(report)
    items = [row for row in (*report["values"], *report["workspaces"]) if row["live"] is not None]
    items.sort(key=lambda row: -row["bytes"] * (row["live"][1] - row["live"][0]))
    drawn = items if most is None else items[:most]
    arenas = [space for space in report["spaces"] if not space["caller"]]
    height = _TOP + len(arenas) * (_MAP + _AXIS + _CURVES + 3 * _GAP)
    recompute = report["recompute"]
    below = height
    height += 0 if recompute is None else HEIGHT
    left_out = len(items) - len(drawn)
    title = (
        f"{report['model'] or 'model'} for {report['target']}: arena {_size(report['arena_bytes'])}"
    )
    title += f", {report['status']}"
    if left_out:
        title += f"; {left_out:,} small values are not drawn"
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" '
        f'height="{height}" font-family="system-ui, sans-serif" font-size="11" role="img">',
        f"<title>{_text(title)}</title>",
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
        f'<text x="{_LEFT}" y="16" fill="{_INK}" font-size="13">{_text(_short(title, 100))}</text>',
    ]
    top = _TOP
    for space, curve in zip(arenas, report["curves"], strict=True):
        rows = [row for row in drawn if row["space"] == space["name"]]
        lines += _arena(report, space, curve, rows, top + _GAP)
        top += _MAP + _AXIS + _CURVES + 3 * _GAP
    if recompute is not None:
        lines += _recompute(recompute, below + _GAP)
    return "\n".join([*lines, "</svg>", ""])


def recompute_svg(curve: Mapping[str, Any]) -> str:
    """Draw a report's recomputation curve: arena bytes over extra work."""
    lines = _recompute(curve, _GAP)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" '
        f'height="{HEIGHT}" font-family="system-ui, sans-serif" font-size="11" role="img">'
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>'
    )
    return "\n".join([head, *lines, "</svg>", ""])


def _recompute(curve: Mapping[str, Any], top: int) -> Iterator[str]:
    """Yield the elements of a report's recomputation curve."""
    colors = {"line": _LIVE, "bound": _BOUND, "muted": _MUTED, "plot": _PLOT, "edge": _LINE}
    width = WIDTH - _LEFT - 2 * _RIGHT
    return curve_lines(curve, left=_LEFT, width=width, top=top, colors=colors)


def kind_of(row: Mapping[str, Any]) -> str:
    """Return the kind of a value or workspace: a key in :data:`COLORS`."""
    kind: str = row.get("kind", "workspace")
    if kind == "activation" and (row["result"] or row["held"] == "output"):
        return "output"
    return kind


def _arena(
    report: Mapping[str, Any],
    space: Mapping[str, Any],
    curve: Mapping[str, Any],
    rows: Sequence[Mapping[str, Any]],
    top: int,
) -> Iterator[str]:
    """Yield an arena's elements."""
    steps, high = max(1, len(report["steps"])), max(1, int(space["arena_bytes"]))
    width = WIDTH - _LEFT - _RIGHT

    def x(step: float) -> float:
        return _LEFT + width * step / steps

    def y(address: int) -> float:
        return top + _MAP * (1 - address / high)

    name = f"{space['name']}: {_size(space['arena_bytes'])}, bound {_size(space['lower_bound'])}"
    yield f'<text x="{_LEFT}" y="{top - 4}" fill="{_MUTED}">{_text(name)}</text>'
    yield (
        f'<rect x="{_LEFT}" y="{top}" width="{width}" height="{_MAP}" fill="{_PLOT}" '
        f'stroke="{_LINE}"/>'
    )
    # Largest first, so that nested values are on top.
    labels = []
    ends = _label_ends(rows)
    marks = apart(row["name"] for row in rows)
    for row, end in sorted(zip(rows, ends, strict=True), key=lambda pair: -pair[0]["bytes"]):
        box, label = _value(row, end, marks[row["name"]], (x, y))
        labels.append(label)
        yield box
    yield from filter(None, labels)
    bound = y(space["lower_bound"])
    yield _dashed(_LEFT, bound, _LEFT + width, bound)
    for address in range(0, high + 1, _stride(high, 5, 2)):
        yield _label(unit(address), y(address) + 4)
    stride = _stride(steps, 10, 10)
    for step in range(0, steps, stride):
        yield (
            f'<text x="{x(step + 0.5):.1f}" y="{top + _MAP + 13}" fill="{_MUTED}" '
            f'text-anchor="middle">{step:,}</text>'
        )
    yield _label("step", top + _MAP + 13)
    yield from _curves(curve, high, x, top + _MAP + _AXIS + _GAP)
    if report["peak_step"] is not None:
        middle = x(report["peak_step"] + 0.5)
        yield _dashed(middle, top, middle, top + _MAP + _AXIS + _GAP + _CURVES)


def _label_ends(rows: Sequence[Mapping[str, Any]]) -> list[int]:
    """
    Return the step before which each value's name must end.

    An in-place result is drawn over the operand's end. If both values have the same bytes, both
    names have the same height.
    """
    starts: dict[tuple[int, int], list[int]] = {}
    for row in sorted(rows, key=lambda row: int(row["live"][0])):
        starts.setdefault((row["offset"], row["bytes"]), []).append(row["live"][0])
    ends = []
    for row in rows:
        first, last = row["live"]
        there = starts[row["offset"], row["bytes"]]
        after = bisect_right(there, first)
        ends.append(min(last, there[after]) if after < len(there) else last)
    return ends


def _value(row: Mapping[str, Any], end: int, mark: int, scales: tuple[Any, Any]) -> tuple[str, str]:
    """
    Return a value's rectangle, and the name if there is room before step ``end``.

    ``mark`` is the index of the letter that tells the name apart.
    """
    x, y = scales
    (start, stop), low = row["live"], row["offset"]
    left, right = x(start), x(stop)
    top, bottom = y(low + row["bytes"]), y(low)
    about = f"{row['name']}: {_size(row['bytes'])} at {low:,}, steps {start} to {stop - 1}"
    box = (
        f'<rect x="{left:.2f}" y="{top:.2f}" width="{right - left:.2f}" '
        f'height="{max(bottom - top, 0.2):.2f}" fill="{COLORS[kind_of(row)]}" '
        f'stroke="#00000055" stroke-width="0.7"><title>{_text(about)}</title></rect>'
    )
    letters = int((x(end) - left - 6) / _LETTER)
    if letters < 2 or bottom - top < 12:
        return box, ""
    label = (
        f'<text x="{left + 3:.2f}" y="{(top + bottom) / 2 + 4:.2f}" fill="{_INK}" '
        f'pointer-events="none">{_text(fitted(row["name"], letters, mark))}</text>'
    )
    return box, label


def _curves(curve: Mapping[str, Sequence[int]], high: int, x: Any, top: float) -> Iterator[str]:
    """Yield the live-byte and highest-address curves."""
    points: dict[str, list[str]] = {"live": [], "top": []}
    for name, path in points.items():
        for step, number in enumerate(curve[name]):
            y = top + _CURVES * (1 - number / high)
            path += [f"{x(step):.1f},{y:.1f}", f"{x(step + 1):.1f},{y:.1f}"]
    bottom = top + _CURVES
    yield _label("live bytes", top + 8)
    if points["live"]:
        area = (
            f"{x(0):.1f},{bottom} {' '.join(points['live'])} {x(len(curve['live'])):.1f},{bottom}"
        )
        yield f'<polygon points="{area}" fill="{_LIVE}" fill-opacity="0.3"/>'
        for name, color in (("top", _TOP_LINE), ("live", _LIVE)):
            line = " ".join(points[name])
            yield f'<polyline points="{line}" fill="none" stroke="{color}" stroke-width="1.3"/>'


def _stride(length: int, most: int, base: int) -> int:
    """Return a round number that divides a length into ``most`` parts at most."""
    stride = 1
    while True:
        for factor in (1, 2, 5) if base == 10 else (1,):
            if length <= most * stride * factor:
                return stride * factor
        stride *= base


def _label(text: str, y: float) -> str:
    """Return a label left of the arena."""
    x = _LEFT - 5
    return f'<text x="{x}" y="{y:.1f}" fill="{_MUTED}" text-anchor="end">{text}</text>'


def _dashed(x0: float, y0: float, x1: float, y1: float) -> str:
    """Return a dashed line."""
    return (
        f'<line x1="{x0:.1f}" y1="{y0:.1f}" x2="{x1:.1f}" y2="{y1:.1f}" stroke="{_BOUND}" '
        'stroke-dasharray="6 4"/>'
    )


def _short(text: str, letters: int) -> str:
    return text if len(text) <= letters else f"{text[: letters - 1]}…"


def apart(names: Iterable[str]) -> dict[str, int]:
    """
    Return, per name, the index of the letter that tells similar names apart.

    Examples
    --------
    >>> apart(["net/a/conv", "net/b/conv", "x"])
    {'net/a/conv': 4, 'net/b/conv': 4, 'x': 0}
    """
    ordered = sorted({*names})
    found = dict.fromkeys(ordered, 0)
    for one, other in pairwise(ordered):
        pairs = enumerate(zip(one, other, strict=False))
        common = next((at for at, (a, b) in pairs if a != b), len(one))
        found[one], found[other] = max(found[one], common), max(found[other], common)
    return found


def fitted(name: str, letters: int, at: int = 0) -> str:
    """
    Shorten a name to some letters, keeping the letter at index ``at``.

    Examples
    --------
    >>> fitted("net/layer1/conv", 6), fitted("net/layer1/conv", 7, at=9), fitted("ab/c", 3, at=3)
    ('net/l…', '…er1/c…', '…/c')
    """
    if len(name) <= letters:
        return name
    if at < letters - 1:
        return f"{name[: letters - 1]}…"
    if len(name) - at <= letters // 2 or letters < 3:
        return f"…{name[1 - letters :]}" if letters > 1 else "…"
    start = at - (letters - 2) // 2
    return f"…{name[start : start + letters - 2]}…"


def _text(text: str) -> str:
    """Escape model text for XML, which has no control characters."""
    return escape(printable(text))


def _size(number: int) -> str:
    """Return a byte count for a sentence."""
    return f"{number:,} bytes" + (f" ({unit(number)})" if number >= 1024 else "")
