"""Curves of a plan: bytes at each step."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class Span(NamedTuple):
    """Bytes of one space during some steps: a rectangle of address and time."""

    offset: int
    end: int
    """First byte after the last one."""
    start: int
    """First step."""
    stop: int
    """First step after the last one."""


def tops(spans: Iterable[Span], steps: int) -> list[int]:
    """
    Return, per step, the end of the highest span that is live.

    Spans are taken from the highest to the lowest, and a step is decided by the first one that has
    it. Decided steps are skipped with a disjoint-set forest, so that the time is that of a sort.

    Examples
    --------
    >>> tops([Span(0, 64, 0, 2), Span(64, 96, 1, 3)], 4)
    [64, 96, 96, 0]
    """
    result = [0] * steps
    after = list(range(steps + 1))
    """By step: a step at or after it that may be undecided."""

    def undecided(step: int) -> int:
        while after[step] != step:
            after[step] = after[after[step]]
            step = after[step]
        return step

    for span in sorted(spans, key=lambda span: -span.end):
        step = undecided(min(span.start, steps))
        while step < min(span.stop, steps):
            result[step] = span.end
            after[step] = step + 1
            step = undecided(step)
    return result
