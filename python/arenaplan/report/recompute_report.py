"""The recomputation curve: arena bytes over extra work."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from arenaplan._core import RecomputeCurve
from arenaplan.base.documents import fields_of
from arenaplan.base.html_tables import html_table

HEIGHT: Final = 210
"""The drawing's height, in pixels."""
_PLOT, _TICKS = 150, 4
_LEAST: Final = 1e-9
"""Smallest fraction of work that still has a width."""


def curve_of(curve: RecomputeCurve) -> dict[str, Any]:
    """Return a curve in report form."""
    return {
        "cost": curve.cost,
        "floor": curve.floor,
        "points": [
            fields_of(point, "arena_bytes extra_cost extra_bound") for point in curve.points
        ],
    }


def html_of(curve: RecomputeCurve) -> str:
    """Return a curve as a table, for notebooks."""
    caption = f"no schedule needs fewer than {curve.floor:,} bytes"
    rows = ((it.arena_bytes, f"{it.extra:.2%}", f"{it.bound:.2%}") for it in curve.points)
    return html_table(caption, ["bytes", "extra work", "proven least"], rows)


def curve_lines(
    curve: Mapping[str, Any], *, left: float, width: float, top: float, colors: Mapping[str, str]
) -> Iterator[str]:
    """
    Yield a drawing's SVG elements.

    The drawing has the curve with a mark for each point, the proven bounds, and the floor as a
    dashed line.

    Parameters
    ----------
    curve : mapping
        A curve from :func:`curve_of`.
    left, width, top : float
        The place, in pixels.
    colors : mapping of str to str
        Colors named ``line``, ``bound``, ``muted``, ``plot`` and ``edge``.
    """
    points: Sequence[Mapping[str, int]] = curve["points"]
    cost: int = max(1, curve["cost"])
    most_extra = max([_LEAST, *(point["extra_cost"] / cost for point in points)])
    most_bytes = max([1, *(point["arena_bytes"] for point in points)])
    bottom = top + _PLOT

    def x(extra: int) -> float:
        return left + width * (extra / cost) / most_extra

    def y(number: int) -> float:
        return bottom - _PLOT * number / most_bytes

    def path(name: str) -> str:
        return " ".join(f"{x(it[name]):.1f},{y(it['arena_bytes']):.1f}" for it in points)

    yield (
        f'<text x="{left}" y="{top - 5:.1f}" fill="{colors["muted"]}">arena over extra work of '
        "nodes that run again; thin: proven least extra work; dashed: the floor</text>"
    )
    yield (
        f'<rect x="{left}" y="{top}" width="{width}" height="{_PLOT}" fill="{colors["plot"]}" '
        f'stroke="{colors["edge"]}"/>'
    )
    for part in range(_TICKS + 1):
        number = most_bytes * part // _TICKS
        yield (
            f'<text x="{left - 5}" y="{y(number) + 4:.1f}" fill="{colors["muted"]}" '
            f'text-anchor="end">{unit(number)}</text>'
        )
        at = left + width * part / _TICKS
        yield (
            f'<text x="{at:.1f}" y="{bottom + 14}" fill="{colors["muted"]}" '
            f'text-anchor="middle">{most_extra * part / _TICKS:.1%}</text>'
        )
    floor = y(curve["floor"])
    yield (
        f'<line x1="{left}" y1="{floor:.1f}" x2="{left + width}" y2="{floor:.1f}" '
        f'stroke="{colors["bound"]}" stroke-dasharray="6 4"/>'
    )
    for name, stroke in (("extra_bound", 0.8), ("extra_cost", 1.6)):
        yield (
            f'<polyline points="{path(name)}" fill="none" stroke="{colors["line"]}" '
            f'stroke-width="{stroke}"/>'
        )
    for point in points:
        about = (
            f"{point['arena_bytes']:,} bytes at {point['extra_cost'] / cost:.2%} extra work, of "
            f"which {point['extra_bound'] / cost:.2%} are proven"
        )
        yield (
            f'<circle cx="{x(point["extra_cost"]):.1f}" cy="{y(point["arena_bytes"]):.1f}" r="3" '
            f'fill="{colors["line"]}"><title>{about}</title></circle>'
        )


def unit(number: int) -> str:
    """Return a byte count for an axis."""
    scaled = float(number)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if scaled < 1024 or unit == "GiB":
            break
        scaled /= 1024
    return f"{scaled:.4g} {unit}"
