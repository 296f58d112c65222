"""Reductions over axes, running sums, and positions of extremes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from typing import Any, TypeAlias

import numpy as np

from arenaplan.graph import Choice
from arenaplan.run.numpy.cuts import REDUCED
from arenaplan.run.numpy.kernels.pieces import (
    BLOCK,
    boxes,
    check_shape,
    in_sequence,
    invalid,
    normalized_axis,
    numbers,
    operand,
    result,
    when_known,
)
from arenaplan.run.numpy.registry import Run, Signature, Step, kernel, scratch_bytes

Reduce: TypeAlias = Callable[[np.ndarray, tuple[int, ...], np.ndarray], Any]
"""Called as ``reduce(x, axes, y)``; ``y`` has a dimension of 1 for each axis."""

# -- axes ---------------------------------------------------------------------------


def _axes(step: Step, x: np.ndarray) -> tuple[int, ...]:
    """Return the axes that are reduced now; all if none is named, unless that means nothing."""
    axes = numbers(step, "axes", 1)
    if not axes:
        return () if step.attributes.get("noop_with_empty_axes", 0) else tuple(range(x.ndim))
    return tuple(sorted({normalized_axis(step, axis, x.ndim) for axis in axes}))


def _check_reduced(step: Step, x: np.ndarray, axes: Sequence[int]) -> list[int]:
    """Return the shape with 1 for reduced axes; the output may lack these dimensions."""
    kept = [1 if axis in axes else dim for axis, dim in enumerate(x.shape)]
    keeps = step.attributes.get("keepdims", 1)
    check_shape(step, [n for axis, n in enumerate(kept) if keeps or axis not in axes])
    return kept


# -- sums and extremes ----------------------------------------------------------------

_WORTH_A_PRODUCT = 1 << 12
"""Elements from which a matrix product is the faster way to sum."""
_ONES = {np.dtype(name): np.ones(1 << 14, name) for name in ("float32", "float64")}
"""Factors for such products."""


def _sum(x: np.ndarray, axes: tuple[int, ...], y: np.ndarray) -> None:
    """Sum over axes; trailing axes by a product with ones, which takes a quarter of the time."""
    ones = _ONES.get(x.dtype)
    if ones is not None and x.size >= _WORTH_A_PRODUCT and _are_trailing(axes, x.ndim):
        count = prod(x.shape[axes[0] :])
        if count <= ones.size:
            np.matmul(x.reshape(-1, count), ones[:count], out=y.reshape(-1))
            return
    np.add.reduce(x, axis=axes, out=y, keepdims=True, dtype=y.dtype)


def _are_trailing(axes: tuple[int, ...], rank: int) -> bool:
    return axes != () and axes == tuple(range(rank - len(axes), rank))


def _mean(x: np.ndarray, axes: tuple[int, ...], y: np.ndarray) -> None:
    _sum(x, axes, y)
    if y.dtype.kind == "f":
        np.divide(y, x.size / y.size, out=y)
    else:
        np.divide(y, x.size // y.size, out=y, casting="unsafe")


def _product(x: np.ndarray, axes: tuple[int, ...], y: np.ndarray) -> None:
    np.multiply.reduce(x, axis=axes, out=y, keepdims=True, dtype=y.dtype)


def _extreme(function: np.ufunc, sign: int) -> Reduce:
    """Return the reduction to a maximum (``sign`` 1) or minimum (-1)."""

    def reduce(x: np.ndarray, axes: tuple[int, ...], y: np.ndarray) -> None:
        if x.size:
            function.reduce(x, axis=axes, out=y, keepdims=True)
        elif y.dtype.kind == "f":
            y.fill(-sign * np.inf)
        elif y.dtype.kind == "b":
            y.fill(sign < 0)
        else:
            limits = np.iinfo(y.dtype)
            y.fill(limits.min if sign > 0 else limits.max)

    return reduce


def _reducing(reduce: Reduce, step: Step) -> Run | None:
    """Return a function that reduces over the axes known now or on each run."""
    x, y = operand(step, 0), result(step)

    def prepare() -> Run | None:
        axes = _axes(step, x)
        kept = _check_reduced(step, x, axes)
        return partial(reduce, x, axes, y.reshape(kept)) if y.size else None

    return when_known(step, (1,), prepare)


for _op, _reduce in {
    "ReduceSum": _sum,
    "ReduceMean": _mean,
    "ReduceProd": _product,
    "ReduceMax": _extreme(np.maximum, 1),
    "ReduceMin": _extreme(np.minimum, -1),
}.items():
    kernel(_op, cut=REDUCED)(partial(_reducing, _reduce))


# -- running sums -------------------------------------------------------------------------


@kernel("CumSum", "CumProd")
def cumulate(step: Step) -> Run | None:
    """Write running sums or products."""
    return when_known(step, (1,), lambda: _cumulation(step))


def _cumulation(step: Step) -> Run | None:
    x, y = operand(step, 0), result(step)
    axis = normalized_axis(step, int(operand(step, 1).reshape(-1)[0]), x.ndim)
    function: Any
    function, neutral = (np.add, 0) if step.signature.op == "CumSum" else (np.multiply, 1)
    before = (slice(None),) * axis
    if step.attributes.get("reverse", 0):
        backwards = (*before, slice(None, None, -1))
        x, y = x[backwards], y[backwards]
    if not step.attributes.get("exclusive", 0):
        return partial(function.accumulate, x, axis, y.dtype, y)
    first, rest = (*before, slice(0, 1)), (*before, slice(1, None))
    earlier = x[(*before, slice(0, -1))]
    return in_sequence(
        partial(y[first].fill, neutral),
        partial(function.accumulate, earlier, axis, y.dtype, y[rest]),
    )


# -- positions of extremes ------------------------------------------------------------------


def _arg_shape(shape: Sequence[int], axis: int) -> tuple[int, int, int]:
    """Return the elements before, along and after an axis."""
    axis %= max(len(shape), 1)
    return prod(shape[:axis]), prod(shape[axis : axis + 1]), prod(shape[axis + 1 :])


def _declare_arg(signature: Signature) -> list[list[Choice]]:
    """Declare room for some rows along the axis, which NumPy would else copy as a whole."""
    x = signature.inputs[0]
    if x is None or x.bytes == 0:
        return []
    outer, length, inner = _arg_shape(x.shape, signature.attributes.get("axis", 0))
    if inner == 1 and not signature.attributes.get("select_last_index", 0):
        return []
    rows = min(outer * inner, max(1, BLOCK // length))
    return [[Choice(scratch_bytes((rows * length,), x.dtype))]]


@kernel("ArgMax", "ArgMin", workspace=_declare_arg)
def arg_extreme(step: Step) -> Run | None:
    """Write where along an axis the largest or smallest element is."""
    x, y = operand(step, 0), result(step)
    axis = normalized_axis(step, step.attributes.get("axis", 0), x.ndim)
    function: Any = np.argmax if step.signature.op == "ArgMax" else np.argmin
    outer, length, inner = _arg_shape(x.shape, axis)
    _check_reduced(step, x, (axis,))
    if y.size == 0:
        return None
    if length == 0:
        raise invalid(step, f"axis {axis} has no elements")
    if not step.workspaces:
        return partial(function, x.reshape(outer, length), 1, y.reshape(outer))
    scratch = step.workspaces[0].view(x.dtype)
    last = bool(step.attributes.get("select_last_index", 0))
    view = x.reshape(outer, length, inner).swapaxes(1, 2)[..., :: -1 if last else 1]
    target = y.reshape(outer, inner)
    rows = scratch.size // length
    work: list[Run] = []
    for start in range(0, y.size, rows):
        for box in boxes(target.shape, start, min(start + rows, y.size)):
            source, found = view[box], target[box]
            block = scratch[: source.size].reshape(source.shape)
            work += [partial(np.copyto, block, source), partial(function, block, -1, found)]
    if last:
        work.append(partial(np.subtract, length - 1, y, out=y))
    return in_sequence(*work)
