"""
Chains of elementwise operators as programs for the compiled chain kernel.

A program works on registers with a few hundred elements, so that a chain of any length goes over
memory once. Operators are translated to kernel functions by :data:`RECIPES`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import prod
from typing import NamedTuple, TypeAlias

import numpy as np

from arenaplan._core import CompiledKernel
from arenaplan.graph.ops.own_ops import QUANTIZATION, REQUANTIZE
from arenaplan.run.numpy.affine import channel_affine, is_channel_affine
from arenaplan.run.numpy.compiled import is_enabled
from arenaplan.run.numpy.registry import INTERNAL, MICROSOFT, Run, Signature, Tensor

Argument: TypeAlias = "int | float"
"""The number of a value that a program has made, or a constant, which is a float."""
Recipe: TypeAlias = "Callable[[ChainProgram, Signature, list[Argument]], Argument | None]"
"""Appends an operator's functions, and returns the result; ``None`` if there are no functions."""

_Step: TypeAlias = "tuple[str, int, Sequence[Argument]]"
"""A function, the result register, and the arguments."""

_REGISTERS, _OPERANDS, _DIMENSIONS = 8, 8, 6
"""Limits of the compiled kernel; see ``kernels/src/chain.rs``."""
_SINGLE = np.dtype(np.float32)
_BYTES = frozenset([np.dtype(np.int8), np.dtype(np.uint8)])
_MIDDLE = 1.5 * 2.0**23
"""Single-precision numbers near this number are the integers: a sum with the number is rounded to
an integer, ties to even.
"""


class _Line(NamedTuple):
    """A function with arguments; the function may read fewer arguments."""

    function: str
    arguments: tuple[Argument, Argument, Argument]


class ChainProgram:
    """Functions in order; each makes a value with a separate number."""

    def __init__(self) -> None:
        self.lines: list[_Line] = []
        self.operands = 0

    def load(self) -> int:
        """Append the next operand."""
        self.operands += 1
        return self("load", self.operands - 1)

    def __call__(
        self, function: str, first: Argument, second: Argument = 0.0, third: Argument = 0.0
    ) -> int:
        """Append a function."""
        self.lines.append(_Line(function, (first, second, third)))
        return len(self.lines) - 1

    def steps(self, result: int) -> tuple[list[_Step], int] | None:
        """Return the functions with registers, and the result register, if registers suffice."""
        last: dict[int, int] = {result: len(self.lines)}
        for at, line in enumerate(self.lines):
            for argument in self._arguments(line):
                last[argument] = max(last.get(argument, 0), at)
        homes: dict[int, int] = {}
        found: list[_Step] = []
        for at, line in enumerate(self.lines):
            # The register of an argument is free for the function after this one only.
            for value in [value for value in homes if last.get(value, -1) < at]:
                del homes[value]
            free = [home for home in range(_REGISTERS) if home not in homes.values()]
            if not free:
                return None
            homes[at] = free[0]
            inside = self._arguments(line)
            arguments = [
                homes[value] if isinstance(value, int) and value in inside else value
                for value in line.arguments
            ]
            found.append((line.function, free[0], arguments))
        return found, homes[result]

    def _arguments(self, line: _Line) -> list[int]:
        """Return the values that a function reads."""
        if line.function == "load":
            return []
        return [value for value in line.arguments if isinstance(value, int)]


# -- operators -------------------------------------------------------------------------------


def _two(function: str) -> Recipe:
    return lambda p, _, args: p(function, args[0], args[1]) if len(args) == 2 else None


def _one(function: str) -> Recipe:
    return lambda p, _, args: p(function, args[0])


def _fold(function: str) -> Recipe:
    def recipe(p: ChainProgram, _: Signature, args: list[Argument]) -> Argument:
        total = args[0] if len(args) > 1 else p("copy", args[0])
        for each in args[1:]:
            total = p(function, total, each)
        return total

    return recipe


def _relu(p: ChainProgram, _: Signature, args: list[Argument]) -> Argument:
    return p("max", 0.0, args[0])


