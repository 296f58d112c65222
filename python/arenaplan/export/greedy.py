"""
The planner inside TensorFlow Lite Micro, for comparison with a plan.

Largest first, and among equals the one added last; each at the first gap that is large enough,
between the boxes that are live at the same time (see ``greedy_memory_planner.cc`` there).
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence

from arenaplan.importers.tflite.timeline import Box


def greedy_offsets(boxes: Sequence[Box]) -> list[int]:
    """Return the offset that the runtime would give each box, in bytes."""
    order = sorted(range(len(boxes) - 1, -1, -1), key=lambda index: -boxes[index].size)
    offsets = [0] * len(boxes)
    placed: list[tuple[int, int, int]] = []  # Offset, time of placing, box.
    for time, index in enumerate(order):
        box = boxes[index]
        offset = 0
        for start, _, other in placed:
            neighbor = boxes[other]
            if neighbor.start >= box.end or box.start >= neighbor.end:
                continue
            if start - offset >= box.size:
                break
            offset = max(offset, start + neighbor.size)
        offsets[index] = offset
        insort(placed, (offset, time, index))
    return offsets


def head_bytes(boxes: Sequence[Box], offsets: Sequence[int]) -> int:
    """Return the size of the arena's planned part: the highest byte in use."""
    return max((offset + box.size for box, offset in zip(boxes, offsets, strict=True)), default=0)
