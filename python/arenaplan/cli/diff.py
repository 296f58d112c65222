"""``arenaplan diff``: the changes between two plan files."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import Any

from arenaplan import Plan
from arenaplan.base.documents import fields_of
from arenaplan.base.errors import fault
from arenaplan.cli.models import covers_facts, tell_covers
from arenaplan.cli.printing import print_json, shown
from arenaplan.cli.sources import limits_of, load_plan
from arenaplan.planner.changes import Diff, Place, diff

_MOST_LINES = 40


def execute(options: argparse.Namespace) -> None:
    """Run the command."""
    limits = limits_of(options)
    before, after = load_plan(options.before, limits), load_plan(options.after, limits)
    if options.fail_on_growth:
        for plan in (before, after):
            plan.covers.require_whole(plan.model)
    found = diff(before, after)
    if options.json:
        print_json(_document(before, after, found))
    else:
        if options.fail_on_growth:
            print(_verdict(found))
        _print(before, after, found)
    if options.fail_on_growth and found.grew:
        grown = ", ".join(f"{s.name!r} from {s.before:,} to {s.after:,} bytes" for s in found.grew)
        raise fault("ArenaGrew", f"the arena grew: {grown}")


def _document(before: Plan, after: Plan, found: Diff) -> dict[str, Any]:
    """Return the ``diff --json`` document."""
    return {
        "before": _summary(before),
        "after": _summary(after),
        "grew": bool(found.grew),
        "spaces": [asdict(space) for space in found.spaces],
        "changes": [
            {
                **fields_of(change, "kind name"),
                "before": _placed(change.before),
                "after": _placed(change.after),
            }
            for change in found.changes
        ],
    }


def _placed(place: Place | None) -> dict[str, Any] | None:
    """Return one side of a change as printed by ``diff --json``."""
    if place is None:
        return None
    return {**fields_of(place, "space offset size"), "live": [place.live.start, place.live.end]}


def _summary(plan: Plan) -> dict[str, Any]:
    """Return the figures by which the two plans are compared."""
    return {
        **fields_of(plan, "model arena_bytes lower_bound status"),
        **covers_facts(plan.covers),
        "digest": plan.digest,
    }


def _verdict(found: Diff) -> str:
    """Say in one line whether an arena grew."""
    if found.grew:
        return f"FAIL: {', '.join(shown(space.name) for space in found.grew)} grew"
    return "OK: no arena grew"


def _print(before: Plan, after: Plan, found: Diff) -> None:
    """Print the differences for people."""
    if before.model != after.model:
        print(f"models {shown(before.model)} and {shown(after.model)}")
    tell_covers(after.covers)
    for space in found.spaces:
        growth = space.after - space.before
        print(f"{shown(space.name)}: {space.before:,} -> {space.after:,} bytes ({growth:+,})")
    if before.status != after.status:
        print(f"status: {before.status} -> {after.status}")
    if not found.changes:
        print("no value changed its place")
    for change in found.changes[:_MOST_LINES]:
        sides = f"{_side(change.before)} -> {_side(change.after)}"
        print(f"  {change.kind:<11}  {sides}  {shown(change.name)}")
    hidden = len(found.changes) - _MOST_LINES
    if hidden > 0:
        print(f"  and {hidden:,} more; --json lists all")


def _side(place: Place | None) -> str:
    """Return a place for people."""
    if place is None:
        return "nowhere"
    where = f"{place.size:,} bytes at {place.offset:,}"
    return f"{where} of {shown(place.space)} in steps {place.live.start}..{place.live.end}"
