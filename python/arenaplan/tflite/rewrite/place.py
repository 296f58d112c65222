"""
Places tensors in an arena.

:func:`place` chooses which tensors lie inside other tensors
(:mod:`~arenaplan.tflite.rewrite.tensor_groups`) and packs the groups
(:mod:`~arenaplan.tflite.rewrite.group_packing`). :mod:`arenaplan.tflite.proving`, which shares no
code with this search, proves that a program can run with these places.
"""

from __future__ import annotations

from dataclasses import dataclass

from arenaplan.tflite.rewrite.group_packing import packed
from arenaplan.tflite.rewrite.tensor_groups import (
    ALIASES,
    GroupLayout,
    TensorGroup,
    groups_of,
    live_bytes,
)


@dataclass(frozen=True, slots=True)
class Placed:
    """Places for all tensors."""

    offsets: tuple[int, ...]
    """Byte offset by tensor; -1 for tensors outside the arena."""
    head: int
    """Bytes from the first to the last."""
    bound: int
    """Most live bytes in a step: a lower bound for all places of these groups."""


def place(layout: GroupLayout, *, tries: int = 60, seed: int = 0, goal: int = 0) -> Placed:
    """
    Return places for all tensors.

    Parameters
    ----------
    layout : GroupLayout
        The tensors and steps.
    tries : int
        Number of placing orders tried.
    seed : int
        Seed for the orders.
    goal : int
        Byte count that ends the search.

    Returns
    -------
    Placed
        Places.
    """
    results: list[Placed] = []
    ways: list[list[TensorGroup]] = []
    for how in ALIASES:
        groups = groups_of(layout, how)
        if all([g.members for g in groups] != [g.members for g in way] for way in ways):
            ways.append(groups)
    for groups in ways:
        live = live_bytes(groups, len(layout.uses))
        bound = max(live, default=0)
        if results and bound >= results[0].head:
            continue
        found = packed(groups, live, layout, tries // len(ways), seed, max(bound, goal))
        offsets = [-1] * len(layout.boxes)
        for group, offset in zip(groups, found, strict=True):
            for tensor, distance in group.members.items():
                offsets[tensor] = offset + distance
        head = max(
            (o + size for o, size in zip(offsets, layout.boxes, strict=True) if o >= 0), default=0
        )
        results.append(Placed(tuple(offsets), head, bound))
    return min(results, key=lambda placed: placed.head)
