"""
Image operators: sliding windows, and separate channels.

Images are arrays ``(N, C, …)``, or ``(N, H, W, C)`` where documented. The latter are stored and
made row by row, and rows pixel by pixel. Each element is written at once, while the pixel's window
is still needed. Bytes before that window, and in earlier rows, are not needed any more, so the
output may overlap the image at a distance.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any, NamedTuple, TypeAlias

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


class Slide(NamedTuple):
    """How a window slides along one dimension: as a :class:`~arenaplan.graph.Window`."""

    extent: int
    stride: int
    before: int
    scale: int = 1


class Axis(NamedTuple):
    """One dimension of an image over which a window slides."""

    size: int
    """Input length."""
    out: int
    """Number of window positions."""
    kernel: int
    """Elements under the window."""
    stride: int = 1
    dilation: int = 1
    before: int = 0
    """Padding in front."""
    after: int = 0
    """Padding behind, as declared."""
    skipped: int = 0
    """Declared window elements ahead of the first element under this window."""

    @property
    def extent(self) -> int:
        """Length from a window's first element to its last, inclusive."""
        return (self.kernel - 1) * self.dilation + 1

    @property
    def padded(self) -> int:
        """Length that windows reach over, at least the input behind its padding."""
        return max(self.before + self.size, self.under(self.out))

    @property
    def is_padded(self) -> bool:
        """Whether windows reach beyond the input."""
        return self.before > 0 or self.padded > self.before + self.size

    def under(self, count: int) -> int:
        """Return the length, with padding, under ``count`` neighboring windows."""
        return (count - 1) * self.stride + self.extent

    def first(self, position: int) -> int:
        """Return the first input index that a window needs."""
        return min(max(position * self.stride - self.before, 0), self.size - 1)

    def bends(self) -> set[int]:
        """Return the positions between which the first index grows evenly."""
        ends = (0, self.before // self.stride, (self.before + self.size - 1) // self.stride)
        near = {end + more for end in ends for more in (0, 1)}
        return {min(at, self.out - 1) for at in near} | {self.out - 1}

    def within(self, position: int, low: int, high: int) -> int:
        """Return how many elements under the window have indices in ``[low, high)``."""
        start = position * self.stride - self.before
        first = max(0, -((start - low) // self.dilation))
        stop = min(self.kernel, -((start - high) // self.dilation))
        return max(0, stop - first)

    @property
    def trimmed(self) -> Axis:
        """The same windows without leading and trailing elements that are never in the input."""
        outside = -(((self.out - 1) * self.stride - self.before) // self.dilation)
        # No window may begin behind the input's first element.
        skipped = max(0, min(outside, self.before // self.dilation, self.kernel - 1))
        before = self.before - skipped * self.dilation
        reached = -(-(self.size + before) // self.dilation)
        kernel = max(1, min(self.kernel - skipped, reached))
        return self._replace(kernel=kernel, before=before, skipped=self.skipped + skipped)

    def positions(self, tap: int) -> tuple[int, int]:
        """Return the range of window positions whose element ``tap`` is inside the input."""
        offset = tap * self.dilation - self.before
        first = max(0, -(offset // self.stride))
        last = (self.size - 1 - offset) // self.stride
        return first, max(first, min(self.out, last + 1))

    def reads(self, tap: int, first: int, stop: int) -> slice:
        """Return the input elements that window positions ``[first, stop)`` have at ``tap``."""
        start = first * self.stride + tap * self.dilation - self.before
        return slice(start, start + (stop - first - 1) * self.stride + 1, self.stride)


Index: TypeAlias = "tuple[Any, ...]"
"""An index per axis."""


def taps(axes: Sequence[Axis]) -> Iterator[tuple[Index, Index, Index]]:
    """
    Yield the elements under a window that are inside the input for some positions.

    Each comes with the input elements, and the window positions that have these elements there.
    """
    for tap in product(*(range(axis.kernel) for axis in axes)):
        spans = [axis.positions(t) for axis, t in zip(axes, tap, strict=True)]
        if all(low < high for low, high in spans):
            read = [axis.reads(t, *span) for axis, t, span in zip(axes, tap, spans, strict=True)]
            yield tap, tuple(read), tuple(slice(*span) for span in spans)


def same_padding(size: int, stride: int, extent: int) -> int:
    """Return the padding on both sides with which ``ceil(size / stride)`` windows fit."""
    return max((-(-size // stride) - 1) * stride + extent - size, 0)


def windows_over(node: Operands, rows: Slide | None) -> tuple[Window, ...]:
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

    rows: Slide | None = None

    def windows(self, node: Operands) -> tuple[Window, ...]:
        """The rows under the window."""
        return windows_over(node, self.rows)


@dataclass(slots=True)
class Convolution(Operator):
    """A convolution on images; windows are unrolled tile by tile before the product."""

    groups: int = 1
    rows: Slide | None = None

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

    rows: Slide | None = None

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
        rows, columns = (
            Axis(x.shape[at], y.shape[at], slide.extent, slide.stride, before=slide.before)
            for at, slide in ((1, self.rows), (2, self.columns))
        )
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


def lead(images: int, rows: Axis, columns: Axis, pixels: tuple[int, int], item: int) -> int:
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
                place = row * columns.out + column
                needed = (image * rows.size * columns.size + window) * read
                done = (image * rows.out * columns.out + place + 1) * written
                worst = max(worst, done - item - needed)
    return worst


PLANES = Planes()
CONVOLUTION = Convolution()
WHOLE = Whole()
