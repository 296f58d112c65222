"""
Effects of TFLite operators on memory: one table.

Everything here is a permission, as in the ONNX importer. An operator that is not in the
table, a custom one for example, reads its inputs and writes its outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import NamedTuple, TypeAlias

from arenaplan.graph import NO_EFFECTS, Effects, InPlace, View
from arenaplan.importers.common import BITS, Shape, array_bytes
from arenaplan.importers.flows import Pieces
from arenaplan.importers.tflite.flatbuffer import Table
from arenaplan.importers.tflite.model import Quantization


class Operand(NamedTuple):
    """Facts about an input or output for a rule."""

    shape: Shape
    dtype: str
    quantization: Quantization | None
    is_activation: bool
    """Whether its bytes are in the arena and not kept between runs."""
    numbers: tuple[int, ...] | None
    """The elements, if they are constant whole numbers and few."""


class Op(NamedTuple):
    """An operator as its rule sees it."""

    inputs: Sequence[Operand | None]
    outputs: Sequence[Operand | None]
    options: Table | None

    def option(self, slot: int, code: str, default: int = 0) -> int:
        """Return a number among the options, or its default."""
        return default if self.options is None else self.options.number(slot, code, default)

    def input(self, position: int) -> Operand | None:
        """Return an input; ``None`` if it was left out."""
        return self.inputs[position] if position < len(self.inputs) else None

    def numbers(self, position: int) -> tuple[int, ...] | None:
        """Return the elements of a constant input of whole numbers."""
        operand = self.input(position)
        return None if operand is None else operand.numbers


Rule: TypeAlias = Callable[[Op], Effects]


def elementwise(op: Op) -> Effects:
    """Output 0 may take over each operand of its shape and at least its width."""
    return _in_place(op, range(len(op.inputs)))


def first_operand(op: Op) -> Effects:
    """Output 0 may take over operand 0; the others are parameters."""
    return _in_place(op, (0,))


def _in_place(op: Op, positions: Sequence[int]) -> Effects:
    """Return leave to take over those of some operands that are read element by element."""
    y = op.outputs[0] if op.outputs else None
    if y is None:
        return NO_EFFECTS
    pairs = []
    for position in positions:
        x = op.input(position)
        if (
            x is not None
            and x.is_activation
            and x.shape == y.shape
            and BITS[x.dtype] >= BITS[y.dtype]
        ):
            pairs.append(InPlace(position, 0))
    return Effects(in_place=tuple(pairs))


def view(op: Op) -> Effects:
    """Output 0 shows the bytes of operand 0."""
    x, y = op.input(0), op.outputs[0] if op.outputs else None
    if x is None or y is None or not x.is_activation or _size(x) != _size(y):
        return NO_EFFECTS
    return Effects(views=(View(0, 0),))


def concatenation(op: Op) -> Effects:
    """Operands are pieces of the output if nothing varies before the axis."""
    fused_activation = op.option(1, "b")
    return NO_EFFECTS if fused_activation else _joined(op, op.option(0, "i"))


def pack(op: Op) -> Effects:
    """Operands are slices of the output if nothing varies before the axis."""
    return _joined(op, op.option(1, "i"))


def _joined(op: Op, axis: int) -> Effects:
    """Operands follow each other in the output."""
    y = op.outputs[0] if op.outputs else None
    if y is None or not _contiguous(y, axis):
        return NO_EFFECTS
    views, offset = [], 0
    for position, x in enumerate(op.inputs):
        if x is None:
            return NO_EFFECTS
        # Quantized operands with another scale are computed, not copied.
        if x.is_activation and x.quantization == y.quantization and x.dtype == y.dtype:
            views.append(View(position, 0, offset, "output"))
        offset += _size(x)
    return Effects(views=tuple(views)) if offset == _size(y) else NO_EFFECTS


def split(op: Op) -> Effects:
    """Outputs are pieces of operand 1 if nothing varies before the axis, operand 0."""
    axis = op.numbers(0)
    return NO_EFFECTS if axis is None or len(axis) != 1 else _pieces(op, 1, axis[0])


def split_v(op: Op) -> Effects:
    """Outputs are pieces of operand 0 if nothing varies before the axis, operand 2."""
    axis = op.numbers(2)
    return NO_EFFECTS if axis is None or len(axis) != 1 else _pieces(op, 0, axis[0])


def unpack(op: Op) -> Effects:
    """Outputs are slices of operand 0 if nothing varies before the axis."""
    return _pieces(op, 0, op.option(1, "i"))


def _pieces(op: Op, position: int, axis: int) -> Effects:
    """Outputs follow each other in an operand."""
    x = op.input(position)
    if x is None or not x.is_activation or not _contiguous(x, axis):
        return NO_EFFECTS
    views, offset = [], 0
    for index, y in enumerate(op.outputs):
        if y is None:
            return NO_EFFECTS
        views.append(View(position, index, offset))
        offset += _size(y)
    return Effects(views=tuple(views)) if offset == _size(x) else NO_EFFECTS


def slice_(op: Op) -> Effects:
    """The output is a piece of the operand if its elements are neighbors there."""
    x, begin, size = op.input(0), op.numbers(1), op.numbers(2)
    if x is None or begin is None or size is None or not len(x.shape) == len(begin) == len(size):
        return NO_EFFECTS
    ranges = [
        (first, dim - first if count == -1 else count)
        for dim, first, count in zip(x.shape, begin, size, strict=True)
    ]
    return _window(op, x, ranges)


def strided_slice(op: Op) -> Effects:
    """The same for slices with strides, if they are 1 and no dimension is added."""
    x, begin, end, strides = op.input(0), op.numbers(1), op.numbers(2), op.numbers(3)
    if x is None or begin is None or end is None or strides is None:
        return NO_EFFECTS
    begin_mask, end_mask, ellipsis_mask, new_axis_mask, shrink_mask = (
        op.option(slot, "i") for slot in range(5)
    )
    plain = not (ellipsis_mask or new_axis_mask or op.option(5, "B"))
    if not plain or not len(begin) == len(end) == len(strides) <= len(x.shape):
        return NO_EFFECTS
    ranges = []
    for axis, dim in enumerate(x.shape):
        if axis >= len(begin):
            ranges.append((0, dim))
            continue
        if strides[axis] != 1:
            return NO_EFFECTS
        first = 0 if begin_mask >> axis & 1 else begin[axis] + (dim if begin[axis] < 0 else 0)
        if shrink_mask >> axis & 1:
            last = first + 1
        else:
            last = dim if end_mask >> axis & 1 else end[axis] + (dim if end[axis] < 0 else 0)
        ranges.append((first, min(last, dim) - first))
    return _window(op, x, ranges)


def _window(op: Op, x: Operand, ranges: Sequence[tuple[int, int]]) -> Effects:
    """The output is the part of ``x`` that first indices and counts select, if it is one range."""
    y = op.outputs[0] if op.outputs else None
    if y is None or not x.is_activation or BITS[x.dtype] < 8 or x.dtype != y.dtype:
        return NO_EFFECTS
    if any(
        first < 0 or count < 1 or first + count > dim
        for dim, (first, count) in zip(x.shape, ranges, strict=True)
    ):
        return NO_EFFECTS
    counts = [count for _, count in ranges]
    cut = [axis for axis, dim in enumerate(x.shape) if counts[axis] < dim]
    if (cut and prod(counts[: cut[-1]]) > 1) or prod(counts) != prod(y.shape):
        return NO_EFFECTS
    first = sum(start * prod(x.shape[axis + 1 :]) for axis, (start, _) in enumerate(ranges))
    return Effects(views=(View(0, 0, first * BITS[x.dtype] // 8),))


def transpose(op: Op) -> Effects:
    """A copy if only dimensions of 1 change places."""
    x, perm = op.input(0), op.numbers(1)
    if x is None or perm is None or sorted(perm) != list(range(len(x.shape))):
        return NO_EFFECTS
    moved = [axis for axis in perm if x.shape[axis] != 1]
    return view(op) if moved == sorted(moved) else NO_EFFECTS


def _contiguous(operand: Operand, axis: int) -> bool:
    """Whether a range along ``axis`` is one range of whole bytes."""
    rank = len(operand.shape)
    axis += rank if axis < 0 else 0
    return 0 <= axis < rank and prod(operand.shape[:axis]) == 1 and BITS[operand.dtype] >= 8


def _size(operand: Operand) -> int:
    """Return the bytes of an operand."""
    return array_bytes(operand.shape, operand.dtype)


_ELEMENTWISE = """
    ADD ADD_N ATAN2 BITWISE_XOR DIV EQUAL FLOOR_DIV FLOOR_MOD GREATER GREATER_EQUAL LESS
    LESS_EQUAL LOGICAL_AND LOGICAL_OR MAXIMUM MINIMUM MUL NOT_EQUAL POW RIGHT_SHIFT SELECT
    SELECT_V2 SQUARED_DIFFERENCE SUB
