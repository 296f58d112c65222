"""
Image operators: sliding windows, and separate channels.

Images are arrays ``(N, C, …)``, or ``(N, H, W, C)`` where documented. The latter are stored and
made row by row, and rows pixel by pixel. Each element is written at once, while the pixel's window
is still needed. Bytes before that window, and in earlier rows, are not needed any more, so the
output may overlap the image at a distance.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import NamedTuple

from arenaplan.graph.effects import NO_EFFECTS, Effects, Flow, Overlap, Window
from arenaplan.graph.ops.boxes import Box, Footprint, Shapes, Uncuttable, first, is_whole, whole
from arenaplan.graph.ops.operands import BITS, Operands, Shape
from arenaplan.graph.ops.operator import ROWS, Operator, same_rows


def planes(node: Operands, *, is_multiple: bool = False) -> Flow | None:
    """
    Return a piece per channel and image, each made from the same channel in input 0.

    Parameters
    ----------
    is_multiple : bool, default False
        Whether an input channel may make several output channels.
    """
    x, y = node.x, node.y
    if x is None or y is None:
        return None
    image, made = x.shape, y.shape
    if min(len(image), len(made)) < 3 or 0 in image or 0 in made or image[0] != made[0]:
        return None
    fits = made[1] % image[1] == 0 if is_multiple else made[1] == image[1]
    return Flow(0, prod(image[:2]), (0,)) if fits else None


def any_piece(node: Operands) -> Flow | None:
    """Return the flow in which any piece can be made, from all inputs."""
    return None if node.y is None else Flow(0, prod(node.y.shape))


class Rows(NamedTuple):
    """How result rows see image rows: as a :class:`~arenaplan.graph.Window`."""

    extent: int
    stride: int
    before: int
    scale: int = 1


def windows_over(node: Operands, rows: Rows | None) -> tuple[Window, ...]:
    """Return the window over input 0's rows."""
    x, y = node.x, node.y
    if rows is None or x is None or y is None or len(x.shape) != len(y.shape):
        return ()
    return (Window(0, 0, ROWS, *rows),)


@dataclass(slots=True)
class Planes(Operator):
    """Each channel is processed separately: pools, resizing."""

    def pieces(self, node: Operands) -> Flow | None:
        """Return a piece per channel and image."""
        return planes(node)

    def footprint(self, shapes: Shapes, made: Shape, box: Box) -> Footprint:
        """Return the same channels in input 0, as a whole."""
        image = first(shapes)
        if len(image) < 3 or image[:2] != made[:2] or not is_whole(box[2:], made[2:]):
            raise Uncuttable
        return [(*box[:2], *whole(image[2:])), *(None for _ in shapes[1:])]


@dataclass(slots=True)
class Pool(Planes):
    """Windows that slide over each channel separately."""

    rows: Rows | None = None

    def windows(self, node: Operands) -> tuple[Window, ...]:
        """The rows under the window."""
        return windows_over(node, self.rows)


@dataclass(slots=True)
class Convolution(Operator):
    """A convolution on images; windows are unrolled tile by tile before the product."""

    groups: int = 1
    rows: Rows | None = None

    @property
    def loads(self) -> tuple[int, ...]:
        """Input 0."""
        return (0,)

    def pieces(self, node: Operands) -> Flow | None:
        """Return a piece per image channel if no channel needs another channel, and else any."""
        x = node.x
        if x is not None and len(x.shape) > 2 and x.shape[1] == self.groups > 1:
            return planes(node, is_multiple=True) or any_piece(node)
        return any_piece(node)

    def windows(self, node: Operands) -> tuple[Window, ...]:
        """The rows under the window."""
        return windows_over(node, self.rows)


@dataclass(slots=True)
class Whole(Operator):
    """Any element can be made, from all inputs: transposed convolutions."""

    rows: Rows | None = None

    @property
    def loads(self) -> tuple[int, ...]:
        """Input 0."""
        return (0,)

    def windows(self, node: Operands) -> tuple[Window, ...]:
        """The rows whose products are added up."""
        return windows_over(node, self.rows)

    def pieces(self, node: Operands) -> Flow | None:
        """A piece per element."""
        return any_piece(node)


