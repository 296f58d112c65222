"""
Memories with capacities: which buffer goes into which.

A rule that is simple to explain, for where a planner has to choose among memories: the
fastest memory gets the buffers that are touched most often for the time that they take up
room, and what does not fit goes to the next.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from arenaplan.errors import CapacityExceeded, InvalidOption
from arenaplan.packing import pack
from arenaplan.planning import whole_number


class Bank(NamedTuple):
    """
    A memory that a planner may fill.

    Examples
    --------
    >>> from arenaplan.integrations.banks import Bank
    >>> Bank("sram", 256 << 10, mem_id=1)
    Bank(name='sram', capacity=262144, mem_id=1, alignment=1)
    """

    name: str
    capacity: int
    """Bytes that this model may use of it."""
    mem_id: int
    """Number of the arena at run time; 0 is for constants."""
    alignment: int = 1
    """Power of two, in bytes, that divides every offset, where the plan's is not stricter."""

    @staticmethod
    def check(banks: Sequence[Bank]) -> None:
        """
        Refuse banks that contradict each other.

        Raises
        ------
        InvalidOption
            If there are none, two have one name or number, or a figure makes no sense.
        """
        if not banks:
            raise InvalidOption("there are no banks")
        for what, found in (
            ("name", [bank.name for bank in banks]),
            ("mem_id", [bank.mem_id for bank in banks]),
        ):
            twice = next((a for a, b in pairwise(sorted(map(str, found))) if a == b), None)
            if twice is not None:
                raise InvalidOption(f"two banks have the {what} {twice}")
        for bank in banks:
            if whole_number(bank.capacity, f"the capacity of bank {bank.name!r}") <= 0:
                raise InvalidOption(f"bank {bank.name!r} has {bank.capacity} bytes")
            if whole_number(bank.mem_id, f"the mem_id of bank {bank.name!r}") < 1:
                raise InvalidOption(
                    f"bank {bank.name!r} has the mem_id {bank.mem_id}, not 1 or more"
                )
            alignment = whole_number(bank.alignment, f"the alignment of bank {bank.name!r}")
            if alignment < 1 or alignment & (alignment - 1):
                raise InvalidOption(
                    f"bank {bank.name!r} has the alignment {alignment}, which is no power of two"
                )


class Buffer(NamedTuple):
    """What needs bytes in some bank."""

    size: int
    live: tuple[int, int]
    """Half-open live range, in steps."""
    uses: int = 1
    """How many steps read or write it."""
    pinned: int | None = None
    """The ``mem_id`` of where it must be, if that was decided."""


class Assignment(NamedTuple):
    """Where every buffer is."""

    places: list[tuple[int, int]]
    """By buffer, the ``mem_id`` of its memory and its offset there."""
    sizes: list[int]
    """Bytes used, by ``mem_id``."""
    alignments: dict[int, int]
    """Alignment by ``mem_id``."""


