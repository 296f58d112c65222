"""Windows over images ``(N, H, W, C)``: padding, and copies of rows with a border."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import as_strided

from arenaplan.graph.ops.window_ops import Axis, same_padding
from arenaplan.run.numpy.registry import Run, Scratch, Signature, Tensor, scratch_bytes
from arenaplan.run.numpy.tflite.tflite_facts import refused

_SAME: Final = 0


def sides_of(signature: Signature, taps: tuple[int, int]) -> tuple[Axis, Axis]:
    """
    Return rows and columns for an operator with windows.

    Raises
    ------
    UnsupportedOp
        If an image does not have four dimensions, or a window has no extent.
    """
    return _side(signature, 1, taps[0], "h"), _side(signature, 2, taps[1], "w")


def _side(signature: Signature, axis: int, taps: int, letter: str) -> Axis:
    x, y = signature.input(0), signature.outputs[0]
    attributes = signature.attributes
    stride, dilation = attributes[f"stride_{letter}"], attributes.get(f"dilation_{letter}", 1)
    if x is None or y is None or len(x.shape) != 4 or len(y.shape) != 4:
        raise refused(signature, "its operands are no images of four dimensions")
    if min(taps, stride, dilation) < 1:
        raise refused(signature, "its windows have no extent or do not move")
    extent = (taps - 1) * dilation + 1
    size, made = x.shape[axis], y.shape[axis]
    before = 0
    if signature.attributes.get("padding", _SAME) == _SAME:
        # `ComputePadding`: the larger part of an odd number is behind.
        before = same_padding(size, stride, extent) // 2
    return Axis(size, made, taps, stride, dilation, before)


class RowBlock(NamedTuple):
    """A row block in one image of the result."""

    image: int
    start: int
    stop: int


class Border:
    """
    Copies of image rows with a border, from which windows are read.

    Parameters
    ----------
    fill : number
        The border content.
    offset : number
        Addend to each image element.
    """

    def __init__(
        self,
        image: Tensor,
        rows: Axis,
        columns: Axis,
        dtype: Any,
        fill: float,
        offset: float,
    ) -> None:
        self.image, self.rows, self.columns = image, rows, columns
        self.dtype = np.dtype(dtype)
        self._fill, self._offset = fill, self.dtype.type(offset)

    def shape(self, count: int) -> tuple[int, int, int]:
        """Return the copy's shape for ``count`` result rows."""
        return (
            self.rows.under(count),
            self.columns.under(self.columns.out),
            self.image.shape[3],
        )

    def scratch(self, count: int) -> int:
        """Return the copy's bytes for ``count`` result rows."""
        return scratch_bytes(self.shape(count), self.dtype)

    def array(self, count: int, scratch: Scratch) -> np.ndarray:
        """Return the copy's memory."""
        return scratch.array(self.shape(count), self.dtype)

    def load(self, x: np.ndarray, copy: np.ndarray, block: RowBlock) -> Run:
        """Return a function that writes the copy for a row block."""
        first = block.start * self.rows.stride - self.rows.before
        count = self.rows.under(block.stop - block.start)
        top, bottom = max(first, 0), min(first + count, self.rows.size)
        left = self.columns.before
        right = min(copy.shape[1] - left, self.columns.size)
        target = copy[:count]
        source = x[block.image, top : max(bottom, top), :right]
        inner = target[top - first : top - first + len(source), left : left + right]
        is_whole = inner.shape == target.shape
        fill, offset = self._fill, self._offset

        def load() -> None:
            if not is_whole:
                target.fill(fill)
            np.add(source, offset, out=inner, casting="unsafe")

        return load

    def windows(self, copy: np.ndarray, count: int) -> np.ndarray:
        """Return the copy as ``(rows, columns, taps down, taps across, channels)``."""
        down, across, item = copy.strides
        rows, columns = self.rows, self.columns
        return as_strided(
            copy,
            (count, columns.out, rows.kernel, columns.kernel, self.image.shape[3]),
            (
                down * rows.stride,
                across * columns.stride,
                down * rows.dilation,
                across * columns.dilation,
                item,
            ),
            writeable=False,
        )


def blocks(images: int, rows: int, length: int) -> Iterator[RowBlock]:
    """Yield blocks with at most ``length`` rows, in memory order."""
    for image in range(images):
        for start in range(0, rows, length):
            yield RowBlock(image, start, min(start + length, rows))


def row_counts(rows: int, columns: int) -> list[int]:
    """Return numbers of rows that can be made at a time: the largest first."""
    counts = {min(rows, max(1, elements // max(columns, 1))) for elements in (1024, 256, 64, 1)}
    return sorted(counts, reverse=True)


def is_empty(signature: Signature) -> bool:
    """Whether there is nothing to compute."""
    y = signature.outputs[0]
    return y is None or prod(y.shape) == 0
