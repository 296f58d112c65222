"""
Places for tensors that are parts of each other.

A slice whose kernel copies bytes can lie inside of its source, and an operand of a concatenation
inside of the result: the kernel then copies bytes onto themselves. Such tensors form a *group* of
fixed distances. Each range of bytes of a group has a live range of its own: rows of an image that
no strip needs any more die before the image does, and rows of a result are born strip by strip.
Groups are placed by first fit in many orders; :func:`replay` then runs the program on symbolic
memory and refuses places with which an operator would not read what it should.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import Final, Literal, NamedTuple, TypeAlias

from arenaplan.errors import PlanMisaligned, PlanOverlap

_FAR: Final = 1 << 60
"""Beyond every offset."""

_HOT: Final = 0.6
"""Share of the peak from which on a step is loaded; all other groups are placed last."""

_WARM: Final = 0.2
"""The same where results may be written over operands."""

_PATIENCE: Final = 120
"""Orders that are tried before the search goes back to the best."""

UNIT: Final = 16
"""Places are multiples of this many bytes."""


class Copy(NamedTuple):
    """
    Bytes that an operator copies from a tensor that it reads to one that it writes.

    Positions and sizes are multiples of :data:`UNIT`.
    """

    source: int
    target: int
    source_at: int
    target_at: int
    size: int


class Read(NamedTuple):
    """Bytes of a tensor that an operator reads, from and to multiples of :data:`UNIT`."""

    tensor: int
    start: int
    stop: int


class Lead(NamedTuple):
    """
    Leave to write a result over an operand that is read in the same order.

    The result may begin ``distance`` bytes before the operand, or earlier.
    """

    source: int
    target: int
    distance: int


@dataclass(frozen=True, slots=True)
class Use:
    """The memory of one step."""

    reads: tuple[Read, ...]
    writes: tuple[int, ...]
    copies: tuple[Copy, ...] = ()
    """Copies that are all that the operator does with their sources."""
    is_idempotent: bool = False
    """Whether the kernel may copy bytes onto themselves."""
    leads: tuple[Lead, ...] = ()


@dataclass(frozen=True, slots=True)
class Layout:
    """Tensors in an arena, and the steps that use them."""

    boxes: tuple[int, ...]
    """Bytes by tensor, rounded up to :data:`UNIT`; 0 for tensors outside of the arena."""
    uses: tuple[Use, ...]
    """By step; step 0 writes the inputs, and the last one reads the outputs."""

    @property
    def leads(self) -> list[Lead]:
        """Leaves to write results over operands, of all steps."""
        return [lead for use in self.uses for lead in use.leads]


class Span(NamedTuple):
    """
    A range of bytes of a group, over the time in which it is needed, both ends inclusive.

    Step *i* lasts from time 2 *i* to 2 *i* + 1: a result with leads is born at the end of its step,
    after the operands that it may overwrite have died, and at fixed distances from them.
    """

    start: int
    stop: int
    first: int
    last: int


@dataclass(slots=True)
class Group:
    """Tensors at fixed distances."""

    members: dict[int, int] = field(default_factory=dict)
    """Distance of each tensor from the begin of the group."""
    spans: tuple[Span, ...] = ()
    """Disjoint, in order."""
    size: int = 0


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
        found = _Packing(groups, live, layout).search(tries // len(ways), seed, max(bound, goal))
        offsets = [-1] * len(layout.boxes)
        for group, offset in zip(groups, found, strict=True):
            for tensor, distance in group.members.items():
                offsets[tensor] = offset + distance
        head = max(
            (o + size for o, size in zip(offsets, layout.boxes, strict=True) if o >= 0), default=0
        )
        results.append(Placed(tuple(offsets), head, bound))
    return min(results, key=lambda placed: placed.head)


# -- groups -----------------------------------------------------------------------------------


Aliases: TypeAlias = Literal["in order", "joins first", "once"]

ALIASES: Final[tuple[Aliases, ...]] = ("in order", "joins first", "once")


def groups_of(layout: Layout, how: Aliases = "in order") -> list[Group]:
    """
    Return the tensors of a layout as groups.

    A copy makes a group if no byte of it would have to hold two things at a time.

    Parameters
    ----------
    layout : Layout
        The tensors and steps.
    how : {"in order", "joins first", "once"}
        Copies are tried in the order of the steps; or those of operators that join several
        tensors are tried before, so that a slice that is joined lies in the result, not in its
        source; or these alone for slices that are joined, so that line buffers do not chain all
        strips at fixed distances.
    """
    groups: dict[int, Group] = {}
    home: dict[int, int] = {}
    life = _Life(layout)
    for tensor, size in enumerate(layout.boxes):
        if size:
            group = Group({tensor: 0})
            group.spans = life.spans(tensor)
            group.size = layout.boxes[tensor]
            groups[tensor], home[tensor] = group, tensor
    uses = [use for use in layout.uses if use.is_idempotent]
    if how != "in order":
        uses.sort(key=lambda use: len(use.copies) < 2)
    joined: set[int] = set()
    for use in uses:
        for copy in use.copies:
            if how == "once" and copy.target in joined:
                continue
            if copy.source not in home or copy.target not in home:
                continue
            first, second = home[copy.source], home[copy.target]
            if first == second:
                continue
            both = _joined(groups[first], groups[second], copy, life, layout)
            if both is not None:
                groups[first] = both
                del groups[second]
                for tensor in both.members:
                    home[tensor] = first
                if len(use.copies) > 1:
                    joined.add(copy.source)
    return list(groups.values())


def _joined(a: Group, b: Group, copy: Copy, life: _Life, layout: Layout) -> Group | None:
    """Return two groups as one in which a copy copies onto itself, if they agree."""
    if any(lead.source in a.members and lead.target in b.members for lead in layout.leads) or any(
        lead.source in b.members and lead.target in a.members for lead in layout.leads
    ):
        return None  # The distance of both is for the packing to choose.
    shift = a.members[copy.source] + copy.source_at - b.members[copy.target] - copy.target_at
    low = min(0, shift)
    members = {tensor: at - low for tensor, at in a.members.items()}
    members.update({tensor: at + shift - low for tensor, at in b.members.items()})
    spans = life.merged(members)
    if spans is None:
        return None
    size = max(at + layout.boxes[tensor] for tensor, at in members.items())
    return Group(members, spans, size)


class _Life:
    """When each range of bytes of each tensor is needed, and whose content it has."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._born: dict[int, int] = {}
        self._reads: dict[int, list[tuple[int, int, int]]] = {}
        self._tags: dict[int, list[tuple[int, int, int, int]]] = {}
        for step, use in enumerate(layout.uses):
            ahead = {lead.source for lead in use.leads}
            for tensor in use.writes:
                self._born.setdefault(tensor, 2 * step + bool(ahead))
            for read in use.reads:
                if layout.boxes[read.tensor]:
                    time = 2 * step + bool(ahead and read.tensor not in ahead)
                    self._reads.setdefault(read.tensor, []).append((time, read.start, read.stop))
        self._content()

    def _content(self) -> None:
        """Note for each tensor the origin of each range: start, stop, tensor, distance."""
        for use in self._layout.uses:
            copied: dict[int, list[Copy]] = {}
            for copy in use.copies:
                copied.setdefault(copy.target, []).append(copy)
            for tensor in use.writes:
                pieces: list[tuple[int, int, int, int]] = []
                at = 0
                for copy in sorted(copied.get(tensor, []), key=lambda copy: copy.target_at):
                    if copy.target_at > at:
                        pieces.append((at, copy.target_at, tensor, at))
                    pieces += self._origin(copy)
                    at = copy.target_at + copy.size
                if at < self._layout.boxes[tensor]:
                    pieces.append((at, self._layout.boxes[tensor], tensor, at))
                self._tags[tensor] = pieces

    def _origin(self, copy: Copy) -> list[tuple[int, int, int, int]]:
        """Return the pieces that a copy makes in its target."""
        first, last = copy.source_at, copy.source_at + copy.size
        whole = [(0, last, copy.source, 0)]
        pieces = []
        for start, stop, tensor, at in self._tags.get(copy.source, whole):
            low, high = max(start, first), min(stop, last)
            if low < high:
                shift = copy.target_at - first
                pieces.append((low + shift, high + shift, tensor, at + low - start))
        return pieces

    def spans(self, tensor: int) -> tuple[Span, ...]:
        """Return the spans of one tensor."""
        found = self.merged({tensor: 0})
        return found if found is not None else ()

    def merged(self, members: dict[int, int]) -> tuple[Span, ...] | None:
        """Return the spans of a group, or None if a byte would have to hold two things at once."""
        lives: list[tuple[int, int, int, int, tuple[int, int]]] = []
        edges: set[int] = set()
        for tensor, at in members.items():
            for start, stop, origin, distance in self._tags.get(tensor, ()):
                for low, high, last in self._ends(tensor, start, stop):
                    content = (origin, distance + low - start - (at + low))
                    lives.append((at + low, at + high, self._born[tensor], last, content))
                    edges.update((at + low, at + high))
        order = sorted(edges)
        index = {edge: position for position, edge in enumerate(order)}
        cells: list[list[tuple[int, int, tuple[int, int]]]] = [[] for _ in order]
        for low, high, first, last, content in lives:
            for position in range(index[low], index[high]):
                cells[position].append((first, last, content))
        spans: list[Span] = []
        for (low, high), cell in zip(pairwise(order), cells, strict=False):
            for first, last in _intervals(cell) or ():
                spans.append(Span(low, high, first, last))
            if cell and _intervals(cell) is None:
                return None
        return tuple(_fused(spans))

    def _ends(self, tensor: int, start: int, stop: int) -> list[tuple[int, int, int]]:
        """Return the parts of a range, each with the step of its last use."""
        born = self._born[tensor]
        reads = self._reads.get(tensor, ())
        edges = {start, stop}
        for _, low, high in reads:
            edges.update(edge for edge in (low, high) if start < edge < stop)
        parts = []
        for low, high in pairwise(sorted(edges)):
            last = max((step for step, a, b in reads if a <= low < b), default=born)
            parts.append((low, high, max(last, born)))
        return parts


