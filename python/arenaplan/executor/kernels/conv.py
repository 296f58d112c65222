"""
Convolution as matrix multiplication, a tile of the image at a time.

The windows of a few output rows are copied into a matrix of one column per output
element, and BLAS multiplies the weights by it, straight into the output. A matrix
of about a megabyte stays in cache and is as fast as one for the whole image.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from math import prod
from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import as_strided

from arenaplan.errors import ShapeMismatch
from arenaplan.executor.kernels.pieces import in_sequence, operand, result
from arenaplan.executor.kernels.widen import heavy_kernel
from arenaplan.executor.kernels.windows import Axis, window_axes, windows
from arenaplan.executor.registry import (
    Box,
    Guests,
    Run,
    Scratch,
    Signature,
    Step,
    Tensor,
    scratch_bytes,
)
from arenaplan.graph import Choice

_TILES = (0, 1 << 17, 1 << 18, 1 << 19, 1 << 20, 1 << 21, 1 << 22)
"""Workspace sizes to offer, in bytes; the first stands for the least that works."""
_WORTHWHILE = 0.98
"""A larger workspace is offered if it takes at most this much of the time."""
_CACHED = 1 << 16
"""Elements of output that are finished while they are in cache."""
_NOTHING = np.empty(0, np.uint8)
_TILE_CALLS = 4e3
"""Nanoseconds that the calls for one tile take."""
_FLOPS, _COPIED = 200.0, 10.0
"""Multiply-adds doubled, and elements copied, per nanosecond."""
_LOADED = 4
"""How often an element could be copied while it is computed."""
_PACKING = 14
"""Columns in which BLAS could compute instead of repacking the weights for a tile."""


class Tile(NamedTuple):
    """How much is unrolled at once."""

    groups: int
    rows: int


class Area(NamedTuple):
    """What one tile makes."""

    n: int
    groups: slice
    rows: slice


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
    dtype: np.dtype
    guests: Guests | None
    """What is done to tiles besides."""

    @cached_property
    def taps(self) -> int:
        """Elements under the window."""
        return prod(axis.kernel for axis in self.axes)

    @cached_property
    def depth(self) -> int:
        """Rows of the unrolled matrix of one group, without the one for the bias."""
        return self.fan_in * self.taps

    @cached_property
    def row(self) -> int:
        """Output elements in one row: all positions that share the first coordinate."""
        return prod(axis.out for axis in self.axes[1:])

    @cached_property
    def rows(self) -> int:
        """Output rows."""
        return self.axes[0].out

    @cached_property
    def is_padded(self) -> bool:
        """Whether windows reach beyond the image."""
        return any(axis.is_padded for axis in self.axes)

    @cached_property
    def is_direct(self) -> bool:
        """Whether the image is the unrolled matrix already."""
        pointwise = all(axis.kernel == 1 and axis.stride == 1 for axis in self.axes)
        single = all(axis.extent == axis.kernel == axis.size for axis in self.axes)
        return (pointwise or single) and not self.is_padded

    @cached_property
    def loads(self) -> bool:
        """Whether the image is computed while it is loaded."""
        return self.guests is not None and self.guests.loads

    @cached_property
    def needs_tile(self) -> bool:
        """Whether results must not be written to the output before they are finished."""
        return self.guests is not None and self.guests.needs_tile

    @cached_property
    def is_copied(self) -> bool:
        """Whether tiles of the image are copied, padded or computed, before they are unrolled."""
        return self.is_padded or self.loads

    @cached_property
    def is_tiled(self) -> bool:
        """Whether there is a reason not to multiply everything at once."""
        return not self.is_direct or self.loads or self.finishes_tiles

    @cached_property
    def finishes_tiles(self) -> bool:
        """Whether each tile is finished before the next; otherwise all are, at the end."""
        guests = self.guests
        return self.is_flat or (guests is not None and (guests.needs_tile or guests.needs_scratch))

    @cached_property
    def is_flat(self) -> bool:
        """
        Whether positions across the ends of rows are computed as well, and left out later.

        The elements of all windows at one tap then are one contiguous piece of the padded
        image, and copying them is several times faster. That decides where there is next
        to nothing to multiply, as in depthwise convolution.
        """
        if self.is_direct or self.fan_in > 1 or self.fan_out > 4:
            return False
        return all(axis.stride == 1 for axis in self.axes)

    @cached_property
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

    @cached_property
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

    def box(self, n: int, groups: slice, rows: slice) -> Box:
        """Return the part of the output that a tile makes."""
        channels = slice(groups.start * self.fan_out, groups.stop * self.fan_out)
        return (slice(n, n + 1), channels, rows, *(slice(0, out) for out in self.outs[1:]))

    def reach(self, rows: slice) -> tuple[int, int]:
        """Return the first row of the image under the windows of some rows, and how many are."""
        first = self.axes[0]
        count = (rows.stop - rows.start - 1) * first.stride + first.extent
        return rows.start * first.stride - first.before, count

    def part(self, n: int, groups: slice, rows: slice) -> Box:
        """Return the part of the image that such a tile needs; padding is not of it."""
        channels = slice(groups.start * self.fan_in, groups.stop * self.fan_in)
        first, (start, reach) = self.axes[0], self.reach(rows)
        high = max(min(start + reach, first.size), 0)
        inside = slice(min(max(start, 0), high), high)
        return (slice(n, n + 1), channels, inside, *(slice(0, a.size) for a in self.axes[1:]))

    def bytes(self, tile: Tile) -> int:
        """Return the workspace that a tile takes."""
        groups, rows = slice(0, tile.groups), slice(0, tile.rows)
        shapes: list[tuple[int, ...]] = []
        if not self.is_direct:
            shapes.append(self.matrix_shape(tile))
        if self.is_copied:
            shapes.append(self.padded_shape(tile))
        if self.is_flat:
            shapes.append(self.result_shape(tile))
        elif self.needs_tile:
            shapes.append((tile.groups, self.fan_out, tile.rows, *self.outs[1:]))
        besides = 0
        if self.guests is not None:
            padded = self.padded_shape(tile)
            part = (slice(0, 1), *(slice(0, size) for size in padded)) if self.loads else ()
            besides = self.guests.load_bytes(part) if self.loads else 0
            if self.guests.needs_scratch:
                besides = max(besides, self.guests.bytes(self.box(0, groups, rows)))
        return besides + sum(scratch_bytes(shape, self.dtype) for shape in shapes)

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
        if self.is_direct:
            copied = 0.0
        if self.loads:
            copied += _LOADED * tiles * prod(self.padded_shape(tile))
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
        image.dtype,
        signature.guests,
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
    if output is None or 0 in output.shape:
        return []
    if not sizes.is_tiled:
        return []
    choices: list[Choice] = []
    for limit in _TILES:
        tile = sizes.tile(limit)
        choice = Choice(sizes.bytes(tile), sizes.cost(tile))
        if not choices or choice.cost < choices[-1].cost * _WORTHWHILE:
            choices.append(choice)
    return [choices]


def _channels(shape: Sequence[int]) -> Iterator[Box]:
    """Yield parts of an output, some channels at a time, that stay in cache."""
    inner = tuple(slice(0, size) for size in shape[2:])
    some = max(1, min(shape[1], _CACHED // prod(shape[2:])))
    for n in range(shape[0]):
        for start in range(0, shape[1], some):
            yield (slice(n, n + 1), slice(start, min(start + some, shape[1])), *inner)


# -- running ------------------------------------------------------------------------


@heavy_kernel("Conv", workspace=_declare, hosts=True)
def conv(step: Step) -> Run | None:
    """Multiply the weights by the unrolled image."""
    output = result(step)
    if output.size == 0:
        return None
    sizes = geometry(step.signature)
    matrix, bias = _weights(step, sizes)
    if sizes.is_tiled:
        work = [*_tiles(step, sizes, matrix, bias, output)]
    else:
        work = [_direct(sizes, operand(step, 0), matrix, output)]
    if not sizes.finishes_tiles:
        work += _finished(step, bias, output)
    return in_sequence(*work)


def _finished(step: Step, bias: np.ndarray | None, output: np.ndarray) -> Iterator[Run]:
    """Yield what works on the product of everything, some channels at a time."""
    if bias is None and step.guests is None:
        return
    for box in _channels(output.shape):
        part = output[box]
        if bias is not None:
            yield _biased(part, bias[box[1]])
        if step.guests is not None:
            yield from step.guests.finish(box, part, Scratch(_NOTHING, step.signature.name))


def _biased(part: np.ndarray, bias: np.ndarray) -> Run:
    """Return what adds one number per channel."""
    return partial(np.add, part, bias.reshape(-1, *(1 for _ in part.shape[2:])), part)


def _weights(step: Step, sizes: Geometry) -> tuple[np.ndarray, np.ndarray | None]:
    """
    Return the weights as matrices, and what is still to be added per channel.

    What never changes is worked into the matrices: scales, and a bias as a last column if
    they are multiplied by a matrix that can have a row of ones.
    """
    bias, load = step.input(2), step.signature.constant
    matrix = operand(step, 1).reshape(sizes.groups, sizes.fan_out, sizes.depth)
    if load[1] is None or (bias is not None and load[2] is None):
        return matrix, bias
    scale, shift = (None, None) if step.guests is None else step.guests.channel_affine()
    if scale is not None:
        matrix = matrix * scale.reshape(sizes.groups, sizes.fan_out, 1)
        bias = None if bias is None else bias * scale
    if shift is not None:
        bias = shift if bias is None else bias + shift
    if bias is None or sizes.is_direct:
        return matrix, bias
    column = bias.reshape(sizes.groups, sizes.fan_out, 1)
    return np.concatenate([matrix, column], axis=2), None


def _direct(sizes: Geometry, image: np.ndarray, matrix: np.ndarray, output: np.ndarray) -> Run:
    """Return the product where the image needs no unrolling."""
    shape = (sizes.batch, sizes.groups)
    columns = image.reshape(*shape, sizes.depth, -1)
    target = output.reshape(*shape, sizes.fan_out, -1)
    if shape == (1, 1):
        return partial(np.matmul, matrix[0], columns[0, 0], target[0, 0])
    return partial(np.matmul, matrix, columns, target)


def _tiles(
    step: Step, sizes: Geometry, matrix: np.ndarray, bias: np.ndarray | None, output: np.ndarray
) -> Iterator[Run]:
    """Yield the steps of unrolling, multiplying and finishing, tile by tile."""
    tile = sizes.tile(step.workspaces[0].nbytes)
    scratch = step.scratch()
    dtype = sizes.dtype
    has_bias = matrix.shape[2] > sizes.depth
    loaded = unrolled = results = None
    if sizes.is_copied:
        loaded = scratch.array(sizes.padded_shape(tile), dtype)
        if sizes.is_padded:
            yield partial(loaded.fill, 0)
    if sizes.is_flat:
        results = scratch.array(sizes.result_shape(tile), dtype)
    elif sizes.needs_tile:
        results = scratch.array((tile.groups * tile.rows * sizes.fan_out * sizes.row,), dtype)
    if not sizes.is_direct:
        unrolled = scratch.array((prod(sizes.matrix_shape(tile)),), dtype)
    last: Area | None = None
    for area in _areas(sizes, tile):
        n, some, rows = area
        count = rows.stop - rows.start
        groups = some.stop - some.start
        source = yield from _loaded(step, sizes, loaded, area, last, scratch)
        last = area
        shape = (groups, sizes.depth + has_bias, sizes.columns(count))
        if unrolled is None:
            columns = source.reshape(shape)
        else:
            columns = unrolled[: prod(shape)].reshape(shape)
            yield _unroll(sizes, source, count, columns)
            if has_bias:
                yield partial(columns[:, -1].fill, 1)
        box = sizes.box(n, some, rows)
        part = output[box]
        if results is None:
            made = part
            into = output.reshape(sizes.batch, sizes.groups, sizes.fan_out, *sizes.outs)
            into = into[(n, some, slice(None), rows)]
        elif sizes.is_flat:
            into = results[:groups, :, :count]
            wanted = [slice(None)] * 2 + [slice(0, out) for out in (count, *sizes.outs[1:])]
            made = into.reshape(part.shape[:2] + into.shape[2:])[tuple(wanted)]
        else:
            made = results[: part.size].reshape(part.shape)
            into = made.reshape(groups, sizes.fan_out, *part.shape[2:])
        yield _multiply(matrix[some], columns, _matrices(into, shape[2]))
        if not sizes.finishes_tiles:
            continue
        if bias is not None:
            yield _biased(made, bias[box[1]])
        if step.guests is not None:
            yield from step.guests.finish(box, made, scratch)
        elif made is not part:
            yield partial(np.copyto, part, made)


def _matrices(images: np.ndarray, columns: int) -> np.ndarray:
    """Return the first elements of each channel as the rows of matrices, one per group."""
    groups, channels = images.shape[:2]
    return as_strided(images, (groups, channels, columns), (*images.strides[:2], images.itemsize))


def _multiply(a: np.ndarray, b: np.ndarray, out: np.ndarray) -> Run:
    """Return what multiplies matrices, or stacks of them."""
    if len(out) == 1:
        return partial(np.matmul, a[0], b[0], out[0])
    return partial(np.matmul, a, b, out)


def _areas(sizes: Geometry, tile: Tile) -> Iterator[Area]:
    """Yield what every tile makes."""
    for n in range(sizes.batch):
        for group in range(0, sizes.groups, tile.groups):
            some = slice(group, min(group + tile.groups, sizes.groups))
            for row in range(0, sizes.rows, tile.rows):
                yield Area(n, some, slice(row, min(row + tile.rows, sizes.rows)))


def _loaded(
    step: Step,
    sizes: Geometry,
    memory: np.ndarray | None,
    area: Area,
    last: Area | None,
    scratch: Scratch,
) -> Generator[Run, None, np.ndarray]:
    """Yield what pads, or computes, the part of the image for some rows, and return it."""
    part = sizes.part(*area)
    if memory is None:
        source = operand(step, 0)[part]
        return source.reshape(source.shape[1:])
    others = sizes.axes[1:]
    start, reach = sizes.reach(area.rows)
    source = memory[: part[1].stop - part[1].start, :reach]
    low, high = part[2].start, part[2].stop
    if low > start:
        yield partial(source[:, : low - start].fill, 0)
    kept = 0
    if sizes.loads and last is not None and last[:2] == area[:2]:
        # Rows that the tile before has computed are the first ones of this.
        earlier, length = sizes.reach(last.rows)
        shift = start - earlier
        if 0 < length - shift <= shift and low == start:
            kept = length - shift
            yield partial(np.copyto, source[:, :kept], memory[: len(source), shift:length])
    low = min(low + kept, high)
    if high > low:
        inside = tuple(slice(axis.before, axis.before + axis.size) for axis in others)
        interior = source[(slice(None), slice(low - start, high - start), *inside)]
        if sizes.loads:
            assert step.guests is not None
            rest = (*part[:2], slice(low, high), *part[3:])
            yield from step.guests.load_part(rest, interior[None], scratch)
        else:
            yield partial(np.copyto, interior, operand(step, 0)[part][0])
    if start + reach > high:
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
