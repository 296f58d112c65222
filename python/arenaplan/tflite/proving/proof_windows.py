"""
Operators whose windows slide over an image: convolutions and pooling.

A kernel computes each result element from the elements in the window, tap by tap, in a fixed order.
Two calls with the same parameters therefore make the same bits wherever the windows see the same
elements at the same taps. A tap outside the image is skipped. For a convolution, a skipped tap
equals an element that represents zero, because the product is zero, too; average and maximum
pooling have no such element.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from arenaplan.tflite.proving.elements import OUTSIDE, Elements
from arenaplan.tflite.proving.facts import Fact, Key, Operation
from arenaplan.tflite.proving.guess import Indices
from arenaplan.tflite.proving.proof_calls import ProofCall, Theirs
from arenaplan.tflite.proving.proof_moves import zero_of

_SAME: Final = 0
_FLOAT32, _UINT8, _INT16, _INT8, _INT4 = 0, 3, 7, 9, 17
_WEIGHTS: Final = {
    _FLOAT32: (_FLOAT32,),
    _UINT8: (_UINT8,),
    _INT16: (_INT8,),
    _INT8: (_INT8, _INT4),
}
"""
Weight types by image type. Other combinations are hybrids, whose kernels measure whole operands.
"""

_MOST_TAPS: Final = 1 << 10
"""Most rows or columns in a window that the rule covers; the work grows with them."""


class ProofSide(NamedTuple):
    """An image dimension over which windows slide."""

    size: int
    made: int
    taps: int
    stride: int
    spread: int
    """Places from a tap to the next: the dilation."""
    before: int
    """Padding in front of the first element."""

    def sees(self, at: Indices, tap: int) -> Indices:
        """Return the places that a window tap sees."""
        return at * self.stride - self.before + tap * self.spread


@dataclass(frozen=True, kw_only=True)
class ProofWindow(ProofCall):
    """An operator with windows; a line is a pixel, or a pixel's results from an image channel."""

    rule = "window"

    rows: ProofSide
    columns: ProofSide
    outside: int
    """The element that equals a tap outside the image."""

    @property
    def sides(self) -> tuple[ProofSide, ProofSide]:
        """Rows and columns."""
        return self.rows, self.columns

    def seen(
        self, operands: Sequence[Elements], places: Sequence[Indices] | None = None
    ) -> Iterator[Elements]:
        """Yield what each tap of all windows sees."""
        (image,) = operands
        at = places or [np.arange(count) for count in self.lines]
        if not self.is_columnar:
            image = image[..., at[3]]
        pads = [(0, 0)]
        for side in self.sides:
            end = (side.made - 1) * side.stride - side.before + (side.taps - 1) * side.spread
            pads.append((side.before, max(0, end + 1 - side.size)))
        image = np.pad(image, (*pads, (0, 0)), constant_values=self.outside)
        for taps in np.ndindex(self.rows.taps, self.columns.taps):
            down, across = (
                side.sees(place, tap) + side.before
                for side, place, tap in zip(self.sides, at[1:3], taps, strict=True)
            )
            found = image[np.ix_(at[0], down, across)]
            yield found if self.is_columnar else found[..., None]

    def guess(self, operands: Sequence[Elements], theirs: Theirs) -> list[Indices] | None:
        """Return images, rows and columns of windows in phase, and channels that have lines."""
        batch, down, across, *depth = theirs.indexes[0].axes(operands[0])
        assert isinstance(theirs.call, ProofWindow)
        sides = zip((down, across), self.sides, theirs.call.sides, strict=True)
        return [batch, *(_guess(*side) for side in sides), *([] if self.is_columnar else depth)]

    def results(self, old: ProofCall, places: Sequence[Indices]) -> Indices | None:
        """Return the channel in the original's result for each channel of the result."""
        if not self.is_columnar:
            return super().results(old, places)
        ((mine,), (theirs,)) = self.groups, old.groups
        if mine == theirs:
            return np.arange(self.width)
        known: dict[bytes, int] = {}
        for number, part in enumerate(theirs):
            known.setdefault(part, number)
        found: list[int] = []
        for part in mine:
            following = found[-1] + 1 if found else 0
            if following < len(theirs) and theirs[following] == part:
                found.append(following)
            elif part in known:
                found.append(known[part])
            else:
                return None
        return np.array(found, np.int64)

    def told(
        self, where: tuple[int, ...], places: Sequence[Indices], tap: int, said: tuple[str, str]
    ) -> str:
        """Return text about a row of windows that see other elements."""
        mine, row = f"row {where[1]} of its result", int(places[1][where[1]])
        if row < 0:
            return f"{mine} is in the phase of no row of the original's result"
        return (
            f"{mine} sees {said[0]} at row {tap // self.columns.taps} of its window, and row {row} "
            f"of the original's result sees {said[1]}"
        )


