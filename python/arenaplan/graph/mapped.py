"""Constants in memory that shows a file."""

from __future__ import annotations

import mmap

import numpy as np


class Reread(np.ndarray):
    """
    A copy of constants that stand in a file, there at no multiple of their size.

    Nobody needs to keep the copy, since it is made again when it is asked for.
    """

    origin: np.ndarray | None = None
    """The array that shows the file; ``None`` for views of the copy."""

    @classmethod
    def of(cls, origin: np.ndarray) -> np.ndarray:
        """Return a copy of an array; the array itself if its elements are where they should be."""
        if origin.flags.aligned:
            return origin
        # Pages of their own: those that a heap gets back are in use until its end.
        memory = mmap.mmap(-1, max(origin.nbytes, 1))
        copy = cls(origin.shape, origin.dtype, memory)
        copy[...] = origin
        copy.origin, copy.flags.writeable = origin, False
        return copy


def let_pages_go(content: mmap.mmap) -> None:
    """Give back the memory of a map until something reads it again."""
    if hasattr(content, "madvise") and hasattr(mmap, "MADV_DONTNEED"):
        content.madvise(mmap.MADV_DONTNEED)
