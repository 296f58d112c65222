"""ONNX Runtime operators that fuse a few standard operators, as functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, Final

import numpy as np
from onnx import FunctionProto, TensorProto

from arenaplan.formats.onnx.op import Op
from arenaplan.formats.onnx.operator_body import BodyBuilder, Write

_PARAMETERS: Final[Mapping[str, Sequence[str]]] = {
    "Clip": ("min", "max"),
    "HardSigmoid": ("alpha", "beta"),
    "LeakyRelu": ("alpha",),
    "Relu": (),
    "Sigmoid": (),
    "Tanh": (),
}
"""Activations of fused convolutions, with the names of their parameters."""


def _convolution(body: BodyBuilder) -> FunctionProto:
    """A convolution, an optional addend, and an optional activation."""
    known = body.op.attributes
    given = {name: each for name, each in known.items() if not name.startswith("activation")}
    operands = [body.name(at) for at in range(3) if body.name(at)]
    y = body("Conv", *operands, **given)
    if body.name(3):
        y = body("Add", y, body.name(3))
    kind = body.op.text("activation", "")
    if kind not in ("", *_PARAMETERS):
        raise body.refused(f"activation {kind!r}")
    numbers: Any = known.get("activation_params", ())
    if kind == "Clip":
        bounds = [body.constant(bound, body.op.input(0).dtype) for bound in numbers]
        y = body(kind, y, *bounds)
    elif kind:
        y = body(kind, y, **dict(zip(_PARAMETERS[kind], numbers, strict=False)))
    return body.function(y)


def _product(body: BodyBuilder) -> FunctionProto:
    """Real multiples of an integer product, plus an addend; the left operand may be quantized."""
    a, scale, zero, b_scale, b_zero, addend = (body.name(at) for at in (0, 2, 4, 3, 5, 6))
    if body.op.type == "DynamicQuantizeMatMul":
        b_scale, b_zero, addend = (body.name(at) for at in (2, 3, 4))
        a, scale, zero = body.several("DynamicQuantizeLinear", [a], 3)
    sums = body("MatMulInteger", a, body.name(1), zero, b_zero)
    real = body("Cast", sums, to=TensorProto.FLOAT)
    y = body("Mul", real, body("Mul", scale, b_scale))
    return body.function(body("Add", y, addend) if addend else y)


def _gemm(body: BodyBuilder) -> FunctionProto | None:
    """Real multiples of an integer product of two matrices, plus an addend; no integer results."""
    if body.name(7):
        return None
    sides = [body.name(0), body.name(3)]
    for side, name in enumerate(("transA", "transB")):
        body.dims(3 * side, 2)
        if body.op.integer(name, 0):
            sides[side] = body("Transpose", sides[side])
    sums = body("MatMulInteger", *sides, body.name(2), body.name(5))
    if body.name(6):
        sums = body("Add", sums, body.name(6))
    factor = body("Mul", body.name(1), body.name(4))
    factor = body("Mul", factor, body.constant(body.number("alpha", 1.0), "float32"))
    return body.function(body("Mul", body("Cast", sums, to=TensorProto.FLOAT), factor))


def _scaled(body: BodyBuilder, kind: str, x: str, position: int) -> str:
    """Return integers as real numbers, or back; two inputs are the scale and the zero point."""
    given = [body.op.optional(at) for at in (position, position + 1)]
    names = [body.name(at) for at in (position, position + 1)]
    for at, known in enumerate(given):
        if known is not None and known.shape:
            if prod(known.shape) != 1:
                raise body.refused(f"input {position + at} with {prod(known.shape)} numbers")
            names[at] = body.reshape(names[at])
    first = body.op.input(2 if body.op.type == "QLinearConcat" else 0)
    return body(kind, x, names[0], names[1] or body.constant(0, first.dtype))


def _of_real(kind: str, *attributes: str) -> Write:
    """Return a function of real numbers, for an operand and a result that are integers."""

    def write(body: BodyBuilder) -> FunctionProto:
        given = {name: each for name, each in body.op.attributes.items() if name in attributes}
        real = body(kind, _scaled(body, "DequantizeLinear", body.name(0), 1), **given)
        return body.function(_scaled(body, "QuantizeLinear", real, 3))

    return write


def _joined(body: BodyBuilder) -> FunctionProto:
    """Operands one behind the other, each with the scale and the zero point of the result."""
    parts, op = [], body.op
    for position in range(2, len(op.inputs), 3):
        part = body.name(position)
        if not all(_is_alike(op, at, position + 1 + at) for at in range(2)):
            real = _scaled(body, "DequantizeLinear", part, position + 1)
            part = _scaled(body, "QuantizeLinear", real, 0)
        parts.append(part)
    return body.function(body("Concat", *parts, axis=op.integer("axis", 1)))


def _is_alike(op: Op, first: int, second: int) -> bool:
    """Whether two inputs are the same constant."""
    one, other = op.optional(first), op.optional(second)
    if one is None or other is None or one.source is None or other.source is None:
        return False
    return bool(np.array_equal(op.array(first).ravel(), op.array(second).ravel()))


FUSED_BODIES: Final[Mapping[str, Write]] = {
    **dict.fromkeys(("DynamicQuantizeMatMul", "MatMulIntegerToFloat"), _product),
    "FusedConv": _convolution,
    "QGemm": _gemm,
    "QLinearConcat": _joined,
    "QLinearLeakyRelu": _of_real("LeakyRelu", "alpha"),
    "QLinearSigmoid": _of_real("Sigmoid"),
}
"""How to write an ONNX Runtime operator's function, by name."""
