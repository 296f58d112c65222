"""Gradients of single-operand functions, from the result where sufficient."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import pi, sqrt
from typing import Any, Final, TypeAlias

from arenaplan.train.gradients.gradient_rules import Gradients, Site, rule
from arenaplan.train.symbols import Operators

_Formula: TypeAlias = "Callable[[Operators, int, int, Callable[[float], int]], int]"
"""
A gradient by operators, the result's gradient, the operand or the result, and constants with the
operand's type.
"""


def _squared(op: Operators, x: int) -> Any:
    return op.Mul(x, x)


_BY_RESULT: Final[Mapping[str, _Formula]] = {
    "Exp": lambda op, dy, y, number: op.Mul(dy, y),
    "Reciprocal": lambda op, dy, y, number: op.Neg(op.Mul(op.Mul(dy, y), y)),
    "Relu": lambda op, dy, y, number: op.ReluGrad(dy, y),
    "Sigmoid": lambda op, dy, y, number: op.SigmoidGrad(dy, y),
    "Softsign": lambda op, dy, y, number: op.Mul(dy, _squared(op, op.Sub(number(1), op.Abs(y)))),
    "Sqrt": lambda op, dy, y, number: op.Div(op.Mul(dy, number(0.5)), y),
    "Tan": lambda op, dy, y, number: op.Mul(dy, op.Add(_squared(op, y), number(1))),
    "Tanh": lambda op, dy, y, number: op.TanhGrad(dy, y),
}
"""Gradients that follow from results."""

_BY_OPERAND: Final[Mapping[str, _Formula]] = {
    "Abs": lambda op, dy, x, number: op.Mul(dy, op.Sign(x)),
    "Acos": lambda op, dy, x, number: op.Neg(
        op.Div(dy, op.Sqrt(op.Sub(number(1), _squared(op, x))))
    ),
    "Acosh": lambda op, dy, x, number: op.Div(dy, op.Sqrt(op.Sub(_squared(op, x), number(1)))),
    "Asin": lambda op, dy, x, number: op.Div(dy, op.Sqrt(op.Sub(number(1), _squared(op, x)))),
    "Asinh": lambda op, dy, x, number: op.Div(dy, op.Sqrt(op.Add(_squared(op, x), number(1)))),
    "Atan": lambda op, dy, x, number: op.Div(dy, op.Add(_squared(op, x), number(1))),
    "Atanh": lambda op, dy, x, number: op.Div(dy, op.Sub(number(1), _squared(op, x))),
    "Cos": lambda op, dy, x, number: op.Neg(op.Mul(dy, op.Sin(x))),
    "Cosh": lambda op, dy, x, number: op.Mul(dy, op.Sinh(x)),
    "Erf": lambda op, dy, x, number: op.Mul(
        dy, op.Mul(op.Exp(op.Neg(_squared(op, x))), number(2 / sqrt(pi)))
    ),
    "Log": lambda op, dy, x, number: op.Div(dy, x),
    "Sin": lambda op, dy, x, number: op.Mul(dy, op.Cos(x)),
    "Sinh": lambda op, dy, x, number: op.Mul(dy, op.Cosh(x)),
    "Softplus": lambda op, dy, x, number: op.Mul(dy, op.Sigmoid(x)),
}
"""Gradients that need operands."""


def _registered(name: str, formula: _Formula, reads: str) -> None:
    rule(name, reads=reads)(
        lambda at: [formula(at.op, at.dy, at.y() if reads == "y0" else at.x(0), at.number)]
    )


for _name in _BY_RESULT:
    _registered(_name, _BY_RESULT[_name], "y0")
for _name in _BY_OPERAND:
    _registered(_name, _BY_OPERAND[_name], "x0")


@rule("Neg")
def neg(at: Site) -> Gradients:
    """Negate the gradient."""
    return [at.op.Neg(at.dy)]


@rule("LeakyRelu", reads="x0")
def leaky_relu(at: Site) -> Gradients:
    """Scale the gradient for negative elements."""
    op, alpha = at.op, at.number(at.attribute("alpha", 0.01))
    return [op.Where(op.Less(at.x(0), at.number(0)), op.Mul(at.dy, alpha), at.dy)]


@rule("PRelu", reads="x0 x1")
def prelu(at: Site) -> Gradients:
    """
    Scale the gradient for negative elements by the slope; the slope's gradient by the elements.
    """
    op, zero = at.op, at.number(0)
    dx = slope = None
    if at.wants(0):
        dx = op.Where(op.Less(at.x(0), zero), op.Mul(at.dy, at.x(1)), at.dy)
    if at.wants(1):
        slope = at.unbroadcast(op.Mul(at.dy, op.Min(at.x(0), zero)), 1)
    return [dx, slope]


def _bent(at: Site, below: int, above: int | None = None) -> Gradients:
    """Return the gradient times a slope for negative results, and another slope for the rest."""
    op = at.op
    is_below = op.Less(at.y(), at.number(0))
    return [op.Mul(at.dy, op.Where(is_below, below, at.number(1) if above is None else above))]


@rule("Elu", reads="y0")
def elu(at: Site) -> Gradients:
    """Multiply by ``y + alpha`` where the result is negative."""
    return _bent(at, at.op.Add(at.y(), at.number(at.attribute("alpha", 1.0))))


@rule("Celu", reads="y0")
def celu(at: Site) -> Gradients:
    """Multiply by ``y / alpha + 1`` where the result is negative."""
    scaled = at.op.Mul(at.y(), at.number(1 / at.attribute("alpha", 1.0)))
    return _bent(at, at.op.Add(scaled, at.number(1)))


@rule("Selu", reads="y0")
def selu(at: Site) -> Gradients:
    """Multiply by gamma, or by ``y + gamma alpha`` where the result is negative."""
    alpha = at.attribute("alpha", 1.67326319217681884765625)
    gamma = at.attribute("gamma", 1.05070102214813232421875)
    return _bent(at, at.op.Add(at.y(), at.number(alpha * gamma)), at.number(gamma))


@rule("ThresholdedRelu", reads="x0")
def thresholded_relu(at: Site) -> Gradients:
    """Keep the gradient for elements above the threshold."""
    above = at.op.Greater(at.x(0), at.number(at.attribute("alpha", 1.0)))
    return [at.op.Where(above, at.dy, at.number(0))]


@rule("Shrink", reads="x0")
def shrink(at: Site) -> Gradients:
    """Keep the gradient for elements that are not shrunk to zero."""
    beyond = at.op.Greater(at.op.Abs(at.x(0)), at.number(at.attribute("lambd", 0.5)))
    return [at.op.Where(beyond, at.dy, at.number(0))]


@rule("HardSigmoid", reads="y0")
def hard_sigmoid(at: Site) -> Gradients:
    """Multiply by alpha between the bounds."""
    op = at.op
    inside = op.And(op.Greater(at.y(), at.number(0)), op.Less(at.y(), at.number(1)))
    slope = op.Mul(at.dy, at.number(at.attribute("alpha", 0.2)))
    return [op.Where(inside, slope, at.number(0))]


@rule("HardSwish", reads="x0")
def hard_swish(at: Site) -> Gradients:
    """Multiply by ``x / 3 + 1 / 2`` between -3 and 3, above by 1."""
    op = at.op
    slope = op.Add(op.Mul(at.x(0), at.number(1 / 3)), at.number(0.5))
    above = op.Where(op.Less(at.x(0), at.number(3)), slope, at.number(1))
    bent = op.Where(op.Greater(at.x(0), at.number(-3)), above, at.number(0))
    return [op.Mul(at.dy, bent)]


@rule("Swish", reads="x0")
def swish(at: Site) -> Gradients:
    """Multiply by ``s + alpha x s (1 - s)`` with ``s = sigmoid(alpha x)``."""
    op, alpha = at.op, at.number(at.attribute("alpha", 1.0))
    scaled = op.Mul(at.x(0), alpha)
    s = op.Sigmoid(scaled)
    rest = op.Mul(scaled, op.Sub(at.number(1), s))
    return [op.Mul(at.dy, op.Mul(s, op.Add(rest, at.number(1))))]


@rule("Mish", reads="x0")
def mish(at: Site) -> Gradients:
    """Multiply by ``t + x (1 - t²) sigmoid(x)`` with ``t = tanh(softplus(x))``."""
    op = at.op
    t = op.Tanh(op.Softplus(at.x(0)))
    bend = op.Sub(at.number(1), op.Mul(t, t))
    slope = op.Add(t, op.Mul(op.Mul(at.x(0), bend), op.Sigmoid(at.x(0))))
    return [op.Mul(at.dy, slope)]


@rule("Gelu", reads="x0")
def gelu(at: Site) -> Gradients:
    """Multiply by the normal distribution plus ``x`` times the normal density."""
    op, x = at.op, at.x(0)
    half, one = at.number(0.5), at.number(1)
    square = op.Mul(x, x)
    if at.attribute("approximate", "none") == "tanh":
        # With u = sqrt(2/pi) (x + 0.044715 x³), the result is x (1 + tanh(u)) / 2.
        scale = sqrt(2 / pi)
        inner = op.Mul(x, op.Add(op.Mul(square, at.number(0.044715 * scale)), at.number(scale)))
        slope = op.Add(op.Mul(square, at.number(3 * 0.044715 * scale)), at.number(scale))
        t = op.Tanh(inner)
        bend = op.Mul(op.Mul(x, op.Sub(one, op.Mul(t, t))), slope)
        return [op.Mul(at.dy, op.Mul(half, op.Add(op.Add(t, one), bend)))]
    below = op.Mul(half, op.Add(op.Erf(op.Mul(x, at.number(1 / sqrt(2)))), one))
    density = op.Mul(op.Exp(op.Mul(square, at.number(-0.5))), at.number(1 / sqrt(2 * pi)))
    return [op.Mul(at.dy, op.Add(below, op.Mul(x, density)))]


@rule("Softmax", reads="y0")
def softmax(at: Site) -> Gradients:
    """Multiply the result by the gradient minus the gradient's weighted mean."""
    return [at.op.SoftmaxGrad(at.dy, at.y(), axis=at.attribute("axis", -1))]


@rule("LogSoftmax", reads="y0")
def log_softmax(at: Site) -> Gradients:
    """Subtract the probabilities times the gradient's sum."""
    return [at.op.LogSoftmaxGrad(at.dy, at.y(), axis=at.attribute("axis", -1))]
