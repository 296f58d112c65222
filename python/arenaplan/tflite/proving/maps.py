"""The part of an original tensor held by each rewritten tensor."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy as np

from arenaplan.tflite.proving.derive import KnownElements
from arenaplan.tflite.proving.elements import DOUBT, Elements
from arenaplan.tflite.proving.guess import Indices

Mask: TypeAlias = "np.ndarray[Any, np.dtype[np.bool_]]"


class IndexRun(NamedTuple):
    """Neighboring indices along a dimension."""

    kind: str
    """``"rows"`` from the original tensor, ``"padding"``, or ``"unproven"``."""
    start: int
    """First index in the original tensor; 0 if there is none."""
    length: int


class Part(NamedTuple):
    """A part of an original tensor: a product of runs along every dimension."""

    tensor: int
    axes: tuple[tuple[IndexRun, ...], ...]


class Parts:
    """The original's tensors by elements."""

    def __init__(self, original: KnownElements) -> None:
        self._original = original
        numbers, ends = [], []
        for number, elements in original.elements.items():
            made = elements[elements >= 0]
            if made.size and elements.ndim:
                numbers.append(number)
                ends.append((int(made.min()), int(made.max()), elements.ndim))
        self._numbers = np.array(numbers, np.int64)
        self._ends = np.array(ends, np.int64).reshape(-1, 3)

    def of(self, elements: Elements) -> Part | None:
        """
        Return the part that a tensor holds, if all elements come from the same original tensor.
        """
        known = elements[elements >= 0]
        if known.size == 0:
            return None
        low, high, rank = self._ends.T
        fits = (low <= known.min()) & (known.max() <= high) & (rank == elements.ndim)
        candidates = np.flatnonzero(fits)
        # An operator's result comes before tensors into which moves have joined the result.
        for place in candidates[np.argsort((high - low)[candidates], kind="stable")]:
            part = self._part(int(self._numbers[place]), elements)
            if part is not None:
                return part
        return None

    def _part(self, number: int, elements: Elements) -> Part | None:
        """Return the part of one tensor that holds all elements."""
        source = self._original.elements[number]
        guesses = self._original.index(number).axes(elements)
        grid = np.ix_(*(np.maximum(guess, 0) for guess in guesses))
        shown = source[grid] == elements
        axes: list[tuple[IndexRun, ...]] = []
        for axis, guess in enumerate(guesses):
            lines = np.moveaxis(elements, axis, 0).reshape(elements.shape[axis], -1)
            doubtful: Mask = np.all(lines <= DOUBT, axis=1)
            blank: Mask = np.logical_and(~doubtful, np.all(lines < 0, axis=1))
            view = np.moveaxis(shown, axis, 0)
            view[np.flatnonzero(doubtful | blank)] = True
            axes.append(_runs(guess, doubtful, blank))
        return Part(number, tuple(axes)) if shown.all() else None


def _runs(guess: Indices, doubtful: Mask, blank: Mask) -> tuple[IndexRun, ...]:
    """Return the runs along a dimension."""
    runs: list[IndexRun] = []
    for index, place in enumerate(guess):
        kind = "unproven" if doubtful[index] else "padding" if blank[index] else "rows"
        start = int(place) if kind == "rows" else 0
        last = runs[-1] if runs else None
        follows = last is not None and last.kind == kind
        if last is not None and follows and (kind != "rows" or last.start + last.length == start):
            runs[-1] = last._replace(length=last.length + 1)
        else:
            runs.append(IndexRun(kind, start, 1))
    return tuple(runs)
