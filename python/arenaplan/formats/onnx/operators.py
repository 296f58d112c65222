"""
Table from ONNX operators to canonical operators.

Copies are not declared as views: the executor runs copies piece by piece like other nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Final

from arenaplan.base.errors import ShapeMismatch
from arenaplan.formats.onnx.op import DataDependent, OnnxOperand, Op
from arenaplan.formats.onnx.own_operators import OWN
from arenaplan.formats.onnx.rules.contrib_rules import MICROSOFT
from arenaplan.formats.onnx.rules.elementwise_rules import (
    ARITHMETIC,
    COMPARISONS,
    SAME,
    VARIADIC,
    trains,
)
from arenaplan.formats.onnx.rules.layout_rules import pads, slices, split_sizes
from arenaplan.formats.onnx.rules.reduce_rules import REDUCTIONS, extremes_axis, reduced_axes
from arenaplan.formats.onnx.rules.training_rules import ACTIVATIONS, REPLACES
from arenaplan.formats.onnx.rules.window_rules import window
from arenaplan.graph import NO_EFFECTS, Effects, InPlace, ops
from arenaplan.graph.ops.own_ops import EXTREMES, QUANTIZATION, REQUANTIZE, SCALE
from arenaplan.graph.ops.window_ops import same_padding


def _batch_norm(op: Op) -> ops.Operator | None:
    """Training reads the data twice."""
    return None if trains(op) else ops.FirstOperand(channel=1)


def _dropout(op: Op) -> ops.Operator | None:
    """No operator when training: elements are dropped at random."""
    if op.version < 7 and not op.attributes.get("is_test", 0):
        return None
    return None if op.optional(2) is not None and op.array(2).any() else ops.RESHAPE


def _normalize(axis: int) -> Callable[[Op], ops.Operator | None]:
    """Return a normalization by statistics, unless these are asked for, too."""

    def operator(op: Op) -> ops.Operator | None:
        return None if any(op.outputs[1:]) else ops.Normalize(op.integer("axis", axis))

    return operator


def _channels(axis: int) -> Callable[[Op], ops.Operator | None]:
    """Return a normalization from an axis on, unless the node also outputs statistics."""
    operator = ops.Normalize(axis, channel=1)
    return lambda op: None if any(op.outputs[1:]) else operator


def _softmax(op: Op) -> ops.Operator:
    """Until version 13, everything from the axis on belonged together by definition."""
    return ops.Normalize(op.integer("axis", 1 if op.version < 13 else -1))


def _gather(op: Op) -> ops.Operator | None:
    """A single known row is a slice."""
    if prod(op.input(1).shape) != 1:
        return None
    return ops.one_index(op.input(0).shape, op.integer("axis", 0), int(op.array(1).item()))


_CROPS: Final = "tf_crop_and_resize"


def _resize(op: Op) -> ops.Operator | None:
    """Channels are independent if neither mixed nor moved."""
    first = op.version < 11 or op.type == "Upsample"
    if not first and op.text("coordinate_transformation_mode", "half_pixel") == _CROPS:
        return None
    if op.text("keep_aspect_ratio_policy", "stretch") != "stretch":
        return None
    axes = op.integers("axes")
    rank = len(op.input(0).shape)
    where = tuple(range(rank)) if axes is None else op.axes(axes, rank)
    sizes = None if first else op.optional(3)
    if sizes is None or sizes.shape == (0,):
        if op.type == "Upsample" and op.version < 9:
            scales = op.attributes.get("scales", ())
        else:
            scales = op.array(1 if first else 2).reshape(-1).tolist()
        if any(scale != 1 for axis, scale in zip(where, scales, strict=True) if axis < 2):
            return None
    return ops.PLANES


def _rows(op: Op, kernel: Sequence[int] | None = None) -> ops.Slide | None:
    """Return how result rows see image rows."""
    space = op.input(0).shape[2:]
    if len(space) < 2:
        return None
    sliding = window(op, len(space), None if kernel is None else tuple(kernel))
    stride, before = sliding.strides[0], sliding.before[0]
    extent = (sliding.kernel[0] - 1) * sliding.dilations[0] + 1
    if sliding.auto_pad == "VALID":
        before = 0
    elif sliding.auto_pad.startswith("SAME"):
        total = same_padding(space[0], stride, extent)
        before = total // 2 if sliding.auto_pad == "SAME_UPPER" else total - total // 2
    return ops.Slide(extent, stride, before)


def _convolution(op: Op) -> ops.Operator:
    return ops.Convolution(op.integer("group", 1), _rows(op, op.input(1).shape[2:]))


def _pool(op: Op) -> ops.Operator:
    return ops.Pool(_rows(op))


def _conv_transpose(op: Op) -> ops.Operator:
    """With padding rules that depend on the whole size, rows are needed whole."""
    space, kernel = op.input(0).shape[2:], op.input(1).shape[2:]
    if len(space) < 2 or op.integers("output_shape") is not None:
        return ops.WHOLE
    sliding = window(op, len(space), kernel)
    stride, before = sliding.strides[0], sliding.before[0]
    extent = (kernel[0] - 1) * sliding.dilations[0] + 1
    if sliding.auto_pad != "NOTSET" or extent < stride or sliding.dilations[0] > 1:
        return ops.WHOLE
    return ops.Whole(ops.Slide(extent - stride + 1, 1, extent - stride - before, stride))


def _transpose(op: Op) -> ops.Operator:
    """Dimensions are reversed if no order is given."""
    return ops.Transpose(op.integers("perm") or range(len(op.input(0).shape))[::-1])


_UNARY: Final = (
    *(op for op in SAME if op not in ("CumProd", "CumSum", "Identity", "Trilu")),
    *("IsInf", "IsNaN", "QuantizeLinear", "DequantizeLinear"),
)
_POOLS: Final = (*("GlobalAveragePool", "GlobalLpPool", "GlobalMaxPool"),)

OPERATORS: Final[ops.Table[Op]] = {
    **dict.fromkeys((*ARITHMETIC, *COMPARISONS, *VARIADIC, "Pow", "Where"), ops.ELEMENTWISE),
    **dict.fromkeys(_UNARY, ops.FIRST_OPERAND),
    **dict.fromkeys(_POOLS, ops.PLANES),
    **dict.fromkeys(("AveragePool", "LpPool", "MaxPool"), _pool),
    **dict.fromkeys(REDUCTIONS, lambda op: ops.Reduce(reduced_axes(op, len(op.input(0).shape)))),
    **dict.fromkeys(("EyeLike", "RandomNormalLike", "RandomUniformLike"), ops.SHAPE_ONLY),
    **dict.fromkeys(("Expand", "Flatten", "Identity", "Reshape", "Squeeze"), ops.RESHAPE),
    **dict.fromkeys(("Tile", "Unsqueeze"), ops.RESHAPE),
    **dict.fromkeys(("LayerNormalization", "RMSNormalization"), _normalize(-1)),
    **dict.fromkeys(("LogSoftmax", "Softmax"), _softmax),
    **dict.fromkeys(("GRU", "LSTM", "RNN"), ops.Loop(5, 2, result=1)),
    **dict.fromkeys(("Resize", "Upsample"), _resize),
    **dict.fromkeys(("Scatter", "ScatterElements", "ScatterND", "TensorScatter"), ops.UPDATE),
    "BatchNormalization": _batch_norm,
    "Cast": ops.CONVERT,
    "CastLike": ops.CONVERT,
    "Concat": lambda op: ops.Concat(op.integer("axis", 1)),
    "Conv": _convolution,
    "ConvTranspose": _conv_transpose,
    "Dropout": _dropout,
    "DynamicQuantizeLinear": ops.Normalize(0),
    "Gather": _gather,
    "Gemm": lambda op: ops.Product(bool(op.integer("transA", 0))),
    "GroupNormalization": _channels(0),
    "InstanceNormalization": _channels(2),
    "LRN": lambda op: ops.Neighbors((op.integer("size") - 1) // 2, op.integer("size") // 2),
    "LinearAttention": ops.Loop(3, 1, result=1),
    "MatMul": ops.PRODUCT,
    "Pad": lambda op: ops.Pad(pads(op, len(op.input(0).shape))),
    "Slice": lambda op: ops.Slice(slices(op, op.input(0).shape)),
    "Split": lambda op: ops.Split(op.integer("axis", 0), split_sizes(op)),
    "Transpose": _transpose,
}
"""Canonical operators by operator in the default domain."""

CONTRIB_OPERATORS: Final[ops.Table[Op]] = {
    **dict.fromkeys(("QLinearAdd", "QLinearMul"), ops.ELEMENTWISE),
    **dict.fromkeys(ACTIVATIONS, ops.ELEMENTWISE),
    "DropoutGrad": ops.ELEMENTWISE,
    "ReduceSumTraining": OPERATORS["ReduceSum"],
    "Scale": ops.FIRST_OPERAND,
}
"""Canonical operators by operator in ONNX Runtime's domain."""

