"""
Shape rules for gradient graph operators, written by ONNX Runtime Training.

The package ``onnx`` has no schema; operands and results follow ONNX Runtime's definitions
(``orttraining/core/graph/training_op_defs.cc``). Gradient operators whose shapes do not follow from
an operand, such as ``MaxPoolGrad``, need a declared shape; otherwise the error names the node.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias

from arenaplan.formats.onnx.node_facts import Result
from arenaplan.formats.onnx.op import Op
from arenaplan.formats.onnx.rules import elementwise_rules, layout_rules, reduce_rules

Rule: TypeAlias = Callable[[Op], Sequence[Result]]


def _like(*positions: int) -> Rule:
    """Return a rule for results with the shapes and types of present inputs."""

    def rule(op: Op) -> Sequence[Result]:
        found: list[Result] = []
        for position in positions:
            x = op.optional(position)
            found.append(((), "bool") if x is None else (x.shape, x.dtype))
        return found

    return rule


def _conv_grad(op: Op) -> Sequence[Result]:
    """The gradients of image, weights, and bias with an element per output channel."""
    x, w = op.input(1), op.input(2)
    return ((x.shape, x.dtype), (w.shape, w.dtype), (w.shape[:1], w.dtype))


def _norm_grad(op: Op) -> Sequence[Result]:
    """The gradients of data, scale and shift."""
    x, scale = op.input(1), op.input(2)
    return ((x.shape, x.dtype), (scale.shape, scale.dtype), (scale.shape, scale.dtype))


def _scattered(shape: int, updates: int) -> Rule:
    """Return a rule for a result whose shape is an input's content."""
    return lambda op: ((op.numbers(shape), op.input(updates).dtype),)


def _cross_entropy(op: Op) -> Sequence[Result]:
    """The loss, a scalar or per label, and the logarithms of probabilities."""
    logits, label = op.input(0), op.input(1)
    one_hot = op.type == "SoftmaxCrossEntropy"
    none = label.shape[:-1] if one_hot else label.shape
    loss = none if op.text("reduction", "mean") == "none" else ()
    return ((loss, logits.dtype), (logits.shape, logits.dtype))


def _concat(op: Op) -> Sequence[Result]:
    """The joined inputs, and each input's length."""
    return (*layout_rules.concat(op), ((len(op.inputs),), "int64"))


def _flag(op: Op) -> Sequence[Result]:
    """A boolean."""
    return (((), "bool"),)


ACTIVATIONS: Final = (
    *("FastGeluGrad", "GeluGrad", "LeakyReluGrad", "QuickGeluGrad", "ReluGrad", "SigmoidGrad"),
    "TanhGrad",
)
"""Gradients of elementwise functions, from the output's gradient and an operand."""

TRAINING_RULES: Final[Mapping[str, Rule]] = {
    **dict.fromkeys(ACTIVATIONS, elementwise_rules.same),
    **dict.fromkeys(("DropoutGrad", "Scale", "ZeroGradient"), elementwise_rules.same),
    **dict.fromkeys(("LogSoftmaxGrad", "LogSoftmaxGrad_13"), elementwise_rules.same),
    **dict.fromkeys(("SoftmaxGrad", "SoftmaxGrad_13"), elementwise_rules.same),
    **dict.fromkeys(("BatchNormalizationGrad", "LayerNormalizationGrad"), _norm_grad),
    **dict.fromkeys(("Group", "IsAllFinite"), _flag),
    "AdamOptimizer": _like(1, 4, 5, 2, 3, 6),
    "ConcatTraining": _concat,
    "ConvGrad": _conv_grad,
    "DivGrad": _like(1, 2),
    "GatherElementsGrad": _scattered(1, 0),
    "GatherGrad": _scattered(0, 2),
    "GatherNDGrad": _scattered(0, 2),
    "InPlaceAccumulator": elementwise_rules.same,
    "InvertibleLayerNormalizationGrad": _norm_grad,
    "ReduceSumTraining": reduce_rules.reduction,
    "SGDOptimizer": _like(1, 2),
    "SimplifiedLayerNormalizationGrad": _norm_grad,
    "SoftmaxCrossEntropy": _cross_entropy,
    "SoftmaxCrossEntropyGrad": _like(1),
    "SoftmaxCrossEntropyLossGrad": _like(1),
    "SparseSoftmaxCrossEntropy": _cross_entropy,
    "SparseSoftmaxCrossEntropyGrad": _like(1),
}
"""Rules by operator, in ONNX Runtime's domain or, for some, in the default domain."""

REPLACES: Final[Mapping[str, Sequence[tuple[int, int]]]] = {
    "AdamOptimizer": ((1, 0), (4, 1), (5, 2), (2, 3), (3, 4), (6, 5)),
    "InPlaceAccumulator": ((0, 0),),
    "SGDOptimizer": ((1, 0), (2, 1)),
    "ZeroGradient": ((0, 0),),
}
"""Inputs that kernels overwrite element by element, with the output that does, by operator."""
