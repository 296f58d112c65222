"""Gradients of single-operand functions, from the result where sufficient."""

from __future__ import annotations

from collections.abc import Callable
from math import pi, sqrt

from arenaplan.train.gradients.gradient_rules import Gradients, Site, rule

# -- roots, powers, logarithms --------------------------------------------------------------------


@rule("Neg")
def neg(at: Site) -> Gradients:
    """Negate the gradient."""
    return [at.op.Neg(at.dy)]


@rule("Abs", reads="x0")
def absolute(at: Site) -> Gradients:
    """Multiply by the sign."""
    return [at.op.Mul(at.dy, at.op.Sign(at.x(0)))]


@rule("Exp", reads="y0")
def exp(at: Site) -> Gradients:
    """Multiply by the result."""
    return [at.op.Mul(at.dy, at.y())]


@rule("Log", reads="x0")
def log(at: Site) -> Gradients:
    """Divide by the operand."""
    return [at.op.Div(at.dy, at.x(0))]


@rule("Sqrt", reads="y0")
def sqrt_(at: Site) -> Gradients:
    """Divide by twice the result."""
    return [at.op.Div(at.op.Mul(at.dy, at.number(0.5)), at.y())]


@rule("Reciprocal", reads="y0")
def reciprocal(at: Site) -> Gradients:
    """Multiply by ``-y²``."""
    return [at.op.Neg(at.op.Mul(at.op.Mul(at.dy, at.y()), at.y()))]


# -- trigonometry ---------------------------------------------------------------------------------


@rule("Sin", reads="x0")
def sin(at: Site) -> Gradients:
    """Multiply by the cosine."""
    return [at.op.Mul(at.dy, at.op.Cos(at.x(0)))]


@rule("Cos", reads="x0")
def cos(at: Site) -> Gradients:
    """Multiply by the negative sine."""
    return [at.op.Neg(at.op.Mul(at.dy, at.op.Sin(at.x(0))))]


@rule("Tan", reads="y0")
def tan(at: Site) -> Gradients:
    """Multiply by ``1 + y²``."""
    return [at.op.Mul(at.dy, at.op.Add(at.op.Mul(at.y(), at.y()), at.number(1)))]


@rule("Sinh", reads="x0")
def sinh(at: Site) -> Gradients:
    """Multiply by the hyperbolic cosine."""
    return [at.op.Mul(at.dy, at.op.Cosh(at.x(0)))]


@rule("Cosh", reads="x0")
def cosh(at: Site) -> Gradients:
    """Multiply by the hyperbolic sine."""
    return [at.op.Mul(at.dy, at.op.Sinh(at.x(0)))]


def _inverse(square: Callable[[Site, int], int], *, is_root: bool) -> Callable[[Site], Gradients]:
    """
    Return a rule that divides by an expression of the operand's square, or the expression's root.
    """

    def gradient(at: Site) -> Gradients:
        below = square(at, at.op.Mul(at.x(0), at.x(0)))
        return [at.op.Div(at.dy, at.op.Sqrt(below) if is_root else below)]

    return gradient


rule("Asin", reads="x0")(_inverse(lambda at, s: at.op.Sub(at.number(1), s), is_root=True))
rule("Asinh", reads="x0")(_inverse(lambda at, s: at.op.Add(s, at.number(1)), is_root=True))
rule("Acosh", reads="x0")(_inverse(lambda at, s: at.op.Sub(s, at.number(1)), is_root=True))
rule("Atan", reads="x0")(_inverse(lambda at, s: at.op.Add(s, at.number(1)), is_root=False))
rule("Atanh", reads="x0")(_inverse(lambda at, s: at.op.Sub(at.number(1), s), is_root=False))


@rule("Acos", reads="x0")
def acos(at: Site) -> Gradients:
    """Divide by ``-sqrt(1 - x²)``."""
    below = at.op.Sub(at.number(1), at.op.Mul(at.x(0), at.x(0)))
    return [at.op.Neg(at.op.Div(at.dy, at.op.Sqrt(below)))]


# -- activations ----------------------------------------------------------------------------------


@rule("Relu", reads="y0")
def relu(at: Site) -> Gradients:
    """Keep the gradient where the result is positive."""
    return [at.op.ReluGrad(at.dy, at.y())]


@rule("Sigmoid", reads="y0")
def sigmoid(at: Site) -> Gradients:
    """Multiply by ``y (1 - y)``."""
    return [at.op.SigmoidGrad(at.dy, at.y())]


@rule("Tanh", reads="y0")
def tanh(at: Site) -> Gradients:
    """Multiply by ``1 - y²``."""
    return [at.op.TanhGrad(at.dy, at.y())]


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


@rule("Softplus", reads="x0")
def softplus(at: Site) -> Gradients:
    """Multiply by the logistic function."""
    return [at.op.Mul(at.dy, at.op.Sigmoid(at.x(0)))]


@rule("Softsign", reads="y0")
def softsign(at: Site) -> Gradients:
    """Multiply by ``(1 - |y|)²``."""
    rest = at.op.Sub(at.number(1), at.op.Abs(at.y()))
    return [at.op.Mul(at.dy, at.op.Mul(rest, rest))]


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


@rule("Erf", reads="x0")
def erf(at: Site) -> Gradients:
    """Multiply by ``2 / sqrt(pi) exp(-x²)``."""
    op = at.op
    bell = op.Exp(op.Neg(op.Mul(at.x(0), at.x(0))))
    return [op.Mul(at.dy, op.Mul(bell, at.number(2 / sqrt(pi))))]


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