_TABLES: Final[Mapping[str, ops.Table[Op]]] = {
    "": OPERATORS,
    MICROSOFT: CONTRIB_OPERATORS,
    QUANTIZATION: {
        EXTREMES: lambda op: ops.Extremes(extremes_axis(len(op.input(0).shape))),
        REQUANTIZE: ops.FIRST_OPERAND,
        SCALE: ops.WHOLE,
    },
}
"""Canonical operators by domain."""

_COPIES: Final = frozenset(["Cast", "CastLike", "Expand", "Pad", "Tile", "Transpose"])
"""Operators that the executor runs even if they only copy."""

_IGNORES: Final = {"CastLike": (1,)}
"""Inputs of which only the type is used, besides the inputs in :data:`OPERATORS`."""


def node_effects(op: Op, outputs: Sequence[OnnxOperand | None]) -> Effects:
    """Return the effects of an operator with known results."""
    own = OWN.get((op.domain, op.type))
    if own is not None:
        return own.effects(op, outputs)
    table = _TABLES.get(op.domain, {})
    if op.domain == MICROSOFT and op.type in REPLACES:
        return _replacing(op, outputs)
    if op.type not in table:
        return NO_EFFECTS
    try:
        operator = ops.lookup(table, op.type, op)
    except DataDependent:
        return NO_EFFECTS
    node = ops.Operands(op.inputs, outputs)
    copies = op.type in _COPIES
    if operator is ops.RESHAPE and not copies:
        _check_size(op, node)
    effects = ops.effects_of(operator, node, copies=copies)
    windows = () if copies else ops.windows_of(operator, node)
    if windows:
        effects = effects._replace(windows=windows)
    ignores = _IGNORES.get(op.type)
    if ignores:
        return effects._replace(ignores=ignores, flows=())
    return effects._replace(repeats=True) if ops.repeats(operator, node) else effects


def _replacing(op: Op, outputs: Sequence[OnnxOperand | None]) -> Effects:
    """Permit an optimizer's results to overwrite the replaced operands."""
    pairs = []
    for position, result in REPLACES[op.type]:
        x, y = op.optional(position), outputs[result] if result < len(outputs) else None
        if x is not None and y is not None and (x.shape, x.dtype) == (y.shape, y.dtype):
            pairs.append(InPlace(position, result))
    return Effects(in_place=tuple(pairs))


def _check_size(op: Op, node: ops.Operands) -> None:
    """Refuse a result whose shape was only declared, and does not fit the data."""
    x, y = op.input(0).shape, node.y
    if y is not None and prod(x) != prod(y.shape):
        raise op.error(ShapeMismatch, f"data of shape {x} cannot take shape {y.shape}")
