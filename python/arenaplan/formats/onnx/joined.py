"""
Nested concatenations.

A dense block joins its first two values, then the first three, and so on. Every value is then an
operand of many concatenations, but can be a piece of only one. However, a concatenation that begins
with all operands of an earlier concatenation begins with the earlier result: written so, each
result is a piece of the next, and all results share bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TypeAlias

from arenaplan.formats.onnx.node_facts import Result
from arenaplan.formats.onnx.op import OnnxOperand, Op

Joined: TypeAlias = dict[tuple[int, int], tuple[list[int], OnnxOperand]]
"""By first operand and axis: the latest concatenation's operands and result."""


def nested(op: Op, results: Sequence[Result], joined: Joined) -> list[OnnxOperand | None]:
    """Return a concatenation's operands, with an earlier concatenation as a single operand."""
    shape, _ = results[0]
    axis = _axis(op, len(shape))
    own = _indices(op.inputs)
    # If operand rows alternate, the earlier result would be copied, not shown.
    if own is None or prod(shape[:axis]) != 1:
        return op.inputs
    known = joined.get((own[0], axis))
    if known is None:
        return op.inputs
    before, whole = known
    if len(before) < len(own) and own[: len(before)] == before:
        return [whole, *op.inputs[len(before) :]]
    return op.inputs


def note(
    op: Op, operands: Sequence[OnnxOperand | None], result: OnnxOperand | None, joined: Joined
) -> None:
    """Remember a concatenation of ``operands``, as in the model."""
    own = _indices(operands)
    if own is not None and result is not None and len(own) > 1:
        joined[own[0], _axis(op, len(result.shape))] = (own, result)


def _indices(operands: Sequence[OnnxOperand | None]) -> list[int] | None:
    """Return the values that are joined; ``None`` if some are constants or left out."""
    found = [known.index for known in operands if known is not None and known.source is None]
    indices = [index for index in found if index is not None]
    return indices if len(indices) == len(operands) and indices else None


def _axis(op: Op, rank: int) -> int:
    return op.axis(op.integer("axis", 1), rank)
