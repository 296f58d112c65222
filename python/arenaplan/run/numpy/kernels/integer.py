"""
Products and convolutions of small integers, exactly.

A kernel here is a group of kernels (:mod:`arenaplan.run.numpy.groups`), run tile by tile. Integers
minus the zero point become real numbers, BLAS multiplies these, and the sums become integers again.
So neither operands nor sums exist as a whole in a wide type.

The sums are exact. A product of 9-bit integers has 17 bits. As long as the absolute values of all
products in a sum add up to at most 2**24, every partial sum, in any order, is an integer that
single precision represents. Otherwise double precision is used, up to 2**53.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from arenaplan.base.errors import UnsupportedOp
from arenaplan.graph import Choice
from arenaplan.graph.ops.own_ops import QUANTIZATION, REQUANTIZE
from arenaplan.run.numpy.cuts import UNARY
from arenaplan.run.numpy.groups import Group, Member
from arenaplan.run.numpy.kernels.pieces import (
    Blocks,
    blockwise,
    operand,
    result,
)
from arenaplan.run.numpy.kernels.qlinear import number, round_to
from arenaplan.run.numpy.kernels.quantized_conv import (
    Encoding,
    QuantizedConv,
    Weights,
    quantized_conv_of,
    small_addend,
)
from arenaplan.run.numpy.registry import (
    INTERNAL,
    MICROSOFT,
    Run,
    Signature,
    Step,
    Tensor,
    compiled_kernel,
    find_kernel,
    kernel,
)
from arenaplan.run.numpy.streaming import group_choices, group_run

_SINGLE_EXACT = 1 << 24
"""Integers up to this number are exact in single precision."""
_LARGEST = 255
"""Largest absolute value of an 8-bit integer less the zero point."""
_REAL = Blocks("float32", is_wide=True)


# -- parts ------------------------------------------------------------------------------------


@kernel("Widen", domain=INTERNAL, cut=UNARY)
def _widen(step: Step) -> Run | None:
    """Write integers minus the zero point as real numbers."""
    x, zero, output = operand(step, 0), step.input(1), result(step)

    def widen(x: np.ndarray, output: np.ndarray) -> None:
        if zero is None:
            np.copyto(output, x, casting="unsafe")
        else:
            np.subtract(x, zero.reshape(()), out=output, dtype=output.dtype)

    return blockwise(widen, [x], output)


@kernel("Narrow", domain=INTERNAL, cut=UNARY)
def _narrow(step: Step) -> Run | None:
    """Write sums, which are integers, as integers."""

    def narrow(x: np.ndarray, output: np.ndarray) -> None:
        np.copyto(output, x, casting="unsafe")

    return blockwise(narrow, [operand(step, 0)], result(step))


@kernel("QuantizeSum", domain=INTERNAL, workspace=_REAL.declare, cut=UNARY)
def _quantize_sum(step: Step) -> Run | None:
    """Write real numbers divided by a scale, plus a zero point, rounded only then."""

    def quantize(x: np.ndarray, output: np.ndarray, real: np.ndarray) -> None:
        np.divide(x, number(step, 1), out=real)
        np.add(real, number(step, 2), out=real)
        round_to(real, output)

    return blockwise(quantize, [operand(step, 0)], result(step), _REAL.arrays(step))


# -- groups of parts --------------------------------------------------------------------------


@dataclass
class _Parts:
    """The group that a node is computed as. Values are numbered, inputs first."""

    signature: Signature
    members: list[Member] = field(default_factory=list)
    arrays: dict[int, np.ndarray] = field(default_factory=dict)
    """Constants that were derived from the node's constants."""
    tensors: dict[int, Tensor] = field(default_factory=dict)

    def constant(self, array: np.ndarray) -> int:
        """Return a new value that holds an array."""
        value = len(self.signature.inputs) + len(self.arrays) + len(self.members)
        self.arrays[value] = array
        self.tensors[value] = Tensor(array.shape, array.dtype)
        return value

    def add(
        self,
        op: str,
        inputs: Sequence[int | None],
        made: Tensor,
        attributes: Mapping[str, Any],
        follows: Sequence[int] = (),
        domain: str = INTERNAL,
    ) -> int:
        """Append a member, and return the value that the member makes."""
        value = len(self.signature.inputs) + len(self.arrays) + len(self.members)
        loads: list[Callable[[], np.ndarray] | None] = [self._load(at) for at in inputs]
        signature = Signature(
            name=self.signature.name,
            op=op,
            domain=domain,
            version=13,
            attributes=attributes,
            inputs=tuple(None if at is None else self._tensor(at) for at in inputs),
            outputs=(made,),
            constant=tuple(loads),
        )
        pieces = 1
        self.members.append(
            Member(
                tuple(inputs),
                signature,
                find_kernel(signature),
                value,
                0,
                frozenset(follows),
                frozenset(),
                is_view=False,
                pieces=pieces,
            )
        )
        self.tensors[value] = made
        return value

    def _tensor(self, value: int) -> Tensor | None:
        given = self.signature.inputs
        return given[value] if value < len(given) else self.tensors[value]

    def _load(self, value: int | None) -> Callable[[], np.ndarray] | None:
        if value is None:
            return None
        if value < len(self.signature.inputs):
            return self.signature.constant[value]
        array = self.arrays.get(value)
        return None if array is None else lambda: array

    def group(self) -> Group:
        """Return the members as a group."""
        made = {member.value for member in self.members}
        loaded: set[int] = set()
        for member in reversed(self.members):
            for position, value in member.reads():
                in_step = member.value not in loaded and position in member.follows
                if value in made and not in_step:
                    loaded.add(value)
        return Group(tuple(self.members), frozenset(loaded), frozenset())


