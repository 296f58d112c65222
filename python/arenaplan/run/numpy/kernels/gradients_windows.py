"""Gradients of convolutions with respect to the weights, and of pools."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod

import numpy as np

from arenaplan.graph import Choice
from arenaplan.graph.ops.own_ops import TRAINING
from arenaplan.graph.ops.window_ops import Axis, Index, taps
from arenaplan.run.numpy.kernels.pieces import operand, result
from arenaplan.run.numpy.kernels.windows import ints
from arenaplan.run.numpy.registry import Run, Signature, Step, kernel, scratch_bytes


def _axes(signature: Signature, image: Sequence[int], made: Sequence[int]) -> list[Axis]:
    """Return how a window slides from an image to a result, whose spatial shapes are given."""
    kernel_shape = signature.attributes["kernel_shape"]
    rank = len(kernel_shape)
    strides = ints(signature, "strides", [1] * rank)
    dilations = ints(signature, "dilations", [1] * rank)
    pads = ints(signature, "pads", [0] * (2 * rank))
    return [
        Axis(image[k], made[k], kernel_shape[k], strides[k], dilations[k], pads[k], pads[rank + k])
        for k in range(rank)
    ]


# -- convolution ----------------------------------------------------------------------------------


def _declare_weight(signature: Signature) -> Sequence[Sequence[Choice]]:
    """Ask for a contiguous copy of one tap's image part, a copy of the result, and a product."""
    x, dy, dw = signature.input(0), signature.input(1), signature.outputs[0]
    if x is None or dy is None or dw is None or 0 in (*x.shape, *dy.shape):
        return []
    space, group = prod(dy.shape[2:]), signature.attributes.get("group", 1)
    wide, made = x.shape[1] // group, dy.shape[1] // group
    sizes = [(wide, space), (made, space), (made, wide)]
    return [[Choice(sum(scratch_bytes(size, x.dtype) for size in sizes), 0.0)]]


@kernel("ConvGradWeight", domain=TRAINING, workspace=_declare_weight)
def conv_weight_gradient(step: Step) -> Run | None:
    """Multiply the results' gradient by the image under each window element."""
    x, dy, dw = operand(step, 0), operand(step, 1), result(step)
    if 0 in (*x.shape, *dy.shape) or dw.size == 0:
        return lambda: dw.fill(0)
    group = step.attributes.get("group", 1)
    wide, made, space = x.shape[1] // group, dy.shape[1] // group, prod(dy.shape[2:])
    scratch = step.scratch()
    seen, given, part = (
        scratch.array(size, x.dtype) for size in ((wide, space), (made, space), (made, wide))
    )
    images = x.reshape(x.shape[0], group, wide, *x.shape[2:])
    made_of = dy.reshape(dy.shape[0], group, made, *dy.shape[2:])
    weights = dw.reshape(group, made, wide, *dw.shape[2:])
    parts = list(taps(_axes(step.signature, x.shape[2:], dy.shape[2:])))

    def run() -> None:
        dw.fill(0)
        for tap, read, write in parts:
            count = prod(span.stop - span.start for span in write)
            left, right = given[:, :count], seen[:, :count]
            if count < space:  # A shorter row of contiguous memory.
                left = given.reshape(-1)[: made * count].reshape(made, count)
                right = seen.reshape(-1)[: wide * count].reshape(wide, count)
            for n, g in product(range(len(images)), range(group)):
                window, grown = (
                    images[(n, g, slice(None), *read)],
                    made_of[(n, g, slice(None), *write)],
                )
                np.copyto(right.reshape(window.shape), window)
                np.copyto(left.reshape(grown.shape), grown)
                np.matmul(left, right.T, out=part)
                place: Index = (g, slice(None), slice(None), *tap)
                target = weights[place]
                np.add(target, part, out=target)

    return run


# -- pools ----------------------------------------------------------------------------------------


def _declare_max(signature: Signature) -> Sequence[Sequence[Choice]]:
    """Ask for marks on the windows in a sample that have found their greatest element."""
    dy = signature.input(0)
    if dy is None or 0 in dy.shape:
        return []
    marks = scratch_bytes(dy.shape[1:], np.bool_)
    return [[Choice(2 * marks + scratch_bytes(dy.shape[1:], dy.dtype), 0.0)]]


@kernel("MaxPoolGrad", domain=TRAINING, workspace=_declare_max)
def max_pool_gradient(step: Step) -> Run | None:
    """Add each window's gradient to the window's first greatest element, in row-major order."""
    dy, x, y, dx = operand(step, 0), operand(step, 1), operand(step, 2), result(step)
    if dx.size == 0 or dy.size == 0:
        return lambda: dx.fill(0)
    scratch = step.scratch()
    open_, hit = (scratch.array(dy.shape[1:], np.bool_) for _ in range(2))
    room = scratch.array(dy.shape[1:], dy.dtype)
    parts = list(taps(_axes(step.signature, x.shape[2:], dy.shape[2:])))

    def run() -> None:
        dx.fill(0)
        for sample, greatest, gradient, target in zip(x, y, dy, dx, strict=True):
            open_.fill(True)
            for _, read, write in parts:
                box, source = (slice(None), *write), (slice(None), *read)
                mark = hit[box]
                np.equal(sample[source], greatest[box], out=mark)
                np.logical_and(mark, open_[box], out=mark)
                np.multiply(gradient[box], mark, out=room[box])
                np.add(target[source], room[box], out=target[source])
                np.logical_not(mark, out=mark)
                np.logical_and(open_[box], mark, out=open_[box])

    return run


def _declare_average(signature: Signature) -> Sequence[Sequence[Choice]]:
    """Ask for one sample's scaled gradient."""
    dy = signature.input(0)
    if dy is None or 0 in dy.shape:
        return []
    return [[Choice(scratch_bytes(dy.shape[1:], dy.dtype), 0.0)]]


@kernel("AveragePoolGrad", domain=TRAINING, workspace=_declare_average)
def average_pool_gradient(step: Step) -> Run | None:
    """Spread each window's gradient evenly over the averaged elements."""
    dy, dx = operand(step, 0), result(step)
    if dx.size == 0 or dy.size == 0:
        return lambda: dx.fill(0)
    axes = _axes(step.signature, dx.shape[2:], dy.shape[2:])
    share = _shares(axes, counts_pads=bool(step.attributes.get("count_include_pad", 0)))
    share = share.astype(dy.dtype)
    room = step.scratch().array(dy.shape[1:], dy.dtype)
    parts = list(taps(axes))

    def run() -> None:
        dx.fill(0)
        for gradient, target in zip(dy, dx, strict=True):
            np.multiply(gradient, share, out=room)
            for _, read, write in parts:
                source = (slice(None), *read)
                np.add(target[source], room[(slice(None), *write)], out=target[source])

    return run


def _shares(axes: Sequence[Axis], *, counts_pads: bool) -> np.ndarray:
    """Return for each window the share of one element in the average."""
    counts = np.ones(())
    for axis in axes:
        low, high = (-axis.before, axis.size + axis.after) if counts_pads else (0, axis.size)
        along = [max(axis.within(position, low, high), 1) for position in range(axis.out)]
        counts = np.multiply.outer(counts, np.array(along, np.float64))
    share: np.ndarray = 1 / counts
    return share