def assign(
    buffers: Sequence[Buffer],
    banks: Sequence[Bank],
    *,
    alignment: int = 1,
    starts: Mapping[int, int] | None = None,
    padding: int = 0,
) -> Assignment:
    """
    Choose a bank for every buffer, and an offset in it.

    Banks are filled in their order. A bank first takes what is pinned to it, then others by
    their uses per step of their life, the larger first among equals, as long as at every step
    what is live fits the capacity. If the packer does not get that under the capacity, the
    last ones taken leave again. Buffers pinned to a number that no bank has are placed
    there without a limit.

    Parameters
    ----------
    buffers : sequence of Buffer
        What to place.
    banks : sequence of Bank
        The memories, the fastest first.
    alignment : int, default 1
        Power of two that divides every offset in every bank.
    starts : mapping of int to int, optional
        Bytes at the start of a memory, by ``mem_id``, that are taken.
    padding : int, default 0
        Bytes that stay free at the end of every memory that is used.

    Returns
    -------
    Assignment
        Places, and how much of each memory is used.

    Raises
    ------
    CapacityExceeded
        If a buffer fits no bank, or not the one that it is pinned to.

    Examples
    --------
    >>> from arenaplan.integrations.banks import Bank, Buffer, assign
    >>> banks = [Bank("sram", 100, mem_id=1), Bank("psram", 1000, mem_id=2)]
    >>> short, long, busy = Buffer(60, (0, 2), 2), Buffer(60, (0, 9), 2), Buffer(60, (2, 4), 5)
    >>> assign([short, long, busy], banks).places
    [(1, 0), (2, 0), (1, 0)]
    """
    starts = starts or {}
    places: list[tuple[int, int]] = [(0, 0)] * len(buffers)
    sizes = [0] * (1 + max([1, *(bank.mem_id for bank in banks), *_pins(buffers)]))
    for mem_id, taken in starts.items():
        sizes += [0] * (mem_id + 1 - len(sizes))
        sizes[mem_id] = taken
    alignments = {bank.mem_id: max(alignment, bank.alignment) for bank in banks}
    known = {bank.mem_id for bank in banks}
    for mem_id in _pins(buffers) - known:
        alignments[mem_id] = alignment
        here = [i for i, buffer in enumerate(buffers) if buffer.pinned == mem_id]
        start = _up(starts.get(mem_id, 0), alignment)
        peak, offsets = _packed(buffers, here, alignment, None)
        sizes[mem_id] = start + peak + padding
        for i, offset in zip(here, offsets, strict=True):
            places[i] = (mem_id, start + offset)
    left = [i for i, buffer in enumerate(buffers) if buffer.pinned is None]
    for bank in banks:
        step = alignments[bank.mem_id]
        start = _up(starts.get(bank.mem_id, 0), step)
        room = bank.capacity - start - padding
        if starts.get(bank.mem_id, 0) > bank.capacity:
            raise CapacityExceeded(
                f"{starts[bank.mem_id]} bytes of bank {bank.name!r} are taken, and it has "
                f"{bank.capacity}"
            )
        pinned = [i for i, buffer in enumerate(buffers) if buffer.pinned == bank.mem_id]
        here, offsets, peak = _fill(buffers, pinned, left, room, step, bank)
        if here:
            sizes[bank.mem_id] = start + peak + padding
        for i, offset in zip(here, offsets, strict=True):
            places[i] = (bank.mem_id, start + offset)
        left = [i for i in left if i not in set(here)]
    if left:
        raise CapacityExceeded(
            f"a buffer of {max(buffers[i].size for i in left)} bytes fits no bank: "
            + ", ".join(f"{bank.name!r} has {bank.capacity} bytes" for bank in banks)
        )
    return Assignment(places, sizes, alignments)


def _pins(buffers: Iterable[Buffer]) -> set[int]:
    """Return the numbers of the memories that buffers are pinned to."""
    return {buffer.pinned for buffer in buffers if buffer.pinned is not None}


def _fill(
    buffers: Sequence[Buffer],
    pinned: list[int],
    others: list[int],
    room: int,
    alignment: int,
    bank: Bank,
) -> tuple[list[int], list[int], int]:
    """Return what goes into a bank, at which offsets, and how many bytes that needs."""
    load = [0] * max((buffer.live[1] for buffer in buffers), default=0)
    for i in pinned:
        _add(load, buffers[i], alignment)
    taken = []
    for i in sorted(others, key=lambda i: (-_density(buffers[i]), -buffers[i].size, i)):
        start, end = buffers[i].live
        if max(load[start:end]) + _up(buffers[i].size, alignment) <= room:
            _add(load, buffers[i], alignment)
            taken.append(i)
    while True:
        here = pinned + taken
        peak, offsets = _packed(buffers, here, alignment, max(room, 0))
        if peak <= max(room, 0) or not here:
            return here, offsets, peak
        if not taken:
            raise CapacityExceeded(
                f"what is pinned to bank {bank.name!r} needs {peak} of {max(room, 0)} bytes"
            )
        del taken[-max(1, len(taken) // 16) :]


def _density(buffer: Buffer) -> float:
    """Return how often a buffer is touched for the time that it takes up room."""
    return buffer.uses / (buffer.live[1] - buffer.live[0])


def _add(load: list[int], buffer: Buffer, alignment: int) -> None:
    """Add a buffer to the bytes live at each step."""
    for step in range(*buffer.live):
        load[step] += _up(buffer.size, alignment)


def _packed(
    buffers: Sequence[Buffer], here: Sequence[int], alignment: int, capacity: int | None
) -> tuple[int, list[int]]:
    """Return bytes and offsets of some buffers, packed."""
    packing = pack(
        [_up(buffers[i].size, alignment) for i in here],
        [buffers[i].live for i in here],
        alignment=alignment,
        capacity=capacity,
    )
    return packing.peak, packing.offsets


def _up(number: int, alignment: int) -> int:
    """Round up to a multiple."""
    return -(-number // alignment) * alignment
