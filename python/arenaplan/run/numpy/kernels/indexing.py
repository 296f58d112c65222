"""
Reading and writing at positions that are data.

NumPy's indexing by arrays allocates the result. So every kernel here turns indices into positions
in a flat array, in 64-bit workspace, and hands the positions to ``np.take`` (whose modes other than
``"raise"`` write straight to ``out``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import prod
from typing import Any

import numpy as np

from arenaplan.base.errors import fault
from arenaplan.graph import Choice
from arenaplan.run.numpy.kernels.pieces import (
    Blocks,
    blockwise,
    check_shape,
    copy,
    in_sequence,
    invalid,
    normalized_axis,
    operand,
    result,
    when_known,
)
from arenaplan.run.numpy.registry import Declare, Run, Signature, Step, kernel, scratch_bytes

# -- positions ----------------------------------------------------------------------


def _positions(factor: Callable[[Signature], int]) -> Declare:
    """
    Declare room for positions computed from input 1, ``factor`` numbers for each index.

    Positions for constant indices are computed once and need no room.
    """

    def declare(signature: Signature) -> list[list[Choice]]:
        indices = signature.input(1)
        if indices is None or signature.constant[1] is not None:
            return []
        count = factor(signature)
        return [[Choice(scratch_bytes((count,), np.int64))]] if count else []

    return declare


def _room(step: Step, count: int) -> np.ndarray:
    """Return the room for positions, or a separate array if the positions never change."""
    if step.workspaces:
        return step.scratch().array((count,), np.int64)
    return np.empty(count, np.int64)


def check_indices(step: Step, indices: np.ndarray, length: int) -> bool:
    """
    Raise if an index is outside an axis, where NumPy would clip or wrap the index silently.

    Return whether any index counts from the end.
    """
    if indices.size == 0:
        return False
    low, high = int(indices.min()), int(indices.max())
    if low < -length or high >= length:
        raise fault(
            "IndexOutOfRange",
            f"node {step.signature.name!r} ({step.signature.op}) has index "
            f"{high if high >= length else low} for an axis of length {length}",
        )
    return low < 0


# -- gathering ------------------------------------------------------------------------


def _converted_indices(signature: Signature) -> int:
    indices = signature.inputs[1]
    return 0 if indices is None or indices.dtype == np.int64 else prod(indices.shape)


@kernel("Gather", workspace=_positions(_converted_indices))
def gather(step: Step) -> Run | None:
    """Select slices along an axis."""
    x, indices, y = operand(step, 0), operand(step, 1), result(step)
    axis = normalized_axis(step, step.attributes.get("axis", 0), x.ndim)
    if y.size == 0:
        return None
    if step.signature.constant[1] is not None and indices.size == 1:
        check_indices(step, indices, x.shape[axis])
        # Without the ellipsis an element of a list would be a copy, made once and for all.
        view = x[(slice(None),) * axis + (int(indices.reshape(-1)[0]), ...)]
        return copy(view, y.reshape(view.shape))
    positions = indices if indices.dtype == np.int64 else _room(step, indices.size)

    def prepare() -> Run:
        check_indices(step, indices, x.shape[axis])
        if positions is not indices:
            np.copyto(positions.reshape(indices.shape), indices)
        return partial(np.take, x, positions.reshape(indices.shape), axis, y, "wrap")

    return when_known(step, (1,), prepare)


def _one_per_index(signature: Signature) -> int:
    indices = signature.inputs[1]
    return 0 if indices is None else prod(indices.shape)


def _find_elements(
    step: Step, shape: Sequence[int], axis: int, indices: np.ndarray, positions: np.ndarray
) -> None:
    """Write where in a flat array of ``shape`` the elements are that ``indices`` select."""
    counts_from_end = check_indices(step, indices, shape[axis])
    flat = positions.reshape(indices.shape)
    np.copyto(flat, indices)
    if counts_from_end:
        np.remainder(flat, shape[axis], out=flat)
    np.multiply(flat, prod(shape[axis + 1 :]), out=flat)
    for other, dim in enumerate(indices.shape):
        if other != axis and dim > 1:
            offsets = np.arange(dim) * prod(shape[other + 1 :])
            np.add(flat, offsets.reshape(-1, *(1,) * (indices.ndim - other - 1)), out=flat)


@kernel("GatherElements", workspace=_positions(_one_per_index))
def gather_elements(step: Step) -> Run | None:
    """Select single elements along an axis."""
    x, indices, y = operand(step, 0), operand(step, 1), result(step)
    axis = normalized_axis(step, step.attributes.get("axis", 0), x.ndim)
    if y.size == 0:
        return None
    positions = _room(step, indices.size)

    def prepare() -> Run:
        _find_elements(step, x.shape, axis, indices, positions)
        return partial(np.take, x.reshape(-1), positions, None, y.reshape(-1), "clip")

    return when_known(step, (1,), prepare)


def _two_per_tuple(signature: Signature) -> int:
    """Count the positions for index tuples, and as much again to compute them."""
    indices = signature.inputs[1]
    return 0 if indices is None else 2 * prod(indices.shape[:-1])


def _find_tuples(
    step: Step, shape: Sequence[int], indices: np.ndarray, positions: np.ndarray, term: np.ndarray
) -> None:
    """Write where the index tuples point in an array of ``shape`` whose axes are merged."""
    tuples = indices.reshape(-1, indices.shape[-1])
    positions.fill(0)
    for axis, length in enumerate(shape):
        np.copyto(term, tuples[:, axis])
        if check_indices(step, term, length):
            np.remainder(term, length, out=term)
        np.multiply(positions, length, out=positions)
        np.add(positions, term, out=positions)


@kernel("GatherND", workspace=_positions(_two_per_tuple))
def gather_nd(step: Step) -> Run | None:
    """Select by index tuples."""
    x, indices, y = operand(step, 0), operand(step, 1), result(step)
    batch = int(step.attributes.get("batch_dims", 0))
    depth = indices.shape[-1] if indices.ndim else 0
    if not 0 <= batch < indices.ndim or batch + depth > x.ndim:
        raise invalid(step, f"batch_dims {batch}, data {x.shape}, indices {indices.shape}")
    if y.size == 0:
        return None
    batches, picked = prod(x.shape[:batch]), x.shape[batch : batch + depth]
    count = prod(indices.shape[:-1])
    room = _room(step, 2 * count)
    positions, term = room[:count], room[count:]
    source = x.reshape(batches * prod(picked), -1)

    def prepare() -> Run:
        _find_tuples(step, picked, indices, positions, term)
        first = np.arange(batches) * prod(picked)
        by_batch = positions.reshape(batches, -1)
        np.add(by_batch, first[:, None], out=by_batch)
        return partial(np.take, source, positions, 0, y.reshape(count, -1), "clip")

    return when_known(step, (1,), prepare)


# -- scattering -----------------------------------------------------------------------

_REDUCTIONS: Mapping[str, np.ufunc] = {
    "add": np.add,
    "mul": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
}


def _write_at(
    step: Step, target: np.ndarray, positions: np.ndarray, updates: np.ndarray
) -> Callable[[], Any]:
    """Return a function that puts ``updates`` at ``positions`` on the target's first axis."""
    reduction = _reduction(step)
    if reduction is None:
        return partial(target.__setitem__, positions, updates)
    return partial(reduction.at, target, positions, updates)


