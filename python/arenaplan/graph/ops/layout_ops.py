"""Operators that only move elements."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from math import prod

from arenaplan.graph.effects import NO_EFFECTS, Effects, Flow, View, Window
from arenaplan.graph.ops.boxes import Box, Footprint, Shapes, Uncuttable, first, is_whole, reshaped
from arenaplan.graph.ops.operands import BITS, Operands, Shape, from_front, leading, row, size
from arenaplan.graph.ops.operator import ROWS, Operator, part, same_rows, shown
from arenaplan.graph.ops.window_ops import planes


@dataclass(slots=True)
class Reshape(Operator):
    """The same elements in the same order, or some elements repeated, for a larger output."""

    @property
    def is_cheap(self) -> bool:
        """Copies."""
        return True

    def permissions(self, node: Operands) -> Effects:
        """All of input 0, if no element is repeated."""
        return shown(node)

    def footprint(self, shapes: Shapes, made: Shape, box: Box) -> Footprint:
        """The box in input 0 with the same elements, if any."""
        return [reshaped(box, made, first(shapes)), *(None for _ in shapes[1:])]


@dataclass(slots=True)
class Bitcast(Operator):
    """The same bytes as elements with another type."""

    def permissions(self, node: Operands) -> Effects:
        """Input 0 as a whole."""
        x, y = node.x, node.y
        if x is None or y is None or x.is_fixed or size(x) != size(y):
            return NO_EFFECTS
        return Effects(views=(View(0, 0),))


@dataclass(slots=True)
class Identity(Operator):
    """Each output is the input at the same position."""

    def permissions(self, node: Operands) -> Effects:
        """All inputs."""
        pairs = enumerate(zip(node.inputs, node.outputs, strict=False))
        same = (i for i, (x, y) in pairs if x is not None and y is not None and not x.is_fixed)
        return Effects(views=tuple(View(i, i) for i in same))


@dataclass(slots=True)
class Transpose(Operator):
    """Output dimension *i* is dimension ``perm[i]`` of input 0."""

    perm: Sequence[int]

    def permissions(self, node: Operands) -> Effects:
        """All of input 0, if only dimensions of size 1 move."""
        x, perm = node.x, self.perm
        if x is None or len(perm) != len(x.shape) or sorted(perm) != list(range(len(perm))):
            return NO_EFFECTS
        moved = [axis for axis in perm if x.shape[axis] != 1]
        return shown(node) if moved == sorted(moved) else NO_EFFECTS

    def pieces(self, node: Operands) -> Flow | None:
        """Any block of elements that stay together, from all of the input."""
        y, perm = node.y, self.perm
        if y is None or len(perm) != len(y.shape):
            return None
        moved = max((axis for axis, of in enumerate(perm) if of != axis), default=-1)
        return Flow(0, prod(y.shape[: min(moved + 1, len(perm) - 1)]))

    def footprint(self, shapes: Shapes, made: Shape, box: Box) -> Footprint:
        """The same box, except for the dimension order."""
        if sorted(self.perm) != list(range(len(box))):
            raise Uncuttable
        parts = dict(zip(self.perm, box, strict=True))
        return [tuple(parts[axis] for axis in range(len(box)))]


@dataclass(slots=True)
class Concat(Operator):
    """Inputs one after the other along a dimension, existing or new."""

    axis: int
    converted: Collection[int] = ()
    """Inputs whose elements are converted, and not copied."""

    def permissions(self, node: Operands) -> Effects:
        """Inputs are pieces of the output if all dimensions before are 1."""
        y = node.y
        if y is None or leading(y, self.axis) is None:
            return NO_EFFECTS
        views, offset = [], 0
        for position, x in enumerate(node.inputs):
            if x is None:
                return NO_EFFECTS
            if not x.is_fixed and x.dtype == y.dtype and position not in self.converted:
                views.append(View(position, 0, offset, "output"))
            offset += size(x)
        return Effects(views=tuple(views)) if offset == size(y) else NO_EFFECTS

    def windows(self, node: Operands) -> tuple[Window, ...]:
        """The same rows of every input, unless rows are joined."""
        y = node.y
        axis = None if y is None else from_front(self.axis, len(y.shape))
        if axis is None or axis == ROWS or None in node.inputs:
            return ()
        return same_rows(tuple(range(len(node.inputs))))

    def footprint(self, shapes: Shapes, made: Shape, box: Box) -> Footprint:
        """The same box of every input, whole along the dimension."""
        axis = from_front(self.axis, len(made))
        if axis is None or not is_whole(box[axis : axis + 1], made[axis : axis + 1]):
            raise Uncuttable
        return [
            None if shape is None else (*box[:axis], slice(0, shape[axis]), *box[axis + 1 :])
            for shape in shapes
        ]


@dataclass(slots=True)
class Split(Operator):
    """Outputs are one after the other along a dimension of an input."""

    axis: int
    sizes: Sequence[int] | None = None
    """Each output's length along the dimension; without lengths, no output may be left out."""
    source: int = 0
    """The input's position."""

    def permissions(self, node: Operands) -> Effects:
        """Outputs are pieces of the input if all dimensions before are 1."""
        x = node.inputs[self.source] if self.source < len(node.inputs) else None
        axis = None if x is None or x.is_fixed else leading(x, self.axis)
        if x is None or axis is None:
            return NO_EFFECTS
        views, offset, sizes = [], 0, self.sizes
        for position, y in enumerate(node.outputs):
            if y is not None:
                views.append(View(self.source, position, offset))
            if sizes is not None:
                offset += sizes[position] * row(x, axis)
            elif y is not None:
                offset += size(y)
        return Effects(views=tuple(views)) if offset == size(x) else NO_EFFECTS


