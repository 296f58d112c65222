"""
Cuts of operators on images: by channels, and by rows.

A result part needs the image part that its windows reach; rows beyond the edge are the part's
padding. So row tiles overlap in the inputs (the halo), and earlier members make some rows twice,
but never a whole image.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from arenaplan.graph import ops
from arenaplan.graph.ops.boxes import Box, Footprint, Uncuttable, is_whole, whole
from arenaplan.graph.ops.window_ops import Axis
from arenaplan.run.numpy.cuts import footprint_of
from arenaplan.run.numpy.kernels.conv_compiled import compiled_conv
from arenaplan.run.numpy.kernels.conv_tiles import ROWS_OF, geometry
from arenaplan.run.numpy.kernels.windows import window_axes
from arenaplan.run.numpy.registry import Cut, Signature, Tensor

_COMBINED = 0.1
"""Nanoseconds to combine two elements."""


def _image(signature: Signature) -> Tensor:
    image = signature.input(0)
    if image is None or len(image.shape) < 3:
        raise Uncuttable
    return image


# -- windows -----------------------------------------------------------------------------


def _reach(axes: Sequence[Axis], box: Box) -> tuple[list[slice], list[int], list[int]]:
    """Return the image part that windows reach, and the windows' extent beyond the image edges."""
    parts, before, after = [], [], []
    for axis, part in zip(axes, box, strict=True):
        if (part.start, part.stop) == (0, axis.out):
            parts.append(slice(0, axis.size))
            before.append(axis.before)
            after.append(axis.after)
            continue
        start = part.start * axis.stride - axis.before
        stop = (part.stop - 1) * axis.stride - axis.before + axis.extent
        inside = slice(max(start, 0), min(stop, axis.size))
        if inside.start >= inside.stop:
            raise Uncuttable
        parts.append(inside)
        before.append(inside.start - start)
        after.append(stop - inside.stop)
    return parts, before, after


def _padded(signature: Signature, axes: Sequence[Axis], box: Box) -> Mapping[str, Any]:
    """Return the attributes for a node that makes one part of the result."""
    _, before, after = _reach(axes, box)
    return {**signature.attributes, "pads": [*before, *after], "auto_pad": "NOTSET"}


# -- convolution ---------------------------------------------------------------------------


def _conv_axes(signature: Signature) -> list[Axis]:
    weights = signature.input(1)
    if weights is None:
        raise Uncuttable
    return window_axes(signature, weights.shape[2:])


def _groups(signature: Signature, channels: slice) -> slice:
    """Return the groups that make some channels: several, or a part of one group."""
    weights = signature.operand(1)
    fan_out = weights.shape[0] // signature.attributes.get("group", 1)
    groups = slice(channels.start // fan_out, -(-channels.stop // fan_out))
    is_even = channels.start % fan_out == 0 and channels.stop % fan_out == 0
    if groups.stop - groups.start > 1 and not is_even:
        raise Uncuttable
    return groups


def _conv(signature: Signature, box: Box) -> Footprint:
    """Channels need their weights and their group's image; rows need their windows."""
    _image(signature)
    axes, channels = _conv_axes(signature), box[1]
    weights = signature.operand(1)
    groups, fan_in = _groups(signature, channels), weights.shape[1]
    needed = slice(groups.start * fan_in, groups.stop * fan_in)
    rows, _, _ = _reach(axes, box[2:])
    image: Box = (box[0], needed, *rows)
    parts: Footprint = [image, (channels, *whole(weights.shape[1:])), (channels,)]
    return parts[: len(signature.inputs)]


def _conv_attributes(signature: Signature, box: Box) -> Mapping[str, Any]:
    groups = _groups(signature, box[1])
    axes = _conv_axes(signature)
    attributes = {**_padded(signature, axes, box[2:]), "group": groups.stop - groups.start}
    if not is_whole(box[2:], [axis.out for axis in axes]):
        attributes[ROWS_OF] = axes[0].out
    return attributes


def _conv_time(signature: Signature) -> float:
    compiled = compiled_conv(signature)
    if compiled is not None:
        return min(way.cost for way in compiled.ways())
    sizes = geometry(signature)
    return sizes.cost(sizes.groups, sizes.rows)


CONV = Cut(_conv, attributes=_conv_attributes, time=_conv_time)
"""A convolution."""


# -- pooling, and other operators that leave channels apart -------------------------------------


def _pool_axes(signature: Signature) -> list[Axis]:
    kernel = signature.attributes.get("kernel_shape")
    if not kernel:
        raise Uncuttable
    return window_axes(signature, list(kernel))


def _pool(signature: Signature, box: Box) -> Footprint:
    """Rows need the reach of their windows."""
    _image(signature)
    axes = _pool_axes(signature)
    rows, _, _ = _reach(axes, box[2:])
    if signature.attributes.get("count_include_pad", 0) and not is_whole(
        box[2:], [axis.out for axis in axes]
    ):
        # A window that ends beyond the padding counts less padding.
        for axis in axes:
            if (axis.out - 1) * axis.stride + axis.extent > axis.before + axis.size + axis.after:
                raise Uncuttable
    return [(*box[:2], *rows)]


def _pool_attributes(signature: Signature, box: Box) -> Mapping[str, Any]:
    return _padded(signature, _pool_axes(signature), box[2:])


FIRST_CHANNEL = "first channel"
"""Attribute of an LRN part: the image channel at which the result begins."""


def neighbors(size: int, channels: int) -> tuple[int, int]:
    """Return the most channels before and after a channel that an LRN reads."""
    return min((size - 1) // 2, channels - 1), min(size // 2, channels - 1)


def _neighbors(signature: Signature) -> ops.Neighbors:
    size = signature.attributes.get("size", 1)
    return ops.Neighbors(*neighbors(size, _image(signature).shape[1]))


def _neighbors_attributes(signature: Signature, box: Box) -> Mapping[str, Any]:
    first = min(_neighbors(signature).below, box[1].start)
    return {**signature.attributes, FIRST_CHANNEL: first}


def _pass(signature: Signature) -> float:
    return _COMBINED * prod(_image(signature).shape)


POOL = Cut(_pool, attributes=_pool_attributes, time=_pass)
"""Windows that slide over every channel by itself."""
PLANES = Cut(footprint_of(lambda _: ops.PLANES), time=_pass)
"""Every channel is worked on by itself, and as a whole."""
SCALED_PLANES = Cut(footprint_of(lambda _: ops.Normalize(2, channel=1)), time=_pass)
"""As :data:`PLANES`, and other operands have one element per channel."""
NEIGHBORS = Cut(footprint_of(_neighbors), attributes=_neighbors_attributes, time=_pass)
"""Channels are normalized together with their neighbors."""
