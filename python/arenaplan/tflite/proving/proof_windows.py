"""
Operators whose windows slide over an image: convolutions and pooling.

A kernel computes each result element from the elements in the window, tap by tap, in a fixed order.
Two calls with the same parameters therefore make the same bits wherever the windows see the same
elements at the same taps. A tap outside the image is skipped. For a convolution, a skipped tap
equals an element that represents zero, because the product is zero, too; average and maximum
pooling have no such element.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

import numpy as np

from arenaplan.tflite.proving.elements import DOUBT, OUTSIDE, Elements, Names, first_twins
from arenaplan.tflite.proving.facts import Fact, Key, Operation
from arenaplan.tflite.proving.guess import Index, Indices
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

Reach = Literal["all", "own"]


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


@dataclass(frozen=True)
class ProofWindow:
    """An operator with windows."""

    key: Key
    """Everything a kernel can see except the image, the padding, and the channel parameters."""
    channels: tuple[bytes, ...]
    """Parameters per result channel."""
    rows: ProofSide
    columns: ProofSide
    depth: int
    """Number of image channels."""
    reach: Reach
    """Image channels that a result channel depends on: all, or its own."""
    share: int
    """Result channels per image channel, if each result channel has its own."""
    outside: int
    """The element that equals a tap outside the image."""


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
    return ProofWindow(key, (b"",) * y.shape[3], *sides, x.shape[3], "own", 1, OUTSIDE)


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
    reach: Reach = "own" if is_deep else "all"
    return ProofWindow(key, channels, *sides, x.shape[3], reach, share, zero)


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


class Found(NamedTuple):
    """A result's elements, and how many are not in doubt."""

    elements: Elements
    proven: int


class Theirs(NamedTuple):
    """A call in the original."""

    window: ProofWindow
    image: Elements
    places: Index
    """Places of the image's elements."""
    result: Elements


def matched(
    new: ProofWindow, image: Elements, theirs: Theirs, operator: int, names: Names
) -> Found | None:
    """
    Return a call's result elements as elements of the original call's result.

    Parameters
    ----------
    new : ProofWindow
        The call.
    image : Elements
        The call's image.
    theirs : Theirs
        The original call.
    operator : int
        The operator, for messages.
    names : Names
        Numbers given so far.

    Returns
    -------
    Found or None
        ``None`` if the parameters differ.
    """
    old, source, index, result = theirs
    depth = index.axes(image)[3]
    channels = _same_channels(new, old, depth)
    fresh = 0
    if channels is not None:
        made, fresh = _by_place(new, image, theirs, channels, operator, names)
    elif new.key == old.key and new.reach == "own" and index.has_twins:
        fresh = names.doubt(operator, "its channels are not those of the original")
        made = np.full((len(image), new.rows.made, new.columns.made, len(new.channels)), fresh)
    else:
        return None
    if fresh and index.has_twins:
        # An element's first place may differ from the place that the call computes.
        kinds: dict[tuple[bytes, ...], int] = {}
        others, mine = _sights(source, old, kinds), _sights(image, new, kinds)
        _, found = first_twins(others, mine)
        is_found = (found < len(others)) & (mine > DOUBT).all(axis=1)
        is_own = channels is None or new.reach == "own"
        known = (result if is_own else result[..., channels]).reshape(len(others), -1)
        lines = made.reshape(len(mine), -1)
        lines = np.where(is_found[:, None], known[np.where(is_found, found, 0)], lines)
        made = lines.reshape(made.shape)
    blank = blank_windows(image, new, names)
    made = np.where(blank < 0, blank, made)
    return Found(made, int((made > DOUBT).sum()))


def _by_place(
    new: ProofWindow,
    image: Elements,
    theirs: Theirs,
    channels: Indices,
    operator: int,
    names: Names,
) -> tuple[Elements, int]:
    """Return results of windows that see what the original's windows see, and a doubt, if any."""
    old, source, index, result = theirs
    batch, rows, columns, depth = index.axes(image)
    down = _guess(rows, new.rows, old.rows)
    across = _guess(columns, new.columns, old.columns)
    own = depth if new.reach == "own" else np.arange(new.depth)
    taps = _Taps(image, new), _Taps(source[:, :, :, own], old)
    shape = (len(batch), new.rows.made, new.columns.made, new.depth)
    bad = np.zeros(shape, np.int64)
    fresh = 0
    images = np.maximum(batch, 0)
    for tap in range(new.rows.taps):
        for step in range(new.columns.taps):
            seen = taps[0].seen(np.arange(len(batch)), None, None, tap, step)
            wanted = taps[1].seen(images, down, across, tap, step)
            differs = (seen != wanted) | (seen <= DOUBT)
            if not differs.any():
                continue
            if not fresh and (differs & (seen > DOUBT)).any():
                fresh = names.doubt(
                    operator, _told(differs & (seen > DOUBT), seen, wanted, down, tap, names)
                )
            bad = np.minimum(bad, np.where(differs, np.where(seen <= DOUBT, seen, fresh), 0))
    for axis, guess in ((0, batch), (1, down), (2, across)):
        if (guess < 0).any():
            fresh = fresh or names.doubt(operator, "its window sees no row of the original's image")
            where = np.flatnonzero(guess < 0)
            view = np.moveaxis(bad, axis, 0)
            view[where] = np.where(view[where] == 0, fresh, view[where])
    if new.reach == "all":
        bad = np.broadcast_to(bad.min(axis=3, keepdims=True), (*shape[:3], len(channels)))
    elif new.share > 1:
        bad = np.repeat(bad, new.share, axis=3)
    grid = np.ix_(images, np.maximum(down, 0), np.maximum(across, 0), channels)
    return np.where(bad < 0, bad, result[grid]), fresh


