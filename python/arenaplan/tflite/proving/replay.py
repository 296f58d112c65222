"""
Replays the plan in a file: operators run on bytes labeled with elements.

TensorFlow Lite Micro puts tensors at the plan's offsets without checks. A tensor without an offset
is placed by the runtime for the whole time in which operators mention the tensor, apart from all
tensors live then, and cannot be overwritten.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np

from arenaplan.base.errors import PlanOverlap, fault
from arenaplan.tflite.proving.derive import Justified, KnownElements
from arenaplan.tflite.proving.elements import DOUBT, Elements, place
from arenaplan.tflite.proving.facts import ONLINE, Fact, Operation
from arenaplan.tflite.proving.kernel_order import IN_ORDER, fits_in_place, last_reads

UNIT: Final = 16
"""Offsets are multiples of this byte count."""

_MAX: Final = 2**31 - 1
_LANES: Final = 16
"""More than an element's bytes."""

COPIERS: Final[Mapping[str, str]] = {
    "CONCATENATION": "one memcpy for each piece of an operand",
    "EXPAND_DIMS": "one memcpy; none at equal addresses in later versions",
    "PACK": "a loop over elements for each piece of an operand",
    "RESHAPE": "one memcpy, or none at equal addresses",
    "SLICE": "element i of the source is read, then element i of the result is written",
    "SPLIT": "one memcpy, or a loop over elements, for each piece of a result",
    "SPLIT_V": "one memcpy, or a loop over elements, for each piece of a result",
    "SQUEEZE": "one memcpy, or none at equal addresses",
    "STRIDED_SLICE": "element i of the source is read, then element i of the result is written",
    "UNPACK": "a loop over elements for each piece of a result",
}
"""
Operators whose kernel may find the source in the result's place, byte on equal byte, and why: the
kernel stores only bytes that it has read from the same place.
"""


class Replayed(NamedTuple):
    """A plan that holds."""

    head: int
    """Bytes up to the end of the last planned tensor."""
    planned: int
    """Tensors with an offset."""
    online: int
    """Tensors that the runtime places."""
    aliases: tuple[tuple[int, int, int], ...]
    """Operators that copy bytes onto themselves: operator, tensor read, tensor written."""
    overlaps: tuple[tuple[int, int, int], ...]
    """Operators that write over used-up operands, as reference kernels may."""
    in_place: tuple[tuple[int, int, int], ...] = ()
    """
    Operators whose result is at an operand's address, element by element, as all known kernel sets
    allow.
    """

    @property
    def kernels(self) -> str:
        """
        Kernels for which the plan is safe.

        ``"any"``; ``"known"``, kernels that work element by element in memory order, according to
        the sources of the known kernel sets; or ``"reference"``.
        """
        return "reference" if self.overlaps else "known" if self.in_place else "any"


def replay(
    known: KnownElements, offsets: Sequence[int], justified: Sequence[Justified]
) -> Replayed:
    """
    Run the operators on the plan's bytes.

    Parameters
    ----------
    known : KnownElements
        The rewritten graph, with every tensor's elements.
    offsets : sequence of int
        Offset by tensor; -1 where the runtime decides.
    justified : sequence of Justified
        The graph's operators, in order.

    Raises
    ------
    PlanError
        If an offset is not possible or belongs to a tensor outside the arena.
    PlanOverlap
        If an operator would read bytes that do not belong to an operand.
    """
    return _Memory(known, offsets).run(justified)


