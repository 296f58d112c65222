"""
Samples between pixels: GridSample, RoiAlign, MaxRoiPool.

Positions and weights are made for some samples at a time, in scratch memory, for all channels
together. Each corner of the cell around a sample is one ``np.take``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import product
from math import ceil, floor, prod
from typing import NamedTuple

import numpy as np

from arenaplan.base.errors import fault
from arenaplan.graph import Choice
from arenaplan.run.numpy.kernels.pieces import (
    invalid,
    operand,
    result,
)
from arenaplan.run.numpy.kernels.widen import heavy_kernel
from arenaplan.run.numpy.registry import Run, Scratch, Signature, Step, scratch_bytes

BLOCK = 1 << 16
"""Elements in all channels that are sampled at a time."""


class Sampler:
    """
    Interpolation at positions in an image with any number of spatial axes.

    Parameters
    ----------
    space : sequence of int
        Lengths of the axes.
    channels : int
        Channels that are sampled at a time.
    count : int
        Most samples at a time.
    mode : str
        ``"nearest"``, ``"linear"`` or ``"cubic"``.
    padding : str
        ``"zeros"``, ``"border"`` or ``"reflection"``.
    """

    def __init__(
        self,
        space: Sequence[int],
        channels: int,
        count: int,
        scratch: Scratch,
        dtype: np.dtype,
        *,
        mode: str = "linear",
        padding: str = "zeros",
        align_corners: bool = True,
    ) -> None:
        self.space, self.mode, self.padding = tuple(space), mode, padding
        self.align = align_corners
        self.at = [scratch.array((count,), dtype) for _ in space]
        """Positions along each axis, which callers write."""
        self.base = [scratch.array((count,), dtype) for _ in space]
        self.weight, self.factor, self.spare = (scratch.array((count,), dtype) for _ in range(3))
        self.corner = scratch.array((count,), dtype)
        self.flat, self.index = (scratch.array((count,), np.int64) for _ in range(2))
        self.outside, self.beyond = (scratch.array((count,), np.bool_) for _ in range(2))
        self.taken = scratch.array((channels, count), dtype)

    @staticmethod
    def bytes(rank: int, channels: int, count: int, dtype: np.dtype) -> int:
        """Return a sampler's scratch memory."""
        return (
            (2 * rank + 4) * scratch_bytes((count,), dtype)
            + 2 * scratch_bytes((count,), np.int64)
            + 2 * scratch_bytes((count,), np.bool_)
            + scratch_bytes((channels, count), dtype)
        )

    # -- positions ---------------------------------------------------------------------

    def denormalize(self, count: int) -> None:
        """Turn positions from -1 to 1 into pixels, and apply the padding to outside positions."""
        for axis, length in enumerate(self.space):
            x = self.at[axis][:count]
            if self.align:
                np.add(x, 1, out=x)
                np.multiply(x, x.dtype.type((length - 1) / 2), out=x)
            else:
                np.add(x, 1, out=x)
                np.multiply(x, x.dtype.type(length), out=x)
                np.subtract(x, 1, out=x)
                np.multiply(x, x.dtype.type(0.5), out=x)
            if self.mode == "nearest":
                np.rint(x, out=x)
            if self.mode != "cubic":  # Outside pixels are brought back one by one, as in PyTorch.
                self._pad(x, axis)

    def _pad(self, x: np.ndarray, axis: int) -> None:
        """Bring positions outside the image back, unless zeros are there."""
        length = self.space[axis]
        low, high = (0.0, length - 1.0) if self.align else (-0.5, length - 0.5)
        if self.padding == "border":
            outside = self.outside[: x.size]
            for compare, bound, edge in ((np.less, low, 0), (np.greater, high, length - 1)):
                compare(x, bound, out=outside)
                np.copyto(x, edge, where=outside)
        elif self.padding == "reflection":
            self._reflect(x, low, high)

    def _reflect(self, x: np.ndarray, low: float, high: float) -> None:
        """Mirror positions at both ends, as often as necessary."""
        number, extent = x.dtype.type, high - low
        if extent <= 0:
            x.fill(number(low))
            return
        spare, outside = self.spare[: x.size], self.outside[: x.size]
        np.subtract(x, number(low), out=spare)
        np.absolute(spare, out=spare)  # Even around the lower end, with a period of two extents.
        np.fmod(spare, number(2 * extent), out=spare)
        np.greater(spare, number(extent), out=outside)
        np.subtract(number(2 * extent), spare, out=spare, where=outside)
        np.add(spare, number(low), out=spare)
        # Inside positions stay unchanged, to the last bit.
        np.less(x, number(low), out=outside)
        np.copyto(x, spare, where=outside)
        np.greater(x, number(high), out=outside)
        np.copyto(x, spare, where=outside)

    # -- values ------------------------------------------------------------------------

    def sample(
        self, image: np.ndarray, output: np.ndarray, first: np.ndarray | None = None
    ) -> None:
        """
        Write samples at the positions.

        Parameters
        ----------
        image : array, shape (channels, pixels)
        output : array, shape (channels, samples)
        first : array, shape (images, 1), optional
            The first pixel in each of several images that follow each other, all with equally many
            samples.
        """
        count = output.shape[1]
        shifts = {"nearest": (0,), "linear": (0, 1), "cubic": (-1, 0, 1, 2)}[self.mode]
        for axis in range(len(self.space)):
            x, base = self.at[axis][:count], self.base[axis][:count]
            if self.mode == "nearest":
                np.copyto(base, x)
            else:
                np.floor(x, out=base)
            np.subtract(x, base, out=x)
        output.fill(0)
        for corner in product(shifts, repeat=len(self.space)):
            self._corner(corner, count)
            if first is not None:
                each = self.flat[:count].reshape(len(first), -1)
                np.add(each, first, out=each)
            taken = self.taken[: len(output), :count]
            if count < self.taken.shape[1]:
                taken = self.taken.reshape(-1)[: output.size].reshape(output.shape)
            np.take(image, self.flat[:count], axis=1, out=taken, mode="clip")
            np.multiply(taken, self.weight[:count], out=taken)
            if self.padding == "zeros":  # No weight turns a NaN pixel into zero.
                np.copyto(taken, 0, where=self.beyond[:count])
            np.add(output, taken, out=output)

    def _corner(self, corner: Sequence[int], count: int) -> None:
        """Find the place of one corner for each sample, and the corner's weight."""
        flat, index, weight = self.flat[:count], self.index[:count], self.weight[:count]
        position, outside = self.corner[:count], self.outside[:count]
        flat.fill(0)
        weight.fill(1)
        beyond = self.beyond[:count]
        beyond.fill(False)
        for axis, (shift, length) in enumerate(zip(corner, self.space, strict=True)):
            self._weigh(self.at[axis][:count], shift, weight)
            np.add(self.base[axis][:count], shift, out=position)
            if self.padding == "zeros":
                for compare, bound in ((np.less, 0), (np.greater, length - 1)):
                    compare(position, bound, out=outside)
                    np.logical_or(beyond, outside, out=beyond)
            else:
                self._pad(position, axis)
            np.clip(position, 0, length - 1, out=position)
            np.copyto(index, position, casting="unsafe")
            np.multiply(flat, length, out=flat)
            np.add(flat, index, out=flat)

    def _weigh(self, fraction: np.ndarray, shift: int, weight: np.ndarray) -> None:
        """Multiply by a neighbor's weight along one axis."""
        if self.mode == "nearest":
            return
        factor, number = self.factor[: fraction.size], fraction.dtype.type
        if self.mode == "linear":
            if shift:
                np.multiply(weight, fraction, out=weight)
            else:
                np.subtract(number(1), fraction, out=factor)
                np.multiply(weight, factor, out=weight)
            return
        distance = self.spare[: fraction.size]
        np.subtract(fraction, number(shift), out=distance)
        np.absolute(distance, out=distance)
        # Keys' kernel: two polynomials of degree 3, with a slope of -0.75 at one pixel.
        a = -0.75
        near, far = (a + 2, -(a + 3), 0.0, 1.0), (a, -5 * a, 8 * a, -4 * a)
        first, *others = near if shift in (0, 1) else far
        factor.fill(number(first))
        for coefficient in others:
            np.multiply(factor, distance, out=factor)
            np.add(factor, number(coefficient), out=factor)
        np.multiply(weight, factor, out=weight)


