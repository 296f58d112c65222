"""
Convolution by a compiled kernel, which unrolls a few columns of the image at a time.

Scratch memory holds 48 columns, or some channels in a zero frame, or a single padded plane where
every channel is by itself. The output is made in tiles only where other group members work on
tiles: as many rows as stay in cache. Result bits do not depend on tiles or scratch memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import NamedTuple

import numpy as np

from arenaplan._core import CompiledKernel, WindowSide, pack_weights, packed_weights
from arenaplan.graph import Choice
from arenaplan.graph.ops.window_ops import Axis
from arenaplan.run.numpy.compiled import is_enabled, sides
from arenaplan.run.numpy.constants import Transformed, shared
from arenaplan.run.numpy.kernels.conv_tiles import (
    Area,
    Geometry,
    even,
    geometry,
)
from arenaplan.run.numpy.kernels.pieces import operand, result, worthwhile
from arenaplan.run.numpy.registry import (
    Guests,
    Run,
    Signature,
    Step,
    scratch_bytes,
)

COLUMNS = 48
"""Columns that the kernel unrolls at a time; see ``kernels/src/conv.rs``."""
_ROOMS = (1 << 15, 1 << 13, 1 << 11, COLUMNS * 24)
"""Scratch elements within which the fastest way is offered."""
_CACHED = 1 << 16
"""Output elements that are finished while in cache."""
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


class CompiledTile(NamedTuple):
    """The part of a convolution that a single call makes."""

    groups: int
    rows: int
    elements: int
    """Scratch elements for the product kernel."""
    cycles: int
    """Estimated cycles for a group's product."""


