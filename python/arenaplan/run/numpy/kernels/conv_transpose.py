"""
Transposed convolution: products of weights and image, added up where they overlap.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from arenaplan.base.errors import InvalidAttribute, ShapeMismatch
from arenaplan.graph import Choice
from arenaplan.graph.ops.boxes import Box, Footprint, Uncuttable, whole
from arenaplan.graph.ops.window_ops import Axis, taps
from arenaplan.run.numpy.cuts import conv_transpose_channels
from arenaplan.run.numpy.kernels.conv_tiles import FLOPS, Geometry, even
from arenaplan.run.numpy.kernels.pieces import in_sequence, operand, result, worthwhile
from arenaplan.run.numpy.kernels.widen import heavy_kernel
from arenaplan.run.numpy.kernels.windows import auto_pad_of, ints
from arenaplan.run.numpy.registry import Cut, Run, Signature, Step, scratch_bytes

_TILES = (0, 1 << 17, 1 << 18, 1 << 19, 1 << 20)
"""Workspace sizes to offer, in bytes; the first stands for one row of the image."""
_TILE_CALLS = 4e3
"""Nanoseconds that the calls for one tile take."""
_FLOPS, _PACKING = FLOPS, 22
"""Operations per nanosecond; number of columns whose time goes into repacking the weights."""


def _bytes(sizes: Geometry, rows: int) -> int:
    """Return the workspace for some image rows."""
    return scratch_bytes((sizes.fan_out * sizes.taps, rows * sizes.row), sizes.dtype)


def _rows_within(sizes: Geometry, limit: int) -> int:
    """Return how many image rows fit ``limit`` bytes, at least 1."""
    return even(sizes.rows, max(1, min(sizes.rows, limit // _bytes(sizes, 1))))


def _cost(sizes: Geometry, rows: int) -> float:
    """Return about how many nanoseconds a run takes."""
    parts = sizes.batch * -(-sizes.rows // rows)
    columns = sizes.batch * sizes.rows * sizes.row + _PACKING * parts
    weights = sizes.groups * sizes.fan_in * sizes.fan_out * sizes.taps
    return 2 * weights * columns / _FLOPS + parts * sizes.groups * sizes.taps * _TILE_CALLS


def transposed_geometry(signature: Signature) -> Geometry:
    """
    Return the sizes for a ConvTranspose node; the axes go from the output to the input.

    Raises
    ------
    ShapeMismatch, InvalidAttribute
        If shapes or attributes contradict each other.
    """
    image, weights, output = signature.input(0), signature.input(1), signature.outputs[0]
    groups = signature.attributes.get("group", 1)
    if (
        image is None
        or weights is None
        or output is None
        or len({len(image.shape), len(weights.shape), len(output.shape)}) != 1
        or len(image.shape) < 3
        or groups < 1
        or image.shape[1] != weights.shape[0]
        or weights.shape[0] % groups
        or output.shape[:2] != (image.shape[0], weights.shape[1] * groups)
    ):
        raise ShapeMismatch(
            f"node {signature.name!r} (ConvTranspose): image, weights and output "
            "contradict each other"
        )
    rank = len(image.shape) - 2
    strides = ints(signature, "strides", [1] * rank)
    dilations = ints(signature, "dilations", [1] * rank)
    extra = ints(signature, "output_padding", [0] * rank)
    pads = ints(signature, "pads", [0] * (2 * rank))
    if min([*strides, *dilations, *weights.shape[2:]]) < 1:
        raise InvalidAttribute(
            f"node {signature.name!r} (ConvTranspose): strides, dilations and kernel "
            "must be positive"
        )
    auto_pad = auto_pad_of(signature)
    automatic = auto_pad != "NOTSET" or signature.attributes.get("output_shape")
    axes = []
    for k in range(rank):
        size, out = output.shape[2 + k], image.shape[2 + k]
        extent = (weights.shape[2 + k] - 1) * dilations[k] + 1
        before = pads[k]
        if automatic:
            total = max(strides[k] * (out - 1) + extra[k] + extent - size, 0)
            before = total // 2 if auto_pad == "SAME_UPPER" else total - total // 2
        axes.append(Axis(size, out, weights.shape[2 + k], strides[k], dilations[k], before, 0))
    return Geometry(
        image.shape[0],
        groups,
        weights.shape[0] // groups,
        weights.shape[1],
        tuple(axes),
        image.dtype,
    )


def _declare(signature: Signature) -> Sequence[Sequence[Choice]]:
    """Offer products for different numbers of image rows."""
    image, output = signature.input(0), signature.outputs[0]
    if image is None or output is None or 0 in output.shape or 0 in image.shape:
        return []
    sizes = transposed_geometry(signature)
    tiles = (_rows_within(sizes, limit) for limit in _TILES)
    return [worthwhile(Choice(_bytes(sizes, rows), _cost(sizes, rows)) for rows in tiles)]


def _image_rows(signature: Signature, box: Box) -> slice:
    """Return the image rows whose products sum to some result rows."""
    axis, (start, stop) = transposed_geometry(signature).axes[0], (box[2].start, box[2].stop)
    first = -((axis.extent - 1 - start - axis.before) // axis.stride)
    last = (stop - 1 + axis.before) // axis.stride
    rows = slice(max(first, 0), min(last + 1, axis.out))
    if rows.start >= rows.stop or rows.start * axis.stride - axis.before > start:
        raise Uncuttable
    return rows


def _rows(signature: Signature, box: Box) -> Footprint:
    """Rows need the image's rows, and all weights."""
    image = signature.operand(0)
    rows = _image_rows(signature, box)
    part: Box = (box[0], *whole(image.shape[1:2]), rows, *whole(image.shape[3:]))
    return [part, *(None for _ in signature.inputs[1:])]


