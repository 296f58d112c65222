"""Deformable convolution: a product of weights with samples at moved places."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod

import numpy as np

from arenaplan.graph import Choice
from arenaplan.run.numpy.kernels.pieces import invalid, operand, result
from arenaplan.run.numpy.kernels.sampling import BLOCK, Sampler
from arenaplan.run.numpy.kernels.widen import heavy_kernel
from arenaplan.run.numpy.registry import Run, Signature, Step, scratch_bytes


class _Deformed:
    """Sizes in a deformable convolution."""

    def __init__(self, signature: Signature) -> None:
        x, w, y = signature.operand(0), signature.operand(1), signature.result()
        self.groups = int(signature.attributes.get("group", 1))
        self.offset_groups = int(signature.attributes.get("offset_group", 1))
        self.kernel = w.shape[2:]
        self.taps = prod(self.kernel)
        self.channels = x.shape[1]
        self.each = self.channels // max(self.offset_groups, 1)
        """Channels that share offsets."""
        self.positions = prod(y.shape[2:])
        fits = BLOCK // max(self.channels * self.taps, 1)
        self.count = max(1, min(self.positions, max(fits, 64)))
        """Positions at a time."""
        self.dtype = x.dtype

    @property
    def bytes(self) -> int:
        """Size of the scratch memory."""
        columns = scratch_bytes((self.channels * self.taps, self.count), self.dtype)
        return columns + Sampler.bytes(2, self.each, self.count, self.dtype)


def _declare_deformed(signature: Signature) -> Sequence[Sequence[Choice]]:
    y = signature.outputs[0]
    if y is None or 0 in y.shape or len(y.shape) != 4:
        return []
    return [[Choice(_Deformed(signature).bytes, 0.0)]]


@heavy_kernel("DeformConv", since=19, workspace=_declare_deformed)
def deform_conv(step: Step) -> Run | None:
    """Convolve image samples whose places are moved by offsets."""
    x, weights, offsets, y = (operand(step, 0), operand(step, 1), operand(step, 2), result(step))
    if y.ndim != 4:
        raise invalid(step, f"it convolves images, not data of shape {x.shape}")
    if y.size == 0:
        return None
    sizes = _Deformed(step.signature)
    strides = step.attributes.get("strides") or (1, 1)
    dilations = step.attributes.get("dilations") or (1, 1)
    pads = step.attributes.get("pads") or (0, 0, 0, 0)
    bias, mask = step.input(3), step.input(4)
    scratch = step.scratch()
    columns = scratch.array((sizes.channels, sizes.taps, sizes.count), x.dtype)
    sampler = Sampler(x.shape[2:], sizes.each, sizes.count, scratch, x.dtype)
    shape = (len(x), sizes.offset_groups, sizes.taps, 2, sizes.positions)
    moved = offsets.reshape(shape)
    masks = None if mask is None else mask.reshape(*shape[:3], sizes.positions)
    matrix = weights.reshape(sizes.groups, -1, weights.shape[1] * sizes.taps)
    taps = list(product(*map(range, sizes.kernel)))
    places = np.indices(y.shape[2:]).reshape(2, -1).astype(x.dtype)
    places *= np.array(strides, x.dtype)[:, None]

    def load(sample: int, start: int, stop: int) -> None:
        for group in range(sizes.offset_groups):
            own = slice(group * sizes.each, (group + 1) * sizes.each)
            image = x[sample, own].reshape(sizes.each, -1)
            for tap, place in enumerate(taps):
                for axis, at in enumerate(sampler.at):
                    first = place[axis] * dilations[axis] - pads[axis]
                    part = at[: stop - start]
                    np.add(
                        places[axis, start:stop], moved[sample, group, tap, axis, start:stop], part
                    )
                    np.add(part, x.dtype.type(first), part)
                target = columns[own, tap, : stop - start]
                sampler.sample(image, target)
                if masks is not None:
                    np.multiply(target, masks[sample, group, tap, start:stop], target)

    def run() -> None:
        for sample in range(len(x)):
            output = y[sample].reshape(sizes.groups, -1, sizes.positions)
            for start in range(0, sizes.positions, sizes.count):
                stop = min(start + sizes.count, sizes.positions)
                load(sample, start, stop)
                for group, (own, target) in enumerate(zip(matrix, output, strict=True)):
                    each = sizes.channels // sizes.groups
                    part = columns[group * each : (group + 1) * each].reshape(each * sizes.taps, -1)
                    np.matmul(own, part[:, : stop - start], target[:, start:stop])
            if bias is not None:
                np.add(y[sample], bias[:, None, None], y[sample])

    return run
