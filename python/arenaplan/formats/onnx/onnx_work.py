"""Work of ONNX nodes, and which nodes may run again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Final, TypeAlias

from arenaplan.formats.onnx.op import OnnxOperand, Op
from arenaplan.formats.onnx.rules import rule_of
from arenaplan.formats.onnx.rules.contrib_rules import MICROSOFT
from arenaplan.formats.onnx.rules.training_rules import REPLACES
from arenaplan.graph import ops

if TYPE_CHECKING:
    from arenaplan.planner.bodies import Body

Count: TypeAlias = Callable[[Op, Sequence["OnnxOperand | None"]], int]

RANDOM: Final = frozenset(
    [
        *("Dropout", "Multinomial", "RandomNormal", "RandomNormalLike"),
        *("RandomUniform", "RandomUniformLike"),
    ]
)
"""Operators that draw random numbers."""


def cost_of(op: Op, outputs: Sequence[OnnxOperand | None]) -> int:
    """Return the work per run of a node without bodies, at least 1."""
    count = _OPERATIONS.get(op.type)
    operations = 0 if count is None else count(op, outputs)
    return max(ops.roofline(operations, dict.fromkeys((*op.inputs, *outputs))), 1)


def cost_of_bodies(
    bodies: Sequence[Body], rounds: int | None, moved: Sequence[OnnxOperand | None]
) -> int:
    """
    Return the work per run of a node that runs one of several bodies, at least 1.

    Parameters
    ----------
    rounds : int or None
        How often a loop runs the body; an unknown number counts as one.
    moved : sequence of OnnxOperand or None
        The node's operands and results.
    """
    most = max((body.cost for body in bodies), default=0)
    return max(ops.roofline(most * (1 if rounds is None else rounds), dict.fromkeys(moved)), 1)


def are_pure(bodies: Sequence[Body]) -> bool:
    """Whether all nodes in bodies that compute something may run again."""
    inside = (node for body in bodies for node in body.graph.nodes)
    return all(node.effects.pure or node.domain == "arenaplan" for node in inside)


def is_pure(op: Op) -> bool:
    """
    Whether equal operands always give equal results, without side effects.

    Standard operators are pure, except random operators. ONNX Runtime's operators are pure if there
    is a rule; optimizers overwrite operands. Other operators are unknown.
    """
    if op.type in RANDOM:
        return op.type == "Dropout" and not op.domain and not any(op.inputs[2:])
    if op.type in REPLACES:
        return False
    return not op.domain or (op.domain == MICROSOFT and rule_of(op) is not None)


# -- operations of products ------------------------------------------------------------------------


def _made(outputs: Sequence[OnnxOperand | None]) -> ops.Shape:
    """Return the first present output's shape."""
    return next((known.shape for known in outputs if known is not None), ())


def _gemm(op: Op, outputs: Sequence[OnnxOperand | None]) -> int:
    inner = op.input(0).shape[0 if op.attributes.get("transA") else 1]
    return ops.product_operations(_made(outputs), inner)


def _matmul(op: Op, outputs: Sequence[OnnxOperand | None]) -> int:
    shape = op.input(0).shape or (1,)
    is_turned = op.attributes.get("transA") and len(shape) > 1
    return ops.product_operations(_made(outputs), shape[-2 if is_turned else -1])


def _convolution(weights: int) -> Count:
    """Return the count for a convolution with weights at an input position."""

    def count(op: Op, outputs: Sequence[OnnxOperand | None]) -> int:
        return ops.convolution_operations(_made(outputs), op.input(weights).shape)

    return count


def _turned_convolution(op: Op, outputs: Sequence[OnnxOperand | None]) -> int:
    """Each operand element meets one filter."""
    return ops.convolution_operations(op.input(0).shape, op.input(1).shape)


def _weight_gradient(op: Op, outputs: Sequence[OnnxOperand | None]) -> int:
    """Each element of the result's gradient meets one filter."""
    return ops.convolution_operations(op.input(1).shape, _made(outputs))


def _convolution_gradients(op: Op, outputs: Sequence[OnnxOperand | None]) -> int:
    """Gradients of image and weights each take the convolution's operations."""
    passes = sum(known is not None for known in outputs[:2])
    return passes * ops.convolution_operations(op.input(0).shape, op.input(2).shape)


def _recurrent(op: Op, outputs: Sequence[OnnxOperand | None]) -> int:
    """Each row in each step meets the input and state weights, in each direction."""
    rows = prod(op.input(0).shape[:2])
    return 2 * rows * (prod(op.input(1).shape) + prod(op.input(2).shape))


def _attention(op: Op, outputs: Sequence[OnnxOperand | None]) -> int:
    """Scores over all keys, and sums over all values."""
    keys = op.input(1).shape
    past = op.optional(4)
    length = keys[-2] + (0 if past is None else past.shape[-2])
    return 2 * length * (prod(op.input(0).shape) + prod(_made(outputs)))


_OPERATIONS: Final[Mapping[str, Count]] = {
    **dict.fromkeys(("Conv", "ConvInteger"), _convolution(1)),
    **dict.fromkeys(("GRU", "LSTM", "RNN"), _recurrent),
    **dict.fromkeys(("Gemm", "QGemm"), _gemm),
    **dict.fromkeys(("FusedMatMul", "MatMul", "MatMulInteger", "QLinearMatMul"), _matmul),
    "Attention": lambda op, outputs: 0 if op.domain == MICROSOFT else _attention(op, outputs),
    "ConvGrad": _convolution_gradients,
    "ConvGradWeight": _weight_gradient,
    "ConvTranspose": _turned_convolution,
    "QLinearConv": _convolution(3),
}
"""Multiplications and additions by operator; other operators' take less time than their bytes."""