@dataclass(slots=True)
class Neighbors(Operator):
    """Channels are combined with neighboring channels: local response normalization."""

    below: int
    """Channels before an element's own channel that the element needs."""
    above: int
    """Channels after an element's own channel that the element needs."""

    @property
    def loads(self) -> tuple[int, ...]:
        """Input 0."""
        return (0,)

    def permissions(self, node: Operands) -> Effects:
        """
        Made in order, the output may overlap the input at a distance.

        An element is still needed when that element's result is made: windows reach back.
        """
        x = node.x
        if x is None or x.is_fixed or len(x.shape) < 2 or 0 in x.shape:
            return NO_EFFECTS
        back = min(self.below, x.shape[1] - 1) * prod(x.shape[2:])
        return Effects(overlaps=(Overlap(0, 0, back * BITS[x.dtype] // 8),))

    def pieces(self, node: Operands) -> Flow | None:
        """Return a piece per channel and image, for which other channels are needed, too."""
        return None if node.y is None else Flow(0, prod(node.y.shape[:2]))

    def windows(self, node: Operands) -> tuple[Window, ...]:
        """Return the same rows in input 0."""
        return same_rows((0,))

    def footprint(self, shapes: Shapes, made: Shape, box: Box) -> Footprint:
        """Return the box's channels and neighbors, at the same place in the image."""
        image = first(shapes)
        if len(image) < 3:
            raise Uncuttable
        start, stop = max(box[1].start - self.below, 0), min(box[1].stop + self.above, image[1])
        return [(box[0], slice(start, stop), *box[2:])]


# -- images that are stored pixel by pixel ----------------------------------------------------


class Slide(NamedTuple):
    """A window along a single dimension."""

    stride: int
    before: int
    """Padding before the image's first row or column."""


@dataclass(slots=True)
class Pixelwise(Operator):
    """A window over images ``(N, H, W, C)`` whose kernel makes pixel after pixel."""

    rows: Slide
    columns: Slide

    def permissions(self, node: Operands) -> Effects:
        """The output may overlap the image at a distance."""
        x, y = node.x, node.y
        if x is None or y is None or x.is_fixed:
            return NO_EFFECTS
        if not len(x.shape) == len(y.shape) == 4 or x.shape[0] != y.shape[0]:
            return NO_EFFECTS
        if min(*x.shape, *y.shape) < 1 or min(BITS[x.dtype], BITS[y.dtype]) < 8:
            return NO_EFFECTS
        rows = Side(x.shape[1], y.shape[1], *self.rows)
        columns = Side(x.shape[2], y.shape[2], *self.columns)
        pixels = (x.shape[3] * BITS[x.dtype] // 8, y.shape[3] * BITS[y.dtype] // 8)
        distance = lead(x.shape[0], rows, columns, pixels, BITS[y.dtype] // 8)
        return Effects(overlaps=(Overlap(0, 0, distance),))


@dataclass(slots=True)
class PixelwiseConvolution(Pixelwise):
    """A convolution on ``(N, H, W, C)``; a pixel channel needs all image channels, or just one."""

    unrolls: bool = True
    """Whether windows are unrolled before multiplication."""

    @property
    def loads(self) -> tuple[int, ...]:
        """Return input 0, if unrolled."""
        return (0,) if self.unrolls else ()

    def pieces(self, node: Operands) -> Flow | None:
        """Return that any piece can be made, from all inputs."""
        return any_piece(node)


class Side(NamedTuple):
    """A single image dimension over which windows slide."""

    size: int
    """Image rows, or columns."""
    made: int
    """Output sizes."""
    stride: int
    before: int
    """Padding before the first."""

    def first(self, at: int) -> int:
        """Return the first image index that a window needs."""
        return min(max(at * self.stride - self.before, 0), self.size - 1)

    def bends(self) -> set[int]:
        """Return the windows between which the first index grows evenly."""
        ends = (0, self.before // self.stride, (self.before + self.size - 1) // self.stride)
        near = {end + more for end in ends for more in (0, 1)}
        return {min(at, self.made - 1) for at in near} | {self.made - 1}


def lead(images: int, rows: Side, columns: Side, pixels: tuple[int, int], item: int) -> int:
    """
    Return the most bytes by which writing is ahead of reading.

    A pixel's elements, except the last, are written while the pixel's window is needed. All later
    windows are needed, too, and windows in the next row may begin earlier. The lead grows evenly
    between the ends of the padding, so the lead is largest there.

    Parameters
    ----------
    pixels : tuple of int
        Bytes per image pixel, and per output pixel.
    item : int
        Bytes per output element.
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


PLANES = Planes()
CONVOLUTION = Convolution()
WHOLE = Whole()
