"""Plan curves: bytes at each step."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class Rectangle(NamedTuple):
    """Bytes in one space during some steps: a rectangle of address and time."""

    offset: int
    end: int
    """Address after the last byte."""
    start: int
    """First step."""
    stop: int
    """Step after the last step."""


def tops(spans: Iterable[Rectangle], steps: int) -> list[int]:
    """
    Return the end of the highest live span, per step.

    Spans are visited from highest to lowest, and the first span with a step decides the step. A
    disjoint-set forest skips decided steps, so sorting dominates the time.

    Examples
    --------
    >>> tops([Rectangle(0, 64, 0, 2), Rectangle(64, 96, 1, 3)], 4)
    [64, 96, 96, 0]
    """
    result = [0] * steps
    after = list(range(steps + 1))
    """Per step: the first step from here that may be undecided."""

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
