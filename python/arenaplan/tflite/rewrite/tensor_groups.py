"""
Tensors inside other tensors.

A slice whose kernel copies bytes can lie inside the source, and a concatenation's operand inside
the result: the kernel then copies bytes onto themselves. Such tensors form a *group* with fixed
distances. Each byte range in a group has its own live range: image rows that no later strip needs
die before the whole image, and result rows are born strip by strip.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import Final, Literal, NamedTuple, TypeAlias

UNIT: Final = 16
"""Places are multiples of this byte count."""


class OperandCopy(NamedTuple):
    """
    Bytes that an operator copies from an operand to a result.

    Positions and sizes are multiples of :data:`UNIT`.
    """

    source: int
    target: int
    source_at: int
    target_at: int
    size: int


class GroupRead(NamedTuple):
    """Tensor bytes that an operator reads, in multiples of :data:`UNIT`."""

    tensor: int
    start: int
    stop: int


class Lead(NamedTuple):
    """
    Permission to write a result over an operand that is read in the same order.

    The result may begin ``distance`` bytes before the operand or earlier; with ``is_exact``, only
    at ``distance``.
    """

    source: int
    target: int
    distance: int
    is_exact: bool = False


@dataclass(frozen=True, slots=True)
class Use:
    """A step's memory."""

    reads: tuple[GroupRead, ...]
    writes: tuple[int, ...]
    copies: tuple[OperandCopy, ...] = ()
    """Copies that are the operator's only use of the sources."""
    is_idempotent: bool = False
    """Whether the kernel may copy bytes onto themselves."""
    leads: tuple[Lead, ...] = ()


@dataclass(frozen=True, slots=True)
class GroupLayout:
    """Tensors in an arena, and the steps that use the tensors."""

    boxes: tuple[int, ...]
    """Bytes by tensor, rounded up to :data:`UNIT`; 0 for tensors outside the arena."""
    uses: tuple[Use, ...]
    """By step; step 0 writes the inputs, and the last step reads the outputs."""

    @property
    def leads(self) -> list[Lead]:
        """Permissions in all steps to write results over operands."""
        return [lead for use in self.uses for lead in use.leads]


class TimedSpan(NamedTuple):
    """
    A byte range in a group, with the time in which the bytes are needed, ends inclusive.

    Step *i* lasts from time 2 *i* to 2 *i* + 1: a result with leads is born at the end of the step,
    after the overwritten operands have died, and at fixed distances from them.
    """

    start: int
    stop: int
    first: int
    last: int


@dataclass(slots=True)
class TensorGroup:
    """Tensors at fixed distances."""

    members: dict[int, int] = field(default_factory=dict)
    """Each tensor's distance from the group's start."""
    spans: tuple[TimedSpan, ...] = ()
    """Disjoint, in order."""
    size: int = 0


Aliases: TypeAlias = Literal["in order", "joins first", "once"]

ALIASES: Final[tuple[Aliases, ...]] = ("in order", "joins first", "once")


def groups_of(layout: GroupLayout, how: Aliases = "in order") -> list[TensorGroup]:
    """
    Return a layout's tensors as groups.

    A copy forms a group if no byte would have to hold two contents at a time.

    Parameters
    ----------
    layout : GroupLayout
        The tensors and steps.
    how : {"in order", "joins first", "once"}
        ``"in order"`` tries copies in step order. ``"joins first"`` tries operators that join
        several tensors first, so that a joined slice lies in the result, not in the source.
        ``"once"`` tries only the joins for joined slices, so that line buffers do not chain all
        strips at fixed distances.
    """
    groups: dict[int, TensorGroup] = {}
    home: dict[int, int] = {}
    life = _Life(layout)
    for tensor, size in enumerate(layout.boxes):
        if size:
            group = TensorGroup({tensor: 0})
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


def _joined(
    a: TensorGroup, b: TensorGroup, copy: OperandCopy, life: _Life, layout: GroupLayout
) -> TensorGroup | None:
    """Merge two groups so that a copy is onto itself, if the groups are compatible."""
    if any(
        (lead.source in a.members and lead.target in b.members)
        or (lead.source in b.members and lead.target in a.members)
        for lead in life.leads
    ):
        return None  # The packing chooses the distance between both groups.
    shift = a.members[copy.source] + copy.source_at - b.members[copy.target] - copy.target_at
    low = min(0, shift)
    members = {tensor: at - low for tensor, at in a.members.items()}
    members.update({tensor: at + shift - low for tensor, at in b.members.items()})
    spans = life.merged(members)
    if spans is None:
        return None
    size = max(at + layout.boxes[tensor] for tensor, at in members.items())
    return TensorGroup(members, spans, size)


