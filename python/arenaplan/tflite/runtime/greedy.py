"""
The planner inside TensorFlow Lite Micro.

Buffers with a fixed offset come first. The other buffers follow, largest first, and for equal sizes
the last added first. Each buffer goes into the first sufficient gap between the boxes that are live
at the same time (see the runtime's ``greedy_memory_planner.cc``).
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence

from arenaplan.tflite.reader.timeline import Box

ONLINE = -1
"""Offset that leaves a tensor to the runtime's own planner."""


def greedy_offsets(boxes: Sequence[Box], fixed: Sequence[int] | None = None) -> list[int]:
    """
    Return each box's offset in the runtime, in bytes.

    Parameters
    ----------
    boxes : sequence of Box
        In the order in which the runtime adds the boxes.
    fixed : sequence of int, optional
        Each box's offset; -1, the default, if the runtime decides.

    Examples
    --------
    >>> boxes = [Box(0, "x", 32, 0, 2), Box(1, "y", 64, 1, 2)]
    >>> greedy_offsets(boxes), greedy_offsets(boxes, [16, -1])
    ([64, 0], [16, 48])
    """
    offsets = [ONLINE] * len(boxes) if fixed is None else list(fixed)
    order = [index for index, offset in enumerate(offsets) if offset != ONLINE]
    online = [index for index, offset in enumerate(offsets) if offset == ONLINE]
    order += sorted(online, key=lambda index: (-boxes[index].size, -index))
    placed: list[tuple[int, int, int]] = []  # Offset, placing time, box.
    for time, index in enumerate(order):
        if offsets[index] == ONLINE:
            offsets[index] = _first_gap(boxes, placed, boxes[index])
        insort(placed, (offsets[index], time, index))
    return offsets


def _first_gap(boxes: Sequence[Box], placed: Sequence[tuple[int, int, int]], box: Box) -> int:
    """Return the offset of the first gap that fits a box."""
    offset = 0
    for start, _, other in placed:
        neighbor = boxes[other]
        if neighbor.start >= box.end or box.start >= neighbor.end:
            continue
        if start - offset >= box.size:
            break
        offset = max(offset, start + neighbor.size)
    return offset


def head_bytes(boxes: Sequence[Box], offsets: Sequence[int]) -> int:
    """Return the size of the arena's planned part: the highest used byte."""
    return max((offset + box.size for box, offset in zip(boxes, offsets, strict=True)), default=0)
