"""Operators that make each output element from input elements at the same place."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from arenaplan.graph.effects import Effects, Flow, InPlace, Window
from arenaplan.graph.ops.boxes import Box, Footprint, Shapes, Uncuttable, first, spread
from arenaplan.graph.ops.operands import Operands, Shape
from arenaplan.graph.ops.operator import (
    ROWS,
    Operator,
    first_taken_over,
    same_rows,
    shown,
    taken_over,
)


@dataclass(slots=True)
class Elementwise(Operator):
    """All operands are broadcast to the output: sums, comparisons, selections."""

    @property
    def is_cheap(self) -> bool:
        """A few operations for each element."""
        return True

    def permissions(self, node: Operands) -> Effects:
        """Operands with the output's shape, and at least the output's element width."""
        return taken_over(node, range(len(node.inputs)))

    def pieces(self, node: Operands) -> Flow | None:
        """A piece per element; repeated operands are needed whole."""
        y = node.y
        if y is None:
            return None
        shape = y.shape
        same = [at for at, x in enumerate(node.inputs) if x is not None and x.shape == shape]
        return Flow(0, prod(shape), tuple(same))

    def windows(self, node: Operands) -> tuple[Window, ...]:
        """The same rows of operands with equal row counts."""
        y = node.y
        if y is None:
            return ()
        rank, rows = len(y.shape), y.shape[ROWS]
        has_rows = (
            at
            for at, x in enumerate(node.inputs)
            if x is not None and len(x.shape) == rank and x.shape[ROWS] == rows
        )
        return same_rows(tuple(has_rows))

    def footprint(self, shapes: Shapes, made: Shape, box: Box) -> Footprint:
        """Every element needs the matching element of each operand."""
        return [spread(shape, box, made) for shape in shapes]


@dataclass(slots=True)
class FirstOperand(Operator):
    """Elements made from input 0's elements; other inputs are parameters: activations."""

    channel: int | None = None
    """Dimension in which the other inputs have an element per index, if any."""

    @property
    def is_cheap(self) -> bool:
        """A few operations for each element."""
        return True

    def permissions(self, node: Operands) -> Effects:
        """Input 0."""
        return first_taken_over(node)

    def pieces(self, node: Operands) -> Flow | None:
        """A piece per element."""
        x, y = node.x, node.y
        if x is None or y is None or x.shape != y.shape:
            return None
        return Flow(0, prod(y.shape), (0,))

    def windows(self, node: Operands) -> tuple[Window, ...]:
        """The same rows of input 0."""
        x, y = node.x, node.y
        is_whole = x is not None and y is not None and x.shape == y.shape
        return same_rows((0,)) if is_whole and self.channel != ROWS else ()

    def footprint(self, shapes: Shapes, made: Shape, box: Box) -> Footprint:
        """Every element needs the matching element of input 0, and its channel's parameters."""
        if first(shapes) != made:
            raise Uncuttable
        channel = self.channel
        own = None if channel is None else box[channel : channel + 1] or None
        return [box, *(own for _ in shapes[1:])]


@dataclass(slots=True)
class Convert(FirstOperand):
    """Elements converted to another type; the same bytes if the type stays."""

    def permissions(self, node: Operands) -> Effects:
        """Input 0, as a view if the type stays."""
        x, y = node.x, node.y
        if x is not None and y is not None and x.dtype == y.dtype:
            return shown(node)
        return first_taken_over(node)


@dataclass(slots=True)
class Update(Operator):
    """The output is input 0 with other elements at some places: scatters."""

    def permissions(self, node: Operands) -> Effects:
        """Input 0."""
        return first_taken_over(node)


@dataclass(slots=True)
class ShapeOnly(Operator):
    """Only input 0's shape or type is used."""

    def permissions(self, node: Operands) -> Effects:
        """Input 0 is not read."""
        return Effects(ignores=(0,))


@dataclass(slots=True)
class Loop(Operator):
    """
    A loop, which carries inputs from ``first`` on to outputs from ``result`` on.

    The loop reads all these inputs before writing any of these outputs.
    """

    first: int
    count: int
    result: int = 0

    def permissions(self, node: Operands) -> Effects:
        """Each value stays in place."""
        carried = node.inputs[self.first : self.first + self.count]
        pairs = (
            InPlace(self.first + at, self.result + at)
            for at, (x, y) in enumerate(zip(carried, node.outputs[self.result :], strict=False))
            if x is not None and y is not None and not x.is_fixed
            if (x.shape, x.dtype) == (y.shape, y.dtype)
        )
        return Effects(in_place=tuple(pairs))


ELEMENTWISE = Elementwise()
FIRST_OPERAND = FirstOperand()
CONVERT = Convert()
UPDATE = Update()
SHAPE_ONLY = ShapeOnly()
