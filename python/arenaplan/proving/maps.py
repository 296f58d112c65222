"""The part of a tensor of the original that each tensor of the rewritten graph holds."""

from __future__ import annotations

from bisect import bisect_right
from typing import NamedTuple

import numpy as np

from arenaplan.proving.derive import Known
from arenaplan.proving.elements import DOUBT, Elements, is_value
from arenaplan.proving.guess import Indices


class Run(NamedTuple):
    """Neighboring indices along a dimension."""

    kind: str
    """``"rows"`` of the original tensor, ``"padding"``, or ``"unproven"``."""
    start: int
    """First index in the original tensor; 0 if there is none."""
    count: int


class Part(NamedTuple):
    """A part of a tensor of the original: a product of runs along every dimension."""

    tensor: int
    axes: tuple[tuple[Run, ...], ...]


class Parts:
    """Tensors of the original by their elements."""

    def __init__(self, original: Known) -> None:
        self._original = original
        self._starts: list[int] = []
        self._tensors: list[list[int]] = []
        found: dict[int, list[int]] = {}
        for number, elements in original.elements.items():
            flat = elements.ravel()
            if flat.size and int(flat[0]) >= 0:
                found.setdefault(int(flat[0]), []).append(number)
        for start in sorted(found):
            self._starts.append(start)
            self._tensors.append(found[start])

    def of(self, elements: Elements) -> Part | None:
        """Return the part that a tensor holds, if it is a part of one tensor."""
        known = elements[elements >= 0]
        if known.size == 0:
            return None
        at = bisect_right(self._starts, int(known[0])) - 1
        if at < 0:
            return None
        # The tensor whose elements begin last may be followed by moves that begin before.
        for place in range(at, max(-1, at - 4), -1):
            for number in self._tensors[place]:
                part = self._part(number, elements)
                if part is not None:
                    return part
        return None

    def _part(self, number: int, elements: Elements) -> Part | None:
        """Return the part of one tensor that holds all elements."""
        source = self._original.elements[number]
        if source.ndim != elements.ndim or elements.ndim == 0:
            return None
        guesses = self._original.index(number).axes(elements)
        grid = np.ix_(*(np.maximum(guess, 0) for guess in guesses))
        shown = source[grid] == elements
        axes: list[tuple[Run, ...]] = []
        for axis, guess in enumerate(guesses):
            lines = np.moveaxis(elements, axis, 0).reshape(elements.shape[axis], -1)
            doubtful = (lines <= DOUBT).all(axis=1)
            blank = ~doubtful & (lines < 0).all(axis=1)
            view = np.moveaxis(shown, axis, 0)
            view[np.flatnonzero(doubtful | blank)] = True
            axes.append(_runs(guess, doubtful, blank))
        return Part(number, tuple(axes)) if shown.all() else None


def _runs(guess: Indices, doubtful: np.ndarray, blank: np.ndarray) -> tuple[Run, ...]:
    """Return the runs along one dimension."""
    runs: list[Run] = []
    for index, place in enumerate(guess):
        kind = "unproven" if doubtful[index] else "padding" if blank[index] else "rows"
        start = int(place) if kind == "rows" else 0
        last = runs[-1] if runs else None
        follows = last is not None and last.kind == kind
        if last is not None and follows and (kind != "rows" or last.start + last.count == start):
            runs[-1] = last._replace(count=last.count + 1)
        else:
            runs.append(Run(kind, start, 1))
    return tuple(runs)


def padding_values(elements: Elements) -> tuple[int, ...]:
    """Return the known values that a tensor holds."""
    return tuple(int(n) for n in np.unique(elements) if is_value(int(n)))
