"""
Operators that compute each element from one element: by table for 8 and 16 bits.

The result for a one- or two-byte number depends on nothing else, so the result is computed once,
with the reference kernel's arithmetic, and looked up in each run.
"""

from __future__ import annotations

from collections.abc import Callable
from math import frexp, log2
from typing import Any, Final

import numpy as np

from arenaplan.run.numpy.kernels.pieces import operand, result
from arenaplan.run.numpy.registry import Run, Signature, Step, kernel
from arenaplan.run.numpy.tflite import fixed, libm
from arenaplan.run.numpy.tflite.blocks import FEW, by_blocks, by_table
from arenaplan.run.numpy.tflite.fixed import Multiplier, multiplier_of, scaled
from arenaplan.run.numpy.tflite.sigmoid import SIGMOID
from arenaplan.run.numpy.tflite.tflite_facts import (
    DOMAIN,
    FLOAT,
    Quantity,
    check_types,
    clamped,
    encoding,
    limits,
    refused,
    result_dtype,
    rounded,
)

_SAME: Final = ("float32 float32", "int8 int8", "int16 int16")
_ZERO, _SIX = np.float32(0), np.float32(6)


def is_real(step: Step) -> bool:
    """Whether input 0 has real numbers."""
    return operand(step, 0).dtype == FLOAT


