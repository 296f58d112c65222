"""A server's memory: a mapping of anonymous pages, some of which are given back to the system."""

from __future__ import annotations

import gc
import mmap
from typing import NamedTuple

import numpy as np

from arenaplan.base.errors import fault

ALIGNMENT = mmap.PAGESIZE
"""Alignment of the first byte."""


class PageRange(NamedTuple):
    """Bytes from ``start`` up to ``stop``."""

    start: int
    stop: int

    @property
    def bytes(self) -> int:
        """Number of bytes."""
        return self.stop - self.start

    def overlaps(self, other: PageRange) -> bool:
        """Whether both have a byte in common."""
        return self.start < other.stop and other.start < self.stop


class Pages:
    """
    Memory with a fixed size, which is resident only where used.

    Parameters
    ----------
    size : int
        Bytes, at least one.

    Raises
    ------
    OutOfMemory
        If the system has no such memory.
    """

    def __init__(self, size: int) -> None:
        flags = getattr(mmap, "MAP_PRIVATE", None)
        try:
            # Private, so that a fork has a copy; there is no such thing on Windows.
            if flags is None:
                self._map = mmap.mmap(-1, size)
            else:
                self._map = mmap.mmap(-1, size, flags=flags | mmap.MAP_ANONYMOUS)
        except (OSError, OverflowError, ValueError) as error:
            message = f"the memory of the server, {size:,} bytes, cannot be mapped: {error}"
            raise fault("ArenaCommitError", message) from error
        self.size = size
        self.bytes: np.ndarray = np.frombuffer(self._map, np.uint8)
        """All bytes."""
        self._used: list[PageRange] = []
        """Ranges that were used and not given back to the system: apart, and ascending."""
        self.used_bytes = 0
        """Bytes in these ranges."""

    def use(self, wanted: PageRange) -> None:
        """Note that a range is about to be used."""
        for each in self._used:
            if each.start <= wanted.start and wanted.stop <= each.stop:
                return
        apart = [e for e in self._used if e.stop < wanted.start or wanted.stop < e.start]
        joined = [wanted, *(each for each in self._used if each not in apart)]
        union = PageRange(min(e.start for e in joined), max(e.stop for e in joined))
        self._set_used(sorted([*apart, union]))

    def give_back(self, taken: list[PageRange], keep: int) -> int:
        """
        Give whole pages to the system, the highest first; the content is lost.

        Parameters
        ----------
        taken : list of PageRange
            Ranges that stay, ascending.
        keep : int
            Most bytes in other ranges that may stay.

        Returns
        -------
        int
            Bytes that were given back.
        """
        if not hasattr(self._map, "madvise") or not hasattr(mmap, "MADV_DONTNEED"):
            return 0
        gaps = [gap for used in self._used for gap in _gaps(used, taken)]
        surplus = sum(gap.bytes for gap in gaps) - keep
        given = 0
        for gap in reversed(gaps):
            if given >= surplus:
                break
            least = max(gap.start, gap.stop - (surplus - given))
            start = -(-gap.start // ALIGNMENT) * ALIGNMENT
            start = max(start, least // ALIGNMENT * ALIGNMENT)
            stop = gap.stop // ALIGNMENT * ALIGNMENT
            if start < stop:
                self._map.madvise(mmap.MADV_DONTNEED, start, stop - start)
                left = [r for used in self._used for r in _gaps(used, [PageRange(start, stop)])]
                self._set_used(left)
                given += stop - start
        return given

    def _set_used(self, used: list[PageRange]) -> None:
        self._used = used
        self.used_bytes = sum(each.bytes for each in used)

    def close(self) -> bool:
        """Unmap the memory, and return whether this succeeds; otherwise the last view unmaps."""
        self.bytes = np.empty(0, np.uint8)
        for is_last in (False, True):
            try:
                self._map.close()
                return True
            except BufferError:
                if not is_last:
                    gc.collect()  # A kernel may have left views in a cycle.
        return False


def _gaps(whole: PageRange, taken: list[PageRange]) -> list[PageRange]:
    """Return the parts of a range that are in no other range; the other ranges are ascending."""
    found, start = [], whole.start
    for each in taken:
        if each.stop > start and each.start < whole.stop:
            if each.start > start:
                found.append(PageRange(start, each.start))
            start = each.stop
    if start < whole.stop:
        found.append(PageRange(start, whole.stop))
    return found
