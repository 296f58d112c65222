"""Fills the arena of a TensorFlow Lite Micro interpreter with garbage."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ARENA = 1 << 20


class Garbage:
    """
    The planned part of an interpreter's arena.

    The interpreter does not say where its arena is, so the place is found by the inputs that it
    keeps there.

    Parameters
    ----------
    interpreter, other
        The interpreter, and another one of a model with the same inputs.
    inputs : sequence of array
        Several arrays for the first input, of at least 16 bytes.
    offset : int
        Offset of the first input.
    size : int
        Bytes of the planned part.
    """

    def __init__(
        self, interpreter: Any, other: Any, inputs: Sequence[np.ndarray], offset: int, size: int
    ) -> None:
        if not sys.platform.startswith("linux"):
            pytest.skip("the arena is found by the list of the memory of a Linux process")
        *patterns, last = [array.tobytes() for array in inputs]  # Each at a place of its own.
        places: set[int] | None = None
        for array, pattern in zip(inputs, patterns, strict=False):
            interpreter.set_input(array, 0)
            # Copies on the way to the arena are overwritten.
            other.set_input(np.frombuffer(last, array.dtype).reshape(array.shape), 0)
            if places is None:
                places = _places_of(pattern)
            else:
                places = {at for at in places if _read(at, len(pattern)) == pattern}
        (place,) = places or ()
        self._start, self._size = place - offset, size

    def fill(self, rng: np.random.Generator) -> None:
        """Write random bytes to the planned part."""
        ctypes.memmove(self._start, rng.bytes(self._size), self._size)

    def read(self, offset: int, size: int) -> bytes:
        """Return bytes of the arena."""
        return _read(self._start + offset, size)


def _read(address: int, size: int) -> bytes:
    """Return memory of this process; nothing if it is not there any more."""
    with Path("/proc/self/mem").open("rb") as memory:
        try:
            memory.seek(address)
            return memory.read(size)
        except (OSError, ValueError):
            return b""


def _places_of(pattern: bytes) -> set[int]:
    """Return the addresses of a pattern in large areas of this process."""
    found = set()
    with Path("/proc/self/maps").open() as maps, Path("/proc/self/mem").open("rb") as memory:
        for line in maps.readlines():
            span, access, *_ = line.split()
            start, stop = (int(number, 16) for number in span.split("-"))
            if not access.startswith("rw") or stop - start < ARENA:
                continue
            memory.seek(start)
            try:
                content = memory.read(stop - start)
            except OSError:
                continue
            at = content.find(pattern)
            while at >= 0:
                found.add(start + at)
                at = content.find(pattern, at + 1)
    return found
