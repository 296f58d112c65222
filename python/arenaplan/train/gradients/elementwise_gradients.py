"""Gradients of elementwise operators with broadcasting, and of selections."""

from __future__ import annotations

import numpy as np

from arenaplan.train.gradients.gradient_rules import Gradients, Site, rule


@rule("Add", "Sum")
def add(at: Site) -> Gradients:
    """Pass the gradient on to every operand."""
    return [at.unbroadcast(at.dy, k) if at.wants(k) else None for k in range(len(at.node.inputs))]


@rule("Sub")
def sub(at: Site) -> Gradients:
    """Pass the gradient on, negative to the second operand."""
    return [
        at.unbroadcast(at.dy, 0) if at.wants(0) else None,
        at.op.Neg(at.unbroadcast(at.dy, 1)) if at.wants(1) else None,
    ]


@rule("Mul", reads="x0 x1")
def mul(at: Site) -> Gradients:
    """Multiply by the other operand."""
    return [
        at.unbroadcast(at.op.Mul(at.dy, at.x(1 - k)), k) if at.wants(k) else None for k in (0, 1)
    ]


@rule("Div", reads="x1 y0")
def div(at: Site) -> Gradients:
    """Divide; the divisor's gradient is ``-dy y / b``."""
    share = at.op.Div(at.dy, at.x(1))
    return [
        at.unbroadcast(share, 0) if at.wants(0) else None,
        at.unbroadcast(at.op.Neg(at.op.Mul(share, at.y())), 1) if at.wants(1) else None,
    ]


@rule("Pow", reads="x0 x1 y0")
def power(at: Site) -> Gradients:
    """Write ``dy b a^(b-1)``, 0 where ``b`` is 0, and ``dy y log(a)``, 0 where ``a`` is 0."""
    op = at.op
    found: list[int | None] = [None, None]
    dtype = at.read(0).dtype
    exponent = at.read(1)
    if at.wants(0):
        if exponent.kind == "constant" and exponent.dtype == dtype and np.all(at.data(1) == 2):
            slope = op.Mul(at.x(0), at.number(2))
        else:
            slope = op.Mul(op.Pow(at.x(0), _lower(at)), _cast(at, at.x(1), dtype))
        found[0] = at.unbroadcast(op.Mul(at.dy, slope), 0)
    if at.wants(1):
        zero, one = at.number(0), at.number(1)
        is_zero = op.Equal(at.x(0), zero)
        logarithm = op.Where(is_zero, zero, op.Log(op.Where(is_zero, one, at.x(0))))
        slope = op.Mul(op.Mul(at.dy, at.y()), logarithm)
        found[1] = at.unbroadcast(_cast(at, slope, exponent.dtype), 1)
    return found


def _lower(at: Site) -> int:
    """Return the exponent minus one, and 0 for exponent 0, so that powers of 0 are finite."""
    op, exponent = at.op, at.read(1)
    zero, one = (np.asarray(number, exponent.dtype) for number in (0, 1))
    made: int
    if exponent.kind == "constant" and at.graph.has_data(exponent.index):
        b = at.data(1)
        made = op.constant(np.where(b == 0, zero, b - one).astype(b.dtype), name="exponent")
    else:
        made = op.Sub(op.Where(op.Equal(at.x(1), zero), one, at.x(1)), one)
    return made


def _cast(at: Site, value: int, dtype: str) -> int:
    """Return a value in another element type."""
    if at.graph.values[value].dtype == dtype:
        return value
    made: int = at.op.CastLike(value, at.op.constant(np.zeros((), dtype), name="type"))
    return made


@rule("Max", "Min", reads="x* y0")
def extreme(at: Site) -> Gradients:
    """Share the gradient evenly among the operands that are the result."""
    op, positions = at.op, range(len(at.node.inputs))
    if len(positions) == 1:
        return [at.dy]
    marks = [_cast(at, op.Equal(at.x(k), at.y()), at.made().dtype) for k in positions]
    share = op.Div(at.dy, op.Sum(*marks))
    return [
        at.unbroadcast(op.Mul(share, mark), k) if at.wants(k) else None
        for k, mark in zip(positions, marks, strict=True)
    ]


@rule("Where", reads="x0")
def where(at: Site) -> Gradients:
    """Give each element's gradient to the operand that provided the element."""
    op, zero = at.op, at.number(0, 1)
    return [
        None,
        at.unbroadcast(op.Where(at.x(0), at.dy, zero), 1) if at.wants(1) else None,
        at.unbroadcast(op.Where(at.x(0), zero, at.dy), 2) if at.wants(2) else None,
    ]


@rule("Identity")
def identity(at: Site) -> Gradients:
    """Pass the gradient on."""
    return [at.dy]


@rule("Assign")
def assign(at: Site) -> Gradients:
    """Pass the new content's gradient on to the value."""
    return [None, at.dy]


@rule("StopGradient", "Sign", "Floor", "Ceil", "Round")
def constant(at: Site) -> Gradients:
    """No gradient flows: the result is constant, or is taken for constant."""
    del at
    return [None]


@rule("Cast", "CastLike")
def cast(at: Site) -> Gradients:
    """Convert the gradient back."""
    return [_cast(at, at.dy, at.read(0).dtype), *[None] * (len(at.node.inputs) - 1)]


@rule("Clip", reads="x0 y0")
def clip(at: Site) -> Gradients:
    """Keep the gradient for elements inside the bounds."""
    if at.wants(1) or at.wants(2):
        raise at.refusal("its bounds have no gradient")
    kept = at.op.Where(at.op.Equal(at.x(0), at.y()), at.dy, at.number(0))
    return [kept, *[None] * (len(at.node.inputs) - 1)]


@rule("Dropout", reads="x1 y1")
def dropout(at: Site) -> Gradients:
    """Apply mask and scale to the gradient; outside training, keep all of it."""
    rest = [None] * (len(at.node.inputs) - 1)
    training = at.has(2) and bool(at.data(2).any())
    if not training:
        return [at.dy, *rest]
    mask = at.also(1, at.shape(0), "bool")
    ratio = at.x(1) if at.has(1) else None
    return [at.op.DropoutGrad(at.dy, mask, ratio), *rest]
