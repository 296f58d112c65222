"""
Fixed-point arithmetic of gemmlowp and TensorFlow Lite, on ``int64`` arrays with ``int32`` numbers.

Functions return new arrays: kernels call them on tables and on small blocks.
"""

from __future__ import annotations

from math import floor, frexp
from typing import Final, NamedTuple, TypeAlias

import numpy as np

from arenaplan.run.numpy.tflite.tflite_facts import clamped

Numbers: TypeAlias = "np.ndarray | int | np.integer"
MAX: Final = (1 << 31) - 1
MIN: Final = -(1 << 31)
_ONE: Final = MAX
"""1 with no bit before the point."""


class Multiplier(NamedTuple):
    """A real factor: ``value / 2**31 * 2**shift``."""

    value: int
    shift: int


def multiplier_of(real: float) -> Multiplier:
    """
    Return a factor in fixed-point form: ``QuantizeMultiplier``.

    Examples
    --------
    >>> multiplier_of(0.75)
    Multiplier(value=1610612736, shift=0)
    """
    if real == 0.0:
        return Multiplier(0, 0)
    fraction, shift = frexp(real)
    value = floor(abs(fraction) * (1 << 31) + 0.5)
    if value == 1 << 31:
        value //= 2
        shift += 1
    if shift < -31:
        return Multiplier(0, 0)
    return Multiplier(value if real > 0 else -value, shift)


def wrapped(x: Numbers) -> np.ndarray:
    """Return numbers wrapped to 32 bits."""
    return ((np.asarray(x, np.int64) + (1 << 31)) & 0xFFFFFFFF) - (1 << 31)


def high_product(a: Numbers, b: Numbers) -> np.ndarray:
    """
    Return the upper 32 bits of twice a product: ``SaturatingRoundingDoublingHighMul``.

    The source divides by 2**31 towards zero after adding 2**30, or 1 - 2**30 to a negative product
    ``p = -n``. The negative result ``-((n - 1 + 2**30) // 2**31)`` equals ``(p + 2**30) // 2**31``:
    one shift for all signs.
    """
    product = np.multiply(a, b, dtype=np.int64)
    product += 1 << 30
    product >>= 31
    made: np.ndarray = np.minimum(product, MAX)  # Only the square of the least number is larger.
    return made


def halved(x: Numbers, exponent: Numbers) -> np.ndarray:
    """
    Return numbers divided by a power of two, halves away from zero: ``RoundingDivideByPOT``.

    The source compares the rest with half the divisor, plus 1 for negative numbers. The result is
    ``(x + half - 1) >> exponent`` for negative numbers, and ``(x + half) >> exponent`` for others.
    """
    x = np.asarray(x, np.int64)
    half = (np.int64(1) << np.asarray(exponent, np.int64)) >> 1
    made: np.ndarray = (x + half + np.where(half > 0, x >> 63, 0)) >> np.asarray(exponent, np.int64)
    return made


def scaled(x: Numbers, by: Multiplier) -> np.ndarray:
    """Return ``x`` times a factor: ``MultiplyByQuantizedMultiplier`` for 32-bit numbers."""
    left = max(by.shift, 0)
    shifted = wrapped(np.asarray(x, np.int64) << left) if left else x
    return halved(high_product(shifted, by.value), max(-by.shift, 0))


def scaled_wide(x: Numbers, by: Multiplier) -> np.ndarray:
    """Return the same for 48-bit numbers: ``MultiplyByQuantizedMultiplier`` for ``int64``."""
    total = 15 - by.shift
    return wrapped((np.asarray(x, np.int64) * reduced(by.value) + (1 << (total - 1))) >> total)


def reduced(value: int) -> int:
    """Return a multiplier's upper half, rounded."""
    return (value + (1 << 15)) >> 16 if value < 0x7FFF0000 else 0x7FFF


def radius(integer_bits: int, left_shift: int, bits: int = 31) -> int:
    """Return the largest number that a scale leaves in range: ``CalculateInputRadius``."""
    return floor(((1 << integer_bits) - 1) * (1 << (bits - integer_bits)) / 2.0**left_shift)


def saturated_shift(x: Numbers, exponent: int) -> np.ndarray:
    """Return ``x * 2**exponent``, clamped: ``SaturatingRoundingMultiplyByPOT``."""
    if exponent <= 0:
        return halved(x, -exponent)
    return clamped(np.asarray(x, np.int64) << exponent, MIN, MAX)


# -- functions of numbers without integer bits -----------------------------------------------