def _sights(image: Elements, window: ProofWindow, kinds: dict[tuple[bytes, ...], int]) -> Elements:
    """
    Return, for each group of result elements with equal dependencies, a row with the seen elements.

    Parameters
    ----------
    kinds : dict
        Numbers of channel parameters so far, if each channel has its own image.
    """
    taps, images = _Taps(image, window), np.arange(len(image))
    pairs = [(a, b) for a in range(window.rows.taps) for b in range(window.columns.taps)]
    seen = np.stack([taps.seen(images, None, None, *pair) for pair in pairs], axis=-1)
    if window.reach == "all":
        return seen.reshape(-1, window.depth * len(pairs))
    groups = [window.channels[at * window.share :][: window.share] for at in range(window.depth)]
    own = np.array([kinds.setdefault(group, len(kinds)) for group in groups], np.int64)
    whole = np.concatenate([np.broadcast_to(own[:, None], (*seen.shape[:-1], 1)), seen], axis=-1)
    return whole.reshape(-1, len(pairs) + 1)


def without_twins(image: Elements, window: ProofWindow, fresh: Elements) -> Elements:
    """
    Return new elements, with the same number for elements whose windows see the same elements.
    """
    (found,) = first_twins(_sights(image, window, {}))
    made: Elements = fresh.reshape(len(found), -1)[found].reshape(fresh.shape)
    return made


def blank_windows(image: Elements, window: ProofWindow, names: Names) -> Elements:
    """
    Return results of windows that see only known values; 0 for all other windows.

    An element's number follows from the parameters and values, not from the place: all rows made
    from padding are equal.
    """
    channels = len(window.channels)
    shape = (image.shape[0], window.rows.made, window.columns.made, channels)
    found = np.zeros(shape, np.int64)
    if (image >= 0).all():
        return found
    taps = _Taps(image, window)
    images = np.arange(shape[0])
    pairs = [(a, b) for a in range(window.rows.taps) for b in range(window.columns.taps)]
    is_blank = np.ones(shape[:3], bool)
    for pair in pairs:
        seen = taps.seen(images, None, None, *pair)
        is_blank &= ((seen < 0) & (seen > DOUBT)).all(axis=3)
    places = np.argwhere(is_blank)
    if places.size == 0:
        return found
    parts = [taps.seen(images, None, None, *pair)[is_blank] for pair in pairs]
    sights, group = np.unique(np.concatenate(parts, axis=1), axis=0, return_inverse=True)
    made = [names.derived((window.key, window.channels, s.tobytes()), channels) for s in sights]
    found[is_blank] = np.stack(made)[group.ravel()]
    return found


def _same_channels(new: ProofWindow, old: ProofWindow, depth: Indices) -> Indices | None:
    """Return, per channel, the channel in the original's result."""
    if new.key != old.key:
        return None
    if new.reach == "own":
        if (depth < 0).any():
            return None
        share = np.arange(new.share)
        channels = np.repeat(depth, new.share) * new.share + np.tile(share, new.depth)
        wanted = tuple(old.channels[channel] for channel in channels)
        return channels if new.channels == wanted else None
    if new.channels == old.channels:
        return np.arange(len(new.channels))
    known: dict[bytes, int] = {}
    for number, part in enumerate(old.channels):
        known.setdefault(part, number)
    found: list[int] = []
    for part in new.channels:
        following = found[-1] + 1 if found else 0
        if following < len(old.channels) and old.channels[following] == part:
            found.append(following)
        elif part in known:
            found.append(known[part])
        else:
            return None
    return np.array(found, np.int64)


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


class _Taps:
    """An image with a border of elements that represent the outside."""

    def __init__(self, image: Elements, window: ProofWindow) -> None:
        self._window = window
        pads = [(0, 0)]
        for side in (window.rows, window.columns):
            end = (side.made - 1) * side.stride - side.before + (side.taps - 1) * side.spread
            pads.append((side.before, max(0, end + 1 - side.size)))
        self._image = np.pad(image, (*pads, (0, 0)), constant_values=window.outside)

    def seen(
        self, images: Indices, rows: Indices | None, columns: Indices | None, tap: int, step: int
    ) -> Elements:
        """Return the elements that one tap of all windows sees."""
        window = self._window
        down = self._places(window.rows, rows, tap)
        across = self._places(window.columns, columns, step)
        found: Elements = self._image[np.ix_(images, down, across)]
        return found

    def _places(self, side: ProofSide, at: Indices | None, tap: int) -> Indices:
        at = np.arange(side.made) if at is None else np.maximum(at, 0)
        return side.sees(at, tap) + side.before


def _told(
    differs: np.ndarray, seen: Elements, wanted: Elements, down: Indices, tap: int, names: Names
) -> str:
    """Return text for the first difference."""
    where = tuple(int(i) for i in np.argwhere(differs)[0])
    if down[where[1]] < 0:
        return f"row {where[1]} of its result is in the phase of no row of the original's result"
    return (
        f"row {where[1]} of its result sees {names.told(int(seen[where]))} at row {tap} of its "
        f"window, and row {int(down[where[1]])} of the original's result sees "
        f"{names.told(int(wanted[where]))}"
    )
