"""Gradients of convolutions and pools."""

from __future__ import annotations

from typing import Any

import numpy as np

from arenaplan.graph.ops.window_ops import same_padding
from arenaplan.train.gradients.gradient_rules import Gradients, Site, count, rule


def _window(
    at: Site, kernel: tuple[int, ...], image: tuple[int, ...], made: tuple[int, ...]
) -> dict[str, Any]:
    """Return the attributes of a window from image to result, with pads as numbers."""
    rank = len(kernel)
    strides = tuple(at.attribute("strides") or (1,) * rank)
    dilations = tuple(at.attribute("dilations") or (1,) * rank)
    pads = tuple(at.attribute("pads") or (0,) * (2 * rank))
    auto_pad = at.attribute("auto_pad", "NOTSET")
    if auto_pad == "VALID":
        pads = (0,) * (2 * rank)
    elif auto_pad.startswith("SAME"):
        before, after = [], []
        for k in range(rank):
            extent = (kernel[k] - 1) * dilations[k] + 1
            total = same_padding(image[2 + k], strides[k], extent)
            small, large = total // 2, total - total // 2
            before.append(small if auto_pad == "SAME_UPPER" else large)
            after.append(large if auto_pad == "SAME_UPPER" else small)
        pads = (*before, *after)
    return {"kernel_shape": kernel, "strides": strides, "pads": pads, "dilations": dilations}


def _space(at: Site) -> tuple[int, ...]:
    """Return the result's axes except the channel axis."""
    return (0, *range(2, len(at.made().shape)))


def _bias(at: Site) -> int | None:
    """Return the gradient of a bias per channel."""
    if not at.wants(2):
        return None
    made: int = at.op.ReduceSum(at.dy, np.array(_space(at), np.int64), keepdims=0)
    return made


def image_gradient(
    at: Site, dy: int, weights: int, image: tuple[int, ...], window: dict[str, Any]
) -> int:
    """Return a convolution's image gradient: the result gradient convolved transposed."""
    made, kernel, rest = at.graph.values[dy].shape, window["kernel_shape"], []
    rank = len(kernel)
    for k in range(rank):
        extent = (kernel[k] - 1) * window["dilations"][k] + 1
        pads = window["pads"][k] + window["pads"][rank + k]
        reach = (made[2 + k] - 1) * window["strides"][k] + extent - pads
        rest.append(image[2 + k] - reach)
    group = at.attribute("group", 1)
    found: int = at.op.ConvTranspose(dy, weights, group=group, output_padding=rest, **window)
    return found


@rule("Conv", reads="x0 x1")
def conv(at: Site) -> Gradients:
    """Convolve the gradient transposed; correlate image and gradient for the weights."""
    x, made, kernel = at.shape(0), at.made().shape, at.shape(1)[2:]
    window, group = _window(at, kernel, x, made), at.attribute("group", 1)
    found: list[int | None] = [None] * len(at.node.inputs)
    if at.wants(0):
        found[0] = image_gradient(at, at.dy, at.x(1), x, window)
    if at.wants(1):
        found[1] = at.op.ConvGradWeight(at.x(0), at.dy, group=group, **window)
    if len(found) > 2:
        found[2] = _bias(at)
    return found


@rule("ConvTranspose", reads="x0 x1")
def conv_transpose(at: Site) -> Gradients:
    """Convolve the gradient; correlate gradient and image for the weights."""
    if at.attribute("output_shape") or at.attribute("auto_pad", "NOTSET") != "NOTSET":
        raise at.refusal("an output that is padded by rule has no gradient")
    made, x, kernel = at.made().shape, at.shape(0), at.shape(1)[2:]
    window, group = _window(at, kernel, made, x), at.attribute("group", 1)
    # Elements behind the last window, which `output_padding` adds, take part in no product.
    rank = len(kernel)
    pads = list(window["pads"])
    stops = []
    for k in range(rank):
        extent = (kernel[k] - 1) * window["dilations"][k] + 1
        reach = (x[2 + k] - 1) * window["strides"][k] + extent
        pads[rank + k] = max(reach - made[2 + k] - pads[k], 0)
        stops.append(min(reach - pads[k], made[2 + k]))
    window["pads"] = tuple(pads)
    found: list[int | None] = [None] * len(at.node.inputs)
    if at.wants(0):
        seen = at.dy
        if tuple(stops) != made[2:]:
            axes = np.arange(2, 2 + rank)
            seen = at.op.Slice(seen, np.zeros(rank, np.int64), np.array(stops, np.int64), axes)
        found[0] = at.op.Conv(seen, at.x(1), group=group, **window)
    if at.wants(1):
        found[1] = at.op.ConvGradWeight(at.dy, at.x(0), group=group, **window)
    if len(found) > 2:
        found[2] = _bias(at)
    return found


@rule("MaxPool", reads="x0 y0")
def max_pool(at: Site) -> Gradients:
    """Give the gradient to each window's first maximum."""
    kernel = at.attribute("kernel_shape")
    window = _window(at, tuple(kernel), at.shape(0), at.made().shape)
    return [at.op.MaxPoolGrad(at.dy, at.x(0), at.y(), **window)]


@rule("AveragePool")
def average_pool(at: Site) -> Gradients:
    """Spread the gradient over each window."""
    kernel = at.attribute("kernel_shape")
    window = _window(at, tuple(kernel), at.shape(0), at.made().shape)
    counts = at.attribute("count_include_pad", 0)
    return [at.op.AveragePoolGrad(at.dy, count_include_pad=counts, shape=at.shape(0), **window)]


@rule("GlobalAveragePool")
def global_average_pool(at: Site) -> Gradients:
    """Spread the gradient over the image."""
    shape = at.shape(0)
    share = at.op.Mul(at.dy, at.number(1 / max(count(shape, range(2, len(shape))), 1)))
    return [at.op.Expand(share, np.array(shape, np.int64))]


@rule("GlobalMaxPool", reads="x0 y0")
def global_max_pool(at: Site) -> Gradients:
    """Share the gradient evenly among the greatest elements."""
    op = at.op
    number = op.constant(np.zeros((), at.read(0).dtype), name="type")
    mark = op.CastLike(op.Equal(at.x(0), at.y()), number)
    axes = np.arange(2, at.rank())
    return [op.Mul(mark, op.Div(at.dy, op.ReduceSum(mark, axes, keepdims=1)))]
