"""
Guesses a tensor's place inside another tensor.

Guesses are never trusted: rules compare every element afterwards.
"""

from __future__ import annotations

from math import prod
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from arenaplan.tflite.proving.elements import Elements, Shape

Indices: TypeAlias = "NDArray[np.int64]"
"""Per index along a dimension of a tensor: the index in another tensor, or -1."""


class Index:
    """The places of elements in a tensor."""

    def __init__(self, elements: Elements) -> None:
        self.shape: Shape = elements.shape
        flat = elements.ravel()
        self._first = int(flat[0]) if flat.size else 0
        self._size = flat.size
        self._order: Indices | None = None
        self._sorted = flat
        if flat.size and not np.array_equal(flat, np.arange(self._first, self._first + flat.size)):
            self._order = np.argsort(flat, kind="stable").astype(np.int64)
            self._sorted = flat[self._order]

    @property
    def has_twins(self) -> bool:
        """Whether an element that is no known value has several places."""
        if self._order is None:
            return False
        following = self._sorted[1:]
        return bool(((following == self._sorted[:-1]) & (following >= 0)).any())

    def positions(self, elements: Elements) -> Indices:
        """Return a position for each element; -1 without a position."""
        if self._size == 0:
            return np.full(elements.shape, -1, np.int64)
        if self._order is None:
            found = elements - self._first
            return np.where((found >= 0) & (found < self._size) & (elements >= 0), found, -1)
        at = np.minimum(np.searchsorted(self._sorted, elements), self._size - 1)
        hit = (self._sorted[at] == elements) & (elements >= 0)
        return np.where(hit, self._order[at], -1)

    def axes(self, elements: Elements) -> list[Indices]:
        """
        Return a guess for every dimension.

        Parameters
        ----------
        elements : Elements
            A tensor with the same number of dimensions.
        """
        positions = self.positions(elements)
        found = []
        for axis, dim in enumerate(elements.shape):
            lines = np.moveaxis(positions, axis, 0).reshape(dim, -1)
            if lines.shape[1] == 0:
                found.append(np.full(dim, -1, np.int64))
                continue
            hit = lines[np.arange(dim), (lines >= 0).argmax(axis=1)]
            inner = prod(self.shape[axis + 1 :])
            size = max(1, self.shape[axis])
            found.append(_filled(np.where(hit >= 0, hit // inner % size, -1), size))
        return found


def _filled(places: Indices, size: int) -> Indices:
    """Return a guess that goes on where elements have no place, as padding has none."""
    known = np.flatnonzero(places >= 0)
    if known.size in (0, places.size):
        return places
    at = np.arange(places.size)
    right = known[np.minimum(np.searchsorted(known, at), known.size - 1)]
    left = known[np.maximum(np.searchsorted(known, at, side="right") - 1, 0)]
    near = np.where(np.abs(at - left) <= np.abs(at - right), left, right)
    guess = places[near] + at - near
    return np.where((guess >= 0) & (guess < size), guess, -1)
