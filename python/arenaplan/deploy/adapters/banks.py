"""
Memories with capacities: places buffers with live ranges where the cost is least.

A compiler that knows lifetimes needs no operator graph, so buffers become a graph with a node for
each step, and :func:`arenaplan.plan` chooses among the memories.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from glob import escape
from itertools import pairwise
from typing import NamedTuple

from arenaplan.base.amounts import whole_number
from arenaplan.base.errors import CapacityExceeded, InvalidOption
from arenaplan.graph import Graph
from arenaplan.planner.packing import pack
from arenaplan.planner.planning import plan
from arenaplan.planner.spaces import Space


class Bank(NamedTuple):
    """
    A memory that a planner may fill.

    Examples
    --------
    >>> from arenaplan.deploy.adapters.banks import Bank
    >>> Bank("sram", 256 << 10, mem_id=1)
    Bank(name='sram', capacity=262144, mem_id=1, alignment=1)
    """

    name: str
    capacity: int
    """Bytes available to this model."""
    mem_id: int
    """Arena number at run time; 0 is for constants."""
    alignment: int = 1
    """Power of two, in bytes, that divides every offset, unless the plan's is stricter."""

    @staticmethod
    def check(banks: Sequence[Bank]) -> None:
        """
        Refuse banks that contradict each other.

        Raises
        ------
        InvalidOption
            If there are no banks, two banks share a name or number, or a figure makes no sense.
        """
        if not banks:
            raise InvalidOption("there are no banks; give at least one")
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
                    f"bank {bank.name!r} has the alignment {alignment}, which is not a power of two"
                )


class BankedValue(NamedTuple):
    """A value that needs bytes in some bank."""

    size: int
    live: tuple[int, int]
    """Half-open live range, in steps."""
    uses: int = 1
    """Number of steps that read or write the buffer."""
    pinned: int | None = None
    """The ``mem_id`` of the required memory, if already decided."""
    name: str | None = None
    """For messages; ``buffer N``, by position, if left out."""


class Assignment(NamedTuple):
    """Every buffer's place."""

    places: list[tuple[int, int]]
    """By buffer, the memory's ``mem_id`` and the offset in the memory."""
    sizes: list[int]
    """Bytes used, by ``mem_id``."""
    alignments: dict[int, int]
    """Alignment by ``mem_id``."""


def assign(
    buffers: Sequence[BankedValue],
    banks: Sequence[Bank],
    *,
    alignment: int = 1,
    starts: Mapping[int, int] | None = None,
    padding: int = 0,
    steps: Sequence[str] = (),
) -> Assignment:
    """
    Choose a bank and an offset for every buffer.

    A byte read or written costs 0 in the first bank, 1 in the second, 2 in the third and so on; the
    sum is minimized. Buffers pinned to a number without a bank are placed there without a limit.

    Parameters
    ----------
    buffers : sequence of BankedValue
        The buffers to place.
    banks : sequence of Bank
        The memories, the fastest first.
    alignment : int, default 1
        Power of two that divides every offset in every bank.
    starts : mapping of int to int, optional
        Reserved bytes at the start of a memory, by ``mem_id``.
    padding : int, default 0
        Bytes that stay free at the end of every used memory.
    steps : sequence of str, optional
        Step names for messages; ``step N`` for missing names.

    Returns
    -------
    Assignment
        Places, and the used bytes in each memory.

    Raises
    ------
    CapacityExceeded
        If the buffers do not fit; the message names the bank, the step and the buffers, and marks
        pinned buffers.

    Examples
    --------
    >>> from arenaplan.deploy.adapters.banks import Bank, BankedValue, assign
    >>> banks = [Bank("sram", 100, mem_id=1), Bank("psram", 1000, mem_id=2)]
    >>> lives = [((0, 2), 2), ((0, 9), 2), ((2, 4), 2)]
    >>> short, long, busy = (BankedValue(60, live, reads) for live, reads in lives)
    >>> assign([short, long, busy], banks).places
    [(1, 0), (2, 0), (1, 0)]
    """
    starts = starts or {}
    own = {bank.mem_id for bank in banks}
    others = {b.pinned for b in buffers if b.pinned is not None} - own
    sizes = [0] * (1 + max((1, *own, *others, *starts)))
    alignments = {bank.mem_id: max(alignment, bank.alignment) for bank in banks}
    alignments |= dict.fromkeys(others, alignment)
    for mem_id, taken in starts.items():
        sizes[mem_id] = taken
    first = {mem_id: rounded_up(starts.get(mem_id, 0), step) for mem_id, step in alignments.items()}
    places: dict[int, tuple[int, int]] = {}
    for mem_id in others:
        places |= _place_alone(buffers, mem_id, alignment)
    if banks:
        places |= _place_in_banks(buffers, banks, alignments, first, padding, steps)
    for i, (mem_id, offset) in places.items():
        places[i] = (mem_id, first[mem_id] + offset)
        end = first[mem_id] + offset + rounded_up(buffers[i].size, alignments[mem_id]) + padding
        sizes[mem_id] = max(sizes[mem_id], end)
    return Assignment([places[i] for i in range(len(buffers))], sizes, alignments)


