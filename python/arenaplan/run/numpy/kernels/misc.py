"""Operators that make the output from shapes and attributes, and rotary embedding."""

from __future__ import annotations

from functools import partial
from math import ceil, prod
from typing import Any, NamedTuple

import numpy as np

from arenaplan.base.errors import InvalidOperand
from arenaplan.graph import Choice
from arenaplan.run.numpy.kernels.indexing import check_indices
from arenaplan.run.numpy.kernels.pieces import (
    BLOCK,
    check_shape,
    copy,
    in_sequence,
    invalid,
    operand,
    result,
    when_known,
)
from arenaplan.run.numpy.registry import Run, Signature, Step, kernel, scratch_bytes

# -- known before the run --------------------------------------------------------------


def _loaded(tensor: Any) -> np.ndarray:
    """Return an attribute's data, which importers may leave in the file."""
    return np.asarray(tensor.load() if hasattr(tensor, "load") else tensor)


def _write(y: np.ndarray, value: Any) -> Run:
    """Return a function that writes a fixed value in each run, since the memory is reused."""
    data = np.array(value, dtype=y.dtype)
    return partial(np.copyto, y, data if data.ndim == 0 else data.reshape(y.shape))


@kernel("Constant")
def constant(step: Step) -> Run | None:
    """Write a fixed value."""
    for name in ("value_float", "value_floats", "value_int", "value_ints"):
        if name in step.attributes:
            return _write(result(step), step.attributes[name])
    if "value" not in step.attributes:
        raise invalid(step, "it has no dense value")
    return _write(result(step), _loaded(step.attributes["value"]))


@kernel("ConstantOfShape")
def constant_of_shape(step: Step) -> Run | None:
    """Fill with a fixed value."""
    value = _loaded(step.attributes.get("value", np.zeros(1, np.float32)))
    if value.size != 1:
        raise invalid(step, f"its value has {value.size} elements")
    checked = when_known(
        step, (0,), lambda: check_shape(step, operand(step, 0).reshape(-1).tolist())
    )
    return in_sequence(checked, _write(result(step), value.reshape(())))


@kernel("Shape")
def shape(step: Step) -> Run | None:
    """Write the input's dimensions."""
    dims = operand(step, 0).shape
    return _write(
        result(step), dims[slice(step.attributes.get("start", 0), step.attributes.get("end"))]
    )


@kernel("Size")
def size(step: Step) -> Run | None:
    """Write the number of elements in the input."""
    return _write(result(step), operand(step, 0).size)


@kernel("EyeLike")
def eye_like(step: Step) -> Run | None:
    """Write ones on a diagonal."""
    y, k = result(step), int(step.attributes.get("k", 0))
    rows, columns = y.shape
    start = k if k >= 0 else -k * columns
    count = max(0, min(rows + min(k, 0), columns - max(k, 0)))
    diagonal = y.reshape(-1)[start :: columns + 1][:count]
    return in_sequence(partial(y.fill, 0), partial(np.copyto, diagonal, 1))


