"""
Convolution as matrix multiplication, a tile of the image at a time.

The windows for a few output rows are copied into a matrix with one column per output element, and
BLAS multiplies the weights by the matrix, straight into the output. A matrix with about a megabyte
stays in cache and is as fast as a matrix for the whole image.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from functools import partial
from math import inf, prod

import numpy as np

from arenaplan.graph import Choice
from arenaplan.graph.ops.boxes import Box
from arenaplan.run.numpy.constants import Transformed, shared
from arenaplan.run.numpy.kernels.conv_compiled import (
    adds_operand,
    compiled_conv,
    compiled_runs,
    works_by_planes,
)
from arenaplan.run.numpy.kernels.conv_tiles import WORTHWHILE, Area, Geometry, geometry
from arenaplan.run.numpy.kernels.pieces import in_sequence, negligible, operand, result
from arenaplan.run.numpy.kernels.widen import heavy_kernel
from arenaplan.run.numpy.kernels.window_cuts import CONV
from arenaplan.run.numpy.kernels.windows import windows
from arenaplan.run.numpy.registry import (
    BoundGuests,
    Run,
    Scratch,
    Signature,
    Step,
)
from arenaplan.run.numpy.strided import as_strided

_TILES = tuple(1 << shift for shift in range(14, 23))
"""Workspace sizes to offer, in bytes."""
_CACHED = 1 << 16
"""Output elements that are finished while in cache."""
_NARROW = 4
"""Operands that are made tile by tile are so many times as large as their sources."""
_NOTHING = np.empty(0, np.uint8)


def _declare(signature: Signature) -> Sequence[Sequence[Choice]]:
    """Offer tiles with several sizes; none is larger than pays."""
    sizes = geometry(signature)
    output = signature.outputs[0]
    if output is None or 0 in output.shape:
        return []
    compiled = compiled_conv(signature)
    if compiled is not None:
        return [compiled.choices()]
    if not sizes.is_tiled:
        return []
    least = negligible(signature)
    if signature.guests is not None and (signature.guests.loads or signature.guests.needs_tile):
        # Operands that guests make tile by tile take no arena bytes.
        least //= _NARROW
    choices: list[Choice] = []
    for limit in (least, *(limit for limit in _TILES if limit > least)):
        tile = sizes.tile(limit)
        choice = Choice(sizes.bytes(tile), sizes.cost(tile))
        if not choices or choice.cost < choices[-1].cost * WORTHWHILE:
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


@heavy_kernel(
    "Conv",
    workspace=_declare,
    cut=CONV,
    hosts=True,
    adds=adds_operand,
    by_planes=works_by_planes,
)
def conv(step: Step) -> Run | None:
    """Multiply the weights by the unrolled image."""
    output = result(step)
    if output.size == 0:
        return None
    sizes = geometry(step.signature)
    compiled = compiled_conv(step.signature)
    if compiled is not None:
        return in_sequence(*compiled_runs(step, compiled, _loaded))
    matrix, bias = _shared_weights(step, sizes)
    if sizes.is_tiled:
        work = [*_tiles(step, sizes, matrix, bias, output)]
    else:
        work = [_direct(sizes, operand(step, 0), matrix, output)]
    if not sizes.finishes_tiles:
        work += _finished(step, bias, output)
    return in_sequence(*work)


def _finished(step: Step, bias: np.ndarray | None, output: np.ndarray) -> Iterator[Run]:
    """Yield functions that work on the product of everything, some channels at a time."""
    if bias is None and step.guests is None:
        return
    for box in _channels(output.shape):
        part = output[box]
        if bias is not None:
            yield _biased(part, bias[box[1]])
        if step.guests is not None:
            yield from _bounded(step.guests, part)
            yield from step.guests.finish(box, part, Scratch(_NOTHING, step.signature.name))


def _biased(part: np.ndarray, bias: np.ndarray) -> Run:
    """Return a function that adds one number per channel."""
    return partial(np.add, part, bias.reshape(-1, *(1 for _ in part.shape[2:])), part)


def _bounded(guests: BoundGuests, part: np.ndarray) -> Iterator[Run]:
    """Yield a function that bounds results, if that is asked for."""
    low, high = guests.bounds()
    if (low, high) != (-inf, inf):
        yield partial(np.clip, part, part.dtype.type(low), part.dtype.type(high), part)


def _shared_weights(step: Step, sizes: Geometry) -> Transformed:
    """Return the result of :func:`_weights`, which executors with the same constants share."""
    load, weights, bias = step.signature.constant, operand(step, 1), step.input(2)
    if load[1] is None or (bias is not None and load[2] is None):
        return _weights(step, sizes)
    matrix_key, bias_key = _kept_keys(sizes)
    if matrix_key in step.kept:
        return step.kept[matrix_key], step.kept.get(bias_key)
    affine = (None, None) if step.guests is None else step.guests.channel_affine()
    small = [None if v is None else (v.dtype, v.tobytes()) for v in (bias, *affine)]
    details = ("Conv", matrix_key, sizes.groups, *small)
    matrix, rest = shared([weights], details, lambda: _weights(step, sizes))
    step.kept[matrix_key] = matrix
    if rest is not None:
        step.kept[bias_key] = rest
    return matrix, rest


def _kept_keys(sizes: Geometry) -> tuple[str, str]:
    """Return the names of matrix and bias among the data for other parts of the node."""
    form = "direct " if sizes.is_direct else ""
    return f"{form}matrix {sizes.window}", f"{form}bias {sizes.window}"


def _weights(step: Step, sizes: Geometry) -> tuple[np.ndarray, np.ndarray | None]:
    """
    Return the weights as matrices, and the numbers that are still to be added per channel.

    Constants are worked into the matrices: scales, and a bias as a last column if the weights are
    multiplied by a matrix that can have a row of ones.
    """
    bias, load = step.input(2), step.signature.constant
    matrix = sizes.used(operand(step, 1)).reshape(sizes.groups, sizes.fan_out, sizes.depth)
    if load[1] is None or (bias is not None and load[2] is None):
        return matrix, bias
    scale, shift = (None, None) if step.guests is None else step.guests.channel_affine()
    if scale is not None:
        matrix = matrix * scale.reshape(sizes.groups, sizes.fan_out, 1)
        bias = None if bias is None else bias * scale
    if shift is not None:
        bias = shift if bias is None else bias + shift
    if bias is not None and not sizes.is_direct:
        column = bias.reshape(sizes.groups, sizes.fan_out, 1)
        return np.concatenate([matrix, column], axis=2), None
    return matrix, bias


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
    """Yield the steps to unroll, multiply and finish, tile by tile."""
    tile = sizes.tile(step.workspaces[0].nbytes)
    scratch = step.scratch()
    dtype = sizes.dtype
    has_bias = matrix.shape[2] > sizes.depth
    loaded = unrolled = results = addend = None
    if sizes.is_copied:
        loaded = scratch.array(sizes.padded_shape(tile), dtype)
        if sizes.is_padded:
            yield partial(loaded.fill, 0)
    if sizes.is_flat or sizes.needs_tile:
        results = scratch.array(sizes.result_shape(tile), dtype)
    if tile.channels < sizes.fan_in:
        addend = scratch.array(sizes.result_shape(tile), dtype)
    if not sizes.is_direct:
        unrolled = scratch.array((prod(sizes.matrix_shape(tile)),), dtype)
    target = output.reshape(sizes.batch, sizes.groups, sizes.fan_out, *sizes.outs)
    last: Area | None = None
    for area in sizes.areas(tile):
        n, some, rows, channels = area
        groups, count = some.stop - some.start, rows.stop - rows.start
        is_last = channels.stop == sizes.fan_in
        source = yield from _loaded(step, sizes, loaded, area, last, scratch)
        last = area
        depth = (channels.stop - channels.start) * sizes.taps
        first = channels.start * sizes.taps
        ones = int(has_bias and is_last)
        shape = (groups, depth + ones, sizes.columns(count))
        if unrolled is None:
            columns = source.reshape(shape)
        else:
            columns = unrolled[: prod(shape)].reshape(shape)
            yield _unroll(sizes, source, count, columns[:, :depth])
            if ones:
                yield partial(columns[:, -1].fill, 1)
        into = target[n, some, :, rows] if results is None else results[:groups, :, :count]
        product = into if addend is None or not first else addend[:groups, :, :count]
        weights = matrix[some, :, first : first + depth + ones]
        yield _multiply(weights, columns, _matrices(product, shape[2]))
        if product is not into:
            yield partial(np.add, into, product, into)
        if not (is_last and sizes.finishes_tiles):
            continue
        box = sizes.box(area)
        part = output[box]
        wanted = [slice(None)] * 2 + [slice(0, out) for out in (count, *sizes.outs[1:])]
        made = part if results is None else into.reshape(part.shape[:2] + into.shape[2:])
        made = made[tuple(wanted)]
        if bias is not None:
            yield _biased(made, bias[box[1]])
        if step.guests is not None:
            yield from _bounded(step.guests, made)
            yield from step.guests.finish(box, made, scratch)
        elif results is not None:
            yield partial(np.copyto, part, made)


def _matrices(images: np.ndarray, columns: int) -> np.ndarray:
    """Return each channel's first elements as rows of matrices, one matrix per group."""
    groups, channels = images.shape[:2]
    return as_strided(images, (groups, channels, columns), (*images.strides[:2], images.itemsize))


