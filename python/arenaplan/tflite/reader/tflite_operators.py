"""
Table from TFLite operators to canonical operators.

An operator that is not in the table, such as a custom operator, reads all inputs and writes all
outputs. Kernels make images pixel by pixel.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from arenaplan.graph import ops
from arenaplan.graph.ops.window_ops import same_padding
from arenaplan.tflite.reader.operator_options import OperatorOptions
from arenaplan.tflite.reader.tflite_model import Quantization, TfliteOperator


class TfliteOperand(NamedTuple):
    """Facts about an input or output."""

    shape: ops.Shape
    dtype: str
    quantization: Quantization | None
    is_fixed: bool
    """Whether the bytes are outside the arena, or kept between runs."""
    numbers: tuple[int, ...] | None
    """The elements of a small constant with whole numbers."""


class TfliteOp(NamedTuple):
    """A node as seen by the table."""

    inputs: Sequence[TfliteOperand | None]
    outputs: Sequence[TfliteOperand | None]
    options: OperatorOptions

    def shape(self, position: int = 0) -> ops.Shape:
        """Return an input's shape; a scalar's shape if left out."""
        operand = self.inputs[position] if position < len(self.inputs) else None
        return () if operand is None else operand.shape

    def numbers(self, position: int) -> tuple[int, ...] | None:
        """Return a constant input's whole numbers."""
        operand = self.inputs[position] if position < len(self.inputs) else None
        return None if operand is None else operand.numbers


def _concatenation(op: TfliteOp) -> ops.Operator | None:
    """Inputs are computed with if an activation is fused."""
    return None if op.options.number(1) else _joined(op, op.options.number(0))


def _joined(op: TfliteOp, axis: int) -> ops.Operator:
    """Quantized inputs with another scale than the output are computed, not copied."""
    scale = op.outputs[0].quantization if op.outputs and op.outputs[0] is not None else None
    scales = [None if x is None else x.quantization for x in op.inputs]
    return ops.Concat(axis, [at for at, own in enumerate(scales) if own != scale])


def _split(source: int, axis: int) -> Callable[[TfliteOp], ops.Operator | None]:
    """Return a split of an input along the axis given by another input."""

    def operator(op: TfliteOp) -> ops.Operator | None:
        axes = op.numbers(axis)
        return None if axes is None or len(axes) != 1 else ops.Split(axes[0], source=source)

    return operator


def _slice(op: TfliteOp) -> ops.Operator | None:
    """First indices and sizes; size -1 takes the rest."""
    shape, begin, sizes = op.shape(), op.numbers(1), op.numbers(2)
    if begin is None or sizes is None or not len(shape) == len(begin) == len(sizes):
        return None
    return ops.Slice(
        [
            range(first, dim if count == -1 else first + count)
            for dim, first, count in zip(shape, begin, sizes, strict=True)
        ]
    )


def _strided_slice(op: TfliteOp) -> ops.Operator | None:
    """The same with ends and strides, if no dimension is added."""
    shape, begin, end, strides = op.shape(), op.numbers(1), op.numbers(2), op.numbers(3)
    if begin is None or end is None or strides is None:
        return None
    begin_mask, end_mask, ellipsis_mask, new_axis_mask, shrink_mask = (
        op.options.number(slot) for slot in range(5)
    )
    plain = not (ellipsis_mask or new_axis_mask or op.options.number(5))
    if not plain or not len(begin) == len(end) == len(strides) <= len(shape):
        return None
    taken = [range(dim) for dim in shape]
    for axis, (first, last, step) in enumerate(zip(begin, end, strides, strict=True)):
        dim = shape[axis]
        if step != 1:
            return None
        first = 0 if begin_mask >> axis & 1 else first + (dim if first < 0 else 0)
        last = dim if end_mask >> axis & 1 else last + (dim if last < 0 else 0)
        taken[axis] = range(first, first + 1 if shrink_mask >> axis & 1 else min(last, dim))
    return ops.Slice(taken)


def _transpose(op: TfliteOp) -> ops.Operator | None:
    perm = op.numbers(1)
    return None if perm is None else ops.Transpose(perm)


_SAME: Final = 0
"""The padding with which the output is as large as the image, divided by the stride."""


def _windows(op: TfliteOp, size: tuple[int, int]) -> tuple[ops.Slide, ops.Slide] | None:
    """Return windows of a given size that slide over rows and columns."""
    x, y = op.shape(), op.outputs[0].shape if op.outputs and op.outputs[0] is not None else ()
    strides = (op.options.number(2), op.options.number(1))
    if len(x) != 4 or len(y) != 4 or min(*strides, *size) < 1:
        return None
    before = [0, 0]
    if op.options.number(0) == _SAME:
        for at, (stride, extent) in enumerate(zip(strides, size, strict=True)):
            before[at] = same_padding(x[1 + at], stride, extent) // 2
    rows, columns = map(ops.Slide, size, strides, before)
    return rows, columns


