"""
Windows that slide down an image: which rows are used up when.

Images are stored row by row, and made row by row: a row of the output waits until all of it is
made. From then on nobody needs the rows above the window of the next one, so that the output
may overlap the image at a distance.
"""

from __future__ import annotations

from collections.abc import Mapping

from arenaplan.graph import NO_EFFECTS, Effects, Overlap
from arenaplan.importers.common import BITS, Shape
from arenaplan.importers.tflite.effects import Op, Rule

_SAME = 0
"""The padding with which the output has as many rows as the image, divided by the stride."""


def convolution(op: Op) -> Effects:
    """The output may overlap the image: operand 0; windows are as high as the filter."""
    return _sliding(op, dilation=op.option(5, "i", 1))


def depthwise(op: Op) -> Effects:
    """The same for a convolution of each channel by itself."""
    return _sliding(op, dilation=op.option(6, "i", 1))


def _sliding(op: Op, dilation: int) -> Effects:
    filters = op.input(1)
    if filters is None or len(filters.shape) != 4:
        return NO_EFFECTS
    return _by_rows(op, (filters.shape[1] - 1) * dilation + 1)


def pool(op: Op) -> Effects:
    """The output may overlap the image; windows are as high as the options say."""
    return _by_rows(op, op.option(4, "i"))


def _by_rows(op: Op, height: int) -> Effects:
    """Return leave to overlap operand 0 for windows of some height."""
    x, y = op.input(0), op.outputs[0] if op.outputs else None
    stride = op.option(2, "i")
    if x is None or y is None or not x.is_activation or stride < 1 or height < 1:
        return NO_EFFECTS
    if not len(x.shape) == len(y.shape) == 4 or x.shape[0] != y.shape[0]:
        return NO_EFFECTS
    if min(*x.shape, *y.shape) < 1 or min(BITS[x.dtype], BITS[y.dtype]) < 8:
        return NO_EFFECTS
    read, written = _row(x.shape, x.dtype), _row(y.shape, y.dtype)
    above = 0
    if op.option(0, "b") == _SAME:
        above = max((y.shape[1] - 1) * stride + height - x.shape[1], 0) // 2
    distance = _lead(x.shape, y.shape, stride, above, (read, written))
    return Effects(overlaps=(Overlap(0, 0, distance),))


def _row(shape: Shape, dtype: str) -> int:
    """Return the bytes of a row."""
    return shape[2] * shape[3] * BITS[dtype] // 8


def _lead(x: Shape, y: Shape, stride: int, above: int, row: tuple[int, int]) -> int:
    """
    Return by how many bytes writing is ahead of reading at most.

    That changes by the same from row to row, but for where windows leave the padding above the
    image, or reach that below; and from image to image.
    """
    read, written = row
    images, rows, height = y[0], y[1], x[1]
    bends = (0, 1, above // stride, (above + height) // stride)
    candidates = {min(bend + more, rows - 1) for bend in bends for more in (0, 1)} | {rows - 1}
    return max(
        (image * rows + at) * written
        - (image * height + min(max(at * stride - above, 0), height)) * read
        for image in (0, images - 1)
        for at in candidates
    )


WINDOWS: Mapping[str, Rule] = {
    "AVERAGE_POOL_2D": pool,
    "CONV_2D": convolution,
    "DEPTHWISE_CONV_2D": depthwise,
    "L2_POOL_2D": pool,
    "MAX_POOL_2D": pool,
}
"""Effects of operators on images, by name."""