class _Memory:
    """An arena's planned bytes."""

    def __init__(self, known: KnownElements, offsets: Sequence[int]) -> None:
        self._known = known
        self._graph = known.graph
        self._planned = self._checked(offsets)
        self._at = self._packed()
        size = max((at + self._fact(t).size for t, at in self._at.items()), default=0)
        self._bytes = np.full(size, -1, np.int64)
        """Element and byte within the element, as one number."""
        self._writer = np.full(size, -1, np.int64)
        self._aliases: list[tuple[int, int, int]] = []
        self._overlaps: list[tuple[int, int, int]] = []
        self._places: list[tuple[int, int, int]] = []

    def _fact(self, number: int) -> Fact:
        return self._graph.tensors[number]

    def _checked(self, offsets: Sequence[int]) -> dict[int, int]:
        """Return the offsets that the plan gives."""
        handles = {
            number
            for operation in self._graph.operations
            if operation.name == "VAR_HANDLE"
            for number in operation.outputs
        }
        found = {}
        for fact, offset in zip(self._graph.tensors, offsets, strict=True):
            if offset == ONLINE:
                continue
            if fact.is_constant or fact.is_variable or fact.index in handles or not fact.size:
                raise fault(
                    "PlanMismatch", f"{fact.text()} has an offset, but no memory in the arena"
                )
            if offset < 0 or offset + fact.size > _MAX:
                raise fault("PlanOutOfBounds", f"{fact.text()} is at {offset}")
            if offset % UNIT:
                raise fault(
                    "PlanMisaligned", f"{fact.text()} is at {offset}, no multiple of {UNIT}"
                )
            found[fact.index] = offset
        return found

    def _packed(self) -> dict[int, int]:
        """Return offsets without the bytes that no tensor has."""
        found, end, shift = {}, 0, 0
        for number in sorted(self._planned, key=lambda t: self._planned[t]):
            offset = self._planned[number]
            if offset > end:
                shift += offset - end
            found[number] = offset - shift
            end = max(end, offset + self._fact(number).size)
        return found

    def run(self, justified: Sequence[Justified]) -> Replayed:
        """Run all operators."""
        inputs = dict.fromkeys(i for i in self._graph.inputs if i in self._at)
        taken: dict[int, int] = {}
        for number in inputs:
            self._apart(number, taken, "the caller writes")
            taken[number] = number
            self._write(number)
        for entry in justified:
            self._operator(self._graph.operations[entry.operator], entry)
        for number in dict.fromkeys(self._graph.outputs):
            if number in self._at:
                self._read(number, None, "the caller")
        online = sum(
            number in self._known.written and number not in self._at
            for number in range(len(self._graph.tensors))
        )
        head = max((o + self._fact(t).size for t, o in self._planned.items()), default=0)
        found = (tuple(self._aliases), tuple(self._overlaps), tuple(self._places))
        return Replayed(head, len(self._at), online, *found)

    def _operator(self, operation: Operation, entry: Justified) -> None:
        """Run an operator: all operands must be present and must stay intact meanwhile."""
        used = self._used(operation, entry)
        for number, mask in used.items():
            self._read(number, mask, operation.text())
        written: dict[int, int] = {}
        for number in operation.outputs:
            if number not in self._at:
                continue
            self._apart(number, written, f"{operation.text()} writes")
            for source, mask in used.items():
                self._in_place(operation, source, mask, number)
            written[number] = number
        for number in written:
            self._write(number)

    def _used(self, operation: Operation, entry: Justified) -> dict[int, np.ndarray | None]:
        """Return the planned tensors that an operator reads, with the elements read."""
        numbers = [i for i in operation.inputs if i is not None]
        if entry.move is None:
            return {i: None for i in numbers if i in self._at}
        parts: list[np.ndarray] = []
        reads = [operation.inputs[p] for p in entry.move.reads]
        counts = [0 if i is None else self._fact(i).count for i in reads]
        seen = np.zeros(sum(counts), bool)
        for result in entry.move.results:
            seen[result[result >= 0]] = True
        parts = np.split(seen, np.cumsum(counts)[:-1])
        found: dict[int, np.ndarray | None] = {}
        for number, part in zip(reads, parts, strict=True):
            if number is not None and number in self._at:
                before = found.get(number)
                found[number] = part if before is None else part | before
        return found

    def _span(self, number: int) -> slice:
        at = self._at[number]
        return slice(at, at + self._fact(number).size)

    def _tags(self, number: int) -> Elements:
        """Return the labels for a tensor's bytes."""
        item = self._fact(number).item
        tags: Elements = self._known.of(number).reshape(-1, 1) * _LANES + np.arange(item)
        return tags.ravel()

    def _mask(self, number: int, mask: np.ndarray | None) -> np.ndarray:
        """Return which tensor bytes are read, without bytes in doubt."""
        sure = self._known.of(number).ravel() > DOUBT
        if mask is not None:
            sure = sure & mask
        return np.repeat(sure, self._fact(number).item)

    def _read(self, number: int, mask: np.ndarray | None, reader: str) -> None:
        """Refuse bytes that do not belong to a tensor."""
        span = self._span(number)
        lost = (self._bytes[span] != self._tags(number)) & self._mask(number, mask)
        if not lost.any():
            return
        byte, fact = int(lost.argmax()), self._fact(number)
        where = place(byte // fact.item, fact.shape)
        other = int(self._writer[span][byte])
        blame = "which nothing has written"
        if other >= 0:
            blame = f"which {self._fact(other).text()} at {self._planned[other]} has overwritten"
        raise PlanOverlap(
            f"{reader} reads {where} of {fact.text()} at byte {self._planned[number] + byte}, "
            f"{blame}"
        )

    def _write(self, number: int) -> None:
        span = self._span(number)
        self._bytes[span] = self._tags(number)
        self._writer[span] = number

    def _apart(self, number: int, others: Mapping[int, int], what: str) -> None:
        """Refuse a tensor that overlaps others that are written at the same time."""
        span = self._span(number)
        for other in others:
            theirs = self._span(other)
            if span.start < theirs.stop and theirs.start < span.stop:
                raise PlanOverlap(
                    f"{what} {self._fact(number).text()} at {self._planned[number]} over "
                    f"{self._fact(other).text()} at {self._planned[other]}"
                )

    def _in_place(
        self, operation: Operation, source: int, mask: np.ndarray | None, target: int
    ) -> None:
        """Refuse a result over bytes that the operator reads, except onto themselves."""
        read, written = self._span(source), self._span(target)
        first, last = max(read.start, written.start), min(read.stop, written.stop)
        if first >= last:
            return
        busy = self._mask(source, mask)[first - read.start : last - read.start]
        if not busy.any():
            return
        before = self._bytes[first:last]
        after = self._tags(target)[first - written.start : last - written.start]
        if operation.name in COPIERS and np.array_equal(before[busy], after[busy]):
            self._aliases.append((operation.index, source, target))
            return
        if self._at[source] == self._at[target] and fits_in_place(
            operation, self._fact(source), self._fact(target)
        ):
            self._places.append((operation.index, source, target))
            return
        if operation.name in IN_ORDER and self._is_used_up(operation, source, mask, target):
            self._overlaps.append((operation.index, source, target))
            return
        reason = "with other bytes" if operation.name in COPIERS else "with computed bytes"
        raise PlanOverlap(
            f"{operation.text()} writes {self._fact(target).text()} at {self._planned[target]}, "
            f"{reason}, over {self._fact(source).text()} at {self._planned[source]}, which it reads"
        )

    def _is_used_up(
        self, operation: Operation, source: int, mask: np.ndarray | None, target: int
    ) -> bool:
        """Return whether an in-order kernel reads each byte before writing there."""
        x, y = self._fact(source), self._fact(target)
        if len(operation.outputs) != 1:
            return False
        sure = self._mask(source, mask)
        # Operand addresses, as bytes of the result.
        at = np.arange(x.size) + self._at[source] - self._at[target]
        inside = sure & (at >= 0) & (at < y.size)
        for position, number in enumerate(operation.inputs):
            if number != source:
                continue
            last = last_reads(operation, position, self._graph.tensors)
            if last is None:
                return False
            read = np.repeat(last, x.item)
            if (at[inside] // y.item < read[inside]).any():
                return False
        return True
