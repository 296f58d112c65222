"""
Shape rules for ONNX Runtime's additional operators.

ONNX Runtime's quantizer and optimizer write these operators. The package ``onnx`` has no schema;
the shapes follow ONNX Runtime's definitions (``ContribOperators.md``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import TypeAlias

from arenaplan.base.errors import InvalidAttribute, InvalidOperand, ShapeMismatch, UnsupportedOp
from arenaplan.formats.onnx.node_facts import Result
from arenaplan.formats.onnx.op import Op
from arenaplan.formats.onnx.rules import elementwise_rules, window_rules
from arenaplan.formats.onnx.rules.elementwise_rules import broadcast
from arenaplan.formats.onnx.rules.reduce_rules import matrix_product, product_shape

Rule: TypeAlias = Callable[[Op], Sequence[Result]]

MICROSOFT = "com.microsoft"


def _of_two(op: Op) -> Sequence[Result]:
    """Operands 0 and 3 are broadcast."""
    a, b = op.pair(0, 3)
    return ((broadcast(op, a.shape, b.shape), a.dtype),)


def _global_pool(op: Op) -> Sequence[Result]:
    """An element per channel, the last dimension if the images are ``(N, …, C)``."""
    if not op.flag("channels_last"):
        return window_rules.global_pool(op)
    x = op.input(0)
    return (((x.shape[0], *(1 for _ in x.shape[2:]), x.shape[-1]), x.dtype),)


def _gemm(op: Op) -> Sequence[Result]:
    """Operands 0 and 3 are matrices; without a result scale, the result is float."""
    a, b = op.input(0), op.input(3)
    return ((matrix_product(op, a, b), a.dtype if op.optional(7) is not None else "float32"),)


def _fused_matmul(op: Op) -> Sequence[Result]:
    """Stacks of matrices whose last two dimensions may be swapped."""
    a, b = (
        (*x.shape[:-2], x.shape[-1], x.shape[-2])
        if op.integer(name, 0) and len(x.shape) > 1
        else x.shape
        for x, name in ((op.input(0), "transA"), (op.input(1), "transB"))
    )
    if op.integer("transBatchA", 0) or op.integer("transBatchB", 0):
        raise op.error(InvalidOperand, "dimensions of stacks change places")
    return ((product_shape(op, a, b), op.input(0).dtype),)


def _blocks(op: Op, bits: Sequence[int]) -> int:
    """Return the length of blocks with a shared scale, after checking the attributes."""
    length = op.integer("block_size", 128)
    if op.integer("bits", 4) not in bits or length < 16 or length & (length - 1):
        raise op.error(
            InvalidAttribute, f"blocks of {length} elements of {op.integer('bits', 4)} bits"
        )
    return length


def _packed_product(op: Op) -> Sequence[Result]:
    """The right operand has a row of blocks per result column."""
    a, b, scales = op.input(0), op.input(1), op.input(2)
    inner, columns, length = op.integer("K"), op.integer("N"), _blocks(op, (2, 4, 8))
    blocks = -(-inner // length)
    bits = op.integer("bits", 4)
    if not a.shape or a.shape[-1] != inner or inner < 1 or columns < 1:
        raise op.error(ShapeMismatch, f"shape {a.shape} for K={inner} and N={columns}")
    if prod(b.shape) != columns * blocks * length * bits // 8 or prod(scales.shape) != (
        columns * blocks
    ):
        raise op.error(
            ShapeMismatch,
            f"weights {b.shape} and scales {scales.shape} for {columns} rows of {blocks} blocks",
        )
    return (((*a.shape[:-1], columns), a.dtype),)


def _experts(op: Op) -> Sequence[Result]:
    """Rows with unchanged shape; each expert has two or three layers."""
    is_packed = op.type == "QMoE"
    x, router = op.input(0), op.input(1)
    places = (2, 5, 8) if is_packed else (2, 4, 6)
    first, second, third = (op.optional(at) for at in places)
    unlike = {"use_sparse_mixer": 0, "swiglu_limit_after_activation": 0, "quant_type": "int"}
    if any(op.attributes.get(name, usual) != usual for name, usual in unlike.items()) or (
        op.attributes.get("weights_prepacked", -1) == 1
    ):
        raise op.error(UnsupportedOp, f"only {unlike} and plain weights are supported")
    if first is None or second is None:
        raise op.error(InvalidOperand, "a layer of the experts is missing")
    hidden = x.shape[-1] if x.shape else 0
    is_halved = op.text("activation_type", "relu") == "swiglu" and third is None
    bits = [
        op.integer(f"fc{layer}_expert_weight_bits", op.integer("expert_weight_bits", 4))
        if is_packed
        else 8
        for layer in (1, 2, 3)
    ]
    if not set(bits) <= {2, 4, 8}:
        raise op.error(InvalidAttribute, f"weights of {bits} bits; 2, 4 and 8 are known")
    experts, rows = router.shape[-1] if router.shape else 0, first.shape[1:2]
    inner = prod(rows) // 2 if is_halved else prod(rows)
    wanted = [(experts, *rows, hidden * bits[0] // 8), (experts, hidden, inner * bits[1] // 8)]
    if third is not None:
        wanted.append((experts, inner, hidden * bits[2] // 8))
    found = [each.shape for each in (first, second, third) if each is not None]
    if found != wanted or prod(router.shape[:-1]) != prod(x.shape[:-1]):
        raise op.error(
            ShapeMismatch,
            f"rows {x.shape}, a router {router.shape} and layers {found}, not {wanted}",
        )
    return ((x.shape, x.dtype),)


CONTRIB_RULES: Mapping[str, Rule] = {
    **dict.fromkeys(("QLinearAdd", "QLinearMul"), _of_two),
    "FusedMatMul": _fused_matmul,
    "MatMulNBits": _packed_product,
    "MoE": _experts,
    "QGemm": _gemm,
    "QLinearAveragePool": window_rules.pool,
    "QLinearGlobalAveragePool": _global_pool,
    "QLinearSoftmax": elementwise_rules.same,
    "QMoE": _experts,
}
"""Rules by operator in ONNX Runtime's domain."""