def _reduction(step: Step) -> np.ufunc | None:
    """Return a function that combines an update with an element; ``None`` if updates replace."""
    reduction = step.attributes.get("reduction", "none")
    if reduction != "none" and reduction not in _REDUCTIONS:
        raise invalid(step, f"reduction is {reduction!r}")
    return _REDUCTIONS.get(reduction)


@kernel("Scatter", "ScatterElements", workspace=_positions(_one_per_index))
def scatter_elements(step: Step) -> Run | None:
    """Write or combine single elements along an axis."""
    x, indices, updates = operand(step, 0), operand(step, 1), operand(step, 2)
    y = result(step)
    axis = normalized_axis(step, step.attributes.get("axis", 0), x.ndim)
    _reduction(step)
    if indices.size == 0:
        return copy(x, y)
    positions = _room(step, indices.size)

    def prepare() -> Run:
        _find_elements(step, y.shape, axis, indices, positions)
        return _write_at(step, y.reshape(-1), positions, updates.reshape(-1))

    return in_sequence(copy(x, y), when_known(step, (1,), prepare))


@kernel("ScatterND", workspace=_positions(_two_per_tuple))
def scatter_nd(step: Step) -> Run | None:
    """Write or combine slices at index tuples."""
    x, indices, updates = operand(step, 0), operand(step, 1), operand(step, 2)
    y = result(step)
    depth = indices.shape[-1] if indices.ndim else 0
    if depth > x.ndim:
        raise invalid(step, f"data {x.shape}, indices {indices.shape}")
    _reduction(step)
    if updates.size == 0:
        return copy(x, y)
    count = prod(indices.shape[:-1])
    room = _room(step, 2 * count)
    positions, term = room[:count], room[count:]
    inner = prod(x.shape[depth:])
    shape = (-1, inner) if inner > 1 else (-1,)
    target, values = y.reshape(shape), updates.reshape(shape)

    def prepare() -> Run:
        _find_tuples(step, x.shape[:depth], indices, positions, term)
        return _write_at(step, target, positions, values)

    return in_sequence(copy(x, y), when_known(step, (1,), prepare))


