"""Gradients of matrix products."""

from __future__ import annotations

import numpy as np

from arenaplan.train.gradients.gradient_rules import Gradients, Site, rule


@rule("Gemm", reads="x0 x1")
def gemm(at: Site) -> Gradients:
    """Multiply the gradient by the other matrix, transposed; sum the gradient for the addend."""
    op = at.op
    found: list[int | None] = [None] * len(at.node.inputs)
    across, down = (bool(at.attribute(name, 0)) for name in ("transA", "transB"))
    alpha, beta = at.attribute("alpha", 1.0), at.attribute("beta", 1.0)
    scale = {} if alpha == 1 else {"alpha": alpha}
    if at.wants(0):
        if across:
            found[0] = op.Gemm(at.x(1), at.dy, transA=int(down), transB=1, **scale)
        else:
            found[0] = op.Gemm(at.dy, at.x(1), transB=int(not down), **scale)
    if at.wants(1):
        if down:
            found[1] = op.Gemm(at.dy, at.x(0), transA=1, transB=int(across), **scale)
        else:
            found[1] = op.Gemm(at.x(0), at.dy, transA=int(not across), **scale)
    if at.wants(2):
        gradient = at.unbroadcast(at.dy, 2)
        found[2] = gradient if beta == 1 else op.Mul(gradient, at.number(beta))
    return found


@rule("MatMul", reads="x0 x1")
def matmul(at: Site) -> Gradients:
    """Multiply the gradient by the other operand, transposed, and sum over repeated matrices."""
    op = at.op
    a, b, dy = at.shape(0), at.shape(1), at.dy
    if len(a) == 2 and len(b) == 2:
        return [
            op.Gemm(dy, at.x(1), transB=1) if at.wants(0) else None,
            op.Gemm(at.x(0), dy, transA=1) if at.wants(1) else None,
        ]
    # Vectors are matrices with a single row or column.
    left = (1, *a) if len(a) == 1 else a
    right = (*b, 1) if len(b) == 1 else b
    lead = at.made().shape[: len(at.made().shape) - (len(a) > 1) - (len(b) > 1)]
    gradient = _reshaped(at, dy, (*lead, left[-2], right[-1]))
    found: list[int | None] = [None, None]
    if at.wants(0):
        other = _transposed(at, _reshaped(at, at.x(1), right))
        found[0] = _summed_to(at, op.MatMul(gradient, other), left, 0)
    if at.wants(1):
        if len(right) == 2:  # One matrix for all: a single product over all rows.
            rows = _reshaped(at, at.x(0), (-1, left[-1]))
            all_rows = _reshaped(at, gradient, (-1, right[-1]))
            found[1] = _reshaped(at, op.Gemm(rows, all_rows, transA=1), b)
        else:
            other = _transposed(at, _reshaped(at, at.x(0), left))
            found[1] = _summed_to(at, op.MatMul(other, gradient), right, 1)
    return found


def _reshaped(at: Site, value: int, shape: tuple[int, ...]) -> int:
    if at.graph.values[value].shape == shape:
        return value
    made: int = at.op.Reshape(value, np.array(shape, np.int64))
    return made


def _transposed(at: Site, value: int) -> int:
    """Return matrices with rows and columns exchanged."""
    order = list(range(len(at.graph.values[value].shape)))
    order[-2:] = order[:-3:-1]
    made: int = at.op.Transpose(value, perm=order)
    return made


def _summed_to(at: Site, product: int, shape: tuple[int, ...], position: int) -> int:
    """Return products summed over repeated matrices, in an operand's shape."""
    given = at.graph.values[product].shape
    lead = len(given) - len(shape)
    axes = [
        k for k, dim in enumerate(given[:-2]) if k < lead or (shape[k - lead] == 1 and dim != 1)
    ]
    if axes:
        product = at.op.ReduceSum(product, np.array(axes, np.int64), keepdims=0)
    return _reshaped(at, product, at.shape(position))
