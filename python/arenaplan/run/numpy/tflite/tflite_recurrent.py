"""Operators with states: ``SVDF``, ``UNIDIRECTIONAL_SEQUENCE_LSTM``, and variables."""

from __future__ import annotations

from collections.abc import Callable
from math import log2
from typing import Any, Final

import numpy as np

from arenaplan.run.numpy.kernels.pieces import copy, operand, result
from arenaplan.run.numpy.registry import Run, Signature, Step, kernel
from arenaplan.run.numpy.tflite import libm
from arenaplan.run.numpy.tflite.blocks import FEW
from arenaplan.run.numpy.tflite.dense import tensor_multiplier
from arenaplan.run.numpy.tflite.fixed import Multiplier, multiplier_of, scaled, scaled_wide
from arenaplan.run.numpy.tflite.tflite_facts import (
    DOMAIN,
    FLOAT,
    Quantity,
    clamped,
    constant_operand,
    dtype_at,
    encoding,
    float_range,
    limits,
    refused,
    result_dtype,
)
from arenaplan.run.numpy.tflite.tflite_products import exact_float
from arenaplan.run.numpy.tflite.unary import logistic16, real_logistic, tanh16

_TANH: Final = 4
"""The activation code."""


@kernel("READ_VARIABLE", domain=DOMAIN)
def read_variable(step: Step) -> Run | None:
    """Copy a state."""
    return copy(operand(step, 0), result(step))


@kernel("ASSIGN_VARIABLE", domain=DOMAIN)
def assign_variable(step: Step) -> Run | None:
    """Overwrite a state."""
    state, value = operand(step, 0), operand(step, 1)
    if state.nbytes != value.nbytes or state.dtype != value.dtype:
        raise refused(step.signature, "the variable has another size or type")
    return copy(value.reshape(state.shape), state)


# -- SVDF --------------------------------------------------------------------------------------


