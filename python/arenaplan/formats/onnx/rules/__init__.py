"""
Table of shape rules for operator results.

Common operators have rules, which also refuse senseless attributes. The rules are written for
speed, because inference takes most of the time to read a model, and agree with the package ``onnx``
on all its node tests. The package infers all other standard operators, one at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from arenaplan.formats.onnx.node_facts import Result
from arenaplan.formats.onnx.op import Op
from arenaplan.formats.onnx.own_operators import OWN
from arenaplan.formats.onnx.rules import (
    attention_rules,
    elementwise_rules,
    layout_rules,
    reduce_rules,
    signal_rules,
    window_rules,
)
from arenaplan.formats.onnx.rules.contrib_rules import CONTRIB_RULES, MICROSOFT
from arenaplan.formats.onnx.rules.training_rules import TRAINING_RULES
from arenaplan.graph.ops.own_ops import EXTREMES, QUANTIZATION, REQUANTIZE, SCALE, SINKS

Rule: TypeAlias = Callable[[Op], Sequence[Result]]

RULES: Mapping[str, Rule] = {
    **dict.fromkeys(elementwise_rules.SAME, elementwise_rules.same),
    **dict.fromkeys(elementwise_rules.ARITHMETIC, elementwise_rules.arithmetic),
    **dict.fromkeys(elementwise_rules.COMPARISONS, elementwise_rules.comparison),
    **dict.fromkeys(elementwise_rules.VARIADIC, elementwise_rules.variadic),
    **dict.fromkeys(reduce_rules.REDUCTIONS, reduce_rules.reduction),
    "ArgMax": reduce_rules.arg_reduction,
    "ArgMin": reduce_rules.arg_reduction,
    "Attention": attention_rules.attention,
    "AveragePool": window_rules.pool,
    "BatchNormalization": elementwise_rules.batch_norm,
    "Cast": elementwise_rules.cast,
    "CastLike": elementwise_rules.cast_like,
    "Compress": layout_rules.compress,
    "Concat": layout_rules.concat,
    "Constant": layout_rules.constant,
    "ConstantOfShape": layout_rules.constant_of_shape,
    "Conv": window_rules.conv,
    "ConvInteger": window_rules.conv_integer,
    "ConvTranspose": window_rules.conv_transpose,
    "DequantizeLinear": elementwise_rules.dequantize,
    "Dropout": elementwise_rules.dropout,
    "Expand": layout_rules.expand,
    "EyeLike": layout_rules.eye_like,
    "Flatten": layout_rules.flatten,
    "Gather": layout_rules.gather,
    "GatherElements": layout_rules.gather_elements,
    "GatherND": layout_rules.gather_nd,
    "Gemm": reduce_rules.gemm,
    "GlobalAveragePool": window_rules.global_pool,
    "GlobalLpPool": window_rules.global_pool,
    "GlobalMaxPool": window_rules.global_pool,
    "GroupNormalization": elementwise_rules.channel_norm,
    "InstanceNormalization": elementwise_rules.channel_norm,
    "IsInf": elementwise_rules.predicate,
    "IsNaN": elementwise_rules.predicate,
    "LRN": elementwise_rules.lrn,
    "LayerNormalization": elementwise_rules.layer_norm,
    "LogSoftmax": elementwise_rules.softmax,
    "LpPool": window_rules.pool,
    "MatMul": reduce_rules.matmul,
    "MatMulInteger": reduce_rules.matmul_integer,
    "MaxPool": window_rules.pool,
    "MaxUnpool": window_rules.max_unpool,
    "MeanVarianceNormalization": elementwise_rules.same,
    "NonZero": layout_rules.nonzero,
    "OneHot": layout_rules.one_hot,
    "Pad": layout_rules.pad,
    "Pow": elementwise_rules.power,
    "QLinearConv": window_rules.qlinear_conv,
    "QLinearMatMul": reduce_rules.qlinear_matmul,
    "QuantizeLinear": elementwise_rules.quantize,
    "RMSNormalization": elementwise_rules.layer_norm,
    "RandomNormal": layout_rules.random,
    "RandomNormalLike": layout_rules.random_like,
    "RandomUniform": layout_rules.random,
    "RandomUniformLike": layout_rules.random_like,
    "Range": layout_rules.range_,
    "Reshape": layout_rules.reshape,
    "Resize": layout_rules.resize,
    "STFT": signal_rules.stft,
    "Scatter": elementwise_rules.scatter,
    "ScatterElements": elementwise_rules.scatter,
    "ScatterND": elementwise_rules.same,
    "Shape": layout_rules.shape_,
    "Size": layout_rules.size,
    "Slice": layout_rules.slice_,
    "Softmax": elementwise_rules.softmax,
    "Split": layout_rules.split,
    "Squeeze": layout_rules.squeeze,
    "TensorScatter": elementwise_rules.same,
    "Tile": layout_rules.tile,
    "TopK": reduce_rules.top_k,
    "Transpose": layout_rules.transpose,
    "Unsqueeze": layout_rules.unsqueeze,
    "Upsample": layout_rules.resize,
    "Where": elementwise_rules.where,
}
"""Rules by operator in the default domain."""

_QUANTIZING: dict[str, Rule] = {
    EXTREMES: reduce_rules.extremes,
    REQUANTIZE: elementwise_rules.quantize,
    SCALE: reduce_rules.scale,
}
"""Rules by operator in this package's domain for quantized models."""


def rule_of(op: Op) -> Rule | None:
    """Return an operator's rule, if this package has one."""
    if not op.domain:
        return RULES.get(op.type) or TRAINING_RULES.get(op.type)
    if op.domain == QUANTIZATION:
        return _QUANTIZING.get(op.type)
    if op.domain == SINKS:
        return attention_rules.attention
    own = OWN.get((op.domain, op.type))
    if own is not None or op.domain != MICROSOFT:
        return None if own is None else own.results
    return CONTRIB_RULES.get(op.type) or TRAINING_RULES.get(op.type)
