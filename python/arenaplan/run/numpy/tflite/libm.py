"""
``float32`` functions as computed by the C library.

NumPy's vectorized functions differ in the last bit. The GNU C library's ``expf`` is a table and a
polynomial in ``float64``, repeated here; for the other functions the ``float64`` result is rounded,
which gives the nearest number and differs in few cases.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

_STEPS: Final = 32
_INVERSE: Final = float.fromhex("0x1.71547652b82fep+0") * _STEPS
_CUBIC: Final = tuple(
    float.fromhex(number) / _STEPS**power
    for number, power in (
        ("0x1.c6af84b912394p-5", 3),
        ("0x1.ebfce50fac4f3p-3", 2),
        ("0x1.62e42ff0c52d6p-1", 1),
    )
)


def exp(x: np.ndarray) -> np.ndarray:
    """
    Return exp for ``float32`` numbers: ``expf`` in the GNU C library since 2.27.

    Examples
    --------
    >>> exp(np.array([0, 1], np.float32))
    array([1.       , 2.7182817], dtype=float32)
    """
    z = np.clip(x.astype(np.float64), -200.0, 200.0) * _INVERSE
    whole = np.rint(z)
    r = z - whole
    power = np.exp2((whole % _STEPS) / _STEPS) * np.exp2(np.floor(whole / _STEPS))
    square = r * r
    made: np.ndarray = (
        ((_CUBIC[0] * r + _CUBIC[1]) * square + (_CUBIC[2] * r + 1)) * power
    ).astype(np.float32)
    return made


def nearest(function: Callable[[np.ndarray], np.ndarray]) -> Callable[[np.ndarray], np.ndarray]:
    """Return a ``float32`` function that rounds the ``float64`` result."""

    def rounded(x: np.ndarray) -> np.ndarray:
        return function(x.astype(np.float64)).astype(np.float32)

    return rounded


_LN2_HIGH, _LN2_LOW, _INVERSE_LN2 = np.array([0x3F317180, 0x3717F7D1, 0x3FB8AA3B], np.uint32).view(
    np.float32
)
_EXPM1: Final = np.array(
    [0xBD088889, 0x3AD00D01, 0xB8A670CD, 0x36867E54, 0xB457EDBB], np.uint32
).view(np.float32)


def expm1(x: np.ndarray) -> np.ndarray:
    """
    Return exp(x) - 1: ``expm1f`` of FreeBSD's library, which newlib and older GNU libraries have.

    Every step rounds to ``float32`` as the source does.
    """
    one, half = np.float32(1), np.float32(0.5)
    x = np.clip(x, np.float32(-30), np.float32(88))
    size = np.abs(x)
    is_reduced = size > np.float32(0.34657359)
    near = size < np.float32(1.0397208)
    whole = np.where(near, np.sign(x), np.trunc(_INVERSE_LN2 * x + np.copysign(half, x)))
    k = np.where(is_reduced, whole, np.float32(0)).astype(np.float32)
    high, low = x - k * _LN2_HIGH, k * _LN2_LOW
    r = high - low
    rest = (high - r) - low
    half_r = half * r
    square = r * half_r
    series = _EXPM1[4]
    for factor in _EXPM1[3::-1]:
        series = factor + square * series
    series = one + square * series
    t = np.float32(3) - series * half_r
    error = square * ((series - t) / (np.float32(6) - r * t))
    plain = r - (r * error - square)
    error = r * (error - rest) - rest
    error = error - square
    power = np.exp2(k)
    inverse = np.exp2(-k)
    few = (one - inverse) - (error - r)
    many = (r - (error + inverse)) + one
    made = np.where(k < 23, few, many) * power
    made = np.where((k <= -2) | (k > 56), (one - (error - r)) * power - one, made)
    made = np.where(
        k == 1,
        np.where(
            r < np.float32(-0.25),
            np.float32(-2) * (error - (r + half)),
            one + np.float32(2) * (r - error),
        ),
        made,
    )
    made = np.where(k == -1, half * (r - error) - half, made)
    made = np.where(k == 0, plain, made)
    return np.where(size < np.float32(2.0**-25), x, made).astype(np.float32)


def tanh(x: np.ndarray) -> np.ndarray:
    """Return the hyperbolic tangent: ``tanhf`` in the same library."""
    one, two = np.float32(1), np.float32(2)
    size = np.abs(x)
    large = expm1(two * np.minimum(size, np.float32(22)))
    small = expm1(-two * np.minimum(size, np.float32(22)))
    made = np.where(size >= 1, one - two / (large + two), -small / (small + two))
    made = np.where(size >= 22, one, made).astype(np.float32)
    return np.where(size == 0, x, np.copysign(made, x)).astype(np.float32)


def away(x: np.ndarray) -> np.ndarray:
    """Return the nearest whole numbers, halves away from zero: ``roundf``."""
    whole = np.trunc(x)
    made: np.ndarray = whole + np.where(np.abs(x - whole) >= 0.5, np.sign(x), 0)
    return made