@kernel("Range")
def range_(step: Step) -> Run | None:
    """Write numbers at equal distances."""
    first, stride = operand(step, 0).reshape(()), operand(step, 2).reshape(())
    y = result(step)

    def check() -> None:
        limit = operand(step, 1).reshape(())
        if not stride:
            raise invalid(step, "the distance is 0")
        if y.dtype.kind == "f":
            count = ceil((float(limit) - float(first)) / float(stride))
        else:
            count = -((int(first) - int(limit)) // int(stride))
        check_shape(step, [max(count, 0)])

    def run() -> None:
        y.fill(1)
        y[:1] = 0
        np.add.accumulate(y, out=y)
        np.multiply(y, stride, out=y)
        np.add(y, first, out=y)

    return in_sequence(when_known(step, (0, 1, 2), check), run)


# -- rotary embedding ----------------------------------------------------------------------


class _Heads(NamedTuple):
    """Sizes in a rotary embedding."""

    batch: int
    length: int
    heads: int
    width: int
    """Elements per head."""
    rotated: int
    """Leading elements in each head that are rotated, in pairs."""

    @classmethod
    def of(cls, signature: Signature) -> _Heads:
        x = signature.inputs[0]
        shape = () if x is None else x.shape
        if len(shape) == 4:
            batch, heads, length, width = shape
        elif len(shape) == 3 and signature.attributes.get("num_heads", 0) > 0:
            batch, length, hidden = shape
            heads = signature.attributes["num_heads"]
            width = hidden // heads
        else:
            batch = heads = length = width = 0
        rotated = signature.attributes.get("rotary_embedding_dim", 0) or width
        if not width or rotated % 2 or not 0 < rotated <= width or prod(shape) % (heads * width):
            raise InvalidOperand(
                f"node {signature.name!r} (RotaryEmbedding) cannot turn {rotated} elements of "
                f"each head of an operand of shape {shape}"
            )
        return cls(batch, length, heads, width, rotated)

    def view(self, array: np.ndarray) -> np.ndarray:
        """Return ``array`` with axes batch, position, head, element."""
        if array.ndim == 4:
            return array.swapaxes(1, 2)
        return array.reshape(self.batch, self.length, self.heads, self.width)

    @property
    def together(self) -> int:
        """Heads that are worked on at a time."""
        return min(self.heads, max(1, 2 * BLOCK // max(1, self.length * self.rotated)))


def _declare_rotation(signature: Signature) -> list[list[Choice]]:
    x, sizes = signature.inputs[0], _Heads.of(signature)
    if x is None or x.bytes == 0:
        return []
    pairs = sizes.rotated // 2
    room = 2 * scratch_bytes((sizes.length, sizes.together, pairs), x.dtype)
    if signature.input(3) is not None:
        room += 2 * scratch_bytes((sizes.batch, sizes.length, pairs), x.dtype)
    return [[Choice(room)]]


@kernel("RotaryEmbedding", workspace=_declare_rotation)
def rotary_embedding(step: Step) -> Run | None:
    """Turn element pairs by angles that depend on the position, also in place."""
    sizes, y = _Heads.of(step.signature), result(step)
    if y.size == 0:
        return None
    x, y = sizes.view(operand(step, 0)), sizes.view(y)
    scratch, pairs = step.scratch(), sizes.rotated // 2
    spares = [scratch.array((sizes.length, sizes.together, pairs), y.dtype) for _ in range(2)]
    tables = [operand(step, 1), operand(step, 2)]
    positions = step.input(3)
    work: list[Run | None] = [copy(x[..., sizes.rotated :], y[..., sizes.rotated :])]
    if positions is not None:
        rows = [scratch.array((sizes.batch, sizes.length, pairs), y.dtype) for _ in tables]
        work.append(partial(_look_up, step, positions, tables, rows))
        tables = rows
    if step.attributes.get("interleaved", 0):
        halves = slice(0, sizes.rotated, 2), slice(1, sizes.rotated, 2)
    else:
        halves = slice(0, pairs), slice(pairs, sizes.rotated)
    for sample in range(sizes.batch):
        cos, sin = (table[sample][:, None] for table in tables)
        for first in range(0, sizes.heads, sizes.together):
            heads = slice(first, first + sizes.together)
            first_x, second_x, first_y, second_y = (
                array[sample][:, heads, half] for array in (x, y) for half in halves
            )
            rooms = [spare[:, : first_x.shape[1]] for spare in spares]
            work.append(partial(_rotate, first_x, second_x, first_y, second_y, cos, sin, *rooms))
    return in_sequence(*work)


def _look_up(
    step: Step, positions: np.ndarray, tables: list[np.ndarray], rows: list[np.ndarray]
) -> None:
    """Fetch the angles for each position."""
    for table, row in zip(tables, rows, strict=True):
        check_indices(step, positions, len(table))
        np.take(table, positions, axis=0, out=row, mode="wrap")


def _rotate(
    x: np.ndarray,
    y: np.ndarray,
    turned_x: np.ndarray,
    turned_y: np.ndarray,
    cos: np.ndarray,
    sin: np.ndarray,
    spare: np.ndarray,
    other: np.ndarray,
) -> None:
    """Turn points ``(x, y)`` by angles."""
    np.multiply(y, sin, out=spare)
    np.multiply(x, sin, out=other)
    np.multiply(x, cos, out=turned_x)
    np.subtract(turned_x, spare, out=turned_x)
    np.multiply(y, cos, out=turned_y)
    np.add(turned_y, other, out=turned_y)