def _rows_attributes(signature: Signature, box: Box) -> Mapping[str, Any]:
    """Product rows before the box's rows are cut off like padding."""
    axes, rows = transposed_geometry(signature).axes, _image_rows(signature, box)
    first = box[2].start + axes[0].before - rows.start * axes[0].stride
    before = [first, *(axis.before for axis in axes[1:])]
    known = {k: v for k, v in signature.attributes.items() if k != "output_shape"}
    return {**known, "pads": [*before, *(0 for _ in axes)], "auto_pad": "NOTSET"}


def _whole_time(signature: Signature) -> float:
    sizes = transposed_geometry(signature)
    return _cost(sizes, sizes.rows)


CONV_TRANSPOSE = Cut(
    conv_transpose_channels,
    by_rows=Cut(_rows, attributes=_rows_attributes, time=_whole_time),
)
"""A transposed convolution."""


@heavy_kernel("ConvTranspose", workspace=_declare, cut=CONV_TRANSPOSE)
def conv_transpose(step: Step) -> Run | None:
    """Multiply the weights by some rows of the image, and add the products up."""
    image, output = operand(step, 0), result(step)
    if output.size == 0:
        return None
    bias = step.input(2)
    column = 0 if bias is None else bias.reshape(-1, *(1 for _ in output.shape[2:]))
    start = partial(np.copyto, output, column)
    if image.size == 0:
        return start
    return in_sequence(start, *_products(step, image, output))


def _products(step: Step, image: np.ndarray, output: np.ndarray) -> Iterator[Run]:
    """Yield the products and additions."""
    sizes = transposed_geometry(step.signature)
    rows = _rows_within(sizes, step.workspaces[0].nbytes)
    depth = sizes.fan_out * sizes.taps
    memory = step.scratch().array((depth * rows * sizes.row,), image.dtype)
    weights = operand(step, 1).reshape(sizes.groups, sizes.fan_in, depth)
    columns = image.reshape(sizes.batch, sizes.groups, sizes.fan_in, -1)
    target = output.reshape(sizes.batch, sizes.groups, sizes.fan_out, *output.shape[2:])
    kernel = tuple(axis.kernel for axis in sizes.axes)
    inner = tuple(axis.out for axis in sizes.axes[1:])
    for n, group in product(range(sizes.batch), range(sizes.groups)):
        for row in range(0, sizes.rows, rows):
            count = min(rows, sizes.rows - row)
            cut = slice(row * sizes.row, (row + count) * sizes.row)
            width = count * sizes.row
            products = memory[: depth * width].reshape(depth, width)
            yield partial(np.matmul, weights[group].T, columns[n, group, :, cut], products)
            shape = (sizes.fan_out, *kernel, count, *inner)
            yield from _add_up(sizes, row, products.reshape(shape), target[n, group])


def _add_up(sizes: Geometry, row: int, products: np.ndarray, target: np.ndarray) -> Iterator[Run]:
    """Yield functions that add the products of some image rows, tap by tap, to the output."""
    count = products.shape[1 + len(sizes.axes)]
    for tap, read, write in taps(sizes.axes):
        low, high = max(write[0].start, row), min(write[0].stop, row + count)
        if low < high:
            rows = sizes.axes[0].reads(tap[0], low, high)
            into = target[(slice(None), rows, *read[1:])]
            addend = products.transpose(_taps_first(len(tap)))[tap]
            what = addend[(slice(None), slice(low - row, high - row), *write[1:])]
            yield partial(np.add, into, what, into)


def _taps_first(rank: int) -> list[int]:
    """Return the dimension order (taps, channels, positions) of (channels, taps, positions)."""
    return [*range(1, rank + 1), 0, *range(rank + 1, 2 * rank + 1)]
