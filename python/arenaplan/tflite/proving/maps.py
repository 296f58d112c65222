"""The part of an original tensor held by each rewritten tensor."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from arenaplan.tflite.proving.derive import KnownElements
from arenaplan.tflite.proving.elements import DOUBT, Elements
from arenaplan.tflite.proving.guess import Indices

Mask: TypeAlias = "np.ndarray[Any, np.dtype[np.bool_]]"


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

    def of(self, elements: Elements) -> dict[str, Any] | None:
        """
        Return the part that a tensor holds, if all elements come from the same original tensor.

        The part is a product of runs along every dimension: indices in the original tensor from the
        first to before the last, or the length of ``"padding"`` or of what is ``"unproven"``.
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

    def _part(self, number: int, elements: Elements) -> dict[str, Any] | None:
        """Return the part of one tensor that holds all elements."""
        source = self._original.elements[number]
        guesses = self._original.index(number).axes(elements)
        grid = np.ix_(*(np.maximum(guess, 0) for guess in guesses))
        shown = source[grid] == elements
        axes: list[list[dict[str, int]]] = []
        for axis, guess in enumerate(guesses):
            lines = np.moveaxis(elements, axis, 0).reshape(elements.shape[axis], -1)
            doubtful: Mask = np.all(lines <= DOUBT, axis=1)
            blank: Mask = np.logical_and(~doubtful, np.all(lines < 0, axis=1))
            view = np.moveaxis(shown, axis, 0)
            view[np.flatnonzero(doubtful | blank)] = True
            axes.append(_runs(guess, doubtful, blank))
        name = self._original.graph.tensors[number].name
        return {"tensor": number, "name": name, "axes": axes} if shown.all() else None


def _runs(guess: Indices, doubtful: Mask, blank: Mask) -> list[dict[str, int]]:
    """Return the runs along a dimension."""
    runs: list[dict[str, int]] = []
    for place, is_doubtful, is_blank in zip(guess.tolist(), doubtful, blank, strict=True):
        last = runs[-1] if runs else {}
        kind = "unproven" if is_doubtful else "padding" if is_blank else "to"
        if kind == "to" and last.get("to") != place:
            runs.append({"from": place, "to": place + 1})
        elif kind in last:
            last[kind] += 1
        else:
            runs.append({kind: 1})
    return runs
