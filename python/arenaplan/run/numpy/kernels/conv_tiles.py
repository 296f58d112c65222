"""The size of a convolution's unrolled part, and the scratch memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import prod
from typing import NamedTuple

import numpy as np

from arenaplan.base.errors import ShapeMismatch
from arenaplan.graph import Choice
from arenaplan.graph.ops.boxes import Box
from arenaplan.graph.ops.window_ops import Axis
from arenaplan.run.numpy.kernels.windows import window_axes
from arenaplan.run.numpy.registry import Guests, Signature, Tensor, scratch_bytes

CALLS, _TILE_CALLS, _GROUP_CALLS = 500.0, 2.2e3, 190.0
"""Nanoseconds for a convolution's calls, for a tile, and for each group in a tile."""
FLOPS = 131.0
"""Multiplications and additions per nanosecond."""
PACKING = 0.34
"""Nanoseconds in which BLAS repacks a weight for a tile."""
_COPIED, _STRIDED, _RUN = 0.35, 0.61, 0.21
"""Nanoseconds in which an element is unrolled: from rows, from between others, from runs."""
_LOADED = 0.4
"""Nanoseconds to compute an element while loading."""
_WRITTEN = 0.11
"""Nanoseconds to write a result element."""
_ADDED = 0.1
"""Nanoseconds in which an element is added to a result that is made in parts."""
ROWS_OF = "rows_of"
"""Attribute of a Conv node that makes some rows of another node's result: all result rows."""
WORTHWHILE = 0.98
"""More scratch memory is offered if a run takes at most this much of the time."""
_SHALLOW = 32
"""Matrices with fewer rows are not split."""


class ConvTile(NamedTuple):
    """Size of the part that is unrolled at once."""

    groups: int
    rows: int
    channels: int
    """Per group. If these are not all channels, products are added up."""