def _place_alone(
    buffers: Sequence[BankedValue], mem_id: int, alignment: int
) -> dict[int, tuple[int, int]]:
    """Place the buffers that are pinned to a memory without a capacity."""
    here = [i for i, buffer in enumerate(buffers) if buffer.pinned == mem_id]
    packing = pack(
        [rounded_up(buffers[i].size, alignment) for i in here],
        [buffers[i].live for i in here],
        alignment=alignment,
    )
    return {i: (mem_id, offset) for i, offset in zip(here, packing.offsets, strict=True)}


def _place_in_banks(
    buffers: Sequence[BankedValue],
    banks: Sequence[Bank],
    alignments: Mapping[int, int],
    first: Mapping[int, int],
    padding: int,
    steps: Sequence[str],
) -> dict[int, tuple[int, int]]:
    """Place everything else; offsets count from where a bank is free."""
    ids = {bank.mem_id for bank in banks}
    here = [i for i, buffer in enumerate(buffers) if buffer.pinned in (None, *ids)]
    spaces = []
    for bank in banks:
        room = bank.capacity - first[bank.mem_id]
        if room < 0:
            raise CapacityExceeded(
                f"{first[bank.mem_id]} bytes of bank {bank.name!r} are taken, and it has "
                f"{bank.capacity}"
            )
        spaces.append(Space(bank.name, max(0, room - padding), alignment=alignments[bank.mem_id]))
    names = _unique(buffers[i].name or f"buffer {i}" for i in here)
    graph = _graph_of([buffers[i] for i in here], names, steps)
    bank_of = {bank.mem_id: bank.name for bank in banks}
    pins = {
        escape(name): bank_of[pinned]
        for name, i in zip(names, here, strict=True)
        if (pinned := buffers[i].pinned) is not None
    }
    # The live ranges are given, and so is the order.
    found = plan(graph, optimize="none", spaces=spaces, pins=pins).placements
    places = {}
    for i, place in zip(here, found, strict=True):
        space, offset = (0, 0) if place is None else (place.space, place.offset)
        places[i] = (banks[space].mem_id, offset)
    return places


def _unique(names: Iterable[str]) -> list[str]:
    """Return the names; repeated names get a number."""
    known: set[str] = set()
    unique = []
    for name in names:
        candidate, count = name, 1
        while candidate in known:
            count += 1
            candidate = f"{name} ({count})"
        known.add(candidate)
        unique.append(candidate)
    return unique


def _graph_of(buffers: Sequence[BankedValue], names: Sequence[str], labels: Sequence[str]) -> Graph:
    """Return a graph that reads and writes each buffer in as many steps as the buffer is used."""
    graph = Graph("banks")
    steps = max((buffer.live[1] for buffer in buffers), default=0)
    labels = _unique(
        labels[step] if step < len(labels) else f"step {step}" for step in range(steps)
    )
    reads: list[list[int]] = [[] for _ in range(steps)]
    writes: list[list[int]] = [[] for _ in range(steps)]
    for name, buffer in zip(names, buffers, strict=True):
        value = graph.value(name, (buffer.size,), "uint8")
        start, end = buffer.live
        writes[start].append(value)
        # Only the number of reads and the last step matter, not when the other reads happen.
        for step in {*range(start + 1, min(end, start + buffer.uses - 1)), end - 1} - {start}:
            reads[step].append(value)
    for step in range(steps):
        graph.append("step", tuple(reads[step]), tuple(writes[step]), name=labels[step])
    return graph


def rounded_up(number: int, alignment: int) -> int:
    """Round up to a multiple."""
    return -(-number // alignment) * alignment
