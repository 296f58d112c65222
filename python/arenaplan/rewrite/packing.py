"""Packing of groups of tensors at fixed distances: local search over orders of placing."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final

from arenaplan.rewrite.groups import Group, Layout, Lead, Span

_FAR: Final = 1 << 60
"""Beyond every offset."""

_WARM: Final = 0.2
"""The same where results may be written over operands."""

_HOT: Final = 0.6
"""Share of the peak from which on a step is loaded; all other groups are placed last."""

_PATIENCE: Final = 120
"""Orders that are tried before the search goes back to the best."""


class Packing:
    """
    Search for offsets of groups.

    Every packing that cannot be pushed down results from placing each group at the lowest free
    offset, in the order of the offsets. The search therefore moves groups in such an order.
    """

    def __init__(self, groups: Sequence[Group], live: Sequence[int], layout: Layout) -> None:
        self._groups = groups
        self._boxes = layout.boxes
        self._steps = [
            (min(s.first for s in g.spans), max(s.last for s in g.spans)) for g in groups
        ]
        self._near = self._neighbors(layout.leads)
        self._sizes = [group.size for group in groups]
        # Results over operands keep distances, which chain groups beyond the loaded steps.
        level = (_WARM if layout.leads else _HOT) * max(live, default=0)
        loads = [max(live[first : last + 1]) for first, last in self._steps]
        self._cold = [i for i, load in enumerate(loads) if load < level]
        self._hot = [i for i, load in enumerate(loads) if load >= level]

    def search(self, tries: int, seed: int, goal: int) -> list[int]:
        """Return the best offsets of several orders."""
        if not self._groups:
            return []
        draw = random.Random(seed)
        best: dict[int, int] = {}
        height = _FAR
        for order in self._orders():
            for offsets in (self._spread(order, height), self._lowest(order, {}, height)):
                if offsets is not None and self._extent(offsets) < height:
                    best, height = offsets, self._extent(offsets)
        limit = tries // 2
        best = self._by_height(best, limit, goal, draw)
        best = self._by_order(best, tries - limit, goal, draw)
        low = min(best.values())
        best = {index: offset - low for index, offset in best.items()}
        self._cold.sort(key=lambda i: (-self._sizes[i], i))
        every = self._lowest([*best, *self._cold], best, _FAR) or {}
        return [every[index] for index in range(len(self._groups))]

    def _by_height(
        self, best: dict[int, int], tries: int, goal: int, draw: random.Random
    ) -> dict[int, int]:
        """Move groups in the order of their offsets, and place each as low as possible."""
        height = self._extent(best)
        now, now_height = best, height
        for attempt in range(tries):
            if height <= goal:
                break
            if attempt % _PATIENCE == 0:
                now, now_height = best, height
            order = sorted(now, key=lambda i: (now[i], i))
            start = len(order)
            for _ in range(1 if draw.random() < 0.7 else 2):
                at = order.index(self._guilty(now, draw))
                to = draw.randrange(max(1, at))
                order.insert(to, order.pop(at))
                start = min(start, to)
            kept = {index: now[index] for index in order[:start]}
            trial = self._lowest(order, kept, now_height)
            if trial is not None:
                now, now_height = trial, self._extent(trial)
                if now_height < height:
                    best, height = now, now_height
        return best

    def _by_order(
        self, best: dict[int, int], tries: int, goal: int, draw: random.Random
    ) -> dict[int, int]:
        """Move groups in the order of placing, and place each below or above others."""
        height = self._extent(best)
        starts = [(self._spread(order, _FAR), order) for order in self._orders()]
        known = [(self._extent(offsets), order) for offsets, order in starts if offsets]
        low, order = min(known)
        now, now_height = order, low
        for attempt in range(tries):
            if height <= goal:
                break
            if attempt % _PATIENCE == 0:
                now, now_height = order, low
            trial = list(now)
            for _ in range(draw.randint(1, 3)):
                at, to = draw.randrange(len(trial)), draw.randrange(len(trial))
                trial.insert(to, trial.pop(at))
            offsets = self._spread(trial, now_height)
            if offsets is None:
                continue
            now, now_height = trial, self._extent(offsets)
            if now_height < low:
                order, low = now, now_height
            if now_height < height:
                best, height = offsets, now_height
        return best

    def _orders(self) -> list[list[int]]:
        """Return orders to begin with."""
        every, sizes = self._hot, self._sizes
        return [
            sorted(every, key=lambda i: (-sizes[i], i)),
            sorted(every, key=lambda i: (-self._weight(i), i)),
            sorted(every, key=lambda i: (self._steps[i], -sizes[i])),
            sorted(every, key=lambda i: (-self._steps[i][1], -sizes[i])),
        ]

    def _box(self, tensor: int) -> int:
        """Return the bytes of a tensor."""
        return self._boxes[tensor]

    def _guilty(self, offsets: dict[int, int], draw: random.Random) -> int:
        """Return a group that reaches the top, or any."""
        if draw.random() < 0.5:
            top = max(o + self._sizes[i] for i, o in offsets.items())
            return draw.choice([i for i, o in offsets.items() if o + self._sizes[i] == top])
        return draw.choice(self._hot)

    def _weight(self, index: int) -> int:
        """Return the bytes of a group times the steps in which they are needed."""
        return sum((s.stop - s.start) * (s.last - s.first + 1) for s in self._groups[index].spans)

    def _extent(self, offsets: dict[int, int]) -> int:
        """Return the bytes between the first and the last."""
        top = max(o + self._sizes[i] for i, o in offsets.items())
        return top - min(offsets.values())

    def _spread(self, order: Sequence[int], limit: int) -> dict[int, int] | None:
        """Place groups below or above others, so that the whole grows least; None above a limit."""
        offsets: dict[int, int] = {}
        low = high = 0
        for index in order:
            size = self._sizes[index]
            offset = _free(self._blocked(index, offsets), size, low, high)
            low, high = min(low, offset), max(high, offset + size)
            if high - low > limit:
                return None
            offsets[index] = offset
        return offsets

    def _lowest(
        self, order: Sequence[int], kept: dict[int, int], limit: int
    ) -> dict[int, int] | None:
        """Place groups at the lowest free offsets; None if they end above the limit."""
        offsets = dict(kept)
        for index in order[len(kept) :]:
            offset = 0
            for start, stop in self._blocked(index, offsets):
                if start >= offset:
                    break
                offset = max(offset, stop)
            if offset + self._sizes[index] > limit:
                return None
            offsets[index] = offset
        return offsets

    def _blocked(self, index: int, offsets: dict[int, int]) -> list[tuple[int, int]]:
        """Return the open ranges of offsets at which a group collides with those placed."""
        blocked: list[tuple[int, int]] = []
        for other, pair in self._near[index]:
            base = offsets.get(other)
            if base is not None:
                for start, stop in pair:
                    blocked.append((start + base, stop + base))
        blocked.sort()
        return blocked

    def _neighbors(
        self, leads: Sequence[Lead]
    ) -> list[list[tuple[int, tuple[tuple[int, int], ...]]]]:
        """Return, per group, those that it can collide with, and at which open distances."""
        near: list[list[tuple[int, tuple[tuple[int, int], ...]]]] = [[] for _ in self._groups]
        home = {tensor: i for i, group in enumerate(self._groups) for tensor in group.members}
        apart: dict[tuple[int, int], list[tuple[int, int]]] = {}
        for lead in leads:
            a, b = home[lead.source], home[lead.target]
            shift = self._groups[a].members[lead.source] - self._groups[b].members[lead.target]
            low, high = shift - lead.distance, shift + self._box(lead.source)
            # The offset of the result's group beyond that of the operand's.
            closed = [(low, high)]
            if lead.is_exact:
                closed.append((shift - self._box(lead.target), low))
            for start, stop in closed:
                apart.setdefault((b, a), []).append((start, stop))
                apart.setdefault((a, b), []).append((-stop, -start))
        order = sorted(range(len(self._groups)), key=lambda i: self._steps[i])
        for rank, index in enumerate(order):
            last = self._steps[index][1]
            for other in order[rank + 1 :]:
                if self._steps[other][0] > last:
                    break
                found = _collisions(self._groups[index].spans, self._groups[other].spans)
                if found and (index, other) not in apart:
                    near[index].append((other, found))
                    near[other].append((index, tuple((-b, -a) for a, b in reversed(found))))
        for (index, other), more in apart.items():
            found = _collisions(self._groups[index].spans, self._groups[other].spans)
            near[index].append((other, _merged([*found, *more])))
        return near


def _collisions(mine: Sequence[Span], others: Sequence[Span]) -> tuple[tuple[int, int], ...]:
    """Return the open ranges of distances at which spans share bytes in a step."""
    found = [
        (b.start - a.stop, b.stop - a.start)
        for a in mine
        for b in others
        if a.first <= b.last and b.first <= a.last
    ]
    return _merged(found)


def _merged(ranges: Sequence[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Return open ranges that do not overlap, and cover the same numbers."""
    merged: list[tuple[int, int]] = []
    for start, stop in sorted(ranges):
        if merged and start < merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], stop))
        else:
            merged.append((start, stop))
    return tuple(merged)


def _free(blocked: Sequence[tuple[int, int]], size: int, low: int, high: int) -> int:
    """Return the offset outside of all open ranges with which the whole grows least."""
    # Between these two offsets the whole grows by the same, and by least.
    first, last = min(low, high - size), max(low, high - size)
    best, distance = 0, _FAR
    reach = -_FAR
    for start, stop in (*blocked, (_FAR, _FAR)):
        if start >= reach:
            if max(reach, first) <= min(start, last):
                return max(reach, first)
            if start < first and first - start < distance:
                best, distance = start, first - start
            elif reach > last and reach - last < distance:
                best, distance = reach, reach - last
            if reach > last:
                break
        reach = max(reach, stop)
    return best