def window_of(operation: Operation, tensors: Sequence[Fact]) -> ProofWindow | None:
    """Return an operator as a window operator; ``None`` if the rule does not cover the operator."""
    if operation.is_custom or operation.intermediates or len(operation.outputs) != 1:
        return None
    if not operation.inputs or operation.inputs[0] is None:
        return None
    x, y = tensors[operation.inputs[0]], tensors[operation.outputs[0]]
    if not len(x.shape) == len(y.shape) == 4 or x.is_constant or x.is_variable or y.is_variable:
        return None
    if x.type != y.type or x.type not in _WEIGHTS or min(*x.shape, *y.shape) < 1:
        return None
    if operation.name in ("AVERAGE_POOL_2D", "MAX_POOL_2D"):
        return _pool(operation, x, y)
    if operation.name in ("CONV_2D", "DEPTHWISE_CONV_2D"):
        return _convolution(operation, x, y, tensors)
    return None


def _pool(operation: Operation, x: Fact, y: Fact) -> ProofWindow | None:
    options = operation.plain
    if options.kind != 5 or len(operation.inputs) != 1 or x.shape[3] != y.shape[3]:
        return None
    taps, strides = _pair(operation, 4, 3), _pair(operation, 2, 1)
    sides = _sides(operation, x, y, taps, strides, (1, 1))
    if sides is None:
        return None
    key: Key = (operation.name, operation.version, operation.rest, options.without(0))
    key = (*key, x.encoding, y.encoding)
    return _window(key, y, sides, ((b"",),) * x.shape[3], OUTSIDE)


def _window(
    key: Key,
    y: Fact,
    sides: tuple[ProofSide, ProofSide],
    groups: tuple[tuple[bytes, ...], ...],
    outside: int,
    *,
    is_columnar: bool = False,
) -> ProofWindow:
    """Return an operator whose lines are pixels, or a pixel's results from an image channel."""
    pixels = y.shape[:3]
    lines = pixels if is_columnar else (*pixels, len(groups))
    return ProofWindow(
        key=key,
        shape=y.shape,
        lines=lines,
        width=y.shape[3] if is_columnar else y.shape[3] // len(groups),
        reads=(0,),
        whole=(0,),
        groups=groups,
        is_columnar=is_columnar,
        rows=sides[0],
        columns=sides[1],
        outside=outside,
    )


def _pair(operation: Operation, rows: int, columns: int) -> tuple[int, int]:
    return operation.plain.number(rows), operation.plain.number(columns)


def _convolution(
    operation: Operation, x: Fact, y: Fact, tensors: Sequence[Fact]
) -> ProofWindow | None:
    options, is_deep = operation.plain, operation.name == "DEPTHWISE_CONV_2D"
    if options.kind != (2 if is_deep else 1) or not 2 <= len(operation.inputs) <= 3:
        return None
    number = operation.inputs[1]
    weights = None if number is None else tensors[number]
    number = operation.inputs[2] if len(operation.inputs) > 2 else None
    bias = None if number is None else tensors[number]
    if weights is None or weights.type not in _WEIGHTS[x.type] or not weights.is_constant:
        return None
    if bias is not None and (not bias.is_constant or bias.count != y.shape[3]):
        return None
    if len(weights.shape) != 4 or min(weights.shape) < 1:
        return None
    axis, share = (3, options.number(3)) if is_deep else (0, 1)
    if weights.shape[axis] != y.shape[3]:
        return None
    if is_deep and (x.shape[3] * share != y.shape[3] or weights.shape[0] != 1):
        return None
    if not is_deep and x.shape[3] % weights.shape[3]:
        return None
    # Zero times a number that is not finite is no zero.
    if x.type == _FLOAT32 and not np.isfinite(np.frombuffer(weights.content, "<f4")).all():
        return None
    slots = (6, 5) if is_deep else (5, 4)
    sides = _sides(
        operation, x, y, weights.shape[1:3], _pair(operation, 2, 1), _pair(operation, *slots)
    )
    zero = zero_of(x)
    channels = _channels(weights, bias, axis)
    if sides is None or zero is None or channels is None:
        return None
    key: Key = (operation.name, operation.version, operation.rest, options.without(0))
    key = (*key, x.encoding, y.encoding, weights.type, None if bias is None else bias.type)
    key = (*key, tuple(weights.shape[1:3]), share)
    if not is_deep and x.shape[3] == weights.shape[3]:
        key = (*key, x.shape[3])
    elif not is_deep:
        key = (*key, x.shape[3], channels)  # A channel's group follows from the channel's number.
    step = share if is_deep else len(channels)
    groups = tuple(channels[at : at + step] for at in range(0, len(channels), step))
    return _window(key, y, sides, groups, zero, is_columnar=not is_deep)