def elementwise(step: Step, function: Callable[[np.ndarray], Any]) -> Run | None:
    """Return a function that computes block by block."""
    # The functions in `libm` have a dozen temporary arrays.
    return by_blocks(function, [operand(step, 0)], result(step), few=FEW // 4)


def _sides(signature: Signature) -> tuple[Quantity, Quantity]:
    return encoding(signature, 0), encoding(signature, 0, "output")


def _clamped(x: np.ndarray, step: Step) -> np.ndarray:
    return clamped(x, *limits(result(step).dtype))


@kernel("RELU", domain=DOMAIN, in_order=True)
def relu(step: Step) -> Run | None:
    """Numbers change their scale."""
    check_types(step.signature, *_SAME)
    if is_real(step):
        return elementwise(step, lambda x: np.where(x < 0, _ZERO, x))
    x, y = _sides(step.signature)
    factor = multiplier_of(x.scale / y.scale)
    low, high = limits(result(step).dtype)
    low = max(low, y.zero)
    return by_table(step, lambda v: clamped(y.zero + scaled(v - x.zero, factor), low, high))


@kernel("RELU6", domain=DOMAIN, in_order=True)
def relu6(step: Step) -> Run | None:
    """Numbers keep their scale."""
    check_types(step.signature, *_SAME)
    if is_real(step):
        return elementwise(step, lambda x: np.where(x > 6, _SIX, np.where(x < 0, _ZERO, x)))
    x = encoding(step.signature, 0)
    low, high = limits(result(step).dtype)
    six = x.zero + rounded(float(_SIX / np.float32(x.scale)))
    six = min(max(six, low), high)
    return by_table(step, lambda v: clamped(v, x.zero, six))


@kernel("LEAKY_RELU", domain=DOMAIN, in_order=True)
def leaky_relu(step: Step) -> Run | None:
    """Negative numbers have a slope."""
    check_types(step.signature, *_SAME)
    alpha = float(step.attributes.get("alpha", 0.0))
    if is_real(step):
        return elementwise(step, lambda x: np.where(x > 0, x, x * FLOAT.type(alpha)))
    x, y = _sides(step.signature)
    slope = x.scale * alpha / y.scale
    # Multipliers are positive: a slope's sign is applied to the product.
    below, above = multiplier_of(abs(slope)), multiplier_of(x.scale / y.scale)
    sign = -1 if slope < 0 else 1

    def table(values: np.ndarray) -> np.ndarray:
        v = values - x.zero
        made = np.where(v >= 0, scaled(v, above), sign * scaled(v, below))
        return _clamped(y.zero + made, step)

    return by_table(step, table)


@kernel("HARD_SWISH", domain=DOMAIN, in_order=True)
def hard_swish(step: Step) -> Run | None:
    """Integers as 16-bit fixed-point numbers."""
    check_types(step.signature, "float32 float32", "int8 int8")
    if is_real(step):
        three = np.float32(3)
        return elementwise(
            step, lambda x: x * np.minimum(_SIX, np.maximum(_ZERO, x + three)) / _SIX
        )
    x, y = _sides(step.signature)
    out = multiplier_of(x.scale / 128.0 / y.scale)
    ramp = multiplier_of(x.scale / 128.0 / (3.0 / 32768.0))
    if out.shift > 0:
        raise refused(step.signature, "the scale of its result is too small")

    def table(values: np.ndarray) -> np.ndarray:
        hires = (values - x.zero) << 7
        before = _high16(hires, _upper(out.value))
        value = hires
        if ramp.shift > 0:
            value = _saturated16(value << (ramp.shift - 1))
        value = _high16(value, _upper(ramp.value))
        if ramp.shift > 0:
            value = _saturated16(value << 1)
        elif ramp.shift < 0:
            value = fixed.halved(value, -ramp.shift)
        value = (value + (1 << 15)) >> 1
        raw = value * before
        product = np.minimum(np.where(raw < 0, -(-raw >> 15), raw >> 15), 32767)
        return _clamped(fixed.halved(product, -out.shift) + y.zero, step)

    return by_table(step, table)


def _upper(value: int) -> int:
    """Return a multiplier's upper half: ``DownScaleInt32ToInt16Multiplier``."""
    return 32767 if value >= fixed.MAX - (1 << 15) else (value + (1 << 15)) >> 16


def _high16(a: np.ndarray, b: int) -> np.ndarray:
    """Return the upper half of twice a product: ``SaturatingRoundingDoublingHighMul``, 16 bits."""
    made: np.ndarray = np.minimum((a * b + (1 << 14)) >> 15, 32767)
    return made


def _saturated16(x: np.ndarray) -> np.ndarray:
    return clamped(x, -32768, 32767)


# -- logistic function and hyperbolic tangent -----------------------------------------------


def _fraction_multiplier(scale: float) -> Multiplier:
    """Return the factor to numbers with four bits before the point."""
    fraction, shift = frexp(scale * (1 << 27))
    return Multiplier(rounded(fraction * (1 << 31)), shift)


def table_multiplier(signature: Signature, most: int) -> tuple[int, int]:
    """Return the factor to the 16-bit table's scale, and the right shift."""
    x, y = _sides(signature)
    if x.zero or y.zero or y.scale != 2.0**-15:
        raise refused(signature, "16-bit results have the scale 2**-15 and all zero points are 0")
    exponent = log2(x.scale)
    left = 12 + round(exponent)
    if exponent == round(exponent) and 0 <= left <= most:
        return 3 << left, 0
    shift, factor = 0, x.scale * 4096.0 * 3.0
    while factor <= 32767.0 / 2.0 and shift <= 30:
        shift += 1
        factor *= 2.0
    return int(factor), shift


def _interpolated(values: np.ndarray, factor: tuple[int, int], bits: int) -> Any:
    """Return arguments, and the table entries around them, ``bits`` apart."""
    multiplier, shift = factor
    half = 1 << (shift - 1) if shift > 0 else 0
    argument = (values * multiplier + half) >> shift
    size = np.abs(argument)
    at, rest = size >> bits, size & ((1 << bits) - 1)
    low = SIGMOID[np.minimum(at, 254)]
    high = SIGMOID[np.minimum(at, 254) + 1]
    return argument, at, (low << bits) + rest * (high - low)


@kernel("LOGISTIC", domain=DOMAIN, in_order=True)
def logistic(step: Step) -> Run | None:
    """8-bit numbers by gemmlowp's function, 16-bit numbers by a table with interpolation."""
    check_types(step.signature, *_SAME)
    if is_real(step):
        return elementwise(step, real_logistic)
    if operand(step, 0).dtype == np.int16:
        factor = table_multiplier(step.signature, 0)
        return by_table(step, lambda v: logistic16(v, factor))
    return by_table(step, _by_gemmlowp(step, fixed.logistic, 23, 128))


def _by_gemmlowp(
    step: Step, function: Callable[[np.ndarray, int], np.ndarray], bits: int, less: int
) -> Callable[[np.ndarray], np.ndarray]:
    """Return an 8-bit function, whose results lose ``bits`` and are ``less``."""
    x = encoding(step.signature, 0)
    by = _fraction_multiplier(x.scale)
    edge = fixed.radius(4, by.shift)

    def table(values: np.ndarray) -> np.ndarray:
        v = values - x.zero
        inner = function(scaled(clamped(v, -edge, edge), by), 4)
        made = clamped(fixed.halved(inner, bits) - less, -128, 127)
        return np.where(v <= -edge, -128, np.where(v >= edge, 127, made))

    return table


def logistic16(values: np.ndarray, factor: tuple[int, int]) -> np.ndarray:
    """Return the logistic function for 16-bit numbers, after a factor."""
    argument, at, made = _interpolated(values, factor, 9)
    made = np.where(at >= 255, 0x7FFF << 10, made)
    return np.where(argument >= 0, made + (1 << 9), (1 << 25) - made + (1 << 9) - 1) >> 10


def tanh16(values: np.ndarray, factor: tuple[int, int]) -> np.ndarray:
    """Return the hyperbolic tangent for 16-bit numbers, after a factor."""
    argument, at, made = _interpolated(values, factor, 8)
    made = np.where(at >= 255, 0xFFFF << 8, made)
    one = 1 << 23
    return np.where(argument >= 0, made - one + (1 << 7), one - made + (1 << 7) - 1) >> 8


@kernel("TANH", domain=DOMAIN, in_order=True)
def tanh(step: Step) -> Run | None:
    """8-bit numbers by gemmlowp's function, 16-bit numbers by a table with interpolation."""
    check_types(step.signature, *_SAME)
    if is_real(step):
        return elementwise(step, libm.tanh)
    if operand(step, 0).dtype == np.int16:
        factor = table_multiplier(step.signature, 1)
        return by_table(step, lambda v: tanh16(v, factor))
    return by_table(step, _by_gemmlowp(step, fixed.tanh, 24, 0))


_LARGE, _SMALL = np.float32(16.619047164916992), np.float32(-9.0)


def real_logistic(x: np.ndarray) -> np.ndarray:
    """Return the logistic function with the reference kernel's cut-offs."""
    one = np.float32(1)
    usual = one / (one + libm.exp(-x))
    return np.where(x > _LARGE, one, np.where(x < _SMALL, libm.exp(x), usual))


# -- others -----------------------------------------------------------------------------------


@kernel("ELU", domain=DOMAIN, in_order=True)
def elu(step: Step) -> Run | None:
    """8-bit numbers by the real function."""
    check_types(step.signature, "float32 float32", "int8 int8")

    def function(x: np.ndarray) -> np.ndarray:
        return np.where(x < 0, libm.expm1(x), x)

    if is_real(step):
        return elementwise(step, function)
    x, y = _sides(step.signature)

    def table(values: np.ndarray) -> np.ndarray:
        real = np.float32(x.scale) * (values - x.zero).astype(FLOAT)
        inverse = np.float32(1) / np.float32(y.scale)
        made = libm.away(function(real) * inverse) + np.float32(y.zero)
        return _clamped(made.astype(np.int64), step)

    return by_table(step, table)


@kernel("ABS", domain=DOMAIN, in_order=True)
def absolute(step: Step) -> Run | None:
    """Integers with another scale are multiplied."""
    check_types(step.signature, *_SAME)
    if is_real(step):
        return elementwise(step, np.abs)
    if not step.attributes.get("input_quantization"):
        return elementwise(step, np.abs)
    x, y = _sides(step.signature)
    factor = multiplier_of(x.scale / y.scale)

    def table(values: np.ndarray) -> np.ndarray:
        v = np.abs(values - x.zero)
        return _clamped((v if x.scale == y.scale else scaled(v, factor)) + y.zero, step)

    return by_table(step, table)


@kernel("RSQRT", domain=DOMAIN, in_order=True)
def rsqrt(step: Step) -> Run | None:
    """8-bit numbers by Newton's method in fixed point."""
    check_types(step.signature, "float32 float32", "int8 int8")
    if is_real(step):
        return elementwise(step, lambda x: np.float32(1) / np.sqrt(x))
    x, y = _sides(step.signature)
    root = np.sqrt(np.float32(x.scale)) * np.float32(y.scale)
    factor = multiplier_of(1.0 / float(root))
    factor = Multiplier(factor.value, factor.shift - 20)

    def one(value: int) -> int:
        if value <= 0:
            return 127  # The source makes an error for negative numbers.
        by = fixed.inverse_root(value)
        made = scaled(np.int64(1), Multiplier(by.value, by.shift + 20))
        return int(scaled(made, factor)) + y.zero

    def table(values: np.ndarray) -> np.ndarray:
        return _clamped(np.array([one(int(v)) for v in values - x.zero]), step)

    return by_table(step, table)


_REAL: Final[dict[str, Callable[[np.ndarray], Any]]] = {
    "CEIL": np.ceil,
    "COS": libm.nearest(np.cos),
    "EXP": libm.exp,
    "FLOOR": np.floor,
    "LOG": libm.nearest(np.log),
    "NEG": np.negative,
    # For numbers that round to zero the source returns 0, not -0.
    "ROUND": lambda x: np.where(x == 0, x, np.rint(x) + 0.0),
    "SIN": libm.nearest(np.sin),
    "SQRT": np.sqrt,
    "SQUARE": np.square,
}


@kernel(*_REAL, domain=DOMAIN, in_order=True)
def real(step: Step) -> Run | None:
    """Real numbers only."""
    check_types(step.signature, "float32 float32")
    return elementwise(step, _REAL[step.signature.op])


@kernel("LOGICAL_NOT", domain=DOMAIN, in_order=True)
def logical_not(step: Step) -> Run | None:
    """Truth values."""
    check_types(step.signature, "bool bool")
    return elementwise(step, np.logical_not)


# -- conversions ------------------------------------------------------------------------------


@kernel("QUANTIZE", domain=DOMAIN, in_order=True)
def quantize(step: Step) -> Run | None:
    """Real numbers are divided by the scale, integers multiplied by the ratio of scales."""
    check_types(
        step.signature,
        *("float32 int8", "float32 int16", "int32 int8", "int32 int16", "int16 int8"),
        *("int16 int16", "int16 int32", "int8 int8", "int8 uint8", "int8 int16", "int8 int32"),
        "uint8 int8",
    )
    y = encoding(step.signature, 0, "output")
    low, high = limits(result_dtype(step.signature))
    if is_real(step):
        scale = np.float32(y.scale)

        def divided(x: np.ndarray) -> np.ndarray:
            return clamped(libm.away(x / scale).astype(np.int64) + y.zero, low, high)

        return elementwise(step, divided)
    x = encoding(step.signature, 0)
    factor = multiplier_of(x.scale / y.scale)

    def changed(values: np.ndarray) -> np.ndarray:
        v = fixed.wrapped(values.astype(np.int64) - x.zero)
        return clamped(fixed.wrapped(scaled(v, factor) + y.zero), low, high)

    if operand(step, 0).itemsize <= 2:
        return by_table(step, changed)
    return elementwise(step, changed)


@kernel("DEQUANTIZE", domain=DOMAIN, in_order=True)
def dequantize(step: Step) -> Run | None:
    """Products are made with 64 bits."""
    check_types(step.signature, "int8 float32", "int16 float32", "uint8 float32", "float16 float32")
    if operand(step, 0).dtype == np.float16:
        return elementwise(step, lambda x: x.astype(FLOAT))
    x = encoding(step.signature, 0)

    def real_number(values: np.ndarray) -> np.ndarray:
        return (x.scale * (values.astype(np.int64) - x.zero)).astype(FLOAT)

    return elementwise(step, real_number)


_CAST_FROM: Final = ("int8", "int16", "int32", "uint32", "float32", "bool")
_CAST_TO: Final = ("int8", "int16", "int32", "uint32", "float32", "bool")


@kernel("CAST", domain=DOMAIN, in_order=True)
def cast(step: Step) -> Run | None:
    """Numbers are truncated, bits cut off."""
    check_types(step.signature, *(f"{a} {b}" for a in _CAST_FROM for b in _CAST_TO))
    made = result_dtype(step.signature)
    return elementwise(step, lambda x: x.astype(made))
