"""Determinants."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from arenaplan.graph import Choice
from arenaplan.run.numpy.kernels.pieces import invalid, operand, result
from arenaplan.run.numpy.kernels.widen import heavy_kernel
from arenaplan.run.numpy.registry import Run, Signature, Step, scratch_bytes


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
