"""
Elementwise operators, with broadcasting.

A result element depends on one element of every operand. Two calls with the same parameters make
the same bits from equal elements.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from arenaplan.tflite.proving.elements import Elements
from arenaplan.tflite.proving.facts import Fact, Operation
from arenaplan.tflite.proving.guess import Indices
from arenaplan.tflite.proving.proof_calls import ProofCall, Theirs

_KNOWN: Final = """
    ABS ADD CAST CEIL COS DEQUANTIZE DIV ELU EQUAL EXP FLOOR FLOOR_DIV FLOOR_MOD GELU GREATER
    GREATER_EQUAL HARD_SWISH LEAKY_RELU LESS LESS_EQUAL LOG LOGICAL_AND LOGICAL_NOT LOGICAL_OR
    LOGISTIC MAXIMUM MINIMUM MUL NEG NOT_EQUAL POW PRELU QUANTIZE RELU RELU6 RELU_0_TO_1
    RELU_N1_TO_1 ROUND RSQRT SIGN SIN SQRT SQUARE SQUARED_DIFFERENCE SUB TANH
"""
_NAMES: Final = frozenset(_KNOWN.split())


class Pointwise(ProofCall):
    """An operator that computes element by element."""

    rule = "elements"

    def seen(
        self, operands: Sequence[Elements], places: Sequence[Indices] | None = None
    ) -> Iterator[Elements]:
        """Yield an element of each operand."""
        for operand in operands:
            shown = np.broadcast_to(operand, self.lines)
            yield (shown if places is None else shown[np.ix_(*places)])[..., None]

    def guess(self, operands: Sequence[Elements], theirs: Theirs) -> list[Indices] | None:
        """Return the places of operands that have all elements."""
        found: list[Indices] | None = None
        pairs = zip(operands, theirs.operands, theirs.indexes, strict=True)
        for operand, source, index in sorted(pairs, key=lambda pair: pair[2].has_twins):
            is_whole = operand.shape == self.shape and source.shape == theirs.call.shape
            if not is_whole or (source < 0).all():
                continue
            axes = index.axes(operand) or [np.zeros(1, np.int64)]
            found = axes if found is None else found
            found = [np.where(f < 0, a, f) for f, a in zip(found, axes, strict=True)]
        return found

    def told(
        self, where: tuple[int, ...], places: Sequence[Indices], tap: int, said: tuple[str, str]
    ) -> str:
        """Return text about an element that is made from another."""
        return (
            f"element {list(where[:-1])} of its result is made from {said[0]}, and that of the "
            f"original from {said[1]}"
        )


def pointwise_of(operation: Operation, tensors: Sequence[Fact]) -> Pointwise | None:
    """Return an operator as an elementwise operator; ``None`` if not elementwise."""
    if operation.is_custom or operation.intermediates or operation.name not in _NAMES:
        return None
    if len(operation.outputs) != 1 or operation.plain.kind < 0:
        return None
    facts = [None if i is None else tensors[i] for i in (*operation.inputs, operation.outputs[0])]
    known = [fact for fact in facts if fact is not None]
    if len(known) < len(facts) or any(f.is_variable or f.zero_point is None for f in known):
        return None
    *operands, y = known
    try:
        shape = np.broadcast_shapes(*(fact.shape for fact in operands))
    except ValueError:
        return None
    if shape != y.shape or y.is_constant:
        return None
    key = (operation.name, operation.version, operation.rest, operation.options)
    return Pointwise(
        key=(*key, tuple(fact.encoding for fact in known)),
        shape=shape,
        lines=shape or (1,),
        width=1,
        reads=tuple(range(len(operands))),
        whole=tuple(at for at, fact in enumerate(operands) if fact.shape == shape),
    )
