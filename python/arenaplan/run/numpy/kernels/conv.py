"""
Convolution: compiled where possible, or matrix multiplication, a tile of the image at a time.

Without a compiled kernel, the windows for a few output rows are copied into a matrix with one
column per output element, and BLAS multiplies the weights by the matrix, straight into the output.
A matrix with about a megabyte stays in cache and is as fast as a matrix for the whole image.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import partial
from math import prod

import numpy as np

from arenaplan.graph import Choice
from arenaplan.run.numpy.kernels.conv_compiled import (
    adds_operand,
    compiled_conv,
    compiled_run,
    hosts_members,
)
from arenaplan.run.numpy.kernels.conv_tiles import Area, Geometry, even, geometry
from arenaplan.run.numpy.kernels.pieces import in_sequence, negligible, operand, result, worthwhile
from arenaplan.run.numpy.kernels.widen import heavy_kernel
from arenaplan.run.numpy.kernels.window_cuts import CONV
from arenaplan.run.numpy.kernels.windows import windows
from arenaplan.run.numpy.registry import Run, Signature, Step, scratch_bytes

_TILES = tuple(1 << shift for shift in range(14, 23))
"""Workspace sizes to offer, in bytes."""


def _shapes(sizes: Geometry, groups: int, rows: int) -> list[tuple[int, ...]]:
    """Return the shapes of the scratch arrays for a tile: the matrices, and a padded image."""
    shapes: list[tuple[int, ...]] = [(groups, sizes.depth, rows * sizes.row)]
    return [*shapes, sizes.padded_shape(groups, rows)] if sizes.is_padded else shapes


def _bytes(sizes: Geometry, groups: int, rows: int) -> int:
    return sum(scratch_bytes(shape, sizes.dtype) for shape in _shapes(sizes, groups, rows))


def _tile(sizes: Geometry, limit: int) -> tuple[int, int]:
    """
    Return the groups and rows of the largest tile within ``limit`` bytes, at least one of each.

    Whole images for several groups are preferred to partial images for a single group.
    """

    def rows_of(rows: int) -> int:
        return _bytes(sizes, 1, rows)

    def groups_of(groups: int) -> int:
        return _bytes(sizes, groups, sizes.rows)

    groups = bisect_right(range(1, sizes.groups + 1), limit, key=groups_of)
    if groups:
        return even(sizes.groups, groups), sizes.rows
    return 1, even(sizes.rows, max(1, bisect_right(range(1, sizes.rows + 1), limit, key=rows_of)))


def _declare(signature: Signature) -> Sequence[Sequence[Choice]]:
    """Offer tiles with several sizes; none is larger than pays."""
    sizes = geometry(signature)
    output = signature.outputs[0]
    if output is None or 0 in output.shape:
        return []
    compiled = compiled_conv(signature)
    if compiled is not None:
        return [compiled.choices()]
    if sizes.is_direct:
        return []
    tiles = dict.fromkeys(_tile(sizes, limit) for limit in (negligible(signature), *_TILES))
    return [worthwhile(Choice(_bytes(sizes, *tile), sizes.cost(*tile)) for tile in tiles)]


@heavy_kernel(
    "Conv",
    workspace=_declare,
    cut=CONV,
    hosts=hosts_members,
    adds=adds_operand,
)
def conv(step: Step) -> Run | None:
    """Multiply the weights by the unrolled image."""
    output = result(step)
    if output.size == 0:
        return None
    sizes = geometry(step.signature)
    compiled = compiled_conv(step.signature)
    if compiled is not None:
        return compiled_run(step, compiled)
    bias = step.input(2)
    shape = (sizes.groups, sizes.fan_out, sizes.depth)
    matrix = sizes.used(operand(step, 1)).reshape(shape)
    work = _direct if sizes.is_direct else _tiles
    addend = None if bias is None else bias.reshape(-1, *(1 for _ in sizes.axes))
    return in_sequence(
        *work(step, sizes, matrix, output),
        None if addend is None else partial(np.add, output, addend, output),
    )


def _direct(step: Step, sizes: Geometry, matrix: np.ndarray, output: np.ndarray) -> Iterator[Run]:
    """Yield the product where the image needs no unrolling."""
    shape = (sizes.batch, sizes.groups)
    columns = operand(step, 0).reshape(*shape, sizes.depth, -1)
    target = output.reshape(*shape, sizes.fan_out, -1)
    if shape == (1, 1):
        yield partial(np.matmul, matrix[0], columns[0, 0], target[0, 0])
    else:
        yield partial(np.matmul, matrix, columns, target)


def _tiles(step: Step, sizes: Geometry, matrix: np.ndarray, output: np.ndarray) -> Iterator[Run]:
    """Yield the steps to pad, unroll and multiply, tile by tile."""
    tile = _tile(sizes, step.workspaces[0].nbytes)
    scratch = step.scratch()
    unrolled, *frames = (scratch.array(shape, sizes.dtype) for shape in _shapes(sizes, *tile))
    for frame in frames:
        yield partial(frame.fill, 0)
    target = output.reshape(sizes.batch, sizes.groups, sizes.fan_out, sizes.rows, sizes.row)
    for area in sizes.areas(*tile):
        n, some, rows = area
        part = operand(step, 0)[sizes.part(area)][0]
        if frames:
            source, inside, runs = _padded(sizes, area, frames[0])
            yield from runs
            yield partial(np.copyto, inside, part)
        else:
            source = part
        count = rows.stop - rows.start
        shape = (some.stop - some.start, sizes.depth, count * sizes.row)
        columns = unrolled.reshape(-1)[: prod(shape)].reshape(shape)
        view = windows(source, sizes.axes, [count, *sizes.outs[1:]])
        yield partial(np.copyto, columns.reshape(view.shape), view)
        made = target[n, some, :, rows].reshape(shape[0], sizes.fan_out, shape[2])
        if shape[0] == 1:
            yield partial(np.matmul, matrix[some.start], columns[0], made[0])
        else:
            yield partial(np.matmul, matrix[some], columns, made)


def _padded(
    sizes: Geometry, area: Area, frame: np.ndarray
) -> tuple[np.ndarray, np.ndarray, list[Run]]:
    """
    Return the image under a tile's windows with padding, its inside, and functions that clear rows.

    Parameters
    ----------
    frame : array
        Memory of :meth:`Geometry.padded_shape`, in which all columns of padding are 0.
    """
    part, (start, reach) = sizes.part(area), sizes.reach(area.rows)
    source = frame[: part[1].stop - part[1].start, :reach]
    low, high = part[2].start - start, max(part[2].stop - start, 0)
    inner = tuple(slice(axis.before, axis.before + axis.size) for axis in sizes.axes[1:])
    borders = (source[:, :low], source[:, high:])
    inside = source[(slice(None), slice(low, high), *inner)]
    return source, inside, [partial(border.fill, 0) for border in borders if border.size]
