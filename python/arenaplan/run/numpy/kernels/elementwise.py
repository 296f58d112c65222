"""Elementwise arithmetic, comparison, logic, selection and conversion."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from math import prod
from typing import Any

import numpy as np

from arenaplan.run.numpy.cuts import ELEMENTWISE, UNARY
from arenaplan.run.numpy.kernels.pieces import (
    Blocks,
    blockwise,
    copy,
    invalid,
    operand,
    result,
    select,
)
from arenaplan.run.numpy.registry import Run, Signature, Step, kernel

# -- a single NumPy call ------------------------------------------------------------

_UNARY: Mapping[str, np.ufunc] = {
    "Abs": np.absolute,
    "Acos": np.arccos,
    "Acosh": np.arccosh,
    "Asin": np.arcsin,
    "Asinh": np.arcsinh,
    "Atan": np.arctan,
    "Atanh": np.arctanh,
    "BitwiseNot": np.invert,
    "Ceil": np.ceil,
    "Cos": np.cos,
    "Cosh": np.cosh,
    "Exp": np.exp,
    "Floor": np.floor,
    "IsNaN": np.isnan,
    "Log": np.log,
    "Neg": np.negative,
    "Not": np.logical_not,
    "Round": np.rint,
    "Sign": np.sign,
    "Sin": np.sin,
    "Sinh": np.sinh,
    "Sqrt": np.sqrt,
    "Tan": np.tan,
    "Tanh": np.tanh,
}

# Before these versions, broadcasting was spelled with attributes; new models have none.
_BINARY: Mapping[str, tuple[np.ufunc, int]] = {
    "Add": (np.add, 7),
    "And": (np.logical_and, 7),
    "BitwiseAnd": (np.bitwise_and, 18),
    "BitwiseOr": (np.bitwise_or, 18),
    "BitwiseXor": (np.bitwise_xor, 18),
    "Equal": (np.equal, 7),
    "Greater": (np.greater, 7),
    "GreaterOrEqual": (np.greater_equal, 12),
    "Less": (np.less, 7),
    "LessOrEqual": (np.less_equal, 12),
    "Mul": (np.multiply, 7),
    "Or": (np.logical_or, 7),
    "Sub": (np.subtract, 7),
    "Xor": (np.logical_xor, 7),
}


def _apply(function: np.ufunc, step: Step) -> Run | None:
    """Return a function that runs ``function(*inputs, output)``."""
    inputs = [operand(step, position) for position in range(function.nin)]
    return blockwise(function, inputs, result(step))


for _op, _function in _UNARY.items():
    kernel(_op, cut=ELEMENTWISE)(partial(_apply, _function))
for _op, (_function, _since) in _BINARY.items():
    kernel(_op, since=_since, cut=ELEMENTWISE)(partial(_apply, _function))


@kernel("Reciprocal", cut=ELEMENTWISE)
def reciprocal(step: Step) -> Run | None:
    """Write ``1/x``."""
    # Twice as fast as np.reciprocal.
    return blockwise(lambda x, y: np.divide(1, x, y), [operand(step, 0)], result(step))


@kernel("BitShift", cut=ELEMENTWISE)
def bit_shift(step: Step) -> Run | None:
    """Shift the bits in ``a`` by ``b``."""
    direction = step.attributes.get("direction")
    if direction not in ("LEFT", "RIGHT"):
        raise invalid(step, f"direction is {direction!r}, not 'LEFT' or 'RIGHT'")
    return _apply(np.left_shift if direction == "LEFT" else np.right_shift, step)


@kernel("Mod", cut=ELEMENTWISE)
def mod(step: Step) -> Run | None:
    """Write a division's remainder, with the sign of the divisor or (``fmod``) the dividend."""
    return _apply(np.fmod if step.attributes.get("fmod", 0) else np.remainder, step)


@kernel("IsInf", cut=ELEMENTWISE)
def is_inf(step: Step) -> Run | None:
    """Tell which elements are infinite, with either sign or a given sign."""
    negative = step.attributes.get("detect_negative", 1)
    positive = step.attributes.get("detect_positive", 1)
    if negative and positive:
        return _apply(np.isinf, step)
    if not (negative or positive):
        return partial(result(step).fill, False)
    infinity = np.inf if positive else -np.inf
    return blockwise(lambda x, y: np.equal(x, infinity, y), [operand(step, 0)], result(step))


# -- division and powers ----------------------------------------------------------


def _divides_signed(signature: Signature) -> bool:
    output = signature.outputs[0]
    return output is not None and output.dtype.kind == "i"


_REST = Blocks(None, when=_divides_signed)


def _divide_whole(a: np.ndarray, b: np.ndarray, y: np.ndarray, rest: np.ndarray) -> None:
    """Divide integers, rounding towards zero, where NumPy rounds down."""
    np.fmod(a, b, out=rest)
    np.subtract(a, rest, out=rest)
    np.floor_divide(rest, b, out=y)


@kernel("Div", since=7, workspace=_REST.declare, cut=ELEMENTWISE)
def div(step: Step) -> Run | None:
    """Divide; whole numbers are rounded towards zero."""
    y = result(step)
    if y.dtype.kind == "f":
        return _apply(np.divide, step)
    if y.dtype.kind == "u":
        return _apply(np.floor_divide, step)
    inputs = [operand(step, 0), operand(step, 1)]
    return blockwise(_divide_whole, inputs, y, _REST.arrays(step))


