"""Plans that take less time and more bytes than another, or less time in its bytes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf

from arenaplan.planner.tradeoff.maker import Maker, Timed
from arenaplan.planner.tradeoff.ways import Step, steps_of

ROUNDS = 4
"""Largest number of rounds in which the steps of a plan are taken apart further."""
WIDER = 1.03
"""The part of its bytes that an arena grows by where offsets were not found."""
_WORTHWHILE = 0.98
"""A plan of equal bytes is made if it takes at most this part of the time."""


def bytes_within(tried: Iterable[Timed], limit: float) -> float:
    """Return the fewest bytes of a plan that is fast enough."""
    within = (timed.plan.arena_bytes for timed in tried if timed.seconds <= limit)
    return min(within, default=inf)


def faster(maker: Maker, timed: Timed, limit: float, below: float) -> list[Timed]:
    """Return plans that take less time and more bytes, until one is fast enough."""
    found: list[Timed] = []
    least = timed.plan.arena_bytes
    for _ in range(ROUNDS):
        if timed.seconds <= limit:
            break
        steps = steps_of(maker, timed)
        room = _least_room(steps, least, limit)
        if room >= below:
            break
        # Offsets may not be found for all that fits by its size: the next round has more room.
        least = max(int(room * WIDER), room + 1)
        other = with_ways(maker, timed, steps, room)
        if other is not None:
            found.append(other)
            timed = other if other.seconds < timed.seconds else timed
    return found


def _least_room(steps: Sequence[Step], least: int, limit: float) -> int:
    """Return the fewest bytes with which steps are fast enough, or all that are of use."""
    larger = {way.bytes for step in steps for way in step.ways if way.bytes > least}
    sizes = sorted(larger | {least})
    low, high = 0, len(sizes) - 1
    while low < high:
        middle = (low + high) // 2
        if sum(step.fastest(sizes[middle]).seconds for step in steps) <= limit:
            high = middle
        else:
            low = middle + 1
    return sizes[low]


def with_ways(maker: Maker, timed: Timed, steps: Sequence[Step], room: int) -> Timed | None:
    """Return a plan whose steps run in the fastest ways that need at most so many bytes."""
    wanted: list[list[int]] = []
    staged: list[int] = []
    for step in steps:
        way = step.fastest(room)
        if way.parts:
            wanted += [list(part) for part in way.parts]
        else:
            wanted.append(list(step.nodes))
            if way.staged:
                staged.append(step.nodes[-1])
    before = [list(nodes) for nodes in timed.plan.steps]
    if wanted == before and staged == timed.plan.overlapped and room <= timed.plan.arena_bytes:
        return None
    return maker.finish(timed.draft, wanted, staged, room, strips=timed.plan.strips)


def polished(maker: Maker, timed: Timed) -> Timed:
    """Return a plan of no more bytes that takes less time, if there is one."""
    steps, room = steps_of(maker, timed), timed.plan.arena_bytes
    if sum(step.fastest(room).seconds for step in steps) > _WORTHWHILE * timed.seconds:
        return timed
    other = with_ways(maker, timed, steps, room)
    if other is None or other.point >= timed.point:
        return timed
    return other if other.seconds < timed.seconds else timed