def _intervals(cell: Sequence[tuple[int, int, tuple[int, int]]]) -> list[tuple[int, int]] | None:
    """Return the steps in which a byte is needed, if it holds one thing at a time."""
    found: list[tuple[int, int]] = []
    for first, last, content in sorted(cell):
        for other_first, other_last, other in cell:
            if other != content and first <= other_last and other_first <= last:
                return None
        if found and first <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(found[-1][1], last))
        else:
            found.append((first, last))
    return found


def _fused(spans: list[Span]) -> Iterable[Span]:
    """Join neighbors of equal steps."""
    spans.sort(key=lambda span: (span.first, span.last, span.start))
    result: list[Span] = []
    for span in spans:
        last = result[-1] if result else None
        if last is not None and last[1:] == (span.start, span.first, span.last):
            result[-1] = last._replace(stop=span.stop)
        else:
            result.append(span)
    return sorted(result)


def live_bytes(groups: Sequence[Group], steps: int) -> list[int]:
    """Return the bytes that are live at each time; two times are a step."""
    change = [0] * (2 * steps + 1)
    for group in groups:
        for span in group.spans:
            change[span.first] += span.stop - span.start
            change[span.last + 1] -= span.stop - span.start
    return list(accumulate(change[:-1]))


# -- packing ----------------------------------------------------------------------------------


class _Packing:
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
            apart.setdefault((b, a), []).append((low, high))
            apart.setdefault((a, b), []).append((-high, -low))
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


# -- proof ------------------------------------------------------------------------------------


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
