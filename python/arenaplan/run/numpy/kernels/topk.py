"""
The largest or smallest elements along an axis.

NumPy can sort in place, but not find an element order without allocating. So each element becomes a
64-bit key: the value above, the index along the axis below. Sorting keys takes no memory, and equal
values keep their index order.
"""

from __future__ import annotations

from functools import partial
from math import prod

import numpy as np

from arenaplan.base.errors import UnsupportedDtype
from arenaplan.graph import Choice
from arenaplan.run.numpy.kernels.pieces import (
    boxes,
    check_shape,
    in_sequence,
    invalid,
    normalized_axis,
    operand,
    result,
    when_known,
)
from arenaplan.run.numpy.registry import Run, Signature, Step, kernel, scratch_bytes

_BLOCK = 1 << 14
"""Keys that are sorted between two NumPy calls."""
_INDEX_BITS = 32
_INDEX_MASK = (1 << _INDEX_BITS) - 1
_LOWEST = -(1 << 31)


def _rows(signature: Signature) -> tuple[int, int]:
    """Return how many rows are sorted together, and the row length."""
    x = signature.inputs[0]
    axis = signature.attributes.get("axis", -1)
    if x is None or x.bytes == 0 or not -len(x.shape) <= axis < len(x.shape):
        return 0, 0
    length = x.shape[axis]
    return min(prod(x.shape) // length, max(1, _BLOCK // length)), length


def _declare(signature: Signature) -> list[list[Choice]]:
    rows, length = _rows(signature)
    sizes = [scratch_bytes((rows * length,), dtype) for dtype in (np.int64, np.bool_)]
    return [[Choice(sum(sizes))]] if rows else []


@kernel("TopK", workspace=_declare)
def top_k(step: Step) -> Run | None:
    """Write the ``k`` largest or smallest elements along an axis, in order, and their indices."""
    x, values, indices = operand(step, 0), step.output(0), result(step, 1)
    axis = normalized_axis(step, step.attributes.get("axis", -1), x.ndim)
    k = indices.shape[axis]

    def check() -> None:
        wanted = int(operand(step, 1).reshape(-1)[0])
        check_shape(step, [*x.shape[:axis], wanted, *x.shape[axis + 1 :]], 1)

    checked = when_known(step, (1,), check) if step.input(1) is not None else None
    if k > x.shape[axis]:
        raise invalid(step, f"k is {k} for an axis of length {x.shape[axis]}")
    if indices.size == 0:
        return checked
    rows, length = _rows(step.signature)
    if length > (_INDEX_MASK if x.itemsize <= 4 else _BLOCK):
        raise UnsupportedDtype(
            f"node {step.signature.name!r} (TopK) orders {length} elements of {x.dtype} at once; "
            f"only those of up to 32 bits may be more than {_BLOCK}"
        )
    select = _select_wide if x.itemsize > 4 else _select
    scratch = step.scratch()
    keys = scratch.array((rows * length,), np.int64)
    negative = scratch.array((rows * length,), np.bool_)
    largest = bool(step.attributes.get("largest", 1))
    source, found = _lines(x, axis), _lines(indices, axis)
    best = None if values is None else _lines(values, axis)
    work: list[Run | None] = []
    for start in range(0, x.size // length, rows):
        for box in boxes(source.shape[:2], start, min(start + rows, x.size // length)):
            lines = source[box]
            block = (array[: lines.size].reshape(lines.shape) for array in (keys, negative))
            target = None if best is None else best[box]
            work.append(partial(select, largest, lines, found[box], target, *block))
    return in_sequence(checked, *work)


def _lines(array: np.ndarray, axis: int) -> np.ndarray:
    """Return a view with three dimensions, the last of which is ``axis``."""
    outer, inner = prod(array.shape[:axis]), prod(array.shape[axis + 1 :])
    return array.reshape(outer, array.shape[axis], inner).swapaxes(1, 2)


def _select(
    largest: bool,
    x: np.ndarray,
    indices: np.ndarray,
    values: np.ndarray | None,
    keys: np.ndarray,
    negative: np.ndarray,
) -> None:
    """Find the first elements by rank in lines of ``x``, with up to 32 bits each."""
    k, length = indices.shape[-1], x.shape[-1]
    bits = x.view(f"i{x.itemsize}") if x.dtype.kind == "f" else x
    np.copyto(keys, bits)
    _exchange(x.dtype, keys, negative)
    if largest:
        np.invert(keys, out=keys)
    np.left_shift(keys, _INDEX_BITS, out=keys)
    np.add(keys, np.arange(length), out=keys)
    if k < length:
        keys.partition(k - 1, axis=-1)
    keys, negative = keys[..., :k], negative[..., :k]
    keys.sort(axis=-1)
    np.bitwise_and(keys, _INDEX_MASK, out=indices)
    if values is None:
        return
    np.right_shift(keys, _INDEX_BITS, out=keys)
    if largest:
        np.invert(keys, out=keys)
    _exchange(x.dtype, keys, negative)
    np.copyto(values.view(bits.dtype), keys, casting="unsafe")


def _exchange(dtype: np.dtype[np.generic], keys: np.ndarray, negative: np.ndarray) -> None:
    """Turn element bits into signed numbers with the same order, or back."""
    if dtype.kind == "f":
        # Negative floats count down as their bits count up; both zeros become 0.
        np.less(keys, 0, out=negative)
        np.subtract(-(1 << (8 * dtype.itemsize - 1)), keys, out=keys, where=negative)
    elif dtype == np.uint32:
        np.bitwise_xor(keys, _LOWEST, out=keys)


def _select_wide(
    largest: bool,
    x: np.ndarray,
    indices: np.ndarray,
    values: np.ndarray | None,
    keys: np.ndarray,
    negative: np.ndarray,
) -> None:
    """Find the first elements in lines that are too wide for keys, and so short enough to copy."""
    k, length = indices.shape[-1], x.shape[-1]
    if largest:  # From the end, so that the first of equal values comes first.
        order = np.argsort(x[..., ::-1], axis=-1, kind="stable")[..., ::-1]
        np.subtract(length - 1, order[..., :k], out=keys[..., :k])
    else:
        np.copyto(keys[..., :k], np.argsort(x, axis=-1, kind="stable")[..., :k])
    np.copyto(indices, keys[..., :k])
    if values is not None:
        np.copyto(values, np.take_along_axis(x, keys[..., :k], axis=-1))