# -- GridSample --------------------------------------------------------------------------------

_MODES = {"bilinear": "linear", "bicubic": "cubic"}


class _Block(NamedTuple):
    """The part that is sampled at once."""

    images: int
    """Images with one channel; other images are sampled one by one."""
    samples: int
    """Samples per image."""


def _grid_block(x: tuple[int, ...], samples: int) -> _Block:
    images, channels = x[:2]
    if channels == 1 and samples <= BLOCK:
        return _Block(max(1, min(images, BLOCK // samples)), samples)
    return _Block(1, max(1, min(samples, BLOCK // max(channels, 1))))


def _declare_grid(signature: Signature) -> Sequence[Sequence[Choice]]:
    x, y = signature.input(0), signature.outputs[0]
    if x is None or y is None or 0 in y.shape or len(x.shape) < 3:
        return []
    block = _grid_block(x.shape, prod(y.shape[2:]))
    count = block.images * block.samples
    return [[Choice(Sampler.bytes(len(x.shape) - 2, x.shape[1], count, x.dtype), 0.0)]]


@heavy_kernel("GridSample", since=16, workspace=_declare_grid)
def grid_sample(step: Step) -> Run | None:
    """Sample an image at the positions in a grid."""
    x, grid, y = operand(step, 0), operand(step, 1), result(step)
    mode = step.attributes.get("mode", "linear")
    mode = _MODES.get(mode, mode)
    padding = step.attributes.get("padding_mode", "zeros")
    if mode not in ("nearest", "linear", "cubic"):
        raise invalid(step, f"mode is {mode!r}")
    if padding not in ("zeros", "border", "reflection"):
        raise invalid(step, f"padding_mode is {padding!r}")
    if y.size == 0:
        return None
    if x.size == 0:
        return partial(y.fill, 0)
    samples = prod(y.shape[2:])
    block = _grid_block(x.shape, samples)
    sampler = Sampler(
        x.shape[2:],
        x.shape[1],
        block.images * block.samples,
        step.scratch(),
        x.dtype,
        mode=mode,
        padding=padding,
        align_corners=bool(step.attributes.get("align_corners", 0)),
    )
    images, outputs = x.reshape(*x.shape[:2], -1), y.reshape(*y.shape[:2], -1)
    grids = grid.reshape(len(grid), samples, -1)
    firsts = np.arange(block.images)[:, None] * images.shape[2]

    def locate(points: np.ndarray) -> None:
        for axis, at in enumerate(reversed(sampler.at)):  # The first number is for columns.
            np.copyto(at[: len(points)], points[:, axis])
        sampler.denormalize(len(points))

    def run_together() -> None:
        for start in range(0, len(images), block.images):
            some = slice(start, start + block.images)
            points = grids[some].reshape(-1, grids.shape[2])
            locate(points)
            image, output = images[some].reshape(1, -1), outputs[some].reshape(1, -1)
            sampler.sample(image, output, firsts[: len(images[some])])

    def run() -> None:
        for image, points, output in zip(images, grids, outputs, strict=True):
            for start in range(0, samples, block.samples):
                stop = min(start + block.samples, samples)
                locate(points[start:stop])
                sampler.sample(image, output[:, start:stop])

    is_whole = x.flags.c_contiguous and y.flags.c_contiguous and grid.flags.c_contiguous
    if block.images > 1 and is_whole:
        return run_together
    return run


# -- regions of interest ---------------------------------------------------------------------


def _align_block(signature: Signature) -> tuple[int, int, int, int, int] | None:
    """Return the channels at a time, and the height, width, rows and columns of RoiAlign."""
    x, y = signature.input(0), signature.outputs[0]
    if x is None or y is None or len(x.shape) != 4 or 0 in (*x.shape, *y.shape):
        return None
    _, channels, height, width = x.shape
    some = max(1, min(channels, BLOCK // (height * y.shape[3])))
    return some, height, width, y.shape[2], y.shape[3]


def _declare_align(signature: Signature) -> Sequence[Sequence[Choice]]:
    sizes, x = _align_block(signature), signature.input(0)
    if sizes is None or x is None:
        return []
    some, height, width, rows, columns = sizes
    shapes: tuple[tuple[int, ...], ...] = (
        (rows, height),
        (columns, width),
        (some, height, columns),
    )
    if signature.attributes.get("mode", "avg") == "max":
        shapes = ((rows * columns,), (x.shape[1], rows * columns))
    size = sum(scratch_bytes(shape, x.dtype) for shape in shapes)
    return [[Choice(size + scratch_bytes((rows * columns,), np.int64), 0.0)]]


@heavy_kernel("RoiAlign", since=10, workspace=_declare_align)
def roi_align(step: Step) -> Run | None:
    """Pool samples in each region, at positions that are not rounded."""
    x, rois, batches, y = operand(step, 0), operand(step, 1), operand(step, 2), result(step)
    mode = step.attributes.get("mode", "avg")
    if mode not in ("avg", "max"):
        raise invalid(step, f"mode is {mode!r}")
    if y.size == 0:
        return None
    if x.size == 0:
        return partial(y.fill, 0)
    pool = _average_pool if mode == "avg" else _max_pool
    default = "output_half_pixel" if step.signature.version < 16 else "half_pixel"
    offset = 0.5
    if step.attributes.get("coordinate_transformation_mode", default) == "output_half_pixel":
        offset = 0.0

    def run() -> None:
        scale = step.attributes.get("spatial_scale", 1.0)
        for roi, batch, output in zip(rois, batches.tolist(), y, strict=True):
            if not 0 <= batch < len(x):
                raise fault(
                    "IndexOutOfRange",
                    f"node {step.signature.name!r} (RoiAlign) has a region of image {batch} "
                    f"of {len(x)}",
                )
            left, top, right, bottom = (
                np.float32(float(edge) * scale - offset) for edge in roi.tolist()
            )
            sides = (
                _side(step, float(top), float(bottom), x.shape[2], y.shape[2], offset),
                _side(step, float(left), float(right), x.shape[3], y.shape[3], offset),
            )
            pool(step, x[batch], sides, output)

    return run


class _Side:
    """Samples along one side of a region."""

    def __init__(self, start: float, size: float, length: int, bins: int, each: int) -> None:
        self.each = each
        at = (np.arange(bins * each) + 0.5) * (size / max(bins * each, 1)) + start
        outside = (at < -1) | (at > length)
        at = np.clip(at, 0, None)
        low = np.minimum(at.astype(np.int64), length - 1)
        at = np.where(low >= length - 1, low, at)
        self.low, self.high = low, np.minimum(low + 1, length - 1)
        fraction = at - low
        self.weights = np.where(outside, 0, 1 - fraction), np.where(outside, 0, fraction)


def _side(step: Step, start: float, stop: float, length: int, bins: int, offset: float) -> _Side:
    size = stop - start if offset else max(stop - start, 1.0)
    each = int(step.attributes.get("sampling_ratio", 0)) or max(ceil(size / bins), 0)
    return _Side(start, size, length, bins, each)


def _average_pool(
    step: Step, image: np.ndarray, sides: tuple[_Side, _Side], output: np.ndarray
) -> None:
    """Multiply the image by the weights of rows and columns that each bin averages."""
    rows, columns = sides
    if not rows.each or not columns.each:
        output.fill(0)
        return
    scratch = step.scratch()
    sizes = _align_block(step.signature)
    assert sizes is not None
    some, height, width, made_rows, made_columns = sizes
    tall = scratch.array((made_rows, height), image.dtype)
    wide = scratch.array((made_columns, width), image.dtype)
    spans = []
    for side, weights in ((rows, tall), (columns, wide)):
        weights.fill(0)
        bins = np.repeat(np.arange(len(weights)), side.each)
        for index, weight in zip((side.low, side.high), side.weights, strict=True):
            np.add.at(weights, (bins, index), weight / side.each)
        spans.append(slice(int(side.low.min()), int(side.high.max()) + 1))
    across, down = spans[1], spans[0]
    for start in range(0, len(image), some):
        part = image[start : start + some, down, across]
        between = scratch.rest().array((len(part), part.shape[1], made_columns), image.dtype)
        np.matmul(part, wide[:, across].T, out=between)
        np.matmul(tall[:, down], between, out=output[start : start + some])


def _max_pool(
    step: Step, image: np.ndarray, sides: tuple[_Side, _Side], output: np.ndarray
) -> None:
    """Take the largest of all sample corners, each times its weight."""
    rows, columns = sides
    channels, made_rows, made_columns = output.shape
    if not rows.each or not columns.each:
        output.fill(0)
        return
    scratch = step.scratch()
    index = scratch.array((made_rows, made_columns), np.int64)
    weight = scratch.array((made_rows, made_columns), image.dtype)
    taken = scratch.array((channels, made_rows, made_columns), image.dtype)
    flat = image.reshape(channels, -1)
    output.fill(-np.inf)
    corners = list(product(((rows.low, 0), (rows.high, 1)), ((columns.low, 0), (columns.high, 1))))
    for down, across in product(range(rows.each), range(columns.each)):
        for (row, top), (column, left) in corners:
            row_weight = rows.weights[top][down :: rows.each]
            column_weight = columns.weights[left][across :: columns.each]
            np.multiply(row[down :: rows.each, None], image.shape[2], out=index)
            np.add(index, column[None, across :: columns.each], out=index)
            np.multiply(row_weight[:, None], column_weight, out=weight, casting="same_kind")
            np.take(flat, index, axis=1, out=taken, mode="clip")
            np.multiply(taken, weight, out=taken)
            np.maximum(output, taken, out=output)


@heavy_kernel("MaxRoiPool")
def max_roi_pool(step: Step) -> Run | None:
    """Take the largest element in each bin of each region, at rounded positions."""
    x, rois, y = operand(step, 0), operand(step, 1), result(step)
    scale = step.attributes.get("spatial_scale", 1.0)

    def run() -> None:
        for roi, output in zip(rois.tolist(), y, strict=True):
            batch = int(roi[0])
            if not 0 <= batch < len(x):
                raise fault(
                    "IndexOutOfRange",
                    f"node {step.signature.name!r} (MaxRoiPool) has a region of image {batch} "
                    f"of {len(x)}",
                )
            left, top, right, bottom = (floor(edge * scale + 0.5) for edge in roi[1:])
            down = list(_bins(top, bottom, y.shape[2], x.shape[2]))
            across = list(_bins(left, right, y.shape[3], x.shape[3]))
            for (row, rows), (column, columns) in product(enumerate(down), enumerate(across)):
                part, target = x[batch, :, rows, columns], output[:, row, column]
                if part.size:
                    np.maximum.reduce(part, (1, 2), None, target)
                else:
                    target.fill(0)

    return run if y.size else None


def _bins(first: int, last: int, count: int, length: int) -> Iterator[slice]:
    """Yield the elements in each bin of a region, which includes both edges."""
    size = np.float32(max(last - first + 1, 1)) / np.float32(count)
    for at in range(count):
        start, stop = floor(at * size) + first, ceil((at + 1) * size) + first
        yield slice(min(max(start, 0), length), min(max(stop, 0), length))
