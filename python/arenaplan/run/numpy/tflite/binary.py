"""Operators that combine elements of two operands, which are broadcast."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from arenaplan.run.numpy.kernels.pieces import operand, present, result
from arenaplan.run.numpy.registry import Run, Signature, Step, kernel
from arenaplan.run.numpy.tflite import fixed
from arenaplan.run.numpy.tflite.blocks import FEW, by_blocks, table_of
from arenaplan.run.numpy.tflite.fixed import Multiplier, multiplier_of, scaled
from arenaplan.run.numpy.tflite.tflite_facts import (
    DOMAIN,
    FLOAT,
    activation_range,
    check_types,
    clamped,
    dtype_at,
    encoding,
    float_range,
    limits,
    refused,
    result_dtype,
)

_SAME: Final = ("float32 float32", "int8 int8", "int16 int16")
_Function = Callable[..., Any]


def combined(step: Step, function: _Function, *, few: int = FEW) -> Run | None:
    """Return a function that combines two operands block by block."""
    return by_blocks(function, [operand(step, 0), operand(step, 1)], result(step), few=few)


def _check_pair(signature: Signature, *allowed: str) -> None:
    """Raise unless both operands have one type, and the result is allowed."""
    check_types(signature, *allowed)
    if dtype_at(signature, 0) != dtype_at(signature, 1):
        raise refused(signature, "its operands have different types")


def _clamped_real(signature: Signature, function: _Function) -> _Function:
    """Return a real function with the fused activation."""
    low, high = (FLOAT.type(bound) for bound in float_range(signature))
    return lambda a, b: np.minimum(np.maximum(function(a, b), low), high)


def _wrapping(signature: Signature, function: _Function) -> _Function:
    """Return a 32-bit function, whose results wrap and are clamped."""
    low, high = float_range(signature)
    bounds = (max(int(low), fixed.MIN), min(int(high), fixed.MAX))
    return lambda a, b: clamped(
        fixed.wrapped(function(a.astype(np.int64), b.astype(np.int64))), *bounds
    )


class _Scaled:
    """Numbers of one operand on a scale that both have: shifted left, then multiplied."""

    def __init__(self, x: np.ndarray, zero: int, left: int, factor: Multiplier) -> None:
        self._zero, self._left, self._factor = zero, left, factor
        # A table for one byte is small. 16-bit numbers are computed.
        self._table = table_of(self._of, x.dtype, np.dtype(np.int64)) if x.itemsize == 1 else None

    def _of(self, values: np.ndarray) -> np.ndarray:
        return scaled((values.astype(np.int64) - self._zero) << self._left, self._factor)

    def __call__(self, x: np.ndarray) -> np.ndarray:
        return self._of(x) if self._table is None else self._table[x.view(np.uint8)]


def _both(step: Step, left: int, factors: tuple[Multiplier, Multiplier]) -> list[_Scaled]:
    """Return both operands on one scale."""
    return [
        _Scaled(operand(step, at), encoding(step.signature, at).zero, left, factors[at])
        for at in (0, 1)
    ]


def sum_factors(signature: Signature, left: int) -> tuple[Multiplier, Multiplier, Multiplier]:
    """Return the factors for both operands of a sum, and for the result."""
    a, b, y = encoding(signature, 0), encoding(signature, 1), encoding(signature, 0, "output")
    twice = 2 * max(a.scale, b.scale)
    reals = (a.scale / twice, b.scale / twice, twice / ((1 << left) * y.scale))
    first, second, last = map(multiplier_of, reals)
    return first, second, last


@kernel("ADD", "SUB", domain=DOMAIN, in_order=True)
def add(step: Step) -> Run | None:
    """Integers are brought to a common scale, with 20 more bits, or 15."""
    signature = step.signature
    function = operator.add if signature.op == "ADD" else operator.sub
    _check_pair(signature, *_SAME, "int32 int32")
    made = result_dtype(signature)
    if made == FLOAT:
        return combined(step, _clamped_real(signature, function))
    if made == np.int32:
        return combined(step, _wrapping(signature, function))
    left = 15 if made == np.int16 else 20
    *factors, last = sum_factors(signature, left)
    a, b = _both(step, left, (factors[0], factors[1]))
    y = encoding(signature, 0, "output")
    low, high = activation_range(signature, y)

    def rescaled(p: np.ndarray, q: np.ndarray) -> np.ndarray:
        return clamped(scaled(function(a(p), b(q)), last) + y.zero, low, high)

    return combined(step, rescaled)


@kernel("MUL", domain=DOMAIN, in_order=True)
def multiply(step: Step) -> Run | None:
    """Integer products are rescaled."""
    signature = step.signature
    _check_pair(signature, *_SAME, "int32 int32")
    made = result_dtype(signature)
    if made == FLOAT:
        return combined(step, _clamped_real(signature, operator.mul))
    if made == np.int32:
        return combined(step, _wrapping(signature, operator.mul))
    a, b, y = encoding(signature, 0), encoding(signature, 1), encoding(signature, 0, "output")
    factor = multiplier_of(a.scale * b.scale / y.scale)
    low, high = activation_range(signature, y)

    def product(p: np.ndarray, q: np.ndarray) -> np.ndarray:
        raw = (p.astype(np.int64) - a.zero) * (q.astype(np.int64) - b.zero)
        return clamped(scaled(raw, factor) + y.zero, low, high)

    return combined(step, product)


@kernel("DIV", domain=DOMAIN, in_order=True)
def divide(step: Step) -> Run | None:
    """Integers are multiplied by the reciprocal."""
    signature = step.signature
    _check_pair(signature, "float32 float32", "int8 int8", "int32 int32")
    made = result_dtype(signature)
    if made == FLOAT:
        return combined(step, _clamped_real(signature, operator.truediv))
    if made == np.int32:
        return combined(step, _truncated)
    a, b, y = encoding(signature, 0), encoding(signature, 1), encoding(signature, 0, "output")
    last = multiplier_of(a.scale / (b.scale * y.scale))
    low, high = activation_range(signature, y)

    def quotient(p: np.ndarray, q: np.ndarray) -> np.ndarray:
        x, by = p.astype(np.int64) - a.zero, q.astype(np.int64) - b.zero
        x, by = np.where(by < 0, -x, x), np.where(by == 0, 1, np.abs(by))
        inverse = fixed.reciprocal(by, 31)
        # The bits in a number besides the sign, and the free bits.
        size = np.where(x < 0, ~x, x)
        headroom = 31 - np.frexp(size.astype(np.float64))[1].astype(np.int64)
        raw = fixed.high_product(fixed.wrapped(x << headroom), inverse.value)
        shift = last.shift - inverse.bits_over_unit - headroom
        return clamped(
            fixed.halved(fixed.high_product(raw, last.value), np.minimum(-shift, 40)) + y.zero,
            low,
            high,
        )

    return combined(step, quotient, few=FEW // 4)


def _truncated(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return quotients towards zero, 0 for a division by zero."""
    x, by = a.astype(np.int64), b.astype(np.int64)
    sizes = np.abs(x) // np.maximum(np.abs(by), 1)
    return np.where(by == 0, 0, np.where((x < 0) != (by < 0), -sizes, sizes))


