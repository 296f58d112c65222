"""Operators on the last dimension: softmax, its logarithm, and norms."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any, Final, TypeAlias

import numpy as np

from arenaplan.graph import Choice
from arenaplan.run.numpy.kernels.pieces import operand, result
from arenaplan.run.numpy.registry import Run, Signature, Step, kernel, scratch_bytes
from arenaplan.run.numpy.tflite import fixed, libm
from arenaplan.run.numpy.tflite.blocks import FEW
from arenaplan.run.numpy.tflite.fixed import Multiplier, multiplier_of, scaled
from arenaplan.run.numpy.tflite.tflite_facts import (
    DOMAIN,
    FLOAT,
    check_types,
    clamped,
    encoding,
    limits,
)

DIFFERENCE_BITS: Final = 5
_SUM_BITS: Final = 12
_PIECE: Final = FEW // 4
"""Elements in a row, or in some rows, for functions with many temporary arrays."""


def _scratch(signature: Signature) -> list[list[Choice]]:
    """Return the workspace: a row as ``int64`` or ``float32``, where row parts are kept."""
    x = signature.inputs[0]
    if x is None or not x.shape or prod(x.shape) == 0:
        return []
    return [[Choice(scratch_bytes((_rows(x.shape), x.shape[-1]), np.int64), 1.0)]]


def _rows(shape: tuple[int, ...]) -> int:
    """Return how many rows are worked on at a time."""
    return max(1, min(prod(shape[:-1]), _PIECE // max(shape[-1], 1)))


_OfRows: TypeAlias = Callable[[np.ndarray, np.ndarray, np.ndarray], None]


def by_rows(step: Step, function: _OfRows) -> Run | None:
    """
    Return a function that works on some rows at a time.

    Parameters
    ----------
    function : callable
        ``function(x, y, scratch)`` gets rows of the input and the output, and as many ``int64``
        scratch rows. Temporary arrays have at most :data:`FEW` elements, or one row.
    """
    x, y = operand(step, 0), result(step)
    if y.size == 0:
        return None
    depth = x.shape[-1]
    x, y = x.reshape(-1, depth), y.reshape(-1, depth)
    count = _rows(x.shape)
    scratch = step.scratch().array((count, depth), np.int64)
    parts = [
        (x[at : at + count], y[at : at + count], scratch[: len(x[at : at + count])])
        for at in range(0, len(x), count)
    ]

    def run() -> None:
        for part in parts:
            function(*part)

    return run


def _pieces(depth: int) -> list[slice]:
    """Return row parts, so that temporary arrays for long rows are short."""
    return [slice(at, at + _PIECE) for at in range(0, depth, _PIECE)]


def softmax_scale(beta: float, scale: float) -> Multiplier:
    """Return the factor for differences: ``PreprocessSoftmaxScaling``."""
    real = min(beta * scale * (1 << (31 - DIFFERENCE_BITS)), (1 << 31) - 1.0)
    return multiplier_of(real)


def softmax_exps(scale: float, beta: float) -> np.ndarray:
    """Return exp for 8-bit differences from 0 on; exp of larger differences counts as 0."""
    factor = softmax_scale(beta, scale)
    differences = -np.arange(min(256, fixed.radius(DIFFERENCE_BITS, factor.shift) + 1))
    shifted = fixed.wrapped(differences << factor.shift)
    return fixed.exp_of_negative(fixed.high_product(shifted, factor.value), DIFFERENCE_BITS)


@kernel("SOFTMAX", domain=DOMAIN, workspace=_scratch, in_order=True)
def softmax(step: Step) -> Run | None:
    """8-bit numbers by gemmlowp's functions, 16-bit numbers by tables."""
    signature = step.signature
    check_types(signature, "float32 float32", "int8 int8", "int8 int16", "int16 int16")
    beta = float(step.attributes.get("beta", 1.0))
    x = operand(step, 0)
    if x.dtype == FLOAT:
        return by_rows(step, lambda a, b, _: _real_softmax(a, b, np.float32(beta)))
    if x.dtype == np.int16:
        return _softmax16(step, beta)
    made = limits(result(step).dtype)
    bits = 8 * result(step).itemsize
    found = softmax_exps(encoding(signature, 0).scale, beta)
    exps = np.zeros(256, np.int64)
    exps[: len(found)] = found
    sums = fixed.halved(exps, _SUM_BITS)

    def function(a: np.ndarray, b: np.ndarray, scratch: np.ndarray) -> None:
        np.subtract(a.max(axis=1, keepdims=True), a, out=scratch, dtype=np.int64)
        total = np.zeros((len(a), 1), np.int64)
        for piece in _pieces(a.shape[1]):
            total += sums[scratch[:, piece]].sum(axis=1, keepdims=True)
        inverse = fixed.reciprocal(fixed.wrapped(total), _SUM_BITS)
        exponent = inverse.bits_over_unit + 31 - bits
        for piece in _pieces(a.shape[1]):
            at = scratch[:, piece]
            unsaturated = fixed.halved(fixed.high_product(inverse.value, exps[at]), exponent)
            b[:, piece] = np.where(
                at < len(found), clamped(unsaturated + made.low, made.low, made.high), made.low
            )

    return by_rows(step, function)


def _real_softmax(x: np.ndarray, y: np.ndarray, beta: np.float32) -> None:
    """Divide by the sum, made element by element."""
    most = x.max(axis=1, keepdims=True)
    total = np.zeros((len(x), 1), FLOAT)
    for piece in _pieces(x.shape[1]):
        y[:, piece] = libm.exp((x[:, piece] - most) * beta)
        total = _added(total, y[:, piece])
    np.divide(y, total, out=y)


