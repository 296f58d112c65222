"""
Rules that operators of several frameworks share: the effects of a kind of operator.

Everything here is a permission. Arrays are taken to be in row-major order; a transpose writes
its result in order, and so a view of it is one of contiguous bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import prod
from typing import Any, NamedTuple, TypeAlias

from arenaplan.graph import NO_EFFECTS, Effects, InPlace, View
from arenaplan.importers.common import BITS, Shape, array_bytes


class Operand(NamedTuple):
    """Facts about an array for a rule."""

    shape: Shape
    dtype: str
    is_constant: bool


class Op(NamedTuple):
    """An operator as its rule sees it."""

    inputs: Sequence[Operand | None]
    outputs: Sequence[Operand | None]
    arguments: Mapping[str, Any]
    """Arguments that are no arrays, by name."""

    def integer(self, name: str, default: int) -> int | None:
        """Return a whole number among the arguments; ``None`` if it is none."""
        value = self.arguments.get(name, default)
        return value if isinstance(value, int) and not isinstance(value, bool) else None


Rule: TypeAlias = Callable[[Op], Effects]


def ends(op: Op) -> tuple[Operand | None, Operand | None]:
    """Return the first operand and the first result, where there are any."""
    x, y = (side[0] if side else None for side in (op.inputs, op.outputs))
    return x, y


def elementwise(op: Op) -> Effects:
    """Output 0 may take over each operand of its shape and at least its width."""
    return in_place(op, range(len(op.inputs)))


def first_operand(op: Op) -> Effects:
    """Output 0 may take over operand 0; the others are parameters."""
    return in_place(op, (0,))


def in_place(op: Op, positions: Iterable[int]) -> Effects:
    """Return leave to take over those of some operands that are read element by element."""
    y = op.outputs[0] if op.outputs else None
    pairs = []
    for position in positions:
        x = op.inputs[position] if position < len(op.inputs) else None
        if x is None or y is None or x.is_constant or x.shape != y.shape:
            continue
        if BITS[x.dtype] >= BITS[y.dtype]:
            pairs.append(InPlace(position, 0))
    return Effects(in_place=tuple(pairs))


def view(op: Op) -> Effects:
    """Output 0 shows the bytes of operand 0."""
    x, y = ends(op)
    return piece(x, y, 0) if x is not None and y is not None and size(x) == size(y) else NO_EFFECTS


def piece(x: Operand | None, y: Operand | None, offset: int) -> Effects:
    """Output 0 shows bytes of operand 0 from an offset."""
    if x is None or y is None or x.is_constant or x.dtype != y.dtype:
        return NO_EFFECTS
    fits = offset >= 0 and offset + size(y) <= size(x)
    return Effects(views=(View(0, 0, offset),)) if fits else NO_EFFECTS


def permuted(op: Op, perm: Sequence[int]) -> Effects:
    """Return a view if a permutation of dimensions leaves the elements where they are."""
    x = op.inputs[0] if op.inputs else None
    if x is None or sorted(perm) != list(range(len(x.shape))):
        return NO_EFFECTS
    moved = [axis for axis in perm if x.shape[axis] != 1]
    return view(op) if moved == sorted(moved) else NO_EFFECTS


def joined(op: Op, axis: int | None) -> Effects:
    """Operands are pieces of the output if nothing varies before the dimension."""
    y = op.outputs[0] if op.outputs else None
    if y is None or axis is None or not contiguous(y, axis):
        return NO_EFFECTS
    views, offset = [], 0
    for position, x in enumerate(op.inputs):
        if x is None:
            return NO_EFFECTS
        if not x.is_constant and x.dtype == y.dtype:
            views.append(View(position, 0, offset, "output"))
        offset += size(x)
    return Effects(views=tuple(views)) if offset == size(y) else NO_EFFECTS


def parted(op: Op, axis: int | None) -> Effects:
    """Outputs are pieces of the operand if nothing varies before the dimension."""
    x = op.inputs[0] if op.inputs else None
    if x is None or axis is None or x.is_constant or not contiguous(x, axis):
        return NO_EFFECTS
    views, offset = [], 0
    for position, y in enumerate(op.outputs):
        if y is None:
            return NO_EFFECTS
        views.append(View(0, position, offset))
        offset += size(y)
    return Effects(views=tuple(views)) if offset == size(x) else NO_EFFECTS


def row(x: Operand, axis: int) -> int:
    """Return the bytes from one index of a dimension to the next."""
    return prod(x.shape[axis + 1 :]) * BITS[x.dtype] // 8


def same_type(op: Op) -> bool:
    """Whether input and output have one element type."""
    x, y = ends(op)
    return x is not None and y is not None and x.dtype == y.dtype


def contiguous(operand: Operand, axis: int) -> bool:
    """Whether a range along ``axis`` is one range of whole bytes."""
    rank = len(operand.shape)
    axis += rank if axis < 0 else 0
    return 0 <= axis < rank and prod(operand.shape[:axis]) == 1 and BITS[operand.dtype] >= 8


def size(operand: Operand) -> int:
    """Return the bytes of an operand."""
    return array_bytes(operand.shape, operand.dtype)
