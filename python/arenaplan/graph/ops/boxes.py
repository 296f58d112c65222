"""
Boxes: parts of arrays.

A box has a slice per dimension, with start and stop. The operand box needed for a result box is the
result box's *footprint*; dimensions are kept, so broadcast operands still broadcast.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TypeAlias

Box: TypeAlias = "tuple[slice, ...]"
"""A part of an array: start and stop along each dimension."""
Footprint: TypeAlias = "list[Box | None]"
"""The needed part of each input; ``None`` for the whole input."""
Shapes: TypeAlias = "Sequence[tuple[int, ...] | None]"
"""Each input's shape; ``None`` for an omitted optional input."""


class Uncuttable(Exception):
    """An operator cannot make the requested part of the result by itself."""


def whole(shape: Sequence[int]) -> Box:
    """Return the box with the whole array."""
    return tuple(slice(0, size) for size in shape)


def is_whole(box: Box, shape: Sequence[int]) -> bool:
    """Whether a box is the whole array."""
    return all(_is_full(part, size) for part, size in zip(box, shape, strict=True))


def box_shape(box: Box) -> tuple[int, ...]:
    """Return a box's shape."""
    return tuple(part.stop - part.start for part in box)


def _is_full(part: slice, size: int) -> bool:
    return bool(part.start == 0 and part.stop == size)


def reshaped(box: Box, old: Sequence[int], new: Sequence[int]) -> Box:
    """
    Return the box in an array with shape ``new`` that has the same elements in memory.

    Raises
    ------
    Uncuttable
        If there is no such box.
    """
    if tuple(old) == tuple(new):
        return box
    if is_whole(box, old):
        return whole(new)
    start, count = _run(box, old)
    found: list[slice] = []
    inner = prod(new)
    for size in new:
        inner //= max(size, 1)
        at, rest = divmod(start, inner)
        if count <= inner - rest:  # All in a single index of this dimension.
            found.append(slice(at, at + 1))
            start = rest
            continue
        if rest or count % inner or at + count // inner > size:
            raise Uncuttable
        found.append(slice(at, at + count // inner))
        found += whole(new[len(found) :])
        return tuple(found)
    return tuple(found)


def _run(box: Box, shape: Sequence[int]) -> tuple[int, int]:
    """Return a box's first element and length; the box must be contiguous."""
    start, count, inner, is_open = 0, 1, 1, True
    for part, size in zip(reversed(box), reversed(shape), strict=True):
        length = part.stop - part.start
        if not is_open and length != 1:
            raise Uncuttable
        is_open = is_open and length == size
        start += part.start * inner
        count *= length
        inner *= size
    return start, count


def spread(shape: Sequence[int] | None, box: Box, made: Sequence[int]) -> Box | None:
    """
    Return the operand part that is broadcast to ``box`` in a result with shape ``made``.

    Raises
    ------
    Uncuttable
        If the shapes do not broadcast.
    """
    if shape is None:
        return None
    before = len(made) - len(shape)
    if before < 0:
        raise Uncuttable
    parts = []
    for size, full, part in zip(shape, made[before:], box[before:], strict=True):
        if size not in (1, full):
            raise Uncuttable
        parts.append(part if size == full else slice(0, 1))
    return tuple(parts)


def first(shapes: Shapes) -> tuple[int, ...]:
    """
    Return the shape of input 0.

    Raises
    ------
    Uncuttable
        If input 0 is left out.
    """
    shape = shapes[0] if shapes else None
    if shape is None:
        raise Uncuttable
    return shape
