"""
Windows that slide over an image: which bytes are used up when.

Images are stored, and made, row by row, and rows pixel by pixel. An element is written as soon
as it is made, while the window of its pixel is still needed. All bytes before that window are
needed no more, nor are those of earlier rows, so that the output may overlap the image at a
distance.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from arenaplan.graph import NO_EFFECTS, Effects, Overlap
from arenaplan.importers.common import BITS
from arenaplan.importers.tflite.effects import Op, Rule

_SAME = 0
"""The padding with which the output is as large as the image, divided by the stride."""


def convolution(op: Op) -> Effects:
    """The output may overlap the image: operand 0; windows are as large as the filter."""
    return _sliding(op, (op.option(4, "i", 1), op.option(5, "i", 1)))


def depthwise(op: Op) -> Effects:
    """The same for a convolution of each channel by itself."""
    return _sliding(op, (op.option(5, "i", 1), op.option(6, "i", 1)))


def _sliding(op: Op, dilation: tuple[int, int]) -> Effects:
    filters = op.input(1)
    if filters is None or len(filters.shape) != 4:
        return NO_EFFECTS
    width, height = dilation
    return _by_pixels(op, (filters.shape[1] - 1) * height + 1, (filters.shape[2] - 1) * width + 1)


def pool(op: Op) -> Effects:
    """The output may overlap the image; windows are as large as the options say."""
    return _by_pixels(op, op.option(4, "i"), op.option(3, "i"))


def _by_pixels(op: Op, height: int, width: int) -> Effects:
    """Return leave to overlap operand 0 for windows of some size."""
    x, y = op.input(0), op.outputs[0] if op.outputs else None
    down, right = op.option(2, "i"), op.option(1, "i")
    if x is None or y is None or not x.is_activation or min(down, right, height, width) < 1:
        return NO_EFFECTS
    if not len(x.shape) == len(y.shape) == 4 or x.shape[0] != y.shape[0]:
        return NO_EFFECTS
    if min(*x.shape, *y.shape) < 1 or min(BITS[x.dtype], BITS[y.dtype]) < 8:
        return NO_EFFECTS
    above = left = 0
    if op.option(0, "b") == _SAME:
        above = max((y.shape[1] - 1) * down + height - x.shape[1], 0) // 2
        left = max((y.shape[2] - 1) * right + width - x.shape[2], 0) // 2
    rows = Side(x.shape[1], y.shape[1], down, above)
    columns = Side(x.shape[2], y.shape[2], right, left)
    pixels = (x.shape[3] * BITS[x.dtype] // 8, y.shape[3] * BITS[y.dtype] // 8)
    distance = lead(x.shape[0], rows, columns, pixels, BITS[y.dtype] // 8)
    return Effects(overlaps=(Overlap(0, 0, distance),))


class Side(NamedTuple):
    """One dimension of an image over which windows slide."""

    size: int
    """Rows, or columns, of the image."""
    made: int
    """Sizes of the output."""
    stride: int
    before: int
    """Padding before the first."""

    def first(self, at: int) -> int:
        """Return the first index of the image that a window needs."""
        return min(max(at * self.stride - self.before, 0), self.size - 1)

    def bends(self) -> set[int]:
        """Return the windows between which the first index grows evenly."""
        ends = (0, self.before // self.stride, (self.before + self.size - 1) // self.stride)
        near = {end + more for end in ends for more in (0, 1)}
        return {min(at, self.made - 1) for at in near} | {self.made - 1}


def lead(images: int, rows: Side, columns: Side, pixels: tuple[int, int], item: int) -> int:
    """
    Return by how many bytes writing is ahead of reading at most.

    An element of a pixel is written while the window of the pixel is needed, the last one of
    the pixel excepted, and while all later windows are: of these, those of the next row may
    begin before. Growing evenly between the ends of the padding, the lead is largest there.

    Parameters
    ----------
    pixels : tuple of int
        Bytes of a pixel of the image, and of one of the output.
    item : int
        Bytes of an element of the output.
    """
    read, written = pixels
    worst = 0
    for image in {0, images - 1}:
        for row in rows.bends():
            for column in columns.bends():
                window = rows.first(row) * columns.size + columns.first(column)
                place = row * columns.made + column
                needed = (image * rows.size * columns.size + window) * read
                done = (image * rows.made * columns.made + place + 1) * written
                worst = max(worst, done - item - needed)
    return worst


WINDOWS: Mapping[str, Rule] = {
    "AVERAGE_POOL_2D": pool,
    "CONV_2D": convolution,
    "DEPTHWISE_CONV_2D": depthwise,
    "L2_POOL_2D": pool,
    "MAX_POOL_2D": pool,
}
"""Effects of operators on images, by name."""
