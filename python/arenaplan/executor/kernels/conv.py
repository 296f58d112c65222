"""
Convolution as matrix multiplication, a tile of the image at a time.

The windows of a few output rows are copied into a matrix of one column per output
element, and BLAS multiplies the weights by it, straight into the output. A matrix
of about a megabyte stays in cache and is as fast as one for the whole image.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import NamedTuple

import numpy as np

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

    def padded_shape(self, tile: Tile) -> tuple[int, ...]:
        """Return the shape of the padded input of one tile."""
        first = self.axes[0]
        reach = (tile.rows - 1) * first.stride + first.extent
        return (tile.groups * self.fan_in, reach, *(axis.padded for axis in self.axes[1:]))

    def matrix_shape(self, tile: Tile) -> tuple[int, int, int]:
        """Return the shape of the unrolled matrices of one tile, with a row for the bias."""
        return (tile.groups, self.depth + 1, tile.rows * self.row)

    def bytes(self, tile: Tile) -> int:
        """Return the workspace that a tile takes."""
        padded = self.padded_shape(tile) if self.is_padded else (0,)
        return sum(
            -(-prod(shape) * self.item // 64) * 64 for shape in (padded, self.matrix_shape(tile))
        )

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
        columns = self.batch * self.rows * self.row
        flops = 2 * weights * (columns + _PACKING * packings)
        copied = self.groups * self.depth * columns
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
        work = _direct(sizes, image, matrix, output)
    else:
        work = _unrolled(step, sizes, image, matrix, output)
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


def _direct(
    sizes: Geometry, image: np.ndarray, matrix: np.ndarray, output: np.ndarray
) -> Iterator[Run]:
    """Yield the step where the image needs no unrolling."""
    shape = (sizes.batch, sizes.groups)
    columns = image.reshape(*shape, sizes.depth, -1)
    target = output.reshape(*shape, sizes.fan_out, -1)
    if shape == (1, 1):
        yield partial(np.matmul, matrix[0], columns[0, 0], target[0, 0])
    else:
        yield partial(np.matmul, matrix, columns, target)


def _unrolled(
    step: Step, sizes: Geometry, image: np.ndarray, matrix: np.ndarray, output: np.ndarray
) -> Iterator[Run]:
    """Yield the steps of unrolling and multiplying, tile by tile."""
    tile = sizes.tile(step.workspaces[0].nbytes)
    scratch = step.scratch()
    has_bias = matrix.shape[2] > sizes.depth
    padded = None
    if sizes.is_padded:
        padded = scratch.array(sizes.padded_shape(tile), image.dtype)
        yield partial(padded.fill, 0)
    memory = scratch.array((prod(sizes.matrix_shape(tile)),), image.dtype)
    target = output.reshape(sizes.batch, sizes.groups, sizes.fan_out, -1)
    for n in range(sizes.batch):
        for group in range(0, sizes.groups, tile.groups):
            groups = min(tile.groups, sizes.groups - group)
            channels = image[n, group * sizes.fan_in : (group + groups) * sizes.fan_in]
            for row in range(0, sizes.rows, tile.rows):
                rows = min(tile.rows, sizes.rows - row)
                count = rows * sizes.row
                shape = (groups, sizes.depth + has_bias, count)
                unrolled = memory[: prod(shape)].reshape(shape)
                yield from _unroll(sizes, channels, padded, row, rows, unrolled)
                if has_bias:
                    yield partial(unrolled[:, -1].fill, 1)
                operands = (
                    matrix[group : group + groups],
                    unrolled,
                    target[n, group : group + groups, :, row * sizes.row :][..., :count],
                )
                if groups == 1:
                    yield partial(np.matmul, *(each[0] for each in operands))
                else:
                    yield partial(np.matmul, *operands)


def _unroll(
    sizes: Geometry,
    channels: np.ndarray,
    padded: np.ndarray | None,
    row: int,
    rows: int,
    unrolled: np.ndarray,
) -> Iterator[Run]:
    """Yield what copies the windows of some output rows into the columns of a matrix."""
    first, others = sizes.axes[0], sizes.axes[1:]
    start = row * first.stride - first.before
    stop = start + (rows - 1) * first.stride + first.extent
    if padded is None:
        source = channels[:, start:stop]
    else:
        source = padded[: channels.shape[0], : stop - start]
        low, high = max(start, 0), max(min(stop, first.size), 0)
        low = min(low, high)
        inside = tuple(slice(axis.before, axis.before + axis.size) for axis in others)
        if low > start:
            yield partial(source[:, : low - start].fill, 0)
        if high > low:
            rows_inside = source[:, low - start : high - start]
            yield partial(
                np.copyto, rows_inside[(slice(None), slice(None), *inside)], channels[:, low:high]
            )
        if stop > high:
            yield partial(source[:, max(high - start, 0) :].fill, 0)
    view = windows(source, sizes.axes, [rows, *(axis.out for axis in others)])
    groups = unrolled.shape[0]
    shape = (groups, sizes.fan_in, *view.shape[1:])
    steps = (view.strides[0] * sizes.fan_in, *view.strides)
    yield partial(
        np.copyto,
        unrolled[:, : sizes.depth].reshape(shape),
        np.lib.stride_tricks.as_strided(view, shape, steps),
    )