def _composed(
    *ops_: str, domain: str = ""
) -> Callable[[Callable[[Signature], _Parts]], Callable[[Signature], _Parts]]:
    """Register a function that returns a node's parts as the kernel for some operators."""

    def declare(
        parts_of: Callable[[Signature], _Parts], signature: Signature
    ) -> Sequence[Sequence[Choice]]:
        choices = group_choices(parts_of(signature).group())
        return [choices] if choices else []

    def prepare(parts_of: Callable[[Signature], _Parts], step: Step) -> Run | None:
        output = result(step)
        if output.size == 0:
            return None
        parts = parts_of(step.signature)
        group = parts.group()
        arrays = {at: array for at, array in enumerate(step.inputs) if array is not None}
        arrays |= parts.arrays
        arrays[group.sink.value] = output
        scratch = step.workspaces[0] if step.workspaces else np.empty(0, np.uint8)
        return group_run(group, arrays, scratch)

    def register(parts_of: Callable[[Signature], _Parts]) -> Callable[[Signature], _Parts]:
        kernel(*ops_, domain=domain, workspace=lambda signature: declare(parts_of, signature))(
            lambda step: prepare(parts_of, step)
        )
        return parts_of

    return register


# -- operators --------------------------------------------------------------------------------


def _refused(signature: Signature, reason: str) -> UnsupportedOp:
    return UnsupportedOp(f"node {signature.name!r} ({signature.op}): {reason}")


def _known(signature: Signature, position: int) -> np.ndarray | None:
    """Return the data for an optional input that must be constant."""
    if signature.input(position) is None:
        return None
    data = signature.constant_data(position)
    if data is None:
        raise _refused(signature, f"no kernel runs it with an input {position} that is no constant")
    return data


def _required(signature: Signature, position: int) -> np.ndarray:
    """Return the data for an input that must be constant."""
    data = _known(signature, position)
    if data is None:
        raise _refused(signature, f"input {position} is missing")
    return data


def _scale_of(signature: Signature, scales: Sequence[int], by: int) -> np.ndarray:
    """Return the factor for the sums: two scales' product, divided by the result's scale."""
    first, second, made = (_required(signature, at) for at in (*scales, by))
    return np.asarray(first * second.reshape(-1) / made, np.float32)


def _requantized(
    parts: _Parts, sums: int, scale: np.ndarray, zero: int, made: Tensor, channel: int
) -> None:
    """Append the part that turns sums into the result, whose zero point is an input."""
    if scale.size > 1:
        scale = scale.reshape(-1, *(1 for _ in made.shape[channel + 1 :]))
    else:
        scale = scale.reshape(())
    point = None if parts.signature.input(zero) is None else zero
    inputs = (sums, parts.constant(scale), point)
    parts.add(REQUANTIZE, inputs, made, {}, (0,), domain=QUANTIZATION)


def _exact_type(weights: np.ndarray, axis: tuple[int, ...], bias: np.ndarray | None) -> np.dtype:
    """Return the type in which product sums with some weights are exact."""
    largest = int(np.abs(weights).sum(axis, dtype=np.float64).max(initial=0.0)) * _LARGEST
    if bias is not None:
        largest += int(np.abs(bias.astype(np.float64)).max(initial=0.0))
    return np.dtype(np.float32 if largest <= _SINGLE_EXACT else np.float64)


