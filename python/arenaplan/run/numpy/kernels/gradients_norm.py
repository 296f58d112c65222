"""
Gradient of normalizations by the mean and variance of the operand.

One kernel for layer, root-mean-square, instance, group and batch normalization. With
``v = (x - mean) / sqrt(var + epsilon)`` and ``y = v scale + bias``::

    dv = dy scale
    dx = (dv - mean(dv) - v mean(dv v)) / sqrt(var + epsilon)

Means go over the statistics' axes. The mean itself is 0 by definition, and ``mean(dv)`` drops out,
where a normalization does not center. The work is cut along an axis that the statistics do not go
over, so that scratch memory is small.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

import numpy as np

from arenaplan.graph import Choice
from arenaplan.graph.ops.own_ops import TRAINING
from arenaplan.run.numpy.kernels.pieces import operand, result
from arenaplan.run.numpy.registry import Run, Signature, Step, kernel, scratch_bytes

_BLOCK = 1 << 14
"""Least elements in a part, if the operand has so many."""


class _Layout(NamedTuple):
    """The operand with channels split into groups, and axes in that shape."""

    shape: tuple[int, ...]
    axes: tuple[int, ...]
    """Axes of the statistics."""
    along: tuple[int, ...]
    """Axes of the scale."""
    walked: int | None
    """Axis that parts are cut from."""
    length: int
    """Indices along that axis per part."""

    @property
    def part(self) -> tuple[int, ...]:
        """Shape of a part."""
        if self.walked is None:
            return self.shape
        return (*self.shape[: self.walked], self.length, *self.shape[self.walked + 1 :])

    def reduced(self, over: Sequence[int]) -> tuple[int, ...]:
        """Return a part's shape after a reduction that keeps axes."""
        return tuple(1 if k in over else dim for k, dim in enumerate(self.part))

    @property
    def others(self) -> tuple[int, ...]:
        """Axes that the scale does not have."""
        return tuple(k for k in range(len(self.shape)) if k not in self.along)


def _layout(signature: Signature) -> _Layout:
    x = signature.operand(1)
    shape, groups = x.shape, signature.attributes.get("groups", 1)
    if groups > 1:
        shape = (shape[0], groups, shape[1] // groups, *shape[2:])
    axes = tuple(signature.attributes["axes"])
    walked = next((k for k in range(len(shape)) if k not in axes), None)
    length = 0
    if walked is not None:
        each = max(prod(shape) // max(shape[walked], 1), 1)
        length = max(1, min(shape[walked], -(-_BLOCK // each)))
    return _Layout(shape, axes, tuple(signature.attributes["along"]), walked, length)


def _declare(signature: Signature) -> Sequence[Sequence[Choice]]:
    """Ask for two parts, the statistics of one part, and sums for scale and bias."""
    x = signature.inputs[1]
    if x is None or 0 in x.shape:
        return []
    layout = _layout(signature)
    sizes = (layout.part, layout.part, layout.reduced(layout.axes), layout.reduced(layout.axes))
    sums = (layout.reduced(layout.others),)
    total = sum(scratch_bytes(size, x.dtype) for size in (*sizes, *sums))
    return [[Choice(total, 0.0)]]


@kernel("NormalizationGrad", domain=TRAINING, workspace=_declare)
def normalization_gradient(step: Step) -> Run | None:
    """Write the gradients of operand, scale and bias."""
    gradient, x, scale = (operand(step, k) for k in range(3))
    made = [result(step, 0), result(step, 1), step.output(2)]
    dx, dscale, dbias = made
    assert dx is not None
    assert dscale is not None

    def clear() -> None:
        for target in (dscale, dbias):
            if target is not None:
                target.fill(0)

    if x.size == 0:
        return clear
    layout, scratch = _layout(step.signature), step.scratch()
    shape, axes, others = layout.shape, layout.axes, layout.others
    rooms = [scratch.array(layout.part, x.dtype) for _ in range(2)]
    means = [scratch.array(layout.reduced(axes), x.dtype) for _ in range(2)]
    sums = scratch.array(layout.reduced(others), x.dtype)
    wide = tuple(dim if k in layout.along else 1 for k, dim in enumerate(shape))
    arrays = [array.reshape(shape) for array in (gradient, x, dx)]
    narrow = [None if a is None else a.reshape(wide) for a in (scale, dscale, dbias)]
    number = x.dtype.type
    epsilon = number(step.attributes.get("epsilon", 1e-5))
    share = number(1 / prod(shape[k] for k in axes))
    is_centered = bool(step.attributes.get("is_centered", 1))

    def part(start: int, stop: int) -> None:
        walked = layout.walked
        count = stop - start

        def cut(array: np.ndarray | None) -> np.ndarray | None:
            if array is None or walked is None or array.shape[walked] == 1:
                return array
            return array[(slice(None),) * walked + (slice(start, stop),)]

        def room(array: np.ndarray) -> np.ndarray:
            if walked is None or array.shape[walked] == 1 or array.shape[walked] == count:
                return array
            return array[(slice(None),) * walked + (slice(0, count),)]

        dy, data, target = (cut(array) for array in arrays)
        factor, to_scale, to_bias = (cut(array) for array in narrow)
        v, dv = map(room, rooms)
        mean, other = map(room, means)
        total = room(sums)
        assert dy is not None
        assert data is not None
        assert target is not None
        assert factor is not None
        assert to_scale is not None
        if is_centered:
            np.add.reduce(data, axis=axes, keepdims=True, out=mean)
            np.multiply(mean, share, out=mean)
            np.subtract(data, mean, out=v)
        else:
            np.copyto(v, data)
        np.multiply(v, v, out=dv)
        np.add.reduce(dv, axis=axes, keepdims=True, out=other)
        np.multiply(other, share, out=other)
        np.add(other, epsilon, out=other)
        np.sqrt(other, out=other)
        np.divide(v, other, out=v)
        np.multiply(dy, v, out=dv)
        np.add.reduce(dv, axis=others, keepdims=True, out=total)
        np.add(to_scale, total, out=to_scale)
        if to_bias is not None:
            np.add.reduce(dy, axis=others, keepdims=True, out=total)
            np.add(to_bias, total, out=to_bias)
        # From here on `dv v` is in `dv`, then `dv` itself is in the target.
        np.multiply(dv, factor, out=dv)
        np.add.reduce(dv, axis=axes, keepdims=True, out=mean)
        np.multiply(mean, share, out=mean)
        np.multiply(v, mean, out=v)
        np.multiply(dy, factor, out=target)
        if is_centered:
            np.add.reduce(target, axis=axes, keepdims=True, out=mean)
            np.multiply(mean, share, out=mean)
            np.subtract(target, mean, out=target)
        np.subtract(target, v, out=target)
        np.divide(target, other, out=target)

    def run() -> None:
        clear()
        if layout.walked is None:
            part(0, 1)
            return
        for start in range(0, shape[layout.walked], layout.length):
            part(start, min(start + layout.length, shape[layout.walked]))

    return run