def _convolution(slot: int, *, unrolls: bool) -> Callable[[TfliteOp], ops.Operator]:
    """Return a convolution with the column dilation in a slot and the row dilation in the next."""

    def operator(op: TfliteOp) -> ops.Operator:
        filters = op.shape(1)
        windows = None
        if len(filters) == 4:
            dilations = (op.options.number(slot + 1), op.options.number(slot))
            height, width = (
                (n - 1) * dilation + 1 for n, dilation in zip(filters[1:3], dilations, strict=True)
            )
            windows = _windows(op, (height, width))
        if windows is None:
            return ops.CONVOLUTION if unrolls else ops.WHOLE
        return ops.PixelwiseConvolution(*windows, unrolls)

    return operator


def _pool(op: TfliteOp) -> ops.Operator | None:
    """Windows as large as the options say."""
    windows = _windows(op, (op.options.number(4), op.options.number(3)))
    return None if windows is None else ops.Pixelwise(*windows)


_ELEMENTWISE: Final = """
    ADD ADD_N ATAN2 BITWISE_XOR DIV EQUAL FLOOR_DIV FLOOR_MOD GREATER GREATER_EQUAL LESS
    LESS_EQUAL LOGICAL_AND LOGICAL_OR MAXIMUM MINIMUM MUL NOT_EQUAL POW RIGHT_SHIFT SELECT
    SELECT_V2 SQUARED_DIFFERENCE SUB
"""
ELEMENTWISE: Final = frozenset(_ELEMENTWISE.split())
"""Operators on operands that are broadcast to the result."""

_FIRST_OPERAND: Final = """
    ABS CAST CEIL COS DEQUANTIZE ELU EXP FAKE_QUANT FLOOR GELU HARD_SWISH LEAKY_RELU LOG
    LOGICAL_NOT LOGISTIC NEG PRELU QUANTIZE RELU RELU6 RELU_0_TO_1 RELU_N1_TO_1
    ROUND RSQRT SIGN SIN SQRT SQUARE TANH
"""
FIRST_OPERAND: Final = frozenset(_FIRST_OPERAND.split())
"""Operators on each element of the first operand."""

OPERATORS: Final[ops.Table[TfliteOp]] = {
    **dict.fromkeys(sorted(ELEMENTWISE), ops.ELEMENTWISE),
    **dict.fromkeys(sorted(FIRST_OPERAND), ops.FIRST_OPERAND),
    **dict.fromkeys(("AVERAGE_POOL_2D", "L2_POOL_2D", "MAX_POOL_2D"), _pool),
    **dict.fromkeys(("EXPAND_DIMS", "RESHAPE", "SQUEEZE"), ops.RESHAPE),
    **dict.fromkeys(("LOG_SOFTMAX", "SOFTMAX"), ops.Normalize(-1)),
    **dict.fromkeys(("RANK", "SHAPE", "ZEROS_LIKE"), ops.SHAPE_ONLY),
    "BATCH_MATMUL": lambda op: ops.Product(bool(op.options.number(0))),
    "BITCAST": ops.BITCAST,
    "CONCATENATION": _concatenation,
    "CONV_2D": _convolution(4, unrolls=True),
    "DEPTHWISE_CONV_2D": _convolution(5, unrolls=False),
    "DYNAMIC_UPDATE_SLICE": ops.UPDATE,
    "FULLY_CONNECTED": ops.PRODUCT,
    "PACK": lambda op: _joined(op, op.options.number(1)),
    "SLICE": _slice,
    "SPLIT": _split(1, axis=0),
    "SPLIT_V": _split(0, axis=2),
    "STRIDED_SLICE": _strided_slice,
    "TRANSPOSE": _transpose,
    "TRANSPOSE_CONV": ops.WHOLE,
    "UNPACK": lambda op: ops.Split(op.options.number(1)),
}
"""Canonical operators by builtin operator."""


def canonical(
    operator: TfliteOperator,
    inputs: Sequence[TfliteOperand | None],
    outputs: Sequence[TfliteOperand | None],
) -> ops.Operator | None:
    """Return an operator's canonical operator, if any; a custom operator has none."""
    if operator.is_custom:
        return None
    return ops.lookup(OPERATORS, operator.name, TfliteOp(inputs, outputs, operator.options))


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
"""Operators with state outside tensors; these keep their order."""

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