@kernel("SVDF", domain=DOMAIN)
def svdf(step: Step) -> Run | None:
    """A rank-1 filter over features, and a filter over time whose memory is the state."""
    signature = step.signature
    x, state, y = operand(step, 0), operand(step, 4), result(step)
    features, times = constant_operand(signature, 1), constant_operand(signature, 2)
    rank = int(step.attributes.get("rank", 1))
    filters, memory = len(features), times.shape[1]
    if rank < 1 or filters % rank or state.size != len(x) * filters * memory:
        raise refused(signature, "its operands do not fit each other")
    kinds = tuple(str(each.dtype) for each in (x, features, times, state, y))
    given = signature.input(3) is not None
    bias = constant_operand(signature, 3) if given else np.zeros(filters // rank, x.dtype)
    shape = (len(x), filters, memory)
    if kinds == ("float32",) * 5:
        apply: Callable[[], None] = _RealSvdf(step, shape, bias)
    elif kinds in (
        ("int8", "int8", "int16", "int16", "int8"),
        ("int8", "int8", "int8", "int8", "int8"),
    ):
        apply = _IntegerSvdf(step, shape, bias)
    else:
        raise refused(signature, f"no kernel for operands of types {', '.join(kinds)}")
    return apply


def _shift(state: np.ndarray) -> None:
    """Move all elements down by one; NumPy would copy overlapping memory as a whole."""
    flat = state.reshape(-1)
    for at in range(0, flat.size - 1, FEW):
        stop = min(at + FEW, flat.size - 1)
        flat[at:stop] = flat[at + 1 : stop + 1].copy()


class _IntegerSvdf:
    """``EvalIntegerSvdfReference``."""

    def __init__(self, step: Step, shape: tuple[int, int, int], bias: np.ndarray) -> None:
        signature = step.signature
        x, w, t, a = (encoding(signature, at) for at in (0, 1, 2, 4))
        y = encoding(signature, 0, "output")
        self._factors = (
            multiplier_of(x.scale * w.scale / a.scale),
            multiplier_of(a.scale * t.scale / y.scale),
        )
        self._x, self._y = operand(step, 0), result(step).reshape(shape[0], -1)
        self._state = operand(step, 4).reshape(shape)
        self._zeros = x.zero, a.zero, y.zero
        features = constant_operand(signature, 1)
        # Exact: see `exact_float`.
        dtype = exact_float(features, -x.zero, self._x.dtype)
        self._features = np.ascontiguousarray(features.T.astype(dtype))
        self._times = constant_operand(signature, 2)
        self._bias, self._rank = bias.astype(np.int64), int(step.attributes.get("rank", 1))
        self._range = limits(self._state.dtype)
        self._rows = max(1, FEW // max(shape[2], 1))

    def __call__(self) -> None:
        _shift(self._state)
        x_zero, state_zero, y_zero = self._zeros
        for image, state, y in zip(self._x, self._state, self._y, strict=True):
            centered = image.astype(self._features.dtype) - self._features.dtype.type(x_zero)
            sums = np.matmul(centered, self._features).astype(np.int64)
            state[:, -1] = clamped(scaled(sums, self._factors[0]), *self._range) + state_zero
            for at in range(0, len(state), self._rows):
                part = slice(at, at + self._rows)
                products = self._times[part].astype(np.int64) * (
                    state[part].astype(np.int64) - state_zero
                )
                sums[part] = products.sum(axis=1)
            total = self._bias + sums.reshape(-1, self._rank).sum(axis=1)
            y[:] = clamped(scaled(total, self._factors[1]) + y_zero, -128, 127)


class _RealSvdf:
    """``EvalFloatSvdfReference``: sums are made element by element."""

    def __init__(self, step: Step, shape: tuple[int, int, int], bias: np.ndarray) -> None:
        self._x, self._y = operand(step, 0), result(step).reshape(shape[0], -1)
        self._state = operand(step, 4).reshape(shape)
        features = constant_operand(step.signature, 1)
        self._columns = [np.ascontiguousarray(features[:, at]) for at in range(features.shape[1])]
        times = constant_operand(step.signature, 2)
        self._times = [np.ascontiguousarray(times[:, at]) for at in range(times.shape[1])]
        self._bias, self._rank = bias, int(step.attributes.get("rank", 1))
        self._range = [FLOAT.type(bound) for bound in float_range(step.signature)]

    def __call__(self) -> None:
        _shift(self._state)
        for image, state, y in zip(self._x, self._state, self._y, strict=True):
            sums = np.zeros(len(state), FLOAT)
            for number, column in zip(image, self._columns, strict=True):
                sums += column * number
            state[:, -1] = sums
            sums = np.zeros(len(state), FLOAT)
            for at, times in enumerate(self._times):
                sums += times * state[:, at]
            total = self._bias.astype(FLOAT)
            for part in sums.reshape(-1, self._rank).T:
                total += part
            y[:] = np.minimum(np.maximum(total, self._range[0]), self._range[1])


# -- LSTM --------------------------------------------------------------------------------------

GATES: Final = {
    "forget": (2, 6, 13),
    "enter": (1, 5, 12),
    "cell": (3, 7, 14),
    "leave": (4, 8, 15),
}
"""Weights for the input, for the hidden state, and bias."""
HIDDEN, CELL = 18, 19
Q12: Final = Quantity((2.0**-12,), (0,), 0)
_KINDS: Final = {
    ("float32",) * 5,
    ("int8", "int8", "int32", "int8", "int16"),
    ("int16", "int8", "int64", "int16", "int16"),
}
"""Types of input, weights, bias, hidden state and cell."""


def check_lstm(signature: Signature) -> None:
    """Raise unless an LSTM with such types runs."""
    present = {at for at, tensor in enumerate(signature.inputs) if tensor is not None}
    if present != {0, HIDDEN, CELL, *(at for gate in GATES.values() for at in gate)}:
        raise refused(signature, "it has peepholes, projections or norms, or lacks a weight")
    if signature.attributes.get("fused_activation", _TANH) != _TANH:
        raise refused(signature, "its activation is not the hyperbolic tangent")
    kinds = tuple(str(dtype_at(signature, at)) for at in (0, 1, 12, HIDDEN, CELL))
    if kinds not in _KINDS or dtype_at(signature, 0) != result_dtype(signature):
        raise refused(signature, f"no kernel for operands of types {', '.join(kinds)}")


@kernel("UNIDIRECTIONAL_SEQUENCE_LSTM", domain=DOMAIN)
def lstm(step: Step) -> Run | None:
    """Four gates per step, the cell with 16 bits."""
    signature = step.signature
    check_lstm(signature)
    x, y = operand(step, 0), result(step)
    hidden, cell = operand(step, HIDDEN), operand(step, CELL)
    if step.attributes.get("time_major", 0):
        x, y = x.swapaxes(0, 1), y.swapaxes(0, 1)
    if x.shape[:2] != y.shape[:2] or hidden.shape != cell.shape or len(hidden) != len(x):
        raise refused(signature, "its operands do not fit each other")
    cells = _RealLstm(step) if x.dtype == FLOAT else _IntegerLstm(step)

    def run() -> None:
        for batch in range(len(x)):
            for moment in range(x.shape[1]):
                cells.advance(x[batch, moment], hidden[batch], cell[batch])
                y[batch, moment] = hidden[batch]

    return run


class _IntegerLstm:
    """An integer step: ``LstmStep``."""

    def __init__(self, step: Step) -> None:
        signature = step.signature
        self._wide = dtype_at(signature, 0) == np.int16
        x, hidden = encoding(signature, 0), encoding(signature, HIDDEN)
        self._gates = [
            (
                _Product(step, gate[0], 0, x, gate[2], wide=self._wide),
                _Product(step, gate[1], HIDDEN, hidden, None, wide=self._wide),
            )
            for gate in GATES.values()
        ]
        state = encoding(signature, CELL).scale
        one = 2.0**-15
        self._forget = multiplier_of(one * state / state)
        self._input = multiplier_of(one * one / state)
        self._output = multiplier_of(one * one / hidden.scale)
        self._zero, self._range = hidden.zero, limits(result_dtype(signature))
        left = 12 + round(log2(state))
        self._tanh = (3, -left) if left < 0 else (3 << left, 0)
        clip = float(step.attributes.get("cell_clip", 0.0))
        self._clip = int(min(max(clip / state, -32768.0), 32767.0)) if clip > 0 else 0

    def advance(self, x: np.ndarray, hidden: np.ndarray, cell: np.ndarray) -> None:
        """Update one sequence's state."""
        # The output gate reads the hidden state before the change.
        sums = [_short(of_x(x) + of_hidden(hidden)) for of_x, of_hidden in self._gates]
        forget, enter, leave = (logistic16(sums[at], (3, 0)) for at in (0, 1, 3))
        new = tanh16(sums[2], (3, 0))
        kept = _short(scaled(forget * cell.astype(np.int64), self._forget))
        state = _short(kept + _short(scaled(enter * new, self._input)))
        if self._clip:
            state = clamped(state, -self._clip, self._clip)
        cell[:] = state
        shown = tanh16(state, self._tanh) * leave
        hidden[:] = clamped(scaled(shown, self._output) + self._zero, *self._range)


def _short(x: np.ndarray) -> np.ndarray:
    """Return numbers clamped to 16 bits."""
    return clamped(x, -32768, 32767)


class _Product:
    """A gate's product with the weights, as numbers with 12 fractional bits."""

    def __init__(
        self, step: Step, weights: int, source: int, x: Quantity, bias: int | None, *, wide: bool
    ) -> None:
        signature = step.signature
        w = encoding(signature, weights)
        data = constant_operand(signature, weights).astype(np.int64) - w.zero
        dtype = dtype_at(signature, source)
        assert dtype is not None
        # Exact: see `exact_float`.
        kind = exact_float(data, -x.zero, dtype)
        self._matrix = np.ascontiguousarray(data.T.astype(kind))
        self._offset = kind.type(-x.zero)
        self._bias: Any = 0 if bias is None else constant_operand(signature, bias).astype(np.int64)
        self._factor: Multiplier = tensor_multiplier(x, w, Q12)
        self._scaled = scaled_wide if wide else scaled

    def __call__(self, x: np.ndarray) -> np.ndarray:
        sums = np.matmul(x.astype(self._matrix.dtype) + self._offset, self._matrix)
        return _short(self._scaled(sums.astype(np.int64) + self._bias, self._factor))


class _RealLstm:
    """A step with real numbers, sums made element by element."""

    def __init__(self, step: Step) -> None:
        def columns(at: int) -> list[np.ndarray]:
            return list(np.ascontiguousarray(constant_operand(step.signature, at).T))

        self._gates = [
            (columns(x), columns(hidden), constant_operand(step.signature, bias))
            for x, hidden, bias in GATES.values()
        ]
        self._clip = FLOAT.type(step.attributes.get("cell_clip", 0.0))

    def advance(self, x: np.ndarray, hidden: np.ndarray, cell: np.ndarray) -> None:
        """Update one sequence's state."""
        sums = [
            (_real_product(x, of_x) + bias) + _real_product(hidden, of_hidden)
            for of_x, of_hidden, bias in self._gates
        ]
        forget, enter, leave = (real_logistic(sums[at]) for at in (0, 1, 3))
        state = forget * cell + enter * libm.tanh(sums[2])
        if self._clip > 0:
            state = clamped(state, -float(self._clip), float(self._clip))
        cell[:] = state
        hidden[:] = libm.tanh(state) * leave


def _real_product(x: np.ndarray, columns: list[np.ndarray]) -> np.ndarray:
    """Return product sums, one product after the other."""
    sums = np.zeros(len(columns[0]), FLOAT)
    for number, column in zip(x, columns, strict=True):
        sums += number * column
    return sums
