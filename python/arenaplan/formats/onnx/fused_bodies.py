"""ONNX Runtime operators that fuse a few standard operators, as functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from onnx import FunctionProto, TensorProto

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


FUSED_BODIES: Final[Mapping[str, Write]] = {
    **dict.fromkeys(("DynamicQuantizeMatMul", "MatMulIntegerToFloat"), _product),
    "FusedConv": _convolution,
    "QGemm": _gemm,
}
"""How to write an ONNX Runtime operator's function, by name."""
