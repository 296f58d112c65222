"""
Gradients of elementwise operators and of softmax, from the operator's operands or results.

Each formula is one or two passes over a block, so that the result may take over the incoming
gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import TypeAlias

import numpy as np

from arenaplan.graph import Choice
from arenaplan.graph.ops.own_ops import TRAINING
from arenaplan.run.numpy.cuts import ELEMENTWISE, RESHAPE
from arenaplan.run.numpy.kernels.pieces import (
    Blocks,
    blockwise,
    copy,
    normalized_axis,
    operand,
    result,
)
from arenaplan.run.numpy.registry import Run, Signature, Step, kernel, scratch_bytes

Formula: TypeAlias = Callable[..., object]
_ONE = Blocks(None)


@kernel("StopGradient", domain=TRAINING, cut=RESHAPE)
def stop_gradient(step: Step) -> Run | None:
    """Write the same elements; nothing to do for a view."""
    return copy(operand(step, 0).reshape(-1), result(step).reshape(-1))


@kernel("ReluGrad", domain=TRAINING, workspace=Blocks("bool").declare, cut=ELEMENTWISE)
def relu_gradient(step: Step) -> Run | None:
    """Keep the gradient where the result is positive."""

    def formula(dy: np.ndarray, y: np.ndarray, dx: np.ndarray, mark: np.ndarray) -> None:
        np.greater(y, 0, out=mark)
        np.multiply(dy, mark, out=dx)

    scratch = Blocks("bool").arrays(step)
    return blockwise(formula, [operand(step, 0), operand(step, 1)], result(step), scratch)


@kernel("SigmoidGrad", domain=TRAINING, workspace=_ONE.declare, cut=ELEMENTWISE)
def sigmoid_gradient(step: Step) -> Run | None:
    """Multiply by ``y (1 - y)``."""

    def formula(dy: np.ndarray, y: np.ndarray, dx: np.ndarray, room: np.ndarray) -> None:
        np.subtract(1, y, out=room)
        np.multiply(room, y, out=room)
        np.multiply(dy, room, out=dx)

    return _blockwise(step, formula, _ONE)


@kernel("TanhGrad", domain=TRAINING, workspace=_ONE.declare, cut=ELEMENTWISE)
def tanh_gradient(step: Step) -> Run | None:
    """Multiply by ``1 - y²``."""

    def formula(dy: np.ndarray, y: np.ndarray, dx: np.ndarray, room: np.ndarray) -> None:
        np.multiply(y, y, out=room)
        np.subtract(1, room, out=room)
        np.multiply(dy, room, out=dx)

    return _blockwise(step, formula, _ONE)


def _blockwise(step: Step, formula: Formula, blocks: Blocks) -> Run | None:
    inputs = [operand(step, 0), operand(step, 1)]
    return blockwise(formula, inputs, result(step), blocks.arrays(step))


@kernel("DropoutGrad", domain=TRAINING, cut=ELEMENTWISE)
def dropout_gradient(step: Step) -> Run | None:
    """Keep the gradient where the operand was kept, scaled like the operand."""
    ratio = step.input(2)

    def formula(dy: np.ndarray, mask: np.ndarray, dx: np.ndarray) -> None:
        share = 0.5 if ratio is None else float(ratio.item())
        np.multiply(dy, dy.dtype.type(1 / (1 - share) if share < 1 else 0), out=dx)
        np.multiply(dx, mask, out=dx)

    return blockwise(formula, [operand(step, 0), operand(step, 1)], result(step))


# -- softmax --------------------------------------------------------------------------------------


def _planes(shape: Sequence[int], axis: int) -> tuple[int, int, int]:
    """Return how many elements are before, along and behind an axis."""
    axis %= max(len(shape), 1)
    return prod(shape[:axis]), shape[axis] if shape else 1, prod(shape[axis + 1 :])


def _declare_sums(signature: Signature) -> Sequence[Sequence[Choice]]:
    """Ask for one sum per row, and the products of one plane."""
    x = signature.inputs[0]
    if x is None or 0 in x.shape:
        return []
    _, along, behind = _planes(x.shape, signature.attributes.get("axis", -1))
    size = scratch_bytes((1, behind), x.dtype) + scratch_bytes((along, behind), x.dtype)
    return [[Choice(size, 0.0)]]


@kernel("SoftmaxGrad", "LogSoftmaxGrad", domain=TRAINING, workspace=_declare_sums)
def softmax_gradient(step: Step) -> Run | None:
    """Write ``y (dy - sum(dy y))``, or ``dy - exp(y) sum(dy)`` for the logarithm."""
    dy, y, dx = operand(step, 0), operand(step, 1), result(step)
    if dx.size == 0:
        return None
    axis = normalized_axis(step, step.attributes.get("axis", -1), dy.ndim)
    planes = _planes(dy.shape, axis)
    scratch = step.scratch()
    total = scratch.array((1, planes[2]), dy.dtype)
    room = scratch.array(planes[1:], dy.dtype)
    is_logarithm = step.signature.op == "LogSoftmaxGrad"
    rows = list(zip(*(array.reshape(planes) for array in (dy, y, dx)), strict=True))

    def run() -> None:
        for gradient, value, target in rows:
            if is_logarithm:
                np.add.reduce(gradient, axis=0, keepdims=True, out=total)
                np.exp(value, out=room)
                np.multiply(room, total, out=room)
                np.subtract(gradient, room, out=target)
            else:
                np.multiply(gradient, value, out=room)
                np.add.reduce(room, axis=0, keepdims=True, out=total)
                np.subtract(gradient, total, out=target)
                np.multiply(target, value, out=target)

    return run