@dataclass(frozen=True)
class CompiledConv:
    """The sizes for a convolution and the scratch memory."""

    sizes: Geometry
    guests: Guests | None
    """Further work on tiles."""

    @cached_property
    def is_depthwise(self) -> bool:
        """True if every channel is convolved by itself, without a product."""
        return self.sizes.fan_in == 1 and self.sizes.fan_out <= _FEW_OUTPUTS

    @cached_property
    def is_cut(self) -> bool:
        """True if other group members work on tiles."""
        return self.guests is not None and (self.guests.finishes or self.needs_tile)

    @cached_property
    def needs_tile(self) -> bool:
        """True if only finished results may be written to the output."""
        return self.guests is not None and self.guests.needs_tile

    def bytes(self, tile: CompiledTile) -> int:
        """Return the scratch memory that a tile takes."""
        total = scratch_bytes((self.own(tile),))
        if self.needs_tile:
            total += scratch_bytes(self.result_shape(tile))
        if self.guests is not None and self.guests.needs_scratch:
            area = next(self.sizes.areas(tile.groups, tile.rows))
            total += self.guests.bytes(self.sizes.box(area))
        return total

    def own(self, tile: CompiledTile) -> int:
        """Return the scratch elements that the compiled kernel takes."""
        if not self.is_depthwise:
            return tile.elements
        return CompiledKernel.depthwise_scratch(*self._sides(tile.rows))

    def _sides(self, rows: int) -> tuple[WindowSide, WindowSide]:
        """Return how the window slides over the image for some output rows."""
        return sides([self.sizes.axes[0]._replace(out=rows), *self.sizes.axes[1:]])

    def result_shape(self, tile: CompiledTile) -> tuple[int, ...]:
        """Return the shape of a tile's result."""
        return (1, tile.groups * self.sizes.fan_out, tile.rows, *self.sizes.outs[1:])

    def tiles(self) -> Iterator[CompiledTile]:
        """Yield the tiles that are worth the scratch memory, from the fastest to the smallest."""
        limit = _CACHED if self.is_cut else 1 << 62
        parts = [self._part(limit >> shift) for shift in ((0, 2, 4, 16) if self.is_cut else (0,))]
        if self.is_cut and self.is_depthwise and not self._is_by_planes:
            rows = self.sizes.rows
            parts += [(1, even(rows, -(-rows // count))) for count in (1, 2, 3, 4, 6, 8)]
        for groups, rows in dict.fromkeys(parts):
            if self.is_depthwise:
                yield CompiledTile(groups, rows, 0, 0)
                continue
            axes, channels = self._sides(rows), (self.sizes.fan_in, self.sizes.fan_out)
            ways = [CompiledKernel.conv_way(*axes, *channels, room) for room in _ROOMS]
            for elements, cycles in dict.fromkeys((way.elements, way.cycles) for way in ways):
                yield CompiledTile(groups, rows, elements, cycles)

    @property
    def _is_by_planes(self) -> bool:
        """Whether tiles have whole planes, since the output may be in the image's place."""
        return self.guests is not None and self.guests.by_planes

    def _part(self, limit: int) -> tuple[int, int]:
        """Return groups and rows for a tile with about ``limit`` results."""
        sizes = self.sizes
        plane = sizes.fan_out * sizes.rows * sizes.row
        if plane <= limit or self._is_by_planes:
            return even(sizes.groups, max(1, limit // plane)), sizes.rows
        rows = max(1, limit // (sizes.fan_out * sizes.row), -(-COLUMNS // sizes.row))
        return 1, even(sizes.rows, min(rows, sizes.rows))

    def within(self, limit: int) -> CompiledTile:
        """Return the fastest tile within ``limit`` bytes, or else the smallest tile."""
        tiles = list(self.tiles())
        fitting = [tile for tile in tiles if self.bytes(tile) <= limit]
        return min(fitting, key=self.cost) if fitting else min(tiles, key=self.bytes)

    def cost(self, tile: CompiledTile) -> float:
        """Return the estimated run time in nanoseconds."""
        sizes = self.sizes
        parts = -(-sizes.groups // tile.groups) * -(-sizes.rows // tile.rows)
        calls = sizes.batch * parts
        results = sizes.batch * sizes.groups * sizes.fan_out * sizes.rows * sizes.row
        time = _CALL * calls
        if self.is_depthwise:
            padded = prod(axis.padded for axis in sizes.axes) * sizes.groups * sizes.batch
            time += 2 * results * sizes.taps / _TAPS + _PADDED * padded
            return time + _PLANE * sizes.groups * sizes.batch * -(-sizes.rows // tile.rows)
        rows = -(-sizes.rows // tile.rows)
        time += _CYCLE * tile.cycles * rows * sizes.groups * sizes.batch
        return time

    def choices(self) -> Sequence[Choice]:
        """Return the scratch sizes to declare."""
        return worthwhile(Choice(self.bytes(tile), self.cost(tile)) for tile in self.tiles())


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
    return CompiledConv(sizes, signature.guests)


def hosts_members(signature: Signature) -> bool:
    """Return whether a Conv node's kernel performs elementwise members."""
    return compiled_conv(signature) is not None


def adds_operand(signature: Signature) -> bool:
    """Return whether a Conv node's kernel adds an operand to the results."""
    compiled = compiled_conv(signature)
    return compiled is not None and not compiled.is_depthwise


def works_by_planes(signature: Signature) -> bool:
    """Return whether a Conv node's kernel can write each plane over the plane just read."""
    compiled = compiled_conv(signature)
    return compiled is not None and compiled.is_depthwise and compiled.sizes.fan_out == 1


# -- running ------------------------------------------------------------------------


def compiled_runs(step: Step, conv: CompiledConv) -> Iterator[Run]:
    """Yield the calls that make the output, tile by tile."""
    sizes, guests = conv.sizes, step.guests
    output = result(step)
    tile = conv.within(step.workspaces[0].nbytes)
    scratch = step.scratch()
    weights, bias = _shared_weights(step, conv)
    low, high = (-math.inf, math.inf) if guests is None else guests.bounds()
    results = None
    own = scratch.array((conv.own(tile),))
    if conv.needs_tile:
        results = scratch.array(conv.result_shape(tile))
    for area in sizes.areas(tile.groups, tile.rows):
        source, axes = _image_part(step, sizes, area)
        count = area.rows.stop - area.rows.start
        axes[0] = axes[0]._replace(out=count)
        box = sizes.box(area)
        part = output[box]
        target = part if results is None else results[:, : part.shape[1], : part.shape[2]]
        channels = box[1]
        own_bias = None if bias is None else bias[channels]
        if conv.is_depthwise:
            of_part = weights[channels]
            yield CompiledKernel.depthwise(
                source, of_part, target, own, *sides(axes), own_bias, low, high
            )
        else:
            of_part = weights[area.groups]
            groups = area.groups.stop - area.groups.start
            addend = None if guests is None else guests.addend(box)
            yield CompiledKernel.conv(
                source, of_part, target, own, *sides(axes), groups, own_bias, low, high, addend
            )
        if guests is not None:
            yield from guests.finish(box, target, scratch)


def _image_part(step: Step, sizes: Geometry, area: Area) -> tuple[np.ndarray, list[Axis]]:
    """Return the image that a tile needs, and how the window slides over that part."""
    part = sizes.part(area)
    start, _ = sizes.reach(area.rows)
    rows = part[2]
    if rows.stop == rows.start:  # The tile is padding alone.
        rows = slice(0, 1)
        start = -(1 << 20)
    elif area.rows == slice(0, sizes.rows):
        # Include rows behind the last window: consecutive planes may be written over.
        rows = slice(0, sizes.axes[0].size)
    source = operand(step, 0)[(*part[:2], rows, *part[3:])]
    first = sizes.axes[0]._replace(size=rows.stop - rows.start, before=max(rows.start - start, 0))
    return source, [first, *sizes.axes[1:]]


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
