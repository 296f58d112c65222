"""Changes between two plans."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from arenaplan._core import Live, PlacedWorkspace, Placement, Plan


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
    """The arena of one space, before and after; absent is 0 bytes."""

    name: str
    before: int
    after: int


@dataclass(frozen=True, slots=True)
class Diff:
    """The differences between two plans."""

    spaces: tuple[SpaceChange, ...]
    changes: tuple[Change, ...]
    """Largest first, by bytes of the larger side."""

    @property
    def grew(self) -> tuple[SpaceChange, ...]:
        """Arenas that need more bytes than before."""
        return tuple(space for space in self.spaces if space.after > space.before)


def diff(before: Plan, after: Plan) -> Diff:
    """
    Return the changes between two plans, value by value.

    Values are the same if their names are. The plans may be of different models.
    """
    old, new = _places(before), _places(after)
    changes = [
        Change(name, old.get(name), new.get(name))
        for name in dict.fromkeys([*old, *new])
        if old.get(name) != new.get(name)
    ]
    changes.sort(key=lambda change: -max(p.size for p in (change.before, change.after) if p))
    sizes = [{space.name: space.arena_bytes for space in plan.spaces} for plan in (before, after)]
    names = dict.fromkeys([*sizes[0], *sizes[1]])
    return Diff(
        tuple(SpaceChange(name, sizes[0].get(name, 0), sizes[1].get(name, 0)) for name in names),
        tuple(changes),
    )


def _places(plan: Plan) -> dict[str, Place]:
    """Return where the values and workspaces of a plan are, by name."""
    steps: list[dict[str, Any]] = json.loads(plan.to_json())["steps"]
    places = {name: _place(plan, plan[name]) for name in plan}
    for work in plan.workspaces:
        name = f"{steps[work.live.start]['name']} workspace {work.slot}"
        places[name] = _place(plan, work)
    return places


def _place(plan: Plan, place: Placement | PlacedWorkspace) -> Place:
    return Place(plan.space_name(place.space), place.offset, place.bytes, place.live)
