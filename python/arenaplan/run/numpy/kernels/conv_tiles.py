"""The size of a convolution's unrolled part, and the scratch memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import prod
from typing import NamedTuple

import numpy as np

from arenaplan.base.errors import ShapeMismatch
from arenaplan.graph.ops.boxes import Box
from arenaplan.graph.ops.window_ops import Axis
from arenaplan.run.numpy.kernels.windows import window_axes
from arenaplan.run.numpy.registry import Signature, Tensor

CALLS, _TILE_CALLS, _GROUP_CALLS = 500.0, 2.2e3, 190.0
"""Nanoseconds for a convolution's calls, for a tile, and for each group in a tile."""
FLOPS = 131.0
"""Multiplications and additions per nanosecond."""
PACKING = 0.34
"""Nanoseconds in which BLAS repacks a weight for a tile."""
_COPIED, _STRIDED = 0.35, 0.61
"""Nanoseconds in which an element is unrolled: from rows, from between others."""
_WRITTEN = 0.11
"""Nanoseconds to write a result element."""
ROWS_OF = "rows_of"
"""Attribute of a Conv node that makes some rows of another node's result: all result rows."""


class Area(NamedTuple):
    """The area that a tile covers."""

    n: int
    groups: slice
    rows: slice


@dataclass(frozen=True)
class Geometry:
    """All convolution sizes."""

    batch: int
    groups: int
    fan_in: int
    """Input channels per group."""
    fan_out: int
    """Output channels per group."""
    axes: tuple[Axis, ...]
    dtype: np.dtype

    @cached_property
    def taps(self) -> int:
        """Elements under the window."""
        return prod(axis.kernel for axis in self.axes)

    @cached_property
    def window(self) -> tuple[slice, ...]:
        """The part of the declared windows that remains after trimming."""
        return tuple(slice(axis.skipped, axis.skipped + axis.kernel) for axis in self.axes)

    def used(self, weights: np.ndarray) -> np.ndarray:
        """Return the weights that remain after trimming."""
        return weights[(slice(None), slice(None), *self.window)]

    @cached_property
    def depth(self) -> int:
        """Rows in a group's unrolled matrix."""
        return self.fan_in * self.taps

    @cached_property
    def row(self) -> int:
        """Output elements per row: all positions that share the first coordinate."""
        return prod(axis.out for axis in self.axes[1:])

    @cached_property
    def rows(self) -> int:
        """Output rows."""
        return self.axes[0].out

    @cached_property
    def is_padded(self) -> bool:
        """True if windows reach beyond the image."""
        return any(axis.is_padded for axis in self.axes)

    @cached_property
    def is_direct(self) -> bool:
        """True if the image already is the unrolled matrix."""
        pointwise = all(axis.kernel == 1 and axis.stride == 1 for axis in self.axes)
        single = all(axis.extent == axis.kernel == axis.size for axis in self.axes)
        return (pointwise or single) and not self.is_padded

    @cached_property
    def outs(self) -> list[int]:
        """Spatial output dimensions."""
        return [axis.out for axis in self.axes]

    def padded_shape(self, groups: int, rows: int) -> tuple[int, ...]:
        """Return the shape of a tile's input with padding."""
        first = self.axes[0]
        reach = (rows - 1) * first.stride + first.extent
        return (groups * self.fan_in, reach, *(axis.padded for axis in self.axes[1:]))

    def areas(self, groups: int, rows: int) -> Iterator[Area]:
        """Yield the areas of tiles with so many groups and rows."""
        for n in range(self.batch):
            for group in range(0, self.groups, groups):
                some = slice(group, min(group + groups, self.groups))
                for row in range(0, self.rows, rows):
                    yield Area(n, some, slice(row, min(row + rows, self.rows)))

    def reach(self, rows: slice) -> tuple[int, int]:
        """Return the first image row under the windows of some output rows, and the row count."""
        first = self.axes[0]
        count = (rows.stop - rows.start - 1) * first.stride + first.extent
        return rows.start * first.stride - first.before, count

    def part(self, area: Area) -> Box:
        """Return the image box that a tile needs, without padding."""
        channels = slice(area.groups.start * self.fan_in, area.groups.stop * self.fan_in)
        first, (start, reach) = self.axes[0], self.reach(area.rows)
        high = max(min(start + reach, first.size), 0)
        rows = slice(min(max(start, 0), high), high)
        inner = (slice(0, axis.size) for axis in self.axes[1:])
        return (slice(area.n, area.n + 1), channels, rows, *inner)

    def cost(self, groups: int, rows: int) -> float:
        """Return the estimated run time in nanoseconds, tile by tile."""
        packings = self.batch * -(-self.rows // rows)
        weights = self.groups * self.fan_out * self.depth
        columns = self.batch * self.rows * self.row
        time = CALLS + 2 * weights * columns / FLOPS + PACKING * weights * packings
        time += _WRITTEN * self.groups * self.fan_out * columns
        if self.groups > 1:
            time += _GROUP_CALLS * self.groups * packings
        if not self.is_direct:
            element = _STRIDED if any(axis.stride > 1 for axis in self.axes) else _COPIED
            time += element * self.groups * self.depth * columns
            time += _TILE_CALLS * packings * -(-self.groups // groups)
        return time


def even(total: int, most: int) -> int:
    """Return the smallest part that divides ``total`` into as few parts as ``most`` does."""
    return -(-total // -(-total // most))


def geometry(signature: Signature) -> Geometry:
    """
    Return the sizes for a Conv node.

    Constant window elements that meet nothing but padding are left out (:attr:`Axis.trimmed`):
    in a dilated window over a small image, often all but one per axis. Parts of a node
    (:data:`ROWS_OF`) keep such elements, since all parts must fit the same scratch memory.

    Raises
    ------
    ShapeMismatch
        If image, weights and groups contradict each other.
    """
    image, weights, output = signature.input(0), signature.input(1), signature.outputs[0]
    groups = signature.attributes.get("group", 1)
    if (
        image is None
        or weights is None
        or output is None
        or not _agree(image, weights, output, groups)
    ):
        raise ShapeMismatch(
            f"node {signature.name!r} (Conv): image, weights and output contradict each other"
        )
    axes = tuple(window_axes(signature, weights.shape[2:]))
    if signature.constant[1] is not None and ROWS_OF not in signature.attributes:
        axes = tuple(axis.trimmed for axis in axes)
    sizes = (image.shape[0], groups, weights.shape[1], weights.shape[0] // groups, axes)
    return _known(*sizes, image.dtype)


_known = lru_cache(maxsize=1024)(Geometry)  # Planning asks often.


def _agree(image: Tensor, weights: Tensor, output: Tensor, groups: int) -> bool:
    """Return whether the shapes belong to a single convolution."""
    rank = len(weights.shape)
    return (
        rank >= 3
        and len(image.shape) == len(output.shape) == rank
        and groups >= 1
        and image.shape[1] == weights.shape[1] * groups
        and weights.shape[0] % groups == 0
        and output.shape[:2] == (image.shape[0], weights.shape[0])
    )
