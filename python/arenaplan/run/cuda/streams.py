"""
Streams: a plan's steps in several queues, with the waits that the plan's hazards ask for.

A step goes to the stream of a required step, if no other step has followed there, or else to a
separate stream while streams remain. An event is recorded behind a step that a step in another
stream waits for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from arenaplan._core import Hazards


@dataclass(frozen=True, slots=True)
class Schedule:
    """The stream and the waits of each step."""

    streams: int
    """Number of streams."""
    stream: tuple[int, ...]
    """Stream by step."""
    waits: tuple[tuple[int, ...], ...]
    """For each step, the required earlier steps in other streams."""
    recorded: frozenset[int]
    """The steps that others wait for."""


def schedule(hazards: Hazards, works: Sequence[bool], streams: int) -> Schedule:
    """
    Return the streams for a plan's steps.

    Parameters
    ----------
    hazards : Hazards
        The dependencies between steps.
    works : sequence of bool
        Whether a step has anything to run; other steps only pass on their waits.
    streams : int
        Most streams.
    """
    if streams == 1:
        steps = hazards.steps
        return Schedule(1, (0,) * steps, ((),) * steps, frozenset())
    stream: list[int] = []
    waits: list[tuple[int, ...]] = []
    recorded: set[int] = set()
    last: list[int] = []
    reached: list[set[int]] = []
    """For each step, the steps that are over at its end, as far as streams and events ensure."""
    needs: list[set[int]] = []
    """For each step, the step itself or, if there is nothing to run, the steps that stand for it.
    """
    for step in range(hazards.steps):
        wanted: set[int] = set()
        for hazard in hazards.of(step):
            wanted |= needs[hazard.before]
        if not works[step]:
            stream.append(0)
            waits.append(())
            reached.append(set())
            needs.append(wanted)
            continue
        after = [queue for queue, end in enumerate(last) if end in wanted]
        if after:
            own = max(after, key=lambda queue: last[queue])
        elif len(last) < streams:
            own = len(last)
            last.append(-1)
        else:
            own = min(range(len(last)), key=lambda queue: last[queue])
        before = last[own]
        over = set() if before < 0 else {before} | reached[before]
        awaited = []
        for other in sorted(wanted, reverse=True):
            if other not in over:
                awaited.append(other)
                over |= {other} | reached[other]
        last[own] = step
        stream.append(own)
        waits.append(tuple(sorted(awaited)))
        recorded.update(awaited)
        reached.append(over)
        needs.append({step})
    return Schedule(max(len(last), 1), tuple(stream), tuple(waits), frozenset(recorded))
