"""Constants in memory that shows a file."""

from __future__ import annotations

import mmap

import numpy as np


class Reread(np.ndarray):
    """
    A copy of constants that are not aligned in a file.

    The copy need not be kept, because every access can copy again.
    """

    origin: np.ndarray | None = None
    """The array on the file; ``None`` for views of the copy."""

    @classmethod
    def of(cls, origin: np.ndarray) -> np.ndarray:
        """Return a copy of an array; the array itself if aligned."""
        if origin.flags.aligned:
            return origin
        # Separate pages go back on release, while a heap may keep freed pages.
        memory = mmap.mmap(-1, max(origin.nbytes, 1))
        copy = cls(origin.shape, origin.dtype, memory)
        copy[...] = origin
        copy.origin, copy.flags.writeable = origin, False
        return copy


def let_pages_go(content: mmap.mmap) -> None:
    """Release a map's memory until the next read."""
    if hasattr(content, "madvise") and hasattr(mmap, "MADV_DONTNEED"):
        content.madvise(mmap.MADV_DONTNEED)
