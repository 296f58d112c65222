"""
Shapes of operators that ONNX Runtime adds to the standard ones.

Its quantizer and its optimizer write them. The package ``onnx`` has no schema of them; the shapes
follow the definitions in ONNX Runtime (``ContribOperators.md``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from arenaplan.base.errors import InvalidOperand, ShapeMismatch
from arenaplan.formats.onnx.node_facts import Result
from arenaplan.formats.onnx.op import Op
from arenaplan.formats.onnx.rules import elementwise_rules, window_rules
from arenaplan.formats.onnx.rules.elementwise_rules import broadcast
from arenaplan.formats.onnx.rules.reduce_rules import product_shape

Rule: TypeAlias = Callable[[Op], Sequence[Result]]

MICROSOFT = "com.microsoft"


def _of_two(op: Op) -> Sequence[Result]:
    """Operands 0 and 3 are broadcast."""
    a, b = op.input(0), op.input(3)
    if a.dtype != b.dtype:
        raise op.error(InvalidOperand, f"its inputs are of the types {a.dtype} and {b.dtype}")
    return ((broadcast(op, a.shape, b.shape), a.dtype),)


def _concat(op: Op) -> Sequence[Result]:
    """Every third operand from the third on, one behind the other."""
    first = op.input(2)
    axis = op.axis(op.integer("axis"), len(first.shape))
    total = 0
    for position in range(2, len(op.inputs), 3):
        shape = op.input(position).shape
        if shape[:axis] + shape[axis + 1 :] != first.shape[:axis] + first.shape[axis + 1 :]:
            raise op.error(ShapeMismatch, f"shapes {first.shape} and {shape} along axis {axis}")
        total += shape[axis]
    return (((*first.shape[:axis], total, *first.shape[axis + 1 :]), first.dtype),)


def _global_pool(op: Op) -> Sequence[Result]:
    """One element per channel, which is the last dimension if the images are ``(N, …, C)``."""
    if not op.flag("channels_last"):
        return window_rules.global_pool(op)
    x = op.input(0)
    return (((x.shape[0], *(1 for _ in x.shape[2:]), x.shape[-1]), x.dtype),)


def _gemm(op: Op) -> Sequence[Result]:
    """Operands 0 and 3 are matrices; without a scale of the result it is real."""
    a, b = op.input(0), op.input(3)
    if len(a.shape) != 2 or len(b.shape) != 2:
        raise op.error(ShapeMismatch, f"shapes {a.shape} and {b.shape} are no matrices")
    rows, inner = a.shape[::-1] if op.flag("transA") else a.shape
    other, columns = b.shape[::-1] if op.flag("transB") else b.shape
    if inner != other:
        raise op.error(ShapeMismatch, f"shapes {a.shape} and {b.shape} have no product")
    return (((rows, columns), a.dtype if op.optional(7) is not None else "float32"),)


def _fused_matmul(op: Op) -> Sequence[Result]:
    """Stacks of matrices whose last two dimensions may change places."""
    a, b = (
        (*x.shape[:-2], x.shape[-1], x.shape[-2])
        if op.integer(name, 0) and len(x.shape) > 1
        else x.shape
        for x, name in ((op.input(0), "transA"), (op.input(1), "transB"))
    )
    if op.integer("transBatchA", 0) or op.integer("transBatchB", 0):
        raise op.error(InvalidOperand, "dimensions of stacks change places")
    return ((product_shape(op, a, b), op.input(0).dtype),)


def _real_product(op: Op) -> Sequence[Result]:
    """Stacks of matrices, of which at least one holds integers; the result is real."""
    return ((product_shape(op, op.input(0).shape, op.input(1).shape), "float32"),)


def _skip_norm(op: Op) -> Sequence[Result]:
    """The normalized sum; mean and deviation, which inference leaves out; the sum."""
    x = op.input(0)
    statistics = ((*x.shape[:-1], 1), "float32")
    return ((x.shape, x.dtype), statistics, statistics, (x.shape, x.dtype))


CONTRIB_RULES: Mapping[str, Rule] = {
    **dict.fromkeys(("QLinearAdd", "QLinearMul"), _of_two),
    **dict.fromkeys(
        ("QLinearSigmoid", "QLinearLeakyRelu", "QLinearSoftmax"), elementwise_rules.same
    ),
    **dict.fromkeys(("BiasGelu", "FastGelu", "Gelu", "QuickGelu"), elementwise_rules.same),
    "DynamicQuantizeMatMul": _real_product,
    "FusedConv": window_rules.conv,
    "FusedMatMul": _fused_matmul,
    "MatMulIntegerToFloat": _real_product,
    "QGemm": _gemm,
    "QLinearAveragePool": window_rules.pool,
    "QLinearConcat": _concat,
    "QLinearGlobalAveragePool": _global_pool,
    "SkipLayerNormalization": _skip_norm,
}
"""Rules by operator of the domain of ONNX Runtime."""