def _less_zero(signature: Signature, weights: int, zero: int, axis: int) -> np.ndarray:
    """Return constant weights minus the zero point, as real numbers."""
    data, zero_point = _required(signature, weights), _known(signature, zero)
    wide = data.astype(np.float32)
    if zero_point is None:
        return wide
    shape = [1] * wide.ndim
    if zero_point.size > 1:
        shape[axis] = -1
    return wide - zero_point.astype(np.float32).reshape(shape)


def _convolved(signature: Signature, at: Sequence[int | None]) -> tuple[_Parts, int, Tensor]:
    """Return a convolution's parts; positions: image, zero point, weights, zero point, bias."""
    image, zero, weights, weights_zero, bias = at
    assert image is not None
    assert weights is not None
    matrix = _less_zero(signature, weights, weights_zero or len(signature.inputs), 0)
    addend = None if bias is None else _known(signature, bias)
    dtype = _exact_type(matrix, tuple(range(1, matrix.ndim)), addend)
    parts = _Parts(signature)
    x, made = signature.operand(image), signature.result()
    has_zero = zero is not None and signature.input(zero) is not None
    wide = parts.add("Widen", (image, zero if has_zero else None), Tensor(x.shape, dtype), {}, (0,))
    operands = [wide, parts.constant(matrix.astype(dtype))]
    if addend is not None:
        operands.append(parts.constant(addend.astype(dtype)))
    sums = Tensor(made.shape, dtype)
    value = parts.add("Conv", operands, sums, signature.attributes, domain="")
    return parts, value, made


@_composed("ConvInteger")
def conv_integer(signature: Signature) -> _Parts:
    """Return the parts; inputs are the image, the weights, and a zero point for each."""
    parts, sums, made = _convolved(signature, (0, 2, 1, 3, None))
    parts.add("Narrow", (sums,), made, {}, (0,))
    return parts


@_composed("QLinearConv")
def qlinear_conv(signature: Signature) -> _Parts:
    """Inputs are image, weights and result with scale and zero point each, and a bias."""
    bias = 8 if signature.input(8) is not None else None
    parts, sums, made = _convolved(signature, (0, 2, 3, 5, bias))
    _requantized(parts, sums, _scale_of(signature, (1, 4), 6), 7, made, 1)
    return parts


def _bytes_conv(signature: Signature) -> QuantizedConv | None:
    """Return a QLinearConv node as a byte convolution, if the compiled kernel runs the node."""
    x, made = signature.inputs[0], signature.outputs[0]
    weights, scales = signature.constant[3], [signature.constant_data(at) for at in (1, 4, 6)]
    zeros = [signature.constant_data(at) for at in (2, 7)]
    addend = signature.constant_data(8)
    known = [scale is not None and (at == 1 or scale.size == 1) for at, scale in enumerate(scales)]
    is_constant = weights is not None and all(known) and small_addend(addend)
    has_points = all(
        signature.input(at) is None or (zero is not None and zero.size == 1)
        for at, zero in zip((2, 7), zeros, strict=True)
    )
    if x is None or made is None or not is_constant or not has_points:
        return None
    if (signature.input(5) is not None and signature.constant[5] is None) or (
        signature.input(8) is not None and addend is None
    ):
        return None

    def load() -> Weights:
        matrix = _less_zero(signature, 3, 5, 0).astype(np.int16)
        return Weights(matrix, _scale_of(signature, (1, 4), 6), np.zeros(1, np.float32), addend)

    points = [0 if zero is None else int(zero.reshape(())) for zero in zeros]
    node = replace(
        signature,
        op="Conv",
        inputs=(x, signature.inputs[3]),
        constant=(None, weights),
    )
    encodings = (Encoding(x.dtype, points[0]), Encoding(made.dtype, points[1]))
    return quantized_conv_of(node, encodings, load)


def _bytes_choices(signature: Signature) -> Sequence[Sequence[Choice]]:
    conv = _bytes_conv(signature)
    assert conv is not None, "the kernel was chosen for it"
    return [conv.choices()]


@compiled_kernel(
    "QLinearConv",
    when=lambda signature: _bytes_conv(signature) is not None,
    workspace=_bytes_choices,
)
def _qlinear_conv_of_bytes(step: Step) -> Run | None:
    conv = _bytes_conv(step.signature)
    assert conv is not None, "the kernel was chosen for it"
    return conv.bind(operand(step, 0), result(step), step.scratch())


