"""Changes between two plans."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from arenaplan._core import Live, PlacedWorkspace, Placement, Plan
from arenaplan.base.errors import BaselineError, InvalidOption
from arenaplan.base.html_tables import html_table

PlanSource: TypeAlias = "Plan | str | os.PathLike[str] | Mapping[str, Any]"
"""A plan, the path of a plan file, or a plan report."""


@dataclass(frozen=True, slots=True)
class Place:
    """Offset and live range of a value."""

    space: str
    offset: int
    size: int
    live: Live


@dataclass(frozen=True, slots=True)
class Change:
    """A value that is new, gone, or somewhere else."""

    name: str
    before: Place | None
    after: Place | None

    @property
    def kind(self) -> str:
        """``"added"``, ``"removed"``, ``"resized"``, ``"moved"`` or ``"rescheduled"``."""
        if self.before is None:
            return "added"
        if self.after is None:
            return "removed"
        if self.before.size != self.after.size:
            return "resized"
        if (self.before.space, self.before.offset) != (self.after.space, self.after.offset):
            return "moved"
        return "rescheduled"


@dataclass(frozen=True, slots=True)
class SpaceChange:
    """A space's arena, before and after; absent is 0 bytes."""

    name: str
    before: int
    after: int


@dataclass(frozen=True, slots=True)
class Diff:
    """The differences between two plans."""

    spaces: tuple[SpaceChange, ...]
    changes: tuple[Change, ...]
    """Largest first, by bytes on the larger side."""

    def _repr_html_(self) -> str:
        def size(place: Place | None) -> int | str:
            return "" if place is None else place.size

        arenas = [(it.name, "arena", it.before, it.after) for it in self.spaces]
        values = [(it.name, it.kind, size(it.before), size(it.after)) for it in self.changes]
        caption = f"{len(values):,} values are elsewhere"
        return html_table(caption, ["name", "change", "before", "after"], [*arenas, *values])

    @property
    def grew(self) -> tuple[SpaceChange, ...]:
        """Arenas that need more bytes than before."""
        return tuple(space for space in self.spaces if space.after > space.before)


@dataclass(frozen=True, slots=True)
class PlanLayout:
    """A plan's arenas, and the place of each value and workspace, by name."""

    model: str
    target: str
    arenas: Mapping[str, int]
    """Arena bytes by space; the caller's buffers are left out."""
    places: Mapping[str, Place]
    live: Mapping[str, tuple[int, ...]]
    """Live bytes in each step, by space."""

    @classmethod
    def of(cls, source: PlanSource) -> PlanLayout:
        """
        Return the layout of a plan, a plan file, or a report from :func:`report_of`.

        Raises
        ------
        BaselineError
            If a mapping is not a report.
        PlanError, OSError
            If the file is not a plan, or cannot be read.
        """
        if isinstance(source, (str, os.PathLike)):
            source = Plan.load(source)
        if isinstance(source, Plan):
            return _of_plan(source)
        if isinstance(source, Mapping):
            return _of_report(source)
        kind = type(source).__name__
        raise InvalidOption(f"a plan, its file or a report is needed, not {kind!r}")


def diff(before: PlanSource, after: PlanSource) -> Diff:
    """
    Return the changes between two plans, value by value.

    Parameters
    ----------
    before, after : Plan, path or mapping
        Plans, plan files, or plan reports from :func:`report_of`. Values with equal names are the
        same. The plans may be for different models.

    Raises
    ------
    BaselineError
        If a mapping is not a report.
    PlanError, OSError
        If a file is not a plan, or cannot be read.

    Examples
    --------
    >>> import arenaplan as ap
    >>> def planned(size):
    ...     graph = ap.Graph("m")
    ...     x = graph.input("x", (64,), "uint8")
    ...     (y,) = graph.node("Op", [x], [("y", (size,), "uint8")])
    ...     graph.output(y)
    ...     return ap.plan(graph)
    >>> [(change.name, change.kind) for change in ap.diff(planned(64), planned(128)).changes]
    [('y', 'resized'), ('x', 'moved')]
    """
    return compared(PlanLayout.of(before), PlanLayout.of(after))


def compared(before: PlanLayout, after: PlanLayout) -> Diff:
    """Return the changes between two layouts."""
    old, new = before.places, after.places
    changes = [
        Change(name, old.get(name), new.get(name))
        for name in dict.fromkeys([*old, *new])
        if old.get(name) != new.get(name)
    ]
    changes.sort(key=lambda change: -max(p.size for p in (change.before, change.after) if p))
    sizes = (before.arenas, after.arenas)
    names = dict.fromkeys([*sizes[0], *sizes[1]])
    return Diff(
        tuple(SpaceChange(name, sizes[0].get(name, 0), sizes[1].get(name, 0)) for name in names),
        tuple(changes),
    )


def _of_plan(plan: Plan) -> PlanLayout:
    steps: list[dict[str, Any]] = json.loads(plan.to_json())["steps"]
    places = {name: _place(plan, plan[name]) for name in plan}
    for work in plan.workspaces:
        name = f"{steps[work.live.start]['name']} workspace {work.slot}"
        places[name] = _place(plan, work)
    arenas = {space.name: space.arena_bytes for space in plan.spaces}
    live = {name: tuple(plan.live_bytes_in(space)) for space, name in enumerate(arenas)}
    return PlanLayout(plan.model, plan.target.name, arenas, places, live)


def _place(plan: Plan, place: Placement | PlacedWorkspace) -> Place:
    return Place(plan.space_name(place.space), place.offset, place.bytes, place.live)


def _of_report(report: Mapping[str, Any]) -> PlanLayout:
    if report.get("format") != "arenaplan-report":
        raise BaselineError("the document is not a plan report")
    try:
        arenas = {
            _word(row["name"]): _number(row["arena_bytes"])
            for row in report["spaces"]
            if not row["caller"]
        }
        places = {
            _word(row["name"]): Place(
                _word(row["space"]),
                _number(row["offset"]),
                _number(row["bytes"]),
                Live(*row["live"]),
            )
            for row in [*report["values"], *report["workspaces"]]
            if row["bytes"] is not None
        }
        live = {
            _word(curve["space"]): tuple(_number(step) for step in curve["live"])
            for curve in report["curves"]
        }
        if not arenas.keys() <= live.keys():
            raise ValueError("a space has no curve")
        model, target = _word(report["model"]), _word(report["target"])
        return PlanLayout(model, target, arenas, places, live)
    except (KeyError, TypeError, AttributeError, ValueError, OverflowError) as error:
        raise BaselineError(f"the report is damaged: {error!r}") from None


def _word(text: object) -> str:
    """Return a name in a report, which must be text."""
    if not isinstance(text, str):
        raise TypeError(f"{text!r} is not a name")
    return text


def _number(number: object) -> int:
    """Return a byte count from a report."""
    if type(number) is not int or not 0 <= number < 1 << 64:
        raise ValueError(f"{number!r} is not a number of bytes")
    return number