"""

_FIRST_OPERAND = """
    ABS CAST CEIL COS DEQUANTIZE ELU EXP FAKE_QUANT FLOOR GELU HARD_SWISH LEAKY_RELU LOG
    LOGICAL_NOT LOGISTIC LOG_SOFTMAX NEG PRELU QUANTIZE RELU RELU6 RELU_0_TO_1 RELU_N1_TO_1
    ROUND RSQRT SIGN SIN SOFTMAX SQRT SQUARE TANH
"""

EFFECTS: Mapping[str, Rule] = {
    **dict.fromkeys(_ELEMENTWISE.split(), elementwise),
    **dict.fromkeys(_FIRST_OPERAND.split(), first_operand),
    "BITCAST": view,
    "CONCATENATION": concatenation,
    "EXPAND_DIMS": view,
    "PACK": pack,
    "RESHAPE": view,
    "SLICE": slice_,
    "SPLIT": split,
    "SPLIT_V": split_v,
    "SQUEEZE": view,
    "STRIDED_SLICE": strided_slice,
    "TRANSPOSE": transpose,
    "UNPACK": unpack,
}
"""Effects by builtin operator."""

_ROWS = "BATCH_MATMUL FULLY_CONNECTED LOG_SOFTMAX SOFTMAX"
_ANCHORS = "CONV_2D DEPTHWISE_CONV_2D TRANSPOSE_CONV"

PIECES: Mapping[str, Pieces] = {
    **dict.fromkeys(_ELEMENTWISE.split(), "elements"),
    **dict.fromkeys(_FIRST_OPERAND.split(), "first"),
    **dict.fromkeys(_ROWS.split(), "rows"),
    **dict.fromkeys(_ANCHORS.split(), "any"),
}
"""In which pieces builtin operators can work."""


def pieces(name: str, options: Table | None) -> Pieces | None:
    """Return in which pieces a builtin operator can work."""
    if name == "BATCH_MATMUL" and options is not None and options.number(0, "B", 0):
        return "any"  # Of a transposed operand, a row of the result needs a column.
    return PIECES.get(name)


LOADS = frozenset({"BATCH_MATMUL", "CONV_2D", "FULLY_CONNECTED"})
"""Operators that can copy operand 0 tile by tile before they compute with it."""

IGNORES: Mapping[str, tuple[int, ...]] = {"RANK": (0,), "SHAPE": (0,), "ZEROS_LIKE": (0,)}
"""Inputs of which only the shape is used."""

RESOURCES = frozenset(
    {
        "ASSIGN_VARIABLE",
        "HASHTABLE",
        "HASHTABLE_FIND",
        "HASHTABLE_IMPORT",
        "HASHTABLE_SIZE",
        "READ_VARIABLE",
        "VAR_HANDLE",
    }
)
"""Operators that read or write state outside of tensors; they stay in their order."""

CALLS = frozenset(
    {
        "CALL",
        "CALL_ONCE",
        "IF",
        "STABLEHLO_CASE",
        "STABLEHLO_COMPOSITE",
        "STABLEHLO_REDUCE",
        "STABLEHLO_REDUCE_WINDOW",
        "STABLEHLO_SCATTER",
        "STABLEHLO_SORT",
        "STABLEHLO_WHILE",
        "WHILE",
    }
)
"""Operators that run another subgraph."""