@dataclass(slots=True)
class Slice(Operator):
    """Some indices along each dimension of input 0."""

    taken: Sequence[range]
    """The indices, by dimension."""

    def permissions(self, node: Operands) -> Effects:
        """The output is a piece of input 0 if contiguous there."""
        x, y, taken = node.x, node.y, self.taken
        if x is None or y is None or len(taken) != len(x.shape):
            return NO_EFFECTS
        counts, cut = [], -1
        for axis, (indices, dim) in enumerate(zip(taken, x.shape, strict=True)):
            count = len(indices)
            is_range = indices.step == 1 or count == 1
            if not (is_range and indices and indices[0] >= 0 and indices[-1] < dim):
                return NO_EFFECTS
            if count < dim:
                cut = axis
            counts.append(count)
        if cut < 0:
            return shown(node)
        if BITS[x.dtype] < 8 or prod(counts[:cut]) > 1 or prod(counts) != prod(y.shape):
            return NO_EFFECTS
        return part(node, sum(indices[0] * row(x, axis) for axis, indices in enumerate(taken)))


@dataclass(slots=True)
class Pad(Operator):
    """Input 0 with a border."""

    amounts: Sequence[tuple[int, int]]
    """Elements before and after each dimension; negative amounts are cut off."""

    def permissions(self, node: Operands) -> Effects:
        """All of input 0, if there is no border; amounts with both signs move elements."""
        return NO_EFFECTS if any(pair != (0, 0) for pair in self.amounts) else shown(node)

    def pieces(self, node: Operands) -> Flow | None:
        """Images and channels, if none is added or cut off."""
        return None if any(pair != (0, 0) for pair in self.amounts[:2]) else planes(node)


def one_index(shape: Sequence[int], axis: int, index: int) -> Slice | None:
    """Return the slice for a single index along a dimension."""
    rank = len(shape)
    axis += rank if axis < 0 else 0
    if not 0 <= axis < rank or not -shape[axis] <= index < shape[axis]:
        return None
    index += shape[axis] if index < 0 else 0
    taken = [range(dim) for dim in shape]
    taken[axis] = range(index, index + 1)
    return Slice(taken)


RESHAPE = Reshape()
BITCAST = Bitcast()
IDENTITY = Identity()
