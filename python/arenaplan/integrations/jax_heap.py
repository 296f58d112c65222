"""
The bytes that XLA gives to buffers: the same rules as the compiler's heap for a known order.

The heap places buffers one after another, the largest or the longest first, each in the smallest
gap between buffers that live at the same time. Gaps remain, which a plan's arena does not have.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np

ALIGNMENT: Final = 64
"""Buffers begin, and end, at multiples of so many bytes."""


class HeapBuffer(NamedTuple):
    """A buffer with the first and the last step at which it is alive."""

    first: int
    last: int
    size: int


def heap_bytes(buffers: Sequence[HeapBuffer]) -> int:
    """Return the bytes of the better of two heaps, as XLA does."""
    spans = np.array(buffers, np.int64).reshape(-1, 3)
    large = np.lexsort((spans[:, 0], spans[:, 0] - spans[:, 1], -spans[:, 2]))
    long = np.lexsort((spans[:, 0], -spans[:, 2], spans[:, 0] - spans[:, 1]))
    return min(_packed(spans[large]), _packed(spans[long]))


def _packed(spans: Any) -> int:
    """Return the bytes of buffers that are placed in this order."""
    sizes = -(-spans[:, 2] // ALIGNMENT) * ALIGNMENT
    begins, ends = np.zeros(len(spans), np.int64), np.zeros(len(spans), np.int64)
    for k, (first, last, _) in enumerate(spans):
        together = np.flatnonzero((spans[:k, 0] <= last) & (spans[:k, 1] >= first))
        order = together[np.argsort(begins[together])]
        taken = np.maximum.accumulate([0, *ends[order]])
        gaps = begins[order] - taken[:-1]
        fits = np.flatnonzero(gaps >= sizes[k])
        begins[k] = taken[fits[np.argmin(gaps[fits])]] if len(fits) else taken[-1]
        ends[k] = begins[k] + sizes[k]
    return int(ends.max(initial=0))