def _sides(
    operation: Operation,
    x: Fact,
    y: Fact,
    taps: Sequence[int],
    strides: Sequence[int],
    spreads: Sequence[int],
) -> tuple[ProofSide, ProofSide] | None:
    """Return both dimensions, if the result has the shape that the kernel makes."""
    is_same = operation.plain.number(0) == _SAME
    found = []
    for axis in (0, 1):
        size, made = x.shape[axis + 1], y.shape[axis + 1]
        tap, stride, spread = taps[axis], strides[axis], spreads[axis]
        if min(tap, stride, spread) < 1:
            return None
        extent = (tap - 1) * spread + 1
        if made != -(-size // stride) if is_same else made != (size - extent) // stride + 1:
            return None
        if extent > _MOST_TAPS:
            return None
        total = max((made - 1) * stride + extent - size, 0) if is_same else 0
        found.append(ProofSide(size, made, tap, stride, spread, total // 2))
    return (found[0], found[1]) if x.shape[0] == y.shape[0] else None


def _channels(weights: Fact, bias: Fact | None, axis: int) -> tuple[bytes, ...] | None:
    """Return the parameters for every result channel: weights, bias, scale, zero point."""
    count = weights.shape[axis]
    if weights.type == _INT4:
        # Channels share bytes: only the whole can be compared.
        whole = repr((weights.shape, weights.quantization, weights.digest)).encode()
        parts = [whole + index.to_bytes(4, "little") for index in range(count)]
    else:
        if len(weights.content) != weights.size:
            return None
        cells = np.frombuffer(weights.content, np.uint8).reshape(*weights.shape, weights.item)
        lines = np.ascontiguousarray(np.moveaxis(cells, axis, 0)).reshape(count, -1)
        parts = [line.tobytes() for line in lines]
    for fact in (weights, bias):
        if fact is None:
            continue
        numbers = _per_channel(fact, count)
        if numbers is None:
            return None
        parts = [part + number for part, number in zip(parts, numbers, strict=True)]
    if bias is not None:
        if len(bias.content) != bias.size:
            return None
        width = bias.item
        parts = [
            part + bias.content[index * width : (index + 1) * width]
            for index, part in enumerate(parts)
        ]
    return tuple(parts)


def _per_channel(fact: Fact, count: int) -> list[bytes] | None:
    """Return the quantization by channel."""
    if fact.quantization is None:
        return [b"-"] * count
    scales, points, dimension, details = fact.quantization
    if not isinstance(scales, tuple) or not isinstance(points, tuple) or details is not None:
        return None
    if len(scales) not in (1, count) or len(points) not in (0, 1, count):
        return None
    is_single = len(scales) == 1
    return [
        repr(
            (
                is_single,
                len(points) > 1,
                bool(points),
                None if is_single else dimension,
                scales[0 if is_single else index],
                points[index % len(points)] if points else 0,
            )
        ).encode()
        for index in range(count)
    ]


def _guess(inside: Indices, new: ProofSide, old: ProofSide) -> Indices:
    """Return, per result row, a candidate row in the original's result."""
    found = np.full(new.made, -1, np.int64)
    for tap in range(new.taps):
        at = new.sees(np.arange(new.made), tap)
        known = (at >= 0) & (at < new.size) & (found < 0)
        place = np.where(known, inside[np.clip(at, 0, new.size - 1)], -1)
        phase = place + old.before - tap * old.spread
        row = phase // old.stride
        fits = (place >= 0) & (phase % old.stride == 0) & (row >= 0) & (row < old.made)
        found = np.where((found < 0) & fits, row, found)
    return found