def _exp_near_zero(a: np.ndarray) -> np.ndarray:
    """Return exp for numbers from -1/4 to 0, by Taylor's series around -1/8."""
    constant, third = 1895147668, 715827883
    x = a + (1 << 28)
    square = high_product(x, x)
    cube = high_product(square, x)
    fourth = halved(high_product(square, square), 2)
    rest = halved(high_product(fourth + cube, third) + square, 1)
    return constant + high_product(constant, x + rest)


_FACTORS: Final = (1672461947, 1302514674, 790015084, 290630308, 39332535, 720401, 242)
"""exp(-1/4), exp(-1/2), … exp(-16)."""


def exp_of_negative(a: Numbers, integer_bits: int) -> np.ndarray:
    """Return exp of numbers up to 0 with some bits before the point: ``exp_on_negative_values``."""
    a = np.asarray(a, np.int64)
    fraction_bits = 31 - integer_bits
    quarter = 1 << (fraction_bits - 2)
    rest = (a & (quarter - 1)) - quarter
    result = _exp_near_zero(saturated_shift(rest, integer_bits))
    remainder = rest - a
    for exponent, factor in enumerate(_FACTORS, start=-2):
        if integer_bits > exponent:
            bit = 1 << (fraction_bits + exponent)
            result = np.where(remainder & bit, high_product(result, factor), result)
    if integer_bits > 5:
        result = np.where(a < -(1 << (36 - integer_bits)), 0, result)
    return np.where(a == 0, _ONE, result)


def _newton(a: np.ndarray) -> np.ndarray:
    """Return 2 / (1 + a) of numbers from 0 to 1, with two bits before the point."""
    total = a + _ONE
    half = np.where(total >= 0, (total + 1) >> 1, -((1 - total) >> 1))
    x = 1515870810 + high_product(half, -1010580540)
    for _ in range(3):
        rest = (1 << 29) - high_product(half, x)
        x = x + saturated_shift(high_product(x, rest), 2)
    return x


def reciprocal_of_one_plus(a: Numbers) -> np.ndarray:
    """Return 1 / (1 + a) for numbers from 0 to 1: ``one_over_one_plus_x_for_x_in_0_1``."""
    # Halving moves the point: the raw number keeps, with one bit before the point.
    return saturated_shift(_newton(np.asarray(a, np.int64)), 1)


def logistic(a: Numbers, integer_bits: int) -> np.ndarray:
    """Return the logistic function: ``gemmlowp::logistic``."""
    a = np.asarray(a, np.int64)
    positive = reciprocal_of_one_plus(exp_of_negative(-np.abs(a), integer_bits))
    return np.where(a == 0, 1 << 30, np.where(a > 0, positive, _ONE - positive))


def tanh(a: Numbers, integer_bits: int) -> np.ndarray:
    """Return the hyperbolic tangent: ``gemmlowp::tanh``."""
    a = np.asarray(a, np.int64)
    # Twice the argument is the same raw number with one more bit before the point.
    exp = exp_of_negative(-np.abs(a), integer_bits + 1)
    positive = saturated_shift(_newton(exp) - (1 << 29), 2)
    return np.where(a == 0, 0, np.where(a > 0, positive, -positive))


class Reciprocal(NamedTuple):
    """``GetReciprocal``: 1 / x as a number without integer bits, and a power of two."""

    value: np.ndarray
    bits_over_unit: np.ndarray


def reciprocal(x: Numbers, integer_bits: int) -> Reciprocal:
    """Return the reciprocal for positive numbers with some integer bits."""
    x = np.asarray(x, np.int64)
    # 32-bit numbers are exact as float64, whose exponent counts the digits.
    headroom = 32 - np.frexp(x.astype(np.float64))[1].astype(np.int64)
    shifted = (x << headroom) - (1 << 31)
    return Reciprocal(reciprocal_of_one_plus(shifted), integer_bits - headroom)


def inverse_root(x: int) -> Multiplier:
    """Return 1 / sqrt(x) for a positive whole number: ``GetInvSqrtQuantizedMultiplierExp``."""
    if x <= 1:
        return Multiplier(MAX, 0)
    shift = 11
    while x >= 1 << 29:
        x //= 4
        shift += 1
    bits = (32 - x.bit_length() - 1) // 2 - 1
    shift -= bits
    x <<= 2 * bits
    fixed = x >> 1
    half_three = (1 << 28) + (1 << 27)
    half = int(halved(fixed, 1))
    estimate = 1 << 28
    for _ in range(5):
        cube = int(saturated_shift(high_product(high_product(estimate, estimate), estimate), 6))
        estimate = int(
            saturated_shift(high_product(half_three, estimate) - high_product(half, cube), 3)
        )
    result = int(high_product(estimate, 1518500250))
    if shift < 0:
        result <<= -shift
        shift = 0
    return Multiplier(result, -shift)