def _constant_exponent(signature: Signature) -> Any:
    """Return the exponent if the exponent is a single constant number."""
    exponent = signature.input(1)
    if exponent is None or prod(exponent.shape) != 1:
        return None
    data = signature.constant_data(1)
    return None if data is None else data.item()


_SQUARE = Blocks(None, when=lambda signature: _constant_exponent(signature) == 3)


def _cube(x: np.ndarray, y: np.ndarray, square: np.ndarray) -> None:
    np.multiply(x, x, out=square)
    np.multiply(x, square, out=y)


def _power(x: np.ndarray, exponent: np.ndarray, y: np.ndarray) -> None:
    np.power(x, exponent, out=y, casting="unsafe")


@kernel("Pow", since=7, workspace=_SQUARE.declare, cut=ELEMENTWISE)
def power(step: Step) -> Run | None:
    """Raise to a power; a few constant powers have separate functions."""
    x, y = operand(step, 0), result(step)
    value = _constant_exponent(step.signature)
    if value == 1:
        return copy(x.reshape(y.shape), y)
    if value == 2:
        return blockwise(np.square, [x], y)
    if value == 3:  # np.power takes 40 times as long.
        return blockwise(_cube, [x], y, _SQUARE.arrays(step))
    if value == 0.5 and y.dtype.kind == "f":
        return blockwise(np.sqrt, [x], y)
    return blockwise(_power, [x, operand(step, 1)], y)


# -- many operands ------------------------------------------------------------------


_TOTAL = Blocks(None, when=lambda signature: len(signature.inputs) > 2)


def _folding(function: np.ufunc) -> Callable[..., None]:
    """Return a function that combines three or more operands from the left."""

    def body(*arrays: np.ndarray) -> None:
        first, second, *others, last, y, total = arrays
        function(first, second, out=total)
        for each in others:
            function(total, each, out=total)
        # Not earlier: the output may be the memory of any operand.
        function(total, last, out=y)

    return body


def _combine(function: np.ufunc, step: Step) -> Run | None:
    """Combine all inputs with a function of two arguments."""
    inputs, y = [operand(step, position) for position in range(len(step.inputs))], result(step)
    if len(inputs) == 1:
        return copy(inputs[0], y)
    if len(inputs) == 2:
        return blockwise(function, inputs, y)
    return blockwise(_folding(function), inputs, y, _TOTAL.arrays(step))


for _op, _function in {"Sum": np.add, "Max": np.maximum, "Min": np.minimum}.items():
    kernel(_op, workspace=_TOTAL.declare, cut=ELEMENTWISE)(partial(_combine, _function))


# -- bounds and choices ---------------------------------------------------------------


@kernel("Relu", cut=ELEMENTWISE)
def relu(step: Step) -> Run | None:
    """Write ``max(x, 0)``."""
    # A call with two bounds is three times as fast as np.maximum with a scalar.
    y = result(step)
    top = np.inf if y.dtype.kind == "f" else np.iinfo(y.dtype).max
    return blockwise(lambda x, y: np.clip(x, 0, top, out=y), [operand(step, 0)], y)


@kernel("Clip", cut=UNARY)
def clip(step: Step) -> Run | None:
    """Bound elements from below and above."""
    x, y = operand(step, 0), result(step)
    bounds = [
        _bound(step, "min", 1, -np.inf if y.dtype.kind == "f" else np.iinfo(y.dtype).min),
        _bound(step, "max", 2, np.inf if y.dtype.kind == "f" else np.iinfo(y.dtype).max),
    ]
    return blockwise(lambda x, low, high, y: np.clip(x, low, high, out=y), [x, *bounds], y)


def _bound(step: Step, name: str, position: int, default: float) -> np.ndarray:
    """Return a bound, which the caller may still change if the bound is an input."""
    array = step.input(position)
    if array is None:
        return np.array(step.attributes.get(name, default), dtype=result(step).dtype)
    return array.reshape(())


_DIFFERENCE = Blocks(None)


@kernel("Where", workspace=_DIFFERENCE.declare, cut=ELEMENTWISE)
def where(step: Step) -> Run | None:
    """Write ``a`` where the mask is true and ``b`` elsewhere."""
    y = result(step)
    bits = np.dtype(f"i{y.itemsize}")
    inputs = [operand(step, 0), operand(step, 1).view(bits), operand(step, 2).view(bits)]
    scratch = [array.view(bits) for array in _DIFFERENCE.arrays(step)]
    return blockwise(select, inputs, y.view(bits), scratch)


# -- conversion ----------------------------------------------------------------------


def _convert(x: np.ndarray, y: np.ndarray) -> None:
    np.copyto(y, x, casting="unsafe")


@kernel("Cast", "CastLike", cut=UNARY)
def cast(step: Step) -> Run | None:
    """Convert to the output's type."""
    x, y = operand(step, 0), result(step)
    return copy(x, y) if x.dtype == y.dtype else blockwise(_convert, [x], y)


@kernel("BitCast")
def bit_cast(step: Step) -> Run | None:
    """Show the same bytes as another type."""
    return copy(
        operand(step, 0).reshape(-1).view(np.uint8), result(step).reshape(-1).view(np.uint8)
    )
