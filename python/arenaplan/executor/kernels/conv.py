"""
Convolution as matrix multiplication, a tile of the image at a time.

The windows of a few output rows are copied into a matrix of one column per output
element, and BLAS multiplies the weights by it, straight into the output. A matrix
of about a megabyte stays in cache and is as fast as one for the whole image.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import as_strided

from arenaplan.errors import ShapeMismatch
from arenaplan.executor.epilogue import Stages, finish
from arenaplan.executor.kernels.pieces import in_sequence, operand, result
from arenaplan.executor.kernels.widen import heavy_kernel
from arenaplan.executor.kernels.windows import Axis, window_axes, windows
from arenaplan.executor.registry import Run, Signature, Step, Tensor
from arenaplan.graph import Choice

_TILES = (0, 1 << 17, 1 << 18, 1 << 19, 1 << 20, 1 << 21, 1 << 22)
"""Workspace sizes to offer, in bytes; the first stands for the least that works."""
_WORTHWHILE = 0.98
"""A larger workspace is offered if it takes at most this much of the time."""
_TILE_CALLS = 4e3
"""Nanoseconds that the calls for one tile take."""
_FLOPS, _COPIED = 200.0, 10.0
"""Multiply-adds doubled, and elements copied, per nanosecond."""
_PACKING = 14
"""Columns in which BLAS could compute instead of repacking the weights for a tile."""


class Tile(NamedTuple):
    """How much is unrolled at once."""

    groups: int
    rows: int


@dataclass(frozen=True)
class Geometry:
    """All sizes of a convolution."""

    batch: int
    groups: int
    fan_in: int
    """Input channels per group."""
    fan_out: int
    """Output channels per group."""
    axes: list[Axis]
    item: int
    """Bytes of an element."""

    @property
    def taps(self) -> int:
        """Elements under the window."""
        return prod(axis.kernel for axis in self.axes)

    @property
    def depth(self) -> int:
        """Rows of the unrolled matrix of one group, without the one for the bias."""
        return self.fan_in * self.taps

    @property
    def row(self) -> int:
        """Output elements in one row: all positions that share the first coordinate."""
        return prod(axis.out for axis in self.axes[1:])

    @property
    def rows(self) -> int:
        """Output rows."""
        return self.axes[0].out

    @property
    def is_padded(self) -> bool:
        """Whether windows reach beyond the image."""
        return any(axis.is_padded for axis in self.axes)

    @property
    def is_direct(self) -> bool:
        """Whether the image is the unrolled matrix already."""
        pointwise = all(axis.kernel == 1 and axis.stride == 1 for axis in self.axes)
        single = all(axis.extent == axis.kernel == axis.size for axis in self.axes)
        return (pointwise or single) and not self.is_padded

    @property
    def is_flat(self) -> bool:
        """
        Whether positions across the ends of rows are computed as well, and left out later.

        The elements of all windows at one tap then are one contiguous piece of the padded
        image, and copying them is several times faster. That decides where there is next
        to nothing to multiply, as in depthwise convolution.
        """
        return self.fan_in == 1 and self.fan_out <= 4 and all(a.stride == 1 for a in self.axes)

    @property
    def pitch(self) -> int:
        """Elements of the padded image from one row to the next."""
        return prod(axis.padded for axis in self.axes[1:])

    def columns(self, rows: int) -> int:
        """Return how many windows some rows have, with those across the ends of rows if flat."""
        if not self.is_flat:
            return rows * self.row
        last, pitch = 0, 1
        for axis, out in reversed([*zip(self.axes, [rows, *self.outs[1:]], strict=True)]):
            last += (out - 1) * pitch
            pitch *= axis.padded
        return last + 1

    @property
    def outs(self) -> list[int]:
        """Spatial dimensions of the output."""
        return [axis.out for axis in self.axes]

    def padded_shape(self, tile: Tile) -> tuple[int, ...]:
        """Return the shape of the padded input of one tile."""
        first = self.axes[0]
        reach = (tile.rows - 1) * first.stride + first.extent
        return (tile.groups * self.fan_in, reach, *(axis.padded for axis in self.axes[1:]))

    def matrix_shape(self, tile: Tile) -> tuple[int, int, int]:
        """Return the shape of the unrolled matrices of one tile, with a row for the bias."""
        return (tile.groups, self.depth + 1, self.columns(tile.rows))

    def result_shape(self, tile: Tile) -> tuple[int, ...]:
        """Return the shape of a flat tile's result."""
        inner = (axis.padded for axis in self.axes[1:])
        return (tile.groups, self.fan_out, tile.rows, *inner)

    def bytes(self, tile: Tile) -> int:
        """Return the workspace that a tile takes."""
        shapes: list[tuple[int, ...]] = [self.matrix_shape(tile)]
        if self.is_padded:
            shapes.append(self.padded_shape(tile))
        if self.is_flat:
            shapes.append(self.result_shape(tile))
        return sum(-(-prod(shape) * self.item // 64) * 64 for shape in shapes)

    def tile(self, limit: int) -> Tile:
        """
        Return the largest tile within ``limit`` bytes, or the smallest there is.

        Whole images of several groups come before parts of the image of one. Of tiles
        that divide the work into equally many, the smallest is taken.
        """
        if self.bytes(Tile(1, self.rows)) <= limit:
            most = _largest(self.groups, lambda n: self.bytes(Tile(n, self.rows)) <= limit)
            return Tile(_even(self.groups, most), self.rows)
        most = _largest(self.rows, lambda n: self.bytes(Tile(1, n)) <= limit)
        return Tile(1, _even(self.rows, most))

    def cost(self, tile: Tile) -> float:
        """Return about how many nanoseconds a run takes."""
        tiles = self.batch * -(-self.groups // tile.groups) * -(-self.rows // tile.rows)
        weights = self.groups * self.fan_out * self.depth
        packings = self.batch * -(-self.rows // tile.rows)
        columns = self.batch * self.columns(self.rows)
        flops = 2 * weights * (columns + _PACKING * packings)
        copied = self.groups * self.depth * columns / (4 if self.is_flat else 1)
        return flops / _FLOPS + copied / _COPIED + tiles * _TILE_CALLS


def _largest(limit: int, fits: Callable[[int], bool]) -> int:
    """Return the largest number in ``[1, limit]`` that fits, given that all smaller ones do."""
    low, high = 1, limit
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low


def _even(total: int, most: int) -> int:
    """Return the smallest part that divides ``total`` into as few parts as ``most`` does."""
    return -(-total // -(-total // most))


def geometry(signature: Signature) -> Geometry:
    """
    Return the sizes of a Conv node.

    Raises
    ------
    ShapeMismatch
        If image, weights and groups contradict each other.
    """
    image, weights, output = signature.input(0), signature.input(1), signature.outputs[0]
    groups = signature.attributes.get("group", 1)
    if (
        image is None
        or weights is None
        or output is None
        or not _agree(image, weights, output, groups)
    ):
        raise ShapeMismatch(
            f"node {signature.name!r} (Conv): image, weights and output contradict each other"
        )
    return Geometry(
        image.shape[0],
        groups,
        weights.shape[1],
        weights.shape[0] // groups,
        window_axes(signature, weights.shape[2:]),
        image.dtype.itemsize,
    )


def _agree(image: Tensor, weights: Tensor, output: Tensor, groups: int) -> bool:
    """Whether the shapes are those of one convolution."""
    rank = len(weights.shape)
    return (
        rank >= 3
        and len(image.shape) == len(output.shape) == rank
        and groups >= 1
        and image.shape[1] == weights.shape[1] * groups
        and weights.shape[0] % groups == 0
        and output.shape[:2] == (image.shape[0], weights.shape[0])
    )


def _declare(signature: Signature) -> Sequence[Sequence[Choice]]:
    """Offer tiles of several sizes; none is larger than pays."""
    sizes = geometry(signature)
    output = signature.outputs[0]
    if sizes.is_direct or output is None or 0 in output.shape:
        return []
    choices: list[Choice] = []
    for limit in _TILES:
        tile = sizes.tile(limit)
        choice = Choice(sizes.bytes(tile), sizes.cost(tile))
        if not choices or choice.cost < choices[-1].cost * _WORTHWHILE:
            choices.append(choice)
    return [choices]


@heavy_kernel("Conv", workspace=_declare, epilogue=True)
def conv(step: Step) -> Run | None:
    """Multiply the weights by the unrolled image."""
    image, weights, output = operand(step, 0), operand(step, 1), result(step)
    if output.size == 0:
        return None
    sizes = geometry(step.signature)
    stages = Stages(step)
    bias = step.input(2)
    load = step.signature.constant
    if load[1] is None or (bias is not None and load[2] is None):
        matrix = weights.reshape(sizes.groups, sizes.fan_out, sizes.depth)
        if bias is not None:
            stages.add_bias(bias)
    else:
        matrix, shift = _folded(sizes, weights, bias, stages)
        if shift is not None:
            if sizes.is_direct:
                stages.add_bias(shift)
            else:
                column = shift.reshape(sizes.groups, sizes.fan_out, 1)
                matrix = np.concatenate([matrix, column], axis=2)
    if sizes.is_direct:
        work = [_direct(sizes, image, matrix, output)]
    else:
        work = [*_unrolled(step, sizes, image, matrix, output)]
    return in_sequence(*work, *finish(output, stages))


def _folded(
    sizes: Geometry, weights: np.ndarray, bias: np.ndarray | None, stages: Stages
) -> tuple[np.ndarray, np.ndarray | None]:
    """Return weights and bias with a following scale and shift per channel worked in."""
    scale, shift = stages.take_channel_affine()
    matrix = weights.reshape(sizes.groups, sizes.fan_out, sizes.depth)
    if scale is not None:
        matrix = matrix * scale.reshape(sizes.groups, sizes.fan_out, 1)
        bias = None if bias is None else bias * scale
    if shift is not None:
        bias = shift if bias is None else bias + shift
    return matrix, bias


def _direct(sizes: Geometry, image: np.ndarray, matrix: np.ndarray, output: np.ndarray) -> Run:
    """Return the product where the image needs no unrolling."""
    shape = (sizes.batch, sizes.groups)
    columns = image.reshape(*shape, sizes.depth, -1)
    target = output.reshape(*shape, sizes.fan_out, -1)
    if shape == (1, 1):
        return partial(np.matmul, matrix[0], columns[0, 0], target[0, 0])
    return partial(np.matmul, matrix, columns, target)


def _unrolled(
    step: Step, sizes: Geometry, image: np.ndarray, matrix: np.ndarray, output: np.ndarray
) -> Iterator[Run]:
    """Yield the steps of unrolling and multiplying, tile by tile."""
    tile = sizes.tile(step.workspaces[0].nbytes)
    scratch = step.scratch()
    has_bias = matrix.shape[2] > sizes.depth
    padded = flat = None
    if sizes.is_padded:
        padded = scratch.array(sizes.padded_shape(tile), image.dtype)
        yield partial(padded.fill, 0)
    if sizes.is_flat:
        flat = scratch.array(sizes.result_shape(tile), image.dtype)
    memory = scratch.array((prod(sizes.matrix_shape(tile)),), image.dtype)
    target = output.reshape(sizes.batch, sizes.groups, sizes.fan_out, *sizes.outs)
    for n in range(sizes.batch):
        for group in range(0, sizes.groups, tile.groups):
            some = slice(group, min(group + tile.groups, sizes.groups))
            groups = some.stop - group
            channels = image[n, group * sizes.fan_in : some.stop * sizes.fan_in]
            for row in range(0, sizes.rows, tile.rows):
                rows = min(tile.rows, sizes.rows - row)
                shape = (groups, sizes.depth + has_bias, sizes.columns(rows))
                unrolled = memory[: prod(shape)].reshape(shape)
                source = yield from _padded_rows(sizes, channels, padded, row, rows)
                yield _unroll(sizes, source, rows, unrolled)
                if has_bias:
                    yield partial(unrolled[:, -1].fill, 1)
                part = target[n, some, :, row : row + rows]
                into = part if flat is None else flat[:groups, :, :rows]
                products = _matrices(into, shape[2])
                yield _multiply(matrix[some], unrolled, products)
                if flat is not None:
                    wanted = tuple(slice(0, out) for out in (rows, *sizes.outs[1:]))
                    yield partial(np.copyto, part, into[(slice(None), slice(None), *wanted)])


def _matrices(images: np.ndarray, columns: int) -> np.ndarray:
    """Return the first elements of each channel as the rows of matrices, one per group."""
    groups, channels = images.shape[:2]
    return as_strided(images, (groups, channels, columns), (*images.strides[:2], images.itemsize))


def _multiply(a: np.ndarray, b: np.ndarray, out: np.ndarray) -> Run:
    """Return what multiplies matrices, or stacks of them."""
    if len(out) == 1:
        return partial(np.matmul, a[0], b[0], out[0])
    return partial(np.matmul, a, b, out)


def _padded_rows(
    sizes: Geometry, channels: np.ndarray, padded: np.ndarray | None, row: int, rows: int
) -> Generator[Run, None, np.ndarray]:
    """Yield what pads the input of some output rows, and return it."""
    first, others = sizes.axes[0], sizes.axes[1:]
    start = row * first.stride - first.before
    stop = start + (rows - 1) * first.stride + first.extent
    if padded is None:
        return channels[:, start:stop]
    source = padded[: len(channels), : stop - start]
    low, high = max(start, 0), max(min(stop, first.size), 0)
    low = min(low, high)
    if low > start:
        yield partial(source[:, : low - start].fill, 0)
    if high > low:
        inside = tuple(slice(axis.before, axis.before + axis.size) for axis in others)
        interior = source[(slice(None), slice(low - start, high - start), *inside)]
        yield partial(np.copyto, interior, channels[:, low:high])
    if stop > high:
        yield partial(source[:, max(high - start, 0) :].fill, 0)
    return source


def _unroll(sizes: Geometry, source: np.ndarray, rows: int, unrolled: np.ndarray) -> Run:
    """Return what copies the windows of some output rows into the columns of a matrix."""
    view = windows(source, sizes.axes, [rows, *sizes.outs[1:]])
    if sizes.is_flat:
        kernel = 1 + len(sizes.axes)
        shape = (*view.shape[:kernel], unrolled.shape[2])
        view = as_strided(view, shape, (*view.strides[:kernel], view.itemsize))
    groups = len(unrolled)
    shape = (groups, sizes.fan_in, *view.shape[1:])
    steps = (view.strides[0] * sizes.fan_in, *view.strides)
    target = unrolled[:, : sizes.depth].reshape(shape)
    return partial(np.copyto, target, as_strided(view, shape, steps))