def _added(total: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Return a sum per row that goes on element by element."""
    return np.add.accumulate(np.concatenate([total, x], axis=1), axis=1)[:, -1:]


_STEPS: Final = 512


def _table16(function: Callable[[np.ndarray], np.ndarray], scale: Any, zero: int) -> np.ndarray:
    """Return 513 entries for a function: ``LUTPopulateInt16`` with result scale 2 / 65535."""
    one = np.float32
    made = one(2) / one(65535)
    low, high = scale * one(-32768 - zero), scale * one(32767 - zero)
    made_low, made_high = made * one(-32768), made * one(32767)
    step = (high - low) / one(_STEPS)
    inverse = one(65536) / (made_high - made_low)
    at = np.arange(_STEPS, dtype=FLOAT)
    value = function(low + at * step)
    middle = function(low + at * step + step / one(2))
    following = function(low + (at + one(1)) * step)
    sample = libm.away(value * inverse)
    between = libm.away((following * inverse + sample) / one(2))
    bias = libm.away((between - libm.away(middle * inverse)) / one(2))
    last = libm.away(function(np.array([high], FLOAT)) * inverse)
    table = clamped(np.concatenate([sample - bias, last]), -32768, 32767)
    return table.astype(np.int64)


def _looked_up(values: np.ndarray, table: np.ndarray) -> np.ndarray:
    """Return entries between which 16-bit numbers lie: ``LUTLookup``."""
    at = (values >> 7) + 256
    low = table[at]
    made: np.ndarray = low + (((table[at + 1] - low) * (values & 0x7F) + (1 << 6)) >> 7)
    return made


def softmax_tables(scale: float, beta: float) -> tuple[Multiplier, np.ndarray, np.ndarray]:
    """Return the factor for 16-bit differences, and tables for exp and 1 / (1 + x)."""
    one = np.float32
    exps = _table16(libm.exp, one(10) / one(65535), 32767)
    inverses = _table16(lambda v: one(1) / (one(1) + v), one(1) / one(65535), -32768)
    return multiplier_of(scale * beta / (10.0 / 65535.0)), exps, inverses


def _softmax16(step: Step, beta: float) -> Run | None:
    """Return a function that looks exp and the reciprocal up."""
    factor, exps, inverses = softmax_tables(encoding(step.signature, 0).scale, beta)

    def function(a: np.ndarray, b: np.ndarray, scratch: np.ndarray) -> None:
        most = a.max(axis=1, keepdims=True).astype(np.int64)
        total = np.zeros((len(a), 1), np.int64)
        for piece in _pieces(a.shape[1]):
            difference = scaled(a[:, piece] - most, factor) + 32767
            scratch[:, piece] = _looked_up(clamped(difference, -32768, 32767), exps)
            total += scratch[:, piece].sum(axis=1, keepdims=True)
        headroom = 32 - np.frexp(total.astype(np.float64))[1].astype(np.int64)
        shifted = ((total << (headroom - 1)) + (1 << 13)) >> 14
        inverse = _looked_up(clamped(shifted - (1 << 15) - (1 << 16), -32768, 32767), inverses)
        right = 31 - headroom
        for piece in _pieces(a.shape[1]):
            made = (scratch[:, piece] * inverse + (np.int64(1) << (right - 1))) >> right
            b[:, piece] = clamped(made, 0, 32767)

    return by_rows(step, function)


@kernel("LOG_SOFTMAX", domain=DOMAIN, workspace=_scratch, in_order=True)
def log_softmax(step: Step) -> Run | None:
    """Real numbers."""
    check_types(step.signature, "float32 float32")

    def function(x: np.ndarray, y: np.ndarray, _: np.ndarray) -> None:
        most = x.max(axis=1, keepdims=True)
        total = np.zeros((len(x), 1), FLOAT)
        for piece in _pieces(x.shape[1]):
            total = _added(total, libm.exp(x[:, piece] - most))
        logarithm = libm.nearest(np.log)(total)
        for piece in _pieces(x.shape[1]):
            y[:, piece] = x[:, piece] - most - logarithm

    return by_rows(step, function)


@kernel("L2_NORMALIZATION", domain=DOMAIN, workspace=_scratch, in_order=True)
def l2_normalization(step: Step) -> Run | None:
    """Rows are divided by their norm."""
    check_types(step.signature, "float32 float32", "int8 int8")
    if operand(step, 0).dtype == FLOAT:
        return by_rows(step, _real_norm)
    zero = encoding(step.signature, 0).zero

    def function(x: np.ndarray, y: np.ndarray, scratch: np.ndarray) -> None:
        np.subtract(x, zero, out=scratch, dtype=np.int64)
        for row, made in zip(scratch, y, strict=True):
            by = fixed.inverse_root(sum(int(np.square(row[p]).sum()) for p in _pieces(len(row))))
            factor = Multiplier(by.value, by.shift + 7)
            for piece in _pieces(len(row)):
                made[piece] = clamped(scaled(row[piece], factor), -128, 127)

    return by_rows(step, function)


def _real_norm(x: np.ndarray, y: np.ndarray, _: np.ndarray) -> None:
    """Divide rows by the root of a sum that is made element by element."""
    total = np.zeros((len(x), 1), FLOAT)
    for piece in _pieces(x.shape[1]):
        total = _added(total, np.square(x[:, piece]))
    np.divide(x, np.maximum(np.sqrt(total), np.float32(1e-6)), out=y)
