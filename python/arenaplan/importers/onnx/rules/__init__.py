"""
Which shapes an operator's results have: one table.

Common operators have rules of their own, which also refuse attributes that make no
sense. They are written for speed, because inference is most of the time that reading
a model takes, and they agree with the inference of the package ``onnx`` on all of its
node tests. All other operators of the standard are left to that package, one at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from arenaplan.importers.onnx.op import Op, Result
from arenaplan.importers.onnx.rules import elementwise, layout, reduce, signal, windows
from arenaplan.importers.onnx.rules.contrib import CONTRIB_RULES, MICROSOFT
from arenaplan.importers.onnx.rules.training import TRAINING_RULES
from arenaplan.ops.own import EXTREMES, QUANTIZATION, REQUANTIZE, SCALE

Rule: TypeAlias = Callable[[Op], Sequence[Result]]

RULES: Mapping[str, Rule] = {
    **dict.fromkeys(elementwise.SAME, elementwise.same),
    **dict.fromkeys(elementwise.ARITHMETIC, elementwise.arithmetic),
    **dict.fromkeys(elementwise.COMPARISONS, elementwise.comparison),
    **dict.fromkeys(elementwise.VARIADIC, elementwise.variadic),
    **dict.fromkeys(reduce.REDUCTIONS, reduce.reduction),
    "ArgMax": reduce.arg_reduction,
    "ArgMin": reduce.arg_reduction,
    "AveragePool": windows.pool,
    "BatchNormalization": elementwise.batch_norm,
    "Cast": elementwise.cast,
    "CastLike": elementwise.cast_like,
    "Compress": layout.compress,
    "Concat": layout.concat,
    "Constant": layout.constant,
    "ConstantOfShape": layout.constant_of_shape,
    "Conv": windows.conv,
    "ConvInteger": windows.conv_integer,
    "ConvTranspose": windows.conv_transpose,
    "DepthToSpace": layout.depth_to_space,
    "DequantizeLinear": elementwise.dequantize,
    "Dropout": elementwise.dropout,
    "Expand": layout.expand,
    "EyeLike": layout.eye_like,
    "Flatten": layout.flatten,
    "Gather": layout.gather,
    "GatherElements": layout.gather_elements,
    "GatherND": layout.gather_nd,
    "Gemm": reduce.gemm,
    "GlobalAveragePool": windows.global_pool,
    "GlobalLpPool": windows.global_pool,
    "GlobalMaxPool": windows.global_pool,
    "GroupNormalization": elementwise.channel_norm,
    "Hardmax": elementwise.softmax,
    "InstanceNormalization": elementwise.channel_norm,
    "IsInf": elementwise.predicate,
    "IsNaN": elementwise.predicate,
    "LRN": elementwise.lrn,
    "LayerNormalization": elementwise.layer_norm,
    "LogSoftmax": elementwise.softmax,
    "LpNormalization": elementwise.same,
    "LpPool": windows.pool,
    "MatMul": reduce.matmul,
    "MatMulInteger": reduce.matmul_integer,
    "MaxPool": windows.pool,
    "MeanVarianceNormalization": elementwise.same,
    "NonZero": layout.nonzero,
    "OneHot": layout.one_hot,
    "Pad": layout.pad,
    "Pow": elementwise.power,
    "QLinearConv": windows.qlinear_conv,
    "QLinearMatMul": reduce.qlinear_matmul,
    "QuantizeLinear": elementwise.quantize,
    "RMSNormalization": elementwise.layer_norm,
    "RandomNormal": layout.random,
    "RandomNormalLike": layout.random_like,
    "RandomUniform": layout.random,
    "RandomUniformLike": layout.random_like,
    "Range": layout.range_,
    "Reshape": layout.reshape,
    "Resize": layout.resize,
    "STFT": signal.stft,
    "Scatter": elementwise.scatter,
    "ScatterElements": elementwise.scatter,
    "ScatterND": elementwise.same,
    "Shape": layout.shape_,
    "Size": layout.size,
    "Slice": layout.slice_,
    "Softmax": elementwise.softmax,
    "SpaceToDepth": layout.space_to_depth,
    "Split": layout.split,
    "Squeeze": layout.squeeze,
    "Tile": layout.tile,
    "TopK": reduce.top_k,
    "Transpose": layout.transpose,
    "Unsqueeze": layout.unsqueeze,
    "Upsample": layout.resize,
    "Where": elementwise.where,
}
"""Rules by operator of the default domain."""

_QUANTIZING: dict[str, Rule] = {
    EXTREMES: reduce.extremes,
    REQUANTIZE: elementwise.quantize,
    SCALE: reduce.scale,
}
"""Rules by operator of this package for quantized models."""


def rule_of(op: Op) -> Rule | None:
    """Return the rule of an operator, if this package has one."""
    if not op.domain:
        return RULES.get(op.type) or TRAINING_RULES.get(op.type)
    if op.domain == QUANTIZATION:
        return _QUANTIZING.get(op.type)
    if op.domain != MICROSOFT:
        return None
    return CONTRIB_RULES.get(op.type) or TRAINING_RULES.get(op.type)
