"""Gradients of gradient operators: second derivatives."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from arenaplan.train.gradients.gradient_rules import Gradients, Site, composed, rule
from arenaplan.train.gradients.window_gradients import image_gradient


@rule("ReluGrad", reads="x1")
def relu_grad(at: Site) -> Gradients:
    """Keep the gradient where Relu's result is positive; the slope is constant."""
    return [at.op.ReluGrad(at.dy, at.x(1)), None]


def _of_slope(op: str, bend: Callable[[Site], int]) -> None:
    """Register the gradients of ``dy f(y)``: by ``dy`` the same operator, by ``y`` ``f'``."""

    @rule(op, reads="x0 x1")
    def gradients(at: Site) -> Gradients:
        first = getattr(at.op, op)(at.dy, at.x(1)) if at.wants(0) else None
        second = None
        if at.wants(1):
            second = at.op.Mul(at.op.Mul(at.dy, at.x(0)), bend(at))
        return [first, second]


_of_slope("SigmoidGrad", lambda at: at.op.Sub(at.number(1), at.op.Mul(at.x(1), at.number(2))))
_of_slope("TanhGrad", lambda at: at.op.Mul(at.x(1), at.number(-2)))


@rule("DropoutGrad", reads="x1 x2")
def dropout_grad(at: Site) -> Gradients:
    """Keep the elements that the mask keeps."""
    rest = [None] * (len(at.node.inputs) - 1)
    return [at.op.DropoutGrad(at.dy, at.x(1), at.x(2) if at.has(2) else None), *rest]


@rule("SliceGrad")
def slice_grad(at: Site) -> Gradients:
    """Take the slice."""
    starts, steps, made = at.attribute("starts"), at.attribute("steps"), at.shape(0)
    stops = []
    for start, step, count, dim in zip(starts, steps, made, at.attribute("shape"), strict=True):
        stop = start + step * count
        stops.append(stop if stop >= 0 else -dim - 1)
    rows = (starts, stops, range(len(made)), steps)
    return [at.op.Slice(at.dy, *(np.array(row, np.int64) for row in rows)) if made else at.dy]


@rule("GatherGrad", reads="x1")
def gather_grad(at: Site) -> Gradients:
    """Gather."""
    return [at.op.Gather(at.dy, at.x(1), axis=at.attribute("axis", 0)), None]


@rule("AveragePoolGrad")
def average_pool_grad(at: Site) -> Gradients:
    """Average over each window."""
    names = ("kernel_shape", "strides", "pads", "dilations", "ceil_mode", "count_include_pad")
    given = {name: at.attribute(name) for name in names if at.attribute(name) is not None}
    return [at.op.AveragePool(at.dy, **given)]


@rule("ConvGradWeight", reads="x0 x1")
def conv_grad_weight(at: Site) -> Gradients:
    """Convolve with the gradient as weights: the products are those of a convolution."""
    window = {name: at.attribute(name) for name in ("kernel_shape", "strides", "pads", "dilations")}
    group = at.attribute("group", 1)
    image = found = None
    if at.wants(0):
        image = image_gradient(at, at.x(1), at.dy, at.shape(0), window)
    if at.wants(1):
        found = at.op.Conv(at.x(0), at.dy, group=group, **window)
    return [image, found]


@composed("SoftmaxGrad")
def softmax_grad(at: Site) -> Gradients:
    """Compose ``y (dy - sum(dy y))``."""
    op, axes = at.op, np.array([at.attribute("axis", -1)], np.int64)
    total = op.ReduceSum(op.Mul(at.x(0), at.x(1)), axes, keepdims=1)
    return [op.Mul(at.x(1), op.Sub(at.x(0), total))]


@composed("LogSoftmaxGrad")
def log_softmax_grad(at: Site) -> Gradients:
    """Compose ``dy - exp(y) sum(dy)``."""
    op, axes = at.op, np.array([at.attribute("axis", -1)], np.int64)
    total = op.ReduceSum(at.x(0), axes, keepdims=1)
    return [op.Sub(at.x(0), op.Mul(op.Exp(at.x(1)), total))]


@composed("NormalizationGrad")
def normalization_grad(at: Site) -> Gradients:
    """Compose a normalization's gradients from a mean and a mean of squares."""
    op, shape = at.op, at.shape(1)
    groups, axes = at.attribute("groups", 1), np.array(at.attribute("axes"), np.int64)
    along = at.attribute("along")
    split = (shape[0], groups, shape[1] // groups, *shape[2:]) if groups > 1 else shape
    wide = [dim if k in along else 1 for k, dim in enumerate(split)]
    others = np.array([k for k in range(len(split)) if k not in along], np.int64)

    def apart(value: int) -> int:
        return op.Reshape(value, np.array(split, np.int64)) if groups > 1 else value

    def mean(value: int) -> int:
        made: int = op.ReduceMean(value, axes, keepdims=1)
        return made

    dy, x = apart(at.x(0)), apart(at.x(1))
    centered = op.Sub(x, mean(x)) if at.attribute("is_centered", 1) else x
    square = mean(op.Mul(centered, centered))
    root = op.Sqrt(op.Add(square, at.number(at.attribute("epsilon", 1e-5))))
    normal = op.Div(centered, root)
    scaled = op.Mul(dy, op.Reshape(at.x(2), np.array(wide, np.int64)))
    rest = op.Sub(scaled, op.Mul(normal, mean(op.Mul(scaled, normal))))
    if at.attribute("is_centered", 1):
        rest = op.Sub(rest, mean(scaled))
    dx = op.Reshape(op.Div(rest, root), np.array(shape, np.int64))

    def per_scale(value: int) -> int:
        total = op.ReduceSum(value, others, keepdims=1) if others.size else value
        made: int = op.Reshape(total, np.array(at.shape(2), np.int64))
        return made

    return [dx, per_scale(op.Mul(dy, normal)), per_scale(dy)]


@composed("SoftmaxCrossEntropyLossGrad")
def softmax_cross_entropy_loss_grad(at: Site) -> Gradients:
    """Compose ``dloss w (exp(log p) - labels)``, divided by a mean's weights."""
    op, shape = at.op, at.shape(1)
    ignored, reduction = at.attribute("ignore_index"), at.attribute("reduction", "mean")
    dtype = at.read(1).dtype
    labels = op.Unsqueeze(at.x(2), np.array([1], np.int64))
    classes = np.arange(shape[1]).reshape(-1, *[1] * (len(shape) - 2))
    kind = op.constant(np.zeros((), dtype), name="type")
    is_label = op.CastLike(op.Equal(op.Cast(labels, to=7), classes.astype(np.int64)), kind)
    weight = is_label
    if at.has(3):
        own = op.Reshape(at.x(3), np.array(classes.shape, np.int64))
        weight = op.Mul(is_label, own)
    weight = op.ReduceSum(weight, np.array([1], np.int64), keepdims=1)
    if ignored is not None:
        is_kept = op.Not(op.Equal(op.Cast(labels, to=7), np.int64(ignored)))
        weight = op.Mul(weight, op.CastLike(is_kept, kind))
    dloss = at.x(0)
    if reduction == "none":
        dloss = op.Unsqueeze(dloss, np.array([1], np.int64))
    elif reduction == "mean":
        dloss = op.Div(dloss, op.ReduceSum(weight, keepdims=0))
    return [op.Mul(op.Mul(dloss, weight), op.Sub(op.Exp(at.x(1)), is_label))]
