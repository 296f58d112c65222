"""Operators that combine a row's elements: normalizations, reductions, products."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from arenaplan.graph.effects import Effects, Flow
from arenaplan.graph.ops.boxes import (
    Box,
    Footprint,
    Shapes,
    Uncuttable,
    first,
    is_whole,
    spread,
    whole,
)
from arenaplan.graph.ops.operands import Operands, Shape, from_front
from arenaplan.graph.ops.operator import Operator, first_taken_over


@dataclass(slots=True)
class Normalize(Operator):
    """
    Input 0's elements, normalized by statistics: softmax, layer normalization.

    All statistics are read before a row's first element is written.
    """

    axis: int
    """First normalized dimension; with 0, all elements belong together."""
    channel: int | None = None
    """Dimension in which the other inputs have an element per index; else they are broadcast."""

    def permissions(self, node: Operands) -> Effects:
        """Input 0."""
        return first_taken_over(node)

    def pieces(self, node: Operands) -> Flow | None:
        """A piece per row."""
        x, y = node.x, node.y
        if x is None or y is None or x.shape != y.shape:
            return None
        axis = from_front(self.axis, len(x.shape))
        return None if axis is None else Flow(0, prod(x.shape[:axis]), (0,))

    def footprint(self, shapes: Shapes, made: Shape, box: Box) -> Footprint:
        """Whole rows of input 0."""
        axis, channel = from_front(self.axis, len(made)), self.channel
        if first(shapes) != made or axis is None or not is_whole(box[axis:], made[axis:]):
            raise Uncuttable
        if channel is not None:
            return [box, *(box[channel : channel + 1] for _ in shapes[1:])]
        return [box, *(spread(shape, box, made) for shape in shapes[1:])]


@dataclass(slots=True)
class Reduce(Operator):
    """Input 0 reduced along some dimensions."""

    axes: Sequence[int]
    """The dimensions, counted from the front."""
    keeps: bool = True
    """Whether reduced dimensions stay with size 1."""

    def pieces(self, node: Operands) -> Flow | None:
        """A piece per index before the first reduced dimension."""
        if node.x is None or not self.axes:
            return None
        return Flow(0, prod(node.x.shape[: min(self.axes)]), (0,))

    def footprint(self, shapes: Shapes, made: Shape, box: Box) -> Footprint:
        """Dimensions that are reduced are needed whole."""
        kept, parts = iter(box), []
        for axis, size in enumerate(first(shapes)):
            if axis not in self.axes:
                parts.append(next(kept))
                continue
            parts.append(slice(0, size))
            if self.keeps:
                next(kept)
        return [tuple(parts), *(None for _ in shapes[1:])]


@dataclass(slots=True)
class Extremes(Operator):
    """Minimum and maximum along the last dimensions of input 0, in a new dimension."""

    axis: int
    """The first reduced dimension, counted from the front."""

    def pieces(self, node: Operands) -> Flow | None:
        """A piece per index before the reduced dimensions."""
        return None if node.x is None else Flow(0, prod(node.x.shape[: self.axis]), (0,))

    def footprint(self, shapes: Shapes, made: Shape, box: Box) -> Footprint:
        """The reduced dimensions are needed whole."""
        if not is_whole(box[-1:], made[-1:]):
            raise Uncuttable
        return [(*box[:-1], *whole(first(shapes)[self.axis :]))]


@dataclass(slots=True)
class Product(Operator):
    """A product of matrices, or of stacked matrices."""

    is_transposed: bool = False
    """Whether columns of input 0 make output rows."""

    @property
    def loads(self) -> tuple[int, ...]:
        """Both matrices; in a stack, a tile needs the matrices for its rows."""
        return (0, 1)

    def pieces(self, node: Operands) -> Flow | None:
        """A piece per row, from the same row of input 0, unless repeated or transposed."""
        x, y = node.x, node.y
        if x is None or y is None:
            return None
        rows = prod(y.shape[:-1])
        is_followed = not self.is_transposed and len(x.shape) > 1 and prod(x.shape[:-1]) == rows
        return Flow(0, rows, (0,) if is_followed else ())

    def footprint(self, shapes: Shapes, made: Shape, box: Box) -> Footprint:
        """Rows need input 0's rows, matrices input 1's matrices; an addend is broadcast."""
        a, b, *addend = shapes
        if a is None or b is None or min(len(a), len(b)) < 2 or self.is_transposed:
            raise Uncuttable
        if not is_whole(box[-1:], made[-1:]):
            raise Uncuttable
        left = spread((*a[:-1], 1), box, made) or ()
        right = spread((*b[:-2], 1, 1), box, made) or ()
        return [
            (*left[:-1], *whole(a[-1:])),
            (*right[:-2], *whole(b[-2:])) if len(b) > 2 else None,
            *(spread(shape, box, made) for shape in addend),
        ]


PRODUCT = Product()