def _multiply(a: np.ndarray, b: np.ndarray, out: np.ndarray) -> Run:
    """Return a function that multiplies matrices, or stacks of matrices."""
    if len(out) == 1:
        return partial(np.matmul, a[0], b[0], out[0])
    return partial(np.matmul, a, b, out)


def _loaded(
    step: Step,
    sizes: Geometry,
    memory: np.ndarray | None,
    area: Area,
    last: Area | None,
    scratch: Scratch,
) -> Generator[Run, None, np.ndarray]:
    """Yield functions that pad or compute the image for some rows, and return that part."""
    part = sizes.part(area)
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
    if sizes.loads and last is not None and _is_next(last, area):
        # Rows that the previous tile has computed are the first rows here.
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


def _is_next(last: Area, area: Area) -> bool:
    """Return whether an area has the rows that follow the last area's rows."""
    return (last.n, last.groups, last.channels, last.rows.stop) == (
        area.n,
        area.groups,
        area.channels,
        area.rows.start,
    )


def _unroll(sizes: Geometry, source: np.ndarray, rows: int, unrolled: np.ndarray) -> Run:
    """Return a function that copies the windows for some output rows into matrix columns."""
    view = windows(source, sizes.axes, [rows, *sizes.outs[1:]])
    if sizes.is_flat:
        kernel = 1 + len(sizes.axes)
        shape = (*view.shape[:kernel], unrolled.shape[2])
        view = as_strided(view, shape, (*view.strides[:kernel], view.itemsize))
    groups = len(unrolled)
    channels = len(source) // groups
    shape = (groups, channels, *view.shape[1:])
    steps = (view.strides[0] * channels, *view.strides)
    return partial(np.copyto, unrolled.reshape(shape), as_strided(view, shape, steps))