@kernel("MAXIMUM", "MINIMUM", domain=DOMAIN, in_order=True)
def extreme(step: Step) -> Run | None:
    """Numbers keep their scale."""
    _check_pair(step.signature, *_SAME, "int32 int32", "int64 int64")
    return combined(step, np.maximum if step.signature.op == "MAXIMUM" else np.minimum)


@kernel("SQUARED_DIFFERENCE", domain=DOMAIN, in_order=True)
def squared_difference(step: Step) -> Run | None:
    """Integers are brought to a common scale, and the square is rescaled."""
    signature = step.signature
    _check_pair(signature, *_SAME, "int32 int32")
    made = result_dtype(signature)
    if made == FLOAT:
        return combined(step, lambda a, b: np.square(a - b))
    if made == np.int32:
        return combined(
            step, lambda a, b: fixed.wrapped(np.square(fixed.wrapped(a.astype(np.int64) - b)))
        )
    left = 7 if made == np.int8 else 0
    x1, x2, y = encoding(signature, 0), encoding(signature, 1), encoding(signature, 0, "output")
    twice = 2 * max(x1.scale, x2.scale)
    factors = (multiplier_of(x1.scale / twice), multiplier_of(x2.scale / twice))
    last = multiplier_of(twice * twice / ((1 << (left * 2)) * y.scale))
    a, b = _both(step, left, factors)
    low, high = limits(made)

    def square(p: np.ndarray, q: np.ndarray) -> np.ndarray:
        return clamped(scaled(np.square(a(p) - b(q)), last) + y.zero, low, high)

    return combined(step, square)


