"""Norms, deviations, maxima and determinants."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import prod

import numpy as np

from arenaplan.base.errors import InvalidAttribute
from arenaplan.graph import Choice
from arenaplan.run.numpy.cuts import ROWS, SOFTMAX
from arenaplan.run.numpy.kernels.pieces import boxes, invalid, normalized_axis, operand, result
from arenaplan.run.numpy.kernels.widen import heavy_kernel
from arenaplan.run.numpy.registry import Run, Signature, Step, scratch_bytes

_BLOCK = 1 << 14
"""Elements whose absolute values are summed at a time."""


def _lines(shape: Sequence[int], axis: int, *, behind: bool) -> tuple[int, int, int]:
    """Return the lines before, along and after an axis; ``behind`` adds the later axes."""
    if behind:
        return prod(shape[:axis]), prod(shape[axis:]), 1
    return prod(shape[:axis]), shape[axis], prod(shape[axis + 1 :])


# -- LpNormalization -----------------------------------------------------------------------


def _norm_sizes(signature: Signature) -> tuple[tuple[int, int, int], int] | None:
    """Return the lines of a node, and how many elements along each are summed at a time."""
    x = signature.inputs[0]
    axis = signature.attributes.get("axis", -1)
    if x is None or 0 in x.shape or not -len(x.shape) <= axis < len(x.shape):
        return None
    lines = _lines(x.shape, axis % len(x.shape), behind=False)
    return lines, max(1, min(lines[1], _BLOCK // (lines[0] * lines[2])))


def _declare_norms(signature: Signature) -> Sequence[Sequence[Choice]]:
    x, sizes = signature.inputs[0], _norm_sizes(signature)
    if x is None or sizes is None:
        return []
    (outer, _, inner), some = sizes
    size = 2 * scratch_bytes((outer, inner), x.dtype) + scratch_bytes((outer, inner), np.bool_)
    if signature.attributes.get("p", 2) == 1:
        size += scratch_bytes((outer, some, inner), x.dtype)
    return [[Choice(size, 0.0)]]


@heavy_kernel("LpNormalization", workspace=_declare_norms, cut=ROWS)
def lp_normalization(step: Step) -> Run | None:
    """Divide by the norm of all elements along an axis; zeros stay zeros."""
    x, y = operand(step, 0), result(step)
    normalized_axis(step, step.attributes.get("axis", -1), x.ndim)
    order = step.attributes.get("p", 2)
    if order not in (1, 2):
        raise invalid(step, f"p is {order}")
    sizes = _norm_sizes(step.signature)
    if sizes is None:
        return None
    lines, some = sizes
    scratch = step.scratch()
    norms, part = (scratch.array((lines[0], lines[2]), x.dtype) for _ in range(2))
    is_zero = scratch.array(norms.shape, np.bool_)
    source, target = x.reshape(lines), y.reshape(lines)
    along = source.swapaxes(1, 2)
    block = scratch.array((lines[0], some, lines[2]), x.dtype) if order == 1 else None

    def run() -> None:
        if block is None:
            np.vecdot(along, along, out=norms)
            np.sqrt(norms, out=norms)
        else:
            norms.fill(0)
            for start in range(0, lines[1], some):
                cut = source[:, start : start + some]
                values = block[:, : cut.shape[1]]
                np.absolute(cut, out=values)
                np.add.reduce(values, axis=1, out=part)
                np.add(norms, part, out=norms)
        np.equal(norms, 0, out=is_zero)
        np.copyto(norms, 1, where=is_zero)
        np.divide(source, norms[:, None], out=target)

    return run


# -- MeanVarianceNormalization -----------------------------------------------------------


def _reduced(signature: Signature) -> tuple[int, ...]:
    """Return the axes that statistics are taken over."""
    x = signature.inputs[0]
    rank = 0 if x is None else len(x.shape)
    axes = signature.attributes.get("axes")
    chosen = (0, 2, 3) if axes is None else axes
    if any(not -rank <= axis < rank for axis in chosen):
        raise InvalidAttribute(
            f"node {signature.name!r} ({signature.op}): axes {tuple(chosen)} of {rank} dimensions"
        )
    return tuple(sorted({axis % rank for axis in chosen}))


def _declare_statistics(signature: Signature) -> Sequence[Sequence[Choice]]:
    x = signature.inputs[0]
    if x is None or 0 in x.shape:
        return []
    axes = _reduced(signature)
    kept = [1 if axis in axes else dim for axis, dim in enumerate(x.shape)]
    block = min(prod(x.shape), _BLOCK)
    return [[Choice(3 * scratch_bytes(kept, x.dtype) + scratch_bytes((block,), x.dtype), 0.0)]]


@heavy_kernel("MeanVarianceNormalization", since=9, workspace=_declare_statistics)
def mean_variance_normalization(step: Step) -> Run | None:
    """Subtract the mean over some axes, and divide by the standard deviation."""
    x, y, axes = operand(step, 0), result(step), _reduced(step.signature)
    if y.size == 0:
        return None
    scratch = step.scratch()
    kept = [1 if axis in axes else dim for axis, dim in enumerate(x.shape)]
    mean, deviation, part = (scratch.array(kept, x.dtype) for _ in range(3))
    squares = scratch.array((min(y.size, _BLOCK),), x.dtype)
    share = x.dtype.type(prod(kept) / x.size)
    pieces = []
    for start in range(0, y.size, _BLOCK):
        for box in boxes(y.shape, start, min(start + _BLOCK, y.size)):
            own = tuple(slice(None) if k in axes else cut for k, cut in enumerate(box))
            piece = y[box]
            square = squares[: piece.size].reshape(piece.shape)
            pieces.append((piece, square, deviation[own], part[own]))

    def run() -> None:
        np.add.reduce(x, axis=axes, keepdims=True, out=mean)
        np.multiply(mean, share, out=mean)
        np.subtract(x, mean, out=y)
        deviation.fill(0)
        for piece, square, total, some in pieces:
            np.multiply(piece, piece, out=square)
            np.add.reduce(square, axis=axes, keepdims=True, out=some)
            np.add(total, some, out=total)
        np.multiply(deviation, share, out=deviation)
        np.sqrt(deviation, out=deviation)
        np.add(deviation, x.dtype.type(1e-9), out=deviation)
        np.divide(y, deviation, out=y)

    return run


# -- Hardmax -------------------------------------------------------------------------------


def _max_lines(signature: Signature) -> tuple[int, int, int] | None:
    """Return the lines of a node; until version 13 all axes behind the first belong together."""
    x, is_old = signature.inputs[0], signature.version < 13
    axis = signature.attributes.get("axis", 1 if is_old else -1)
    if x is None or 0 in x.shape or not -len(x.shape) <= axis < max(len(x.shape), 1):
        return None
    return _lines(x.shape, axis % max(len(x.shape), 1), behind=is_old)


def _declare_maxima(signature: Signature) -> Sequence[Sequence[Choice]]:
    x, lines = signature.inputs[0], _max_lines(signature)
    if x is None or lines is None:
        return []
    shape = lines[0], lines[2]
    size = scratch_bytes(shape, x.dtype) + scratch_bytes(shape, np.int64)
    return [[Choice(size + scratch_bytes(shape, np.bool_), 0.0)]]


@heavy_kernel("Hardmax", workspace=_declare_maxima, cut=SOFTMAX)
def hardmax(step: Step) -> Run | None:
    """Write 1 at the first maximum along an axis, and zeros elsewhere."""
    x, y = operand(step, 0), result(step)
    default = 1 if step.signature.version < 13 else -1
    normalized_axis(step, step.attributes.get("axis", default), x.ndim)
    lines = _max_lines(step.signature)
    if lines is None:
        return None
    scratch, shape = step.scratch(), (lines[0], lines[2])
    best, place = scratch.array(shape, x.dtype), scratch.array(shape, np.int64)
    is_better = scratch.array(shape, np.bool_)
    source, target = x.reshape(lines), y.reshape(lines)

    def run() -> None:
        if lines[2] == 1:
            np.argmax(source[:, :, 0], axis=1, out=place[:, 0])
        else:
            np.copyto(best, source[:, 0])
            place.fill(0)
            for at in range(1, lines[1]):
                np.greater(source[:, at], best, out=is_better)
                np.copyto(best, source[:, at], where=is_better)
                np.copyto(place, at, where=is_better)
        if lines[2] == 1 and lines[0] < lines[1]:
            target.fill(0)
            for line, at in enumerate(place[:, 0].tolist()):
                target[line, at] = 1
        else:
            for at in range(lines[1]):
                np.equal(place, at, out=target[:, at], casting="unsafe")

    return run


# -- determinants ----------------------------------------------------------------------------


def _declare_elimination(signature: Signature) -> Sequence[Sequence[Choice]]:
    x = signature.inputs[0]
    if x is None or len(x.shape) < 2:
        return []
    return [[Choice(2 * scratch_bytes(x.shape[-2:], np.float64), 0.0)]]


@heavy_kernel("Det", since=11, workspace=_declare_elimination)
def determinant(step: Step) -> Run | None:
    """Write the determinant of each matrix: Gaussian elimination with partial pivoting."""
    x, y = operand(step, 0), result(step)
    if x.ndim < 2 or x.shape[-1] != x.shape[-2]:
        raise invalid(step, f"data of shape {x.shape} has no determinants")
    if y.size == 0:
        return None
    if x.shape[-1] == 0:
        return partial(y.fill, 1)
    scratch = step.scratch()
    matrix, change = (scratch.array(x.shape[-2:], np.float64) for _ in range(2))
    sources, target = x.reshape(-1, *x.shape[-2:]), y.reshape(-1)

    def run() -> None:
        for position, source in enumerate(sources):
            np.copyto(matrix, source)
            target[position] = _eliminate(matrix, change)

    return run


def _eliminate(matrix: np.ndarray, change: np.ndarray) -> float:
    """Return the determinant of a matrix, which is overwritten."""
    value = 1.0
    for at in range(len(matrix)):
        column = matrix[at:, at]
        pivot = at + int(np.argmax(np.absolute(column)))
        if matrix[pivot, at] == 0:
            return 0.0
        if pivot != at:
            np.copyto(change[0], matrix[at])
            np.copyto(matrix[at], matrix[pivot])
            np.copyto(matrix[pivot], change[0])
            value = -value
        value *= float(matrix[at, at])
        rest = matrix[at + 1 :, at + 1 :]
        np.divide(column[1:], matrix[at, at], out=column[1:])
        product = change[at + 1 :, at + 1 :]
        np.multiply(column[1:, None], matrix[at, at + 1 :], out=product)
        np.subtract(rest, product, out=rest)
    return value
