"""Canonical operators, and the node effects that follow from an operator."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import TypeAlias, TypeVar

from arenaplan.graph.effects import NO_EFFECTS, Effects, Flow, InPlace, View, Window
from arenaplan.graph.ops.boxes import Box, Footprint, Shapes, Uncuttable
from arenaplan.graph.ops.operands import BITS, Operands, Shape, size

_Node = TypeVar("_Node")

ROWS = 2
"""The dimension of images ``(N, C, H, …)`` in which rows are counted."""


class Operator:
    """
    Memory semantics of an operator kind.

    A subclass has the attributes that affect memory, in the same form for all formats, and
    overrides the methods for which the operator has an answer.

    Instances are shared and do not change. Frozen dataclasses would take several times as long to
    create, and importers create many instances.
    """

    __slots__ = ()

    @property
    def is_cheap(self) -> bool:
        """Whether kernels do little work per output element."""
        return False

    @property
    def loads(self) -> tuple[int, ...]:
        """Inputs that kernels may copy tile by tile before computing."""
        return ()

    def permissions(self, node: Operands) -> Effects:
        """Return the bytes that a node's operands may share, without flows."""
        return NO_EFFECTS

    def pieces(self, node: Operands) -> Flow | None:
        """Return the pieces in which a node can make its only output; ``None`` if only whole."""
        return None

    def windows(self, node: Operands) -> tuple[Window, ...]:
        """Return the input rows needed for rows of a node's only output, if the output has rows."""
        return ()

    def footprint(self, shapes: Shapes, made: Shape, box: Box) -> Footprint:
        """
        Return the part of each input needed for an output box.

        A box that is a piece needs no more than the same piece of each followed input.

        Parameters
        ----------
        shapes : sequence
            Each input's shape.
        made : tuple of int
            The output's shape.
        box : tuple of slice
            The box, which is not the whole output.

        Raises
        ------
        Uncuttable
            If the box cannot be made by itself.
        """
        raise Uncuttable


Table: TypeAlias = "Mapping[str, Operator | Callable[[_Node], Operator | None]]"
"""
Canonical operators by name in some format, or functions from a node to the canonical operator,
``None`` without one.
"""


def lookup(table: Table[_Node], name: str, node: _Node) -> Operator | None:
    """Return a node's canonical operator."""
    entry = table.get(name)
    return entry if entry is None or isinstance(entry, Operator) else entry(node)


def effects_of(operator: Operator | None, node: Operands, *, copies: bool = False) -> Effects:
    """
    Return a node's effects; without an operator, reads all inputs and writes all outputs.

    Parameters
    ----------
    copies : bool, default False
        Whether a kernel runs the node even if the output is all of input 0. The output is then in
        place with equal bytes, can be made in pieces, and is not a view.
    """
    if operator is None:
        return NO_EFFECTS
    effects = operator.permissions(node)
    if effects.views == _VIEW.views:
        if not copies:
            return effects
        effects = _COPY
    if any(node.outputs[1:]):
        return effects
    flow = operator.pieces(node)
    return effects if flow is None or flow.pieces < 2 else _with_flow(effects, flow, operator.loads)


def repeats(operator: Operator | None, node: Operands) -> bool:
    """
    Return whether a node may run again per reader: cheap, with a larger output than input.

    The inputs are then kept instead of the output, which is larger than all inputs together.
    """
    y = node.y
    if operator is None or y is None or not operator.is_cheap or any(node.outputs[1:]):
        return False
    return size(y) > sum(size(x) for x in node.inputs if x is not None and not x.is_fixed)


# Networks repeat few effects many times.
@lru_cache(1024)
def _with_flow(effects: Effects, flow: Flow, loads: tuple[int, ...]) -> Effects:
    return effects._replace(flows=(flow,), loads=loads)


def windows_of(operator: Operator | None, node: Operands) -> tuple[Window, ...]:
    """Return a node's windows on images ``(N, C, H, …)``, whose rows are dimension 2."""
    y = node.y
    if operator is None or y is None or any(node.outputs[1:]):
        return ()
    is_image = len(y.shape) > ROWS + 1 and 0 not in y.shape and BITS[y.dtype] >= 8
    return operator.windows(node) if is_image else ()


@lru_cache(64)
def same_rows(inputs: tuple[int, ...]) -> tuple[Window, ...]:
    """Return windows in which each output row needs the same row of some inputs."""
    return tuple(Window(position, 0, ROWS) for position in inputs)


_VIEW = Effects(views=(View(0, 0),))
_COPY = Effects(in_place=(InPlace(0, 0, identity=True),))

# -- parts of rules ---------------------------------------------------------------------------


def taken_over(node: Operands, positions: Iterable[int]) -> Effects:
    """Permit output 0 to take over inputs with its shape and at least its element width."""
    y = node.y
    if y is None:
        return NO_EFFECTS
    shape, width, inputs, found = y.shape, BITS[y.dtype], node.inputs, []
    for position in positions:
        x = inputs[position]
        if x is not None and x.shape == shape and BITS[x.dtype] >= width and not x.is_fixed:
            found.append(position)
    return _in_place(tuple(found))


def first_taken_over(node: Operands) -> Effects:
    """Permit output 0 to take over input 0, if there is an input."""
    return taken_over(node, (0,)) if node.inputs else NO_EFFECTS


@lru_cache(256)
def _in_place(inputs: tuple[int, ...]) -> Effects:
    return Effects(in_place=tuple(InPlace(position, 0) for position in inputs))


def shown(node: Operands) -> Effects:
    """Permit output 0 to show input 0's bytes, with equal type and size."""
    x, y = node.x, node.y
    if x is None or y is None or x.is_fixed or x.dtype != y.dtype or size(x) != size(y):
        return NO_EFFECTS
    return _VIEW


def part(node: Operands, offset: int) -> Effects:
    """Permit output 0 to show input 0's bytes from an offset."""
    x, y = node.x, node.y
    if x is None or y is None or x.is_fixed or x.dtype != y.dtype:
        return NO_EFFECTS
    fits = 0 <= offset <= size(x) - size(y)
    return Effects(views=(View(0, 0, offset),)) if fits else NO_EFFECTS
