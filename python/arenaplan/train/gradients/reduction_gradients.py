"""Gradients of reductions."""

from __future__ import annotations

import numpy as np

from arenaplan.train.gradients.gradient_rules import Gradients, Site, count, rule


def _kept(at: Site, value: int) -> int:
    """Return a value in the result's shape with all dimensions kept."""
    axes, shape = at.axes(), at.shape(0)
    kept = tuple(1 if k in axes else dim for k, dim in enumerate(shape))
    if at.graph.values[value].shape == kept:
        return value
    made: int = at.op.Reshape(value, np.array(kept, np.int64))
    return made


def _found(at: Site, gradient: int) -> Gradients:
    return [gradient, *[None] * (len(at.node.inputs) - 1)]


def _spread(at: Site, gradient: int) -> int:
    """Return a gradient repeated to the operand's shape."""
    made: int = at.op.Expand(_kept(at, gradient), np.array(at.shape(0), np.int64))
    return made


@rule("ReduceSum")
def reduce_sum(at: Site) -> Gradients:
    """Repeat the gradient."""
    return _found(at, _spread(at, at.dy))


@rule("ReduceMean")
def reduce_mean(at: Site) -> Gradients:
    """Repeat each element's share of the gradient."""
    share = at.number(1 / max(count(at.shape(0), at.axes()), 1))
    return _found(at, _spread(at, at.op.Mul(at.dy, share)))


@rule("ReduceMax", "ReduceMin", reads="x0 y0")
def reduce_extreme(at: Site) -> Gradients:
    """Share the gradient evenly among the elements that are the result."""
    op = at.op
    equal = op.Equal(at.x(0), _kept(at, at.y()))
    mark = op.CastLike(equal, op.constant(np.zeros((), at.read(0).dtype), name="type"))
    axes = np.array(at.axes(), np.int64)
    many = op.ReduceSum(mark, axes, keepdims=1) if axes.size else mark
    return _found(at, op.Mul(mark, op.Div(_kept(at, at.dy), many)))


@rule("ReduceProd", reads="x0")
def reduce_prod(at: Site) -> Gradients:
    """Multiply by the product of the other elements; special-cased for zeros."""
    op, zero, one = at.op, at.number(0), at.number(1)
    axes = np.array(at.axes(), np.int64)
    is_zero = op.Equal(at.x(0), zero)
    safe = op.Where(is_zero, one, at.x(0))
    zeros = op.Where(is_zero, one, zero)
    if axes.size:
        rest, many = op.ReduceProd(safe, axes, keepdims=1), op.ReduceSum(zeros, axes, keepdims=1)
    else:
        rest, many = safe, zeros
    # With a single zero, only the zero's factor is nonzero; with more zeros, no factor is.
    alone = op.Where(op.Equal(many, zeros), op.Div(rest, safe), zero)
    kept = op.Where(op.Less(many, at.number(1.5)), alone, zero)
    return _found(at, op.Mul(_kept(at, at.dy), kept))


@rule("CumSum")
def cumulative_sum(at: Site) -> Gradients:
    """Sum from the other end."""
    reverse, exclusive = at.attribute("reverse", 0), at.attribute("exclusive", 0)
    axis = at.data(1)
    return [at.op.CumSum(at.dy, axis, reverse=int(not reverse), exclusive=exclusive), None]
