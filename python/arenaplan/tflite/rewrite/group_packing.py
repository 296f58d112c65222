"""Packs tensor groups: distance rules for pairs of groups, and the search."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from arenaplan import _core
from arenaplan.tflite.rewrite.tensor_groups import GroupLayout, TensorGroup, TimedSpan

_WARM: Final = 0.2
"""The same where results may be written over operands."""

_HOT: Final = 0.6
"""A step with this share of the peak is loaded; groups outside loaded steps are placed last."""


def packed(
    groups: Sequence[TensorGroup],
    live: Sequence[int],
    layout: GroupLayout,
    tries: int,
    seed: int,
    goal: int,
) -> list[int]:
    """
    Return group offsets.

    Every packing that cannot be pushed down results from placing each group at the lowest free
    offset, in offset order. The search (``pack/src/solve/repair/apart.rs``) therefore moves groups
    within the placing order, and chooses whether each goes below or above other groups.

    Parameters
    ----------
    groups : sequence of TensorGroup
        The groups.
    live : sequence of int
        Live bytes by time.
    layout : GroupLayout
        The tensors and steps.
    tries : int
        Number of placing orders tried.
    seed : int
        Seed for the order of moves.
    goal : int
        Byte count that ends the search.
    """
    if not groups:
        return []
    steps = [(min(s.first for s in g.spans), max(s.last for s in g.spans)) for g in groups]
    # Results over operands keep distances, which chain groups beyond the loaded steps.
    is_chained = any(not lead.is_exact for lead in layout.leads)
    level = (_WARM if is_chained else _HOT) * max(live, default=0)
    loads = [max(live[first : last + 1]) for first, last in steps]
    sizes = [group.size for group in groups]
    hot = [i for i, load in enumerate(loads) if load >= level]
    cold = [i for i, load in enumerate(loads) if load < level]
    weights = [sum((s.stop - s.start) * (s.last - s.first + 1) for s in g.spans) for g in groups]
    orders = [
        sorted(hot, key=lambda i: (-sizes[i], i)),
        sorted(hot, key=lambda i: (-weights[i], i)),
        sorted(hot, key=lambda i: (steps[i], -sizes[i])),
        sorted(hot, key=lambda i: (-steps[i][1], -sizes[i])),
    ]
    cold.sort(key=lambda i: (-sizes[i], i))
    return _core.pack_apart(sizes, _rules(groups, steps, layout), orders, cold, tries, seed, goal)


def _rules(
    groups: Sequence[TensorGroup], steps: Sequence[tuple[int, int]], layout: GroupLayout
) -> list[tuple[int, int, int, int]]:
    """Return pairs of groups, and the open range of distances at which the pair collides."""
    home = {tensor: i for i, group in enumerate(groups) for tensor in group.members}
    apart: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for lead in layout.leads:
        a, b = home[lead.source], home[lead.target]
        shift = groups[a].members[lead.source] - groups[b].members[lead.target]
        # The result group's offset minus the operand group's offset.
        ranges = apart.setdefault((b, a), [])
        ranges.append((shift - lead.distance, shift + layout.boxes[lead.source]))
        if lead.is_exact:
            ranges.append((shift - layout.boxes[lead.target], shift))
    rules = []
    order = sorted(range(len(groups)), key=lambda i: steps[i])
    for rank, index in enumerate(order):
        last = steps[index][1]
        for other in order[rank + 1 :]:
            if steps[other][0] > last:
                break
            found = _collisions(groups[index].spans, groups[other].spans)
            rules += [(other, index, -high, -low) for low, high in found]
    for (index, other), ranges in apart.items():
        rules += [(index, other, low, high) for low, high in ranges if low < high]
    return rules


def _collisions(mine: Sequence[TimedSpan], others: Sequence[TimedSpan]) -> list[tuple[int, int]]:
    """Return the open distance ranges at which spans share bytes in a step."""
    found = sorted(
        (b.start - a.stop, b.stop - a.start)
        for a in mine
        for b in others
        if a.first <= b.last and b.first <= a.last
    )
    merged: list[tuple[int, int]] = []
    for start, stop in found:
        if merged and start < merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], stop))
        else:
            merged.append((start, stop))
    return merged