@kernel("TensorScatter")
def tensor_scatter(step: Step) -> Run | None:
    """Write new entries into a cache, at a separate position for each sample in the batch."""
    x, updates, y = operand(step, 0), operand(step, 1), result(step)
    axis = normalized_axis(step, step.attributes.get("axis", -2), x.ndim)
    circular = step.attributes.get("mode", "linear") == "circular"
    length, count = x.shape[axis], updates.shape[axis]
    before = (slice(None),) * (axis - 1)

    def prepare() -> Run | None:
        given = step.input(2)
        starts = [0] * len(x) if given is None else given.tolist()
        work: list[Run | None] = []
        for sample, start in enumerate(starts):
            if circular:
                start %= length
            elif not 0 <= start <= length - count:
                raise fault(
                    "IndexOutOfRange",
                    f"node {step.signature.name!r} (TensorScatter) writes entries "
                    f"{start} to {start + count} of a cache of {length}",
                )
            fitting = min(count, length - start)
            for first, entries in ((start, slice(0, fitting)), (0, slice(fitting, count))):
                if entries.start < entries.stop:
                    stop = first + entries.stop - entries.start
                    target = y[sample][(*before, slice(first, stop))]
                    work.append(copy(updates[sample][(*before, entries)], target))
        return in_sequence(*work)

    return in_sequence(copy(x, y), when_known(step, (2,), prepare))


# -- one-hot --------------------------------------------------------------------------

_MASK = Blocks("bool")


def _mark(
    indices: np.ndarray,
    classes: np.ndarray,
    from_end: np.ndarray,
    off: np.ndarray,
    on: np.ndarray,
    y: np.ndarray,
    mask: np.ndarray,
) -> None:
    np.copyto(y, off)
    for numbers in (classes, from_end):
        np.equal(indices, numbers, out=mask)
        np.copyto(y, on, where=mask)


@kernel("OneHot", workspace=_MASK.declare)
def one_hot(step: Step) -> Run | None:
    """Mark the place of each index on a separate axis."""
    indices, values, y = operand(step, 0), operand(step, 2), result(step)
    axis = normalized_axis(step, step.attributes.get("axis", -1), y.ndim)
    shape = [-1 if at == axis else 1 for at in range(y.ndim)]
    number = np.float64 if indices.dtype.kind == "f" else np.int64
    classes = np.arange(y.shape[axis], dtype=number).reshape(shape)
    inputs = [np.expand_dims(indices, axis), classes, classes - y.shape[axis]]
    ends = [values[0:1].reshape(()), values[1:2].reshape(())]

    def check() -> None:
        depth = int(operand(step, 1).reshape(-1)[0])
        check_shape(step, [*y.shape[:axis], depth, *y.shape[axis + 1 :]])

    work = blockwise(_mark, [*inputs, *ends], y, _MASK.arrays(step))
    return in_sequence(when_known(step, (1,), check), work)