def _clip(p: ChainProgram, signature: Signature, args: list[Argument]) -> Argument | None:
    if any(not isinstance(bound, float) for bound in args[1:]):
        return None
    low, high = signature.constant_data(1), signature.constant_data(2)
    least = signature.attributes.get("min", -math.inf) if low is None else low.reshape(()).item()
    most = signature.attributes.get("max", math.inf) if high is None else high.reshape(()).item()
    return p("min", float(most), p("max", float(least), args[0]))


def _leaky_relu(p: ChainProgram, signature: Signature, args: list[Argument]) -> Argument | None:
    alpha = float(signature.attributes.get("alpha", 0.01))
    return p("max", p("mul", args[0], alpha), args[0]) if 0 < alpha <= 1 else None


def _prelu(p: ChainProgram, signature: Signature, args: list[Argument]) -> Argument | None:
    slope = signature.constant_data(1)
    if slope is None or not ((slope > 0) & (slope <= 1)).all():
        return None
    return p("max", p("mul", args[0], args[1]), args[0])


def _mish(p: ChainProgram, _: Signature, args: list[Argument]) -> Argument:
    # tanh(log(1 + e)) is n / (n + 2) with n = e (e + 2), and 1 in single precision from 20 on.
    e = p("exp", p("min", 20.0, args[0]))
    n = p("mul", e, p("add", e, 2.0))
    return p("mul", args[0], p("div", n, p("add", n, 2.0)))


def _line(p: ChainProgram, x: Argument, alpha: float, beta: float) -> int:
    """Append ``alpha·x + beta``, bounded to 0 … 1."""
    return p("min", 1.0, p("max", 0.0, p("add", p("mul", x, alpha), beta)))


def _hard_sigmoid(p: ChainProgram, signature: Signature, args: list[Argument]) -> Argument:
    attributes = signature.attributes
    alpha, beta = attributes.get("alpha", 0.2), attributes.get("beta", 0.5)
    return _line(p, args[0], float(alpha), float(beta))


def _hard_swish(p: ChainProgram, _: Signature, args: list[Argument]) -> Argument:
    return p("mul", args[0], _line(p, args[0], 1 / 6, 0.5))


def _elu(p: ChainProgram, signature: Signature, args: list[Argument]) -> Argument | None:
    alpha = float(signature.attributes.get("alpha", 1.0))
    if not math.isfinite(alpha):
        return None
    (x,) = args
    below = p("mul", p("sub", p("exp", p("min", 0.0, x)), 1.0), alpha)
    return p("add", p("max", 0.0, x), below)


def _swish(p: ChainProgram, signature: Signature, args: list[Argument]) -> Argument:
    alpha = float(signature.attributes.get("alpha", 1.0))
    return p("mul", args[0], p("sigmoid", p("mul", args[0], alpha)))


def _gelu(p: ChainProgram, signature: Signature, args: list[Argument]) -> Argument:
    (x,) = args
    if signature.attributes.get("approximate", "none") == "tanh":
        root = math.sqrt(2 / math.pi)
        inner = p("add", p("mul", p("mul", x, x), 0.044715 * root), root)
        bent = p("tanh", p("mul", inner, x))
    else:
        bent = p("erf", p("mul", x, math.sqrt(0.5)))
    return p("mul", x, p("add", p("mul", bent, 0.5), 0.5))


def _power(p: ChainProgram, signature: Signature, args: list[Argument]) -> Argument | None:
    exponent = args[1] if len(args) == 2 else None
    if not isinstance(exponent, float):
        return None
    if exponent == 1:
        return p("copy", args[0])
    if exponent == 2:
        return p("mul", args[0], args[0])
    return p("mul", args[0], p("mul", args[0], args[0])) if exponent == 3 else None


def _affine(p: ChainProgram, _: Signature, args: list[Argument]) -> Argument:
    return p("add", p("mul", args[0], args[1]), args[2])


def _dequantize(p: ChainProgram, signature: Signature, args: list[Argument]) -> Argument:
    x, scale, *zero = args
    return p("mul", p("sub", x, zero[0]) if zero else x, scale)


