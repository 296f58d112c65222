"""
Streams: the steps of a plan in several queues, with the waits that its hazards ask for.

A step goes to the stream of a step that it waits for, if no other step has followed that one there,
or else to a stream of its own as long as there are some. An event is recorded behind a step that a
step of another stream waits for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from arenaplan._core import Hazards


@dataclass(frozen=True, slots=True)
class Schedule:
    """The stream of each step and what it waits for."""

    streams: int
    """Number of streams."""
    stream: tuple[int, ...]
    """By step, its stream."""
    waits: tuple[tuple[int, ...], ...]
    """By step, the earlier steps of other streams that it waits for."""
    recorded: frozenset[int]
    """The steps that others wait for."""


def schedule(hazards: Hazards, works: Sequence[bool], streams: int) -> Schedule:
    """
    Return the streams of the steps of a plan.

    Parameters
    ----------
    hazards : Hazards
        The dependencies between steps.
    works : sequence of bool
        Whether a step has anything to run; others only pass on what they wait for.
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
    """By step, the steps that are over when it is, as far as streams and events say so."""
    needs: list[set[int]] = []
    """By step, itself or, if it has nothing to run, the steps that stand for it."""
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
