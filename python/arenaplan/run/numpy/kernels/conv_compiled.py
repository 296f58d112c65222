"""
Convolution by a compiled kernel, which unrolls a few columns of the image at a time.

Scratch memory holds 48 columns, or some channels in a zero frame, or a single padded plane where
every channel is by itself. Result bits do not depend on scratch memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import NamedTuple

import numpy as np

from arenaplan._core import CompiledKernel, pack_weights, packed_weights
from arenaplan.graph import Choice
from arenaplan.run.numpy.compiled import is_enabled, sides
from arenaplan.run.numpy.constants import Transformed, shared
from arenaplan.run.numpy.kernels.conv_tiles import (
    Geometry,
    geometry,
)
from arenaplan.run.numpy.kernels.pieces import operand, result, worthwhile
from arenaplan.run.numpy.registry import (
    Run,
    Signature,
    Step,
    scratch_bytes,
)

COLUMNS = 48
"""Columns that the kernel unrolls at a time; see ``kernels/src/conv.rs``."""
_ROOMS = (1 << 15, 1 << 13, 1 << 11, COLUMNS * 24)
"""Scratch elements within which the fastest way is offered."""
_FEW_OUTPUTS = 4
"""Most results per channel, for an image with one channel, without a matrix product."""
_SINGLE = np.dtype(np.float32)

_CALL, _PLANE = 1.0e3, 60.0
"""Nanoseconds per call, and per plane in a depthwise convolution."""
_CYCLE = 0.45
"""Nanoseconds per cycle that the kernel counts."""
_TAPS = 24.0
"""Operations per nanosecond in depthwise convolutions."""
_PADDED = 0.12
"""Nanoseconds to copy an element into the frame."""


class CompiledWay(NamedTuple):
    """A way to run a convolution."""

    elements: int
    """Scratch elements."""
    cost: float
    """Estimated nanoseconds."""


@dataclass(frozen=True)
class CompiledConv:
    """The sizes for a convolution and the scratch memory."""

    sizes: Geometry

    @cached_property
    def is_depthwise(self) -> bool:
        """True if every channel is convolved by itself, without a product."""
        return self.sizes.fan_in == 1 and self.sizes.fan_out <= _FEW_OUTPUTS

    def ways(self) -> Iterator[CompiledWay]:
        """Yield the ways that are worth the scratch memory."""
        sizes, axes = self.sizes, sides(self.sizes.axes)
        planes = sizes.batch * sizes.groups
        if self.is_depthwise:
            padded = planes * prod(axis.padded for axis in sizes.axes)
            results = planes * sizes.fan_out * sizes.rows * sizes.row
            time = 2 * results * sizes.taps / _TAPS + _PADDED * padded + _PLANE * planes
            yield CompiledWay(CompiledKernel.depthwise_scratch(*axes), _CALL + time)
            return
        for room in _ROOMS:
            way = CompiledKernel.conv_way(*axes, sizes.fan_in, sizes.fan_out, room)
            yield CompiledWay(way.elements, _CALL + _CYCLE * way.cycles * planes)

    def within(self, limit: int) -> CompiledWay:
        """Return the fastest way within ``limit`` bytes, or else the smallest."""
        ways = list(self.ways())
        fitting = [way for way in ways if scratch_bytes((way.elements,)) <= limit]
        return min(fitting, key=lambda way: way.cost) if fitting else min(ways)

    def choices(self) -> Sequence[Choice]:
        """Return the scratch sizes to declare."""
        return worthwhile(Choice(scratch_bytes((way.elements,)), way.cost) for way in self.ways())


def compiled_conv(signature: Signature) -> CompiledConv | None:
    """Return the sizes for a Conv node, or ``None`` if no compiled kernel runs the node."""
    sizes = geometry(signature)
    load, output = signature.constant, signature.outputs[0]
    bias = signature.input(2)
    if (
        not is_enabled()
        or sizes.dtype != _SINGLE
        or len(sizes.axes) > 2
        or load[1] is None
        or (bias is not None and load[2] is None)
        or output is None
        or 0 in output.shape
        or 0 in (sizes.fan_in, *(axis.size for axis in sizes.axes))
    ):
        return None
    return CompiledConv(sizes)


def hosts_members(signature: Signature) -> bool:
    """Return whether a Conv node's kernel performs elementwise members."""
    return compiled_conv(signature) is not None


def adds_operand(signature: Signature) -> bool:
    """Return whether a Conv node's kernel adds an operand to the results."""
    compiled = compiled_conv(signature)
    return compiled is not None and not compiled.is_depthwise


# -- running ------------------------------------------------------------------------


def compiled_run(step: Step, conv: CompiledConv) -> Run:
    """Return the call that makes the output."""
    sizes, guests, axes = conv.sizes, step.guests, sides(conv.sizes.axes)
    weights, bias = _shared_weights(step, conv)
    low, high = (-math.inf, math.inf) if guests is None else guests.bounds
    own = step.scratch().array((conv.within(step.workspaces[0].nbytes).elements,))
    operands = operand(step, 0), weights, result(step), own, *axes
    if conv.is_depthwise:
        return CompiledKernel.depthwise(*operands, bias, low, high)
    addend = None if guests is None else guests.addend
    return CompiledKernel.conv(*operands, sizes.groups, bias, low, high, addend)


def _shared_weights(step: Step, conv: CompiledConv) -> Transformed:
    """Return packed weights and a bias, which executors with the same constants share."""
    # In node parts, other window elements may meet padding alone.
    packed_key, bias_key = (f"{name} {conv.sizes.window}" for name in ("packed", "packed bias"))
    if packed_key in step.kept:
        return step.kept[packed_key], step.kept.get(bias_key)
    scale, shift = (None, None) if step.guests is None else step.guests.channel_affine()
    bias = step.input(2)
    small = [None if v is None else (v.dtype, v.tobytes()) for v in (bias, scale, shift)]
    details = ("compiled Conv", packed_key, conv.sizes.groups, conv.is_depthwise, *small)
    packed, rest = shared([operand(step, 1)], details, lambda: _weights(step, conv, scale, shift))
    step.kept[packed_key] = packed
    if rest is not None:
        step.kept[bias_key] = rest
    return packed, rest


def _weights(
    step: Step, conv: CompiledConv, scale: np.ndarray | None, shift: np.ndarray | None
) -> Transformed:
    """Return the weights in reading order, with scales worked in, and a bias."""
    sizes, bias = conv.sizes, step.input(2)
    made = sizes.groups * sizes.fan_out
    matrix = sizes.used(operand(step, 1)).reshape(made, sizes.depth)
    matrix = np.ascontiguousarray(matrix, np.float32)
    bias = None if bias is None else np.ascontiguousarray(bias)
    if scale is not None:
        matrix = matrix * scale.reshape(made, 1).astype(np.float32)
        bias = None if bias is None else bias * scale
    if shift is not None:
        bias = shift if bias is None else bias + shift
    bias = None if bias is None else np.ascontiguousarray(bias, np.float32)
    if conv.is_depthwise:
        return matrix, bias
    each = packed_weights(1, sizes.fan_out, sizes.depth)
    packed = np.empty((sizes.groups, each), np.float32)
    pack_weights(matrix.reshape(sizes.groups, sizes.fan_out, sizes.depth), packed)
    return packed, bias