def _quantize(p: ChainProgram, signature: Signature, args: list[Argument]) -> Argument | None:
    x, scale, *zero = args
    made = signature.result().dtype
    return _rounded(p, p("div", x, scale), made, zero[0] if zero else 0.0)


def _requantize(p: ChainProgram, signature: Signature, args: list[Argument]) -> Argument | None:
    made = signature.outputs[0]
    x, scale, *zero = args
    point = zero[0] if zero else 0.0
    if not isinstance(point, float) or made is None:
        return None
    return _rounded(p, p("mul", x, scale), made.dtype, point)


def _rounded(p: ChainProgram, x: Argument, dtype: np.dtype, point: Argument = 0.0) -> Argument:
    """Append a number that is rounded, plus a zero point, within the limits of a type."""
    limits = np.iinfo(dtype)

    def less_point(number: float) -> Argument:
        return number - point if isinstance(point, float) else p("sub", number, point)

    bounded = p("min", less_point(float(limits.max)), p("max", less_point(float(limits.min)), x))
    return p("sub", p("add", bounded, _MIDDLE), less_point(_MIDDLE))


def _widen(p: ChainProgram, _: Signature, args: list[Argument]) -> Argument:
    return p("sub", args[0], args[1]) if len(args) == 2 else p("copy", args[0])


def _qlinear_add(p: ChainProgram, signature: Signature, args: list[Argument]) -> Argument | None:
    made = signature.outputs[0]
    numbers = [arg for at, arg in enumerate(args) if at not in (0, 3) and isinstance(arg, float)]
    if made is None or len(numbers) != 6:
        return None
    first, second, shift = sum_of_quantized([np.float32(each) for each in numbers])
    other = p("mul_add", args[3], second, shift)
    return _rounded(p, p("mul_add", args[0], first, other), made.dtype)


def sum_of_quantized(numbers: Sequence[np.float32]) -> tuple[float, float, float]:
    """
    Return two quantized operands' factors in the quantized sum, and the addend.

    Parameters
    ----------
    numbers : sequence of float32
        Scale and zero point for the operands and the result.
    """
    scale, zero = numbers[4:]
    first, second = numbers[0] / scale, numbers[2] / scale
    # ONNX Runtime's compiler contracts this sum: the first product is not rounded.
    shift = float(second * numbers[3])
    zeros = np.float32(float(first) * float(numbers[1]) + shift)
    return float(first), float(second), float(zero - zeros)


def _qlinear_mul(p: ChainProgram, signature: Signature, args: list[Argument]) -> Argument | None:
    made = signature.outputs[0]
    a, a_scale, a_zero, b, b_scale, b_zero, scale, zero = args
    if made is None or not all(isinstance(each, float) for each in (a_scale, b_scale, scale)):
        return None
    factor = float(np.float32(a_scale) * np.float32(b_scale) / np.float32(scale))
    product = p("mul", p("mul", p("sub", a, a_zero), p("sub", b, b_zero)), factor)
    return _rounded(p, p("add", product, zero), made.dtype)


RECIPES: Mapping[tuple[str, str], tuple[Recipe, int]] = {
    ("", "Abs"): (_one("abs"), 1),
    ("", "Add"): (_two("add"), 7),
    ("", "BatchNormalization"): (_affine, 7),
    ("", "Clip"): (_clip, 1),
    ("", "DequantizeLinear"): (_dequantize, 10),
    ("", "Div"): (_two("div"), 7),
    ("", "Elu"): (_elu, 1),
    ("", "Erf"): (_one("erf"), 1),
    ("", "Exp"): (_one("exp"), 1),
    ("", "Gelu"): (_gelu, 1),
    ("", "HardSigmoid"): (_hard_sigmoid, 1),
    ("", "HardSwish"): (_hard_swish, 1),
    ("", "LeakyRelu"): (_leaky_relu, 1),
    ("", "Max"): (_fold("max"), 8),
    ("", "Min"): (_fold("min"), 8),
    ("", "Mish"): (_mish, 18),
    ("", "Mul"): (_two("mul"), 7),
    ("", "Neg"): (_one("neg"), 1),
    ("", "PRelu"): (_prelu, 7),
    ("", "Pow"): (_power, 7),
    ("", "QuantizeLinear"): (_quantize, 10),
    ("", "Reciprocal"): (lambda p, _, args: p("div", 1.0, args[0]), 1),
    ("", "Relu"): (_relu, 1),
    ("", "Sigmoid"): (_one("sigmoid"), 1),
    ("", "Sub"): (_two("sub"), 7),
    ("", "Sum"): (_fold("add"), 8),
    ("", "Swish"): (_swish, 1),
    ("", "Tanh"): (_one("tanh"), 1),
    (INTERNAL, "Widen"): (_widen, 1),
    (MICROSOFT, "QLinearAdd"): (_qlinear_add, 1),
    (MICROSOFT, "QLinearMul"): (_qlinear_mul, 1),
    (QUANTIZATION, REQUANTIZE): (_requantize, 1),
}
"""For each domain and operator the recipe, and the first operator set version."""


