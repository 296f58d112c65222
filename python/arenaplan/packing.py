"""Packing buffers without a graph."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypedDict

from arenaplan import _core
from arenaplan._core import Packing
from arenaplan.errors import (
    InvalidAlignment,
    InvalidLiveRange,
    InvalidOption,
    InvalidSize,
    PinConflict,
)
from arenaplan.options import whole_number
from arenaplan.watch import Progress, checked_seconds

_MOST_BYTES = 1 << 63
_MOST_STEPS = 1 << 32

MAX_THREADS = 1 << 10
"""Most threads of a search."""


def pack(
    sizes: Iterable[int],
    live: Iterable[Sequence[int]],
    *,
    alignment: int | Sequence[int] = 1,
    capacity: int | None = None,
    pins: Mapping[int, int] | Sequence[int | None] | None = None,
    time_limit: float | None = None,
    node_limit: int | None = None,
    seed: int = 0,
    threads: int = 1,
    on_progress: Progress | None = None,
) -> Packing:
    """
    Place buffers in one arena so that those live together share no byte.

    Parameters
    ----------
    sizes : array_like of int, shape (n,)
        Size of every buffer, in bytes.
    live : array_like of int, shape (n, 2)
        Half-open live range ``[start, end)`` of every buffer, in steps.
    alignment : int or sequence of int, default 1
        Power of two, in bytes, that divides every offset; or one for each buffer.
    capacity : int, optional
        Bytes that the arena has. The search ends as soon as everything fits; without
        a capacity it goes for the least peak.
    pins : mapping of int to int, or sequence of int or None, optional
        Offsets of buffers that may not be moved.
    time_limit : float, optional
        Seconds after which the best packing so far is returned.
    node_limit : int, optional
        Search nodes after which it is; the result does not depend on the machine.
    seed : int, default 0
        Seed of all random choices.
    threads : int, default 1
        Threads of a search with a time limit; others use one, to be reproducible.
    on_progress : callable, optional
        Called with a dictionary (``stage``, ``seconds``, ``peak``, ``lower_bound``, ``nodes``)
        for each improvement. If it returns ``False``, the best packing so far is returned.

    Returns
    -------
    Packing
        ``offsets[i]``, first byte of buffer ``i``; ``peak``, bytes of the arena;
        ``lower_bound``, bytes that no packing can do without; and ``status``:
        ``"optimal"``; ``"feasible"``; ``"infeasible"`` if it is proven that nothing fits
        ``capacity``; or ``"unknown"`` if nothing was found that does. The last two
        come with the best packing found.

    Raises
    ------
    InvalidSize, InvalidLiveRange, InvalidAlignment, PinConflict, SizeOverflow
        If the buffers make no sense.
    InvalidOption
        If a limit, the seed or the number of threads (1 to 1,024) makes no sense.
    KeyboardInterrupt
        On Ctrl-C; its ``packing`` is the best one so far.

    Examples
    --------
    >>> import arenaplan as ap
    >>> packing = ap.pack([100, 60, 100], [(0, 2), (1, 3), (2, 4)])
    >>> packing.offsets, packing.peak, packing.status
    ([0, 100, 0], 160, 'optimal')
    """
    numbers = [whole_number(size, "a size") for size in _plain(sizes)]
    ranges = [_range(index, pair) for index, pair in enumerate(_plain(live))]
    if len(numbers) != len(ranges):
        raise InvalidSize(f"there are {len(numbers)} sizes and {len(ranges)} live ranges")
    for index, size in enumerate(numbers):
        if not 0 <= size < _MOST_BYTES:
            raise InvalidSize(f"buffer {index} has {size} bytes")
    packing = _core.pack(
        numbers,
        ranges,
        _alignments(alignment, len(numbers)),
        _pins(pins, len(numbers)),
        [None] * len(numbers),
        check_capacity(capacity),
        **check_limits(time_limit, node_limit, seed, threads),
        on_progress=on_progress,
    )
    if packing.interrupted:
        interrupt = KeyboardInterrupt("interrupted")
        interrupt.packing = packing  # type: ignore[attr-defined]
        raise interrupt
    return packing


class Limits(TypedDict):
    """Limits of a search."""

    time_limit: float | None
    node_limit: int | None
    seed: int
    threads: int


def check_limits(
    time_limit: float | None, node_limit: int | None, seed: int, threads: int
) -> Limits:
    """Return the limits of a search, or raise the error that they are none."""
    seconds = checked_seconds(time_limit)
    if not 1 <= whole_number(threads, "threads") <= MAX_THREADS:
        raise InvalidOption(f"option threads: {threads} is not a number from 1 to {MAX_THREADS:,}")
    return {
        "time_limit": seconds,
        "node_limit": None if node_limit is None else _natural(node_limit, "node_limit"),
        "seed": _natural(seed, "seed"),
        "threads": threads,
    }


def check_capacity(capacity: int | None) -> int | None:
    """Return a capacity, or raise the error that it is none."""
    if capacity is None:
        return None
    capacity = whole_number(capacity, "capacity")
    if not 0 <= capacity < 1 << 64:
        raise InvalidSize(f"capacity {capacity} is no number of bytes")
    return capacity


def _plain(values: Iterable[Any]) -> Iterable[Any]:
    """Return Python numbers for those of an array, which are slower one by one."""
    to_list = getattr(values, "tolist", None)
    return values if to_list is None else to_list()


def _range(index: int, pair: Sequence[int]) -> tuple[int, int]:
    """Return a live range of steps."""
    if len(pair) != 2:
        raise InvalidLiveRange(f"the live range of buffer {index} is {pair!r}, not (start, end)")
    start, end = (whole_number(step, "a step") for step in pair)
    if not 0 <= start < end < _MOST_STEPS:
        raise InvalidLiveRange(
            f"the live range {start}..{end} of buffer {index} is empty or out of range"
        )
    return start, end


def _alignments(alignment: int | Sequence[int], count: int) -> list[int]:
    """Return one alignment for each buffer."""
    if isinstance(alignment, int) or not hasattr(alignment, "__len__"):
        each = [whole_number(alignment, "alignment")] * count
    else:
        each = [whole_number(value, "an alignment") for value in _plain(alignment)]
        if len(each) != count:
            raise InvalidAlignment(f"there are {len(each)} alignments and {count} buffers")
    for value in each:
        if not 0 < value < 1 << 64:
            raise InvalidAlignment(f"alignment {value} is not a power of two up to 2^62")
    return each


def _pins(pins: Mapping[int, int] | Sequence[int | None] | None, count: int) -> list[int | None]:
    """Return the pinned offset of each buffer, or None."""
    each: list[int | None] = [None] * count
    if pins is None:
        return each
    if not isinstance(pins, Mapping):
        if len(pins) != count:
            raise PinConflict(f"there are {len(pins)} pins and {count} buffers")
        pins = {index: offset for index, offset in enumerate(pins) if offset is not None}
    for index, offset in pins.items():
        index, offset = whole_number(index, "a pinned buffer"), whole_number(offset, "a pin")
        if not 0 <= index < count:
            raise PinConflict(f"buffer {index} is pinned, and there are {count} buffers")
        if not 0 <= offset < _MOST_BYTES:
            raise PinConflict(f"buffer {index} is pinned to offset {offset}, past any memory")
        each[index] = offset
    return each


def _natural(number: int, what: str) -> int:
    """Return a whole number of 64 bits."""
    number = whole_number(number, what)
    if not 0 <= number < 1 << 64:
        raise InvalidOption(f"option {what}: {number} is negative or does not fit 64 bits")
    return number