class _Life:
    """When each byte range in each tensor is needed, and the origin of the content."""

    def __init__(self, layout: GroupLayout) -> None:
        self._layout = layout
        self.leads = layout.leads
        self._born: dict[int, int] = {}
        self._reads: dict[int, list[tuple[int, int, int]]] = {}
        self._tags: dict[int, list[tuple[int, int, int, int]]] = {}
        self._known: dict[int, list[tuple[int, int, int, int, int]]] = {}
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
        """Record the origin of each range in each tensor: start, stop, tensor, distance."""
        for use in self._layout.uses:
            copied: dict[int, list[OperandCopy]] = {}
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

    def _origin(self, copy: OperandCopy) -> list[tuple[int, int, int, int]]:
        """Return the pieces that a copy makes in the target."""
        first, last = copy.source_at, copy.source_at + copy.size
        whole = [(0, last, copy.source, 0)]
        pieces = []
        for start, stop, tensor, at in self._tags.get(copy.source, whole):
            low, high = max(start, first), min(stop, last)
            if low < high:
                shift = copy.target_at - first
                pieces.append((low + shift, high + shift, tensor, at + low - start))
        return pieces

    def spans(self, tensor: int) -> tuple[TimedSpan, ...]:
        """Return a tensor's spans."""
        found = self.merged({tensor: 0})
        return found if found is not None else ()

    def merged(self, members: dict[int, int]) -> tuple[TimedSpan, ...] | None:
        """Return a group's spans; None if a byte would have to hold two contents at once."""
        lives: list[tuple[int, int, int, int, tuple[int, int]]] = []
        edges: set[int] = set()
        for tensor, at in members.items():
            born = self._born.get(tensor, 0)
            for low, high, last, origin, distance in self._parts(tensor):
                lives.append((at + low, at + high, born, last, (origin, distance - at)))
                edges.update((at + low, at + high))
        order = sorted(edges)
        index = {edge: position for position, edge in enumerate(order)}
        cells: list[list[tuple[int, int, tuple[int, int]]]] = [[] for _ in order]
        for low, high, first, last, content in lives:
            for position in range(index[low], index[high]):
                cells[position].append((first, last, content))
        spans: list[TimedSpan] = []
        for (low, high), cell in zip(pairwise(order), cells, strict=False):
            intervals = _intervals(cell)
            if intervals is None:
                return None
            spans += [TimedSpan(low, high, first, last) for first, last in intervals]
        return tuple(_fused(spans))

    def _parts(self, tensor: int) -> list[tuple[int, int, int, int, int]]:
        """Return a tensor's ranges: both ends, last use, origin and distance from the origin."""
        if tensor not in self._known:
            self._known[tensor] = [
                (low, high, last, origin, distance - start)
                for start, stop, origin, distance in self._tags.get(tensor, ())
                for low, high, last in self._ends(tensor, start, stop)
            ]
        return self._known[tensor]

    def _ends(self, tensor: int, start: int, stop: int) -> list[tuple[int, int, int]]:
        """Return the parts of a range, each with the last step of use."""
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
    """Return the steps in which a byte is needed, if there is only one content at a time."""
    found: list[tuple[int, int]] = []
    if len(cell) > 1:
        cell = sorted(cell)
    for at, (first, last, content) in enumerate(cell):
        for other_first, _, other in cell[at + 1 :]:
            if other_first > last:
                break
            if other != content:
                return None
        if found and first <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(found[-1][1], last))
        else:
            found.append((first, last))
    return found


def _fused(spans: list[TimedSpan]) -> Iterable[TimedSpan]:
    """Join adjacent spans with equal steps."""
    spans.sort(key=lambda span: (span.first, span.last, span.start))
    result: list[TimedSpan] = []
    for span in spans:
        last = result[-1] if result else None
        if last is not None and last[1:] == (span.start, span.first, span.last):
            result[-1] = last._replace(stop=span.stop)
        else:
            result.append(span)
    return sorted(result)


def live_bytes(groups: Sequence[TensorGroup], steps: int) -> list[int]:
    """Return the bytes that are live at each time; two times are a step."""
    change = [0] * (2 * steps + 1)
    for group in groups:
        for span in group.spans:
            change[span.first] += span.stop - span.start
            change[span.last + 1] -= span.stop - span.start
    return list(accumulate(change[:-1]))
