"""What a target needs or lacks beside the bytes of a plan."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from arenaplan import Plan


def notes_of(plan: Plan, *, has_arena: bool = False) -> list[str]:
    """
    Return what the target needs or lacks beside the arena's bytes, one sentence each.

    Parameters
    ----------
    plan : Plan
        The plan.
    has_arena : bool, default False
        Whether the report has the whole arena of the runtime, too.
    """
    target = plan.target
    if target.name == "ideal":
        return ["no runtime honors every technique at once: a plan for one needs --target"]
    if has_arena:
        return []
    notes = []
    if target.scratch == "runner":
        notes.append("scratch memory of the runtime's kernels is not in these bytes")
    elif target.name == "numpy" and plan.options["workspace"] == "none":
        notes.append("scratch memory of the kernels is left out (--workspace none)")
    if target.fixed == "runner":
        notes.append("the runtime's own structures are not in these bytes")
    return notes
