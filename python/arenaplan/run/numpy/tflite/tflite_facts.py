"""Facts about a node's operands: scales, zero points, result ranges."""

from __future__ import annotations

from math import floor
from typing import Any, Final, NamedTuple

import numpy as np

from arenaplan.base.errors import UnsupportedOp
from arenaplan.run.numpy.registry import Signature

DOMAIN: Final = "tflite"
NONE, RELU, RELU_N1_TO_1, RELU6 = range(4)
"""Fused activations."""
FLOAT: Final = np.dtype(np.float32)
_LARGEST: Final = float(np.finfo(np.float32).max)
_BOUNDS: Final = {
    NONE: (-_LARGEST, _LARGEST),
    RELU: (0.0, _LARGEST),
    RELU_N1_TO_1: (-1.0, 1.0),
    RELU6: (0.0, 6.0),
}


class Quantity(NamedTuple):
    """An operand's encoding: real numbers are ``scale * (number - zero)``."""

    scales: tuple[float, ...]
    zeros: tuple[int, ...]
    axis: int
    """Dimension whose indices each have a scale, if there are several scales."""

    @property
    def scale(self) -> float:
        """The only scale."""
        return self.scales[0]

    @property
    def zero(self) -> int:
        """The only zero point."""
        return self.zeros[0]


class ResultBounds(NamedTuple):
    """Result bounds, both included."""

    low: int
    high: int


def refused(signature: Signature, why: str) -> UnsupportedOp:
    """Return the error for a node whose operator runs, but not with such operands."""
    return UnsupportedOp(f"node {signature.name!r} ({signature.op}): {why}")


def encoding(signature: Signature, position: int, side: str = "input") -> Quantity:
    """
    Return the encoding of an input, an output or an intermediate.

    Raises
    ------
    UnsupportedOp
        If the file has no encoding.
    """
    key = "intermediates" if side == "intermediate" else f"{side}_quantization"
    rows = signature.attributes.get(key, ())
    row = rows[position] if position < len(rows) else None
    if row is None or not row[0]:
        raise refused(signature, f"{side} {position} has no scale")
    scales, zeros, axis = row
    return Quantity(tuple(map(float, scales)), tuple(map(int, zeros)) or (0,), int(axis))


def encoding_or(signature: Signature, position: int, side: str = "input") -> Quantity:
    """Return the same; without scales, TensorFlow Lite Micro's encoding, 0 and 0."""
    try:
        return encoding(signature, position, side)
    except UnsupportedOp:
        return Quantity((0.0,), (0,), 0)


def dtype_at(signature: Signature, position: int) -> np.dtype[Any] | None:
    """Return an input's element type; ``None`` if omitted."""
    tensor = signature.input(position)
    return None if tensor is None else tensor.dtype


def result_dtype(signature: Signature) -> np.dtype[Any]:
    """Return the element type of output 0."""
    tensor = signature.outputs[0] if signature.outputs else None
    if tensor is None:
        raise refused(signature, "it has no result")
    return tensor.dtype


def check_types(signature: Signature, *allowed: str) -> None:
    """
    Raise unless the types of the first input and output are allowed, ``"int8 int16"``.

    Raises
    ------
    UnsupportedOp
        If not; the message names the types.
    """
    first = dtype_at(signature, 0)
    found = f"{first} {result_dtype(signature)}"
    if found not in allowed:
        raise refused(signature, f"no kernel makes {result_dtype(signature)} of {first}")


def limits(dtype: np.dtype[Any]) -> ResultBounds:
    """Return an integer type's range."""
    info = np.iinfo(dtype)
    return ResultBounds(int(info.min), int(info.max))


def clamped(x: np.ndarray, low: float, high: float) -> np.ndarray:
    """Return numbers limited to a range."""
    # Both together take less time than `clip`, which looks the limits of the type up.
    made: np.ndarray = np.minimum(np.maximum(x, low), high)
    return made


def rounded(number: float) -> int:
    """Return the nearest whole number, halves away from zero: ``TfLiteRound``."""
    return -floor(-number + 0.5) if number < 0 else floor(number + 0.5)


def quantized(number: float, encoded: Quantity) -> int:
    """Return the number for a real number, computed in ``float32``."""
    return encoded.zero + rounded(float(np.float32(number) / np.float32(encoded.scale)))


def activation_range(signature: Signature, encoded: Quantity) -> ResultBounds:
    """Return the range of an integer result with the fused activation."""
    low, high = limits(result_dtype(signature))
    activation = int(signature.attributes.get("fused_activation", NONE))
    least, most = float_range(signature)
    if activation != NONE:
        low = max(low, quantized(least, encoded))
    if activation in (RELU6, RELU_N1_TO_1):
        high = min(high, quantized(most, encoded))
    return ResultBounds(low, high)


def float_range(signature: Signature) -> tuple[float, float]:
    """Return the bounds of a real result with the fused activation."""
    activation = int(signature.attributes.get("fused_activation", NONE))
    if activation not in _BOUNDS:
        raise refused(signature, f"no kernel fuses activation {activation}")
    return _BOUNDS[activation]


def constant_operand(signature: Signature, position: int) -> np.ndarray:
    """
    Return a constant input's data.

    Raises
    ------
    UnsupportedOp
        If the input is not constant.
    """
    data = signature.constant_data(position)
    if data is None:
        raise refused(signature, f"input {position} is no constant")
    return data