def _multiplied(
    signature: Signature, at: Sequence[int | None], *, transposed: bool = False
) -> tuple[_Parts, int, Tensor]:
    """Return a product's parts; positions: left, zero point, right, zero point, addend."""
    left, zero, right, right_zero, bias = at
    assert left is not None
    assert right is not None
    parts = _Parts(signature)
    a, b, made = signature.operand(left), signature.operand(right), signature.result()
    addend = None if bias is None else _known(signature, bias)

    def given(position: int | None) -> int | None:
        return None if position is None or signature.input(position) is None else position

    if signature.constant[right] is None:
        if len(b.shape) < 2 or transposed or addend is not None:
            raise _refused(
                signature, f"no kernel runs it with an input {right} that is no constant"
            )
        zeros = None if right_zero is None else signature.input(right_zero)
        if zeros is not None and zeros.shape not in ((), (1,)):
            raise _refused(signature, "no kernel runs it with a zero point for each column")
        exact = b.shape[-2] * _LARGEST**2 <= _SINGLE_EXACT
        dtype = np.dtype(np.float32 if exact else np.float64)
        wide_right = parts.add(
            "Widen", (right, given(right_zero)), Tensor(b.shape, dtype), {}, (0,)
        )
    else:
        axis = 0 if transposed else len(b.shape) - 1
        matrix = _less_zero(signature, right, right_zero or len(signature.inputs), axis)
        matrix = np.ascontiguousarray(matrix.T) if transposed else matrix
        dtype = _exact_type(matrix, (max(matrix.ndim - 2, 0),), addend)
        wide_right = parts.constant(matrix.astype(dtype))
    wide = parts.add("Widen", (left, given(zero)), Tensor(a.shape, dtype), {}, (0,))
    sums = Tensor(made.shape, dtype)
    value = parts.add("MatMul", (wide, wide_right), sums, {}, (0,), domain="")
    if addend is not None:
        addends = parts.constant(addend.astype(dtype))
        value = parts.add("Add", (value, addends), sums, {}, (0,), domain="")
    return parts, value, made


@_composed("MatMulInteger")
def matmul_integer(signature: Signature) -> _Parts:
    """Return the parts; inputs are two matrix stacks, and a zero point for each."""
    parts, sums, made = _multiplied(signature, (0, 2, 1, 3, None))
    parts.add("Narrow", (sums,), made, {}, (0,))
    return parts


@_composed("QLinearMatMul")
def qlinear_matmul(signature: Signature) -> _Parts:
    """Return the parts; both input stacks and the result have a scale and a zero point each."""
    parts, sums, made = _multiplied(signature, (0, 2, 3, 5, None))
    _requantized(parts, sums, _scale_of(signature, (1, 4), 6), 7, made, len(made.shape) - 1)
    return parts


@_composed("QGemm", domain=MICROSOFT)
def qgemm(signature: Signature) -> _Parts:
    """Return the parts; inputs are two matrices, an addend, and all scales and zero points."""
    if signature.attributes.get("transA", 0):
        raise _refused(signature, "no kernel runs it with a left operand that is transposed")
    bias = 6 if signature.input(6) is not None else None
    transposed = bool(signature.attributes.get("transB", 0))
    parts, sums, made = _multiplied(signature, (0, 2, 3, 5, bias), transposed=transposed)
    first = np.float32(signature.attributes.get("alpha", 1.0)) * _required(signature, 1)
    factor = np.asarray(first * _required(signature, 4).reshape(-1), np.float32)
    _requantized(parts, sums, factor / _required(signature, 7), 8, made, 1)
    return parts


@_composed("QLinearAveragePool", domain=MICROSOFT)
def qlinear_average_pool(signature: Signature) -> _Parts:
    """
    Means of real numbers; inputs are the image and the result's scale and zero point.

    ONNX Runtime adds a window's elements one after another and rounds after adding the zero point.
    So a mean between two integers becomes the integer that is even with the zero point.
    """
    if signature.attributes.get("channels_last", 0):
        raise _refused(signature, "no kernel runs images with channels last")
    parts = _Parts(signature)
    x, made = signature.operand(0), signature.result()
    single = np.dtype(np.float32)
    real = Tensor(x.shape, single)
    value = parts.add("DequantizeLinear", (0, 1, 2), real, {}, (0,), domain="")
    means = Tensor(made.shape, single)
    value = parts.add("AveragePool", (value,), means, signature.attributes)
    parts.add("QuantizeSum", (value, 3, 4), made, {}, (0,))
    return parts
