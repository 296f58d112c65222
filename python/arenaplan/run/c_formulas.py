"""
Formulas of operators that compute each element from elements at the same position, as text in C.

Kernels for devices and generated C functions are written from these formulas. A formula gets a
:class:`Writer` and the expressions for the operands, which need no parentheses, and returns the
expression for the result.
"""

from __future__ import annotations

from collections.abc import Callable
from math import pi, sqrt
from typing import Any, Final, Protocol, TypeAlias

import numpy as np


class Writer(Protocol):
    """The facts that a formula needs about the element type, the attributes and the text around."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """The result type."""

    @property
    def type(self) -> str:
        """The same type in C."""

    def call(self, function: str, /, *arguments: str) -> str:
        """Return a call to a C math function, in the precision of the result."""

    def literal(self, number: float, /) -> str:
        """Return a number as text in the result type."""

    def attribute(self, name: str, default: Any, /) -> Any:
        """Return an attribute, with text as ``str``."""

    def number(self, name: str, default: float, /) -> str:
        """Return a numeric attribute as text in the result type."""

    def let(self, expression: str, /) -> str:
        """Name an expression in the result type, and return the name."""


Formula: TypeAlias = Callable[[Writer, str], str]


def _called(function: str) -> Formula:
    return lambda w, x: w.call(function, x)


def _absolute(w: Writer, x: str) -> str:
    if w.dtype.kind == "f":
        return w.call("fabs", x)
    return x if w.dtype.kind in "ub" else f"({w.type})({x} < 0 ? -{x} : {x})"


def _sign(w: Writer, x: str) -> str:
    zero, one = w.literal(0), w.literal(1)
    return f"({w.type})({x} > {zero} ? {one} : ({x} < {zero} ? -{one} : {x}))"


def _relu(w: Writer, x: str) -> str:
    return _below_zero(w, x, w.literal(0))


def _below_zero(w: Writer, x: str, other: str) -> str:
    """Return another expression for negative elements."""
    return f"({x} < {w.literal(0)} ? {other} : {x})"


def _sigmoid(w: Writer, x: str) -> str:
    return f"{w.literal(1)} / ({w.literal(1)} + {w.call('exp', f'-({x})')})"


def _swish(w: Writer, x: str) -> str:
    multiple = f"{x} * {w.number('alpha', 1.0)}"
    return f"{x} * ({_sigmoid(w, multiple)})"


def _gelu(w: Writer, x: str) -> str:
    if w.attribute("approximate", "none") == "tanh":
        factor, cubic = w.literal(sqrt(2 / pi)), w.literal(0.044715)
        inner = w.call("tanh", f"{factor} * ({x} + {cubic} * {x} * {x} * {x})")
    else:
        inner = w.call("erf", f"{x} * {w.literal(sqrt(0.5))}")
    return f"{w.literal(0.5)} * {x} * ({w.literal(1)} + {inner})"


def _softplus(w: Writer, x: str) -> str:
    # The exponential of a positive number could overflow.
    fallen = w.call("exp", f"-{w.call('fabs', x)}")
    return f"{_relu(w, x)} + {w.call('log1p', fallen)}"


def _elu(w: Writer, x: str, alpha: float = 1.0) -> str:
    return _below_zero(w, x, f"{w.number('alpha', alpha)} * {w.call('expm1', x)}")


def _celu(w: Writer, x: str) -> str:
    alpha = w.number("alpha", 1.0)
    return _below_zero(w, x, f"{alpha} * {w.call('expm1', f'{x} / {alpha}')}")


def _selu(w: Writer, x: str) -> str:
    gamma = w.number("gamma", 1.05070102214813232421875)
    return f"{gamma} * {_elu(w, x, 1.67326319217681884765625)}"


def _shrink(w: Writer, x: str) -> str:
    bias, edge, zero = w.number("bias", 0.0), w.number("lambd", 0.5), w.literal(0)
    return f"({x} < -{edge} ? {x} + {bias} : ({x} > {edge} ? {x} - {bias} : {zero}))"


def _hard_sigmoid(w: Writer, x: str) -> str:
    line = w.let(f"{w.number('alpha', 0.2)} * {x} + {w.number('beta', 0.5)}")
    return clipped(w, line, w.literal(0), w.literal(1))


def _hard_swish(w: Writer, x: str) -> str:
    line = w.let(f"{x} / {w.literal(6)} + {w.literal(0.5)}")
    return f"{x} * {clipped(w, line, w.literal(0), w.literal(1))}"


def clipped(w: Writer, x: str, low: str | None, high: str | None) -> str:
    """Return an element between two others; a NaN stays."""
    if low is not None:
        x = w.let(f"{x} < {low} ? {low} : {x}")
    if high is not None:
        x = w.let(f"{x} > {high} ? {high} : {x}")
    return x


_LIBRARY: Final = (
    *("Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Ceil", "Cos", "Cosh", "Erf", "Exp"),
    *("Floor", "Log", "Sin", "Sinh", "Sqrt", "Tan", "Tanh"),
)
UNARY: Final[dict[str, Formula]] = {
    **{op: _called(op.lower()) for op in _LIBRARY},
    "Abs": _absolute,
    "Celu": _celu,
    "Elu": _elu,
    "Gelu": _gelu,
    "HardSigmoid": _hard_sigmoid,
    "HardSwish": _hard_swish,
    "LeakyRelu": lambda w, x: _below_zero(w, x, f"{w.number('alpha', 0.01)} * {x}"),
    "Mish": lambda w, x: f"{x} * {w.call('tanh', _softplus(w, x))}",
    "Neg": lambda w, x: f"({w.type})(-{x})" if w.dtype.kind in "iu" else f"-{x}",
    "Reciprocal": lambda w, x: f"{w.literal(1)} / {x}",
    "Relu": _relu,
    "Round": _called("rint"),
    "Selu": _selu,
    "Shrink": _shrink,
    "Sigmoid": _sigmoid,
    "Sign": _sign,
    "Softplus": _softplus,
    "Softsign": lambda w, x: f"{x} / ({w.literal(1)} + {w.call('fabs', x)})",
    "Swish": _swish,
    "ThresholdedRelu": lambda w, x: f"({x} > {w.number('alpha', 1.0)} ? {x} : {w.literal(0)})",
}
"""For each operator: the formula for one operand."""
INTEGERS: Final = ("Abs", "Neg", "Relu", "Sign")
"""Operators whose formulas are right for integers, too."""


def greater(a: str, b: str) -> str:
    """Return the greater operand; a NaN in either operand stays."""
    return f"({a} > {b} || {a} != {a}) ? {a} : {b}"


def less(a: str, b: str) -> str:
    """Return the lesser operand; a NaN in either operand stays."""
    return f"({a} < {b} || {a} != {a}) ? {a} : {b}"


def add(a: str, b: str) -> str:
    """Return the sum."""
    return f"{a} + {b}"


ARITHMETIC: Final = {"Add": "+", "Sub": "-", "Mul": "*"}
"""Operators with two operands that C has, too."""
FOLDS: Final = {"Max": greater, "Min": less, "Sum": add}
"""Operators with any number of operands, by the formula for two; a NaN stays."""
