"""The work of a node: the larger one of floating-point operations and 8 times the bytes moved."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Final

from arenaplan.importers.onnx.op import Op, Operand
from arenaplan.ops import array_bytes

_BYTE: Final = 8
"""Operations in the time in which a byte is moved: a roofline."""


def cost_of(op: Op, outputs: Sequence[Operand | None]) -> int:
    """Return the work of a node, in operations."""
    operands = [known for known in (*op.inputs, *outputs) if known is not None]
    moved = sum(array_bytes(known.shape, known.dtype) for known in operands)
    return max(_operations(op, outputs), _BYTE * moved, 1)


def _operations(op: Op, outputs: Sequence[Operand | None]) -> int:
    """Return the multiplications and additions of products; 0 for other operators."""
    made = next((known.shape for known in outputs if known is not None), ())
    if op.type == "Gemm":
        a = op.input(0).shape
        return 2 * prod(made) * a[0 if op.attributes.get("transA") else 1]
    if op.type == "MatMul":
        return 2 * prod(made) * (op.input(0).shape or (1,))[-1]
    if op.type == "Conv":
        return 2 * prod(made) * prod(op.input(1).shape[1:])
    if op.type == "ConvTranspose":
        return 2 * prod(op.input(0).shape) * prod(op.input(1).shape[1:])
    if op.type == "ConvGradWeight":
        return 2 * prod(made[1:]) * prod(op.input(1).shape)
    return 0
