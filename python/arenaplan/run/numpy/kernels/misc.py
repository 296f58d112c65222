"""Operators that make the output from shapes and attributes."""

from __future__ import annotations

from functools import partial
from math import ceil
from typing import Any

import numpy as np

from arenaplan.run.numpy.kernels.pieces import (
    check_shape,
    in_sequence,
    invalid,
    operand,
    result,
    when_known,
)
from arenaplan.run.numpy.registry import Run, Step, kernel


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