class ChainOperand(NamedTuple):
    """An operand of an operator."""

    position: int
    """Among the node's inputs; -1 and -2 for a scale and a shift per channel."""
    number: float | None
    """The constant value, if the operand is constant."""


def operands_of(signature: Signature) -> list[ChainOperand] | None:
    """Return the operands of an operator that has a recipe, or ``None`` if no recipe holds."""
    domain = "" if signature.domain == "ai.onnx" else signature.domain
    _, since = RECIPES.get((domain, signature.op), (None, 0))
    made = signature.outputs[0] if len(signature.outputs) else None
    if not since or max(signature.version, 1) < since or not is_enabled() or made is None:
        return None
    tensors = [tensor for tensor in (*signature.inputs, *signature.outputs) if tensor is not None]
    of_bytes = _OF_BYTES.get(signature.op)
    if not (_are_single(tensors) if of_bytes is None else of_bytes(signature)):
        return None
    if prod(made.shape) == 0:
        return None
    if len(signature.outputs) > 1 and any(signature.outputs[1:]):
        return None
    if signature.op == "BatchNormalization":
        first = signature.input(0)
        spatial = signature.attributes.get("spatial", 1)
        if first != made or not spatial or not is_channel_affine(signature, 0):
            return None
        return [ChainOperand(0, None), ChainOperand(-1, None), ChainOperand(-2, None)]
    found = []
    for position, tensor in enumerate(signature.inputs):
        if tensor is None:
            continue
        data = None if prod(tensor.shape) != 1 else signature.constant_data(position)
        found.append(ChainOperand(position, None if data is None else float(data.reshape(()))))
    return found


def _are_single(tensors: Iterable[Tensor]) -> bool:
    return all(tensor.dtype == _SINGLE for tensor in tensors)


def _is_linear(signature: Signature) -> bool:
    """Whether a node converts between bytes and real numbers, with one scale for all elements."""
    x, scale, zero = (signature.input(position) for position in range(3))
    made = signature.outputs[0]
    if x is None or scale is None or made is None:
        return False
    if prod(scale.shape) != 1 and signature.op != REQUANTIZE:
        return False
    real, integers = (made, x) if signature.op == "DequantizeLinear" else (x, made)
    known = {tensor.dtype for tensor in (integers, zero) if tensor is not None}
    return _are_single([real, scale]) and len(known) == 1 and known <= _BYTES


def _is_widened(signature: Signature) -> bool:
    """Whether bytes become single-precision numbers."""
    *given, made = (*signature.inputs, signature.outputs[0])
    return made is not None and made.dtype == _SINGLE and _are_bytes(given)


def _has_scalars(signature: Signature) -> bool:
    """Whether operands and result are bytes, each with one scale and one zero point."""
    given = signature.inputs
    if len(given) != 8 or any(tensor is None for tensor in given):
        return False
    scalars = [tensor for at, tensor in enumerate(given) if at not in (0, 3)]
    bytes_ = [tensor for at, tensor in enumerate(given) if at not in _SCALES]
    of_scalar = all(tensor is not None and prod(tensor.shape) == 1 for tensor in scalars)
    singles = (tensor for at in _SCALES if (tensor := given[at]) is not None)
    return of_scalar and _are_bytes([*bytes_, signature.outputs[0]]) and _are_single(singles)