_COMPARED: Final[dict[str, Callable[..., Any]]] = {
    "EQUAL": np.equal,
    "GREATER": np.greater,
    "GREATER_EQUAL": np.greater_equal,
    "LESS": np.less,
    "LESS_EQUAL": np.less_equal,
    "NOT_EQUAL": np.not_equal,
}


@kernel(*_COMPARED, domain=DOMAIN, in_order=True)
def compare(step: Step) -> Run | None:
    """8-bit integers are compared as multiples of their scales."""
    signature = step.signature
    types = ("bool", "float32", "int8", "int32", "int64")
    _check_pair(signature, *(f"{name} bool" for name in types))
    function = _COMPARED[signature.op]
    if dtype_at(signature, 0) != np.int8:
        return combined(step, function)
    scales = [encoding(signature, at).scale for at in (0, 1)]
    if max(scales) >= 1:
        raise refused(signature, "its operands have scales of 1 or more")
    a, b = _both(step, 8, (multiplier_of(scales[0]), multiplier_of(scales[1])))
    return combined(step, lambda p, q: function(a(p), b(q)))


@kernel("PRELU", domain=DOMAIN, in_order=True)
def prelu(step: Step) -> Run | None:
    """Negative numbers have slopes."""
    signature = step.signature
    check_types(signature, *_SAME)
    if result_dtype(signature) == FLOAT:
        return combined(step, lambda x, alpha: np.where(x >= 0, x, x * alpha))
    x, alpha = encoding(signature, 0), encoding(signature, 1)
    y = encoding(signature, 0, "output")
    above = multiplier_of(x.scale / y.scale)
    below = multiplier_of(x.scale * alpha.scale / y.scale)
    low, high = limits(result_dtype(signature))

    def function(p: np.ndarray, q: np.ndarray) -> np.ndarray:
        v = p.astype(np.int64) - x.zero
        slope = q.astype(np.int64) - alpha.zero
        made = np.where(v >= 0, scaled(v, above), scaled(v * slope, below))
        return clamped(made + y.zero, low, high)

    return combined(step, function, few=FEW // 2)


@kernel("LOGICAL_AND", "LOGICAL_OR", domain=DOMAIN, in_order=True)
def logical(step: Step) -> Run | None:
    """Truth values."""
    _check_pair(step.signature, "bool bool")
    return combined(step, np.logical_and if step.signature.op == "LOGICAL_AND" else np.logical_or)


@kernel("FLOOR_DIV", "FLOOR_MOD", domain=DOMAIN, in_order=True)
def floored(step: Step) -> Run | None:
    """Real numbers; for -0 and infinities, NumPy's rules equal those of the C library."""
    signature = step.signature
    _check_pair(signature, "float32 float32")
    if signature.op == "FLOOR_DIV":
        return combined(step, lambda a, b: np.floor(a / b))

    def remainder(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        rest = np.fmod(a, b)
        made: np.ndarray = np.where((rest != 0) & ((b < 0) != (rest < 0)), rest + b, rest)
        return made

    return combined(step, remainder)


@kernel("ADD_N", domain=DOMAIN, in_order=True)
def add_n(step: Step) -> Run | None:
    """Sums of several operands with one scale."""
    signature = step.signature
    check_types(signature, "float32 float32", "int8 int8")
    inputs = present(step)
    if result_dtype(signature) == FLOAT:

        def real_sum(*blocks: np.ndarray) -> np.ndarray:
            total = np.zeros_like(blocks[0])
            for block in blocks:
                total = total + block
            return total

        return by_blocks(real_sum, inputs, result(step))
    x, y = encoding(signature, 0), encoding(signature, 0, "output")
    if any(encoding(signature, at)[:2] != x[:2] for at in range(len(inputs))):
        raise refused(signature, "its operands have different scales")
    last = multiplier_of(2 * x.scale / ((1 << 20) * y.scale))
    each = _Scaled(inputs[0], x.zero, 20, multiplier_of(x.scale / (2 * x.scale)))
    zero = int(scaled(np.int64(-x.zero) << 20, multiplier_of(0.5)))

    def function(*blocks: np.ndarray) -> np.ndarray:
        total = zero + sum(each(block) for block in blocks)
        return clamped(scaled(total, last) + y.zero, -128, 127)

    return by_blocks(function, inputs, result(step))
