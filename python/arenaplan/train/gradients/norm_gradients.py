"""Gradients of normalizations and losses."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from arenaplan.train.gradients.gradient_rules import Gradients, Site, rule


def _normalized(
    at: Site,
    axes: Sequence[int],
    along: Sequence[int],
    *,
    epsilon: float,
    groups: int = 1,
    is_centered: bool = True,
) -> Gradients:
    """Return the gradients of data, scale and bias."""
    outputs = 3 if at.wants(2) else 2
    made = at.op.NormalizationGrad(
        at.dy, at.x(0), at.x(1),
        axes=axes, along=along, groups=groups, epsilon=epsilon, is_centered=int(is_centered),
        outputs=outputs,
    )  # fmt: skip
    found = [*made, None][: max(len(at.node.inputs), 2)]
    return [*found, *[None] * (len(at.node.inputs) - len(found))]


@rule("LayerNormalization", "RMSNormalization", reads="x0 x1")
def layer_normalization(at: Site) -> Gradients:
    """Gradients by statistics that are computed again."""
    axis, rank = at.axis("axis", -1), at.rank()
    axes = tuple(range(axis, rank))
    if at.shape(1) != at.shape(0)[axis:]:
        raise at.refusal(f"a scale of shape {at.shape(1)} that is repeated has no gradient")
    if at.has(2) and at.shape(2) != at.shape(1):
        raise at.refusal(f"a bias of shape {at.shape(2)} that is repeated has no gradient")
    is_centered = at.node.op == "LayerNormalization"
    epsilon = at.attribute("epsilon", 1e-5)
    return _normalized(at, axes, axes, epsilon=epsilon, is_centered=is_centered)


@rule("InstanceNormalization", reads="x0 x1")
def instance_normalization(at: Site) -> Gradients:
    """Gradients by statistics per channel and sample."""
    return _normalized(at, range(2, at.rank()), (1,), epsilon=at.attribute("epsilon", 1e-5))


@rule("GroupNormalization", reads="x0 x1")
def group_normalization(at: Site) -> Gradients:
    """Gradients by statistics per channel group."""
    if at.shape(1) != at.shape(0)[1:2]:
        raise at.refusal("a scale per group, as before operator set 21, has no gradient")
    groups = int(at.attribute("num_groups"))
    if groups == 1:
        axes: tuple[int, ...] = tuple(range(1, at.rank()))
        return _normalized(at, axes, (1,), epsilon=at.attribute("epsilon", 1e-5))
    axes = tuple(range(2, at.rank() + 1))
    epsilon = at.attribute("epsilon", 1e-5)
    return _normalized(at, axes, (1, 2), epsilon=epsilon, groups=groups)


@rule("BatchNormalization", reads="x0 x1 x3 x4")
def batch_normalization(at: Site) -> Gradients:
    """Gradients by batch statistics in training, else by the given statistics."""
    op, rank, epsilon = at.op, at.rank(), at.attribute("epsilon", 1e-5)
    others = (0, *range(2, rank))
    if at.attribute("training_mode", 0):
        return _normalized(at, others, (1,), epsilon=epsilon)
    if at.wants(3) or at.wants(4):
        raise at.refusal("given statistics have no gradient")

    def wide(value: int) -> int:
        shape = np.array([-1, *[1] * (rank - 2)], np.int64)
        made: int = op.Reshape(value, shape)
        return made

    axes = np.array(others, np.int64)
    root = op.Sqrt(op.Add(at.x(4), at.number(epsilon, 4)))
    found: list[int | None] = [None] * 5
    if at.wants(0):
        found[0] = op.Mul(at.dy, wide(op.Div(at.x(1), root)))
    if at.wants(1):
        centered = op.Mul(at.dy, op.Sub(at.x(0), wide(at.x(3))))
        found[1] = op.Div(op.ReduceSum(centered, axes, keepdims=0), root)
    if at.wants(2):
        found[2] = op.ReduceSum(at.dy, axes, keepdims=0)
    return found


# -- losses ---------------------------------------------------------------------------------------


def _counted(at: Site) -> dict[str, object]:
    return {key: at.attribute(key) for key in ("reduction", "ignore_index")}


@rule("SoftmaxCrossEntropyLoss", reads="x1 x2 y1")
def softmax_cross_entropy_loss(at: Site) -> Gradients:
    """Subtract the labels from the probabilities, whose logarithms the node also writes."""
    if at.wants(2):
        raise at.refusal("weights of classes have no gradient")
    logarithms = at.also(1, at.shape(0), at.read(0).dtype)
    weights = at.x(2) if at.has(2) else None
    gradient = at.op.SoftmaxCrossEntropyLossGrad(
        at.dy, logarithms, at.x(1), weights, **_counted(at)
    )
    if at.flows(1):
        more = at.op.LogSoftmaxGrad(at.gradient(1), logarithms, axis=1)
        gradient = at.op.Add(gradient, more)
    return [gradient, *[None] * (len(at.node.inputs) - 1)]


@rule("NegativeLogLikelihoodLoss", reads="x1 x2")
def negative_log_likelihood_loss(at: Site) -> Gradients:
    """Write the weights at the labels."""
    if at.wants(2):
        raise at.refusal("weights of classes have no gradient")
    weights = at.x(2) if at.has(2) else None
    gradient = at.op.NegativeLogLikelihoodLossGrad(
        at.dy, at.x(1), weights, classes=at.shape(0)[1], **_counted(at)
    )
    return [gradient, *[None] * (len(at.node.inputs) - 1)]