def _are_bytes(tensors: Iterable[Tensor | None]) -> bool:
    return all(tensor is None or tensor.dtype in _BYTES for tensor in tensors)


_SCALES = (1, 4, 6)
"""The positions of scales among the eight inputs of an operator with two operands."""
_OF_BYTES: Mapping[str, Callable[[Signature], bool]] = {
    "DequantizeLinear": _is_linear,
    "QuantizeLinear": _is_linear,
    REQUANTIZE: _is_linear,
    "Widen": _is_widened,
    "QLinearAdd": _has_scalars,
    "QLinearMul": _has_scalars,
}
"""Per operator that computes with bytes, whether a recipe holds for a node."""


class Chain:
    """
    A program for some operators, one after another, whose results all have one shape.

    Parameters
    ----------
    shape : tuple of int
        The shape of all results.
    """

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape
        self.program = ChainProgram()
        self.made: dict[object, Argument] = {}
        """For each value the number in the program."""
        self.loads: list[object] = []
        """The key of each program operand."""

    def append(self, key: object, signature: Signature, inputs: Sequence[object]) -> bool:
        """
        Append an operator that makes value ``key``; tell whether that is possible.

        Parameters
        ----------
        inputs : sequence
            The value key of each input.
        """
        operands = operands_of(signature)
        made = signature.outputs[0]
        if operands is None or made is None or made.shape != self.shape:
            return False
        arguments: list[Argument] = []
        for position, number in operands:
            value = inputs[position] if position >= 0 else (key, position)
            if number is not None:
                arguments.append(number)
            elif value in self.made:
                arguments.append(self.made[value])
            else:
                self.loads.append(value)
                arguments.append(self.program.load())
                self.made[value] = arguments[-1]
        if not arguments:
            return False
        recipe, _ = RECIPES[_key(signature)]
        result = recipe(self.program, signature, arguments)
        if result is None or len(self.loads) > _OPERANDS:
            return False
        self.made[key] = result
        return True

    def fits(self, key: object) -> bool:
        """Whether the compiled kernel can make value ``key``."""
        result = self.made.get(key)
        return (
            isinstance(result, int)
            and len(self.shape) <= _DIMENSIONS
            and self.program.steps(result) is not None
        )

    def bind(self, key: object, arrays: Mapping[object, np.ndarray], output: np.ndarray) -> Run:
        """Return a function that makes value ``key`` from arrays, which are broadcast."""
        result = self.made[key]
        assert isinstance(result, int)
        steps = self.program.steps(result)
        assert steps is not None, "the chain fits"
        output = output.reshape(
            output.shape or (1,)
        )  # The kernel takes no array without dimensions.
        operands = [np.broadcast_to(arrays[load], output.shape) for load in self.loads]
        return CompiledKernel.chain(steps[0], steps[1], operands, output)


def _key(signature: Signature) -> tuple[str, str]:
    return ("" if signature.domain == "ai.onnx" else signature.domain, signature.op)


def channel_operands(key: object, signature: Signature, rank: int) -> dict[object, np.ndarray]:
    """Return an operator's per-channel scale and shift as chain operands."""
    if signature.op != "BatchNormalization":
        return {}
    column = (-1, *(1 for _ in range(rank - 2)))
    vectors = channel_affine(signature, 0)
    return {
        (key, position): np.ascontiguousarray(vector, np.float32).reshape(column)
        for position, vector in zip((-1, -2), vectors, strict=True)
        if vector is not None
    }


def single(signature: Signature) -> Chain | None:
    """Return a chain with a single operator, if possible."""
    made = signature.outputs[0] if signature.outputs else None
    if made is None:
        return None
    chain = Chain(made.shape)
    inputs = [("input", position) for position in range(len(signature.inputs))]
    return chain if chain.append("result", signature, inputs) and chain.fits("result") else None
