"""
Effects of operators on memory: one table.

Everything here is a permission. Whether an output really takes over an input's bytes,
or a slice really is a window into its source, is for the planner to decide; kernels
copy where it did not. An operator that is not in the table reads its inputs and writes
its outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from math import prod
from typing import TypeAlias

from arenaplan.errors import ShapeMismatch
from arenaplan.graph import NO_EFFECTS, Effects, InPlace, Overlap, View
from arenaplan.importers.common import BITS, Shape, array_bytes
from arenaplan.importers.onnx.flows import with_flows
from arenaplan.importers.onnx.op import DataDependent, Op, Result
from arenaplan.importers.onnx.rules.elementwise import (
    ARITHMETIC,
    COMPARISONS,
    SAME,
    VARIADIC,
    trains,
)
from arenaplan.importers.onnx.rules.layout import pads, slices
from arenaplan.importers.onnx.rules.layout import split as split_shapes

Describe: TypeAlias = Callable[[Op, Sequence[Result]], Effects]

_VIEW = Effects(views=(View(0, 0),))
_COPY = Effects(in_place=(InPlace(0, 0, identity=True),))
_SHAPE_ONLY = Effects(ignores=(0,))


@lru_cache(256)
def _in_place(inputs: tuple[int, ...]) -> Effects:
    """Return the effects of output 0 being able to take over any of ``inputs``."""
    return Effects(in_place=tuple(InPlace(position, 0) for position in inputs))


def elementwise(op: Op, results: Sequence[Result]) -> Effects:
    """Output 0 may take over each operand of its shape and at least its width."""
    shape, dtype = results[0]
    return _in_place(
        tuple(
            [
                position
                for position, known in enumerate(op.inputs)
                if known is not None
                and known.source is None
                and known.shape == shape
                and BITS[known.dtype] >= BITS[dtype]
            ]
        )
    )


def first_operand(op: Op, results: Sequence[Result]) -> Effects:
    """Output 0 may take over operand 0; the others are parameters."""
    x = op.input(0)
    shape, dtype = results[0]
    fits = x.source is None and x.shape == shape and BITS[x.dtype] >= BITS[dtype]
    return _in_place((0,)) if fits else NO_EFFECTS


def lrn(op: Op, results: Sequence[Result]) -> Effects:
    """
    Made in order, the output may overlap the input at a distance.

    An element is still needed when its own result is made: windows reach back to it.
    """
    x = op.input(0)
    shape = x.shape
    if x.source is not None or len(shape) < 2 or 0 in shape:
        return NO_EFFECTS
    back = min((op.integer("size") - 1) // 2, shape[1] - 1)
    return Effects(overlaps=(Overlap(0, 0, back * prod(shape[2:]) * BITS[x.dtype] // 8),))


def batch_norm(op: Op, results: Sequence[Result]) -> Effects:
    """In place when inferring; training reads the data twice."""
    training = trains(op)
    return NO_EFFECTS if training else first_operand(op, results)


def normalization(op: Op, results: Sequence[Result]) -> Effects:
    """In place unless statistics are asked for, too."""
    return NO_EFFECTS if any(op.outputs[1:]) else first_operand(op, results)


def view(op: Op, results: Sequence[Result]) -> Effects:
    """Output 0 shows the bytes of operand 0."""
    x = op.input(0)
    if prod(x.shape) != prod(results[0][0]):
        # The result's shape was only declared.
        raise op.error(ShapeMismatch, f"data of shape {x.shape} cannot take shape {results[0][0]}")
    return _VIEW if x.source is None else NO_EFFECTS


def dropout(op: Op, results: Sequence[Result]) -> Effects:
    """A view when inferring; when training, elementwise with random numbers."""
    if op.version < 7 and not op.attributes.get("is_test", 0):
        return NO_EFFECTS
    if op.optional(2) is not None and op.array(2).any():
        return NO_EFFECTS
    return view(op, results)


def cast(op: Op, results: Sequence[Result]) -> Effects:
    """A copy if the type stays, and else elementwise."""
    x = op.input(0)
    if x.dtype == results[0][1]:
        return _COPY if x.source is None else NO_EFFECTS
    return first_operand(op, results)


def cast_like(op: Op, results: Sequence[Result]) -> Effects:
    """A cast that reads no data of its second operand."""
    effects = cast(op, results)
    return Effects(in_place=effects.in_place, ignores=(1,))


def transpose(op: Op, results: Sequence[Result]) -> Effects:
    """A copy if only dimensions of 1 change places."""
    x = op.input(0)
    perm = op.integers("perm") or tuple(range(len(x.shape)))[::-1]
    moved = [axis for axis in perm if x.shape[axis] != 1]
    return _COPY if moved == sorted(moved) and x.source is None else NO_EFFECTS


def pad(op: Op, results: Sequence[Result]) -> Effects:
    """A copy if no element is added or removed; pads of both signs move elements."""
    amounts = pads(op, len(op.input(0).shape))
    return NO_EFFECTS if any(pair != (0, 0) for pair in amounts) else unchanged(op, results)


def unchanged(op: Op, results: Sequence[Result]) -> Effects:
    """A copy if nothing is repeated."""
    x = op.input(0)
    return _COPY if x.shape == results[0][0] and x.source is None else NO_EFFECTS


def concat(op: Op, results: Sequence[Result]) -> Effects:
    """Operands are pieces of the output if nothing varies before the axis."""
    shape, dtype = results[0]
    axis = op.axis(op.integer("axis", 1), len(shape))
    if not _contiguous(shape, axis) or BITS[dtype] < 8:
        return NO_EFFECTS
    row = prod(shape[axis + 1 :]) * BITS[dtype] // 8
    views, offset = [], 0
    for position, known in enumerate(op.inputs):
        if known is not None:
            if known.source is None:
                views.append(View(position, 0, offset, "output"))
            offset += known.shape[axis] * row
    return Effects(views=tuple(views))


def gather(op: Op, results: Sequence[Result]) -> Effects:
    """One row that is known is a piece of the operand, if nothing varies before the axis."""
    x = op.input(0)
    axis = op.axis(op.integer("axis", 0), len(x.shape))
    if prod(op.input(1).shape) != 1 or not _contiguous(x.shape, axis) or BITS[x.dtype] < 8:
        return NO_EFFECTS
    if x.source is not None or 0 in x.shape:
        return NO_EFFECTS
    row = prod(x.shape[axis + 1 :]) * BITS[x.dtype] // 8
    return Effects(views=(View(0, 0, int(op.array(1).item()) % x.shape[axis] * row),))


def split(op: Op, results: Sequence[Result]) -> Effects:
    """Outputs are pieces of the operand if nothing varies before the axis."""
    x = op.input(0)
    axis = op.axis(op.integer("axis", 0), len(x.shape))
    if not _contiguous(x.shape, axis) or BITS[x.dtype] < 8 or x.source is not None:
        return NO_EFFECTS
    views, offset = [], 0
    # Of outputs that are left out, and of sizes known at run time, the results tell nothing.
    for position, (shape, dtype) in enumerate(split_shapes(op)):
        if op.outputs[position]:
            views.append(View(0, position, offset))
        offset += array_bytes(shape, dtype)
    return Effects(views=tuple(views))


def slice_(op: Op, results: Sequence[Result]) -> Effects:
    """The output is a piece of the operand if its elements are neighbors there."""
    x = op.input(0)
    shape, dtype = results[0]
    if BITS[dtype] < 8 or x.source is not None or 0 in shape:
        return NO_EFFECTS
    taken = slices(op, x.shape)
    if any(len(piece) > 1 and piece.step != 1 for piece in taken):
        return NO_EFFECTS
    cut = [axis for axis, piece in enumerate(taken) if len(piece) < x.shape[axis]]
    if cut and not _contiguous(shape, cut[-1]):
        return NO_EFFECTS
    first = sum(piece.start * prod(x.shape[axis + 1 :]) for axis, piece in enumerate(taken))
    return Effects(views=(View(0, 0, first * BITS[dtype] // 8),))


def _contiguous(shape: Shape, axis: int) -> bool:
    """Whether a range along ``axis`` is one range of bytes."""
    return prod(shape[:axis]) == 1


def ignores_first(op: Op, results: Sequence[Result]) -> Effects:
    """Only the shape or type of operand 0 matters."""
    return _SHAPE_ONLY


_ELEMENTWISE = (*ARITHMETIC, *COMPARISONS, *VARIADIC, "Pow", "Where")
_UNARY = (
    *(op for op in SAME if op not in ("CumProd", "CumSum", "Identity", "Trilu")),
    "IsInf",
    "IsNaN",
    "QuantizeLinear",
    "DequantizeLinear",
)

EFFECTS: Mapping[str, Describe] = {
    **dict.fromkeys(_ELEMENTWISE, elementwise),
    **dict.fromkeys(_UNARY, first_operand),
    "BatchNormalization": batch_norm,
    "Cast": cast,
    "CastLike": cast_like,
    "Concat": concat,
    "Dropout": dropout,
    "Expand": unchanged,
    "EyeLike": ignores_first,
    "Flatten": view,
    "Gather": gather,
    "GroupNormalization": normalization,
    "Identity": view,
    "InstanceNormalization": normalization,
    "LRN": lrn,
    "LayerNormalization": normalization,
    "LogSoftmax": first_operand,
    "Pad": pad,
    "RMSNormalization": normalization,
    "RandomNormalLike": ignores_first,
    "RandomUniformLike": ignores_first,
    "Reshape": view,
    "Slice": slice_,
    "Softmax": first_operand,
    "Split": split,
    "Squeeze": view,
    "Tile": unchanged,
    "Transpose": transpose,
    "Unsqueeze": view,
}
"""Effects by operator of the default domain."""


def effects_of(op: Op, results: Sequence[Result]) -> Effects:
    """Return the effects of an operator with known results."""
    describe = None if op.domain else EFFECTS.get(op.type)
    effects = NO_EFFECTS
    try:
        effects = NO_EFFECTS if describe is None else describe(op, results)
        return with_flows(op, results, effects)
    except DataDependent:
        return effects
