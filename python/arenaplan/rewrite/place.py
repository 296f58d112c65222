"""
Places of tensors in an arena, and the proof that a program can run with them.

:func:`place` chooses which tensors lie inside of others (:mod:`~arenaplan.rewrite.groups`) and
packs the groups (:mod:`~arenaplan.rewrite.packing`). :func:`replay` runs the program on symbolic
memory and refuses places with which an operator would not read what it should.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from arenaplan.errors import PlanMisaligned, PlanOverlap
from arenaplan.rewrite.groups import ALIASES, UNIT, Group, Layout, Use, groups_of, live_bytes
from arenaplan.rewrite.packing import Packing


@dataclass(frozen=True, slots=True)
class Placed:
    """Places of all tensors."""

    offsets: tuple[int, ...]
    """Offset by tensor, in bytes; -1 for tensors outside of the arena."""
    head: int
    """Bytes from the first to the last."""
    bound: int
    """Most bytes that are live in one step: no places of these groups need less."""


def place(layout: Layout, *, tries: int = 60, seed: int = 0, goal: int = 0) -> Placed:
    """
    Return places of all tensors.

    Parameters
    ----------
    layout : Layout
        The tensors and steps.
    tries : int
        Orders of placing that are tried.
    seed : int
        Seed of the order.
    goal : int
        Bytes that are good enough.

    Returns
    -------
    Placed
        Places; :func:`replay` is the proof that a program can run with them.
    """
    results: list[Placed] = []
    ways: list[list[Group]] = []
    for how in ALIASES:
        groups = groups_of(layout, how)
        if all([g.members for g in groups] != [g.members for g in way] for way in ways):
            ways.append(groups)
    for groups in ways:
        live = live_bytes(groups, len(layout.uses))
        bound = max(live, default=0)
        if results and bound >= results[0].head:
            continue
        found = Packing(groups, live, layout).search(tries // len(ways), seed, max(bound, goal))
        offsets = [-1] * len(layout.boxes)
        for group, offset in zip(groups, found, strict=True):
            for tensor, distance in group.members.items():
                offsets[tensor] = offset + distance
        head = max(
            (o + size for o, size in zip(offsets, layout.boxes, strict=True) if o >= 0), default=0
        )
        results.append(Placed(tuple(offsets), head, bound))
    return min(results, key=lambda placed: placed.head)


def replay(layout: Layout, offsets: Sequence[int]) -> None:
    """
    Run the program on symbolic memory.

    Raises
    ------
    PlanMisaligned
        If an offset is no multiple of :data:`UNIT`.
    PlanOverlap
        If an operator would read bytes that another has overwritten, or would write bytes that it
        still reads, other than with themselves.
    """
    memory: dict[int, tuple[int, int]] = {}
    tags: dict[int, list[tuple[int, int]]] = {}
    for tensor, offset in enumerate(offsets):
        if layout.boxes[tensor] and (offset < 0 or offset % UNIT):
            raise PlanMisaligned(f"tensor {tensor} is at {offset}, no multiple of {UNIT}")
    for step, use in enumerate(layout.uses):
        busy: dict[int, set[int]] = {}
        for read in use.reads:
            if not layout.boxes[read.tensor]:
                continue
            base = offsets[read.tensor] // UNIT
            for unit in range(read.start // UNIT, -(-read.stop // UNIT)):
                if memory.get(base + unit) != tags[read.tensor][unit]:
                    raise PlanOverlap(
                        f"step {step} reads byte {read.start} of tensor {read.tensor} from "
                        f"{offsets[read.tensor]}, which something else has overwritten"
                    )
                busy.setdefault(base + unit, set()).add(read.tensor)
        for tensor in use.writes:
            if not layout.boxes[tensor]:
                continue
            base = offsets[tensor] // UNIT
            tags[tensor] = _tags(layout, use, tensor, tags)
            behind = {
                lead.source
                for lead in use.leads
                if lead.target == tensor and offsets[lead.source] - offsets[tensor] >= lead.distance
            }
            for unit, tag in enumerate(tags[tensor]):
                same = use.is_idempotent and memory.get(base + unit) == tag
                if not busy.get(base + unit, set()) <= behind and not same:
                    raise PlanOverlap(
                        f"step {step} writes tensor {tensor} over bytes that it reads"
                    )
                memory[base + unit] = tag
            for unit in range(len(tags[tensor])):
                busy.setdefault(base + unit, set()).add(tensor)


def _tags(
    layout: Layout, use: Use, tensor: int, tags: dict[int, list[tuple[int, int]]]
) -> list[tuple[int, int]]:
    """Return the content of a tensor, unit by unit: the tensor and unit that it came from."""
    made = [(tensor, unit) for unit in range(-(-layout.boxes[tensor] // UNIT))]
    for copy in use.copies:
        if copy.target != tensor:
            continue
        source, first = tags.get(copy.source), copy.target_at // UNIT
        if source is not None:
            for unit in range(copy.size // UNIT):
                made[first + unit] = source[copy.source_at // UNIT + unit]
    return made
