"""Operators that combine the elements of a row: normalizations, reductions, products."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from arenaplan.graph import NO_EFFECTS, Effects, Flow
from arenaplan.ops.operands import Operands, from_front
from arenaplan.ops.operator import Operator, taken_over


@dataclass(slots=True)
class Normalize(Operator):
    """
    Elements of input 0 that are changed by statistics: softmax, layer normalization.

    All statistics are read before the first element of their row is written.
    """

    axis: int
    """Elements from this dimension on belong together; from 0 on, all of them."""

    def permissions(self, node: Operands) -> Effects:
        """Input 0."""
        return taken_over(node, (0,)) if node.inputs else NO_EFFECTS

    def pieces(self, node: Operands) -> Flow | None:
        """One per row."""
        x, y = node.x, node.y
        if x is None or y is None or x.shape != y.shape:
            return None
        axis = from_front(self.axis, len(x.shape))
        return None if axis is None else Flow(0, prod(x.shape[:axis]), (0,))


@dataclass(slots=True)
class Reduce(Operator):
    """One element for all along some dimensions of input 0."""

    axes: Sequence[int]
    """The dimensions, counted from the front."""

    def pieces(self, node: Operands) -> Flow | None:
        """One per index before the first dimension that is reduced."""
        if node.x is None or not self.axes:
            return None
        return Flow(0, prod(node.x.shape[: min(self.axes)]), (0,))


@dataclass(slots=True)
class Product(Operator):
    """A product of matrices, or of stacks of them."""

    is_transposed: bool = False
    """Whether columns of input 0 make rows of the output."""

    @property
    def loads(self) -> tuple[int, ...]:
        """Input 0."""
        return (0,)

    def pieces(self, node: Operands) -> Flow | None:
        """One per row, of the same row of input 0, unless that is repeated or transposed."""
        x, y = node.x, node.y
        if x is None or y is None:
            return None
        rows = prod(y.shape[:-1])
        is_followed = not self.is_transposed and len(x.shape) > 1 and prod(x.shape[:-1]) == rows
        return Flow(0, rows, (0,) if is_followed else ())


PRODUCT = Product()