class Area(NamedTuple):
    """The area that a tile covers."""

    n: int
    groups: slice
    rows: slice
    channels: slice
    """Per group."""


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
    guests: Guests | None
    """Further work on tiles."""

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
        """Rows in a group's unrolled matrix, without the bias row."""
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
    def loads(self) -> bool:
        """True if the image is computed during loading."""
        return self.guests is not None and self.guests.loads

    @cached_property
    def needs_tile(self) -> bool:
        """True if only finished results may be written to the output."""
        return self.guests is not None and self.guests.needs_tile

    @cached_property
    def is_copied(self) -> bool:
        """True if image tiles are copied, padded or computed before unrolling."""
        return self.is_padded or self.loads

    @cached_property
    def is_tiled(self) -> bool:
        """True if not everything can be multiplied at once."""
        return not self.is_direct or self.loads or self.finishes_tiles

    @cached_property
    def finishes_tiles(self) -> bool:
        """True if each tile is finished before the next, false if all are finished at the end."""
        guests = self.guests
        return self.is_flat or (guests is not None and (guests.needs_tile or guests.needs_scratch))

    @cached_property
    def is_flat(self) -> bool:
        """
        True if positions across row ends are computed as well, and left out later.

        All window elements at a given tap are then contiguous in the padded image, and copying
        is several times faster. Copying dominates where there is next to nothing to multiply,
        as in depthwise convolution.
        """
        if self.is_direct or self.fan_in > 1 or self.fan_out > 4:
            return False
        return all(axis.stride == 1 for axis in self.axes)

    def columns(self, rows: int) -> int:
        """Return the number of windows in some rows, with windows across row ends if flat."""
        if not self.is_flat:
            return rows * self.row
        last, pitch = 0, 1
        for axis, out in reversed([*zip(self.axes, [rows, *self.outs[1:]], strict=True)]):
            last += (out - 1) * pitch
            pitch *= axis.padded
        return last + 1

    @cached_property
    def outs(self) -> list[int]:
        """Spatial output dimensions."""
        return [axis.out for axis in self.axes]

    def padded_shape(self, tile: ConvTile) -> tuple[int, ...]:
        """Return the shape of a tile's padded input."""
        first = self.axes[0]
        reach = (tile.rows - 1) * first.stride + first.extent
        return (tile.groups * tile.channels, reach, *(axis.padded for axis in self.axes[1:]))

    def matrix_shape(self, tile: ConvTile) -> tuple[int, int, int]:
        """Return the shape of a tile's unrolled matrices, with a row for the bias."""
        return (tile.groups, tile.channels * self.taps + 1, self.columns(tile.rows))

    def result_shape(self, tile: ConvTile) -> tuple[int, ...]:
        """Return the shape of a tile's result."""
        inner = (axis.padded if self.is_flat else axis.out for axis in self.axes[1:])
        return (tile.groups, self.fan_out, tile.rows, *inner)

    def areas(self, tile: ConvTile) -> Iterator[Area]:
        """Yield the area that each tile covers."""
        for n in range(self.batch):
            for group in range(0, self.groups, tile.groups):
                groups = slice(group, min(group + tile.groups, self.groups))
                for row in range(0, self.rows, tile.rows):
                    rows = slice(row, min(row + tile.rows, self.rows))
                    for first in range(0, self.fan_in, tile.channels):
                        channels = slice(first, min(first + tile.channels, self.fan_in))
                        yield Area(n, groups, rows, channels)

    def box(self, area: Area) -> Box:
        """Return the output box that a tile computes."""
        channels = slice(area.groups.start * self.fan_out, area.groups.stop * self.fan_out)
        inner = (slice(0, out) for out in self.outs[1:])
        return (slice(area.n, area.n + 1), channels, area.rows, *inner)

    def reach(self, rows: slice) -> tuple[int, int]:
        """Return the first image row under the windows of some output rows, and the row count."""
        first = self.axes[0]
        count = (rows.stop - rows.start - 1) * first.stride + first.extent
        return rows.start * first.stride - first.before, count

    def part(self, area: Area) -> Box:
        """Return the image box that a tile needs, without padding."""
        channels = slice(
            area.groups.start * self.fan_in + area.channels.start,
            (area.groups.stop - 1) * self.fan_in + area.channels.stop,
        )
        first, (start, reach) = self.axes[0], self.reach(area.rows)
        high = max(min(start + reach, first.size), 0)
        rows = slice(min(max(start, 0), high), high)
        inner = (slice(0, axis.size) for axis in self.axes[1:])
        return (slice(area.n, area.n + 1), channels, rows, *inner)

    def bytes(self, tile: ConvTile) -> int:
        """Return the workspace bytes that a tile takes."""
        known = self._known_bytes.get(tile)
        if known is None:
            known = self._known_bytes[tile] = self._bytes(tile)
        return known

    @cached_property
    def _known_bytes(self) -> dict[ConvTile, int]:
        """Workspace bytes per tile; searches for several sizes repeat the same tiles."""
        return {}

    def _bytes(self, tile: ConvTile) -> int:
        shapes: list[tuple[int, ...]] = []
        if not self.is_direct:
            shapes.append(self.matrix_shape(tile))
        if self.is_copied:
            shapes.append(self.padded_shape(tile))
        if self.is_flat or self.needs_tile:
            shapes.append(self.result_shape(tile))
        if tile.channels < self.fan_in:
            shapes.append(self.result_shape(tile))
        besides = 0
        if self.guests is not None:
            if self.loads:
                padded = (slice(0, size) for size in self.padded_shape(tile))
                besides = self.guests.load_bytes((slice(0, 1), *padded))
            if self.guests.needs_scratch:
                besides = max(besides, self.guests.bytes(self.box(next(self.areas(tile)))))
        return besides + sum(scratch_bytes(shape, self.dtype) for shape in shapes)

    def tile(self, limit: int) -> ConvTile:
        """
        Return the best tile within ``limit`` bytes, or the smallest tile if none fits.

        Whole images for several groups are preferred to partial images for a single group.
        Among tiles that divide the work into equally many parts, the smallest is taken.
        """
        whole = ConvTile(1, self.rows, self.fan_in)
        if self.bytes(whole) <= limit:
            most = _largest(
                self.groups, limit, lambda n: self.bytes(ConvTile(n, whole.rows, whole.channels))
            )
            return whole._replace(groups=_even(self.groups, most))
        tiles = [self._rows_of(whole._replace(channels=some), limit) for some in self._splits()]
        within = [tile for tile in tiles if self.bytes(tile) <= limit]
        return min(within, key=self.cost) if within else min(tiles, key=self.bytes)

    def _splits(self) -> Iterator[int]:
        """Yield the channel counts that may be multiplied at a time."""
        some = self.fan_in
        while some == self.fan_in or (some * self.taps >= _SHALLOW and not self.is_flat):
            yield some
            if some == 1:
                return
            some = -(-some // 2)

    def _rows_of(self, tile: ConvTile, limit: int) -> ConvTile:
        """Return the tile with as many rows as fit ``limit`` bytes, at least one."""
        most = _largest(
            self.rows, limit, lambda n: self.bytes(ConvTile(tile.groups, n, tile.channels))
        )
        return tile._replace(rows=_even(self.rows, most))

    def cost(self, tile: ConvTile) -> float:
        """Return the estimated run time in nanoseconds."""
        parts = -(-self.fan_in // tile.channels)
        packings = self.batch * -(-self.rows // tile.rows)
        tiles = packings * -(-self.groups // tile.groups) * parts
        weights = self.groups * self.fan_out * self.depth
        columns = self.batch * self.columns(self.rows)
        result = self.groups * self.fan_out * columns
        time = CALLS + 2 * weights * columns / FLOPS + PACKING * weights * packings
        time += (_WRITTEN + 2 * _ADDED * (parts - 1)) * result
        if self.groups > 1:
            time += _GROUP_CALLS * self.groups * packings * parts
        if not self.is_direct:
            time += self._unrolling * self.groups * self.depth * columns + tiles * _TILE_CALLS
        if self.loads:
            time += _LOADED * tiles * prod(self.padded_shape(tile))
        return time

    @cached_property
    def _unrolling(self) -> float:
        """Nanoseconds to unroll an element."""
        if self.is_flat:
            return _RUN
        return _STRIDED if any(axis.stride > 1 for axis in self.axes) else _COPIED


def _largest(most: int, limit: int, size: Callable[[int], int]) -> int:
    """
    Return the largest number in ``[1, most]`` with a size within a limit, or else 1.

    Sizes grow almost linearly with the number, so the search interpolates.
    """
    low, high = 1, most
    smallest, largest = size(low), size(high)
    if largest <= limit:
        return most
    if smallest > limit:
        return 1
    # size(low) is within the limit, size(high) is not.
    while high - low > 1:
        guess = low + (limit - smallest) * (high - low) // (largest - smallest)
        guess = min(max(guess, low + 1), high - 1)
        found = size(guess)
        if found <= limit:
            low, smallest = guess, found
            if low + 1 < high and size(low + 1) > limit:
                break
        else:
            high, largest = guess, found
    return low


def _even(total: int, most: int) -> int:
    """Return the smallest part that divides ``total`` into as few parts as ``most`` does."""
    return -(-total // -(-total // most))


def worthwhile(ways: Iterable[Choice]) -> tuple[Choice, ...]:
    """Return, by ascending bytes, the ways that each save enough time over the way before."""
    found: list[Choice] = []
    for way in sorted(ways, key=lambda way: (way.bytes, way.cost)):
        if not found or way.cost < found[-1].cost * WORTHWHILE:
            found.append(way)
    return tuple(found)


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
    if signature.guests is None:
        return _plain(*sizes, image.dtype)
    return Geometry(*sizes, image.dtype, signature.guests)


@lru_cache(maxsize=1024)
def _plain(
    batch: int, groups: int, fan_in: int, fan_out: int, axes: tuple[Axis, ...], dtype: np.dtype
) -> Geometry:
    """Return the sizes for a convolution without guests, cached since planning asks often."""
    return Geometry(batch, groups, fan_in, fan_out, axes, dtype, None)


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
